//! The places of metadata on a member.
//!
//! ```text
//! 0         4 KiB   8 KiB       16 KiB                                                                 data_offset
//! ┌─────────┬───────┬─────┬─────┬──────────────┬──────────────┬──────────────┬─ ─ ─ ─┬─────────────────┬────────
//! │ superbl.│ stamp │ counter x 2│ journal ring │ checkpoint A │ checkpoint B │ unused│ superblock copy │ slots …
//! └─────────┴───────┴─────┴─────┴──────────────┴──────────────┴──────────────┴─ ─ ─ ─┴─────────────────┴────────
//! ```
//! Journal and checkpoints are on *primary* and *mirror*, their [`Carrier`]s. In a tiering volume these are the first member of the fastest
//! tier and the first member of the slowest one. In a cache volume both are on the faster tiers, so that the disks have neither journal nor
//! checkpoints: on two members, or one behind the other on the only one.

use super::checkpoint::Header;
use super::record::{max_copy_units, max_units, most_units};
use super::{BLOCK, UNITS};
use crate::units::MemberId;
use crate::volume::geometry::Kind;

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
    /// The areas of a volume of this kind, whose checkpoints have records of at most `recorded` extents, and that has `copies` slots on its
    /// faster tiers, which have `fast_bytes` bytes.
    pub fn of(
        kind: Kind,
        recorded: u32,
        copies: u32,
        blocks_per_extent: u32,
        fast_bytes: u64,
    ) -> MetaArea {
        let ring = MetaArea::for_volume(recorded, blocks_per_extent, fast_bytes);
        match kind {
            Kind::Tiering => ring.with_copies(recorded, copies, blocks_per_extent),
            Kind::Cache => MetaArea {
                region_blocks: MetaArea::region_of(kind, recorded, copies, blocks_per_extent),
                ..ring
            },
        }
    }
    /// Number of blocks of the checkpoint regions of [`MetaArea::of`].
    pub fn region_of(kind: Kind, recorded: u32, copies: u32, blocks_per_extent: u32) -> u32 {
        let most = most_units(kind, blocks_per_extent);
        match kind {
            Kind::Tiering => MetaArea::region_for(recorded, copies, blocks_per_extent),
            // The unused end of a block is smaller than a record of the largest kind.
            Kind::Cache => (copies as usize * most).div_ceil(UNITS - (most - 1)) as u32 + 1,
        }
    }
    /// The `n`-th place for ring and regions in a member's head, from 0 on: the first byte of the ring. The regions follow it.
    pub fn ring_at(&self, n: u64) -> u64 {
        HEAD_BLOCKS * BLOCK as u64 + n * self.bytes()
    }
    /// Bytes of the ring.
    pub fn ring_bytes(&self) -> u64 {
        u64::from(self.ring_blocks) * BLOCK as u64
    }
    /// Bytes of both regions.
    pub fn regions_bytes(&self) -> u64 {
        2 * u64::from(self.region_blocks) * BLOCK as u64
    }
    /// Bytes of ring and regions.
    pub fn bytes(&self) -> u64 {
        self.ring_bytes() + self.regions_bytes()
    }
}

/// A place with a journal ring and two checkpoint regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// The member.
    pub member: MemberId,
    /// The first byte of the ring there.
    pub ring_at: u64,
    /// The first byte of the checkpoint regions there.
    pub regions_at: u64,
}

/// The places of metadata of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The place whose journal and checkpoints are authoritative.
    pub primary: Carrier,
    /// The place with the second copy of journal and checkpoints. In a tiering volume it is on the slowest tier, and may lag. In a cache
    /// volume it is on a second fast member; if there is none, it is a second place on the first one, and may lag. `None` in a tiering volume
    /// of one member.
    pub mirror: Option<Carrier>,
    /// The sizes of the metadata areas.
    pub area: MetaArea,
    /// Whether there is a journal at all. A cache volume without all of its flash has none: there is nothing to record.
    pub has_journal: bool,
}

impl Layout {
    /// The layout while the members `missing` are absent: if primary or mirror is absent, the other one is the primary. `None` if both are
    /// absent.
    #[must_use]
    pub fn without(self, missing: &[MemberId]) -> Option<Layout> {
        let mut left = self.carriers().filter(|c| !missing.contains(&c.member));
        Some(Layout {
            primary: left.next()?,
            mirror: left.next(),
            ..self
        })
    }
    /// Primary and mirror.
    pub fn carriers(&self) -> impl Iterator<Item = Carrier> + use<> {
        let all = core::iter::once(self.primary).chain(self.mirror);
        all.take(if self.has_journal { 2 } else { 0 })
    }
    /// Whether member `m` carries journal and checkpoints.
    pub fn carries(&self, m: MemberId) -> bool {
        self.carriers().any(|c| c.member == m)
    }
    /// Whether the mirror must have everything before it is acknowledged, so that either place may be lost: it is on another member, of a
    /// cache volume.
    pub fn is_synchronous(&self, kind: Kind) -> bool {
        let other = |c: Carrier| c.member != self.primary.member;
        kind == Kind::Cache && self.mirror.is_some_and(other)
    }
    /// The byte offset of the journal block with sequence number `seq` on a carrier.
    pub fn ring_offset(&self, c: Carrier, seq: u64) -> u64 {
        c.ring_at + seq % u64::from(self.area.ring_blocks) * BLOCK as u64
    }
    /// The byte offset of checkpoint region 0 or 1 on a carrier.
    pub fn region_offset(&self, c: Carrier, region: u8) -> u64 {
        c.regions_at + u64::from(region) * u64::from(self.area.region_blocks) * BLOCK as u64
    }
    /// The byte offset of data block `i` of checkpoint `number` on a carrier.
    pub fn checkpoint_block(&self, c: Carrier, number: u64, i: u32) -> u64 {
        self.region_offset(c, Header::region(number)) + (1 + u64::from(i)) * BLOCK as u64
    }
    /// The first byte that slots may use on member `m`, if its regions are behind the ring. The copy of the superblock is directly before it.
    pub fn data_offset(&self, m: MemberId, extent_bytes: u64) -> u64 {
        let align = extent_bytes.max(1 << 20);
        let end = HEAD_BLOCKS * BLOCK as u64 + self.area.bytes() * self.copies_on(m) + BLOCK as u64;
        end.div_ceil(align) * align
    }
    /// Number of carriers on member `m`.
    pub fn copies_on(&self, m: MemberId) -> u64 {
        self.carriers().filter(|c| c.member == m).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_do_not_overlap() {
        let a = MetaArea::for_volume(1000, 128, 1 << 30);
        assert_eq!(a.ring_blocks, 4096);
        // With 128 blocks per extent, a bitmap has 16 bytes, which is one unit. So a record has 2 units, a block has space for 126 records,
        // and 1000 extents need 8 blocks and the header.
        assert_eq!(a.region_blocks, 9);
        let on = |member, n| Carrier {
            member: MemberId(member),
            ring_at: a.ring_at(n),
            regions_at: a.ring_at(n) + a.ring_bytes(),
        };
        let twice = Layout {
            primary: on(0, 0),
            mirror: Some(on(0, 1)),
            area: a,
            has_journal: true,
        };
        let (p, m) = (twice.primary, on(0, 1));
        assert_eq!(twice.ring_offset(p, 0), 4 * 4096);
        assert_eq!(twice.ring_offset(p, 4095) + 4096, twice.region_offset(p, 0));
        assert_eq!(
            twice.region_offset(p, 1) - twice.region_offset(p, 0),
            9 * 4096
        );
        assert_eq!(twice.region_offset(p, 2), twice.ring_offset(m, 0));
        let end = twice.region_offset(m, 2);
        assert!(twice.data_offset(MemberId(0), 65536) >= end + 4096);
        assert_eq!(twice.data_offset(MemberId(1), 65536), 1 << 20);
        assert!(!twice.is_synchronous(Kind::Cache) && !twice.carries(MemberId(1)));
        let other = Layout {
            mirror: Some(on(1, 0)),
            ..twice
        };
        assert!(other.is_synchronous(Kind::Cache) && !other.is_synchronous(Kind::Tiering));
    }
}
