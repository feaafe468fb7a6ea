//! Bit sets: a flat one for marks and valid blocks, and a tree that finds the lowest free slot.

use alloc::vec;
use alloc::vec::Vec;

/// A flat set of bits.
#[derive(Clone, Debug, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// A set of `n` bits, all clear.
    pub fn new(n: usize) -> Bits {
        Bits(vec![0; n.div_ceil(64)])
    }
    /// Whether bit `i` is set.
    #[inline]
    pub fn get(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }
    /// Sets bit `i`; returns true if it was clear.
    #[inline]
    pub fn set(&mut self, i: usize) -> bool {
        let w = &mut self.0[i / 64];
        let m = 1 << (i % 64);
        let was = *w & m == 0;
        *w |= m;
        was
    }
    /// Clears bit `i`.
    #[inline]
    pub fn clear(&mut self, i: usize) {
        self.0[i / 64] &= !(1 << (i % 64));
    }
    /// Sets bit `i` to `on`.
    #[inline]
    pub fn put(&mut self, i: usize, on: bool) {
        let w = &mut self.0[i / 64];
        *w = *w & !(1 << (i % 64)) | u64::from(on) << (i % 64);
    }
    /// The word of bits `64 * w` to `64 * w + 63`, the first in the lowest bit; 0 beyond the end of the set.
    #[inline]
    pub fn word(&self, w: usize) -> u64 {
        self.0.get(w).copied().unwrap_or(0)
    }
    /// A word in which the `len` bits from bit `start` on are set.
    #[inline]
    pub fn mask(start: usize, len: usize) -> u64 {
        span_mask(start, len)
    }
    /// Sets bits `from..to` to `on`; returns true if any of them changed.
    pub fn fill(&mut self, from: usize, to: usize, on: bool) -> bool {
        let mut changed = false;
        let mut i = from;
        while i < to {
            let end = (i / 64 * 64 + 64).min(to);
            let mask = span_mask(i % 64, end - i);
            let w = &mut self.0[i / 64];
            let new = if on { *w | mask } else { *w & !mask };
            changed |= new != *w;
            *w = new;
            i = end;
        }
        changed
    }
    /// Whether all bits `from..to` are equal to `on`.
    pub fn all(&self, from: usize, to: usize, on: bool) -> bool {
        self.run(from, to, on) == to - from
    }
    /// Number of consecutive bits from `from` on, up to `to`, that are equal to `on`.
    pub fn run(&self, from: usize, to: usize, on: bool) -> usize {
        let mut i = from;
        while i < to {
            let end = (i / 64 * 64 + 64).min(to);
            let w = self.0[i / 64] >> (i % 64);
            let same = if on {
                (!w).trailing_zeros()
            } else {
                w.trailing_zeros()
            } as usize;
            if same < end - i {
                return i + same - from;
            }
            i = end;
        }
        to - from
    }
    /// Copies `n` bits from `from` on to bytes, lowest bit first; `out` must have at least `n.div_ceil(8)` bytes.
    pub fn export(&self, from: usize, n: usize, out: &mut [u8]) {
        out.fill(0);
        for i in 0..n {
            if self.get(from + i) {
                out[i / 8] |= 1 << (i % 8);
            }
        }
    }
    /// The inverse of [`Bits::export`].
    pub fn import(&mut self, from: usize, n: usize, bytes: &[u8]) {
        for i in 0..n {
            if bytes[i / 8] >> (i % 8) & 1 == 1 {
                self.set(from + i);
            } else {
                self.clear(from + i);
            }
        }
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len() * 8
    }
}

#[inline]
fn span_mask(start: usize, len: usize) -> u64 {
    if len == 64 {
        !0
    } else {
        ((1u64 << len) - 1) << start
    }
}

/// A set of numbers that finds the first member at or after a position. It is a tree of 64-bit words, in which each bit of a higher level
/// tells whether a word of the level below is not empty. A search reads about one word per level (four levels for 16 million slots). The
/// memory is 1/63 more than that of the flat set.
#[derive(Clone, Debug)]
pub struct BitTree {
    levels: Vec<Vec<u64>>,
    len: usize,
}

impl BitTree {
    /// An empty set of numbers in `0..len`.
    pub fn new(len: usize) -> BitTree {
        let mut levels = Vec::new();
        let mut n = len.max(1);
        loop {
            n = n.div_ceil(64);
            levels.push(vec![0; n]);
            if n == 1 {
                break;
            }
        }
        BitTree { levels, len }
    }
    /// Whether `i` is a member.
    #[inline]
    pub fn contains(&self, i: usize) -> bool {
        self.levels[0][i / 64] >> (i % 64) & 1 == 1
    }
    /// Adds `i`.
    pub fn insert(&mut self, mut i: usize) {
        debug_assert!(i < self.len);
        for l in &mut self.levels {
            let w = &mut l[i / 64];
            let before = *w;
            *w |= 1 << (i % 64);
            if before != 0 {
                break;
            }
            i /= 64;
        }
    }
    /// Removes `i`.
    pub fn remove(&mut self, mut i: usize) {
        for l in &mut self.levels {
            let w = &mut l[i / 64];
            *w &= !(1 << (i % 64));
            if *w != 0 {
                break;
            }
            i /= 64;
        }
    }
    /// The lowest member ≥ `from`.
    pub fn first_from(&self, from: usize) -> Option<usize> {
        if from >= self.len {
            return None;
        }
        let mut i = from;
        let mut level = 0;
        // Goes up until a word has a member at or after the position, then down to the lowest member below it.
        loop {
            let w = self.levels[level].get(i / 64)? & (!0u64 << (i % 64));
            if w != 0 {
                i = i / 64 * 64 + w.trailing_zeros() as usize;
                break;
            }
            level += 1;
            if level == self.levels.len() {
                return None;
            }
            i = i / 64 + 1;
        }
        while level > 0 {
            level -= 1;
            i = i * 64 + self.levels[level][i].trailing_zeros() as usize;
        }
        Some(i)
    }
    /// The highest member ≤ `to`.
    pub fn last_to(&self, to: usize) -> Option<usize> {
        let mut i = to.min(self.len.checked_sub(1)?);
        let mut level = 0;
        // As in `first_from`, in the other direction.
        loop {
            let w = self.levels[level][i / 64] & (!0u64 >> (63 - i % 64));
            if w != 0 {
                i = i / 64 * 64 + 63 - w.leading_zeros() as usize;
                break;
            }
            level += 1;
            if level == self.levels.len() {
                return None;
            }
            i = (i / 64).checked_sub(1)?;
        }
        while level > 0 {
            level -= 1;
            i = i * 64 + 63 - self.levels[level][i].leading_zeros() as usize;
        }
        Some(i)
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.levels.iter().map(|l| l.len() * 8).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use alloc::collections::BTreeSet;

    #[test]
    fn tree_agrees_with_btreeset() {
        for len in [1usize, 63, 64, 65, 4096, 5000, 300_000] {
            let mut random = SplitMix64::new(len as u64);
            let mut t = BitTree::new(len);
            let mut m = BTreeSet::new();
            for _ in 0..2000 {
                let i = random.below(len as u64) as usize;
                if random.below(2) == 0 {
                    t.insert(i);
                    m.insert(i);
                } else {
                    t.remove(i);
                    m.remove(&i);
                }
                let f = random.below(len as u64) as usize;
                assert_eq!(
                    t.first_from(f),
                    m.range(f..).next().copied(),
                    "len {len} from {f}"
                );
                assert_eq!(t.contains(i), m.contains(&i));
            }
        }
    }

    #[test]
    fn runs_and_fills_agree_with_a_bool_array() {
        let mut random = SplitMix64::new(77);
        let mut b = Bits::new(300);
        let mut m = [false; 300];
        for _ in 0..3000 {
            let from = random.below(300) as usize;
            let to = from + random.below(301 - from as u64) as usize;
            let on = random.below(2) == 0;
            let changed = m[from..to].iter().any(|&x| x != on);
            assert_eq!(b.fill(from, to, on), changed);
            m[from..to].fill(on);
            let f = random.below(300) as usize;
            let n = m[f..].iter().take_while(|&&x| x == on).count();
            assert_eq!(b.run(f, 300, on), n);
        }
    }
}
