//! Scrubs of volumes on files. `between.rs`: what happens between the two reads of an extent.

mod between;

use super::look::{Spot, look};
use super::{Ended, Found, How, State, scrub};
use crate::config::{IoConfig, Size};
use crate::port::{Completion, IoRequest, Port};
use crate::server::Server;
use crate::{Handle, MemberConfig, OpenMode, Volume, VolumeConfig};
use isotherm_core::{ExtentId, RequestOp, Slot};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// A moment within a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The home was read, the copy was not.
    HomeRead,
    /// Both were read.
    CopyRead,
}

/// Gets the moment and the slot of the home.
type Step = Box<dyn FnMut(Phase, Slot) + Send>;

/// See [`State::between`].
#[derive(Default)]
pub(super) struct Between(Mutex<Option<Step>>);

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Between")
    }
}

impl Between {
    pub fn call(&self, phase: Phase, home: Option<Spot>) {
        let mut step = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(step), Some(home)) = (&mut *step, home) {
            step(phase, home.slot);
        }
    }
}

const EXTENT: u64 = 64 << 10;
const THROUGH: &str = "lru,write-mode=write-through-all";
/// A rate that never waits.
const FAST: How = How {
    rate: Some(1 << 40),
    wake: false,
};

struct Rig {
    dir: tempfile::TempDir,
}

impl Rig {
    fn new(policy: &str) -> Rig {
        Rig::with(policy, 16 << 20, None)
    }
    fn with(policy: &str, fast: u64, paced: Option<&str>) -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let member = |name: &str, tier, bytes| MemberConfig {
            path: dir.path().join(name),
            tier,
            size: Some(Size(bytes)),
            ..MemberConfig::default()
        };
        let config = VolumeConfig {
            name: "v".into(),
            uuid: None,
            extent: Size(EXTENT),
            policy: policy.into(),
            qos: Vec::new(),
            io: IoConfig {
                buffers: Size(8 << 20),
                ..IoConfig::default()
            },
            members: vec![member("fast", 0, fast), member("slow", 1, 32 << 20)],
        };
        let mut config = config;
        config.members[1].paced = paced.map(Into::into);
        Volume::create(&dir.path().join("v"), config, false).expect("a volume");
        Rig { dir }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn serve(&self, mode: OpenMode) -> Server {
        let volume = Volume::open(&self.path("v"), mode).expect("opened");
        volume.serve().expect("a server")
    }
}

fn ask(handle: &Handle, op: RequestOp, at: u64, len: u32, fill: u8) {
    let buffer = matches!(op, RequestOp::Read | RequestOp::Write).then(|| {
        let mut b = handle.buffer(at, len);
        b.fill(fill);
        b
    });
    let (send, receive) = mpsc::channel();
    let request = IoRequest {
        op,
        offset: at,
        len,
        fua: false,
        class: 0,
        buffer,
        pages: None,
    };
    handle.submit(
        request,
        Completion::new(move |r, _| send.send(r).expect("it is awaited")),
    );
    assert_eq!(receive.recv().expect("answered"), Ok(()), "{op:?} at {at}");
}

fn write(handle: &Handle, at: u64, len: u32, fill: u8) {
    ask(handle, RequestOp::Write, at, len, fill);
}

/// Writes, and reads it back, so that it is copied to the fast device.
fn write_and_read(handle: &Handle, at: u64, len: u32, fill: u8) {
    write(handle, at, len, fill);
    ask(handle, RequestOp::Read, at, len, 0);
}

/// Waits until no move is in progress.
fn at_rest(handle: &Handle) {
    while handle.call(|e, _| e.moving().len()) != Some(0) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The slots of home and copy of an extent.
fn places(handle: &Handle, e: u64) -> (Option<Slot>, Option<Slot>) {
    let e = ExtentId(e as u32);
    let of = handle.call(move |engine, _| {
        let map = &engine.space().map;
        (map.home(e), map.copy(e))
    });
    of.expect("it is served")
}

/// Reads an extent until it has a copy.
fn fetch(handle: &Handle, e: u64) {
    while places(handle, e).1.is_none() {
        ask(handle, RequestOp::Read, e * EXTENT, EXTENT as u32, 0);
        at_rest(handle);
    }
}

/// A scrub during which `step` is taken between the reads of each extent.
fn with_steps(handle: &Handle, how: How, mut step: impl FnMut() + Send + 'static) -> Found {
    with_phases(handle, how, move |phase, _| {
        if phase == Phase::HomeRead {
            step();
        }
    })
}

fn with_phases(handle: &Handle, how: How, step: impl FnMut(Phase, Slot) + Send + 'static) -> Found {
    let state = State::default();
    *state.between.0.lock().expect("nobody panics with it") = Some(Box::new(step));
    scrub(handle, how, &state)
}

fn plain(handle: &Handle) -> Found {
    scrub(handle, How::default(), &State::default())
}

/// Changes bytes of a member behind the volume's back; returns where.
fn change(path: &Path, old: &[u8]) -> u64 {
    let all = fs::read(path).expect("read");
    let at = all
        .chunks(4096)
        .position(|b| b == old)
        .expect("the block is there") as u64
        * 4096;
    let file = fs::OpenOptions::new().write(true).open(path);
    let file = file.expect("opened");
    file.write_all_at(&[!old[0]], at).expect("written");
    at
}

#[test]
fn a_whole_volume_is_read_and_nothing_is_found() {
    let rig = Rig::new(THROUGH);
    let server = rig.serve(OpenMode::ReadWrite);
    let handle = server.handle();
    write_and_read(&handle, 0, 4 << 20, 7);
    write(&handle, 20 << 20, 5000, 8);
    at_rest(&handle);
    let figures = |e: &mut crate::recorder::Driver| {
        let c = e.counters();
        let members: Vec<_> = c.members.iter().map(|m| (m.reads, m.writes)).collect();
        (c.reads, c.writes, c.accesses, members)
    };
    let before = handle.call(move |e, _| figures(e));
    let found = plain(&handle);
    assert!(
        found.is_well() && found.not_compared.is_empty(),
        "{found:?}"
    );
    // In a cache volume each extent has its home.
    let extents = handle.volume_bytes() / EXTENT;
    assert_eq!(u64::from(found.mapped), extents);
    let (copied, dirty) = found.copies;
    assert!(copied > 10 && dirty == 0, "{found:?}");
    assert_eq!(found.read, (extents + u64::from(copied)) * EXTENT);
    assert_eq!(found.ended, None);
    // The engine has counted none of it.
    let after = handle.call(move |e, _| figures(e));
    assert_eq!(before, after);
    server.stop().expect("stopped");
}

#[test]
fn a_planted_difference_is_found_once_and_only_there() {
    let rig = Rig::new(THROUGH);
    let server = rig.serve(OpenMode::ReadWrite);
    let handle = server.handle();
    for e in 0..32u8 {
        write_and_read(&handle, u64::from(e) * EXTENT, EXTENT as u32, e + 1);
    }
    // The first block of extent 8 or 4 on the slow device.
    for fill in [9, 5] {
        change(&rig.path("slow"), &[fill; 4096]);
    }
    let found = plain(&handle);
    let block = |e: u64| (e * EXTENT, e * EXTENT + u64::from(handle.engine_block()));
    assert_eq!(found.differing, [block(4), block(8)], "{found:?}");
    assert!(found.lost.is_empty() && found.bad_places.is_empty());
    assert_eq!(plain(&handle), found, "a second time");
    // A write to the block heals it.
    write(&handle, 8 * EXTENT, 4096, 3);
    assert_eq!(plain(&handle).differing, [block(4)]);
    server.stop().expect("stopped");
}

#[test]
fn discarded_data_is_no_loss() {
    for policy in [THROUGH, "greendm"] {
        discarded_under(policy);
    }
}

fn discarded_under(policy: &str) {
    let rig = Rig::new(policy);
    let server = rig.serve(OpenMode::ReadWrite);
    let handle = server.handle();
    write(&handle, 0, 2 << 20, 1);
    let trimmer = handle.clone();
    let mut e = 0;
    let found = with_steps(&handle, FAST, move || {
        ask(
            &trimmer,
            RequestOp::Discard,
            e % 32 * EXTENT,
            EXTENT as u32,
            0,
        );
        e += 1;
    });
    assert!(
        found.is_well() && found.not_compared.is_empty(),
        "{found:?}"
    );
    let found = plain(&handle);
    assert!(found.is_well(), "{found:?}");
    // In a tiering volume nothing is left.
    assert!(policy == THROUGH || (found.mapped, found.read) == (0, 0));
    server.stop().expect("stopped");
}

/// Writers, readers and discards on few extents, under policies that move, copy, clean and evict, for many scrubs: no alarm is false.
#[test]
fn no_alarm_is_false_while_everything_is_written() {
    let policies = [
        THROUGH,
        "lru",
        "greendm",
        "lru,write-mode=write-around",
        "opencas-like",
    ];
    for policy in policies {
        let rig = Rig::new(policy);
        let server = rig.serve(OpenMode::ReadWrite);
        let handle = server.handle();
        write(&handle, 0, 24 << 20, 1);
        let over = AtomicBool::new(false);
        let busy = AtomicU32::new(0);
        std::thread::scope(|s| {
            for t in 0..4 {
                let (handle, over, busy) = (handle.clone(), &over, &busy);
                s.spawn(move || {
                    let mut random = isotherm_core::random::SplitMix64::new(t);
                    while !over.load(Ordering::Relaxed) {
                        // Half of the requests go to four extents, the others make copies come and go.
                        let extents = if random.below(2) == 0 { 4 } else { 380 };
                        let at = random.below(extents) * EXTENT + random.below(16) * 4096;
                        let op = match random.below(20) {
                            0 => RequestOp::Discard,
                            1..8 => RequestOp::Read,
                            _ => RequestOp::Write,
                        };
                        // Only two contents, so that differing looks may be alike.
                        ask(&handle, op, at, 4096, random.below(2) as u8);
                        busy.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for round in 0..3 {
                let found = scrub(&handle, FAST, &State::default());
                assert!(found.is_well(), "{policy}, round {round}: {found:?}");
                assert_eq!(found.ended, None);
            }
            // On a loaded machine the writers may have done little so far.
            while busy.load(Ordering::Relaxed) < 1000 {
                let found = scrub(&handle, FAST, &State::default());
                assert!(found.is_well(), "{policy}: {found:?}");
            }
            over.store(true, Ordering::Relaxed);
        });
        let found = plain(&handle);
        assert!(
            found.is_well() && found.not_compared.is_empty(),
            "{policy}: {found:?}"
        );
        server.stop().expect("stopped");
    }
}

#[test]
fn a_stop_ends_it_and_so_does_the_end_of_the_server() {
    let rig = Rig::new(THROUGH);
    let server = rig.serve(OpenMode::ReadWrite);
    let handle = server.handle();
    write(&handle, 0, 16 << 20, 1);
    let slow = How {
        rate: Some(1),
        wake: false,
    };
    let run = |state: &Arc<State>| {
        let (handle, state) = (handle.clone(), Arc::clone(state));
        std::thread::spawn(move || scrub(&handle, slow, &state))
    };
    let begun = |state: &State| {
        while state.progress().read == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let state = Arc::new(State::default());
    let running = run(&state);
    begun(&state);
    state.stop();
    let found = running.join().expect("no panic");
    assert_eq!(found.ended, Some(Ended::Stopped));
    let read = found.read;
    assert!(read < handle.volume_bytes(), "{read}");
    let state = Arc::new(State::default());
    let running = run(&state);
    begun(&state);
    server.stop().expect("stopped");
    let found = running.join().expect("no panic");
    assert_eq!(found.ended, Some(Ended::Closed));
}

#[test]
fn a_volume_that_is_only_read_and_one_without_its_cache_are_read() {
    let rig = Rig::new(THROUGH);
    let server = rig.serve(OpenMode::ReadWrite);
    let handle = server.handle();
    write_and_read(&handle, 0, 2 << 20, 1);
    ask(&handle, RequestOp::Flush, 0, 0, 0);
    server.stop().expect("stopped");
    let server = rig.serve(OpenMode::ReadOnly);
    let found = plain(&server.handle());
    assert!(found.is_well() && found.copies.0 > 0, "{found:?}");
    server.stop().expect("stopped");
    fs::create_dir(rig.path("bay")).expect("made");
    fs::rename(rig.path("fast"), rig.path("bay/fast")).expect("moved");
    let server = rig.serve(OpenMode::AcceptLoss);
    let found = plain(&server.handle());
    assert!(found.is_well() && found.copies.0 == 0, "{found:?}");
    assert_eq!(
        u64::from(found.mapped),
        server.handle().volume_bytes() / EXTENT
    );
    assert_eq!(found.members, 1);
    server.stop().expect("stopped");
}
