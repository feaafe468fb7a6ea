//! The health of each tier: the errors of its calls, whether it fails now, and the program that used it last.
//!
//! No function here makes a call on a tier, so that a query does not wake a sleeping disk.

use crate::catalogue::NodeId;
use crate::store::Store;
use crate::tree::Tier;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A tier that does not answer is named no oftener.
const TOLD_AGE: Duration = Duration::from_secs(10);

/// Who had a file opened.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// Process; 0 is this one, which moves the file.
    pub(crate) pid: u32,
    path: Vec<u8>,
    when: Instant,
    program: String,
}

/// One tier's.
#[derive(Debug, Default)]
pub(crate) struct Health {
    errors: AtomicU64,
    failing: AtomicBool,
    last_error: Mutex<Option<(Instant, String)>>,
    told: Mutex<Option<Instant>>,
    last_user: Mutex<Option<User>>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does the error say that the device or its server is in trouble, rather than that the call was wrong?
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

impl Store {
    /// Is a tier missing since the mount?
    pub fn is_absent(&self, tier: Tier) -> bool {
        self.roots[usize::from(tier)].absent
    }
    /// Did the last call on a tier that went to its device fail?
    pub fn is_failing(&self, tier: Tier) -> bool {
        self.health[usize::from(tier)]
            .failing
            .load(Ordering::Relaxed)
    }
    /// Is it there, and does it answer?
    pub(crate) fn is_well(&self, tier: Tier) -> bool {
        !self.is_absent(tier) && !self.is_failing(tier)
    }
    /// Is the tier there? Said in words if not, at most every ten seconds.
    pub(crate) fn here(&self, tier: Tier, path: &[u8]) -> Result<(), Errno> {
        if !self.is_absent(tier) {
            return Ok(());
        }
        self.does_not_answer(tier, path, "it is missing");
        Err(Errno::IO)
    }
    /// A call on a file failed because of its tier.
    pub(crate) fn does_not_answer(&self, tier: Tier, path: &[u8], why: &str) {
        let health = &self.health[usize::from(tier)];
        let path = String::from_utf8_lossy(path);
        health.errors.fetch_add(1, Ordering::Relaxed);
        *lock(&health.last_error) = Some((Instant::now(), format!("{path}: {why}")));
        let mut told = lock(&health.told);
        if told.is_none_or(|t| t.elapsed() >= TOLD_AGE) {
            *told = Some(Instant::now());
            drop(told);
            self.say(&format!(
                "{path}: error to whoever uses it: its tier {} does not answer ({why})",
                self.tier_name(tier)
            ));
        }
    }
    /// A call on that path of a tier failed. An error of the device is counted and reported. Returns the error for the user of the file:
    /// EIO if the device failed, because remote and user-level file systems that are gone return errors that programs do not expect.
    pub(crate) fn noticed(&self, tier: Tier, path: &[u8], e: Errno) -> Errno {
        if !is_trouble(e) {
            return e;
        }
        let failing = &self.health[usize::from(tier)].failing;
        failing.store(true, Ordering::Relaxed);
        self.does_not_answer(tier, path, &e.to_string());
        Errno::IO
    }
    /// As [`Store::noticed`], of a file in use.
    pub(crate) fn noticed_of(&self, tier: Tier, node: NodeId, e: Errno) -> Errno {
        if !is_trouble(e) {
            return e;
        }
        let path = self.cat().path(node).unwrap_or_default();
        self.noticed(tier, &path, e)
    }
    /// A call on a tier that cannot be answered without its device went well.
    pub(crate) fn answers(&self, tier: Tier) {
        let failing = &self.health[usize::from(tier)].failing;
        if failing.load(Ordering::Relaxed) {
            failing.store(false, Ordering::Relaxed);
        }
    }
    /// A process opened a file; kept for tiers whose disks may sleep, that is, all but the fastest.
    pub(crate) fn used_by(&self, node: NodeId, pid: u32) {
        let at = {
            let cat = self.cat();
            let n = cat.get(node).filter(|n| n.tier > 0);
            n.and_then(|n| Some((n.tier, cat.path(node)?)))
        };
        let Some((tier, path)) = at else { return };
        // The name is looked up now, because the process may have ended when `status` is called.
        let program = if pid == 0 {
            "isotherm (a move)".into()
        } else {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.unwrap_or_default().trim_end().to_owned()
        };
        *lock(&self.health[usize::from(tier)].last_user) = Some(User {
            pid,
            path,
            when: Instant::now(),
            program,
        });
    }
    /// Of a tier, for `status`.
    pub(crate) fn health_of(&self, tier: Tier) -> Value {
        let health = &self.health[usize::from(tier)];
        let seconds = |t: Instant| t.elapsed().as_secs();
        let error = lock(&health.last_error)
            .as_ref()
            .map(|(when, text)| json!({"error": text, "ago_s": seconds(*when)}));
        let user = lock(&health.last_user).as_ref().map(|u| {
            json!({
                "path": String::from_utf8_lossy(&u.path), "program": u.program, "pid": u.pid, "ago_s": seconds(u.when),
            })
        });
        json!({
            "missing": self.is_absent(tier), "failing": self.is_failing(tier),
            "errors": health.errors.load(Ordering::Relaxed), "last_error": error, "last_opened": user,
        })
    }
}
