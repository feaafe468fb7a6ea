//! Operations on ranges of the block file: holes and zeroing (`fallocate`), and the search for data and holes (`lseek`).

use super::Volume;
use crate::block_file::calls::errno;
use crate::port::{Completion, IoRequest};
use crate::zeroing::{self, PIECE};
use fuser::{Errno, ReplyEmpty};
use isotherm_core::RequestOp;
use rustix::fs::FallocateFlags;

/// Number of runs of allocation status that are requested at a time.
const RUNS: usize = 256;

impl Volume {
    /// `fallocate`: a hole and a zero range read as zeros afterwards, to the byte; a hole gives its whole blocks up. `durable`: before the
    /// reply, as for a descriptor with `O_DSYNC`.
    pub(super) fn change_range(
        &self,
        offset: u64,
        length: u64,
        mode: i32,
        durable: bool,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let len = self.inside(offset, length);
        let keep = match mode - FallocateFlags::KEEP_SIZE {
            FallocateFlags::PUNCH_HOLE if keep_size => false,
            FallocateFlags::ZERO_RANGE => true,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        if self.read_only {
            return reply.error(Errno::EROFS);
        }
        // A hole past the end is there already; zeros past the end have no place.
        if keep && len < length {
            return reply.error(Errno::ENOSPC);
        }
        let like = IoRequest::new(RequestOp::WriteZeroes { keep }, 0, 0).with_fua(durable);
        let done = Completion::new(move |result, _buffer| match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(std::io::Error::from(errno(error)).into()),
        });
        zeroing::submit(&*self.port, &like, &[(offset, len)], done);
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
