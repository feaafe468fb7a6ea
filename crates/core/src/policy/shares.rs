//! Divides a fast tier: each copy belongs to one of several shares, and each share has its own LRU order and limit.

use super::hold::{FAST, Passed, clear, leaves};
use super::{Action, View};
use crate::collector::Lists;
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// The share of each copy, and the LRU order in each share. 9 bytes per fast slot.
#[derive(Clone, Debug)]
pub struct Shares {
    lists: Lists,
    of: Vec<u8>,
    /// Per share: size of its copies, and its limit.
    have: Vec<u32>,
    limit: Vec<u32>,
    /// Per position: grains that the copy there takes. Only used if units differ in size.
    grains: Vec<u32>,
    /// Copies that were proposed, with their shares.
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
    /// Creates shares of these sizes; existing copies belong to the first share.
    pub fn new(view: &View<'_>, limit: Vec<u32>) -> Shares {
        let f = view.positions(FAST).end;
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
        for (position, e) in view.residents(FAST) {
            s.weigh(view, e, position.index());
            s.insert(position.index(), 0);
        }
        s
    }
    fn weight(&self, position: u32) -> u32 {
        self.grains.get(position as usize).copied().unwrap_or(1)
    }
    fn weigh(&mut self, view: &View<'_>, e: UnitId, position: u32) {
        if let Some(g) = self.grains.get_mut(position as usize) {
            *g = view.weight(e);
        }
    }
    fn insert(&mut self, position: u32, share: u8) {
        self.remove(position);
        self.of[position as usize] = share;
        self.have[usize::from(share)] += self.weight(position);
        self.lists.push_tail(u32::from(share), position);
    }
    /// The copy in that position was removed.
    pub fn remove(&mut self, position: u32) {
        if self.lists.contains(position) {
            self.have[usize::from(self.of[position as usize])] -= self.weight(position);
            self.lists.unlink(position);
        }
    }
    /// Whether a copy was proposed and is not there yet.
    pub fn is_coming(&self, extent: UnitId) -> bool {
        self.coming.iter().any(|c| c.0 == extent)
    }
    /// A copy for that share was proposed.
    pub fn expect(&mut self, extent: UnitId, share: u8) {
        self.coming.push((extent, share));
    }
    /// The copy was not made.
    pub fn failed(&mut self, extent: UnitId) {
        self.coming.retain(|c| c.0 != extent);
    }
    /// `extent` has its copy in that position.
    pub fn arrived(&mut self, view: &View<'_>, extent: UnitId, position: u32) {
        self.remove(position);
        self.weigh(view, extent, position);
        let known = self.coming.iter().position(|c| c.0 == extent);
        let share = known.map_or(0, |i| self.coming.swap_remove(i).1);
        self.insert(position, share);
    }
    /// The copy in that position was used.
    pub fn touch(&mut self, position: u32) {
        self.insert(position, self.of[position as usize]);
    }
    /// The copy in that position belongs to `share` from now on, as its most recently used one.
    pub fn assign(&mut self, position: u32, share: u8) {
        self.insert(position, share);
    }
    /// The share to which the copy in that position belongs.
    pub fn of(&self, position: u32) -> u8 {
        self.of[position as usize]
    }
    /// Grains that the copies of the share take.
    pub fn have(&self, share: u8) -> u32 {
        self.have[usize::from(share)]
    }
    /// Number of grains that the share lacks for a copy of size `weight`. It is at most `weight`: if the share exceeds its limit while
    /// evictions are in progress, the room for that excess was already requested.
    pub fn missing_grains(&self, share: u8, weight: u32) -> u32 {
        let over = self.have[usize::from(share)] + weight;
        over.saturating_sub(self.limit[usize::from(share)])
            .min(weight)
    }
    /// Proposes to evict the least recently used copies of the share until `unit` fits; false if there are too few, or if it never fits.
    pub fn make_room(
        &self,
        view: &View<'_>,
        share: u8,
        unit: UnitId,
        wanted: &mut Vec<Action>,
    ) -> bool {
        let lacks = self.missing_grains(share, view.weight(unit));
        view.weight(unit) <= self.limit(share).max(1)
            && clear(view, lacks, wanted, |leaving| {
                self.oldest(view, share, leaving)
            })
    }
    /// Whether the sizes are known.
    pub fn limit_is_set(&self) -> bool {
        !self.limit.is_empty()
    }
    /// Grains that the share may have.
    pub fn limit(&self, share: u8) -> u32 {
        self.limit[usize::from(share)]
    }
    /// The least recently used copy of a share that is not busy and is not leaving already.
    pub fn oldest(&self, view: &View<'_>, share: u8, leaving: &[Action]) -> Option<UnitId> {
        let mut passed = Passed::default();
        self.by_age(view, share)
            .find(|&e| !passed.over(view, e) && !leaves(leaving, e))
            .filter(|_| !passed.is_limit())
    }
    /// The copies of a share, least recently used first.
    pub fn by_age<'a>(
        &'a self,
        view: &'a View<'_>,
        share: u8,
    ) -> impl Iterator<Item = UnitId> + 'a {
        let head = self.lists.head(u32::from(share));
        core::iter::successors(head, |&s| self.lists.next(s))
            .filter_map(|s| view.owner(view.position(s)))
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.lists.bytes() + self.of.len()
    }
}
