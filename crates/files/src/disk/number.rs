//! The lasting inode number of a file, in an extended attribute of the file that users of the mount neither see nor set.
//!
//! The value is the number and a check sum of it and of the file's identity (inode, time of birth), each of 8 bytes. So the attribute of a
//! file that was copied with its attributes, or restored from a backup, says nothing about the copy: that has another inode or birth. The
//! value is short because ext4 has room for little more than 90 bytes of attributes beside an inode of 256 bytes, and access lists want to
//! be there, too.

use super::names::path_of;
use super::root::{Root, facts_of};
use crate::mutants::{Mutant, broken};
use crate::tree::{Id, ROOT_NUMBER, TEMPORARY, parent};
use isotherm_core::random::mix;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, OFlags, XattrFlags};
use rustix::io::Errno;
use std::ffi::CStr;

/// Its names: root uses the first one, which symbolic links can have, too, and the second one where a file system lacks the first.
pub(super) const NAMES: [&CStr; 2] = [c"trusted.isotherm", c"user.isotherm"];

/// A value as it is stored.
pub(crate) type Mark = [u8; 16];

/// Whether an extended attribute is that of the number.
pub(crate) fn is_mark(name: &[u8]) -> bool {
    NAMES.iter().any(|n| n.to_bytes() == name)
}

fn check_sum(id: Id, number: u64) -> u64 {
    mix(mix(mix(id.ino) ^ id.born) ^ number)
}

fn encode(id: Id, number: u64) -> Mark {
    (u128::from(check_sum(id, number)) << 64 | u128::from(number)).to_le_bytes()
}

/// The number in a value, if the value is of the file `id`.
pub(crate) fn decode(mark: Mark, id: Id) -> Option<u64> {
    let value = u128::from_le_bytes(mark);
    let number = value as u64;
    let own = (value >> 64) as u64 == check_sum(id, number) || broken(Mutant::TrustCopiedNumber);
    (own && number > ROOT_NUMBER && number < TEMPORARY).then_some(number)
}

/// Stores the number of an open file `id`, which may be open without access to its contents. Returns false if the file cannot have the
/// attribute, because of its file system, its kind or its mode, or because its other attributes leave no room (ext4).
pub(crate) fn set_number(fd: impl AsFd, id: Id, number: u64) -> Result<bool, Errno> {
    let value = encode(id, number);
    for name in NAMES {
        let set = match rustix::fs::fsetxattr(&fd, name, &value, XattrFlags::empty()) {
            Err(Errno::BADF) => {
                let path = path_of(fd.as_fd());
                rustix::fs::setxattr(path, name, &value, XattrFlags::empty())
            }
            other => other,
        };
        match set {
            Ok(()) => return Ok(true),
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
            Err(Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG | Errno::RANGE) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

/// The number of an open file `id`, if it has one of its own.
pub(crate) fn number_of(fd: impl AsFd, id: Id) -> Option<u64> {
    let path = path_of(fd.as_fd());
    NAMES.iter().find_map(|name| {
        let mut mark = Mark::default();
        let n = rustix::fs::getxattr(&path[..], *name, &mut mark).ok()?;
        (n == mark.len()).then(|| decode(mark, id))?
    })
}

impl Root {
    /// Creates a regular file that gets its name when it is complete ([`Root::give_name`]), so that nobody finds it before. Returns also
    /// whether it has its name already, because the file system cannot do that.
    pub(crate) fn new_file(&self, path: &[u8], mode: u32) -> Result<(OwnedFd, bool), Errno> {
        match self.open_at(parent(path), OFlags::RDWR | OFlags::TMPFILE, mode) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
                Ok((self.open_at(path, flags, mode)?, true))
            }
            other => Ok((other?, false)),
        }
    }
    /// Gives a file without a name that name.
    ///
    /// # Errors
    /// `EEXIST`; a system error.
    pub(crate) fn give_name(&self, fd: &OwnedFd, path: &[u8]) -> Result<(), Errno> {
        let (dir, name) = self.dir_and_name(path)?;
        let from = path_of(fd.as_fd());
        rustix::fs::linkat(CWD, from, dir, name, AtFlags::SYMLINK_FOLLOW)
    }
    /// The number of what has a path, if it has one of its own.
    pub(crate) fn number_at(&self, path: &[u8], id: Id) -> Result<Option<u64>, Errno> {
        let found = self.entry(path)?;
        Ok((facts_of(&found)?.id == id)
            .then(|| number_of(&found, id))
            .flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose attributes leave no room for one more can be moved and made all the same.
    #[test]
    fn full_attributes_are_no_error() {
        let file = tempfile::tempfile().unwrap();
        let id = facts_of(&file).unwrap().id;
        let fill = |i: usize, bytes| {
            let name = format!("user.{i}");
            rustix::fs::fsetxattr(&file, name, &vec![7; bytes], XattrFlags::empty())
        };
        let full = [3000, 300, 60, 8, 1]
            .into_iter()
            .enumerate()
            .all(|(at, bytes)| (0..100).any(|i| fill(at * 100 + i, bytes) == Err(Errno::NOSPC)));
        if !full {
            println!("SKIPPED: attributes have room without a limit here, or none");
            return;
        }
        assert_eq!(set_number(&file, id, 5), Ok(false));
    }

    #[test]
    fn a_value_belongs_to_one_file() {
        let id = Id { ino: 7, born: 9 };
        let mark = encode(id, 5);
        assert_eq!(decode(mark, id), Some(5));
        for other in [Id { ino: 8, born: 9 }, Id { ino: 7, born: 8 }] {
            assert_eq!(decode(mark, other), None);
        }
        for at in 0..mark.len() {
            let mut bad = mark;
            bad[at] ^= 1;
            assert_eq!(decode(bad, id), None, "{at}");
        }
        for number in [0, 1, TEMPORARY, u64::MAX] {
            assert_eq!(decode(encode(id, number), id), None);
        }
    }
}
