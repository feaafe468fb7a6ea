//! `s3-fifo`: three first-in-first-out queues (Yang et al., SOSP '23; docs/policy-rules.md section 1, the variant that libCacheSim
//! names S3FIFO-0.1000-2).
//!
//! Newcomers enter a small queue of max(1, ⌊F/10⌋) units. At the end of that queue, a unit that was hit twice since its fetch moves to the
//! main queue; the others are evicted and leave a ghost. The number of ghosts is the number of places in main. A miss found among the
//! ghosts enters main at once. In main, a unit that was hit is inserted again with min(hits, 3) − 1 hits left; units evicted from main
//! leave no ghost. Until the first eviction, newcomers enter main if the small queue is full: libCacheSim fills an empty cache in this way
//! (found by comparing miss ratios over sizes; docs/policy-rules.md does not mention it).
//!
//! Parameters: none. When not to use it: under about twenty fast slots, where the small queue is one unit.

use super::{Ghosts, Replacement};
use crate::collector::Lists;
use crate::policy::Access;
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct S3Fifo {
    lists: Lists,
    /// Hits since the fetch or since the unit entered main, at most [`HITS_MAX`]; and the bit [`IN_MAIN`].
    marks: Vec<u8>,
    len: [u32; 2],
    main_most: u32,
    /// Whether there has been no eviction yet.
    filling: bool,
    ghosts: Ghosts,
    /// Newcomers that were found among the ghosts and whose fetch is in progress.
    returning: Vec<u32>,
}

const SMALL: u32 = 0;
const MAIN: u32 = 1;
const IN_MAIN: u8 = 0x80;
const HITS_MAX: u8 = 3;
/// Number of hits in the small queue after which a unit moves to main.
const HITS_TO_MOVE: u8 = 2;

impl Default for S3Fifo {
    fn default() -> S3Fifo {
        S3Fifo {
            lists: Lists::new(0, 2),
            marks: Vec::new(),
            len: [0; 2],
            main_most: 0,
            filling: true,
            ghosts: Ghosts::new(0, 1),
            returning: Vec::new(),
        }
    }
}

impl S3Fifo {
    fn small_most(&self) -> u32 {
        self.marks.len() as u32 - self.main_most
    }
    fn enter(&mut self, slot: u32, list: u32, hits: u8) {
        self.lists.push_tail(list, slot);
        self.marks[slot as usize] = hits | if list == MAIN { IN_MAIN } else { 0 };
        self.len[list as usize] += 1;
    }
    fn leave(&mut self, slot: u32) -> u32 {
        let list = u32::from(self.marks[slot as usize] >= IN_MAIN);
        self.lists.unlink(slot);
        self.len[list as usize] -= 1;
        list
    }
    /// The oldest unit of the small queue that was not hit twice. Units that were hit twice move to main.
    fn small_victim(&mut self, busy: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.lists.head(SMALL);
        while let Some(s) = at {
            at = self.lists.next(s);
            if busy(s) {
                continue;
            }
            if self.marks[s as usize] < HITS_TO_MOVE {
                return Some(s);
            }
            self.leave(s);
            self.enter(s, MAIN, 0);
        }
        None
    }
    /// The oldest unit of main without hits left. Units with hits left are inserted again.
    fn main_victim(&mut self, busy: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        // A unit has at most three hits, so the fourth round finds a victim unless all are busy.
        for _ in 0..=HITS_MAX {
            let mut left = self.len[MAIN as usize];
            let mut at = self.lists.head(MAIN);
            while let Some(s) = at.filter(|_| left > 0) {
                left -= 1;
                at = self.lists.next(s);
                if busy(s) {
                    continue;
                }
                let hits = self.marks[s as usize] & !IN_MAIN;
                if hits == 0 {
                    return Some(s);
                }
                self.leave(s);
                self.enter(s, MAIN, hits.min(HITS_MAX) - 1);
                at = at.or(Some(s));
            }
        }
        None
    }
}

impl Replacement for S3Fifo {
    fn attach(&mut self, slots: u32, _extents: u32) {
        self.main_most = slots - (slots / 10).max(1);
        self.lists = Lists::new(slots, 2);
        self.marks = vec![0; slots as usize];
        self.len = [0; 2];
        self.filling = true;
        self.ghosts = Ghosts::new(self.main_most, 1);
    }
    #[inline]
    fn hit(&mut self, slot: u32, _access: &Access) {
        let m = &mut self.marks[slot as usize];
        if *m & !IN_MAIN < HITS_MAX {
            *m += 1;
        }
    }
    #[inline]
    fn admit(&mut self, access: &Access, _full: bool) -> bool {
        if self.ghosts.take(access.extent.0).is_some() {
            self.returning.push(access.extent.0);
        }
        true
    }
    #[inline]
    fn victim(&mut self, _newcomer: UnitId, mut busy: impl FnMut(u32) -> bool) -> Option<u32> {
        self.filling = false;
        if self.len[MAIN as usize] <= self.main_most
            && let Some(s) = self.small_victim(&mut busy)
        {
            return Some(s);
        }
        // Main exceeds its size, or the small queue has no victim.
        match self.main_victim(&mut busy) {
            Some(s) => Some(s),
            None => self.small_victim(&mut busy),
        }
    }
    #[inline]
    fn inserted(&mut self, slot: u32, extent: UnitId, _write: bool) {
        let at = self.returning.iter().position(|r| *r == extent.0);
        let list = match at {
            Some(i) => {
                self.returning.swap_remove(i);
                MAIN
            }
            None if self.filling && self.len[SMALL as usize] >= self.small_most() => MAIN,
            None => SMALL,
        };
        self.enter(slot, list, 0);
    }
    fn refused(&mut self, extent: UnitId) {
        if let Some(i) = self.returning.iter().position(|r| *r == extent.0) {
            self.returning.swap_remove(i);
            self.ghosts.push(0, extent.0);
        }
    }
    #[inline]
    fn removed(&mut self, slot: u32, extent: UnitId) {
        if self.leave(slot) == SMALL {
            self.ghosts.push(0, extent.0);
        }
    }
    fn bytes(&self) -> usize {
        self.lists.bytes() + self.marks.len() + self.ghosts.bytes() + self.returning.capacity() * 4
    }
}
