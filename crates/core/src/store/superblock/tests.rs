//! Tests of `superblock`.

use super::*;
use alloc::format;
use alloc::vec;

pub(crate) fn sample() -> Superblock {
    let area = MetaArea::for_volume(100, 16, 8 << 20);
    let entry = |tier, slots| MemberEntry {
        uuid: [tier + 1; 16],
        tier: TierId(tier),
        slots,
        data_offset: Layout::data_offset(&area, true, 65536),
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
        follow: Follow::Mirror,
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
    sb.members[1].regions_at = end;
    let b = sb.encode();
    assert_eq!(u64_at(&b, 16) & FEATURE_REGIONS, FEATURE_REGIONS);
    assert_eq!(Superblock::decode(&b), Ok(sb.clone()));
    let layout = sb.layout();
    assert_eq!(layout.region_offset(MemberId(1), 0), end);
    let half = sb.area.regions_bytes() / 2;
    assert_eq!(layout.region_offset(MemberId(1), 1), end + half);
    assert_eq!(
        layout.region_offset(MemberId(0), 1),
        sb.area.region_offset(1)
    );
    // In the slots, past the end of the device, not at a block.
    for at in [end - 4096, (1 << 30) - half, end + 512] {
        sb.members[1].regions_at = at;
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
