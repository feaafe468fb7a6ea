//! The memory of requests: one registered region, divided by a buddy allocator.
//!
//! ```text
//! region (anonymous, 2 MiB aligned, one fixed buffer of the ring)
//! ┌──────────────────────────────┬───────────────────────┬─────────────┬────────────┬───────┬──────────────┐
//! │ pool: 4 KiB … 32 MiB chunks  │ move buffers, n × ext │ world's own │ block file │ zeros │ FUSE's ring  │
//! └──────────────────────────────┴───────────────────────┴─────────────┴────────────┴───────┴──────────────┘
//! ```
//! `shares.rs` limits how much of the pool each client may hold. In steady state nothing is allocated, because chunks are reused. A request
//! that is larger than any chunk gets memory of its own, one such request at a time; the ring then uses the plain operations instead of the
//! fixed ones.

mod buddy;
mod memory;
mod region;

pub(crate) use memory::Memory;
pub use region::Region;

use buddy::Buddy;
use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The alignment that `O_DIRECT` and registered buffers need, in bytes; also the smallest chunk.
pub const ALIGNMENT: usize = 4096;
/// log2 of the largest chunk over the smallest: 4 KiB … 32 MiB.
const ORDERS: usize = 14;
const NONE: u32 = u32::MAX;
const NOT_FREE: u8 = u8::MAX;
const HUGE: usize = 2 << 20;

/// Memory of a region, divided into chunks of 4 KiB … 32 MiB.
pub struct Pool {
    region: Option<Arc<Region>>,
    /// First byte of the region that belongs to this pool.
    start: usize,
    len: usize,
    largest: usize,
    state: Mutex<State>,
    /// Connections that share the pool.
    shares: AtomicUsize,
    returned: Condvar,
}

struct State {
    buddy: Buddy,
    out: usize,
    /// Bytes in use that were allocated outside the region.
    alone: usize,
    /// Callers that wait, in order of arrival; otherwise small requests could overtake a large one for ever.
    waiting: VecDeque<u64>,
    next: u64,
}

impl Pool {
    /// A pool with a region of its own of `limit` bytes. If the system refuses the region, every buffer gets memory of its own.
    pub fn new(limit: usize) -> Arc<Pool> {
        let limit = limit.max(ALIGNMENT) / ALIGNMENT * ALIGNMENT;
        match Region::new(limit) {
            Ok(region) => Pool::within(region, 0, limit),
            Err(_) => Pool::make(None, 0, 0),
        }
    }

    /// A pool of `len` bytes of a region from byte `start`, both multiples of 4 KiB. The caller gives each byte to one pool.
    pub(crate) fn within(region: Arc<Region>, start: usize, len: usize) -> Arc<Pool> {
        assert!(start + len <= region.bytes() && start.is_multiple_of(ALIGNMENT));
        Pool::make(Some(region), start, len)
    }

    fn make(region: Option<Arc<Region>>, start: usize, len: usize) -> Arc<Pool> {
        let buddy = Buddy::new(len / ALIGNMENT);
        let order = buddy.heads.iter().rposition(|&h| h != NONE);
        Arc::new(Pool {
            region,
            start,
            len,
            largest: order.map_or(0, class_bytes),
            state: Mutex::new(State {
                buddy,
                out: 0,
                alone: 0,
                waiting: VecDeque::new(),
                next: 0,
            }),
            shares: AtomicUsize::new(0),
            returned: Condvar::new(),
        })
    }

    /// As [`crate::port::Port::buffer`]: blocks while memory is short.
    pub fn buffer(self: &Arc<Self>, offset: u64, len: u32, block_bytes: u32) -> Buffer {
        let (head, covered) = cover(offset, len, block_bytes);
        Buffer {
            memory: self.get(covered),
            head,
            len: len as usize,
            covered,
        }
    }

    /// Bytes in use now, in chunk sizes.
    pub fn bytes_out(&self) -> usize {
        let state = self.lock();
        state.out + state.alone
    }

    /// Whether a request of `bytes` would get memory now, without waiting.
    pub fn has(&self, bytes: usize) -> bool {
        let state = self.lock();
        let order = order_of(bytes);
        state.waiting.is_empty()
            && if class_bytes(order) > self.largest {
                state.alone == 0
            } else {
                state.buddy.heads[order..].iter().any(|&h| h != NONE)
            }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the lists consistent, so a panic elsewhere does not damage them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_take(self: &Arc<Self>, state: &mut State, order: usize) -> Option<Memory> {
        let size = class_bytes(order);
        if size > self.largest {
            if state.alone != 0 {
                return None;
            }
            state.alone = size;
            let mut memory = Memory::alone(size);
            memory.owner = Some(Arc::clone(self));
            return Some(memory);
        }
        let page = state.buddy.take(order)? as usize;
        state.out += size;
        let region = self.region.as_ref()?;
        // SAFETY: the chunk lies inside the region (the buddy has as many pages as the pool has).
        let start = unsafe { region.base.add(self.start + page * ALIGNMENT) };
        Some(Memory {
            start,
            capacity: size,
            chunk: Some(page as u32),
            owner: Some(Arc::clone(self)),
            share: None,
        })
    }

    fn get(self: &Arc<Self>, bytes: usize) -> Memory {
        loop {
            if let Some(memory) = self.get_unless(bytes, || false) {
                return memory;
            }
        }
    }

    /// Waits for its turn and for memory. Each time memory is returned it calls `give_up`, and stops waiting if the result is true.
    pub(crate) fn get_unless(
        self: &Arc<Self>,
        bytes: usize,
        give_up: impl Fn() -> bool,
    ) -> Option<Memory> {
        let order = order_of(bytes);
        let mut state = self.lock();
        let mine = state.next;
        state.next += 1;
        state.waiting.push_back(mine);
        loop {
            let memory = if state.waiting.front() == Some(&mine) {
                self.try_take(&mut state, order)
            } else {
                None
            };
            if memory.is_some() || give_up() {
                state.waiting.retain(|&t| t != mine);
                if !state.waiting.is_empty() {
                    self.returned.notify_all();
                }
                return memory;
            }
            state = self
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Memory of the pool, if there is any and no other caller waits for it.
    pub(crate) fn get_if_idle(self: &Arc<Self>, bytes: usize) -> Option<Memory> {
        let mut state = self.lock();
        if !state.waiting.is_empty() {
            return None;
        }
        self.try_take(&mut state, order_of(bytes))
    }

    /// Wakes the callers that wait, so that they call `give_up` again.
    pub(crate) fn nudge(&self) {
        if !self.lock().waiting.is_empty() {
            self.returned.notify_all();
        }
    }

    /// The connections that share the pool.
    pub(crate) fn shares(&self) -> &AtomicUsize {
        &self.shares
    }

    /// Size of the pool in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.len
    }

    /// Memory at once: from the pool, otherwise outside the region. For the engine's thread, which must never wait.
    pub(crate) fn get_now(self: &Arc<Self>, bytes: usize) -> Memory {
        let order = order_of(bytes);
        let taken = if class_bytes(order) <= self.largest {
            self.try_take(&mut self.lock(), order)
        } else {
            None
        };
        taken.unwrap_or_else(|| Memory::alone(class_bytes(order)))
    }

    fn put(&self, chunk: Option<u32>, capacity: usize) {
        let mut state = self.lock();
        if let Some(page) = chunk {
            state.out -= capacity;
            state.buddy.give(page, order_of(capacity));
        } else {
            state.alone = 0;
        }
        let wake = !state.waiting.is_empty();
        drop(state);
        if wake {
            self.returned.notify_all();
        }
    }
}

pub(crate) fn order_of(bytes: usize) -> usize {
    (bytes.max(ALIGNMENT).next_power_of_two() / ALIGNMENT).trailing_zeros() as usize
}

pub(crate) fn class_bytes(order: usize) -> usize {
    ALIGNMENT << order
}

/// Aligned memory for one request. Derefs to the payload; [`Buffer::aligned`] is the whole range in logical blocks.
///
/// A new buffer has the contents that its last user left: its user must fill all of it.
pub struct Buffer {
    memory: Memory,
    head: usize,
    len: usize,
    covered: usize,
}

impl Buffer {
    /// An unpooled buffer for `len` bytes at `offset` of a volume with logical blocks of `block_bytes` (a power of two).
    pub fn new(offset: u64, len: u32, block_bytes: u32) -> Buffer {
        let (head, covered) = cover(offset, len, block_bytes);
        Buffer {
            memory: Memory::alone(class_bytes(order_of(covered))),
            head,
            len: len as usize,
            covered,
        }
    }

    /// A buffer over `memory`, which must be large enough for the rounded range.
    pub(crate) fn over(memory: Memory, offset: u64, len: u32, block_bytes: u32) -> Buffer {
        let (head, covered) = cover(offset, len, block_bytes);
        assert!(
            covered <= memory.capacity,
            "memory too small for its buffer"
        );
        Buffer {
            memory,
            head,
            len: len as usize,
            covered,
        }
    }

    /// The range, rounded out to logical blocks.
    pub fn aligned(&self) -> &[u8] {
        &self.memory.bytes()[..self.covered]
    }

    /// The range, rounded out to logical blocks, to be filled by a device.
    pub fn aligned_mut(&mut self) -> &mut [u8] {
        let covered = self.covered;
        &mut self.memory.bytes_mut()[..covered]
    }

    /// Bytes of [`Buffer::aligned`] before the payload.
    pub fn head(&self) -> usize {
        self.head
    }

    /// Bytes of [`Buffer::aligned`] after the payload.
    pub fn tail(&self) -> usize {
        self.covered - self.head - self.len
    }

    /// Address of [`Buffer::aligned`].
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory.bytes()[self.head..self.head + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (head, len) = (self.head, self.len);
        &mut self.memory.bytes_mut()[head..head + len]
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("head", &self.head)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Number of bytes before the payload, and of the rounded range.
pub(crate) fn cover(offset: u64, len: u32, block_bytes: u32) -> (usize, usize) {
    let block = u64::from(block_bytes.max(1));
    let head = offset % block;
    let covered = (head + u64::from(len)).next_multiple_of(block);
    (head as usize, covered as usize)
}

/// All the memory of a volume: see the module.
pub(crate) struct Arena {
    pub region: Arc<Region>,
    /// Memory for requests.
    pub pool: Arc<Pool>,
    /// Memory for bounce buffers and edge blocks; used by the engine's thread only.
    pub own: Arc<Pool>,
    /// Memory for the block file alone, if others use all of `pool`.
    pub file: Arc<Pool>,
    /// Memory that sources keep in the ring, if there are any.
    pub ring: Option<Arc<Pool>>,
    moves: usize,
    move_bytes: usize,
    move_count: usize,
    zeros: usize,
}

impl Arena {
    /// Bytes of the world's own pool.
    const OWN: usize = 8 << 20;
    /// Bytes for the block file alone: four of its largest unaligned requests.
    const FILE: usize = 8 << 20;
    /// Bytes of the zeroed buffer.
    pub const ZEROS: usize = 1 << 20;

    /// `ring` is the number of bytes that sources keep in the ring.
    pub fn new(pool: usize, move_buffers: u16, extent: u32, ring: usize) -> io::Result<Arena> {
        let pool_bytes = pool.max(ALIGNMENT).next_multiple_of(ALIGNMENT);
        let (move_count, move_bytes) = (usize::from(move_buffers), extent as usize);
        let moves = pool_bytes;
        let own = (moves + move_count * move_bytes).next_multiple_of(ALIGNMENT);
        let file = own + Self::OWN;
        let zeros = file + Self::FILE;
        let entries = zeros + Self::ZEROS;
        let ring = ring.next_multiple_of(ALIGNMENT);
        let region = Region::new(entries + ring)?;
        Ok(Arena {
            ring: (ring > 0).then(|| Pool::within(Arc::clone(&region), entries, ring)),
            pool: Pool::within(Arc::clone(&region), 0, pool_bytes),
            own: Pool::within(Arc::clone(&region), own, Self::OWN),
            file: Pool::within(Arc::clone(&region), file, Self::FILE),
            region,
            moves,
            move_bytes,
            move_count,
            zeros,
        })
    }

    /// Address of byte `offset` of move buffer `index`, from which `len` bytes will be used: a joined operation uses consecutive buffers.
    pub fn move_at(&self, index: u16, offset: u32, len: u32) -> *mut u8 {
        let (index, offset) = (usize::from(index), offset as usize);
        assert!(
            offset < self.move_bytes
                && index * self.move_bytes + offset + len as usize
                    <= self.move_count * self.move_bytes,
            "no such move buffer"
        );
        self.region
            .base()
            .wrapping_add(self.moves + index * self.move_bytes + offset)
    }

    /// [`Arena::ZEROS`] zeros.
    pub fn zero_bytes(&self) -> &[u8] {
        // SAFETY: these bytes of the region, which lives as long as `self`, are never written to.
        unsafe { std::slice::from_raw_parts(self.zeros(), Self::ZEROS) }
    }

    /// Address of [`Arena::ZEROS`] zeros, which are never written to.
    pub fn zeros(&self) -> *mut u8 {
        self.region.base().wrapping_add(self.zeros)
    }
}

#[cfg(test)]
mod tests;
