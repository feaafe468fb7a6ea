//! The variations that the format allows: features of other programs, other versions, members that are added and removed.
#![allow(clippy::unwrap_used)]

use isotherm_core::store::counter::{self, Counter};
use isotherm_core::store::journal::Staging;
use isotherm_core::store::layout::STAMP_AT;
use isotherm_core::store::open::{Loss, Mode, write_superblocks};
use isotherm_core::store::superblock::{MemberEntry, MemberState, Shape, SuperblockError};
use isotherm_core::store::{
    BLOCK, Media, MediaError, MetaArea, OpenError, Superblock, format, open,
};
use isotherm_core::*;

struct Ram(Vec<Vec<u8>>);
impl Media for Ram {
    fn read(&mut self, m: MemberId, o: u64, b: &mut [u8]) -> Result<(), MediaError> {
        b.copy_from_slice(&self.0[usize::from(m.0)][o as usize..o as usize + b.len()]);
        Ok(())
    }
    fn write(&mut self, m: MemberId, o: u64, b: &[u8]) -> Result<(), MediaError> {
        self.0[usize::from(m.0)][o as usize..o as usize + b.len()].copy_from_slice(b);
        Ok(())
    }
    fn flush(&mut self, _m: MemberId) -> Result<(), MediaError> {
        Ok(())
    }
}

fn entry(tier: u8, slots: u32) -> MemberEntry {
    MemberEntry {
        uuid: [tier + 1; 16],
        tier: TierId(tier),
        slots,
        data_offset: 1 << 19,
        bytes: 1 << 20,
        ..MemberEntry::default()
    }
}

fn volume() -> (Ram, Superblock) {
    let area = MetaArea {
        ring_blocks: 8,
        ..MetaArea::for_volume(24, 8, 0)
    };
    let shape = Shape {
        kind: geometry::Kind::Tiering,
        extent_shift: 12,
        block_shift: 9,
        extents: 24,
        area,
    };
    let sb = Superblock::new([7; 16], 1, shape, vec![entry(0, 10), entry(1, 20)]);
    let mut ram = Ram(vec![vec![0x55; 1 << 20]; 3]);
    format(&mut ram, &sb).unwrap();
    (ram, sb)
}

fn found(ram: &Ram, n: usize) -> Vec<Option<Superblock>> {
    ram.0[..n]
        .iter()
        .map(|d| Superblock::decode(&d[..BLOCK]).ok())
        .collect()
}

fn try_open(ram: &mut Ram, n: usize, mode: Mode) -> Result<store::Opened, OpenError> {
    let found = found(ram, n);
    open(ram, &found, mode)
}

const WRITE: Mode = Mode::ReadWrite { epoch: 2 };

#[test]
fn volumes_with_unknown_features() {
    let with = |change: &dyn Fn(&mut Superblock)| {
        let (mut ram, mut sb) = volume();
        change(&mut sb);
        write_superblocks(&mut ram, &sb).unwrap();
        ram
    };
    // An unknown compatible feature: the volume works, and the bit stays set.
    let mut ram = with(&|sb| sb.compat = 1 << 40);
    assert_eq!(
        try_open(&mut ram, 2, WRITE).unwrap().superblock.compat,
        1 << 40
    );
    assert!(found(&ram, 2).iter().flatten().all(|s| s.compat == 1 << 40));
    // An unknown read-only compatible feature: only reading is allowed, and opening to read writes nothing.
    let mut ram = with(&|sb| sb.ro_compat = 1);
    let before = ram.0.clone();
    for mode in [
        WRITE,
        Mode::Degraded {
            epoch: 2,
            loss: Loss::Accepted,
        },
    ] {
        let e = try_open(&mut ram, 2, mode).unwrap_err();
        assert_eq!(e, OpenError::ReadOnlyFeatures);
        assert!(e.to_string().contains("--read-only"), "{e}");
    }
    assert!(try_open(&mut ram, 2, Mode::ReadOnly).is_ok());
    assert!(before == ram.0);
    // An unknown incompatible feature: the volume is refused before anything else is read.
    let mut block = volume().1.encode();
    block[17] = 1;
    store::codec::seal(&mut block, 12);
    assert_eq!(Superblock::decode(&block), Err(SuperblockError::Newer(2)));
}

#[test]
fn version_1_is_refused_with_its_name_and_what_to_do() {
    let mut block = volume().1.encode();
    block[8] = 1;
    let e = Superblock::decode(&block).unwrap_err();
    assert_eq!(e, SuperblockError::Older(1));
    let words = OpenError::Superblock(MemberId(1), e).to_string();
    for part in ["member 1", "format version 1", "copy the data out", "anew"] {
        assert!(words.contains(part), "{words}");
    }
}

#[test]
fn a_new_volume_has_its_stamps_and_counters() {
    let (ram, sb) = volume();
    for (i, m) in sb.members.iter().enumerate() {
        let at = STAMP_AT as usize;
        assert!(ram.0[i][at..at + BLOCK].iter().all(|&b| b == 0));
        for value in [0, 1] {
            let at = counter::offset(value) as usize;
            let c = Counter::decode(&ram.0[i][at..at + BLOCK], &sb.uuid).unwrap();
            let (copy, id) = (sb.copy_offset(MemberId(i as u8)), i as u16);
            assert_eq!(
                (c.value, c.member, c.uuid, c.copy_offset),
                (value, id, m.uuid, copy)
            );
        }
    }
    assert!(found(&ram, 2)[0].as_ref().unwrap().members[1].counter == 1);
}

/// A member is added before another one. The records of the other one stay correct, because they do not name slots by their numbers in the
/// whole volume.
#[test]
fn members_are_added_and_removed_without_renumbering() {
    let (mut ram, _) = volume();
    let o = try_open(&mut ram, 2, WRITE).unwrap();
    let mut s = Staging::new(o.superblock.uuid, 2, o.tip, 8);
    // Extent 3 in slot 4 of the slow member, which is slot 14 of the volume.
    let mut unit = [0; 16];
    unit[0] = 1 | 1 << 4;
    (unit[4], unit[8]) = (3, 4);
    s.rest()[..16].copy_from_slice(&unit);
    s.advance(1);
    s.seal();
    let at = o.layout.ring_offset(o.layout.primary, 1);
    for m in [0, 1] {
        ram.write(MemberId(m), at, s.bytes(1, 2)).unwrap();
    }
    let o = try_open(&mut ram, 2, Mode::ReadWrite { epoch: 3 }).unwrap();
    assert_eq!(o.space.map.home(ExtentId(3)), Some(Slot(14)));
    let there = o.space.geo.locate(Slot(14)).1;
    // The new member is the second one of the fast tier. The slow member is now the third one.
    let mut sb = o.superblock;
    let joined = MemberEntry {
        uuid: [9; 16],
        id: sb.next_id,
        ..entry(0, 6)
    };
    sb.members.insert(1, joined);
    (sb.next_id, sb.table_version) = (sb.next_id + 1, sb.table_version + 1);
    let slow = ram.0.remove(1);
    ram.0.push(slow);
    write_superblocks(&mut ram, &sb).unwrap();
    let o = try_open(&mut ram, 3, Mode::ReadWrite { epoch: 4 }).unwrap();
    let home = o.space.map.home(ExtentId(3)).unwrap();
    assert_eq!(
        (home, o.space.geo.locate(home)),
        (Slot(20), (MemberId(2), there))
    );
    // The first member is removed. No extent was on it; its identity is not given to another.
    let mut sb = o.superblock;
    let mut gone = sb.members.remove(0);
    gone.state = MemberState::Gone;
    sb.others.push(gone);
    sb.table_version += 1;
    ram.0.remove(0);
    let meta = o.layout.area.ring_at(1) as usize;
    let (first, rest) = ram.0.split_at_mut(1);
    first[0][4 * BLOCK..meta].copy_from_slice(&rest[0][4 * BLOCK..meta]);
    write_superblocks(&mut ram, &sb).unwrap();
    let o = try_open(&mut ram, 2, Mode::ReadWrite { epoch: 5 }).unwrap();
    let home = o.space.map.home(ExtentId(3)).unwrap();
    assert_eq!(
        (home, o.space.geo.locate(home)),
        (Slot(10), (MemberId(1), there))
    );
    let sb = o.superblock;
    assert_eq!((sb.others[0].id, sb.members[0].id, sb.next_id), (0, 2, 3));
}
