//! A cache volume that has flash gets one more device, and one of several is taken out, while the volume is served and while it is not.

mod common;

use common::Place;
use common::nbd::{MIB, copy_in, holds, noise};
use common::peer::wait_for;
use common::writer::{BLOCK, Held, Writer, checked};
use isotherm_hostile::Rng;
use serde_json::{Value, json};
use std::fs;
use std::process::Stdio;
use std::time::Duration;

/// The names of the members, which are all there.
fn members(place: &Place) -> Vec<String> {
    let now = place.status();
    assert_eq!(
        (&now["degraded"], &now["missing_members"]),
        (&json!(false), &json!([])),
        "{now}"
    );
    let name = |m: &Value| {
        let path = m["path"].as_str().expect("a path");
        path.rsplit('/').next().expect("a name").to_owned()
    };
    let all = now["members"].as_array().expect("members");
    all.iter().map(name).collect()
}

fn extents(place: &Place) -> u64 {
    place.status()["copies"]["extents"]
        .as_u64()
        .expect("a number")
}

fn is_sound(place: &Place) {
    for check in ["check v", "check v --data"] {
        let found = place.json(check, "check");
        assert_eq!(found["ok"], json!(true), "{check}: {found}");
    }
}

#[test]
fn flash_joins_and_leaves_under_a_writer() {
    let place = Place::new();
    let size = place.small_cache();
    let served = place.serve("v --nbd unix:n");
    let writer = Writer::start(&place, vec![Held::default(); size as usize / BLOCK], 1);
    wait_for("dirty data", || (place.dirty() > MIB as u64).then_some(()));
    let before = extents(&place);
    let added = place.json("cache v add g:24M", "cache");
    assert_eq!(added["did"], json!("added"), "{added}");
    assert!(
        added["others"][0]
            .as_str()
            .is_some_and(|p| p.ends_with("/f")),
        "{added}"
    );
    // (Its metadata and those of all flash take less than a quarter.)
    let slots = |key: &str| added[key].as_u64().expect("a number");
    assert!(
        slots("slots") > slots("slots_before") + (18 << 4),
        "{added}"
    );
    assert_eq!(members(&place), ["f", "g", "s"]);
    assert!(extents(&place) * 10 >= before * 9, "the copies are there");
    wait_for("more copies than before", || {
        (extents(&place) > slots("slots_before")).then_some(())
    });
    assert!(!writer.has_ended(), "a write failed");
    let (held, _) = writer.stop();
    served.kill();
    let served = place.serve("v --nbd unix:n");
    let held = checked(&place, &held);
    // The first one, which has the journal, leaves.
    let writer = Writer::start(&place, held, 2);
    wait_for("dirty data", || (place.dirty() > MIB as u64).then_some(()));
    let removed = place.json(
        &format!("cache v remove {}", place.path("f").display()),
        "cache",
    );
    assert_eq!(removed["did"], json!("removed"), "{removed}");
    assert!(!place.is_member("f"), "the device is free");
    assert_eq!(members(&place), ["g", "s"]);
    assert_eq!(place.status()["policy"], json!("lru"));
    wait_for("dirty data", || (place.dirty() > MIB as u64).then_some(()));
    assert!(!writer.has_ended(), "a write failed");
    let (held, _) = writer.stop();
    served.kill();
    let served = place.serve("v --nbd unix:n");
    checked(&place, &held);
    // The last one leaves as all flash does.
    place.ok("cache v remove g");
    assert_eq!(place.status()["members"][0]["removed"], json!(true));
    place.end(served);
    is_sound(&place);
}

#[test]
fn flash_joins_and_leaves_while_nobody_serves() {
    let place = Place::new();
    place.small_cache();
    let data = noise(1, 12 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    assert!(place.dirty() > 0);
    served.kill();
    for (call, now) in [
        ("cache v add g:16M", &["f", "g", "s"][..]),
        ("cache v add h:40M", &["f", "g", "h", "s"]),
        ("cache v remove f", &["g", "h", "s"]),
        ("cache v remove 0", &["h", "s"]),
    ] {
        let done = place.json(call, "cache");
        assert_eq!(members(&place), now, "{call}: {done}");
        let read = place.json("check v --data", "check");
        assert_eq!(read["ok"], json!(true), "{call}: {read}");
        let served = place.serve("v --nbd unix:n");
        holds(&place, &data);
        copy_in(&place, &data);
        assert!(place.dirty() > 0, "{call}");
        served.kill();
    }
    // What left is free, and can join again.
    assert!(!place.is_member("f") && !place.is_member("g"));
    place.ok("cache v add f");
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    place.end(served);
    is_sound(&place);
}

/// What is on flash outlives a change, if there is flash with it.
#[test]
fn copies_stay() {
    let place = Place::new();
    place.small_cache();
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &noise(1, 8 * MIB));
    place.ok("clean v");
    let before = extents(&place);
    assert!(before > 100);
    place.ok("cache v add g:16M");
    let after = extents(&place);
    assert!(after * 10 >= before * 9, "{after} of {before}");
    place.ok("cache v remove g");
    assert!(extents(&place) * 10 >= before * 8);
    place.end(served);
}

/// Server and command are killed at several moments of a change. It is finished or undone at the next start, and can be repeated.
#[test]
fn a_change_that_is_killed_is_finished_or_undone() {
    let place = Place::in_memory();
    place.small_cache();
    let data = noise(1, 12 * MIB);
    let mut served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    let mut rng = Rng::new(7);
    let mut seen = [0, 0];
    for round in 0..16 {
        let joins = !members(&place).contains(&"g".to_owned());
        let call = if joins {
            "cache v add g:16M --force"
        } else {
            "cache v remove g"
        };
        let is_served = round % 2 == 0;
        let mut client = place.command(call);
        client.stdout(Stdio::null()).stderr(Stdio::null());
        if is_served {
            let mut client = client.spawn().expect("the program starts");
            std::thread::sleep(Duration::from_millis(rng.below(150)));
            served.kill();
            client.wait().expect("waited");
        } else {
            served.kill();
            let mut client = client.spawn().expect("the program starts");
            std::thread::sleep(Duration::from_millis(rng.below(60)));
            let _ = client.kill();
            client.wait().expect("waited");
        }
        served = place.serve("v --nbd unix:n");
        let now = members(&place);
        assert!(now == ["f", "s"] || now == ["f", "g", "s"], "{now:?}");
        let made = (now.len() == 3) == joins;
        seen[usize::from(made)] += 1;
        holds(&place, &data);
        copy_in(&place, &data);
        // A file that was made for it may be there, and a command says what is left.
        if !made && joins {
            let _ = fs::remove_file(place.path("g"));
        } else if made && !joins {
            if place.is_member("g") {
                place.ok("cache v remove g");
            }
            assert!(!place.is_member("g"));
        } else if made {
            let again = place.json("cache v add g", "cache");
            assert_eq!(again["did"], json!("is-flash-already"), "{again}");
        }
    }
    println!("undone, made: {seen:?}");
    place.end(served);
    is_sound(&place);
}

/// The description and the devices are those of different moments.
#[test]
fn an_older_description_and_a_former_device_do_no_harm() {
    let place = Place::new();
    place.small_cache();
    let (data, more) = (noise(1, 12 * MIB), noise(2, 12 * MIB));
    place.ok("cache v add g:16M");
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    place.end(served);
    let description = || fs::read_to_string(place.path("v.toml")).expect("read");
    let with = description();
    let former = fs::read(place.path("g")).expect("read");
    place.ok("cache v remove g");
    let without = description();
    // The description names it, and it is there as it was: it is left out.
    fs::write(place.path("v.toml"), &with).expect("written");
    fs::write(place.path("g"), &former).expect("written");
    let served = place.serve("v --nbd unix:n");
    assert_eq!(members(&place), ["f", "s"]);
    holds(&place, &data);
    copy_in(&place, &more);
    place.end(served);
    assert!(description() == without, "it is corrected");
    // It is not taken without a word, and erased when the removal is repeated.
    let why = place.fails("cache v add g");
    assert!(why.contains("belongs to a volume already"), "{why}");
    place.ok("cache v remove g");
    assert!(!place.is_member("g"));
    // The description names a device that never became a member.
    fs::write(place.path("v.toml"), &with).expect("written");
    fs::write(place.path("g"), vec![0; 16 * MIB]).expect("written");
    let served = place.serve("v --nbd unix:n");
    assert_eq!(members(&place), ["f", "s"]);
    holds(&place, &more);
    place.end(served);
    is_sound(&place);
}

/// A device that has failed is taken out for good: the volume is not degraded any more, also without another one in its place.
#[test]
fn lost_flash_is_given_up() {
    let place = Place::new();
    place.small_cache();
    let data = noise(1, 8 * MIB);
    place.ok("cache v add g:16M");
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    place.ok("clean v");
    place.end(served);
    fs::rename(place.path("g"), place.away("g")).expect("renamed");
    let served = place.serve("v --nbd unix:n");
    assert_eq!(place.status()["degraded"], json!(true));
    holds(&place, &data);
    place.ok("cache v remove g");
    assert_eq!(members(&place), ["f", "s"]);
    holds(&place, &data);
    place.end(served);
    // It comes back.
    fs::rename(place.away("g"), place.path("g")).expect("renamed");
    let served = place.serve("v --nbd unix:n");
    assert_eq!(members(&place), ["f", "s"]);
    holds(&place, &data);
    place.end(served);
    is_sound(&place);
}

#[test]
fn what_cannot_be_done_is_said() {
    let place = Place::new();
    place.small_cache();
    place.ok("cache v add g:16M");
    let fails = |call: &str, why: &str| {
        let said = place.fails(call);
        assert!(said.contains(why), "{call}: {said}");
        assert_eq!(members(&place), ["f", "g", "s"], "{call}");
    };
    place.json("create w --slow x:16M", "create");
    fs::write(place.path("text"), noise(3, 300 << 10)).expect("written");
    let both = || {
        fails("cache v add x", "belongs to a volume already");
        fails("cache v add text", "too small");
        fails("cache v remove s", "is no flash of it");
        fails("cache v remove nothing", "is no flash of it");
    };
    both();
    let served = place.serve("v --nbd unix:n --read-only");
    fails("cache v add h:16M", "read-only");
    fails("cache v remove g", "read-only");
    assert!(!place.path("h").exists());
    place.end(served);
    let served = place.serve("v --nbd unix:n");
    both();
    place.end(served);
    let said = place.fails("cache w add h:16M");
    assert!(said.contains("one tier"), "{said}");
    // A disk that is missing has to take the dirty data.
    fs::rename(place.path("s"), place.away("s")).expect("renamed");
    place.fails("cache v remove g");
    assert!(place.is_member("g"));
    fs::rename(place.away("s"), place.path("s")).expect("renamed");
    place.json(
        "create t --fast a:16M --fast b:16M --slow c:64M --policy greendm",
        "create",
    );
    for call in ["cache t add h:16M", "cache t remove a"] {
        let said = place.fails(call);
        assert!(said.contains("tiering volume"), "{call}: {said}");
    }
    assert!(place.is_member("a"));
}
