//! Calls on the names of a tier that stay below its root.
//!
//! Users may be able to reach the directories of a tier directly, and this program usually runs as root. Somebody who puts a symbolic link
//! in the place of a directory must not make it change files elsewhere. So each call opens the directory of a name without following any
//! link, and then works on the name in that directory. A name is removed only from the file that the caller means, and only regular files
//! are opened.

use super::root::{Root, facts, facts_of, wanted};
use crate::mutants::{Mutant, broken, step};
use crate::tree::Facts;
use crate::tree::{Id, REG, TEMPS, TYPE, join};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Statx};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// The directory of a name.
pub(super) enum Dir<'a> {
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

/// Whether these are the attributes of a regular file.
pub(crate) fn is_regular(f: &Facts) -> bool {
    f.mode & TYPE == REG
}

/// Opens an open file once more, in another way. Its path is not walked.
pub(crate) fn reopen(fd: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path_of(fd.as_fd()), flags, Mode::empty())
}

/// The path of an open file, for calls that take no descriptor. It leads to that file, whatever has its name now.
pub(crate) fn path_of(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

impl Root {
    /// Opens a path below the root without following links and without leaving the file system.
    ///
    /// # Errors
    /// A system error: `ELOOP` if a part of the path is a link, `EXDEV` if another file system is mounted there.
    pub fn open_at(&self, path: &[u8], flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
        step(&self.path)?;
        if self.unprepared.load(Ordering::Relaxed) && path.starts_with(TEMPS) {
            self.prepare_now()?;
        }
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode);
        if broken(Mutant::FollowLinks) {
            return rustix::fs::openat(&self.fd, path, flags, mode);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(&self.fd, path, flags, mode, resolve) {
            Err(Errno::NOSYS) => self.open_by_steps(path, flags, mode),
            other => other,
        }
    }
    /// As [`Root::open_at`], for kernels without `openat2` (before Linux 5.6): each directory of the path is opened for itself.
    fn open_by_steps(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let mut words = path.split(|b| *b == b'/').filter(|w| !w.is_empty());
        let last = words.next_back().unwrap_or(b".");
        let mut here = Dir::Root(&self.fd);
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for word in words {
            here = Dir::Below(rustix::fs::openat(&here, word, step, Mode::empty())?);
            if facts_of(&here)?.dev != self.dev {
                return Err(Errno::XDEV);
            }
        }
        let fd = rustix::fs::openat(&here, last, flags, mode)?;
        if facts_of(&fd)?.dev != self.dev {
            return Err(Errno::XDEV);
        }
        Ok(fd)
    }
    /// Opens a regular file, and returns its attributes. Anything else is not opened, not even for a moment: it may be a device that acts on
    /// it, or a pipe that waits.
    ///
    /// # Errors
    /// `ESTALE` if it is not a regular file; a system error.
    pub(crate) fn open_regular(
        &self,
        path: &[u8],
        flags: OFlags,
    ) -> Result<(OwnedFd, Facts), Errno> {
        let found = self.entry(path)?;
        let facts = facts_of(&found)?;
        if !is_regular(&facts) && !broken(Mutant::OpenAnything) {
            return Err(Errno::STALE);
        }
        let fd = reopen(found, flags | OFlags::NONBLOCK)?;
        if self.local {
            return Ok((fd, facts));
        }
        // Opening a file asks its server what is new.
        let facts = facts_of(&fd)?;
        Ok((fd, facts))
    }
    /// Opens a regular file for reading and writing, or only for reading if it cannot be written.
    pub(crate) fn open_data(&self, path: &[u8]) -> Result<(OwnedFd, bool, Facts), Errno> {
        match self.open_regular(path, OFlags::RDWR) {
            Ok((fd, facts)) => Ok((fd, true, facts)),
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::TXTBSY) => {
                let (fd, facts) = self.open_regular(path, OFlags::RDONLY)?;
                Ok((fd, false, facts))
            }
            Err(e) => Err(e),
        }
    }
    /// What has a name, and the directory of the name; `None` if there is nothing. A link in the place of a directory is an error (`ELOOP`).
    pub(super) fn look(&self, path: &[u8]) -> Result<Option<(Dir<'_>, Statx)>, Errno> {
        let found = self.dir_and_name(path).and_then(|(dir, name)| {
            let there = rustix::fs::statx(&dir, name, AtFlags::SYMLINK_NOFOLLOW, wanted())?;
            Ok((dir, there))
        });
        match found {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            other => other.map(Some),
        }
    }
    /// The attributes of a path; `None` if it does not exist.
    ///
    /// # Errors
    /// A device error, or a link in the place of a directory. A path that does not exist is not an error.
    pub fn stat(&self, path: &[u8]) -> Result<Option<Facts>, Errno> {
        Ok(self.look(path)?.map(|(_, there)| facts(&there)))
    }
    pub(super) fn dir_and_name<'a>(&self, path: &'a [u8]) -> Result<(Dir<'_>, &'a [u8]), Errno> {
        let Some(at) = path.iter().rposition(|b| *b == b'/') else {
            step(&self.path)?;
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
    /// The target of a symbolic link.
    pub(crate) fn target(&self, path: &[u8]) -> Result<Box<[u8]>, Errno> {
        let target = rustix::fs::readlinkat(self.entry(path)?, c"", Vec::new())?;
        Ok(target.into_bytes().into())
    }
    /// Removes a name.
    pub(crate) fn unlink(&self, path: &[u8], flags: AtFlags) -> Result<(), Errno> {
        let (dir, name) = self.dir_and_name(path)?;
        rustix::fs::unlinkat(dir, name, flags)
    }
    /// As [`Root::unlink`], if the name is still that of the file `id`. Returns false if it is another file's; it is left alone. Linux cannot
    /// compare and remove in one call, so a file that is put there between these two calls is not noticed.
    pub(crate) fn unlink_if(&self, path: &[u8], id: Id) -> Result<bool, Errno> {
        let (dir, name) = self.dir_and_name(path)?;
        let there = rustix::fs::statx(&dir, name, AtFlags::SYMLINK_NOFOLLOW, wanted())?;
        if facts(&there).id != id && !broken(Mutant::RemoveUnseen) {
            return Ok(false);
        }
        rustix::fs::unlinkat(dir, name, AtFlags::empty()).map(|()| true)
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
    /// Renames to a name that does not exist.
    pub(crate) fn rename_new(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        match self.rename(from, to, RenameFlags::NOREPLACE) {
            // The file system does not support flags. A directory replaces only an empty directory.
            Err(Errno::INVAL | Errno::NOSYS) if self.stat(to)?.is_some() => Err(Errno::EXIST),
            Err(Errno::INVAL | Errno::NOSYS) => self.rename(from, to, RenameFlags::empty()),
            other => other,
        }
    }
    /// Renames.
    pub(crate) fn rename(&self, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<(), Errno> {
        let ((from, name), (to, new)) = (self.dir_and_name(from)?, self.dir_and_name(to)?);
        rustix::fs::renameat_with(from, name, to, new, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::choose;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// With and without `openat2`, a link at any depth of a path is refused, and everything else is opened alike.
    #[test]
    fn paths_stay_below_the_root_on_old_kernels_too() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        for at in ["", "a", "a/b", "a/b/c"] {
            fs::write(dir.path().join(at).join("f"), "x").unwrap();
            for to in ["a", "/etc", "f", "..", "nowhere"] {
                let name = format!("to-{}", to.replace('/', "_"));
                symlink(to, dir.path().join(at).join(name)).unwrap();
            }
        }
        let links = ["to-a", "to-_etc", "to-f", "to-..", "to-nowhere"];
        let mut paths: Vec<String> = [
            ".", "a", "a/b", "f", "a/f", "a/b/c/f", "a/f/x", "a/b/x", "x/y",
        ]
        .map(String::from)
        .into();
        for at in ["", "a/", "a/b/", "a/b/c/"] {
            for link in links {
                paths.extend(["", "/f", "/passwd", "/b/f"].map(|end| format!("{at}{link}{end}")));
            }
        }
        let ways = [
            OFlags::RDONLY,
            OFlags::PATH,
            OFlags::RDWR,
            OFlags::PATH | OFlags::DIRECTORY,
        ];
        for path in paths {
            for flags in ways {
                let opened = |r: Result<OwnedFd, Errno>| r.and_then(facts_of).map(|f| f.id);
                let usual = opened(root.open_at(path.as_bytes(), flags, 0));
                let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let steps = opened(root.open_by_steps(path.as_bytes(), flags, Mode::empty()));
                // They differ only in how they say no.
                assert_eq!(usual.ok(), steps.ok(), "{path} {flags:?}");
            }
        }
    }

    /// Whatever is no regular file is not opened.
    #[test]
    fn only_regular_files_are_opened() {
        if !rustix::process::getuid().is_root() {
            println!("SKIPPED: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let null = rustix::fs::makedev(1, 3);
        for (name, kind, dev) in [
            (&b"pipe"[..], FileType::Fifo, 0),
            (b"socket", FileType::Socket, 0),
            (b"device", FileType::CharacterDevice, null),
            // A loop device that does not exist.
            (
                b"disk",
                FileType::BlockDevice,
                rustix::fs::makedev(7, 1 << 19),
            ),
        ] {
            root.mknod(name, kind, 0o600, dev).unwrap();
        }
        root.symlink(b"file", b"link").unwrap();
        root.mkdir(b"dir", 0o700).unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        for name in ["pipe", "socket", "device", "disk", "link", "dir"] {
            let opened = root.open_data(name.as_bytes()).map(|o| o.1);
            assert_eq!(opened, Err(Errno::STALE), "{name}");
        }
        assert_eq!(root.open_data(b"file").map(|o| o.1), Ok(true));
        choose(Some(Mutant::OpenAnything));
        let opened = root.open_data(b"pipe").is_ok();
        choose(None);
        assert!(opened, "the rule is what refuses it");
    }
}
