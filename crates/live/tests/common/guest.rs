//! A virtual machine's side of vhost-user: rust-vmm's front end on the socket, and a driver of virtio block queues in shared memory.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion,
};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

pub const READ: u32 = 0;
pub const WRITE: u32 = 1;
pub const FLUSH: u32 = 4;
pub const GET_ID: u32 = 8;
pub const DISCARD: u32 = 11;
pub const WRITE_ZEROES: u32 = 13;

pub const NEXT: u16 = 1;
pub const WRITABLE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// The guest's memory does not begin at 0, and its addresses in this process are others.
pub const BASE: u64 = 1 << 20;
const MEMORY: u64 = 96 << 20;
/// Memory of a queue: rings, then headers and status bytes, then data.
const QUEUE: u64 = 48 << 20;
const SMALL: u64 = 1 << 16;
pub const DATA: u64 = 1 << 17;
/// Bytes of data of a request.
pub const LARGEST: usize = 1 << 18;

/// The memory of a machine, which outlives its connections.
pub struct Memory {
    pub map: GuestMemoryMmap,
    pub file: File,
}

impl Memory {
    pub fn new() -> Memory {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("guest", flags).expect("a memfd"));
        file.set_len(MEMORY).expect("room");
        let offset = FileOffset::new(file.try_clone().expect("a descriptor"), 0);
        let range = (GuestAddress(BASE), MEMORY as usize, Some(offset));
        let map = GuestMemoryMmap::from_ranges_with_files([range]).expect("mapped");
        Memory { map, file }
    }

    pub fn region(&self) -> VhostUserMemoryRegionInfo {
        let region = self.map.iter().next().expect("one region");
        VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE,
            memory_size: region.len(),
            userspace_addr: region.as_ptr() as u64,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }
}

/// A queue as its driver sees it. Request N uses the descriptors 3N to 3N + 2.
pub struct Queue {
    pub size: u16,
    base: u64,
    pub kick: EventFd,
    pub call: EventFd,
    pub error: EventFd,
    pub published: u16,
    pub seen: u16,
}

impl Queue {
    pub fn descriptors(&self) -> u64 {
        self.base
    }
    pub fn available(&self) -> u64 {
        self.base + 16 * u64::from(self.size)
    }
    pub fn used(&self) -> u64 {
        (self.available() + 6 + 2 * u64::from(self.size)).next_multiple_of(8)
    }
    pub fn header(&self, slot: u16) -> u64 {
        self.base + SMALL + 32 * u64::from(slot)
    }
    pub fn status(&self, slot: u16) -> u64 {
        self.header(slot) + 16
    }
    pub fn data(&self, slot: u16) -> u64 {
        self.base + DATA + LARGEST as u64 * u64::from(slot)
    }
}

/// A machine with a connected device.
pub struct Guest {
    pub front: Frontend,
    pub memory: Memory,
    pub queues: Vec<Queue>,
    pub features: u64,
    pub inflight: Option<(VhostUserInflight, File)>,
    /// The socket on which the device tells of changes.
    pub channel: UnixStream,
    channel_other: UnixStream,
}

const PROTOCOL: VhostUserProtocolFeatures = VhostUserProtocolFeatures::MQ
    .union(VhostUserProtocolFeatures::REPLY_ACK)
    .union(VhostUserProtocolFeatures::BACKEND_REQ)
    .union(VhostUserProtocolFeatures::CONFIG)
    .union(VhostUserProtocolFeatures::INFLIGHT_SHMFD);

impl Guest {
    /// Connects a new machine, whose driver takes all features that `without` lacks.
    pub fn new(path: &Path, queues: usize, size: u16, without: u64) -> Guest {
        let event = || EventFd::new(EFD_NONBLOCK).expect("an eventfd");
        let queues = (0..queues as u64).map(|i| Queue {
            size,
            base: BASE + QUEUE * i,
            kick: event(),
            call: event(),
            error: event(),
            published: 0,
            seen: 0,
        });
        let (channel, channel_other) = UnixStream::pair().expect("a pair");
        let mut guest = Guest {
            front: connect(path),
            memory: Memory::new(),
            queues: queues.collect(),
            features: 0,
            inflight: None,
            channel,
            channel_other,
        };
        guest.set_up(without);
        guest
    }

    /// Connects the machine to the next server, as a monitor does: nothing in its memory changes.
    pub fn reconnect(&mut self, path: &Path) {
        self.front = connect(path);
        self.set_up(0);
    }

    fn set_up(&mut self, without: u64) {
        let front = &mut self.front;
        front.set_owner().expect("owner");
        let offered = front.get_features().expect("features");
        if self.features == 0 {
            self.features = offered & !without;
        }
        let protocol = front.get_protocol_features().expect("protocol");
        front
            .set_protocol_features(protocol & PROTOCOL)
            .expect("protocol");
        if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            // Each message is carried out when its call returns.
            front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        if protocol.contains(VhostUserProtocolFeatures::BACKEND_REQ) {
            front
                .set_backend_request_fd(&self.channel_other)
                .expect("channel");
        }
        if protocol.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD) {
            if self.inflight.is_none() {
                let wanted =
                    VhostUserInflight::new(0, 0, self.queues.len() as u16, self.queues[0].size);
                self.inflight = Some(front.get_inflight_fd(&wanted).expect("an area"));
            }
            let (area, file) = self.inflight.as_ref().expect("an area");
            front
                .set_inflight_fd(area, file.as_raw_fd())
                .expect("the area is taken");
        }
        front.set_features(self.features).expect("features");
        front
            .set_mem_table(&[self.memory.region()])
            .expect("memory");
        let region = self.memory.region();
        let here = |at: u64| at - BASE + region.userspace_addr;
        for (i, q) in self.queues.iter_mut().enumerate() {
            front.set_vring_num(i, q.size).expect("size");
            // A monitor that lost its device knows no more than the used index.
            let used: u16 = (self.memory.map)
                .load(GuestAddress(q.used() + 2), Ordering::Acquire)
                .expect("inside");
            front.set_vring_base(i, used).expect("base");
            let addresses = VringConfigData {
                queue_max_size: q.size,
                queue_size: q.size,
                flags: 0,
                desc_table_addr: here(q.descriptors()),
                used_ring_addr: here(q.used()),
                avail_ring_addr: here(q.available()),
                log_addr: None,
            };
            front.set_vring_addr(i, &addresses).expect("addresses");
            front.set_vring_err(i, &q.error).expect("error");
            front.set_vring_call(i, &q.call).expect("call");
            front.set_vring_kick(i, &q.kick).expect("kick");
            front.set_vring_enable(i, true).expect("enabled");
        }
    }

    /// The bytes of the configuration.
    pub fn config(&mut self) -> Vec<u8> {
        let flags = VhostUserConfigFlags::WRITABLE;
        let got = self.front.get_config(0, 60, flags, &[0; 60]);
        got.expect("configuration").1
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        (self.memory.map)
            .write_slice(bytes, GuestAddress(at))
            .expect("inside");
    }

    pub fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        (self.memory.map)
            .read_slice(&mut bytes, GuestAddress(at))
            .expect("inside");
        bytes
    }

    /// Writes a descriptor.
    pub fn descriptor(&self, q: usize, index: u16, at: u64, len: u32, flags: u16, next: u16) {
        let place = self.queues[q].descriptors() + 16 * u64::from(index);
        self.put(place, &descriptor(at, len, flags, next));
    }

    /// Gives the request that begins with this descriptor to the device.
    pub fn publish(&mut self, q: usize, head: u16) {
        let queue = &mut self.queues[q];
        let place = queue.available() + 4 + 2 * u64::from(queue.published % queue.size);
        queue.published = queue.published.wrapping_add(1);
        let (at, index) = (queue.available() + 2, queue.published);
        self.put(place, &head.to_le_bytes());
        (self.memory.map)
            .store(index, GuestAddress(at), Ordering::Release)
            .expect("inside");
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    pub fn kick(&self, q: usize) {
        self.queues[q].kick.write(1).expect("kicked");
    }

    /// Prepares request `slot`: header, `out` bytes for the device, room for `back` bytes, status.
    pub fn prepare(&self, q: usize, slot: u16, kind: u32, sector: u64, out: &[u8], back: usize) {
        let queue = &self.queues[q];
        let (header, status, data) = (queue.header(slot), queue.status(slot), queue.data(slot));
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[8..].copy_from_slice(&sector.to_le_bytes());
        self.put(header, &bytes);
        self.put(status, &[0xff]);
        let first = 3 * slot;
        let has_data = !out.is_empty() || back > 0;
        let after = if has_data { first + 1 } else { first + 2 };
        self.descriptor(q, first, header, 16, NEXT, after);
        if !out.is_empty() {
            self.put(data, out);
            self.descriptor(q, first + 1, data, out.len() as u32, NEXT, first + 2);
        } else if back > 0 {
            self.descriptor(q, first + 1, data, back as u32, NEXT | WRITABLE, first + 2);
        }
        self.descriptor(q, first + 2, status, 1, WRITABLE, 0);
    }

    /// The next request that the device gave back: its first descriptor and the bytes written.
    pub fn used(&mut self, q: usize) -> Option<(u16, u32)> {
        let queue = &mut self.queues[q];
        let at = GuestAddress(queue.used() + 2);
        let index: u16 = self.memory.map.load(at, Ordering::Acquire).expect("inside");
        if index == queue.seen {
            return None;
        }
        let place = queue.used() + 4 + 8 * u64::from(queue.seen % queue.size);
        queue.seen = queue.seen.wrapping_add(1);
        let entry = self.get(place, 8);
        let word = |i: usize| u32::from_le_bytes(entry[i..i + 4].try_into().expect("4"));
        Some((word(0) as u16, word(4)))
    }

    /// Asks to be interrupted by the next request that is given back.
    pub fn listen(&self, q: usize) {
        let queue = &self.queues[q];
        let at = queue.available() + 4 + 2 * u64::from(queue.size);
        (self.memory.map)
            .store(queue.seen, GuestAddress(at), Ordering::Release)
            .expect("inside");
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// As [`Guest::used`], but waits for an interrupt; `None` after the time.
    pub fn wait_used(&mut self, q: usize, limit: Duration) -> Option<(u16, u32)> {
        let until = Instant::now() + limit;
        loop {
            self.listen(q);
            if let Some(used) = self.used(q) {
                return Some(used);
            }
            let left = until.checked_duration_since(Instant::now())?;
            if wait_readable(&self.queues[q].call, left) {
                let _ = self.queues[q].call.read();
            }
        }
    }

    /// One request from start to end. Returns its status and the data.
    pub fn ask(&mut self, kind: u32, sector: u64, out: &[u8], back: usize) -> (u8, Vec<u8>) {
        self.prepare(0, 0, kind, sector, out, back);
        self.publish(0, 0);
        self.kick(0);
        let used = self.wait_used(0, Duration::from_secs(60));
        let (head, _) = used.expect("the request is answered");
        assert_eq!(head, 0);
        let queue = &self.queues[0];
        let status = self.get(queue.status(0), 1)[0];
        (status, self.get(queue.data(0), back))
    }

    pub fn write(&mut self, sector: u64, data: &[u8]) {
        assert_eq!(self.ask(WRITE, sector, data, 0).0, 0, "write at {sector}");
    }

    pub fn read(&mut self, sector: u64, len: usize) -> Vec<u8> {
        let (status, data) = self.ask(READ, sector, &[], len);
        assert_eq!(status, 0, "read at {sector}");
        data
    }
}

pub fn descriptor(at: u64, len: u32, flags: u16, next: u16) -> Vec<u8> {
    let mut bytes = at.to_le_bytes().to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(next.to_le_bytes());
    bytes
}

/// A range of a discard or of zeros.
pub fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    let mut bytes = sector.to_le_bytes().to_vec();
    bytes.extend(sectors.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes
}

pub fn wait_readable(fd: &impl AsRawFd, limit: Duration) -> bool {
    // SAFETY: the caller's descriptor stays open during the call.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd.as_raw_fd()) };
    let mut watched = [rustix::event::PollFd::from_borrowed_fd(
        fd,
        rustix::event::PollFlags::IN,
    )];
    let limit = rustix::event::Timespec::try_from(limit).expect("short");
    rustix::event::poll(&mut watched, Some(&limit)).is_ok_and(|n| n > 0)
}

fn connect(path: &Path) -> Frontend {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match UnixStream::connect(path) {
            Ok(socket) => return Frontend::from_stream(socket, 16),
            Err(e) if Instant::now() >= until => panic!("{}: {e}", path.display()),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
