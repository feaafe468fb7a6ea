//! The flash of a cache volume becomes larger.

mod common;

use common::nbd::{MIB, copy_in, holds, noise};
use common::{Place, Served};
use serde_json::{Value, json};
use std::fs;

fn status(place: &Place) -> Value {
    place.json("status v", "status")
}

fn dirty(place: &Place) -> u64 {
    let bytes = status(place)["copies"]["dirty_bytes"].as_u64();
    bytes.expect("a number")
}

fn end(place: &Place, served: Served) {
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
}

fn enlarge(place: &Place, name: &str, mib: u64) {
    let file = fs::OpenOptions::new().write(true).open(place.path(name));
    file.and_then(|f| f.set_len(mib << 20)).expect("enlarged");
}

/// What a larger flash device held stays on it: nothing is written home, and copies remain copies.
#[test]
fn an_enlarged_device_is_used_and_stays_warm() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:64M --policy lru", "create");
    let data = noise(1, 12 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    let copies = || status(&place)["copies"]["extents"].clone();
    let before = (copies(), dirty(&place));
    assert!(before.1 > 8 * MIB as u64, "{before:?}");
    let same = place.json("cache v resize", "cache");
    assert_eq!(same["slots"], same["slots_before"], "{same}");
    for (mib, is_served) in [(40, true), (56, false)] {
        enlarge(&place, "f", mib);
        let resized = place.json("cache v resize", "cache");
        if is_served {
            assert_eq!((copies(), dirty(&place)), before);
        }
        let (before, slots) = (&resized["slots_before"], &resized["slots"]);
        assert_eq!(resized["did"], json!("resized"), "{resized}");
        assert!(
            slots.as_u64() > before.as_u64().map(|n| n + 150),
            "{resized}"
        );
        if is_served {
            holds(&place, &data);
            copy_in(&place, &data);
            place.ok("stop v");
        }
    }
    assert_eq!(served.end().0, Some(0));
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    end(&place, served);
}

/// Both devices that have the metadata must have become larger. Then copies on either stay, also after a kill.
#[test]
fn two_enlarged_devices_are_used() {
    let place = Place::new();
    place.json(
        "create v --fast f:16M --fast g:16M --slow s:96M --policy lru",
        "create",
    );
    let data = noise(1, 24 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    let before = dirty(&place);
    enlarge(&place, "f", 40);
    let one = place.run("cache v resize");
    let why = String::from_utf8_lossy(&one.stderr).into_owned();
    assert!(
        !one.status.success() && why.contains("must become larger"),
        "{why}"
    );
    enlarge(&place, "g", 32);
    let resized = place.json("cache v resize", "cache");
    assert_eq!(
        resized["flash"].as_array().map(Vec::len),
        Some(2),
        "{resized}"
    );
    assert_eq!(dirty(&place), before);
    holds(&place, &data);
    served.kill();
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    end(&place, served);
    let check = place.json("check v --data", "check");
    assert_eq!(check["ok"], json!(true), "{check}");
}
