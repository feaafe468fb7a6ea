//! FLUSHes that wait for writes in progress, so that one flush of the devices serves several writers (group commit).
//!
//! Several programs that each write, wait, and FLUSH share a front end that passes on one FLUSH at a time: the block layer above a loop
//! device does this. The first FLUSH then begins a flush of the devices while the others' writes are in progress, and these need a second
//! flush directly afterwards. If the first FLUSH waits until these writes have ended, its flush serves them as well, and the second FLUSH
//! needs no device.
//!
//! A FLUSH waits only for writes that were in progress when its wait began, and for at most half of the time that rounds took recently. A
//! score limits the waits. A round whose FLUSH needed no device, or would have needed none if the round before it had waited, adds 2 to
//! it; another round subtracts 1, and a wait that reached the limit subtracts much more. FLUSHes wait only while the score is at least
//! twice [`Params::flush_gather`], that is, if at least a third of the rounds gain.
//!
//! Waiting only postpones a round. It has no influence on the devices that a round flushes, and on the FLUSHes that it serves.
//!
//! [`Params::flush_gather`]: crate::engine::Params::flush_gather

use super::Durability;
use crate::engine::globals::{Globals, Phase};
use crate::mutants::Mutant;
use crate::units::Nanos;

/// Added to the score for a round that gains; another round subtracts 1.
const GAIN: u16 = 2;
/// Divisor of a new sample in the mean duration of rounds.
const WEIGHT: u64 = 8;
/// Longest wait, even if rounds take longer.
const WAIT_MAX: Nanos = Nanos::from_millis(10);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gather {
    /// The score: how certain it is that waiting saves a flush.
    score: u16,
    /// The time at which the wait ends at the latest; `None`: no FLUSH waits for writes.
    until: Option<Nanos>,
    /// The time at which the wait began, and the number of writes in progress then that have not ended.
    since: Nanos,
    left: u32,
    /// Mean duration of rounds that flushed devices for a FLUSH.
    took: Nanos,
    /// The time at which the last round began that flushed everything, and whether it began ahead of its FLUSH (`ahead.rs`).
    last: Nanos,
    last_ahead: bool,
    /// Whether a write has ended since then that was issued after it.
    fresh: bool,
}

impl Gather {
    /// Whether a FLUSH waits or has waited, and no round has begun since.
    pub(super) fn has_waited(&self) -> bool {
        self.until.is_some()
    }

    /// The time after `now` at which the wait ends at the latest, if a FLUSH waits.
    #[inline]
    pub(super) fn until(&self, now: Nanos) -> Option<Nanos> {
        self.until.filter(|&t| t > now)
    }

    /// A round has ended that flushed devices for a FLUSH.
    pub(super) fn round_took(&mut self, took: Nanos) {
        self.took.0 = if self.took.0 == 0 {
            took.0
        } else {
            (self.took.0 * (WEIGHT - 1) + took.0) / WEIGHT
        };
    }
}

impl Durability {
    /// A write of a request, issued at this time, has ended.
    #[inline]
    pub(in crate::engine) fn write_ended(&mut self, g: &Globals, issued: Nanos) {
        let gather = &mut self.gather;
        gather.fresh |= issued > gather.last;
        if gather.until.is_some() && issued <= gather.since {
            gather.left = gather.left.saturating_sub(1);
            if gather.left == 0 {
                gather.until = Some(g.clock);
            }
        }
    }

    /// FLUSHes wait in the queue and no round is in progress: lets them wait for the writes in progress, if that will probably save a
    /// flush.
    pub(in crate::engine) fn consider_wait(&mut self, g: &mut Globals) {
        let sure = g.params.flush_gather.saturating_mul(GAIN);
        let members = &g.devices.members;
        let left: u32 = members
            .iter()
            .filter(|m| m.unflushed)
            .map(|m| m.writing)
            .sum();
        let gather = &mut self.gather;
        let may = sure != 0 && left > 0 && gather.score >= sure && gather.until.is_none();
        if !may || self.queue.is_empty() || !self.round.is_idle() || g.phase != Phase::Running {
            return;
        }
        let limit = Nanos(gather.took.0 / 2).min(WAIT_MAX);
        gather.until = Some(g.clock + limit);
        gather.since = g.clock;
        gather.left = left;
        g.counters.gathered += 1;
    }

    /// Whether the requests in the queue still wait for writes.
    #[inline]
    pub(super) fn is_gathering(&self, g: &Globals) -> bool {
        let endless = g.broken(Mutant::GatherForgetsLimit);
        self.gather
            .until
            .is_some_and(|t| t > g.clock || (endless && self.gather.left > 0))
            && g.phase == Phase::Running
    }

    /// A round begins that flushes `targets` for everything that waits (`ahead`: before a FLUSH asks for it): ends the wait and updates
    /// the score.
    pub(super) fn gathered(&mut self, g: &Globals, ahead: bool, targets: u32) {
        let sure = g.params.flush_gather.saturating_mul(GAIN);
        let gather = &mut self.gather;
        let failed = gather.until.take().is_some() && gather.left > 0;
        // After a round that began ahead, a FLUSH without devices says nothing about waiting.
        if !ahead && !gather.last_ahead && !self.queue.is_empty() {
            gather.score = if failed {
                gather.score.saturating_sub(sure)
            } else if targets == 0 || !gather.fresh {
                (gather.score + GAIN).min(sure.saturating_mul(2))
            } else {
                gather.score.saturating_sub(1)
            };
        }
        (gather.last, gather.last_ahead, gather.fresh) = (g.clock, ahead, false);
    }
}
