//! The reasons for a round, and the time at which one should begin.

use super::Durability;
use crate::engine::globals::{Globals, Phase};
use crate::mutants::Mutant;
use crate::units::{MemberId, Nanos, Slot, TierId};

/// A round that is due only by time begins when no request has waited for the device for this time.
const IDLE_TIME: Nanos = Nanos::from_millis(50);
/// Such a round waits for an idle device for at most this number of commit intervals.
const IDLE_WAITS_MAX: u64 = 5;
/// If 1 / `SLOTS_SHARE` of the fastest tier waits for a round to be free, the round does not wait for an idle device.
const SLOTS_SHARE: usize = 4;

/// What the moves ask of rounds, as data: this part knows nothing of them.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct MovesAsk {
    /// Whether a round should begin for moves whose data is copied.
    pub(in crate::engine) now: bool,
    /// The time at which one should, if nothing else happens.
    pub(in crate::engine) at: Option<Nanos>,
    /// Whether rounds wait for an idle moment of the slowest tier. Stated if slots wait for a round
    /// ([`Durability::has_slots_to_free`]).
    pub(in crate::engine) yields: bool,
    /// Number of moves in progress.
    pub(in crate::engine) active: u32,
}

/// The reasons for a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reasons {
    /// The last round of the session may begin.
    pub(super) closing: bool,
    /// A piece waits for a slot that a round would free.
    pub(super) for_space: bool,
    /// The mirror should be updated, and is awake.
    pub(super) mirror_due: bool,
}

impl Durability {
    #[inline]
    pub(super) fn reasons(&self, g: &Globals, moves: &MovesAsk, requests: usize) -> Reasons {
        let now = g.clock;
        Reasons {
            closing: g.phase == Phase::Closing && requests == self.queue.len() && moves.active == 0,
            for_space: self.freeing.wants_round() && g.waiting.is_starving(),
            mirror_due: self
                .mirror_due
                .is_some_and(|t| self.when_mirrored(g, moves, t) <= now)
                && self.mirror_awake(g),
        }
    }

    /// Whether nothing has changed since the last round and no slot waits to be freed. Then a round can only be needed because a request
    /// waits for one, or because the journal, the staging area or a checkpoint needs it. This function is called after every event. It
    /// usually returns true while data is only read, or written to blocks that were written before.
    #[inline]
    fn has_no_changes(&self, g: &Globals) -> bool {
        g.phase == Phase::Running
            && self.pending.due().is_none()
            && self.mirror_due.is_none()
            && !self.freeing.wants_round()
            && self.clean.is_quiet()
            && !g.background.wants_round()
    }

    /// Whether there is a reason for a full round, which records changes and not only moves.
    #[inline]
    pub(super) fn wants_all(&self, g: &Globals, why: Reasons) -> bool {
        self.queue_due(g)
            || self
                .pending
                .due()
                .is_some_and(|t| when_idle(g, t) <= g.clock)
            || self.has_rested(g)
            || self.clean.wants_data()
            || (self.staging.lag() > 0 && why.mirror_due)
            || why.for_space
            || self.pressed
            || g.background.wants_round()
            || (why.closing && !self.is_settled(g))
    }

    /// Whether a request waits for a round and for nothing else.
    #[inline]
    fn queue_due(&self, g: &Globals) -> bool {
        !self.queue.is_empty() && !self.is_gathering(g)
    }

    #[inline]
    pub(super) fn mirror_wanted(&self) -> bool {
        self.has_mirror() && self.staging.lag() * 2 >= self.staging.lag() + self.staging.room()
    }

    /// Whether a checkpoint is being built, or the journal or the staging area is half full.
    pub(super) fn is_pressed(&self) -> bool {
        self.checkpoints.is_building() || self.half_full() || self.mirror_wanted()
    }

    /// Whether slots wait for a round to be free.
    #[inline]
    pub(in crate::engine) fn has_slots_to_free(&self) -> bool {
        self.freeing.wants_round()
    }

    /// The time at which a round should begin: now, or later if nothing happens before.
    #[inline]
    pub(in crate::engine) fn due(
        &self,
        g: &Globals,
        moves: impl FnOnce() -> MovesAsk,
        requests: usize,
    ) -> Option<Nanos> {
        if !self.round.is_idle() {
            return None;
        }
        if g.is_over() {
            return (!self.queue.is_empty()).then_some(g.clock);
        }
        debug_assert_eq!(self.pressed, self.is_pressed(), "only rounds change this");
        let moves = &moves();
        let calm = self.has_no_changes(g);
        let all = if calm {
            self.queue_due(g) || self.pressed || self.has_rested(g)
        } else {
            self.wants_all(g, self.reasons(g, moves, requests))
        };
        let some = self.withdraws(g) || moves.now || self.must_raise(g);
        if all || some || self.ahead_due(g, requests) {
            return Some(g.clock);
        }
        if calm && self.queue.is_empty() {
            return Nanos::earlier(moves.at, self.rested_at(g));
        }
        let mirror_due = self.mirror_due.filter(|_| self.mirror_awake(g));
        let records = self.pending.due().map(|t| when_idle(g, t));
        let mirror = mirror_due.map(|t| self.when_mirrored(g, moves, t));
        let gathered = self.gather.until(g.clock);
        let records = Nanos::earlier(records, self.clean.due_at());
        Nanos::earlier(
            Nanos::earlier(records, mirror),
            Nanos::earlier(Nanos::earlier(moves.at, gathered), self.rested_at(g)),
        )
    }

    /// Whether a round is due that withdraws claims that copies are clean.
    #[inline]
    pub(super) fn withdraws(&self, g: &Globals) -> bool {
        self.clean.is_wanted() || self.clean.due_at().is_some_and(|t| t <= g.clock)
    }

    /// A write of a request ended on a member.
    pub(in crate::engine) fn written_on(&mut self, g: &Globals, member: MemberId) {
        if !g.broken(Mutant::RaiseOnlyInRounds) {
            self.counters.written(g.clock, member);
        }
    }

    /// The members that were written to, whose counters are due, and that are awake: a bit set.
    pub(super) fn raisable(&self, g: &Globals) -> u32 {
        let wanted = self.counters.wanted();
        let awake = |i: &u8| wanted >> i & 1 == 1 && !g.devices.is_asleep(MemberId(*i));
        let members = 0..g.devices.members.len() as u8;
        members.filter(awake).fold(0, |set, i| set | 1 << i)
    }

    /// Whether a round should begin that only raises counters. It must not wake a member: neither those with the journal, nor one with data
    /// that kept records expose.
    #[inline]
    pub(super) fn must_raise(&self, g: &Globals) -> bool {
        if self.counters.wanted() == 0 || g.phase != Phase::Running || !self.queue.is_empty() {
            return false;
        }
        let mut needed = self.layout.carriers().map(|c| c.member);
        let members = &g.devices.members;
        let kept = self.staging.has_kept() && members.iter().any(|m| m.asleep && m.unflushed);
        let sleeps = needed.any(|m| g.devices.is_asleep(m)) || kept;
        self.raisable(g) != 0 && (!sleeps || g.broken(Mutant::RaiseWakes))
    }

    /// The time at which a round begins for copies that have rested: it withdraws claims that they are dirty, or claims that they are clean.
    #[inline]
    fn rested_at(&self, g: &Globals) -> Option<Nanos> {
        let due = Nanos::earlier(self.resting.due(), self.clean.ready_at());
        let due = due.filter(|_| g.phase == Phase::Running);
        due.map(|t| when_idle(g, t))
    }

    /// Whether such a round should begin now.
    #[inline]
    fn has_rested(&self, g: &Globals) -> bool {
        self.rested_at(g).is_some_and(|t| t <= g.clock)
    }

    /// The time at which a round begins for a mirror that should be up to date at `t`. If slots are needed that wait for that, the round does
    /// not wait for an idle moment.
    fn when_mirrored(&self, g: &Globals, moves: &MovesAsk, t: Nanos) -> Nanos {
        if self.has_slots_to_free() && self.slots_are_needed(g, moves) {
            t
        } else {
            when_idle(g, t)
        }
    }

    /// Whether slots that wait for a round are needed before the next idle moment: a request waits for one, or so many wait that new data
    /// has no place on the fastest tier, as in a burst of writes. If the policy says nothing of the kind
    /// ([`MoveRules::rounds_yield`](crate::policy::MoveRules::rounds_yield)), all are.
    fn slots_are_needed(&self, g: &Globals, moves: &MovesAsk) -> bool {
        let fastest = g.space.geo.tier_slots(TierId(0)).len();
        !moves.yields || g.waiting.is_starving() || self.freeing.waiting() >= fastest / SLOTS_SHARE
    }
}

/// The time at which a round begins for records that are due at `t` and for which no request waits. The flushes of a round write back a
/// disk's cache, and a request that arrives meanwhile waits for that. So the round begins when no request has waited for the first member of
/// the slowest tier for [`IDLE_TIME`], or in any case [`IDLE_WAITS_MAX`] commit intervals after `t`.
fn when_idle(g: &Globals, t: Nanos) -> Nanos {
    if t > g.clock || g.phase != Phase::Running {
        return t;
    }
    let last = t + Nanos(g.params.commit_interval.0.saturating_mul(IDLE_WAITS_MAX));
    let slowest = g.space.geo.tier_slots(g.space.geo.slowest()).start;
    let member = g.space.geo.locate(Slot(slowest)).0;
    let idle = match g.space.loads.member(member, g.clock) {
        Some(m) if m.waiting > 0 => last,
        Some(m) => g.clock + Nanos(IDLE_TIME.0.saturating_sub(m.quiet.0)),
        None => t,
    };
    idle.min(last)
}
