//! Units and seats: the terms of policies, in place of extents and slots.

use crate::units::Slot;

/// The object that a policy places: an extent of a block volume, or a file of a file store. Units are numbered from 0 without gaps.
pub use crate::units::ExtentId as UnitId;

/// The place of a unit: a handle that the view of a policy gives out and takes back. A unit has one for its home and, if it has a copy, one
/// for that. Only the volume knows the place on a device that belongs to the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat(u32);

impl Seat {
    /// Its index in a table with one entry per seat. The seats of a tier are consecutive, and those of the fastest tier come first.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
    /// The seat with that index.
    #[inline]
    pub(crate) const fn at(index: u32) -> Seat {
        Seat(index)
    }
    /// The slot behind it.
    #[inline]
    pub(crate) const fn slot(self) -> Slot {
        Slot(self.0)
    }
}

impl From<Slot> for Seat {
    #[inline]
    fn from(s: Slot) -> Seat {
        Seat(s.0)
    }
}
