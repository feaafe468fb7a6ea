//! A check of the whole file system in the manner of e2fsck: it bypasses the mounted file system, so its reads are unclassified (DSS
//! 4.2.1).

use super::inode::Kind;
use super::{BLOCK, FileSystem, INODES_PER_BLOCK, Ino, Owner};
use crate::record::{Flags, Op};

impl FileSystem {
    /// Reads all metadata: superblock and descriptors; per group the bitmaps and the used part of the inode table; indirect blocks; then
    /// all directories in the order of their blocks. Nothing enters the page cache and nothing changes.
    pub fn check(&mut self) {
        self.raw_read(0, 1 + self.shape.descriptor_blocks, Owner::Superblock);
        let mut directories: Vec<u32> = Vec::new();
        for g in 0..self.groups.len() as u32 {
            self.raw_read(self.shape.block_bitmap(g), 2, Owner::Bitmap);
            // The part of an inode table after the last used inode is not read, as with uninit_bg.
            let inodes = &self.groups[g as usize].inodes;
            let used = inodes.iter().rposition(|i| !matches!(i.kind, Kind::Free));
            let blocks = used.map_or(0, |i| i as u32 / INODES_PER_BLOCK + 1);
            self.raw_read(self.shape.inode_table(g), blocks, Owner::Inodes);
            let (indirect, found) = self.maps_of(g);
            directories.extend(found);
            self.raw_reads(indirect);
        }
        self.raw_reads(directories);
    }

    /// The indirect blocks of the inodes of a group, and the blocks of its directories.
    fn maps_of(&self, g: u32) -> (Vec<u32>, Vec<u32>) {
        let (mut indirect, mut directories) = (Vec::new(), Vec::new());
        for inode in &self.groups[g as usize].inodes {
            match inode.kind {
                Kind::Free => continue,
                Kind::File => {}
                Kind::Directory(_) => {
                    let runs = inode.runs.iter();
                    directories.extend(runs.flat_map(|r| r.first..r.first + r.blocks));
                }
            }
            indirect.extend(&inode.indirect);
        }
        (indirect, directories)
    }

    /// Reads single blocks in ascending order and merges neighbours.
    fn raw_reads(&mut self, mut blocks: Vec<u32>) {
        blocks.sort_unstable();
        let mut rest = &blocks[..];
        while let [first, ..] = *rest {
            let n = (1..rest.len())
                .take_while(|&i| rest[i] == first + i as u32)
                .count()
                + 1;
            self.raw_read(first, n as u32, Owner::Indirect(Ino(0)));
            rest = &rest[n..];
        }
    }

    fn raw_read(&mut self, first: u32, blocks: u32, owner: Owner) {
        let most = self.config.max_request / BLOCK;
        let mut done = 0;
        while done < blocks {
            let n = most.min(blocks - done);
            self.emit(Op::Read, first + done, n, owner, true);
            if let Some(r) = self.out.last_mut() {
                (r.class, r.flags) = (0, Flags::NONE);
            }
            done += n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn a_check_reads_all_metadata_once_unclassified_and_no_data() {
        let mut fs = FileSystem::new(Config {
            bytes: 300 << 20,
            ..Config::default()
        })
        .unwrap();
        let directory = fs.mkdir(fs.root()).unwrap();
        let file = fs.create(directory).unwrap();
        fs.write(file, 0, 100 << 10).unwrap();
        fs.drop_caches();
        fs.forget_output();
        fs.check();
        let mut records = Vec::new();
        fs.drain(&mut records);
        let owners = fs.owners().unwrap();
        let mut read: Vec<u64> = Vec::new();
        for r in &records {
            assert_eq!((r.op, r.class), (Op::Read, 0));
            let first = r.offset / u64::from(BLOCK);
            read.extend(first..first + u64::from(r.len / BLOCK));
        }
        let n = read.len();
        read.sort_unstable();
        read.dedup();
        assert_eq!(read.len(), n, "a block twice");
        for (block, owner) in owners {
            let is_meta = !matches!(owner, Owner::File(_));
            assert_eq!(read.binary_search(&block).is_ok(), is_meta, "{owner:?}");
        }
    }
}
