//! What the mover and recovery ask of the tiers: a few calls on trees of directories.
//!
//! Paths are bytes relative to a tier's root, without a slash in front; the root itself is `.`. Nothing here follows a symbolic
//! link at the end of a path.

use rustix::io::Errno;

/// A tier by number, 0 the fastest.
pub type Tier = u8;

/// Hidden directory at the root of each tier: not part of the namespace.
pub const HIDDEN: &[u8] = b".isotherm";
/// Where copies grow until they are whole.
pub const TEMPS: &[u8] = b".isotherm/tmp";
/// Where intents lie, on tier 0.
pub const INTENTS: &[u8] = b".isotherm/intents";

/// Which file it is, whatever it is called: inode number and time of birth. The second because numbers are used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Id {
    /// Inode number.
    pub ino: u64,
    /// Birth, nanoseconds since 1970; 0 where the file system does not say.
    pub born: u64,
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, below 10^9.
    pub nsec: u32,
}

/// What is known of a file without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Which.
    pub id: Id,
    /// Device of the file system.
    pub dev: u64,
    /// Type and permissions as in `st_mode`.
    pub mode: u32,
    /// Names that it has.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device file, which device.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Room taken, 512 bytes each.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last write.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

/// A path on a tier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct At {
    /// Which tier.
    pub tier: Tier,
    /// Relative to its root.
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
    /// The directory that it is in.
    #[must_use]
    pub fn parent(&self) -> At {
        At::new(self.tier, parent(&self.path))
    }
}

/// The directory that a path is in.
pub fn parent(path: &[u8]) -> &[u8] {
    path.iter()
        .rposition(|b| *b == b'/')
        .map_or(b".", |at| &path[..at])
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

/// The tiers as the mover and recovery see them. Real ones are in `disk/`; `tests/hostile/` has one that loses power.
///
/// Nothing but the two sync calls makes anything durable, and then only what they name.
pub trait Tree {
    /// How many tiers.
    fn tiers(&self) -> Tier;
    /// Is there such a tier, and is it not missing?
    fn is_there(&self, tier: Tier) -> bool {
        tier < self.tiers()
    }
    /// What is there; `None` if nothing is.
    ///
    /// # Errors
    /// The device's.
    fn stat(&mut self, at: &At) -> Result<Option<Facts>, Errno>;
    /// An empty file that was not there, readable by nobody else, with room for `bytes` where the file system can promise that.
    ///
    /// # Errors
    /// It is there, or no room.
    fn create(&mut self, at: &At, bytes: u64) -> Result<(), Errno>;
    /// Copy data from `offset` on, at most about `len` bytes, holes left out. Where to go on; `None` if that was all.
    ///
    /// # Errors
    /// The devices', no room among them.
    fn copy(&mut self, from: &At, to: &At, offset: u64, len: u64) -> Result<Option<u64>, Errno>;
    /// Owner, mode, extended attributes with access lists, and times.
    ///
    /// # Errors
    /// The target cannot hold one of them.
    fn copy_attributes(&mut self, from: &At, to: &At) -> Result<(), Errno>;
    /// A new small file with these bytes.
    ///
    /// # Errors
    /// It is there, or no room.
    fn write(&mut self, at: &At, bytes: &[u8]) -> Result<(), Errno>;
    /// All bytes of a small file.
    ///
    /// # Errors
    /// It is not there, or the device's.
    fn read(&mut self, at: &At) -> Result<Vec<u8>, Errno>;
    /// Names in a directory, in order; none if there is no such directory.
    ///
    /// # Errors
    /// The device's.
    fn list(&mut self, at: &At) -> Result<Vec<Vec<u8>>, Errno>;
    /// Make a file's data and attributes durable.
    ///
    /// # Errors
    /// The device's: nothing is known then of what is durable.
    fn sync_file(&mut self, at: &At) -> Result<(), Errno>;
    /// Make a directory's entries durable.
    ///
    /// # Errors
    /// As [`Tree::sync_file`].
    fn sync_dir(&mut self, at: &At) -> Result<(), Errno>;
    /// Make the directories above a path that this tier lacks, as they are on another.
    ///
    /// # Errors
    /// The device's, or something else is called so.
    fn make_parents(&mut self, at: &At) -> Result<(), Errno>;
    /// Give a file (or directory) another name on its tier; what was called so goes.
    ///
    /// # Errors
    /// The device's.
    fn rename(&mut self, from: &At, to: &[u8]) -> Result<(), Errno>;
    /// Two names of a tier change places.
    ///
    /// # Errors
    /// The device's, or it cannot.
    fn exchange(&mut self, a: &At, b: &[u8]) -> Result<(), Errno>;
    /// One more name for a file on its tier.
    ///
    /// # Errors
    /// The device's, or it cannot.
    fn link(&mut self, from: &At, to: &[u8]) -> Result<(), Errno>;
    /// Take a name away.
    ///
    /// # Errors
    /// The device's.
    fn unlink(&mut self, at: &At) -> Result<(), Errno>;
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
