//! Block groups: the free blocks and inodes, and the choice of a place for a new one.

use super::inode::{Inode, Kind, Run};
use super::{FileSystem, GROUP_BLOCKS, Ino, LayoutError, Owner};

#[derive(Debug)]
pub(super) struct Group {
    /// One bit per block, set if the block is used or does not exist.
    used: Box<[u64]>,
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub directories: u32,
    /// The inodes up to the highest one that was ever used.
    pub inodes: Vec<Inode>,
    /// No inode below this is free.
    lowest_free: u32,
}

impl Group {
    /// A group in which the first `reserved` blocks and those from `blocks` on are taken.
    pub fn new(blocks: u32, reserved: u32, inodes: u32) -> Group {
        let mut group = Group {
            used: vec![0; (GROUP_BLOCKS / 64) as usize].into(),
            free_blocks: blocks - reserved,
            free_inodes: inodes,
            directories: 0,
            inodes: Vec::new(),
            lowest_free: 0,
        };
        (0..reserved)
            .chain(blocks..GROUP_BLOCKS)
            .for_each(|b| group.mark(b));
        group
    }

    fn mark(&mut self, bit: u32) {
        self.used[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    pub fn is_used(&self, bit: u32) -> bool {
        self.used[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// The first free block at or after `from`.
    fn first_free(&self, from: u32) -> Option<u32> {
        let mut word = (from / 64) as usize;
        let mut free = !*self.used.get(word)? & u64::MAX << (from % 64);
        while free == 0 {
            word += 1;
            free = !*self.used.get(word)?;
        }
        Some(word as u32 * 64 + free.trailing_zeros())
    }

    /// Takes up to `want` neighbouring blocks, the first at or after `from` if there is one.
    fn take(&mut self, from: u32, want: u32) -> Option<Run> {
        let first = self.first_free(from).or_else(|| self.first_free(0))?;
        let mut blocks = 0;
        while blocks < want && first + blocks < GROUP_BLOCKS && !self.is_used(first + blocks) {
            self.mark(first + blocks);
            blocks += 1;
        }
        self.free_blocks -= blocks;
        Some(Run { first, blocks })
    }

    /// The first free block of a run of `rooms` free rooms with `room` blocks each, at or after `from` if possible.
    fn free_rooms(&self, from: u32, room: u32, rooms: u32) -> Option<u32> {
        let mask = u64::MAX >> (64 - room);
        let empty = |r: u32| {
            let bit = r * room;
            self.used[(bit / 64) as usize] >> (bit % 64) & mask == 0
        };
        let (all, begin) = (GROUP_BLOCKS / room, from.div_ceil(room));
        let find = |begin: u32| {
            let mut row = 0;
            for r in begin..all {
                row = if empty(r) { row + 1 } else { 0 };
                if row == rooms {
                    return Some((r + 1 - rooms) * room);
                }
            }
            None
        };
        find(begin).or_else(|| find(0))
    }

    fn give_back(&mut self, run: Run) {
        for bit in run.first..run.first + run.blocks {
            debug_assert!(self.is_used(bit), "a block is freed twice");
            self.used[(bit / 64) as usize] &= !(1 << (bit % 64));
        }
        self.free_blocks += run.blocks;
    }
}

impl FileSystem {
    /// The place for `want` blocks of a file that has none yet, or whose last room is full or taken: a room of its own if a group has
    /// enough free rooms, otherwise `goal`.
    pub(super) fn room(&self, goal: u32, first: bool, want: u32) -> u32 {
        let room = self.config.room_blocks;
        if room == 0 {
            return goal;
        }
        let at = (goal / GROUP_BLOCKS, goal % GROUP_BLOCKS);
        let inside = !first && !at.1.is_multiple_of(room);
        if inside && !self.groups[at.0 as usize].is_used(at.1) {
            return goal;
        }
        let groups = self.groups.len() as u32;
        let found = (0..groups).find_map(|step| {
            let g = (at.0 + step) % groups;
            let from = if step == 0 { at.1 } else { 0 };
            let group = &self.groups[g as usize];
            let enough = group.free_blocks >= want.next_multiple_of(room);
            let free = enough.then(|| group.free_rooms(from, room, want.div_ceil(room)));
            Some(g * GROUP_BLOCKS + free??)
        });
        found.unwrap_or(goal)
    }

    /// Takes up to `want` neighbouring blocks, as close after `goal` as possible: in the group of `goal`, or in the next group that has
    /// free blocks.
    pub(super) fn allocate(&mut self, goal: u32, want: u32) -> Result<Run, LayoutError> {
        let groups = self.groups.len() as u32;
        let near = (goal / GROUP_BLOCKS).min(groups - 1);
        for step in 0..groups {
            let g = (near + step) % groups;
            if self.groups[g as usize].free_blocks == 0 {
                continue;
            }
            let from = if step == 0 { goal % GROUP_BLOCKS } else { 0 };
            let Some(run) = self.groups[g as usize].take(from, want) else {
                continue;
            };
            self.change_group(g);
            self.change_meta(self.shape.block_bitmap(g), Owner::Bitmap);
            self.used_blocks += u64::from(run.blocks);
            return Ok(Run {
                first: g * GROUP_BLOCKS + run.first,
                ..run
            });
        }
        Err(LayoutError::NoSpace)
    }

    /// Frees neighbouring blocks, which are in one group, and drops their pages from the cache.
    pub(super) fn free(&mut self, run: Run) {
        for block in run.first..run.first + run.blocks {
            self.cache.forget(block);
            self.journal.running.remove(&block);
        }
        self.emit_discard(run.first, run.blocks);
        // A run grows by appending and so may reach into the next group.
        let (mut first, mut left) = (run.first, run.blocks);
        while left > 0 {
            let g = first / GROUP_BLOCKS;
            let blocks = left.min((g + 1) * GROUP_BLOCKS - first);
            self.groups[g as usize].give_back(Run {
                first: first % GROUP_BLOCKS,
                blocks,
            });
            self.change_meta(self.shape.block_bitmap(g), Owner::Bitmap);
            self.change_group(g);
            first += blocks;
            left -= blocks;
        }
        self.used_blocks -= u64::from(run.blocks);
    }

    /// Takes an inode: for a file in the group of its directory, for a directory in a group with free space and few directories.
    pub(super) fn take_inode(&mut self, parent: Ino, inode: Inode) -> Result<Ino, LayoutError> {
        let groups = self.groups.len() as u32;
        let near = parent.0 / self.shape.inodes_per_group;
        let is_dir = matches!(inode.kind, Kind::Directory(_));
        let group = if is_dir {
            let mean_free = self
                .groups
                .iter()
                .map(|g| u64::from(g.free_blocks))
                .sum::<u64>()
                / u64::from(groups);
            (0..groups)
                .filter(|&g| {
                    let g = &self.groups[g as usize];
                    g.free_inodes > 0 && u64::from(g.free_blocks) >= mean_free
                })
                .min_by_key(|&g| self.groups[g as usize].directories)
        } else {
            None
        };
        let group = group
            .or_else(|| {
                (0..groups)
                    .map(|s| (near + s) % groups)
                    .find(|&g| self.groups[g as usize].free_inodes > 0)
            })
            .ok_or(LayoutError::NoInode)?;
        let g = &mut self.groups[group as usize];
        let mut index = g.lowest_free as usize;
        while g
            .inodes
            .get(index)
            .is_some_and(|i| !matches!(i.kind, Kind::Free))
        {
            index += 1;
        }
        if index == g.inodes.len() {
            g.inodes.push(inode);
        } else {
            g.inodes[index] = inode;
        }
        g.lowest_free = index as u32 + 1;
        g.free_inodes -= 1;
        g.directories += u32::from(is_dir);
        let ino = Ino(group * self.shape.inodes_per_group + index as u32);
        self.change_meta(self.shape.inode_bitmap(group), Owner::Bitmap);
        self.change_group(group);
        self.change_inode(ino);
        Ok(ino)
    }

    /// Frees an inode whose blocks are already free.
    pub(super) fn free_inode(&mut self, ino: Ino) {
        let group = ino.0 / self.shape.inodes_per_group;
        let index = ino.0 % self.shape.inodes_per_group;
        let g = &mut self.groups[group as usize];
        let was = std::mem::take(&mut g.inodes[index as usize]);
        g.directories -= u32::from(matches!(was.kind, Kind::Directory(_)));
        g.free_inodes += 1;
        g.lowest_free = g.lowest_free.min(index);
        self.known.pop(&ino);
        self.change_inode(ino);
        self.moved.remove(&ino);
        self.change_meta(self.shape.inode_bitmap(group), Owner::Bitmap);
        self.change_group(group);
    }

    /// Marks the counters of a group as changed, and with them those of the superblock.
    fn change_group(&mut self, group: u32) {
        // Both blocks stay in memory while the file system is mounted.
        let block = 1 + group * super::DESCRIPTOR_BYTES / super::BLOCK;
        self.dirty_meta(block, Owner::Descriptors);
        self.dirty_meta(0, Owner::Superblock);
    }
}
