//! Device models: the time, energy and wear of each operation.
//!
//! ```text
//!   presets/*.toml ─► Sheet ─► dyn DeviceModel ◄─ start, next_event, poll ─ lab (virtual time), paced device (real)
//!                                └─► Counters, Wear ─► Usage ─► cost::Prices ─► Tco
//!   presets/tariffs, presets/enclosures ─────────────────────┘
//! ```
//! Invariant: a model has no clock, no randomness and no I/O. The same calls give the same answers.
#![forbid(unsafe_code)]

mod array;
mod check;
pub mod cost;
pub mod enclosure;
mod endurance;
pub mod fit;
pub mod hdd;
pub mod measure;
mod model;
mod options;
mod power;
mod preset;
pub mod remote;
mod sheet;
mod sleep;
pub mod smr;
mod span;
pub mod ssd;
mod tier_cost;

pub use array::{Array, ArraySheet};
pub use check::SheetError;
pub use endurance::{START_STOP_YEARS, bytes_per_day};
pub use hdd::DestageBy;
pub use model::{Counters, DeviceModel, Least, ModelOp, POWER_STATES, PowerState, Wear};
pub use options::{FlashState, Options};
pub use preset::{preset, presets, sheet, sheet_text};
pub use sheet::{Metric, Published, Sheet};
pub use sleep::Sleep;
pub use span::Span;
