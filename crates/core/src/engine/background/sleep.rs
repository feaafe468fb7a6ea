//! Sleep-aware mode: background work is held while a disk sleeps, and done in one go before it sleeps again.
//!
//! ```text
//!   awake ──idle for `standby_after`──► batch ──nothing left──► asleep
//!     ▲                                   ▲                       │
//!     │                                   └── held too long ──────┤
//!     └────── a request needs the disk ───────────────────────────┘
//! ```
//! *Held*: proposals that would touch a sleeping disk (as source, as destination, or as the mirror that must have a record of it) are
//! refused as `asleep`; copies stay dirty. Moves that belong to an access that wakes the disk in any case, and work that a request needs,
//! are not held. *Batch*: the policy is asked again, every dirty copy is written home, and a round flushes the disk and brings its mirror
//! up to date, so that no FLUSH needs it soon. A batch begins when the disk would go to sleep. While it sleeps, a batch begins when dirty
//! data or a refused proposal is older than `sleep_hold`, or when there is more dirty data than `sleep_hold_bytes`. (The laptop mode of
//! Linux does the same with dirty pages.) Background work does not count as use: the disk sleeps when the batch is over.
//!
//! This file does not change what is durable, or when: a copy is recorded as dirty like any other, and a FLUSH is answered as usual.
//! Background work never waits for members of the fastest tier.
//!
//! If most lulls end soon after the standby timer, the disk goes to sleep later than the timer says ([`super::lulls`]). It also stays awake
//! while its budget of starts is used up ([`super::starts`]), or while too many requests waited for wake-ups ([`super::waits`]).

use super::{Background, SLOTS_PER_STEP};
use crate::engine::devices::{Cause, What};
use crate::engine::globals::{Globals, Phase};
use crate::engine::parts::Parts;
use crate::io::{BufRef, DeviceOp, OpId, OpKind};
use crate::policy::{Action, Refusal};
use crate::units::{MemberId, Nanos, Slot};

/// After a proposal was refused because a disk sleeps, the policy is not asked again before this time has passed. The same time must pass
/// before the limit of dirty bytes can start another batch. Otherwise a sleeping disk could keep a whole CPU busy.
pub(super) const ASK_AGAIN: Nanos = Nanos::from_secs(1);
/// Delay before the next search for dirty copies, so that a long list does not stall requests.
const NEXT: Nanos = Nanos::from_millis(1);

/// A batch in progress.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// The next slot to examine.
    hand: u32,
    next: Nanos,
    /// Whether the round that ends the batch was requested.
    closing: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct SleepMode {
    /// Maximum time for which background work is held; `None`: the mode is off.
    hold: Option<Nanos>,
    /// Maximum amount of dirty data that is held, in bytes of whole extents.
    bytes: Option<u64>,
    /// Time since which there has been work for a batch.
    since: Option<Nanos>,
    /// Members that the access being served wakes: a bit set.
    waking: u32,
    ask_again: Option<Nanos>,
    ended: Nanos,
    batch: Option<Batch>,
    /// Whether a round is needed that includes the mirror.
    wants_round: bool,
}

impl SleepMode {
    pub(super) fn new(hold: Option<Nanos>, bytes: Option<u64>, now: Nanos) -> SleepMode {
        SleepMode {
            hold,
            bytes,
            since: None,
            waking: 0,
            ask_again: None,
            ended: now,
            batch: None,
            wants_round: false,
        }
    }
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.hold.is_some()
    }
    pub(super) fn set(&mut self, hold: Option<Nanos>, bytes: Option<u64>) {
        if hold.is_none() {
            *self = SleepMode::new(None, bytes, self.ended);
        }
        (self.hold, self.bytes) = (hold, bytes);
    }
}

impl Background {
    /// Whether the mode is on.
    #[inline]
    pub(in crate::engine) fn has_sleep_mode(&self) -> bool {
        self.sleep.is_on()
    }
    pub(in crate::engine) fn set_hold(&mut self, hold: Option<Nanos>, bytes: Option<u64>) {
        self.sleep.set(hold, bytes);
    }
    /// Whether the next round should be a complete one, including the mirror.
    pub(in crate::engine) fn wants_round(&self) -> bool {
        self.sleep.wants_round
    }
    /// Asks for such a round.
    pub(super) fn want_round(&mut self) {
        self.sleep.wants_round = true;
    }
    pub(in crate::engine) fn round_began(&mut self) {
        self.sleep.wants_round = false;
    }
    /// A member woke up; returns true if the policy should be called at once.
    #[inline]
    pub(in crate::engine) fn woke(&mut self) -> bool {
        self.sleep.ask_again = None;
        self.sleep.is_on()
    }
    /// The earliest time at which the policy is asked for background work.
    #[inline]
    pub(in crate::engine) fn not_before(&self) -> Option<Nanos> {
        self.sleep.ask_again
    }
    /// Whether it is too early to ask the policy for background work ([`Self::not_before`]). Clears that time once it has passed.
    #[inline]
    pub(in crate::engine) fn delays_policy(&mut self, now: Nanos) -> bool {
        if self.sleep.ask_again.is_some_and(|t| t <= now) {
            self.sleep.ask_again = None;
        }
        self.sleep.ask_again.is_some()
    }
}

impl Globals {
    /// Whether this mode applies to the member: the engine sends it to sleep, and it is not on the fastest tier.
    pub(super) fn may_sleep(&self, member: usize) -> bool {
        let after = self.params.standby_after.get(member).copied().flatten();
        after.is_some() && self.space.geo.members[member].tier.0 > 0
    }

    fn any_asleep(&self) -> bool {
        let members = &self.devices.members;
        (0..members.len()).any(|i| members[i].asleep && self.may_sleep(i))
    }

    fn sleeps(&self, m: MemberId) -> bool {
        let i = usize::from(m.0);
        self.devices.is_asleep(m) && self.may_sleep(i) && self.background.sleep.waking >> i & 1 == 0
    }

    /// Notes that an access will be served at the home of its extent, which wakes that disk in any case. So moves that belong to the access
    /// need not wait for the disk. `None`: the access is over.
    #[inline]
    pub(in crate::engine) fn set_waking(&mut self, home: Option<Slot>) {
        if self.background.sleep.is_on() {
            self.background.sleep.waking = home.map_or(0, |s| 1 << self.space.geo.locate(s).0.0);
        }
    }

    /// Whether background work may touch these slots, and the `mirror`, which must have a record of it.
    pub(in crate::engine) fn may_disturb(
        &mut self,
        slots: &[Slot],
        mirror: Option<MemberId>,
    ) -> Result<(), Refusal> {
        let sleep = &self.background.sleep;
        if !sleep.is_on() || sleep.batch.is_some() {
            return Ok(());
        }
        let members = slots.iter().map(|&s| self.space.geo.locate(s).0);
        if !members.chain(mirror).any(|m| self.sleeps(m)) {
            return Ok(());
        }
        let (now, sleep) = (self.clock, &mut self.background.sleep);
        sleep.since.get_or_insert(now);
        sleep.ask_again.get_or_insert(now + ASK_AGAIN);
        Err(Refusal::Asleep)
    }

    /// Starts to measure the time for which dirty data is held, if there is any.
    fn hold_dirty(&mut self) {
        if self.space.map.dirty() > 0 {
            let now = self.clock;
            self.background.sleep.since.get_or_insert(now);
        }
    }

    fn limit_reached(&self) -> bool {
        let (now, sleep) = (self.clock, &self.background.sleep);
        let old = sleep.since.zip(sleep.hold);
        let dirty = u64::from(self.space.map.dirty()) * u64::from(self.space.geo.extent_bytes());
        old.is_some_and(|(t, hold)| now.since(t) >= hold)
            || (sleep.bytes.is_some_and(|b| dirty >= b) && now.since(sleep.ended) >= ASK_AGAIN)
    }

    /// Time at which the next disk is to be sent to sleep.
    pub(in crate::engine) fn standby_due(&self) -> Option<Nanos> {
        if self.phase != Phase::Running {
            return None;
        }
        let batching = self.background.sleep.batch.is_some();
        (0..self.devices.members.len())
            .filter(|&i| !(batching && self.may_sleep(i)))
            .filter_map(|i| self.standby_time(i))
            .min()
    }

    /// Time at which the next step of this mode is due.
    pub(in crate::engine) fn batch_due(&self, moves: u32) -> Option<Nanos> {
        let sleep = &self.background.sleep;
        if let Some(b) = sleep.batch {
            return (b.hand < self.fast_slots() && moves == 0).then_some(b.next);
        }
        let (since, hold) = sleep.since.zip(sleep.hold)?;
        self.any_asleep().then_some(since + hold)
    }

    fn begin_batch(&mut self) {
        let now = self.clock;
        let sleep = &mut self.background.sleep;
        sleep.batch = Some(Batch {
            hand: 0,
            next: now,
            closing: false,
        });
        sleep.ask_again = None;
        self.policy_due = true;
        self.background.drain.make_due(now);
        self.background.make_warming_due(now);
    }
}

impl Parts<'_> {
    /// Sends idle disks to sleep (GreenDM 6.1.4). With `first`, a batch of the held work is done before.
    pub(in crate::engine) fn put_to_sleep(&mut self, first: bool) {
        self.relocation.issue_parts(self.globals);
        for i in 0..self.globals.devices.members.len() {
            let g = &mut *self.globals;
            let due = g.standby_time(i).is_some_and(|t| t <= g.clock);
            if !due || g.phase != Phase::Running || (first && self.batch_first(i)) {
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
            self.globals.begin_sleep(i);
            self.globals.start(Cause::plain(What::Standby), op);
            self.globals.set_asleep(i, true);
        }
    }

    /// Starts a batch instead of sending `member` to sleep, if there is any work.
    fn batch_first(&mut self, member: usize) -> bool {
        let g = &mut *self.globals;
        if !g.background.sleep.is_on() || !g.may_sleep(member) || !g.may_move() {
            return false;
        }
        if g.background.sleep.batch.is_none() {
            let idle = g.background.sleep.since.is_none() && !g.devices.members[member].unflushed;
            if idle
                && !g.background.warms_in_batch()
                && !self.durability.lags_on(member)
                && self.durability.covers_all(member)
            {
                return false;
            }
            g.counters.sleep_batches += 1;
            g.begin_batch();
        }
        true
    }

    /// The step of this mode at the end of every event; returns true if anything was done.
    pub(in crate::engine) fn sleep_step(&mut self) -> bool {
        let g = &mut *self.globals;
        if !g.may_move() {
            g.background.sleep.batch = None;
            g.background.sleep.wants_round = false;
            return false;
        }
        g.hold_dirty();
        self.durability.cover_all(g.background.sleep.is_on());
        if let Some(b) = g.background.sleep.batch {
            return self.batch_step(b);
        }
        if g.limit_reached() && g.any_asleep() {
            g.counters.sleep_limits += 1;
            g.begin_batch();
            return true;
        }
        false
    }

    fn batch_step(&mut self, mut b: Batch) -> bool {
        let (g, r) = (&mut *self.globals, &mut *self.relocation);
        let (now, fast) = (g.clock, g.fast_slots());
        if b.hand < fast && now < b.next {
            return false;
        }
        for _ in 0..SLOTS_PER_STEP {
            if b.hand >= fast || g.space.map.dirty() == 0 {
                b.hand = fast;
                break;
            }
            let Some(s) = g.space.map.next_dirty(Slot(b.hand)) else {
                b.hand = fast;
                break;
            };
            b.hand = s.0;
            g.steps += 1;
            // Copies with a write or a move in progress are left for the next batch.
            let dirty = g
                .copy_in(s)
                .filter(|&e| !g.space.map.is_held(e) && !g.has_writers(e));
            if let Some(extent) = dirty {
                if !r.has_buffer() {
                    g.background.sleep.batch = Some(b);
                    return false;
                }
                b.hand += 1;
                g.background.sleep.batch = Some(b);
                r.own_clean(g, Action::Clean { extent });
                return true;
            }
            b.hand += 1;
        }
        b.next = now + NEXT;
        g.background.sleep.batch = Some(b);
        // Data that is moved away after a change of policy belongs to the batch, and so does what the user wants on flash.
        let more = g.background.removes() || g.background.warms_in_batch();
        if b.hand < fast || more || r.active() > 0 || !self.durability.is_idle() {
            return false;
        }
        self.end_batch(b)
    }

    /// Every dirty copy was written home: flushes the disks, then lets them sleep.
    fn end_batch(&mut self, b: Batch) -> bool {
        let (g, d) = (&mut *self.globals, &*self.durability);
        let left = (0..g.devices.members.len())
            .filter(|&i| g.may_sleep(i))
            .any(|i| g.devices.members[i].unflushed || d.lags_on(i) || !d.covers_all(i));
        let sleep = &mut g.background.sleep;
        if left && !b.closing {
            sleep.wants_round = true;
            sleep.batch = Some(Batch { closing: true, ..b });
            return true;
        }
        if sleep.wants_round {
            return false;
        }
        sleep.batch = None;
        sleep.ended = g.clock;
        sleep.since = (g.space.map.dirty() > 0).then_some(g.clock);
        self.put_to_sleep(false);
        true
    }
}
