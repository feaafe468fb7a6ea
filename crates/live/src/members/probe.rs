//! Reads the superblock on a device or file, without a lock and without waiting for a process that has the device open.
//!
//! The superblock may be written at the same time. One of the two copies is whole at every moment, so the result is right, or one session
//! old.

use crate::buffers::{ALIGNMENT, Buffer};
use crate::stack;
use isotherm_core::MemberId;
use isotherm_core::store::counter::{self, Counter};
use isotherm_core::store::superblock::SuperblockError;
use isotherm_core::store::{self, BLOCK, Superblock};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Where to look for the second superblock if the first does not state its place.
#[derive(Clone, Copy, Debug)]
pub enum Second<'a> {
    /// At these offsets, which are those of other members of the volume.
    At(&'a [u64]),
    /// At every possible place, for the case that the counters are damaged as well: it ends at a multiple of 1 MiB. This takes about a
    /// thousand reads.
    Anywhere,
}

/// Last place that [`Second::Anywhere`] examines, in MiB.
pub(crate) const SEARCH_MIB: u64 = 1024;

fn open_quietly(path: &Path) -> io::Result<File> {
    let open = |flags| {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .custom_flags((OFlags::NONBLOCK | flags).bits() as i32);
        options.open(path)
    };
    // The read bypasses the page cache, because a loop device and its file each have a cache of their own.
    match open(OFlags::DIRECT) {
        Err(e) if Errno::from_io_error(&e) == Some(Errno::INVAL) => {
            open(OFlags::empty()).inspect(crate::device::forget_all)
        }
        other => other,
    }
}

fn at(file: &File, offset: u64) -> Result<Superblock, SuperblockError> {
    let mut block = Buffer::new(0, BLOCK as u32, ALIGNMENT as u32);
    match file.read_exact_at(&mut block, offset) {
        Ok(()) => Superblock::decode(&block),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(SuperblockError::Foreign),
        Err(_) => Err(SuperblockError::Damaged),
    }
}

/// The place of the second superblock according to the member's counter.
pub(crate) fn second_by_counter(mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<u64> {
    let mut block = Buffer::new(0, BLOCK as u32, ALIGNMENT as u32);
    (0..2).find_map(|v| {
        let whole = read(counter::offset(v), &mut block);
        let said = Counter::decode_any(&block).filter(|_| whole)?;
        Some(said.copy_offset).filter(|&at| at > 0)
    })
}

/// The better superblock of the contents at `path`.
///
/// # Errors
/// It cannot be opened. The inner error states that it holds no volume, or none that can be used.
pub fn probe(path: &Path, second: Second<'_>) -> io::Result<Result<Superblock, SuperblockError>> {
    stack::reachable(path)?;
    let file = open_quietly(path)?;
    let first = at(&file, 0);
    let told = || {
        second_by_counter(|offset, block| file.read_exact_at(block, offset).is_ok())
            .map(|place| at(&file, place))
            .filter(Result::is_ok)
    };
    let copy = match (&first, second) {
        (Ok(sb), _) => at(&file, sb.copy_offset(MemberId(sb.index))),
        (_, Second::At(places)) => told()
            .or_else(|| {
                let mut all = places.iter().map(|&place| at(&file, place));
                all.find(Result::is_ok)
            })
            .unwrap_or(Err(SuperblockError::Foreign)),
        (_, Second::Anywhere) => told()
            .or_else(|| {
                let mut all = (1..=SEARCH_MIB).map(|mib| at(&file, (mib << 20) - BLOCK as u64));
                all.find(Result::is_ok)
            })
            .unwrap_or(Err(SuperblockError::Foreign)),
    };
    Ok(store::choose(first, copy))
}
