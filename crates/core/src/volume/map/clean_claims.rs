//! What durable records claim about clean copies: that copy and home are equal.
//!
//! Such a record keeps a copy over a crash. So it must be withdrawn before any write goes to either place (`durability/clean_claims.rs`). Only
//! copies that have rested get one; for these there is one more bit per slot, which every write and fetch clears.

use super::ExtentMap;
use super::copies::Recorded;
use crate::bits::Bits;
use crate::units::{ExtentId, Slot};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct CleanClaims {
    claimed: Bits,
    rested: Bits,
    /// Number of slots in `claimed`.
    count: u32,
    /// Whether a copy may have become one to claim since the last look.
    news: bool,
}

impl CleanClaims {
    /// For this number of slots.
    pub(super) fn new(slots: usize) -> CleanClaims {
        CleanClaims {
            claimed: Bits::new(slots),
            rested: Bits::new(slots),
            count: 0,
            news: false,
        }
    }
    /// The blocks of the copy in `s` change.
    #[inline]
    pub(super) fn touch(&mut self, s: Slot) {
        self.rested.clear(s.0 as usize);
        self.news = true;
    }
    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.claimed.bytes() + self.rested.bytes()
    }
}

impl ExtentMap {
    /// Number of copies of which a durable record claims that they equal their homes.
    #[inline]
    pub fn clean_claims(&self) -> u32 {
        self.claims.count
    }
    /// Whether a record claims this of the copy in `s`.
    #[inline]
    pub fn is_claimed_clean(&self, s: Slot) -> bool {
        self.claims.count > 0 && self.claims.claimed.get(s.0 as usize)
    }
    /// Notes whether a record claims this. The slot must have had a copy with bits of its own.
    pub fn set_claimed_clean(&mut self, s: Slot, on: bool) {
        let was = self.is_claimed_clean(s);
        self.claims.claimed.put(s.0 as usize, on);
        self.claims.count = self.claims.count + u32::from(on) - u32::from(was);
    }
    /// The first slot in `from..to` with such a copy.
    pub(super) fn next_claimed_clean(&self, from: u32, to: u32) -> u32 {
        if self.claims.count == 0 {
            return to;
        }
        let bits = &self.claims.claimed;
        from + bits.run(from as usize, to as usize, false) as u32
    }
    /// The extent whose copy in `s` a record may claim to be clean: no block is dirty, some are valid, and no record names them.
    pub fn may_claim_clean(&self, s: Slot) -> Option<ExtentId> {
        if self.copies_are_whole() || self.is_claimed_clean(s) {
            return None;
        }
        let named = self.is_named_in(s) || self.recorded(s) != Recorded::No;
        let e = self.owner(s).filter(|_| !named)?;
        (self.copy(e) == Some(s) && !self.copy_is_empty(e)).then_some(e)
    }
    /// Marks the copy in `s` as one that rests, until the next write or fetch. Returns whether it was marked.
    pub fn rest(&mut self, s: Slot) -> bool {
        !self.claims.rested.set(s.0 as usize)
    }
    /// Whether the copy in `s` has not changed since it was marked.
    pub fn has_rested(&self, s: Slot) -> bool {
        self.claims.rested.get(s.0 as usize)
    }
    /// Whether there may be copies to claim that the last look has not seen.
    #[inline]
    pub fn has_unclaimed(&self) -> bool {
        self.claims.news
    }
    /// Notes this.
    pub fn set_unclaimed(&mut self, on: bool) {
        self.claims.news = on;
    }
}
