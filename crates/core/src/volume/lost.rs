//! The blocks of a cache volume whose newest data was lost with flash. What its disk holds there is older, so reading them is an error until
//! they are written again.
//!
//! Each disk has a list of its own ([`ListOf`]), with a bit for each *granule*: 4 KiB, or a logical block if that is larger; but an extent has
//! eight at least, if it has so many logical blocks ([`unit_shift`]). The size of a list is limited, so that of a larger loss has larger
//! granules, which may have several extents. A granule of which one block is lost is lost as a whole, and one request must write all of it.

mod list;
mod make;

pub use list::{ListOf, PAGE_BITS, PAGE_WORDS, Words};
pub use make::{How, SHIFT_MAX, pages_for};

use super::regions::Regions;
use crate::units::{ExtentId, MemberId};
use alloc::vec::Vec;
use core::ops::Range;
use list::Scale;

/// log2 of the bytes of the smallest granule, in a volume with these extents and logical blocks.
pub fn unit_shift(extent_shift: u32, block_shift: u32) -> u32 {
    12.min(extent_shift.saturating_sub(3)).max(block_shift)
}

/// Blocks of an extent: the first one, and the one after the last.
pub type LostPart = (ExtentId, u32, u32);

/// What the mark of a disk states about its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListHead {
    /// The number of the list: that of the session that made it. 0: there is none.
    pub number: u64,
    /// Which of the two places on the disk has its pages: 0 or 1.
    pub place: u8,
    /// A granule has 2^`shift` times the smallest size.
    pub shift: u32,
    /// Number of pages.
    pub pages: u32,
    /// The regions that have lost blocks.
    pub regions: Regions,
}

/// See the module. Blocks are logical blocks.
#[derive(Clone, Debug, Default)]
pub struct LostBlocks {
    scale: Scale,
    disks: Vec<ListOf>,
    /// Number of lost blocks.
    lost: u64,
    /// Number of pages that a round must write.
    changed: usize,
}

impl LostBlocks {
    /// No lost blocks, in a volume with extents of 2^`extent_shift` bytes, logical blocks of 2^`block_shift`, and regions of 2^`region_shift`
    /// extents.
    pub fn new(region_shift: u32, extent_shift: u32, block_shift: u32) -> LostBlocks {
        let extent = extent_shift - block_shift;
        LostBlocks {
            scale: Scale {
                region: region_shift + extent,
                extent,
                unit: unit_shift(extent_shift, block_shift) - block_shift,
            },
            ..LostBlocks::default()
        }
    }
    /// Adds an empty list of a disk that has these extents, and room for `most` pages.
    pub fn add_disk(&mut self, member: MemberId, extents: Range<u32>, most: u32) {
        let list = ListOf::new(self.scale, member, extents, most);
        self.disks.push(list);
    }
    /// The list of a disk.
    pub fn of(&self, m: MemberId) -> Option<&ListOf> {
        self.disks.iter().find(|d| d.member == m)
    }
    /// What the mark of a disk is to state about its list.
    pub fn head(&self, m: MemberId) -> ListHead {
        let list = self.of(m).filter(|d| !d.regions.is_empty());
        list.map_or(ListHead::default(), |d| ListHead {
            number: d.number,
            place: d.place,
            shift: d.shift,
            pages: d.pages.len() as u32,
            regions: d.regions,
        })
    }
    /// Whether nothing is lost.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lost == 0
    }
    /// Number of lost blocks.
    pub fn blocks(&self) -> u64 {
        self.lost
    }
    /// Number of blocks of the largest granule of which something is lost; 0: nothing is.
    pub fn granule(&self) -> u64 {
        let lists = self.disks.iter().filter(|d| d.lost > 0);
        lists.map(|d| 1 << d.grain()).max().unwrap_or(0)
    }
    /// Whether a round must write pages.
    #[inline]
    pub fn any_changed(&self) -> bool {
        self.changed > 0
    }
    /// Whether any of blocks `from..to` of `e` is lost.
    #[inline]
    pub fn any(&self, e: ExtentId, from: u32, to: u32) -> bool {
        self.lost > 0 && self.any_of(e, from, to)
    }
    fn any_of(&self, e: ExtentId, from: u32, to: u32) -> bool {
        let place = self.place_of((e, from, to));
        place.is_some_and(|(d, blocks)| self.disks[d].any_lost(&self.disks[d].around(&blocks)))
    }
    /// Whether a write of blocks `from..to` of `e`, which belongs to a request for `all` blocks of the volume, covers a part of a lost granule,
    /// whose rest nobody has.
    #[inline]
    pub fn cuts(&self, (e, from, to): LostPart, all: &Range<u64>) -> bool {
        self.lost > 0
            && self.place_of((e, from, to)).is_some_and(|(d, blocks)| {
                let (d, granules) = (&self.disks[d], self.disks[d].around(&blocks));
                let ends = [granules.start, granules.end - 1];
                ends.iter().any(|&g| {
                    let whole = d.in_volume(g);
                    let covered = all.start <= whole.start && whole.end <= all.end;
                    !covered && d.any_lost(&(g..g + 1))
                })
            })
    }
    /// Whether blocks of `e` are lost, or were, and this is not durable yet. Such an extent gets no copy.
    #[inline]
    pub fn is_open(&self, e: ExtentId) -> bool {
        if self.lost == 0 && self.disks.iter().all(|d| d.pages.is_empty()) {
            return false;
        }
        let whole = self.place_of((e, 0, 1 << self.scale.extent));
        whole.is_some_and(|(d, blocks)| {
            let granules = self.disks[d].around(&blocks);
            self.disks[d].is_unsettled(&granules) || self.disks[d].any_lost(&granules)
        })
    }
    /// The disk of an extent that has a list, and the place of these blocks there.
    fn place_of(&self, (e, from, to): LostPart) -> Option<(usize, Range<u64>)> {
        let has = |d: &ListOf| d.extents.contains(&e.0);
        let d = self.disks.iter().position(has)?;
        let at = u64::from(e.0 - self.disks[d].extents.start) << self.scale.extent;
        Some((d, at + u64::from(from)..at + u64::from(to)))
    }
    /// All of these blocks of the volume were written. Returns whether any of them was lost. (`in_part`, a mutant: it is enough that a part of a
    /// granule was written.)
    pub fn written(&mut self, blocks: &Range<u64>, in_part: bool) -> bool {
        if self.lost == 0 {
            return false;
        }
        let mut found = 0;
        for d in &mut self.disks {
            let here = d.on_disk(blocks);
            let granules = if in_part {
                d.around(&here)
            } else {
                d.within(&here)
            };
            if here.is_empty() || granules.is_empty() {
                continue;
            }
            let (blocks, pages) = d.write(granules);
            found += blocks;
            self.changed += pages;
        }
        self.lost -= found;
        found > 0
    }
    /// Takes the pages that changed since the last call, because a round writes them as they are now: calls `each` with the list, the place of
    /// the page in it, the number of its chunk and its words.
    pub fn take_changed(&mut self, mut each: impl FnMut(&ListOf, u32, u32, &Words)) {
        if self.changed == 0 {
            return;
        }
        self.changed = 0;
        for d in &mut self.disks {
            let mut pages = core::mem::take(&mut d.pages);
            for (&chunk, p) in pages.iter_mut().filter(|p| p.1.changed) {
                (p.changed, p.flying) = (false, true);
                each(d, p.at, chunk, &p.words);
            }
            d.pages = pages;
        }
    }
    /// The pages that were taken are durable.
    pub fn settled(&mut self) {
        for p in self.disks.iter_mut().flat_map(|d| d.pages.values_mut()) {
            p.flying = false;
        }
    }
    /// The lost blocks as byte ranges of the volume, ascending, at most `most`. A block has 2^`block_shift` bytes.
    pub fn ranges(&self, block_shift: u32, most: usize) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        let mut lists: Vec<&ListOf> = self.disks.iter().filter(|d| d.lost > 0).collect();
        lists.sort_by_key(|d| d.extents.start);
        for d in lists {
            d.each_lost(&mut |granules| {
                let a = d.in_volume(granules.start).start << block_shift;
                let z = d.in_volume(granules.end - 1).end << block_shift;
                let full = out.len() == most;
                match out.last_mut().filter(|last| last.1 == a) {
                    Some(last) => last.1 = z,
                    None if full => return false,
                    None => out.push((a, z)),
                }
                true
            });
        }
        out
    }
    /// Sets the list of a disk as its mark states it, without pages.
    pub fn set_list(&mut self, m: MemberId, head: &ListHead) {
        if let Some(d) = self.disks.iter_mut().find(|d| d.member == m) {
            (d.number, d.place, d.shift) = (head.number, head.place, head.shift);
            d.regions = head.regions;
            d.pages.clear();
        }
    }
    /// Sets the page at place `at` of a list that was read: chunk `chunk`. In the sectors of `damaged`, as ranges of words, all blocks of listed
    /// regions are lost. Returns false if it cannot be a page of this list.
    pub fn set_page(
        &mut self,
        m: MemberId,
        (at, chunk): (u32, u32),
        words: &Words,
        damaged: &[Range<usize>],
    ) -> bool {
        let list = self.disks.iter_mut().find(|d| d.member == m);
        list.is_some_and(|d| d.set_page(at, chunk, words, damaged))
    }
    /// A page of the list could not be read: nobody knows its chunk. So what has no page is lost, in the listed regions.
    pub fn lacks_pages(&mut self, m: MemberId) {
        if let Some(d) = self.disks.iter_mut().find(|d| d.member == m) {
            d.lacks_pages = true;
        }
    }
    /// Counts the lost blocks, and takes regions without any from the lists.
    pub fn count(&mut self) {
        self.disks.iter_mut().for_each(ListOf::count);
        self.lost = self.disks.iter().map(|d| d.lost).sum();
    }
    /// Forgets all lists: what the disks hold counts.
    pub fn accept(&mut self) {
        for d in &mut self.disks {
            d.regions = Regions::default();
            d.lacks_pages = false;
            d.pages.clear();
        }
        self.count();
    }
}

#[cfg(test)]
mod tests;
