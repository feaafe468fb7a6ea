//! A volume in memory, to test and measure front ends without an engine.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use isotherm_core::{IoError, RequestOp};

use crate::port::{Buffer, Completion, IoRequest, Layer, Pool, Port};

const STRIPE: u64 = 1 << 20;

/// Requests seen so far, by kind.
#[derive(Debug, Default)]
pub struct Counts {
    /// Reads.
    pub reads: AtomicU64,
    /// Writes, FUA or not.
    pub writes: AtomicU64,
    /// Writes with FUA.
    pub fua: AtomicU64,
    /// Flushes.
    pub flushes: AtomicU64,
    /// Bytes discarded.
    pub discarded: AtomicU64,
    /// Bytes zeroed by `WriteZeroes { keep: true }`.
    pub zeroed: AtomicU64,
}

struct Stripe {
    bytes: Box<[u8]>,
    /// One for each logical block.
    mapped: Box<[bool]>,
}

/// A volume in memory that completes each request on the caller's thread, before `submit` returns.
pub struct MemPort {
    size: u64,
    block: u32,
    read_only: bool,
    stripes: Box<[Mutex<Stripe>]>,
    pool: Arc<Pool>,
    /// Counts of the requests.
    pub counts: Counts,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemPort {
    /// `size` zero bytes in logical blocks of `block` bytes (a power of two up to 1 MiB).
    pub fn new(size: u64, block: u32) -> MemPort {
        let stripe = |n: u64| {
            let len = STRIPE.min(size - n * STRIPE) as usize;
            // The memory is written, not only reserved; otherwise a benchmark would measure page faults.
            let mut bytes = vec![1; len];
            bytes.fill(0);
            Mutex::new(Stripe {
                bytes: bytes.into(),
                mapped: vec![false; len.div_ceil(block as usize)].into(),
            })
        };
        let stripes = (0..size.div_ceil(STRIPE)).map(stripe).collect();
        let pool = Pool::new(64 << 20);
        MemPort {
            size,
            block,
            read_only: false,
            stripes,
            pool,
            counts: Counts::default(),
        }
    }

    /// The same volume, which refuses changes.
    #[must_use]
    pub fn refusing_changes(mut self) -> MemPort {
        self.read_only = true;
        self
    }

    /// Calls `each(stripe, from, to, position)` for the part of the range in each stripe; `position` counts from `offset`.
    fn over(&self, offset: u64, len: u64, mut each: impl FnMut(&mut Stripe, usize, usize, usize)) {
        let mut at = offset;
        while at < offset + len {
            let end = (at / STRIPE + 1).saturating_mul(STRIPE).min(offset + len);
            let from = (at % STRIPE) as usize;
            let mut stripe = lock(&self.stripes[(at / STRIPE) as usize]);
            each(
                &mut stripe,
                from,
                from + (end - at) as usize,
                (at - offset) as usize,
            );
            at = end;
        }
    }

    fn carry_out(
        &self,
        op: RequestOp,
        offset: u64,
        len: u32,
        fua: bool,
        buf: Option<&mut Buffer>,
    ) -> Result<(), IoError> {
        let (span, block) = (u64::from(len), self.block as usize);
        if offset.checked_add(span).is_none_or(|end| end > self.size) {
            return Err(IoError::Invalid);
        }
        if self.read_only && !matches!(op, RequestOp::Read | RequestOp::Flush) {
            return Err(IoError::ReadOnly);
        }
        let count = |counter: &AtomicU64, n| counter.fetch_add(n, Ordering::Relaxed);
        match (op, buf) {
            (RequestOp::Read, Some(buf)) => {
                count(&self.counts.reads, 1);
                self.over(offset, span, |s, from, to, at| {
                    buf[at..at + to - from].copy_from_slice(&s.bytes[from..to]);
                });
            }
            (RequestOp::Write, Some(buf)) => {
                count(&self.counts.writes, 1);
                count(&self.counts.fua, u64::from(fua));
                self.over(offset, span, |s, from, to, at| {
                    s.bytes[from..to].copy_from_slice(&buf[at..at + to - from]);
                    s.mapped[from / block..to.div_ceil(block)].fill(true);
                });
            }
            (RequestOp::Read | RequestOp::Write, None) => return Err(IoError::Invalid),
            (RequestOp::Flush, _) => {
                count(&self.counts.flushes, 1);
            }
            (RequestOp::Discard | RequestOp::WriteZeroes { keep: false }, _) => {
                count(&self.counts.discarded, span);
                self.over(offset, span, |s, from, to, _| {
                    s.bytes[from..to].fill(0);
                    let (first, last) = (from.div_ceil(block), to / block);
                    if first < last {
                        s.mapped[first..last].fill(false);
                    }
                });
            }
            (RequestOp::WriteZeroes { keep: true }, _) => {
                count(&self.counts.zeroed, span);
                self.over(offset, span, |s, from, to, _| {
                    s.bytes[from..to].fill(0);
                    s.mapped[from / block..to.div_ceil(block)].fill(true);
                });
            }
        }
        Ok(())
    }
}

impl Port for MemPort {
    fn volume_bytes(&self) -> u64 {
        self.size
    }
    fn block_bytes(&self) -> u32 {
        self.block
    }
    fn read_only(&self) -> bool {
        self.read_only
    }
    fn buffer(&self, offset: u64, len: u32) -> Buffer {
        self.pool.buffer(offset, len, self.block)
    }
    fn submit(&self, mut r: IoRequest, done: Completion) {
        let result = self.carry_out(r.op, r.offset, r.len, r.fua, r.buffer.as_mut());
        done.call(result, r.buffer);
    }
    fn block_status(&self, offset: u64, len: u32, max: usize) -> Vec<(u32, bool)> {
        let block = u64::from(self.block);
        let mut runs: Vec<(u32, bool)> = Vec::new();
        let (mut at, end) = (offset, (offset + u64::from(len)).min(self.size));
        while at < end {
            let next = ((at / block + 1) * block).min(end);
            let mapped =
                lock(&self.stripes[(at / STRIPE) as usize]).mapped[(at % STRIPE / block) as usize];
            let full = runs.len() == max;
            match runs.last_mut() {
                Some(last) if last.1 == mapped => last.0 += (next - at) as u32,
                _ if full => break,
                _ => runs.push(((next - at) as u32, mapped)),
            }
            at = next;
        }
        runs
    }
}

struct Queue {
    jobs: Mutex<VecDeque<(IoRequest, Completion)>>,
    /// Length of `jobs`, which can be read without the lock.
    waiting: AtomicUsize,
    asleep: AtomicBool,
    closed: AtomicBool,
}

/// Another port behind a thread of its own, as with the real engine, so that the cost of the hand-off can be measured.
pub struct Handoff {
    inner: Arc<dyn Port>,
    queue: Arc<Queue>,
    engine: Thread,
    handle: Option<JoinHandle<()>>,
}

impl Handoff {
    /// Requests of `inner` are carried out on a thread that polls for the next one for `spin` before it sleeps.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new(inner: Arc<dyn Port>, spin: Duration) -> std::io::Result<Handoff> {
        let queue = Arc::new(Queue {
            jobs: Mutex::default(),
            waiting: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        let (port, jobs) = (Arc::clone(&inner), Arc::clone(&queue));
        let handle = std::thread::Builder::new()
            .name("mem-engine".into())
            .spawn(move || engine(&*port, &jobs, spin))?;
        Ok(Handoff {
            inner,
            queue,
            engine: handle.thread().clone(),
            handle: Some(handle),
        })
    }
}

fn engine(port: &dyn Port, queue: &Queue, spin: Duration) {
    let mut batch = VecDeque::new();
    loop {
        let began = Instant::now();
        while queue.waiting.load(Ordering::Acquire) == 0 {
            if queue.closed.load(Ordering::Acquire) {
                return;
            }
            if began.elapsed() < spin {
                std::hint::spin_loop();
                continue;
            }
            queue.asleep.store(true, Ordering::SeqCst);
            if queue.waiting.load(Ordering::SeqCst) == 0 && !queue.closed.load(Ordering::SeqCst) {
                std::thread::park();
            }
            queue.asleep.store(false, Ordering::SeqCst);
        }
        {
            let mut jobs = lock(&queue.jobs);
            std::mem::swap(&mut *jobs, &mut batch);
            queue.waiting.store(0, Ordering::SeqCst);
        }
        for (request, done) in batch.drain(..) {
            port.submit(request, done);
        }
    }
}

impl Drop for Handoff {
    fn drop(&mut self) {
        self.queue.closed.store(true, Ordering::SeqCst);
        self.engine.unpark();
        if let Some(handle) = self.handle.take() {
            // A panic there was printed already.
            let _ = handle.join();
        }
    }
}

impl Layer for Handoff {
    fn below(&self) -> &dyn Port {
        &*self.inner
    }

    fn submit(&self, request: IoRequest, done: Completion) {
        {
            let mut jobs = lock(&self.queue.jobs);
            jobs.push_back((request, done));
            self.queue.waiting.store(jobs.len(), Ordering::SeqCst);
        }
        if self.queue.asleep.load(Ordering::SeqCst) {
            self.engine.unpark();
        }
    }
}
