//! Requests in flight, in memory that the monitor keeps when this server is killed (VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD, split queues).
//!
//! ```text
//! each queue:  features 8 │ version 2 │ descriptors 2 │ last given back 2 │ used index 2 │ descriptors × 16
//! descriptor:  in flight 1 │ - 5 │ given back before 2 │ number of the request 8
//! ```
//! A request is marked before it goes to the volume, and the mark is removed after it was given back. So the next server finds what it
//! must do again: a request that may have been done, but was not given back, which its guest cannot tell from one that was not done.

use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vm_memory::{AtomicAccess, Bytes, FileOffset, MmapRegion, VolatileMemory};

const HEADER: usize = 16;
const ENTRY: usize = 16;
/// Places in the header of a queue.
const VERSION: usize = 8;
const DESCRIPTORS: usize = 10;
const LAST: usize = 12;
const USED: usize = 14;
/// Places in the entry of a descriptor.
const BEFORE: usize = 6;
const NUMBER: usize = 8;

/// Memory for the marks of `queues` queues of `size` descriptors.
#[derive(Clone, Debug)]
pub(super) struct Area {
    map: Arc<MmapRegion>,
    size: u16,
}

/// Bytes for the marks of a queue, in whole cache lines.
fn queue_bytes(size: u16) -> usize {
    (HEADER + ENTRY * usize::from(size)).next_multiple_of(64)
}

/// Bytes of an area.
pub(super) fn area_bytes(queues: u16, size: u16) -> u64 {
    queue_bytes(size) as u64 * u64::from(queues)
}

/// A new file for an area, all zeros. Nobody can cut it.
///
/// # Errors
/// The system has no memory or descriptor.
pub(super) fn create(queues: u16, size: u16) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("isotherm-inflight", flags)?);
    file.set_len(area_bytes(queues, size))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// Maps `bytes` of a peer's file. A mapping beyond its end would end this process at the first access.
///
/// # Errors
/// The file is shorter, or no file of memory, or cannot be mapped.
pub(super) fn map(file: File, offset: u64, bytes: u64) -> io::Result<MmapRegion> {
    let metadata = file.metadata()?;
    let is_inside = offset
        .checked_add(bytes)
        .is_some_and(|e| e <= metadata.len());
    if !metadata.is_file() || !is_inside || bytes == 0 {
        let why = "a part of memory that its file does not have";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let size = usize::try_from(bytes).map_err(io::Error::other)?;
    MmapRegion::from_file(FileOffset::new(file, offset), size).map_err(io::Error::other)
}

impl Area {
    /// An area in `file`, as [`create`] made it now or for an earlier server.
    ///
    /// # Errors
    /// As [`map`].
    pub fn open(file: File, offset: u64, queues: u16, size: u16) -> io::Result<Area> {
        let map = Arc::new(map(file, offset, area_bytes(queues, size))?);
        Ok(Area { map, size })
    }

    /// The marks of a queue of `size` descriptors; `None` if the area has no room for it.
    pub fn queue(&self, index: usize, size: u16) -> Option<Marks> {
        let at = index * queue_bytes(self.size);
        (size <= self.size && at < self.map.size()).then(|| Marks {
            map: Arc::clone(&self.map),
            at,
            size,
            next_number: 0,
        })
    }
}

/// The marks of a queue.
#[derive(Debug)]
pub(super) struct Marks {
    map: Arc<MmapRegion>,
    at: usize,
    size: u16,
    next_number: u64,
}

impl Marks {
    fn set<T: AtomicAccess>(&self, at: usize, to: T) {
        // `Area::queue` made sure that all places are inside, and they are aligned.
        let _ = (self.map.as_volatile_slice()).store(to, self.at + at, Ordering::Release);
    }

    fn get<T: AtomicAccess + Default>(&self, at: usize) -> T {
        let found = (self.map.as_volatile_slice()).load(self.at + at, Ordering::Acquire);
        found.unwrap_or_default()
    }

    fn entry(head: u16) -> usize {
        HEADER + ENTRY * usize::from(head)
    }

    /// The request goes to the volume.
    pub fn taken(&mut self, head: u16) {
        self.set(Marks::entry(head) + NUMBER, self.next_number);
        self.next_number += 1;
        self.set(Marks::entry(head), 1u8);
    }

    /// The request is about to be given back.
    pub fn before_used(&mut self, head: u16) {
        self.set(Marks::entry(head) + BEFORE, self.get::<u16>(LAST));
        self.set(LAST, head);
    }

    /// The request was given back, which made the used index `used`.
    pub fn after_used(&mut self, head: u16, used: u16) {
        self.set(Marks::entry(head), 0u8);
        self.set(USED, used);
    }

    /// The requests that an earlier server did not give back, in the order in which it took them. `used` is the used index of the ring.
    ///
    /// Nothing in the area is believed: it belongs to the peer.
    pub fn left(&mut self, used: u16) -> Vec<u16> {
        if self.get::<u16>(VERSION) == 0 {
            self.set(VERSION, 1u16);
            self.set(DESCRIPTORS, self.size);
        }
        // What was given back, but still has its mark.
        let mut last = self.get::<u16>(LAST);
        for _ in 0..used.wrapping_sub(self.get(USED)).min(self.size) {
            if last >= self.size {
                break;
            }
            self.set(Marks::entry(last), 0u8);
            last = self.get(Marks::entry(last) + BEFORE);
        }
        self.set(USED, used);
        let marked = (0..self.size).filter(|&h| self.get::<u8>(Marks::entry(h)) == 1);
        let mut left: Vec<(u64, u16)> = marked
            .map(|h| (self.get(Marks::entry(h) + NUMBER), h))
            .collect();
        left.sort_unstable();
        self.next_number = left.last().map_or(0, |l| l.0.wrapping_add(1));
        left.into_iter().map(|(_, head)| head).collect()
    }
}
