//! Properties of a device according to the system: alignment of direct I/O, whether it rotates, whether its I/O ever waits.

use super::OpenHow;
use crate::error::{Error, ErrorKind};
use rustix::fs::{AtFlags, FsWord, OFlags, StatxFlags};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The type of a tmpfs in `linux/magic.h`.
pub(super) const TMPFS: FsWord = 0x0102_1994;

/// Size of a file or block device. A file is not asked with `seek`: that waits for writes in progress (FUSE), and on a disk that holds them
/// the process could not even be killed.
pub fn bytes_of(mut file: &File) -> io::Result<u64> {
    let about = file.metadata()?;
    if about.is_file() {
        return Ok(about.len());
    }
    file.seek(SeekFrom::End(0))
}

/// Lets the ring carry out I/O on a file in memory at once instead of on a worker thread. tmpfs does not declare that it never waits for a
/// device, but `O_NONBLOCK` declares it for the file. On other file systems the engine's thread would wait, so nothing is done there.
pub fn allow_inline(file: &File) {
    if rustix::fs::fstatfs(file).is_ok_and(|about| about.f_type == TMPFS)
        && let Ok(flags) = rustix::fs::fcntl_getfl(file)
    {
        // A refusal costs only speed.
        let _ = rustix::fs::fcntl_setfl(file, flags | OFlags::NONBLOCK);
    }
}

/// Offset alignment for O_DIRECT; 0 = not possible; `None` = the kernel does not say.
pub(super) fn direct_alignment(file: &File) -> Option<u32> {
    let wanted = StatxFlags::DIOALIGN;
    let about = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
    let known = about.stx_mask & wanted.bits() != 0;
    known.then_some(about.stx_dio_offset_align)
}

/// Whether a block device is a rotating disk, if the system knows. `None` for everything else.
pub fn rotates(path: &Path) -> Option<bool> {
    let is_block = fs::metadata(path).ok()?.file_type().is_block_device();
    is_block.then(|| rotational(&File::open(path).ok()?))?
}

/// Refuses a block device that is to be written and that the kernel has made read-only. Such a device can be opened for writing, and each write
/// fails.
pub(super) fn refuse_read_only(file: &File, path: &Path, how: OpenHow) -> Result<(), Error> {
    let about = file.metadata().ok();
    let number = about.filter(|m| m.file_type().is_block_device() && !how.read_only);
    let is_ro = |number: u64| {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let file = format!("/sys/dev/block/{major}:{minor}/ro");
        fs::read_to_string(file).is_ok_and(|s| s.trim() == "1")
    };
    if !number.is_some_and(|m| is_ro(m.rdev())) {
        return Ok(());
    }
    let what = "the device is read-only: make it writable (its write-protect switch, `blockdev --setrw`, `lvchange --permission rw`, `losetup` without -r)";
    Err(super::fail(path, ErrorKind::Device, what))
}

pub(super) fn rotational(file: &File) -> Option<bool> {
    let number = file.metadata().ok()?.rdev();
    let dir = format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(number),
        rustix::fs::minor(number)
    );
    // A partition uses the queue of its disk.
    ["queue/rotational", "../queue/rotational"]
        .iter()
        .find_map(|f| fs::read_to_string(Path::new(&dir).join(f)).ok())
        .map(|s| s.trim() == "1")
}
