//! Operations on ranges of the block file: discards and zeroing (`fallocate`), and the search for data and holes (`lseek`).

use super::Volume;
use crate::block_file::answers::Pieces;
use crate::port::{Completion, IoRequest};
use fuser::{Errno, ReplyEmpty};
use isotherm_core::RequestOp;
use rustix::fs::FallocateFlags;
use std::sync::Arc;

/// A discard or zeroing is cut into pieces of at most this many bytes, a multiple of every logical block.
const PIECE: u64 = 1 << 30;

/// Number of runs of allocation status that are requested at a time.
const RUNS: usize = 256;

impl Volume {
    /// `fallocate`: a hole is a discard; zeroing keeps the space.
    pub(super) fn change_range(&self, offset: u64, length: u64, mode: i32, reply: ReplyEmpty) {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let len = self.inside(offset, length);
        let op = match mode - FallocateFlags::KEEP_SIZE {
            FallocateFlags::PUNCH_HOLE if keep_size => RequestOp::Discard,
            FallocateFlags::ZERO_RANGE => RequestOp::WriteZeroes { keep: true },
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        if self.read_only {
            return reply.error(Errno::EROFS);
        }
        // A hole past the end is there already; zeros past the end have no place.
        if op != RequestOp::Discard && len < length {
            return reply.error(Errno::ENOSPC);
        }
        if len == 0 {
            return reply.ok();
        }
        // Cut at multiples of the piece, so that no logical block is torn between two pieces.
        let end = offset + len;
        let mut cuts = vec![offset];
        cuts.extend((offset / PIECE + 1..end.div_ceil(PIECE)).map(|n| n * PIECE));
        cuts.push(end);
        let pieces = Arc::new(Pieces::new(reply, cuts.len() as u32 - 1));
        for cut in cuts.windows(2) {
            let pieces = Arc::clone(&pieces);
            let done = Completion::new(move |result, _buffer| pieces.done(result));
            self.port
                .submit(IoRequest::new(op, cut[0], (cut[1] - cut[0]) as u32), done);
        }
    }

    /// First byte at or after `offset` that is data (or a hole); the end of the file is a hole.
    pub(super) fn seek(&self, offset: u64, data: bool) -> Result<u64, Errno> {
        let mut at = offset;
        while at < self.size() {
            // Each query covers a whole piece, so that the next one starts at a place where a run can start.
            let len = self.inside(at, PIECE) as u32;
            let mut known = 0;
            for (run, mapped) in self.port.block_status(at + known, len, RUNS) {
                if mapped == data {
                    return Ok(at + known);
                }
                known += u64::from(run);
            }
            if known == 0 {
                // The port does not know. Treating the range as data is always right.
                return if data { Ok(at) } else { Ok(self.size()) };
            }
            at += known;
        }
        if data {
            Err(Errno::ENXIO)
        } else {
            Ok(self.size())
        }
    }
}
