//! The entries of an open directory, by name.

use super::number::{Mark, NAMES, is_mark};
use super::root::{facts, wanted};
use crate::tree::Facts;
use rustix::fd::OwnedFd;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// Gives this thread a working directory of its own, so that it can change it without affecting other threads. Returns false if the system
/// does not allow it.
pub(crate) fn own_working_directory() -> bool {
    // rustix marks this call as unsafe because of the flag that separates descriptor tables, which is not used here.
    #[expect(deprecated, reason = "the other name of the call is marked unsafe")]
    let done = rustix::thread::unshare(rustix::thread::UnshareFlags::FS);
    done.is_ok()
}

/// Accesses entries of one directory by name, so no path is walked.
pub(crate) struct DirEntries<'a> {
    dir: &'a OwnedFd,
    /// The path of the directory with a slash; `None` if it is this thread's working directory.
    prefix: Option<String>,
}

impl<'a> DirEntries<'a> {
    /// Entries of that directory. `own`: this thread has a working directory of its own ([`own_working_directory`]). Then names are
    /// resolved in it, because resolving a path through `/proc` costs more than twice as much as the call itself.
    pub(crate) fn new(dir: &'a OwnedFd, own: bool) -> DirEntries<'a> {
        use rustix::fd::AsRawFd;
        let inside = own && rustix::process::fchdir(dir).is_ok();
        let prefix = (!inside).then(|| format!("/proc/self/fd/{}/", dir.as_raw_fd()));
        DirEntries { dir, prefix }
    }
    /// The attributes of an entry.
    pub(crate) fn stat(&self, name: &CStr) -> Result<Option<Facts>, Errno> {
        match rustix::fs::statx(self.dir, name, AtFlags::SYMLINK_NOFOLLOW, wanted()) {
            Ok(s) => Ok(Some(facts(&s))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }
    /// Calls `call` with a path of an entry.
    fn at<T>(&self, name: &CStr, call: impl FnOnce(&CStr) -> Result<T, Errno>) -> Result<T, Errno> {
        let Some(prefix) = &self.prefix else {
            return call(name);
        };
        let path = [prefix.as_bytes(), name.to_bytes()].concat();
        call(&CString::new(path).map_err(|_| Errno::INVAL)?)
    }
    /// Whether an entry has extended attributes besides the one with its number, and whether it may have that one.
    pub(crate) fn xattr_kinds(&self, name: &CStr) -> Result<(bool, bool), Errno> {
        let mut list = [0; 256];
        let listed = match self.at(name, |path| rustix::fs::llistxattr(path, &mut list)) {
            Ok(n) => &list[..n],
            // A longer list.
            Err(Errno::RANGE) => return Ok((true, true)),
            Err(Errno::OPNOTSUPP | Errno::NOENT) => return Ok((false, false)),
            Err(e) => return Err(e),
        };
        let mut names = listed.split(|b| *b == 0).filter(|n| !n.is_empty());
        let marked = names.clone().any(is_mark);
        Ok((names.any(|n| !is_mark(n)), marked))
    }
    /// The value of the attribute with the number.
    pub(crate) fn mark(&self, name: &CStr) -> Option<Mark> {
        NAMES.iter().find_map(|attribute| {
            let mut mark = Mark::default();
            let n = self.at(name, |path| {
                rustix::fs::lgetxattr(path, *attribute, &mut mark)
            });
            (n == Ok(mark.len())).then_some(mark)
        })
    }
}
