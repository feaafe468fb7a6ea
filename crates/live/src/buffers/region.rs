//! Memory that is mapped, locked and aligned.

use super::{ALIGNMENT, HUGE};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Anonymous memory, mapped once and unmapped when it has no user any more.
pub struct Region {
    pub(super) base: NonNull<u8>,
    len: usize,
    mapped: (usize, usize),
}

// SAFETY: plain memory; the users of its parts make sure that these do not overlap.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` bytes (rounded up to 4 KiB) of zeros.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub fn new(len: usize) -> io::Result<Arc<Region>> {
        let len = len.max(ALIGNMENT).next_multiple_of(ALIGNMENT);
        let whole = len + HUGE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let at = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                whole,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let start = at as usize;
        let base = start.next_multiple_of(HUGE);
        // SAFETY: base … base + len lies inside the mapping. This is advice: a refusal costs only speed.
        let _ = unsafe { mm::madvise(base as *mut _, len, Advice::LinuxHugepage) };
        let base = NonNull::new(base as *mut u8).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Arc::new(Region {
            base,
            len,
            mapped: (start, whole),
        }))
    }

    /// Address of the first byte.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// Whether `len` bytes at `at` lie inside the region.
    pub fn contains(&self, at: *const u8, len: usize) -> bool {
        let (at, base) = (at as usize, self.base.as_ptr() as usize);
        at >= base && at + len <= base + self.len
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `new` mapped; all users hold an `Arc`, so none is left. Unmapping a whole mapping does not fail.
        let _ = unsafe { mm::munmap(self.mapped.0 as *mut _, self.mapped.1) };
    }
}
