//! Requests whose memory stays in the kernel. No kernel of the test machine needs to offer that: memory of this process is registered in
//! the place of the pages, and a file is read and written in the place of `/dev/ublkcN`. The two have different contents, so that a test
//! sees which of them was used.

use super::*;
use crate::pages::Pages;

/// Number of the ring's buffer.
const BUFFER: u16 = 5;

struct Request {
    tag: Tag,
    memory: Buffer,
    file: Arc<File>,
}

/// A request with registered memory full of `fill`; the file has the complement. `skew` bytes misalign the memory.
fn admit(b: &mut Bench, op: RequestOp, len: u32, fill: u8, skew: usize) -> Request {
    admit_as(BUFFER, b, op, len, (fill, skew))
}

/// The same with another of the ring's buffers, so that two requests can be in progress.
fn admit_as(
    buffer: u16,
    b: &mut Bench,
    op: RequestOp,
    len: u32,
    (fill, skew): (u8, usize),
) -> Request {
    let mut memory = Buffer::new(0, len + 4096, 512);
    memory.fill(fill);
    let part = start::iovec(memory.as_ptr(), memory.len());
    let submitter = b.world.ring.submitter();
    // SAFETY: the memory lives until the end of the test, and every operation ends before that.
    unsafe { submitter.register_buffers_update(buffer.into(), &[part], None) }.unwrap();
    let file = Arc::new(tempfile::tempfile().unwrap());
    file.write_all_at(&vec![!fill; len as usize], 77).unwrap();
    let first = memory.as_ptr() as u64 + skew as u64;
    let pages = Pages::new(Arc::clone(&file), 77, buffer, first, len);
    let request = IoRequest::new(op, 0, len).with_pages(Some(pages));
    let done = Done::Ticket(7);
    let tag = b.world.admit(Submission { request, done }).unwrap().tag;
    Request { tag, memory, file }
}

fn reply(b: &mut Bench, tag: Tag, result: Result<(), IoError>) -> Result<(), IoError> {
    b.world.carry_out(&Effect::Reply { tag, result }, &[]);
    b.world.ended().pop().unwrap().result
}

fn at(tag: Tag, offset: u32) -> BufRef {
    BufRef::Request { tag, offset }
}

fn in_file(r: &Request, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    r.file.read_exact_at(&mut bytes, 77 + offset).unwrap();
    bytes
}

#[test]
fn devices_read_and_write_the_pages_themselves() {
    let mut b = bench(None);
    let r = admit(&mut b, RequestOp::Write, 8192, 0x11, 0);
    let written = b.one(OpKind::Write, 65536, 4096, at(r.tag, 4096), true);
    assert_eq!(written, Ok(4096));
    assert_eq!(b.on_disk(65536, 4096), [0x11; 4096]);
    assert_eq!(reply(&mut b, r.tag, Ok(())), Ok(()));

    let mut r = admit(&mut b, RequestOp::Read, 8192, 0x22, 0);
    let read = b.one(OpKind::Read, 65536, 4096, at(r.tag, 4096), false);
    assert_eq!(read, Ok(4096));
    assert_eq!(r.memory[..4096], [0x22; 4096]);
    assert_eq!(r.memory.aligned_mut()[4096..8192], [0x11; 4096]);
    assert_eq!(in_file(&r, 0, 8192), [!0x22; 8192], "nothing was copied");
    assert_eq!(reply(&mut b, r.tag, Ok(())), Ok(()));
}

#[test]
fn zeros_and_bytes_of_moves_are_copied_into_the_pages() {
    let mut b = bench(None);
    b.file.write_all_at(&[0x33; 4096], 0).unwrap();
    let moved = BufRef::Move {
        index: 1,
        offset: 0,
    };
    assert_eq!(b.one(OpKind::Read, 0, 4096, moved, false), Ok(4096));
    let long = 2 * Arena::ZEROS as u32 + 8192;
    let r = admit(&mut b, RequestOp::Read, long, 0x44, 0);
    let zero = Effect::Zero {
        tag: r.tag,
        offset: 4096,
        len: long - 8192,
    };
    b.world.carry_out(&zero, &[]);
    let copy = Effect::CopyFromMove {
        index: 1,
        from: 512,
        tag: r.tag,
        to: 512,
        len: 1024,
    };
    b.world.carry_out(&copy, &[]);
    let bytes = in_file(&r, 0, long as usize);
    let end = long as usize - 4096;
    assert!(bytes[4096..end].iter().all(|&x| x == 0));
    assert_eq!(bytes[512..1536], [0x33; 1024]);
    for rest in [0..512, 1536..4096, end..long as usize] {
        assert!(bytes[rest].iter().all(|&x| x == !0x44));
    }
    assert_eq!(reply(&mut b, r.tag, Ok(())), Ok(()));
}

#[test]
fn two_members_never_get_different_bytes_of_one_write() {
    let mut b = bench(None);
    let mut r = admit(&mut b, RequestOp::Write, 8192, 0x55, 0);
    b.start(OpKind::Write, 0, 8192, at(r.tag, 0), false);
    b.start(OpKind::Write, 65536, 4096, at(r.tag, 4096), false);
    // The user of the device writes to its pages meanwhile.
    r.memory.aligned_mut().fill(0x66);
    assert_eq!(b.finish(2).len(), 2);
    assert_eq!(b.on_disk(0, 8192), [!0x55; 8192], "the copy");
    assert_eq!(b.on_disk(65536, 4096), [!0x55; 4096], "the same copy");
    // The rest of a write that was short comes from the same copy.
    let rest = b.one(OpKind::Write, 131_072, 512, at(r.tag, 512), false);
    assert_eq!(rest, Ok(512));
    assert_eq!(b.on_disk(131_072, 512), [!0x55; 512]);
    assert_eq!(reply(&mut b, r.tag, Ok(())), Ok(()));

    // Also if a write of another request lies between the two.
    let mut r = admit(&mut b, RequestOp::Write, 4096, 0x88, 0);
    b.start(OpKind::Write, 0, 4096, at(r.tag, 0), false);
    let other = admit_as(BUFFER + 1, &mut b, RequestOp::Write, 4096, (0x99, 0));
    b.start(OpKind::Write, 131_072, 4096, at(other.tag, 0), false);
    b.start(OpKind::Write, 65536, 4096, at(r.tag, 0), false);
    r.memory.aligned_mut().fill(0x66);
    assert_eq!(b.finish(3).len(), 3);
    assert_eq!(b.on_disk(0, 4096), b.on_disk(65536, 4096));
    assert_eq!(b.on_disk(0, 4096), [!0x88; 4096], "the copy");
    for tag in [r.tag, other.tag] {
        assert_eq!(reply(&mut b, tag, Ok(())), Ok(()));
    }

    // Different bytes of one write need no copy.
    let r = admit(&mut b, RequestOp::Write, 8192, 0x77, 0);
    b.start(OpKind::Write, 0, 4096, at(r.tag, 0), false);
    b.start(OpKind::Write, 65536, 4096, at(r.tag, 4096), false);
    assert_eq!(b.finish(2).len(), 2);
    assert_eq!(b.on_disk(0, 4096), [0x77; 4096]);
    assert_eq!(b.on_disk(65536, 4096), [0x77; 4096]);
    assert_eq!(reply(&mut b, r.tag, Ok(())), Ok(()));
}

#[test]
fn an_operation_that_the_device_refuses_goes_through_memory() {
    let mut b = bench(None);
    // Direct I/O from an odd address is invalid. A file system without direct I/O accepts it.
    let direct = b.world.devices[0].as_ref().unwrap().direct;
    let r = admit(&mut b, RequestOp::Write, 4096, 0x11, 3);
    let written = b.one(OpKind::Write, 4096, 4096, at(r.tag, 0), true);
    assert_eq!(written, Ok(4096));
    let through_memory = if direct { !0x11 } else { 0x11 };
    assert_eq!(b.on_disk(4096, 4096), [through_memory; 4096]);
    assert_eq!(reply(&mut b, r.tag, Ok(())), Ok(()));

    let r = admit(&mut b, RequestOp::Read, 4096, 0x22, 3);
    let read = b.one(OpKind::Read, 4096, 4096, at(r.tag, 0), false);
    assert_eq!(read, Ok(4096));
    if direct {
        assert_eq!(in_file(&r, 0, 4096), [through_memory; 4096]);
    }
    assert_eq!(reply(&mut b, r.tag, Ok(())), Ok(()));
    assert_eq!(b.world.member_stats(0).errors, 0);
}

#[test]
fn bytes_that_cannot_be_copied_fail_the_request_and_reach_no_device() {
    let mut b = bench(None);
    let r = admit(&mut b, RequestOp::Write, 8192, 0x11, 0);
    r.file.set_len(80).unwrap();
    b.start(OpKind::Write, 0, 8192, at(r.tag, 0), false);
    b.start(OpKind::Write, 65536, 8192, at(r.tag, 0), false);
    let done = b.finish(2);
    assert!(done.iter().all(|d| d.1 == Err(IoError::Io)), "{done:?}");
    assert_eq!(b.on_disk(0, 8192), [0; 8192]);
    assert_eq!(reply(&mut b, r.tag, Err(IoError::Io)), Err(IoError::Io));

    // The engine does not know of a copy that fails, so the reply says it.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pages");
    std::fs::write(&path, [0; 4096]).unwrap();
    let read_only = Arc::new(File::open(&path).unwrap());
    let pages = Pages::new(read_only, 0, BUFFER, 0, 4096);
    let request = IoRequest::new(RequestOp::Read, 0, 4096).with_pages(Some(pages));
    let done = Done::Ticket(7);
    let tag = b.world.admit(Submission { request, done }).unwrap().tag;
    let zero = Effect::Zero {
        tag,
        offset: 0,
        len: 4096,
    };
    b.world.carry_out(&zero, &[]);
    assert_eq!(reply(&mut b, tag, Ok(())), Err(IoError::Io));
}

#[test]
fn a_device_error_and_a_short_read_come_up() {
    let mut b = bench(None);
    let r = admit(&mut b, RequestOp::Read, 8192, 0x11, 0);
    // The last block of the device, and what lies behind it.
    let short = b.one(OpKind::Read, SIZE - 4096, 8192, at(r.tag, 0), false);
    assert_eq!(short, Ok(4096));
    let behind = b.one(OpKind::Read, SIZE, 4096, at(r.tag, 4096), false);
    assert_eq!(behind, Err(IoError::Io));
    assert_eq!(r.memory[..4096], [0; 4096]);
    let failed = Err(IoError::Io);
    assert_eq!(reply(&mut b, r.tag, failed), failed);
    assert_eq!(b.world.member_stats(0).errors, 1);
}

#[test]
fn pages_must_be_whole_blocks_and_a_dropped_world_waits_for_their_writes() {
    let mut b = bench(None);
    let file = Arc::new(tempfile::tempfile().unwrap());
    for (offset, len) in [(0, 700), (100, 512), (0, 512)] {
        let pages = Pages::new(Arc::clone(&file), 0, BUFFER, 0, 1024);
        let request = IoRequest::new(RequestOp::Write, offset, len).with_pages(Some(pages));
        let done = Done::Ticket(7);
        assert!(b.world.admit(Submission { request, done }).is_none());
        let refused = b.world.ended().pop().unwrap().result;
        assert_eq!(refused, Err(IoError::Invalid));
    }
    let r = admit(&mut b, RequestOp::Write, 4096, 0x11, 0);
    b.start(OpKind::Write, 8192, 4096, at(r.tag, 0), false);
    let Bench { world, file, .. } = b;
    drop(world);
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, 8192).unwrap();
    assert_eq!(bytes, [0x11; 4096]);
}

#[test]
fn sources_get_buffers_of_their_own_as_long_as_there_are_any() {
    struct Using(std::ops::Range<u16>);
    impl RingSource for Using {
        fn put(&mut self, _: &mut dyn FnMut(u16, RingEntry)) {}
        fn back(&mut self, _: u16, _: i32) {}
        fn buffers(&self) -> std::ops::Range<u16> {
            self.0.clone()
        }
        fn is_over(&self) -> bool {
            false
        }
    }
    let mut b = bench(None);
    assert_eq!(b.world.free_buffers(128), Some(1), "buffer 0 is our memory");
    b.world.add_ring_source(Box::new(Using(0..0)));
    b.world.add_ring_source(Box::new(Using(1..129)));
    assert_eq!(b.world.free_buffers(3968), Some(129));
    assert_eq!(b.world.free_buffers(3969), None);
    b.world.page_buffers = 0;
    assert_eq!(b.world.free_buffers(1), None);
}
