//! Tiers and disks. A *disk* is one directory; a tier has one, and the slowest tier has one or more. The policy decides the tier of a file,
//! the create rule decides the disk within the tier. A file is complete on one disk.
//!
//! Disks are numbered: first the only disk of each faster tier, then those of the slowest. So with one disk a tier, the number of a disk is
//! that of its tier. The calls of the mover and the catalogue know disks only; [`Layout`] says to which tier each belongs.

use crate::catalogue::NodeId;
pub use crate::settings::Create;
use crate::store::Store;
use crate::tree::Tier;
use std::cmp::Reverse;
use std::ops::Range;

/// Maximum number of disks of all tiers: a directory has one bit for each.
pub const DISKS_MAX: usize = 16;

/// Which tier each disk belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    tiers: Tier,
    disks: Tier,
}

impl Layout {
    /// So many tiers, and so many disks in all: at least one a tier.
    pub fn new(tiers: usize, disks: usize) -> Layout {
        Layout {
            tiers: tiers as Tier,
            disks: disks as Tier,
        }
    }
    /// The number of tiers.
    pub fn tiers(self) -> usize {
        usize::from(self.tiers)
    }
    /// The number of the slowest tier, which is that of its first disk.
    pub fn slowest(self) -> Tier {
        self.tiers.saturating_sub(1)
    }
    /// The tier of a disk.
    pub fn tier_of(self, disk: Tier) -> Tier {
        disk.min(self.slowest())
    }
    /// The disks of a tier.
    pub fn disks_of(self, tier: Tier) -> Range<Tier> {
        if tier < self.slowest() {
            tier..tier + 1
        } else {
            self.slowest()..self.disks
        }
    }
    /// Whether the slowest tier has several disks.
    pub fn has_several(self) -> bool {
        self.disks > self.tiers
    }
    /// Whether a file can leave that disk for another one of its tier or for a slower tier.
    pub(crate) fn can_leave(self, disk: Tier) -> bool {
        disk < self.slowest() || self.has_several()
    }
}

impl Store {
    /// The disks of a tier that answer, the best ones for a new file in that directory first. The file needs so many bytes.
    fn ranked(&self, tier: Tier, dir: Option<NodeId>, needs: u64) -> Vec<Tier> {
        let mut disks: Vec<Tier> = self.layout.disks_of(tier).collect();
        if disks.len() == 1 {
            return disks;
        }
        let on = {
            let cat = self.cat();
            let dir = dir.and_then(|d| cat.get(d)?.dir());
            dir.map_or(0, |d| d.on)
        };
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
    pub(crate) fn disk_for(&self, tier: Tier, dir: Option<NodeId>, needs: u64) -> Tier {
        let best = self.ranked(tier, dir, needs).first().copied();
        best.unwrap_or(self.layout.disks_of(tier).start)
    }
    /// The disk of a tier for a file that is to move there.
    pub(crate) fn disk_for_move(&self, tier: Tier, node: NodeId) -> Tier {
        let (dir, needs) = {
            let cat = self.cat();
            let needs = cat.get(node).map_or(0, |n| n.facts.needs());
            (cat.parent(node), needs)
        };
        self.disk_for(tier, dir, needs)
    }
    /// The disk of a new file in that directory: on the fastest tier from `first` on that has a disk below its upper mark, or on the slowest
    /// if none has. Disks that do not answer do not count.
    pub(crate) fn disk_for_new(&self, first: Tier, dir: NodeId) -> Tier {
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
        self.disk_for(tier, Some(dir), 0)
    }
    /// Where a name can be made that this disk has no space for: the other disks of its tier by the create rule, then slower tiers, then
    /// faster ones, the nearest first.
    pub(crate) fn elsewhere(&self, disk: Tier, dir: NodeId) -> Vec<Tier> {
        let here = self.layout.tier_of(disk);
        let mut all = self.ranked(here, Some(dir), 0);
        for tier in (here + 1..=self.layout.slowest()).chain((0..here).rev()) {
            all.extend(self.ranked(tier, Some(dir), 0));
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
