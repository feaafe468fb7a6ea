//! The queues of a device against a plain file in the place of the kernel's.

use super::*;
use crate::port::Pool;
use std::sync::mpsc::{Receiver, sync_channel};

/// Keeps the requests until the test ends them.
struct Holding {
    pool: Arc<Pool>,
    held: Mutex<Vec<(IoRequest, Completion)>>,
}

impl Port for Holding {
    fn volume_bytes(&self) -> u64 {
        1 << 20
    }
    fn block_bytes(&self) -> u32 {
        512
    }
    fn read_only(&self) -> bool {
        false
    }
    fn buffer(&self, offset: u64, len: u32) -> Buffer {
        self.pool.buffer(offset, len, 512)
    }
    fn share(&self) -> Option<Arc<Share>> {
        Some(Share::of(&self.pool))
    }
    fn submit(&self, request: IoRequest, done: Completion) {
        self.held.lock().unwrap().push((request, done));
    }
    fn block_status(&self, _: u64, len: u32, _: usize) -> Vec<(u32, bool)> {
        vec![(len, true)]
    }
}

struct Scene {
    queues: Queues,
    port: Arc<Holding>,
    file: Arc<File>,
    ready: Receiver<io::Result<()>>,
}

impl Scene {
    /// Two queues of four, on a plain file with the layout of `/dev/ublkcN`, and memory for `memory` bytes.
    fn new(memory: usize) -> Scene {
        Scene::with(memory, PageBuffers::Off)
    }

    fn with(memory: usize, buffers: PageBuffers) -> Scene {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.set_len(abi::descriptors_at(1) as u64 + 4096).unwrap();
        let port = Arc::new(Holding {
            pool: Pool::new(memory),
            held: Mutex::default(),
        });
        let (tell, ready) = sync_channel(1);
        let plan = Plan {
            device: Arc::clone(&file),
            port: Arc::clone(&port) as Arc<dyn Port>,
            queues: 2,
            depth: 4,
            counts: Arc::default(),
            durable: false,
            buffers,
        };
        Scene {
            queues: Queues::new(plan, tell).unwrap(),
            port,
            file,
            ready,
        }
    }

    /// The slots whose commands the source puts into the ring, with their answers.
    fn put(&mut self) -> Vec<(u16, Option<i32>)> {
        Shared::take(&self.queues.0);
        let all = self.queues.0.lock().put.clone();
        let mut slots = Vec::new();
        self.queues.put(&mut |slot, _| slots.push(slot));
        assert!(slots.iter().eq(all.iter().map(|(slot, _)| slot)));
        all
    }

    /// The kernel has a request in this slot.
    fn arrive(&mut self, slot: u16, op: u32, sector: u64, sectors: u32) {
        let at = abi::descriptors_at(slot / 4) + usize::from(slot % 4) * DESCRIPTOR;
        let mut bytes = [0; DESCRIPTOR];
        bytes[..4].copy_from_slice(&op.to_ne_bytes());
        bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
        bytes[8..16].copy_from_slice(&sector.to_ne_bytes());
        self.file.write_all_at(&bytes, at as u64).unwrap();
        self.queues.back(slot, 0);
    }

    /// The volume ends the oldest request, after `change` has seen its payload.
    fn end(&mut self, result: Result<(), IoError>, change: impl Fn(&mut [u8])) {
        let (mut request, done) = self.port.held.lock().unwrap().remove(0);
        if let Some(buffer) = &mut request.buffer {
            change(buffer);
        }
        done.call(result, request.buffer);
    }
}

#[test]
fn a_command_goes_back_only_with_the_end_of_its_request() {
    let mut s = Scene::new(1 << 20);
    assert_eq!(s.put(), (0..8).map(|slot| (slot, None)).collect::<Vec<_>>());
    assert!(s.ready.try_recv().is_err(), "not submitted yet");
    assert!(s.put().is_empty());
    assert!(s.ready.try_recv().unwrap().is_ok());

    s.file.write_all_at(&[7; 1024], abi::data_at(0, 2)).unwrap();
    s.arrive(2, abi::OP_WRITE | abi::IO_FUA | abi::IO_META, 8, 2);
    s.arrive(5, abi::OP_READ, 16, 1);
    s.arrive(6, abi::OP_FLUSH, 99, 99);
    s.arrive(7, 77, 0, 1);
    let unknown = answer_of(Errno::OPNOTSUPP);
    assert_eq!(s.put(), [(7, Some(unknown))], "nothing else has ended");
    {
        let held = s.port.held.lock().unwrap();
        let of = |i: usize| (held[i].0.op, held[i].0.offset, held[i].0.len);
        assert_eq!(of(0), (RequestOp::Write, 4096, 1024));
        assert!(held[0].0.fua && held[0].0.class == classes::METADATA);
        assert_eq!(of(1), (RequestOp::Read, 8192, 512));
        assert_eq!(of(2), (RequestOp::Flush, 0, 0));
    }
    s.end(Ok(()), |payload| assert_eq!(payload, [7; 1024]));
    s.end(Ok(()), |payload| payload.fill(9));
    s.end(Err(IoError::Io), |_| ());
    let failed = Some(answer_of(Errno::IO));
    assert_eq!(s.put(), [(2, Some(1024)), (5, Some(512)), (6, failed)]);
    let mut read = [0; 512];
    s.file.read_exact_at(&mut read, abi::data_at(1, 1)).unwrap();
    assert_eq!(read, [9; 512]);
}

#[test]
fn a_lost_request_is_answered_and_a_stopped_device_ends() {
    let mut s = Scene::new(1 << 20);
    s.put();
    s.put();
    s.arrive(3, abi::OP_READ, 0, 1);
    s.put();
    for slot in [0, 1, 2, 4, 5, 6, 7] {
        s.queues.back(slot, answer_of(Errno::NODEV));
    }
    assert!(!s.queues.is_over());
    s.port.held.lock().unwrap().clear();
    assert_eq!(s.put(), [(3, Some(answer_of(Errno::NODEV)))]);
    assert!(!s.queues.is_over(), "the command is in the ring");
    s.queues.back(3, answer_of(Errno::NODEV));
    assert!(s.queues.is_over());
}

#[test]
fn a_refused_command_is_reported_to_the_starter() {
    let mut s = Scene::new(1 << 20);
    s.put();
    s.queues.back(0, answer_of(Errno::BUSY));
    s.put();
    let told = s.ready.try_recv().unwrap();
    assert_eq!(told.unwrap_err().raw_os_error(), Some(16));
}

#[test]
fn requests_wait_for_memory_in_their_order_and_never_for_ever() {
    let mut s = Scene::new(64 << 10);
    s.put();
    s.put();
    for slot in 0..4 {
        s.arrive(slot, abi::OP_READ, 0, 128);
    }
    for slot in 0..4 {
        s.put();
        assert_eq!(s.port.held.lock().unwrap().len(), 1, "one request fits");
        s.end(Ok(()), |_| ());
        assert_eq!(s.queues.0.lock().put, [(slot, Some(65536))]);
    }
}

#[test]
fn registered_pages_are_neither_copied_nor_charged() {
    // There is memory for one request only.
    let mut s = Scene::with(4096, PageBuffers::From(9));
    assert_eq!(s.queues.buffers(), 9..17);
    s.put();
    s.put();
    s.file.write_all_at(&[7; 4096], abi::data_at(0, 2)).unwrap();
    s.arrive(2, abi::OP_WRITE | abi::IO_FUA, 8, 8);
    s.arrive(5, abi::OP_READ, 16, 8);
    s.arrive(6, abi::OP_FLUSH, 99, 99);
    // The kernel could not register these.
    s.arrive(7, abi::OP_READ | abi::IO_UNREGISTERED, 24, 8);
    s.file.write_all_at(&[6; 4096], abi::data_at(0, 3)).unwrap();
    s.arrive(3, abi::OP_WRITE | abi::IO_UNREGISTERED, 32, 8);
    {
        let held = s.port.held.lock().unwrap();
        let pages: Vec<_> = (held.iter())
            .map(|(r, _)| r.pages.as_ref().map(|p| (p.place(512), p.len())))
            .collect();
        let copied = [false, false, false, true];
        assert!(held.iter().map(|(r, _)| r.buffer.is_some()).eq(copied));
        assert_eq!(pages[0], Some(((11, 512), 4096)));
        assert_eq!(pages[1], Some(((14, 512), 4096)));
        assert_eq!(pages[2..], [None, None], "the last waits for memory");
        let mut bytes = [0; 100];
        let written = held[0].0.pages.as_ref().unwrap();
        written.copy_out(3996, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 100]);
        let read = held[1].0.pages.as_ref().unwrap();
        read.copy_in(4000, &[8; 96]).unwrap();
    }
    for result in [Ok(()), Ok(()), Err(IoError::Io)] {
        s.end(result, |_| ());
    }
    s.end(Ok(()), |payload| payload.fill(5));
    s.queues.put(&mut |_, _| ());
    s.end(Ok(()), |payload| assert_eq!(payload, [6; 4096]));
    let (mut zeros, mut copied) = ([0; 4096], [0; 4096]);
    s.file
        .read_exact_at(&mut zeros, abi::data_at(1, 1))
        .unwrap();
    s.file
        .read_exact_at(&mut copied, abi::data_at(1, 3))
        .unwrap();
    assert_eq!(zeros[..4000], [0; 4000]);
    assert_eq!((&zeros[4000..], copied), (&[8; 96][..], [5; 4096]));
    let counts = &s.queues.0.plan.counts;
    let count = |c: &AtomicU64| c.load(Ordering::Relaxed);
    assert_eq!((count(&counts.registered), count(&counts.reads)), (2, 2));
}

#[test]
fn without_a_place_in_the_ring_everything_is_copied() {
    let mut s = Scene::with(1 << 20, PageBuffers::Nowhere);
    assert!(s.queues.buffers().is_empty());
    s.put();
    s.put();
    s.arrive(1, abi::OP_READ | abi::IO_UNREGISTERED, 0, 8);
    assert!(s.port.held.lock().unwrap()[0].0.buffer.is_some());
    s.end(Err(IoError::Gone), |_| ());
    assert_eq!(s.put(), [(1, Some(answer_of(Errno::NODEV)))]);
}
