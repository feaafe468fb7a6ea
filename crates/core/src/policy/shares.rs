//! A fast tier that is divided: copies belong to one of several shares, each with an LRU order of its own and a limit.

use super::hold::{FAST, clear, leaves};
use super::{Action, View};
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
    /// By seat, where units have sizes of their own: grains that the copy there takes.
    grains: Vec<u32>,
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
            grains: Vec::new(),
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
            grains: if view.is_uniform() {
                Vec::new()
            } else {
                vec![0; f as usize]
            },
            coming: Vec::new(),
        };
        for (seat, e) in view.residents(FAST) {
            s.weigh(view, e, seat.index());
            s.insert(seat.index(), 0);
        }
        s
    }
    fn weight(&self, slot: u32) -> u32 {
        self.grains.get(slot as usize).copied().unwrap_or(1)
    }
    fn weigh(&mut self, view: &View<'_>, e: UnitId, slot: u32) {
        if let Some(g) = self.grains.get_mut(slot as usize) {
            *g = view.weight(e);
        }
    }
    fn insert(&mut self, seat: u32, share: u8) {
        self.remove(seat);
        self.of[seat as usize] = share;
        self.have[usize::from(share)] += self.weight(seat);
        self.lists.push_tail(u32::from(share), seat);
    }
    /// The copy in that seat is gone.
    pub fn remove(&mut self, seat: u32) {
        if self.lists.contains(seat) {
            self.have[usize::from(self.of[seat as usize])] -= self.weight(seat);
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
    /// `extent` has its copy in that seat.
    pub fn arrived(&mut self, view: &View<'_>, extent: UnitId, seat: u32) {
        self.remove(seat);
        self.weigh(view, extent, seat);
        let known = self.coming.iter().position(|c| c.0 == extent);
        let share = known.map_or(0, |i| self.coming.swap_remove(i).1);
        self.insert(seat, share);
    }
    /// The copy in that seat was used.
    pub fn touch(&mut self, seat: u32) {
        self.insert(seat, self.of[seat as usize]);
    }
    /// The copy in that seat belongs to `share` from now on, as its most recently used one.
    pub fn assign(&mut self, seat: u32, share: u8) {
        self.insert(seat, share);
    }
    /// Which share the copy in that seat belongs to.
    pub fn of(&self, seat: u32) -> u8 {
        self.of[seat as usize]
    }
    /// Grains that the copies of the share take.
    pub fn have(&self, share: u8) -> u32 {
        self.have[usize::from(share)]
    }
    /// Grains that the share lacks for a copy that takes `weight`: no more than that, since copies that are over the limit
    /// while others leave were paid for by those who asked for them.
    pub fn lacks(&self, share: u8, weight: u32) -> u32 {
        let over = self.have[usize::from(share)] + weight;
        over.saturating_sub(self.limit[usize::from(share)])
            .min(weight)
    }
    /// Ask the least recently used of the share to leave until `unit` fits; false if there are not enough, or it never would.
    pub fn make_room(
        &self,
        view: &View<'_>,
        share: u8,
        unit: UnitId,
        wanted: &mut Vec<Action>,
    ) -> bool {
        let lacks = self.lacks(share, view.weight(unit));
        view.weight(unit) <= self.limit(share).max(1)
            && clear(view, lacks, wanted, |leaving| {
                self.oldest(view, share, leaving)
            })
    }
    /// Are the sizes known yet?
    pub fn limit_is_set(&self) -> bool {
        !self.limit.is_empty()
    }
    /// Grains that the share may have.
    pub fn limit(&self, share: u8) -> u32 {
        self.limit[usize::from(share)]
    }
    /// The least recently used copy of a share that is not busy and is not leaving already.
    pub fn oldest(&self, view: &View<'_>, share: u8, leaving: &[Action]) -> Option<UnitId> {
        self.by_age(view, share)
            .find(|&e| !view.is_held(e) && !leaves(leaving, e))
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
