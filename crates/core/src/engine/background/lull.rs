//! Sleep-aware mode: background work is held while a disk sleeps, and done in one go before it sleeps again.
//!
//! ```text
//!   awake ──idle for `standby_after`──► batch ──nothing left──► asleep
//!     ▲                                   ▲                       │
//!     │                                   └── held too long ──────┤
//!     └────── a request needs the disk ───────────────────────────┘
//! ```
//! *Held*: what the policy wants and would touch a disk that sleeps (source, destination, or the mirror that has to hear of
//! it) is refused as `asleep`; copies stay dirty. Not held is what comes with an access that wakes the disk in any case, and
//! what a request needs.
//! *Batch*: the policy is asked again, every dirty copy is written home, and a round flushes the disk and brings its mirror
//! up to date, so that no FLUSH needs it soon. A batch begins when the disk would go to sleep, and, when it sleeps, once dirty
//! data or a refused want is older than `sleep_hold` or there is more dirty data than `sleep_hold_bytes`. (Linux' laptop mode
//! does the same with dirty pages.) Background work does not count as use: the disk sleeps when the batch is over.
//!
//! What is durable and when is none of this file's business: a copy is dirty on record like any other, a FLUSH is answered as
//! ever. Members of the fastest tier are never waited for.

use crate::engine::{Engine, LOOKS, What};
use crate::io::Effect;
use crate::policy::{Action, Refusal};
use crate::units::{MemberId, Nanos, Slot};
use alloc::vec::Vec;

/// A policy that was refused because a disk sleeps is not asked again before this has passed, nor is a batch that did not
/// get below the limit of dirty bytes repeated: a disk put to sleep must not cost a whole CPU.
pub(in crate::engine) const ASK_AGAIN: Nanos = Nanos::from_secs(1);
/// The next look for dirty copies comes after this, so that a long list does not stall requests.
const NEXT: Nanos = Nanos::from_millis(1);

/// A batch under way.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// The next slot to look at.
    hand: u32,
    next: Nanos,
    /// The round that ends it was asked for.
    closing: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Lull {
    /// What is held is held no longer than this; `None`: the mode is off.
    pub(in crate::engine) hold: Option<Nanos>,
    /// Dirty bytes held at most, in whole extents.
    pub(in crate::engine) bytes: Option<u64>,
    /// Since when there is something to do in a batch.
    since: Option<Nanos>,
    /// Members that the access being served wakes: a bit set.
    waking: u32,
    ask_again: Option<Nanos>,
    ended: Nanos,
    batch: Option<Batch>,
    /// The batch wants a round.
    wants_round: bool,
}

impl Lull {
    pub(in crate::engine) fn new(hold: Option<Nanos>, bytes: Option<u64>, now: Nanos) -> Lull {
        Lull {
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
    pub(in crate::engine) fn is_on(&self) -> bool {
        self.hold.is_some()
    }
    pub(in crate::engine) fn set(&mut self, hold: Option<Nanos>, bytes: Option<u64>) {
        if hold.is_none() {
            *self = Lull::new(None, bytes, self.ended);
        }
        (self.hold, self.bytes) = (hold, bytes);
    }
    /// Not before this is the policy asked for background work.
    #[inline]
    pub(in crate::engine) fn not_before(&self) -> Option<Nanos> {
        self.ask_again
    }
    /// Should the round that starts next be a whole one, the mirror included?
    pub(in crate::engine) fn wants_round(&self) -> bool {
        self.wants_round
    }
    pub(in crate::engine) fn round_began(&mut self) {
        self.wants_round = false;
    }
    pub(in crate::engine) fn is_batching(&self) -> bool {
        self.batch.is_some()
    }
    /// A member woke up.
    pub(in crate::engine) fn woke(&mut self) {
        self.ask_again = None;
    }
}

impl Engine {
    /// A disk of which this mode knows: it is told when to sleep, and is not of the fastest tier.
    pub(in crate::engine) fn is_sleeper(&self, member: usize) -> bool {
        let after = self.params.standby_after.get(member).copied().flatten();
        after.is_some() && self.space.geo.members[member].tier.0 > 0
    }

    fn any_asleep(&self) -> bool {
        (0..self.members.len()).any(|i| self.members[i].asleep && self.is_sleeper(i))
    }

    fn sleeps(&self, m: MemberId) -> bool {
        let i = usize::from(m.0);
        self.members[i].asleep && self.is_sleeper(i) && self.lull.waking >> i & 1 == 0
    }

    /// An access is about to be served at the home of its extent: what comes with it need not wait for the disk.
    #[inline]
    pub(in crate::engine) fn wake_with(&mut self, home: Option<Slot>) {
        if self.lull.is_on() {
            self.lull.waking = home.map_or(0, |s| 1 << self.space.geo.locate(s).0.0);
        }
    }

    /// May background work touch these slots, and (`recorded`) the mirror?
    pub(in crate::engine) fn may_disturb(
        &mut self,
        now: Nanos,
        slots: &[Slot],
        recorded: bool,
    ) -> Result<(), Refusal> {
        if !self.lull.is_on() || self.lull.is_batching() {
            return Ok(());
        }
        let mirror = self.commit.mirror().filter(|_| recorded);
        let asleep = slots
            .iter()
            .map(|&s| self.space.geo.locate(s).0)
            .chain(mirror)
            .any(|m| self.sleeps(m));
        if !asleep {
            return Ok(());
        }
        self.lull.since.get_or_insert(now);
        self.lull.ask_again.get_or_insert(now + ASK_AGAIN);
        Err(Refusal::Asleep)
    }

    /// Is the policy to be left alone for now?
    #[inline]
    pub(in crate::engine) fn lets_policy_rest(&mut self, now: Nanos) -> bool {
        if self.lull.ask_again.is_some_and(|t| t <= now) {
            self.lull.ask_again = None;
        }
        self.lull.ask_again.is_some()
    }

    /// Does the end of this operation leave its member as idle as it was?
    #[inline]
    pub(in crate::engine) fn is_background(&self, what: What) -> bool {
        self.lull.is_on()
            && match what {
                What::Round | What::Trim { .. } => true,
                What::Move { index, .. } => {
                    let m = self.moves.list[usize::from(index)];
                    m.is_some_and(|m| m.own || !m.is_promotion())
                }
                What::Data { .. } | What::Standby => false,
            }
    }

    /// Start a batch instead of putting `member` to sleep, if there is anything to do.
    pub(in crate::engine) fn batch_first(&mut self, now: Nanos, member: usize) -> bool {
        if !self.lull.is_on() || !self.is_sleeper(member) || !self.may_move() {
            return false;
        }
        if !self.lull.is_batching() {
            let lags = self.mirror_lags(member);
            if self.lull.since.is_none() && !self.members[member].unflushed && !lags {
                return false;
            }
            self.counters.sleep_batches += 1;
            self.begin_batch(now);
        }
        true
    }

    fn mirror_lags(&self, member: usize) -> bool {
        self.commit.has_mirror()
            && self.commit.staging.lag() > 0
            && self
                .commit
                .mirror()
                .is_some_and(|m| usize::from(m.0) == member)
    }

    fn begin_batch(&mut self, now: Nanos) {
        self.lull.batch = Some(Batch {
            hand: 0,
            next: now,
            closing: false,
        });
        self.lull.ask_again = None;
        self.policy_due = true;
        self.drain.hurry(now);
    }

    /// What ends every event, of this mode; true if anything was done.
    pub(in crate::engine) fn lull_step(&mut self, now: Nanos, out: &mut Vec<Effect>) -> bool {
        if !self.may_move() {
            self.lull.batch = None;
            self.lull.wants_round = false;
            return false;
        }
        if self.space.map.dirty() > 0 {
            self.lull.since.get_or_insert(now);
        }
        if self.lull.is_batching() {
            return self.batch_step(now, out);
        }
        if self.limit_reached(now) && self.any_asleep() {
            self.counters.sleep_limits += 1;
            self.begin_batch(now);
            return true;
        }
        false
    }

    fn limit_reached(&self, now: Nanos) -> bool {
        let old = self.lull.since.zip(self.lull.hold);
        let dirty = u64::from(self.space.map.dirty()) * u64::from(self.space.geo.extent_bytes());
        old.is_some_and(|(t, hold)| now.since(t) >= hold)
            || (self.lull.bytes.is_some_and(|b| dirty >= b)
                && now.since(self.lull.ended) >= ASK_AGAIN)
    }

    fn batch_step(&mut self, now: Nanos, out: &mut Vec<Effect>) -> bool {
        let Some(mut b) = self.lull.batch else {
            return false;
        };
        let fast = self.space.geo.tier_slots(self.space.geo.slowest()).start;
        if b.hand < fast && now < b.next {
            return false;
        }
        for _ in 0..LOOKS {
            if b.hand >= fast || self.space.map.dirty() == 0 {
                b.hand = fast;
                break;
            }
            // Those that a write or a move is busy with are left for the next batch.
            let dirty = self
                .copy_in(Slot(b.hand))
                .filter(|&e| self.space.map.is_dirty(e) && !self.space.map.is_held(e))
                .filter(|&e| !self.has_writers(e));
            if let Some(extent) = dirty {
                if !self.has_move_buffer() {
                    self.lull.batch = Some(b);
                    return false;
                }
                b.hand += 1;
                self.lull.batch = Some(b);
                self.counters.writebacks.proposed += 1;
                self.start_clean(Action::Clean { extent }, extent, false, true);
                return true;
            }
            b.hand += 1;
        }
        b.next = now + NEXT;
        self.lull.batch = Some(b);
        // What is given up after a change of policy belongs to the batch.
        let draining = self.drain.next_wake().is_some();
        if b.hand < fast || draining || self.moves.active() > 0 || !self.commit.is_idle() {
            return false;
        }
        let left = (0..self.members.len())
            .filter(|&i| self.is_sleeper(i))
            .any(|i| self.members[i].unflushed || self.mirror_lags(i));
        if left && !b.closing {
            self.lull.wants_round = true;
            self.lull.batch = Some(Batch { closing: true, ..b });
            return true;
        }
        if self.lull.wants_round {
            return false;
        }
        self.lull.batch = None;
        self.lull.ended = now;
        self.lull.since = (self.space.map.dirty() > 0).then_some(now);
        self.put_to_sleep(now, false, out);
        true
    }

    /// When the next step is due by itself.
    pub(in crate::engine) fn lull_wake(&self) -> Option<Nanos> {
        if let Some(b) = self.lull.batch {
            let fast = self.space.geo.tier_slots(self.space.geo.slowest()).start;
            return (b.hand < fast && self.moves.active() == 0).then_some(b.next);
        }
        let (since, hold) = self.lull.since.zip(self.lull.hold)?;
        self.any_asleep().then_some(since + hold)
    }
}
