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
    /// In a cache volume: no copy counts.
    Home,
    /// In a cache volume: a record with a copy. The sets are the blocks that are dirty, and clean.
    Cached { sets: [Set<'static>; 2] },
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
            return if map.has_fixed_homes() {
                let [_, dirty, clean] = sets;
                Form::Cached {
                    sets: [dirty, clean],
                }
            } else {
                Form::Copied { sets }
            };
        }
        if map.has_fixed_homes() {
            return Form::Home;
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
            Form::Home => 1,
            Form::Cached { sets } => super::cached::units(*sets, blocks),
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

/// The blocks that are valid in the copy and not dirty as a bitmap, lowest block in the lowest bit.
pub(super) fn export_clean(map: &ExtentMap, e: ExtentId, blocks: u32, bits: &mut [u8]) {
    map.export_copied(e, bits);
    for b in (0..blocks).filter(|&b| map.dirty_run(e, b, b + 1).1) {
        bits[b as usize / 8] &= !(1 << (b % 8));
    }
}
