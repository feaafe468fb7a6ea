//! The extents of which a checkpoint, or the last records of a session, must have a record.

use super::{ExtentMap, Row, UNMAPPED};
use crate::units::{ExtentId, Nanos, Slot};

impl ExtentMap {
    /// Number of rows of a checkpoint. There is one for each extent; in a cache volume, whose records state copies, one for each slot that
    /// may hold one. So a checkpoint takes time and space for the flash, and never for the disk.
    pub fn checkpoint_rows(&self) -> u32 {
        if self.fixed {
            self.owner.len() as u32
        } else {
            self.extents()
        }
    }
    /// From row `row` of a checkpoint on, and before row `stop`, the first row with a record, and its extent. `with_clean`: clean copies have
    /// records, too.
    pub fn next_record(&self, row: u32, stop: u32, with_clean: bool) -> Option<(u32, ExtentId)> {
        let of = |r: u32| {
            if self.fixed {
                self.copied_in(Slot(r)).map(|c| c.0)
            } else {
                Some(ExtentId(r))
            }
        };
        let has = |&(r, e): &(u32, ExtentId)| {
            if self.fixed {
                self.is_dirty_in(Slot(r)) || (with_clean && self.copied_blocks(e) > 0)
            } else {
                self.home(e).is_some() && !self.is_gone(e)
            }
        };
        let first = match (self.fixed && !with_clean, self.dirty) {
            (true, 0) => stop,
            (true, _) => row + self.dirty_slots.run(row as usize, stop as usize, false) as u32,
            (false, _) => row,
        };
        (first..stop).find_map(|r| of(r).map(|e| (r, e)).filter(has))
    }
    /// The first row of a checkpoint, from `row` on, whose extent has a home and either has a copy or was used at `since` or later; with the
    /// extent. In a cache volume only copies count: the statistics of an extent outlive a session as long as its copy does.
    pub fn next_used(&self, row: u32, since: Nanos) -> Option<(u32, ExtentId)> {
        if self.fixed {
            return self.next_record(row, self.checkpoint_rows(), true);
        }
        let us = since.0 / 1000;
        let used = |r: &Row| {
            let last = u64::from(r.last_low) | u64::from(r.last_high) << 32;
            r.place != UNMAPPED && (last >= us || self.home_of_copy_in(r.place).is_some())
        };
        let n = self.rows.get(row as usize..)?.iter().position(used)?;
        let row = row + n as u32;
        Some((row, ExtentId(row)))
    }
}
