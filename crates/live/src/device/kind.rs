//! Properties of a device according to the system: units of direct I/O, whether it rotates, whether its I/O ever waits.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Lets the ring carry out I/O on a file in memory at once instead of on a worker thread. tmpfs does not declare that it never waits for a
/// device, but `O_NONBLOCK` declares it for the file. On other file systems the engine's thread would wait, so nothing is done there.
pub fn allow_inline(file: &File) {
    // SAFETY: all-zero is a valid `statfs`, written on success.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: our descriptor and our structure.
    let known = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut about) } == 0;
    // musl's field has no sign.
    if known && about.f_type as i64 == libc::TMPFS_MAGIC {
        // SAFETY: plain numbers. A refusal costs only speed.
        unsafe {
            let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
            libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
    }
}

/// Offset alignment for O_DIRECT; 0 = not possible; `None` = the kernel does not say.
pub(super) fn direct_alignment(file: &File) -> Option<u32> {
    // SAFETY: all-zero is a valid `statx`.
    let mut buf: libc::statx = unsafe { std::mem::zeroed() };
    let empty = CString::default();
    // SAFETY: an empty path with AT_EMPTY_PATH means the descriptor itself; `buf` is written on success.
    let rc = unsafe {
        libc::statx(
            file.as_raw_fd(),
            empty.as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &raw mut buf,
        )
    };
    (rc == 0 && buf.stx_mask & libc::STATX_DIOALIGN != 0).then_some(buf.stx_dio_offset_align)
}

pub(super) fn rotational(file: &File) -> Option<bool> {
    let number = file.metadata().ok()?.rdev();
    let dir = format!(
        "/sys/dev/block/{}:{}",
        libc::major(number),
        libc::minor(number)
    );
    // A partition uses the queue of its disk.
    ["queue/rotational", "../queue/rotational"]
        .iter()
        .find_map(|f| fs::read_to_string(Path::new(&dir).join(f)).ok())
        .map(|s| s.trim() == "1")
}
