//! The volume as a disk of a virtual machine: rust-vmm's front end on the socket, and a driver of ours in shared memory, which also lies.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/guest.rs"]
#[allow(dead_code)]
mod guest;
mod lies;
mod lives;
mod socket;

use common::{serve, two_files};
use guest::{DISCARD, FLUSH, GET_ID, Guest, NEXT, READ, WRITABLE, WRITE, WRITE_ZEROES, range};
use isotherm_core::RequestOp;
use isotherm_live::Server;
use isotherm_live::front_end::{FrontEnd, FrontEndSettings, VolumeAccess};
use isotherm_live::port::{Completion, IoRequest, Port};
use isotherm_live::vhost_user::front::Settings;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const UUID: [u8; 16] = [0xab; 16];
const SIZE: u16 = 64;
const ERROR: u8 = 1;
const UNSUPPORTED: u8 = 2;

/// What a port was asked for: operation, first byte, length, durable.
type Heard = (RequestOp, u64, u32, bool);

/// A port that notes what it is asked for, and holds requests or loses them.
struct Between {
    below: Arc<dyn Port>,
    heard: Mutex<Vec<Heard>>,
    /// Requests that wait, while there is a list.
    held: Mutex<Option<Vec<(IoRequest, Completion)>>>,
    read_only: bool,
}

impl Port for Wrapped {
    fn volume_bytes(&self) -> u64 {
        self.0.below.volume_bytes()
    }
    fn block_bytes(&self) -> u32 {
        self.0.below.block_bytes()
    }
    fn engine_block(&self) -> u32 {
        self.0.below.engine_block()
    }
    fn read_only(&self) -> bool {
        self.0.read_only
    }
    fn buffer(&self, offset: u64, len: u32) -> isotherm_live::port::Buffer {
        self.0.below.buffer(offset, len)
    }
    fn share(&self) -> Option<Arc<isotherm_live::port::Share>> {
        self.0.below.share()
    }
    fn submit(&self, request: IoRequest, done: Completion) {
        let heard = (request.op, request.offset, request.len, request.fua);
        self.0.heard.lock().expect("no panic").push(heard);
        if let Some(held) = &mut *self.0.held.lock().expect("no panic") {
            return held.push((request, done));
        }
        self.0.below.submit(request, done);
    }
    fn block_status(&self, offset: u64, len: u32, max: usize) -> Vec<(u32, bool)> {
        self.0.below.block_status(offset, len, max)
    }
}
struct Wrapped(Arc<Between>);

/// A served volume with the front end.
struct Rig {
    front: Option<Box<dyn FrontEnd>>,
    between: Arc<Between>,
    server: Option<Server>,
    path: PathBuf,
    dir: tempfile::TempDir,
}

fn rig_with(read_only: bool) -> Rig {
    let dir = tempfile::tempdir().expect("a directory");
    let server = serve(
        dir.path(),
        two_files(dir.path(), "benefit", 16 << 20, 64 << 20),
    );
    let between = Arc::new(Between {
        below: Arc::new(server.handle()),
        heard: Mutex::default(),
        held: Mutex::default(),
        read_only,
    });
    let mut rig = Rig {
        front: None,
        between,
        server: Some(server),
        path: dir.path().join("v.vhost"),
        dir,
    };
    rig.start().expect("started");
    rig
}

fn rig() -> Rig {
    rig_with(false)
}

impl Rig {
    fn start(&mut self) -> std::io::Result<()> {
        let access = VolumeAccess {
            engine: self.server.as_ref().expect("served").handle(),
            port: Arc::new(Wrapped(Arc::clone(&self.between))),
            name: "v".into(),
            uuid: UUID,
            extent: 64 << 10,
            answers_lost: false,
        };
        let path = self.path.clone();
        self.front = Some(Box::new(Settings { path }).start(&access)?);
        Ok(())
    }

    fn guest(&self) -> Guest {
        Guest::new(&self.path, 1, SIZE, 0)
    }

    fn front(&mut self) -> &mut dyn FrontEnd {
        self.front.as_deref_mut().expect("it runs")
    }

    fn count(&self, name: &str) -> u64 {
        let figures = self.front.as_ref().expect("it runs").figures();
        figures.iter().find(|f| f.0 == name).expect("a figure").1
    }

    fn heard(&self) -> Vec<Heard> {
        std::mem::take(&mut *self.between.heard.lock().expect("no panic"))
    }

    fn hold(&self) {
        *self.between.held.lock().expect("no panic") = Some(Vec::new());
    }

    fn held(&self) -> usize {
        let held = self.between.held.lock().expect("no panic");
        held.as_ref().map_or(0, Vec::len)
    }

    /// Carries out what waits, the last first, and from now on everything.
    fn go_on(&self) {
        let held = self.between.held.lock().expect("no panic").take();
        for (request, done) in held.into_iter().flatten().rev() {
            self.between.below.submit(request, done);
        }
    }

    /// The volume serves a well-behaved machine.
    fn check_served(&self) {
        until("the machine before is gone", || self.count("clients") == 0);
        let mut g = self.guest();
        g.write(640, &[0x5a; 4096]);
        assert_eq!(g.read(640, 4096), [0x5a; 4096]);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.go_on();
        if let Some(front) = self.front.take() {
            front.stop();
        }
        let stopped = self.server.take().map(Server::stop);
        assert!(std::thread::panicking() || !matches!(stopped, Some(Err(_))));
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    isotherm_core::random::SplitMix64::new(seed).fill(&mut bytes);
    bytes
}

#[test]
fn what_is_written_is_read_at_every_size() {
    let rig = rig();
    let mut g = rig.guest();
    for (sector, len) in [
        (0, 512),
        (7, 1024),
        (127, 65536),
        (1001, 200 * 512),
        (4096, 1 << 18),
    ] {
        let data = noise(sector + 1, len);
        g.write(sector, &data);
        assert!(g.read(sector, len) == data, "{len} bytes at {sector}");
    }
    assert_eq!(g.ask(FLUSH, 0, &[], 0).0, 0);
    let last = rig.heard().pop().map(|h| h.0);
    assert_eq!(last, Some(RequestOp::Flush), "the engine flushes");
    // The last sector of the volume, and what was never written.
    let end = rig.between.below.volume_bytes() / 512;
    g.write(end - 1, &[3; 512]);
    assert_eq!(g.read(end - 1, 512), [3; 512]);
    assert_eq!(rig.count("violations"), 0);
}

#[test]
fn a_driver_without_flush_gets_durable_writes() {
    let rig = rig();
    let zeros = range(64, 8, 0);
    for (without, durable) in [(0, false), (1 << 9, true)] {
        until("free", || rig.count("clients") == 0);
        let mut g = Guest::new(&rig.path, 1, SIZE, without);
        g.write(0, &[1; 512]);
        assert_eq!(g.ask(WRITE_ZEROES, 0, &zeros, 0).0, 0);
        g.read(0, 512);
        let fua: Vec<bool> = rig.heard().into_iter().map(|h| h.3).collect();
        assert_eq!(fua, [durable, durable, false]);
    }
}

#[test]
fn requests_of_any_framing_and_with_a_table_of_their_own() {
    let rig = rig();
    let mut g = rig.guest();
    let data = noise(5, 3 * 512);
    let (q, at) = (&g.queues[0], g.queues[0].data(1));
    let (header, status, table) = (q.header(0), q.status(0), q.data(2));
    g.prepare(0, 0, WRITE, 33, &data, 0);
    g.put(at, &data);
    // The header in two parts, data in pieces that are no sectors; all of it in a table.
    let pieces = [
        (header, 5),
        (header + 5, 11),
        (at, 1),
        (at + 1, 1000),
        (at + 1001, 535),
    ];
    let mut rows: Vec<u8> = Vec::new();
    for (i, (at, len)) in pieces.into_iter().enumerate() {
        rows.extend(guest::descriptor(at, len, NEXT, i as u16 + 1));
    }
    rows.extend(guest::descriptor(status, 1, WRITABLE, 0));
    g.put(table, &rows);
    g.descriptor(0, 9, table, rows.len() as u32, guest::INDIRECT, 0);
    g.publish(0, 9);
    g.kick(0);
    assert_eq!(g.wait_used(0, Duration::from_secs(60)), Some((9, 1)));
    assert_eq!(g.get(status, 1), [0]);
    assert!(g.read(33, data.len()) == data);
    // Status and the end of the data in one part.
    g.prepare(0, 0, READ, 33, &[], 512);
    g.descriptor(0, 1, at, 500, NEXT | WRITABLE, 2);
    g.descriptor(0, 2, at + 600, 13, WRITABLE, 0);
    g.put(at + 612, &[9]);
    g.publish(0, 0);
    g.kick(0);
    assert_eq!(g.wait_used(0, Duration::from_secs(60)), Some((0, 513)));
    assert_eq!(g.get(at, 500), data[..500]);
    assert_eq!(g.get(at + 600, 12), data[500..512]);
    assert_eq!(g.get(at + 612, 1), [0]);
}

#[test]
fn discards_and_zeros() {
    let rig = rig();
    let mut g = rig.guest();
    let all = noise(1, 1 << 18);
    g.write(0, &all);
    rig.heard();
    // Two ranges; one of them does not begin at a block.
    let ranges = [range(8, 8, 1), range(129, 3, 1)].concat();
    assert_eq!(g.ask(WRITE_ZEROES, 0, &ranges, 0).0, 0);
    let frees = RequestOp::WriteZeroes { keep: false };
    let keeps = RequestOp::WriteZeroes { keep: true };
    assert_eq!(
        rig.heard(),
        [(frees, 4096, 4096, false), (frees, 66048, 1536, false)]
    );
    assert_eq!(g.ask(WRITE_ZEROES, 0, &range(32, 8, 0), 0).0, 0);
    assert_eq!(rig.heard(), [(keeps, 16384, 4096, false)]);
    let mut want = all.clone();
    for place in [4096..8192, 66048..67584, 16384..20480] {
        want[place].fill(0);
    }
    assert!(g.read(0, all.len()) == want);
    assert_eq!(g.ask(DISCARD, 0, &range(256, 128, 0), 0).0, 0);
    rig.heard();
    assert_eq!(g.read(0, 1 << 17), want[..1 << 17], "the rest stays");
    // A flag that a discard does not have, one that nothing has, no range, part of a range, too many, too long, beyond the end.
    let end = rig.between.below.volume_bytes() / 512;
    rig.heard();
    let refused: [(u32, Vec<u8>, u8); 8] = [
        (DISCARD, range(0, 8, 1), UNSUPPORTED),
        (WRITE_ZEROES, range(0, 8, 2), UNSUPPORTED),
        (DISCARD, Vec::new(), ERROR),
        (DISCARD, vec![0; 17], ERROR),
        (DISCARD, range(0, 8, 0).repeat(17), ERROR),
        (DISCARD, range(0, (1 << 21) + 1, 0), ERROR),
        (WRITE_ZEROES, range(end - 1, 2, 0), ERROR),
        (WRITE_ZEROES, range(u64::MAX, 2, 0), ERROR),
    ];
    for (kind, ranges, status) in refused {
        assert_eq!(g.ask(kind, 0, &ranges, 0).0, status, "{kind} {ranges:?}");
    }
    assert_eq!(rig.heard(), [], "a refused request touches nothing");
}

#[test]
fn what_the_volume_cannot_do_is_an_error() {
    let rig = rig();
    let mut g = rig.guest();
    let end = rig.between.below.volume_bytes() / 512;
    g.write(0, &[7; 4096]);
    rig.heard();
    for (kind, sector, out, back, status) in [
        (READ, end, 0, 512, ERROR),
        (READ, end - 1, 0, 1024, ERROR),
        (WRITE, u64::MAX, 512, 0, ERROR),
        (WRITE, u64::MAX / 512, 512, 0, ERROR),
        (WRITE, 0, 511, 0, ERROR),
        (READ, 0, 0, 513, ERROR),
        (READ, 0, 0, 0, ERROR),
        (2, 0, 512, 0, UNSUPPORTED),
        (u32::MAX, 0, 0, 512, UNSUPPORTED),
    ] {
        let got = g.ask(kind, sector, &vec![1; out], back).0;
        assert_eq!(got, status, "{kind} at {sector}");
    }
    assert_eq!(rig.heard(), []);
    assert_eq!(g.read(0, 4096), [7; 4096]);
    assert_eq!(rig.count("violations"), 0, "an error is no violation");
}

#[test]
fn name_and_properties() {
    let rig = rig();
    let mut g = rig.guest();
    assert_eq!(g.ask(GET_ID, 0, &[], 20), (0, b"ab".repeat(10)));
    let config = g.config();
    let word = |at: usize| u32::from_le_bytes(config[at..at + 4].try_into().expect("4"));
    let half = |at: usize| u16::from_le_bytes(config[at..at + 2].try_into().expect("2"));
    let sectors = rig.between.below.volume_bytes() / 512;
    assert_eq!(config[..8], sectors.to_le_bytes());
    assert_eq!((word(12), word(20)), (126, 512), "segments, block");
    assert_eq!((config[24], half(26), word(28)), (3, 8, 128), "topology");
    assert_eq!(half(34), 16, "queues");
    assert_eq!((word(36), word(40)), (1 << 21, 16), "discards");
    assert_eq!((word(48), word(52), config[56]), (1 << 21, 16, 1), "zeros");
    assert_eq!(g.features & 1 << 5, 0, "it can be written");
    // RO.
    drop((g, rig));
    let rig = rig_with(true);
    let mut g = rig.guest();
    assert_ne!(g.features & 1 << 5, 0, "it cannot be written");
    assert_eq!(g.read(0, 512), [0; 512]);
}

/// All queues at once, as full as they can be, without EVENT_IDX and with it.
#[test]
fn many_queues_at_full_depth() {
    let rig = rig();
    for without in [0, 1 << 29] {
        until("free", || rig.count("clients") == 0);
        let mut g = Guest::new(&rig.path, 2, 128, without);
        let slots = 42;
        for round in 0..4u64 {
            for q in 0..2 {
                for slot in 0..slots {
                    let sector = (q as u64 * 64 + u64::from(slot)) * 16;
                    let data = noise(round << 32 | sector, 8192);
                    g.prepare(q, slot, WRITE, sector, &data, 0);
                    g.publish(q, 3 * slot);
                }
                g.kick(q);
            }
            for q in 0..2 {
                for _ in 0..slots {
                    let (head, len) = g.wait_used(q, Duration::from_secs(60)).expect("answered");
                    let status = g.get(g.queues[q].status(head / 3), 1)[0];
                    assert_eq!((len, status), (1, 0));
                }
            }
            for q in 0..2u64 {
                for slot in 0..u64::from(slots) {
                    let sector = (q * 64 + slot) * 16;
                    assert!(g.read(sector, 8192) == noise(round << 32 | sector, 8192));
                }
            }
        }
    }
    assert_eq!(rig.count("violations"), 0);
}
