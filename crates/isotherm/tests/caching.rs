//! A volume whose fast tier keeps copies: it is created, served, killed, given another policy, and served without its cache.

mod common;

use common::Place;
use common::nbd::{MIB, begins, copy_in, holds, noise};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn count(of: &Value, name: &str) -> u64 {
    of.pointer(name)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("{name} in {of}"))
}

/// Waits until nothing is left that the new policy does not use.
fn drained(place: &Place) -> Value {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let stats = place.json("stats v", "stats");
        if stats["copies"]["draining"].is_null() {
            return stats;
        }
        assert!(Instant::now() < until, "hangs: {}", stats["copies"]);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_life_with_a_write_back_cache() {
    let place = Place::new();
    let made = place.json("create v --fast f:16M --slow s:96M --policy lru", "create");
    let slow = count(&made, "/members/1/slots") * count(&made, "/extent_bytes");
    assert_eq!(made["caching"], json!(true));
    assert_eq!(
        count(&made, "/volume_bytes"),
        slow,
        "copies add no capacity"
    );
    let served = place.serve("v --nbd unix:n");
    let data = noise(1, 40 * MIB);
    copy_in(&place, &data);
    holds(&place, &data);
    let stats = place.json("stats v", "stats");
    for name in ["/fetches", "/evictions", "/writebacks", "/copies/extents"] {
        assert!(count(&stats, name) > 0, "{name} in {stats}");
    }
    // Dirty data survives a kill.
    let data = noise(2, 12 * MIB);
    copy_in(&place, &data);
    served.kill();
    let served = place.serve("v --nbd unix:n");
    let old = noise(1, 40 * MIB);
    let whole: Vec<u8> = data.iter().chain(&old[data.len()..]).copied().collect();
    holds(&place, &whole);
    // A clean stop keeps the cache, with clean and dirty copies.
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    let check = place.json("check v", "check");
    assert_eq!(
        (&check["ok"], &check["findings"]),
        (&json!(true), &json!([]))
    );
    let served = place.serve("v --nbd unix:n");
    let after = place.json("status v", "status");
    assert_eq!(after["copies"]["extents"], check["copied_extents"]);
    assert!(count(&after, "/copies/extents") > 50);
    holds(&place, &whole);

    // A policy that places homes is refused, and nothing changes.
    let why = place.fails("set v policy=hot-dst-recency");
    assert!(why.contains("cache volume"), "{why}");
    // Another cache takes over with the copies as they are; one that leaves nothing dirty writes the dirty ones home.
    place.json("set v policy=smq", "set");
    holds(&place, &whole);
    place.json("set v write-mode=write-through-all", "set");
    let stats = drained(&place);
    assert_eq!(count(&stats, "/copies/dirty_extents"), 0);
    assert!(count(&stats, "/copies/extents") > 50, "{stats}");
    holds(&place, &whole);
    place.json("set v policy=lru", "set");
    let data = noise(3, 20 * MIB);
    copy_in(&place, &data);
    let whole: Vec<u8> = data.iter().chain(&whole[data.len()..]).copied().collect();
    holds(&place, &whole);
    let why = place.json("why v 39M", "why");
    assert!(why["mapped"] == json!(true));
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    assert_eq!(place.json("status v", "status")["policy"], json!("lru"));
    assert_eq!(place.json("check v", "check")["ok"], json!(true));
}

#[test]
fn a_lost_cache_is_not_passed_over_in_silence() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:32M --policy lru", "create");
    let served = place.serve("v --nbd unix:n");
    let data = noise(1, 4 * MIB);
    copy_in(&place, &data);
    let dirty = count(&place.json("status v", "status"), "/copies/dirty_bytes");
    assert!(dirty > 0);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    std::fs::rename(place.path("f"), place.away("f")).expect("renamed");
    let why = place.fails("serve v --read-only --nbd unix:n");
    assert!(
        why.contains(&format!("bytes 0 to {dirty}")) && why.contains("--accept-loss"),
        "{why}"
    );
    assert!(!why.contains("perhaps"), "closed cleanly: {why}");
    let served = place.serve("v --read-only --accept-loss --nbd unix:n");
    assert_eq!(served.terminate(), Some(0));
    // After a crash the disk knows as much.
    std::fs::rename(place.away("f"), place.path("f")).expect("renamed");
    let served = place.serve("v --nbd unix:n");
    begins(&place, &data);
    served.kill();
    std::fs::rename(place.path("f"), place.away("f")).expect("renamed");
    let why = place.fails("serve v --read-only --nbd unix:n");
    assert!(
        why.contains("bytes 0 to") && !why.contains("not known"),
        "{why}"
    );
}

#[test]
fn caching_needs_a_slow_tier_that_holds_everything() {
    let place = Place::new();
    let made = place.json(
        "create v --fast f:16M --slow s:32M --policy greendm",
        "create",
    );
    assert_eq!(made["caching"], json!(false));
    let served = place.serve("v --nbd unix:n");
    assert!(place.fails("set v policy=lru").contains("slowest tier"));
    assert_eq!(place.json("status v", "status")["policy"], json!("greendm"));
    assert_eq!(served.terminate(), Some(0));
    // The description does not change this either.
    let file = place.path("v.toml");
    let text = std::fs::read_to_string(&file).expect("read");
    std::fs::write(&file, text.replace("\"greendm\"", "\"lru\"")).expect("written");
    assert!(place.fails("serve v --nbd unix:n").contains("slowest tier"));
}

#[test]
fn all_capacity_holds_homes_on_both_tiers_and_says_what_a_loss_costs() {
    let place = Place::new();
    let text = place.ok("create u --fast g:16M --slow t:32M");
    assert!(text.contains("all else is on the slowest tier"), "{text}");
    let text = place.ok("create w --fast h:16M --slow r:32M --capacity all");
    assert!(text.contains("if the faster tiers are lost"), "{text}");
    let wrong = place.run("create x --tier 0=a:1M --tier 1=b:2M --slow c:4M --capacity all");
    assert_eq!(wrong.status.code(), Some(2));
    let made = place.json(
        "create v --fast f:16M --slow s:32M --capacity all",
        "create",
    );
    assert_eq!(made["caching"], json!(false));
    assert_eq!(made["policy"], json!("benefit,homes=1"));
    let slow = count(&made, "/members/1/bytes");
    let bytes = count(&made, "/volume_bytes");
    assert!(bytes > slow, "{bytes} of {slow} on the slow tier");
    let served = place.serve("v --nbd unix:n");
    // All of it, which neither tier could hold alone; then the first and the last part, repeatedly.
    let data = noise(1, bytes as usize / MIB * MIB);
    copy_in(&place, &data);
    holds(&place, &data);
    holds(&place, &data);
    let status = place.json("status v", "status");
    let lost = count(&status, "/copies/lost_with_fast_bytes");
    assert!(
        lost > count(&status, "/copies/dirty_bytes") && lost <= 16 << 20,
        "{lost}"
    );
    assert!(place.fails("set v policy=lru").contains("slowest tier"));
    served.kill();
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    assert_eq!(served.terminate(), Some(0));
}

/// A row that is refused is named with the reason, nothing of its command holds, and a new policy does not silently drop what was set.
#[test]
fn settings_are_refused_with_the_reason_and_dropped_with_a_word() {
    let place = Place::new();
    place.ok("create v --fast f:8M --slow s:64M");
    let served = place.serve("v --nbd unix:n");
    for (row, why) in [
        (
            "8+min=60",
            "class=8+min=60: must be a row with which the min",
        ),
        (
            "9+min=5+max=4",
            "class=9+min=5+max=4: must be a row after which",
        ),
        ("9+pin=no", "class=9+pin=no: must be CLASSES+KEY=VALUE"),
    ] {
        let said = place.fails(&format!("classes set v 7+pin 1+min=60 {row}"));
        assert!(said.contains(why), "{row}: {said}");
        let shown: Value = serde_json::from_str(&place.ok("classes show v --json")).expect("JSON");
        assert_eq!(shown["rows"], json!([]));
    }
    place.ok("classes set v 1-7+pin");
    place.ok("set v write-mode=write-through-update");
    let said = place.run("set v policy=lru").stderr;
    let said = String::from_utf8_lossy(&said);
    for setting in ["class=1-7+pin", "write-mode=write-through-update"] {
        assert!(said.contains(setting), "{setting} was dropped: {said:?}");
    }
    let said = place.run("set v policy=benefit").stderr;
    assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
    assert_eq!(served.terminate(), Some(0));
}
