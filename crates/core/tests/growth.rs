//! The plan of a growth: sizes, and the places of the checkpoint regions.

use isotherm_core::MemberId;
use isotherm_core::TierId;
use isotherm_core::geometry::Kind;
use isotherm_core::store::superblock::{MemberEntry, Shape};
use isotherm_core::store::{
    BLOCK, MetaArea, Superblock, extents_of, plan_flash_growth, plan_growth,
};

const EXTENT: u64 = 64 << 10;
const GIB: u64 = 1 << 30;

/// A volume of this kind with these sizes of its members.
fn volume(kind: Kind, fast: u64, slow: u64) -> Superblock {
    let slots = |bytes: u64| (bytes / EXTENT) as u32;
    let recorded = kind.recorded(slots(slow) + slots(fast), slots(fast));
    let area = MetaArea::for_volume(recorded, 16, fast).with_copies(recorded, slots(fast), 16);
    let entry = |tier: u8| MemberEntry {
        uuid: [tier + 1; 16],
        tier: TierId(tier),
        ..MemberEntry::default()
    };
    let shape = Shape {
        kind,
        extent_shift: 16,
        block_shift: 12,
        extents: 0,
        area,
    };
    let mut sb = Superblock::new([7; 16], 1, shape, vec![entry(0), entry(1)]);
    for (i, bytes) in [(0, fast), (1, slow)] {
        let room = sb.room(MemberId(i), bytes, u32::MAX);
        room.put(&mut sb.members[usize::from(i)]);
    }
    let all = (sb.members[1].slots, sb.members[0].slots);
    sb.extents = extents_of(all, kind == Kind::Cache).expect("room");
    sb
}

#[test]
fn only_a_larger_slow_tier_makes_a_volume_larger() {
    for kind in [Kind::Tiering, Kind::Cache] {
        let sb = volume(kind, GIB, 10 * GIB);
        let same: Vec<u64> = sb.members.iter().map(|m| m.bytes).collect();
        assert!(plan_growth(&sb, &same).is_err());
        // Less than an extent more, or a larger cache.
        assert!(plan_growth(&sb, &[same[0], same[1] + EXTENT - 1]).is_err());
        assert!(plan_growth(&sb, &[same[0] * 2, same[1]]).is_err());
    }
}

/// A cache volume has records of copies only, so a larger disk needs no more room for them. Of several disks only the last one may grow,
/// because the homes on the others stay where they are.
#[test]
fn a_cache_volume_grows_at_its_end_without_more_metadata() {
    let sb = volume(Kind::Cache, GIB, 10 * GIB);
    let growth = plan_growth(&sb, &[GIB, 40 * GIB]).expect("it can grow");
    let slots = sb.room(MemberId(1), 40 * GIB, u32::MAX).slots;
    assert_eq!(
        (growth.extents, &*growth.slots),
        (slots, &[sb.members[0].slots, slots][..])
    );
    let mut two = sb.clone();
    two.members.push(two.members[1].clone());
    two.extents *= 2;
    let first =
        plan_growth(&two, &[GIB, 40 * GIB, 10 * GIB]).expect_err("its second disk has homes");
    assert!(first.contains("last"), "{first}");
    assert!(plan_growth(&two, &[GIB, 10 * GIB, 40 * GIB]).is_ok());
}

#[test]
fn larger_regions_lie_behind_the_slots_of_both_members() {
    let sb = volume(Kind::Tiering, GIB, 10 * GIB);
    let sizes = [GIB, 40 * GIB];
    let growth = plan_growth(&sb, &sizes).expect("it can grow");
    // Four times the extents need four times the records: 2 units of 16 bytes each, and 5 for an extent with a copy.
    let blocks = |extents: u32| MetaArea::region_for(extents, sb.members[0].slots, 16);
    let space = 2 * u64::from(blocks(growth.extents)) * BLOCK as u64;
    let lost = u64::from(sb.members[0].slots - growth.slots[0]) * EXTENT;
    assert!(
        lost >= space - EXTENT && lost <= space + 2 * EXTENT,
        "{lost} for {space}"
    );
    let end = sb.members[1].data_offset + u64::from(growth.slots[1]) * EXTENT;
    assert!(end + space <= sizes[1] && end + space + 64 * EXTENT > sizes[1]);
    let all = (growth.slots[1], growth.slots[0]);
    assert_eq!(Some(growth.extents), extents_of(all, false));
}

#[test]
fn a_cache_that_is_too_small_for_the_metadata_is_refused() {
    let sb = volume(Kind::Tiering, 16 << 20, GIB);
    let why = plan_growth(&sb, &[16 << 20, 400 * GIB]).expect_err("too much");
    assert!(why.contains("too small for the metadata"), "{why}");
}

#[test]
fn a_reserve_is_kept_for_exchanges() {
    assert_eq!(extents_of((1000, 100), true), Some(1000));
    assert_eq!(extents_of((1000, 100), false), Some(1100 - 62));
    assert_eq!(extents_of((1000, 0), false), Some(1000));
    assert_eq!(extents_of((1, 100), false), None);
    assert_eq!(extents_of((0, 100), true), None);
}

/// A cache volume with so much flash, on one device or on two equal ones, and its disk.
fn cache(devices: u8, flash: u64) -> Superblock {
    let one = volume(Kind::Cache, flash, 100 * GIB);
    let disk = one.members[1].clone();
    let again = MemberEntry {
        uuid: [9; 16],
        id: 2,
        ..one.members[0].clone()
    };
    let more = (1..devices).map(|_| again.clone());
    let members = one.members[..1].iter().cloned().chain(more).chain([disk]);
    let mut sb = Superblock {
        members: members.collect(),
        next_id: 3,
        ..one
    };
    for i in 0..devices {
        let room = sb.room(MemberId(i), flash, u32::MAX);
        room.put(&mut sb.members[usize::from(i)]);
    }
    sb
}

/// What the plan makes is a superblock that can be read, no slot is gone, and the metadata have room for a copy in every slot.
#[test]
fn larger_flash_gets_larger_metadata_behind_its_slots() {
    for devices in [1u8, 2] {
        let mut sb = cache(devices, GIB);
        for gib in [2, 3, 16] {
            let sizes: Vec<u64> = (0..devices).map(|_| gib * GIB).chain([100 * GIB]).collect();
            let growth = plan_flash_growth(&sb, &sizes).expect("it can grow");
            assert_eq!(growth.extents, sb.extents);
            let slots = &growth.slots[..usize::from(devices)];
            let all = |n: &u32| u64::from(*n) * EXTENT > (gib * GIB) / 100 * 94;
            assert!(slots.iter().all(all), "{slots:?}");
            let before = sb.clone();
            growth.put(&mut sb);
            let (layout, copies) = (sb.layout(), slots.iter().sum());
            let least = MetaArea::region_of(Kind::Cache, copies, copies, 16);
            assert!(layout.area.region_blocks >= least);
            assert!(layout.area.ring_blocks > before.area.ring_blocks.min(16_383));
            assert_eq!(Superblock::decode(&sb.encode()), Ok(sb.clone()));
            for c in layout.carriers() {
                let (old, new) = (
                    &before.members[usize::from(c.member.0)],
                    &sb.members[usize::from(c.member.0)],
                );
                assert!(old.behind_at == 0 || new.behind_at >= old.bytes);
                assert!(c.ring_at >= new.data_offset + u64::from(new.slots) * EXTENT);
                assert_eq!(old.data_offset, new.data_offset);
            }
        }
        let same: Vec<u64> = sb.members.iter().map(|m| m.bytes).collect();
        let plan = plan_flash_growth(&sb, &same);
        assert_eq!(plan.map(|g| g.changes(&sb)), Ok(false));
        let mut one = same.clone();
        one[0] *= 2;
        let alone = plan_flash_growth(&sb, &one);
        assert_eq!(alone.is_ok(), devices == 1, "{alone:?}");
        // By less than the metadata, which must not overlap those of before.
        let little: Vec<u64> = same.iter().map(|b| b + 20 * EXTENT).collect();
        let why = plan_flash_growth(&sb, &little).expect_err("too little");
        assert!(why.contains("must become larger"), "{why}");
    }
    let tiering = volume(Kind::Tiering, GIB, 10 * GIB);
    let why = plan_flash_growth(&tiering, &[2 * GIB, 10 * GIB]).expect_err("not a cache");
    assert!(why.contains("replace"), "{why}");
}
