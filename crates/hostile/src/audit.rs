//! Invariants on slots, homes, copies and counters that must hold at any moment between two events.

use isotherm_core::{Engine, ExtentId, Slot, TierId};

/// Checks these invariants on a running engine.
///
/// # Errors
/// Names the invariant that does not hold.
pub fn audit(engine: &Engine) -> Result<(), String> {
    engine.contracts()?;
    let space = engine.space();
    let (geo, map) = (&space.geo, &space.map);
    let blocks = geo.blocks_per_extent();
    let mut owned = vec![None; geo.slots() as usize];
    let mut own = |s: Slot, e: ExtentId| match owned[s.0 as usize].replace(e) {
        Some(other) => Err(format!("slot {s} belongs to extents {other} and {e}")),
        None if space.slots.is_free(s) => Err(format!("slot {s} of extent {e} is free")),
        None => Ok(()),
    };
    let (mut copied, mut dirty) = (0, 0);
    for e in (0..geo.extents).map(ExtentId) {
        let Some(home) = map.home(e) else {
            if map.copy(e).is_some() {
                return Err(format!("extent {e} has a copy and no home"));
            }
            continue;
        };
        own(home, e)?;
        let Some(copy) = map.copy(e) else { continue };
        own(copy, e)?;
        copied += 1;
        dirty += u32::from(map.is_dirty(e));
        if geo.tier_of(copy) >= geo.tier_of(home) {
            return Err(format!("the copy of extent {e} is no faster than its home"));
        }
        if map.is_dirty(e) != (map.dirty_blocks(e) > 0) {
            return Err(format!(
                "extent {e} is dirty without a dirty block, or not with one"
            ));
        }
        for b in 0..blocks {
            let on = |run: (u32, bool)| run.1;
            let (valid, is_dirty) = (
                on(map.copy_run(e, b, b + 1)),
                on(map.dirty_run(e, b, b + 1)),
            );
            if is_dirty && !valid {
                return Err(format!(
                    "block {b} of extent {e} is dirty but not in the copy"
                ));
            }
            if valid && !is_dirty && !on(map.run(e, b, b + 1)) {
                return Err(format!(
                    "block {b} of extent {e} is clean, and the home lacks it"
                ));
            }
        }
    }
    if (map.copied(), map.dirty()) != (copied, dirty) {
        return Err(String::from("copies are miscounted"));
    }
    let owned = owned.iter().flatten().count() as u32;
    let known: u32 = (0..geo.tiers())
        .map(TierId)
        .map(|t| space.slots.free(t) + space.slots.freeing(t) + space.slots.lost(t))
        .sum();
    let taken = geo.slots() - known.min(geo.slots()) - owned;
    // Each move has taken at most one slot. (After a failed round some slots stay taken for good.)
    if taken > engine.progress().0 && !engine.has_failed() {
        return Err(format!(
            "{taken} slots belong to nobody, with {} moves under way",
            engine.progress().0
        ));
    }
    Ok(())
}
