//! The volume itself: places of data, free slots, slots in use. It knows no policy.
//!
//! | file | content |
//! |---|---|
//! | `geometry.rs` | the tiers; the member and byte of each slot |
//! | `map.rs`, `map/copies.rs` | for each unit: its home, its valid blocks, its last use |
//! | `map/classes.rs` | the classes of the blocks in copies |
//! | `slots.rs` | free slots |
//! | `pins.rs` | slots that operations use |
//! | `space.rs` | all of these together, and the allocator |
//! | `unit_sizes.rs` | space of units of unequal sizes |
//! | `quota.rs` | a part of the volume that looks like a small volume |
//! | `regions.rs` | the parts of a cache volume that have dirty copies |
//! | `position.rs` | the place of a unit, as policies see it |

pub mod geometry;
pub mod map;
pub mod pins;
mod position;
mod quota;
pub mod regions;
pub mod slots;
mod space;
mod unit_sizes;

pub use geometry::{Geometry, Kind, Member, MemberSlot};
pub use map::{ExtentMap, Mixed};
pub use pins::Pins;
pub use position::{Position, UnitId};
pub use quota::Quota;
pub use slots::Slots;
pub use space::{Place, Space};
pub use unit_sizes::{SPAN_SHIFT, UNITS_MAX};
