//! The block file, if FUSE can be mounted.

use super::{RecordingPort, check};
use isotherm_core::{IoError, RequestOp};
use isotherm_live::block_file::{self, O_DSYNC, Options};
use isotherm_live::mutants::LiveMutant;
use isotherm_live::nbd::testing::MemPort;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

struct Mounted {
    mount: block_file::Mount,
    port: Arc<RecordingPort>,
    _dir: tempfile::TempDir,
}

fn mounted(memory: MemPort) -> Option<Mounted> {
    let dir = tempfile::tempdir().expect("a directory");
    let port = RecordingPort::over(memory, None);
    let made = block_file::mount(port.clone(), dir.path(), "v", &Options::default());
    let mount = made.map_err(|e| eprintln!("skipped, noticed: no FUSE here: {e}"));
    Some(Mounted {
        mount: mount.ok()?,
        port,
        _dir: dir,
    })
}

impl Mounted {
    fn open(&self, flags: i32) -> Result<File, String> {
        let mut how = OpenOptions::new();
        how.read(true).write(true).custom_flags(flags);
        how.open(self.mount.file()).map_err(|e| e.to_string())
    }
}

pub fn file_fsync() -> Result<(), String> {
    let Some(m) = mounted(MemPort::new(MIB)) else {
        return without_fuse(LiveMutant::AnswerFsync);
    };
    let file = m.open(0)?;
    file.write_all_at(&[1; 4096], 0)
        .map_err(|e| e.to_string())?;
    file.sync_data().map_err(|e| e.to_string())?;
    check(
        m.port.received(RequestOp::Flush, false),
        "the volume hears of no fsync",
    )
}

pub fn file_dsync() -> Result<(), String> {
    let Some(m) = mounted(MemPort::new(MIB)) else {
        return without_fuse(LiveMutant::DropDsyncFlag);
    };
    let file = m.open(O_DSYNC)?;
    file.write_all_at(&[1; 4096], 0)
        .map_err(|e| e.to_string())?;
    // The kernel may flush after the write instead, which gives the same guarantee.
    let durable = m.port.received(RequestOp::Write, true);
    check(
        durable,
        "a write that must be durable is not so for the volume",
    )
}

pub fn file_pieces() -> Result<(), String> {
    let memory = MemPort::new(3 << 30);
    memory.fail(0..4096, IoError::Io);
    let Some(m) = mounted(memory) else {
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
