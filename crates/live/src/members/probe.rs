//! Reads the superblock on a device or file, without a lock and without waiting for a process that has the device open.
//!
//! The superblock may be written at the same time. One of the two copies is whole at every moment, so the result is right, or one session
//! old.

use crate::buffers::{ALIGNMENT, Buffer};
use crate::device::bytes_of;
use crate::{stack, tail};
use isotherm_core::store::superblock::SuperblockError;
use isotherm_core::store::{self, BLOCK, Superblock, Unfinished};
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

pub(crate) fn open_quietly(path: &Path) -> io::Result<File> {
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

/// The better superblock of what this reads, from aligned memory; `bytes` is its size.
///
/// # Errors
/// It holds no volume, or none that can be used.
pub(crate) fn probe_by(
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
    bytes: Option<u64>,
    second: Second<'_>,
) -> Result<Superblock, SuperblockError> {
    let (first, second) = both_by(read, bytes, second);
    store::choose(first, second)
}

/// A superblock as it was read.
pub type Read = Result<Superblock, SuperblockError>;

fn both_by(
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
    bytes: Option<u64>,
    second: Second<'_>,
) -> (Read, Read) {
    let mut read = |offset, to: &mut [u8]| {
        let mut block = Buffer::new(0, BLOCK as u32, ALIGNMENT as u32);
        match read(&mut block, offset) {
            Ok(()) => {
                to.copy_from_slice(&block);
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(SuperblockError::Foreign),
            Err(e) => Err(crate::media::because(&e)),
        }
    };
    // The second superblock that lies at the end of a tail device is that of the member that it continues. What lies on a device that gets a
    // copy of a member is no superblock of its own.
    let mut block = [0; BLOCK];
    let other = |b: &[u8]| tail::is_label(b) || Unfinished::decode(b).is_some();
    if read(0, &mut block).is_ok() && other(&block) {
        return (Err(SuperblockError::Foreign), Err(SuperblockError::Foreign));
    }
    let first = store::superblock_at(&mut read, 0);
    let (places, anywhere) = match second {
        Second::At(places) => (places, false),
        Second::Anywhere => (&[][..], true),
    };
    let second = store::second_superblock(&mut read, &first, (places, bytes), anywhere);
    (first, second)
}

/// The better superblock of the contents at `path`.
///
/// # Errors
/// It cannot be opened. The inner error states that it holds no volume, or none that can be used.
pub fn probe(path: &Path, second: Second<'_>) -> io::Result<Result<Superblock, SuperblockError>> {
    let (first, second) = both_at(path, second)?;
    Ok(store::choose(first, second))
}

/// Both superblocks of the contents at `path`; if the first does not state the place of the second, that is searched for.
///
/// # Errors
/// It cannot be opened. Each of the inner errors states what is there in the place of that superblock.
pub fn both(path: &Path) -> io::Result<(Read, Read)> {
    both_at(path, Second::Anywhere)
}

fn both_at(path: &Path, second: Second<'_>) -> io::Result<(Read, Read)> {
    stack::reachable(path)?;
    let file = open_quietly(path)?;
    let bytes = bytes_of(&file).ok();
    let read = |to: &mut [u8], at| file.read_exact_at(to, at);
    Ok(both_by(read, bytes, second))
}
