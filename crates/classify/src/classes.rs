//! The classes of Differentiated Storage Services (DSS, Tables 3 and 6), and the sources that assign them.

/// Unclassified.
pub const NONE: u8 = 0;
/// Superblocks, the primary one and the backups.
pub const SUPERBLOCK: u8 = 1;
/// Group descriptors, and the blocks that are reserved for further descriptors.
pub const DESCRIPTORS: u8 = 2;
/// Block and inode bitmaps.
pub const BITMAP: u8 = 3;
/// Inode tables.
pub const INODES: u8 = 4;
/// Indirect and extent-tree blocks, and blocks of extended attributes.
pub const INDIRECT: u8 = 5;
/// Directories.
pub const DIRECTORY: u8 = 6;
/// The journal.
pub const JOURNAL: u8 = 7;
/// Data of files up to 4 KiB; each class after it is four times larger, up to [`FILE_LARGEST`].
pub const FILE: u8 = 8;
/// Data of files over 1 GiB.
pub const FILE_LARGEST: u8 = 18;
/// A database's transaction log.
pub const DB_LOG: u8 = 19;
/// System tables.
pub const DB_SYSTEM: u8 = 20;
/// Free space maps.
pub const DB_FREE_SPACE: u8 = 21;
/// Temporary tables.
pub const DB_TEMPORARY: u8 = 22;
/// User tables that are read at random.
pub const DB_RANDOM: u8 = 23;
/// User tables that are read sequentially.
pub const DB_SEQUENTIAL: u8 = 24;
/// Indexes.
pub const DB_INDEX: u8 = 25;
/// Used by front ends that know only that a request is metadata (`REQ_META` of the kernel). If the layout knows the kind of metadata, its
/// class is used; otherwise the class is [`INODES`].
pub const METADATA: u8 = 0x40 | INODES;
/// The largest class.
pub const CLASS_MAX: u8 = 63;

const NAMES: [&str; 26] = [
    "unclassified",
    "superblock",
    "group-descriptor",
    "bitmap",
    "inode",
    "indirect",
    "directory",
    "journal",
    "file-4K",
    "file-16K",
    "file-64K",
    "file-256K",
    "file-1M",
    "file-4M",
    "file-16M",
    "file-64M",
    "file-256M",
    "file-1G",
    "file-larger",
    "db-log",
    "db-system",
    "db-free-space",
    "db-temporary",
    "db-random",
    "db-sequential",
    "db-index",
];

/// The name of a class; `class-N` if no table names it.
pub fn name(class: u8) -> String {
    NAMES
        .get(usize::from(class))
        .map_or_else(|| format!("class-{class}"), |n| (*n).to_owned())
}

/// Parses the name or number of a class.
pub fn parse(text: &str) -> Option<u8> {
    if let Some(i) = NAMES.iter().position(|n| *n == text) {
        return Some(i as u8);
    }
    let digits = text.strip_prefix("class-").unwrap_or(text);
    digits.parse().ok().filter(|c| *c <= CLASS_MAX)
}

/// The class of data in a file of `size` bytes: 8 up to 4 KiB, then one class for each factor of 4 up to 1 GiB, 18 above (Table 3).
pub fn of_file_size(size: u64) -> u8 {
    (FILE..FILE_LARGEST)
        .find(|class| size <= 4096 << (2 * (class - FILE)))
        .unwrap_or(FILE_LARGEST)
}

/// A source of classes, in order of precedence, the highest first. Only metadata that the layout shows precedes all of them (see
/// [`crate::layers`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// Ranges that a user registered.
    Ranges,
    /// A database's catalogue.
    Database,
    /// Files of a mounted file system, by rules.
    Files,
    /// The layout of the file system on the volume.
    Layout,
}

impl Source {
    /// All sources, the highest precedence first.
    pub const ALL: [Source; 4] = [
        Source::Ranges,
        Source::Database,
        Source::Files,
        Source::Layout,
    ];

    /// The name of the source.
    pub fn name(self) -> &'static str {
        match self {
            Source::Ranges => "ranges",
            Source::Database => "database",
            Source::Files => "files",
            Source::Layout => "layout",
        }
    }

    /// The source with that name.
    pub fn parse(text: &str) -> Option<Source> {
        Source::ALL.into_iter().find(|s| s.name() == text)
    }

    /// Its index in [`Source::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_come_back() {
        for c in 0..=CLASS_MAX {
            assert_eq!(parse(&name(c)), Some(c));
            assert_eq!(parse(&c.to_string()), Some(c));
        }
        assert_eq!(parse("64"), None);
        for s in Source::ALL {
            assert_eq!(Source::parse(s.name()), Some(s));
            assert_eq!(Source::ALL[s.index()], s);
        }
    }

    #[test]
    fn sizes_are_those_of_table_3() {
        for (size, class) in [
            (0, 8),
            (4096, 8),
            (4097, 9),
            (16 << 10, 9),
            (1 << 20, 12),
            ((1 << 20) + 1, 13),
            (1 << 30, 17),
            ((1 << 30) + 1, 18),
            (u64::MAX, 18),
        ] {
            assert_eq!(of_file_size(size), class, "{size}");
        }
    }
}
