//! Memory of one request, or of one operation.

use super::{ALIGNMENT, NONE, Pool};
use crate::shares::Share;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

/// A chunk of a pool, or memory of its own: aligned, initialised, with one owner.
pub(crate) struct Memory {
    pub(super) start: NonNull<u8>,
    pub(super) capacity: usize,
    pub(super) chunk: Option<u32>,
    pub(super) owner: Option<Arc<Pool>>,
    /// The share to which its bytes are charged.
    pub(super) share: Option<Arc<Share>>,
}

// SAFETY: a `Memory` is the only owner of its bytes, like a `Box<[u8]>`; nothing in it is tied to a thread.
unsafe impl Send for Memory {}
// SAFETY: shared access gives out `&[u8]` only.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed once, so that no other process's bytes can ever reach a client.
    pub(crate) fn alone(bytes: usize) -> Memory {
        let layout = Self::layout(bytes);
        // SAFETY: at least `ALIGNMENT` bytes, hence not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout)
        };
        Memory {
            start,
            capacity: bytes,
            chunk: None,
            owner: None,
            share: None,
        }
    }

    /// The same bytes as a second value, which does not own them: dropping it returns nothing.
    ///
    /// # Safety
    /// As long as the second value exists, this value is not dropped, and its bytes are not used through it.
    pub(crate) unsafe fn lend(&self) -> Memory {
        Memory {
            start: self.start,
            capacity: self.capacity,
            chunk: Some(NONE),
            owner: None,
            share: None,
        }
    }

    fn layout(bytes: usize) -> Layout {
        // This cannot fail: the size is a power of two of at most 2^33, and the alignment is a constant.
        Layout::from_size_align(bytes, ALIGNMENT).unwrap_or(Layout::new::<u8>())
    }

    /// Charges the memory to `share`, whose count already contains its size.
    pub(crate) fn on(mut self, share: &Arc<Share>) -> Memory {
        self.share = Some(Arc::clone(share));
        self
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `start` points to `capacity` initialised bytes owned by this value (regions are mapped as zeros).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.capacity) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the access the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // The share is updated first, so that a caller that the pool wakes sees the new count.
        let share = self.share.take();
        if let Some(share) = &share {
            share.give_back(self.capacity);
        }
        if self.chunk.is_none() {
            // SAFETY: allocated in `alone` with exactly this layout.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
        }
        if let Some(pool) = self.owner.take() {
            pool.put(self.chunk, self.capacity);
        } else if let Some(share) = share {
            share.pool().nudge();
        }
    }
}
