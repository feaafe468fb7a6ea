//! The free parts of a region: a buddy allocator.
//!
//! Small chunks that are returned stay whole for the next request of their size, because otherwise each request would divide a large chunk
//! and merge it again. They are merged as soon as a request finds no chunk.

use super::{NONE, NOT_FREE, ORDERS};

/// Number of sizes whose chunks may stay whole: 4 KiB … 64 KiB.
const KEPT_ORDERS: usize = 5;
/// Maximum number of chunks of each of these sizes that stay whole. Together they have at most 4 MiB.
const KEPT: usize = 32;

/// Free chunks by size, as intrusive lists over the pages.
pub(super) struct Buddy {
    heads: [u32; ORDERS],
    /// Free chunks that stay whole, by size; the last one is used first. They are in no list.
    kept: [Vec<u32>; KEPT_ORDERS],
    next: Vec<u32>,
    prev: Vec<u32>,
    /// Order of the free chunk that starts at a page.
    free: Vec<u8>,
}

impl Buddy {
    pub(super) fn new(pages: usize) -> Buddy {
        let mut b = Buddy {
            heads: [NONE; ORDERS],
            kept: std::array::from_fn(|_| Vec::with_capacity(KEPT)),
            next: vec![NONE; pages],
            prev: vec![NONE; pages],
            free: vec![NOT_FREE; pages],
        };
        let mut at = 0;
        while at < pages {
            let fit = (pages - at).ilog2().min(at.trailing_zeros());
            let order = (fit as usize).min(ORDERS - 1);
            b.link(at as u32, order);
            at += 1 << order;
        }
        b
    }

    /// The largest order of which there is a chunk in the lists.
    pub(super) fn largest(&self) -> Option<usize> {
        self.heads.iter().rposition(|&h| h != NONE)
    }

    fn link(&mut self, page: u32, order: usize) {
        let head = std::mem::replace(&mut self.heads[order], page);
        self.next[page as usize] = head;
        self.prev[page as usize] = NONE;
        if head != NONE {
            self.prev[head as usize] = page;
        }
        self.free[page as usize] = order as u8;
    }

    fn unlink(&mut self, page: u32, order: usize) {
        let (next, prev) = (self.next[page as usize], self.prev[page as usize]);
        if prev == NONE {
            self.heads[order] = next;
        } else {
            self.next[prev as usize] = next;
        }
        if next != NONE {
            self.prev[next as usize] = prev;
        }
        self.free[page as usize] = NOT_FREE;
    }

    /// Whether there is a chunk of this order.
    pub(super) fn has(&mut self, order: usize) -> bool {
        let kept = self.kept.get(order).is_some_and(|k| !k.is_empty());
        let listed = |b: &Buddy| b.heads[order..].iter().any(|&h| h != NONE);
        kept || listed(self) || (self.merge_kept() && listed(self))
    }

    /// Takes a chunk of this order. Returns its first page.
    pub(super) fn take(&mut self, order: usize) -> Option<u32> {
        if let Some(page) = self.kept.get_mut(order).and_then(Vec::pop) {
            return Some(page);
        }
        self.divide(order)
            .or_else(|| self.merge_kept().then(|| self.divide(order))?)
    }

    fn divide(&mut self, order: usize) -> Option<u32> {
        let from = (order..ORDERS).find(|&o| self.heads[o] != NONE)?;
        let page = self.heads[from];
        self.unlink(page, from);
        for o in (order..from).rev() {
            self.link(page + (1 << o), o);
        }
        Some(page)
    }

    /// Returns a chunk.
    pub(super) fn give(&mut self, page: u32, order: usize) {
        match self.kept.get_mut(order) {
            Some(kept) if kept.len() < KEPT => kept.push(page),
            _ => self.merge(page, order),
        }
    }

    /// Merges the chunks that stayed whole. Returns false if there was none.
    fn merge_kept(&mut self) -> bool {
        let mut any = false;
        for order in 0..KEPT_ORDERS {
            while let Some(page) = self.kept[order].pop() {
                self.merge(page, order);
                any = true;
            }
        }
        any
    }

    fn merge(&mut self, mut page: u32, mut order: usize) {
        while order + 1 < ORDERS {
            let other = page ^ (1 << order);
            if self.free.get(other as usize) != Some(&(order as u8)) {
                break;
            }
            self.unlink(other, order);
            page = page.min(other);
            order += 1;
        }
        self.link(page, order);
    }
}
