//! The rows of a cache volume: for each fast slot the extent whose copy it holds. Homes follow from addresses, so an extent without a copy
//! has no row, and nothing here grows with the slowest tier.
//!
//! Statistics of extents without a copy are in a table of bounded size ([`Past`]). It exists once a policy has stored bits of such an
//! extent: most policies keep what they know of these in tables of their own, and then neither memory nor time is spent here.

use super::rows::{Row, Stats};
use super::{NO_OWNER, UNMAPPED};
use crate::node_index::NodeIndex;
use crate::units::{ExtentId, Nanos};
use crate::volume::geometry::Geometry;
use crate::volume::past::{PAST_FLOOR, Past};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

/// Number of answers that are kept: one line of the processor's cache.
const ANSWERS: usize = 8;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct ByCopy {
    /// By slot of the faster tiers: its extent, or [`NO_OWNER`].
    pub(super) rows: Vec<Row>,
    index: NodeIndex,
    /// The last answers of the index: an extent, and the slot of its copy or [`UNMAPPED`]. An access asks for the same extent many times.
    answers: [Cell<(u32, u32)>; ANSWERS],
    past: Option<Past<Stats>>,
    /// The lowest number of entries of `past`.
    past_floor: u32,
    /// The home of extent 0.
    first: u32,
    pub(super) extents: u32,
}

impl ByCopy {
    pub(super) fn new(geo: &Geometry, past_floor: u32) -> ByCopy {
        let first = geo.tier_slots(geo.slowest()).start;
        ByCopy {
            rows: vec![Row::EMPTY; first as usize],
            index: NodeIndex::new(first),
            answers: [const { Cell::new((NO_OWNER, UNMAPPED)) }; ANSWERS],
            past: None,
            past_floor,
            first,
            extents: geo.extents,
        }
    }
    #[inline]
    pub(super) fn home(&self, e: u32) -> u32 {
        debug_assert!(e < self.extents);
        self.first + e
    }
    #[inline]
    pub(super) fn copy(&self, e: u32) -> Option<u32> {
        let answer = &self.answers[e as usize % ANSWERS];
        let (known, mut slot) = answer.get();
        if known != e {
            let found = self.index.get(e, |s| self.rows[s as usize].place);
            slot = found.unwrap_or(UNMAPPED);
            answer.set((e, slot));
        }
        (slot != UNMAPPED).then_some(slot)
    }
    #[inline]
    pub(super) fn touch(&self, e: u32) -> u32 {
        self.index.touch(e)
    }
    #[inline]
    pub(super) fn owner(&self, slot: u32) -> Option<u32> {
        let e = self.rows.get(slot as usize)?.place;
        if e == NO_OWNER {
            return None;
        }
        // A walk over the slots asks about each extent next.
        self.answers[e as usize % ANSWERS].set((e, slot));
        Some(e)
    }
    pub(super) fn add_copy(&mut self, e: u32, slot: u32) {
        assert!(e < self.extents, "a copy of nothing");
        self.index.insert(e, slot);
        self.answers[e as usize % ANSWERS].set((e, slot));
        let past = self.past.as_mut().and_then(|p| p.take(ExtentId(e)));
        self.rows[slot as usize] = Row {
            place: e,
            stats: past.unwrap_or_default(),
        };
    }
    pub(super) fn drop_copy(&mut self, e: u32, slot: u32) {
        let rows = &self.rows;
        self.index.remove(e, |s| rows[s as usize].place);
        self.answers[e as usize % ANSWERS].set((e, UNMAPPED));
        let row = core::mem::replace(&mut self.rows[slot as usize], Row::EMPTY);
        if self.past.is_some() || row.stats.stat != 0 {
            self.past().put(ExtentId(e), row.stats);
        }
    }
    /// Number of entries that the table of extents without a copy has, or would have.
    pub(super) fn past_entries(&self) -> u32 {
        Past::<Stats>::entries(self.extents, self.rows.len() as u32, self.past_floor)
    }
    fn past(&mut self) -> &mut Past<Stats> {
        let (units, entries) = (self.extents, self.past_entries());
        self.past.get_or_insert_with(|| Past::new(units, entries))
    }
    #[inline]
    pub(super) fn stats(&self, e: u32) -> Stats {
        match self.copy(e) {
            Some(s) => self.rows[s as usize].stats,
            None => self.of_past(e),
        }
    }
    fn of_past(&self, e: u32) -> Stats {
        let past = self.past.as_ref().and_then(|p| p.get(ExtentId(e)));
        past.unwrap_or_default()
    }
    #[inline]
    pub(super) fn set_last(&mut self, e: u32, t: Nanos) {
        if let Some(s) = self.copy(e) {
            self.rows[s as usize].stats.set_last(t);
        } else if let Some(past) = &mut self.past {
            let mut stats = past.get(ExtentId(e)).unwrap_or_default();
            stats.set_last(t);
            past.put(ExtentId(e), stats);
        }
    }
    pub(super) fn set_stat(&mut self, e: u32, v: u16) {
        if let Some(s) = self.copy(e) {
            self.rows[s as usize].stats.stat = v;
        } else if v != 0 || self.past.is_some() {
            let mut stats = self.of_past(e);
            stats.stat = v;
            self.past().put(ExtentId(e), stats);
        }
    }
    pub(super) fn forget_stats(&mut self) {
        self.rows.iter_mut().for_each(|r| r.stats.stat = 0);
        self.past = None;
    }
    pub(super) fn forget(&mut self, e: u32) {
        if let Some(s) = self.copy(e) {
            self.rows[s as usize].stats = Stats::default();
        } else if let Some(past) = &mut self.past {
            past.take(ExtentId(e));
        }
    }
    pub(super) fn bytes(&self) -> usize {
        let past = self.past.as_ref().map_or(0, Past::bytes);
        self.rows.len() * size_of::<Row>() + self.index.bytes() + past
    }
    pub(super) fn estimate(geo: &Geometry) -> (u64, u64) {
        let fast = geo.tier_slots(geo.slowest()).start;
        let past = Past::<Stats>::entries(geo.extents, fast, PAST_FLOOR);
        let rows = u64::from(fast) * size_of::<Row>() as u64;
        (
            rows + NodeIndex::estimate(fast),
            Past::<Stats>::estimate(past),
        )
    }
    pub(super) fn tables(&self) -> [(usize, usize); 2] {
        let rows = (self.rows.as_ptr().addr(), size_of_val(&*self.rows));
        [rows, self.index.place()]
    }
}
