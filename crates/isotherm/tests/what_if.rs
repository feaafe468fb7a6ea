//! `what-if` on served volumes: the answer, what becomes of it, and what is refused.

mod common;

use common::Place;
use common::peer::Peer;
use isotherm_core::random::SplitMix64;
use serde_json::{Value, json};

/// Bytes of an extent.
const EXTENT: u64 = 16 << 10;
/// Extents that the load uses, of 16384.
const USED: u64 = 12_000;

/// Reads and writes 4 KiB at places of which the first are much more frequent, scattered over the volume.
fn load(place: &Place, seed: u64, requests: u32) {
    let mut peer = Peer::connect(&place.path("n")).expect("connects");
    let mut random = SplitMix64::new(seed);
    for _ in 0..requests {
        let u = random.draw() as f64 / 2f64.powi(64);
        let rank = (u.powi(4) * USED as f64) as u64;
        let at = (rank * 7919) % 16_000 * EXTENT;
        if random.below(5) == 0 {
            peer.write(at, &[7; 4096]).expect("written");
        } else {
            peer.read(at, 4096).expect("read");
        }
    }
}

fn ratio(v: &Value, key: &str) -> f64 {
    v["hit_ratio"][key].as_f64().expect("a ratio")
}

/// The hit ratio of the volume while this load runs.
fn measured(place: &Place, seed: u64, requests: u32) -> f64 {
    let counts = || {
        let s = place.json("stats v", "stats");
        (s["accesses"].as_u64(), s["tiers"][0]["hits"].as_u64())
    };
    let before = counts();
    load(place, seed, requests);
    let after = counts();
    let new = |a: Option<u64>, b: Option<u64>| (a.expect("a count") - b.expect("a count")) as f64;
    new(after.1, before.1) / new(after.0, before.0)
}

/// Under `lru`, whose decisions depend on no measured time. (What `benefit` copies does, so its figures differ on a busy machine.)
#[test]
fn doubled_flash_is_predicted() {
    let place = Place::new();
    let create = "create v --fast f:24M --slow s:260M --extent 16K --policy lru";
    place.json(create, "create");
    let served = place.serve("v --nbd unix:n");
    let early = place.fails("what-if v");
    assert!(early.contains("too few accesses so far"), "{early}");
    load(&place, 1, 30_000);
    let answer = place.json("what-if v", "what-if");
    let sizes = answer["sizes"].as_array().expect("sizes");
    let today = sizes
        .iter()
        .position(|s| s["fast_bytes"] == answer["fast_bytes"]);
    let today = today.expect("the size of today is a step");
    let (one, two) = (&sizes[today], &sizes[today + 1]);
    assert_eq!(
        one["hit_ratio"]["value"], answer["measured_hit_ratio"],
        "{answer}"
    );
    let off = ratio(one, "value") - answer["shadow_hit_ratio"].as_f64().expect("a ratio");
    assert!(off.abs() < 0.02, "{answer}");
    assert!(
        ratio(two, "value") >= ratio(one, "value") + 0.05,
        "{answer}"
    );
    for pair in sizes.windows(2) {
        assert!(
            ratio(&pair[0], "value") <= ratio(&pair[1], "value") + 0.02,
            "{answer}"
        );
    }
    // The candidates without the present policy.
    let names: Vec<&str> = (answer["policies"].as_array().expect("policies").iter())
        .filter_map(|p| p["policy"].as_str())
        .collect();
    assert_eq!(names, ["benefit", "s3-fifo", "w-tinylfu"]);
    // Between two steps.
    let between = place.json("what-if v --fast +8M", "what-if");
    let asked = &between["asked"];
    assert!(
        (ratio(one, "value")..ratio(two, "value")).contains(&ratio(asked, "value")),
        "{asked}"
    );
    refused(&place);
    // The flash becomes twice as large.
    let reserved = (24 << 20) - one["fast_bytes"].as_u64().expect("bytes");
    let wanted = two["fast_bytes"].as_u64().expect("bytes") + reserved;
    place.enlarge("f", wanted.div_ceil(1 << 20));
    place.json("cache v resize", "cache");
    load(&place, 2, 15_000);
    let real = measured(&place, 3, 15_000);
    // The range is that of the requests that were seen. These are others of the same kind.
    assert!(
        (ratio(two, "low") - 0.02..=ratio(two, "high") + 0.02).contains(&real),
        "{real} is not in the range: {two}"
    );
    // The shadows began anew, because the volume has another shape.
    let anew = place.json("what-if v", "what-if");
    assert_ne!(anew["fast_bytes"], answer["fast_bytes"]);
    place.end(served);
}

/// Arguments that cannot be answered are refused in words.
fn refused(place: &Place) {
    for (call, words) in [
        ("what-if v --fast +100G", "the shadows look at"),
        ("what-if v --fast 4K", "the shadows look at"),
        ("what-if v --policy no-such", "the shadows try"),
    ] {
        let why = place.fails(call);
        assert!(why.contains(words), "{call}: {why}");
    }
    for call in [
        "what-if v --fast much",
        "what-if v --fast 10%",
        "what-if v --fast +",
        "what-if v --fast 0",
        "what-if v --fast 1G --policy lru",
        "what-if",
    ] {
        assert_eq!(place.run(call).status.code(), Some(2), "{call}");
    }
}

#[test]
fn a_volume_without_flash_is_told_what_flash_would_give() {
    let place = Place::new();
    place.json(
        "create v --slow s:260M --without-flash --extent 16K --policy lru",
        "create",
    );
    let served = place.serve("v --nbd unix:n");
    load(&place, 1, 30_000);
    let answer = place.json("what-if v", "what-if");
    assert_eq!(answer["fast_bytes"], json!(0), "{answer}");
    assert_eq!(answer["measured_hit_ratio"], Value::Null, "{answer}");
    assert_eq!(answer["policies"], json!([]), "{answer}");
    let text = place.ok("what-if v");
    assert!(text.contains("without flash"), "{text}");
    let asked = place.json("what-if v --fast 32M", "what-if")["asked"].clone();
    place.json("cache v add f:34M", "cache");
    load(&place, 2, 15_000);
    let real = measured(&place, 3, 15_000);
    assert!(
        (ratio(&asked, "low") - 0.02..=ratio(&asked, "high") + 0.02).contains(&real),
        "{real} is not in the range: {asked}"
    );
    place.end(served);
}

#[test]
fn what_cannot_be_answered_is_said() {
    let place = Place::new();
    place.json(
        "create t --fast f:24M --slow s:64M --policy greendm",
        "create",
    );
    assert!(place.fails("what-if t").contains("serve"));
    assert!(place.fails("what-if none").contains("none"));
    let served = place.serve("t --nbd unix:n");
    let why = place.fails("what-if t");
    assert!(why.contains("cache volumes only"), "{why}");
    place.ok("stop t");
    assert_eq!(served.end().0, Some(0));
    // Too small for a sample.
    place.json(
        "create v --fast g:16M --slow r:64M --extent 4M --policy lru",
        "create",
    );
    let served = place.serve("v --nbd unix:m");
    let why = place.fails("what-if v");
    assert!(why.contains("too small"), "{why}");
    place.end(served);
}
