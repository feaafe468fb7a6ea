//! The choice between two orders: a new extent may replace the least valuable copy (the *usual* order), or copies *stay* unless the new
//! extent was worth more even before its present access.
//!
//! In the usual order the present access counts for the new extent. That follows a working set that moves. But if a set that is larger than
//! flash is read repeatedly in the same order, each copy is replaced shortly before its next use. If copies stay, a part of the set stays,
//! and is hit in each round. (Insertion at the cold end does the same: Qureshi, Jaleel, Patt, Steely, Emer, ISCA 2007.)
//!
//! Two miniature caches, one for each order, see the accesses to a sample of the extents. The sample is the share of all extents that a
//! miniature has of the fast slots, and is chosen by a hash (Waldspurger, Saemundsson, Ahmad, Park, ATC 2017). What a cache saves is
//! compared in reads: the savings of its hits, minus the cost of its copies. Older comparisons count less as flash is filled. Copies begin
//! to stay when their miniature leads by a clear margin both over the other one and over flash itself, and cease to when its lead is
//! half of that, or when a quarter of flash missed without an access to the sample. So nothing differs where neither order is much better.
//! A wrong choice costs a part of the hits of one flash. If flash has fewer slots than a miniature, the usual order holds.

use super::score::Scores;
use super::victims::{draw_result, next_seed};
use super::without::Part;
use super::{Benefit, FAST};
use crate::policy::{Access, View};
use crate::volume::UnitId;
use alloc::vec::Vec;

/// Number of slots of a miniature cache.
const SLOTS: u32 = 256;
/// Number of slots from which a victim is chosen.
const CHOICE: u32 = 16;
/// Number of slots that are searched at once.
const GROUP: usize = 32;
/// Copies begin to stay if that saves a read in one of this number of accesses.
const MARGIN: i64 = 8;
/// The saving of a read, the unit in which the orders are compared.
const READ: i64 = 1 << 10;

/// An access to an extent of the sample. Times are nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Sampled {
    extent: UnitId,
    /// Its score, including this access.
    entry: (u32, u32),
    /// Its worth before this access.
    before: u64,
    /// How much more than the copy that it replaces a new copy must be worth; `None`: the access bypasses the cache.
    price: Option<u64>,
    /// What a hit saves, and what a hit of a read would save.
    saves: u64,
    read: u64,
    /// Whether flash served it.
    is_hit: bool,
}

/// A miniature cache.
#[derive(Clone, Debug, Default)]
struct Miniature {
    extents: Vec<UnitId>,
    /// For each slot: the score of the extent at its last access.
    entries: Vec<(u32, u32)>,
}

impl Miniature {
    fn is_full(&self) -> bool {
        self.extents.len() as u32 >= SLOTS
    }
    /// The slot of an extent. The comparisons within a group have no branches, so that the processor makes several at once.
    #[inline]
    fn slot_of(&self, e: UnitId) -> Option<usize> {
        let has = |group: &[UnitId]| {
            let found = group.iter().fold(0, |n, x| n | u32::from(*x == e));
            found > 0
        };
        let first = self.extents.chunks(GROUP).position(has)? * GROUP;
        let within = self.extents[first..].iter().position(|x| *x == e)?;
        Some(first + within)
    }
    fn put(&mut self, e: UnitId, entry: (u32, u32)) {
        self.extents.push(e);
        self.entries.push(entry);
    }
    /// An access. If it misses, `worth` of the extent counts against the copies. The search for a victim begins at slot `start`. Returns
    /// what the cache saves, nanoseconds.
    fn access(&mut self, scores: &Scores, a: &Sampled, worth: u64, start: u32) -> i64 {
        if let Some(i) = self.slot_of(a.extent) {
            self.entries[i] = a.entry;
            return bounded(a.saves);
        }
        let Some(price) = a.price else {
            return 0;
        };
        if !self.is_full() {
            self.put(a.extent, a.entry);
            return -bounded(price);
        }
        let slots = (0..CHOICE).map(|i| ((start + i * (SLOTS / CHOICE)) % SLOTS) as usize);
        let victim = slots
            .map(|i| (scores.worth_of(self.entries[i]), i))
            .min()
            .filter(|v| worth > v.0.saturating_add(price));
        let Some((_, i)) = victim else {
            return 0;
        };
        self.extents[i] = a.extent;
        self.entries[i] = a.entry;
        -bounded(price)
    }
}

/// See the module. All values are integers, so that a replay makes the same decisions.
#[derive(Clone, Debug, Default)]
pub(super) struct Duel {
    fast_slots: u32,
    /// Extents whose hash is less are in the sample.
    sample: u32,
    usual: Miniature,
    staying: Miniature,
    /// What the staying miniature saved more than the usual one, and more than flash did, in [`READ`]ths of a read.
    lead: i64,
    lead_over_flash: i64,
    stays: bool,
    seed: u64,
    /// The clock of the scores at the last access to the sample, misses.
    last: u32,
}

impl Duel {
    /// For a volume with this number of fast slots.
    pub fn new(fast_slots: u32) -> Duel {
        let share = (u64::from(SLOTS) << 32).checked_div(fast_slots.into());
        let sample = share.filter(|_| fast_slots >= SLOTS).unwrap_or(0);
        Duel {
            fast_slots,
            sample: u32::try_from(sample).unwrap_or(u32::MAX),
            seed: 0x9e37_79b9_7f4a_7c15,
            ..Duel::default()
        }
    }
    /// Whether accesses to this extent are compared. Consecutive extents are spread evenly.
    #[inline]
    pub fn samples(&self, e: UnitId) -> bool {
        e.0.wrapping_mul(0x9e37_79b9) < self.sample
    }
    /// A copy of this extent exists already, when the volume is opened.
    pub fn found(&mut self, e: UnitId, entry: (u32, u32)) {
        if self.samples(e) && !self.usual.is_full() {
            self.usual.put(e, entry);
            self.staying.put(e, entry);
        }
    }
    fn note(&mut self, scores: &Scores, a: &Sampled) {
        self.last = scores.clock();
        self.seed = next_seed(self.seed);
        let start = draw_result(self.seed, SLOTS);
        let worth = scores.worth_of(a.entry);
        let usual = self.usual.access(scores, a, worth, start);
        let staying = self.staying.access(scores, a, a.before, start);
        let flash = if a.is_hit { bounded(a.saves) } else { 0 };
        let all = i64::from(SLOTS);
        let reads = |ns: i64| ns * READ / bounded(a.read);
        self.lead += reads(staying - usual) - self.lead / all;
        self.lead_over_flash += reads(staying - flash) - self.lead_over_flash / all;
        let margin = READ * all / MARGIN;
        self.stays = if self.stays {
            self.lead > margin / 2
        } else {
            self.lead.min(self.lead_over_flash) > margin
        };
    }
    /// A miss. `clock`: that of the scores.
    #[inline]
    pub fn note_miss(&mut self, clock: u32) {
        if self.stays && clock.wrapping_sub(self.last) > self.fast_slots / 4 {
            (self.stays, self.lead, self.lead_over_flash) = (false, 0, 0);
        }
    }
    /// Whether copies stay.
    #[inline]
    pub fn stays(&self) -> bool {
        self.stays
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        let each = size_of::<UnitId>() + size_of::<(u32, u32)>();
        (self.usual.extents.capacity() + self.staying.extents.capacity()) * each
    }
}

/// Limits a time to 18 minutes, so that sums cannot overflow.
fn bounded(ns: u64) -> i64 {
    ns.clamp(1, 1 << 40) as i64
}

impl Benefit {
    /// Compares the orders by an access, if its extent is in the sample. `before`: the worth of the extent before it; `run`: as in
    /// [`Benefit::bypasses`].
    #[inline]
    pub(super) fn compare_orders(&mut self, view: &View<'_>, a: &Access, before: u64, run: u64) {
        if self.duel.samples(a.extent) {
            self.compare_on_sample(view, a, before, run);
        }
    }
    fn compare_on_sample(&mut self, view: &View<'_>, a: &Access, before: u64, run: u64) {
        let copy = a.copy.filter(|c| view.tier_of(*c) == FAST);
        let price = self.copy_price(view, a.extent);
        let sampled = Sampled {
            extent: a.extent,
            entry: self.scores.entry(a.extent, copy),
            before,
            price: (!self.bypasses(view, a, run)).then_some(price),
            saves: Benefit::hit_saves(view, a),
            read: Benefit::time_saved(view),
            is_hit: copy.is_some() && (a.write || view.holds(a)),
        };
        self.duel.note(&self.scores, &sampled);
    }
    /// Whether the order is used in which copies stay.
    #[inline]
    pub(super) fn copies_stay(&self) -> bool {
        self.duel.stays() && self.has(Part::Duel) && self.has(Part::Worth)
    }
    /// What counts of an extent against the copies that it may replace: its `worth`, or if copies stay, that `before` its present access.
    pub(super) fn worth_against_copies(
        &self,
        view: &View<'_>,
        access: &Access,
        before: u64,
        worth: u64,
    ) -> u64 {
        if !self.copies_stay() {
            return worth;
        }
        let class = (self.class_of(view, access.extent), self.one_access(view));
        self.worth_in_order(view, before, access.extent, class)
    }
}
