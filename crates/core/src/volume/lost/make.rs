//! How a list is made: from what is lost now, and from the list before.

use super::list::{ListOf, PAGE_BITS, PAGE_WORDS, Page, chunk_of, words};
use super::{LostBlocks, LostPart};
use crate::units::MemberId;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Granules grow up to 2^`SHIFT_MAX` times the smallest size. One page is enough for every disk then.
pub const SHIFT_MAX: u32 = 32;

/// Rules of a new list that tests take out. The default has all of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// It is in the place of the list before, not in the other one.
    pub in_place: bool,
    /// A granule is lost only if all of its blocks are.
    pub inward: bool,
    /// A list of which a page could not be read stays as it is.
    pub keeps_damaged: bool,
}

impl LostBlocks {
    /// Adds what is lost now: `exact`, or else all blocks of the extents that `marked` has for each disk. A list that is another one now has
    /// `number`, and its pages are to be written before a mark names it. A list of which pages were not readable is made anew, too, and one
    /// that has larger granules than it needs.
    pub fn lose(
        &mut self,
        exact: Option<&[LostPart]>,
        marked: &[(MemberId, Vec<Range<u32>>)],
        number: u64,
        how: How,
    ) {
        let mut new: Vec<Vec<Range<u64>>> = vec![Vec::new(); self.disks.len()];
        for part in exact.into_iter().flatten() {
            if let Some((d, blocks)) = self.place_of(*part) {
                new[d].push(blocks);
            }
        }
        let marked = if exact.is_none() { marked } else { &[] };
        for (m, extents) in marked {
            let Some(d) = self.disks.iter().position(|d| d.member == *m) else {
                continue;
            };
            let extent = self.scale.extent;
            let blocks = |r: &Range<u32>| u64::from(r.start) << extent..u64::from(r.end) << extent;
            let here = extents.iter().map(|r| self.disks[d].on_disk(&blocks(r)));
            new[d].extend(here.filter(|b| !b.is_empty()));
        }
        for (d, new) in self.disks.iter_mut().zip(&new) {
            let damaged = d.lacks_pages && !how.keeps_damaged;
            if !new.is_empty() || damaged || d.is_too_coarse() {
                d.renew(new, number, how);
            }
        }
        self.count();
    }
}

impl ListOf {
    /// Whether the lost blocks and these need no more pages than there may be, with granules of 2^`shift` times the smallest size.
    fn fits(&self, shift: u32, new: &[Range<u64>]) -> bool {
        let grain = self.scale.unit + shift;
        let (mut chunks, mut last) = (BTreeSet::new(), None);
        let mut add = |blocks: &Range<u64>| {
            let of = |b: u64| chunk_of(b >> grain);
            (of(blocks.start)..=of(blocks.end - 1)).all(|c| {
                if last != Some(c) {
                    last = Some(c);
                    chunks.insert(c);
                }
                chunks.len() <= self.most as usize
            })
        };
        self.each_lost_blocks(&mut |b| add(&b)) && new.iter().all(add)
    }
    fn fitting(&self, new: &[Range<u64>]) -> u32 {
        let mut shifts = 0..SHIFT_MAX;
        shifts.find(|&s| self.fits(s, new)).unwrap_or(SHIFT_MAX)
    }
    fn is_too_coarse(&self) -> bool {
        self.shift > 0 && self.fits(self.shift - 1, &[])
    }
    fn each_lost_blocks(&self, each: &mut impl FnMut(Range<u64>) -> bool) -> bool {
        self.each_lost(&mut |g| each(self.blocks_of(g.start).start..self.blocks_of(g.end - 1).end))
    }
    /// Makes the list anew, with these blocks in addition.
    fn renew(&mut self, new: &[Range<u64>], number: u64, how: How) {
        let mut next = ListOf::new(self.scale, self.member, self.extents.clone(), self.most);
        next.shift = self.fitting(new);
        self.each_lost_blocks(&mut |b| {
            next.add(&b, how);
            true
        });
        for b in new {
            next.add(b, how);
        }
        for (at, page) in (0..).zip(next.pages.values_mut()) {
            page.at = at;
        }
        next.number = number.max(1);
        next.place = self.place ^ u8::from(!how.in_place);
        *self = next;
    }
    fn add(&mut self, blocks: &Range<u64>, how: How) {
        let granules = if how.inward {
            self.within(blocks)
        } else {
            self.around(blocks)
        };
        if granules.is_empty() {
            return;
        }
        for (chunk, word, mask) in words(&granules) {
            let page = self.pages.entry(chunk).or_insert_with(|| Page {
                at: 0,
                words: Box::new([u64::MAX; PAGE_WORDS]),
                changed: false,
                flying: false,
            });
            page.words[word] &= !mask;
        }
    }
}

/// Number of chunks of a disk with `blocks` blocks, of which a granule has 2^`grain`: at most 2^27.
pub fn pages_for(blocks: u64, grain: u32) -> u64 {
    blocks.div_ceil(1 << grain).div_ceil(PAGE_BITS)
}
