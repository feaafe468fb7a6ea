//! `cache`: homes on the slowest tier, copies on the fastest (Loris III, caching as an architecture).
//!
//! The architecture decides when data moves: a miss that the replacement admits gets a copy, and one victim makes room. The write
//! mode decides where writes go. A [`Replacement`] decides which copies to keep. Neither knows the other's state.
//!
//! With `metadata_share` above 0, copies that hold metadata of a file system are not evicted while they take at most this share
//! (`metadata.rs`).
//!
//! When not to use it: where capacity matters. Copies add no capacity; under the tiering presets the fast tier does.

mod arc;
mod clock;
mod coming;
mod fifo;
mod ghosts;
mod lfu;
mod lirs;
mod lru;
mod lru_2;
mod metadata;
mod multiqueue;
mod s3_fifo;
mod sieve;
mod sketch;
mod smq;
#[cfg(test)]
mod tests;
mod two_q;
mod w_tinylfu;

pub use arc::Arc;
pub use clock::Clock;
pub use fifo::Fifo;
pub use ghosts::Ghosts;
pub use lfu::Lfu;
pub use lirs::Lirs;
pub use lru::Lru;
pub use lru_2::Lru2;
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;
pub use smq::Smq;
pub use two_q::TwoQ;
pub use w_tinylfu::WTinyLfu;

use super::hold::{FAST, Passed, leaves};
use super::registry::METADATA_SHARE;
use super::{
    Access, Action, Outcome, ParamError, Place, Policy, Refusal, Uses, View, WriteTo, param,
};
use crate::units::Nanos;
use crate::volume::{Position, UnitId};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use coming::Coming;
use metadata::Metadata;

/// Chooses the cached unit to evict, and the newcomers to admit.
///
/// Its lists follow events (`hit`, `inserted`, `removed`), not proposals, because the engine may refuse or delay these.
/// So `victim` only names a slot, which leaves the lists at `removed`; and what `admit` learned about a newcomer
/// is kept separately until `inserted` or `refused`.
pub trait Replacement: Send {
    /// Called once: the volume has `slots` fast slots and `extents` extents.
    fn attach(&mut self, slots: u32, extents: u32);
    /// Called when `access` has hit the copy in `slot`.
    fn hit(&mut self, slot: u32, access: &Access);
    /// Whether the unit of this access, which has no copy, may get one. After a true result, this is not called again for the unit before
    /// `inserted` or `refused`. `full`: a victim would have to be evicted.
    fn admit(&mut self, access: &Access, full: bool) -> bool;
    /// The slot whose copy should be evicted to make room for `newcomer`; slots that are `busy` are skipped.
    fn victim(&mut self, newcomer: UnitId, busy: impl FnMut(u32) -> bool) -> Option<u32>;
    /// `extent` now has its copy in `slot`; `write` if a write caused it.
    fn inserted(&mut self, slot: u32, extent: UnitId, write: bool);
    /// The copy of an admitted extent was not made.
    fn refused(&mut self, _extent: UnitId) {}
    /// The copy in `slot` was removed.
    fn removed(&mut self, slot: u32, extent: UnitId);
    /// A dirty copy that should be written home now. Called after each access.
    fn to_clean(&mut self, _busy: impl FnMut(u32) -> bool) -> Option<u32> {
        None
    }
    /// The copy in `slot` was written home and is clean.
    fn cleaned(&mut self, _slot: u32) {}
    /// Changes a parameter.
    fn set(&mut self, key: &str, _value: f64) -> Result<(), ParamError> {
        let _ = key;
        Err(ParamError::Unknown(String::from("(no parameters)")))
    }
    /// The parameters and their present values.
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    /// Memory in bytes.
    fn bytes(&self) -> usize;
}

/// See the module.
pub struct Cache<R> {
    name: &'static str,
    replacement: R,
    /// Copies that are not there yet.
    coming: Coming,
    /// Number of fast slots.
    fast: u32,
    /// Keeps copies that hold metadata; `None` if their share is 0.
    metadata: Option<Box<Metadata>>,
}

impl<R: Replacement> Cache<R> {
    /// Creates the policy with the given replacement.
    pub fn new(name: &'static str, replacement: R) -> Cache<R> {
        Cache {
            name,
            replacement,
            coming: Coming::default(),
            fast: 0,
            metadata: None,
        }
    }
    /// The replacement.
    pub fn replacement(&self) -> &R {
        &self.replacement
    }
    #[inline]
    fn miss(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let extent = access.extent;
        let on_fast = |s: Position| s.index() < self.fast;
        if access.home.is_some_and(on_fast) {
            return;
        }
        if self.coming.contains(extent) {
            return wanted.extend(self.coming.hurry(view, access));
        }
        let full = self.coming.is_full(view, extent);
        if !self.replacement.admit(access, full) {
            return;
        }
        let first = wanted.len();
        let (replacement, metadata) = (&mut self.replacement, &mut self.metadata);
        let victim = |leaving: &[Action]| {
            let mut passed = Passed::default();
            let busy = |s| {
                let owner = view.owner(view.position(s));
                owner.is_none_or(|e| passed.over(view, e) || leaves(leaving, e))
                    || metadata.as_mut().is_some_and(|m| m.keeps(s))
            };
            let victim = replacement.victim(extent, busy);
            let victim = victim.filter(|_| !passed.is_limit());
            victim.and_then(|s| view.owner(view.position(s)))
        };
        let made = !full || self.coming.make_room(view, extent, wanted, victim);
        self.use_skipped(view, access);
        if !made {
            return self.replacement.refused(extent);
        }
        if let Some(m) = &mut self.metadata {
            m.expect(view, access);
        }
        let copy = self.coming.expect(view, access, &wanted[first..]);
        wanted.push(copy);
    }
    /// The copy of `extent` will not come.
    fn lose(&mut self, extent: UnitId) {
        self.coming.forget(extent);
        if let Some(m) = &mut self.metadata {
            m.failed(extent);
        }
        self.replacement.refused(extent);
    }
    /// Kept copies that the last search for a victim has met count as used.
    #[inline]
    fn use_skipped(&mut self, view: &View<'_>, access: &Access) {
        let Some(metadata) = &mut self.metadata else {
            return;
        };
        let skipped = metadata.take_skipped();
        for &s in &skipped {
            let copy = Some(view.position(s));
            if let Some(extent) = view.owner(view.position(s)) {
                let access = Access {
                    extent,
                    copy,
                    write: false,
                    ..*access
                };
                self.replacement.hit(s, &access);
            }
        }
        metadata.give_back(skipped);
    }
    #[inline]
    fn clean(&mut self, view: &View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        // The unit that is being accessed may be about to be written.
        let mut passed = Passed::default();
        let busy = |s| {
            let owner = view.owner(view.position(s));
            owner.is_none_or(|e| e == access.extent || passed.over(view, e))
        };
        let slot = self.replacement.to_clean(busy);
        let slot = slot.filter(|_| !passed.is_limit());
        if let Some(extent) = slot.and_then(|s| view.owner(view.position(s))) {
            wanted.push(Action::Clean { extent });
        }
    }
}

impl<R: Replacement> Policy for Cache<R> {
    fn name(&self) -> &'static str {
        self.name
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.fast = view.positions(FAST).end;
        self.replacement.attach(self.fast, view.units());
        // After a restart, the order is restored from the time stamps that survived.
        let mut known: Vec<(u64, u32, UnitId)> = (0..self.fast)
            .filter_map(|s| view.owner(view.position(s)).map(|e| (view.last(e).0, s, e)))
            // A previous policy may have left homes on the fast tier. This policy does not replace those.
            .filter(|&(_, s, e)| view.copy(e) == Some(view.position(s)))
            .collect();
        known.sort_unstable();
        for (_, s, e) in known {
            self.replacement.inserted(s, e, view.is_dirty(e));
        }
        if let Some(m) = &mut self.metadata {
            m.attach(view);
        }
    }
    fn uses(&self) -> Uses {
        Uses::Copies
    }
    fn writes_back_on_demand(&self) -> bool {
        true
    }
    fn minds_gaps(&self) -> bool {
        false
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(view.slowest())
    }
    #[inline]
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        let write = self.coming.is_written(extent);
        self.replacement.inserted(position.index(), extent, write);
        if let Some(m) = &mut self.metadata {
            m.arrived(view, extent, position.index());
        }
    }
    #[inline]
    fn on_uncopied(&mut self, _view: &mut View<'_>, extent: UnitId, position: Position) {
        self.replacement.removed(position.index(), extent);
        if let Some(m) = &mut self.metadata {
            m.left(position.index());
        }
    }
    fn on_reclassified(
        &mut self,
        view: &mut View<'_>,
        extent: UnitId,
        class: u8,
        _wanted: &mut Vec<Action>,
    ) {
        if let Some(m) = &mut self.metadata {
            m.reclassified(view, extent, class);
        }
    }
    #[inline]
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        view.set_last(access.extent, access.now);
        if let Some(m) = &mut self.metadata {
            m.begin(view);
            if let Some(s) = access.copy {
                m.hit(view, s.index(), access);
            }
        }
        match access.copy {
            Some(s) => {
                self.replacement.hit(s.index(), access);
                if let Some(newcomer) = self.coming.used_again(access.extent) {
                    self.lose(newcomer);
                }
            }
            None => self.miss(view, access, wanted),
        }
        self.clean(view, access, wanted);
    }
    #[inline]
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        match action {
            Action::Fetch { extent, .. }
            | Action::FetchPart { extent, .. }
            | Action::Allocate { extent, .. } => {
                let full = how == Outcome::Refused(Refusal::Full);
                if how == Outcome::Done {
                    self.coming.forget(extent);
                    if let Some(m) = &mut self.metadata {
                        m.failed(extent);
                    }
                } else if !(full && self.coming.waits(view, extent)) {
                    self.lose(extent);
                }
            }
            Action::Evict { extent } => {
                if let Some(newcomer) = self.coming.left(view, extent, how == Outcome::Done) {
                    self.lose(newcomer);
                }
                self.coming.look(view, wanted);
            }
            // Whatever the outcome was, only the present state of the copy matters.
            Action::Clean { extent } => {
                if let Some(s) = view.copy(extent).filter(|_| !view.is_dirty(extent)) {
                    self.replacement.cleaned(s.index());
                }
            }
            Action::Move { .. } => {}
        }
    }
    fn write_to(&mut self, _view: &mut View<'_>, _access: &Access) -> WriteTo {
        WriteTo::Copy
    }
    #[inline]
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        self.coming.look(view, wanted);
    }
    #[inline]
    fn next_wake(&self) -> Option<Nanos> {
        self.coming.next_look()
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        if key != METADATA_SHARE {
            return self.replacement.set(key, value);
        }
        let share = param::whole(value, 0.0, 90.0, "a whole number of per cent, 0 to 90")? as u8;
        match &mut self.metadata {
            Some(m) if share > 0 => m.set_share(share),
            kept => *kept = (share > 0).then(|| Box::new(Metadata::new(share))),
        }
        Ok(())
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        let mut all = self.replacement.params();
        let share = self.metadata.as_ref().map(|m| m.share());
        all.extend(share.map(|share| (METADATA_SHARE, f64::from(share))));
        all
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let idle = view.last_words(extent);
        let what = match view.copy(extent) {
            Some(_) if view.is_dirty(extent) => {
                view.either("has a dirty copy on the fast tier", "on the fast tier")
            }
            Some(_) => view.either("has a clean copy on the fast tier", "on the fast tier"),
            None => view.either(
                "has no copy; the next access that is admitted makes one",
                "not on the fast tier; the next access that is admitted brings it there",
            ),
        };
        format!("{what}; {idle}")
    }
    fn bytes(&self) -> usize {
        let metadata = self.metadata.as_ref().map_or(0, |m| m.bytes());
        metadata + self.replacement.bytes() + self.coming.bytes()
    }
}
