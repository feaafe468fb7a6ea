//! Units and positions: the terms that policies use instead of extents and slots.

use crate::units::Slot;

/// The object that a policy places: an extent of a block volume, or a file of a store of files. Units are numbered from 0 without gaps.
pub use crate::units::ExtentId as UnitId;

/// The place of a unit, as an opaque handle that policies get from their view and pass back. A unit has one for its home and, if it has a
/// copy, one for the copy. Only the volume knows the place on a device that belongs to the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u32);

impl Position {
    /// The index in a table with one entry per position. The positions of a tier are consecutive, and those of the fastest tier come first.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
    /// The position with that index.
    #[inline]
    pub(crate) const fn at(index: u32) -> Position {
        Position(index)
    }
    /// The slot of this position.
    #[inline]
    pub(crate) const fn slot(self) -> Slot {
        Slot(self.0)
    }
}

impl From<Slot> for Position {
    #[inline]
    fn from(s: Slot) -> Position {
        Position(s.0)
    }
}
