//! The last records of a session: a clean close whose cost is proportional to the changes, without a checkpoint.
//!
//! At the end of a session, three things are only in memory: the clean blocks of copies, and, for the extents that were used since the last
//! checkpoint, the time of that use and the policy's statistics. A checkpoint of all extents would record them, with at least 16 bytes for
//! each extent of the volume: 1.5 GB twice for 100 TB. So, if the journal has space, only these extents are recorded there, in the form
//! that a checkpoint has. The same rule applies to these records: their clean blocks are valid only if the superblock of every member says
//! *clean* and this session was the last one.
//!
//! A policy may also change the statistics of extents that were not used since the checkpoint (for example, age all of them at once). These
//! changes are not recorded, and the checkpoint's values stay. As after a crash, this can only make the policy's decisions less good for a
//! while.

use super::Durability;
use crate::engine::globals::Globals;
use crate::store::{BLOCK, HEADER, record};

/// The progress of these records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FinalRecords {
    /// None are written, because the session is not at its end, or ends with a checkpoint.
    #[default]
    None,
    /// All extents of rows of the map before this one are recorded ([`ExtentMap::next_used`](crate::map::ExtentMap::next_used)).
    Writing(u32),
    /// All extents are recorded.
    Written,
}

impl Durability {
    /// Begins to write these records if half of the journal's ring stays free, because a checkpoint of the next session may need that.
    /// Returns false if the session must end with a checkpoint.
    pub(super) fn begin_final_records(&mut self, g: &Globals) -> bool {
        if g.params.end_with_checkpoint || self.half_full() || !self.final_records_fit(g) {
            return false;
        }
        self.final_records = FinalRecords::Writing(0);
        true
    }

    /// Whether these records are being written, or were written.
    pub(super) fn has_final_records(&self) -> bool {
        self.final_records != FinalRecords::None
    }

    fn final_records_fit(&self, g: &Globals) -> bool {
        let (map, geo) = (&g.space.map, &g.space.geo);
        let ring = u64::from(self.layout.area.ring_blocks);
        // One block is subtracted for a round that ends within a block.
        let room = self.ring_room().saturating_sub(ring.div_ceil(2) + 1);
        let each = ((BLOCK - HEADER) / 16) as u64;
        let longest = record::most_units(geo.kind(), geo.blocks_per_extent()) as u64;
        // Records do not cross blocks, and each round ends with a block of its own.
        let most = room.saturating_sub(room / 64 + 1) * each.saturating_sub(longest - 1);
        let mut scratch = [0; BLOCK];
        let (mut units, mut at) = (0, 0);
        while let Some((row, e)) = map.next_used(at, self.checkpoints.since()) {
            let units_of_e =
                record::encode(map, e, map.home(e), geo, Some(self.epoch), &mut scratch);
            units += units_of_e.unwrap_or(BLOCK) as u64;
            if units > most {
                return false;
            }
            at = row + 1;
        }
        true
    }

    /// Encodes as many of these records as the round has space for.
    pub(super) fn encode_final_records(&mut self, g: &mut Globals, limit: u64) {
        let FinalRecords::Writing(mut at) = self.final_records else {
            return;
        };
        let epoch = Some(self.epoch);
        self.final_records = loop {
            let Some((row, e)) = g.space.map.next_used(at, self.checkpoints.since()) else {
                break FinalRecords::Written;
            };
            let home = g.space.map.home(e);
            if !self.encode(g, e, home, epoch, limit) {
                break FinalRecords::Writing(row);
            }
            at = row + 1;
        };
    }
}
