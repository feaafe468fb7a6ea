//! A page-mapped flash translation layer with greedy garbage collection.
//!
//! Every host page goes to the open host block. Garbage collection takes the closed block with the fewest valid pages, copies those pages
//! to its own open block and erases the victim. There is one list of blocks per count of valid pages, so finding the victim is O(1) and
//! needs no scan. Memory: 4 bytes per logical and per physical page; nothing is allocated after `new`.

use isotherm_core::random::SplitMix64;

/// Marks the absence of a page or block.
const NONE: u32 = u32::MAX;

/// Blocks that stay erased, so that garbage collection always has a block to copy to.
const RESERVE: usize = 2;
/// Blocks that are open for writing: of the host and of the collection.
const OPEN: usize = 2;
/// Blocks beyond those of the share. The open blocks are half full of valid pages in the mean and the erased ones of none, so two of the four
/// are spare flash like any other.
const BEYOND: usize = 2;

/// The work of the flash for one write, besides programming the host's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Valid pages that were moved.
    pub copies: u32,
    /// Blocks that were erased.
    pub erases: u32,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    valid: u32,
    /// Neighbours in the list of closed blocks with the same count of valid pages.
    prev: u32,
    next: u32,
    erases: u32,
    closed: bool,
}

/// The translation layer. Pages are numbered from the member's first byte.
#[derive(Debug)]
pub struct Ftl {
    pages_per_block: u32,
    /// Logical page → physical page.
    map: Vec<u32>,
    /// Physical page → logical page.
    owner: Vec<u32>,
    blocks: Vec<Block>,
    free: Vec<u32>,
    /// First closed block for each count of valid pages.
    heads: Vec<u32>,
    /// A lower bound for the count of valid pages in the closed blocks.
    fewest: u32,
    /// (block, pages used) of the open host block and of the open collection block.
    host: (u32, u32),
    collector: (u32, u32),
    host_pages: u64,
    copied_pages: u64,
    erases: u64,
}

impl Ftl {
    /// `logical_pages` visible pages on `logical_pages × (1 + over_provisioning)` physical ones, and two blocks for collection to work with. A
    /// share that would leave collection no room is raised.
    pub fn new(logical_pages: u32, pages_per_block: u32, over_provisioning: f64) -> Ftl {
        let logical_pages = logical_pages.max(1);
        let pages_per_block = pages_per_block.max(2);
        let physical = (f64::from(logical_pages) * (1.0 + over_provisioning.max(0.0))) as u64;
        let in_blocks = |pages: u64| pages.div_ceil(u64::from(pages_per_block)) as usize;
        let least = in_blocks(u64::from(logical_pages)) + RESERVE + OPEN + 1;
        let blocks = (in_blocks(physical) + BEYOND).max(least);
        let mut free: Vec<u32> = (0..blocks as u32).rev().collect();
        let host = (free.pop().unwrap_or(0), 0);
        let collector = (free.pop().unwrap_or(1), 0);
        Ftl {
            pages_per_block,
            map: vec![NONE; logical_pages as usize],
            owner: vec![NONE; blocks * pages_per_block as usize],
            blocks: vec![
                Block {
                    valid: 0,
                    prev: NONE,
                    next: NONE,
                    erases: 0,
                    closed: false
                };
                blocks
            ],
            free,
            heads: vec![NONE; pages_per_block as usize + 1],
            fewest: 0,
            host,
            collector,
            host_pages: 0,
            copied_pages: 0,
            erases: 0,
        }
    }

    /// Puts a fresh layer into the state to which long uniform random writes lead: every logical page is written, and the closed blocks
    /// have the counts of valid pages that greedy collection leaves: the newest block all of its pages, the next victim 1 - 1/A of them (A:
    /// [`greedy_write_amplification`]). The open blocks are half full. It takes one pass, in place of several overwrites of the drive, and does not count as wear.
    pub fn age(&mut self) {
        let logical = self.map.len();
        let per_block = self.pages_per_block as usize;
        let mut pages: Vec<u32> = (0..logical as u32).collect();
        let mut random = SplitMix64::new(0x1507_4e12);
        for i in (1..logical).rev() {
            pages.swap(i, random.below(i as u64 + 1) as usize);
        }
        let half = (per_block / 2).min(logical / 4);
        for page in pages.split_off(logical - OPEN * half) {
            if self.host.1 < half as u32 {
                self.host = self.append(self.host, page);
            } else {
                self.collector = self.append(self.collector, page);
            }
        }
        let logical = pages.len();
        let closed = self.blocks.len() - RESERVE - OPEN;
        let spare = (closed * per_block) as f64 / logical as f64 - 1.0;
        let least = (1.0 - 1.0 / greedy_write_amplification(spare)).max(1e-9);
        let full = |i: usize| least.powf((i as f64 + 0.5) / closed as f64) * per_block as f64;
        let total: f64 = (0..closed).map(full).sum();
        let (mut wanted, mut placed) = (0.0, 0);
        // The oldest block first, because later ones have room for the remainder of the rounding.
        for i in (0..closed).rev() {
            let Some(block) = self.free.pop() else { break };
            wanted += full(i) / total * logical as f64;
            let after = i * per_block;
            let least_now = (logical - placed).saturating_sub(after);
            let n = ((wanted as usize).saturating_sub(placed))
                .max(least_now)
                .min(per_block)
                .min(logical - placed);
            let from = block as usize * per_block;
            for (at, &page) in (from..).zip(&pages[placed..placed + n]) {
                self.map[page as usize] = at as u32;
                self.owner[at] = page;
            }
            placed += n;
            self.blocks[block as usize].valid = n as u32;
            self.blocks[block as usize].closed = true;
            self.link(block);
        }
    }

    /// Writes logical pages `first..=last`. A page beyond the end counts as the last page.
    pub fn write(&mut self, first: u64, last: u64) -> Work {
        let mut work = Work::default();
        for page in first..=last {
            let page = page.min(self.map.len() as u64 - 1) as u32;
            self.invalidate(page);
            self.host_pages += 1;
            self.host = self.append(self.host, page);
            while self.free.len() < RESERVE {
                let copies = self.collect();
                work.copies += copies;
                work.erases += 1;
            }
        }
        work
    }

    /// Discards logical pages `first..end`.
    pub fn discard(&mut self, first: u64, end: u64) {
        for page in first..end.min(self.map.len() as u64) {
            self.invalidate(page as u32);
            self.map[page as usize] = NONE;
        }
    }

    /// Pages programmed divided by pages that the host wrote.
    pub fn write_amplification(&self) -> Option<f64> {
        let host = self.host_pages;
        (host > 0).then(|| (host + self.copied_pages) as f64 / host as f64)
    }

    /// Pages that garbage collection copied, and blocks that were erased.
    pub fn copied_and_erased(&self) -> (u64, u64) {
        (self.copied_pages, self.erases)
    }

    /// Bytes of the tables.
    pub fn memory_bytes(&self) -> usize {
        let words = self.map.len() + self.owner.len() + self.blocks.len() + self.heads.len();
        words * size_of::<u32>() + self.blocks.len() * size_of::<Block>()
    }

    /// Pages programmed and blocks erased.
    pub fn programmed_and_erased(&self) -> (u64, u64) {
        (self.host_pages + self.copied_pages, self.erases)
    }

    /// Mean erase count over the blocks.
    pub fn mean_erases(&self) -> f64 {
        self.erases as f64 / self.blocks.len() as f64
    }

    /// The highest erase count of a block.
    pub fn max_erases(&self) -> u32 {
        self.blocks.iter().map(|b| b.erases).max().unwrap_or(0)
    }

    fn invalidate(&mut self, page: u32) {
        let at = self.map[page as usize];
        if at == NONE {
            return;
        }
        self.owner[at as usize] = NONE;
        let b = at / self.pages_per_block;
        if self.blocks[b as usize].closed {
            self.unlink(b);
            self.blocks[b as usize].valid -= 1;
            self.link(b);
        } else {
            self.blocks[b as usize].valid -= 1;
        }
    }

    fn append(&mut self, open: (u32, u32), page: u32) -> (u32, u32) {
        let (b, used) = open;
        let at = b * self.pages_per_block + used;
        self.map[page as usize] = at;
        self.owner[at as usize] = page;
        self.blocks[b as usize].valid += 1;
        if used + 1 < self.pages_per_block {
            return (b, used + 1);
        }
        self.blocks[b as usize].closed = true;
        self.link(b);
        // `write` keeps RESERVE blocks free, and a collection opens at most one block before it frees one.
        let fresh = self
            .free
            .pop()
            .expect("a collection always leaves a free block");
        (fresh, 0)
    }

    /// Empties the closed block with the fewest valid pages. Returns how many pages had to be moved.
    fn collect(&mut self) -> u32 {
        while self.heads[self.fewest as usize] == NONE {
            self.fewest += 1;
        }
        let victim = self.heads[self.fewest as usize];
        self.unlink(victim);
        self.blocks[victim as usize].closed = false;
        let from = victim * self.pages_per_block;
        let mut copies = 0;
        for at in from..from + self.pages_per_block {
            let page = self.owner[at as usize];
            if page != NONE {
                self.owner[at as usize] = NONE;
                self.collector = self.append(self.collector, page);
                copies += 1;
            }
        }
        let b = &mut self.blocks[victim as usize];
        b.valid = 0;
        b.erases += 1;
        self.free.push(victim);
        self.erases += 1;
        self.copied_pages += u64::from(copies);
        copies
    }

    fn link(&mut self, b: u32) {
        let v = self.blocks[b as usize].valid;
        let head = self.heads[v as usize];
        self.blocks[b as usize].prev = NONE;
        self.blocks[b as usize].next = head;
        if head != NONE {
            self.blocks[head as usize].prev = b;
        }
        self.heads[v as usize] = b;
        self.fewest = self.fewest.min(v);
    }

    fn unlink(&mut self, b: u32) {
        let Block {
            prev, next, valid, ..
        } = self.blocks[b as usize];
        if prev == NONE {
            self.heads[valid as usize] = next;
        } else {
            self.blocks[prev as usize].next = next;
        }
        if next != NONE {
            self.blocks[next as usize].prev = prev;
        }
    }
}

/// Write amplification of uniform random writes in the limit of many large blocks:
/// A = α / (α + W₀(-α e^-α)) with α = physical ÷ logical = 1 + over-provisioning and W₀ Lambert's function.
///
/// Source: L. Xiang and B. Kurkoski, "An improved analytical expression for write amplification in NAND flash", ICNC
/// 2012, equal to P. Desnoyers' for oldest-first cleaning (SYSTOR 2012), which greedy approaches as blocks grow.
pub fn greedy_write_amplification(over_provisioning: f64) -> f64 {
    let alpha = 1.0 + over_provisioning;
    // y = -W₀(-α e^-α) is the root in 0…1 of y = α e^(y-α). Newton's method on y e^-y = α e^-α from 0, where the function is convex.
    let target = alpha * (-alpha).exp();
    let mut y = 0.0_f64;
    for _ in 0..200 {
        let e = (-y).exp();
        let step = (y * e - target) / ((1.0 - y) * e);
        y -= step;
        if step.abs() < 1e-14 {
            break;
        }
    }
    alpha / (alpha - y)
}
