//! The one way from a front end to the volume, and the memory that travels along it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use isotherm_core::{IoError, RequestOp};

/// Called once when a request ended, on the engine's thread, with the request's buffer. It must not block long.
pub type Completion = Box<dyn FnOnce(Result<(), IoError>, Option<Buffer>) + Send>;

/// How front ends hand requests to the engine's thread.
pub trait Port: Send + Sync {
    /// Size of the volume in bytes; fixed while it is served.
    fn volume_bytes(&self) -> u64;
    /// The logical block in bytes, a power of two from 512 to 4096.
    fn block_bytes(&self) -> u32;
    /// Writes will be refused.
    fn read_only(&self) -> bool;
    /// A buffer for `len` bytes at `offset`; blocks while memory is short. Covers the range rounded out to logical
    /// blocks inside, but derefs to exactly the payload.
    fn buffer(&self, offset: u64, len: u32) -> Buffer;
    /// Hand over; `done` is called on the engine's thread (must not block long) with the buffer back.
    #[allow(clippy::too_many_arguments)]
    fn submit(
        &self,
        op: RequestOp,
        offset: u64,
        len: u32,
        fua: bool,
        class: u8,
        buf: Option<Buffer>,
        done: Completion,
    );
    /// Allocation status of a range: (length, mapped) runs starting at offset, at most `max` runs. May take a moment.
    fn block_status(&self, offset: u64, len: u32, max: usize) -> Vec<(u32, bool)>;
}

/// What `O_DIRECT` and registered buffers want, in bytes.
pub const ALIGNMENT: usize = 4096;

/// Aligned memory for one request. Derefs to the payload; [`Buffer::aligned`] is the whole range in logical blocks.
///
/// Contents of a fresh buffer are whatever its last user left: whoever fills it must fill all of it.
pub struct Buffer {
    block: Block,
    head: usize,
    len: usize,
    covered: usize,
    pool: Option<Arc<Pool>>,
}

impl Buffer {
    /// An unpooled buffer for `len` bytes at `offset` of a volume with logical blocks of `block_bytes` (a power of two).
    pub fn new(offset: u64, len: u32, block_bytes: u32) -> Buffer {
        let (head, covered) = cover(offset, len, block_bytes);
        Buffer {
            block: Block::new(covered),
            head,
            len: len as usize,
            covered,
            pool: None,
        }
    }

    /// The range rounded out to logical blocks.
    pub fn aligned(&self) -> &[u8] {
        &self.block.bytes()[..self.covered]
    }

    /// The range rounded out to logical blocks, to be filled by a device.
    pub fn aligned_mut(&mut self) -> &mut [u8] {
        let covered = self.covered;
        &mut self.block.bytes_mut()[..covered]
    }

    /// Bytes of [`Buffer::aligned`] before the payload.
    pub fn head(&self) -> usize {
        self.head
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.block.bytes()[self.head..self.head + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (head, len) = (self.head, self.len);
        &mut self.block.bytes_mut()[head..head + len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.put(std::mem::replace(&mut self.block, Block::EMPTY));
        }
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

/// Bytes before the payload, and bytes in the range rounded out.
fn cover(offset: u64, len: u32, block_bytes: u32) -> (usize, usize) {
    let block = u64::from(block_bytes.max(1));
    let head = offset % block;
    let covered = (head + u64::from(len)).next_multiple_of(block);
    (head as usize, covered as usize)
}

/// Memory of one size class, aligned to [`ALIGNMENT`].
struct Block {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a `Block` owns its memory alone, like a `Box<[u8]>`; nothing in it is tied to a thread.
unsafe impl Send for Block {}
// SAFETY: shared access gives out `&[u8]` only.
unsafe impl Sync for Block {}

impl Block {
    /// No memory: what stays behind when a buffer returns its block.
    const EMPTY: Block = Block {
        start: NonNull::dangling(),
        capacity: 0,
    };

    /// Zeroed once, so that no other process's bytes can ever reach a client.
    fn new(bytes: usize) -> Block {
        let capacity = class_bytes(class_of(bytes));
        let layout = Self::layout(capacity);
        // SAFETY: the capacity of a class is at least `ALIGNMENT`, hence not zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Block { start, capacity },
            None => handle_alloc_error(layout),
        }
    }

    fn layout(capacity: usize) -> Layout {
        // Cannot fail: capacities are powers of two of at most 2^33 and the alignment is a constant power of two.
        Layout::from_size_align(capacity, ALIGNMENT).unwrap_or(Layout::new::<u8>())
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `start` points to `capacity` initialised bytes that this block owns (or dangles with capacity 0).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.capacity) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the access the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.capacity != 0 {
            // SAFETY: allocated in `new` with exactly this layout.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
        }
    }
}

fn class_of(bytes: usize) -> usize {
    (bytes.max(ALIGNMENT).next_power_of_two() / ALIGNMENT).trailing_zeros() as usize
}

fn class_bytes(class: usize) -> usize {
    ALIGNMENT << class
}

/// Recycled request memory under a fixed limit.
pub struct Pool {
    limit: usize,
    state: Mutex<PoolState>,
    returned: Condvar,
}

#[derive(Default)]
struct PoolState {
    /// Bytes in buffers that are out.
    out: usize,
    /// Bytes in `free`.
    idle: usize,
    /// By size class.
    free: Vec<Vec<Block>>,
    waiting: usize,
}

impl Pool {
    /// A pool whose buffers together hold at most `limit` bytes. One request larger than that is still served, alone.
    pub fn new(limit: usize) -> Arc<Pool> {
        Arc::new(Pool {
            limit,
            state: Mutex::default(),
            returned: Condvar::new(),
        })
    }

    /// As [`Port::buffer`]: blocks while more than the limit is out.
    pub fn buffer(self: &Arc<Self>, offset: u64, len: u32, block_bytes: u32) -> Buffer {
        let (head, covered) = cover(offset, len, block_bytes);
        Buffer {
            block: self.get(covered),
            head,
            len: len as usize,
            covered,
            pool: Some(Arc::clone(self)),
        }
    }

    /// Bytes that are out now.
    pub fn bytes_out(&self) -> usize {
        self.lock().out
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // Every critical section leaves the counts whole, so a panic elsewhere does not spoil them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, bytes: usize) -> Block {
        let class = class_of(bytes);
        let size = class_bytes(class);
        let mut state = self.lock();
        while state.out != 0 && state.out + size > self.limit {
            state.waiting += 1;
            state = self
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.out += size;
        if let Some(block) = state.free.get_mut(class).and_then(Vec::pop) {
            state.idle -= size;
            return block;
        }
        // Idle blocks of other classes count against the limit too: give some back to the system first.
        let mut surplus = Vec::new();
        while state.out + state.idle > self.limit && state.idle != 0 {
            let Some(block) = state.free.iter_mut().rev().find_map(Vec::pop) else {
                break;
            };
            state.idle -= block.capacity;
            surplus.push(block);
        }
        drop(state);
        drop(surplus);
        Block::new(bytes)
    }

    fn put(&self, block: Block) {
        let size = block.capacity;
        if size == 0 {
            return;
        }
        let class = class_of(size);
        let mut state = self.lock();
        state.out -= size;
        if state.free.len() <= class {
            state.free.resize_with(class + 1, Vec::new);
        }
        let surplus = if state.out + state.idle + size <= self.limit {
            state.idle += size;
            state.free[class].push(block);
            None
        } else {
            Some(block)
        };
        let wake = state.waiting != 0;
        drop(state);
        drop(surplus);
        if wake {
            // All: the one woken first may want more than what came back, another less.
            self.returned.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_covers_whole_blocks_and_derefs_to_the_payload() {
        for (offset, len, block, head, covered) in [
            (0, 4096, 512, 0, 4096),
            (513, 1, 512, 1, 512),
            (511, 2, 512, 511, 1024),
            (5000, 9000, 4096, 904, 12288),
        ] {
            let mut buffer = Buffer::new(offset, len, block);
            assert_eq!(
                (buffer.len(), buffer.head(), buffer.aligned().len()),
                (len as usize, head, covered)
            );
            assert_eq!(buffer.aligned().as_ptr() as usize % ALIGNMENT, 0);
            buffer.fill(7);
            assert!(buffer.aligned()[..head].iter().all(|&b| b == 0));
            assert!(
                buffer.aligned()[head..head + len as usize]
                    .iter()
                    .all(|&b| b == 7)
            );
            assert!(
                buffer.aligned_mut()[head + len as usize..]
                    .iter()
                    .all(|&b| b == 0)
            );
        }
    }

    #[test]
    fn a_full_pool_makes_the_next_one_wait_until_memory_returns() {
        let pool = Pool::new(2 * ALIGNMENT);
        let first = pool.buffer(0, 4096, 512);
        let second = pool.buffer(0, 100, 512);
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiter = {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || {
                let third = pool.buffer(0, 512, 512);
                sender.send(()).ok();
                drop(third);
            })
        };
        while pool.lock().waiting == 0 {
            std::thread::yield_now();
        }
        assert!(receiver.try_recv().is_err());
        drop(first);
        receiver.recv().expect("the waiter got its buffer");
        waiter.join().expect("no panic");
        drop(second);
        assert_eq!(pool.bytes_out(), 0);
    }

    #[test]
    fn idle_memory_stays_under_the_limit() {
        let pool = Pool::new(16 * ALIGNMENT);
        for len in [4096, 8192, 65536, 4096, 16384, 65536] {
            drop(pool.buffer(0, len, 4096));
            assert!(pool.lock().idle <= 16 * ALIGNMENT);
        }
        assert!(pool.lock().idle > 0, "memory is kept for the next request");
        // Larger than the pool: served alone.
        assert_eq!(pool.buffer(0, 1 << 20, 4096).len(), 1 << 20);
    }
}
