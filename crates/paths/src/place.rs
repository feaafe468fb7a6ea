//! The directory of a file, as a descriptor, and the name of the file in it.
//!
//! The path is walked one name at a time, and nothing that is on it can be exchanged behind the walk. A link that belongs to root or to this
//! process' user was made by somebody who could write to its goal anyway. A link of another user is followed only into a directory of the
//! same user: it could lead root's writes to a directory that its owner may not write to.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, openat,
    readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::broken;

/// Most links on the way, as in the kernel.
const LINKS_MAX: usize = 40;
/// Begin of the random names.
pub(crate) const PREFIX: &str = ".isotherm-";
/// Attempts to find a free random name.
const NAMES_MAX: usize = 16;

/// A directory and a name in it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) dir: OwnedFd,
    pub(crate) name: OsString,
}

/// What remains of a path: names and `..`.
fn push_front(rest: &mut VecDeque<OsString>, path: &Path) {
    for part in path.components().rev() {
        match part {
            Component::Normal(name) => rest.push_front(name.to_owned()),
            Component::ParentDir => rest.push_front("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
}

fn open_dir(at: impl AsFd, name: &OsStr, more: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | more;
    openat(at, name.as_bytes(), flags, Mode::empty())
}

fn kind(s: &Stat) -> FileType {
    FileType::from_raw_mode(s.st_mode)
}

impl Place {
    /// The place of `file`, whose directory must exist. With `behind`, links at its name are followed, too.
    ///
    /// # Errors
    /// A part of the path is missing or no directory, there are too many links, or one of them is another user's and leads to a directory
    /// that is not.
    pub(crate) fn of(file: &Path, behind: bool) -> io::Result<Place> {
        let mut rest = VecDeque::new();
        push_front(&mut rest, file);
        let start = if file.is_absolute() { "/" } else { "." };
        let mut dir = open_dir(CWD, start.as_ref(), OFlags::DIRECTORY)?;
        let (mut links, mut strangers) = (0, Vec::new());
        let own = rustix::process::geteuid().as_raw();
        loop {
            let name = rest.pop_front().ok_or(io::ErrorKind::InvalidInput)?;
            let is_last = rest.is_empty();
            if is_last && (!behind || name == "..") {
                break check(dir, name, &strangers, file);
            }
            let next = match open_dir(&dir, &name, OFlags::NOFOLLOW) {
                Err(Errno::NOENT) if is_last => break check(dir, name, &strangers, file),
                other => other?,
            };
            let found = fstat(&next)?;
            if kind(&found) != FileType::Symlink {
                if is_last {
                    break check(dir, name, &strangers, file);
                }
                dir = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            if fstatfs(&next)?.f_type == PROC_SUPER_MAGIC && !is_last {
                // The kernel alone knows what the links of a process lead to.
                dir = open_dir(&dir, &name, OFlags::DIRECTORY)?;
                continue;
            }
            if found.st_uid != 0 && found.st_uid != own {
                strangers.push(found.st_uid);
            }
            let target = readlinkat(&next, c"", Vec::new())?;
            let target = OsString::from_vec(target.into_bytes());
            let target = Path::new(&target);
            if target.is_absolute() {
                dir = open_dir(CWD, "/".as_ref(), OFlags::DIRECTORY)?;
            }
            push_front(&mut rest, target);
        }
    }

    /// What is under the name now, without following a link.
    pub(crate) fn stat(&self) -> Option<Stat> {
        statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// Makes a file under `name` in the directory, with the permissions `mode` less the umask.
    pub(crate) fn create_as(&self, name: &OsStr, mode: u32) -> rustix::io::Result<File> {
        let mut flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        if !broken("FollowPlanted") {
            flags |= OFlags::EXCL | OFlags::NOFOLLOW;
        }
        openat(&self.dir, name, flags, Mode::from_raw_mode(mode)).map(File::from)
    }

    /// Calls `make` with random names until one is free.
    pub(crate) fn at_a_new_name<T>(
        &self,
        mut make: impl FnMut(&OsStr) -> rustix::io::Result<T>,
    ) -> io::Result<(OsString, T)> {
        let mut left = NAMES_MAX;
        loop {
            let mut bytes = [0; 8];
            // Eight bytes are always returned whole.
            getrandom(&mut bytes, GetRandomFlags::empty())?;
            let mut name = OsString::from(format!("{PREFIX}{:016x}", u64::from_le_bytes(bytes)));
            if broken("FollowPlanted") {
                name = OsString::from(format!("{}.new", self.name.display()));
            }
            match make(&name) {
                Err(Errno::EXIST | Errno::ADDRINUSE) if left > 0 => left -= 1,
                other => return Ok((name, other?)),
            }
        }
    }

    /// Gives the file that is called `new` the name of the place.
    pub(crate) fn rename_from(&self, new: &OsStr) -> rustix::io::Result<()> {
        renameat(&self.dir, new, &self.dir, &self.name)
    }

    /// Removes a file of this process. Nobody can act on a failure.
    pub(crate) fn remove(&self, name: &OsStr) {
        let _ = unlinkat(&self.dir, name, AtFlags::empty());
    }

    /// Makes changes of names in the directory durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(&self.dir, c".", flags, Mode::empty()).and_then(|d| rustix::fs::fsync(&d)) {
            // This file system cannot sync a directory.
            Err(Errno::INVAL) => Ok(()),
            other => Ok(other?),
        }
    }

    /// A path for calls that take no descriptor.
    pub(crate) fn path_of(&self, name: &OsStr) -> std::path::PathBuf {
        let dir = self.dir.as_raw_fd().to_string();
        Path::new("/proc/self/fd").join(dir).join(name)
    }
}

fn check(dir: OwnedFd, name: OsString, strangers: &[u32], file: &Path) -> io::Result<Place> {
    let owner = fstat(&dir)?.st_uid;
    match strangers.iter().find(|s| **s != owner) {
        Some(stranger) if !broken("FollowStrangers") => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "a link in {} was made by the user with number {stranger} and leads to a directory of another user: name that directory itself",
                file.display()
            ),
        )),
        _ => Ok(Place { dir, name }),
    }
}
