//! A fast tier that is divided: copies belong to one of several shares, each with an LRU order of its own and a limit.

use super::View;
use super::hold::FAST;
use crate::collector::Lists;
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// Which share a copy belongs to, and in which order they were used. 9 bytes a fast slot.
#[derive(Clone, Debug)]
pub struct Shares {
    lists: Lists,
    of: Vec<u8>,
    /// By share: copies it has, copies it may have.
    have: Vec<u32>,
    limit: Vec<u32>,
    /// Copies asked for, and for which share.
    coming: Vec<(UnitId, u8)>,
}

impl Default for Shares {
    fn default() -> Shares {
        Shares {
            lists: Lists::new(0, 0),
            of: Vec::new(),
            have: Vec::new(),
            limit: Vec::new(),
            coming: Vec::new(),
        }
    }
}

impl Shares {
    /// Shares of those sizes; copies that are there already belong to the first.
    pub fn new(view: &View<'_>, limit: Vec<u32>) -> Shares {
        let f = view.seats(FAST).end;
        let mut s = Shares {
            lists: Lists::new(f, limit.len() as u32),
            of: vec![0; f as usize],
            have: vec![0; limit.len()],
            limit,
            coming: Vec::new(),
        };
        for seat in (0..f).filter(|&x| view.owner(view.seat(x)).is_some()) {
            s.insert(seat, 0);
        }
        s
    }
    fn insert(&mut self, seat: u32, share: u8) {
        self.remove(seat);
        self.of[seat as usize] = share;
        self.have[usize::from(share)] += 1;
        self.lists.push_tail(u32::from(share), seat);
    }
    /// The copy in `slot` is gone.
    pub fn remove(&mut self, seat: u32) {
        if self.lists.contains(seat) {
            self.have[usize::from(self.of[seat as usize])] -= 1;
            self.lists.unlink(seat);
        }
    }
    /// Was a copy asked for that is not there yet?
    pub fn is_coming(&self, extent: UnitId) -> bool {
        self.coming.iter().any(|c| c.0 == extent)
    }
    /// A copy for that share was asked for.
    pub fn expect(&mut self, extent: UnitId, share: u8) {
        self.coming.push((extent, share));
    }
    /// It was not made.
    pub fn failed(&mut self, extent: UnitId) {
        self.coming.retain(|c| c.0 != extent);
    }
    /// `extent` has its copy in `slot`.
    pub fn arrived(&mut self, extent: UnitId, seat: u32) {
        let known = self.coming.iter().position(|c| c.0 == extent);
        let share = known.map_or(0, |i| self.coming.swap_remove(i).1);
        self.insert(seat, share);
    }
    /// The copy in `slot` was used.
    pub fn touch(&mut self, seat: u32) {
        self.insert(seat, self.of[seat as usize]);
    }
    /// The copy in `slot` belongs to `share` from now on, as its most recently used one.
    pub fn assign(&mut self, seat: u32, share: u8) {
        self.insert(seat, share);
    }
    /// Which share the copy in `slot` belongs to.
    pub fn of(&self, seat: u32) -> u8 {
        self.of[seat as usize]
    }
    /// Copies that the share has.
    pub fn have(&self, share: u8) -> u32 {
        self.have[usize::from(share)]
    }
    /// Has the share all that it may have?
    pub fn is_full(&self, share: u8) -> bool {
        self.have[usize::from(share)] >= self.limit[usize::from(share)]
    }
    /// Are the sizes known yet?
    pub fn limit_is_set(&self) -> bool {
        !self.limit.is_empty()
    }
    /// Copies that the share may have.
    pub fn limit(&self, share: u8) -> u32 {
        self.limit[usize::from(share)]
    }
    /// The least recently used copy of a share that is not busy.
    pub fn oldest(&self, view: &View<'_>, share: u8) -> Option<UnitId> {
        self.by_age(view, share).find(|&e| !view.is_held(e))
    }
    /// The copies of a share, least recently used first.
    pub fn by_age<'a>(
        &'a self,
        view: &'a View<'_>,
        share: u8,
    ) -> impl Iterator<Item = UnitId> + 'a {
        let head = self.lists.head(u32::from(share));
        core::iter::successors(head, |&s| self.lists.next(s))
            .filter_map(|s| view.owner(view.seat(s)))
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.lists.bytes() + self.of.len()
    }
}
