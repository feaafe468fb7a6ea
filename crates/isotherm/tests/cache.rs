//! The flash of a cache volume is taken out, given and enlarged, while the volume is served and while it is not.

mod common;

use common::Place;
use common::nbd::{MIB, back, copy_in, holds, noise};
use common::peer::wait_for;
use common::writer::{BLOCK, Held, Writer, checked};
use serde_json::{Value, json};
use std::fs;
use std::process::Stdio;

fn description(place: &Place) -> String {
    fs::read_to_string(place.path("v.toml")).expect("read")
}

/// A volume without flash is well, says nothing about it when it is served, and needs no flash to begin.
fn is_well_without(place: &Place) {
    let now = place.status();
    assert_eq!(
        (
            &now["degraded"],
            &now["missing_members"],
            &now["members"][0]["removed"]
        ),
        (&json!(false), &json!([]), &json!(true)),
        "{now}"
    );
    assert_eq!(now["health"]["state"], json!("well"), "{now}");
    assert_eq!(now["policy"], json!("lru"));
    let words = place.ok("status v");
    assert!(words.contains("its flash was removed"), "{words}");
}

#[test]
fn flash_leaves_and_comes_under_a_writer() {
    let place = Place::new();
    let size = place.small_cache();
    let served = place.serve("v --nbd unix:n");
    let writer = Writer::start(&place, vec![Held::default(); size as usize / BLOCK], 1);
    wait_for("dirty data", || (place.dirty() > MIB as u64).then_some(()));
    let removed = place.json("cache v remove", "cache");
    assert_eq!(removed["did"], json!("removed"), "{removed}");
    assert!(!place.is_member("f"), "the flash is free");
    is_well_without(&place);
    let (held, _) = writer.stop();
    let held = checked(&place, &held);
    served.kill();
    let served = place.serve("v --nbd unix:n");
    is_well_without(&place);
    checked(&place, &held);
    let writer = Writer::start(&place, held, 2);
    let added = place.json("cache v add g:48M", "cache");
    assert_eq!(added["did"], json!("added"), "{added}");
    // All of it: the metadata areas are of its size.
    assert!(added["slots"].as_u64() > Some(44 << 4), "{added}");
    assert!(!added.to_string().contains("not used"), "{added}");
    assert_eq!(place.status()["members"][0]["removed"], json!(false));
    wait_for("new copies", || (place.dirty() > MIB as u64).then_some(()));
    let (held, _) = writer.stop();
    served.kill();
    let served = place.serve("v --nbd unix:n");
    checked(&place, &held);
    place.end(served);
    let check = place.json("check v", "check");
    assert_eq!(check["ok"], json!(true), "{check}");
}

#[test]
fn flash_leaves_and_comes_while_nobody_serves() {
    let place = Place::new();
    place.small_cache();
    let data = noise(1, 12 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    assert!(place.dirty() > 0);
    served.kill();
    let removed = place.json("cache v remove", "cache");
    assert!(
        removed["written_home_bytes"].as_u64() > Some(0),
        "{removed}"
    );
    assert!(!place.is_member("f") && description(&place).contains("removed = true"));
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    place.ok("stop v");
    let (code, said) = served.end();
    assert_eq!(code, Some(0));
    let check = place.json("check v", "check");
    assert_eq!(check["ok"], json!(true), "{check}");
    let read = place.json("check v --data", "check");
    assert_eq!(read["ok"], json!(true), "{read}");
    assert!(
        !said.contains("cache is gone") && !said.contains("left out"),
        "{said}"
    );
    // What took its place is not touched.
    fs::write(place.path("f"), noise(3, MIB)).expect("written");
    let added = place.json("cache v add g:32M", "cache");
    assert!(added["slots_before"].is_u64(), "{added}");
    assert!(!description(&place).contains("removed"));
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    copy_in(&place, &noise(2, 14 * MIB));
    place.end(served);
    assert!(fs::read(place.path("f")).expect("read") == noise(3, MIB));
}

/// Flash that failed is nothing to take out: new flash is added at once.
#[test]
fn flash_that_is_lost_is_replaced_by_other_flash() {
    let place = Place::new();
    place.small_cache();
    let data = noise(1, 8 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    place.ok("clean v");
    place.end(served);
    for (lost, new, is_served) in [("f", "g", false), ("g", "h", true)] {
        fs::remove_file(place.path(lost)).expect("removed");
        let served = is_served.then(|| place.serve("v --nbd unix:n"));
        let added = place.json(&format!("cache v add {new}:24M"), "cache");
        assert_eq!(added["did"], json!("added"), "{added}");
        let served = served.unwrap_or_else(|| place.serve("v --nbd unix:n"));
        holds(&place, &data);
        assert_eq!(place.status()["degraded"], json!(false));
        place.end(served);
    }
}

/// A server is killed while it cleans, at several moments. Nothing was changed then, and the command can be repeated.
#[test]
fn a_kill_in_the_middle_of_a_removal_changes_nothing() {
    let place = Place::new();
    place.json(
        "create v --fast f:16M --slow s:64M --policy lru --paced slow=wd5000aaks",
        "create",
    );
    let data = noise(1, 12 * MIB);
    for wait_ms in [0, 20, 100, 300] {
        let served = place.serve("v --nbd unix:n");
        copy_in(&place, &data);
        let mut command = place.command("cache v remove");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut client = command.spawn().expect("the program starts");
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        served.kill();
        let ended = client.wait().expect("waited");
        if ended.success() {
            break;
        }
        let served = place.serve("v --nbd unix:n");
        assert_eq!(place.status()["policy"], json!("lru"));
        holds(&place, &data);
        served.kill();
    }
    if !description(&place).contains("removed = true") {
        place.ok("cache v remove");
    }
    let served = place.serve("v --nbd unix:n");
    is_well_without(&place);
    holds(&place, &data);
    place.end(served);
}

/// A description may be restored from a backup that is wrong by now, and old flash may come back.
#[test]
fn an_older_description_and_older_flash_do_no_harm() {
    let place = Place::new();
    place.small_cache();
    let (data, more) = (noise(1, 12 * MIB), noise(2, 12 * MIB));
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    place.end(served);
    let (with, flash) = (
        description(&place),
        fs::read(place.path("f")).expect("read"),
    );
    place.ok("cache v remove");
    let without = description(&place);
    // The description says that there is flash, and the flash is there as it was.
    fs::write(place.path("v.toml"), &with).expect("written");
    fs::write(place.path("f"), &flash).expect("written");
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    assert_eq!(place.status()["degraded"], json!(true));
    copy_in(&place, &more);
    place.end(served);
    place.ok("cache v remove");
    let served = place.serve("v --nbd unix:n");
    is_well_without(&place);
    holds(&place, &more);
    place.end(served);
    // The description says that there is none, and the volume has new flash with data of its own.
    place.ok("cache v add g:24M");
    let page = place.ok("status v");
    assert!(page.contains("/g, 24.0 MiB"), "{page}");
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    assert!(place.dirty() > 0);
    served.kill();
    fs::write(place.path("v.toml"), &without).expect("written");
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    assert_eq!(place.status()["degraded"], json!(false));
    place.end(served);
}

#[test]
fn what_cannot_be_done_is_said() {
    let place = Place::new();
    place.small_cache();
    let fails = |call: &str, why: &str| {
        let said = place.fails(call);
        assert!(said.contains(why), "{call}: {said}");
    };
    fails("cache nothing remove", "no such volume");
    let served = place.serve("v --nbd unix:n --read-only");
    fails("cache v remove", "read-only");
    place.end(served);
    place.ok("cache v remove");
    fails("cache v remove", "no flash");
    fails("cache v resize", "no flash");
    place.json("create w --slow x:16M", "create");
    fails("cache v add x", "belongs to a volume already");
    fails("cache w remove", "tiering volume");
    let served = place.serve("w --nbd unix:m");
    fails("cache w remove", "tiering volume");
    assert_eq!(served.terminate(), Some(0));
    fails("cache w add g:16M", "one tier");
    let served = place.serve("v --nbd unix:n");
    fails("cache v remove", "no flash");
    fails("cache v add x", "belongs to a volume already");
    place.ok("cache v add f");
    place.end(served);
    // A disk that is missing has to take the dirty data.
    fs::rename(place.path("s"), place.away("s")).expect("renamed");
    place.fails("cache v remove");
    assert!(place.is_member("f"));
}

#[test]
fn dirty_data_goes_home_when_asked() {
    let place = Place::new();
    place.small_cache();
    let why = place.fails("clean v");
    assert!(why.contains("is not served"), "{why}");
    let data = noise(1, 12 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    let before = place.status();
    assert!(place.dirty() > 0);
    assert!(before["copies"]["dirty_for_at_most_s"].is_number());
    let words = place.ok("status v");
    assert!(words.contains("dirty      for at most "), "{words}");
    let cleaned = place.json("clean v", "clean");
    assert_eq!(cleaned["dirty_bytes"], json!(0), "{cleaned}");
    assert_eq!(place.dirty(), 0);
    assert_eq!(place.status()["copies"]["dirty_for_at_most_s"], Value::Null);
    assert_eq!(
        place.status()["copies"]["extents"],
        before["copies"]["extents"]
    );
    assert_eq!(
        place.json("clean v", "clean")["dirty_extents_before"],
        json!(0)
    );
    // The policy goes on as before.
    copy_in(&place, &noise(2, 12 * MIB));
    assert!(place.dirty() > 0);
    place.json("clean v", "clean");
    // All of it is on the disk: without flash the volume has lost nothing.
    served.kill();
    fs::remove_file(place.path("f")).expect("removed");
    let served = place.serve("v --nbd unix:n");
    assert!(back(&place)[..12 * MIB] == noise(2, 12 * MIB)[..]);
    place.end(served);
}

/// No more than `dirty_max_percent` is dirty, also while a client writes as fast as it can; and the limit outlives the server.
#[test]
fn dirty_data_has_a_limit() {
    let place = Place::new();
    let size = place.small_cache();
    let served = place.serve("v --nbd unix:n");
    let writer = Writer::start(&place, vec![Held::default(); size as usize / BLOCK], 1);
    wait_for("dirty data", || (place.dirty() > MIB as u64).then_some(()));
    place.ok("set v dirty_max_percent=5");
    let max = || place.status()["copies"]["dirty_max_bytes"].as_u64();
    let most = max().expect("a limit");
    assert!(most < MIB as u64);
    wait_for("room", || (place.dirty() <= most).then_some(()));
    for _ in 0..20 {
        let now = place.status();
        let dirty = now["copies"]["dirty_bytes"].as_u64().expect("a number");
        assert!(dirty <= most, "{now}");
    }
    let (held, _) = writer.stop();
    checked(&place, &held);
    place.end(served);
    let served = place.serve("v --nbd unix:n");
    assert_eq!(max(), Some(most));
    place.ok("set v dirty_max_percent=0");
    assert_eq!(max(), None);
    let why = place.fails("set v dirty_max_percent=101");
    assert!(why.contains("percent of the flash"), "{why}");
    place.end(served);
}

/// Flash that the volume went on without may be anything when it comes back, also too short.
#[test]
fn flash_that_was_left_out_may_be_short() {
    let place = Place::new();
    place.small_cache();
    let data = noise(1, 8 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    place.ok("clean v");
    place.end(served);
    fs::rename(place.path("f"), place.away("f")).expect("renamed");
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    place.end(served);
    fs::rename(place.away("f"), place.path("f")).expect("renamed");
    place.enlarge("f", 9);
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    place.end(served);
}

/// With two flash devices, each is taken and given back, in any order; a kill between the table and the description changes nothing. The names
/// of devices that were taken out may be used again, also by the disk.
#[test]
fn names_of_removed_flash_may_be_used_again() {
    let place = Place::new();
    place.json(
        "create v --fast f1:16M --fast f2:16M --slow s:64M --policy lru",
        "create",
    );
    let data = noise(1, 12 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    place.ok("cache v remove");
    place.ok("cache v add f2");
    place.end(served);
    let with_one = description(&place);
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    place.end(served);
    place.ok("cache v add f1");
    // The description is the one of before.
    fs::write(place.path("v.toml"), with_one).expect("written");
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    copy_in(&place, &data);
    assert!(!description(&place).contains("removed"), "it is corrected");
    place.end(served);
    place.ok("cache v remove");
    for name in ["f1", "f2"] {
        fs::remove_file(place.path(name)).expect("removed");
    }
    fs::rename(place.path("s"), place.path("f1")).expect("renamed");
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    place.end(served);
    assert_eq!(place.json("check v", "check")["ok"], json!(true));
}

/// If the description cannot be written, nothing is changed, and the command can be repeated.
#[test]
fn a_removal_that_cannot_be_described_is_refused() {
    let place = Place::new();
    place.small_cache();
    let data = noise(1, 8 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    let file = place.path("v.toml");
    let kept = description(&place);
    // Nothing can be renamed over a directory that has something in it.
    fs::remove_file(&file).expect("removed");
    fs::create_dir_all(file.join("x")).expect("made");
    let why = place.fails("cache v remove");
    assert!(why.contains("nothing was changed"), "{why}");
    fs::remove_dir_all(&file).expect("removed");
    fs::write(&file, kept).expect("written");
    let now = place.status();
    assert_eq!(now["degraded"], json!(false), "{now}");
    assert_eq!(now["members"][0]["removed"], json!(false), "{now}");
    assert!(place.is_member("f"));
    place.ok("cache v remove");
    assert!(!place.is_member("f"));
    is_well_without(&place);
    holds(&place, &data);
    place.ok("cache v add f");
    place.end(served);
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    place.end(served);
}

/// A policy that is chosen while flash is being taken out does not keep it, and counts afterwards.
#[test]
fn a_policy_chosen_meanwhile_does_not_hold_up_a_removal() {
    let place = Place::new();
    let made = place.json(
        "create v --fast f:16M --slow s:64M --policy lru --paced slow=wd5000aaks",
        "create",
    );
    let size = made["volume_bytes"].as_u64().expect("a size");
    let served = place.serve("v --nbd unix:n");
    let writer = Writer::start(&place, vec![Held::default(); size as usize / BLOCK], 1);
    wait_for("dirty data", || (place.dirty() > MIB as u64).then_some(()));
    // Of two that ask at once, one is refused: from then on the removal goes on.
    let mut clients = [(), ()].map(|()| {
        let mut command = place.command("cache v remove");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the program starts")
    });
    wait_for("an answer", || {
        (clients.iter_mut()).find_map(|c| c.try_wait().expect("a child"))
    });
    place.ok("set v write-mode=write-back");
    let done = clients.map(|mut c| c.wait().expect("waited").success());
    assert!(done.contains(&true), "{done:?}");
    let now = place.status();
    assert_eq!(now["policy"], json!("lru,write-mode=write-back"), "{now}");
    assert_eq!(now["members"][0]["removed"], json!(true));
    let (held, _) = writer.stop();
    checked(&place, &held);
    place.end(served);
}
