//! The operations on files and directories.

use super::inode::{Inode, Kind, Names, Run};
use super::{BLOCK, FileSystem, Ino, LayoutError, Owner};

impl FileSystem {
    /// Creates a directory in `parent`.
    ///
    /// # Errors
    /// `parent` is not a directory, or there is no space.
    pub fn mkdir(&mut self, parent: Ino) -> Result<Ino, LayoutError> {
        self.begin();
        let ino = self.make(parent, Kind::Directory(Box::new(Names::empty())))?;
        self.grow(ino, 1)?;
        self.fill_directory_block(ino, 0)?;
        self.change_inode(ino);
        self.end();
        Ok(ino)
    }

    /// Creates an empty file in `parent`.
    ///
    /// # Errors
    /// `parent` is not a directory, or there is no space.
    pub fn create(&mut self, parent: Ino) -> Result<Ino, LayoutError> {
        self.begin();
        let ino = self.make(parent, Kind::File)?;
        self.end();
        Ok(ino)
    }

    /// Bytes of a file; 0 if it does not exist.
    pub fn size(&self, ino: Ino) -> u64 {
        self.inode(ino).map_or(0, |i| i.size)
    }

    /// The parent directory of a file or directory.
    pub fn parent(&self, ino: Ino) -> Option<Ino> {
        self.inode(ino).map(|i| i.parent)
    }

    /// Reads the inode and the directories on the path to it.
    ///
    /// # Errors
    /// No such file or directory.
    pub fn stat(&mut self, ino: Ino) -> Result<(), LayoutError> {
        self.begin();
        self.walk_to(ino)?;
        self.end();
        Ok(())
    }

    /// Reads all blocks of a directory.
    ///
    /// # Errors
    /// No such directory.
    pub fn readdir(&mut self, ino: Ino) -> Result<(), LayoutError> {
        self.begin();
        self.walk_to(ino)?;
        self.names(ino).ok_or(LayoutError::NotFound(ino.0))?;
        let blocks = self.inode(ino).map_or(0, Inode::blocks);
        for i in 0..blocks {
            self.read_mapped(ino, i, Owner::Directory(ino));
        }
        self.end();
        Ok(())
    }

    /// Reads `len` bytes from `at`, but not beyond the end of the file. Pages that are not cached become requests; neighbouring pages are
    /// merged.
    ///
    /// # Errors
    /// No such file.
    pub fn read(&mut self, ino: Ino, at: u64, len: u64) -> Result<(), LayoutError> {
        self.begin();
        self.walk_to(ino)?;
        let size = self.file_size(ino)?;
        let end = at.saturating_add(len).min(size);
        if at < end {
            let (first, last) = (
                (at / u64::from(BLOCK)) as u32,
                ((end - 1) / u64::from(BLOCK)) as u32,
            );
            self.read_blocks(ino, first, last);
        }
        if self.config.atime {
            self.change_inode(ino);
        }
        self.end();
        Ok(())
    }

    /// Writes `len` bytes at `at`; the file grows as needed. A block that changes only in part is read first unless it is cached.
    ///
    /// # Errors
    /// The file does not exist, there is no space, or the file would be too large. The file may then have grown.
    pub fn write(&mut self, ino: Ino, at: u64, len: u64) -> Result<(), LayoutError> {
        self.begin();
        self.walk_to(ino)?;
        self.write_inside(ino, at, len)?;
        self.end();
        Ok(())
    }

    /// Writes `len` bytes at the end.
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    pub fn append(&mut self, ino: Ino, len: u64) -> Result<(), LayoutError> {
        self.write(ino, self.size(ino), len)
    }

    /// Removes a file or an empty directory.
    ///
    /// # Errors
    /// No such file or directory, or it is not empty.
    pub fn unlink(&mut self, ino: Ino) -> Result<(), LayoutError> {
        self.begin();
        self.walk_to(ino)?;
        if ino == self.root || self.names(ino).is_some_and(|n| n.live > 0) {
            return Err(LayoutError::NotEmpty(ino.0));
        }
        let Some(inode) = self.inode_mut(ino) else {
            return Err(LayoutError::NotFound(ino.0));
        };
        let (runs, indirect) = (
            std::mem::take(&mut inode.runs),
            std::mem::take(&mut inode.indirect),
        );
        let (parent, slot) = (inode.parent, inode.slot);
        for first in indirect {
            // The pointers in the block say which blocks to free.
            self.read_meta(first, Owner::Indirect(ino));
            self.free(Run { first, blocks: 1 });
        }
        for run in runs {
            self.free(run);
        }
        self.drop_name(parent, slot);
        self.free_inode(ino);
        self.end();
        Ok(())
    }

    /// Moves the name of a file or directory to another directory.
    ///
    /// # Errors
    /// Either of the two does not exist, or there is no space.
    pub fn rename(&mut self, ino: Ino, to: Ino) -> Result<(), LayoutError> {
        self.begin();
        self.walk_to(ino)?;
        let (parent, slot) = self
            .inode(ino)
            .map(|i| (i.parent, i.slot))
            .ok_or(LayoutError::NotFound(ino.0))?;
        let mut above = to;
        while above != self.root {
            // A directory cannot be moved into itself.
            if above == ino {
                return Err(LayoutError::NotFound(to.0));
            }
            above = self.inode(above).ok_or(LayoutError::NotFound(to.0))?.parent;
        }
        let place = self.add_name(to)?;
        self.drop_name(parent, slot);
        if let Some(inode) = self.inode_mut(ino) {
            (inode.parent, inode.slot) = (to, place);
        }
        self.change_inode(ino);
        self.end();
        Ok(())
    }

    /// Writes the data and metadata of a file and waits for both.
    ///
    /// # Errors
    /// No such file or directory.
    pub fn fsync(&mut self, ino: Ino) -> Result<(), LayoutError> {
        self.begin();
        self.inode(ino).ok_or(LayoutError::NotFound(ino.0))?;
        self.write_file(ino);
        Ok(())
    }

    /// Writes back everything.
    pub fn sync(&mut self) {
        self.begin();
        self.write_everything();
    }

    /// The owner of every block that a file or directory uses, by block number; for tests and pictures. It walks over all files.
    ///
    /// # Errors
    /// The message says which block has two owners, or is used but marked as free. Either is a bug of the layout.
    pub fn owners(&self) -> Result<std::collections::BTreeMap<u64, Owner>, String> {
        let mut owners = std::collections::BTreeMap::new();
        let per_group = self.shape.inodes_per_group;
        let all = self.groups.iter().enumerate().flat_map(|(g, group)| {
            let number = move |i: usize| Ino(g as u32 * per_group + i as u32);
            group
                .inodes
                .iter()
                .enumerate()
                .map(move |(i, inode)| (number(i), inode))
        });
        for (ino, inode) in all {
            let data = match inode.kind {
                Kind::Free => continue,
                Kind::File => Owner::File(ino),
                Kind::Directory(_) => Owner::Directory(ino),
            };
            let blocks = inode
                .runs
                .iter()
                .flat_map(|r| r.first..r.first + r.blocks)
                .map(|b| (b, data));
            let indirect = inode.indirect.iter().map(|&b| (b, Owner::Indirect(ino)));
            for (block, owner) in blocks.chain(indirect) {
                let group = &self.groups[(block / super::GROUP_BLOCKS) as usize];
                if !group.is_used(block % super::GROUP_BLOCKS) {
                    return Err(format!("block {block} of {owner:?} is marked free"));
                }
                if let Some(other) = owners.insert(u64::from(block), owner) {
                    return Err(format!("block {block} belongs to {owner:?} and {other:?}"));
                }
            }
        }
        if owners.len() as u64 != self.used_blocks {
            return Err(format!(
                "{} blocks have owners, {} are in use",
                owners.len(),
                self.used_blocks
            ));
        }
        Ok(owners)
    }

    /// The number of the volume's blocks.
    pub fn blocks(&self) -> u64 {
        self.shape.blocks.into()
    }

    /// From now on the inodes of these files lie in a table behind the volume, from block [`FileSystem::blocks`] on, in this order: as if
    /// the files had been moved to a file system of their own on another device. Their names, bitmaps and journal stay where they are, and
    /// the move itself makes no requests. The inode of a file that is deleted leaves the table.
    pub fn move_inodes(&mut self, files: &[Ino]) {
        let first = self.shape.blocks;
        let block = |i: usize| first.saturating_add(i as u32 / super::INODES_PER_BLOCK);
        let all = files.iter().enumerate();
        self.moved = all.map(|(i, &ino)| (ino, block(i))).collect();
    }

    /// The block of the block bitmap that covers `block`.
    pub fn bitmap_of(&self, block: u64) -> u64 {
        u64::from(
            self.shape
                .block_bitmap((block / u64::from(super::GROUP_BLOCKS)) as u32),
        )
    }
}
