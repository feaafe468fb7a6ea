//! Tests of `superblock`.

use super::*;
use crate::units::TierId;
use alloc::format;
use alloc::vec;

pub(crate) fn sample() -> Superblock {
    let area = MetaArea::for_volume(100, 16, 8 << 20);
    let entry = |tier, slots| MemberEntry {
        uuid: [tier + 1; 16],
        tier: TierId(tier),
        slots,
        data_offset: 1 << 20,
        bytes: 1 << 30,
        counter: 5,
        hint: format!("/dev/tier{tier}"),
        ..MemberEntry::default()
    };
    let shape = Shape {
        kind: Kind::Tiering,
        extent_shift: 16,
        block_shift: 12,
        extents: 100,
        area,
    };
    Superblock {
        generation: 3,
        prev_generation: 2,
        prev_epoch: 0x1234,
        first_seq: 77,
        prev_first_seq: 55,
        follow: Follow::Lags,
        prev_follow: Follow::Exact,
        absent: 2,
        index: 1,
        others: vec![MemberEntry {
            id: 2,
            state: MemberState::Gone,
            ..entry(0, 7)
        }],
        table_version: 4,
        next_id: 3,
        keys: (1 << 20, 4096),
        closed_seq: 1234,
        void_at: 77,
        clean_epoch: 78,
        claims_from: 79,
        time_base: Nanos(99),
        policy: String::from("greendm,PT=2"),
        name: String::from("v"),
        ..Superblock::new([7; 16], 0xabcd, shape, vec![entry(0, 30), entry(1, 80)])
    }
}

#[test]
fn round_trip() {
    let sb = sample();
    assert_eq!(Superblock::decode(&sb.encode()), Ok(sb));
}

#[test]
fn every_damaged_byte_is_seen() {
    let b = sample().encode();
    for i in 0..BLOCK {
        let mut c = b;
        c[i] ^= 0x40;
        assert!(Superblock::decode(&c).is_err(), "byte {i}");
    }
}

#[test]
fn other_versions_are_told_from_damage() {
    let mut b = sample().encode();
    b[8] = 4;
    assert_eq!(Superblock::decode(&b), Err(SuperblockError::Newer(4)));
    b[8] = 1;
    assert_eq!(Superblock::decode(&b), Err(SuperblockError::Older(1)));
    assert_eq!(
        Superblock::decode(&[0; BLOCK]),
        Err(SuperblockError::Foreign)
    );
}

/// A volume with unknown incompatible features is refused. With unknown read-only compatible features it may be read. Unknown compatible
/// features do not matter, and their bits stay.
#[test]
fn unknown_features_are_handled_by_their_kind() {
    let with = |at: usize| {
        let mut b = sample().encode();
        b[at + 7] = 0x20;
        seal(&mut b, CRC_AT);
        Superblock::decode(&b)
    };
    assert_eq!(with(16), Err(SuperblockError::Newer(2)));
    let ro = with(488).unwrap();
    assert!(ro.is_read_only() && ro.ro_compat == 0x20 << 56);
    let fine = with(480).unwrap();
    assert!(!fine.is_read_only());
    let again = Superblock::decode(&fine.encode()).unwrap();
    assert_eq!((again.compat, sample().compat), (0x20 << 56, 0));
}

#[test]
fn identities_are_given_out_once() {
    let refused = |change: &dyn Fn(&mut Superblock)| {
        let mut sb = sample();
        change(&mut sb);
        Superblock::decode(&sb.encode()).is_err()
    };
    assert!(!refused(&|_| {}));
    assert!(refused(&|s| s.others[0].id = 1));
    assert!(refused(&|s| s.members[0].id = 1));
    assert!(refused(&|s| s.members[0].id = 3));
    assert!(refused(&|s| s.members[0].state = MemberState::Joining));
    assert!(!refused(&|s| s.others[0].state = MemberState::Joining));
    // Removed members leave gaps in the sequence of identities.
    assert!(!refused(&|s| (s.members[1].id, s.next_id) = (40, 41)));
}

#[test]
fn regions_that_moved_lie_behind_the_slots() {
    let mut sb = sample();
    let end = sb.members[1].data_offset + (80 << 16);
    sb.members[1].behind_at = end;
    let b = sb.encode();
    assert_eq!(u64_at(&b, 16) & FEATURE_REGIONS, FEATURE_REGIONS);
    assert_eq!(Superblock::decode(&b), Ok(sb.clone()));
    let layout = sb.layout();
    let mirror = layout.mirror.unwrap();
    assert_eq!(
        (mirror.member, layout.region_offset(mirror, 0)),
        (MemberId(1), end)
    );
    let half = sb.area.regions_bytes() / 2;
    assert_eq!(layout.region_offset(mirror, 1), end + half);
    assert_eq!(
        layout.region_offset(layout.primary, 0),
        layout.ring_offset(layout.primary, 0) + sb.area.ring_bytes()
    );
    // In the slots, past the end of the device, not at a block.
    for at in [end - 4096, (1 << 30) - half, end + 512] {
        sb.members[1].behind_at = at;
        let e = SuperblockError::Impossible("checkpoint regions in an impossible place");
        assert_eq!(Superblock::decode(&sb.encode()), Err(e), "{at}");
    }
}

#[test]
fn a_device_is_replaced_if_the_table_changed_and_names_another() {
    let old = sample();
    let mut new = sample();
    assert!(!old.is_replaced(&new));
    new.table_version += 1;
    assert!(!old.is_replaced(&new), "only others changed");
    new.members[1].uuid = [9; 16];
    assert!(old.is_replaced(&new));
    new.index = 0;
    assert!(!new.is_replaced(&old), "this member stayed");
}

fn cache(fast: &[u32], disks: &[u32]) -> Superblock {
    let area = MetaArea::for_volume(100, 16, 8 << 20);
    let entry = |tier, slots: &u32| MemberEntry {
        uuid: [tier + 1; 16],
        tier: TierId(tier),
        slots: *slots,
        ..MemberEntry::default()
    };
    let shape = Shape {
        kind: Kind::Cache,
        extent_shift: 16,
        block_shift: 12,
        extents: disks.iter().sum(),
        area,
    };
    let fast = fast.iter().map(|n| entry(0, n));
    let members = fast.chain(disks.iter().map(|n| entry(1, n))).collect();
    Superblock::new([7; 16], 0xabcd, shape, members).placed(4096)
}

/// A cache volume from before its records had their form is refused, and a tiering volume never has them.
#[test]
fn a_cache_volume_says_what_its_records_are() {
    let toggled = |sb: &Superblock| {
        let mut b = sb.encode();
        b[16] ^= FEATURE_CACHED as u8;
        seal(&mut b, CRC_AT);
        Superblock::decode(&b)
    };
    let older = SuperblockError::Older(VERSION_CACHE);
    assert_eq!(toggled(&cache(&[30], &[80])), Err(older));
    let refused = toggled(&sample());
    assert!(matches!(refused, Err(SuperblockError::Impossible(_))));
}

#[test]
fn a_logical_block_is_a_sector_at_least_and_a_block_at_most() {
    let with = |mut sb: Superblock, shift: u32| {
        sb.logical_shift = shift;
        Superblock::decode(&sb.encode()).map(|sb| sb.logical_shift)
    };
    for shift in 9..=12 {
        assert_eq!(with(cache(&[30], &[80]), shift), Ok(shift));
        // In a tiering volume it is the block.
        assert_eq!(with(sample(), shift).is_ok(), shift == 12);
    }
    assert_eq!(with(sample(), 0), Ok(12), "from an earlier program");
    for shift in [8, 13, 255] {
        assert!(with(cache(&[30], &[80]), shift).is_err(), "{shift}");
    }
}

#[test]
fn a_disk_of_a_cache_volume_is_the_volume_from_its_first_byte_on() {
    let sb = cache(&[30], &[80, 200]);
    assert_eq!(Superblock::decode(&sb.encode()), Ok(sb.clone()));
    let geo = sb.geometry().unwrap();
    let head = 65;
    assert_eq!(sb.head_bytes(), head << 16);
    let at = |e: u32| {
        let (m, at) = geo.locate(geo.home(crate::ExtentId(e)).unwrap());
        (m.0, at >> 16)
    };
    let behind = |i: usize| sb.members[i].behind_at >> 16;
    assert_eq!([at(65), at(79)], [(1, 65), (1, 79)]);
    assert_eq!([at(80 + 65), at(279)], [(2, 65), (2, 199)]);
    // What belongs to the head is in the stash.
    assert_eq!([at(0), at(64)], [(1, behind(1)), (1, behind(1) + 64)]);
    assert_eq!(at(80), (2, behind(2)));
    // The second superblock is in the last block, and the mark before it.
    let end = sb.members[2].bytes;
    let m = MemberId(2);
    assert_eq!(sb.copy_offset(m), end - 4096);
    assert_eq!([0, 1].map(|n| end - sb.mark_offset(m, n)), [12288, 8192]);
    assert_eq!(sb.disks().map(|m| m.0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_disks_of_a_cache_volume_have_no_journal() {
    let one = cache(&[30], &[80]).layout();
    let (a, b) = (one.primary, one.mirror.unwrap());
    assert_eq!([a.member, b.member], [MemberId(0); 2]);
    assert!(b.ring_at >= one.region_offset(a, 2) && !one.is_synchronous(Kind::Cache));
    let two = cache(&[30, 20], &[80]).layout();
    assert_eq!(two.mirror.map(|c| c.member), Some(MemberId(1)));
    assert!(two.is_synchronous(Kind::Cache) && !two.carries(MemberId(2)));
}

#[test]
fn impossible_places_on_a_disk_are_refused() {
    let refused = |change: &dyn Fn(&mut Superblock)| {
        let mut sb = cache(&[30], &[80]);
        change(&mut sb);
        Superblock::decode(&sb.encode()).is_err()
    };
    assert!(!refused(&|_| {}));
    assert!(refused(&|s| s.members[1].data_offset = 4096));
    assert!(refused(&|s| s.members[1].behind_at -= 4096));
    assert!(refused(&|s| s.members[1].behind_at += 4096));
    assert!(refused(&|s| s.members[1].bytes -= 4096));
    assert!(refused(&|s| s.members[1].bytes += 1));
    assert!(refused(&|s| s.members[1].behind_at = u64::MAX - 4095));
    assert!(refused(&|s| s.head_blocks = 0));
    assert!(refused(&|s| s.head_blocks += 1));
    assert!(refused(
        &|s| s.members[0].data_offset = s.area.ring_at(1) + 4096
    ));
}
