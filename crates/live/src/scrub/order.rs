//! The order of a scrub: extents by the slots of their homes, which is the order of the disks.
//!
//! The map knows the home of an extent and not the extent of a slot, so the extents of a window of slots are collected by a walk over the
//! map, in slices, and sorted. Memory: one bit per extent, and 8 bytes per slot of a window. A window has 1/64 of the slots (or 2 MiB of
//! memory, if that is more), so both together take less than 0.3 bytes per extent, and all windows cost at most 64 walks, a few seconds of
//! the engine's thread for each 10^9 extents and walk.
//!
//! Extents move while this goes on. One that moves behind the window would be missed, so further passes visit the extents that were not
//! visited yet, wherever they are then.

use super::{Ended, State};
use crate::server::Handle;
use isotherm_core::{Engine, ExtentId, Slot};
use std::collections::VecDeque;
use std::time::Duration;

/// Rows of the map that the engine's thread examines at a time: about 0.1 ms.
const SLICE: u32 = 1 << 14;
/// Least number of slots in a window.
const WINDOW_MIN: u32 = 1 << 18;
/// Passes after the first one through all extents that were not visited.
const PASSES: u8 = 3;
/// The same, as long as there are more of them than a window holds.
const PASSES_OF_MANY: u8 = 64;

/// See the module.
pub(super) struct Order {
    extents: u32,
    slots: u32,
    width: u32,
    visited: Vec<u64>,
    /// The next windows begin here.
    from: u32,
    /// Passes that were made after the first one.
    passes: u8,
    window: VecDeque<(Slot, ExtentId)>,
}

impl Order {
    pub fn new(handle: &Handle) -> Result<Order, Ended> {
        let sizes = handle.call(|e, _| {
            let geo = &e.space().geo;
            (geo.extents, geo.slots())
        });
        let (extents, slots) = sizes.ok_or(Ended::Closed)?;
        Ok(Order {
            extents,
            slots,
            width: (slots / 64).max(WINDOW_MIN),
            visited: vec![0; extents.div_ceil(64) as usize],
            from: 0,
            passes: 0,
            window: VecDeque::new(),
        })
    }

    /// Marks an extent as visited.
    pub fn done(&mut self, e: ExtentId) {
        if let Some(word) = self.visited.get_mut(e.0 as usize / 64) {
            *word |= 1 << (e.0 % 64);
        }
    }

    fn is_done(&self, e: ExtentId) -> bool {
        (self.visited.get(e.0 as usize / 64)).is_some_and(|w| w >> (e.0 % 64) & 1 == 1)
    }

    /// Extents in the window that were not visited. After the end: those that every pass has missed.
    pub fn left(&self) -> impl Iterator<Item = ExtentId> {
        self.window.iter().map(|w| w.1)
    }

    /// The next extents, at most `most`, with neighbouring homes. `None` at the end.
    pub fn next_run(
        &mut self,
        most: usize,
        handle: &Handle,
        state: &State,
    ) -> Result<Option<Vec<(Slot, ExtentId)>>, Ended> {
        while self.window.is_empty() {
            if self.from < self.slots {
                let to = self.from.saturating_add(self.width).min(self.slots);
                self.collect(handle, state, (self.from, to))?;
                self.from = to;
            } else {
                let all = self.collect(handle, state, (0, self.slots))?;
                let most = if all { PASSES } else { PASSES_OF_MANY };
                if self.window.is_empty() || self.passes >= most {
                    return Ok(None);
                }
                self.passes += 1;
                // What moves all the time may rest in a moment.
                state.nap(Duration::from_millis(200))?;
            }
        }
        let mut run: Vec<(Slot, ExtentId)> = Vec::new();
        while run.len() < most
            && let Some(&(slot, e)) = self.window.front()
            && run.last().is_none_or(|last| last.0.0 + 1 == slot.0)
        {
            run.push((slot, e));
            self.window.pop_front();
        }
        Ok(Some(run))
    }

    /// Fills the window with the extents that were not visited and whose homes are in these slots, until a window is full. Returns whether
    /// these were all.
    fn collect(
        &mut self,
        handle: &Handle,
        state: &State,
        (from, to): (u32, u32),
    ) -> Result<bool, Ended> {
        let mut all: Vec<(Slot, ExtentId)> = Vec::new();
        let mut e = 0;
        while e < self.extents && all.len() < self.width as usize {
            let end = e.saturating_add(SLICE).min(self.extents);
            let slice = handle.call(move |engine, _| homes(engine, (e, end), (from, to)));
            let slice = slice.ok_or(Ended::Closed)?;
            all.extend(slice.into_iter().filter(|s| !self.is_done(s.1)));
            e = end;
            state.nap(Duration::ZERO)?;
        }
        all.sort_unstable();
        self.window = all.into();
        Ok(e >= self.extents)
    }
}

/// The extents of `first..end` with data whose homes are in the slots `from..to`.
fn homes(
    engine: &Engine,
    (first, end): (u32, u32),
    (from, to): (u32, u32),
) -> Vec<(Slot, ExtentId)> {
    let map = &engine.space().map;
    let home = |e| {
        let home = map.home(e).filter(|s| (from..to).contains(&s.0))?;
        (!map.is_gone(e)).then_some((home, e))
    };
    (first..end).filter_map(|e| home(ExtentId(e))).collect()
}
