//! Determines the kind of data at each place of a volume (Differentiated Storage Services), without any change to the software above.
//!
//! ```text
//!  ext2/3/4 layout · files by rule · database catalogue · ranges       each assigns classes to blocks
//!        └────────────── layers::Layers ──────────────┘                combines them by precedence
//!                              │ settle
//!                        map::ClassMap ◄── Classifier: one lookup per request, on the engine's thread
//! ```
//!
//! Guarantee: nothing here touches data. A layout that is half written or damaged reduces the quality of classes, and takes a bounded
//! amount of time and memory.

mod arena;
pub mod classes;
pub mod ext;
pub mod files;
mod guess;
pub mod layers;
pub mod layout;
pub mod map;
pub mod opencas;
pub mod partitions;
pub mod postgres;
mod watch;
pub mod xfs;

pub use classes::Source;
pub use layers::Layers;
pub use layout::Layout;
pub use map::{ClassMap, Found, Mark};
pub use watch::Watch;

use guess::Guess;
use isotherm_core::{RequestOp, io::QUIET};
use std::sync::Arc;

/// This bit in a class means that a more specific source should replace it: see [`classes::METADATA`].
const VAGUE: u8 = 0x40;

/// The number of classified requests by source of the class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that came with a class.
    pub front_end: u64,
    /// By source, in the order of [`Source::ALL`].
    pub sources: [u64; Source::ALL.len()],
    /// Writes whose class was guessed from the length of their run of writes.
    pub guessed: u64,
    /// Requests without a known class.
    pub unknown: u64,
    /// Reads and writes whose blocks have several classes. They are also counted above, by the best class.
    pub mixed: u64,
}

/// The engine's part: determines the class of each request.
pub struct Classifier {
    map: Arc<ClassMap>,
    watch: Arc<Watch>,
    front_end: bool,
    extent_shift: u32,
    minded: bool,
    guess: Option<Guess>,
    /// The counters.
    pub counts: Counts,
}

impl Classifier {
    /// Looks classes up in `map`, and reports writes of metadata to `watch`.
    pub fn new(map: Arc<ClassMap>, watch: Arc<Watch>, extent_shift: u32) -> Classifier {
        Classifier {
            map,
            watch,
            front_end: true,
            extent_shift,
            minded: false,
            guess: None,
            counts: Counts::default(),
        }
    }

    /// Sets whether classes that come with requests are used.
    pub fn set_front_end(&mut self, on: bool) {
        self.front_end = on;
    }

    /// Sets whether writes of unknown data get a class by the length of their run (see `guess.rs`).
    pub fn set_guess(&mut self, on: bool) {
        self.guess = on.then(Guess::default);
    }

    /// Whether they do.
    pub fn guesses(&self) -> bool {
        self.guess.is_some()
    }

    /// Whether the request of the last [`Classifier::class`] writes something that says where data is. The caller then says when it has ended
    /// ([`Classifier::ended`]).
    #[inline]
    pub fn minded(&self) -> bool {
        self.minded
    }

    /// Such a request has ended, well or badly.
    pub fn ended(&self, offset: u64, len: u32) {
        let end = offset.saturating_add(u64::from(len));
        self.watch.note(offset..end);
    }

    /// Whether they are used.
    pub fn front_end(&self) -> bool {
        self.front_end
    }

    /// A hint that [`Classifier::class`] will soon be called for this range. A caller that has several requests calls this for all of them
    /// first: their classes then come from memory at the same time, and not one after the other.
    #[inline]
    pub fn expect(&self, offset: u64, len: u32) {
        self.map.expect(offset, len);
    }

    /// The class of a request that came with class `told`. If its blocks have several classes, the result is the best of them within one
    /// extent, and 0 for several extents, so that each piece has its extent's own class (`Engine::reclassify`). Requests of different
    /// classes are never merged.
    #[inline]
    pub fn class(&mut self, op: RequestOp, offset: u64, len: u32, told: u8) -> u8 {
        self.minded = false;
        if told & QUIET != 0 || len == 0 {
            return told;
        }
        // The engine has not checked the range yet.
        let last = offset.saturating_add(u64::from(len) - 1);
        let spans = offset >> self.extent_shift != last >> self.extent_shift;
        let found = self.map.of(offset, len);
        self.minded = op != RequestOp::Read && self.watch.minds(offset, len, found);
        let is_metadata = (classes::SUPERBLOCK..=classes::JOURNAL).contains(&found.mark.class());
        let better = told & VAGUE != 0 && is_metadata && !(found.mixed && spans);
        if told != 0 && self.front_end && !better {
            self.counts.front_end += 1;
            return told & classes::CLASS_MAX;
        }
        self.counts.mixed += u64::from(found.mixed);
        match found.mark.source() {
            None => return self.unknown(op, offset, len),
            Some(s) => self.counts.sources[s.index()] += 1,
        }
        if found.mixed && spans {
            return 0;
        }
        found.mark.class()
    }

    /// The class of a request to data of which no source knows the class.
    fn unknown(&mut self, op: RequestOp, offset: u64, len: u32) -> u8 {
        let class = match &mut self.guess {
            Some(guess) if op == RequestOp::Write => guess.class(offset, len),
            _ => 0,
        };
        self.counts.guessed += u64::from(class != 0);
        self.counts.unknown += u64::from(class == 0);
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_general_class_counts_if_no_source_has_a_specific_one() {
        let mut layers = Layers::new(1 << 20);
        layers.set(Source::Layout, 0, 4, classes::DIRECTORY);
        layers.set(Source::Ranges, 4, 8, 40);
        layers.settle(u64::MAX);
        let mut c = Classifier::new(Arc::clone(layers.shared()), Arc::default(), 16);
        let mut of = |at, told| c.class(RequestOp::Read, at, 4096, told);
        assert_eq!(of(0, classes::METADATA), classes::DIRECTORY);
        assert_eq!(of(16 << 10, classes::METADATA), classes::INODES);
        assert_eq!(of(64 << 10, classes::METADATA), classes::INODES);
        assert_eq!(of(0, 9), 9, "a specific class of the front end counts");
        assert_eq!((c.counts.front_end, c.counts.unknown), (3, 0));
        c.set_front_end(false);
        assert_eq!(
            c.class(RequestOp::Read, 64 << 10, 4096, classes::METADATA),
            0
        );
    }

    #[test]
    fn sources_are_counted_and_a_mixed_request_over_extents_has_no_class() {
        let mut layers = Layers::new(1 << 20);
        layers.set(Source::Layout, 0, 16, 8);
        layers.set(Source::Layout, 3, 4, 4);
        layers.set(Source::Ranges, 16, 32, 40);
        while !layers.is_settled() {
            layers.settle(10);
        }
        let mut c = Classifier::new(Arc::clone(layers.shared()), Arc::default(), 16);
        let mut read = |offset: u64, len, told| c.class(RequestOp::Read, offset, len, told);
        assert_eq!(read(0, 4096, 0), 8);
        assert_eq!(read(0, 16384, 0), 4, "inside one extent the best");
        assert_eq!(read(0, 128 << 10, 0), 0, "each piece has its extent's");
        assert_eq!(read(0, 4096, 5), 5);
        assert_eq!(read(64 << 10, 512, 0), 40);
        assert_eq!(read(512 << 10, 512, 0), 0);
        assert_eq!(read(0, 4096, QUIET), QUIET);
        // The engine refuses invalid ranges, so the class is 0.
        assert_eq!(read(u64::MAX - 5, u32::MAX, 0), 0);
        let expected = Counts {
            front_end: 1,
            sources: [1, 0, 0, 3],
            guessed: 0,
            unknown: 2,
            mixed: 2,
        };
        assert_eq!(c.counts, expected);
        c.class(RequestOp::Write, u64::MAX, u32::MAX, 0);
        c.set_front_end(false);
        assert_eq!(c.class(RequestOp::Read, 0, 512, 5), 8);
    }

    #[test]
    fn only_writes_of_unknown_class_are_guessed() {
        let mut layers = Layers::new(4 << 20);
        layers.set(Source::Layout, 0, 16, 14);
        layers.settle(u64::MAX);
        let mut c = Classifier::new(Arc::clone(layers.shared()), Arc::default(), 16);
        let far = 1 << 20;
        assert_eq!(c.class(RequestOp::Write, far, 4096, 0), 0, "off by default");
        c.set_guess(true);
        assert!(c.guesses());
        assert_eq!(c.class(RequestOp::Write, far, 4096, 0), classes::FILE);
        assert_eq!(
            c.class(RequestOp::Write, far + 4096, 4096, 0),
            classes::FILE + 1
        );
        assert_eq!(c.class(RequestOp::Read, far, 4096, 0), 0);
        assert_eq!(
            c.class(RequestOp::Write, 0, 4096, 0),
            14,
            "the layout knows"
        );
        assert_eq!(
            c.class(RequestOp::Write, far, 4096, 7),
            7,
            "the front end knows"
        );
        assert_eq!((c.counts.guessed, c.counts.unknown), (2, 2));
        c.set_guess(false);
        assert_eq!(c.class(RequestOp::Write, far, 4096, 0), 0);
    }
}
