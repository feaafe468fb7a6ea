//! Tiers and disks. A *disk* is one directory; a tier has one, and the slowest tier has one or more. The policy decides the tier of a file,
//! the create rule decides the disk within the tier. A file is complete on one disk.
//!
//! Disks are numbered: first the only disk of each faster tier, then those of the slowest. So with one disk a tier, the number of a disk is
//! that of its tier. The calls of the mover and the catalogue know disks only; [`Layout`] says to which tier each belongs.

pub use crate::settings::Create;
use crate::tree::Tier;
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
