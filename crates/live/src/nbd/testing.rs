//! A volume in memory, for tests and benchmarks of front ends.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;

use isotherm_core::{IoError, RequestOp};

use crate::port::{Buffer, Completion, IoRequest, Pool, Port, Share};

/// Size in bytes of the pieces of memory that exist or are a hole.
const CHUNK: usize = 64 << 10;
/// Memory for requests of a port.
const POOL_BYTES: usize = 512 << 20;

type Chunk = RwLock<Option<Box<[u8]>>>;

struct Disk {
    chunks: Vec<Chunk>,
    bytes: u64,
    read_only: bool,
    faults: Mutex<Vec<(Range<u64>, IoError)>>,
    flushes: AtomicU64,
    fua_writes: AtomicU64,
}

/// A request, and its completion.
type Job = (IoRequest, Completion);

/// A sparse volume in memory.
///
/// Completions run on the submitting thread ([`MemPort::new`]) or, as with a real engine, on a thread of their own
/// ([`MemPort::with_engine_thread`]).
pub struct MemPort {
    disk: Arc<Disk>,
    pool: Arc<Pool>,
    engine: Option<Mutex<Sender<Job>>>,
}

impl MemPort {
    /// A volume of `bytes` that completes requests before `submit` returns.
    pub fn new(bytes: u64) -> MemPort {
        MemPort::build(bytes, false, POOL_BYTES)
    }

    /// A volume that refuses writes.
    pub fn new_read_only(bytes: u64) -> MemPort {
        MemPort::build(bytes, true, POOL_BYTES)
    }

    /// A volume of `bytes` whose single engine thread completes all requests, with `pool_bytes` of memory for requests.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn with_engine_thread(bytes: u64, pool_bytes: usize) -> std::io::Result<MemPort> {
        let mut port = MemPort::build(bytes, false, pool_bytes);
        let (sender, receiver) = channel::<Job>();
        let disk = Arc::clone(&port.disk);
        thread::Builder::new()
            .name("mem-engine".into())
            .spawn(move || {
                for job in receiver {
                    disk.run(job);
                }
            })?;
        port.engine = Some(Mutex::new(sender));
        Ok(port)
    }

    fn build(bytes: u64, read_only: bool, pool_bytes: usize) -> MemPort {
        let chunks = (0..bytes.div_ceil(CHUNK as u64))
            .map(|_| RwLock::default())
            .collect();
        let disk = Disk {
            chunks,
            bytes,
            read_only,
            faults: Mutex::default(),
            flushes: AtomicU64::new(0),
            fua_writes: AtomicU64::new(0),
        };
        MemPort {
            disk: Arc::new(disk),
            pool: Pool::new(pool_bytes),
            engine: None,
        }
    }

    /// Every request that touches `range` fails with `error`.
    pub fn fail(&self, range: Range<u64>, error: IoError) {
        self.disk
            .faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((range, error));
    }

    /// FLUSH requests served.
    pub fn flushes(&self) -> u64 {
        self.disk.flushes.load(Ordering::Relaxed)
    }

    /// Number of requests with FUA, except reads and flushes.
    pub fn fua_writes(&self) -> u64 {
        self.disk.fua_writes.load(Ordering::Relaxed)
    }

    /// Request memory in use.
    pub fn pool_bytes_out(&self) -> usize {
        self.pool.bytes_out()
    }
}

impl Disk {
    fn run(&self, job: Job) {
        let (mut r, done) = job;
        let result = self.carry_out(r.op, r.offset, r.len, r.fua, r.buffer.as_deref_mut());
        done.call(result, r.buffer);
    }

    fn carry_out(
        &self,
        op: RequestOp,
        offset: u64,
        len: u32,
        fua: bool,
        buf: Option<&mut [u8]>,
    ) -> Result<(), IoError> {
        let end = offset.checked_add(u64::from(len)).ok_or(IoError::Invalid)?;
        if end > self.bytes {
            return Err(IoError::Invalid);
        }
        for (range, error) in self
            .faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            if range.start < end && offset < range.end {
                return Err(*error);
            }
        }
        if !matches!(op, RequestOp::Read | RequestOp::Flush) {
            if self.read_only {
                return Err(IoError::ReadOnly);
            }
            self.fua_writes.fetch_add(u64::from(fua), Ordering::Relaxed);
        }
        match (op, buf) {
            (RequestOp::Flush, _) => {
                self.flushes.fetch_add(1, Ordering::Relaxed);
            }
            (RequestOp::Read, Some(buf)) => self.each(offset, len, |chunk, part, at| {
                let chunk = chunk.read().unwrap_or_else(PoisonError::into_inner);
                let target = &mut buf[at..at + part.len()];
                match &*chunk {
                    Some(bytes) => target.copy_from_slice(&bytes[part]),
                    None => target.fill(0),
                }
            }),
            (RequestOp::Write, Some(buf)) => self.each(offset, len, |chunk, part, at| {
                let mut chunk = chunk.write().unwrap_or_else(PoisonError::into_inner);
                let bytes = chunk.get_or_insert_with(|| vec![0; CHUNK].into_boxed_slice());
                bytes[part.clone()].copy_from_slice(&buf[at..at + part.len()]);
            }),
            (RequestOp::Read | RequestOp::Write, None) => return Err(IoError::Invalid),
            (RequestOp::Discard | RequestOp::WriteZeroes { .. }, _) => {
                let keep = op == RequestOp::WriteZeroes { keep: true };
                self.each(offset, len, |chunk, part, _| {
                    let mut chunk = chunk.write().unwrap_or_else(PoisonError::into_inner);
                    if keep {
                        chunk.get_or_insert_with(|| vec![0; CHUNK].into_boxed_slice())[part]
                            .fill(0);
                    } else if part.len() == CHUNK {
                        *chunk = None;
                    } else if let Some(bytes) = &mut *chunk {
                        bytes[part].fill(0);
                    }
                });
            }
        }
        Ok(())
    }

    /// Calls `f(chunk, part of it, bytes before the part)` for each chunk of a range.
    fn each(&self, offset: u64, len: u32, mut f: impl FnMut(&Chunk, Range<usize>, usize)) {
        let mut at = 0;
        while at < len as usize {
            let place = offset + at as u64;
            let start = (place % CHUNK as u64) as usize;
            let part = start..CHUNK.min(start + len as usize - at);
            let n = part.len();
            f(&self.chunks[(place / CHUNK as u64) as usize], part, at);
            at += n;
        }
    }
}

impl Port for MemPort {
    fn volume_bytes(&self) -> u64 {
        self.disk.bytes
    }

    fn block_bytes(&self) -> u32 {
        512
    }

    fn read_only(&self) -> bool {
        self.disk.read_only
    }

    fn buffer(&self, offset: u64, len: u32) -> Buffer {
        self.pool.buffer(offset, len, self.block_bytes())
    }

    fn share(&self) -> Option<Arc<Share>> {
        Some(Share::of(&self.pool))
    }

    fn submit(&self, request: IoRequest, done: Completion) {
        let job = (request, done);
        match &self.engine {
            None => self.disk.run(job),
            // If the thread is gone, the completion is dropped, which reports an error to the client.
            Some(sender) => drop(
                sender
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .send(job),
            ),
        }
    }

    fn block_status(&self, offset: u64, len: u32, max: usize) -> Vec<(u32, bool)> {
        let mut runs: Vec<(u32, bool)> = Vec::new();
        let mut full = false;
        self.disk.each(offset, len, |chunk, part, _| {
            let mapped = chunk
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .is_some();
            let count = runs.len();
            match runs.last_mut() {
                _ if full => {}
                Some((bytes, same)) if *same == mapped => *bytes += part.len() as u32,
                _ if count == max => full = true,
                _ => runs.push((part.len() as u32, mapped)),
            }
        });
        runs
    }
}
