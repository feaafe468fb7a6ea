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

/// Flash fails while a disk is copied: the volume goes on with its disks, what only flash had goes to the old disk, and from there to the new
/// one.
#[test]
fn flash_that_fails_during_a_copy_ends_nothing() {
    let place = Place::new();
    let (fast, slow) = (disk(&place, "f", 32 << 20), disk(&place, "t", 64 << 20));
    let Some(flash) = Faulty::attach(&fast, &place.path("d"), "f") else {
        return;
    };
    let Some(new) = Faulty::attach(&slow, &place.path("e"), "t") else {
        return;
    };
    let _released = (Released(&flash), Released(&new));
    let made = place.json("create v --fast d/f --slow s:64M --policy lru", "create");
    let size = made["volume_bytes"].as_u64().expect("a number") as usize;
    let served = serve(&place);
    copy_in(&place, &vec![0; size / 2]);
    new.delay_writes_in(20 << 20, 30 << 20);
    let replace = start(&place, "replace v e/t --member s --json");
    wait_for("a write that waits", || (new.held() > 0).then_some(()));
    let writer = Writer::start(&place, vec![Held::default(); size / BLOCK], 1);
    std::thread::sleep(Duration::from_millis(100));
    flash.spoil_writes(0);
    wait_for("the end of the cache", || {
        (status(&place)["degraded"] == json!(true)).then_some(())
    });
    new.go_on();
    result(replace).expect("replaced");
    let held = checked(&place, &writer.stop().0);
    end(&place, served);
    fs::remove_file(place.path("s")).expect("removed");
    let served = serve(&place);
    checked(&place, &held);
    end(&place, served);
    // The same in a volume that is not served.
    place.json("replace v u:64M --member e/t", "replace");
    let served = serve(&place);
    assert_eq!(status(&place)["lost"]["bytes"], json!(0));
    checked(&place, &held);
    end(&place, served);
}

/// A disk that was adopted with its data is copied: its first bytes lie at its end.
#[test]
fn an_adopted_disk_is_copied() {
    let place = Place::new();
    let mut data = noise(8, 40 * MIB);
    let file = fs::File::create(place.path("s")).expect("made");
    std::os::unix::fs::FileExt::write_all_at(&file, &data, 0).expect("written");
    file.set_len(64 << 20).expect("resized");
    drop(file);
    place.ok("adopt v s --fast f:16M --force --yes");
    let served = serve(&place);
    begins(&place, &data);
    data[..2 * MIB].fill(3);
    copy_in(&place, &data);
    let made = place.json("replace v t:64M --member s", "replace");
    assert_eq!(made["served"], json!(true), "{made}");
    begins(&place, &data);
    end(&place, served);
    fs::remove_file(place.path("s")).expect("removed");
    let served = serve(&place);
    begins(&place, &data);
    end(&place, served);
    place.ok("release v --yes");
    let plain = fs::read(place.path("t")).expect("read");
    assert!(plain[..data.len()] == data, "the released disk differs");
}
