//! The health of each tier: the errors of its calls, whether it fails now, and the program that used it last.
//!
//! No function here makes a call on a tier, so that a query does not wake a sleeping disk.

use super::Tiers;
use crate::catalogue::NodeId;
use crate::sync::lock;
use crate::tree::{Tier, disks_in};
use isotherm_answers::files::{Health as HealthAnswer, LastError, LastOpened};
use rustix::io::Errno;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Minimum time between two messages that a tier does not answer.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The process that opened a file on the tier last.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// Process id. 0 stands for this program itself, which moves the file.
    pub(crate) pid: u32,
    path: Vec<u8>,
    when: Instant,
    program: String,
}

/// The health of one tier.
#[derive(Debug, Default)]
pub(crate) struct Health {
    errors: AtomicU64,
    failing: AtomicBool,
    /// Whether a change failed because the file system is read-only, and none was made since.
    read_only: AtomicBool,
    last_error: Mutex<Option<(Instant, String)>>,
    reported: Mutex<Option<Instant>>,
    last_user: Mutex<Option<User>>,
}

impl Health {
    fn failed(&self, text: String) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        *lock(&self.last_error) = Some((Instant::now(), text));
    }
}

/// Whether the error means that the device or its server failed, rather than that the call was wrong.
fn is_trouble(e: Errno) -> bool {
    matches!(
        e,
        Errno::IO
            | Errno::NODEV
            | Errno::NXIO
            | Errno::NOTCONN
            | Errno::TIMEDOUT
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::CONNABORTED
            | Errno::CONNRESET
            | Errno::REMOTEIO
            | Errno::UCLEAN
    )
}

impl Tiers {
    /// Whether a tier has been missing since the mount.
    pub fn is_absent(&self, tier: Tier) -> bool {
        self.root(tier).absent
    }
    /// Whether the last call that went to the device of a tier failed, or its server or disk has not answered for a while.
    pub fn is_failing(&self, tier: Tier) -> bool {
        let failing = || self.disk(tier).health.failing.load(Ordering::Relaxed);
        if failing() && !self.root(tier).local {
            // Its server may be back: it is asked for its space, at most every half second.
            self.room(tier);
        }
        self.root(tier).hangs() || self.is_silent(tier) || failing()
    }
    /// Whether the file system of a tier has become read-only.
    pub fn is_read_only(&self, tier: Tier) -> bool {
        let health = &self.disk(tier).health;
        health.read_only.load(Ordering::Relaxed)
    }
    /// Whether the tier is present, answers and accepts changes.
    pub(crate) fn is_healthy(&self, tier: Tier) -> bool {
        !self.is_absent(tier) && !self.is_failing(tier) && !self.is_read_only(tier)
    }
    /// Says whether a disk lies on the file system of another, and what that lacks.
    pub(crate) fn say_what_lacks(&self, disk: Tier) {
        let root = self.root(disk);
        if root.absent {
            return;
        }
        let (shown, layout) = (root.path.display(), self.layout());
        let mut same = (0..disk).filter(|other| self.root(*other).dev == root.dev);
        // The last one is of the same tier, if any is.
        if let Some(other) = same.next_back() {
            let what = if layout.tier_of(other) == layout.tier_of(disk) {
                "disk: both have the same space, and fail together"
            } else {
                "tier: moving files there gains nothing"
            };
            self.say(&format!(
                "{shown}: lies on the same file system as another {what}"
            ));
        }
        match root.lacks() {
            Ok(lacks) => {
                for what in lacks {
                    self.say(&format!("{shown}: the file system of this tier has {what}"));
                }
            }
            Err(e) => self.say(&format!(
                "{shown}: what the file system of this tier has could not be tried: {e}"
            )),
        }
    }
    /// Looks whether tiers that became read-only accept changes again.
    pub(crate) fn try_read_only_tiers(&self) {
        for (tier, root) in self.roots.iter().enumerate() {
            let read_only = &self.disks[tier].health.read_only;
            if read_only.load(Ordering::Relaxed) && root.prove_writable().is_ok() {
                read_only.store(false, Ordering::Relaxed);
                self.say(&format!("{}: accepts changes again", root.path.display()));
            }
        }
    }
    /// The file system of a tier refused a change because it is read-only.
    fn became_read_only(&self, tier: Tier, path: &[u8]) {
        let health = &self.disk(tier).health;
        let path = String::from_utf8_lossy(path);
        health.failed(format!("{path}: {}", Errno::ROFS));
        if !health.read_only.swap(true, Ordering::Relaxed) {
            self.say(&format!(
                "{path}: cannot be changed: the file system of its tier {} is read-only, most likely after an error (see dmesg). Its files can be read and the rest works; repair it and mount again",
                self.tier_name(tier)
            ));
        }
    }
    /// Checks that the tier is present. If it is not, this is reported, at most every ten seconds, and the error is EIO.
    pub(crate) fn require_present(&self, tier: Tier, path: &[u8]) -> Result<(), Errno> {
        if !self.is_absent(tier) {
            return Ok(());
        }
        self.does_not_answer(tier, path, "it is missing");
        Err(Errno::IO)
    }
    /// Counts and reports that a call on a file failed because of its tier.
    pub(crate) fn does_not_answer(&self, tier: Tier, path: &[u8], why: &str) {
        let health = &self.disk(tier).health;
        let path = String::from_utf8_lossy(path);
        health.failed(format!("{path}: {why}"));
        let mut reported = lock(&health.reported);
        if reported.is_none_or(|t| t.elapsed() >= REPORT_INTERVAL) {
            *reported = Some(Instant::now());
            drop(reported);
            self.say(&format!(
                "{path}: error to whoever uses it: its tier {} does not answer ({why})",
                self.tier_name(tier)
            ));
        }
    }
    /// Called when a call on that path of a tier failed. An error of the device is counted and reported. Returns the error for the user of
    /// the file: EIO if the device failed, because programs do not expect the errors of remote and user-level file systems that are gone.
    pub(crate) fn device_error(&self, tier: Tier, path: &[u8], e: Errno) -> Errno {
        if e == Errno::ROFS {
            self.became_read_only(tier, path);
        }
        if !is_trouble(e) {
            return e;
        }
        let failing = &self.disk(tier).health.failing;
        // Only later answers count.
        self.root(tier).take_answered();
        failing.store(true, Ordering::Relaxed);
        self.does_not_answer(tier, path, &e.to_string());
        Errno::IO
    }
    /// Of the given tiers (one bit each), those that are present.
    pub(crate) fn present(&self, on: u16) -> u16 {
        let present = disks_in(on).filter(|t| !self.is_absent(*t));
        present.fold(0, |all, t| all | 1 << t)
    }
    /// Records that a call succeeded which needed the device of the tier.
    pub(crate) fn device_answered(&self, tier: Tier) {
        let failing = &self.disk(tier).health.failing;
        if failing.load(Ordering::Relaxed) {
            failing.store(false, Ordering::Relaxed);
        }
    }
    /// Records that a process opened the file with that path. `pid` 0 stands for this program itself, which moves the file.
    pub(crate) fn used_by(&self, tier: Tier, path: Vec<u8>, pid: u32) {
        // The name is looked up now, because the process may have ended when `status` is called.
        let program = if pid == 0 {
            "isotherm (a move)".into()
        } else {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.unwrap_or_default().trim_end().to_owned()
        };
        *lock(&self.disk(tier).health.last_user) = Some(User {
            pid,
            path,
            when: Instant::now(),
            program,
        });
    }
    /// The health of a tier, for `status`.
    pub(crate) fn health_of(&self, tier: Tier, shown: impl Fn(NodeId) -> String) -> HealthAnswer {
        let health = &self.disk(tier).health;
        let error = |(when, text): &(Instant, String)| LastError {
            error: text.clone(),
            ago_s: when.elapsed().as_secs(),
        };
        let user = |u: &User| LastOpened {
            path: String::from_utf8_lossy(&u.path).into_owned(),
            program: u.program.clone(),
            pid: u.pid,
            ago_s: u.when.elapsed().as_secs(),
        };
        HealthAnswer {
            missing: self.is_absent(tier),
            failing: self.is_failing(tier),
            read_only: self.is_read_only(tier),
            errors: health.errors.load(Ordering::Relaxed),
            last_error: lock(&health.last_error).as_ref().map(error),
            last_opened: lock(&health.last_user).as_ref().map(user),
            waiting: self.waiting(tier, shown),
        }
    }
}
