//! Cache volumes that are made before their flash is there.

mod common;

use common::Place;
use common::nbd::{MIB, copy_in, holds, noise};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::FileExt;

fn is_well_without(place: &Place, v: &str) {
    let now = place.json(&format!("status {v}"), "status");
    assert_eq!(now["degraded"], json!(false), "{now}");
    assert_eq!(now["missing_members"], json!([]), "{now}");
    assert_eq!(now["members"][0]["removed"], json!(true), "{now}");
    assert!(!place.path(&format!("{v}.no-flash")).exists());
}

#[test]
fn a_volume_is_made_without_flash_and_gets_it() {
    let place = Place::new();
    let made = place.json(
        "create v --slow s:64M --without-flash --policy lru",
        "create",
    );
    assert_eq!(made["members"].as_array().map(Vec::len), Some(1), "{made}");
    assert_eq!(made["caching"], json!(true));
    is_well_without(&place, "v");
    let served = place.serve("v --nbd unix:n");
    let data = noise(1, 8 * MIB);
    copy_in(&place, &data);
    let added = place.json("cache v add f:24M", "cache");
    assert_eq!(added["did"], json!("added"), "{added}");
    holds(&place, &data);
    copy_in(&place, &data);
    place.ok("clean v");
    let copies = &place.json("status v", "status")["copies"]["extents"];
    assert!(copies.as_u64() > Some(8), "{copies}");
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
}

/// The disk alone grows, while it is served and while it is not, and gets flash afterwards.
#[test]
fn a_volume_without_flash_grows() {
    let place = Place::new();
    let made = place.json(
        "create v --slow s:64M --without-flash --policy lru",
        "create",
    );
    let size = |made: &Value| made["volume_bytes"].as_u64().expect("a size") as usize / MIB * MIB;
    let served = place.serve("v --nbd unix:n");
    let mut data = noise(1, size(&made));
    copy_in(&place, &data);
    place.end(served);
    for (mib, is_served) in [(128, false), (256, true)] {
        place.enlarge("s", mib);
        let served = is_served.then(|| place.serve("v --nbd unix:n"));
        let grown = place.json("grow v", "grow");
        assert!(size(&grown) > data.len() + 32 * MIB, "{grown}");
        is_well_without(&place, "v");
        let served = served.unwrap_or_else(|| place.serve("v --nbd unix:n"));
        holds(&place, &data);
        data.extend(noise(mib, size(&grown) - data.len()));
        copy_in(&place, &data);
        holds(&place, &data);
        // What was answered is on the disk.
        served.kill();
    }
    let served = place.serve("v --nbd unix:n");
    place.ok("cache v add f:24M");
    holds(&place, &data);
    copy_in(&place, &noise(9, 8 * MIB));
    data[..8 * MIB].copy_from_slice(&noise(9, 8 * MIB));
    place.end(served);
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    place.end(served);
}

/// What is in the way is left alone, and nothing is made.
#[test]
fn the_place_of_the_stand_in_is_not_overwritten() {
    let place = Place::new();
    fs::write(place.path("v.no-flash"), "mine").expect("written");
    let why = place.fails("create v --slow s:64M --without-flash");
    assert!(
        why.contains("v.no-flash") && why.contains("remove it"),
        "{why}"
    );
    assert_eq!(fs::read(place.path("v.no-flash")).expect("read"), b"mine");
    assert!(!place.path("v.toml").exists() && !place.path("s").exists());
    let both = place.run("create w --slow s:64M --fast f:16M --without-flash");
    assert_eq!(both.status.code(), Some(2));
}

/// A disk of unknown data is adopted, served, and given back, without flash ever being there.
#[test]
fn a_disk_is_adopted_without_flash() {
    let place = Place::new();
    let all = noise(7, 64 * MIB);
    fs::write(place.path("d"), &all).expect("written");
    // Where the tail comes.
    let file = fs::OpenOptions::new().write(true).open(place.path("d"));
    let file = file.expect("opened");
    let zeros = vec![0; 24 * MIB];
    file.write_all_at(&zeros, 40 * MIB as u64).expect("written");
    let before = fs::read(place.path("d")).expect("read");
    place.ok("adopt v d --without-flash --force --yes");
    is_well_without(&place, "v");
    assert!(place.fails("export v").contains("no flash at present"));
    let served = place.serve("v --nbd unix:n");
    holds(&place, &before[..40 * MIB]);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    place.ok("release v --yes");
    assert!(fs::read(place.path("d")).expect("read") == before);
}
