//! kill -9 of the server under each front end, repeatedly, with a client that knows which requests were acknowledged.
//!
//! `ISOTHERM_KILLS=20` (or `make soak-fronts`) is the long form. ublk is killed in a guest: `scripts/vm-ublk`.

use super::{FLUSH, READ, TARGET, WRITE, free};
use crate::common::faulty::Faulty;
use crate::common::peer::{self, Peer, wait_for};
use crate::proof::{Loop, Place, Shape, able, seed};
use isotherm_hostile::Rng;
use isotherm_live::iscsi::testing::Initiator;
use isotherm_live::loop_device::{self, LoopDevice, is_dead};
use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BLOCK: usize = 4096;
/// One block in each extent, so that every write has a record of its own.
const STRIDE: u64 = 64 << 10;
const BLOCKS: usize = 1500;

/// The volume as a front end shows it.
trait Disk {
    fn read(&mut self, at: u64) -> io::Result<Vec<u8>>;
    fn write(&mut self, at: u64, data: &[u8]) -> io::Result<()>;
    fn flush(&mut self) -> io::Result<()>;
}

struct Looped(File);

impl Disk for Looped {
    fn read(&mut self, at: u64) -> io::Result<Vec<u8>> {
        let mut data = vec![0; BLOCK];
        self.0.read_exact_at(&mut data, at).map(|()| data)
    }
    fn write(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, at)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

impl Disk for Peer {
    fn read(&mut self, at: u64) -> io::Result<Vec<u8>> {
        Peer::read(self, at, BLOCK as u32)
    }
    fn write(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        Peer::write(self, at, data)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.ask(peer::FLUSH, 0, 0)?;
        match self.answer()? {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(e as i32)),
        }
    }
}

impl Disk for Initiator {
    fn read(&mut self, at: u64) -> io::Result<Vec<u8>> {
        let cdb = Initiator::blocks(READ, at / 512, (BLOCK / 512) as u32, 0, false);
        let done = self.command(&cdb, BLOCK as u32, &[])?;
        good(done.status).map(|()| done.data)
    }
    fn write(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        let cdb = Initiator::blocks(WRITE, at / 512, (BLOCK / 512) as u32, 0, false);
        good(self.command(&cdb, 0, data)?.status)
    }
    fn flush(&mut self) -> io::Result<()> {
        good(self.command(&FLUSH, 0, &[])?.status)
    }
}

fn good(status: u8) -> io::Result<()> {
    match status {
        0 => Ok(()),
        s => Err(io::Error::other(format!("status {s:#x}"))),
    }
}

/// The versions that each block may hold; the first of them was certainly there.
type Held = Vec<Vec<u64>>;

fn content(block: usize, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK];
    }
    let word = (block as u64) << 48 | version;
    word.to_le_bytes().repeat(BLOCK / 8)
}

/// Every block must hold one of its permitted versions, which must stay from then on.
fn check(disk: &mut dyn Disk, held: &mut Held, kill: u64) {
    for (b, may) in held.iter_mut().enumerate() {
        let data = disk.read(b as u64 * STRIDE).expect("read after recovery");
        let now = may.iter().copied().find(|v| data == content(b, *v));
        let now = now.unwrap_or_else(|| {
            let shown = &data[..16];
            panic!("kill {kill}: block {b} holds {shown:02x?}…, it may hold {may:x?}")
        });
        *may = vec![now];
    }
}

/// Writes and flushes until the server is gone. With `kept`, a write that was answered must survive without a flush.
fn work(disk: &mut dyn Disk, held: &mut Held, rng: &mut Rng, kept: bool) -> u64 {
    let mut done = 0;
    let mut version = held.iter().flatten().copied().max().unwrap_or(0);
    loop {
        if rng.one_in(30) {
            if disk.flush().is_err() {
                return done;
            }
            // One request at a time: the newest version of each block was answered.
            for may in held.iter_mut() {
                *may = may.split_off(may.len() - 1);
            }
        }
        let b = rng.below(BLOCKS as u64) as usize;
        version += 1;
        held[b].push(version);
        if disk.write(b as u64 * STRIDE, &content(b, version)).is_err() {
            return done;
        }
        if kept {
            held[b] = vec![version];
        }
        done += 1;
    }
}

pub fn kills() -> u64 {
    let kills = std::env::var("ISOTHERM_KILLS").ok();
    kills.and_then(|k| k.parse().ok()).unwrap_or(2)
}

/// `show` opens the front end each time the volume is served; `Keep` holds other things that it needs, and is dropped after the kill.
fn survives<D: Disk + Send + 'static, Keep>(
    front: &str,
    kept: bool,
    mut show: impl FnMut(&mut Place) -> (D, Keep),
) {
    let seed = seed();
    let kills = kills();
    let mut rng = Rng::new(seed ^ 0xf407);
    let mut place = Place::new(&Shape {
        policy: "lru",
        ..Shape::default()
    });
    let mut held: Held = vec![vec![0]; BLOCKS];
    let mut total = 0;
    for kill in 0..=kills {
        let (mut disk, keep) = show(&mut place);
        check(&mut disk, &mut held, kill);
        if kill == kills {
            drop((disk, keep));
            break;
        }
        let (mut theirs, mut lots) = (std::mem::take(&mut held), Rng::new(rng.draw()));
        let worker = std::thread::spawn(move || {
            let done = work(&mut disk, &mut theirs, &mut lots, kept);
            (theirs, done)
        });
        std::thread::sleep(Duration::from_millis(20 + rng.below(700)));
        assert!(place.is_serving(), "the server ended by itself");
        place.kill();
        let done;
        (held, done) = worker.join().expect("the client");
        total += done;
        drop(keep);
    }
    place.stop();
    place.check();
    println!("{front}: {kills} kills, {total} writes answered, nothing lost");
    assert!(total > 0);
}

#[test]
fn a_loop_device_over_the_block_file_keeps_what_was_flushed() {
    if !able(&["losetup"], true) {
        return;
    }
    survives("block file", false, |place| {
        let file: PathBuf = place.serve_file();
        let device = Loop::over(&file);
        let open = OpenOptions::new().read(true).write(true).open(&device.0);
        (Looped(open.expect("the loop device")), device)
    });
}

/// The volume is shown as `--device` shows it. Every start must find what the killed server left behind, and remove it: the mount, the loop
/// device, the link, the sockets. With a mount namespace of its own, as `PrivateMounts=yes` gives the service, the mount is gone with the
/// server, and the path of the loop device's file says nothing any more.
fn is_started_again(own_mounts: bool) {
    let place = crate::common::Place::new();
    place.ok("create v --fast f:48M --slow s:256M --policy lru");
    let text = std::fs::read_to_string(place.path("v.toml")).expect("read");
    let uuid = text.lines().find_map(|l| l.strip_prefix("uuid = "));
    let mark = format!("isotherm {}", uuid.expect("a number").trim_matches('"'));
    let call = "v --loop --nbd unix:n";
    let serve = || {
        let mut command = if own_mounts {
            let mut c = crate::common::own_mounts();
            c.arg(env!("CARGO_BIN_EXE_isotherm"));
            c.current_dir(place.path(""));
            c
        } else {
            place.command("")
        };
        command.arg("serve").args(call.split(' '));
        command.env("ISOTHERM_RUNTIME_DIR", place.path("run"));
        command.env("ISOTHERM_DEVICE_DIR", place.path("dev"));
        crate::common::Place::wait_ready(command, call)
    };
    let mut rng = Rng::new(seed() ^ 0xde5);
    for kill in 0..=kills() {
        let mut served = serve();
        let device = place.path("dev/v").canonicalize().expect("a link");
        let open = OpenOptions::new().read(true).write(true).open(&device);
        let file = open.expect("the loop device");
        file.write_all_at(&vec![kill as u8; 1 << 20], 1 << 20)
            .expect("written");
        file.sync_data().expect("flushed");
        let mut data = vec![0; 1 << 20];
        file.read_exact_at(&mut data, 1 << 20).expect("read");
        assert!(data.iter().all(|&b| b == kill as u8), "kill {kill}");
        // These stay in the device's page cache. The server's exit must not wait for their write-back, which needs the server.
        file.write_all_at(&vec![9; 8 << 20], 8 << 20)
            .expect("written");
        drop(file);
        if kill == kills() {
            assert_eq!(served.terminate(), Some(0));
            break;
        }
        std::thread::sleep(Duration::from_millis(rng.below(100)));
        served.child.kill().expect("killed");
        crate::proof::wait(&mut served.child, "the end of a killed server");
    }
    let left = loop_device::marked(&mark);
    assert!(left.is_empty(), "{left:?}");
    assert!(place.path("dev/v").symlink_metadata().is_err());
}

#[test]
fn a_killed_server_is_started_again_by_the_same_command() {
    if able(&["unshare"], true) {
        is_started_again(false);
        is_started_again(true);
    }
}

#[test]
fn an_nbd_client_finds_what_it_flushed() {
    survives("NBD", false, |place| {
        place.serve("--nbd unix:n");
        let socket = place.path("n");
        (Peer::connect(Path::new(&socket)).expect("connected"), ())
    });
}

/// The client flushes rarely, and all acknowledged data must survive, because the client would not learn that the server was restarted.
#[test]
fn an_nbd_client_finds_what_was_answered_where_writes_are_kept() {
    survives("NBD, kept writes", true, |place| {
        place.serve("--nbd unix:n");
        crate::proof::output(&mut place.isotherm("set v kept_writes=1"));
        let socket = place.path("n");
        (Peer::connect(Path::new(&socket)).expect("connected"), ())
    });
}

#[test]
fn an_initiator_finds_whatever_was_answered() {
    let at: SocketAddr = free();
    survives("iSCSI", true, |place| {
        place.serve(&format!("--iscsi {at}"));
        let initiator = Initiator::login(at, "iqn.x:a", TARGET, None);
        (initiator.expect("logged in"), ())
    });
}

/// A loop device whose server only takes long may be that of a copy of the volume that is served. It is not what a killed server left.
#[test]
fn a_loop_device_that_does_not_answer_is_not_dead() {
    let place = crate::common::Place::in_memory();
    let platter = place.away("platter");
    let made = std::fs::File::create(&platter).and_then(|f| f.set_len(1 << 20));
    made.expect("made");
    let Some(disk) = Faulty::attach(&platter, &place.path("bay"), "sdb") else {
        return;
    };
    let attached = LoopDevice::attach(&place.path("bay/sdb"), false, 512, "isotherm test of ends");
    let Ok(mut device) = attached else {
        eprintln!("skipped: no loop devices here");
        return;
    };
    // Asserted at the end: the disk cannot go while the device is attached.
    let while_it_answers = is_dead(device.path());
    disk.hang();
    let while_it_hangs = is_dead(device.path());
    disk.go_on();
    disk.fail(5);
    let while_it_fails = is_dead(device.path());
    wait_for("the device to be detached", || {
        device.detach().then_some(())
    });
    assert_eq!(
        (while_it_answers, while_it_hangs, while_it_fails),
        (false, false, true)
    );
}
