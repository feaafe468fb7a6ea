//! The kind and the length of a record, before it is encoded.

use super::{MAP, MAP_PARTIAL, Set, UNMAP, bitmap_units};
use crate::map::ExtentMap;
use crate::units::{ExtentId, Slot};

/// The form of a record.
pub(super) enum Form {
    /// A record without a copy.
    Plain { kind: u8 },
    /// A record with a copy. The sets are the blocks that are valid at the home, dirty, and clean.
    Copied { sets: [Set<'static>; 3] },
}

impl Form {
    pub(super) fn of(
        map: &ExtentMap,
        e: ExtentId,
        slot: Option<Slot>,
        blocks: u32,
        closing: Option<u64>,
    ) -> Form {
        let states = |e| closing.is_some() || map.is_named(e);
        if slot.is_some() && states(e) && map.copied_blocks(e) > 0 {
            let sets = sets_of(map, e, blocks, closing);
            return Form::Copied { sets };
        }
        let kind = match slot {
            None => UNMAP,
            Some(_) if map.is_partial(e) => MAP_PARTIAL,
            Some(_) => MAP,
        };
        Form::Plain { kind }
    }
    /// Number of units of the record.
    pub(super) fn units(&self, blocks: u32) -> usize {
        let each = bitmap_units(blocks);
        match self {
            Form::Plain { kind } => 1 + if *kind == MAP_PARTIAL { each } else { 0 },
            Form::Copied { sets } => 2 + sets.iter().map(|s| s.units(each)).sum::<usize>(),
        }
    }
}

/// The sets of blocks of an extent with a copy: valid at the home, dirty, clean. Bitmaps are empty here, because only their presence
/// matters.
fn sets_of(map: &ExtentMap, e: ExtentId, blocks: u32, closing: Option<u64>) -> [Set<'static>; 3] {
    let of = |n: u32| match n {
        0 => Set::None,
        n if n == blocks => Set::All,
        _ => Set::Some(&[]),
    };
    // At the end of a session the exact sets are recorded, before that all blocks of a named copy as dirty.
    let all = map.copied_blocks(e);
    let dirty = closing.map_or(all, |_| map.dirty_blocks(e));
    let valid = if map.has_no_valid_block(e) {
        Set::None
    } else if map.is_partial(e) {
        Set::Some(&[])
    } else {
        Set::All
    };
    let clean = of(all - dirty);
    [valid, of(dirty), clean]
}
