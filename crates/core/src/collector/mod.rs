//! Collectors keep access statistics and order units by worth. Any collector serves any architecture (Loris III).

mod frequency;
mod lists;
mod recency;
mod wsclock;

pub use frequency::Frequency;
pub use lists::Lists;
pub use recency::Recency;
pub use wsclock::WsClock;

use crate::policy::{Access, View};
use crate::units::{ExtentId, Slot, TierId};

/// Access statistics and the order that follows from them.
pub trait Collector: Send {
    /// Its name in configuration.
    fn name(&self) -> &'static str;
    /// The shape is known.
    fn attach(&mut self, view: &mut View<'_>);
    /// An access (its extent may not be placed yet).
    fn touch(&mut self, view: &mut View<'_>, access: &Access);
    /// The extent's home is now `slot`.
    fn placed(&mut self, view: &mut View<'_>, extent: ExtentId, slot: Slot);
    /// The extent no longer lives in `slot`.
    fn left(&mut self, view: &mut View<'_>, extent: ExtentId, slot: Slot);
    /// The unit worth least on a tier other than the slowest; a busy one is passed over.
    fn coldest(&mut self, view: &mut View<'_>, tier: TierId) -> Option<ExtentId>;
    /// What the unit is worth: only the order means something.
    fn worth(&self, view: &View<'_>, extent: ExtentId) -> u64;
    /// Memory of its own, bytes.
    fn bytes(&self) -> usize;
}
