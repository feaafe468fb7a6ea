//! The spare of a cache volume takes the place of flash that fails.

mod common;

use common::Place;
use common::faulty::on_faulty;
use common::nbd::{MIB, begins, copy_in, noise};
use common::peer::{FLUSH, Peer, wait_for};
use common::writer::{Held, Writer, checked};
use serde_json::{Value, json};
use std::fs::{self, File};

const EIO: i32 = 5;

fn device(place: &Place, name: &str, mib: u64) {
    let made = File::create(place.path(name)).and_then(|f| f.set_len(mib << 20));
    made.expect("made");
}

/// The paths of the flash and of its spare.
fn flash(place: &Place) -> (String, Value) {
    let member = place.status()["members"][0].clone();
    let path = member["path"].as_str().expect("a path").to_owned();
    (path, member["spare"].clone())
}

/// What a FLUSH is answered.
fn flush(place: &Place) -> u32 {
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    peer.ask(FLUSH, 0, 0).expect("sent");
    peer.answer().expect("answered")
}

/// Waits until the spare `name` is the flash, and the volume is whole.
fn waits_for_flash(place: &Place, name: &str) {
    let path = place.path(name).to_string_lossy().into_owned();
    wait_for("the spare", || {
        let now = place.status();
        let whole = now["missing_members"] == json!([]);
        (whole && now["members"][0]["path"] == json!(path)).then_some(())
    });
    assert_eq!(flash(place), (path, Value::Null));
    assert!(place.is_member(name));
}

#[test]
fn it_takes_the_place_under_a_writer() {
    let place = Place::new();
    let Some(disk) = on_faulty(&place, "lru") else {
        return;
    };
    device(&place, "g", 24);
    let served = place.serve("v --nbd unix:n");
    let set = place.json("cache v spare g", "cache");
    assert_eq!(set["did"], json!("spare"), "{set}");
    let writer = Writer::start(&place, vec![Held::default(); 5000], 1);
    wait_for("dirty data", || (place.dirty() > 0).then_some(()));
    disk.spoil_writes(0);
    waits_for_flash(&place, "g");
    wait_for("use of the spare", || (place.dirty() > 0).then_some(()));
    assert!(!writer.has_ended(), "a request failed");
    let (held, _) = writer.stop();
    let held = checked(&place, &held);
    assert_eq!(flush(&place), 0);
    served.kill();
    // What has failed returns with old data, and is nothing to the volume.
    disk.come_back("f");
    let served = place.serve("v --nbd unix:n");
    waits_for_flash(&place, "g");
    checked(&place, &held);
    place.end(served);
}

#[test]
fn it_begins_although_data_was_lost() {
    let place = Place::new();
    let Some(disk) = on_faulty(&place, "lru") else {
        return;
    };
    device(&place, "g", 16);
    place.ok("cache v spare g");
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &noise(1, 4 * MIB));
    assert!(place.dirty() > 0);
    disk.fail(EIO);
    wait_for("the list", || {
        (place.status()["lost"]["bytes"].as_u64() > Some(0)).then_some(())
    });
    waits_for_flash(&place, "g");
    assert_ne!(flush(&place), 0, "one FLUSH says so");
    let data = noise(2, 8 * MIB);
    copy_in(&place, &data);
    begins(&place, &data);
    place.end(served);
}

/// A spare that got contents meanwhile is left alone, and taken when it is empty again. One that is away is waited for.
#[test]
fn one_that_cannot_be_used_is_waited_for() {
    let place = Place::new();
    let Some(disk) = on_faulty(&place, "lru,write-mode=write-through-all") else {
        return;
    };
    device(&place, "g", 16);
    place.ok("cache v spare g");
    place.tool("mkfs.ext4", &["-q", "g"]);
    let before = fs::read(place.path("g")).expect("read");
    let served = place.serve("v --nbd unix:n");
    let found = String::from_utf8(place.run("doctor v").stdout).expect("text");
    assert!(
        found.contains("risk: v: the spare could not take"),
        "{found}"
    );
    let data = noise(1, 4 * MIB);
    copy_in(&place, &data);
    disk.fail(EIO);
    wait_for("the end of the cache", || {
        (place.status()["missing_members"] == json!([0])).then_some(())
    });
    begins(&place, &data);
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(place.status()["missing_members"], json!([0]));
    assert!(
        before == fs::read(place.path("g")).expect("read"),
        "overwritten"
    );
    fs::remove_file(place.path("g")).expect("removed");
    std::thread::sleep(std::time::Duration::from_secs(12));
    device(&place, "g", 16);
    waits_for_flash(&place, "g");
    begins(&place, &data);
    place.ok("stop v");
    let (code, said) = served.end();
    assert_eq!(code, Some(0));
    assert!(
        said.contains("the spare could not be used at present"),
        "{said}"
    );
    assert_eq!(
        said.matches("the spare cannot take the place").count(),
        2,
        "{said}"
    );
    assert!(said.contains("the spare has taken the place"), "{said}");
}

/// A kill after the spare became the flash, and before the description said so.
#[test]
fn a_kill_before_the_description_is_written_is_mended() {
    let place = Place::new();
    let Some(disk) = on_faulty(&place, "lru") else {
        return;
    };
    // Not where members are searched for.
    fs::create_dir_all(place.away("shelf")).expect("made");
    let spare = place.away("shelf/g");
    File::create(&spare)
        .and_then(|f| f.set_len(16 << 20))
        .expect("made");
    place.ok(&format!("cache v spare {}", spare.display()));
    let served = place.serve("v --nbd unix:n");
    let before = fs::read(place.path("v.toml")).expect("read");
    let data = noise(1, 4 * MIB);
    copy_in(&place, &data);
    disk.spoil_writes(0);
    copy_in(&place, &data);
    let path = spare.to_string_lossy().into_owned();
    wait_for("the spare", || {
        (flash(&place) == (path.clone(), Value::Null)).then_some(())
    });
    copy_in(&place, &noise(2, 4 * MIB));
    assert!(place.dirty() > 0);
    served.kill();
    fs::write(place.path("v.toml"), before).expect("written");
    let served = place.serve("v --nbd unix:n");
    assert_eq!(place.status()["missing_members"], json!([]));
    wait_for("the description", || {
        (flash(&place) == (path.clone(), Value::Null)).then_some(())
    });
    begins(&place, &noise(2, 4 * MIB));
    place.end(served);
}

/// A clean cache that is not there at the start: the volume goes on without it, and for good, so the spare is used.
#[test]
fn it_is_used_at_a_start_without_flash() {
    let place = Place::new();
    place.small_cache();
    device(&place, "g", 16);
    place.ok("cache v spare g");
    let data = noise(1, 4 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    place.ok("clean v");
    place.end(served);
    fs::rename(place.path("f"), place.away("f")).expect("renamed");
    let served = place.serve("v --nbd unix:n --without-flash");
    waits_for_flash(&place, "g");
    begins(&place, &data);
    place.end(served);
    let served = place.serve("v --nbd unix:n");
    begins(&place, &data);
    place.end(served);
}

/// Flash that the user has taken out is replaced by what the user gives, and by nothing else.
#[test]
fn it_stays_where_it_is_when_flash_is_removed() {
    let place = Place::new();
    place.small_cache();
    device(&place, "g", 16);
    device(&place, "h", 16);
    let served = place.serve("v --nbd unix:n");
    place.ok("cache v spare g");
    // The first of two leaves: the volume still has the spare.
    place.ok("cache v add h");
    let first = flash(&place).0;
    place.ok(&format!("cache v remove {first}"));
    let h = place.path("h").to_string_lossy().into_owned();
    let g = json!(place.path("g").to_string_lossy());
    assert_eq!(flash(&place), (h, g.clone()));
    place.ok("cache v remove");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(!place.is_member("g"));
    assert_eq!(flash(&place).1, g);
    place.end(served);
}

#[test]
fn what_cannot_be_a_spare_is_refused() {
    let place = Place::new();
    place.small_cache();
    place.ok("create w --fast wf:16M --slow ws:64M");
    device(&place, "tiny", 1);
    device(&place, "ext4", 16);
    place.tool("mkfs.ext4", &["-q", "ext4"]);
    device(&place, "g", 16);
    let refusals = [
        ("spare f", "`v`"),
        ("spare s", "`v`"),
        ("spare wf", "`w`"),
        ("spare tiny", "needs at least"),
        ("spare ext4", "ext4"),
        ("spare none", "does not exist"),
        ("spare .", "neither a regular file"),
    ];
    let check = |served: bool| {
        for (call, why) in refusals {
            let said = place.fails(&format!("cache v {call}"));
            assert!(served || said.contains(why), "{call}: {said}");
        }
        let (path, spare) = flash(&place);
        assert!(spare.is_null() && path.ends_with('f'), "{path} {spare}");
    };
    check(false);
    let served = place.serve("v --nbd unix:n");
    check(true);
    assert_eq!(
        place.json("cache v spare --none", "cache")["did"],
        json!("no-spare")
    );
    place.ok("cache v spare g");
    place.end(served);
    assert!(!place.is_member("g"));
    // The disk has none.
    let text = fs::read_to_string(place.path("v.toml")).expect("read");
    let moved = text.replace("spare = ", "#spare = ") + "spare = \"g\"\n";
    fs::write(place.path("v.toml"), moved).expect("written");
    let said = place.fails("serve v --nbd unix:n");
    assert!(said.contains("only of flash"), "{said}");
    place.ok("create one --fast a:16M");
    let said = place.fails("cache one spare g");
    assert!(said.contains("one tier"), "{said}");
    place.ok("create all --fast b:16M --slow c:64M --capacity all");
    let said = place.fails("cache all spare g");
    assert!(said.contains("tiering") || said.contains("cache"), "{said}");
}
