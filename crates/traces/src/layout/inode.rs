//! Inodes, names in directories, and the mapping from a file to its blocks.

use smallvec::SmallVec;

use super::{
    BLOCK, DIRECT, FILE_BLOCKS_MAX, FileSystem, INODES_PER_BLOCK, LayoutError, Owner, POINTERS,
};
use crate::record::Op;

/// The number of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u32);

/// Neighbouring blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub first: u32,
    pub blocks: u32,
}

/// A file or a directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub kind: Kind,
    pub size: u64,
    /// The parent directory, and the index of the name in it.
    pub parent: Ino,
    pub slot: u32,
    /// Data blocks in the order of the file.
    pub runs: SmallVec<[Run; 1]>,
    /// Indirect blocks in the order in which a growing file needs them.
    pub indirect: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
pub(super) enum Kind {
    #[default]
    Free,
    File,
    Directory(Box<Names>),
}

/// The names in a directory. Only their number and the free entries are kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub live: u32,
    /// Entries that were ever used. The blocks of a directory are never freed (as in ext3).
    pub places: u32,
    pub free: Vec<u32>,
}

impl Names {
    /// The entries `.` and `..` are in every directory.
    pub(super) fn empty() -> Names {
        Names {
            places: 2,
            ..Names::default()
        }
    }
}

impl Inode {
    pub(super) fn new(kind: Kind, parent: Ino, slot: u32) -> Inode {
        Inode {
            kind,
            parent,
            slot,
            ..Inode::default()
        }
    }

    pub(super) fn blocks(&self) -> u32 {
        self.runs.iter().map(|r| r.blocks).sum()
    }
}

/// The number of indirect blocks of a file with `blocks` data blocks.
fn indirect_blocks(blocks: u32) -> u32 {
    match blocks {
        0..=DIRECT => 0,
        n if n <= DIRECT + POINTERS => 1,
        n => 2 + (n - DIRECT - POINTERS).div_ceil(POINTERS),
    }
}

/// The indirect blocks on the path to data block `i`, the double indirect block first.
fn path_to(i: u32) -> SmallVec<[usize; 2]> {
    match i {
        0..DIRECT => SmallVec::new(),
        i if i < DIRECT + POINTERS => SmallVec::from_slice(&[0]),
        i => SmallVec::from_slice(&[1, 2 + ((i - DIRECT - POINTERS) / POINTERS) as usize]),
    }
}

impl FileSystem {
    pub(super) fn make_root(&mut self) -> Result<Ino, LayoutError> {
        let kind = Kind::Directory(Box::new(Names::empty()));
        let ino = self.take_inode(Ino(0), Inode::new(kind, Ino(0), 0))?;
        self.grow(ino, 1)?;
        self.fill_directory_block(ino, 0)?;
        Ok(ino)
    }

    /// Creates a name and an empty inode.
    pub(super) fn make(&mut self, parent: Ino, kind: Kind) -> Result<Ino, LayoutError> {
        self.walk_to(parent)?;
        let slot = self.add_name(parent)?;
        let made = self.take_inode(parent, Inode::new(kind, parent, slot));
        if made.is_err() {
            self.drop_name(parent, slot);
        }
        made
    }

    pub(super) fn inode(&self, ino: Ino) -> Option<&Inode> {
        let per_group = self.shape.inodes_per_group;
        let inode = self
            .groups
            .get((ino.0 / per_group) as usize)?
            .inodes
            .get((ino.0 % per_group) as usize)?;
        (!matches!(inode.kind, Kind::Free)).then_some(inode)
    }

    pub(super) fn inode_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        let per_group = self.shape.inodes_per_group;
        let group = self.groups.get_mut((ino.0 / per_group) as usize)?;
        let inode = group.inodes.get_mut((ino.0 % per_group) as usize)?;
        (!matches!(inode.kind, Kind::Free)).then_some(inode)
    }

    pub(super) fn names(&mut self, ino: Ino) -> Option<&mut Names> {
        match &mut self.inode_mut(ino)?.kind {
            Kind::Directory(names) => Some(names),
            _ => None,
        }
    }

    pub(super) fn file_size(&self, ino: Ino) -> Result<u64, LayoutError> {
        match self.inode(ino) {
            Some(i) if matches!(i.kind, Kind::File) => Ok(i.size),
            _ => Err(LayoutError::NotFound(ino.0)),
        }
    }

    /// The block of the inode table that holds an inode.
    pub(super) fn inode_block(&self, ino: Ino) -> u32 {
        if let Some(&block) = self.moved.get(&ino) {
            return block;
        }
        let per_group = self.shape.inodes_per_group;
        self.shape.inode_table(ino.0 / per_group) + ino.0 % per_group / INODES_PER_BLOCK
    }

    pub(super) fn change_inode(&mut self, ino: Ino) {
        self.change_meta(self.inode_block(ino), Owner::Inodes);
    }

    /// Reads the directories from the root down to an inode, and the inode.
    pub(super) fn walk_to(&mut self, ino: Ino) -> Result<(), LayoutError> {
        let mut path: SmallVec<[Ino; 8]> = SmallVec::new();
        let mut at = ino;
        // Walks up to the first directory that is in memory.
        while at != self.root && self.known.get(&at).is_none() {
            path.push(at);
            at = self.inode(at).ok_or(LayoutError::NotFound(ino.0))?.parent;
        }
        if at == self.root && self.known.get(&at).is_none() {
            self.read_meta(self.inode_block(at), Owner::Inodes);
            self.known.put(at, ());
        }
        self.inode(ino).ok_or(LayoutError::NotFound(ino.0))?;
        for ino in path.into_iter().rev() {
            if let Some((parent, slot)) = self.inode(ino).map(|i| (i.parent, i.slot)) {
                self.read_name(parent, slot);
            }
            self.read_meta(self.inode_block(ino), Owner::Inodes);
            self.known.put(ino, ());
            if self.known.len() > self.config.inode_cache as usize {
                self.known.pop_lru();
            }
        }
        Ok(())
    }

    pub(super) fn names_per_block(&self) -> u32 {
        BLOCK / self.config.entry_bytes
    }

    /// Reads the directory block that holds a name. Directories are hashed (ext3's dir_index): the first block is read, then the block that
    /// the hash selects.
    pub(super) fn read_name(&mut self, directory: Ino, slot: u32) {
        let owner = Owner::Directory(directory);
        self.read_mapped(directory, 0, owner);
        let i = slot / self.names_per_block();
        if i > 0 {
            self.read_mapped(directory, i, owner);
        }
    }

    /// Adds a name to a directory, which grows by a block if all of its entries are taken.
    pub(super) fn add_name(&mut self, directory: Ino) -> Result<u32, LayoutError> {
        let per_block = self.names_per_block();
        let names = self
            .names(directory)
            .ok_or(LayoutError::NotFound(directory.0))?;
        let (slot, new_block) = match names.free.last() {
            Some(&slot) => (slot, false),
            None => (names.places, names.places.is_multiple_of(per_block)),
        };
        let i = slot / per_block;
        if new_block {
            self.grow(directory, i + 1)?;
            self.fill_directory_block(directory, i)?;
        } else {
            self.read_name(directory, slot);
            self.dirty_name(directory, i);
        }
        if let Some(names) = self.names(directory) {
            if names.free.pop().is_none() {
                names.places += 1;
            }
            names.live += 1;
        }
        // The modification time changes.
        self.change_inode(directory);
        Ok(slot)
    }

    pub(super) fn drop_name(&mut self, directory: Ino, slot: u32) {
        self.read_name(directory, slot);
        self.dirty_name(directory, slot / self.names_per_block());
        if let Some(names) = self.names(directory) {
            names.free.push(slot);
            names.live -= 1;
        }
        self.change_inode(directory);
    }

    pub(super) fn dirty_name(&mut self, directory: Ino, i: u32) {
        if let Some(block) = self.data_block(directory, i) {
            self.dirty_meta(block, Owner::Directory(directory));
        }
    }

    /// A block that was just added to a directory. It is new, so it is not read.
    pub(super) fn fill_directory_block(
        &mut self,
        directory: Ino,
        i: u32,
    ) -> Result<(), LayoutError> {
        let block = self.data_block(directory, i).ok_or(LayoutError::NoSpace)?;
        self.dirty_meta(block, Owner::Directory(directory));
        if let Some(inode) = self.inode_mut(directory) {
            inode.size = u64::from(i + 1) * u64::from(BLOCK);
        }
        Ok(())
    }

    /// The place of data block `i`.
    pub(super) fn data_block(&self, ino: Ino, i: u32) -> Option<u32> {
        let mut left = i;
        for run in &self.inode(ino)?.runs {
            if left < run.blocks {
                return Some(run.first + left);
            }
            left -= run.blocks;
        }
        None
    }

    /// The index in the file of the data block at `block`.
    pub(super) fn position(&self, ino: Ino, block: u32) -> Option<u32> {
        let mut before = 0;
        for run in &self.inode(ino)?.runs {
            if (run.first..run.first + run.blocks).contains(&block) {
                return Some(before + block - run.first);
            }
            before += run.blocks;
        }
        None
    }

    /// Reads the indirect blocks that lead to data block `i`.
    pub(super) fn read_path(&mut self, ino: Ino, i: u32) {
        for at in path_to(i) {
            if let Some(&block) = self.inode(ino).and_then(|n| n.indirect.get(at)) {
                self.read_meta(block, Owner::Indirect(ino));
            }
        }
    }

    /// Reads data block `i` of a directory.
    pub(super) fn read_mapped(&mut self, ino: Ino, i: u32, owner: Owner) {
        self.read_path(ino, i);
        if let Some(block) = self.data_block(ino, i) {
            self.read_meta(block, owner);
        }
    }

    /// Reads those of the data blocks `first..=last` that are not cached; neighbours on the disk are merged.
    pub(super) fn read_blocks(&mut self, ino: Ino, first: u32, last: u32) {
        let most = self.config.max_request / BLOCK;
        let owner = Owner::File(ino);
        let runs = self.inode(ino).map(|i| i.runs.clone()).unwrap_or_default();
        let mut logical = 0;
        let mut missing = Run::default();
        let mut known = u32::MAX;
        for run in runs {
            let from = first.max(logical);
            let to = (last + 1).min(logical + run.blocks);
            for i in from..to {
                let block = run.first + (i - logical);
                // An indirect block points to many data blocks, so consecutive data blocks read it once.
                let leads = i.checked_sub(DIRECT).map_or(u32::MAX, |k| k / POINTERS);
                if leads != known {
                    self.flush_missing(&mut missing, owner);
                    self.read_path(ino, i);
                    known = leads;
                }
                if self.cache.touch(block) {
                    self.flush_missing(&mut missing, owner);
                    continue;
                }
                if missing.blocks == most
                    || missing.blocks > 0 && missing.first + missing.blocks != block
                {
                    self.flush_missing(&mut missing, owner);
                }
                if missing.blocks == 0 {
                    missing.first = block;
                }
                missing.blocks += 1;
            }
            logical += run.blocks;
            if logical > last {
                break;
            }
        }
        self.flush_missing(&mut missing, owner);
    }

    pub(super) fn flush_missing(&mut self, missing: &mut Run, owner: Owner) {
        if missing.blocks > 0 {
            self.emit(Op::Read, missing.first, missing.blocks, owner, true);
            for block in missing.first..missing.first + missing.blocks {
                self.cache_in(block, owner);
            }
        }
        *missing = Run::default();
    }

    pub(super) fn write_inside(&mut self, ino: Ino, at: u64, len: u64) -> Result<(), LayoutError> {
        let size = self.file_size(ino)?;
        if len == 0 {
            return Ok(());
        }
        let block = u64::from(BLOCK);
        let end = at.checked_add(len).ok_or(LayoutError::TooLarge)?;
        if end.div_ceil(block) > u64::from(FILE_BLOCKS_MAX) {
            return Err(LayoutError::TooLarge);
        }
        let (first, last) = ((at / block) as u32, ((end - 1) / block) as u32);
        let had = self.inode(ino).map_or(0, Inode::blocks);
        self.grow(ino, last + 1)?;
        // A block must be read first if old data beside the new data remains in it.
        let nothing_old = |i: u32| {
            let start = u64::from(i) * block;
            i >= had || at <= start && (end >= start + block || end >= size)
        };
        for i in [first, last] {
            if !nothing_old(i) {
                self.read_blocks(ino, i, i);
            }
        }
        if let Some(inode) = self.inode_mut(ino) {
            inode.size = size.max(end);
        }
        if self.quiet {
            return Ok(());
        }
        // A write beyond the end also fills the gap, because the layout has no holes.
        let from = first.min(had);
        let runs = self.inode(ino).map(|i| i.runs.clone()).unwrap_or_default();
        let mut logical = 0;
        for run in runs {
            for i in from.max(logical)..(last + 1).min(logical + run.blocks) {
                let block = run.first + (i - logical);
                // The page is marked dirty first, because making room for it may write it.
                self.cache.dirty(block, Owner::File(ino), self.now);
                self.cache_in(block, Owner::File(ino));
            }
            logical += run.blocks;
        }
        self.change_inode(ino);
        Ok(())
    }

    /// Adds data blocks until the file has `blocks` of them, each after the indirect blocks that it needs.
    pub(super) fn grow(&mut self, ino: Ino, blocks: u32) -> Result<(), LayoutError> {
        let Some(inode) = self.inode(ino) else {
            return Err(LayoutError::NotFound(ino.0));
        };
        let file = matches!(inode.kind, Kind::File);
        let mut have = inode.blocks();
        let per_group = self.shape.inodes_per_group;
        let mut goal = match inode.runs.last() {
            Some(run) => run.first + run.blocks,
            None => ino.0 / per_group * super::GROUP_BLOCKS + self.shape.overhead(),
        };
        goal = goal.min(self.shape.blocks - 1);
        while have < blocks {
            while (self.inode(ino).map_or(0, |i| i.indirect.len()) as u32)
                < indirect_blocks(have + 1)
            {
                let run = self.allocate(goal, 1)?;
                self.dirty_meta(run.first, Owner::Indirect(ino));
                if let Some(inode) = self.inode_mut(ino) {
                    inode.indirect.push(run.first);
                }
                goal = (run.first + 1).min(self.shape.blocks - 1);
            }
            if file {
                let first = self.inode(ino).is_none_or(|i| i.runs.is_empty());
                goal = self.room(goal, first, blocks - have);
            }
            // Continues up to the next block that needs another indirect block.
            let until = match have {
                n if n < DIRECT => DIRECT,
                n => DIRECT + ((n - DIRECT) / POINTERS + 1) * POINTERS,
            };
            let run = self.allocate(goal, blocks.min(until) - have)?;
            for at in path_to(have) {
                if let Some(&block) = self.inode(ino).and_then(|n| n.indirect.get(at)) {
                    self.change_meta(block, Owner::Indirect(ino));
                }
            }
            have += run.blocks;
            goal = (run.first + run.blocks).min(self.shape.blocks - 1);
            if let Some(inode) = self.inode_mut(ino) {
                match inode.runs.last_mut() {
                    Some(last) if last.first + last.blocks == run.first => {
                        last.blocks += run.blocks;
                    }
                    _ => inode.runs.push(run),
                }
            }
        }
        Ok(())
    }
}
