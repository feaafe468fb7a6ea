//! Maps each block to its class. It is looked up for every request.
//!
//! ```text
//! tops: one per 1 GiB ─► 256 leaves of 4 MiB ─┬─ all of one class: the mark itself
//!  (16 bytes)            (4 bytes each)       └─ else a slab of 1024 bytes, one per block of 4 KiB
//! ```
//! Memory: 16 bytes per GiB without classes, 1 KiB per GiB if each 4 MiB has one class, 257 KiB per GiB at worst. Of a look-up's loads only
//! the last one, of the slab, is likely to miss the processor's caches.
//!
//! One thread writes and any thread may read, without locks. A reader that comes during a change sees either the old or the new class of a
//! block. A wrong class affects the placement of a block and never its content.

use crate::arena::{Arena, WORDS};
use crate::classes::Source;
use isotherm_core::policy::priority;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

const LEAF_SHIFT: u32 = 10;
const LEAF_BLOCKS: u64 = 1 << LEAF_SHIFT;
/// Blocks whose marks share a line of the processor's caches.
const LINE_BLOCKS: u64 = 64;
const LEAVES: usize = 256;
const TOP_SHIFT: u32 = LEAF_SHIFT + 8;
const EVERY: u64 = 0x0101_0101_0101_0101;
/// A leaf below this is the mark of all its blocks, else it is this plus the number of its slab.
const SLABS: u32 = 256;
/// More than there are priorities.
const LEVELS: u8 = 64;

type Top = [AtomicU32; LEAVES];

/// The classes from the last to the first in the order of marks: by the priority of the class (DSS), then known classes before the unknown
/// one, then the lower class. Class 0 is the last of all.
const ORDER: [u8; 64] = {
    let mut order = [0; 64];
    let mut next = 1;
    let mut level = LEVELS;
    while level > 0 {
        level -= 1;
        let mut class = 63;
        while class > 0 {
            if priority(class) == level {
                order[next] = class;
                next += 1;
            }
            class -= 1;
        }
    }
    assert!(next == 64);
    order
};

/// The place of each class in [`ORDER`].
const PLACE: [u8; 64] = {
    let mut place = [0; 64];
    let mut i = 0;
    while i < 64 {
        place[ORDER[i] as usize] = i as u8;
        i += 1;
    }
    place
};

/// A class and its source; zero if there is none. The greater of two is the better one: the upper six bits hold the class's place in the
/// order, the lower two the source, the first one as 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(u8);

impl Mark {
    /// No class.
    pub const NONE: Mark = Mark(0);

    /// `class` (0…63) from `source`; class 0 is [`Mark::NONE`].
    pub fn new(class: u8, source: Source) -> Mark {
        match class & 63 {
            0 => Mark::NONE,
            c => Mark(PLACE[usize::from(c)] << 2 | (3 - source.index() as u8)),
        }
    }

    /// The class, 0…63.
    #[inline]
    pub fn class(self) -> u8 {
        ORDER[usize::from(self.0 >> 2)]
    }

    /// The source, unless the class is 0.
    #[inline]
    pub fn source(self) -> Option<Source> {
        (self.0 >> 2 != 0).then(|| Source::ALL[usize::from(3 - (self.0 & 3))])
    }
}

/// Words that are looked at together.
const TOGETHER: usize = 32;

/// The best and the worst of some marks.
struct Span {
    best: u8,
    worst: u8,
}

impl Span {
    const EMPTY: Span = Span {
        best: 0,
        worst: 255,
    };

    fn add(&mut self, marks: &[u8]) {
        self.best = marks.iter().fold(self.best, |a, b| a.max(*b));
        self.worst = marks.iter().fold(self.worst, |a, b| a.min(*b));
    }

    /// The marks `from..to` of these words, eight in each. They are copied first: loops over atomic words do not become vector operations,
    /// those over bytes do. Nothing depends on a mark before the end, so a word that comes late from memory holds nothing else up.
    #[inline]
    fn add_words(&mut self, words: &[AtomicU64], from: usize, to: usize) {
        let (mut skip, mut left) = (from, to);
        for some in words.chunks(TOGETHER) {
            let mut marks = [0; TOGETHER * 8];
            for (eight, word) in marks.chunks_exact_mut(8).zip(some) {
                eight.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            let end = left.min(marks.len());
            self.add(&marks[skip..end]);
            (skip, left) = (0, left - end);
        }
    }

    fn found(&self) -> Found {
        Found {
            mark: Mark(self.best),
            mixed: self.best >> 2 != self.worst >> 2,
        }
    }
}

/// The class of a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The best mark of all blocks: that of the class of the highest priority.
    pub mark: Mark,
    /// Whether the blocks have different classes.
    pub mixed: bool,
}

/// See the module.
pub struct ClassMap {
    tops: Box<[OnceLock<Box<Top>>]>,
    slabs: Arena,
    /// Number of slabs taken.
    taken: AtomicUsize,
    shift: u32,
    blocks: AtomicU64,
    memory: AtomicUsize,
}

/// What is known of the blocks of a leaf.
enum Leaf<'a> {
    /// All have this mark.
    Whole(Mark),
    /// One byte each.
    Each(&'a [AtomicU64]),
}

impl std::fmt::Debug for ClassMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ClassMap({} blocks of {})",
            self.blocks(),
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
        ClassMap::with_room(bytes, bytes, shift)
    }

    /// As [`ClassMap::with_shift`], for a volume that may grow to `room` bytes (at least `bytes`). Each GiB of room costs 16 bytes.
    pub fn with_room(bytes: u64, room: u64, shift: u32) -> ClassMap {
        let count = |bytes: u64| bytes.div_ceil(1 << shift);
        let room = room.max(bytes);
        let tops: Box<[OnceLock<Box<Top>>]> = (0..count(room).div_ceil(1 << TOP_SHIFT))
            .map(|_| OnceLock::new())
            .collect();
        let memory = AtomicUsize::new(size_of_val(&*tops));
        ClassMap {
            slabs: Arena::new(
                count(bytes).div_ceil(LEAF_BLOCKS) as usize,
                tops.len() * LEAVES,
            ),
            tops,
            taken: AtomicUsize::new(0),
            shift,
            blocks: AtomicU64::new(count(bytes)),
            memory,
        }
    }

    /// The volume has `bytes` now. What is beyond the room that the map was made with gets no classes. A map does not shrink.
    pub fn grow(&self, bytes: u64) {
        let room = (self.tops.len() as u64) << TOP_SHIFT;
        let blocks = bytes.div_ceil(1 << self.shift).min(room);
        self.blocks.fetch_max(blocks, Ordering::Relaxed);
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// log2 of the block size in bytes.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// The leaf of `block`; `None` if no block of its GiB ever had a class, or beyond the end.
    #[inline]
    fn leaf(&self, block: u64) -> Option<Leaf<'_>> {
        let top = self.tops.get((block >> TOP_SHIFT) as usize)?.get()?;
        Some(self.read(&top[(block >> LEAF_SHIFT) as usize % LEAVES]))
    }

    #[inline]
    fn read(&self, leaf: &AtomicU32) -> Leaf<'_> {
        // What is in the slab was stored before its number was.
        match leaf.load(Ordering::Acquire) {
            mark @ 0..SLABS => Leaf::Whole(Mark(mark as u8)),
            slab => Leaf::Each(self.slabs.slab((slab - SLABS) as usize)),
        }
    }

    /// The mark of a block; [`Mark::NONE`] beyond the end.
    #[inline]
    pub fn block(&self, block: u64) -> Mark {
        match self.leaf(block) {
            None => Mark::NONE,
            Some(Leaf::Whole(mark)) => mark,
            Some(Leaf::Each(words)) => {
                let i = block as usize % LEAF_BLOCKS as usize;
                Mark((words[i / 8].load(Ordering::Relaxed) >> (i % 8 * 8)) as u8)
            }
        }
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
        if matches!(leaf, Leaf::Whole(_)) {
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
        let first = offset >> self.shift;
        let last = offset.saturating_add(u64::from(len.max(1)) - 1) >> self.shift;
        if first == last {
            let mark = self.block(first);
            return Found { mark, mixed: false };
        }
        self.of_many(first, last)
    }

    /// A hint that [`ClassMap::of`] will soon be called for this range: begins to load its marks, without waiting for them. If several ranges
    /// are expected one after the other, their loads overlap.
    #[inline]
    pub fn expect(&self, offset: u64, len: u32) {
        let first = offset >> self.shift;
        let last = offset.saturating_add(u64::from(len.max(1)) - 1) >> self.shift;
        // Longer ranges are rare, and the processor finds their further lines itself.
        for at in (first..last).step_by(LINE_BLOCKS as usize).take(8) {
            std::hint::black_box(self.block(at));
        }
        std::hint::black_box(self.block(last));
    }

    fn of_many(&self, first: u64, last: u64) -> Found {
        let mut span = Span::EMPTY;
        let mut at = first;
        loop {
            let end = last.min(at | (LEAF_BLOCKS - 1));
            match self.leaf(at) {
                None => span.add(&[0]),
                Some(Leaf::Whole(mark)) => span.add(&[mark.0]),
                Some(Leaf::Each(words)) => {
                    let (from, to) = ((at % LEAF_BLOCKS) as usize, (end % LEAF_BLOCKS) as usize);
                    span.add_words(&words[from / 8..=to / 8], from % 8, to - from / 8 * 8 + 1);
                }
            }
            if end == last {
                return span.found();
            }
            at = end + 1;
        }
    }

    /// Marks blocks `from..to`; the part beyond the end is ignored. To be called by one thread at a time.
    pub fn set(&self, from: u64, to: u64, mark: Mark) {
        let to = to.min(self.blocks());
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
                Box::new(std::array::from_fn(|_| AtomicU32::new(0)))
            });
            let leaf = &top[(at >> LEAF_SHIFT) as usize % LEAVES];
            self.set_leaf(leaf, at % LEAF_BLOCKS, end - at, mark);
            at = end;
        }
    }

    fn set_leaf(&self, leaf: &AtomicU32, from: u64, n: u64, mark: Mark) {
        let all = u64::from(mark.0) * EVERY;
        let words = match self.read(leaf) {
            Leaf::Each(words) => words,
            Leaf::Whole(_) if n == LEAF_BLOCKS => {
                return leaf.store(u32::from(mark.0), Ordering::Relaxed);
            }
            Leaf::Whole(whole) if whole == mark => return,
            Leaf::Whole(whole) => {
                let slab = self.taken.fetch_add(1, Ordering::Relaxed);
                let slab = self.slabs.number(slab);
                self.memory.fetch_add(WORDS * 8, Ordering::Relaxed);
                let words = self.slabs.take(slab, u64::from(whole.0) * EVERY);
                leaf.store(SLABS + slab as u32, Ordering::Release);
                words
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

    fn rank(class: u8) -> (u8, bool, u8) {
        (priority(class), class == 0, class)
    }

    #[test]
    fn the_greater_mark_is_the_better_one() {
        for (a, b) in (0..64).flat_map(|a| (0..64).map(move |b| (a, b))) {
            assert_eq!(mark(a) > mark(b), rank(a) < rank(b), "{a} and {b}");
        }
        let by = |s| Mark::new(9, s);
        assert!(Source::ALL.windows(2).all(|s| by(s[0]) > by(s[1])));
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
                let best = blocks.map(at).min_by_key(|c| rank(*c)).unwrap();
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
        assert_eq!(map.memory(), 1024 * 16 + 256 * 4);
        (0..1 << 18)
            .step_by(2)
            .for_each(|b| map.set(b, b + 1, mark(8)));
        assert_eq!(map.memory(), 1024 * 16 + 256 * (4 + 1024));
        // Clearing a part that does not exist does not create it.
        map.set(gib >> 12, (900 * gib) >> 12, Mark::NONE);
        assert_eq!(map.memory(), 1024 * 16 + 256 * (4 + 1024));
    }

    /// Every leaf of the old size and of the new one needs a slab of its own.
    #[test]
    fn a_map_that_grows_keeps_its_marks() {
        let mib = 1u64 << 20;
        let blocks = |mib: u64| mib << 8;
        let map = ClassMap::with_room(70 * mib, 3000 * mib, 12);
        let odd = |from: u64, to: u64, class| {
            (blocks(from)..blocks(to))
                .step_by(7)
                .for_each(|b| map.set(b, b + 1, mark(class)));
        };
        odd(0, 200, 9);
        assert_eq!(map.block(blocks(70)), Mark::NONE, "beyond the end");
        map.grow(2900 * mib);
        map.grow(100 * mib);
        assert_eq!(map.blocks(), blocks(2900));
        odd(70, 2900, 10);
        let class = |b: u64| match b {
            b if b >= blocks(70) => u8::from((b - blocks(70)) % 7 == 0) * 10,
            b => u8::from(b % 7 == 0) * 9,
        };
        assert!((0..blocks(2900)).all(|b| map.block(b).class() == class(b)));
        map.grow(u64::MAX);
        let last = map.blocks() - 1;
        assert!(last >= blocks(3000) - 1);
        map.set(last, last + 9, mark(11));
        assert_eq!(map.block(last), mark(11));
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
