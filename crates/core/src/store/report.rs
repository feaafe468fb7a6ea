//! The findings of opening a volume, and the parts that were damaged.

use crate::units::{ExtentId, MemberId};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The findings and actions of opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether the last session was closed cleanly.
    pub was_clean: bool,
    /// Number of the checkpoint that was used.
    pub checkpoint: u64,
    /// Number of records read from it.
    pub checkpoint_records: u64,
    /// Number of journal blocks that were replayed.
    pub journal_blocks: u64,
    /// Number of records in these blocks.
    pub journal_records: u64,
    /// Number of journal blocks, checkpoint blocks and checkpoint headers that had to be read from the mirror.
    pub from_mirror: u64,
    /// Number of mapped extents.
    pub mapped: u32,
    /// Members that are absent.
    pub missing: Vec<MemberId>,
    /// Number of extents whose home is on an absent member.
    pub lost_homes: u32,
    /// Number of extents whose newest data is known to be in a copy on an absent member.
    pub lost_writes: u32,
    /// If all flash of a cache volume is absent: the extents that may have lost their newest data, as ranges. They count as lost writes.
    pub suspects: Vec<core::ops::Range<u32>>,
    /// Whether there may be more such copies, of which the remaining members have no record.
    pub unsure: bool,
    /// Whether the remaining members have the record of every home, so that an extent without such a record is not mapped.
    pub knows_homes: bool,
    /// Extents that have lost their newest data, if the loss was accepted. The engine must still record this.
    pub dropped: Vec<ExtentId>,
    /// Number of blocks on the lists of earlier losses, which the user accepted now: what the disks hold counts there.
    pub accepted: u64,
    /// Whether extents that were mapped may be missing in the map. Then unmapped extents must not be read as zeros.
    pub incomplete: bool,
    /// Parts that were damaged in one place and complete in another. They have been repaired, unless the volume was opened read-only.
    pub repairs: Vec<Repair>,
    /// If the loss of records was accepted: the extents whose records are lost, as ranges with exclusive ends. They have no home now.
    pub lost_extents: Vec<(ExtentId, ExtentId)>,
    /// Journal blocks up to this number are known to have been durable. If later blocks are missing, this cannot be detected.
    pub proven: u64,
    /// Further messages.
    pub notes: Vec<String>,
}

/// A part of a member's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// One of the member's two superblocks.
    Superblock,
    /// The member's counter.
    Counter,
    /// The mark of a disk of a cache volume.
    Mark,
    /// Data blocks of the checkpoint in use.
    Checkpoint,
    /// The header of the checkpoint in use.
    CheckpointHeader,
    /// Journal blocks that had been durable on this member.
    Journal,
}

/// A damaged part that exists complete in another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The member.
    pub member: MemberId,
    /// The part.
    pub part: Part,
    /// Number of blocks.
    pub blocks: u64,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.part {
            Part::Superblock => "superblocks",
            Part::Counter => "counter blocks",
            Part::Mark => "mark blocks",
            Part::Checkpoint => "checkpoint blocks",
            Part::CheckpointHeader => "checkpoint headers",
            Part::Journal => "journal blocks",
        };
        let (m, n) = (self.member.0, self.blocks);
        write!(f, "member {m}: {n} {what} damaged, whole elsewhere")
    }
}
