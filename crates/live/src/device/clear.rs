//! Makes a part of a device read as zeros.

use super::Device;
use crate::buffers::{ALIGNMENT, Buffer};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are cleared with one system call, after which progress is reported.
const CLEAR_STEP: u64 = 1 << 30;
/// Bytes of zeros that are written with one system call.
const WRITE_STEP: usize = 1 << 20;

impl Device {
    /// Makes the bytes from `from` on, and before `to`, read as zeros. Where the device can, nothing is written and the space is given back; else
    /// zeros are written, which takes a disk hours. `progress` is told the bytes that are done and their number.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn clear(&self, from: u64, to: u64, progress: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        let (mut at, to) = (from, to.min(self.bytes));
        let ways = [
            Some(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
            Some(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE),
            None,
        ];
        let mut ways = ways.into_iter();
        let mut way = ways.next().flatten();
        while at < to {
            let len = (to - at).min(CLEAR_STEP);
            let done = match way {
                Some(how) => {
                    let call = || rustix::fs::fallocate(&self.file, how, at, len);
                    rustix::io::retry_on_intr(call)
                }
                None => return self.write_zeros(at, to, progress),
            };
            match done {
                Ok(()) => {
                    at += len;
                    progress(at - from, to - from);
                }
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL) => {
                    way = ways.next().flatten();
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Copies `bytes` bytes from byte `from` on to byte `to`, durably. The ranges do not overlap.
    ///
    /// # Errors
    /// The device cannot be read or written.
    pub fn copy_range(&self, from: u64, to: u64, bytes: u64) -> io::Result<()> {
        let mut piece = Buffer::new(0, WRITE_STEP as u32, ALIGNMENT as u32);
        let mut at = 0;
        while at < bytes {
            let part = &mut piece[..(bytes - at).min(WRITE_STEP as u64) as usize];
            self.file.read_exact_at(part, from + at)?;
            self.file.write_all_at(part, to + at)?;
            at += part.len() as u64;
        }
        self.file.sync_all()
    }

    fn write_zeros(
        &self,
        from: u64,
        to: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> io::Result<()> {
        // Direct I/O needs aligned memory.
        let memory = vec![0; WRITE_STEP + ALIGNMENT];
        let zeros = &memory[memory.as_ptr().align_offset(ALIGNMENT)..][..WRITE_STEP];
        let mut at = from;
        while at < to {
            let n = (to - at).min(zeros.len() as u64);
            self.file.write_all_at(&zeros[..n as usize], at)?;
            at += n;
            progress(at - from, to - from);
        }
        Ok(())
    }
}
