//! Maps each block to its class. It is looked up for every request.
//!
//! ```text
//! tops: one per 1 GiB ─► 256 leaves of 4 MiB ─┬─ all of one class: one byte
//!  (16 bytes)            (24 bytes each)      └─ else 1024 bytes, one per block of 4 KiB
//! ```
//! Memory: 16 bytes per GiB without classes, 6 KiB per GiB if each 4 MiB has one class, 262 KiB per GiB at worst.
//!
//! One thread writes and any thread may read, without locks. A reader that comes during a change sees either the old or the new class of a
//! block. A wrong class affects the placement of a block and never its content.
//!
//! The low bits of a byte hold the class (0…63), the upper two bits the [`Source`].

use crate::classes::Source;
use isotherm_core::policy::priority;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

const LEAF_SHIFT: u32 = 10;
const LEAF_BLOCKS: u64 = 1 << LEAF_SHIFT;
const WORDS: usize = LEAF_BLOCKS as usize / 8;
const LEAVES: usize = 256;
const TOP_SHIFT: u32 = LEAF_SHIFT + 8;
const EVERY: u64 = 0x0101_0101_0101_0101;

type Words = [AtomicU64; WORDS];

#[derive(Default)]
struct Leaf {
    /// The mark of all blocks as long as there are no words.
    whole: AtomicU8,
    words: OnceLock<Box<Words>>,
}

type Top = [Leaf; LEAVES];

/// A class and its source; zero if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark(u8);

impl Mark {
    /// No class.
    pub const NONE: Mark = Mark(0);

    /// `class` (0…63) from `source`; class 0 is [`Mark::NONE`].
    pub fn new(class: u8, source: Source) -> Mark {
        match class & 63 {
            0 => Mark::NONE,
            c => Mark(c | (source.index() as u8) << 6),
        }
    }

    /// The class, 0…63.
    pub fn class(self) -> u8 {
        self.0 & 63
    }

    /// The source, unless the class is 0.
    pub fn source(self) -> Option<Source> {
        (self.class() != 0).then(|| Source::ALL[usize::from(self.0 >> 6)])
    }

    /// The order of marks: first the priority of the class (DSS), then known classes before unknown ones, then the lower class.
    pub(crate) fn rank(self) -> (u8, bool, u8) {
        let class = self.class();
        (priority(class), class == 0, class)
    }

    /// The better of two marks.
    fn better(self, other: Mark) -> Mark {
        if other.rank() < self.rank() {
            other
        } else {
            self
        }
    }
}

/// The class of a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The mark of all blocks if it is the same for all; otherwise the best one, which is that of the highest priority.
    pub mark: Mark,
    /// Whether the blocks have different marks.
    pub mixed: bool,
}

/// See the module.
pub struct ClassMap {
    tops: Box<[OnceLock<Box<Top>>]>,
    shift: u32,
    blocks: u64,
    memory: AtomicUsize,
}

impl std::fmt::Debug for ClassMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ClassMap({} blocks of {})",
            self.blocks,
            1u64 << self.shift
        )
    }
}

impl ClassMap {
    /// A map of `bytes` in blocks of 4 KiB.
    pub fn new(bytes: u64) -> ClassMap {
        ClassMap::with_shift(bytes, 12)
    }

    /// A map of `bytes` in blocks of 2^`shift` bytes.
    pub fn with_shift(bytes: u64, shift: u32) -> ClassMap {
        let blocks = bytes.div_ceil(1 << shift);
        let tops: Box<[OnceLock<Box<Top>>]> = (0..blocks.div_ceil(1 << TOP_SHIFT))
            .map(|_| OnceLock::new())
            .collect();
        let memory = AtomicUsize::new(size_of_val(&*tops));
        ClassMap {
            tops,
            shift,
            blocks,
            memory,
        }
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// log2 of the block size in bytes.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    #[inline]
    fn leaf(&self, block: u64) -> Option<&Leaf> {
        let top = self.tops.get((block >> TOP_SHIFT) as usize)?.get()?;
        Some(&top[(block >> LEAF_SHIFT) as usize % LEAVES])
    }

    /// The mark of a block; [`Mark::NONE`] beyond the end.
    #[inline]
    pub fn block(&self, block: u64) -> Mark {
        let Some(leaf) = self.leaf(block) else {
            return Mark::NONE;
        };
        let Some(words) = leaf.words.get() else {
            return Mark(leaf.whole.load(Ordering::Relaxed));
        };
        let i = block as usize % LEAF_BLOCKS as usize;
        Mark((words[i / 8].load(Ordering::Relaxed) >> (i % 8 * 8)) as u8)
    }

    /// The mark of `block`, and the number of blocks from there, at most `max`, that are known to have it. The number is at least 1;
    /// further blocks may have the same mark.
    pub fn run(&self, block: u64, max: u64) -> (Mark, u64) {
        let mark = self.block(block);
        let Some(leaf) = self.leaf(block) else {
            let rest = (1 << TOP_SHIFT) - block % (1 << TOP_SHIFT);
            return (mark, rest.min(max).max(1));
        };
        let i = block % LEAF_BLOCKS;
        let most = (LEAF_BLOCKS - i).min(max).max(1);
        if leaf.words.get().is_none() {
            return (mark, most);
        }
        let mut n = 1;
        while n < most && self.block(block + n) == mark {
            n += 1;
        }
        (mark, n)
    }

    /// The class of `len` bytes from `offset`. An empty range counts as its first byte.
    #[inline]
    pub fn of(&self, offset: u64, len: u32) -> Found {
        self.find(offset, len, false)
    }

    /// The same for callers that need to know only whether all blocks have one class: the mark of a mixed range need not be the best one.
    #[inline]
    pub fn of_quickly(&self, offset: u64, len: u32) -> Found {
        self.find(offset, len, true)
    }

    #[inline]
    fn find(&self, offset: u64, len: u32, quick: bool) -> Found {
        let first = offset >> self.shift;
        let last = offset.saturating_add(u64::from(len.max(1)) - 1) >> self.shift;
        let mark = self.block(first);
        if first == last {
            return Found { mark, mixed: false };
        }
        self.of_many(first, last, mark, quick)
    }

    fn of_many(&self, first: u64, last: u64, mark: Mark, quick: bool) -> Found {
        let mut found = Found { mark, mixed: false };
        let mut before = mark;
        // Marks need to be compared only where they change.
        let mut see = |m: Mark| {
            if m != before {
                before = m;
                found.mixed |= m.class() != mark.class();
                found.mark = found.mark.better(m);
            }
            found.mixed && quick
        };
        let mut at = first;
        while at <= last {
            let end = last.min(at | (LEAF_BLOCKS - 1));
            let over = match self.leaf(at).map(|l| (l, l.words.get())) {
                None => see(Mark::NONE),
                Some((leaf, None)) => see(Mark(leaf.whole.load(Ordering::Relaxed))),
                Some((_, Some(words))) => {
                    let (mut i, to) = (at % LEAF_BLOCKS, end % LEAF_BLOCKS);
                    let mut over = false;
                    while i <= to && !over {
                        let word = words[i as usize / 8].load(Ordering::Relaxed);
                        let stop = to.min(i | 7);
                        if word == u64::from(word as u8) * EVERY {
                            over = see(Mark(word as u8));
                        } else {
                            for b in i..=stop {
                                over = see(Mark((word >> (b % 8 * 8)) as u8));
                            }
                        }
                        i = stop + 1;
                    }
                    over
                }
            };
            if over {
                break;
            }
            at = end + 1;
        }
        found
    }

    /// Marks blocks `from..to`; the part beyond the end is ignored. To be called by one thread at a time.
    pub fn set(&self, from: u64, to: u64, mark: Mark) {
        let to = to.min(self.blocks);
        let mut at = from;
        while at < to {
            let end = to.min((at | (LEAF_BLOCKS - 1)) + 1);
            let top = self.tops[(at >> TOP_SHIFT) as usize].get();
            if top.is_none() && mark == Mark::NONE {
                at = to.min((at | ((1 << TOP_SHIFT) - 1)) + 1);
                continue;
            }
            let top = self.tops[(at >> TOP_SHIFT) as usize].get_or_init(|| {
                self.memory.fetch_add(size_of::<Top>(), Ordering::Relaxed);
                Box::new(std::array::from_fn(|_| Leaf::default()))
            });
            let leaf = &top[(at >> LEAF_SHIFT) as usize % LEAVES];
            self.set_leaf(leaf, at % LEAF_BLOCKS, end - at, mark);
            at = end;
        }
    }

    fn set_leaf(&self, leaf: &Leaf, from: u64, n: u64, mark: Mark) {
        let all = u64::from(mark.0) * EVERY;
        let words = match leaf.words.get() {
            Some(words) => words,
            None if n == LEAF_BLOCKS => return leaf.whole.store(mark.0, Ordering::Relaxed),
            None => {
                let whole = leaf.whole.load(Ordering::Relaxed);
                if whole == mark.0 {
                    return;
                }
                leaf.words.get_or_init(|| {
                    self.memory.fetch_add(size_of::<Words>(), Ordering::Relaxed);
                    Box::new(std::array::from_fn(|_| {
                        AtomicU64::new(u64::from(whole) * EVERY)
                    }))
                })
            }
        };
        let (mut i, to) = (from, from + n);
        while i < to {
            let stop = to.min((i | 7) + 1);
            let word = &words[i as usize / 8];
            // The bits of bytes i%8 … (stop-1)%8.
            let keep_low = (1u64 << (i % 8 * 8)) - 1;
            let keep_high = if stop % 8 == 0 {
                0
            } else {
                u64::MAX << (stop % 8 * 8)
            };
            let keep = keep_low | keep_high;
            let old = word.load(Ordering::Relaxed);
            word.store(old & keep | all & !keep, Ordering::Relaxed);
            i = stop;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(class: u8) -> Mark {
        Mark::new(class, Source::Layout)
    }

    proptest! {
        #[test]
        fn as_a_plain_array(sets in prop::collection::vec((0u64..5000, 1u64..3000, 0u8..64), 1..40), asks in prop::collection::vec((0u64..5200 << 12, 1u32..9 << 20), 20)) {
            let map = ClassMap::new(5000 << 12);
            let mut plain = vec![0u8; 5000];
            for (from, n, class) in sets {
                map.set(from, from + n, mark(class));
                let to = (from + n).min(5000) as usize;
                plain[from as usize..to].fill(class);
            }
            for (b, class) in plain.iter().enumerate() {
                prop_assert_eq!(map.block(b as u64).class(), *class);
            }
            let at = |b: u64| plain.get(b as usize).copied().unwrap_or(0);
            for (offset, len) in asks {
                let blocks = (offset >> 12)..=((offset + u64::from(len) - 1) >> 12);
                let found = map.of(offset, len);
                let first = at(offset >> 12);
                prop_assert_eq!(found.mixed, blocks.clone().any(|b| at(b) != first));
                prop_assert_eq!(map.of_quickly(offset, len).mixed, found.mixed);
                let best = blocks.map(at).min_by_key(|c| mark(*c).rank()).unwrap();
                prop_assert_eq!(found.mark.class(), best);
            }
            let mut b = 0;
            while b < 5000 {
                let (m, n) = map.run(b, 5000 - b);
                prop_assert!(n >= 1 && (b..b + n).all(|x| at(x) == m.class()));
                b += n;
            }
        }
    }

    #[test]
    fn memory_is_as_stated() {
        let gib = 1u64 << 30;
        let map = ClassMap::new(1024 * gib);
        assert_eq!(map.memory(), 1024 * 16);
        map.set(0, gib >> 12, mark(18));
        assert_eq!(map.memory(), 1024 * 16 + 256 * 24);
        (0..1 << 18)
            .step_by(2)
            .for_each(|b| map.set(b, b + 1, mark(8)));
        assert_eq!(map.memory(), 1024 * 16 + 256 * (24 + 1024));
        // Clearing a part that does not exist does not create it.
        map.set(gib >> 12, (900 * gib) >> 12, Mark::NONE);
        assert_eq!(map.memory(), 1024 * 16 + 256 * (24 + 1024));
    }

    #[test]
    fn marks_keep_class_and_source() {
        for s in Source::ALL {
            assert_eq!((mark(0), Mark::new(0, s)), (Mark::NONE, Mark::NONE));
            let m = Mark::new(63, s);
            assert_eq!((m.class(), m.source()), (63, Some(s)));
        }
        assert_eq!(Mark::NONE.source(), None);
    }
}
