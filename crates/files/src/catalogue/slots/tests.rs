use super::*;

#[test]
fn stored_attributes_and_names_are_returned_unchanged() {
    assert_eq!(size_of::<Slot>(), 60);
    let mut s = Slots::default();
    let id = s.take(Kind::File);
    let t = |sec, nsec| Time { sec, nsec };
    let plain = Facts {
        id: Id {
            ino: (1 << INO_MOST) - 1,
            born: u64::MAX,
        },
        dev: 7,
        mode: 0o100_644,
        size: (1 << 40) - 1,
        blocks: (1 << 31) + 0x7fff,
        atime: t(-1, 999_999_999),
        mtime: t((1 << 33) - 1, 0),
        ctime: t(-(1 << 33), 5),
        ..Facts::default()
    };
    let less = |blocks| Facts { blocks, ..plain };
    let ino = |ino| Facts {
        id: Id { ino, born: 0 },
        ..plain
    };
    let odd = [
        Facts {
            size: 1 << 40,
            ..plain
        },
        Facts {
            mtime: t(1 << 33, 1),
            ..plain
        },
        less((1 << 31) + 0x8000),
        less((1 << 31) - 0x8001),
        less(u64::MAX),
        ino(1 << INO_MOST),
        ino(u64::MAX),
    ];
    let more = [less((1 << 31) - 0x8000), ino(0), ino(1 << INO_BITS)];
    s.get_mut(id).unwrap().set_tier(7);
    for f in odd {
        s.set_facts(id, &f);
        assert!(s.facts(id) == f && s.unpacked.contains_key(&id));
    }
    for f in [plain].into_iter().chain(more).chain(odd).chain([plain]) {
        s.set_facts(id, &f);
        assert_eq!(s.facts(id), f);
    }
    let slot = s.get(id).unwrap();
    assert_eq!((slot.tier(), slot.kind()), (7, Kind::File));
    assert!(s.unpacked.is_empty());
    for name in [&b"a"[..], &[b'x'; 255], b"", b"four"] {
        s.set_name(id, 3, name);
        assert_eq!((s.name(id), s.get(id).unwrap().parent), (name, 3));
    }
    let bytes = s.names[0].len();
    for _ in 0..1000 {
        s.set_name(id, 3, b"five5");
        s.set_name(id, 3, &[b'y'; 200]);
    }
    assert!(
        s.names.len() == 1 && s.names[0].len() <= bytes + 300,
        "holes are used again"
    );
    s.give_back(id);
    assert!(s.get(id).is_none());
    assert_eq!(s.take(Kind::Dir), id);
    assert_eq!((s.generation(id), s.generation(id + 1)), (1, 0));
}

/// However many files are made and deleted, each has a number of its own.
#[test]
fn no_number_is_used_twice() {
    let mut s = Slots::default();
    let (first, mut before) = (s.take(Kind::File), Vec::new());
    assert_eq!(s.node(first), u64::from(first));
    s.give_back(first);
    for _ in 0..200_000 {
        let id = s.take(Kind::File);
        before.push(s.node(id));
        assert_eq!(s.slot_of(s.node(id)), Some(id));
        s.give_back(id);
        assert!(before.last().is_some_and(|n| s.slot_of(*n).is_none()));
    }
    before.sort_unstable();
    assert!(before.windows(2).all(|w| w[0] < w[1]));
    assert_eq!(s.numbers(), 4, "few slots are lost");
}

#[test]
fn lasting_numbers_stay_with_the_slot() {
    let mut s = Slots::default();
    let (id, other) = (s.take(Kind::File), s.take(Kind::Dir));
    s.set_lasting(other, 9);
    let largest = u64::from(u32::MAX);
    for number in [7, largest - 1, largest, largest + 1, u64::MAX, 5] {
        s.set_lasting(id, number);
        assert_eq!(s.lasting(id), number);
    }
    assert!(s.large.is_empty());
    let wide = Facts {
        size: 1 << 40,
        ..Facts::default()
    };
    for facts in [wide, Facts::default()] {
        s.set_facts(id, &facts);
        s.set_name(id, 3, b"f");
        assert_eq!((s.lasting(id), s.lasting(other)), (5, 9));
    }
    s.set_lasting(id, u64::MAX);
    s.give_back(id);
    assert_eq!(s.take(Kind::File), id);
    assert!(s.lasting(id) == 0 && s.large.is_empty());
}
