//! Heads: the first bytes of files of slower tiers, kept on the fastest. Programs that only look at the beginning of a file (`file`, media
//! scanners, thumbnails) then wake no disk.
//!
//! A head is a copy that holds only the first bytes. It is compared with the file at home, kept over a clean unmount and
//! removed after a crash as every copy is. Every change of the file drops it. It is made when the beginning of the file has been read at
//! home, while the disk is awake anyway, and when a file has moved down; not while the file is being changed, because each
//! change would drop it. Heads have a share of the fastest tier; if that is used, the oldest heads are dropped for new ones.
//!
//! The kernel reads ahead, so a head must be longer than what programs read: see docs/files.md.

use crate::catalogue::NodeId;
pub use crate::settings::HeadSettings;
use crate::sync::lock;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

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
    /// Called after the bytes at `offset` of a file without a copy were read at home: if they belong to its head, the head is made soon.
    pub(crate) fn want(&self, node: NodeId, offset: u64) {
        if offset >= self.bytes {
            return;
        }
        let mut wanted = lock(&self.wanted);
        if wanted.len() < WANTED_MAX {
            wanted.insert(node, Instant::now());
        }
    }
    /// The files of which a head was wanted a short time ago.
    pub(crate) fn take_wanted(&self) -> impl Iterator<Item = NodeId> {
        let wanted = std::mem::take(&mut *lock(&self.wanted));
        let fresh = wanted.into_iter().filter(|w| w.1.elapsed() < FRESH);
        fresh.map(|w| w.0)
    }
    /// Most bytes that heads may take on a fastest tier with so many in all.
    pub(crate) fn most(&self, all: u64) -> u64 {
        (u128::from(all) * u128::from(self.percent) / 100) as u64
    }
    /// The figures for `status`.
    pub(crate) fn figures(&self) -> isotherm_answers::files::Heads {
        isotherm_answers::files::Heads {
            length_bytes: self.bytes,
            files: self.files.load(Ordering::Relaxed),
            bytes: self.used.load(Ordering::Relaxed),
            made: self.made.load(Ordering::Relaxed),
        }
    }
}
