//! Names that are set on a served volume: all write modes during I/O, rules, and errors.

mod common;

use common::Place;
use common::nbd::{MIB, copy_in, holds, noise};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const MODES: [&str; 7] = [
    "write-back",
    "write-through-update",
    "write-through-all",
    "write-around",
    "write-only",
    "read-only",
    "pass-through",
];

fn dirty(of: &Value) -> u64 {
    of["copies"]["dirty_bytes"].as_u64().expect("a number")
}

/// Waits until no copy is dirty and no work is in progress.
fn clean(place: &Place) {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let status = place.json("status v", "status");
        if dirty(&status) == 0 && status["copies"]["draining"].is_null() {
            return;
        }
        assert!(Instant::now() < until, "hangs: {}", status["copies"]);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn all_modes_while_io_runs() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:48M --policy lru");
    let served = place.serve("v --nbd unix:n --events run.events");
    let mut seed = 0;
    // Each mode after write-back, from which it gets dirty copies; then each mode after the previous one.
    for mode in MODES.iter().flat_map(|m| ["write-back", m]).chain(MODES) {
        seed += 1;
        let data = noise(seed, 8 * MIB);
        std::thread::scope(|s| {
            let writing = s.spawn(|| copy_in(&place, &data));
            let set = place.json(&format!("set v write-mode={mode}"), "set");
            assert_eq!(set["policy"], json!(format!("lru,write-mode={mode}")));
            assert_eq!(set["params"]["write-mode"], json!(mode));
            writing.join().expect("written");
        });
        holds(&place, &data);
        if !matches!(mode, "write-back" | "write-only") {
            clean(&place);
            // New writes leave no dirty data, and reads return the written data.
            let data = noise(seed + 1000, 8 * MIB);
            copy_in(&place, &data);
            assert_eq!(dirty(&place.json("status v", "status")), 0, "{mode}");
            holds(&place, &data);
        }
    }
    // There is dirty data; then comes a mode that uses the cache only for reads, and the end at once.
    place.ok("set v write-mode=write-back");
    let data = noise(7, 8 * MIB);
    copy_in(&place, &data);
    assert!(dirty(&place.json("status v", "status")) > 0);
    place.ok("set v write-mode=read-only");
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    let replayed = place.json("replay-events run.events", "replay-events");
    assert_eq!(
        (&replayed["equal"], &replayed["difference"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(place.json("check v", "check")["ok"], json!(true));
    // The mode holds after the next start, and the dirty data is written home without a request.
    let served = place.serve("v --nbd unix:n");
    let status = place.json("status v", "status");
    assert_eq!(status["policy"], json!("lru,write-mode=read-only"));
    assert_eq!(status["params"]["write-mode"], json!("read-only"));
    clean(&place);
    holds(&place, &data);
    // The same after a kill.
    place.ok("set v write-mode=write-back");
    let data = noise(8, 8 * MIB);
    copy_in(&place, &data);
    place.ok("set v write-mode=write-around");
    served.kill();
    let served = place.serve("v --nbd unix:n");
    clean(&place);
    holds(&place, &data);
    // A recording that begins now must begin with the present mode.
    place.ok("set v write-mode=write-through-all");
    place.ok("record v --events --out now.events --seconds 1");
    let status = place.json("status v", "status");
    assert_eq!(status["params"]["write-mode"], json!("write-through-all"));
    let replayed = place.json("replay-events now.events", "replay-events");
    assert_eq!(replayed["equal"], json!(true));
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn rules_together_with_numbers_all_or_none() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:48M --policy type-aware");
    let served = place.serve("v --nbd unix:n");
    let data = noise(1, 8 * MIB);
    copy_in(&place, &data);
    let rules = "rule=class/1-7:cache-ondemand:20 rule=bytes/0-8M:slow:0";
    let set = place.json(&format!("set v {rules} p99_limit_s=0.5"), "set");
    let both = json!(["class/1-7:cache-ondemand:20", "bytes/0-8M:slow:0"]);
    assert_eq!(set["params"]["rule"], both);
    assert_eq!(set["params"]["p99_limit_s"], json!(0.5));
    // One value is wrong: nothing is set.
    let why = place.fails("set v rule=all:slow:0 p99_limit_s=9999");
    assert!(why.contains("p99_limit_s"), "{why}");
    let why = place.fails("set v rule=all:slow p99_limit_s=0.25");
    assert!(why.contains("SELECTOR:POLICY:SHARE"), "{why}");
    let status = place.json("status v", "status");
    assert_eq!(status["params"]["rule"], both);
    assert_eq!(status["params"]["p99_limit_s"], json!(0.5));
    holds(&place, &data);
    // A rule that is set replaces all earlier rules.
    let set = place.json("set v rule=all:cold-dst-plain:100", "set");
    assert_eq!(set["params"]["rule"], json!("all:cold-dst-plain:100"));
    assert_eq!(served.terminate(), Some(0));
    let served = place.serve("v --nbd unix:n");
    let status = place.json("status v", "status");
    assert_eq!(
        status["policy"],
        json!("type-aware,rule=all:cold-dst-plain:100")
    );
    assert_eq!(status["params"]["p99_limit_s"], json!(0.5));
    holds(&place, &data);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn what_is_wrong_is_said_with_the_nearest_name() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:48M --policy smq");
    let served = place.serve("v --nbd unix:n");
    for (call, words) in [
        (
            "write-mode=write-arund",
            ["one of write-back", "`write-around`"],
        ),
        (
            "write-mod=write-around",
            ["no parameter `write-mod`", "`write-mode`"],
        ),
        ("write-mode=3", ["write-mode", "write-mode"]),
    ] {
        let why = place.fails(&format!("set v {call}"));
        assert!(words.iter().all(|w| why.contains(w)), "{call}: {why}");
    }
    for (call, words) in [
        ("write-mode=write-around,dirty=0.2", "spaces"),
        ("write-mode=", "KEY=VALUE"),
        ("dirty=much", "the value of `dirty` is a number"),
        ("p99_limit_s=fast", "the value of `p99_limit_s` is a number"),
    ] {
        let out = place.run(&format!("set v {call}"));
        assert_eq!(out.status.code(), Some(2), "{call}: wrong usage");
        let why = String::from_utf8_lossy(&out.stderr);
        assert!(why.contains(words), "{call}: {why}");
    }
    let why = place.fails("set v policy=greendm,PT=2");
    assert!(why.contains("cache volume"), "{why}");
    assert_eq!(served.terminate(), Some(0));
    // On a tiering volume there is no write mode.
    place.ok("create w --fast g:16M --slow t:48M --policy greendm");
    let served = place.serve("w --nbd unix:m");
    place.ok("set w policy=greendm,PT=2");
    let why = place.fails("set w write-mode=write-around");
    assert!(
        why.contains("greendm has no parameter `write-mode`"),
        "{why}"
    );
    let status = place.json("status w", "status");
    assert_eq!(status["policy"], json!("greendm,PT=2"));
    assert_eq!(served.terminate(), Some(0));
}
