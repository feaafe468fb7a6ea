//! Collectors keep access statistics and order units by worth. Any collector serves any architecture (Loris III).

mod access_queue;
mod frequency;
mod heap;
mod hro;
mod index;
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
pub use index::Index;
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
use crate::volume::{Seat, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What a unit is worth, and what decides among equals. Only the order means something: higher is hotter.
pub type Rank = (u64, u64);

/// Access statistics and the order that follows from them.
pub trait Collector: Send {
    /// Its name in configuration.
    fn name(&self) -> &'static str;
    /// The shape is known.
    fn attach(&mut self, view: &mut View<'_>);
    /// An access (its extent may not be placed yet).
    fn touch(&mut self, view: &mut View<'_>, access: &Access);
    /// The extent's home (or its copy, under a caching architecture) is now in `slot`.
    fn placed(&mut self, view: &mut View<'_>, extent: UnitId, seat: Seat);
    /// The extent no longer lives in `slot`.
    fn left(&mut self, view: &mut View<'_>, extent: UnitId, seat: Seat);
    /// The extent was discarded: forget it.
    fn forget(&mut self, _extent: UnitId) {}
    /// The unit worth least on a tier other than the slowest; a busy one is passed over.
    fn coldest(&mut self, view: &mut View<'_>, tier: TierId) -> Option<UnitId>;
    /// Worth, and what decides among equals.
    fn rank(&self, view: &View<'_>, extent: UnitId) -> Rank;
    /// What the unit is worth.
    fn worth(&self, view: &View<'_>, extent: UnitId) -> u64 {
        self.rank(view, extent).0
    }
    /// What the unit is worth to the tiers below the fastest.
    fn lower_worth(&self, view: &View<'_>, extent: UnitId) -> u64 {
        self.worth(view, extent)
    }
    /// Statistics are complete up to here: a plan begins.
    fn settle(&mut self, _view: &mut View<'_>) {}
    /// Append the units whose worth grew since the last call. A planner needs no others, as long as worth only grows or
    /// all worths shrink alike: an untouched unit that was not good enough then is not now.
    fn raised(&mut self, _out: &mut Vec<UnitId>) {}
    /// Score and history of a unit, in words.
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let idle = view.now().since(view.last(extent)).as_secs_f64();
        format!(
            "worth {} by {}, last access {idle:.1} s ago",
            self.worth(view, extent),
            self.name()
        )
    }
    /// Change a parameter: `None` if it has none of that name, else whether the value is in range.
    fn set(&mut self, _key: &str, _value: f64) -> Option<Result<(), &'static str>> {
        None
    }
    /// The same for a parameter whose values are names.
    fn set_name(&mut self, _key: &str, _name: &str) -> Option<Result<(), &'static str>> {
        None
    }
    /// Parameters whose values are names, and their values now.
    fn names(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
    /// Parameters and their values now.
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    /// Memory of its own, bytes.
    fn bytes(&self) -> usize;
}
