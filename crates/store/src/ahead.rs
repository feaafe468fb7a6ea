//! Sequential reads of the disk: which they are, and what is fetched ahead of them, also over the ends of objects.

use std::sync::Arc;

use crate::disk::Disk;
use crate::layout::GROUP;
use crate::reading::Where;
use crate::state::Object;

/// Streams that are remembered.
const STREAMS: usize = 32;
/// The reads of a stream come in some disorder: so many blocks from where it is.
const NEAR: u64 = 512;
/// Blocks that are fetched ahead, unless the cache is small.
pub(crate) const WINDOW: u64 = 8192;

/// A stream of reads.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The block after its reads.
    next: u64,
    /// The block after what was fetched ahead.
    until: u64,
}

/// The streams, the one that was read last at the end.
#[derive(Debug, Default)]
pub(crate) struct Streams(Vec<Stream>);

impl Streams {
    /// Whether a read goes on with a stream; then also the blocks that are to be fetched ahead now, none if enough are.
    pub fn note(&mut self, start: u64, end: u64, window: u64) -> Option<std::ops::Range<u64>> {
        let near = |s: &Stream| start + NEAR >= s.next && start <= s.next + NEAR;
        let Some(at) = self.0.iter().rposition(near) else {
            if self.0.len() >= STREAMS {
                self.0.remove(0);
            }
            let (next, until) = (end, end);
            self.0.push(Stream { next, until });
            return None;
        };
        let mut stream = self.0.remove(at);
        let goes_on = end > stream.next;
        stream.next = stream.next.max(end);
        stream.until = stream.until.max(stream.next);
        let from = stream.until;
        // In large steps, so that a request has many blocks.
        if goes_on && stream.until - stream.next <= window / 2 {
            stream.until = stream.next + window;
        }
        self.0.push(stream);
        goes_on.then_some(from..stream.until)
    }
}

impl Disk {
    /// Begins to fetch these blocks into the cache, and waits for none of them.
    pub(crate) fn fetch_ahead(&self, blocks: std::ops::Range<u64>) {
        let end = blocks.end.min(self.blocks());
        if blocks.start >= end {
            return;
        }
        let mut parts: Vec<(Arc<Object>, u64, u64)> = Vec::new();
        let inner = self.lock();
        for (n, place) in inner.places(blocks.start, end - blocks.start) {
            let Where::Remote(place) = place else {
                continue;
            };
            let (first, upto) = (place.block / GROUP, (place.block + n).div_ceil(GROUP));
            match parts.last_mut() {
                Some((object, from, to))
                    if inner
                        .state
                        .get(place.object)
                        .is_some_and(|o| o.name == object.name) =>
                {
                    (*from, *to) = (first.min(*from), upto.max(*to));
                }
                _ => parts.extend(inner.state.get(place.object).map(|o| (o, first, upto))),
            }
        }
        drop(inner);
        for (object, first, upto) in parts {
            self.cache.fetch_ahead(&self.remote, &object, first, upto);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_told_from_random_reads_and_fetched_ahead_once() {
        let mut streams = Streams::default();
        assert_eq!(streams.note(1000, 1064, 256), None);
        assert_eq!(streams.note(90_000, 90_001, 256), None);
        // It goes on, in some disorder, and each block is fetched ahead once.
        assert_eq!(streams.note(1064, 1128, 256), Some(1128..1384));
        assert_eq!(streams.note(1192, 1256, 256), Some(1384..1512));
        assert_eq!(streams.note(1128, 1192, 256), None, "it is behind");
        assert_eq!(streams.note(1256, 1320, 256), Some(1512..1512));
        for far in 0..100 {
            assert_eq!(
                streams.note(1 << 30 | far << 20, (1 << 30 | far << 20) + 1, 256),
                None
            );
        }
        assert!(streams.0.len() <= STREAMS);
        // Without room there is nothing ahead.
        assert_eq!(streams.note(1 << 40, (1 << 40) + 8, 0), None);
        assert_eq!(
            streams
                .note((1 << 40) + 8, (1 << 40) + 16, 0)
                .map(|r| r.is_empty()),
            Some(true)
        );
    }
}
