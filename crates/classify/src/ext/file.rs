//! Inodes, and the blocks that belong to them.

use super::{Budget, Bytes, ExtError, Superblock};

const EXTENTS: u32 = 0x0008_0000;
const INLINE_DATA: u32 = 0x1000_0000;
const HUGE_FILE: u32 = 0x0004_0000;
const EXTENT_MAGIC: u16 = 0xf30a;
/// Depth of the deepest extent tree that ext4 makes.
const DEPTH_MAX: u16 = 5;
/// Longest run of an initialised extent. A larger number denotes a run of unwritten blocks.
const RUN_MAX: u32 = 32768;
/// A symbolic link shorter than this is stored in the inode itself.
const FAST_LINK: u64 = 60;

/// The kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    /// A regular file or a long symbolic link.
    File,
    /// An inode without blocks of its own.
    Other,
}

/// An inode in use.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub number: u32,
    pub kind: Kind,
    pub size: u64,
    /// Block of extended attributes; 0 if there is none.
    pub attributes: u64,
    flags: u32,
    block: [u8; 60],
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

impl Inode {
    /// Parses an inode; `None` if it is not in use.
    pub fn parse(b: &[u8], number: u32, sb: &Superblock) -> Option<Inode> {
        let mode = u16_at(b, 0);
        let links = u16_at(b, 0x1a);
        // The resize inode and the journal inode have no name, but their link count is not zero.
        if links == 0 {
            return None;
        }
        let flags = u32_at(b, 0x20);
        let size = u64::from(u32_at(b, 4)) | u64::from(u32_at(b, 0x6c)) << 32;
        let inline = flags & INLINE_DATA != 0;
        let kind = match mode & 0xf000 {
            _ if inline => Kind::Other,
            0x4000 => Kind::Directory,
            0x8000 => Kind::File,
            0xa000 if flags & EXTENTS != 0 || size >= FAST_LINK => Kind::File,
            _ => Kind::Other,
        };
        let mut attributes = u64::from(u32_at(b, 0x68));
        if sb.is_64bit() {
            attributes |= u64::from(u16_at(b, 0x76)) << 32;
        }
        Some(Inode {
            number,
            kind,
            size,
            attributes,
            flags: flags & !HUGE_FILE,
            block: std::array::from_fn(|i| b[0x28 + i]),
        })
    }
}

/// Called with runs of blocks: first block, number of blocks, and whether they are blocks of the tree.
type Tell<'a> = &'a mut dyn FnMut(u64, u64, bool);

struct Walk<'a> {
    sb: &'a Superblock,
    start: u64,
    from: &'a mut dyn Bytes,
    budget: &'a mut Budget,
    tell: Tell<'a>,
    /// A run of data blocks that was not reported yet: first block and end.
    run: (u64, u64),
}

impl Walk<'_> {
    fn data(&mut self, block: u64, n: u64) -> Result<(), ExtError> {
        // Invalid numbers are skipped: either the inode is just being written, or the file system is damaged.
        if block == 0 || n == 0 || block.checked_add(n).is_none_or(|end| end > self.sb.blocks) {
            return Ok(());
        }
        Budget::take(&mut self.budget.blocks, n)?;
        if self.run.1 == block {
            self.run.1 += n;
        } else {
            self.flush();
            self.run = (block, block + n);
        }
        Ok(())
    }

    fn flush(&mut self) {
        let (first, end) = std::mem::take(&mut self.run);
        if end > first {
            (self.tell)(first, end - first, false);
        }
    }

    /// A block of the tree; `None` if the block does not exist.
    fn node(&mut self, block: u64) -> Result<Option<Vec<u8>>, ExtError> {
        if block == 0 || block >= self.sb.blocks {
            return Ok(None);
        }
        Budget::take(&mut self.budget.reads, 1)?;
        (self.tell)(block, 1, true);
        let mut buf = vec![0; 1 << self.sb.block_shift];
        self.from
            .read(self.start + (block << self.sb.block_shift), &mut buf)?;
        Ok(Some(buf))
    }

    fn extents(&mut self, node: &[u8], depth: u16) -> Result<(), ExtError> {
        let entries = usize::from(u16_at(node, 2));
        if u16_at(node, 0) != EXTENT_MAGIC || u16_at(node, 6) != depth {
            return Ok(());
        }
        for e in node[12..].chunks_exact(12).take(entries) {
            if depth == 0 {
                let len = u32::from(u16_at(e, 4));
                let len = if len > RUN_MAX { len - RUN_MAX } else { len };
                let first = u64::from(u32_at(e, 8)) | u64::from(u16_at(e, 6)) << 32;
                self.data(first, u64::from(len))?;
                continue;
            }
            let block = u64::from(u32_at(e, 4)) | u64::from(u16_at(e, 8)) << 32;
            if let Some(child) = self.node(block)? {
                self.extents(&child, depth - 1)?;
            }
        }
        Ok(())
    }

    fn indirect(&mut self, block: u64, depth: u32) -> Result<(), ExtError> {
        let Some(node) = self.node(block)? else {
            return Ok(());
        };
        for e in node.chunks_exact(4) {
            let block = u64::from(u32_at(e, 0));
            match (block, depth) {
                (0, _) => {}
                (_, 1) => self.data(block, 1)?,
                _ => self.indirect(block, depth - 1)?,
            }
        }
        Ok(())
    }
}

/// Reports all blocks of an inode.
pub(super) fn walk(
    sb: &Superblock,
    start: u64,
    from: &mut dyn Bytes,
    inode: &Inode,
    budget: &mut Budget,
    tell: Tell<'_>,
) -> Result<(), ExtError> {
    let mut w = Walk {
        sb,
        start,
        from,
        budget,
        tell,
        run: (0, 0),
    };
    if inode.flags & EXTENTS != 0 {
        let depth = u16_at(&inode.block, 6);
        if depth <= DEPTH_MAX {
            w.extents(&inode.block, depth)?;
        }
    } else {
        let at = |i: usize| u64::from(u32_at(&inode.block, 4 * i));
        for i in 0..12 {
            w.data(at(i), 1)?;
        }
        for depth in 1..=3 {
            w.indirect(at(11 + depth as usize), depth)?;
        }
    }
    w.flush();
    Ok(())
}
