//! The space of disks and tiers, within quotas and marks, and which disk a file gets.

use super::Tiers;
use crate::catalogue::Catalogue;
use crate::settings::Create;
use crate::sync::lock;
use crate::tree::Tier;
use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Free space is read again after this time.
const ROOM_AGE: Duration = Duration::from_millis(500);

/// Free bytes below which a disk is short of space, whatever its marks.
const RESERVE: u64 = 256 << 20;

impl Tiers {
    /// Free and total bytes of a disk, at most half a second old; within the quota of its tier.
    pub fn room(&self, tier: Tier) -> (u64, u64) {
        let own = self.own_room(tier);
        self.within_quota(self.layout().tier_of(tier), own)
    }
    /// Free bytes of a disk for a file that comes from another one: within its tier, the quota stays as it is.
    pub(crate) fn free_for(&self, from: Tier, to: Tier) -> u64 {
        if self.layout().tier_of(from) == self.layout().tier_of(to) {
            self.own_room(to).0
        } else {
            self.room(to).0
        }
    }
    /// As [`Tiers::room`], whatever the quota.
    pub(crate) fn own_room(&self, tier: Tier) -> (u64, u64) {
        let at = usize::from(tier);
        let mut room = lock(&self.disks[at].room);
        let (mut free, mut all, when) = *room;
        if when.is_none_or(|w| w.elapsed() >= ROOM_AGE) {
            (free, all) = self.roots[at].room().unwrap_or((0, 0));
            *room = (free, all, Some(Instant::now()));
            if self.roots[at].take_answered() {
                self.device_answered(tier);
            }
        }
        (free, all)
    }
    /// So much of a tier's free and total bytes as its quota allows.
    fn within_quota(&self, tier: Tier, (free, all): (u64, u64)) -> (u64, u64) {
        match self.quotas[usize::from(tier)] {
            Some(quota) => (
                free.min(quota.saturating_sub(self.used(tier))),
                all.min(quota),
            ),
            None => (free, all),
        }
    }
    /// Free and total bytes that the quotas of all tiers allow together; `None` without quotas.
    pub(crate) fn room_in_quotas(&self) -> Option<(u64, u64)> {
        let any = self.quotas.iter().any(Option::is_some);
        let rooms = (0..=self.layout().slowest()).map(|t| self.room_of_tier(t));
        any.then(|| rooms.fold((0, 0), |sum, r| (sum.0 + r.0, sum.1 + r.1)))
    }
    /// As [`Tiers::room`], for all disks of a tier together; several on one file system share its space.
    pub(crate) fn room_of_tier(&self, tier: Tier) -> (u64, u64) {
        let disks = crate::disk::apart(&self.roots, self.layout().disks_of(tier));
        let rooms = disks.map(|d| self.own_room(d));
        let sum = rooms.fold((0, 0), |sum, r| (sum.0 + r.0, sum.1 + r.1));
        self.within_quota(tier, sum)
    }
    /// The space of each tier that the policy may fill: that of its files and the free one, within quota and upper mark, and beside what large
    /// files of slower tiers have for their ranges.
    pub(crate) fn policy_bytes(&self, cat: &Catalogue) -> Vec<u64> {
        let layout = self.layout();
        let mut on = vec![0u64; layout.tiers()];
        let mut large = 0;
        for (_, n) in cat.all().filter(|n| n.1.is_file()) {
            on[usize::from(layout.tier_of(n.tier))] += n.facts.size;
            if self.ranges.takes(n.tier, n.facts.size) {
                large += n.facts.needs();
            }
        }
        let tier = |(t, on): (Tier, u64)| {
            let free: u64 = crate::disk::apart(&self.roots, layout.disks_of(t))
                .map(|d| self.root(d).room().map_or(0, |r| r.0))
                .sum();
            let mut all = on + free;
            if let Some(q) = self.quotas[usize::from(t)] {
                all = all.min(q.max(on));
            }
            let ranges = all / 100 * u64::from(self.ranges.percent.min(100));
            if t < layout.slowest() {
                all = all / 100 * u64::from(self.marks.1);
            }
            if t == 0 {
                all = all.saturating_sub(ranges.min(large));
            }
            all.max(on)
        };
        (0..).zip(on).map(tier).collect()
    }
    /// Bytes on the disks of a tier that count for its quota.
    fn used(&self, tier: Tier) -> u64 {
        let on = |disk: Tier| self.bytes_on[usize::from(disk)].load(Ordering::Relaxed);
        let files: u64 = self.layout().disks_of(tier).map(on).sum();
        let copies = self.copied.load(Ordering::Relaxed);
        files + if tier == 0 { copies } else { 0 }
    }
    /// Marks the free space of a disk as changed, so that it is read again.
    pub(crate) fn room_changed(&self, tier: Tier) {
        lock(&self.disk(tier).room).2 = None;
    }
    /// Whether a disk is above its high mark.
    pub fn is_full(&self, tier: Tier) -> bool {
        self.is_above_mark(self.room(tier))
    }
    fn is_above_mark(&self, (free, all): (u64, u64)) -> bool {
        u128::from(free) * 100 < u128::from(all) * u128::from(100 - self.marks.1.min(100))
    }
    /// Whether a tier is above its high mark, or has less than a sixteenth of its space or [`RESERVE`] free, whichever is less.
    pub(crate) fn is_short(&self, tier: Tier) -> bool {
        self.is_short_for(tier, 0)
    }
    /// As [`Tiers::is_short`], with as much more reserve for each of so many others.
    pub(crate) fn is_short_for(&self, tier: Tier, others: u32) -> bool {
        let (free, all) = self.room(tier);
        let reserve = Tiers::reserve(all).saturating_mul(u64::from(others) + 1);
        free < reserve || self.is_full(tier)
    }
    /// The reserve of a file that the kernel itself writes, on a tier with so much space in all.
    pub(crate) fn reserve(all: u64) -> u64 {
        RESERVE.min(all / 16)
    }
    /// Bytes of a disk that are kept for the files that the kernel itself writes there. The only disk of the slowest tier keeps none: nothing
    /// could leave it.
    pub(crate) fn kept_for_kernel(&self, tier: Tier) -> u64 {
        if !self.layout().can_leave(tier) {
            return 0;
        }
        match self.kernel_writes(tier).handles() {
            0 => 0,
            handles => Tiers::reserve(self.room(tier).1).saturating_mul(u64::from(handles)),
        }
    }
    /// Bytes to free on a tier to bring it down to its lower mark.
    pub(crate) fn over_mark(&self, tier: Tier) -> u64 {
        let (free, total) = self.room(tier);
        let keep = u128::from(total) * u128::from(100 - self.marks.0.min(100)) / 100;
        (keep as u64).saturating_sub(free)
    }
    /// The disks of a tier that answer, the best ones for a new file first. Its directory is on the disks `on`, one bit each, and it needs so
    /// many bytes.
    fn ranked(&self, tier: Tier, on: u16, needs: u64) -> Vec<Tier> {
        let mut disks: Vec<Tier> = self.layout().disks_of(tier).collect();
        if disks.len() == 1 {
            return disks;
        }
        disks.retain(|d| self.takes_files(*d));
        disks.sort_by_cached_key(|disk| {
            // The quota is that of all disks together: it does not say which has more space.
            let (free, all) = self.own_room(*disk);
            let fits = self.room(*disk).0 >= needs.saturating_add(self.kept_for_kernel(*disk));
            let full = self.is_full(*disk) || self.is_above_mark((free, all));
            let lacks = u8::from(!fits) * 2 + u8::from(full);
            let has_dir = self.create == Create::SameDirectory && on & (1 << *disk) != 0;
            let free = match self.create {
                _ if has_dir => 0,
                Create::PercentFree => u128::from(free) * 10_000 / u128::from(all.max(1)),
                Create::SameDirectory | Create::MostFree => u128::from(free),
            };
            (lacks, !has_dir, Reverse(free), *disk)
        });
        disks
    }
    /// The disk of a tier for a file in that directory that needs so many bytes. If no disk answers, the first that is not being emptied.
    pub(crate) fn disk_for(&self, tier: Tier, on: u16, needs: u64) -> Tier {
        let best = self.ranked(tier, on, needs).first().copied();
        let disks = self.layout().disks_of(tier);
        let first = disks.clone().find(|d| !self.is_draining(*d));
        best.or(first).unwrap_or(disks.start)
    }
    /// The disk of a new file in that directory: on the fastest tier from `first` on that has a disk below its upper mark, or on the slowest
    /// if none has. Disks that do not answer do not count.
    pub(crate) fn disk_for_new(&self, first: Tier, on: u16) -> Tier {
        let healthy = |tier: &Tier| {
            let mut disks = self.layout().disks_of(*tier);
            disks.any(|d| self.takes_files(d))
        };
        let has_room = |tier: &Tier| {
            let mut disks = self.layout().disks_of(*tier);
            disks.any(|d| self.takes_files(d) && !self.is_full(d))
        };
        let last = (0..=self.layout().slowest()).rfind(healthy).unwrap_or(0);
        let tier = (first..last).find(has_room).unwrap_or(last);
        self.disk_for(tier, on, 0)
    }
    /// Where a name can be made that this disk has no space for: the other disks of its tier by the create rule, then slower tiers, then
    /// faster ones, the nearest first.
    pub(crate) fn elsewhere(&self, disk: Tier, on: u16) -> Vec<Tier> {
        let here = self.layout().tier_of(disk);
        let mut all = self.ranked(here, on, 0);
        for tier in (here + 1..=self.layout().slowest()).chain((0..here).rev()) {
            all.extend(self.ranked(tier, on, 0));
        }
        all.retain(|d| *d != disk);
        all
    }
    /// Where a file can go that outgrows its disk: other disks of the same tier, those with the most free space first so that it moves seldom,
    /// then slower tiers.
    pub(crate) fn beyond(&self, disk: Tier) -> Vec<Tier> {
        let here = self.layout().tier_of(disk);
        let mut all = Vec::new();
        for tier in here..=self.layout().slowest() {
            let disks = self.layout().disks_of(tier);
            let mut disks: Vec<Tier> = disks
                .filter(|d| *d != disk && !self.is_draining(*d))
                .collect();
            if disks.len() > 1 {
                disks.sort_by_cached_key(|d| Reverse(self.own_room(*d).0));
            }
            all.append(&mut disks);
        }
        all
    }
}
