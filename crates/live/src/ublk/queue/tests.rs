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
