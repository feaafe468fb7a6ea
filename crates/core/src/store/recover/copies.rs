//! The copies of a volume while records are applied.
//!
//! While records are applied, two extents may have a copy in the same slot for a time, because a checkpoint is written while the volume is in
//! use. In a cache volume a copy is put into the map at once if its slot is free there; so recovery takes little memory beside the map, and
//! only the copies that find their slot taken wait in a table. In a tiering volume, in which a slot of the faster tiers may also be a home, all
//! of them wait.

use super::super::error::OpenError;
use super::super::record;
use crate::units::{ExtentId, Nanos, Slot};
use crate::volume::Space;
use crate::volume::map::{ExtentMap, Recorded};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// The copy of an extent according to its last record: the slot, the statistics, and the state of the blocks.
pub(super) struct Copy {
    pub(super) slot: Slot,
    pub(super) stat: u16,
    pub(super) last: Nanos,
    pub(super) dirty: Blocks,
    pub(super) clean: Blocks,
}

/// A set of blocks of an extent.
pub(super) enum Blocks {
    None,
    All,
    Some(Box<[u8]>),
}

impl Blocks {
    pub(super) fn of(set: record::Set<'_>, blocks: u32) -> Blocks {
        match set {
            record::Set::None => Blocks::None,
            record::Set::All => Blocks::All,
            record::Set::Some(_) if !(0..blocks).any(|b| set.has(b)) => Blocks::None,
            record::Set::Some(bits) => Blocks::Some(bits.into()),
        }
    }
    fn is_none(&self) -> bool {
        matches!(self, Blocks::None)
    }
    /// Whether it is a bitmap.
    fn is_mixed(&self) -> bool {
        matches!(self, Blocks::Some(_))
    }
    fn has(&self, b: u32) -> bool {
        match self {
            Blocks::None => false,
            Blocks::All => true,
            Blocks::Some(bits) => record::Set::Some(bits).has(b),
        }
    }
}

/// The copies that are not in the map yet, by extent.
#[derive(Default)]
pub(super) struct Copies {
    waiting: BTreeMap<u32, Copy>,
}

pub(super) const TWICE: &str = "two extents claim one slot";

impl Copies {
    /// A record states the copy of `e`: `copy`, or none.
    pub(super) fn state(&mut self, space: &mut Space, e: ExtentId, copy: Option<Copy>) {
        if !self.waiting.is_empty() {
            self.waiting.remove(&e.0);
        }
        let is_cache = space.geo.is_cache();
        if is_cache && space.map.copy(e).is_some() {
            // The statistics of an extent outlive a session only with its copy.
            space.map.forget(e);
            space.map.drop_copy(e);
        }
        match copy.filter(|c| !c.dirty.is_none() || !c.clean.is_none()) {
            Some(c) if is_cache && space.map.owner(c.slot).is_none() => {
                place(&mut space.map, true, e, &c);
            }
            Some(c) => {
                self.waiting.insert(e.0, c);
            }
            None => {}
        }
    }

    /// All records were applied: puts the copies that wait into the map, and takes the slots of all copies.
    ///
    /// # Errors
    /// Two extents have a copy in the same slot.
    pub(super) fn finish(&mut self, space: &mut Space) -> Result<(), OpenError> {
        let fast = space.geo.tier_slots(space.geo.slowest()).start;
        let twice = OpenError::BadRecord(TWICE);
        if space.geo.is_cache() && space.map.copied() > 0 {
            for s in (0..fast).map(Slot) {
                if space.map.owner(s).is_some() && !space.slots.take(s) {
                    return Err(twice);
                }
            }
        }
        for (e, c) in core::mem::take(&mut self.waiting) {
            if !space.slots.take(c.slot) {
                return Err(twice);
            }
            place(&mut space.map, space.geo.is_cache(), ExtentId(e), &c);
        }
        Ok(())
    }
}

/// Adds a copy to the map. (After a crash, of a copy's blocks only the dirty ones and those that are claimed to be clean are used. For the
/// others it is unknown whether they still equal the home: see `apply`.)
fn place(map: &mut ExtentMap, is_cache: bool, e: ExtentId, c: &Copy) {
    map.add_empty_copy(e, c.slot);
    map.set_stat(e, c.stat);
    map.set_last(e, c.last);
    let blocks = map.blocks();
    let is_mixed = c.dirty.is_mixed() || c.clean.is_mixed();
    let mut b = 0;
    while b < blocks {
        let (dirty, clean) = (c.dirty.has(b), c.clean.has(b));
        let alike = |x: &u32| (c.dirty.has(*x), c.clean.has(*x)) == (dirty, clean);
        let mut to = if is_mixed {
            b + (b..blocks).take_while(alike).count() as u32
        } else {
            blocks
        };
        if dirty {
            map.copy_dirty(e, b, to);
        } else if clean {
            let (n, valid) = map.run(e, b, to);
            to = b + n;
            if valid {
                map.copy_validate(e, b, to);
            }
        }
        b = to;
    }
    // Before the slot can be allocated again, a later record that does not name it must be durable.
    let recorded = match (c.dirty.is_none(), c.clean.is_none()) {
        (true, _) => Recorded::No,
        (false, true) => Recorded::Whole,
        (false, false) => Recorded::Part,
    };
    map.set_recorded(c.slot, recorded);
    if is_cache && !c.clean.is_none() {
        map.set_claimed_clean(c.slot, true);
    }
}
