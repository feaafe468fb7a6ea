use super::*;
use crate::config::IoConfig;
use crate::device::OpenHow;
use crate::inbox::Done;
use crate::port::{Completion, IoRequest};
use isotherm_core::{BufRef, DeviceOp, MemberId, RequestOp};
use isotherm_models::{DeviceModel, ModelOp, Options, Span, preset};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const SIZE: u64 = 16 << 20;

struct Bench {
    world: UringWorld,
    inbox: Arc<Inbox<Command>>,
    file: File,
    arena: Arc<Arena>,
    next: u32,
    _dir: tempfile::TempDir,
}

fn bench(paced: Option<&str>) -> Bench {
    let options = Options {
        size: SIZE,
        span: Span::Full,
        ..Options::default()
    };
    bench_with(paced.map(|name| preset(name, &options).unwrap()))
}

fn bench_with(model: Option<Box<dyn DeviceModel>>) -> Bench {
    bench_of(model, false)
}

fn bench_of(model: Option<Box<dyn DeviceModel>>, buffered: bool) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let device = Device::open(
        &path,
        OpenHow {
            create: Some(SIZE),
            buffered,
            ..OpenHow::default()
        },
    )
    .unwrap();
    let pacer = model.map(Pacer::new);
    let inbox = Arc::new(Inbox::new(64).unwrap());
    let arena = Arc::new(Arena::new(4 << 20, 2, 65536, 0).unwrap());
    let parts = Parts {
        keeper: None,
        vitals: Arc::default(),
        devices: Arc::new(vec![Some(device), None]),
        pacers: vec![pacer, None],
        arena: Arc::clone(&arena),
        inbox: Arc::clone(&inbox),
        block: 512,
        base: Nanos::from_secs(1000),
        pages: true,
        stamp: None,
    };
    let world = UringWorld::new(parts, &IoConfig::default()).unwrap();
    Bench {
        world,
        inbox,
        file: File::options().read(true).write(true).open(path).unwrap(),
        arena,
        next: 0,
        _dir: dir,
    }
}

impl Bench {
    fn start(&mut self, kind: OpKind, offset: u64, len: u32, buf: BufRef, fua: bool) -> OpId {
        self.next += 1;
        let id = OpId(self.next);
        let op = DeviceOp {
            id,
            member: MemberId(0),
            kind,
            offset,
            len,
            buf,
            fua,
        };
        let meta = vec![0xab; if buf == BufRef::Meta { len as usize } else { 0 }];
        self.world.carry_out(&Effect::Start(op), &meta);
        id
    }
    fn finish(&mut self, n: usize) -> Vec<(OpId, Result<u32, IoError>)> {
        let mut events = Vec::new();
        while events.len() < n {
            self.world.wait(None, &mut events);
        }
        let mut done: Vec<_> = events
            .into_iter()
            .map(|e| match e {
                Event::Finished { id, result } => (id, result),
                other => panic!("{other:?}"),
            })
            .collect();
        done.sort_by_key(|d| d.0);
        done
    }
    fn one(
        &mut self,
        kind: OpKind,
        offset: u64,
        len: u32,
        buf: BufRef,
        fua: bool,
    ) -> Result<u32, IoError> {
        let id = self.start(kind, offset, len, buf, fua);
        let done = self.finish(1);
        assert_eq!((done.len(), done[0].0), (1, id));
        done[0].1
    }
    fn admit(&mut self, op: RequestOp, offset: u64, len: u32, fill: u8) -> Tag {
        let mut buf = self.arena.pool.buffer(offset, len, 512);
        buf.fill(fill);
        let s = Submission {
            request: IoRequest::new(op, offset, len).with_buffer(Some(buf)),
            done: Done::Ticket(7),
        };
        self.world.admit(s).unwrap().tag
    }
    fn on_disk(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut b = vec![0; len];
        self.file.read_exact_at(&mut b, offset).unwrap();
        b
    }
}

#[test]
fn bytes_go_from_every_kind_of_memory_to_the_device_and_back() {
    let mut b = bench(None);
    let tag = b.admit(RequestOp::Write, 0, 8192, 0x11);
    // A part of a request goes to another place than the rest.
    assert_eq!(
        b.one(
            OpKind::Write,
            4096,
            4096,
            BufRef::Request { tag, offset: 4096 },
            false
        ),
        Ok(4096)
    );
    b.world.carry_out(
        &Effect::Reply {
            tag,
            result: Ok(()),
        },
        &[],
    );
    assert_eq!(b.world.ended().len(), 1);
    assert_eq!(b.one(OpKind::Write, 8192, 512, BufRef::Meta, true), Ok(512));
    assert_eq!(b.one(OpKind::Flush, 0, 0, BufRef::None, false), Ok(0));
    assert_eq!(
        (b.on_disk(4096, 4096), b.on_disk(8192, 512)),
        (vec![0x11; 4096], vec![0xab; 512])
    );
    // Into a move buffer, and from there to a request that is served from memory.
    assert_eq!(
        b.one(
            OpKind::Read,
            4096,
            8192,
            BufRef::Move {
                index: 1,
                offset: 4096
            },
            false
        ),
        Ok(8192)
    );
    let tag = b.admit(RequestOp::Read, 0, 4096, 0xff);
    b.world.carry_out(
        &Effect::CopyFromMove {
            index: 1,
            from: 4096,
            tag,
            to: 512,
            len: 1024,
        },
        &[],
    );
    b.world.carry_out(
        &Effect::Zero {
            tag,
            offset: 0,
            len: 512,
        },
        &[],
    );
    b.world.carry_out(
        &Effect::Reply {
            tag,
            result: Ok(()),
        },
        &[],
    );
    let got = b.world.ended().pop().unwrap().buf.unwrap();
    assert_eq!(
        (&got[..512], &got[512..1536], got[1536]),
        (&[0; 512][..], &[0x11; 1024][..], 0xff)
    );
}

#[test]
fn an_unaligned_write_reads_its_edges_beside_the_payload() {
    let mut b = bench(None);
    b.file.write_all_at(&[5; 8192], 0).unwrap();
    b.file.sync_all().unwrap();
    let tag = b.admit(RequestOp::Write, 100, 3000, 0x22);
    b.start(
        OpKind::Read,
        0,
        512,
        BufRef::Request { tag, offset: 0 },
        false,
    );
    // 100 + 3000 = 3100 rounds out to 3584: the last block starts at 3072.
    b.start(
        OpKind::Read,
        3072,
        512,
        BufRef::Request { tag, offset: 3072 },
        false,
    );
    b.finish(2);
    b.world.carry_out(&Effect::Patch { tag }, &[]);
    assert_eq!(
        b.one(
            OpKind::Write,
            0,
            3584,
            BufRef::Request { tag, offset: 0 },
            false
        ),
        Ok(3584)
    );
    let disk = b.on_disk(0, 8192);
    assert!(
        disk.iter()
            .enumerate()
            .all(|(i, &x)| x == if (100..3100).contains(&i) { 0x22 } else { 5 })
    );
}

#[test]
fn discards_and_zeroes_work_or_are_worked_around() {
    let mut b = bench(None);
    let fill = |b: &Bench| {
        b.file.write_all_at(&vec![7; 3 << 20], 0).unwrap();
        b.file.sync_all().unwrap();
    };
    fill(&b);
    assert_eq!(
        b.one(OpKind::Discard, 0, 65536, BufRef::None, false),
        Ok(65536)
    );
    assert_eq!(
        b.one(OpKind::WriteZeroes, 65536, 65536, BufRef::None, false),
        Ok(65536)
    );
    assert_eq!(b.on_disk(65536, 65537)[65535..], [0, 7]);
    // FUA, or a file system without ZERO_RANGE: zeros are written, more than the zeroed buffer has.
    fill(&b);
    assert_eq!(
        b.one(OpKind::WriteZeroes, 4096, 5 << 19, BufRef::None, true),
        Ok(5 << 19)
    );
    let disk = b.on_disk(0, 3 << 20);
    assert!(
        disk.iter()
            .enumerate()
            .all(|(i, &x)| (x == 0) == (4096..4096 + (5 << 19)).contains(&i))
    );
    b.world.members[0].no_punch = true;
    assert_eq!(
        b.one(OpKind::Discard, 0, 4096, BufRef::None, false),
        Ok(4096)
    );
    assert_eq!(b.on_disk(0, 4096), [7; 4096]);
    assert_eq!(b.one(OpKind::Standby, 0, 0, BufRef::None, false), Ok(0));
    assert_eq!(b.world.member_stats(0).standbys, 1);
}

#[test]
fn errors_come_up_and_are_counted() {
    let mut b = bench(None);
    // At the end of the file: a short transfer, then none.
    let end = BufRef::Move {
        index: 0,
        offset: 0,
    };
    assert_eq!(b.one(OpKind::Read, SIZE - 4096, 8192, end, false), Ok(4096));
    assert_eq!(
        b.one(OpKind::Read, SIZE, 4096, end, false),
        Err(IoError::Io)
    );
    assert_eq!(
        (
            b.world.member_stats(0).errors,
            b.world.member_stats(0).last_errno
        ),
        (1, Some(0))
    );
    let op = DeviceOp {
        id: OpId(1),
        member: MemberId(1),
        kind: OpKind::Flush,
        offset: 0,
        len: 0,
        buf: BufRef::None,
        fua: false,
    };
    b.world.carry_out(&Effect::Start(op), &[]);
    assert_eq!(b.finish(1), [(OpId(1), Err(IoError::Gone))]);
}

#[test]
fn hundreds_of_concurrent_operations_all_complete() {
    let mut b = bench(None);
    // More operations than the submission queue holds.
    let ids: Vec<OpId> = (0..1000u64)
        .map(|i| b.start(OpKind::Write, i * 4096, 4096, BufRef::Meta, false))
        .collect();
    let done = b.finish(1000);
    assert_eq!(
        done,
        ids.into_iter().map(|id| (id, Ok(4096))).collect::<Vec<_>>()
    );
    assert_eq!(b.on_disk(999 * 4096, 4096), [0xab; 4096]);
}

/// If such a member hangs, its operations must not take all of the kernel's workers.
#[test]
fn a_member_whose_file_system_has_a_server_has_few_operations_in_the_kernel() {
    let mut b = bench(None);
    b.world.members[0].has_server = true;
    let start = |b: &mut Bench, i: u64| b.start(OpKind::Write, i * 4096, 4096, BufRef::Meta, false);
    let ids: Vec<OpId> = (0..100).map(|i| start(&mut b, i)).collect();
    let member = &b.world.members[0];
    assert_eq!((member.open, member.queued.len()), (16, 84));
    let done = b.finish(100);
    assert_eq!(
        done,
        ids.into_iter().map(|id| (id, Ok(4096))).collect::<Vec<_>>()
    );
    assert_eq!(b.world.members[0].open, 0);
    assert_eq!(b.on_disk(99 * 4096, 4096), [0xab; 4096]);
    // A world that is dropped does not wait for what the kernel never had.
    for i in 0..100 {
        start(&mut b, i);
    }
    drop(b.world);
}

#[test]
fn other_threads_wake_a_sleeping_world() {
    let mut b = bench(None);
    let inbox = Arc::clone(&b.inbox);
    let thread = std::thread::spawn(move || {
        for i in 0..500u64 {
            let s = Submission {
                request: IoRequest::new(RequestOp::Flush, i, 0),
                done: Done::Ticket(i),
            };
            assert!(inbox.push(s).is_ok());
            if i % 7 == 0 {
                std::thread::yield_now();
            }
        }
    });
    let mut events = Vec::new();
    let mut seen = 0;
    while seen < 500 {
        b.world.wait(None, &mut events);
        for e in events.drain(..) {
            let Event::Arrived(r) = e else {
                panic!("{e:?}")
            };
            assert_eq!(r.offset, seen);
            seen += 1;
            b.world.carry_out(
                &Effect::Reply {
                    tag: r.tag,
                    result: Ok(()),
                },
                &[],
            );
        }
    }
    thread.join().unwrap();
    // A time limit ends a wait without events, and the clock starts at the given time.
    let until = b.world.now() + Nanos::from_millis(2);
    b.world.wait(Some(until), &mut events);
    assert!(events.is_empty() && b.world.now() >= until && until > Nanos::from_secs(1000));
}

#[test]
fn a_world_that_is_dropped_answers_and_waits_for_the_device() {
    let mut b = bench(None);
    let (send, receive) = std::sync::mpsc::channel();
    let mut buf = b.arena.pool.buffer(0, 1 << 20, 512);
    buf.fill(0x44);
    let done = Done::Call(Completion::new(move |result, buf| {
        send.send((result, buf.is_some())).unwrap();
    }));
    let s = Submission {
        request: IoRequest::write(0, 1 << 20, buf),
        done,
    };
    let tag = b.world.admit(s).unwrap().tag;
    b.start(
        OpKind::Write,
        0,
        1 << 20,
        BufRef::Request { tag, offset: 0 },
        false,
    );
    b.world.enter(0, None);
    let Bench {
        world, file, arena, ..
    } = b;
    drop(world);
    assert_eq!(receive.recv(), Ok((Err(IoError::Gone), true)));
    assert_eq!(arena.pool.bytes_out(), 0);
    drop(file);
}

#[path = "world_tests/paced.rs"]
mod paced;
#[path = "world_tests/pages.rs"]
mod pages;

/// A forced write in the page cache may be told the error of an earlier write, of which the next flush knows nothing.
#[test]
fn no_flush_is_believed_after_a_forced_write_failed_in_the_page_cache() {
    // Nothing is mapped at address 0, and this file has no space.
    for (file, buffered, fua, lost) in [
        ("/proc/self/mem", true, true, true),
        ("/proc/self/mem", true, false, false),
        ("/proc/self/mem", false, true, false),
        ("/dev/full", true, true, false),
    ] {
        let mut b = bench_of(None, buffered);
        if !buffered && !b.world.devices[0].as_ref().unwrap().direct {
            continue;
        }
        let tag = b.admit(RequestOp::Write, 0, 4096, 7);
        let failing = File::options().write(true).open(file).unwrap();
        let own = b.world.members[0].fd.unwrap();
        let becomes = |b: &Bench, fd| {
            let ring = b.world.ring.submitter();
            assert_eq!(ring.register_files_update(0, &[fd]).unwrap(), 1);
        };
        becomes(&b, failing.as_raw_fd());
        let bytes = BufRef::Request { tag, offset: 0 };
        let write = b.one(OpKind::Write, 0, 4096, bytes, fua);
        assert!(write.is_err(), "{file}: {write:?}");
        becomes(&b, own);
        let flush = b.one(OpKind::Flush, 0, 0, BufRef::None, false);
        assert_eq!(flush.is_err(), lost, "{file} {buffered} {fua}");
        assert_eq!(b.world.fault().is_some(), lost);
    }
}
