//! The block file, if FUSE can be mounted.

use super::common::fuse_ring::FuseRing;
use super::common::{serve, two_files};
use super::{RecordingPort, check};
use isotherm_core::{IoError, RequestOp};
use isotherm_live::Server;
use isotherm_live::block_file::{self, O_DSYNC, Options};
use isotherm_live::mutants::LiveMutant;
use isotherm_live::nbd::testing::MemPort;
use isotherm_live::port::{Completion, IoRequest};
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

const MIB: u64 = 1 << 20;

struct Mounted {
    // The first field, so that it is unmounted before the engine ends.
    mount: block_file::Mount,
    port: Arc<RecordingPort>,
    _engine: Server,
    _dirs: [tempfile::TempDir; 2],
}

/// As a volume is served: the engine's thread takes the requests, from `/dev/fuse` or through its ring.
fn mounted(memory: MemPort, ring: bool) -> Option<Mounted> {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let [members, dir] = dirs.each_ref().map(tempfile::TempDir::path);
    let engine = serve(members, two_files(members, "greendm", 16 << 20, 16 << 20));
    let port = RecordingPort::over(memory, None);
    let options = Options {
        ring,
        ..Options::default()
    };
    let made = block_file::mount_on_engine(&engine.handle(), port.clone(), dir, "v", &options);
    let mount = made.map_err(|e| eprintln!("skipped, noticed: no FUSE here: {e}"));
    let mount = mount.ok()?;
    assert_eq!(mount.uses_ring(), ring);
    Some(Mounted {
        mount,
        port,
        _engine: engine,
        _dirs: dirs,
    })
}

/// Plays the scene on each way by which requests come on this machine.
fn on_each_way(
    m: LiveMutant,
    bytes: u64,
    scene: fn(&Mounted) -> Result<(), String>,
) -> Result<(), String> {
    let on = FuseRing::on();
    for ring in [Some(false), on.as_ref().map(|_| true)]
        .into_iter()
        .flatten()
    {
        let Some(mounted) = mounted(MemPort::new(bytes), ring) else {
            return without_fuse(m);
        };
        scene(&mounted).map_err(|why| format!("{why} (ring: {ring})"))?;
    }
    Ok(())
}

impl Mounted {
    fn open(&self, flags: i32) -> Result<File, String> {
        let mut how = OpenOptions::new();
        how.read(true).write(true).custom_flags(flags);
        how.open(self.mount.file()).map_err(|e| e.to_string())
    }
}

pub fn file_fsync() -> Result<(), String> {
    on_each_way(LiveMutant::AnswerFsync, MIB, |m| {
        let file = m.open(0)?;
        file.write_all_at(&[1; 4096], 0)
            .map_err(|e| e.to_string())?;
        file.sync_data().map_err(|e| e.to_string())?;
        check(
            m.port.received(RequestOp::Flush, false),
            "the volume hears of no fsync",
        )
    })
}

pub fn file_dsync() -> Result<(), String> {
    on_each_way(LiveMutant::DropDsyncFlag, MIB, |m| {
        let file = m.open(O_DSYNC)?;
        file.write_all_at(&[1; 4096], 0)
            .map_err(|e| e.to_string())?;
        for keep in [true, false] {
            let mode = if keep {
                FallocateFlags::ZERO_RANGE
            } else {
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
            };
            rustix::fs::fallocate(&file, mode, 0, 4096).map_err(|e| e.to_string())?;
            check(
                m.port.received(RequestOp::WriteZeroes { keep }, true),
                "zeros that must be durable are not so for the volume",
            )?;
        }
        check(
            m.port.received(RequestOp::Write, true),
            "a write that must be durable is not so for the volume",
        )
    })
}

pub fn file_pieces() -> Result<(), String> {
    let memory = MemPort::new(3 << 30);
    memory.fail(0..4096, IoError::Io);
    let Some(m) = mounted(memory, false) else {
        return without_fuse(LiveMutant::LastPieceCounts);
    };
    let file = m.open(0)?;
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let done = rustix::fs::fallocate(&file, mode, 0, 3 << 30);
    check(done.is_err(), "a discard of which a piece failed did not")
}

/// If FUSE cannot be mounted, the scene is skipped with a message: it passes with all rules and fails without one.
fn without_fuse(m: LiveMutant) -> Result<(), String> {
    let asked = std::env::var("ISOTHERM_LIVE_MUTANT").is_ok_and(|n| n == format!("{m:?}"));
    check(!asked, "skipped")
}

/// The file of a member's server, which can be killed.
fn disk(dir: &Path, port: &Arc<MemPort>, lineage: &str) -> Result<block_file::Mount, String> {
    let options = Options {
        lineage: Some(lineage.into()),
        ..Options::default()
    };
    block_file::mount(port.clone(), dir, "disk", &options).map_err(|e| e.to_string())
}

/// A member whose server is killed, and comes back with all that was written to it; then it comes back without.
pub fn successor() -> Result<(), String> {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let [place, dir] = dirs.each_ref().map(tempfile::TempDir::path);
    let port = Arc::new(MemPort::new(16 * MIB));
    let Ok(first) = disk(dir, &port, "a") else {
        return without_fuse(LiveMutant::TrustAnySuccessor);
    };
    let policy = "lru,write-mode=write-through-all";
    let mut config = two_files(place, policy, 16 * MIB, 16 * MIB);
    (config.members[1].path, config.members[1].size) = (dir.join("disk"), None);
    let engine = serve(place, config);
    let write = |at: u64| {
        let port = engine.port();
        let mut bytes = port.buffer(at, 65536);
        bytes.fill(7);
        let (send, receive) = channel();
        let done = Completion::new(move |result, _| {
            let _ = send.send(result);
        });
        port.submit(IoRequest::write(at, 65536, bytes), done);
        receive
    };
    let is_done = |asked: Receiver<Result<(), IoError>>| asked.recv().is_ok_and(|r| r.is_ok());
    check(is_done(write(0)), "a write failed")?;
    drop(first);
    let waiting = [write(MIB), write(2 * MIB)];
    let second = disk(dir, &port, "a")?;
    for asked in waiting {
        check(
            is_done(asked),
            "a write failed instead of waiting for the member",
        )?;
    }
    drop(second);
    let waiting = write(3 * MIB);
    let _third = disk(dir, &Arc::new(MemPort::new(16 * MIB)), "b")?;
    let goes_on = is_done(waiting) || is_done(write(4 * MIB));
    // Before the member, which it would wait for.
    drop(engine);
    check(
        !goes_on,
        "the volume goes on with a member that lacks its writes",
    )
}
