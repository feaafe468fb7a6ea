//! The disk as a port, so that the block file and the NBD server show it as they show a volume.
//!
//! What needs no request to the store is answered on the caller's thread. Everything else waits on threads of its own, by kind: reads that wait
//! for the store do not keep writes up, and writers that wait for room in the spool keep neither reads nor flushes up.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use isotherm_core::{IoError, RequestOp};
use isotherm_live::block_file::become_io_flusher;
use isotherm_live::port::{Buffer, Completion, IoRequest, Pool, Port};

use crate::disk::{Disk, DiskError};
use crate::layout::BLOCK;

/// Memory of requests in bytes.
const POOL: usize = 64 << 20;
const READERS: usize = 32;
const WRITERS: usize = 8;
const FLUSHERS: usize = 4;
/// Largest number of bytes of a read that is answered on the caller's thread.
const SMALL: u32 = 1 << 20;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Jobs {
    waiting: Mutex<(std::collections::VecDeque<Job>, bool)>,
    changed: Condvar,
}

struct Threads {
    jobs: Arc<Jobs>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    fn start(name: &str, count: usize) -> std::io::Result<Threads> {
        let jobs = Arc::<Jobs>::default();
        let mut threads = Vec::new();
        for _ in 0..count {
            let jobs = Arc::clone(&jobs);
            let run = move || {
                become_io_flusher();
                jobs.run();
            };
            threads.push(std::thread::Builder::new().name(name.into()).spawn(run)?);
        }
        Ok(Threads { jobs, threads })
    }

    fn push(&self, job: Job) {
        let mut waiting = self
            .jobs
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.0.push_back(job);
        self.jobs.changed.notify_one();
    }
}

impl Jobs {
    fn run(&self) {
        loop {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let job = loop {
                if let Some(job) = waiting.0.pop_front() {
                    break job;
                }
                if waiting.1 {
                    return;
                }
                waiting = self
                    .changed
                    .wait(waiting)
                    .unwrap_or_else(PoisonError::into_inner);
            };
            drop(waiting);
            job();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.jobs
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .1 = true;
        self.jobs.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic there was printed already.
            let _ = thread.join();
        }
    }
}

/// See the module.
pub struct DiskPort {
    disk: Arc<Disk>,
    pool: Arc<Pool>,
    readers: Threads,
    writers: Threads,
    flushers: Threads,
}

fn errno(error: &DiskError) -> IoError {
    match error {
        DiskError::Range => IoError::Invalid,
        DiskError::Fenced | DiskError::Io(_) => IoError::Io,
    }
}

fn read(disk: &Disk, offset: u64, to: &mut [u8]) -> Result<(), DiskError> {
    let head = (offset % BLOCK) as usize;
    if head == 0 && (to.len() as u64).is_multiple_of(BLOCK) {
        return disk.read(offset / BLOCK, to);
    }
    let mut whole = vec![0; (head + to.len()).next_multiple_of(BLOCK as usize)];
    disk.read(offset / BLOCK, &mut whole)?;
    to.copy_from_slice(&whole[head..head + to.len()]);
    Ok(())
}

/// Zeros: whole blocks as such, the ends as data.
fn zero(disk: &Disk, offset: u64, len: u64) -> Result<(), DiskError> {
    let end = offset + len;
    let (first, last) = (offset.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
    if first >= last {
        return disk.write_bytes(offset, &vec![0; len as usize]);
    }
    if offset < first {
        disk.write_bytes(offset, &vec![0; (first - offset) as usize])?;
    }
    disk.zero(first / BLOCK, (last - first) / BLOCK)?;
    if last < end {
        disk.write_bytes(last, &vec![0; (end - last) as usize])?;
    }
    Ok(())
}

fn change(disk: &Disk, request: &IoRequest) -> Result<(), DiskError> {
    let (offset, len) = (request.offset, u64::from(request.len));
    match (request.op, &request.buffer) {
        (RequestOp::Write, Some(buffer)) => disk.write_bytes(offset, buffer)?,
        (RequestOp::Discard | RequestOp::WriteZeroes { .. }, _) => zero(disk, offset, len)?,
        (RequestOp::Write | RequestOp::Read | RequestOp::Flush, _) => return Err(DiskError::Range),
    }
    if request.fua { disk.flush() } else { Ok(()) }
}

impl DiskPort {
    /// A port to `disk`.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(disk: Arc<Disk>) -> std::io::Result<DiskPort> {
        Ok(DiskPort {
            disk,
            pool: Pool::new(POOL),
            readers: Threads::start("store-read", READERS)?,
            writers: Threads::start("store-write", WRITERS)?,
            flushers: Threads::start("store-flush", FLUSHERS)?,
        })
    }

    fn blocks_of(offset: u64, len: u32) -> (u64, u64) {
        let start = offset / BLOCK;
        (start, (offset + u64::from(len)).div_ceil(BLOCK) - start)
    }
}

fn answer(done: Completion, result: Result<(), DiskError>, buffer: Option<Buffer>) {
    if let Err(error @ DiskError::Io(_)) = &result {
        eprintln!("isotherm-store: {error}");
    }
    done.call(result.map_err(|e| errno(&e)), buffer);
}

impl Port for DiskPort {
    fn volume_bytes(&self) -> u64 {
        self.disk.blocks() * BLOCK
    }
    fn block_bytes(&self) -> u32 {
        BLOCK as u32
    }
    fn read_only(&self) -> bool {
        false
    }
    fn buffer(&self, offset: u64, len: u32) -> Buffer {
        self.pool.buffer(offset, len, BLOCK as u32)
    }

    fn submit(&self, mut request: IoRequest, done: Completion) {
        let disk = Arc::clone(&self.disk);
        let inside = request.offset.checked_add(u64::from(request.len));
        if inside.is_none_or(|end| end > self.volume_bytes()) {
            return done.call(Err(IoError::Invalid), request.buffer);
        }
        match request.op {
            RequestOp::Flush => self
                .flushers
                .push(Box::new(move || answer(done, disk.flush(), None))),
            RequestOp::Read => {
                let (start, blocks) = DiskPort::blocks_of(request.offset, request.len);
                let near = request.len <= SMALL && disk.is_near(start, blocks);
                let job = move || {
                    let result = match request.buffer.as_mut() {
                        Some(buffer) => read(&disk, request.offset, buffer),
                        None => Err(DiskError::Range),
                    };
                    answer(done, result, request.buffer);
                };
                if near {
                    job();
                } else {
                    self.readers.push(Box::new(job));
                }
            }
            _ => self.writers.push(Box::new(move || {
                let result = change(&disk, &request);
                answer(done, result, request.buffer);
            })),
        }
    }

    fn block_status(&self, offset: u64, len: u32, max: usize) -> Vec<(u32, bool)> {
        let (start, blocks) = DiskPort::blocks_of(offset, len);
        let mut left = u64::from(len);
        let mut skip = offset % BLOCK;
        let mut runs = Vec::new();
        for (n, data) in self.disk.status(start, blocks) {
            let bytes = (n * BLOCK - skip).min(left);
            skip = 0;
            left -= bytes;
            runs.push((bytes as u32, data));
        }
        runs.truncate(max);
        runs
    }
}
