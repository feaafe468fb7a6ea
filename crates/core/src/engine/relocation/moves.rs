//! The life of a move: read source → write destination → (round: flush, record, flush) → flip → free source.
//!
//! Copies use the same machinery. A fetch flips as soon as the copy is written, since nothing durable says that it is there.
//! A clean writes the dirty blocks home, and its record says that they are no longer dirty (`copies.rs` starts them).
//!
//! Crash points: before the record is durable the map says *source*, which nobody overwrote; after it, *destination*, which
//! was flushed before the record was issued. The source slot is free only after the record is durable and unread.

use crate::bits::Bits;
use crate::engine::relocation::move_list::{AT_WORK, Kind, Move, Step};
use crate::engine::{Engine, Mutant};
use crate::io::{Effect, OpKind};
use crate::ladder::{self, Floor, Rung};
use crate::policy::{Action, Outcome, Refusal};
use crate::stats::MoveCounters;
use crate::units::{ExtentId, Nanos, Slot, TierId};
use crate::volume::Space;
use alloc::vec::Vec;

/// The engine on the ladder from proposal to outcome: what starts takes its time.
struct Timed<'a> {
    me: &'a mut Engine,
    now: Nanos,
    out: &'a mut Vec<Effect>,
}

impl Floor for Timed<'_> {
    fn space(&self) -> &Space {
        &self.me.space
    }
    fn proposed(&mut self, action: Action, up: bool) {
        self.me.counted(action, up).proposed += 1;
    }
    fn may(&self, action: Action) -> Result<(), Refusal> {
        if !self.me.may_move() {
            return Err(Refusal::Closed);
        }
        let copies = matches!(action, Action::Fetch { .. } | Action::Allocate { .. });
        if copies && !self.me.copies_fit && action.extent().0 < self.me.space.geo.extents {
            return Err(Refusal::NoCopies);
        }
        Ok(())
    }
    fn start(&mut self, action: Action, rung: Rung) -> Result<bool, Refusal> {
        let (me, now, out) = (&mut *self.me, self.now, &mut *self.out);
        match rung {
            Rung::Move {
                extent,
                from,
                to,
                up,
            } => me.try_move(now, action, (extent, from, to), up),
            Rung::Fetch { extent, home, to } => me.try_fetch(now, action, (extent, home, to)),
            Rung::Allocate { extent, to } => me.try_allocate(now, extent, to),
            Rung::Clean { extent } => me.try_clean(now, action, extent),
            Rung::Evict { extent } => me.try_evict(now, action, extent, out),
        }
    }
    fn ended(&mut self, action: Action, up: bool, how: Outcome) {
        self.me.settle(self.now, action, up, false, how);
    }
}

impl Engine {
    /// Try what the policy wants, in order.
    pub(in crate::engine) fn try_wanted(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        let mut wanted = core::mem::take(&mut self.wanted);
        self.sort_cleans(&mut wanted);
        ladder::climb(&mut Timed { me: self, now, out }, &mut wanted);
        // Keep the buffer: the policy may have pushed more into the new one.
        wanted.append(&mut self.wanted);
        self.wanted = wanted;
    }

    /// Refuse everything that the policy wants, and what it wants in answer.
    pub(in crate::engine) fn refuse_wanted(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        let mut wanted = core::mem::take(&mut self.wanted);
        let mut floor = Timed { me: self, now, out };
        ladder::refuse(&mut floor, &mut wanted, Refusal::Throttled);
        self.wanted.clear();
    }

    fn counted(&mut self, action: Action, up: bool) -> &mut MoveCounters {
        let c = &mut self.counters;
        match action {
            Action::Move { .. } if up => &mut c.promotions,
            Action::Move { .. } => &mut c.demotions,
            Action::Fetch { .. } | Action::Allocate { .. } => &mut c.fetches,
            Action::Clean { .. } => &mut c.writebacks,
            Action::Evict { .. } => &mut c.evictions,
        }
    }

    fn settle(&mut self, now: Nanos, action: Action, up: bool, own: bool, how: Outcome) {
        self.counted(action, up).settle(how);
        if !own {
            let (policy, mut view, wanted) = self.view(now, 0);
            policy.on_settled(&mut view, action, how, wanted);
        }
        self.policy_due |= !matches!(how, Outcome::Refused(_));
    }

    fn try_move(
        &mut self,
        now: Nanos,
        action: Action,
        (extent, src, to): (ExtentId, Slot, TierId),
        up: bool,
    ) -> Result<bool, Refusal> {
        // A read in flight pins the slot but does not stop a copy; a write could land after the copy was read.
        if self.space.pins.count(src).1 > 0 {
            return Err(Refusal::Busy);
        }
        let ride = self.may_copy(now, extent, src, up)?;
        let (policy, view, _) = self.view(now, 0);
        let beside = policy.beside(&view, extent, to);
        let dst = self
            .space
            .take_on(extent, to, beside)
            .ok_or(Refusal::Full)?;
        let may = self.may_disturb(now, &[src, dst], true);
        if let Err(why) = may.and_then(|()| self.may_wear(to)) {
            self.space.slots.put_back(dst);
            return Err(why);
        }
        self.start_move(action, extent, (src, dst), Kind::Rehome, up, false, ride);
        Ok(false)
    }

    /// Move a home that nothing holds and nobody writes to, whatever the policy thinks; false if there is no slot.
    pub(in crate::engine) fn own_move(&mut self, extent: ExtentId, to: TierId) -> bool {
        let (Some(src), Some(dst)) = (
            self.space.map.home(extent),
            self.space.slots.take_lowest(to),
        ) else {
            return false;
        };
        let action = Action::Move { extent, to };
        self.counted(action, false).proposed += 1;
        self.start_move(action, extent, (src, dst), Kind::Rehome, false, true, false);
        true
    }

    /// May a move of `extent` out of `src` start, which no writer stops? True: as part of the operation of the one before it,
    /// which no limit of moves counts but the user's own.
    pub(in crate::engine) fn may_copy(
        &mut self,
        now: Nanos,
        e: ExtentId,
        src: Slot,
        up: bool,
    ) -> Result<bool, Refusal> {
        let rules = self.policy.move_rules();
        let reads = |s: Option<Slot>| s.is_some_and(|s| self.space.pins.is_pinned(s));
        if self.space.map.is_held(e)
            || (rules.idle_extents_only
                && (reads(self.space.map.home(e)) || reads(self.space.map.copy(e))))
        {
            return Err(Refusal::Busy);
        }
        if up && rules.yield_to_metadata && self.commit.writing_metadata() {
            return Err(Refusal::MetadataFlush);
        }
        let rides = self.rides(src, up);
        let limit = rules.limit.unwrap_or(AT_WORK);
        let own = self.params.moves_max.map_or(u32::MAX, u32::from);
        if (!rides && self.moves.copying() >= limit)
            || self.moves.at_work() >= own
            || !self.moves.has_free()
        {
            return Err(Refusal::Limit);
        }
        self.moves.refill(now);
        let allowed = self.moves.allowed(now, self.params.p99_limit);
        if (!rides && self.moves.copying() >= allowed)
            || (self.moves.bytes_per_s.is_some() && self.moves.budget < 0)
        {
            return Err(Refusal::Throttled);
        }
        Ok(rides)
    }

    /// Cleans that are wanted one after another go home in the order of addresses.
    fn sort_cleans(&self, wanted: &mut [Action]) {
        let clean = |a: &Action| matches!(a, Action::Clean { .. });
        for batch in wanted.chunk_by_mut(|a, b| clean(a) && clean(b)) {
            if batch.len() > 1 {
                batch.sort_by_key(|a| {
                    let e = a.extent();
                    let known = e.0 < self.space.geo.extents;
                    (known.then(|| self.space.map.home(e)).flatten(), e)
                });
            }
        }
    }

    /// May the engine itself start one? Its own needs know no throttle.
    pub(in crate::engine) fn has_move_buffer(&self) -> bool {
        self.moves.has_free()
    }

    /// Start a move, for which there is room. `parts` of those that are not about the whole extent were set by
    /// [`Engine::set_parts`] on the buffer that [`Engine::next_move`] names.
    #[allow(clippy::too_many_arguments)]
    pub(in crate::engine) fn start_move(
        &mut self,
        action: Action,
        extent: ExtentId,
        (src, dst): (Slot, Slot),
        kind: Kind,
        up: bool,
        own: bool,
        rides: bool,
    ) {
        let index = self.next_move();
        let owed = self.reserve_wear(kind, dst);
        self.moves.budget -= i64::from(self.space.geo.extent_bytes());
        self.moves.list[usize::from(index)] = Some(Move {
            action,
            extent,
            src,
            dst,
            kind,
            up,
            own,
            step: Step::Reading,
            left: 0,
            failed: false,
            stale: false,
            owed,
            batch: self.joins.batch(),
            rides,
        });
        self.moves.active += 1;
        self.moves.riders += u32::from(rides);
        self.joins_on(index, if up { src } else { dst }, up);
        self.space.map.hold(extent, true);
        self.space.pins.pin(src, false);
        let blocks = self.space.geo.blocks_per_extent();
        let (mut from, mut to) = (0, blocks);
        if matches!(kind, Kind::Fill | Kind::Clean { .. }) {
            // One read from the first to the last: what lies between is left alone in the buffer.
            let parts = self.moves.all_parts(index, blocks);
            from = parts.first().map_or(0, |p| p.0);
            to = parts.last().map_or(blocks, |p| p.1);
        }
        self.move_io(index, OpKind::Read, src, from, to);
    }

    /// The buffer that the next move will use. A caller's bug if there is none.
    pub(in crate::engine) fn next_move(&self) -> u16 {
        let next = self.joins.next_buffer().filter(|&i| self.moves.is_free(i));
        next.or_else(|| self.moves.longest_free())
            .expect("no move buffer is free")
    }

    /// Say which blocks the move that starts next is about.
    pub(in crate::engine) fn set_parts(&mut self, runs: &[(u32, u32)]) {
        let (index, blocks) = (
            self.next_move(),
            self.space.geo.blocks_per_extent() as usize,
        );
        let parts = &mut self.moves.parts[usize::from(index)];
        if parts.bytes() == 0 {
            *parts = Bits::new(blocks);
        }
        parts.fill(0, blocks, false);
        for &(a, z) in runs {
            parts.fill(a as usize, z as usize, true);
        }
    }

    /// The blocks that move `index` is about, as runs.
    pub(in crate::engine) fn parts(&self, index: u16) -> Vec<(u32, u32)> {
        self.moves
            .all_parts(index, self.space.geo.blocks_per_extent())
    }

    /// Take a move out of the list; its extent is let go of.
    pub(in crate::engine) fn end_move(
        &mut self,
        now: Nanos,
        index: u16,
        out: &mut Vec<Effect>,
    ) -> Move {
        let m = self.moves.get(index);
        self.moves.list[usize::from(index)] = None;
        self.wear.release(m.owed);
        self.moves.active -= 1;
        self.moves.recount(now);
        if self.space.pins.unpin(m.src, false) {
            self.unpinned(m.src, out);
        }
        self.release_hold(m.extent);
        self.retry = true;
        // Whoever waits for a slot may get one now, or have one made free.
        self.freed = true;
        m
    }

    /// Tell how a move ended.
    pub(in crate::engine) fn settle_move(&mut self, now: Nanos, m: &Move, how: Outcome) {
        self.settle(now, m.action, m.up, m.own, how);
    }

    /// Cancel a move if it can still be cancelled (closing).
    pub(in crate::engine) fn cancel_move(&mut self, now: Nanos, index: u16, out: &mut Vec<Effect>) {
        if let Some(m) = self.moves.list[usize::from(index)]
            && m.step != Step::Committing
        {
            self.moves.mark_stale(index);
            if m.step == Step::Copied {
                self.give_up(now, index, Outcome::Stale, out);
            }
        }
    }

    /// Drop copied moves that were overtaken while they waited for a round.
    pub(in crate::engine) fn drop_stale(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        for i in 0..self.moves.list.len() {
            if self.moves.list[i].is_some_and(|m| m.stale && m.step == Step::Copied) {
                self.give_up(now, i as u16, Outcome::Stale, out);
            }
        }
    }

    /// End a move without effect. A destination of its own was never exposed, so it is free at once.
    pub(in crate::engine) fn give_up(
        &mut self,
        now: Nanos,
        index: u16,
        how: Outcome,
        out: &mut Vec<Effect>,
    ) {
        if self.moves.list[usize::from(index)].is_none() {
            return;
        }
        let m = self.end_move(now, index, out);
        if !m.writes_in_place() {
            self.space.slots.put_back(m.dst);
        }
        self.settle_move(now, &m, how);
    }

    /// The record of this move is part of the round that starts now.
    pub(in crate::engine) fn move_committing(&mut self, now: Nanos, index: u16) {
        if let Some(m) = &mut self.moves.list[usize::from(index)] {
            m.step = Step::Committing;
        }
        self.moves.recount(now);
    }

    /// The round is durable: flip what it carried.
    pub(in crate::engine) fn flip_committed(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        for i in 0..self.moves.list.len() {
            let Some(m) = self.moves.list[i].filter(|m| m.step == Step::Committing) else {
                continue;
            };
            self.end_move(now, i as u16, out);
            if let Kind::Clean { evict } = m.kind {
                self.cleaned(now, &m, evict, out);
                continue;
            }
            self.counters.migrated_bytes += u64::from(self.space.geo.extent_bytes());
            self.space.map.rehome(m.extent, m.dst);
            self.misplaced(now, m.dst, false);
            let (policy, mut view, _) = self.view(now, 0);
            policy.on_placed(&mut view, m.extent, m.dst.into());
            self.free_moved(m.src, out);
            self.settle_move(now, &m, Outcome::Done);
        }
    }

    /// A round failed: its moves did not happen. Their slots stay taken, since either record may be the durable one.
    pub(in crate::engine) fn abandon_committing(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        for i in 0..self.moves.list.len() {
            if self.moves.list[i].is_some_and(|m| m.step == Step::Committing) {
                let m = self.end_move(now, i as u16, out);
                self.settle_move(now, &m, Outcome::Failed);
            }
        }
        // No round will come for the others either: whoever waits for them goes on from the source.
        for i in 0..self.moves.list.len() {
            if self.moves.list[i].is_some_and(|m| m.step == Step::Copied) {
                self.give_up(now, i as u16, Outcome::Failed, out);
            }
        }
    }

    /// Members that the copied moves were written to.
    pub(in crate::engine) fn members_of_copied(&self) -> u32 {
        if self.broken(Mutant::FlipBeforeFlush) {
            return 0;
        }
        let member = |s| 1u32 << self.space.geo.locate(s).0.0;
        self.moves.copied().fold(0, |set, (_, m)| {
            // The record of a clean tells of what stays dirty, too.
            let also = if m.is_clean() { member(m.src) } else { 0 };
            set | member(m.dst) | also
        })
    }
}
