//! The disks of the tiers: their directories, their space and its limits, their health, and what happens on them.
//!
//! Each disk has locks of its own, which are taken last of all: a disk that does not answer must not stop the others. No function here waits
//! for any other lock.

mod health;
mod kernel_writes;
mod open;
mod space;
mod waits;

use crate::catalogue::Catalogue;
use crate::disk::{Root, Roots};
use crate::layout::{DISKS_MAX, Layout};
use crate::mutants::{Mutant, broken};
use crate::settings::{Create, RangeSettings, Settings};
use crate::sync::lock;
use crate::tree::{Tier, disks_in};
use health::Health;
use kernel_writes::KernelWrites;
pub use open::TIERS_MAX;
pub(crate) use open::{Opened, is_served, open, open_further};
use rustix::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
pub(crate) use waits::Kind;
use waits::Waits;

/// See the module.
pub struct Tiers {
    /// The disks, those of the fastest tier first: see [`crate::layout`].
    pub roots: Roots,
    /// The number of tiers.
    levels: usize,
    /// Messages for the administrator, the newest last.
    pub said: Mutex<Vec<String>>,
    /// Bytes of files on each disk that there can be.
    pub bytes_on: Vec<AtomicU64>,
    /// Bytes of copies on the fastest tier.
    copied: Arc<AtomicU64>,
    /// Chooses the disk of a file within its tier.
    create: Create,
    /// Quotas: most bytes of files on each tier.
    quotas: Vec<Option<u64>>,
    /// Low and high mark in per cent: a tier above the high mark spills, and is emptied to the low mark.
    marks: (u8, u8),
    /// The space of the fastest tier that large files have for their ranges.
    ranges: RangeSettings,
    /// All that there can be.
    disks: Vec<Disk>,
    /// The ids of the disks, as far as they have one.
    ids: [OnceLock<String>; DISKS_MAX],
    /// The disks that are being emptied, one bit each.
    draining: AtomicU16,
    /// The directory that joins, or could not join.
    pub(crate) joining: Mutex<Option<Joining>>,
    locks: Mutex<Vec<OwnedFd>>,
}

/// A directory that is to join while the tree is mounted.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    pub(crate) path: PathBuf,
    /// Why it could not.
    pub(crate) refused: Option<String>,
}

/// What is known of one disk.
#[derive(Debug, Default)]
struct Disk {
    /// Free and total bytes, and when they were read.
    room: Mutex<(u64, u64, Option<Instant>)>,
    /// The calls that have not returned yet.
    waits: Waits,
    health: Health,
    /// What the kernel itself writes there.
    kernel_writes: KernelWrites,
    /// When it was last read whole, to see whether others have left something there.
    read: Mutex<Option<Instant>>,
}

impl Tiers {
    /// The tiers of a mount, with the bytes of the files of that catalogue.
    pub(crate) fn new(
        settings: &Settings,
        (roots, ids): (Roots, Vec<Option<String>>),
        locks: Vec<OwnedFd>,
        cat: &Catalogue,
    ) -> Tiers {
        let mut quotas = settings.quotas.clone();
        quotas.resize(settings.tiers.len(), None);
        let tiers = Tiers {
            levels: settings.tiers.len(),
            said: Mutex::default(),
            bytes_on: (0..DISKS_MAX).map(|_| AtomicU64::new(0)).collect(),
            copied: Arc::default(),
            create: settings.create,
            quotas,
            marks: settings.marks,
            ranges: settings.ranges_wanted(),
            disks: (0..DISKS_MAX).map(|_| Disk::default()).collect(),
            ids: std::array::from_fn(|at| {
                let id = ids.get(at).cloned().flatten();
                id.map_or_else(OnceLock::new, OnceLock::from)
            }),
            draining: AtomicU16::new(0),
            joining: Mutex::default(),
            locks: Mutex::new(locks),
            roots,
        };
        for (_, n) in cat.all().filter(|n| n.1.is_file()) {
            tiers.count_bytes(n.tier, 0, n.facts.blocks);
        }
        tiers
    }
    /// Whether a disk may be read whole now: it was not for that time.
    pub(crate) fn may_read_whole(&self, disk: Tier, rest: Duration) -> bool {
        let mut last = lock(&self.disk(disk).read);
        let may = last.is_none_or(|last| last.elapsed() >= rest);
        if may {
            *last = Some(Instant::now());
        }
        may
    }
    /// A disk.
    pub(crate) fn root(&self, disk: Tier) -> &Root {
        &self.roots[usize::from(disk)]
    }
    fn disk(&self, disk: Tier) -> &Disk {
        &self.disks[usize::from(disk)]
    }
    /// The id of a disk, which it keeps when its number or path changes.
    pub(crate) fn id_of(&self, disk: Tier) -> Option<&str> {
        self.ids.get(usize::from(disk))?.get().map(String::as_str)
    }
    /// Which tier each disk belongs to.
    pub fn layout(&self) -> Layout {
        Layout::new(self.levels, self.roots.len())
    }
    /// A further disk of the slowest tier, with its id: from now on it gets files.
    ///
    /// # Errors
    /// There are [`DISKS_MAX`] already: it is returned.
    pub(crate) fn join(&self, opened: Opened, id: String) -> Result<Tier, Box<Root>> {
        let Opened { root, mut locks } = opened;
        if let Some(slot) = self.ids.get(self.roots.len()) {
            // It has one only after a join that failed.
            let _ = slot.set(id);
        }
        lock(&self.locks).append(&mut locks);
        self.roots.join(root)
    }
    /// The disks that are being emptied or are empty: no file goes there.
    pub(crate) fn draining(&self) -> impl Iterator<Item = Tier> + use<> {
        disks_in(self.draining.load(Ordering::SeqCst))
    }
    /// Whether a disk is being emptied.
    pub(crate) fn is_draining(&self, disk: Tier) -> bool {
        self.draining.load(Ordering::SeqCst) & (1 << disk) != 0
    }
    /// The disks with these ids get no files from now on, all others do.
    pub(crate) fn drain_only(&self, is: impl Fn(&str) -> bool) {
        let disks = (0..self.roots.len() as Tier).filter(|d| self.id_of(*d).is_some_and(&is));
        let bits = disks.fold(0, |all, d| all | 1 << d);
        self.draining.store(bits, Ordering::SeqCst);
    }
    /// Whether files may be put on a disk.
    pub(crate) fn takes_files(&self, disk: Tier) -> bool {
        self.is_healthy(disk) && (!self.is_draining(disk) || broken(Mutant::FillDrained))
    }
    /// What the kernel itself writes on a disk.
    pub(crate) fn kernel_writes(&self, disk: Tier) -> &KernelWrites {
        &self.disk(disk).kernel_writes
    }
    /// The bytes of copies, which count for the quota of the fastest tier.
    pub(crate) fn copied(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.copied)
    }
    /// Low and high mark in per cent.
    pub(crate) fn marks(&self) -> (u8, u8) {
        self.marks
    }
    /// Adds a message for the administrator; the last hundred are in `status`.
    pub fn say(&self, line: &str) {
        tracing::warn!("{line}");
        let mut said = lock(&self.said);
        if said.len() >= 100 {
            said.remove(0);
        }
        said.push(line.to_owned());
    }
    /// The name of a disk for messages.
    pub fn tier_name(&self, tier: Tier) -> String {
        self.roots
            .get(usize::from(tier))
            .map_or_else(String::new, |r| r.path.display().to_string())
    }
    /// A file on a disk took `before` blocks of 512 bytes and takes `now`.
    pub(crate) fn count_bytes(&self, disk: Tier, before: u64, now: u64) {
        let on = &self.bytes_on[usize::from(disk)];
        let _ = on.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |b| {
            Some((b + now * 512).saturating_sub(before * 512))
        });
    }
}
