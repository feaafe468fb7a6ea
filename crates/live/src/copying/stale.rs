//! The slots of a member of which its successor does not have the present bytes, while the member is being copied and written to.
//!
//! # Why a slot that is not stale has been copied
//!
//! A slot stops being stale before it is read ([`Stale::take`]), and is stale again at the *end* of every write to it, whatever its result
//! ([`Stale::mark`]). A read that misses bytes of a write has ended before that write did, so the end of the write comes after the take, and
//! marks the slot. To mark it when the write is issued would not be enough: the slot could be taken and read between the issue and the moment
//! at which the device has the bytes. Before the engine is closed all writes have ended, so no mark is owed then.
//!
//! This does not depend on which slots are in use: all slots are stale at first, also those that hold nothing.

use isotherm_core::geometry::Member;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. Costs two bits for each slot of the member.
#[derive(Debug)]
pub(crate) struct Stale {
    member: Member,
    shift: u32,
    /// The stale slots.
    lacking: Vec<AtomicU64>,
    /// The slots that are worth a copy now: they were in use at the begin, or were written since.
    due: Vec<AtomicU64>,
    /// Number of slots that are due.
    left: AtomicU64,
}

fn bit(index: u32) -> (usize, u64) {
    (index as usize / 64, 1 << (index % 64))
}

impl Stale {
    /// All slots of `member` are stale, and none is due. An extent has `1 << shift` bytes.
    pub fn all(member: Member, shift: u32) -> Stale {
        let words = member.slots.div_ceil(64) as usize;
        let filled = |word: u64| (0..words).map(|_| AtomicU64::new(word)).collect();
        Stale {
            member,
            shift,
            lacking: filled(u64::MAX),
            due: filled(0),
            left: AtomicU64::new(0),
        }
    }

    /// The slots that have bytes in a range of the device. Other bytes are metadata, which is not copied.
    fn slots(&self, at: u64, len: u64) -> [Range<u32>; 2] {
        let m = &self.member;
        let within = |start: u64, slots: Range<u32>| {
            let index = |byte: u64| {
                let n = byte.saturating_sub(start) >> self.shift;
                u32::try_from(n).map_or(slots.end, |n| n.clamp(slots.start, slots.end))
            };
            let end = (at + len).saturating_sub(start);
            let end = u32::try_from(end.div_ceil(1 << self.shift)).unwrap_or(slots.end);
            index(at)..end.clamp(slots.start, slots.end)
        };
        [
            within(m.stash.at, 0..m.stash.slots),
            within(m.data_offset, m.stash.slots..m.slots),
        ]
    }

    /// A write to these bytes of the device has ended.
    pub fn mark(&self, at: u64, len: u64) {
        for index in self.slots(at, len).into_iter().flatten() {
            self.want(index);
            let (word, bit) = bit(index);
            self.lacking[word].fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// A slot is worth a copy.
    pub fn want(&self, index: u32) {
        let (word, bit) = bit(index);
        if self.due[word].fetch_or(bit, Ordering::SeqCst) & bit == 0 {
            self.left.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The first slot from `from` on that is due.
    pub fn next_due(&self, from: u32) -> Option<u32> {
        let (first, low) = (from as usize / 64, from % 64);
        let rest = self.due.get(first..)?;
        rest.iter().enumerate().find_map(|(i, word)| {
            let skipped = if i == 0 { low } else { 0 };
            let word = word.load(Ordering::SeqCst) & (u64::MAX << skipped);
            let index = ((first + i) * 64) as u32 + word.trailing_zeros();
            (word != 0).then_some(index)
        })
    }

    /// Whether a slot is due.
    pub fn is_due(&self, index: u32) -> bool {
        let (word, bit) = bit(index);
        (self.due.get(word)).is_some_and(|w| w.load(Ordering::SeqCst) & bit != 0)
    }

    /// A slot is about to be read and copied. It is stale again if the copy fails or a write ends.
    pub fn take(&self, index: u32) {
        let (word, bit) = bit(index);
        if self.due[word].fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
            self.left.fetch_sub(1, Ordering::SeqCst);
        }
        self.lacking[word].fetch_and(!bit, Ordering::SeqCst);
    }

    /// Whether the successor lacks bytes of a slot.
    pub fn is_stale(&self, index: u32) -> bool {
        let (word, bit) = bit(index);
        (self.lacking.get(word)).is_none_or(|w| w.load(Ordering::SeqCst) & bit != 0)
    }

    /// Number of slots that are due.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::TierId;
    use isotherm_core::geometry::Stash;

    /// Slots of 64 KiB: 0 to 2 behind the others, 3 to 99 where their numbers say.
    fn disk() -> Stale {
        let member = Member {
            tier: TierId(1),
            first_slot: 10,
            slots: 100,
            data_offset: 0,
            stash: Stash {
                slots: 3,
                at: 200 << 16,
            },
        };
        Stale::all(member, 16)
    }

    fn due(s: &Stale) -> Vec<u32> {
        let mut all = Vec::new();
        while let Some(i) = s.next_due(all.last().map_or(0, |i| i + 1)) {
            all.push(i);
        }
        all
    }

    #[test]
    fn bytes_belong_to_the_slots_that_lie_there() {
        let marked = |at: u64, len: u64| {
            let s = disk();
            s.mark(at, len);
            due(&s)
        };
        assert_eq!(marked(3 << 16, 1), [3]);
        assert_eq!(marked((4 << 16) - 1, 2), [3, 4]);
        assert_eq!(marked(99 << 16, 65_536), [99]);
        assert_eq!(marked(200 << 16, 3 << 16), [0, 1, 2]);
        assert_eq!(marked((202 << 16) - 512, 1024), [1, 2]);
        // Metadata at the head, in between and at the end.
        for (at, len) in [(0, 3 << 16), (100 << 16, 100 << 16), (203 << 16, 1 << 40)] {
            assert_eq!(marked(at, len), [0u32; 0], "{at}");
        }
        assert_eq!(marked(0, u64::from(u32::MAX) << 16).len(), 100);
    }

    #[test]
    fn what_is_written_after_it_was_taken_is_due_again() {
        let s = disk();
        for i in [0, 63, 64, 99] {
            s.want(i);
            s.want(i);
        }
        assert_eq!((s.left(), due(&s)), (4, vec![0, 63, 64, 99]));
        s.take(63);
        s.take(5);
        assert_eq!((s.left(), s.is_due(63), s.is_stale(63)), (3, false, false));
        assert!(!s.is_stale(5) && s.is_stale(6) && s.is_stale(64));
        s.mark(63 << 16, 512);
        s.mark(63 << 16, 512);
        assert_eq!((s.left(), s.is_due(63), s.is_stale(63)), (4, true, true));
    }
}
