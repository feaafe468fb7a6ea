//! The versions of the format, and the reasons why a block is not a usable superblock.

use crate::geometry::Kind;

/// The version of the format of tiering volumes.
pub const VERSION: u32 = 2;
/// The version of the format of cache volumes: homes are where addresses say, and only copies have records.
pub const VERSION_CACHE: u32 = 3;

/// The reason why a block is not a usable superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockError {
    /// It is not a superblock of this program.
    Foreign,
    /// Its version, or one of its features, is newer than this program.
    Newer(u32),
    /// Its version is older than this program can read.
    Older(u32),
    /// Its checksum is wrong.
    Damaged,
    /// It cannot be read. This is the number of the system's error.
    Unreadable(i32),
    /// Its checksum is right, but its contents are impossible.
    Impossible(&'static str),
}

/// The version of a volume of this kind.
pub(super) fn version_of(kind: Kind) -> u32 {
    match kind {
        Kind::Tiering => VERSION,
        Kind::Cache => VERSION_CACHE,
    }
}

/// The kind of a volume of this version.
pub(super) fn kind_of(version: u32) -> Result<Kind, SuperblockError> {
    match version {
        0 => Err(SuperblockError::Damaged),
        VERSION => Ok(Kind::Tiering),
        VERSION_CACHE => Ok(Kind::Cache),
        v if v < VERSION => Err(SuperblockError::Older(v)),
        v => Err(SuperblockError::Newer(v)),
    }
}
