//! Detects sequential requests: those that continue one of the last streams.

use crate::policy::Access;

/// Maximum number of streams that are remembered.
const MAX: usize = 32;

/// The last streams, each with its end and its length in bytes. The stream that was not continued for the longest time is dropped first.
#[derive(Clone, Debug)]
pub struct Streams {
    /// (end, bytes of the stream), most recent first.
    ends: [(u64, u64); MAX],
    used: usize,
    request: (u64, u32),
    run: u64,
    continued: bool,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams {
            ends: [(0, 0); MAX],
            used: 0,
            request: (u64::MAX, 0),
            run: 0,
            continued: false,
        }
    }
}

impl Streams {
    /// Records an access. Returns whether its request continues a stream, and the length of that stream including the request. This
    /// is decided at the first extent of the request and applies to all its extents.
    pub fn note(&mut self, access: &Access) -> (bool, u64) {
        let request = (access.request_offset, access.request_bytes);
        if !access.first && request == self.request {
            return (self.continued, self.run);
        }
        self.request = request;
        let bytes = u64::from(access.request_bytes);
        let found = self.ends[..self.used]
            .iter()
            .position(|e| e.0 == access.request_offset);
        self.continued = found.is_some();
        self.run = found.map_or(0, |i| self.ends[i].1) + bytes;
        let at = found.unwrap_or_else(|| {
            self.used = (self.used + 1).min(MAX);
            self.used - 1
        });
        self.ends.copy_within(..at, 1);
        self.ends[0] = (access.request_offset + bytes, self.run);
        (self.continued, self.run)
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
