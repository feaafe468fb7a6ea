//! The space of disks and tiers, within quotas and marks.

use crate::store::Store;
use crate::sync::lock;
use crate::tree::Tier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Free space is read again after this time.
const ROOM_AGE: Duration = Duration::from_millis(500);

/// Free bytes below which a disk is short of space, whatever its marks.
const RESERVE: u64 = 256 << 20;

impl Store {
    /// Free and total bytes of a disk, at most half a second old; within the quota of its tier.
    pub fn room(&self, tier: Tier) -> (u64, u64) {
        let at = usize::from(tier);
        let mut room = lock(&self.rooms[at]);
        let (mut free, mut all, when) = *room;
        if when.is_none_or(|w| w.elapsed() >= ROOM_AGE) {
            (free, all) = self.roots[at].room().unwrap_or((0, 0));
            *room = (free, all, Some(Instant::now()));
            if self.roots[at].take_answered() {
                self.device_answered(tier);
            }
        }
        drop(room);
        let of = self.layout.tier_of(tier);
        if let Some(quota) = self.quotas[usize::from(of)] {
            all = all.min(quota);
            free = free.min(quota.saturating_sub(self.used(of)));
        }
        (free, all)
    }
    /// As [`Store::room`], for all disks of a tier together; several on one file system share its space.
    pub(crate) fn room_of_tier(&self, tier: Tier) -> (u64, u64) {
        let disks = crate::disk::apart(&self.roots, self.layout.disks_of(tier));
        let rooms = disks.map(|d| self.room(d));
        let (free, all) = rooms.fold((0, 0), |sum, r| (sum.0 + r.0, sum.1 + r.1));
        match self.quotas[usize::from(tier)] {
            Some(quota) => (
                free.min(quota.saturating_sub(self.used(tier))),
                all.min(quota),
            ),
            None => (free, all),
        }
    }
    /// Bytes on the disks of a tier that count for its quota.
    fn used(&self, tier: Tier) -> u64 {
        let on = |disk: Tier| self.bytes_on[usize::from(disk)].load(Ordering::Relaxed);
        let files: u64 = self.layout.disks_of(tier).map(on).sum();
        let copies = self.copies.bytes.load(Ordering::Relaxed);
        files + if tier == 0 { copies } else { 0 }
    }
    /// Marks the free space of a disk as changed, so that it is read again.
    pub(crate) fn room_changed(&self, tier: Tier) {
        let room = &self.rooms[usize::from(tier)];
        lock(&room).2 = None;
    }
    /// Whether a disk is above its high mark.
    pub fn is_full(&self, tier: Tier) -> bool {
        let (free, all) = self.room(tier);
        u128::from(free) * 100 < u128::from(all) * u128::from(100 - self.marks.1.min(100))
    }
    /// Whether a tier is above its high mark, or has less than a sixteenth of its space or [`RESERVE`] free, whichever is less.
    pub(crate) fn is_short(&self, tier: Tier) -> bool {
        self.is_short_for(tier, 0)
    }
    /// As [`Store::is_short`], with as much more reserve for each of so many others.
    pub(crate) fn is_short_for(&self, tier: Tier, others: u32) -> bool {
        let (free, all) = self.room(tier);
        let reserve = Store::reserve(all).saturating_mul(u64::from(others) + 1);
        free < reserve || self.is_full(tier)
    }
    /// The reserve of a file that the kernel itself writes, on a tier with so much space in all.
    pub(crate) fn reserve(all: u64) -> u64 {
        RESERVE.min(all / 16)
    }
}
