//! A volume grows after its slow device has become larger.

mod common;

use common::Place;
use common::nbd::{MIB, back, copy_in, holds, noise};
use isotherm_core::store::checkpoint::Header;
use isotherm_core::store::{BLOCK, Superblock};
use serde_json::{Value, json};
use std::fs;

fn served(place: &Place, work: impl FnOnce()) {
    let served = place.serve("v --nbd unix:n");
    work();
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
}

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

#[test]
fn a_cache_volume_grows_many_times() {
    let place = Place::new();
    // Small extents and blocks, so that the metadata of the larger volume needs more room soon.
    let made = place.json(
        "create v --fast f:16M --slow s:32M --extent 4K --policy lru",
        "create",
    );
    let mut size = bytes(&made["volume_bytes"]);
    let mut data = noise(1, usize::try_from(size).expect("small") / MIB * MIB);
    served(&place, || copy_in(&place, &data));
    // Nothing has become larger.
    let why = place.fails("grow v");
    assert!(why.contains("large enough for another extent"), "{why}");
    sound(&place);
    for (round, mib) in [33, 64, 200, 201, 500].into_iter().enumerate() {
        place.enlarge("s", mib);
        let out = place.run("grow v --json");
        if !out.status.success() {
            // So little that the new tail has no room beside the present one.
            let why = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(
                [33, 201].contains(&mib) && why.contains("only a little larger"),
                "{why}"
            );
            sound(&place);
            continue;
        }
        let grown: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        common::fits(&grown, "grow");
        assert_eq!(bytes(&grown["volume_bytes_before"]), size, "{grown}");
        assert!(bytes(&grown["volume_bytes"]) > size, "{grown}");
        size = bytes(&grown["volume_bytes"]);
        sound(&place);
        if mib == 64 {
            // Once more, and nothing has become larger since.
            let why = place.fails("grow v");
            assert!(why.contains("large enough for another extent"), "{why}");
        }
        let len = usize::try_from(size).expect("small") / MIB * MIB;
        served(&place, || {
            assert_eq!(
                place.json("status v", "status")["volume_bytes"],
                json!(size)
            );
            holds(&place, &data);
            // What is new reads as zeros.
            assert!(back(&place)[data.len().min(len)..].iter().all(|b| *b == 0));
            data = noise(round as u64 + 2, len);
            copy_in(&place, &data);
            holds(&place, &data);
        });
    }
    // The cache can be replaced in a volume that has grown, and the disk, too.
    place.json("replace v g:40M --member 0", "replace");
    sound(&place);
    place.json("replace v t:700M --member 1", "replace");
    sound(&place);
    served(&place, || holds(&place, &data));
    let grown = place.json("grow v", "grow");
    assert!(bytes(&grown["volume_bytes"]) > size, "{grown}");
    sound(&place);
    served(&place, || holds(&place, &data));
}

/// The metadata of a cache volume follows from its flash, so a larger disk takes nothing away from it: dirty copies stay where they are.
#[test]
fn a_cache_keeps_its_copies_when_the_disk_grows() {
    let place = Place::new();
    place.json(
        "create v --fast f:16M --slow s:32M --extent 4K --policy lru",
        "create",
    );
    // The whole cache is dirty.
    let data = noise(1, 20 * MIB);
    served(&place, || copy_in(&place, &data));
    place.enlarge("s", 200);
    let grown = place.json("grow v", "grow");
    let fast = &grown["members"][0];
    assert_eq!(fast["slots"], fast["slots_before"], "{grown}");
    assert_eq!(bytes(&grown["moved_bytes"]), 0, "{grown}");
    sound(&place);
    served(&place, || holds(&place, &data));
}

/// The data on the second of two disks begins where the first one ends, so only the second one can grow.
#[test]
fn a_cache_volume_grows_by_the_last_of_its_disks() {
    let place = Place::new();
    place.json(
        "create v --fast f:32M --slow s:64M --slow t:64M --extent 4K",
        "create",
    );
    let data = noise(1, 60 * MIB);
    served(&place, || copy_in(&place, &data));
    place.enlarge("s", 300);
    let why = place.fails("grow v");
    assert!(why.contains("the last device of the slowest tier"), "{why}");
    place.enlarge("t", 600);
    let grown = place.json("grow v", "grow");
    assert!(bytes(&grown["volume_bytes"]) > bytes(&grown["volume_bytes_before"]));
    sound(&place);
    served(&place, || holds(&place, &data));
}

#[test]
fn a_full_tiering_volume_grows() {
    let place = Place::new();
    let made = place.json(
        "create v --fast f:16M --slow s:32M --policy greendm",
        "create",
    );
    let mut size = bytes(&made["volume_bytes"]);
    let data = noise(1, usize::try_from(size).expect("small") / MIB * MIB);
    served(&place, || copy_in(&place, &data));
    // First the slow tier has no room for what must leave the fast one.
    for mib in [128, 400] {
        place.enlarge("s", mib);
        let grown = place.json("grow v", "grow");
        assert!(
            bytes(&grown["volume_bytes"]) > size + 70 * MIB as u64,
            "{grown}"
        );
        size = bytes(&grown["volume_bytes"]);
        sound(&place);
        served(&place, || holds(&place, &data));
    }
    // A member that is missing: refused, and nothing has changed.
    fs::rename(place.path("s"), place.away("s")).expect("renamed");
    let why = place.fails("grow v");
    assert!(why.contains("missing"), "{why}");
    fs::rename(place.away("s"), place.path("s")).expect("renamed");
    served(&place, || holds(&place, &data));
}

/// The command is killed at several moments. The volume then has its old size or the new one, and all of its data.
#[test]
fn a_killed_growth_loses_nothing() {
    let place = Place::new();
    place.json(
        "create v --fast f:64M --slow s:64M --extent 4K --policy lru",
        "create",
    );
    let data = noise(1, 48 * MIB);
    served(&place, || copy_in(&place, &data));
    let mut mib = 64;
    for ms in [5, 30, 60, 90, 130, 180, 250, 400] {
        mib += 64;
        place.enlarge("s", mib);
        let mut child = place.command("grow v").spawn().expect("started");
        std::thread::sleep(std::time::Duration::from_millis(ms));
        let _ = child.kill();
        let _ = child.wait();
        served(&place, || holds(&place, &data));
    }
    mib += 256;
    place.enlarge("s", mib);
    let grown = place.json("grow v", "grow");
    assert!(bytes(&grown["volume_bytes"]) > (mib - 32) << 20, "{grown}");
    sound(&place);
    served(&place, || holds(&place, &data));
}

/// A server that is killed while it writes a checkpoint leaves the one before in one of its two places. That is no damage.
#[test]
fn a_checkpoint_that_is_not_in_use_may_be_in_one_place_only() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:32M --policy lru");
    place.enlarge("s", 64);
    place.ok("grow v");
    let sound_without = |region: u8| {
        let mut flash = fs::read(place.path("f")).expect("read");
        let sb = Superblock::decode(&flash[..BLOCK]).expect("a superblock");
        let layout = sb.layout();
        let second = layout.carriers().nth(1).expect("a second place");
        let at = layout.region_offset(second, region) as usize;
        let header = Header::decode(&flash[at..at + BLOCK], &sb.uuid).expect("a checkpoint");
        let whole = flash.clone();
        flash[at..at + BLOCK].fill(0);
        fs::write(place.path("f"), flash).expect("written");
        let check = place.run("check v");
        fs::write(place.path("f"), whole).expect("written");
        (header.number, check.status.success())
    };
    let mut both = [0, 1].map(sound_without);
    both.sort_unstable();
    assert_eq!(both.map(|b| b.1), [true, false], "{both:?}");
}
