//! The block file on a real mount: system calls are the input, port requests the output. Without root and `/dev/fuse`, the tests are
//! skipped with a message.
//!
//! `calls.rs` has the effect of each system call, `ring.rs` requests through io_uring, `programs.rs` file systems and dead mounts.

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod programs;
mod ring;
mod zeroing;

use calls::check_each_call;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isotherm_live::block_file::testing::{Handoff, MemPort};
use isotherm_live::block_file::{Error, Mount, Options, Received, mount, mount_pumped};
use isotherm_live::port::{Buffer, Port};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;

const MIB: u64 = 1 << 20;

fn can_mount() -> bool {
    let fine = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !fine {
        eprintln!("skipped: needs root and /dev/fuse");
    }
    fine
}

/// A served volume in memory.
struct Served {
    // The first field, so that it is unmounted before its directory is removed.
    mount: Mount,
    memory: Arc<MemPort>,
    dir: tempfile::TempDir,
}

fn serve(memory: MemPort) -> Served {
    let memory = Arc::new(memory);
    let dir = tempfile::tempdir().unwrap();
    let mount = mount(
        Arc::clone(&memory) as Arc<dyn Port>,
        dir.path(),
        "volume",
        &Options::default(),
    )
    .unwrap();
    Served { mount, memory, dir }
}

fn open(path: &Path, flags: i32) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
}

fn seen(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The error number of a call that must fail.
fn errno<T>(result: std::io::Result<T>) -> Option<Errno> {
    result.err().as_ref().and_then(Errno::from_io_error)
}

fn fallocate(file: &File, mode: FallocateFlags, offset: u64, len: u64) -> Result<(), Errno> {
    rustix::fs::fallocate(file, mode, offset, len)
}

fn data_from(file: &File, offset: u64) -> Result<u64, Errno> {
    rustix::fs::seek(file, SeekFrom::Data(offset))
}

fn hole_from(file: &File, offset: u64) -> Result<u64, Errno> {
    rustix::fs::seek(file, SeekFrom::Hole(offset))
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// The contents of block `n` in round `round`.
fn fill(buffer: &mut [u8], n: u64, round: u8) {
    for (i, word) in buffer.chunks_exact_mut(8).enumerate() {
        let value =
            (n << 24 | (i as u64) << 8 | u64::from(round)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&value.to_le_bytes());
    }
}

#[test]
fn parallel_direct_io_keeps_every_block() {
    if !can_mount() {
        return;
    }
    // Completions run on another thread, as those of the engine do.
    let memory = Arc::new(MemPort::new(32 * MIB, 512));
    let port = Arc::new(
        Handoff::new(
            Arc::clone(&memory) as Arc<dyn Port>,
            Duration::from_micros(20),
        )
        .unwrap(),
    );
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        threads: 2,
        ..Options::default()
    };
    let mut mount = mount(port, dir.path(), "volume", &options).unwrap();
    check_every_block(mount.file(), &memory);
    mount.unmount().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn parallel_direct_io_keeps_every_block_through_a_pump_too() {
    if can_mount() {
        let (mut served, engine) = serve_pumped(MemPort::new(32 * MIB, 512));
        check_every_block(served.mount.file(), &served.memory);
        served.mount.unmount().unwrap();
        engine.join().unwrap();
    }
}

fn check_every_block(path: &Path, memory: &MemPort) {
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                let file = open(path, OFlags::DIRECT.bits() as i32).unwrap();
                let mut expected = vec![0; 16384];
                let mut buffer = Buffer::new(0, 16384, 4096);
                for round in 0..3 {
                    for step in 0..256u64 {
                        // Each thread writes the blocks of one residue, in a scattered order.
                        let n = step * 37 % 256 * 8 + thread;
                        fill(&mut buffer, n, round);
                        file.write_all_at(&buffer, n * 16384).unwrap();
                    }
                    for n in (thread..2048).step_by(8) {
                        file.read_exact_at(&mut buffer, n * 16384).unwrap();
                        fill(&mut expected, n, round);
                        assert!(buffer[..] == expected[..], "block {n} in round {round}");
                    }
                }
            });
        }
    });
    assert_eq!(seen(&memory.counts.writes), 8 * 3 * 256);
}

/// The same volume; a thread of the test takes the frequent requests, as the engine's thread does.
fn serve_pumped(memory: MemPort) -> (Served, std::thread::JoinHandle<()>) {
    let memory = Arc::new(memory);
    let dir = tempfile::tempdir().unwrap();
    let port = Arc::clone(&memory) as Arc<dyn Port>;
    let (mount, mut pump) = mount_pumped(port, dir.path(), "volume", &Options::default()).unwrap();
    let engine = std::thread::spawn(move || {
        loop {
            match pump.receive().unwrap() {
                Received::Request => {}
                Received::Ended => return,
                Received::Nothing => {
                    poll(&mut [PollFd::new(&pump, PollFlags::IN)], None).unwrap();
                }
            }
        }
    });
    (Served { mount, memory, dir }, engine)
}

#[test]
fn each_call_reaches_the_volume_as_documented() {
    if can_mount() {
        check_each_call(serve(MemPort::new(4 * MIB, 512)));
    }
}

#[test]
fn each_call_reaches_the_volume_through_a_pump_too() {
    if can_mount() {
        let (served, engine) = serve_pumped(MemPort::new(4 * MIB, 512));
        check_each_call(served);
        engine.join().unwrap();
    }
}

/// The block file has no times of its own, but no time may end its server.
#[test]
fn times_that_no_clock_shows_end_no_mount() {
    if !can_mount() {
        return;
    }
    let check = |served: &Served| {
        let (tell, done) = std::sync::mpsc::channel();
        let places = [served.mount.file().to_owned(), served.dir.path().to_owned()];
        std::thread::spawn(move || {
            for place in places {
                calls::set_extreme_times(&place);
            }
            let _ = tell.send(());
        });
        let ended = done.recv_timeout(Duration::from_secs(60));
        assert!(ended.is_ok(), "the mount no longer answers");
        let file = open(served.mount.file(), 0).unwrap();
        file.write_all_at(&[7; 512], 0).unwrap();
        file.sync_all().unwrap();
    };
    check(&serve(MemPort::new(MIB, 512)));
    let (served, engine) = serve_pumped(MemPort::new(MIB, 512));
    check(&served);
    drop(served);
    engine.join().unwrap();
}

#[test]
fn a_read_only_volume_refuses_changes() {
    if !can_mount() {
        return;
    }
    let served = serve(MemPort::new(MIB, 512).refusing_changes());
    assert_eq!(errno(open(served.mount.file(), 0)), Some(Errno::ROFS));
    let file = File::open(served.mount.file()).unwrap();
    assert_eq!(file.read_at(&mut [0; 512], 0).unwrap(), 512);
    assert_eq!(
        errno(std::fs::remove_file(served.mount.file())),
        Some(Errno::ROFS)
    );
}

#[test]
fn dropping_a_mount_in_use_cuts_its_users_off() {
    if !can_mount() {
        return;
    }
    let Served { mount, memory, dir } = serve(MemPort::new(MIB, 512));
    let file = open(mount.file(), 0).unwrap();
    drop(mount);
    assert!(file.read_at(&mut [0; 512], 0).is_err());
    assert_eq!(
        Arc::strong_count(&memory),
        1,
        "no session is left that could reach the port"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_pump_ends_with_its_mount() {
    if !can_mount() {
        return;
    }
    let (Served { mount, memory, dir }, engine) = serve_pumped(MemPort::new(MIB, 512));
    let file = open(mount.file(), 0).unwrap();
    drop(mount);
    engine.join().unwrap();
    assert!(file.read_at(&mut [0; 512], 0).is_err());
    assert_eq!(Arc::strong_count(&memory), 1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_in_use_is_refused() {
    if !can_mount() {
        return;
    }
    let served = serve(MemPort::new(MIB, 512));
    let again = || {
        mount(
            Arc::new(MemPort::new(MIB, 512)),
            served.dir.path(),
            "volume",
            &Options::default(),
        )
    };
    assert!(matches!(again(), Err(Error::Served { .. })));
    assert_eq!(
        std::fs::read_dir(served.dir.path()).unwrap().count(),
        1,
        "and the first goes on"
    );
}
