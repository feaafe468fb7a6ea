//! `cache`: homes on the slowest tier, copies on the fastest (Loris III, caching as an architecture).
//!
//! The architecture knows when data moves: a miss that the replacement admits gains a copy, one victim making room; what a
//! write does is the write mode's business. A [`Replacement`] knows what is worth keeping. Neither knows the other's state.

mod lru;

pub use lru::Lru;

use super::{Access, Action, Outcome, ParamError, Place, Policy, Uses, View, WriteTo};
use crate::units::{ExtentId, Slot, TierId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Which cached unit goes first, and which newcomer is let in. It follows what happened (`hit`, `inserted`, `removed`), not
/// what was asked for: the engine may refuse.
pub trait Replacement: Send {
    /// There are `slots` fast slots and `extents` extents.
    fn attach(&mut self, slots: u32, extents: u32);
    /// The copy in `slot` was touched.
    fn hit(&mut self, slot: u32, extent: ExtentId, write: bool);
    /// An extent without a copy was touched: may it have one?
    fn admit(&mut self, extent: ExtentId, write: bool) -> bool;
    /// The slot whose copy should go to make room for `newcomer`; `busy` ones are passed over.
    fn victim(&mut self, newcomer: ExtentId, busy: &mut dyn FnMut(u32) -> bool) -> Option<u32>;
    /// `extent` has its copy in `slot` now.
    fn inserted(&mut self, slot: u32, extent: ExtentId);
    /// The copy in `slot` is gone.
    fn removed(&mut self, slot: u32, extent: ExtentId);
    /// Change a parameter.
    fn set(&mut self, _key: &str, _value: f64) -> Result<(), ParamError> {
        Err(ParamError::Unknown(String::from("(no parameters)")))
    }
    /// Parameters and their values now.
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    /// Memory, bytes.
    fn bytes(&self) -> usize;
}

/// See the module.
pub struct Cache<R> {
    name: &'static str,
    replacement: R,
}

impl<R: Replacement> Cache<R> {
    /// With that replacement.
    pub fn new(name: &'static str, replacement: R) -> Cache<R> {
        Cache { name, replacement }
    }
}

const FAST: TierId = TierId(0);

impl<R: Replacement> Policy for Cache<R> {
    fn name(&self) -> &'static str {
        self.name
    }
    fn attach(&mut self, view: &mut View<'_>) {
        let geo = view.geo();
        self.replacement
            .attach(geo.tier_slots(FAST).end, geo.extents);
        // A former policy may have left homes on the fast tier; those are not ours to replace.
        for s in 0..view.geo().tier_slots(FAST).end {
            if let Some(e) = view
                .owner(Slot(s))
                .filter(|&e| view.copy(e) == Some(Slot(s)))
            {
                self.replacement.inserted(s, e);
            }
        }
    }
    fn uses(&self) -> Uses {
        Uses::Copies
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: ExtentId) -> Place {
        Place::Tier(view.geo().slowest())
    }
    fn on_copied(&mut self, _view: &mut View<'_>, extent: ExtentId, slot: Slot) {
        self.replacement.inserted(slot.0, extent);
    }
    fn on_uncopied(&mut self, _view: &mut View<'_>, extent: ExtentId, slot: Slot) {
        self.replacement.removed(slot.0, extent);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let extent = access.extent;
        view.set_last(extent, access.now);
        if let Some(s) = access.copy {
            self.replacement.hit(s.0, extent, access.write);
            return;
        }
        if !self.replacement.admit(extent, access.write) {
            return;
        }
        if view.free(FAST) == 0 {
            let busy = &mut |s| view.owner(Slot(s)).is_none_or(|e| view.is_held(e));
            let Some(extent) = self
                .replacement
                .victim(extent, busy)
                .and_then(|s| view.owner(Slot(s)))
            else {
                return;
            };
            wanted.push(Action::Evict { extent });
        }
        wanted.push(if access.write {
            Action::Allocate { extent, to: FAST }
        } else {
            Action::Fetch { extent, to: FAST }
        });
    }
    fn on_settled(
        &mut self,
        _view: &mut View<'_>,
        _action: Action,
        _how: Outcome,
        _wanted: &mut Vec<Action>,
    ) {
    }
    fn write_to(&mut self, _view: &mut View<'_>, _access: &Access) -> WriteTo {
        WriteTo::Copy
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        self.replacement.set(key, value)
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        self.replacement.params()
    }
    fn explain(&self, view: &View<'_>, extent: ExtentId) -> String {
        let idle = view.now().since(view.last(extent)).as_secs_f64();
        let what = match view.copy(extent) {
            Some(_) if view.is_dirty(extent) => "has a dirty copy on the fast tier",
            Some(_) => "has a clean copy on the fast tier",
            None => "has no copy; the next access that is admitted makes one",
        };
        format!("{what}; last access {idle:.1} s ago")
    }
    fn bytes(&self) -> usize {
        self.replacement.bytes()
    }
}
