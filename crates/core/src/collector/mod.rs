//! Collectors keep access statistics and order units by worth. Any collector can be combined with any architecture (Loris III).

mod access_queue;
mod frequency;
mod heap;
mod hro;
mod inverse_bitmap;
mod lists;
mod oodt;
mod raised;
mod recency;
mod recent;
mod streams;
mod wsclock;

pub use access_queue::{AccessQueue, Pending};
pub use frequency::Frequency;
pub use heap::{Coldest, Heap};
pub use hro::Hro;
pub use inverse_bitmap::{InverseBitmap, weight};
pub use lists::Lists;
pub use oodt::Oodt;
pub use raised::Raised;
pub use recency::Recency;
pub use recent::{Last, Recent};
pub use streams::Streams;
pub use wsclock::WsClock;

use crate::policy::{Access, View};
use crate::units::TierId;
use crate::volume::{Position, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The worth of a unit, and a second value that breaks ties. Only the order has a meaning: higher is hotter.
pub type Rank = (u64, u64);

/// Access statistics and the order that follows from them.
pub trait Collector: Send {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Called when the shape of the volume is known.
    fn attach(&mut self, view: &mut View<'_>);
    /// An extent is accessed (it may not have a home yet).
    fn touch(&mut self, view: &mut View<'_>, access: &Access);
    /// The extent's home (or its copy, under a caching architecture) is now in `position`.
    fn placed(&mut self, view: &mut View<'_>, extent: UnitId, position: Position);
    /// The extent is not in `position` any more.
    fn left(&mut self, view: &mut View<'_>, extent: UnitId, position: Position);
    /// The extent was discarded: the collector forgets it.
    fn forget(&mut self, _extent: UnitId) {}
    /// The unit of lowest worth on a tier other than the slowest; busy units are skipped.
    fn coldest(&mut self, view: &mut View<'_>, tier: TierId) -> Option<UnitId>;
    /// The worth, and the value that breaks ties.
    fn rank(&self, view: &View<'_>, extent: UnitId) -> Rank;
    /// The worth of the unit.
    fn worth(&self, view: &View<'_>, extent: UnitId) -> u64 {
        self.rank(view, extent).0
    }
    /// The worth of the unit for the tiers below the fastest.
    fn lower_worth(&self, view: &View<'_>, extent: UnitId) -> u64 {
        self.worth(view, extent)
    }
    /// Called when a plan begins, after all accesses up to now.
    fn settle(&mut self, _view: &mut View<'_>) {}
    /// Appends the units whose worth grew since the last call. A planner needs no others, as long as worth only grows or
    /// all worths shrink in the same way: a unit that was rejected before, and was not accessed since, would be rejected again.
    fn raised(&mut self, _out: &mut Vec<UnitId>) {}
    /// Describes the score and history of a unit in words.
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let idle = view.last_words(extent);
        format!(
            "worth {} by {}, {idle}",
            self.worth(view, extent),
            self.name()
        )
    }
    /// Changes a parameter. `None` if there is none of that name; otherwise whether the value is in range.
    fn set(&mut self, _key: &str, _value: f64) -> Option<Result<(), &'static str>> {
        None
    }
    /// Like `set`, for a parameter whose values are names.
    fn set_name(&mut self, _key: &str, _name: &str) -> Option<Result<(), &'static str>> {
        None
    }
    /// Parameters whose values are names, and their present values.
    fn names(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
    /// Parameters and their present values.
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    /// Memory that the collector allocated, in bytes.
    fn bytes(&self) -> usize;
}
