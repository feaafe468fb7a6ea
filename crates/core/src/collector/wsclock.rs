//! `wsclock`: the search for cold extents in GreenDM (6.1.3: "The demotion thread uses the WSClock algorithm"; Carr and Hennessy's clock
//! with a working-set window).
//!
//! A hand moves over a tier's slots in rising order, and continues at the first slot after the last one. If the extent of a slot was
//! accessed since the hand last passed, its reference mark is cleared, and the slot is skipped. Otherwise, if the last access is more than
//! TW ago, the extent is the victim. After a full turn without a victim, the extent with the oldest last access is the victim
//! (docs/policy-rules.md section 3). The result of such a turn is remembered, so that a batch of victims costs only one scan.
//! [`View::budget`] divides a scan into pieces.
//!
//! On the fastest tier the slots are also kept in the order of access. If even the first extent of that order is inside the window, a turn
//! would find no victim. Then there is no scan: all marks are cleared at once (by a new epoch), and victims are taken from the head of the
//! order. Under full load this is the case for every turn; a scan would cost 2 µs per access.
//!
//! The 16 bits in the map's row: bits 9–14 count the misses for promotion, bits 0–8 the accesses (both saturate). Memory: 2 bytes per slot
//! of the faster tiers for marks, 8 per slot of the fastest tier for the order.

use super::{Collector, Lists, Rank};
use crate::policy::{Access, Action, View};
use crate::units::{Nanos, TierId};
use crate::volume::{Position, UnitId};
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;

const USAGE_MAX: u16 = 0x1ff;
const MISS_SHIFT: u16 = 9;
/// Largest number of misses that can be counted, and so the largest PT.
pub const MISSES_MAX: u16 = 63;
/// Maximum number of victims that are kept for the same batch after a turn without a victim.
const BATCH: usize = 256;

/// Whether an extent is in a proposal or in a move already. Its slot counts as empty then.
fn is_leaving(view: &View<'_>, e: UnitId, wanted: &[Action]) -> bool {
    view.is_held(e) || wanted.iter().any(|a| a.extent() == e)
}

/// One tier's hand.
#[derive(Clone, Debug, Default)]
struct Hand {
    /// A slot is marked if its mark has this value; at least 1.
    epoch: u16,
    at: u32,
    steps: u32,
    /// The oldest extents of this turn, whose marks are cleared now; the newest of these is on top.
    oldest: BinaryHeap<(u64, u32)>,
    ready: VecDeque<u32>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct WsClock {
    hands: Vec<Hand>,
    upper: u32,
    fast: u32,
    /// Per slot of the faster tiers: the epoch in which it was marked; 0 for none.
    marks: Vec<u16>,
    /// Slots of the fastest tier, least recently accessed first.
    order: Lists,
    /// TW: the working-set window.
    pub window: Nanos,
}

impl WsClock {
    /// Creates the collector with time window TW.
    pub fn new(window: Nanos) -> WsClock {
        WsClock {
            hands: Vec::new(),
            upper: 0,
            fast: 0,
            marks: Vec::new(),
            order: Lists::new(0, 1),
            window,
        }
    }
    /// Number of misses counted for promotion.
    pub fn misses(stat: u16) -> u16 {
        (stat >> MISS_SHIFT) & MISSES_MAX
    }
    /// The row's value with another miss count.
    pub fn with_misses(stat: u16, n: u16) -> u16 {
        (stat & !(MISSES_MAX << MISS_SHIFT)) | (n.min(MISSES_MAX) << MISS_SHIFT)
    }
    /// Number of counted accesses.
    pub fn usage(stat: u16) -> u16 {
        stat & USAGE_MAX
    }
    /// Whether the extent was accessed since the hand last passed.
    pub fn is_marked(&self, tier: TierId, position: Position) -> bool {
        self.marks.get(position.index() as usize) == Some(&self.hands[usize::from(tier.0)].epoch)
    }
    fn mark(&mut self, tier: TierId, position: Position) {
        self.marks[position.index() as usize] = self.hands[usize::from(tier.0)].epoch;
        if tier == TierId(0) {
            self.order.unlink(position.index());
            self.order.push_tail(0, position.index());
        }
    }
    /// Replaces a turn that would find no extent outside the window. Returns false if the turn is necessary.
    fn skip_turn(&mut self, view: &mut View<'_>, wanted: &[Action]) -> bool {
        let mut at = self.order.head(0);
        let mut oldest: Vec<(u64, u32)> = Vec::new();
        while let Some(s) = at {
            at = self.order.next(s);
            let Some(e) = view.owner(view.position(s)) else {
                self.order.unlink(s); // it was demoted
                continue;
            };
            if is_leaving(view, e, wanted) {
                continue;
            }
            let last = view.last(e).0;
            if oldest.is_empty() && self.is_old(view, e) {
                return false;
            }
            // All extents with the same time stamp are included, because among these the one in the lowest slot is evicted first.
            if oldest.len() >= BATCH && oldest.last().is_some_and(|o| o.0 != last) {
                break;
            }
            oldest.push((last, s));
        }
        let spent = (oldest.len() as u32).min(*view.budget());
        *view.budget() -= spent;
        oldest.sort_unstable();
        let hand = &mut self.hands[0];
        hand.ready = oldest.iter().map(|o| o.1).take(BATCH).collect();
        let found = !hand.ready.is_empty();
        // A new epoch clears every mark. If its number overflows, the old marks are erased, so that none of them becomes valid again.
        hand.epoch = hand.epoch.wrapping_add(1);
        if hand.epoch == 0 {
            hand.epoch = 1;
            self.marks[..self.fast as usize].fill(0);
        }
        found
    }
    fn is_old(&self, view: &View<'_>, e: UnitId) -> bool {
        // Both times are in whole microseconds, because the row stores whole microseconds.
        Nanos(view.now().0 / 1000 * 1000).since(view.last(e)) > self.window
    }
    /// The next victim on `tier` that `wanted` does not name yet, or `None` if there is no other or the budget is used up.
    pub fn victim(
        &mut self,
        view: &mut View<'_>,
        tier: TierId,
        wanted: &[Action],
    ) -> Option<UnitId> {
        let range = view.positions(tier);
        let slots = range.end - range.start;
        loop {
            let hand = &mut self.hands[usize::from(tier.0)];
            let begins = hand.steps == 0;
            if let Some(s) = hand.ready.pop_front() {
                // An extent that was accessed, discarded or taken since the turn that found it is no longer cold.
                match view.owner(view.position(s)) {
                    Some(e)
                        if !self.is_marked(tier, view.position(s))
                            && !is_leaving(view, e, wanted) =>
                    {
                        return Some(e);
                    }
                    _ => continue,
                }
            }
            if *view.budget() == 0 {
                return None;
            }
            if begins && tier == TierId(0) && self.skip_turn(view, wanted) {
                continue;
            }
            *view.budget() = view.budget().saturating_sub(1);
            let hand = &mut self.hands[usize::from(tier.0)];
            let position = view.position(range.start + hand.at);
            hand.at = if hand.at + 1 == slots { 0 } else { hand.at + 1 };
            hand.steps += 1;
            let full_turn = hand.steps >= slots;
            if let Some(e) = view
                .owner(position)
                .filter(|&e| !is_leaving(view, e, wanted))
            {
                let last = view.last(e).0;
                if self.is_marked(tier, position) {
                    self.marks[position.index() as usize] = 0;
                } else if self.is_old(view, e) {
                    let hand = &mut self.hands[usize::from(tier.0)];
                    hand.steps = 0;
                    hand.oldest.clear();
                    return Some(e);
                }
                let hand = &mut self.hands[usize::from(tier.0)];
                // Only the oldest candidates are kept. Most candidates fail this comparison and cost no heap operation.
                if hand.oldest.len() < BATCH
                    || hand
                        .oldest
                        .peek()
                        .is_some_and(|&top| (last, position.index()) < top)
                {
                    hand.oldest.push((last, position.index()));
                    if hand.oldest.len() > BATCH {
                        hand.oldest.pop();
                    }
                }
            }
            if full_turn && !self.end_turn(view, tier) {
                return None;
            }
        }
    }
    /// Ends a turn without a victim: the oldest extents become victims. Returns false if the tier has no extents.
    fn end_turn(&mut self, view: &View<'_>, tier: TierId) -> bool {
        let hand = &mut self.hands[usize::from(tier.0)];
        hand.steps = 0;
        let sorted = core::mem::take(&mut hand.oldest).into_sorted_vec();
        hand.ready = sorted.iter().map(|x| x.1).collect();
        // If the oldest extent is outside the window, others whose marks were just cleared may be outside, too. The next turn
        // decides about those, not the order of this one.
        let first = hand
            .ready
            .front()
            .and_then(|&s| view.owner(view.position(s)));
        match first {
            None => return false,
            Some(e) if self.is_old(view, e) => self.hands[usize::from(tier.0)].ready.truncate(1),
            Some(_) => {}
        }
        true
    }
    /// Ends a batch: victims that are left from a turn are not valid for a later batch.
    pub fn end_batch(&mut self, tier: TierId) {
        let hand = &mut self.hands[usize::from(tier.0)];
        hand.ready.clear();
        hand.steps = 0;
        hand.oldest.clear();
    }
    /// Puts a victim back at the front, because the engine could not move it now.
    pub fn put_back(&mut self, tier: TierId, position: Position) {
        self.hands[usize::from(tier.0)]
            .ready
            .push_front(position.index());
    }
}

impl Collector for WsClock {
    fn name(&self) -> &'static str {
        "wsclock"
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.upper = view.faster_positions();
        let hand = Hand {
            epoch: 1,
            ..Hand::default()
        };
        self.hands = alloc::vec![hand; usize::from(view.tiers())];
        self.marks = alloc::vec![0; self.upper as usize];
        let fast = view.positions(TierId(0)).end.min(self.upper);
        self.fast = fast;
        self.order = Lists::new(fast, 1);
        // After a restart, the order is restored from the time stamps that survived.
        let owned =
            (0..fast).filter_map(|s| view.owner(view.position(s)).map(|e| (view.last(e).0, s)));
        let mut owned: Vec<(u64, u32)> = owned.collect();
        owned.sort_unstable();
        for (_, s) in owned {
            self.order.push_tail(0, s);
        }
    }
    fn touch(&mut self, view: &mut View<'_>, access: &Access) {
        let s = view.stat(access.extent);
        let usage = (Self::usage(s) + 1).min(USAGE_MAX);
        view.set_stat(access.extent, (s & !USAGE_MAX) | usage);
        view.set_last(access.extent, access.now);
        if let Some(position) = access.served().filter(|h| h.index() < self.upper) {
            self.mark(view.tier_of(position), position);
        }
    }
    fn placed(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        view.set_stat(extent, Self::with_misses(view.stat(extent), 0));
        if position.index() < self.upper {
            self.mark(view.tier_of(position), position);
        }
    }
    fn left(&mut self, _view: &mut View<'_>, _extent: UnitId, _position: Position) {}
    fn coldest(&mut self, view: &mut View<'_>, tier: TierId) -> Option<UnitId> {
        // The victims that a turn left remain valid as long as they are not accessed, so one turn serves many calls.
        self.victim(view, tier, &[])
    }
    fn rank(&self, view: &View<'_>, extent: UnitId) -> Rank {
        (view.last(extent).0, 0)
    }
    fn bytes(&self) -> usize {
        self.hands.len() * (size_of::<Hand>() + BATCH * 20)
            + self.marks.len() * 2
            + self.order.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_marks_stay_invalid_when_epochs_overflow() {
        let mut c = WsClock::new(Nanos::from_secs(60));
        c.hands = alloc::vec![Hand {
            epoch: u16::MAX,
            ..Hand::default()
        }];
        (c.fast, c.order) = (3, Lists::new(3, 1));
        c.marks = alloc::vec![1, u16::MAX, 0];
        let m = |slots| crate::geometry::Member {
            tier: TierId(0),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: crate::geometry::Stash::default(),
        };
        let geo = crate::geometry::Geometry::new(12, 12, 3, alloc::vec![m(3)]).unwrap();
        let mut space = crate::volume::Space::new(geo);
        let mut view = View::new(&mut space, Nanos(0), 0, false, 100);
        assert!(!c.skip_turn(&mut view, &[]));
        assert!((0..3).all(|s| !c.is_marked(TierId(0), view.position(s))));
    }
}
