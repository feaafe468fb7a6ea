use super::*;
use crate::block_file::testing::MemPort;
use crate::block_file::wire::{FUSE_FSYNC, FUSE_READ, FUSE_WRITE};
use crate::port::{Completion, IoRequest, Layer};
use std::sync::atomic::Ordering;

const BLOCK: u32 = 512;

/// A port that ends a request only when a test tells it to.
struct HoldingPort {
    memory: MemPort,
    held: Mutex<Vec<(Option<Buffer>, Completion)>>,
}

impl Layer for HoldingPort {
    fn below(&self) -> &dyn Port {
        &self.memory
    }

    fn submit(&self, request: IoRequest, done: Completion) {
        self.held.lock().unwrap().push((request.buffer, done));
    }
}

impl HoldingPort {
    fn new() -> Arc<HoldingPort> {
        Arc::new(HoldingPort {
            memory: MemPort::new(1 << 20, BLOCK),
            held: Mutex::default(),
        })
    }
    fn end_one(&self, result: Result<(), IoError>) {
        let (buffer, done) = self.held.lock().unwrap().remove(0);
        done.call(result, buffer);
    }
    fn lose_one(&self) {
        drop(self.held.lock().unwrap().remove(0));
    }
}

/// Entries without a kernel: the device is a socket that is never read.
fn entries(port: Arc<dyn Port>) -> Entries {
    let (ours, _) = std::os::unix::net::UnixStream::pair().unwrap();
    let device = Arc::new(File::from(std::os::fd::OwnedFd::from(ours)));
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    let fuser_link = Arc::new(FuserLink::new(socket.into(), Arc::clone(&device)));
    let pool = Pool::new(memory());
    Entries::new(device, port, fuser_link, &pool).unwrap()
}

/// Numbers of the entries that go into the ring now.
fn put(entries: &mut Entries) -> Vec<u16> {
    let mut numbers = Vec::new();
    entries.put(&mut |n, _| numbers.push(n));
    numbers
}

/// Simulates the kernel: a request for entry 0, which comes back with it.
fn ask(entries: &mut Entries, opcode: u32, unique: u64, offset: u64, payload: &[u8], bytes: u32) {
    let shared = Arc::clone(&entries.0);
    let mut header = [0; HEADER];
    let mut set = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    set(0, &((IN_HEADER + 40 + payload.len()) as u32).to_ne_bytes());
    set(4, &opcode.to_ne_bytes());
    set(8, &unique.to_ne_bytes());
    set(OP_IN + 8, &offset.to_ne_bytes());
    set(OP_IN + 16, &bytes.to_ne_bytes());
    set(COMMIT_ID, &unique.to_ne_bytes());
    set(PAYLOAD_SIZE, &(payload.len() as u32).to_ne_bytes());
    // SAFETY: the entry is not in the ring, and its header has no other user.
    unsafe { shared.header(0).cast::<[u8; HEADER]>().write(header) };
    shared.lock().entries[0].memory.bytes_mut()[..payload.len()].copy_from_slice(payload);
    entries.back(0, 0);
}

/// Error, unique and payload of the answer in entry 0.
fn answer(entries: &Entries) -> (i32, u64, Vec<u8>) {
    let header = entries.0.read_header(0);
    let len = u32_at(&header, PAYLOAD_SIZE).unwrap() as usize;
    assert_eq!(u32_at(&header, 0), Some((OUT_HEADER + len) as u32));
    let state = entries.0.lock();
    (
        u32_at(&header, 4).unwrap() as i32,
        unique(&header).unwrap(),
        state.entries[0].memory.bytes()[..len].to_vec(),
    )
}

#[test]
fn processors_are_counted_as_the_kernel_lists_them() {
    for (list, n) in [
        ("0", 1),
        ("0-1", 2),
        ("0-3,8-11", 8),
        ("0,2,4", 3),
        ("", 0),
        ("3-1", 0),
        ("x", 0),
    ] {
        assert_eq!(queues::count(list), n, "{list}");
    }
    assert_eq!([2, 8, 32].map(queues::per_queue), [64, 16, 16]);
    let mib = |queues| queues::memory_for(queues) >> 20;
    assert_eq!([0, 1, 2, 16, 32, 33].map(mib), [0, 32, 32, 64, 128, 0]);
}

/// Checks that no request is answered before its end, and that each is answered once, also a lost one.
fn check_ends() -> Result<(), &'static str> {
    let port = HoldingPort::new();
    let mut entries = entries(Arc::clone(&port) as Arc<dyn Port>);
    let all = put(&mut entries);
    assert!(
        all.len() >= queues() && all.windows(2).all(|w| w[0] < w[1]),
        "all are registered"
    );
    for (opcode, unique) in [(FUSE_FSYNC, 2), (FUSE_WRITE, 4), (FUSE_READ, 6)] {
        let payload: &[u8] = if opcode == FUSE_WRITE { &[7; 512] } else { &[] };
        for (result, error) in [(Ok(()), 0), (Err(IoError::Io), -Errno::IO.raw_os_error())] {
            ask(&mut entries, opcode, unique, 1024, payload, BLOCK);
            if !put(&mut entries).is_empty() {
                return Err("answered before its end");
            }
            port.end_one(result);
            if put(&mut entries) != [0] {
                return Err("not answered once");
            }
            let (said, of, body) = answer(&entries);
            assert_eq!((said, of), (error, unique));
            let bytes = match (opcode, error) {
                (FUSE_READ, 0) => 512,
                (FUSE_WRITE, 0) => 8,
                _ => 0,
            };
            assert_eq!(body.len(), bytes, "{opcode}");
        }
        ask(&mut entries, opcode, unique, 1024, payload, BLOCK);
        port.lose_one();
        if put(&mut entries) != [0] {
            return Err("what is lost is not answered");
        }
        assert_eq!(answer(&entries).0, -Errno::IO.raw_os_error());
    }
    Ok(())
}

#[test]
fn a_request_is_answered_once_and_not_before_its_end() {
    check_ends().unwrap();
}

/// Checks that requests which fuser has, or gets, when its session has ended are answered.
fn check_session() -> Result<(), &'static str> {
    const GETATTR: u32 = 3;
    let mut entries = entries(HoldingPort::new());
    put(&mut entries);
    ask(&mut entries, GETATTR, 2, 0, &[], 0);
    if !put(&mut entries).is_empty() {
        return Err("answered before its end");
    }
    // Nobody is at the other end of the socket, so this ends immediately.
    entries.0.fuser_link.relay();
    entries.answers().fuser_ended();
    if put(&mut entries) != [0] {
        return Err("the entry of a request that fuser had is lost");
    }
    assert_eq!(
        answer(&entries),
        (-Errno::NOTCONN.raw_os_error(), 2, vec![])
    );
    ask(&mut entries, GETATTR, 4, 0, &[], 0);
    if put(&mut entries) != [0] {
        return Err("the entry of a request after the end is lost");
    }
    assert_eq!(answer(&entries), (-Errno::IO.raw_os_error(), 4, vec![]));
    // What was answered is not answered again.
    entries.answers().fuser_ended();
    if put(&mut entries).is_empty() {
        Ok(())
    } else {
        Err("answered twice")
    }
}

#[test]
fn the_end_of_fusers_session_loses_no_entry() {
    check_session().unwrap();
}

#[test]
fn without_these_rules_that_is_noticed() {
    for mutant in [
        Mutant::AnswerEarly,
        Mutant::ForgetLost,
        Mutant::ForgetSession,
    ] {
        MUTANT.set(Some(mutant));
        let noticed = check_ends().and_then(|()| check_session());
        MUTANT.set(None);
        assert!(noticed.is_err(), "{mutant:?} survives");
    }
}

#[test]
fn unaligned_ranges_and_ends_of_the_volume() {
    let memory = Arc::new(MemPort::new(1 << 20, BLOCK));
    let mut entries = entries(Arc::clone(&memory) as Arc<dyn Port>);
    put(&mut entries);
    let end = 1 << 20;
    ask(&mut entries, FUSE_WRITE, 2, 1000, b"odd bytes", 9);
    assert_eq!(answer(&entries), (0, 2, vec![9, 0, 0, 0, 0, 0, 0, 0]));
    ask(&mut entries, FUSE_READ, 4, 1000, &[], 9);
    assert_eq!(answer(&entries), (0, 4, b"odd bytes".to_vec()));
    // A read is short at the end, and empty beyond it.
    ask(&mut entries, FUSE_READ, 6, end - 4, &[], 100);
    assert_eq!(answer(&entries), (0, 6, vec![0; 4]));
    ask(&mut entries, FUSE_READ, 8, end, &[], 100);
    assert_eq!(answer(&entries), (0, 8, vec![]));
    ask(&mut entries, FUSE_WRITE, 10, end, b"beyond", 6);
    assert_eq!(answer(&entries).0, -Errno::NOSPC.raw_os_error());
    ask(&mut entries, FUSE_WRITE, 12, end - 512, &[3; 1024], 1024);
    assert_eq!(answer(&entries), (0, 12, vec![0, 2, 0, 0, 0, 0, 0, 0]));
    // A write whose payload has another length than it states.
    ask(&mut entries, FUSE_WRITE, 14, 0, &[3; 512], 1024);
    assert_eq!(answer(&entries).0, -Errno::INVAL.raw_os_error());
    assert_eq!(memory.counts.writes.load(Ordering::Relaxed), 2);
}

#[test]
fn entries_that_the_kernel_gives_up_are_over() {
    let mut entries = entries(HoldingPort::new());
    let all = put(&mut entries);
    for (i, n) in all.iter().enumerate() {
        assert!(!entries.is_over(), "{i}");
        entries.back(*n, -Errno::NOTCONN.raw_os_error());
    }
    assert!(entries.is_over() && put(&mut entries).is_empty());
}
