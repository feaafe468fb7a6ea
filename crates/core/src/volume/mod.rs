//! The volume itself: places of data, free slots, slots in use. It knows no policy.
//!
//! | file | content |
//! |---|---|
//! | `geometry.rs` | the tiers; the member and byte of each slot |
//! | `map.rs`, `map/copies.rs` | for each unit: its home, its valid blocks, its last use |
//! | `map/by_extent.rs`, `map/by_copy.rs` | the rows of the map: of a tiering volume, of a cache volume |
//! | `past.rs` | values of units without a copy, in bounded memory |
//! | `unit_set.rs` | a set of units in the order of their numbers |
//! | `map/classes.rs` | the classes of the blocks in copies |
//! | `slots.rs` | free slots |
//! | `pins.rs` | slots that operations use |
//! | `space.rs` | all of these together, and the allocator |
//! | `unit_classes.rs` | the class of each unit |
//! | `unit_sizes.rs` | space of units of unequal sizes |
//! | `quota.rs` | a part of the volume that looks like a small volume |
//! | `regions.rs` | the parts of a cache volume that have dirty copies |
//! | `lost.rs` | the blocks of a cache volume that were lost with flash |
//! | `position.rs` | the place of a unit, as policies see it |

pub mod geometry;
pub mod lost;
pub mod map;
mod past;
pub mod pins;
mod position;
mod quota;
pub mod regions;
pub mod slots;
mod space;
mod unit_classes;
mod unit_set;
mod unit_sizes;

pub use geometry::{Geometry, Kind, Member, MemberSlot};
pub use map::{ExtentMap, Mixed};
pub use past::{PAST_FLOOR, Past};
pub use pins::Pins;
pub use position::{Position, UnitId};
pub use quota::Quota;
pub use slots::Slots;
pub use space::{Place, Space};
pub use unit_classes::UnitClasses;
pub use unit_set::UnitSet;
pub use unit_sizes::{SPAN_SHIFT, UNITS_MAX};
