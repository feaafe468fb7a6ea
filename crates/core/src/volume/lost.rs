//! The blocks of a cache volume whose newest data was lost with flash. What its disk holds there is older, so reading them is an error until
//! they are written again.
//!
//! Blocks here are those of the list: 4 KiB, or a logical block if that is larger; but an extent has eight at least, if it has so many logical
//! blocks ([`unit_shift`]). A write of a part of one is an error, as a read is.
//!
//! Each disk has a list of its own: regions of the volume ([`super::regions`]) that may have lost blocks, and for the blocks of these which
//! of them are *written*, that is, hold what they should. A block is lost if its region is listed and it is not written. The store keeps the
//! written blocks in pages of [`PAGE_BITS`] bits ([`crate::store::lost`]); here a page is in memory only if it has a written block.

use super::regions::{REGIONS, Regions};
use crate::units::{ExtentId, MemberId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// log2 of the bytes of a block of the list, in a volume with these extents and logical blocks.
pub fn unit_shift(extent_shift: u32, block_shift: u32) -> u32 {
    12.min(extent_shift.saturating_sub(3)).max(block_shift)
}

/// Number of words of a page.
pub const PAGE_WORDS: usize = 496;
/// Number of blocks of a page.
pub const PAGE_BITS: u64 = PAGE_WORDS as u64 * 64;

/// The written blocks of a page.
pub type Words = [u64; PAGE_WORDS];

#[derive(Clone, Debug)]
struct Page {
    words: Box<Words>,
    /// Whether blocks were written since the last round began, or before it, so that it writes the page.
    changed: bool,
    flying: bool,
}

/// The list of one disk.
#[derive(Clone, Debug)]
pub struct ListOf {
    /// The disk.
    pub member: MemberId,
    /// The extents that are on it.
    pub extents: Range<u32>,
    /// The number of the list: that of the session that made it. 0: there is none.
    pub number: u64,
    /// Which of the two places on the disk has its pages.
    pub place: u8,
    /// The regions that may have lost blocks.
    pub regions: Regions,
    pages: BTreeMap<u32, Page>,
    lost: u64,
}

/// Blocks of an extent: the first one, and the one after the last.
pub type LostPart = (ExtentId, u32, u32);

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct LostBlocks {
    /// log2 of the number of extents of a region, and of that of blocks in an extent.
    region_shift: u32,
    blocks_shift: u32,
    /// log2 of the number of logical blocks in a block of the list.
    unit: u32,
    disks: Vec<ListOf>,
    /// Number of lost blocks.
    lost: u64,
    /// Number of pages that a round must write.
    changed: usize,
}

impl LostBlocks {
    /// No lost blocks, in a volume with extents of 2^`extent_shift` bytes and logical blocks of 2^`block_shift`.
    pub fn new(region_shift: u32, extent_shift: u32, block_shift: u32) -> LostBlocks {
        let unit = unit_shift(extent_shift, block_shift);
        LostBlocks {
            region_shift,
            blocks_shift: extent_shift - unit,
            unit: unit - block_shift,
            ..LostBlocks::default()
        }
    }
    /// Adds an empty list of a disk that has these extents.
    pub fn add_disk(&mut self, member: MemberId, extents: Range<u32>) {
        self.disks.push(ListOf {
            member,
            extents,
            number: 0,
            place: 0,
            regions: Regions::default(),
            pages: BTreeMap::new(),
            lost: 0,
        });
    }
    /// The lists of all disks.
    pub fn lists(&self) -> &[ListOf] {
        &self.disks
    }
    /// The list of a disk.
    pub fn of(&self, m: MemberId) -> Option<&ListOf> {
        self.disks.iter().find(|d| d.member == m)
    }
    /// Whether nothing is lost.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lost == 0
    }
    /// Number of lost logical blocks.
    pub fn blocks(&self) -> u64 {
        self.lost << self.unit
    }
    /// Whether a round must write pages.
    #[inline]
    pub fn any_changed(&self) -> bool {
        self.changed > 0
    }
    /// Whether any of logical blocks `from..to` of `e` is lost.
    #[inline]
    pub fn any(&self, e: ExtentId, from: u32, to: u32) -> bool {
        self.lost > 0 && self.any_of(e, from >> self.unit, self.up(to))
    }
    /// Whether a write of logical blocks `from..to` of `e` covers a part of a lost block, whose rest nobody has.
    #[inline]
    pub fn cuts(&self, e: ExtentId, from: u32, to: u32) -> bool {
        let part = |at: u32| {
            let b = at >> self.unit;
            b << self.unit != at && self.any_of(e, b, b + 1)
        };
        self.lost > 0 && (part(from) || part(to))
    }
    /// The block of the list that begins at logical block `b` or behind it.
    fn up(&self, b: u32) -> u32 {
        (b + (1 << self.unit) - 1) >> self.unit
    }
    fn any_of(&self, e: ExtentId, from: u32, to: u32) -> bool {
        self.place_of(e, from).is_some_and(|(d, at)| {
            let mut all = words(at..at + u64::from(to - from));
            all.any(|(n, word, mask)| mask & !self.disks[d].word(n, word) != 0)
        })
    }
    /// Whether blocks of `e` are lost, or were, and this is not durable yet. Such an extent gets no copy.
    #[inline]
    pub fn is_open(&self, e: ExtentId) -> bool {
        if self.lost == 0 && self.disks.iter().all(|d| d.pages.is_empty()) {
            return false;
        }
        let Some((d, at)) = self.place_of(e, 0) else {
            return false;
        };
        let (blocks, moving) = (1 << self.blocks_shift, |p: &Page| p.changed || p.flying);
        let pages = page_of(at)..=page_of(at + blocks - 1);
        let unsettled = self.disks[d].pages.range(pages).any(|(_, p)| moving(p));
        unsettled || (self.lost > 0 && self.any_of(e, 0, blocks as u32))
    }
    fn place_of(&self, e: ExtentId, block: u32) -> Option<(usize, u64)> {
        let has = |d: &ListOf| d.extents.contains(&e.0) && d.regions.has(e.0 >> self.region_shift);
        let d = self.disks.iter().position(has)?;
        let at = u64::from(e.0 - self.disks[d].extents.start) << self.blocks_shift;
        Some((d, at + u64::from(block)))
    }
    /// Logical blocks `from..to` of `e` were written. Returns whether any of them was lost.
    pub fn written(&mut self, e: ExtentId, from: u32, to: u32) -> bool {
        let (from, to) = (self.up(from), to >> self.unit);
        if self.lost == 0 || from >= to {
            return false;
        }
        let Some((d, at)) = self.place_of(e, from) else {
            return false;
        };
        let (list, mut found) = (&mut self.disks[d], 0);
        for (n, word, mask) in words(at..at + u64::from(to - from)) {
            let new = mask & !list.word(n, word);
            if new == 0 {
                continue;
            }
            let page = list.page_mut(n);
            page.words[word] |= new;
            self.changed += usize::from(!page.changed);
            page.changed = true;
            found += u64::from(new.count_ones());
        }
        list.lost -= found;
        self.lost -= found;
        found > 0
    }
    /// Takes the pages that changed since the last call, because a round writes them as they are now: calls `each` with the list, the number of
    /// the page and its words.
    pub fn take_changed(&mut self, mut each: impl FnMut(&ListOf, u32, &Words)) {
        if self.changed == 0 {
            return;
        }
        self.changed = 0;
        for d in &mut self.disks {
            let mut pages = core::mem::take(&mut d.pages);
            for (&n, p) in pages.iter_mut().filter(|p| p.1.changed) {
                (p.changed, p.flying) = (false, true);
                each(d, n, &p.words);
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
    /// The lost blocks as byte ranges of the volume, ascending, at most `most`. A logical block has 2^`block_shift` bytes.
    pub fn ranges(&self, block_shift: u32, most: usize) -> Vec<(u64, u64)> {
        let block_shift = block_shift + self.unit;
        let mut out: Vec<(u64, u64)> = Vec::new();
        let mut lists: Vec<&ListOf> = self.disks.iter().filter(|d| d.lost > 0).collect();
        lists.sort_by_key(|d| d.extents.start);
        for d in lists {
            let base = u64::from(d.extents.start) << self.blocks_shift;
            for span in self.spans(d) {
                let mut b = span.start;
                while b < span.end {
                    let end = d.next_edge(b, span.end);
                    let (a, z) = ((base + b) << block_shift, (base + end) << block_shift);
                    let full = out.len() == most;
                    match out.last_mut().filter(|last| last.1 == a) {
                        _ if d.is_written(b) => {}
                        Some(last) => last.1 = z,
                        None if full => return out,
                        None => out.push((a, z)),
                    }
                    b = end;
                }
            }
        }
        out
    }
    /// The blocks of a region that are on a disk, by their numbers there.
    fn span(&self, d: &ListOf, region: u32) -> Range<u64> {
        let first = u64::from(d.extents.start);
        let on_disk = |e: u64| e.clamp(first, d.extents.end.into()) - first;
        let region = u64::from(region);
        let from = on_disk(region << self.region_shift) << self.blocks_shift;
        from..on_disk((region + 1) << self.region_shift) << self.blocks_shift
    }
    /// The same for all listed regions of the disk.
    fn spans(&self, d: &ListOf) -> impl Iterator<Item = Range<u64>> {
        let listed = (0..REGIONS as u32).filter(|&r| d.regions.has(r));
        listed.map(|r| self.span(d, r)).filter(|s| !s.is_empty())
    }
    /// The pages of a disk that can have written blocks of its list.
    pub fn pages_of(&self, m: MemberId) -> Vec<u32> {
        let spans = self.of(m).into_iter().flat_map(|d| self.spans(d));
        let mut pages: Vec<u32> = spans
            .flat_map(|s| page_of(s.start)..=page_of(s.end - 1))
            .collect();
        pages.dedup();
        pages
    }
    /// Sets the list of a disk, without written blocks.
    pub fn set_list(&mut self, m: MemberId, (number, place): (u64, u8), regions: Regions) {
        if let Some(d) = self.disks.iter_mut().find(|d| d.member == m) {
            (d.number, d.place, d.regions) = (number, place, regions);
            d.pages.clear();
        }
        self.count();
    }
    /// Sets a page of a disk that was read.
    pub fn set_page(&mut self, m: MemberId, page: u32, words: &Words) {
        if words.iter().any(|&w| w != 0)
            && let Some(d) = self.disks.iter_mut().find(|d| d.member == m)
        {
            d.page_mut(page).words.copy_from_slice(words);
        }
    }
    /// Adds to the list of a disk all blocks of these extents that are on it.
    pub fn lose_extents(&mut self, m: MemberId, extents: &Range<u32>) {
        if let Some(i) = self.disks.iter().position(|d| d.member == m) {
            let all = self.disks[i].extents.clone();
            let on_disk = |e: u32| u64::from(e.clamp(all.start, all.end) - all.start);
            let blocks = on_disk(extents.start)..on_disk(extents.end);
            self.lose_blocks(
                i,
                blocks.start << self.blocks_shift..blocks.end << self.blocks_shift,
            );
        }
    }
    /// Adds logical blocks of an extent to the list of its disk.
    pub fn lose(&mut self, (e, from, to): LostPart) {
        let has = |d: &ListOf| d.extents.contains(&e.0);
        if let Some(i) = self.disks.iter().position(has) {
            let at = u64::from(e.0 - self.disks[i].extents.start) << self.blocks_shift;
            let (from, to) = (from >> self.unit, self.up(to));
            self.lose_blocks(i, at + u64::from(from)..at + u64::from(to));
        }
    }
    /// Other blocks of their regions stay as they are.
    fn lose_blocks(&mut self, i: usize, blocks: Range<u64>) {
        let first = u64::from(self.disks[i].extents.start);
        let region = |b: u64| (first + (b >> self.blocks_shift)) >> self.region_shift;
        if blocks.is_empty() {
            return;
        }
        for r in region(blocks.start) as u32..=region(blocks.end - 1) as u32 {
            let span = self.span(&self.disks[i], r);
            let d = &mut self.disks[i];
            if !d.regions.has(r) {
                d.regions.add(r);
                d.set(span.start..blocks.start.clamp(span.start, span.end), true);
                d.set(blocks.end.clamp(span.start, span.end)..span.end, true);
            }
        }
        self.disks[i].set(blocks, false);
    }
    /// Counts the lost blocks, and takes regions without any from the lists.
    pub fn count(&mut self) {
        for i in 0..self.disks.len() {
            let regions = core::mem::take(&mut self.disks[i].regions);
            self.disks[i].lost = 0;
            for r in (0..REGIONS as u32).filter(|&r| regions.has(r)) {
                let lost = self.disks[i].lost_in(self.span(&self.disks[i], r));
                if lost > 0 {
                    self.disks[i].regions.add(r);
                    self.disks[i].lost += lost;
                }
            }
        }
        self.lost = self.disks.iter().map(|d| d.lost).sum();
    }
    /// Gives the list of a disk a new number, and the other place unless `in_place`, because it has changed; its pages are to be written.
    pub fn renumber(&mut self, m: MemberId, number: u64, in_place: bool) {
        if let Some(d) = self.disks.iter_mut().find(|d| d.member == m) {
            d.place ^= u8::from(!in_place);
            d.number = if d.regions.is_empty() {
                0
            } else {
                number.max(1)
            };
        }
    }
    /// Forgets all lists: what the disks hold counts.
    pub fn accept(&mut self) {
        for d in &mut self.disks {
            d.regions = Regions::default();
            d.pages.clear();
        }
        self.count();
    }
}

fn page_of(block: u64) -> u32 {
    (block / PAGE_BITS) as u32
}

fn word_of(block: u64) -> usize {
    (block % PAGE_BITS / 64) as usize
}

/// The words that have these blocks: page, index there, and a bit for each block.
fn words(blocks: Range<u64>) -> impl Iterator<Item = (u32, usize, u64)> {
    let all = blocks.start / 64..blocks.end.div_ceil(64);
    all.map(move |w| {
        let from = blocks.start.max(w * 64) - w * 64;
        let to = blocks.end.min((w + 1) * 64) - w * 64;
        let mask = (u64::MAX << from) & (u64::MAX >> (64 - to));
        (page_of(w * 64), word_of(w * 64), mask)
    })
}

impl ListOf {
    fn word(&self, page: u32, word: usize) -> u64 {
        self.pages.get(&page).map_or(0, |p| p.words[word])
    }
    fn is_written(&self, b: u64) -> bool {
        self.word(page_of(b), word_of(b)) >> (b % 64) & 1 == 1
    }
    fn page_mut(&mut self, n: u32) -> &mut Page {
        self.pages.entry(n).or_insert_with(|| Page {
            words: Box::new([0; PAGE_WORDS]),
            changed: false,
            flying: false,
        })
    }
    /// The words of a page that has written blocks.
    pub fn words(&self, n: u32) -> Option<&Words> {
        self.pages.get(&n).map(|p| &*p.words)
    }
    /// Notes whether blocks are written.
    fn set(&mut self, blocks: Range<u64>, written: bool) {
        let mut at = blocks.start;
        while at < blocks.end {
            let n = page_of(at);
            let end = blocks.end.min((u64::from(n) + 1) * PAGE_BITS);
            if written || self.pages.contains_key(&n) {
                let page = self.page_mut(n);
                for (_, word, mask) in words(at..end) {
                    let old = page.words[word];
                    page.words[word] = if written { old | mask } else { old & !mask };
                }
            }
            at = end;
        }
    }
    /// The block after `b`, or a later one if those between are like `b`; at most `to`.
    fn next_edge(&self, b: u64, to: u64) -> u64 {
        let Some(page) = self.pages.get(&page_of(b)) else {
            return to.min((u64::from(page_of(b)) + 1) * PAGE_BITS);
        };
        let alike = b.is_multiple_of(64) && matches!(page.words[word_of(b)], 0 | u64::MAX);
        to.min(b + if alike { 64 } else { 1 })
    }
    fn lost_in(&self, blocks: Range<u64>) -> u64 {
        let (mut b, mut lost) = (blocks.start, 0);
        while b < blocks.end {
            let end = self.next_edge(b, blocks.end);
            lost += if self.is_written(b) { 0 } else { end - b };
            b = end;
        }
        lost
    }
}

#[cfg(test)]
mod tests;
