//! The extents of which a checkpoint, or the last records of a session, must have a record.

use super::rows::{Row, Rows};
use super::{ExtentMap, UNMAPPED};
use crate::units::{ExtentId, Nanos, Slot};

impl ExtentMap {
    /// Number of rows of a checkpoint. There is one for each extent; in a cache volume, whose records state copies, one for each slot that
    /// may hold one. So a checkpoint takes time and space for the flash, and never for the disk.
    pub fn checkpoint_rows(&self) -> u32 {
        match &self.rows {
            Rows::Extents(_) => self.extents(),
            Rows::Copies(_) => self.rows.fast() as u32,
        }
    }
    /// From row `row` of a checkpoint on, and before row `stop`, the first row with a record, and its extent. `with_clean`: all clean copies
    /// have records, and not only those that are claimed to be clean.
    pub fn next_record(&self, row: u32, stop: u32, with_clean: bool) -> Option<(u32, ExtentId)> {
        if !self.has_fixed_homes() {
            let has = |e: &ExtentId| self.home(*e).is_some() && !self.is_gone(*e);
            return (row..stop).map(ExtentId).find(has).map(|e| (e.0, e));
        }
        let of = |s: u32| self.owner(Slot(s)).map(|e| (s, e));
        if with_clean {
            let has = |&(_, e): &(u32, ExtentId)| self.copied_blocks(e) > 0;
            return (row..stop).find_map(|s| of(s).filter(has));
        }
        let mut row = row;
        loop {
            let claimed = self.next_claimed_clean(row, stop);
            row = self.next_named(row, stop).min(claimed);
            if row >= stop {
                return None;
            }
            // (A copy of which no block is valid any more has no record.)
            if let Some(found) = of(row).filter(|&(_, e)| !self.copy_is_empty(e)) {
                return Some(found);
            }
            row += 1;
        }
    }
    /// The first row of a checkpoint, from `row` on, whose extent has a home and either has a copy or was used at `since` or later; with the
    /// extent. In a cache volume only copies count: the statistics of an extent outlive a session as long as its copy does.
    pub fn next_used(&self, row: u32, since: Nanos) -> Option<(u32, ExtentId)> {
        let Rows::Extents(all) = &self.rows else {
            return self.next_record(row, self.checkpoint_rows(), true);
        };
        let us = since.0 / 1000;
        let used = |r: &Row| {
            let copied = || all.home_of_copy_in(r.place).is_some();
            r.place != UNMAPPED && (r.stats.last_us() >= us || copied())
        };
        let n = all.rows.get(row as usize..)?.iter().position(used)?;
        let row = row + n as u32;
        Some((row, ExtentId(row)))
    }
}
