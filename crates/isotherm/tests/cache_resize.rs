//! The flash of a cache volume becomes larger.

mod common;

use common::Place;
use common::nbd::{MIB, copy_in, holds, noise};
use serde_json::json;

/// What a larger flash device held stays on it: nothing is written home, and copies remain copies.
#[test]
fn an_enlarged_device_is_used_and_stays_warm() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:64M --policy lru", "create");
    let data = noise(1, 12 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    let copies = || place.status()["copies"]["extents"].clone();
    let before = (copies(), place.dirty());
    assert!(before.1 > 8 * MIB as u64, "{before:?}");
    let same = place.json("cache v resize", "cache");
    assert_eq!(same["slots"], same["slots_before"], "{same}");
    for (mib, is_served) in [(40, true), (56, false)] {
        place.enlarge("f", mib);
        let resized = place.json("cache v resize", "cache");
        if is_served {
            assert_eq!((copies(), place.dirty()), before);
        }
        let (before, slots) = (&resized["slots_before"], &resized["slots"]);
        assert_eq!(resized["did"], json!("resized"), "{resized}");
        // The description states the old size.
        let status = place.json("status v", "status");
        assert_eq!(status["members"][0]["bytes"], json!(mib << 20), "{status}");
        assert_eq!(status["members"][1]["bytes"], json!(64 << 20), "{status}");
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
    place.end(served);
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
    let before = place.dirty();
    place.enlarge("f", 40);
    let one = place.run("cache v resize");
    let why = String::from_utf8_lossy(&one.stderr).into_owned();
    assert!(
        !one.status.success() && why.contains("must become larger"),
        "{why}"
    );
    place.enlarge("g", 32);
    let resized = place.json("cache v resize", "cache");
    assert_eq!(
        resized["flash"].as_array().map(Vec::len),
        Some(2),
        "{resized}"
    );
    assert_eq!(place.dirty(), before);
    holds(&place, &data);
    served.kill();
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    place.end(served);
    let check = place.json("check v --data", "check");
    assert_eq!(check["ok"], json!(true), "{check}");
}
