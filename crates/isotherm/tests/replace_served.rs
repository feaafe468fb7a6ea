//! A member is replaced while the volume is served.

mod common;

use common::faulty::Faulty;
use common::nbd::{MIB, copy_in, holds, noise};
use common::peer::wait_for;
use common::writer::{BLOCK, Held, Writer, checked};
use common::{Place, Served};
use serde_json::{Value, json};
use std::fs;
use std::process::Stdio;

fn sound(place: &Place) {
    let check = place.json("check v", "check");
    assert_eq!(
        (&check["ok"], &check["was_clean"]),
        (&json!(true), &json!(true)),
        "{check}"
    );
}

fn bytes(v: &Value) -> u64 {
    v.as_u64().expect("a number")
}

/// A volume whose cache holds nothing of its own. Returns its size.
fn clean(place: &Place) -> u64 {
    let made = place.json(
        "create v --fast f:16M --slow s:64M --policy lru,write-mode=write-through-all",
        "create",
    );
    bytes(&made["volume_bytes"])
}

/// Takes the cache away while the volume is not served, and serves it without.
fn degraded(place: &Place) -> Served {
    fs::rename(place.path("f"), place.away("f")).expect("renamed");
    let served = place.serve("v --nbd unix:n");
    assert_eq!(place.json("status v", "status")["degraded"], json!(true));
    served
}

fn path_of(status: &Value, member: usize) -> String {
    let path = status["members"][member]["path"].as_str();
    path.expect("a path").to_owned()
}

#[test]
fn a_lost_cache_is_replaced_under_a_writer() {
    let place = Place::new();
    let size = clean(&place);
    let held = vec![Held::default(); size as usize / BLOCK];
    let served = degraded(&place);
    let writer = Writer::start(&place, held, 1);
    let made = place.json("replace v g:24M", "replace");
    assert_eq!(
        (&made["served"], &made["member"], &made["copied_bytes"]),
        (&json!(true), &json!(0), &json!(0)),
        "{made}"
    );
    assert!(
        bytes(&made["slots"]) > bytes(&made["slots_before"]),
        "{made}"
    );
    let now = place.status();
    assert_eq!(
        (&now["degraded"], &now["missing_members"], &now["state"]),
        (&json!(false), &json!([]), &json!("serving"))
    );
    assert!(path_of(&now, 0).ends_with("/g"), "{now}");
    // The new cache is used.
    wait_for("copies", || {
        let stats = place.json("stats v", "stats");
        let written = bytes(&stats["members"][0]["bytes_written"]);
        (written > MIB as u64).then_some(())
    });
    let (after, _) = writer.stop();
    let held = checked(&place, &after);
    place.end(served);
    sound(&place);
    let description = fs::read_to_string(place.path("v.toml")).expect("read");
    assert!(description.contains("/g\""), "{description}");
    // The former device is no part of the volume when it comes back.
    fs::rename(place.away("f"), place.path("f")).expect("renamed");
    let served = place.serve("v --nbd unix:n");
    assert_eq!(place.status()["degraded"], json!(false));
    checked(&place, &held);
    place.end(served);
    sound(&place);
}

/// A cache that is present is exchanged for another one as soon as it holds nothing of its own. The former device is free then.
#[test]
fn a_present_cache_is_replaced_when_it_is_clean() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:64M --policy lru", "create");
    let data = noise(1, 12 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    let why = place.fails("replace v g:32M --member f --empty");
    assert!(
        why.contains("nowhere else") && why.contains("write-through-all"),
        "{why}"
    );
    assert!(!place.path("g").exists());
    place.ok("set v write-mode=write-through-all");
    let made = wait_for("a clean cache", || {
        let out = place.run("replace v g:32M --member f --empty --json");
        let made: Option<Value> = serde_json::from_slice(&out.stdout).ok();
        made.filter(|_| out.status.success())
    });
    common::fits(&made, "replace");
    assert_eq!(made["served"], json!(true), "{made}");
    holds(&place, &data);
    // Another volume can have the former device, while this one is being served.
    place.json("create w --slow f:16M", "create");
    fs::remove_file(place.path("w.toml")).expect("removed");
    let more = noise(2, 20 * MIB);
    copy_in(&place, &more);
    holds(&place, &more);
    // It grows as well, and its cache is replaced once more.
    let slow = fs::OpenOptions::new().write(true).open(place.path("s"));
    slow.and_then(|f| f.set_len(160 << 20)).expect("resized");
    let grown = place.json("grow v", "grow");
    let made = place.json("replace v h:16M --member 0 --empty", "replace");
    assert!(grown["served"] == json!(true) && made["served"] == json!(true));
    holds(&place, &more);
    place.end(served);
    sound(&place);
    let served = place.serve("v --nbd unix:n");
    holds(&place, &more);
    place.end(served);
}

/// What cannot be: the answer says why, the volume is served on as before, and a file that was made for it is gone.
#[test]
fn a_replacement_that_cannot_be_leaves_the_volume_as_it_was() {
    let place = Place::new();
    let size = clean(&place);
    let data = noise(1, 8 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    place.end(served);
    let served = degraded(&place);
    fs::write(place.path("full"), noise(3, 24 * MIB)).expect("written");
    place.ok("create w --slow foreign:32M");
    for (call, word) in [
        ("replace v g:1M", "at least"),
        ("replace v nowhere", "give a size"),
        ("replace v s", "in use"),
        ("replace v foreign", "foreign"),
        ("replace v g:24M --member 1", "at least"),
        ("replace v g:24M --member 7", "no member"),
        ("replace v g:24M --accept-loss", "leave it out"),
    ] {
        let why = place.fails(call);
        assert!(why.contains(word), "{call}: {why}");
        assert!(!place.path("g").exists(), "{call}");
    }
    let mut recording = place
        .command("record v --events --out ev")
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    wait_for("the recording", || {
        let names = place.names();
        names.iter().any(|n| n.starts_with("ev")).then_some(())
    });
    let why = place.fails("replace v g:24M");
    assert!(why.contains("recorded"), "{why}");
    let _ = recording.kill();
    let _ = recording.wait();
    assert!(!place.path("g").exists());
    let now = place.status();
    assert_eq!(
        (&now["degraded"], &now["volume_bytes"]),
        (&json!(true), &json!(size))
    );
    holds(&place, &data);
    place.end(served);
    sound_without_cache(&place);
    let served = degraded_again(&place);
    let why = place.fails("replace v g:24M");
    assert!(why.contains("read-only"), "{why}");
    place.end(served);
}

/// A volume without its cache is checked with what is there.
fn sound_without_cache(place: &Place) {
    let out = place.run("check v --json");
    let check: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(check["was_clean"], json!(true), "{check}");
}

fn degraded_again(place: &Place) -> Served {
    place.serve("v --nbd unix:n --read-only")
}

/// The new device fails half way: at its first byte, and behind its first superblock.
#[test]
fn a_new_device_that_fails_is_left_out() {
    let place = Place::new();
    let size = clean(&place);
    let mut held = vec![Held::default(); size as usize / BLOCK];
    let backing = place.away("g");
    fs::File::create(&backing)
        .and_then(|f| f.set_len(24 << 20))
        .expect("made");
    let Some(disk) = Faulty::attach(&backing, &place.path("d"), "g") else {
        return;
    };
    let served = degraded(&place);
    for (round, from) in [(1, 0), (2, 4096), (3, 16 << 10)] {
        let writer = Writer::start(&place, held, round);
        disk.spoil_writes(from);
        let why = place.fails("replace v d/g");
        assert!(why.contains("d/g"), "{why}");
        let now = place.status();
        assert_eq!(
            (&now["degraded"], &now["state"]),
            (&json!(true), &json!("serving")),
            "{from}"
        );
        held = checked(&place, &writer.stop().0);
    }
    disk.come_back("g");
    let writer = Writer::start(&place, held, 4);
    // An attempt may have left a superblock.
    place.json("replace v d/g --force", "replace");
    held = checked(&place, &writer.stop().0);
    place.end(served);
    sound(&place);
    let served = place.serve("v --nbd unix:n");
    assert_eq!(place.status()["degraded"], json!(false));
    checked(&place, &held);
    place.end(served);
}

/// kill -9 at several moments: the next server finds the volume with its new cache or without one, and everything that was flushed.
#[test]
fn kill_9_during_a_replacement_loses_nothing() {
    let place = Place::new();
    let size = clean(&place);
    let mut held = vec![Held::default(); size as usize / BLOCK];
    let mut replaced = 0;
    let mut cache = "f".to_owned();
    for (round, ms) in [0, 3, 8, 15, 25, 40, 60, 100].into_iter().enumerate() {
        fs::rename(place.path(&cache), place.away(&cache)).expect("renamed");
        let served = place.serve("v --nbd unix:n");
        let writer = Writer::start(&place, held, round as u64 + 1);
        std::thread::sleep(std::time::Duration::from_millis(50));
        cache = format!("g{round}");
        let call = format!("replace v {cache}:16M");
        let mut replace = place.command(&call).spawn().expect("started");
        std::thread::sleep(std::time::Duration::from_millis(ms));
        served.kill();
        let _ = replace.wait();
        let (after, _) = writer.stop();
        let served = place.serve("v --nbd unix:n");
        held = checked(&place, &after);
        if place.status()["degraded"] == json!(false) {
            replaced += 1;
        } else {
            // What the attempt has left is no obstacle.
            place.json(&format!("replace v {cache}:16M --force"), "replace");
        }
        place.end(served);
        sound(&place);
    }
    println!("replaced in {replaced} of 8 rounds");
}
