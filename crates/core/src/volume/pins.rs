//! Counts of the operations in progress per slot (GreenDM 6.1.6: one counter per extent, incremented at each access and decremented at each
//! completion).
//!
//! Few slots have operations in progress at a time, so the counts are in a small hash table (open addressing) and not in every row of the
//! map. Reads and writes are counted separately. A read in progress does not prevent a move. A write does, because it could end after the
//! move has read the data, and would be lost.

use crate::units::Slot;
use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
struct Pin {
    slot: u32,
    readers: u32,
    writers: u32,
}

const FREE: Pin = Pin {
    slot: u32::MAX,
    readers: 0,
    writers: 0,
};

/// Counts of operations in progress, by slot.
#[derive(Clone, Debug)]
pub struct Pins {
    table: Vec<Pin>,
    used: usize,
}

impl Pins {
    /// A table with room for `n` slots before it has to grow.
    pub fn new(n: usize) -> Pins {
        Pins {
            table: vec![FREE; (n * 2).next_power_of_two().max(16)],
            used: 0,
        }
    }
    fn find(&self, s: Slot) -> usize {
        let mask = self.table.len() - 1;
        // Fibonacci hashing spreads neighbouring slot numbers. It needs no random seed.
        let mut i = (s.0.wrapping_mul(0x9e37_79b1) as usize) & mask;
        while self.table[i].slot != s.0 && self.table[i].slot != u32::MAX {
            i = (i + 1) & mask;
        }
        i
    }
    fn grow(&mut self) {
        let old = core::mem::take(&mut self.table);
        self.table = vec![FREE; old.len() * 2];
        for p in old.into_iter().filter(|p| p.slot != u32::MAX) {
            let i = self.find(Slot(p.slot));
            self.table[i] = p;
        }
    }
    /// Counts one more operation on `s`.
    pub fn pin(&mut self, s: Slot, write: bool) {
        if self.used * 2 >= self.table.len() {
            self.grow();
        }
        let i = self.find(s);
        if self.table[i].slot == u32::MAX {
            self.table[i].slot = s.0;
            self.used += 1;
        }
        let p = &mut self.table[i];
        if write {
            p.writers += 1;
        } else {
            p.readers += 1;
        }
    }
    /// Counts that one operation on `s` ended. Returns whether it was the last.
    pub fn unpin(&mut self, s: Slot, write: bool) -> bool {
        let i = self.find(s);
        let p = &mut self.table[i];
        assert!(
            p.slot == s.0 && if write { p.writers > 0 } else { p.readers > 0 },
            "unpin of a slot that is not pinned"
        );
        if write {
            p.writers -= 1;
        } else {
            p.readers -= 1;
        }
        if p.readers != 0 || p.writers != 0 {
            return false;
        }
        self.remove(i);
        true
    }
    /// Removes an entry and moves later entries back, so that no tombstones accumulate.
    fn remove(&mut self, mut hole: usize) {
        let mask = self.table.len() - 1;
        self.used -= 1;
        let mut i = (hole + 1) & mask;
        while self.table[i].slot != u32::MAX {
            let want = (self.table[i].slot.wrapping_mul(0x9e37_79b1) as usize) & mask;
            if (i.wrapping_sub(want) & mask) >= (i.wrapping_sub(hole) & mask) {
                self.table[hole] = self.table[i];
                hole = i;
            }
            i = (i + 1) & mask;
        }
        self.table[hole] = FREE;
    }
    /// The numbers of reads and of writes in progress on `s`.
    #[inline]
    pub fn count(&self, s: Slot) -> (u32, u32) {
        if self.used == 0 {
            return (0, 0);
        }
        let p = &self.table[self.find(s)];
        (p.readers, p.writers)
    }
    /// Whether an operation is in progress on `s`.
    pub fn is_pinned(&self, s: Slot) -> bool {
        self.count(s) != (0, 0)
    }
    /// Number of slots with operations in progress.
    pub fn len(&self) -> usize {
        self.used
    }
    /// Whether no operation is in progress.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn agrees_with_a_map() {
        let mut p = Pins::new(4);
        let mut m: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        let mut random = crate::random::SplitMix64::new(12345);
        for _ in 0..20_000 {
            let s = random.draw();
            let (slot, write) = ((s >> 33) as u32 % 97, s >> 62 & 1 == 1);
            let e = m.entry(slot).or_default();
            let n = if write { &mut e.1 } else { &mut e.0 };
            if *n > 0 && s >> 60 & 1 == 1 {
                *n -= 1;
                assert_eq!(p.unpin(Slot(slot), write), *e == (0, 0));
            } else {
                *n += 1;
                p.pin(Slot(slot), write);
            }
            if *e == (0, 0) {
                m.remove(&slot);
            }
            let probe = (s >> 20) as u32 % 97;
            assert_eq!(
                p.count(Slot(probe)),
                m.get(&probe).copied().unwrap_or_default()
            );
            assert_eq!(p.len(), m.len());
        }
    }

    #[test]
    #[should_panic(expected = "not pinned")]
    fn unpin_without_pin_is_a_bug() {
        Pins::new(4).unpin(Slot(3), true);
    }
}
