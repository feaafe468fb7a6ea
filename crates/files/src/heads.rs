//! Heads: the first bytes of files of slower tiers, kept on the fastest. Programs that only look at the beginning of a file (`file`, media
//! scanners, thumbnails) then wake no disk.
//!
//! A head is a copy (`copies.rs`) that holds only the first bytes. It is compared with the file at home, kept over a clean unmount and
//! removed after a crash as every copy is. Every change of the file drops it. It is made when the beginning of the file has been read at
//! home, while the disk is awake anyway, and when a file has moved down; not while the file is being changed (`SETTLED`), because each
//! change would drop it. Heads have a share of the fastest tier; if that is used, the oldest heads are dropped for new ones.
//!
//! The kernel reads ahead, so a head must be longer than what programs read: see docs/files.md.

use crate::catalogue::NodeId;
use crate::mover::{Outcome, Why};
pub use crate::settings::HeadSettings;
use crate::store::Store;
use crate::sync::lock;
use crate::tree::wall;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A file gets a head only if it was last changed at least this number of seconds ago.
const SETTLED: i64 = 60;
/// A request for a head is dropped after this time, because the disk may have gone to sleep.
const FRESH: Duration = Duration::from_secs(10);
/// Maximum number of requests for heads that wait.
const WANTED_MAX: usize = 4096;

/// The state of heads, and their figures.
#[derive(Debug, Default)]
pub struct Heads {
    /// Number of bytes that are kept of each file; 0: none.
    pub bytes: u64,
    percent: u8,
    /// Number of files that have a head.
    pub files: AtomicUsize,
    /// Space that heads take, in bytes.
    pub used: AtomicU64,
    /// Number of heads that were made.
    pub made: AtomicU64,
    /// The files whose beginning was read, and the time of the read.
    wanted: Mutex<HashMap<NodeId, Instant>>,
}

impl Heads {
    pub(crate) fn new(settings: HeadSettings) -> Heads {
        Heads {
            bytes: settings.bytes,
            percent: settings.percent.min(100),
            ..Heads::default()
        }
    }
    pub(crate) fn count(&self, files: isize, bytes: u64) {
        if files < 0 {
            self.files.fetch_sub(1, Ordering::Relaxed);
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        } else {
            self.files.fetch_add(1, Ordering::Relaxed);
            self.used.fetch_add(bytes, Ordering::Relaxed);
        }
    }
    fn wanted(&self) -> MutexGuard<'_, HashMap<NodeId, Instant>> {
        lock(&self.wanted)
    }
    /// The figures for `status`.
    pub(crate) fn figures(&self) -> Value {
        json!({
            "length_bytes": self.bytes, "files": self.files.load(Ordering::Relaxed), "bytes": self.used.load(Ordering::Relaxed),
            "made": self.made.load(Ordering::Relaxed),
        })
    }
}

impl Store {
    /// Called after the bytes at `offset` of a file without a copy were read at home: if they belong to its head, the head is made soon.
    pub(crate) fn want_head(&self, node: NodeId, offset: u64) {
        let heads = &self.copies.heads;
        if offset >= heads.bytes {
            return;
        }
        let mut wanted = heads.wanted();
        if wanted.len() < WANTED_MAX {
            wanted.insert(node, Instant::now());
        }
    }
    /// Makes the heads that were wanted a short time ago, until `until`.
    pub fn make_heads(&self, until: Instant) {
        if self.copies.heads.bytes == 0 {
            return;
        }
        let wanted = std::mem::take(&mut *self.copies.heads.wanted());
        for (node, when) in wanted {
            if self.placement.is_stopped() || Instant::now() >= until {
                break;
            }
            let settled = {
                let cat = self.cat();
                let known = cat.get(node).filter(|n| n.is_file() && n.links() > 0);
                known.is_some_and(|n| {
                    let local = self.root(n.tier).local;
                    // A time in the future says nothing about the last change.
                    local && !(0..SETTLED).contains(&(wall() - n.facts.mtime.sec))
                })
            };
            if settled && when.elapsed() < FRESH {
                self.fetch_head(node);
            }
        }
    }
    /// Copies the head of a file to the fastest tier. The outcome is `Done` also if the file is there or has a copy already.
    pub fn fetch_head(&self, node: NodeId) -> Outcome {
        let heads = &self.copies.heads;
        if heads.bytes == 0 {
            return Outcome::Done;
        }
        // Only other heads are dropped to make room for a head.
        let all = u128::from(self.room(0).1);
        let most = (all * u128::from(heads.percent) / 100) as u64;
        if heads.bytes > most || self.is_full(0) {
            return Outcome::Refused(Why::Full);
        }
        while heads.used.load(Ordering::Relaxed) + heads.bytes > most {
            let Some(oldest) = self.copies.oldest(true) else {
                break;
            };
            self.drop_copy(oldest);
        }
        self.exclusively(node, |live| self.drive_fetch(node, live, Some(heads.bytes)))
    }
}
