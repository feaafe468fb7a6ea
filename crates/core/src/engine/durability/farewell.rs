//! A clean close whose cost is proportional to the changes.
//!
//! At the end of a session, three things are only in memory: the clean blocks of copies, and, for the extents that were used since the last
//! checkpoint, the time of that use and the policy's statistics. A checkpoint of all extents would record them, with at least 16 bytes for
//! each extent of the volume: 1.5 GB twice for 100 TB. So, if the journal has space, records of just these extents are written, in the form
//! in which a checkpoint would hold them. The same rule applies to them: their clean blocks are valid only if the superblock of every
//! member says *clean* and this session was the last one.
//!
//! Changes of a policy's statistics for extents that were not used since (a policy may age all of them at once) are not recorded; the
//! checkpoint's values stay. At most this costs speed, as after a crash.

use super::Durability;
use crate::engine::ground::Ground;
use crate::store::{BLOCK, HEADER, record};
use crate::units::ExtentId;

/// The progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Farewell {
    /// The session is not at its end, or a checkpoint ends it.
    #[default]
    Not,
    /// All extents before this one are recorded.
    Telling(ExtentId),
    /// All are recorded.
    Told,
}

impl Durability {
    /// Begins to write these records, if that leaves half of the ring free, which a checkpoint of the next session may need.
    pub(super) fn begin_farewell(&mut self, g: &Ground) -> bool {
        if g.params.end_with_checkpoint || self.half_full() || !self.farewell_fits(g) {
            return false;
        }
        self.farewell = Farewell::Telling(ExtentId(0));
        true
    }

    /// Whether this is in progress, or done.
    pub(super) fn says_farewell(&self) -> bool {
        self.farewell != Farewell::Not
    }

    fn farewell_fits(&self, g: &Ground) -> bool {
        let (map, geo) = (&g.space.map, &g.space.geo);
        let ring = u64::from(self.layout.area.ring_blocks);
        // One more block, for a round that ends within one.
        let room = self.ring_room().saturating_sub(ring.div_ceil(2) + 1);
        let each = ((BLOCK - HEADER) / 16) as u64;
        let longest = record::max_copy_units(geo.blocks_per_extent()) as u64;
        // Records do not cross blocks, and each round ends with a block of its own.
        let most = room.saturating_sub(room / 64 + 1) * each.saturating_sub(longest - 1);
        let mut scratch = [0; BLOCK];
        let (mut units, mut at) = (0, ExtentId(0));
        while let Some(e) = map.next_used(at, self.checkpoints.since()) {
            let told = record::encode(map, e, map.home(e), geo, Some(self.epoch), &mut scratch);
            units += told.unwrap_or(BLOCK) as u64;
            if units > most {
                return false;
            }
            at = ExtentId(e.0 + 1);
        }
        true
    }

    /// Writes as many records as a round has space for.
    pub(super) fn tell_farewell(&mut self, g: &mut Ground, limit: u64) {
        let Farewell::Telling(mut at) = self.farewell else {
            return;
        };
        let epoch = Some(self.epoch);
        self.farewell = loop {
            let Some(e) = g.space.map.next_used(at, self.checkpoints.since()) else {
                break Farewell::Told;
            };
            let home = g.space.map.home(e);
            if !self.encode(g, e, home, epoch, limit) {
                break Farewell::Telling(e);
            }
            at = ExtentId(e.0 + 1);
        };
    }
}
