//! The places of metadata on a member.
//!
//! ```text
//! 0         4 KiB   8 KiB       16 KiB                                                                 data_offset
//! ┌─────────┬───────┬─────┬─────┬──────────────┬──────────────┬──────────────┬─ ─ ─ ─┬─────────────────┬────────
//! │ superbl.│ stamp │ counter x 2│ journal ring │ checkpoint A │ checkpoint B │ unused│ superblock copy │ slots …
//! └─────────┴───────┴─────┴─────┴──────────────┴──────────────┴──────────────┴─ ─ ─ ─┴─────────────────┴────────
//! ```
//! Journal and checkpoints are on the *primary* (first member of the fastest tier) and the *mirror* (first member of the slowest tier);
//! other members have only the two superblocks, the stamp and the counter.

use super::checkpoint::Header;
use super::record::{max_copy_units, max_units};
use super::{BLOCK, UNITS};
use crate::units::MemberId;

/// Blocks at the head of every member: superblock, activity stamp, the two blocks of the counter.
pub const HEAD_BLOCKS: u64 = 4;
/// Byte offset of the activity stamp on every member. Its block has no other content, and is zero until a server writes the stamp.
pub const STAMP_AT: u64 = BLOCK as u64;
/// Smallest journal ring, blocks.
pub const RING_MIN: u32 = 64;
/// Largest journal ring, blocks (64 MiB).
pub const RING_MAX: u32 = 16_384;

/// Byte offsets of the metadata areas, which are equal on primary and mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaArea {
    /// Number of journal blocks in the ring.
    pub ring_blocks: u32,
    /// Number of blocks of one checkpoint region, including its header.
    pub region_blocks: u32,
}

impl MetaArea {
    /// The areas for a volume of `extents` extents with `blocks_per_extent` blocks each. The size of the ring is 1/64 of the fast tier,
    /// within limits.
    pub fn for_volume(extents: u32, blocks_per_extent: u32, fast_bytes: u64) -> MetaArea {
        let ring_blocks = ((fast_bytes / 64 / BLOCK as u64) as u32).clamp(RING_MIN, RING_MAX);
        let units = max_units(blocks_per_extent);
        // A record never crosses the border of a block, so a block has space for at least this number of the largest records.
        let per_block = UNITS / units;
        let region_blocks = (extents as usize).div_ceil(per_block) as u32 + 1;
        MetaArea {
            ring_blocks,
            region_blocks,
        }
    }
    /// Number of data blocks that a checkpoint region needs if `copies` of the extents may have a copy.
    pub fn region_for(extents: u32, copies: u32, blocks_per_extent: u32) -> u32 {
        let (plain, most) = (
            max_units(blocks_per_extent),
            max_copy_units(blocks_per_extent),
        );
        let copies = copies.min(extents) as usize;
        let units = (extents as usize - copies) * plain + copies * most;
        // The unused end of a block is smaller than a record of the largest kind.
        units.div_ceil(UNITS - (most - 1)) as u32 + 1
    }
    /// The same areas, with checkpoint regions that also have space for `copies` copies.
    #[must_use]
    pub fn with_copies(self, extents: u32, copies: u32, blocks_per_extent: u32) -> MetaArea {
        let region = MetaArea::region_for(extents, copies, blocks_per_extent);
        MetaArea {
            region_blocks: self.region_blocks.max(region),
            ..self
        }
    }
    /// The byte offset of the journal block with sequence number `seq`.
    pub fn ring_offset(&self, seq: u64) -> u64 {
        (HEAD_BLOCKS + seq % u64::from(self.ring_blocks)) * BLOCK as u64
    }
    /// The byte offset of checkpoint region 0 or 1.
    pub fn region_offset(&self, region: u8) -> u64 {
        (HEAD_BLOCKS
            + u64::from(self.ring_blocks)
            + u64::from(region) * u64::from(self.region_blocks))
            * BLOCK as u64
    }
    /// Bytes of both regions.
    pub fn regions_bytes(&self) -> u64 {
        2 * u64::from(self.region_blocks) * BLOCK as u64
    }
    /// Bytes from the start of the device to the end of the second region.
    pub fn end(&self) -> u64 {
        self.region_offset(2)
    }
}

/// The members that carry metadata, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The member whose journal and checkpoints are authoritative.
    pub primary: MemberId,
    /// The member with the second copy of journal and checkpoints, which may lag. `None` in a volume of one member.
    pub mirror: Option<MemberId>,
    /// The offsets of the metadata areas.
    pub area: MetaArea,
    /// For primary and mirror as created: the first byte of the checkpoint regions, or 0 if they are behind the ring.
    pub moved: [(MemberId, u64); 2],
}

impl Layout {
    /// The layout while the members `missing` are absent: if primary or mirror is absent, the other one is the primary. `None` if both are
    /// absent.
    #[must_use]
    pub fn without(self, missing: &[MemberId]) -> Option<Layout> {
        let mut left = core::iter::once(self.primary)
            .chain(self.mirror)
            .filter(|m| !missing.contains(m));
        Some(Layout {
            primary: left.next()?,
            mirror: left.next(),
            ..self
        })
    }
    /// The byte offset of checkpoint region 0 or 1 on member `m`, which is primary or mirror.
    pub fn region_offset(&self, m: MemberId, region: u8) -> u64 {
        match self.moved.iter().find(|r| r.0 == m) {
            Some(&(_, at)) if at != 0 => {
                at + u64::from(region) * u64::from(self.area.region_blocks) * BLOCK as u64
            }
            _ => self.area.region_offset(region),
        }
    }
    /// The byte offset of data block `i` of checkpoint `number` on member `m`.
    pub fn checkpoint_block(&self, m: MemberId, number: u64, i: u32) -> u64 {
        self.region_offset(m, Header::region(number)) + (1 + u64::from(i)) * BLOCK as u64
    }
    /// The first byte that slots may use on a member with (or without) journal and checkpoints. The copy of the superblock is directly
    /// before it.
    pub fn data_offset(area: &MetaArea, has_metadata: bool, extent_bytes: u64) -> u64 {
        let align = extent_bytes.max(1 << 20);
        let end = if has_metadata {
            area.end()
        } else {
            HEAD_BLOCKS * BLOCK as u64
        } + BLOCK as u64;
        end.div_ceil(align) * align
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_do_not_overlap() {
        let a = MetaArea::for_volume(1000, 128, 1 << 30);
        assert_eq!(a.ring_blocks, 4096);
        assert_eq!(a.ring_offset(0), 4 * 4096);
        assert_eq!(a.ring_offset(4095) + 4096, a.region_offset(0));
        assert_eq!(
            a.region_offset(1) - a.region_offset(0),
            u64::from(a.region_blocks) * 4096
        );
        assert!(Layout::data_offset(&a, true, 65536) >= a.end() + 4096);
        // With 128 blocks per extent, a bitmap has 16 bytes, which is one unit. So a record has 2 units, a block has space for 126 records,
        // and 1000 extents need 8 blocks and the header.
        assert_eq!(a.region_blocks, 9);
    }
}
