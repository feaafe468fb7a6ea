//! What is due: by time, and at the end of every event.

use crate::engine::durability::commit;
use crate::engine::{Engine, Phase, SCAN_BUDGET, What};
use crate::io::{BufRef, DeviceOp, Effect, OpId, OpKind};
use crate::units::{MemberId, Nanos};
use alloc::vec::Vec;

/// Times that a policy may react to how its wants ended within one event.
const WANT_TURNS: u32 = 64;

impl Engine {
    /// Time passed.
    pub fn tick(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        self.pass(now);
        self.policy_due = true;
        self.put_to_sleep(now, true, out);
        self.upkeep(now, out);
    }

    /// It is `now`: told before anything else that an event does.
    #[inline]
    pub(in crate::engine) fn pass(&mut self, now: Nanos) {
        self.clock = now;
        self.wear.pass(now);
    }

    /// When [`Engine::tick`] is wanted.
    pub fn next_wake(&self) -> Option<Nanos> {
        // A wake for something that cannot start would come again at once: a disk put to sleep must not cost a whole CPU.
        let mut first: Option<Nanos> = None;
        let mut consider = |t: Option<Nanos>| {
            if let Some(t) = t
                && first.is_none_or(|f| t < f)
            {
                first = Some(t);
            }
        };
        if self.may_move() {
            let rest = self.lull.not_before();
            consider(
                self.policy
                    .next_wake()
                    .max(rest.filter(|_| self.policy.next_wake().is_some())),
            );
            consider(self.drain.next_wake());
            consider(self.lull_wake());
        }
        if self.commit.is_idle() && !self.failed && !self.params.read_only {
            consider(self.commit.next_wake(self.mirror_awake()));
            consider(self.moves.next_wake(self.is_urgent()));
        }
        if self.phase == Phase::Running {
            let batching = self.lull.is_batching();
            for (i, (m, after)) in self
                .members
                .iter()
                .zip(&self.params.standby_after)
                .enumerate()
            {
                if let Some(after) = *after
                    && !(batching && self.is_sleeper(i))
                    && !m.asleep
                    && !m.missing
                    && m.in_flight == 0
                {
                    consider(Some(m.last_used + after));
                }
            }
        }
        first
    }

    pub(in crate::engine) fn mirror_awake(&self) -> bool {
        self.commit
            .mirror()
            .is_some_and(|m| !self.members[usize::from(m.0)].asleep)
    }

    /// Does anybody wait for a move's end?
    pub(in crate::engine) fn is_urgent(&self) -> bool {
        !self.waiting.is_empty() || !self.starving.is_empty() || self.phase == Phase::Closing
    }

    pub(in crate::engine) fn may_move(&self) -> bool {
        self.phase == Phase::Running && !self.failed && !self.params.read_only
    }

    /// What ends every event: carry out wants, let waiting pieces try again, start a round if one is due.
    pub(in crate::engine) fn upkeep(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        let mut turns = 0;
        loop {
            if !self.wanted.is_empty() {
                self.try_wanted(now, out);
                turns += 1;
                if turns > WANT_TURNS {
                    // A policy that answers every refusal with a new want would keep the engine to itself.
                    self.refuse_wanted(now, out);
                }
            } else if self.retry {
                self.retry = false;
                self.retry_waiting(now, out);
            } else if self.freed && !self.starving.is_empty() {
                self.retry_starving(now, out);
            } else if self.policy_due {
                self.policy_due = false;
                if self.may_move() && !self.lets_policy_rest(now) {
                    let (policy, mut view, wanted) = self.view(now, SCAN_BUDGET);
                    policy.tick(&mut view, wanted);
                }
            } else if self.drain.is_due(now) && self.drain_step(now, out) {
                // Looked at some slots, or started a move.
            } else if self.lull.is_on() && self.lull_step(now, out) {
                // A step of a batch.
            } else if !self.start_round_if_due(now, out) {
                break;
            }
        }
        self.issue_parts(out);
        if self.phase == Phase::Closing && self.nothing_left() {
            self.phase = Phase::Closed;
        }
    }

    fn nothing_left(&self) -> bool {
        self.reqs.is_empty()
            && self.ops.is_empty()
            && self.moves.active() == 0
            && (self.failed || self.params.read_only || self.commit.is_settled())
    }

    /// Send idle disks to sleep (GreenDM 6.1.4); `first`, do what was held for them.
    pub(in crate::engine) fn put_to_sleep(
        &mut self,
        now: Nanos,
        first: bool,
        out: &mut Vec<Effect>,
    ) {
        self.issue_parts(out);
        for i in 0..self.members.len() {
            let m = self.members[i];
            let Some(after) = self.params.standby_after.get(i).copied().flatten() else {
                continue;
            };
            if !m.asleep
                && !m.missing
                && m.in_flight == 0
                && now.since(m.last_used) >= after
                && self.phase == Phase::Running
            {
                if first && self.batch_first(now, i) {
                    continue;
                }
                let op = DeviceOp {
                    id: OpId(0),
                    member: MemberId(i as u8),
                    kind: OpKind::Standby,
                    offset: 0,
                    len: 0,
                    buf: BufRef::None,
                    fua: false,
                };
                self.start(What::Standby, op, commit::MetaSource::None, out);
                self.set_asleep(i, true);
            }
        }
    }
}
