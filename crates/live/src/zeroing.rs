//! Discards and zeroing of ranges that are not whole blocks of the engine ([`Port::engine_block`]). Every front end passes such requests on as they are, and this is the
//! only place that decides what is done with which part:
//!
//! | request | whole blocks in the range | bytes before and after them |
//! |---|---|---|
//! | [`RequestOp::Discard`], a hint (NBD TRIM, SCSI UNMAP, DISCARD of block devices) | are given up, and read as zeros | zeros are written to whole logical blocks, the rest keeps its data |
//! | [`RequestOp::WriteZeroes`], a promise (holes and zero ranges of the block file, NBD WRITE_ZEROES, SCSI WRITE SAME, write zeroes of block devices) | read as zeros; without `keep` they are given up | zeros are written, as an ordinary write of these bytes |
//!
//! Cost: a request with unaligned ends is up to three requests, and each end is a read-modify-write of a block.

use crate::mutants::{LiveMutant, broken};
use crate::port::{Completion, IoRequest, Port};
use isotherm_core::{IoError, RequestOp};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A range of any length is requested in pieces of at most this many bytes, a multiple of every logical block.
pub(crate) const PIECE: u64 = 1 << 30;

/// The requests that take the place of `op` on `range`, in blocks of `block` bytes and logical blocks of `logical` bytes. There are none for
/// other operations, for whole blocks and for a hint about no whole logical block, which the engine handles as they are.
pub(crate) fn parts(
    op: RequestOp,
    range: Range<u64>,
    (block, logical): (u32, u32),
) -> impl Iterator<Item = (RequestOp, Range<u64>)> {
    let (block, unit) = match op {
        RequestOp::Discard => (u64::from(block), u64::from(logical)),
        _ => (u64::from(block), 1),
    };
    let start = range.start.next_multiple_of(unit);
    let end = (range.end / unit * unit).max(start);
    let odd = !start.is_multiple_of(block) || !end.is_multiple_of(block);
    let first = start.next_multiple_of(block).min(end);
    let last = (end / block * block).max(first);
    let parts = [
        (RequestOp::Write, start..first),
        (op, first..last),
        (RequestOp::Write, last..end),
    ];
    let is_zeroing = matches!(op, RequestOp::WriteZeroes { .. } | RequestOp::Discard);
    parts.into_iter().filter(move |(part, range)| {
        let is_end = *part == RequestOp::Write;
        is_zeroing && odd && !range.is_empty() && !(is_end && broken(LiveMutant::KeepZeroEnds))
    })
}

/// Several requests that are one for the front end: the last one to end reports the first error, or that all succeeded.
pub(crate) struct Join {
    left: AtomicUsize,
    state: Mutex<(Result<(), IoError>, Option<Completion>)>,
}

impl Join {
    /// For this number of requests, at least 1.
    pub(crate) fn new(requests: usize, done: Completion) -> Arc<Join> {
        Arc::new(Join {
            left: AtomicUsize::new(requests),
            state: Mutex::new((Ok(()), Some(done))),
        })
    }

    /// The completion of one of the requests.
    pub(crate) fn one(self: &Arc<Self>) -> Completion {
        let join = Arc::clone(self);
        Completion::new(move |result, _| join.ended(result))
    }

    fn ended(&self, result: Result<(), IoError>) {
        // No code panics while it holds the lock; even then the state would be consistent.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.is_ok() || broken(LiveMutant::LastPieceCounts) {
            state.0 = result;
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let (result, done) = (state.0, state.1.take());
            drop(state);
            if let Some(done) = done {
                done.call(result, None);
            }
        }
    }
}

/// Requests `like`, whose range is not used, for ranges (first byte, length) of any length.
pub(crate) fn submit(port: &dyn Port, like: &IoRequest, ranges: &[(u64, u64)], done: Completion) {
    let mut pieces = Vec::with_capacity(ranges.len());
    for &(from, len) in ranges.iter().filter(|r| r.1 != 0) {
        // Cut at multiples of the piece, so that no logical block is torn between two pieces.
        let mut at = from;
        while at < from + len {
            let to = ((at / PIECE + 1) * PIECE).min(from + len);
            pieces.push((at, (to - at) as u32));
            at = to;
        }
    }
    if pieces.is_empty() {
        return done.call(Ok(()), None);
    }
    let join = Join::new(pieces.len(), done);
    for (offset, len) in pieces {
        let piece = IoRequest::new(like.op, offset, len);
        port.submit(piece.with_fua(like.fua).in_class(like.class), join.one());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: RequestOp = RequestOp::WriteZeroes { keep: false };

    fn of(op: RequestOp, range: Range<u64>) -> Vec<(RequestOp, Range<u64>)> {
        parts(op, range, (4096, 4096)).collect()
    }

    #[test]
    fn only_the_ends_of_a_promise_are_written() {
        let w = RequestOp::Write;
        assert_eq!(of(ZERO, 512..1024), [(w, 512..1024)]);
        assert_eq!(of(ZERO, 512..4096), [(w, 512..4096)]);
        assert_eq!(of(ZERO, 4000..4200), [(w, 4000..4096), (w, 4096..4200)]);
        assert_eq!(of(ZERO, 1..8192), [(w, 1..4096), (ZERO, 4096..8192)]);
        assert_eq!(of(ZERO, 0..4097), [(ZERO, 0..4096), (w, 4096..4097)]);
        assert_eq!(
            of(ZERO, 4095..12289),
            [(w, 4095..4096), (ZERO, 4096..12288), (w, 12288..12289)]
        );
        for op in [w, RequestOp::Discard, RequestOp::Read] {
            assert_eq!(of(op, 4095..12289), []);
        }
        let hint = RequestOp::Discard;
        let of_hint = |range| parts(hint, range, (4096, 512)).collect::<Vec<_>>();
        assert_eq!(of_hint(511..1025), [(w, 512..1024)]);
        assert_eq!(
            of_hint(500..9300),
            [(w, 512..4096), (hint, 4096..8192), (w, 8192..9216)]
        );
        assert_eq!(of_hint(4096..12288), [], "whole blocks go as they are");
        assert_eq!(of_hint(600..1000), []);
        assert_eq!(of(ZERO, 4096..12288), [], "whole blocks go as they are");
        assert_eq!(of(ZERO, 100..100), []);
    }

    /// Keeps what it was asked for.
    struct Seen(crate::block_file::testing::MemPort, Mutex<Vec<IoRequest>>);

    impl crate::port::Layer for Seen {
        fn below(&self) -> &dyn Port {
            &self.0
        }
        fn submit(&self, request: IoRequest, done: Completion) {
            self.1.lock().expect("no panic").push(request);
            done.call(Ok(()), None);
        }
    }

    /// Each piece is what the whole was to be: durable, of its class, and none is torn at a block.
    #[test]
    fn pieces_are_requests_like_the_whole() {
        for fua in [false, true] {
            for op in [ZERO, RequestOp::Discard] {
                let memory = crate::block_file::testing::MemPort::new(1 << 20, 4096);
                let port = Seen(memory, Mutex::default());
                let like = IoRequest::new(op, 0, 0).with_fua(fua).in_class(5);
                let (tell, told) = std::sync::mpsc::channel();
                let done = Completion::new(move |result, _| tell.send(result).expect("open"));
                let ranges = [(512, 3 * PIECE), (7, 0), (4096, 10)];
                submit(&port, &like, &ranges, done);
                assert_eq!(told.try_iter().collect::<Vec<_>>(), [Ok(())]);
                let seen = port.1.into_inner().expect("no panic");
                let all: Vec<(u64, u64)> = seen.iter().map(|r| (r.offset, r.len.into())).collect();
                let first = PIECE - 512;
                assert_eq!(
                    all,
                    [
                        (512, first),
                        (PIECE, PIECE),
                        (2 * PIECE, PIECE),
                        (3 * PIECE, 512),
                        (4096, 10)
                    ]
                );
                let alike = |r: &IoRequest| (r.op, r.fua, r.class) == (op, fua, 5);
                assert!(seen.iter().all(alike));
            }
        }
    }

    #[test]
    fn the_parts_are_the_whole_range_in_order() {
        for start in (0..9000).step_by(250) {
            for end in (start + 1..start + 14000).step_by(333) {
                let parts = of(ZERO, start..end);
                let mut at = start;
                for (op, part) in &parts {
                    assert_eq!(part.start, at);
                    assert!(
                        *op == RequestOp::Write || part.start % 4096 == 0 && part.end % 4096 == 0
                    );
                    at = part.end;
                }
                assert!(parts.is_empty() || at == end, "{start}..{end}: {parts:?}");
            }
        }
    }
}
