//! A small ext2/3-like file system as a value: file operations in, classified block requests out.
//!
//! ```text
//!  group g:  superblock │ descriptors │ block bitmap │ inode bitmap │ inode table │ [journal] data …
//!
//!  create, write, read, unlink, …  ─►  pages touched  ─►  LRU page cache  ─►  Records in order of time
//!                                                          write-back, journal, age
//! ```
//!
//! There is no payload, only the owner of each block. The output is what a disk below the page cache would see: requests with the class of
//! DSS Table 3 (superblock 1 … journal 7, files 8–18 by their size at that moment).
//!
//! Deliberate simplifications: blocks of 4 KiB, groups of 32 768 blocks, no triple-indirect blocks (files up to 4 GiB), no reservation
//! windows, and no read-ahead beyond what was asked for. Memory: about 100 bytes per file, one bit per block, and about 100 bytes per
//! cached page.

mod alloc;
mod cache;
mod check;
mod files;
mod flush;
mod inode;
mod owner;

use isotherm_core::Nanos;

use crate::record::{Op, Record};
use alloc::Group;
use cache::Cache;
pub use inode::Ino;
pub use owner::{Owner, file_class};

/// Bytes of a block of the layout.
pub const BLOCK: u32 = 4096;
/// Blocks of a group: what one bitmap block covers.
const GROUP_BLOCKS: u32 = BLOCK * 8;
/// Bytes of an inode (ext3's default since 2008).
const INODE_BYTES: u32 = 256;
/// Inodes in a block of the inode table.
const INODES_PER_BLOCK: u32 = BLOCK / INODE_BYTES;
/// Bytes of a group descriptor.
const DESCRIPTOR_BYTES: u32 = 32;
/// Number of blocks to which an inode points directly.
const DIRECT: u32 = 12;
/// Pointers in an indirect block.
const POINTERS: u32 = BLOCK / 4;
/// Blocks of the largest file: direct, indirect and double indirect.
const FILE_BLOCKS_MAX: u32 = DIRECT + POINTERS + POINTERS * POINTERS;

/// The service times of the modelled disk. They only set the time stamps, so that planning intervals and ages are meaningful.
///
/// A replay in a closed loop ignores these time stamps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Time of a request that does not begin where the last one ended, without its transfer.
    pub random: Nanos,
    /// Time of a request that begins where the last one ended, without its transfer.
    pub sequential: Nanos,
    /// Transfer, bytes per second, at least 1.
    pub bytes_per_s: u64,
}

impl Default for Service {
    /// A 7200-rpm disk: 8 ms (Loris Table I: 112 random reads a second), 0.1 ms, 126 MB/s.
    fn default() -> Service {
        Service {
            random: Nanos(8_000_000),
            sequential: Nanos(100_000),
            bytes_per_s: 126_000_000,
        }
    }
}

/// Configuration of the layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bytes of the volume, at least 16 MiB, at most 16 TiB.
    pub bytes: u64,
    /// Bytes of volume per inode, 4 KiB … 4 MiB (mke2fs takes 16 KiB).
    pub bytes_per_inode: u32,
    /// Bytes of the journal; 0 for none (ext2). At most half a group (64 MiB).
    pub journal_bytes: u64,
    /// Bytes of the page cache, at least 64 pages.
    pub cache_bytes: u64,
    /// Mounted with the sync option: an operation returns when its blocks are written.
    pub sync: bool,
    /// Interval at which everything is written back and the page cache is emptied (OODT 4.1: every second).
    pub drop_every: Option<Nanos>,
    /// Longest request, in bytes, a multiple of 4 KiB.
    pub max_request: u32,
    /// Interval at which transactions are committed and old pages are looked for (ext3: 5 s).
    pub commit_every: Nanos,
    /// Dirty pages older than this are written back (Linux: 30 s).
    pub dirty_age: Nanos,
    /// Share of the page cache that may be dirty, in percent (Linux: 20).
    pub dirty_percent: u32,
    /// Whether a commit ends with a FLUSH (barriers; off in the ext3 of the papers).
    pub barriers: bool,
    /// Whether a data block is written under the class of the size that the file had when the block was added (DSS 4.2.1: sizes are
    /// approximate while a file grows). Otherwise it is written under the class of the size at write-back.
    pub class_at_growth: bool,
    /// Whether reads update the access time and so dirty the inode (off: noatime).
    pub atime: bool,
    /// Number of inodes that stay in memory with their names. Looking these up reads nothing. Emptying the page cache does not drop them.
    pub inode_cache: u32,
    /// Bytes of a directory entry, 12 … 264 (8 + name).
    pub entry_bytes: u32,
    /// Whether freed blocks are discarded at once, before anything is written back (Loris V-D2: deletes go down the layers immediately).
    pub discard: bool,
    /// A file begins at a multiple of this number of blocks, in a room of that size that holds no other file, as long as rooms are free: 0
    /// (files are adjacent) or a power of two up to 64. An extent of that size then holds one file, as with placement of whole files (Loris
    /// III-F).
    pub room_blocks: u32,
    /// Processor time of an operation.
    pub think: Nanos,
    /// The modelled disk.
    pub service: Service,
    /// [`Record::device`] of all records.
    pub device: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            bytes: 8 << 30,
            bytes_per_inode: 16 << 10,
            journal_bytes: 32 << 20,
            cache_bytes: 64 << 20,
            sync: false,
            drop_every: None,
            max_request: 512 << 10,
            commit_every: Nanos::from_secs(5),
            dirty_age: Nanos::from_secs(30),
            dirty_percent: 20,
            barriers: false,
            class_at_growth: false,
            atime: false,
            inode_cache: 65_536,
            entry_bytes: 32,
            discard: false,
            room_blocks: 0,
            think: Nanos(20_000),
            service: Service::default(),
            device: 0,
        }
    }
}

/// The reason why a file operation failed. A failed operation has no effect, except that a failed write may have grown the file in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The configuration is out of its bounds.
    #[error("the layout's {0} is out of bounds")]
    Config(&'static str),
    /// No free block.
    #[error("the file system is full: take a larger volume")]
    NoSpace,
    /// No free inode.
    #[error("the file system has no free inode: take a larger volume")]
    NoInode,
    /// No file or directory has this inode number, or it is of the other kind.
    #[error("no such file or directory: inode {0}")]
    NotFound(u32),
    /// A directory that is not empty cannot be removed, nor can the root.
    #[error("the directory is not empty: inode {0}")]
    NotEmpty(u32),
    /// The file would be larger than 4 GiB.
    #[error("the file is too large: at most 4 GiB")]
    TooLarge,
}

/// The file system. It collects records until [`FileSystem::drain`] takes them.
#[derive(Debug)]
pub struct FileSystem {
    config: Config,
    now: Nanos,
    groups: Vec<Group>,
    shape: Shape,
    cache: Cache,
    /// Inodes in memory. It is only asked whether it holds an inode, so the order of hashes decides nothing.
    known: lru::LruCache<Ino, ()>,
    /// Inodes in a table behind the volume, and their blocks: [`FileSystem::move_inodes`].
    moved: std::collections::HashMap<Ino, u32>,
    journal: Journal,
    next_commit: Nanos,
    next_drop: Nanos,
    /// The position of the modelled disk's head.
    head: u64,
    out: Vec<Record>,
    /// A scratch list of write-back, kept for its allocation.
    picked: Vec<(u32, Owner)>,
    used_blocks: u64,
    root: Ino,
    /// Set while the image is created: nothing is cached or written.
    quiet: bool,
}

/// The arrangement of a group.
#[derive(Clone, Copy, Debug)]
struct Shape {
    blocks: u32,
    descriptor_blocks: u32,
    inodes_per_group: u32,
}

fn check(ok: bool, what: &'static str) -> Result<(), LayoutError> {
    ok.then_some(()).ok_or(LayoutError::Config(what))
}

impl Config {
    /// Checks each value alone.
    fn check(&self) -> Result<(), LayoutError> {
        check(
            (16 << 20..=16 << 40).contains(&self.bytes),
            "volume size (16 MiB to 16 TiB)",
        )?;
        check(
            (4096..=4 << 20).contains(&self.bytes_per_inode),
            "bytes per inode (4 KiB to 4 MiB)",
        )?;
        check(self.journal_bytes <= 64 << 20, "journal (at most 64 MiB)")?;
        check(
            self.max_request >= BLOCK && self.max_request.is_multiple_of(BLOCK),
            "longest request (a multiple of 4 KiB)",
        )?;
        check(
            (12..=264).contains(&self.entry_bytes),
            "directory entry (12 to 264 bytes)",
        )?;
        check(
            (1..=100).contains(&self.dirty_percent),
            "dirty share (1 to 100 %)",
        )?;
        check(
            self.room_blocks == 0 || self.room_blocks.is_power_of_two() && self.room_blocks <= 64,
            "room of a file (a power of two up to 256 KiB)",
        )?;
        check(self.service.bytes_per_s > 0, "transfer rate (at least 1)")?;
        Ok(())
    }
}

impl Shape {
    /// The shape, and the number of groups.
    fn of(config: &Config) -> Result<(Shape, u32), LayoutError> {
        let blocks = (config.bytes / u64::from(BLOCK)).min(u64::from(u32::MAX)) as u32;
        let mut groups = blocks.div_ceil(GROUP_BLOCKS);
        let mut shape = Shape {
            blocks,
            descriptor_blocks: (groups * DESCRIPTOR_BYTES).div_ceil(BLOCK),
            // A bitmap block covers 32 768 inodes.
            inodes_per_group: (u64::from(GROUP_BLOCKS) * u64::from(BLOCK)
                / u64::from(config.bytes_per_inode))
            .min(u64::from(GROUP_BLOCKS))
            .next_multiple_of(u64::from(INODES_PER_BLOCK)) as u32,
        };
        // A last group that is too small for data is left out, as mke2fs does.
        if groups > 1 && shape.group_blocks(groups - 1) <= shape.overhead() {
            groups -= 1;
            shape.blocks = groups * GROUP_BLOCKS;
        }
        check(
            shape.group_blocks(0) > 2 * shape.overhead(),
            "volume size (too small for its inodes)",
        )?;
        Ok((shape, groups))
    }
    fn block_bitmap(self, group: u32) -> u32 {
        group * GROUP_BLOCKS + 1 + self.descriptor_blocks
    }
    fn inode_bitmap(self, group: u32) -> u32 {
        self.block_bitmap(group) + 1
    }
    fn inode_table(self, group: u32) -> u32 {
        self.block_bitmap(group) + 2
    }
    fn table_blocks(self) -> u32 {
        self.inodes_per_group / INODES_PER_BLOCK
    }
    /// Blocks of a group before its data.
    fn overhead(self) -> u32 {
        3 + self.descriptor_blocks + self.table_blocks()
    }
    /// Blocks of `group`; the last one may be short.
    fn group_blocks(self, group: u32) -> u32 {
        (self.blocks - group * GROUP_BLOCKS).min(GROUP_BLOCKS)
    }
}

/// The journal: a ring of blocks.
#[derive(Clone, Debug, Default)]
struct Journal {
    first: u32,
    blocks: u32,
    /// Next block to write, from `first`; 0 holds the journal's superblock.
    at: u32,
    /// Blocks written since the last checkpoint.
    used: u32,
    /// Metadata blocks of the running transaction, which may not be written to their places yet.
    running: std::collections::BTreeSet<u32>,
}

impl FileSystem {
    /// Creates an empty file system with a root directory, in the state after mkfs and mount: nothing is cached and nothing is written.
    ///
    /// # Errors
    /// [`LayoutError::Config`].
    pub fn new(config: Config) -> Result<FileSystem, LayoutError> {
        config.check()?;
        let (shape, groups) = Shape::of(&config)?;
        let journal_blocks = (config.journal_bytes / u64::from(BLOCK)) as u32;
        check(
            journal_blocks == 0 || journal_blocks >= 64,
            "journal (at least 256 KiB)",
        )?;
        let first = shape.overhead();
        check(
            first + journal_blocks < shape.group_blocks(0),
            "journal (larger than the first group)",
        )?;
        let groups = (0..groups).map(|g| {
            let reserved = first + if g == 0 { journal_blocks } else { 0 };
            Group::new(shape.group_blocks(g), reserved, shape.inodes_per_group)
        });
        let mut fs = FileSystem {
            now: Nanos(0),
            groups: groups.collect(),
            shape,
            cache: Cache::new((config.cache_bytes / u64::from(BLOCK)).max(64) as usize),
            known: lru::LruCache::unbounded(),
            moved: std::collections::HashMap::new(),
            journal: Journal {
                first,
                blocks: journal_blocks,
                at: 1,
                ..Journal::default()
            },
            next_commit: config.commit_every,
            next_drop: config.drop_every.unwrap_or(Nanos(u64::MAX)),
            head: 0,
            out: Vec::new(),
            picked: Vec::new(),
            used_blocks: 0,
            root: Ino(0),
            quiet: false,
            config,
        };
        fs.root = fs.make_root()?;
        fs.forget_io();
        Ok(fs)
    }

    /// The root directory.
    pub fn root(&self) -> Ino {
        self.root
    }

    /// The time of the next request.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Bytes of files, directories and their indirect blocks.
    pub fn used_bytes(&self) -> u64 {
        self.used_blocks * u64::from(BLOCK)
    }

    /// Whether there are records to take.
    pub fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Moves the records made so far to the end of `out`.
    pub fn drain(&mut self, out: &mut Vec<Record>) {
        out.append(&mut self.out);
    }

    /// From here to [`FileSystem::forget_io`], operations only allocate. The resulting image is the same, and it is created many times
    /// faster.
    pub fn make_image(&mut self) {
        self.quiet = true;
    }

    /// Drops the records made so far and keeps the page cache.
    pub fn forget_output(&mut self) {
        self.out.clear();
    }

    /// Writes everything back, empties the page cache, drops the records made so far and sets the clock to zero. The state at this point is
    /// the image on which the trace begins.
    pub fn forget_io(&mut self) {
        self.quiet = false;
        self.write_everything();
        self.cache.drop_clean();
        self.known.clear();
        (self.journal.at, self.journal.used, self.head) = (1, 0, 0);
        self.out.clear();
        self.now = Nanos(0);
        self.next_commit = self.config.commit_every;
        self.next_drop = self.config.drop_every.unwrap_or(Nanos(u64::MAX));
    }

    /// Writes everything back and empties the page cache and the inode cache, as unmounting does.
    pub fn drop_caches(&mut self) {
        self.write_everything();
        self.cache.drop_clean();
        self.known.clear();
    }

    /// Lets time pass without requests. Write-back that falls due in this time is done.
    pub fn idle(&mut self, time: Nanos) {
        self.now.0 = self.now.0.saturating_add(time.0);
        self.on_time();
    }

    /// Reads a metadata block unless it is cached.
    fn read_meta(&mut self, block: u32, owner: Owner) {
        if !self.quiet && !self.cache.touch(block) {
            self.emit(Op::Read, block, 1, owner, true);
            self.cache_in(block, owner);
        }
    }

    /// Reads a metadata block unless it is cached, then changes it.
    fn change_meta(&mut self, block: u32, owner: Owner) {
        self.read_meta(block, owner);
        self.dirty_meta(block, owner);
    }

    /// Changes a metadata block that need not be read, because it is cached or new.
    fn dirty_meta(&mut self, block: u32, owner: Owner) {
        if self.quiet {
            return;
        }
        self.cache_in(block, owner);
        self.cache.dirty(block, owner, self.now);
        if self.journal.blocks > 0 {
            self.journal.running.insert(block);
        }
    }

    /// The class under which a block is written.
    fn written_class(&self, owner: Owner, block: u32) -> u8 {
        let Owner::File(ino) = owner else {
            return owner.class(0);
        };
        let size = self.size(ino);
        let grown = self
            .position(ino, block)
            .filter(|_| self.config.class_at_growth);
        let grown = grown.map_or(size, |i| (u64::from(i) + 1) * u64::from(BLOCK));
        owner.class(size.min(grown))
    }

    /// Discards freed blocks on the disk. This takes no disk time.
    fn emit_discard(&mut self, block: u32, blocks: u32) {
        if self.config.discard && !self.quiet {
            self.out.push(Record {
                device: self.config.device,
                ..Record::new(
                    self.now,
                    Op::Discard,
                    u64::from(block) * u64::from(BLOCK),
                    blocks * BLOCK,
                )
            });
        }
    }

    /// A request to the disk, and the time it takes.
    fn emit(&mut self, op: Op, block: u32, blocks: u32, owner: Owner, waited: bool) {
        let offset = u64::from(block) * u64::from(BLOCK);
        let len = blocks * BLOCK;
        let file_size = match owner {
            Owner::File(ino) => Some(self.size(ino)),
            _ => None,
        };
        self.out.push(Record {
            device: self.config.device,
            class: match op {
                Op::Write => self.written_class(owner, block),
                _ => owner.class(file_size.unwrap_or(0)),
            },
            flags: owner.flags(op == Op::Write && waited),
            file_size,
            ..Record::new(self.now, op, offset, len)
        });
        let s = self.config.service;
        let seek = if self.head == offset {
            s.sequential
        } else {
            s.random
        };
        let transfer = u64::from(len).saturating_mul(1_000_000_000) / s.bytes_per_s;
        self.now.0 = self.now.0.saturating_add(seek.0).saturating_add(transfer);
        self.head = offset + u64::from(len);
    }
}
