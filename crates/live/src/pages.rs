//! The memory of a request that stays in the kernel: its pages are one of the buffers that are registered with the engine's ring.
//!
//! Device operations name the buffer by its number, so the bytes never enter this process. Where this process does need bytes (zeros for
//! blocks that were never written, a read from a move's buffer, a write that goes to two members), it copies them through the front end's
//! file.
//!
//! Lifetime: the kernel registers the pages before it hands the request over, and removes the registration only when the request is
//! answered. A request is answered only when no device operation uses its memory (`Table::reply` asserts this), so no operation is
//! started with the number of a buffer that belongs to another request. The kernel holds the pages themselves for as long as an operation
//! of the ring uses them, also if this process is killed: so an error here can give a request wrong bytes, but can never damage memory.
//!
//! Their contents may change at any time, because the user of the block device can write to them. Whoever needs the same bytes twice must
//! copy them first.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The pages of a read or write, which the kernel has registered with the engine's ring.
pub struct Pages {
    file: Arc<File>,
    file_offset: u64,
    buffer: u16,
    first: u64,
    len: u32,
}

impl Pages {
    /// Pages of `len` bytes, which the ring knows as `buffer`; `first` is the address of their first byte in this buffer (0 for pages that
    /// the kernel has registered). The same bytes are read (a write's) and written (a read's) at `file_offset` of `file`.
    pub(crate) fn new(
        file: Arc<File>,
        file_offset: u64,
        buffer: u16,
        first: u64,
        len: u32,
    ) -> Pages {
        Pages {
            file,
            file_offset,
            buffer,
            first,
            len,
        }
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Number of the ring's buffer, and the address of byte `offset` in it.
    pub(crate) fn place(&self, offset: u32) -> (u16, u64) {
        (self.buffer, self.first + u64::from(offset))
    }

    /// Copies the bytes of a write, from `offset` on.
    ///
    /// # Errors
    /// The kernel refuses, for instance because the request has been answered.
    pub(crate) fn copy_out(&self, offset: u32, to: &mut [u8]) -> io::Result<()> {
        self.file
            .read_exact_at(to, self.file_offset + u64::from(offset))
    }

    /// Copies bytes into a read, from `offset` on.
    ///
    /// # Errors
    /// As [`Pages::copy_out`].
    pub(crate) fn copy_in(&self, offset: u32, from: &[u8]) -> io::Result<()> {
        self.file
            .write_all_at(from, self.file_offset + u64::from(offset))
    }
}
