//! Calls on the names of a tier that stay below its root.
//!
//! Users may be able to reach the directories of a tier directly, and this program usually runs as root. Somebody who puts a symbolic link
//! in the place of a directory must not make it change files elsewhere. So each call opens the directory of a name without following any
//! link, and then works on the name in that directory.

use super::Root;
use crate::tree::{TEMPS, join};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// The directory of a name.
enum Dir<'a> {
    Root(&'a OwnedFd),
    Below(OwnedFd),
}

impl AsFd for Dir<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Dir::Root(fd) => fd.as_fd(),
            Dir::Below(fd) => fd.as_fd(),
        }
    }
}

/// The path of an open file, for calls that take no descriptor. It leads to that file, whatever has its name now.
pub(crate) fn path_of(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

impl Root {
    fn dir_and_name<'a>(&self, path: &'a [u8]) -> Result<(Dir<'_>, &'a [u8]), Errno> {
        let Some(at) = path.iter().rposition(|b| *b == b'/') else {
            return Ok((Dir::Root(&self.fd), path));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let dir = self.open_at(&path[..at], flags, 0)?;
        Ok((Dir::Below(dir), &path[at + 1..]))
    }
    /// Opens the file or the symbolic link of that name, without access to its contents.
    pub(crate) fn entry(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_at(path, OFlags::PATH, 0)
    }
    /// Removes a name.
    pub(crate) fn unlink(&self, path: &[u8], flags: AtFlags) -> Result<(), Errno> {
        let (dir, name) = self.dir_and_name(path)?;
        rustix::fs::unlinkat(dir, name, flags)
    }
    /// As [`Root::unlink`], for a file in use, on a file system that is not local. The clients of NFS and of some other servers keep a name
    /// that is removed from an open file under another name in the same directory, which then cannot be removed. So the name goes to the
    /// hidden directory first, as number `number`, and is removed there; the next mount removes what is left of it.
    pub(crate) fn unlink_in_use(&self, path: &[u8], number: u64) -> Result<(), Errno> {
        let aside = join(TEMPS, format!("u{number}").as_bytes());
        match self.rename(path, &aside, RenameFlags::empty()) {
            Ok(()) => self.unlink(&aside, AtFlags::empty()),
            Err(_) => self.unlink(path, AtFlags::empty()),
        }
    }
    /// Creates a directory.
    pub(crate) fn mkdir(&self, path: &[u8], mode: u32) -> Result<(), Errno> {
        let (dir, name) = self.dir_and_name(path)?;
        rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(mode))
    }
    /// Creates a symbolic link.
    pub(crate) fn symlink(&self, target: &[u8], path: &[u8]) -> Result<(), Errno> {
        let (dir, name) = self.dir_and_name(path)?;
        rustix::fs::symlinkat(target, dir, name)
    }
    /// Creates a pipe, a socket or a device file.
    pub(crate) fn mknod(
        &self,
        path: &[u8],
        kind: FileType,
        mode: u32,
        rdev: u64,
    ) -> Result<(), Errno> {
        let (dir, name) = self.dir_and_name(path)?;
        rustix::fs::mknodat(dir, name, kind, Mode::from_raw_mode(mode), rdev)
    }
    /// Adds a name to a file.
    pub(crate) fn link(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        let ((from, name), (to, new)) = (self.dir_and_name(from)?, self.dir_and_name(to)?);
        rustix::fs::linkat(from, name, to, new, AtFlags::empty())
    }
    /// Renames.
    pub(crate) fn rename(&self, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<(), Errno> {
        let ((from, name), (to, new)) = (self.dir_and_name(from)?, self.dir_and_name(to)?);
        rustix::fs::renameat_with(from, name, to, new, flags)
    }
}
