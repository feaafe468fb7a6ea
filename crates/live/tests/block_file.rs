//! The block file on a real mount: system calls in, port requests out. Without root and `/dev/fuse` each test says so and passes.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isotherm_live::block_file::testing::{Handoff, MemPort};
use isotherm_live::block_file::{
    Error, Mount, Options, Received, mount, mount_on_engine, mount_pumped,
};
use isotherm_live::config::{IoConfig, Size};
use isotherm_live::port::{Buffer, Port};
use isotherm_live::{MemberConfig, OpenMode, Server, Volume, VolumeConfig};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

const MIB: u64 = 1 << 20;

fn can_mount() -> bool {
    let fine = nix::unistd::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !fine {
        eprintln!("skipped: needs root and /dev/fuse");
    }
    fine
}

/// A served volume in memory.
struct Served {
    // First, so that it is unmounted before its directory is removed.
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

fn errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

fn fallocate(file: &File, mode: i32, offset: i64, len: i64) -> Result<(), i32> {
    // SAFETY: plain numbers and an open descriptor.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) };
    if result == 0 {
        Ok(())
    } else {
        Err(errno(&std::io::Error::last_os_error()))
    }
}

fn seek(file: &File, offset: i64, whence: i32) -> Result<i64, i32> {
    // SAFETY: plain numbers and an open descriptor.
    let at = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    if at >= 0 {
        Ok(at)
    } else {
        Err(errno(&std::io::Error::last_os_error()))
    }
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

/// What block `n` holds in round `round`.
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
    // Completions on another thread, as the engine gives them.
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
                let file = open(path, libc::O_DIRECT).unwrap();
                let mut expected = vec![0; 16384];
                let mut buffer = Buffer::new(0, 16384, 4096);
                for round in 0..3 {
                    for step in 0..256u64 {
                        // Every thread has its own residue, and jumps about.
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

/// The same volume, its hot requests taken by a thread of ours as the engine's thread takes them.
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
                    poll(
                        &mut [PollFd::new(pump.as_fd(), PollFlags::POLLIN)],
                        PollTimeout::NONE,
                    )
                    .unwrap();
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

/// FUSE's switch for io_uring, turned on; as it was once dropped. One test at a time.
struct Switched {
    before: Vec<u8>,
    _alone: std::sync::MutexGuard<'static, ()>,
}

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

impl Switched {
    fn on() -> Option<Switched> {
        static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let alone = ALONE
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = std::fs::read(SWITCH).ok();
        let on = before.filter(|_| can_mount() && std::fs::write(SWITCH, "Y").is_ok());
        if on.is_none() {
            eprintln!("skipped: this kernel has no FUSE over io_uring, or it cannot be turned on");
        }
        on.map(|before| Switched {
            before,
            _alone: alone,
        })
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let _ = std::fs::write(SWITCH, &self.before);
    }
}

/// An engine whose ring serves the block file of a volume in memory.
fn engine(dir: &Path) -> Server {
    let member = |name: &str, tier| MemberConfig {
        path: dir.join(name),
        tier,
        size: Some(Size(16 << 20)),
        ..MemberConfig::default()
    };
    let buffers = Size(8 << 20);
    let config = VolumeConfig {
        qos: Vec::new(),
        name: "engine".into(),
        uuid: None,
        extent: Size(65536),
        policy: "greendm".into(),
        io: IoConfig {
            buffers,
            ..IoConfig::default()
        },
        members: vec![member("fast", 0), member("slow", 1)],
    };
    Volume::create(&dir.join("engine"), config, false).unwrap();
    Volume::open(&dir.join("engine"), OpenMode::ReadWrite)
        .unwrap()
        .serve()
        .unwrap()
}

fn serve_by_ring(server: &Server, memory: &Arc<MemPort>) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let port = Arc::clone(memory) as Arc<dyn Port>;
    let options = Options::default();
    let mount = mount_on_engine(&server.handle(), port, dir.path(), "volume", &options).unwrap();
    assert!(mount.uses_ring());
    Served {
        mount,
        memory: Arc::clone(memory),
        dir,
    }
}

#[test]
fn each_call_reaches_the_volume_through_the_ring_too() {
    let Some(_on) = Switched::on() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = engine(dir.path());
    let memory = Arc::new(MemPort::new(4 * MIB, 512));
    check_each_call(serve_by_ring(&server, &memory));
    server.stop().unwrap();
}

#[test]
fn parallel_direct_io_keeps_every_block_through_the_ring_too() {
    let Some(_on) = Switched::on() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = engine(dir.path());
    let memory = Arc::new(MemPort::new(32 * MIB, 512));
    let mut served = serve_by_ring(&server, &memory);
    check_every_block(served.mount.file(), &memory);
    served.mount.unmount().unwrap();

    // Again on the same engine; and what is cut while the file is open gives its entries back.
    for _ in 0..2 {
        let served = serve_by_ring(&server, &memory);
        let file = open(served.mount.file(), libc::O_DIRECT).unwrap();
        let mut buffer = Buffer::new(0, 1 << 20, 4096);
        file.read_exact_at(&mut buffer, 0).unwrap();
        drop(served);
        assert!(
            file.read_at(&mut buffer, 0).is_err(),
            "the connection is cut"
        );
    }
    server.stop().unwrap();
}

/// The switch is off, or the volume's description says no: requests come from `/dev/fuse`, in silence.
#[test]
fn without_the_ring_the_block_file_is_the_same() {
    let Some(_on) = Switched::on() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = engine(dir.path());
    let memory = Arc::new(MemPort::new(4 * MIB, 512));
    let serve = |options: &Options| {
        let dir = tempfile::tempdir().unwrap();
        let port = Arc::clone(&memory) as Arc<dyn Port>;
        let mount = mount_on_engine(&server.handle(), port, dir.path(), "volume", options).unwrap();
        assert!(!mount.uses_ring());
        Served {
            mount,
            memory: Arc::clone(&memory),
            dir,
        }
    };
    let plain = Options {
        ring: false,
        ..Options::default()
    };
    drop(serve(&plain));
    // Turned off after the engine began: the kernel offers nothing.
    std::fs::write(SWITCH, "N").unwrap();
    check_each_call(serve(&Options::default()));
    server.stop().unwrap();
}

#[expect(clippy::too_many_lines, reason = "one scenario")]
fn check_each_call(mut served: Served) {
    let counts = &served.memory.counts;
    let about = std::fs::metadata(served.mount.file()).unwrap();
    assert_eq!(
        (
            about.len(),
            about.permissions().mode() & 0o7777,
            about.blksize()
        ),
        (4 * MIB, 0o600, 65536)
    );
    let file = open(served.mount.file(), 0).unwrap();

    // Odd offsets and lengths.
    file.write_all_at(b"odd bytes across a block", 1000)
        .unwrap();
    let mut back = [0; 24];
    file.read_exact_at(&mut back, 1000).unwrap();
    assert_eq!(&back, b"odd bytes across a block");
    assert_eq!(seen(&counts.fua), 0);

    file.sync_all().unwrap();
    file.sync_data().unwrap();
    assert_eq!(seen(&counts.flushes), 2);
    drop(open(served.mount.file(), 0).unwrap());
    assert_eq!(seen(&counts.flushes), 2, "closing flushes nothing");
    open(served.mount.file(), libc::O_DSYNC)
        .unwrap()
        .write_all_at(&[1; 512], 0)
        .unwrap();
    open(served.mount.file(), libc::O_SYNC)
        .unwrap()
        .write_all_at(&[1; 512], 0)
        .unwrap();
    assert_eq!(seen(&counts.fua), 2);

    // The end of the volume.
    let end = 4 * MIB;
    let mut tail = [9; 100];
    assert_eq!(file.read_at(&mut tail, end - 10).unwrap(), 10);
    assert_eq!(file.read_at(&mut tail, end).unwrap(), 0);
    assert_eq!(file.write_at(&tail, end - 10).unwrap(), 10);
    assert_eq!(errno(&file.write_at(&tail, end).unwrap_err()), libc::ENOSPC);
    assert_eq!(errno(&file.set_len(end / 2).unwrap_err()), libc::EPERM);
    assert_eq!(errno(&file.set_len(end * 2).unwrap_err()), libc::EPERM);
    file.set_len(end).unwrap();
    assert_eq!(std::fs::metadata(served.mount.file()).unwrap().len(), end);

    // Holes.
    let (keep, punch, zero) = (
        libc::FALLOC_FL_KEEP_SIZE,
        libc::FALLOC_FL_PUNCH_HOLE,
        libc::FALLOC_FL_ZERO_RANGE,
    );
    file.write_all_at(&vec![5; 65536], MIB).unwrap();
    assert_eq!(
        seek(&file, MIB as i64 - 4096, libc::SEEK_DATA),
        Ok(MIB as i64)
    );
    assert_eq!(
        seek(&file, MIB as i64, libc::SEEK_HOLE),
        Ok(MIB as i64 + 65536)
    );
    fallocate(&file, punch | keep, MIB as i64, 4096).unwrap();
    assert_eq!(seen(&counts.discarded), 4096);
    assert_eq!(
        seek(&file, MIB as i64, libc::SEEK_DATA),
        Ok(MIB as i64 + 4096)
    );
    fallocate(&file, zero | keep, MIB as i64, 8192).unwrap();
    fallocate(&file, zero, MIB as i64 + 8192, 512).unwrap();
    assert_eq!(seen(&counts.zeroed), 8192 + 512);
    assert_eq!(
        seek(&file, MIB as i64, libc::SEEK_DATA),
        Ok(MIB as i64),
        "zeroed ranges stay allocated"
    );
    let mut zeros = [1; 8192 + 512 + 1];
    file.read_exact_at(&mut zeros, MIB).unwrap();
    assert!(zeros[..8704].iter().all(|b| *b == 0) && zeros[8704] == 5);
    fallocate(&file, punch | keep, 0, 2 * end as i64).unwrap();
    assert_eq!(seek(&file, 0, libc::SEEK_DATA), Err(libc::ENXIO));
    assert_eq!(seek(&file, 0, libc::SEEK_HOLE), Ok(0));
    assert_eq!(
        fallocate(&file, zero, end as i64 - 512, 1024),
        Err(libc::ENOSPC)
    );
    assert_eq!(fallocate(&file, 0, 0, 4096), Err(libc::EOPNOTSUPP));
    assert_eq!(
        fallocate(&file, libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096),
        Err(libc::EOPNOTSUPP)
    );

    // The directory.
    let names: Vec<_> = std::fs::read_dir(served.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["volume"]);
    let other = served.dir.path().join("other");
    assert_eq!(
        File::create(&other).unwrap_err().kind(),
        ErrorKind::PermissionDenied
    );
    assert_eq!(
        errno(&std::fs::remove_file(served.mount.file()).unwrap_err()),
        libc::EPERM
    );
    assert_eq!(
        errno(&std::fs::rename(served.mount.file(), &other).unwrap_err()),
        libc::EPERM
    );
    assert_eq!(
        errno(&std::fs::create_dir(&other).unwrap_err()),
        libc::EPERM
    );
    assert_eq!(File::open(&other).unwrap_err().kind(), ErrorKind::NotFound);

    // Busy while open; afterwards it unmounts.
    let said = served.mount.unmount().unwrap_err();
    assert!(
        matches!(said, Error::Busy { .. }) && said.to_string().contains("losetup -j"),
        "{said}"
    );
    file.read_exact_at(&mut back, 0).unwrap();
    drop(file);
    served.mount.unmount().unwrap();
    assert!(served.mount.is_finished());
}

#[test]
fn a_read_only_volume_refuses_changes() {
    if !can_mount() {
        return;
    }
    let served = serve(MemPort::new(MIB, 512).refusing_changes());
    assert_eq!(
        errno(&open(served.mount.file(), 0).unwrap_err()),
        libc::EROFS
    );
    let file = File::open(served.mount.file()).unwrap();
    assert_eq!(file.read_at(&mut [0; 512], 0).unwrap(), 512);
    assert_eq!(
        errno(&std::fs::remove_file(served.mount.file()).unwrap_err()),
        libc::EROFS
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

/// A loop device that is detached when the test ends, however it ends.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg(&self.0)
            .stderr(Stdio::null())
            .status();
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_file_system_on_a_loop_device_survives() {
    if !can_mount() {
        return;
    }
    let have = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !Path::new("/dev/loop-control").exists()
        || !have("losetup")
        || !have("mkfs.ext4")
        || !have("fsck.ext4")
    {
        eprintln!("skipped: needs loop devices, losetup and e2fsprogs");
        return;
    }
    let served = serve(MemPort::new(128 * MIB, 4096));
    let file = served.mount.file().to_str().unwrap();
    let device = run("losetup", &["--direct-io=on", "--find", "--show", file]);
    let device = Loop(device.trim().to_owned());
    let direct = run("losetup", &["-n", "-O", "DIO", &device.0]);
    assert_eq!(direct.trim(), "1");
    run("mkfs.ext4", &["-q", &device.0]);
    assert!(
        seen(&served.memory.counts.discarded) >= 100 * MIB,
        "mkfs discards the device"
    );

    let scratch = tempfile::tempdir().unwrap();
    let top = scratch.path().to_str().unwrap();
    run("mount", &[&device.0, top]);
    let mut block = vec![0; 300_000];
    for n in 0..100 {
        fill(&mut block, n, 1);
        std::fs::write(scratch.path().join(format!("file{n}")), &block).unwrap();
    }
    for n in (0..100).step_by(3) {
        std::fs::remove_file(scratch.path().join(format!("file{n}"))).unwrap();
    }
    run("sync", &["-f", top]);
    assert!(seen(&served.memory.counts.flushes) > 0);
    run("fstrim", &[top]);
    run("umount", &[top]);
    run("fsck.ext4", &["-fn", &device.0]);
    run("mount", &["-o", "ro", &device.0, top]);
    for n in (0..100).filter(|n| n % 3 != 0) {
        fill(&mut block, n, 1);
        assert!(
            std::fs::read(scratch.path().join(format!("file{n}"))).unwrap() == block,
            "file{n}"
        );
    }
    run("umount", &[top]);
}

/// Not a test of its own: what the killed process of the next test runs.
#[test]
#[ignore = "a helper process"]
fn serve_until_killed() {
    let dir = std::env::var("BLOCK_FILE_DIR").unwrap();
    let _mount = mount(
        Arc::new(MemPort::new(MIB, 512)),
        Path::new(&dir),
        "volume",
        &Options::default(),
    )
    .unwrap();
    println!("\nready");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn a_dead_mount_is_cleared_away() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serve_until_killed", "--ignored", "--nocapture"])
            .env("BLOCK_FILE_DIR", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = Vec::new();
        let mut output = child.stdout.take().unwrap();
        let mut byte = [0];
        while !said.ends_with(b"ready") && output.read(&mut byte).unwrap() == 1 {
            said.push(byte[0]);
        }
        assert!(
            said.ends_with(b"ready"),
            "{}",
            String::from_utf8_lossy(&said)
        );
        assert!(open(&dir.path().join("volume"), 0).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(
            errno(&std::fs::read_dir(dir.path()).unwrap_err()),
            libc::ENOTCONN
        );
        // The second round's child meets the dead mount of the first.
    }
    let mut mount = mount(
        Arc::new(MemPort::new(MIB, 512)),
        dir.path(),
        "volume",
        &Options::default(),
    )
    .unwrap();
    assert!(open(mount.file(), 0).is_ok());
    mount.unmount().unwrap();
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "nothing is left below either"
    );
}
