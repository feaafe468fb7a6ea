//! Combines the classes that several sources give to the same blocks.
//!
//! 1. Metadata that the layout of a file system shows (classes 1…7): no file can be there.
//! 2. Ranges that a user registered, 3. a database's catalogue, 4. files by rule: the application knows more than the file
//!    system, and DSS 4.3.1 lets it override.
//! 5. Sizes of files (8…18), as the layout shows them.
//!
//! A class that comes with a request precedes all of these (`UBLK_IO_F_META`, the group number of iSCSI): see [`crate::Classifier`]. Each
//! source can be switched off; its classes are then kept but not used.

use crate::classes::{JOURNAL, Source};
use crate::map::{ClassMap, Mark};
use std::ops::Range;
use std::sync::Arc;

/// Most changed ranges that are kept one by one. If there are more, they are merged into one range.
const CHANGED_MAX: usize = 1 << 16;

struct Layer {
    map: ClassMap,
    /// Byte of the volume at which block 0 of the map begins.
    base: u64,
}

/// See the module. It belongs to one thread; the other threads read [`Layers::shared`].
pub struct Layers {
    bytes: u64,
    /// Bytes to which the volume may grow.
    room: u64,
    shared: Arc<ClassMap>,
    by_source: [Option<Layer>; Source::ALL.len()],
    off: [bool; Source::ALL.len()],
    /// Byte ranges of the volume that must be resolved again.
    changed: Vec<Range<u64>>,
}

impl Layers {
    /// Layers over a volume of `bytes`.
    pub fn new(bytes: u64) -> Layers {
        Layers::with_room(bytes, bytes)
    }

    /// Layers over a volume of `bytes`, which may grow to `room` bytes.
    pub fn with_room(bytes: u64, room: u64) -> Layers {
        Layers {
            bytes,
            room,
            shared: Arc::new(ClassMap::with_room(bytes, room, 12)),
            by_source: std::array::from_fn(|_| None),
            off: [false; Source::ALL.len()],
            changed: Vec::new(),
        }
    }

    /// The volume has grown to `bytes`. What is beyond the room has no classes.
    pub fn grow(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes.min(self.room));
        self.shared.grow(self.bytes);
        for layer in self.by_source.iter().flatten() {
            layer.map.grow(self.bytes.saturating_sub(layer.base));
        }
    }

    /// The resulting map.
    pub fn shared(&self) -> &Arc<ClassMap> {
        &self.shared
    }

    /// Memory of all maps in bytes.
    pub fn memory(&self) -> usize {
        let layers = self.by_source.iter().flatten();
        self.shared.memory() + layers.map(|l| l.map.memory()).sum::<usize>()
    }

    /// Whether the source is switched on.
    pub fn is_on(&self, source: Source) -> bool {
        !self.off[source.index()]
    }

    /// Switches a source on or off.
    pub fn switch(&mut self, source: Source, on: bool) {
        if self.is_on(source) != on {
            self.off[source.index()] = !on;
            if self.by_source[source.index()].is_some() {
                self.all_changed();
            }
        }
    }

    /// Removes all classes of a source. From now on its blocks have 2^`shift` bytes and begin at byte `base`.
    pub fn clear(&mut self, source: Source, base: u64, shift: u32) {
        let left = |bytes: u64| bytes.saturating_sub(base);
        let map = ClassMap::with_room(left(self.bytes), left(self.room), shift);
        if self.by_source[source.index()]
            .replace(Layer { map, base })
            .is_some()
        {
            self.all_changed();
        }
    }

    fn all_changed(&mut self) {
        self.changed.clear();
        self.changed.push(0..self.bytes);
    }

    fn touch(&mut self, bytes: Range<u64>) {
        let full = self.changed.len() >= CHANGED_MAX;
        match self.changed.last_mut() {
            Some(last) if last.end >= bytes.start && last.start <= bytes.end => {
                last.start = last.start.min(bytes.start);
                last.end = last.end.max(bytes.end);
            }
            _ if full => {
                let start = self.changed.iter().map(|r| r.start).min();
                let end = self.changed.iter().map(|r| r.end).max();
                let all = start.unwrap_or(0).min(bytes.start)..end.unwrap_or(0).max(bytes.end);
                self.changed.clear();
                self.changed.push(all);
            }
            _ => self.changed.push(bytes),
        }
    }

    /// A source sets the class of blocks `from..to` of its map; 0 removes their class.
    pub fn set(&mut self, source: Source, from: u64, to: u64, class: u8) {
        let (bytes, room) = (self.bytes, self.room);
        let layer = self.by_source[source.index()].get_or_insert_with(|| Layer {
            map: ClassMap::with_room(bytes, room, 12),
            base: 0,
        });
        let to = to.min(layer.map.blocks());
        let mark = Mark::new(class, source);
        let mut at = from;
        let mut news: Option<Range<u64>> = None;
        while at < to {
            let (old, n) = layer.map.run(at, to - at);
            if old != mark {
                news = Some(news.map_or(at, |r| r.start)..at + n);
            }
            at += n;
        }
        if let Some(blocks) = news {
            layer.map.set(from, to, mark);
            let (shift, base) = (layer.map.shift(), layer.base);
            self.touch(base + (blocks.start << shift)..base + (blocks.end << shift));
        }
    }

    /// The class that a source gave to a block of its map.
    pub fn class_at(&self, source: Source, block: u64) -> u8 {
        let layer = self.by_source[source.index()].as_ref();
        layer.map_or(0, |l| l.map.block(block).class())
    }

    /// The same, with the number of blocks from there, at most `max`, that are known to have it.
    pub fn class_run(&self, source: Source, block: u64, max: u64) -> (u8, u64) {
        let layer = self.by_source[source.index()].as_ref();
        layer.map_or((0, max), |l| {
            let (mark, n) = l.map.run(block, max);
            (mark.class(), n)
        })
    }

    /// Size of the volume in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there is nothing left to resolve.
    pub fn is_settled(&self) -> bool {
        self.changed.is_empty()
    }

    /// Updates the resulting map, with about `budget` blocks' worth of work. Returns the byte ranges that may have changed. To be called
    /// until [`Layers::is_settled`].
    pub fn settle(&mut self, budget: u64) -> Vec<Range<u64>> {
        let mut done = Vec::new();
        let mut left = budget;
        while left > 0 {
            let Some(mut r) = self.changed.pop() else {
                break;
            };
            let from = r.start >> 12 << 12;
            let mut at = from;
            let mut news: Option<Range<u64>> = None;
            while at < r.end && left > 0 {
                let (mark, n) = self.resolve(at >> 12, (r.end - at).div_ceil(4096));
                let (old, m) = self.shared.run(at >> 12, n);
                let end = (at >> 12) + m;
                if old != mark {
                    self.shared.set(at >> 12, end, mark);
                    news = Some(news.map_or(at, |r| r.start)..end << 12);
                }
                at = end << 12;
                left = left.saturating_sub(1 + m / 1024);
            }
            done.extend(news);
            if at < r.end {
                r.start = at;
                self.changed.push(r);
            }
        }
        done
    }

    /// The mark of a 4 KiB block of the volume, and the number of blocks from there, at most `max`, that have it.
    fn resolve(&self, block: u64, max: u64) -> (Mark, u64) {
        let mut n = max.max(1);
        let mut best = Mark::NONE;
        for source in Source::ALL {
            if self.off[source.index()] {
                continue;
            }
            let Some(layer) = &self.by_source[source.index()] else {
                continue;
            };
            let (mark, run) = layer.at(block, n);
            n = n.min(run);
            let is_metadata = source == Source::Layout && (1..=JOURNAL).contains(&mark.class());
            if best == Mark::NONE || is_metadata {
                best = if mark == Mark::NONE { best } else { mark };
            }
        }
        (best, n)
    }
}

impl Layer {
    /// For a 4 KiB block of the volume: the best mark of its parts in this layer, and the number of blocks that have it.
    fn at(&self, block: u64, max: u64) -> (Mark, u64) {
        let byte = block << 12;
        let shift = self.map.shift();
        if byte + 4096 <= self.base {
            return (Mark::NONE, ((self.base - byte) >> 12).min(max).max(1));
        }
        let aligned = self.base.is_multiple_of(4096);
        let first = byte.saturating_sub(self.base) >> shift;
        if shift >= 12 && aligned {
            let in_block = ((byte - self.base) % (1 << shift)) >> 12;
            let per = 1u64 << (shift - 12);
            let (mark, n) = self.map.run(first, max.div_ceil(per) + 1);
            return (mark, (n * per - in_block).min(max).max(1));
        }
        // The layer has smaller blocks, or the partition begins at an odd sector: take the best of the blocks that overlap.
        let last = (byte + 4095 - self.base) >> shift;
        let (mark, run) = self.map.run(first, (max << 12 >> shift) + 2);
        if aligned && shift < 12 && run > last - first {
            return (mark, (run << shift >> 12).min(max).max(1));
        }
        let all = (first..=last).map(|b| self.map.block(b));
        (all.max().unwrap_or(Mark::NONE), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settle(l: &mut Layers) {
        while !l.is_settled() {
            l.settle(100);
        }
    }

    #[test]
    fn metadata_then_applications_then_sizes() {
        let mut l = Layers::new(1 << 20);
        l.set(Source::Layout, 0, 4, 4);
        l.set(Source::Layout, 4, 8, 12);
        l.set(Source::Files, 0, 7, 30);
        l.set(Source::Database, 6, 10, 23);
        l.set(Source::Ranges, 5, 6, 40);
        settle(&mut l);
        let classes = |l: &Layers| {
            (0..11)
                .map(|b| l.shared().block(b).class())
                .collect::<Vec<_>>()
        };
        assert_eq!(classes(&l), [4, 4, 4, 4, 30, 40, 23, 23, 23, 23, 0]);
        l.switch(Source::Layout, false);
        l.switch(Source::Database, false);
        settle(&mut l);
        assert_eq!(classes(&l), [30, 30, 30, 30, 30, 40, 30, 0, 0, 0, 0]);
        l.switch(Source::Layout, true);
        l.clear(Source::Files, 0, 12);
        settle(&mut l);
        assert_eq!(classes(&l), [4, 4, 4, 4, 12, 40, 12, 12, 0, 0, 0]);
    }

    #[test]
    fn a_volume_that_grows_gets_classes_in_its_new_part() {
        let mut l = Layers::with_room(1 << 20, 8 << 20);
        // Blocks of 1 KiB from an odd sector on, and blocks of 4 KiB.
        l.clear(Source::Layout, 512, 10);
        l.set(Source::Files, 200, 400, 30);
        l.set(Source::Layout, 1000, 3000, 4);
        settle(&mut l);
        let class = |l: &Layers, b: u64| l.shared().block(b).class();
        assert_eq!([255, 256].map(|b| class(&l, b)), [4, 0], "its end");
        l.grow(4 << 20);
        assert_eq!(l.bytes(), 4 << 20);
        l.set(Source::Files, 200, 400, 30);
        l.set(Source::Layout, 1000, 3000, 4);
        settle(&mut l);
        assert_eq!([300, 399, 749, 751].map(|b| class(&l, b)), [4, 4, 4, 0]);
        // More than the room: the rest has no classes.
        l.grow(64 << 20);
        l.set(Source::Files, 0, 16 << 10, 31);
        settle(&mut l);
        assert_eq!([2047, 2048].map(|b| class(&l, b)), [31, 0]);
    }

    proptest! {
        /// A layer with another block size at an odd position: each block of 4 KiB has the best class of the blocks within it.
        #[test]
        fn other_block_sizes(shift in 10u32..=16, sector in 0u64..40, sets in prop::collection::vec((0u64..900, 1u64..200, 0u8..26), 1..20)) {
            let bytes = 4u64 << 20;
            let base = sector * 512;
            let mut l = Layers::new(bytes);
            l.clear(Source::Layout, base, shift);
            let mut plain = vec![0u8; (bytes / 512) as usize];
            for (from, n, class) in sets {
                l.set(Source::Layout, from, from + n, class);
                settle(&mut l);
                let sectors = (1usize << shift) / 512;
                let at = sector as usize + from as usize * sectors;
                let end = (at + n as usize * sectors).min(plain.len());
                if at < end {
                    plain[at..end].fill(class);
                }
            }
            for (b, part) in plain.chunks(8).enumerate() {
                let best = part.iter().max_by_key(|c| Mark::new(**c, Source::Layout)).unwrap();
                prop_assert_eq!(l.shared().block(b as u64).class(), *best, "block {}", b);
            }
        }
    }
}
