//! Which disk a file gets.

use super::Tiers;
use crate::settings::Create;
use crate::tree::Tier;
use std::cmp::Reverse;

impl Tiers {
    /// The disks of a tier that answer, the best ones for a new file first. Its directory is on the disks `on`, one bit each, and it needs so
    /// many bytes.
    fn ranked(&self, tier: Tier, on: u16, needs: u64) -> Vec<Tier> {
        let mut disks: Vec<Tier> = self.layout.disks_of(tier).collect();
        if disks.len() == 1 {
            return disks;
        }
        disks.retain(|d| self.is_healthy(*d));
        disks.sort_by_cached_key(|disk| {
            let (free, all) = self.room(*disk);
            let fits = free >= needs.saturating_add(self.kept_for_kernel(*disk));
            let lacks = u8::from(!fits) * 2 + u8::from(self.is_full(*disk));
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
    /// The disk of a tier for a file in that directory that needs so many bytes. If no disk answers, the first.
    pub(crate) fn disk_for(&self, tier: Tier, on: u16, needs: u64) -> Tier {
        let best = self.ranked(tier, on, needs).first().copied();
        best.unwrap_or(self.layout.disks_of(tier).start)
    }
    /// The disk of a new file in that directory: on the fastest tier from `first` on that has a disk below its upper mark, or on the slowest
    /// if none has. Disks that do not answer do not count.
    pub(crate) fn disk_for_new(&self, first: Tier, on: u16) -> Tier {
        let healthy = |tier: &Tier| {
            let mut disks = self.layout.disks_of(*tier);
            disks.any(|d| self.is_healthy(d))
        };
        let has_room = |tier: &Tier| {
            let mut disks = self.layout.disks_of(*tier);
            disks.any(|d| self.is_healthy(d) && !self.is_full(d))
        };
        let last = (0..=self.layout.slowest()).rfind(healthy).unwrap_or(0);
        let tier = (first..last).find(has_room).unwrap_or(last);
        self.disk_for(tier, on, 0)
    }
    /// Where a name can be made that this disk has no space for: the other disks of its tier by the create rule, then slower tiers, then
    /// faster ones, the nearest first.
    pub(crate) fn elsewhere(&self, disk: Tier, on: u16) -> Vec<Tier> {
        let here = self.layout.tier_of(disk);
        let mut all = self.ranked(here, on, 0);
        for tier in (here + 1..=self.layout.slowest()).chain((0..here).rev()) {
            all.extend(self.ranked(tier, on, 0));
        }
        all.retain(|d| *d != disk);
        all
    }
    /// Where a file can go that outgrows its disk: other disks of the same tier, those with the most free space first so that it moves seldom,
    /// then slower tiers.
    pub(crate) fn beyond(&self, disk: Tier) -> Vec<Tier> {
        let here = self.layout.tier_of(disk);
        let mut all = Vec::new();
        for tier in here..=self.layout.slowest() {
            let disks = self.layout.disks_of(tier);
            let mut disks: Vec<Tier> = disks.filter(|d| *d != disk).collect();
            if disks.len() > 1 {
                disks.sort_by_cached_key(|d| Reverse(self.room(*d).0));
            }
            all.append(&mut disks);
        }
        all
    }
}
