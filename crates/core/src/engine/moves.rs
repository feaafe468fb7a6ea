//! The life of a move: read source → write destination → (round: flush, record, flush) → flip → free source.
//!
//! Copies use the same machinery. A fetch flips as soon as the copy is written, since nothing durable says that it is there.
//! A clean writes the dirty blocks home, and its record says that they are no longer dirty (`copies.rs` starts them).
//!
//! Crash points: before the record is durable the map says *source*, which nobody overwrote; after it, *destination*, which
//! was flushed before the record was issued. The source slot is free only after the record is durable and unread.

use super::commit::MetaSource;
use super::move_list::{AT_WORK, Kind, Move, Step};
use super::{Engine, Mutant, What};
use crate::bits::Bits;
use crate::io::{BufRef, DeviceOp, Effect, IoError, OpId, OpKind};
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
            } => me.try_move(now, action, (extent, from, to), up, out),
            Rung::Fetch { extent, home, to } => me.try_fetch(now, action, (extent, home, to), out),
            Rung::Allocate { extent, to } => me.try_allocate(now, extent, to),
            Rung::Clean { extent } => me.try_clean(now, action, extent, out),
            Rung::Evict { extent } => me.try_evict(now, action, extent, out),
        }
    }
    fn ended(&mut self, action: Action, up: bool, how: Outcome) {
        self.me.settle(self.now, action, up, false, how);
    }
}

impl Engine {
    /// Try what the policy wants, in order.
    pub(super) fn try_wanted(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        let mut wanted = core::mem::take(&mut self.wanted);
        ladder::climb(&mut Timed { me: self, now, out }, &mut wanted);
        // Keep the buffer: the policy may have pushed more into the new one.
        wanted.append(&mut self.wanted);
        self.wanted = wanted;
    }

    /// Refuse everything that the policy wants, and what it wants in answer.
    pub(super) fn refuse_wanted(&mut self, now: Nanos, out: &mut Vec<Effect>) {
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
        out: &mut Vec<Effect>,
    ) -> Result<bool, Refusal> {
        // A read in flight pins the slot but does not stop a copy; a write could land after the copy was read.
        if self.space.pins.count(src).1 > 0 {
            return Err(Refusal::Busy);
        }
        self.may_copy(now, extent, up)?;
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
        self.start_move(action, extent, (src, dst), Kind::Rehome, up, false, out);
        Ok(false)
    }

    /// Move a home that nothing holds and nobody writes to, whatever the policy thinks; false if there is no slot.
    pub(super) fn own_move(&mut self, extent: ExtentId, to: TierId, out: &mut Vec<Effect>) -> bool {
        let (Some(src), Some(dst)) = (
            self.space.map.home(extent),
            self.space.slots.take_lowest(to),
        ) else {
            return false;
        };
        let action = Action::Move { extent, to };
        self.counted(action, false).proposed += 1;
        self.start_move(action, extent, (src, dst), Kind::Rehome, false, true, out);
        true
    }

    /// May a move of `extent` start, which no writer stops?
    pub(super) fn may_copy(&mut self, now: Nanos, e: ExtentId, up: bool) -> Result<(), Refusal> {
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
        let limit = rules
            .limit
            .unwrap_or(AT_WORK)
            .min(self.moves.list.len() as u32)
            .min(self.params.moves_max.map_or(u32::MAX, u32::from));
        if self.moves.copying() >= limit || !self.moves.has_free() {
            return Err(Refusal::Limit);
        }
        self.moves.refill(now);
        if self.moves.copying() >= self.moves.allowed(now, self.params.p99_limit)
            || (self.moves.bytes_per_s.is_some() && self.moves.budget < 0)
        {
            return Err(Refusal::Throttled);
        }
        Ok(())
    }

    /// May the engine itself start one? Its own needs know no throttle.
    pub(super) fn has_move_buffer(&self) -> bool {
        self.moves.has_free()
    }

    /// Start a move, for which there is room. `parts` of those that are not about the whole extent were set by
    /// [`Engine::set_parts`] on the buffer that [`Engine::next_move`] names.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn start_move(
        &mut self,
        action: Action,
        extent: ExtentId,
        (src, dst): (Slot, Slot),
        kind: Kind,
        up: bool,
        own: bool,
        out: &mut Vec<Effect>,
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
        });
        self.moves.active += 1;
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
        self.move_io(index, OpKind::Read, src, from, to, out);
    }

    /// The buffer that the next move will use. A caller's bug if there is none.
    pub(super) fn next_move(&self) -> u16 {
        let free = self.moves.list.iter().position(Option::is_none);
        free.expect("no move buffer is free") as u16
    }

    /// Say which blocks the move that starts next is about.
    pub(super) fn set_parts(&mut self, runs: &[(u32, u32)]) {
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
    pub(super) fn parts(&self, index: u16) -> Vec<(u32, u32)> {
        self.moves
            .all_parts(index, self.space.geo.blocks_per_extent())
    }

    fn move_io(
        &mut self,
        index: u16,
        kind: OpKind,
        slot: Slot,
        from: u32,
        to: u32,
        out: &mut Vec<Effect>,
    ) {
        let (member, start) = self.space.geo.locate(slot);
        let (at, len) = (
            from << self.space.geo.block_shift,
            (to - from) << self.space.geo.block_shift,
        );
        if let Some(m) = &mut self.moves.list[usize::from(index)] {
            m.left += 1;
            match (m.kind, kind) {
                (Kind::Fetch | Kind::Fill, OpKind::Read) => {
                    self.counters.fetched_bytes += u64::from(len);
                }
                (Kind::Clean { .. }, OpKind::Write) => {
                    self.counters.written_back_bytes += u64::from(len);
                }
                _ => {}
            }
        }
        let op = DeviceOp {
            id: OpId(0),
            member,
            kind,
            offset: start + u64::from(at),
            len,
            buf: BufRef::Move { index, offset: at },
            fua: false,
        };
        self.start(What::Move { index }, op, MetaSource::None, out);
    }

    /// A read or write of a move ended.
    pub(super) fn move_step(
        &mut self,
        now: Nanos,
        index: u16,
        result: Result<(), IoError>,
        out: &mut Vec<Effect>,
    ) {
        let failed = self.failed;
        let Some(m) = &mut self.moves.list[usize::from(index)] else {
            return;
        };
        m.left -= 1;
        m.failed |= result.is_err() || failed;
        let m = *m;
        if m.step == Step::Writing {
            let (member, _) = self.space.geo.locate(m.dst);
            self.members[usize::from(member.0)].unflushed = true;
        }
        if m.left > 0 {
            return;
        }
        if m.stale || m.failed {
            let how = if m.failed {
                Outcome::Failed
            } else {
                Outcome::Stale
            };
            return self.give_up(now, index, how, out);
        }
        if m.step == Step::Reading {
            self.write_move(now, index, m, out);
        } else if matches!(m.kind, Kind::Rehome | Kind::Clean { .. }) {
            if let Some(m) = &mut self.moves.list[usize::from(index)] {
                m.step = Step::Copied;
            }
        } else {
            self.flip_copy(now, index, out);
        }
        // Readers that waited are served from the buffer now.
        self.retry = true;
        self.moves.recount(now);
    }

    fn write_move(&mut self, now: Nanos, index: u16, m: Move, out: &mut Vec<Effect>) {
        if let Some(m) = &mut self.moves.list[usize::from(index)] {
            m.step = Step::Writing;
        }
        if !m.writes_in_place() {
            let blocks = self.space.geo.blocks_per_extent();
            return self.move_io(index, OpKind::Write, m.dst, 0, blocks, out);
        }
        let parts = self.parts(index);
        if parts.is_empty() {
            // Every block was written anew meanwhile.
            return self.give_up(now, index, Outcome::Stale, out);
        }
        for (from, to) in parts {
            self.move_io(index, OpKind::Write, m.dst, from, to, out);
        }
    }

    /// Take a move out of the list; its extent is let go of.
    pub(super) fn end_move(&mut self, now: Nanos, index: u16, out: &mut Vec<Effect>) -> Move {
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
    pub(super) fn settle_move(&mut self, now: Nanos, m: &Move, how: Outcome) {
        self.settle(now, m.action, m.up, m.own, how);
    }

    /// Cancel a move if it can still be cancelled (closing).
    pub(super) fn cancel_move(&mut self, now: Nanos, index: u16, out: &mut Vec<Effect>) {
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
    pub(super) fn drop_stale(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        for i in 0..self.moves.list.len() {
            if self.moves.list[i].is_some_and(|m| m.stale && m.step == Step::Copied) {
                self.give_up(now, i as u16, Outcome::Stale, out);
            }
        }
    }

    /// End a move without effect. A destination of its own was never exposed, so it is free at once.
    fn give_up(&mut self, now: Nanos, index: u16, how: Outcome, out: &mut Vec<Effect>) {
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
    pub(super) fn move_committing(&mut self, now: Nanos, index: u16) {
        if let Some(m) = &mut self.moves.list[usize::from(index)] {
            m.step = Step::Committing;
        }
        self.moves.recount(now);
    }

    /// The round is durable: flip what it carried.
    pub(super) fn flip_committed(&mut self, now: Nanos, out: &mut Vec<Effect>) {
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
    pub(super) fn abandon_committing(&mut self, now: Nanos, out: &mut Vec<Effect>) {
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
    pub(super) fn members_of_copied(&self) -> u32 {
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
