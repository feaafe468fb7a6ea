//! Fair shares of request memory: a peer that does not read its replies, or stops in the middle of a write, delays no other peer.
//!
//! | holder | limit |
//! |---|---|
//! | a connection | half of the pool if it is alone, otherwise an equal part; at least one request |
//! | a connection that holds nothing, when the pool is empty | one request of up to 1 MiB, from outside the pool |
//! | the block file | all free memory, and 8 MiB that are reserved for it (`Arena::file`): its peer is the kernel, which never stalls |
//! | moves and copies of the engine | buffers of their own; never any of these |
//!
//! So a request of moderate size is always served, whatever the other peers do.

use crate::buffers::{Buffer, Memory, Pool, class_bytes, cover, order_of};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Largest request that a connection without any memory gets from outside the pool, bytes.
const RESERVE: usize = 1 << 20;
/// Interval at which a connection at its limit checks whether others have left.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The part of a pool that one connection holds.
pub struct Share {
    pool: Arc<Pool>,
    /// Bytes in use, rounded to chunk sizes. This lock is taken while the pool's lock is held, never the other way round.
    out: Mutex<usize>,
    /// Number of threads that wait for memory to be returned; changed with the lock held. Waking costs a system call even if none waits.
    waiting: AtomicUsize,
    returned: Condvar,
}

impl Share {
    /// Adds a share; the others become smaller.
    pub fn of(pool: &Arc<Pool>) -> Arc<Share> {
        pool.shares().fetch_add(1, Ordering::Relaxed);
        Arc::new(Share {
            pool: Arc::clone(pool),
            out: Mutex::new(0),
            waiting: AtomicUsize::new(0),
            returned: Condvar::new(),
        })
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    fn out(&self) -> MutexGuard<'_, usize> {
        // A plain number is always consistent.
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that it holds.
    pub fn bytes_out(&self) -> usize {
        *self.out()
    }

    /// Whether `size` more bytes may be held in addition to `out`.
    fn allows(&self, out: usize, size: usize) -> bool {
        let shares = self.pool.shares().load(Ordering::Relaxed).max(2);
        out == 0 || out + size <= self.pool.limit() / shares
    }

    /// Whether there is memory for a request of that many bytes (rounded up) without waiting.
    pub fn has(&self, bytes: usize) -> bool {
        let out = self.bytes_out();
        self.allows(out, class_bytes(order_of(bytes))) && self.pool.has(bytes)
    }

    /// Allocates a buffer. Waits while this connection is at its limit, or while the pool is empty and the request is large.
    pub fn buffer(self: &Arc<Self>, offset: u64, len: u32, block: u32) -> Buffer {
        let bytes = cover(offset, len, block).1;
        let size = class_bytes(order_of(bytes));
        let mut out = self.out();
        while !self.allows(*out, size) {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let waited = self.returned.wait_timeout(out, CHECK_INTERVAL);
            out = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        *out += size;
        drop(out);
        // A connection that holds no memory must not wait for others, because it has none that it could return.
        let alone = || size <= RESERVE && *self.out() == size;
        let memory = (self.pool.get_if_idle(bytes))
            .or_else(|| self.pool.get_unless(bytes, alone))
            .unwrap_or_else(|| Memory::alone(size));
        Buffer::over(memory.on(self), offset, len, block)
    }

    /// Allocates a buffer at once, if necessary from outside the pool. For the engine's thread.
    pub fn buffer_now(self: &Arc<Self>, offset: u64, len: u32, block: u32) -> Buffer {
        let bytes = cover(offset, len, block).1;
        *self.out() += class_bytes(order_of(bytes));
        Buffer::over(self.pool.get_now(bytes).on(self), offset, len, block)
    }

    /// `size` bytes are returned.
    pub(crate) fn give_back(&self, size: usize) {
        let mut out = self.out();
        *out -= size;
        let waits = self.waiting.load(Ordering::Relaxed) != 0;
        drop(out);
        if waits {
            self.returned.notify_all();
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.shares().fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const MIB: u32 = 1 << 20;
    const TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn a_share_is_half_alone_and_a_part_among_many() {
        let pool = Pool::new(16 << 20);
        let one = Share::of(&pool);
        let held: Vec<_> = (0..8u64).map(|i| one.buffer(i << 20, MIB, 4096)).collect();
        assert!(!one.has(MIB as usize) && one.bytes_out() == 8 << 20);
        let others: Vec<_> = (0..3).map(|_| Share::of(&pool)).collect();
        assert!(others.iter().all(|s| s.has(4 << 20)));
        let _four = others[0].buffer(0, 4 * MIB, 4096);
        assert!(!others[0].has(4096), "an equal part of four");
        drop(held);
        assert_eq!(one.bytes_out(), 0);
        // A request that is larger than the part is still served, one at a time.
        assert!(others[1].has(8 << 20));
    }

    #[test]
    fn a_connection_that_holds_nothing_is_served_from_an_empty_pool() {
        let pool = Pool::new(8 << 20);
        let hogs: Vec<_> = (0..2).map(|_| Share::of(&pool)).collect();
        let held: Vec<_> = hogs.iter().map(|s| s.buffer(0, 4 * MIB, 4096)).collect();
        assert!(!pool.has(4096));
        let late = Share::of(&pool);
        let (tell, told) = channel();
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..3 {
                    // One at a time; the next when the first was returned.
                    drop(late.buffer(0, MIB, 4096));
                    drop(late.buffer(513, 4096, 512));
                }
                let small = late.buffer(0, 4096, 4096);
                tell.send(()).unwrap();
                // A second one waits until the first is returned; then it does not need the pool.
                s.spawn(|| drop(late.buffer(4096, 4096, 4096)));
                std::thread::sleep(Duration::from_millis(50));
                drop(small);
                tell.send(()).unwrap();
            });
            told.recv_timeout(TIMEOUT)
                .expect("a moderate request is served at once");
            told.recv_timeout(TIMEOUT).expect("and the next");
        });
        drop(held);
        assert_eq!((pool.bytes_out(), late.bytes_out()), (0, 0));
    }
}
