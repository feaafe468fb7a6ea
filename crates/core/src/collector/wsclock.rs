//! `wsclock`: GreenDM's cold-extent finder (6.1.3: "The demotion thread uses the WSClock algorithm"; Carr and Hennessy's
//! clock with a working-set window).
//!
//! A hand walks a tier's slots upwards and wraps. A slot whose extent was accessed since the hand last passed has its
//! reference mark cleared and is passed; else, if the last access is more than TW ago, it is the victim. After a full turn
//! without one, the extent with the oldest last access is (policy-specs section 3). The fruitless turn is remembered, so a
//! batch of victims costs one scan, and a scan is cut into pieces by [`View::budget`].
//!
//! Rows: bit 15 reference mark, bits 9–14 misses counted towards promotion, bits 0–8 usage counter (both saturating).

use super::{Collector, Rank};
use crate::policy::{Access, Action, View};
use crate::units::{ExtentId, Nanos, Slot, TierId};
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;

const MARK: u16 = 1 << 15;
const USAGE_MAX: u16 = 0x1ff;
const MISS_SHIFT: u16 = 9;
/// Misses that can be counted: the largest PT.
pub const MISSES_MAX: u16 = 63;
/// Victims found by one fruitless turn that are kept for the same batch.
const BATCH: usize = 256;

/// One tier's hand.
#[derive(Clone, Debug, Default)]
struct Hand {
    at: u32,
    steps: u32,
    /// The oldest unmarked extents of this turn, newest of them on top.
    oldest: BinaryHeap<(u64, u32)>,
    ready: VecDeque<u32>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct WsClock {
    hands: Vec<Hand>,
    upper: u32,
    /// TW: the working-set window.
    pub window: Nanos,
}

impl WsClock {
    /// With time window TW.
    pub fn new(window: Nanos) -> WsClock {
        WsClock {
            hands: Vec::new(),
            upper: 0,
            window,
        }
    }
    /// Misses counted towards promotion.
    pub fn misses(stat: u16) -> u16 {
        (stat >> MISS_SHIFT) & MISSES_MAX
    }
    /// With the miss count replaced.
    pub fn with_misses(stat: u16, n: u16) -> u16 {
        (stat & !(MISSES_MAX << MISS_SHIFT)) | (n.min(MISSES_MAX) << MISS_SHIFT)
    }
    /// Accesses counted.
    pub fn usage(stat: u16) -> u16 {
        stat & USAGE_MAX
    }
    /// Accessed since the hand last passed?
    pub fn is_marked(stat: u16) -> bool {
        stat & MARK != 0
    }
    fn is_old(&self, view: &View<'_>, e: ExtentId) -> bool {
        // Both sides in whole microseconds, as the row keeps them.
        Nanos(view.now().0 / 1000 * 1000).since(view.last(e)) > self.window
    }
    /// The next victim on `tier` that `wanted` does not name yet, or `None` when nothing is left to find or the budget ran out.
    pub fn victim(
        &mut self,
        view: &mut View<'_>,
        tier: TierId,
        wanted: &[Action],
    ) -> Option<ExtentId> {
        // What is wanted, or moves already, is as good as gone: its slot counts as empty.
        let gone = |view: &View<'_>, e: ExtentId| {
            view.is_held(e) || wanted.iter().any(|a| a.extent() == e)
        };
        let range = view.geo().tier_slots(tier);
        let slots = range.end - range.start;
        loop {
            let hand = &mut self.hands[usize::from(tier.0)];
            if let Some(s) = hand.ready.pop_front() {
                // Accessed, discarded or taken since the turn that found it? Then it is not cold any more.
                match view.owner(Slot(s)) {
                    Some(e) if !Self::is_marked(view.stat(e)) && !gone(view, e) => {
                        return Some(e);
                    }
                    _ => continue,
                }
            }
            if *view.budget() == 0 {
                return None;
            }
            *view.budget() -= 1;
            let slot = Slot(range.start + hand.at);
            hand.at = if hand.at + 1 == slots { 0 } else { hand.at + 1 };
            hand.steps += 1;
            let full_turn = hand.steps >= slots;
            if let Some(e) = view.owner(slot).filter(|&e| !gone(view, e)) {
                let stat = view.stat(e);
                let last = view.last(e).0;
                if Self::is_marked(stat) {
                    view.set_stat(e, stat & !MARK);
                } else if self.is_old(view, e) {
                    let hand = &mut self.hands[usize::from(tier.0)];
                    hand.steps = 0;
                    hand.oldest.clear();
                    return Some(e);
                }
                let hand = &mut self.hands[usize::from(tier.0)];
                // Of many only the oldest are kept: most candidates fail this comparison and cost no heap work.
                if hand.oldest.len() < BATCH
                    || hand.oldest.peek().is_some_and(|&top| (last, slot.0) < top)
                {
                    hand.oldest.push((last, slot.0));
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
    /// A turn without a victim: line up the oldest. False if the tier has nothing to offer.
    fn end_turn(&mut self, view: &View<'_>, tier: TierId) -> bool {
        let hand = &mut self.hands[usize::from(tier.0)];
        hand.steps = 0;
        let sorted = core::mem::take(&mut hand.oldest).into_sorted_vec();
        hand.ready = sorted.iter().map(|x| x.1).collect();
        // If the oldest is outside the window, so may be others whose marks were cleared just now: the next turn, not
        // this one's order, decides about them.
        let first = hand.ready.front().and_then(|&s| view.owner(Slot(s)));
        match first {
            None => return false,
            Some(e) if self.is_old(view, e) => self.hands[usize::from(tier.0)].ready.truncate(1),
            Some(_) => {}
        }
        true
    }
    /// The batch is over: what a fruitless turn lined up is not valid for a later one.
    pub fn end_batch(&mut self, tier: TierId) {
        let hand = &mut self.hands[usize::from(tier.0)];
        hand.ready.clear();
        hand.steps = 0;
        hand.oldest.clear();
    }
    /// Put a victim back at the front: the engine could not take it just now.
    pub fn put_back(&mut self, tier: TierId, slot: Slot) {
        self.hands[usize::from(tier.0)].ready.push_front(slot.0);
    }
}

impl Collector for WsClock {
    fn name(&self) -> &'static str {
        "wsclock"
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.upper = view.geo().tier_slots(view.geo().slowest()).start;
        self.hands = alloc::vec![Hand::default(); usize::from(view.geo().tiers())];
    }
    fn touch(&mut self, view: &mut View<'_>, access: &Access) {
        let s = view.stat(access.extent);
        let usage = (Self::usage(s) + 1).min(USAGE_MAX);
        let mark = if access.served().is_some_and(|h| h.0 < self.upper) {
            MARK
        } else {
            0
        };
        view.set_stat(access.extent, (s & !USAGE_MAX) | usage | mark);
        view.set_last(access.extent, access.now);
    }
    fn placed(&mut self, view: &mut View<'_>, extent: ExtentId, slot: Slot) {
        let s = Self::with_misses(view.stat(extent), 0) & !MARK;
        view.set_stat(extent, if slot.0 < self.upper { s | MARK } else { s });
    }
    fn left(&mut self, _view: &mut View<'_>, _extent: ExtentId, _slot: Slot) {}
    fn coldest(&mut self, view: &mut View<'_>, tier: TierId) -> Option<ExtentId> {
        // What a fruitless turn lined up stays good as long as it is not accessed: one turn serves many calls.
        self.victim(view, tier, &[])
    }
    fn rank(&self, view: &View<'_>, extent: ExtentId) -> Rank {
        (view.last(extent).0, 0)
    }
    fn bytes(&self) -> usize {
        self.hands.len() * (size_of::<Hand>() + BATCH * 20)
    }
}
