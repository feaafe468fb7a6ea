//! Units and seats: what policies speak of instead of extents and slots.

use crate::units::Slot;

/// What a policy places: an extent of a block volume, a file of a file store. Numbered from 0 without gaps.
pub use crate::units::ExtentId as UnitId;

/// Where a unit lies: a handle that the view of a policy gives out and takes back. A unit has one for its home and, where it
/// has a copy, one for that. What its number says of the place on a device is nobody's business but the volume's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat(u32);

impl Seat {
    /// Its place in a table with one entry a seat: those of a tier follow each other, those of the fastest tier come first.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
    /// The seat with that place in a table.
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
