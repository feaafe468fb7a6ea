//! The life of a move: read source → write destination → (round: flush, record, flush) → flip → free source.
//!
//! Crash points: before the record is durable the map says *source*, which nobody overwrote; after it, *destination*, which
//! was flushed before the record was issued. The source slot is free only after the record is durable and unread.

use super::commit::MetaSource;
use super::{Engine, Mutant, Params, What};
use crate::io::{BufRef, DeviceOp, Effect, IoError, OpId, OpKind};
use crate::policy::{Action, Outcome, Refusal};
use crate::stats::Histogram;
use crate::units::{ExtentId, MemberId, Nanos, Slot};
use alloc::vec::Vec;

/// Moves whose copies are complete wait this long for company, so that one flush serves a batch.
const BATCH_WAIT: Nanos = Nanos::from_millis(5);
/// How often foreground latency is judged against its limit.
const FEEDBACK_EVERY: Nanos = Nanos::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reading,
    Writing,
    /// Copied, waits for a round.
    Copied,
    /// Its record is part of the current round.
    Committing,
}

/// A move under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    action: Action,
    extent: ExtentId,
    src: Slot,
    dst: Slot,
    up: bool,
    step: Step,
    /// Overtaken by a write or discard: the copy must not be used.
    pub(super) stale: bool,
}

impl Move {
    /// Does its buffer hold the extent?
    pub(super) fn has_buffer(&self) -> bool {
        self.step != Step::Reading
    }
    /// Is its record being written?
    pub(super) fn is_committing(&self) -> bool {
        self.step == Step::Committing
    }
    /// To a faster tier?
    pub(super) fn is_promotion(&self) -> bool {
        self.up
    }
}

/// Moves under way, and what limits them.
#[derive(Clone)]
pub(super) struct Moves {
    list: Vec<Option<Move>>,
    active: u32,
    /// Since when a copied move waits for a round.
    copied_since: Option<Nanos>,
    copied: u32,
    bytes_per_s: Option<u64>,
    /// Bytes that may be moved now; negative after a burst.
    budget: i64,
    refilled: Nanos,
    /// Moves allowed by latency feedback.
    allowed: u32,
    window: Histogram,
    window_start: Nanos,
}

impl core::fmt::Debug for Moves {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.list.iter().flatten()).finish()
    }
}

impl Moves {
    pub(super) fn new(p: &Params) -> Moves {
        let n = p.move_buffers.max(1);
        Moves {
            list: alloc::vec![None; usize::from(n)],
            active: 0,
            copied_since: None,
            copied: 0,
            bytes_per_s: p.move_bytes_per_s,
            budget: 0,
            refilled: Nanos(0),
            allowed: u32::from(n),
            window: Histogram::default(),
            window_start: Nanos(0),
        }
    }
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }
    /// Moves under way.
    pub(super) fn active(&self) -> u32 {
        self.active
    }
    /// The move of an extent. Asked only for held extents: the list is short.
    pub(super) fn of(&self, e: ExtentId) -> Option<u16> {
        self.list
            .iter()
            .position(|m| m.is_some_and(|m| m.extent == e))
            .map(|i| i as u16)
    }
    pub(super) fn get(&self, i: u16) -> Move {
        self.list[usize::from(i)].expect("move not under way")
    }
    pub(super) fn mark_stale(&mut self, i: u16) {
        if let Some(m) = &mut self.list[usize::from(i)] {
            m.stale = true;
        }
    }
    /// Copied moves that wait for a round, as (index, extent, destination), and the members that must be flushed for them.
    pub(super) fn copied(&self) -> impl Iterator<Item = (u16, ExtentId, Slot)> + '_ {
        self.list.iter().enumerate().filter_map(|(i, m)| {
            m.filter(|m| m.step == Step::Copied && !m.stale)
                .map(|m| (i as u16, m.extent, m.dst))
        })
    }
    /// Should a round be started for the moves that wait?
    pub(super) fn want_round(&self, now: Nanos) -> bool {
        self.copied > 0
            && (self.copied == self.active
                || self.copied >= 8
                || self
                    .copied_since
                    .is_some_and(|t| now.since(t) >= BATCH_WAIT))
    }
    pub(super) fn next_wake(&self) -> Option<Nanos> {
        self.copied_since.map(|t| t + BATCH_WAIT)
    }
    pub(super) fn set_rate(&mut self, bytes_per_s: Option<u64>) {
        self.bytes_per_s = bytes_per_s;
    }
    fn refill(&mut self, now: Nanos) {
        if let Some(rate) = self.bytes_per_s {
            let ms = (now.since(self.refilled).0 / 1_000_000).min(1000);
            if ms > 0 {
                self.refilled = now;
                // A second's worth at most: a long idle time does not become a burst.
                self.budget = self
                    .budget
                    .saturating_add((ms * rate / 1000) as i64)
                    .min(rate as i64);
            }
        }
    }
    /// A foreground request took `latency`: over the limit, moves are halved; under it, one more is allowed.
    pub(super) fn foreground(&mut self, now: Nanos, latency: Nanos, limit: Option<Nanos>) {
        let Some(limit) = limit else { return };
        self.window.add(latency);
        if now.since(self.window_start) >= FEEDBACK_EVERY {
            let over = self.window.quantile(0.99) > limit;
            self.allowed = if over {
                self.allowed / 2
            } else {
                (self.allowed + 1).min(self.list.len() as u32)
            };
            self.window.clear();
            self.window_start = now;
        }
    }
    /// Moves that latency feedback allows. Without a limit, or without traffic that could suffer, all of them.
    fn allowed(&mut self, now: Nanos, limit: Option<Nanos>) -> u32 {
        if limit.is_none() || now.since(self.window_start) >= FEEDBACK_EVERY + FEEDBACK_EVERY {
            self.allowed = self.list.len() as u32;
        }
        self.allowed
    }
    fn recount(&mut self, now: Nanos) {
        self.copied = self
            .list
            .iter()
            .flatten()
            .filter(|m| m.step == Step::Copied)
            .count() as u32;
        self.copied_since = if self.copied == 0 {
            None
        } else {
            self.copied_since.or(Some(now))
        };
    }
}

impl Engine {
    /// Try what the policy wants, in order.
    pub(super) fn try_wanted(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        let mut wanted = core::mem::take(&mut self.wanted);
        for action in wanted.drain(..) {
            let up = self.is_up(action);
            let c = if up {
                &mut self.counters.promotions
            } else {
                &mut self.counters.demotions
            };
            c.proposed += 1;
            if let Err(why) = self.try_move(now, action, up, out) {
                self.settle(now, action, up, Outcome::Refused(why));
            }
        }
        // Keep the buffer: on_settled may have pushed more into the new one.
        wanted.append(&mut self.wanted);
        self.wanted = wanted;
    }

    /// Refuse everything that the policy wants, and what it wants in answer.
    pub(super) fn refuse_wanted(&mut self, now: Nanos) {
        for action in core::mem::take(&mut self.wanted) {
            let up = self.is_up(action);
            self.settle(now, action, up, Outcome::Refused(Refusal::Throttled));
        }
        self.wanted.clear();
    }

    fn is_up(&self, action: Action) -> bool {
        let Action::Move { extent, to } = action else {
            return false;
        };
        extent.0 < self.space.geo.extents
            && self
                .space
                .map
                .home(extent)
                .is_some_and(|s| to < self.space.geo.tier_of(s))
    }

    fn settle(&mut self, now: Nanos, action: Action, up: bool, how: Outcome) {
        let c = if up {
            &mut self.counters.promotions
        } else {
            &mut self.counters.demotions
        };
        c.settle(how);
        let (policy, mut view, wanted) = self.view(now, 0);
        policy.on_settled(&mut view, action, how, wanted);
        self.policy_due |= !matches!(how, Outcome::Refused(_));
    }

    fn try_move(
        &mut self,
        now: Nanos,
        action: Action,
        up: bool,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let Action::Move { extent, to } = action else {
            return Err(Refusal::NoCopies);
        };
        if !self.may_move() {
            return Err(Refusal::Closed);
        }
        if extent.0 >= self.space.geo.extents || to.0 >= self.space.geo.tiers() {
            return Err(Refusal::Pointless);
        }
        let src = self.space.map.home(extent).ok_or(Refusal::Pointless)?;
        if self.space.geo.tier_of(src) == to {
            return Err(Refusal::Pointless);
        }
        let rules = self.policy.move_rules();
        let (readers, writers) = self.space.pins.count(src);
        // A read in flight pins the slot but does not stop a copy; a write could land after the copy was read.
        if self.space.map.is_held(extent) || writers > 0 || (rules.idle_extents_only && readers > 0)
        {
            return Err(Refusal::Busy);
        }
        if up && rules.yield_to_metadata && self.commit.writing_metadata() {
            return Err(Refusal::MetadataFlush);
        }
        let limit = rules
            .limit
            .unwrap_or(u32::MAX)
            .min(self.moves.list.len() as u32);
        if self.moves.active >= limit {
            return Err(Refusal::Limit);
        }
        self.moves.refill(now);
        if self.moves.active >= self.moves.allowed(now, self.params.p99_limit)
            || (self.moves.bytes_per_s.is_some() && self.moves.budget < 0)
        {
            return Err(Refusal::Throttled);
        }
        let (policy, view, _) = self.view(now, 0);
        let near = policy.near(&view, extent, to);
        let dst = self.space.take_on(to, near).ok_or(Refusal::Full)?;
        self.moves.budget -= i64::from(self.space.geo.extent_bytes());
        let free = self
            .moves
            .list
            .iter_mut()
            .enumerate()
            .find(|(_, m)| m.is_none());
        let Some((index, place)) = free else {
            self.space.slots.put_back(dst);
            return Err(Refusal::Limit);
        };
        *place = Some(Move {
            action,
            extent,
            src,
            dst,
            up,
            step: Step::Reading,
            stale: false,
        });
        self.moves.active += 1;
        self.space.map.hold(extent, true);
        self.space.pins.pin(src, false);
        self.move_io(index as u16, OpKind::Read, src, out);
        Ok(())
    }

    fn move_io(&mut self, index: u16, kind: OpKind, slot: Slot, out: &mut Vec<Effect>) {
        let (member, offset) = self.space.geo.locate(slot);
        let len = self.space.geo.extent_bytes();
        let op = DeviceOp {
            id: OpId(0),
            member,
            kind,
            offset,
            len,
            buf: BufRef::Move { index, offset: 0 },
            fua: false,
        };
        self.start(What::Move { index }, op, MetaSource::None, out);
    }

    /// The read or write of a move ended.
    pub(super) fn move_step(
        &mut self,
        now: Nanos,
        index: u16,
        result: Result<(), IoError>,
        out: &mut Vec<Effect>,
    ) {
        let m = self.moves.get(index);
        if m.step == Step::Writing {
            let (member, _) = self.space.geo.locate(m.dst);
            self.members[usize::from(member.0)].unflushed = true;
        }
        let result = if self.failed {
            Err(IoError::Io)
        } else {
            result
        };
        if m.stale || result.is_err() {
            let how = if result.is_err() {
                Outcome::Failed
            } else {
                Outcome::Stale
            };
            return self.give_up(now, index, how, out);
        }
        let next = if m.step == Step::Reading {
            Step::Writing
        } else {
            Step::Copied
        };
        if let Some(m) = &mut self.moves.list[usize::from(index)] {
            m.step = next;
        }
        if next == Step::Writing {
            self.move_io(index, OpKind::Write, m.dst, out);
        }
        // Readers that waited are served from the buffer now.
        self.retry = true;
        self.moves.recount(now);
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

    /// End a move without effect. Its destination was never exposed, so it is free at once.
    fn give_up(&mut self, now: Nanos, index: u16, how: Outcome, out: &mut Vec<Effect>) {
        let Some(m) = self.moves.list[usize::from(index)].take() else {
            return;
        };
        self.moves.active -= 1;
        self.moves.recount(now);
        self.space.slots.put_back(m.dst);
        self.freed = true;
        if self.space.pins.unpin(m.src, false) {
            self.unpinned(m.src, out);
        }
        self.release_hold(m.extent);
        self.retry = true;
        self.settle(now, m.action, m.up, how);
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
            self.moves.list[i] = None;
            self.moves.active -= 1;
            self.counters.migrated_bytes += u64::from(self.space.geo.extent_bytes());
            self.space.map.rehome(m.extent, m.dst);
            let (policy, mut view, _) = self.view(now, 0);
            policy.on_placed(&mut view, m.extent, m.dst);
            if self.space.pins.unpin(m.src, false) {
                // Nothing is quarantined under this number yet.
            }
            self.free_moved(m.src, out);
            self.release_hold(m.extent);
            self.retry = true;
            self.settle(now, m.action, m.up, Outcome::Done);
        }
        self.moves.recount(now);
    }

    /// A round failed: its moves did not happen. Their slots stay taken, since either record may be the durable one.
    pub(super) fn abandon_committing(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        for i in 0..self.moves.list.len() {
            let Some(m) = self.moves.list[i].filter(|m| m.step == Step::Committing) else {
                continue;
            };
            self.moves.list[i] = None;
            self.moves.active -= 1;
            self.space.pins.unpin(m.src, false);
            self.release_hold(m.extent);
            self.retry = true;
            self.settle(now, m.action, m.up, Outcome::Failed);
        }
        self.moves.recount(now);
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
        self.moves.copied().fold(0, |set, (_, _, dst)| {
            let MemberId(m) = self.space.geo.locate(dst).0;
            set | 1 << m
        })
    }
}
