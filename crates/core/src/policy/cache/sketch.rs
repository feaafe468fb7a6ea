//! Estimates how often an extent was accessed recently: a count-min sketch of 4-bit counters with ageing.
//!
//! The four rows share one table of 64-bit words with sixteen counters each. The number of words is the next power of two ≥ F, so the table
//! takes 8 to 16 bytes per fast slot. After the first 10 · F touches, ageing halves every counter once per 10 · F touches. It does this
//! word by word, so that no single touch has to process the whole table.

use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Debug)]
pub(super) struct Sketch {
    words: Vec<u64>,
    /// An accumulator that decides after which touches a word is halved: all words are halved once in `10 · F` touches.
    rate: u64,
    owed: u64,
    /// Number of touches until ageing begins.
    young: u64,
    hand: usize,
}

/// Number of touches per fast slot in which every counter is halved once.
pub(super) const AGE: u64 = 10;
const SEEDS: [u64; 4] = [
    0xc3a5_c85c_97cb_3127,
    0xb492_b66f_be98_f273,
    0x9ae1_6a3b_2f90_404f,
    0xcbf2_9ce4_8422_2325,
];

impl Sketch {
    pub(super) fn new(slots: u32) -> Sketch {
        let words = (slots.max(1) as usize).next_power_of_two();
        Sketch {
            words: vec![0; words],
            rate: AGE * u64::from(slots.max(1)),
            owed: 0,
            young: AGE * u64::from(slots.max(1)),
            hand: 0,
        }
    }
    /// Word and bit position of the extent's counter in a row.
    #[inline]
    fn place(&self, extent: u32, row: usize) -> (usize, u32) {
        let h = (u64::from(extent) + 1).wrapping_mul(SEEDS[row]);
        let h = (h ^ (h >> 32)).wrapping_mul(SEEDS[(row + 1) % 4]);
        // A row has a quarter of the sixteen counters of each word.
        let shift = (row as u32 * 4 + ((h >> 60) as u32 & 3)) * 4;
        ((h >> 24) as usize & (self.words.len() - 1), shift)
    }
    /// The lowest of the extent's four counters, 0 to 15.
    #[inline]
    pub(super) fn count(&self, extent: u32) -> u64 {
        let row = |r| {
            let (w, s) = self.place(extent, r);
            self.words[w] >> s & 15
        };
        row(0).min(row(1)).min(row(2)).min(row(3))
    }
    /// Counts a touch.
    #[inline]
    pub(super) fn touch(&mut self, extent: u32) {
        for r in 0..4 {
            let (w, s) = self.place(extent, r);
            if self.words[w] >> s & 15 < 15 {
                self.words[w] += 1 << s;
            }
        }
        if self.young > 0 {
            self.young -= 1;
            return;
        }
        self.owed += self.words.len() as u64;
        while self.owed >= self.rate {
            self.owed -= self.rate;
            let w = &mut self.words[self.hand];
            *w = *w >> 1 & 0x7777_7777_7777_7777;
            self.hand = (self.hand + 1) & (self.words.len() - 1);
        }
    }
    pub(super) fn bytes(&self) -> usize {
        self.words.len() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_saturate_and_age() {
        let mut s = Sketch::new(64);
        for _ in 0..20 {
            s.touch(7);
        }
        assert_eq!(s.count(7), 15);
        assert_eq!(s.count(8), 0);
        // After the first 640 touches, 640 more halve every counter once. The counter of 7 goes from 15 to 7.
        for e in 0..1260u32 {
            s.touch(1_000_000 + e % 2);
        }
        assert_eq!(s.count(7), 7);
    }

    #[test]
    fn never_counts_too_little_before_it_ages() {
        let mut s = Sketch::new(1 << 16);
        for e in 0..1000u32 {
            for _ in 0..=e % 5 {
                s.touch(e * 4096);
            }
        }
        assert!((0..1000u32).all(|e| s.count(e * 4096) > u64::from(e % 5)));
    }
}
