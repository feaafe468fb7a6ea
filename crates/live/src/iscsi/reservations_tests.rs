use super::super::reservation_file::ReservationFile;
use super::*;

fn nexus(n: u8) -> Nexus {
    Nexus {
        initiator: format!("iqn.x:{n}"),
        isid: [n; 6],
    }
}

fn order(action: u8, kind: u8, key: u64, about: u64) -> Order {
    Order {
        action,
        scope_type: kind,
        key,
        about,
        aptpl: false,
    }
}

/// Initiators 1 to 3 with keys 11, 12, 13.
fn three() -> Reservations {
    let mut r = Reservations::default();
    for n in 1..=3u8 {
        assert_eq!(
            r.change(&nexus(n), &order(0, 0, 0, 10 + u64::from(n))),
            Ok(vec![])
        );
    }
    r
}

#[test]
fn permissions_under_each_type() {
    // Type: holder changes; registrant reads, changes; stranger reads, changes.
    let table = [
        (1, [true, true, false, true, false]),
        (3, [true, false, false, false, false]),
        (5, [true, true, true, true, false]),
        (6, [true, true, true, false, false]),
        (7, [true, true, true, true, false]),
        (8, [true, true, true, false, false]),
    ];
    for (kind, want) in table {
        let mut r = three();
        assert!(r.allow(&nexus(9), Use::Changes), "nothing is reserved");
        assert_eq!(r.change(&nexus(1), &order(1, kind, 11, 0)), Ok(vec![]));
        let (holder, registrant, stranger) = (nexus(1), nexus(2), nexus(9));
        let got = [
            r.allow(&holder, Use::Changes),
            r.allow(&registrant, Use::Reads),
            r.allow(&registrant, Use::Changes),
            r.allow(&stranger, Use::Reads),
            r.allow(&stranger, Use::Changes),
        ];
        assert_eq!(got, want, "type {kind}");
        assert!(r.allow(&stranger, Use::Asks));
        // The holder may repeat the order with the same type, but not with another; no other initiator gets the reservation.
        assert!(r.change(&nexus(1), &order(1, kind, 11, 0)).is_ok());
        let other = if kind == 1 { 3 } else { 1 };
        assert_eq!(
            r.change(&nexus(1), &order(1, other, 11, 0)),
            Err(Refusal::Conflict)
        );
        let second = r.change(&nexus(2), &order(1, kind, 12, 0));
        assert_eq!(second.is_ok(), kind >= 7, "all registrants hold it");
    }
}

#[test]
fn a_wrong_key_changes_nothing() {
    let mut r = three();
    let before = r.clone();
    for o in [
        order(0, 0, 12, 99),
        order(1, 1, 12, 0),
        order(2, 1, 0, 0),
        order(3, 0, 12, 0),
        order(4, 1, 12, 13),
        order(4, 1, 11, 77),
    ] {
        assert_eq!(r.change(&nexus(1), &o), Err(Refusal::Conflict), "{o:?}");
    }
    for o in [
        order(1, 2, 11, 0),
        order(1, 0x11, 11, 0),
        order(7, 0, 11, 0),
    ] {
        assert_eq!(
            r.change(&nexus(1), &o),
            Err(Refusal::Sense(Sense::FIELD)),
            "{o:?}"
        );
    }
    let nobody = r.change(&nexus(9), &order(1, 1, 0, 0));
    assert_eq!(nobody, Err(Refusal::Conflict), "key 0 is nobody's key");
    assert_eq!(
        r.change(&nexus(1), &order(4, 1, 11, 0)),
        Err(Refusal::Sense(Sense::PARAMETER))
    );
    assert_eq!(r, before);
}

#[test]
fn a_reservation_ends_with_its_holder_or_with_the_last_of_all() {
    for (kind, told) in [(1, None), (5, Some(Sense::RELEASED))] {
        let mut r = three();
        r.change(&nexus(1), &order(1, kind, 11, 0)).unwrap();
        r.change(&nexus(1), &order(0, 0, 11, 0)).unwrap();
        assert!(r.held.is_none() && r.registrants.len() == 2);
        assert_eq!(r.attention(&nexus(2)), told, "type {kind}");
        assert_eq!(r.attention(&nexus(2)), None, "told once");
    }
    let mut r = three();
    r.change(&nexus(1), &order(1, 7, 11, 0)).unwrap();
    for n in 1..=3u8 {
        assert!(r.held.is_some());
        r.change(&nexus(n), &order(6, 0, 99, 0)).unwrap();
    }
    assert!(r.held.is_none() && r.registrants.is_empty());
}

#[test]
fn releasing_wants_the_right_type_and_says_so_to_others() {
    let mut r = three();
    r.change(&nexus(1), &order(1, 6, 11, 0)).unwrap();
    r.change(&nexus(2), &order(2, 6, 12, 0)).unwrap();
    assert!(r.held.is_some(), "it was not the second's to release");
    let wrong = r.change(&nexus(1), &order(2, 3, 11, 0));
    assert_eq!(wrong, Err(Refusal::Sense(Sense(5, 0x26, 4))));
    r.change(&nexus(1), &order(2, 6, 11, 0)).unwrap();
    assert!(r.held.is_none());
    assert_eq!(r.attention(&nexus(3)), Some(Sense::RELEASED));
    assert_eq!(r.attention(&nexus(1)), None);
    r.change(&nexus(2), &order(3, 0, 12, 0)).unwrap();
    assert!(r.registrants.is_empty());
    assert_eq!(r.attention(&nexus(3)), Some(Sense::PREEMPTED));
}

#[test]
fn preempting_the_holder_takes_the_disk_and_fences_it_off() {
    for action in [4, 5] {
        let mut r = three();
        r.change(&nexus(1), &order(1, 5, 11, 0)).unwrap();
        let gone = r.change(&nexus(2), &order(action, 6, 12, 11)).unwrap();
        assert_eq!(gone.len(), usize::from(action == 5));
        let held = r.held.clone().expect("taken");
        assert_eq!((held.kind, &held.by), (6, &nexus(2)));
        assert!(!r.allow(&nexus(1), Use::Reads) && r.allow(&nexus(3), Use::Changes));
        assert_eq!(r.attention(&nexus(1)), Some(Sense::UNREGISTERED));
        assert_eq!(r.attention(&nexus(3)), Some(Sense::RELEASED));
    }
    // The registration of another initiator is removed, and the reservation stays.
    let mut r = three();
    r.change(&nexus(1), &order(1, 5, 11, 0)).unwrap();
    r.change(&nexus(2), &order(4, 6, 12, 13)).unwrap();
    assert_eq!(r.held.as_ref().map(|h| h.kind), Some(5));
    assert!(!r.allow(&nexus(3), Use::Changes) && r.allow(&nexus(2), Use::Changes));
    // Key 0 means all registrants if all registrants hold the reservation.
    let mut r = three();
    r.change(&nexus(1), &order(1, 8, 11, 0)).unwrap();
    r.change(&nexus(2), &order(4, 1, 12, 0)).unwrap();
    assert_eq!(r.registrants, [(nexus(2), 12)]);
    assert_eq!(r.held.as_ref().map(|h| h.kind), Some(1));
}

#[test]
fn reports_have_the_standard_s_layout() {
    let mut r = three();
    let keys = r.report(0, true).unwrap();
    assert_eq!(keys[..8], [0, 0, 0, 3, 0, 0, 0, 24]);
    assert_eq!(keys[24..], 13u64.to_be_bytes());
    assert_eq!(r.report(1, true).unwrap(), [0, 0, 0, 3, 0, 0, 0, 0]);
    r.change(&nexus(2), &order(1, 5, 12, 0)).unwrap();
    let held = r.report(1, true).unwrap();
    assert_eq!(
        held[7..],
        [16, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 5, 0, 0]
    );
    let caps = r.report(2, true).unwrap();
    assert_eq!((caps.len(), caps[1], caps[4], caps[5]), (8, 8, 0xea, 1));
    let full = r.report(3, true).unwrap();
    let second = &full[8 + 24 + 4 + 28..];
    assert_eq!((second[12], second[13], second[19]), (1, 5, 1));
    assert_eq!((second[24], second[27]), (0x45, 28));
    assert!(second[28..].starts_with(b"iqn.x:2,i,0x020202020202\0"));
    assert_eq!(r.report(4, true), Err(Sense::FIELD));
}

#[test]
fn kept_reservations_are_restored_and_a_damaged_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let reservation_file = ReservationFile {
        file: dir.path().join("v.reservations"),
        volume: "one".into(),
    };
    assert_eq!(reservation_file.load().unwrap(), Reservations::default());
    let mut r = three();
    r.change(&nexus(1), &order(1, 6, 11, 0)).unwrap();
    reservation_file.save(&r).unwrap();
    assert!(
        !reservation_file.file.exists(),
        "nobody asked for it to be kept"
    );
    let kept = Order {
        aptpl: true,
        ..order(0, 0, 12, 22)
    };
    r.change(&nexus(2), &kept).unwrap();
    // Whoever may write to the directory can put a link there.
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    for name in ["v.reservations", "v.reservations.new"] {
        std::os::unix::fs::symlink(&victim, dir.path().join(name)).unwrap();
    }
    reservation_file.save(&r).unwrap();
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    let back = reservation_file.load().unwrap();
    assert_eq!((back.held, back.aptpl), (r.held.clone(), true));
    assert_eq!(back.registrants, r.registrants);
    let elsewhere = ReservationFile {
        volume: "two".into(),
        ..reservation_file.clone()
    };
    let why = elsewhere.load().unwrap_err().to_string();
    assert!(
        why.contains("another volume") && why.contains("v.reservations"),
        "{why}"
    );
    let text = std::fs::read_to_string(&reservation_file.file).unwrap();
    for bad in [
        &text[..text.len() / 2],
        "",
        &text.replace("kind = 6", "kind = 4"),
    ] {
        std::fs::write(&reservation_file.file, bad).unwrap();
        assert!(reservation_file.load().is_err(), "{bad}");
    }
    std::fs::write(&reservation_file.file, text).unwrap();
    r.change(&nexus(1), &order(3, 0, 11, 0)).unwrap();
    reservation_file.save(&r).unwrap();
    assert!(
        !reservation_file.file.exists(),
        "nothing is left to be kept"
    );
}
