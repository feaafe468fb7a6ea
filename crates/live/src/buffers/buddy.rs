//! The free parts of a region: a buddy allocator.

use super::{NONE, NOT_FREE, ORDERS};

/// Free chunks by size, as intrusive lists over the pages.
pub(super) struct Buddy {
    pub(super) heads: [u32; ORDERS],
    next: Vec<u32>,
    prev: Vec<u32>,
    /// Order of the free chunk that starts at a page.
    free: Vec<u8>,
}

impl Buddy {
    pub(super) fn new(pages: usize) -> Buddy {
        let mut b = Buddy {
            heads: [NONE; ORDERS],
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

    pub(super) fn link(&mut self, page: u32, order: usize) {
        let head = std::mem::replace(&mut self.heads[order], page);
        self.next[page as usize] = head;
        self.prev[page as usize] = NONE;
        if head != NONE {
            self.prev[head as usize] = page;
        }
        self.free[page as usize] = order as u8;
    }

    pub(super) fn unlink(&mut self, page: u32, order: usize) {
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

    pub(super) fn take(&mut self, order: usize) -> Option<u32> {
        let from = (order..ORDERS).find(|&o| self.heads[o] != NONE)?;
        let page = self.heads[from];
        self.unlink(page, from);
        for o in (order..from).rev() {
            self.link(page + (1 << o), o);
        }
        Some(page)
    }

    pub(super) fn give(&mut self, mut page: u32, mut order: usize) {
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
