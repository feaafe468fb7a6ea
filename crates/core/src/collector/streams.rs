//! Detects sequential requests: those that continue one of the last streams.

use crate::policy::Access;

/// Maximum number of streams that are remembered.
const MAX: usize = 32;

/// The last streams, each with its end and its length in bytes. The stream that was not continued for the longest time is dropped first.
///
/// The streams are in a ring. So, in the usual case that a request continues no stream, one entry is overwritten and none is moved. To see
/// quickly whether a request may continue a stream, 16 bits of a hash of each end are compared, all at once.
#[derive(Clone, Debug)]
pub struct Streams {
    /// (end, bytes of the stream), from `newest` on in the order of their last use.
    ends: [(u64, u64); MAX],
    /// [`tag`] of each end.
    tags: [u16; MAX],
    newest: usize,
    used: usize,
    request: (u64, u32),
    run: u64,
    continued: bool,
    interrupted: bool,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams {
            ends: [(0, 0); MAX],
            tags: [0; MAX],
            newest: 0,
            used: 0,
            request: (u64::MAX, 0),
            run: 0,
            continued: false,
            interrupted: false,
        }
    }
}

/// 16 bits of a hash of an end.
fn tag(end: u64) -> u16 {
    (end.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
}

impl Streams {
    /// The place of the `i`th stream in the ring, the most recent one first.
    fn at(&self, i: usize) -> usize {
        (self.newest + i) % MAX
    }
    /// The most recent stream that ends there.
    fn find(&self, end: u64) -> Option<usize> {
        let wanted = tag(end);
        // There is no early exit, so the compiler can compare eight at once.
        let same: u32 = self.tags.iter().map(|t| u32::from(*t == wanted)).sum();
        if same == 0 {
            return None;
        }
        (0..self.used).find(|i| self.ends[self.at(*i)].0 == end)
    }
    /// Puts a stream before all others. `from`: its previous place among them; `None`: it is new, and the last one is dropped if there is
    /// no room.
    fn put_first(&mut self, from: Option<usize>, stream: (u64, u64)) {
        if let Some(i) = from {
            for i in (0..i).rev() {
                let (a, b) = (self.at(i), self.at(i + 1));
                self.ends[b] = self.ends[a];
                self.tags[b] = self.tags[a];
            }
        } else {
            self.newest = (self.newest + MAX - 1) % MAX;
            self.used = (self.used + 1).min(MAX);
        }
        self.ends[self.newest] = stream;
        self.tags[self.newest] = tag(stream.0);
    }
    /// Records an access. Returns whether its request continues a stream, and the length of that stream including the request. This
    /// is decided at the first extent of the request and applies to all its extents.
    pub fn note(&mut self, access: &Access) -> (bool, u64) {
        let request = (access.request_offset, access.request_bytes);
        if !access.first && request == self.request {
            return (self.continued, self.run);
        }
        self.request = request;
        let bytes = u64::from(access.request_bytes);
        let found = self.find(access.request_offset);
        self.continued = found.is_some();
        self.interrupted = found.is_some_and(|i| i > 0);
        self.run = found.map_or(0, |i| self.ends[self.at(i)].1) + bytes;
        self.put_first(found, (access.request_offset + bytes, self.run));
        (self.continued, self.run)
    }
    /// Whether the last request continued a stream, and another request came between it and the one before it in that stream. A disk has
    /// moved its arm meanwhile.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Streams>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;
    use crate::volume::UnitId;

    fn at(offset: u64, bytes: u32) -> Access {
        Access {
            now: Nanos(0),
            extent: UnitId((offset >> 12) as u32),
            home: None,
            copy: None,
            write: false,
            class: 0,
            request_bytes: bytes,
            request_offset: offset,
            first: true,
        }
    }

    #[test]
    fn agrees_with_a_list() {
        let (mut s, mut list) = (Streams::default(), alloc::vec::Vec::<(u64, u64)>::new());
        let mut random = crate::random::SplitMix64::new(11);
        for _ in 0..20_000 {
            // There are few places, so that streams are continued, begin again, and end at the same place.
            let (offset, bytes) = (random.below(96) << 12, 4096 << random.below(2));
            let found = list.iter().position(|e| e.0 == offset);
            let run = found.map_or(0, |i| list.remove(i).1) + bytes;
            list.insert(0, (offset + bytes, run));
            list.truncate(MAX);
            assert_eq!(s.note(&at(offset, bytes as u32)), (found.is_some(), run));
        }
    }

    #[test]
    fn thirty_two_streams() {
        let mut s = Streams::default();
        assert_eq!(s.note(&at(0, 4096)), (false, 4096));
        assert_eq!(s.note(&at(4096, 4096)), (true, 8192));
        for i in 1..=31 {
            assert!(!s.note(&at(i << 20, 512)).0);
        }
        assert_eq!(s.note(&at(8192, 512)), (true, 8704)); // still remembered, now the most recent
        for i in 40..=71 {
            assert!(!s.note(&at(i << 20, 512)).0);
        }
        assert!(!s.note(&at(8704, 512)).0, "32 others came between");
    }
}
