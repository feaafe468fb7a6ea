//! The volume as such: where things lie, what is free, what is in use. Knows no policy.
//!
//! | file | question that it answers |
//! |---|---|
//! | `geometry.rs` | which member and byte is a slot; which tiers are there |
//! | `map.rs`, `map/copies.rs` | where is a unit, which of its blocks count, when was it last used |
//! | `slots.rs` | which slots are free |
//! | `pins.rs` | which slots are in use by operations |
//! | `space.rs` | all of these together, and the allocator |
//! | `rooms.rs` | how much room units of unequal sizes take |
//! | `quota.rs` | a part of it that looks like a small volume |
//! | `seat.rs` | what a policy is told of a place |

pub mod geometry;
pub mod map;
pub mod pins;
mod quota;
mod rooms;
mod seat;
pub mod slots;
mod space;

pub use geometry::{Geometry, Member, Spot};
pub use map::ExtentMap;
pub use pins::Pins;
pub use quota::Quota;
pub use rooms::{SPAN_SHIFT, UNITS_MAX};
pub use seat::{Seat, UnitId};
pub use slots::Slots;
pub use space::{Place, Space};
