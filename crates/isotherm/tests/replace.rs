//! A member is replaced by another device: a cache that was lost, and a member whose data is copied.

mod common;

use common::Place;
use common::nbd::{MIB, copy_in, holds, noise};
use serde_json::{Value, json};
use std::fs;

/// Serves the volume, and does `work` meanwhile.
fn served(place: &Place, work: impl FnOnce()) {
    let served = place.serve("v --nbd unix:n");
    work();
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
}

fn replaced(place: &Place, args: &str) -> Value {
    place.json(&format!("replace v {args}"), "replace")
}

/// The path of a device as a description has it.
fn path_of(place: &Place, name: &str) -> String {
    format!("\"{}\"", place.path(name).display())
}

/// Whether the volume is closed cleanly and without damage, with all of its members.
fn sound(place: &Place) {
    let check = place.json("check v", "check");
    assert_eq!(
        (&check["ok"], &check["was_clean"], &check["members_found"]),
        (&json!(true), &json!(true), &json!(2)),
        "{check}"
    );
}

#[test]
fn a_lost_cache_is_replaced_and_never_comes_back() {
    let place = Place::new();
    place.json(
        "create v --fast f:16M --slow s:64M --policy lru,write-mode=write-through-all",
        "create",
    );
    let data = noise(1, 24 * MIB);
    served(&place, || copy_in(&place, &data));
    fs::rename(place.path("f"), place.away("f")).expect("renamed");
    let done = replaced(&place, "g:12M");
    assert_eq!(
        (&done["member"], &done["copied_bytes"], &done["already"]),
        (&json!(0), &json!(0), &json!(false))
    );
    assert!(done["slots"].as_u64() < done["slots_before"].as_u64());
    sound(&place);
    // The former cache is attached again, under its old name. It is no part of the volume.
    fs::rename(place.away("f"), place.path("f")).expect("renamed");
    let old = fs::read(place.path("f")).expect("read");
    let more = noise(2, 24 * MIB);
    served(&place, || {
        let status = place.json("status v", "status");
        assert_eq!(status["degraded"], json!(false));
        holds(&place, &data);
        copy_in(&place, &more);
        holds(&place, &more);
    });
    assert!(fs::read(place.path("f")).expect("read") == old);
    sound(&place);
    // A search finds the new member and says what the former one is.
    let out = place.run("find");
    let (found, said) = (
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    );
    // Volumes of others on this machine are found too.
    assert!(
        found.contains(&path_of(&place, "g")) && !found.contains(&path_of(&place, "f")),
        "{found}"
    );
    assert!(said.contains("another device is member 0"), "{said}");
    // The description names it again by mistake: it is not taken.
    let toml = fs::read_to_string(place.path("v.toml")).expect("read");
    fs::write(place.path("v.toml"), toml.replace("/g\"", "/f\"")).expect("written");
    served(&place, || holds(&place, &more));
    // A second call finds nothing to do, and mends the description.
    assert_eq!(replaced(&place, "g")["already"], json!(true));
    let toml = fs::read_to_string(place.path("v.toml")).expect("read");
    assert!(toml.contains("/g\"") && !toml.contains("/f\""), "{toml}");
}

#[test]
fn a_blank_device_under_the_old_name_is_taken() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:64M", "create");
    let data = noise(1, 8 * MIB);
    served(&place, || copy_in(&place, &data));
    // Clean: the volume has to write what only its cache holds first.
    served(&place, || {
        place.ok("set v policy=lru,write-mode=write-through-all");
        while place.json("status v", "status")["copies"]["dirty_bytes"] != json!(0) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    fs::remove_file(place.path("f")).expect("removed");
    fs::File::create(place.path("f"))
        .and_then(|f| f.set_len(20 << 20))
        .expect("made");
    let why = place.fails("serve v --nbd unix:n");
    assert!(why.contains("no Isotherm superblock"), "{why}");
    assert!(why.contains("`isotherm replace` puts this device"), "{why}");
    replaced(&place, "f");
    sound(&place);
    served(&place, || holds(&place, &data));
    // Another device takes the place of one that is there and blank; then of one that has no byte left.
    for blank in [20 << 20, 0] {
        let old = if blank == 0 { "g" } else { "f" };
        fs::File::create(place.path(old))
            .and_then(|f| f.set_len(blank))
            .expect("emptied");
        let why = place.fails("serve v --nbd unix:n");
        assert!(why.contains("`isotherm replace` puts"), "{blank}: {why}");
        if blank == 0 {
            let why = place.fails("replace v g");
            assert!(why.contains("an empty one with its size"), "{why}");
            let out = place.run("replace v g:512M");
            assert!(out.status.success(), "{out:?}");
            // There cannot be more copies than the volume has extents.
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(said.contains("of 512 MiB are not used"), "{said}");
        } else {
            replaced(&place, "g:20M --member 0");
        }
        sound(&place);
        served(&place, || holds(&place, &data));
    }
}

#[test]
fn a_dirty_cache_is_replaced_only_with_consent() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:32M --policy lru", "create");
    served(&place, || copy_in(&place, &noise(1, 4 * MIB)));
    fs::rename(place.path("f"), place.away("f")).expect("renamed");
    let why = place.fails("replace v g:16M");
    assert!(
        why.contains("newest data") && why.contains("--accept-loss"),
        "{why}"
    );
    assert!(!place.path("g").exists(), "a refused file stays");
    // The refused command has changed nothing.
    fs::rename(place.away("f"), place.path("f")).expect("renamed");
    sound(&place);
    fs::rename(place.path("f"), place.away("f")).expect("renamed");
    replaced(&place, "g:16M --accept-loss");
    sound(&place);
    let data = noise(2, 16 * MIB);
    served(&place, || {
        copy_in(&place, &data);
        holds(&place, &data);
    });
}

#[test]
fn members_with_homes_are_copied() {
    let place = Place::new();
    place.json(
        "create v --fast f:16M --slow s:32M --policy greendm",
        "create",
    );
    let data = noise(1, 40 * MIB);
    served(&place, || copy_in(&place, &data));
    // Too small, in use by the volume, with other data on it: refused, and nothing has changed.
    for (args, word) in [
        ("g:8M --member 0", "needs at least"),
        ("g:16M", "no member is missing"),
        ("g:16M --member 7", "is no member"),
        ("g:16M --member 0 --empty", "nowhere else"),
        ("g --member 0", "does not exist"),
        ("n --member 0", "does not exist"),
    ] {
        let why = place.fails(&format!("replace v {args}"));
        assert!(why.contains(word), "{args}: {why}");
        assert!(!place.path("g").exists(), "{args}");
        sound(&place);
    }
    for (member, new) in [(0, "f2:24M"), (1, "s2:40M"), (1, "s3:32M"), (0, "f3:24M")] {
        let done = replaced(&place, &format!("{new} --member {member}"));
        assert_eq!(done["member"], json!(member));
        assert!(done["copied_bytes"].as_u64() > Some(8 << 20), "{done}");
        sound(&place);
        served(&place, || holds(&place, &data));
    }
    // The former members are no longer found as parts of the volume.
    let found = place.ok("find --json");
    for old in ["f", "f2", "s", "s2"] {
        assert!(!found.contains(&path_of(&place, old)), "{found}");
    }
    // A device with data is taken only by force, and a former member of the volume is none.
    place.json("create w --fast a:16M --slow b:32M", "create");
    let why = place.fails("replace v a --member 0");
    assert!(why.contains("--force"), "{why}");
    replaced(&place, "s --member 1");
    served(&place, || {
        let made = place.json("replace v f2 --member 0", "replace");
        assert_eq!(made["served"], json!(true), "{made}");
        holds(&place, &data);
    });
}

/// The command is killed at random moments. The volume is then as before or has its new member, and the command can be repeated.
#[test]
fn a_killed_replacement_can_be_repeated() {
    let place = Place::new();
    place.json(
        "create v --fast f:16M --slow s:96M --policy greendm",
        "create",
    );
    let data = noise(1, 90 * MIB);
    served(&place, || copy_in(&place, &data));
    let mut slow = String::from("s");
    for (i, ms) in [5, 20, 40, 80, 120, 160].into_iter().enumerate() {
        let new = format!("s{i}");
        let mut child = place
            .command(&format!("replace v {new}:96M --member 1"))
            .spawn()
            .expect("started");
        std::thread::sleep(std::time::Duration::from_millis(ms));
        let _ = child.kill();
        let _ = child.wait();
        served(&place, || holds(&place, &data));
        // What the first attempt has left is known for what it is.
        let done = replaced(&place, &format!("{new}:96M --member 1"));
        assert_eq!(done["member"], json!(1));
        sound(&place);
        if slow != new {
            let _ = fs::remove_file(place.path(&slow));
        }
        slow = new;
    }
    served(&place, || holds(&place, &data));
}

/// A disk is replaced while the flash is lost, of which the disks know that it had nothing of its own: nothing counts as lost afterwards.
#[test]
fn a_disk_is_replaced_in_a_volume_without_its_flash() {
    let place = Place::new();
    place.json(
        "create v --fast f:16M --slow s:64M --policy lru,write-mode=write-through-all",
        "create",
    );
    let data = noise(1, 30 * MIB);
    served(&place, || copy_in(&place, &data));
    std::fs::rename(place.path("f"), place.away("f")).expect("renamed");
    // A session without flash.
    served(&place, || holds(&place, &data));
    let done = replaced(&place, "t:64M --member s");
    assert_eq!(done["member"], json!(1));
    served(&place, || {
        let status = place.json("status v", "status");
        assert_eq!(status["lost"]["bytes"], json!(0), "{}", status["lost"]);
        holds(&place, &data);
    });
}
