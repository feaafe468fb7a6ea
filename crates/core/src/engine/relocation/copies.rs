//! The life of a copy: fetched or allocated, cleaned, given up.
//!
//! What is durable knows homes, and the dirty blocks of copies. Which blocks a copy holds *clean* is known in memory only (and
//! after a clean close): so making a copy, or giving up a clean one, costs no record. Crash points: before the record of a
//! clean is durable the copy's dirty blocks are the truth and are still there; after it the home is, and was flushed before
//! the record was issued. A slot that a durable record names as a dirty copy is given out only when a record that
//! contradicts it is durable, like any other freed slot (`free.rs`).

use crate::engine::relocation::move_list::{Kind, Move};
use crate::engine::{Engine, Mutant};
use crate::io::Effect;
use crate::policy::{Action, Outcome, Refusal, Uses};
use crate::units::{ExtentId, Nanos, Slot, TierId};
use alloc::vec::Vec;

impl Engine {
    /// Writes in flight on the extent's home or copy.
    pub(in crate::engine) fn has_writers(&self, e: ExtentId) -> bool {
        let on = |s: Option<Slot>| s.is_some_and(|s| self.space.pins.count(s).1 > 0);
        on(self.space.map.home(e)) || on(self.space.map.copy(e))
    }

    pub(in crate::engine) fn try_fetch(
        &mut self,
        now: Nanos,
        action: Action,
        (e, home, to): (ExtentId, Slot, TierId),
    ) -> Result<bool, Refusal> {
        let copy = self.space.map.copy(e);
        let (kind, src, parts) = match copy {
            None => (Kind::Fetch, home, self.valid_parts(e)),
            Some(c) if self.space.geo.tier_of(c) == to => (Kind::Fill, home, self.lacking_parts(e)),
            // Its new slot would have to be on record before the old one could go.
            Some(_) if self.space.map.is_dirty(e) => return Err(Refusal::Busy),
            Some(c) => (Kind::Relocate, c, self.copied_parts(e)),
        };
        if parts.is_empty() {
            return Err(Refusal::Pointless);
        }
        if self.has_writers(e) && !self.broken(Mutant::FetchUnderWriter) {
            return Err(Refusal::Busy);
        }
        let rides = self.may_copy(now, e, src, true)?;
        // A copy needs no record.
        self.may_disturb(now, &[src], false)?;
        if kind != Kind::Fill && self.space.slots.free(to) == 0 {
            return Err(Refusal::Full);
        }
        self.may_wear(to)?;
        let dst = match copy {
            Some(c) if kind == Kind::Fill => c,
            _ => self.space.slots.take_lowest(to).ok_or(Refusal::Full)?,
        };
        self.set_parts(&parts);
        self.start_move(action, e, (src, dst), kind, true, false, rides);
        Ok(false)
    }

    /// Runs of blocks that are valid at the home.
    fn valid_parts(&self, e: ExtentId) -> Vec<(u32, u32)> {
        self.runs(|b, end| self.space.map.run(e, b, end))
    }

    /// Runs of blocks that are valid at the home and not in the copy.
    fn lacking_parts(&self, e: ExtentId) -> Vec<(u32, u32)> {
        self.runs(|b, end| {
            let (n, copied) = self.space.map.copy_run(e, b, end);
            if copied {
                (n, false)
            } else {
                self.space.map.run(e, b, b + n)
            }
        })
    }

    /// Runs of blocks that are valid in the copy.
    fn copied_parts(&self, e: ExtentId) -> Vec<(u32, u32)> {
        self.runs(|b, end| self.space.map.copy_run(e, b, end))
    }

    fn dirty_parts(&self, e: ExtentId) -> Vec<(u32, u32)> {
        self.runs(|b, end| self.space.map.dirty_run(e, b, end))
    }

    fn runs(&self, run: impl Fn(u32, u32) -> (u32, bool)) -> Vec<(u32, u32)> {
        let blocks = self.space.geo.blocks_per_extent();
        let (mut b, mut v) = (0, Vec::new());
        while b < blocks {
            let (n, on) = run(b, blocks);
            if on {
                v.push((b, b + n));
            }
            b += n;
        }
        v
    }

    pub(in crate::engine) fn try_allocate(
        &mut self,
        now: Nanos,
        e: ExtentId,
        to: TierId,
    ) -> Result<bool, Refusal> {
        // A write in flight to the home would be missed by what keeps writes of copied extents in order (`replicas.rs`).
        if self.space.map.is_held(e) || self.has_writers(e) {
            return Err(Refusal::Busy);
        }
        if self.space.slots.free(to) == 0 {
            return Err(Refusal::Full);
        }
        self.may_wear(to)?;
        let slot = self.space.slots.take_lowest(to).ok_or(Refusal::Full)?;
        self.space.map.add_empty_copy(e, slot);
        // The write that it is for goes there, not to the home.
        self.wake_with(None);
        self.tell_copied(now, e, slot);
        Ok(true)
    }

    /// Does the policy know of a copy in `slot`? A tiering policy knows of none, others of those on the fastest tier: what else
    /// there is was left by the policy before.
    pub(in crate::engine) fn is_the_policys(&self, slot: Slot) -> bool {
        self.drain.uses() != Uses::Homes && self.space.geo.tier_of(slot) == TierId(0)
    }

    fn tell_copied(&mut self, now: Nanos, e: ExtentId, slot: Slot) {
        self.misplaced(now, slot, true);
        if self.is_the_policys(slot) {
            let (policy, mut view, _) = self.view(now, 0);
            policy.on_copied(&mut view, e, slot.into());
        }
    }

    /// The blocks of a fetch are in the copy's slot: from now on they are read there.
    pub(in crate::engine) fn flip_copy(&mut self, now: Nanos, index: u16, out: &mut Vec<Effect>) {
        let parts = self.parts(index);
        let m = self.end_move(now, index, out);
        if m.kind == Kind::Relocate {
            self.drop_copy(now, m.extent, out);
        }
        if m.kind != Kind::Fill {
            self.space.map.add_empty_copy(m.extent, m.dst);
        }
        for (a, z) in parts {
            self.space.map.copy_validate(m.extent, a, z);
        }
        if m.kind != Kind::Fill {
            self.tell_copied(now, m.extent, m.dst);
        }
        self.settle_move(now, &m, Outcome::Done);
    }

    pub(in crate::engine) fn try_clean(
        &mut self,
        now: Nanos,
        action: Action,
        e: ExtentId,
    ) -> Result<bool, Refusal> {
        if self.has_writers(e) {
            return Err(Refusal::Busy);
        }
        if let Some(home) = self.space.map.home(e) {
            self.may_copy(now, e, home, false)?;
            self.may_disturb(now, &[home], true)?;
        }
        let evict = matches!(action, Action::Evict { .. });
        self.start_clean(action, e, evict, false);
        Ok(false)
    }

    /// Write the dirty blocks of `e` home. The caller has seen to it that no write is in flight and a buffer is free.
    pub(in crate::engine) fn start_clean(
        &mut self,
        action: Action,
        e: ExtentId,
        evict: bool,
        own: bool,
    ) {
        if let (Some(copy), Some(home)) = (self.space.map.copy(e), self.space.map.home(e)) {
            let parts = self.dirty_parts(e);
            self.set_parts(&parts);
            let kind = Kind::Clean { evict };
            self.start_move(action, e, (copy, home), kind, false, own, false);
        }
    }

    /// A round is about to carry the record of a clean: from here on the map says what that record says. Whoever writes
    /// meanwhile makes the blocks dirty again, on a record of their own.
    pub(in crate::engine) fn apply_clean(&mut self, index: u16, m: &Move) -> bool {
        let parts = if self.broken(Mutant::ForgetRedirty) {
            self.dirty_parts(m.extent)
        } else {
            self.parts(index)
        };
        for &(a, z) in &parts {
            self.space.map.copy_cleaned(m.extent, a, z);
        }
        !parts.is_empty()
    }

    /// There was no room for the record.
    pub(in crate::engine) fn revert_clean(&mut self, index: u16, m: &Move) {
        for (a, z) in self.parts(index) {
            self.space.map.copy_dirty(m.extent, a, z);
        }
    }

    /// The record of a clean is durable, on primary and mirror.
    pub(in crate::engine) fn cleaned(
        &mut self,
        now: Nanos,
        m: &Move,
        evict: bool,
        out: &mut Vec<Effect>,
    ) {
        let e = m.extent;
        let dirty = self.space.map.is_dirty(e);
        if !dirty {
            self.space.map.set_recorded(m.src, false);
        }
        if !evict {
            return self.settle_move(now, m, Outcome::Done);
        }
        self.counters.writebacks.proposed += 1;
        self.counters.writebacks.settle(Outcome::Done);
        // A write in flight will make it dirty again when it ends.
        if dirty || self.has_writers(e) {
            return self.settle_move(now, m, Outcome::Stale);
        }
        self.drop_copy(now, e, out);
        self.settle_move(now, m, Outcome::Done);
    }

    pub(in crate::engine) fn try_evict(
        &mut self,
        now: Nanos,
        action: Action,
        e: ExtentId,
        out: &mut Vec<Effect>,
    ) -> Result<bool, Refusal> {
        if self.space.map.is_dirty(e) && !self.broken(Mutant::DropDirtyCopy) {
            return self.try_clean(now, action, e);
        }
        if self.space.map.is_held(e) || self.has_writers(e) {
            return Err(Refusal::Busy);
        }
        self.drop_copy(now, e, out);
        Ok(true)
    }

    /// Give up a copy that holds nothing of its own. Its slot is free as soon as nobody reads it, unless a durable record
    /// names it.
    pub(in crate::engine) fn drop_copy(&mut self, now: Nanos, e: ExtentId, out: &mut Vec<Effect>) {
        let Some(slot) = self.space.map.copy(e) else {
            return;
        };
        let recorded = self.space.map.is_recorded(slot);
        self.space.map.drop_copy(e);
        if recorded {
            self.commit.note(e, now, self.params.commit_interval);
        }
        if recorded && !self.broken(Mutant::ReuseRecordedCopy) {
            self.free_slot(slot, false, out);
        } else {
            self.free_moved(slot, out);
        }
        if self.is_the_policys(slot) {
            let (policy, mut view, _) = self.view(now, 0);
            policy.on_uncopied(&mut view, e, slot.into());
        }
        self.policy_due = true;
        self.retry |= self.space.map.is_held(e);
    }

    /// No slot is free, and an extent needs a home: copies are worth less. True if a slot is free now; else one may become
    /// free, if there is any copy at all.
    pub(in crate::engine) fn reclaim(&mut self, now: Nanos, out: &mut Vec<Effect>) -> bool {
        let fast = self.space.geo.tier_slots(self.space.geo.slowest()).start;
        let any_free =
            |me: &Engine| (0..me.space.geo.tiers()).any(|t| me.space.slots.free(TierId(t)) > 0);
        if self.space.map.copied() == 0 || any_free(self) {
            return false;
        }
        let mut dirty = None;
        for i in 0..fast {
            let s = Slot((self.hand + i) % fast);
            let Some(e) = self.copy_in(s) else { continue };
            // A piece that waits on the extent looks again when it goes on: only moves and writes in flight matter.
            if self.moves.of(e).is_some() || self.has_writers(e) {
                continue;
            }
            if self.space.map.is_dirty(e) {
                dirty = dirty.or(Some((s, e)));
                continue;
            }
            self.hand = s.0 + 1;
            self.own_eviction(now, e, out);
            // If not free yet, then a round or a reader away: one at a time will do.
            return any_free(self);
        }
        if let Some((s, e)) = dirty
            && self.has_move_buffer()
            && !self.failed
        {
            self.hand = s.0 + 1;
            self.counters.evictions.proposed += 1;
            self.start_clean(Action::Evict { extent: e }, e, true, true);
        }
        false
    }

    fn own_eviction(&mut self, now: Nanos, e: ExtentId, out: &mut Vec<Effect>) {
        self.counters.evictions.proposed += 1;
        self.counters.evictions.settle(Outcome::Done);
        self.drop_copy(now, e, out);
    }

    /// The extent whose copy is in `s`.
    pub(in crate::engine) fn copy_in(&self, s: Slot) -> Option<ExtentId> {
        let e = self.space.map.owner(s)?;
        (self.space.map.copy(e) == Some(s)).then_some(e)
    }

    /// A write wanted the copy given up, and it holds dirty blocks: write them home when that is possible. Advice only.
    pub(in crate::engine) fn evict_behind(&mut self, e: ExtentId) {
        if self.space.map.is_dirty(e)
            && self.may_move()
            && self.has_move_buffer()
            && !self.space.map.is_held(e)
            && !self.has_writers(e)
        {
            self.counters.evictions.proposed += 1;
            self.start_clean(Action::Evict { extent: e }, e, true, true);
        }
    }
}
