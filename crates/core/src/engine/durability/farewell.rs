//! A clean close in proportion to what changed.
//!
//! At the end of a session three things are in memory alone: which blocks copies hold clean, and of the extents used since the last
//! checkpoint when that was and what the policy keeps for them. A checkpoint of all extents says it, at 16 bytes or more for each
//! extent of the volume: 1.5 GB twice for 100 TB. So, where the journal has room, records of just these extents are written instead,
//! the way a checkpoint would write them. They count by the same rule: what they call clean, only if every member says *clean* and this
//! session was the last.
//!
//! What a policy changed about extents that nobody used meanwhile (it may let all of them grow old at once) stays as the checkpoint has
//! it. That costs speed at most, as after a crash.

use super::Durability;
use crate::engine::ground::Ground;
use crate::store::{BLOCK, HEADER, record};
use crate::units::ExtentId;

/// How far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Farewell {
    /// The session is not at its end, or a checkpoint ends it.
    #[default]
    Not,
    /// All before this extent are told.
    Telling(ExtentId),
    /// All are.
    Told,
}

impl Durability {
    /// Begin to tell, if that leaves half of the ring free, as much as a checkpoint may need of it in the next session.
    pub(super) fn begin_farewell(&mut self, g: &Ground) -> bool {
        if g.params.end_with_checkpoint || self.half_full() || !self.farewell_fits(g) {
            return false;
        }
        self.farewell = Farewell::Telling(ExtentId(0));
        true
    }

    /// Is it under way, or done?
    pub(super) fn says_farewell(&self) -> bool {
        self.farewell != Farewell::Not
    }

    fn farewell_fits(&self, g: &Ground) -> bool {
        let (map, geo) = (&g.space.map, &g.space.geo);
        let ring = u64::from(self.layout.area.ring_blocks);
        // One block more for a round that ends in the middle of one.
        let room = self.ring_room().saturating_sub(ring.div_ceil(2) + 1);
        let each = ((BLOCK - HEADER) / 16) as u64;
        let longest = record::max_copy_units(geo.blocks_per_extent()) as u64;
        // Records do not cross blocks, and rounds end with a block of their own.
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

    /// What a round has room for.
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
