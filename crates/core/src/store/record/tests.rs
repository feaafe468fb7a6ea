//! Records there and back, and their lengths.

use super::*;
use crate::geometry::{Geometry, Member};
use crate::units::TierId;
use alloc::vec;
use alloc::vec::Vec;

/// `fast` fast slots and 24 extents.
fn geometry(extent_shift: u32, block_shift: u32, fast: u32) -> Geometry {
    let m = |t, slots| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: crate::geometry::Stash::default(),
    };
    Geometry::new(extent_shift, block_shift, 24, vec![m(0, fast), m(1, 24)]).unwrap()
}
fn shape(block_shift: u32, fast: u32) -> Geometry {
    geometry(12, block_shift, fast)
}
fn map(block_shift: u32) -> (ExtentMap, Geometry) {
    let geo = shape(block_shift, 8);
    (ExtentMap::new(&geo), geo)
}
/// Calls [`super::encode`], and checks that [`units`] and `plain_units` give the same length.
fn encode(
    m: &ExtentMap,
    e: ExtentId,
    slot: Option<Slot>,
    geo: &Geometry,
    closing: Option<u64>,
    out: &mut [u8],
) -> Option<usize> {
    let n = units(m, e, slot, geo, closing);
    let quick = m.plain_units(e, closing.is_some());
    assert!(
        quick.is_none_or(|q| q == n || slot.is_none()),
        "{quick:?} {n}"
    );
    if let Some((copy, all)) = m.named_copy(e).filter(|_| slot.is_some()) {
        assert_eq!(m.copy(e), Some(copy));
        let plain = units(m, e, slot, geo, None);
        assert_eq!(named_units(geo.kind(), all, geo.blocks_per_extent()), plain);
    }
    let made = super::encode(m, e, slot, geo, closing, out);
    assert_eq!(made, (n * 16 <= out.len()).then_some(n));
    made
}
fn read(units: &[u8], blocks: u32) -> (Record<'_>, usize) {
    match decode(units, blocks) {
        Ok(Some((Entry::Extent(r), n))) => (r, n),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_record_of_a_copy_round_trips() {
    let ((mut m, geo), e, mut out) = (map(9), ExtentId(3), [0xaau8; 256]);
    m.map(e, Slot(20), true);
    m.validate(e, 0, 4);
    m.add_empty_copy(e, Slot(2));
    m.copy_validate(e, 0, 2);
    // Nothing is dirty, so the copy is not part of the record, except in a record of a clean close.
    let n = encode(&m, e, m.home(e), &geo, None, &mut out).unwrap();
    let (r, used) = read(&out, 8);
    assert_eq!((n, used, r.copy), (2, 2, None));
    let n = encode(&m, e, m.home(e), &geo, Some(7), &mut out).unwrap();
    let (r, used) = read(&out, 8);
    let c = r.copy.unwrap();
    assert_eq!(
        (n, used, c.dirty, c.clean_if),
        (4, 4, Set::None, CleanIf::Session(7))
    );
    assert!(c.clean.has(0) && c.clean.has(1) && !c.clean.has(2));
    // With dirty blocks: the home is partly valid. The record names the clean blocks of the copy, too.
    m.copy_dirty(e, 1, 5);
    encode(&m, e, m.home(e), &geo, None, &mut out).unwrap();
    let (r, _) = read(&out, 8);
    let c = r.copy.unwrap();
    assert_eq!(
        (resolve(&r, &geo), c.clean),
        (Ok((Some(Slot(20)), Some(Slot(2)))), Set::None)
    );
    assert!((0..8).all(|b| r.valid.has(b) == (b < 4)));
    assert!((0..8).all(|b| c.dirty.has(b) == (b < 5)));
    assert!(resolve(&r, &shape(9, 2)).is_err(), "no place for a copy");
    // If the record does not fit, nothing is written.
    assert_eq!(encode(&m, e, m.home(e), &geo, None, &mut out[..48]), None);
    // The code of a set is 3; reserved bits of `sets` are used; neither dirty nor clean blocks; the reserved byte is used; the kind is
    // unknown.
    let sets = out[22];
    for bad in [
        (22, sets | 3),
        (22, sets | 0x40),
        (22, sets & 3),
        (23, 1),
        (0, 15),
    ] {
        let mut b = out;
        b[bad.0] = bad.1;
        assert!(decode(&b, 8).is_err(), "byte {} = {}", bad.0, bad.1);
    }
}

#[test]
fn length_of_a_named_copy_is_known_from_its_slot() {
    let ((mut m, geo), e, mut out) = (map(9), ExtentId(3), [0u8; 256]);
    m.map(e, Slot(20), false);
    m.add_empty_copy(e, Slot(2));
    assert_eq!(m.named_copy(e), None);
    m.copy_dirty(e, 1, 5);
    assert_eq!(m.named_copy(e), Some((Slot(2), false)));
    assert_eq!(encode(&m, e, m.home(e), &geo, None, &mut out), Some(3));
    m.copy_dirty(e, 0, 8);
    assert_eq!(m.named_copy(e), Some((Slot(2), true)));
    assert_eq!(encode(&m, e, m.home(e), &geo, None, &mut out), Some(2));
}

#[test]
fn one_block_an_extent_needs_no_bitmaps() {
    let ((mut m, geo), e, mut out) = (map(12), ExtentId(3), [0u8; 64]);
    m.map(e, Slot(20), true);
    m.add_empty_copy(e, Slot(2));
    m.copy_dirty(e, 0, 1);
    assert_eq!(m.plain_units(e, false), None);
    assert_eq!(encode(&m, e, m.home(e), &geo, None, &mut out), Some(2));
    // The copy is clean, and the home is fully valid: the record has one unit, or two if clean copies are recorded.
    let mut c = m.clone();
    c.copy_cleaned(e, 0, 1);
    assert_eq!(encode(&c, e, c.home(e), &geo, None, &mut [0; 64]), Some(1));
    assert_eq!(
        encode(&c, e, c.home(e), &geo, Some(7), &mut [0; 64]),
        Some(2)
    );
    assert_eq!(c.plain_units(e, true), Some(2));
    let (r, _) = read(&out, 1);
    assert_eq!(r.valid, Set::None);
    assert_eq!(resolve(&r, &geo), Ok((Some(Slot(20)), Some(Slot(2)))));
    assert_eq!(r.copy.map(|c| c.dirty), Some(Set::All));
}

#[test]
fn counters_and_extents_share_a_block() {
    let mut unit = encode_counter(4000, 1 << 40);
    let told = Entry::Counter {
        member: 4000,
        value: 1 << 40,
    };
    assert_eq!(decode(&unit, 8), Ok(Some((told, 1))));
    unit[5] = 1;
    assert!(decode(&unit, 8).is_err());
}

/// A cache volume with extents of 2^`extent_shift` bytes in blocks of 4 KiB.
fn cache(extent_shift: u32) -> (ExtentMap, Geometry) {
    let geo = geometry(extent_shift, 12, 8).of_kind(Kind::Cache).unwrap();
    (ExtentMap::new(&geo), geo)
}

#[test]
fn a_record_of_a_cache_volume_round_trips() {
    let e = ExtentId(3);
    // Up to 16 blocks, the bitmaps are within the record; of 64 blocks they follow it.
    for (shift, named, closing) in [(12, 2, 2), (16, 2, 2), (18, 3, 4)] {
        let ((mut m, geo), mut out) = (cache(shift), [0xaau8; 256]);
        let blocks = geo.blocks_per_extent();
        assert_eq!(encode(&m, e, m.home(e), &geo, None, &mut out), Some(1));
        let (r, used) = read(&out, blocks);
        assert_eq!((used, r.copy, r.is_fixed), (1, None, true));
        assert_eq!(resolve(&r, &geo), Ok((geo.home(e), None)));
        m.add_empty_copy(e, Slot(5));
        m.copy_validate(e, 0, blocks.min(9));
        m.copy_dirty(e, 0, blocks.min(3));
        m.set_stat(e, 77);
        m.set_last(e, Nanos::from_micros(9 << 20));
        for (kind, units) in [(None, named), (Some(CLAIMED), closing), (Some(7), closing)] {
            let n = encode(&m, e, m.home(e), &geo, kind, &mut out);
            let units = if blocks == 1 { 2 } else { units };
            assert_eq!(n, Some(units), "{blocks} blocks, {kind:?}");
            let (r, used) = read(&out[..units * 16], blocks);
            let c = r.copy.unwrap();
            assert_eq!((used, r.stat, r.extent), (units, 77, e));
            assert_eq!(r.last, Nanos::from_micros(9 << 20));
            assert_eq!(resolve(&r, &geo), Ok((geo.home(e), Some(Slot(5)))));
            let exact = kind.is_some();
            let dirty = if exact { 3 } else { 9 };
            assert!((0..blocks).all(|b| c.dirty.has(b) == (b < dirty)));
            assert!((0..blocks).all(|b| c.clean.has(b) == (exact && (3..9).contains(&b))));
            let condition = match kind {
                _ if blocks == 1 => CleanIf::Never,
                None => CleanIf::Never,
                Some(CLAIMED) => CleanIf::Claimed,
                Some(_) => CleanIf::SessionEnding(7),
            };
            assert_eq!(c.clean_if, condition);
            assert!(!c.clean_if.is_session(8));
        }
    }
}

#[test]
fn a_record_of_a_cache_volume_that_is_impossible_is_refused() {
    let ((mut m, geo), e, mut out) = (cache(16), ExtentId(3), [0u8; 32]);
    m.add_empty_copy(e, Slot(5));
    m.copy_dirty(e, 1, 3);
    assert_eq!(encode(&m, e, m.home(e), &geo, None, &mut out), Some(2));
    // An extent that cannot be; another disk; neither dirty nor clean blocks; reserved bits; another level.
    for bad in [
        (12, 1),
        (13, 1),
        (14, 1),
        (22, 0),
        (22, 0x42),
        (22, 3),
        (23, 1),
    ] {
        let mut b = out;
        b[bad.0] = bad.1;
        assert!(decode(&b, 16).is_err(), "byte {} = {}", bad.0, bad.1);
    }
    // A place within a slot, behind the last slot, and of another member.
    for bad in [(16, 0x51), (16, 0x80), (21, 1), (1, 1)] {
        let mut b = out;
        b[bad.0] = bad.1;
        let (r, _) = read(&b, 16);
        assert!(resolve(&r, &geo).is_err(), "byte {} = {}", bad.0, bad.1);
    }
    assert!(decode(&out[..16], 16).is_err(), "cut short");
    let (other, _) = map(12);
    assert!(!other.has_fixed_homes());
    let (r, _) = read(&out, 16);
    assert!(resolve(&r, &shape(12, 8)).is_err(), "of a tiering volume");
    // And the other way round.
    let (mut t, tiers) = map(12);
    t.map(e, Slot(20), false);
    encode(&t, e, t.home(e), &tiers, None, &mut out);
    assert!(resolve(&read(&out, 1).0, &cache(12).1).is_err());
}

#[test]
fn the_extents_of_a_block_are_those_of_its_records() {
    let (mut m, geo) = cache(16);
    let (mut block, mut at) = ([0u8; 16 * 8], 0);
    for (e, slot) in [(ExtentId(3), Slot(5)), (ExtentId(7), Slot(2))] {
        m.add_empty_copy(e, slot);
        m.copy_dirty(e, 1, 3);
        let units = encode(&m, e, m.home(e), &geo, None, &mut block[at..]).unwrap();
        at += units * 16;
        block[at..at + 16].copy_from_slice(&encode_counter(0, 9));
        at += 16;
    }
    let all: Vec<_> = extents(&block, 16).collect();
    assert_eq!(all, [ExtentId(3), ExtentId(7)]);
    // What is no record ends the list.
    block[48] = 15;
    assert_eq!(extents(&block, 16).collect::<Vec<_>>(), [ExtentId(3)]);
}
