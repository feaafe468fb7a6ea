//! The calls of the mover and of recovery on the tiers: a few operations on trees of directories.
//!
//! Paths are bytes relative to a tier's root, without a leading slash; the root itself is `.`. No operation follows a symbolic link at the
//! end of a path.

use crate::mutants::{Mutant, broken};
use rustix::fs::Timespec;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of a tier, 0 the fastest, or of a disk: the mover, the catalogue and intents know disks only. Both numbers are the same where each
/// tier has one disk (see [`crate::layout`]).
pub type Tier = u8;

/// Hidden directory at the root of each tier. It is not part of the namespace.
pub const HIDDEN: &[u8] = b".isotherm";
/// Directory of copies that are not complete yet.
pub const TEMPS: &[u8] = b".isotherm/tmp";
/// Directory of copies of files of slower tiers, on tier 0. A mount empties it, except for the copies that it takes over from a clean
/// unmount (`kept.rs`).
pub const COPIES: &[u8] = b".isotherm/copies";
/// Directory of intents, on tier 0.
pub const INTENTS: &[u8] = b".isotherm/intents";

/// Type bits of a mode.
pub(crate) const TYPE: u32 = 0o170_000;
/// A directory.
pub(crate) const DIR: u32 = 0o040_000;
/// A regular file.
pub(crate) const REG: u32 = 0o100_000;
/// A symbolic link.
pub(crate) const LNK: u32 = 0o120_000;

/// The number of the root directory.
pub(crate) const ROOT_NUMBER: u64 = 1;
/// The lowest of the inode numbers that are shown until the unmount only, for nodes without a lasting number.
pub(crate) const TEMPORARY: u64 = 1 << 63;

/// The beginning of the names that the client of NFS gives to files that were removed while they are open ("silly rename").
pub(crate) const SILLY: &[u8] = b".nfs";

/// The identity of a file, independent of its name: inode number and time of birth. The latter is needed because inode numbers are used
/// again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Id {
    /// Inode number.
    pub ino: u64,
    /// Time of birth in nanoseconds since 1970; 0 if the file system does not have it.
    pub born: u64,
}

/// A time in seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, below 10^9.
    pub nsec: u32,
}

impl From<Time> for Timespec {
    fn from(t: Time) -> Timespec {
        Timespec {
            tv_sec: t.sec,
            tv_nsec: i64::from(t.nsec),
        }
    }
}

/// What tells whether a file has the bytes that it had when it was last seen: whoever changes it directly on its tier changes one of these.
/// Every decision to trust bytes, or attributes that were read earlier, compares two of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    ino: u64,
    born: u64,
    pub(crate) size: u64,
    written: (i64, u32),
}

impl Version {
    /// Whether it is of that file.
    pub(crate) fn is_of(&self, id: Id) -> bool {
        (self.ino, self.born) == (id.ino, id.born)
    }
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its identity.
    pub id: Id,
    /// Device number of the file system.
    pub dev: u64,
    /// Type and permissions as in `st_mode`.
    pub mode: u32,
    /// Number of its names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// For a device file, the number of the device.
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
    /// Space that it takes, in units of 512 bytes.
    pub blocks: u64,
    /// Time of the last read.
    pub atime: Time,
    /// Time of the last write.
    pub mtime: Time,
    /// Time of the last change of data or attributes.
    pub ctime: Time,
    /// Whether the file system refuses changes: it is immutable, append-only, or sealed by fs-verity.
    pub immutable: bool,
    /// Whether its file system encrypts it: a copy on another tier would not be encrypted.
    pub encrypted: bool,
}

impl Facts {
    /// The version of the file's bytes.
    pub fn version(&self) -> Version {
        Version {
            ino: self.id.ino,
            born: self.id.born,
            size: self.size,
            written: (self.mtime.sec, self.mtime.nsec),
        }
    }
    /// Bytes of space that a copy of the file needs: its holes need none.
    pub fn needs(&self) -> u64 {
        self.size.min(self.blocks.saturating_mul(512))
    }
}

/// A path on a tier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct At {
    /// The disk.
    pub tier: Tier,
    /// The path relative to its root.
    pub path: Vec<u8>,
}

impl At {
    /// A path on a tier.
    pub fn new(tier: Tier, path: impl Into<Vec<u8>>) -> At {
        At {
            tier,
            path: path.into(),
        }
    }
    /// The directory of the path.
    #[must_use]
    pub fn parent(&self) -> At {
        At::new(self.tier, parent(&self.path))
    }
}

/// The directory of a path.
pub fn parent(path: &[u8]) -> &[u8] {
    split(path).0
}

/// The directory of a path, and its last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|b| *b == b'/');
    at.map_or((&b"."[..], path), |at| (&path[..at], &path[at + 1..]))
}

/// Seconds since 1970.
pub(crate) fn wall() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs() as i64)
}

/// The disks of a set with one bit for each, in order.
pub(crate) fn disks_in(on: u16) -> impl DoubleEndedIterator<Item = Tier> + Clone {
    (0..16).filter(move |d| on & (1 << d) != 0)
}

/// The directories above a path, the nearest first, the root last.
pub fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut here = Some(path);
    std::iter::from_fn(move || {
        let next = parent(here?);
        here = (next != b".").then_some(next);
        Some(next)
    })
}

/// The path of the copy with this number, on the fastest tier.
pub(crate) fn copy_at(number: u64) -> At {
    At::new(0, join(COPIES, format!("c{number}").as_bytes()))
}

/// `dir/name`.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir == b"." || dir.is_empty() {
        return name.to_vec();
    }
    let mut path = Vec::with_capacity(dir.len() + name.len() + 1);
    path.extend_from_slice(dir);
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

/// The tiers as the mover and recovery see them. The real trees are in `disk/`; the trees in `tests/hostile/` lose power.
///
/// Only the two sync calls make anything durable, and only what they name.
pub trait Tree {
    /// The number of tiers.
    fn tiers(&self) -> Tier;
    /// Whether the tier exists and is not absent.
    fn is_there(&self, tier: Tier) -> bool {
        tier < self.tiers()
    }
    /// The attributes of a path; `None` if it does not exist.
    fn stat(&mut self, at: &At) -> Result<Option<Facts>, Errno>;
    /// Whether the name may be removed or renamed, as far as this is known in advance: neither its file nor its directory is immutable or
    /// append-only, and the directory may be written. Also true if no file has the name.
    fn may_remove(&mut self, at: &At) -> Result<bool, Errno>;
    /// Makes a small change on a tier, which no user sees, to find out whether its file system and its device still accept changes. A file
    /// system that has met an error can become read-only at any time, and says so only to whoever changes something.
    ///
    /// # Errors
    /// `EROFS`, or a device error.
    fn prove_writable(&mut self, tier: Tier) -> Result<(), Errno>;
    /// Creates an empty file that did not exist, readable by its owner only, with space for `bytes` if the file system can reserve it.
    ///
    /// # Errors
    /// It exists, or there is no space.
    fn create(&mut self, at: &At, bytes: u64) -> Result<(), Errno>;
    /// Copies data from `offset` on, at most about `len` bytes, and leaves holes out. Returns the offset at which to continue; `None` at
    /// the end of the data.
    ///
    /// # Errors
    /// A device error, which includes lack of space.
    fn copy(&mut self, from: &At, to: &At, offset: u64, len: u64) -> Result<Option<u64>, Errno>;
    /// Copies owner, mode, extended attributes including access lists, and times.
    ///
    /// # Errors
    /// The target does not support one of them.
    fn copy_attributes(&mut self, from: &At, to: &At) -> Result<(), Errno>;
    /// Gives a copy, which has a hidden name, the inode number that users see of its file.
    ///
    /// # Errors
    /// A device error, which includes lack of space.
    fn set_number(&mut self, _at: &At, _number: u64) -> Result<(), Errno> {
        Ok(())
    }
    /// Creates a small file with these bytes.
    ///
    /// # Errors
    /// It exists, or there is no space.
    fn write(&mut self, at: &At, bytes: &[u8]) -> Result<(), Errno>;
    /// Reads all bytes of a small file.
    ///
    /// # Errors
    /// It does not exist, or a device error.
    fn read(&mut self, at: &At) -> Result<Vec<u8>, Errno>;
    /// The names in a directory, in order; none if the directory does not exist.
    fn list(&mut self, at: &At) -> Result<Vec<Vec<u8>>, Errno>;
    /// Makes the data and attributes of a file durable.
    ///
    /// # Errors
    /// A device error: it is then unknown what is durable.
    fn sync_file(&mut self, at: &At) -> Result<(), Errno>;
    /// Makes the entries of a directory durable.
    fn sync_dir(&mut self, at: &At) -> Result<(), Errno>;
    /// Creates the directories above a path that this tier lacks, with the attributes that they have on another tier.
    ///
    /// # Errors
    /// A device error, or a name is in use by something else.
    fn make_parents(&mut self, at: &At) -> Result<(), Errno>;
    /// Renames a file (or directory) on its tier and replaces a file with the new name.
    fn rename(&mut self, from: &At, to: &[u8]) -> Result<(), Errno>;
    /// Gives a complete copy, which has a hidden name, the name of its file. Another file that has that name is not replaced.
    ///
    /// # Errors
    /// `EEXIST`: another file has the name. A device error.
    fn place(&mut self, from: &At, to: &[u8]) -> Result<(), Errno> {
        if self.stat(&At::new(from.tier, to))?.is_some() && !broken(Mutant::ReplaceForeign) {
            return Err(Errno::EXIST);
        }
        self.rename(from, to)
    }
    /// Exchanges two names of a tier.
    ///
    /// # Errors
    /// A device error, or it is not supported.
    fn exchange(&mut self, a: &At, b: &[u8]) -> Result<(), Errno>;
    /// Adds a name to a file on its tier.
    ///
    /// # Errors
    /// A device error, or it is not supported.
    fn link(&mut self, from: &At, to: &[u8]) -> Result<(), Errno>;
    /// Removes a name.
    fn unlink(&mut self, at: &At) -> Result<(), Errno>;
    /// Removes a name that users see, if it is still that of the file `id`. Returns false if it is another file's by now, which is left
    /// alone.
    ///
    /// # Errors
    /// A device error. A name that does not exist is not an error.
    fn unlink_if(&mut self, at: &At, id: Id) -> Result<bool, Errno> {
        match self.stat(at)? {
            None => Ok(true),
            Some(there) if there.id == id || broken(Mutant::RemoveUnseen) => {
                self.unlink(at).map(|()| true)
            }
            Some(_) => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(parent(b"a/b/c"), b"a/b");
        assert_eq!(parent(b"a"), b".");
        assert_eq!(join(b".", b"a"), b"a");
        assert_eq!(join(b"a/b", b"c"), b"a/b/c");
        let all: Vec<&[u8]> = above(b"a/b/c").collect();
        assert_eq!(all, [&b"a/b"[..], b"a", b"."]);
    }
}
