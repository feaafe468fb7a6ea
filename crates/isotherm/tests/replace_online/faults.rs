//! Devices that are slow, fail, or cannot be read.

use super::common::Place;
use super::common::faulty::{Faulty, Released};
use super::common::nbd::{MIB, begins, copy_in, holds, noise};
use super::common::peer::{Peer, wait_for};
use super::common::writer::{BLOCK, Held, Writer, checked};
use super::{CREATE, disk, end, result, serve, sound, start, status};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A write that was issued before the copy began reaches the old disk after its slot was copied. Returns whether the new one has it. `mutant`
/// is a rule that the server leaves out.
fn has_a_late_write(mutant: Option<&str>) -> Option<bool> {
    let place = Place::new();
    let backing = disk(&place, "s", 64 << 20);
    let old = Faulty::attach(&backing, &place.path("d"), "s")?;
    let _released = Released(&old);
    place.json(
        "create v --fast f:16M --slow d/s --policy lru,write-mode=write-around",
        "create",
    );
    let data = noise(3, 24 * MIB);
    let call = "serve v --nbd unix:n";
    let mut server = place.command(call);
    server.envs(mutant.map(|m| ("ISOTHERM_LIVE_MUTANT", m)));
    let served = Place::wait_ready(server, call);
    copy_in(&place, &data);
    old.delay_writes_in(0, 60 << 20);
    let at = 16 << 20;
    let socket = place.path("n");
    let late = std::thread::spawn(move || {
        let mut peer = Peer::connect(&socket).expect("connected");
        peer.write(at, &[7; 4096])
    });
    wait_for("the write", || (old.held() > 0).then_some(()));
    let replace = start(&place, "replace v t:64M --member d/s --json");
    // All has been copied, and only that write is missing.
    wait_for("the end of the copy", || {
        let copied = fs::read(place.path("t")).ok()?;
        let last = 23 << 20;
        (copied.len() > last && copied[last..last + 4096] == data[last..last + 4096]).then_some(())
    });
    std::thread::sleep(Duration::from_millis(300));
    old.go_on();
    late.join().expect("no panic").expect("written");
    result(replace).expect("replaced");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    let has = peer.read(at, 4096).expect("read") == [7; 4096];
    drop(peer);
    begins(&place, &data[..at as usize]);
    end(&place, served);
    sound(&place);
    Some(has)
}

#[test]
fn a_write_that_is_late_reaches_the_new_disk() {
    // The second disk has no FUSE if the first one has none.
    let Some(has) = has_a_late_write(None) else {
        return;
    };
    assert!(has);
    for mutant in ["NoteWritesEarly", "NoteNoWrites"] {
        assert_eq!(has_a_late_write(Some(mutant)), Some(false), "{mutant}");
    }
}

/// The new device fails or is too small: the answer names it, and the volume goes on.
#[test]
fn a_new_device_that_fails_or_is_too_small_is_left_out() {
    let place = Place::new();
    let made = place.json(CREATE, "create");
    let size = made["volume_bytes"].as_u64().expect("a number") as usize;
    let mut held = vec![Held::default(); size / BLOCK];
    let served = serve(&place);
    copy_in(&place, &vec![0; size]);
    let why = place.fails("replace v t:20M --member s");
    assert!(
        why.contains("needs at least") && !place.path("t").exists(),
        "{why}"
    );
    let backing = disk(&place, "t", 64 << 20);
    let Some(new) = Faulty::attach(&backing, &place.path("d"), "t") else {
        return;
    };
    let _released = Released(&new);
    for (round, fault) in [0u64, 30 << 20, 1].into_iter().enumerate() {
        let writer = Writer::start(&place, held, round as u64 + 1);
        if fault == 1 {
            new.fail_flushes(5);
        } else {
            new.spoil_writes(fault);
        }
        let why = place.fails("replace v d/t --member s --rate 1G");
        assert!(
            why.contains("d/t: cannot be") && why.contains("as it was before"),
            "{why}"
        );
        let now = status(&place);
        assert_eq!(
            (&now["replacing"], &now["state"], &now["degraded"]),
            (&Value::Null, &json!("serving"), &json!(false))
        );
        held = checked(&place, &writer.stop().0);
        new.come_back("t");
    }
    let writer = Writer::start(&place, held, 9);
    let made = place.json("replace v d/t --member s --rate 1G", "replace");
    assert_eq!(made["served"], json!(true));
    held = checked(&place, &writer.stop().0);
    end(&place, served);
    sound(&place);
    let served = serve(&place);
    checked(&place, &held);
    end(&place, served);
}

/// Places of the old disk cannot be read: what a clean copy on flash holds is taken from there, in service and without; what nobody holds is
/// refused with its range.
#[test]
fn what_cannot_be_read_is_taken_from_clean_copies() {
    let place = Place::new();
    let backing = disk(&place, "s", 64 << 20);
    let Some(old) = Faulty::attach(&backing, &place.path("d"), "s") else {
        return;
    };
    let _released = Released(&old);
    place.json("create v --fast f:96M --slow d/s --policy lru", "create");
    let data = noise(4, 40 * MIB);
    let served = serve(&place);
    copy_in(&place, &data);
    // All of it is on flash, and stays there.
    place.ok("clean v");
    old.spoil(25 << 20, (25 << 20) + 9000);
    let backing = disk(&place, "t", 64 << 20);
    let Some(next) = Faulty::attach(&backing, &place.path("e"), "t") else {
        return;
    };
    let _released = Released(&next);
    let made = place.json("replace v e/t --member d/s", "replace");
    assert_eq!(made["served"], json!(true));
    holds(&place, &data);
    let is_whole = |path: &Path| {
        let copied = fs::read(path).expect("read");
        assert!(copied[24 << 20..28 << 20] == data[24 << 20..28 << 20]);
    };
    is_whole(&backing);
    end(&place, served);
    sound(&place);
    next.spoil((26 << 20) + 4096, (26 << 20) + 12288);
    let made = place.json("replace v u:64M --member e/t", "replace");
    assert_eq!(made["served"], json!(false));
    is_whole(&place.path("u"));
    sound(&place);
    let served = serve(&place);
    holds(&place, &data);
    end(&place, served);
}

#[test]
fn what_nobody_holds_is_refused_with_its_range() {
    let place = Place::new();
    let backing = disk(&place, "s", 64 << 20);
    let Some(old) = Faulty::attach(&backing, &place.path("d"), "s") else {
        return;
    };
    let _released = Released(&old);
    place.json(
        "create v --fast f:16M --slow d/s --policy lru,write-mode=write-around",
        "create",
    );
    let data = noise(5, 40 * MIB);
    let served = serve(&place);
    copy_in(&place, &data);
    let bad = 30u64 << 20;
    old.spoil(bad + 4096, bad + 8192);
    let range = format!("bytes {} to {}", bad + 4096, bad + 8191);
    let why = place.fails("replace v t:64M --member d/s");
    assert!(
        why.contains(&range) && why.contains("as it was before"),
        "{why}"
    );
    assert!(!place.path("t").exists() && is_well(&place));
    begins(&place, &data[..20 * MIB]);
    end(&place, served);
    let why = place.fails("replace v t:64M --member d/s");
    assert!(
        why.contains(&range) && why.contains("as it was before"),
        "{why}"
    );
    old.spoil(0, 0);
    let served = serve(&place);
    holds(&place, &data);
    end(&place, served);
}

fn is_well(place: &Place) -> bool {
    let now = status(place);
    now["state"] == json!("serving") && now["replacing"].is_null()
}
