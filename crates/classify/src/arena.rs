//! Zeroed memory that is handed out in slabs of 1 KiB and never given back before the end.
//!
//! Slabs lie side by side in chunks of up to 32 MiB, so that the system can put huge pages under them: with pages of 4 KiB, a look-up at a
//! random place of a large map would miss the processor's cache of page addresses as well. The system gives a chunk memory only where it
//! is touched, so a chunk costs what its slabs in use take, rounded up to a page.

use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words in a slab.
pub(crate) const WORDS: usize = 128;
const CHUNK_SHIFT: u32 = 15;
/// With fewer slabs than these 8 MiB, pages of 4 KiB do as well.
const HUGE_FROM: usize = 1 << 13;

/// See the module. Anyone may read; one thread at a time takes slabs.
pub(crate) struct Arena {
    chunks: Box<[OnceLock<Chunk>]>,
    slabs: usize,
}

impl Arena {
    /// Room for `slabs`, and for `room` (at least as many) if they are numbered by [`Arena::number`]; nothing is allocated yet. The first
    /// chunks are as large as `slabs` need, further ones have their full size.
    pub(crate) fn new(slabs: usize, room: usize) -> Arena {
        let more = room.saturating_sub(slabs).div_ceil(1 << CHUNK_SHIFT);
        let chunks = slabs.div_ceil(1 << CHUNK_SHIFT) + more;
        Arena {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            slabs,
        }
    }

    /// The number of the slab that is taken as the `nth`, from 0 on: a chunk that is not full is followed by the next one.
    pub(crate) fn number(&self, nth: usize) -> usize {
        match nth.checked_sub(self.slabs) {
            None => nth,
            Some(more) => self.slabs.next_multiple_of(1 << CHUNK_SHIFT) + more,
        }
    }

    /// Slab `n`. Empty if its chunk does not exist yet.
    #[inline]
    pub(crate) fn slab(&self, n: usize) -> &[AtomicU64] {
        let at = n % (1 << CHUNK_SHIFT) * WORDS;
        let chunk = self.chunks.get(n >> CHUNK_SHIFT).and_then(OnceLock::get);
        chunk
            .and_then(|c| c.words().get(at..at + WORDS))
            .unwrap_or_default()
    }

    /// Takes slab `n`, which must be below the room and not taken yet, and fills it with `word`.
    pub(crate) fn take(&self, n: usize, word: u64) -> &[AtomicU64] {
        let first = n >> CHUNK_SHIFT << CHUNK_SHIFT;
        let slabs = match self.slabs.saturating_sub(first) {
            0 => 1 << CHUNK_SHIFT,
            rest => rest.min(1 << CHUNK_SHIFT),
        };
        let huge = self.slabs >= HUGE_FROM;
        self.chunks[n >> CHUNK_SHIFT].get_or_init(|| Chunk::new(slabs * WORDS, huge));
        let slab = self.slab(n);
        if word != 0 {
            for w in slab {
                w.store(word, Ordering::Relaxed);
            }
        }
        slab
    }
}

struct Chunk {
    at: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is the chunk's own, and is reached only as atomic words.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn new(words: usize, huge: bool) -> Chunk {
        let bytes = words * size_of::<AtomicU64>();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let kind = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, kind) };
        let Some(at) = at.ok().and_then(NonNull::new) else {
            handle_alloc_error(Layout::array::<AtomicU64>(words).unwrap_or(Layout::new::<u8>()))
        };
        if huge {
            // SAFETY: the range is the mapping. This is advice: a refusal costs only speed.
            let _ = unsafe { mm::madvise(at.as_ptr(), bytes, Advice::LinuxHugepage) };
        }
        Chunk {
            at: at.cast(),
            words,
        }
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds this many words at an address that is a multiple of a page; zero is a valid value for each; it lives
        // as long as `self`.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.words) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let bytes = self.words * size_of::<AtomicU64>();
        // SAFETY: the mapping is the chunk's own, and nothing borrows from it any more. Unmapping a whole mapping does not fail.
        let _ = unsafe { mm::munmap(self.at.as_ptr().cast(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_are_apart_and_as_they_were_made() {
        let all = (1 << CHUNK_SHIFT) + 3;
        let arena = Arena::new(all, all);
        assert!(arena.slab(0).is_empty() && arena.slab(all).is_empty());
        let some = [0, 1, (1 << CHUNK_SHIFT) - 1, 1 << CHUNK_SHIFT, all - 1];
        for n in some {
            assert_eq!(arena.take(n, n as u64 + 7).len(), WORDS);
        }
        let holds = |n: usize, word: u64| {
            let slab = arena.slab(n);
            slab.len() == WORDS && slab.iter().all(|w| w.load(Ordering::Relaxed) == word)
        };
        assert!(some.into_iter().all(|n| holds(n, n as u64 + 7)));
        assert!(holds(2, 0), "memory is zero before it is taken");
        assert!(arena.slab(all).is_empty());
    }
}
