//! Reads and writes that pass the page cache: superblocks, the journal at recovery, and above all the activity stamp (`stamp.rs`), by which two
//! servers detect each other. A server that reaches the bytes through a file system with a page cache of its own (bindfs, sshfs, SMB,
//! virtiofs) would read there what it wrote itself, and would never see the other server.
//!
//! ```text
//! O_DIRECT ─ refused ─► in memory (tmpfs): its page cache is the medium
//!                  └──► else: O_DSYNC; before each read the cached pages are dropped, and mincore confirms it. If it does not: an error
//! ```
//! The data of a volume may be in the page cache (`direct = false`, or sectors larger than its blocks), so this is a second open file.

use super::kind::TMPFS;
use crate::mutants::{LiveMutant, broken};
use rustix::fs::{Advice, OFlags, fadvise};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Sizes of pages, by processor.
const LARGEST_PAGE: u64 = 65536;
const LEAST_PAGE: usize = 4096;

/// How reads get past the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// `O_DIRECT`, or the cache is the medium: nothing is to be done.
    Open,
    /// Cached pages are dropped before each read.
    Drop,
}

/// A file of a member, open for metadata.
#[derive(Debug)]
pub struct PastCache {
    file: File,
    way: Way,
}

/// Opens the same file again. It is another open file with flags of its own, and has no lock.
pub(crate) fn reopen(file: &File, write: bool, flags: OFlags) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut how = OpenOptions::new();
    how.read(true).write(write);
    how.custom_flags(flags.bits() as i32).open(path)
}

impl PastCache {
    /// For `file`, which was opened with `O_DIRECT` if `direct` is set.
    ///
    /// # Errors
    /// It cannot be opened again.
    pub(super) fn of(file: &File, direct: bool, write: bool) -> io::Result<PastCache> {
        let by = |file, way| Ok(PastCache { file, way });
        if direct || broken(LiveMutant::StampFromCache) {
            return by(file.try_clone()?, Way::Open);
        }
        match reopen(file, write, OFlags::DIRECT) {
            Ok(direct) => by(direct, Way::Open),
            Err(_) if rustix::fs::fstatfs(file).is_ok_and(|s| s.f_type == TMPFS) => {
                by(file.try_clone()?, Way::Open)
            }
            // A page that was written and not yet stored cannot be dropped.
            Err(_) => by(reopen(file, write, OFlags::DSYNC)?, Way::Drop),
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<PastCache> {
        let file = self.file.try_clone()?;
        Ok(PastCache { file, ..*self })
    }

    /// The file, for operations on whole, aligned blocks of 4096 bytes. Before a read, [`PastCache::forget`] must be called.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Makes sure that a read of these bytes does not find them in the cache.
    ///
    /// # Errors
    /// They stay there, or nothing tells.
    pub(crate) fn forget(&self, at: u64, bytes: usize) -> io::Result<()> {
        if self.way == Way::Open {
            return Ok(());
        }
        let start = at / LARGEST_PAGE * LARGEST_PAGE;
        let end = (at + bytes as u64).next_multiple_of(LARGEST_PAGE);
        let (at, bytes) = (start, (end - start) as usize);
        fadvise(
            &self.file,
            at,
            NonZeroU64::new(bytes as u64),
            Advice::DontNeed,
        )?;
        if self.is_cached(at, bytes)? {
            // They may be a part of a larger piece of the cache, which goes as a whole.
            fadvise(&self.file, 0, None, Advice::DontNeed)?;
            if self.is_cached(at, bytes)? {
                return Err(io::Error::other(
                    "the file system has no O_DIRECT and keeps what was read in its page cache, which would hide another server: mount it with direct I/O, or move the file",
                ));
            }
        }
        Ok(())
    }

    fn is_cached(&self, start: u64, len: usize) -> io::Result<bool> {
        let mut resident = vec![0u8; len.div_ceil(LEAST_PAGE)];
        // If this process locks its memory, a mapping that can be read would be read at once.
        let access = ProtFlags::empty();
        // SAFETY: a new mapping, which is not read and which ends here.
        unsafe {
            let none = std::ptr::null_mut();
            let map = mmap(none, len, access, MapFlags::PRIVATE, &self.file, start)?;
            let told = libc::mincore(map, len, resident.as_mut_ptr());
            let told = if told == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            };
            munmap(map, len)?;
            told?;
        }
        Ok(resident.iter().any(|page| page & 1 != 0))
    }

    /// Fills `buf`, which is aligned as for `O_DIRECT`.
    pub(crate) fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.forget(at, buf.len())?;
        self.file.read_exact_at(buf, at)
    }

    /// Writes `buf`, which is aligned as for `O_DIRECT`.
    pub(crate) fn write_all_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(buf, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::{ALIGNMENT, Buffer};

    fn dropping(file: &File) -> PastCache {
        PastCache {
            file: reopen(file, true, OFlags::DSYNC).unwrap(),
            way: Way::Drop,
        }
    }

    /// A file system without `O_DIRECT`: what another has written below its page cache is seen.
    #[test]
    fn cached_pages_are_dropped_before_a_read_and_where_they_stay_the_read_is_refused() {
        let mut block = Buffer::new(0, 4096, ALIGNMENT as u32);
        for dir in [".", "/dev/shm"] {
            let Ok(file) = tempfile::tempfile_in(dir) else {
                continue;
            };
            file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
            file.sync_all().unwrap();
            let past = dropping(&file);
            assert!(past.is_cached(0, 65536).unwrap());
            let in_memory = rustix::fs::fstatfs(&file).unwrap().f_type == TMPFS;
            let read = past.read_exact_at(&mut block, 8192);
            if in_memory {
                let e = read.unwrap_err().to_string();
                assert!(e.contains("would hide another server"), "{e}");
            } else {
                read.unwrap();
                past.write_all_at(&[2; 4096], 8192).unwrap();
                past.forget(8192, 4096).unwrap();
                assert!(!past.is_cached(0, 65536).unwrap());
            }
            // There the cache is the medium, which is known.
            let known = PastCache::of(&file, false, true).unwrap();
            known.read_exact_at(&mut block, 8192).unwrap();
            let flags = rustix::fs::fcntl_getfl(&known.file).unwrap();
            let past = flags.contains(OFlags::DIRECT) || known.way == Way::Drop;
            assert!(past || in_memory, "{dir}: {flags:?}");
        }
    }
}
