//! Work that is due: by time, and at the end of every event.

use super::durability::MovesRecorded;
use super::globals::Phase;
use super::parts::Parts;
use super::{Engine, SCAN_BUDGET};
use crate::io::Effect;
use crate::units::Nanos;
use alloc::vec::Vec;

/// Number of times that a policy may react to the outcomes of its proposals within one event.
const PROPOSAL_TURNS: u32 = 64;

/// The kinds of work that can be due. The work at the end of every event is done in this order. The last three kinds are done by a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// A held request may begin.
    Held,
    /// The policy has made proposals.
    Proposals,
    /// A piece of a request may have waited for something that has changed.
    Queue,
    /// A slot was freed, and a piece waits for one.
    Starving,
    /// The policy should be called.
    Policy,
    /// Some data is at a place that the policy does not use.
    Drain,
    /// The user wants data on flash.
    Warm,
    /// To be checked: whether work that is held for a sleeping disk has reached a limit, and whether a batch has a next step.
    Hold,
    /// A look at copies that may have rested.
    Look,
    /// A round.
    Round,
    /// A time that the policy has set.
    Alarm,
    /// The next step of a batch of held work.
    Batch,
    /// An idle disk goes to sleep.
    Standby,
}

impl Engine {
    /// Time passed.
    pub fn tick(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        self.event(now, out, |me| {
            me.globals.policy_due = true;
            me.parts().1.put_to_sleep(true);
            me.end_event();
        });
    }

    /// The time at which [`Engine::tick`] must be called.
    pub fn next_wake(&self) -> Option<Nanos> {
        // Each kind of work names a time only if it can start then. Otherwise the wake-up would be repeated at once, and a sleeping disk
        // would keep a whole CPU busy.
        // This is called after every event, so it is written without an iterator over a list.
        let next = Nanos::earlier(self.when(Due::Held), self.when(Due::Drain));
        let next = Nanos::earlier(next, self.when(Due::Warm));
        let next = Nanos::earlier(next, self.when(Due::Look));
        let next = Nanos::earlier(next, self.when(Due::Round));
        let next = Nanos::earlier(next, self.when(Due::Alarm));
        let next = Nanos::earlier(next, self.when(Due::Batch));
        Nanos::earlier(next, self.when(Due::Standby))
    }

    /// The time at which this work is due: now, later (if nothing else happens before), or never. Every caller names a constant, so that only
    /// the code of its kind of work is left if this is inlined. It is called up to 14 times for an event.
    #[allow(clippy::inline_always)]
    #[inline(always)]
    fn when(&self, due: Due) -> Option<Nanos> {
        let g = &self.globals;
        let now_if = |due: bool| due.then_some(g.clock);
        match due {
            Due::Held => self.requests.held_due(),
            Due::Proposals => now_if(!g.proposals.is_empty()),
            Due::Queue => now_if(g.waiting.queue_due()),
            Due::Starving => now_if(g.waiting.starving_due()),
            Due::Policy => now_if(g.policy_due),
            Due::Drain => g.background.drain_due().filter(|_| g.may_move()),
            Due::Warm => g.background.warm_due().filter(|_| g.may_move()),
            Due::Hold => now_if(g.background.has_sleep_mode()),
            Due::Look => self.durability.look_due(g),
            Due::Round => {
                let d = &self.durability;
                d.due(g, || self.relocation.asks(g, d), self.requests.len())
            }
            Due::Alarm => {
                let alarm = g.policy.next_wake().filter(|_| g.may_move());
                alarm.map(|t| g.background.not_before().map_or(t, |rest| t.max(rest)))
            }
            Due::Batch => g
                .batch_due(self.relocation.active())
                .filter(|_| g.may_move()),
            Due::Standby => g.standby_due(),
        }
    }

    /// The work at the end of every event: tries proposals, lets waiting pieces try again, starts a round if one is due.
    pub(super) fn end_event(&mut self) {
        if self.globals.cache_lost {
            return;
        }
        let mut turns = 0;
        while self.carry_out_first(&mut turns) {}
        let (_, p) = self.parts();
        p.relocation.issue_parts(p.globals);
        p.globals.note_dirty();
        if self.globals.phase == Phase::Closing && self.nothing_left() {
            self.globals.phase = Phase::Closed;
        }
    }

    /// Does the first work that is due, in the order of [`Due`]; returns false if there was none. Usually none is due. So the checks are
    /// written one by one instead of in a loop, which lets the compiler simplify each for its kind of work.
    fn carry_out_first(&mut self, turns: &mut u32) -> bool {
        self.try_due(Due::Held, turns)
            || self.try_due(Due::Proposals, turns)
            || self.try_due(Due::Queue, turns)
            || self.try_due(Due::Starving, turns)
            || self.try_due(Due::Policy, turns)
            || self.try_due(Due::Drain, turns)
            || self.try_due(Due::Warm, turns)
            || self.try_due(Due::Hold, turns)
            || self.try_due(Due::Look, turns)
            || self.try_due(Due::Round, turns)
    }

    /// Does this work if it is due; returns false if it is not, or if there was nothing to do.
    #[allow(clippy::inline_always)]
    #[inline(always)]
    fn try_due(&mut self, due: Due, turns: &mut u32) -> bool {
        let is_due = self.when(due).is_some_and(|t| t <= self.globals.clock);
        is_due && self.carry_out(due, turns)
    }

    /// Does the work that is due; returns false if there was nothing to do.
    #[inline(never)]
    fn carry_out(&mut self, due: Due, turns: &mut u32) -> bool {
        let (requests, mut p) = self.parts();
        match due {
            Due::Held => requests.begin_held(&mut p),
            Due::Proposals => {
                p.relocation.try_proposals(p.globals, p.durability);
                *turns += 1;
                if *turns > PROPOSAL_TURNS {
                    // A policy that answers every refusal with a new proposal would never let the engine continue.
                    p.relocation.refuse_proposals(p.globals, p.durability);
                }
            }
            Due::Queue => requests.retry_waiting(&mut p),
            Due::Starving => requests.retry_starving(&mut p),
            Due::Policy => look(&mut p),
            Due::Drain => p.drain_step(),
            Due::Warm => p.warm_step(),
            Due::Hold => return p.sleep_step(),
            Due::Look => p.durability.look_at_copies(p.globals),
            Due::Round => self.begin_round(),
            Due::Alarm | Due::Batch | Due::Standby => return false,
        }
        true
    }

    fn begin_round(&mut self) {
        let requests = self.requests.len();
        let (
            _,
            Parts {
                globals: g,
                durability: d,
                relocation: r,
            },
        ) = self.parts();
        if g.is_over() {
            return self.dismiss();
        }
        let plan = d.plan_round(g, &r.asks(g, d), requests);
        r.drop_stale(g, d);
        r.round_begins(g);
        let encoding = d.encode_round(g, plan, r.copied_on(g), &|e| r.of(e).is_some());
        let recorded = match encoding.limit_for_moves() {
            Some(limit) => r.record_copied(g, d, limit),
            None => MovesRecorded::default(),
        };
        let end = d.begin_round(g, &encoding, recorded);
        self.round_ended(end);
    }

    fn nothing_left(&self) -> bool {
        let g = &self.globals;
        self.requests.is_empty()
            && g.devices.in_flight() == 0
            && self.relocation.active() == 0
            && (g.failed || g.params.read_only || self.durability.is_settled(&self.globals))
    }
}

/// Calls the policy.
fn look(p: &mut Parts<'_>) {
    p.globals.policy_due = false;
    let now = p.globals.clock;
    if p.globals.may_move() && !p.globals.background.delays_policy(now) {
        let (policy, mut view, wanted) = p.relocation.ask(p.globals, p.durability, SCAN_BUDGET);
        policy.tick(&mut view, wanted);
    }
}
