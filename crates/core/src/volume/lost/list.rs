//! The list of one disk.
//!
//! Its pages have a bit for each of [`PAGE_BITS`] granules, which are a *chunk* of the disk: set if the granule was never lost, or was written
//! since. A chunk without a page has no lost granule. But if a page could not be read, nobody knows which chunk it was: then all granules of
//! chunks without a page are lost, if they are in a listed region.

use super::super::regions::{REGIONS, Regions};
use crate::units::MemberId;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Number of words of a page.
pub const PAGE_WORDS: usize = 496;
/// Number of granules of a chunk.
pub const PAGE_BITS: u64 = PAGE_WORDS as u64 * 64;

/// The bits of a page.
pub type Words = [u64; PAGE_WORDS];

/// log2 of the number of logical blocks in a region, in an extent, and in the smallest granule.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scale {
    pub(super) region: u32,
    pub(super) extent: u32,
    pub(super) unit: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Page {
    /// Its place in the list.
    pub(super) at: u32,
    pub(super) words: Box<Words>,
    /// Whether blocks were written since the last round began, or before it, so that it writes the page.
    pub(super) changed: bool,
    pub(super) flying: bool,
}

/// See the module. Blocks and granules are numbered from the start of the disk.
#[derive(Clone, Debug)]
pub struct ListOf {
    pub(super) scale: Scale,
    /// The disk.
    pub member: MemberId,
    /// The extents that are on it.
    pub(super) extents: Range<u32>,
    /// Largest number of pages.
    pub(super) most: u32,
    /// See [`super::ListHead`].
    pub number: u64,
    /// See [`super::ListHead`].
    pub place: u8,
    pub(super) shift: u32,
    pub(super) regions: Regions,
    /// By chunk.
    pub(super) pages: BTreeMap<u32, Page>,
    /// Whether a page could not be read.
    pub(super) lacks_pages: bool,
    /// Number of lost blocks.
    pub(super) lost: u64,
}

impl ListOf {
    pub(super) fn new(scale: Scale, member: MemberId, extents: Range<u32>, most: u32) -> ListOf {
        ListOf {
            scale,
            member,
            extents,
            most,
            number: 0,
            place: 0,
            shift: 0,
            regions: Regions::default(),
            pages: BTreeMap::new(),
            lacks_pages: false,
            lost: 0,
        }
    }
    /// The pages: place in the list, number of the chunk, bits.
    pub fn pages(&self) -> impl Iterator<Item = (u32, u32, &Words)> {
        let all = self.pages.iter();
        all.map(|(&chunk, p)| (p.at, chunk, &*p.words))
    }
    /// log2 of the number of blocks of a granule.
    pub(super) fn grain(&self) -> u32 {
        self.scale.unit + self.shift
    }
    /// Number of blocks of the disk.
    pub(super) fn blocks(&self) -> u64 {
        (self.extents.len() as u64) << self.scale.extent
    }
    /// Its first block in the volume.
    fn first(&self) -> u64 {
        u64::from(self.extents.start) << self.scale.extent
    }
    /// Those of these blocks of the volume that are on the disk.
    pub(super) fn on_disk(&self, blocks: &Range<u64>) -> Range<u64> {
        let at = |b: u64| b.saturating_sub(self.first()).min(self.blocks());
        at(blocks.start)..at(blocks.end)
    }
    /// The granules that have any of these blocks.
    pub(super) fn around(&self, blocks: &Range<u64>) -> Range<u64> {
        blocks.start >> self.grain()..blocks.end.div_ceil(1 << self.grain())
    }
    /// The granules that have no other blocks.
    pub(super) fn within(&self, blocks: &Range<u64>) -> Range<u64> {
        let end = if blocks.end == self.blocks() {
            blocks.end.div_ceil(1 << self.grain())
        } else {
            blocks.end >> self.grain()
        };
        blocks.start.div_ceil(1 << self.grain())..end
    }
    /// The blocks of a granule.
    pub(super) fn blocks_of(&self, g: u64) -> Range<u64> {
        g << self.grain()..self.blocks().min((g + 1) << self.grain())
    }
    /// The same as blocks of the volume.
    pub(super) fn in_volume(&self, g: u64) -> Range<u64> {
        let (first, blocks) = (self.first(), self.blocks_of(g));
        first + blocks.start..first + blocks.end
    }
    /// The regions that have these blocks.
    fn regions_of(&self, blocks: &Range<u64>) -> Range<u32> {
        let of = |b: u64| ((self.first() + b) >> self.scale.region) as u32;
        of(blocks.start)..of(blocks.end - 1) + 1
    }
    fn is_listed(&self, g: u64) -> bool {
        let mut regions = self.regions_of(&self.blocks_of(g));
        regions.any(|r| self.regions.has(r))
    }
    pub(super) fn any_lost(&self, granules: &Range<u64>) -> bool {
        words(granules).any(|(chunk, word, mask)| match self.pages.get(&chunk) {
            Some(page) => mask & !page.words[word] != 0,
            None if !self.lacks_pages => false,
            None => granules_of(chunk, word, mask).any(|g| self.is_listed(g)),
        })
    }
    /// Whether a page that has some of these granules is not durable.
    pub(super) fn is_unsettled(&self, granules: &Range<u64>) -> bool {
        let chunks = chunk_of(granules.start)..=chunk_of(granules.end - 1);
        let mut pages = self.pages.range(chunks);
        pages.any(|(_, p)| p.changed || p.flying)
    }
    /// These granules were written. Returns the number of blocks that were lost, and of pages that have changed only now.
    pub(super) fn write(&mut self, granules: Range<u64>) -> (u64, usize) {
        let (mut blocks, mut changed) = (0, 0);
        for (chunk, word, mask) in words(&granules) {
            let Some(page) = self.pages.get_mut(&chunk) else {
                continue;
            };
            let new = mask & !page.words[word];
            if new == 0 {
                continue;
            }
            page.words[word] |= new;
            changed += usize::from(!page.changed);
            page.changed = true;
            blocks += granules_of(chunk, word, new)
                .map(|g| self.blocks_of(g))
                .map(|b| b.end - b.start)
                .sum::<u64>();
        }
        self.lost -= blocks;
        (blocks, changed)
    }
    /// See [`super::LostBlocks::set_page`].
    pub(super) fn set_page(
        &mut self,
        at: u32,
        chunk: u32,
        words: &Words,
        damaged: &[Range<usize>],
    ) -> bool {
        let all = self.around(&(0..self.blocks()));
        let first = u64::from(chunk) * PAGE_BITS;
        if self.pages.contains_key(&chunk) || first >= all.end {
            return false;
        }
        let mut words = Box::new(*words);
        for word in damaged.iter().cloned().flatten() {
            let granules = granules_of(chunk, word, u64::MAX);
            let known = granules.filter(|&g| g >= all.end || !self.is_listed(g));
            words[word] = known.fold(0, |w, g| w | 1 << (g % 64));
        }
        let page = Page {
            at,
            words,
            changed: false,
            flying: false,
        };
        self.pages.insert(chunk, page);
        true
    }
    /// Counts the lost blocks. Regions without any are not listed any more.
    pub(super) fn count(&mut self) {
        let (mut lost, mut regions) = (0, Regions::default());
        self.each_lost(&mut |granules| {
            let blocks = self.blocks_of(granules.start).start..self.blocks_of(granules.end - 1).end;
            lost += blocks.end - blocks.start;
            self.regions_of(&blocks).for_each(|r| regions.add(r));
            true
        });
        self.lost = lost;
        // What has no page is lost in the regions that the mark lists, and in no other.
        if !self.lacks_pages {
            self.regions = regions;
        }
    }
    /// Calls `each` with the lost granules as ranges, ascending, as long as it returns true. Returns whether it always has.
    pub(super) fn each_lost(&self, each: &mut impl FnMut(Range<u64>) -> bool) -> bool {
        if !self.lacks_pages {
            let mut pages = self.pages.iter();
            return pages.all(|(&chunk, p)| lost_in(chunk, &p.words, each));
        }
        let listed = self.listed();
        let own = self
            .pages
            .keys()
            .map(|&c| u64::from(c) * PAGE_BITS..(u64::from(c) + 1) * PAGE_BITS);
        let all = merged(listed.iter().cloned().chain(own).collect());
        let mut next = 0;
        for range in all {
            for chunk in chunk_of(range.start).max(next)..=chunk_of(range.end - 1) {
                next = chunk + 1;
                let goes_on = match self.pages.get(&chunk) {
                    Some(p) => lost_in(chunk, &p.words, each),
                    None => unread_in(chunk, &listed, each),
                };
                if !goes_on {
                    return false;
                }
            }
        }
        true
    }
    /// The granules of listed regions.
    fn listed(&self) -> Vec<Range<u64>> {
        let region = |r: u32| {
            let (from, to) = (u64::from(r), u64::from(r + 1));
            self.on_disk(&(from << self.scale.region..to << self.scale.region))
        };
        let regions = (0..REGIONS as u32).filter(|&r| self.regions.has(r));
        let blocks = regions.map(region).filter(|b| !b.is_empty());
        merged(blocks.map(|b| self.around(&b)).collect())
    }
}

/// Ascending ranges that do not touch, of ranges that are not empty.
fn merged(mut all: Vec<Range<u64>>) -> Vec<Range<u64>> {
    all.sort_by_key(|r| r.start);
    let mut out: Vec<Range<u64>> = Vec::with_capacity(all.len());
    for r in all {
        match out.last_mut().filter(|last| r.start <= last.end) {
            Some(last) => last.end = last.end.max(r.end),
            None => out.push(r),
        }
    }
    out
}

/// The lost granules of a page, as ranges.
fn lost_in(chunk: u32, words: &Words, each: &mut impl FnMut(Range<u64>) -> bool) -> bool {
    let first = u64::from(chunk) * PAGE_BITS;
    let is_set = |g: u64| words[(g / 64) as usize] >> (g % 64) & 1 == 1;
    let (mut g, mut from) = (0, None);
    while g < PAGE_BITS {
        let alike = g.is_multiple_of(64) && matches!(words[(g / 64) as usize], 0 | u64::MAX);
        match (is_set(g), from) {
            (false, None) => from = Some(g),
            (true, Some(a)) => {
                if !each(first + a..first + g) {
                    return false;
                }
                from = None;
            }
            _ => {}
        }
        g += if alike { 64 } else { 1 };
    }
    from.is_none_or(|a| each(first + a..first + PAGE_BITS))
}

/// The listed granules of a chunk whose page could not be read, as ranges.
fn unread_in(chunk: u32, listed: &[Range<u64>], each: &mut impl FnMut(Range<u64>) -> bool) -> bool {
    let first = u64::from(chunk) * PAGE_BITS;
    let begin = listed.partition_point(|r| r.end <= first);
    let here = listed[begin..].iter();
    let mut here = here.take_while(|r| r.start < first + PAGE_BITS);
    here.all(|r| each(r.start.max(first)..r.end.min(first + PAGE_BITS)))
}

/// The chunk of a granule.
pub(super) fn chunk_of(granule: u64) -> u32 {
    (granule / PAGE_BITS) as u32
}

/// The words that have these granules: chunk, index there, and a bit for each granule.
pub(super) fn words(granules: &Range<u64>) -> impl Iterator<Item = (u32, usize, u64)> + use<> {
    let (start, end) = (granules.start, granules.end);
    (start / 64..end.div_ceil(64)).map(move |w| {
        let from = start.max(w * 64) - w * 64;
        let to = end.min((w + 1) * 64) - w * 64;
        let mask = (u64::MAX << from) & (u64::MAX >> (64 - to));
        let word = (w * 64 % PAGE_BITS / 64) as usize;
        (chunk_of(w * 64), word, mask)
    })
}

/// The granules of these bits of a word.
fn granules_of(chunk: u32, word: usize, bits: u64) -> impl Iterator<Item = u64> {
    let first = u64::from(chunk) * PAGE_BITS + word as u64 * 64;
    (0..64)
        .filter(move |b| bits >> b & 1 == 1)
        .map(move |b| first + b)
}
