//! The owner of a block, and the class that follows from it.

use super::inode::Ino;
use crate::record::Flags;

/// The owner of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The superblock.
    Superblock,
    /// A block of group descriptors.
    Descriptors,
    /// A block bitmap or an inode bitmap.
    Bitmap,
    /// A block of an inode table.
    Inodes,
    /// An indirect block of this file or directory.
    Indirect(Ino),
    /// A block of this directory.
    Directory(Ino),
    /// The journal.
    Journal,
    /// Data of this file.
    File(Ino),
}

impl Owner {
    /// The class of DSS Table 3. `size` is the size of the file, and is ignored for other owners.
    pub fn class(self, size: u64) -> u8 {
        match self {
            Owner::Superblock => 1,
            Owner::Descriptors => 2,
            Owner::Bitmap => 3,
            Owner::Inodes => 4,
            Owner::Indirect(_) => 5,
            Owner::Directory(_) => 6,
            Owner::Journal => 7,
            Owner::File(_) => file_class(size),
        }
    }

    /// Whether it is file-system metadata that the journal protects.
    pub fn is_meta(self) -> bool {
        !matches!(self, Owner::File(_) | Owner::Journal)
    }

    pub(super) fn flags(self, waited_write: bool) -> Flags {
        Flags::NONE
            .with(Flags::META, !matches!(self, Owner::File(_)))
            .with(Flags::SYNC, waited_write)
    }

    /// Whether a block of `self` and the next one of `next` may be merged into one request: both have the same class and belong to the same
    /// file.
    pub(super) fn joins(self, next: Owner) -> bool {
        match (self, next) {
            (Owner::File(a), Owner::File(b)) => a == b,
            (a, b) => a.class(0) == b.class(0) && a.is_meta() == b.is_meta(),
        }
    }
}

/// The class of a file of `size` bytes: 8 up to 4 KiB, then one class for each factor of 4 up to 1 GiB, and 18 above (DSS Table 3).
pub fn file_class(size: u64) -> u8 {
    (8..18)
        .find(|class| size <= 4096 << (2 * (class - 8)))
        .unwrap_or(18)
}

#[cfg(test)]
mod tests {
    use super::file_class;

    #[test]
    fn classes_of_file_sizes() {
        for (size, class) in [
            (0, 8),
            (4096, 8),
            (4097, 9),
            (16 << 10, 9),
            (64 << 10, 10),
            (256 << 10, 11),
            (1 << 20, 12),
            ((1 << 20) + 1, 13),
            (256 << 20, 16),
            (1 << 30, 17),
            ((1 << 30) + 1, 18),
            (u64::MAX, 18),
        ] {
            assert_eq!(file_class(size), class, "{size}");
        }
    }
}
