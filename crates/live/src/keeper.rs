//! Memory that outlives a killed server: a file in a file system that has no device (tmpfs), with the blocks of the journal that are on no
//! device yet. `core/engine/durability/keep.rs` explains what it is good for.
//!
//! ```text
//! header (4096 bytes): magic, sum, session, kernel, identities of the members' devices
//! places, one more than blocks: block (4096) │ version (8) │ number of the block (8)
//! ```
//! A block is never written over its only version: each one goes to the spare place, and the place of the version before is spare from then
//! on. So a server may be killed at any moment of a write. The file has the number of its session in its name. The next server reads it, and
//! removes it once it has begun a session of its own.
//!
//! Two more files may be beside it. `UUID-settled` says that everything that was answered is on the devices: it exists while no session keeps
//! anything, as during the growth of a served volume. `UUID-lost` says that answered writes may be missing, until somebody accepts that.
//!
//! The file says nothing after the devices were without power, because the data that the records expose may have been in a write cache. Then
//! this kernel is not the one that wrote it, or a member is another device than before: Linux gives each disk that is attached a new number.

use crate::config::format_uuid;
use crate::device::Device;
use crate::stamp::{boot, sum};
use isotherm_core::store::keep::Kept;
use isotherm_core::store::{BLOCK, journal};
use rustix::fs::{FallocateFlags, FsWord, Mode, fallocate, fstatfs};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The directory of these files.
const PLACE: &str = "/run/isotherm/kept";
/// Names another directory, which must also be on a tmpfs; empty: nothing is kept.
const VARIABLE: &str = "ISOTHERM_KEEPER_DIR";
const TMPFS_MAGIC: FsWord = 0x0102_1994;
const MAGIC: &[u8; 8] = b"ISOKEPT1";
const TRAILER: usize = 16;
const SLOT: usize = BLOCK + TRAILER;
/// The header: magic, sum, epoch, kernel, number of members, identities of their devices.
const SUM_AT: usize = 8;
const EPOCH_AT: usize = 16;
const BOOT_AT: usize = 24;
const COUNT_AT: usize = 40;
const DEVICES_AT: usize = 48;

/// The keeper of a session.
pub(crate) struct Keeper {
    file: File,
    path: PathBuf,
    settled: PathBuf,
    /// The place of each block: that of block `seq` is at `seq` modulo their number.
    places: Vec<u32>,
    spare: u32,
    version: u64,
}

/// What the keeper of the last session tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing is missing: there are these blocks.
    Kept(Kept),
    /// The session had a keeper, as far as is known, and it is gone or says nothing any more.
    Gone,
    /// There is no place for keepers.
    Unknown,
}

/// The place for keepers, if there is one: only root's servers have keepers, because the files of other users may be removed when they log
/// out.
fn directory() -> Option<PathBuf> {
    let dir = match std::env::var_os(VARIABLE) {
        Some(dir) if dir.is_empty() => return None,
        Some(dir) => PathBuf::from(dir),
        None if rustix::process::geteuid().is_root() => PathBuf::from(PLACE),
        None => return None,
    };
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&dir).ok()?;
    is_private_memory(&dir).then_some(dir)
}

/// Whether the directory is on a tmpfs, and only this user may make files in it: others could make links under the names of these, and forge
/// what was kept.
fn is_private_memory(dir: &Path) -> bool {
    let Ok(opened) = File::open(dir) else {
        return false;
    };
    let own = rustix::process::geteuid().as_raw();
    let is_private = |m: fs::Metadata| m.uid() == own && m.mode() & 0o022 == 0;
    fstatfs(&opened).is_ok_and(|s| s.f_type == TMPFS_MAGIC)
        && opened.metadata().is_ok_and(is_private)
}

/// The word for a volume all of whose answered writes are on its devices.
const SETTLED: &str = "settled";
/// The word for a volume that may lack answered writes.
const LOST: &str = "lost";

fn marker(dir: &Path, uuid: &[u8; 16], word: &str) -> PathBuf {
    dir.join(format!("{}-{word}", format_uuid(uuid)))
}

fn name(uuid: &[u8; 16], epoch: u64) -> String {
    format!("{}-{epoch:016x}", format_uuid(uuid))
}

/// The number that Linux gave to the disk when it was attached; 0 for files, and before Linux 5.15.
fn attached(device: &Device) -> u64 {
    let Ok(number) = device.file.metadata().map(|m| m.rdev()) else {
        return 0;
    };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let at = |below: &str| {
        let file = format!("/sys/dev/block/{major}:{minor}/{below}diskseq");
        fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    // A partition has the number of its disk.
    at("").or_else(|| at("../")).unwrap_or(0)
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?))
}

fn header(epoch: u64, devices: &[Option<Device>]) -> [u8; BLOCK] {
    let mut b = [0; BLOCK];
    b[..8].copy_from_slice(MAGIC);
    b[EPOCH_AT..EPOCH_AT + 8].copy_from_slice(&epoch.to_le_bytes());
    b[BOOT_AT..BOOT_AT + 16].copy_from_slice(&boot());
    b[COUNT_AT..COUNT_AT + 8].copy_from_slice(&(devices.len() as u64).to_le_bytes());
    for (at, device) in (DEVICES_AT..BLOCK).step_by(8).zip(devices) {
        let number = device.as_ref().map_or(0, attached);
        b[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    let s = sum(&b[EPOCH_AT..]);
    b[SUM_AT..SUM_AT + 8].copy_from_slice(&s.to_le_bytes());
    b
}

/// Whether a keeper with this header says something about these devices now. A member that is absent does not count.
fn speaks(found: &[u8], devices: &[Option<Device>]) -> bool {
    let whole = found.get(..8) == Some(MAGIC)
        && found.get(EPOCH_AT..BLOCK).map(sum) == u64_at(found, SUM_AT)
        && found.get(BOOT_AT..BOOT_AT + 16) == Some(&boot())
        && u64_at(found, COUNT_AT) == Some(devices.len() as u64);
    let same = |(at, device): (usize, &Option<Device>)| match device {
        Some(d) => u64_at(found, at) == Some(attached(d)),
        None => true,
    };
    whole && (DEVICES_AT..BLOCK).step_by(8).zip(devices).all(same)
}

impl Keeper {
    /// A keeper for session `epoch` of a volume, with room for `blocks` blocks; `None`: there is no place for one.
    ///
    /// # Errors
    /// The file cannot be made, although there is a place for it: no memory is left.
    pub(crate) fn create(
        uuid: &[u8; 16],
        epoch: u64,
        devices: &[Option<Device>],
        blocks: u32,
    ) -> io::Result<Option<Keeper>> {
        match directory() {
            Some(dir) => Keeper::create_in(&dir, uuid, epoch, devices, blocks).map(Some),
            None => Ok(None),
        }
    }

    fn create_in(
        dir: &Path,
        uuid: &[u8; 16],
        epoch: u64,
        devices: &[Option<Device>],
        blocks: u32,
    ) -> io::Result<Keeper> {
        let path = dir.join(name(uuid, epoch));
        let mut how = File::options();
        how.read(true).write(true).create(true).truncate(true);
        let file = how.mode(Mode::RUSR.union(Mode::WUSR).bits()).open(&path)?;
        let bytes = BLOCK as u64 + (u64::from(blocks) + 1) * SLOT as u64;
        // All memory is taken now, so that no write fails later.
        let made = fallocate(&file, FallocateFlags::empty(), 0, bytes);
        if let Err(e) = made
            .map_err(io::Error::from)
            .and_then(|()| file.write_all_at(&header(epoch, devices), 0))
        {
            let _ = fs::remove_file(&path);
            return Err(e);
        }
        let settled = marker(dir, uuid, SETTLED);
        // There was none at the first session.
        let _ = fs::remove_file(&settled);
        Ok(Keeper {
            file,
            path,
            settled,
            places: (0..blocks).collect(),
            spare: blocks,
            version: 0,
        })
    }

    /// Keeps a block, in place of an earlier version of it. A block with a number that is lower by the number of places is forgotten.
    ///
    /// # Errors
    /// The file cannot be written. The versions before are still there.
    pub(crate) fn keep(&mut self, seq: u64, block: &[u8]) -> io::Result<()> {
        self.version += 1;
        let mut slot = [0; SLOT];
        slot[..BLOCK].copy_from_slice(block);
        slot[BLOCK..BLOCK + 8].copy_from_slice(&self.version.to_le_bytes());
        slot[BLOCK + 8..].copy_from_slice(&seq.to_le_bytes());
        self.file
            .write_all_at(&slot, BLOCK as u64 + u64::from(self.spare) * SLOT as u64)?;
        let i = (seq % self.places.len() as u64) as usize;
        std::mem::swap(&mut self.places[i], &mut self.spare);
        Ok(())
    }

    /// Removes the file: everything that it has is on the devices.
    pub(crate) fn forget(self) {
        // Without this file, the next server would miss the other one.
        if File::create(&self.settled).is_ok() {
            self.give_up();
        }
    }

    /// Removes the file: the session can give no guarantee any more.
    pub(crate) fn give_up(self) {
        // If it stays, it only takes memory: no other session has its number.
        let _ = fs::remove_file(&self.path);
    }
}

/// What the keeper of session `epoch` has, which was not closed.
pub(crate) fn left(uuid: &[u8; 16], epoch: u64, devices: &[Option<Device>]) -> Left {
    match directory() {
        Some(dir) => left_in(&dir, uuid, epoch, devices),
        None => Left::Unknown,
    }
}

fn left_in(dir: &Path, uuid: &[u8; 16], epoch: u64, devices: &[Option<Device>]) -> Left {
    let Ok(bytes) = fs::read(dir.join(name(uuid, epoch))) else {
        if marker(dir, uuid, SETTLED).exists() {
            let blocks = BTreeMap::new();
            return Left::Kept(Kept { epoch, blocks });
        }
        return Left::Gone;
    };
    if bytes.len() < BLOCK || !speaks(&bytes[..BLOCK], devices) {
        return Left::Gone;
    }
    let mut newest: BTreeMap<u64, (u64, &[u8])> = BTreeMap::new();
    for slot in bytes[BLOCK..].chunks_exact(SLOT) {
        let (block, trailer) = slot.split_at(BLOCK);
        let (Some(version), Some(seq)) = (u64_at(trailer, 0), u64_at(trailer, 8)) else {
            continue;
        };
        // A place that was never written, or that was being written when the server was killed.
        if version == 0 || journal::decode(block, uuid).is_none_or(|h| h.seq != seq) {
            continue;
        }
        let known = newest.entry(seq).or_insert((version, block));
        if known.0 < version {
            *known = (version, block);
        }
    }
    let blocks = newest.into_iter().map(|(seq, (_, b))| (seq, b.to_vec()));
    Left::Kept(Kept {
        epoch,
        blocks: blocks.collect(),
    })
}

/// Notes that everything that was answered is on the devices, until a session has a keeper. Without a place for keepers, nothing is noted.
pub(crate) fn settle(uuid: &[u8; 16]) {
    if let Some(dir) = directory() {
        // Without the mark, a kill before the next keeper exists looks like a loss, which is the safe side.
        let _ = File::create(marker(&dir, uuid, SETTLED));
    }
}

/// Removes what an earlier session has left, which is on the devices now.
pub(crate) fn remove(uuid: &[u8; 16], epoch: u64) {
    if let Some(dir) = directory()
        && File::create(marker(&dir, uuid, SETTLED)).is_ok()
    {
        let _ = fs::remove_file(dir.join(name(uuid, epoch)));
    }
}

/// Whether answered writes of the volume may be missing, as [`remember_loss`] has noted.
pub(crate) fn is_loss_known(uuid: &[u8; 16]) -> bool {
    directory().is_some_and(|dir| marker(&dir, uuid, LOST).exists())
}

/// Notes that answered writes may be missing (`lost`), or that this was accepted. A clean end of a session does not change it.
pub(crate) fn remember_loss(uuid: &[u8; 16], lost: bool) {
    let Some(dir) = directory() else { return };
    let file = marker(&dir, uuid, LOST);
    // Without the file the next start says nothing; the message of this one is all that there is then.
    let _ = if lost {
        File::create(file).map(drop)
    } else {
        fs::remove_file(file)
    };
}

#[cfg(test)]
mod tests;
