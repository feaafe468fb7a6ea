//! Claims that copies are clean, which keep a cache over a crash.
//!
//! A record claims that a copy and its home are equal in some blocks. It is written for a copy that has rested: neither a write nor a fetch
//! changed it for [`Params::claim_after`](crate::engine::Params::claim_after), so data that is written again and again pays nothing. The round
//! that writes it has flushed both places before. The policy can except copies ([`Policy::keeps_over_crash`]), and should those that it will
//! evict soon: then a write that needs their slot waits for no round, and not for one in progress that flushes a disk either.
//!
//! [`Policy::keeps_over_crash`]: crate::policy::Policy::keeps_over_crash
//!
//! The claim is **withdrawn** by a later record of the extent, which is durable before the claim can become false:
//!
//! - a write or discard of the extent waits until the withdrawal is durable on the primary;
//! - a copy that is dropped frees its slot at once, but what is written to that slot (a fetch, a write to another copy) waits until the
//!   withdrawal is durable on primary and mirror. A fetch reads its home meanwhile, so it hardly ever waits.
//!
//! A withdrawal exposes no data. So its round flushes no data device, and may begin at any time.

use super::Durability;
use crate::by_number::ByNumber;
use crate::engine::globals::{Globals, Phase};
use crate::map::Recorded;
use crate::mutants::Mutant;
use crate::policy::View;
use crate::store::record::CLAIMED;
use crate::units::{ExtentId, Nanos, Slot};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Number of slots that one look examines.
const LOOK_SLOTS: u32 = 1 << 16;
/// The time between two looks of one pass through all slots.
const LOOK_EVERY: Nanos = Nanos::from_millis(10);
/// Largest number of copies about which one look asks the policy, which takes about 0.1 µs each.
const ASKED_MOST: u32 = 1 << 12;
/// Largest number of claims that one look withdraws. After a clean close all copies are claimed, and the policy may want to keep few of them.
const WITHDRAWN_MOST: u32 = 1 << 10;
/// Largest number of copies that wait for the record of their claim.
const READY_MOST: usize = 1 << 16;
/// With this number of withdrawals, a round begins for them although nothing waits.
const QUEUE_MOST: usize = 1 << 12;

/// How far a withdrawal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Its record is not encoded.
    #[default]
    Due,
    /// Its record is in a block of the journal that is not durable yet.
    Written,
    /// Its record is durable on the primary, but not on the mirror.
    OnPrimary,
}

/// A withdrawal that is not durable everywhere.
#[derive(Clone, Copy, Debug, Default)]
struct Withdrawal {
    /// The slot of the copy.
    slot: u32,
    stage: Stage,
}

/// What waits for withdrawals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    #[default]
    Nothing,
    /// A write of the same extent.
    OnPrimary,
    /// A write to a slot that another extent's copy had.
    Everywhere,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct CleanClaims {
    /// By extent: the withdrawals that are not durable everywhere.
    open: ByNumber<Withdrawal>,
    /// The extents of those that are due. (Some may have got their record otherwise.)
    due: VecDeque<ExtentId>,
    /// The time at which a round begins for them.
    due_at: Option<Nanos>,
    /// The blocks of those that are not on the primary, and of those that are not everywhere, in order.
    written: VecDeque<(u64, ExtentId)>,
    on_primary: VecDeque<(u64, ExtentId)>,
    /// By slot that a dropped copy had: the extent whose withdrawal is not durable everywhere.
    slots: ByNumber<u32>,
    wanted: Wanted,
    /// Whether a record that exposes data, too, is wanted, so that the round must be a full one.
    wants_data: bool,
    /// The next slot to look at, and when.
    hand: u32,
    look_at: Nanos,
    /// Slots of copies that have rested, and the time at which a round begins for their claims.
    ready: Vec<Slot>,
    ready_at: Option<Nanos>,
}

impl CleanClaims {
    pub(super) fn new(now: Nanos) -> CleanClaims {
        CleanClaims {
            open: ByNumber::new(256),
            due: VecDeque::new(),
            due_at: None,
            written: VecDeque::new(),
            on_primary: VecDeque::new(),
            slots: ByNumber::new(256),
            wanted: Wanted::Nothing,
            wants_data: false,
            hand: 0,
            look_at: now,
            ready: Vec::new(),
            ready_at: None,
        }
    }
    /// Whether nothing is to be withdrawn.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.due.is_empty() && self.wanted == Wanted::Nothing
    }
    /// Whether something waits for a round that withdraws claims.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted != Wanted::Nothing
    }
    /// Whether something waits for a withdrawal that only a full round can write.
    #[inline]
    pub(super) fn wants_data(&self) -> bool {
        self.wants_data
    }
    /// Whether something waits for a withdrawal on the mirror.
    pub(super) fn wants_mirror(&self) -> bool {
        self.wanted == Wanted::Everywhere
    }
    /// The time at which a round begins for withdrawals although nothing waits for them.
    #[inline]
    pub(super) fn due_at(&self) -> Option<Nanos> {
        self.due_at
    }
    /// The time at which a round begins for claims.
    #[inline]
    pub(super) fn ready_at(&self) -> Option<Nanos> {
        self.ready_at
    }
    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.open.bytes() + self.slots.bytes() + self.ready.capacity() * size_of::<Slot>()
    }
    fn is_open(&self, e: ExtentId) -> bool {
        self.open.get(e.0).is_some()
    }
}

/// Withdrawals.
impl Durability {
    /// Whether a write or discard of `e` must wait for the withdrawal of a claim. If so, one is under way, and the extent counts as changed
    /// when it is durable.
    #[inline]
    pub(in crate::engine) fn must_withdraw(&mut self, g: &mut Globals, e: ExtentId) -> bool {
        let none = self.clean.open.is_empty() && g.space.map.clean_claims() == 0;
        !none && self.withdraw_before(g, e)
    }

    fn withdraw_before(&mut self, g: &mut Globals, e: ExtentId) -> bool {
        let copy = g.space.map.copy(e);
        if let Some(s) = copy.filter(|s| g.space.map.is_claimed_clean(*s)) {
            self.withdraw(g, e, s);
        }
        let own = self.clean.open.get(e.0).map(|w| w.stage);
        let own = own.is_some_and(|s| s != Stage::OnPrimary) && !g.broken(Mutant::WriteUnderClaim);
        let other = copy.is_some_and(|s| self.clean.slots.get(s.0).is_some());
        let other = other && !g.broken(Mutant::AllocateUnderClaim);
        if own {
            let due = self.clean.open.get(e.0).map(|w| w.stage) == Some(Stage::Due);
            self.clean.wants_data |= due && g.space.map.is_named(e);
            self.want(g, Wanted::OnPrimary);
        }
        if other {
            self.want(g, Wanted::Everywhere);
        }
        own || other
    }

    fn want(&mut self, g: &Globals, wanted: Wanted) {
        let everywhere = self.has_mirror() && !g.broken(Mutant::ReuseClaimedBeforeMirror);
        let wanted = if everywhere {
            wanted
        } else {
            Wanted::OnPrimary
        };
        self.clean.wanted = self.clean.wanted.max(wanted);
    }

    /// Whether nothing may be written to `s` yet, because a copy that was there is claimed. If so, the withdrawal is under way.
    pub(in crate::engine) fn slot_must_wait(&mut self, g: &Globals, s: Slot) -> bool {
        let waits = self.clean.slots.get(s.0).is_some() && !g.broken(Mutant::FetchUnderClaim);
        if waits {
            self.want(g, Wanted::Everywhere);
        }
        waits
    }

    /// The claim of the copy of `e`, in `s`, is no longer in force as far as the map is concerned, and its withdrawal is due.
    fn withdraw(&mut self, g: &mut Globals, e: ExtentId, s: Slot) {
        g.space.map.set_claimed_clean(s, false);
        *self.clean.open.entry(e.0) = Withdrawal {
            slot: s.0,
            stage: Stage::Due,
        };
        if g.space.map.is_named(e) {
            // Its record exposes data, so it belongs into a round that flushes.
            self.pending.note(e, g.clock);
            return;
        }
        self.clean.due.push_back(e);
        let soon = g.clock + g.params.commit_interval;
        self.clean.due_at.get_or_insert(soon);
        if self.clean.due.len() >= QUEUE_MOST {
            self.clean.due_at = Some(g.clock);
        }
    }

    /// The copy of `e`, in `s`, is about to be dropped.
    pub(in crate::engine) fn drop_claim(&mut self, g: &mut Globals, e: ExtentId, s: Slot) {
        if g.space.map.is_claimed_clean(s) {
            self.withdraw(g, e, s);
        }
        if self.clean.open.get(e.0).is_some_and(|w| w.slot == s.0) {
            *self.clean.slots.entry(s.0) = e.0;
        }
    }

    /// Encodes the withdrawals that are due, as many as there is space for.
    pub(super) fn encode_withdrawals(&mut self, g: &mut Globals, limit: u64) {
        while let Some(&e) = self.clean.due.front() {
            let due = self.clean.open.get(e.0).map(|w| w.stage) == Some(Stage::Due);
            if due && !g.space.map.is_named(e) {
                let home = g.space.map.home(e);
                if !self.encode(g, e, home, self.always_clean_epoch, limit) {
                    return;
                }
                self.recorded(g, e);
            } else if due {
                self.pending.note(e, g.clock);
            }
            self.clean.due.pop_front();
        }
        self.clean.due_at = None;
        self.clean.wanted = Wanted::Nothing;
        self.clean.wants_data = false;
    }

    /// A record of `e` without a claim was encoded, as part of the block that is open.
    pub(super) fn withdrawn(&mut self, g: &mut Globals, e: ExtentId) {
        let claimed = |s: &Slot| g.space.map.is_claimed_clean(*s);
        if let Some(s) = g.space.map.copy(e).filter(claimed) {
            g.space.map.set_claimed_clean(s, false);
            *self.clean.open.entry(e.0) = Withdrawal {
                slot: s.0,
                stage: Stage::Due,
            };
        }
        if self
            .clean
            .open
            .get(e.0)
            .is_some_and(|w| w.stage == Stage::Due)
        {
            self.clean.open.entry(e.0).stage = Stage::Written;
            let seq = self.staging.tip().next_seq;
            self.clean.written.push_back((seq, e));
        }
    }

    /// After a round: what waited for withdrawals that are durable now goes on.
    pub(super) fn withdrawals_durable(&mut self, g: &mut Globals) {
        let primary = self.staging.last_flushed + 1;
        let everywhere = if self.has_mirror() && !g.broken(Mutant::ReuseClaimedBeforeMirror) {
            self.staging.mirrored.min(primary)
        } else {
            primary
        };
        let clean = &mut self.clean;
        while let Some(&(seq, e)) = clean.written.front().filter(|w| w.0 < primary) {
            clean.written.pop_front();
            clean.open.entry(e.0).stage = Stage::OnPrimary;
            clean.on_primary.push_back((seq, e));
            g.waiting.extent_changed(e);
        }
        while let Some(&(_, e)) = clean.on_primary.front().filter(|w| w.0 < everywhere) {
            clean.on_primary.pop_front();
            let Some(w) = clean.open.remove(e.0) else {
                continue;
            };
            if clean.slots.get(w.slot) == Some(e.0) {
                clean.slots.remove(w.slot);
                if let Some(owner) = g.space.map.owner(Slot(w.slot)) {
                    g.waiting.extent_changed(owner);
                }
            }
        }
    }
}

/// Claims.
impl Durability {
    /// The time of the next look at copies that may have rested.
    #[inline]
    pub(in crate::engine) fn look_due(&self, g: &Globals) -> Option<Nanos> {
        let any = g.space.map.has_unclaimed() && self.clean.ready.len() < READY_MOST;
        let may = any && g.params.claim_after.is_some() && g.space.geo.is_cache();
        (may && g.may_move() && self.layout.has_journal).then_some(self.clean.look_at)
    }

    /// Looks at some copies: those that have not changed since the last look, [`Params::claim_after`](crate::engine::Params::claim_after) ago,
    /// will be claimed, if the policy wants to keep them. Claims of copies that it no longer wants to keep are withdrawn, before something
    /// waits for that.
    pub(in crate::engine) fn look_at_copies(&mut self, g: &mut Globals) {
        let fast = g.fast_slots();
        if self.clean.hand == 0 {
            g.space.map.set_unclaimed(false);
        }
        let most = self.clean.hand.saturating_add(LOOK_SLOTS).min(fast);
        let (mut again, mut left) = (false, WITHDRAWN_MOST);
        let (mut end, mut asked) = (self.clean.hand, 0);
        while end < most && asked < ASKED_MOST {
            let s = Slot(end);
            end += 1;
            let map = &mut g.space.map;
            let claimed = map.is_claimed_clean(s);
            let copied = if claimed {
                map.owner(s)
            } else {
                map.may_claim_clean(s)
            };
            let Some(e) = copied else {
                continue;
            };
            if !claimed && !map.rest(s) {
                again = true;
                continue;
            }
            asked += 1;
            let view = View::new(&mut g.space, g.clock, 0, false, 0);
            match (claimed, g.policy.keeps_over_crash(&view, e)) {
                (false, true) => self.clean.ready.push(s),
                (true, false) if left > 0 => {
                    left -= 1;
                    self.withdraw(g, e, s);
                }
                _ => {}
            }
        }
        let (clean, map) = (&mut self.clean, &mut g.space.map);
        // (The next look of this pass is due in any case.)
        map.set_unclaimed(map.has_unclaimed() || again || end < fast);
        (clean.hand, clean.look_at) = if end < fast {
            (end, g.clock + LOOK_EVERY)
        } else {
            (0, g.clock + g.params.claim_after.unwrap_or(Nanos(0)))
        };
        if !clean.ready.is_empty() {
            let soon = g.clock + g.params.commit_interval;
            clean.ready_at.get_or_insert(soon);
        }
    }

    /// In a round that flushes every device: encodes claims of the copies that have rested, as many as there is space for. `moving`: whether
    /// an extent has a move.
    pub(super) fn encode_claims(
        &mut self,
        g: &mut Globals,
        moving: &dyn Fn(ExtentId) -> bool,
        limit: u64,
    ) {
        if g.phase != Phase::Running {
            self.clean.ready_at = None;
            return;
        }
        while let Some(s) = self.clean.ready.pop() {
            let Some(e) = g.space.map.may_claim_clean(s) else {
                continue;
            };
            if !g.space.map.has_rested(s) {
                continue;
            }
            let written = g.has_writers(e) && !g.broken(Mutant::ClaimUnderWriter);
            if self.clean.is_open(e)
                || self.clean.slots.get(s.0).is_some()
                || self.pending.contains(e)
                || written
                || moving(e)
            {
                g.space.map.set_unclaimed(true);
                continue;
            }
            let home = g.space.map.home(e);
            if !self.encode(g, e, home, Some(CLAIMED), limit) {
                self.clean.ready.push(s);
                break;
            }
            g.space.map.set_claimed_clean(s, true);
            debug_assert_eq!(g.space.map.recorded(s), Recorded::No, "no record names it");
        }
        let soon = g.clock + g.params.commit_interval;
        self.clean.ready_at = (!self.clean.ready.is_empty()).then_some(soon);
    }
}
