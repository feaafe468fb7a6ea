//! What is found where a member should be, and is none: another volume, somebody else's device, a device that gives errors.

mod common;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use common::Place;
use common::faulty::Faulty;
use isotherm_core::store::BLOCK;

const MIB: u64 = 1 << 20;

/// Names of devices change: those of a description may belong to another volume one day. No command takes that volume for this one, and
/// none changes it, also where it has damage that a repair would find.
#[test]
fn what_has_the_members_names_and_belongs_to_another_volume_is_left_alone() {
    let place = Place::in_memory();
    let away = |name: &str| place.away(name);
    place.ok("create v --fast f:16M --slow s:64M");
    for name in ["f", "s"] {
        fs::rename(place.path(name), away(name)).expect("renamed");
    }
    place.ok("create w --fast f:16M --slow s:64M");
    let flash = OpenOptions::new().write(true).open(place.path("f"));
    flash
        .expect("opened")
        .write_all_at(&[0; BLOCK], 0)
        .expect("written");
    let both = || ["f", "s"].map(|name| fs::read(place.path(name)).expect("read"));
    let before = both();
    for command in [
        "check v",
        "check v --data",
        "check v --repair",
        "serve v --nbd unix:n",
        "serve v --read-only --nbd unix:n",
        "grow v",
        "replace v g:16M --member f",
        "release v --yes",
    ] {
        let why = place.fails(command);
        assert!(why.contains("belongs to volume"), "{command}: {why}");
        assert!(both() == before, "{command} changed the other volume");
    }
    // Its own name leads to it, and its own repair mends it.
    place.ok("check w --repair");
    place.ok("check w");
}

/// Flash is left out because it is dead, and its name may be that of somebody else's device by now.
#[test]
fn what_has_the_flash_s_name_is_not_written_when_flash_is_left_out() {
    // A file system whose first blocks are empty, and one of noise.
    let blank_at_first = [vec![0; 1 << 16], vec![7; 15 << 20]].concat();
    for contents in [blank_at_first, vec![7; 16 << 20]] {
        let place = Place::in_memory();
        place.ok("create v --fast f:16M --slow s:64M");
        for options in ["", "--without-flash"] {
            if !options.is_empty() {
                fs::rename(place.path("f"), place.away("f")).expect("renamed");
                fs::write(place.path("f"), &contents).expect("written");
            }
            let served = place.serve(&format!("v --nbd unix:n --stop-timeout 0 {options}"));
            assert_eq!(served.terminate(), Some(0));
        }
        let now = fs::read(place.path("f")).expect("read");
        assert!(now == contents, "something was written there");
    }
}

/// The name of flash that was left out may become that of a disk or of flash of another volume, or of anything: the volume goes on, and that is
/// neither read nor written.
#[test]
fn the_name_of_flash_that_was_left_out_is_that_of_something_else() {
    let place = Place::in_memory();
    place.ok("create v --fast f:16M --slow s:64M");
    fs::rename(place.path("f"), place.away("f")).expect("renamed");
    let served = place.serve("v --without-flash --nbd unix:n --stop-timeout 0");
    assert_eq!(served.terminate(), Some(0));
    for create in [
        Some("create w --fast g:16M --slow f:64M"),
        Some("create x --fast f:16M --slow t:64M"),
        None,
    ] {
        match create {
            Some(create) => drop(place.ok(create)),
            None => fs::write(place.path("f"), vec![7; 16 << 20]).expect("written"),
        }
        let before = fs::read(place.path("f")).expect("read");
        for options in ["", "--read-only"] {
            let served = place.serve(&format!("v --nbd unix:n --stop-timeout 0 {options}"));
            assert_eq!(place.status()["missing_members"], serde_json::json!([0]));
            assert_eq!(served.terminate(), Some(0));
        }
        assert!(fs::read(place.path("f")).expect("read") == before);
        fs::remove_file(place.path("f")).expect("removed");
    }
    // The flash itself missed writes, and stays left out when it is back.
    fs::rename(place.away("f"), place.path("f")).expect("renamed");
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    assert_eq!(place.status()["missing_members"], serde_json::json!([0]));
    assert_eq!(served.terminate(), Some(0));
}

/// A device that gives errors is not damaged: what it says is told, by every command that looks for its superblocks.
#[test]
fn a_member_whose_reads_fail_is_not_called_damaged() {
    for (create, at) in [
        ("create v --fast bay/sdb --slow s:64M --policy lru", "fast"),
        ("create v --fast f:16M --slow bay/sdb --policy lru", "slow"),
    ] {
        let place = Place::in_memory();
        let platter = place.away("platter");
        let made = fs::File::create(&platter).and_then(|f| f.set_len(64 * MIB));
        made.expect("made");
        let Some(disk) = Faulty::attach(&platter, &place.path("bay"), "sdb") else {
            return;
        };
        place.ok(create);
        disk.spoil(0, 64 * MIB);
        for command in [
            "serve v --nbd unix:n",
            "check v",
            "check v --repair",
            "find bay/sdb",
        ] {
            let out = place.run(command);
            let said = [out.stdout, out.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            assert!(!out.status.success(), "{at}, {command}: {said}");
            let sdb = said.lines().filter(|l| l.contains("bay/sdb"));
            let said: Vec<&str> = sdb.collect();
            assert!(
                said.iter()
                    .any(|l| l.contains("cannot be read") && l.contains("Input/output error"))
                    && !said
                        .iter()
                        .any(|l| l.contains("superblocks of member") && l.contains("damaged")),
                "{at}, {command}: {said:?}"
            );
        }
        // What no member says is not guessed.
        let other = place.path(if at == "fast" { "s" } else { "f" });
        fs::rename(&other, place.away("other")).expect("renamed");
        let out = place.run("check v");
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(said.contains("is not known"), "{at}: {said}");
        fs::rename(place.away("other"), &other).expect("renamed");
        // Nothing was lost, and nothing was made of it.
        disk.spoil(0, 0);
        place.ok("check v");
        assert_eq!(place.serve("v --nbd unix:n").terminate(), Some(0), "{at}");
    }
}
