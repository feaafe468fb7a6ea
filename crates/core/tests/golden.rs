//! Short sequences, worked by hand from docs/policy-rules.md, for the presets whose goldens are in no other file. Also the list of all
//! goldens; every preset must be in this list or have a golden in its own file.

mod reference;

use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{PRESETS, ParamValue, Policy, build_with};
use isotherm_core::{ExtentId, TierId};
use reference::{Counts, SHIFT, Touch, counts, engine, touch};

const SECOND: u64 = 1_000_000_000;

type Engine = NullEngine<Box<dyn Policy>>;

/// An access at `s` seconds by a request of `pages` pages.
fn io(s: f64, unit: u32, write: bool, pages: u32) -> Touch {
    Touch {
        now: (s * SECOND as f64) as u64,
        unit,
        write,
        class: 0,
        offset: u64::from(unit) << SHIFT,
        bytes: pages * 4096,
        first: true,
    }
}

fn read(s: f64, unit: u32) -> Touch {
    io(s, unit, false, 1)
}

fn write(s: f64, unit: u32) -> Touch {
    io(s, unit, true, 1)
}

/// The units among the first `units` that tier 0 serves: those whose copy, or home if there is no copy, is in a slot below `fast`.
fn on_fast(e: &Engine, units: u32, fast: u32) -> Vec<u32> {
    let slot = |u| e.copy(ExtentId(u)).or(e.home(ExtentId(u)));
    let is_fast = |u: &u32| slot(*u).is_some_and(|s| s.0 < fast);
    (0..units).filter(is_fast).collect()
}

/// Hits are `+`, misses `.`.
fn hits(e: &mut Engine, work: &[Touch]) -> String {
    let one = |t: &Touch| if touch(e, t) { '+' } else { '.' };
    work.iter().map(one).collect()
}

/// F = 1, period 80 s, t0 = 3 s: plans at 83, 163, 243 and 323 s. 4 KiB adds 64, 65 pages add 1 (over 64 pages).
#[test]
fn hot_dst_80s() {
    let mut e = engine("hot-dst-80s", &[], 8, &[1, 8]);
    // 0: 64, 1: 64 + 1 = 65, 0: 128. No plan before 83 s, so no hits.
    let work = [
        read(3.0, 0),
        write(50.0, 1),
        io(50.0, 1, false, 65),
        write(82.999, 0),
    ];
    assert_eq!(hits(&mut e, &work), "....");
    // 83 s: 0 (128) is the hottest and qualifies (> last = 0), and a slot is free. 1 (65) qualifies, but the coldest has 128 ≥ 65: the plan
    // ends. 1: 65 + 64 = 129, 0: 129, 1: 130.
    let work = [
        read(83.0, 1),
        io(100.0, 0, true, 65),
        io(100.0, 1, false, 65),
    ];
    assert_eq!(hits(&mut e, &work), ".+.");
    // 163 s: 1 (130 > last = 0; the coldest, 0, has 129 < 130) takes the place of 0, so last = 129. Then 0 (129) is not above last: the
    // plan ends. 2: 64, 1: 194, 0: 193.
    let work = [read(163.0, 2), read(164.0, 1), read(165.0, 0)];
    assert_eq!(hits(&mut e, &work), ".+.");
    assert_eq!(on_fast(&e, 8, 1), [1]);
    // 243 s: 0 (193 > 129) qualifies, but 1 has 194 ≥ 193: the plan ends. 0: 257.
    assert_eq!(hits(&mut e, &[read(243.0, 0), read(322.9, 2)]), "..");
    // 323 s: 0 (257 > 129, 194 < 257) takes the place of 1, so last = 194. 2 (128) does not qualify.
    assert_eq!(hits(&mut e, &[read(323.0, 1), read(323.0, 0)]), ".+");
    let want = Counts {
        promotions: 3,
        demotions: 2,
        ..Counts::default()
    };
    assert_eq!(counts(&e), want);
}

/// F = 128, so the cleaner takes at most F/64 = 2 units after each eviction in the foreground; every request has 4 KiB (64).
#[test]
fn cold_dst_dynamic_bgclean() {
    let mut e = engine("cold-dst-dynamic-bgclean", &[], 400, &[128, 400]);
    let demoted = |e: &Engine, n: u64| assert_eq!(counts(e).demotions, n);
    // 0 to 127 fill the fast tier with a counter of 64 each; 0 is the least recently used. There was no eviction, so nothing is cleaned.
    for u in 0..128 {
        assert!(!touch(&mut e, &write(0.0, u)));
    }
    demoted(&e, 0);
    // 128 waits until 0 has left: E = 1, last = 64. Then min(1, 2) = 1 unit is demoted in the background: unit 1. One slot is free.
    touch(&mut e, &write(1.0, 128));
    demoted(&e, 2);
    // 129 takes this slot without an eviction, so nothing is cleaned.
    touch(&mut e, &write(2.0, 129));
    demoted(&e, 2);
    // 130 waits until 2 has left: E = 2. Then min(2, 2) = 2 units are demoted in the background: 3 and 4. Two slots are free.
    touch(&mut e, &write(3.0, 130));
    demoted(&e, 5);
    // 0 and 1 are read: both have 128 > last = 64 and return to the free slots.
    assert_eq!(hits(&mut e, &[read(4.0, 0), read(4.0, 1)]), "..");
    assert_eq!((counts(&e).promotions, counts(&e).demotions), (2, 5));
    // 2 (128 > 64) is read while the fast tier is full: 5 (64) leaves for it, which counts as well: E = 3. Then min(3, 2) = 2 units are
    // demoted in the background: 6 and 7.
    assert_eq!(hits(&mut e, &[read(5.0, 2), read(5.0, 2)]), ".+");
    assert_eq!((counts(&e).promotions, counts(&e).demotions), (3, 8));
    // A write of 3 on the slow tier promotes nothing, although 128 > 64 and two slots are free. 3 to 7 are on the slow tier.
    assert_eq!(hits(&mut e, &[write(6.0, 3), write(6.0, 3)]), "..");
    assert_eq!(on_fast(&e, 9, 128), [0, 1, 2, 8]);
    assert_eq!((counts(&e).promotions, counts(&e).demotions), (3, 8));
}

/// F = 2. Every request has 4 KiB (64) unless stated. Writes go to copy and home, or only to the home if there is no copy.
#[test]
fn cache_ondemand() {
    let mut e = engine("cache-ondemand", &[], 8, &[2, 8]);
    let mut at = |t: Touch| {
        let hit = touch(&mut e, &t);
        (hit, counts(&e).fetches, counts(&e).evictions)
    };
    assert_eq!(at(read(0.0, 0)), (false, 1, 0)); // 64 > last = 0, and a slot is free
    assert_eq!(at(write(0.0, 1)), (false, 1, 0)); // a write that misses leaves no copy; 64
    assert_eq!(at(read(0.0, 1)), (false, 2, 0)); // 128: copies are {0: 64, 1: 128}
    assert_eq!(at(io(0.0, 0, true, 4)), (true, 2, 0)); // to both; b(4) = 2^(6-2) = 16: 80
    assert_eq!(at(read(0.0, 2)), (false, 3, 1)); // 64 > 0: the coldest, 0 (80), leaves: last = 80
    assert_eq!(at(write(0.0, 0)), (false, 3, 1)); // 144, and a write: no copy
    assert_eq!(at(read(0.0, 3)), (false, 3, 1)); // 64 ≤ 80
    assert_eq!(at(read(0.0, 0)), (false, 4, 2)); // 208 > 80: 2 (64) leaves: last = 64
    assert_eq!(at(write(0.0, 2)), (false, 4, 2)); // 128
    assert_eq!(at(read(0.0, 2)), (false, 5, 3)); // 192 > 64: 1 (128) leaves: last = 128
    assert_eq!(at(read(0.0, 3)), (false, 5, 3)); // 128 ≤ 128
    assert_eq!(at(read(0.0, 1)), (false, 6, 4)); // 192 > 128: 2 (192) is colder than 0 (208): last = 192
    assert_eq!(at(write(0.0, 1)), (true, 6, 4));
    assert_eq!(on_fast(&e, 8, 2), [0, 1]);
    let c = counts(&e);
    assert_eq!((c.writebacks, c.promotions, c.demotions), (0, 0, 0));
}

/// F = 1, period 5 s, t0 = 0; every request 4 KiB (64).
#[test]
fn cache_interval() {
    let mut e = engine("cache-interval", &[], 8, &[1, 8]);
    // 0: 64, 1: 64, 0: 128.
    let work = [write(0.0, 0), read(1.0, 1), write(4.0, 0)];
    assert_eq!(hits(&mut e, &work), "...");
    // 5 s: 0 (128) gets a copy. 1 (64) is not above the coldest. Then 1: 128, 0: 192 (written to copy and home).
    assert_eq!(hits(&mut e, &[write(5.0, 1), write(6.0, 0)]), ".+");
    // 10 s: 1 has 128, and the coldest has 192, so 1 gets no copy. Then 1: 192, 256. A read that misses makes no copy by itself.
    assert_eq!(hits(&mut e, &[write(11.0, 1), read(12.0, 1)]), "..");
    // 15 s: 1 (256 > last = 0, 192 < 256) replaces 0, whose copy is clean and is dropped: last = 192. 0 (192) is not above last. Then 1:
    // 320, 0: 256, 320, 384.
    let work = [
        write(16.0, 1),
        read(17.0, 0),
        write(18.0, 0),
        write(19.9, 0),
    ];
    assert_eq!(hits(&mut e, &work), "+...");
    // 20 s: 0 (384 > 192, 320 < 384) takes the place of 1: last = 320.
    assert_eq!(hits(&mut e, &[read(20.0, 0), read(20.0, 1)]), "+.");
    let want = Counts {
        fetches: 3,
        evictions: 2,
        ..Counts::default()
    };
    assert_eq!(counts(&e), want);
}

/// F = 4. Shares: metadata (M) 25 % = 1 slot, small files (C) 25 % = 1, the rest (H, hot-dst-dynamic) 50 % = 2. Requests have 4 KiB (64)
/// unless stated. Each sub-policy has a separate `last`.
#[test]
fn type_aware() {
    let m = |t, slots| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    };
    let geo = Geometry::new(SHIFT, 9, 64, vec![m(0, 4), m(1, 64)]).expect("a valid shape");
    let rules = [
        "bytes/0-8K:slow:0",
        "class/1-7:cache-ondemand:25",
        "class/8:cold-dst-plain:25",
    ];
    let params = rules.iter().map(|r| ("rule", ParamValue::Name(r)));
    let mut e = NullEngine::new(geo, build_with("type-aware", params).expect("valid rules"));
    let mut at = |unit, class, pages, want: &[u32]| {
        let t = Touch {
            class,
            ..io(0.0, unit, false, pages)
        };
        let hit = touch(&mut e, &t);
        assert_eq!(on_fast(&e, 64, 4), want, "after {unit}");
        hit
    };
    assert!(!at(1, 5, 1, &[])); // metadata, but the first matching rule applies: byte 4096 stays off fast
    assert!(!at(10, 8, 1, &[10])); // C: a first touch goes to fast
    assert!(!at(11, 8, 1, &[10, 11])); // a free slot goes to any policy that asks, also above its share
    assert!(!at(20, 3, 1, &[10, 11, 20])); // M: 64 > last = 0: copied
    assert!(!at(30, 0, 1, &[10, 11, 20, 30])); // H: 64 > 0: moved; fast is full
    // H has 1 of 2. C exceeds its share most, by 1. Its coldest, 10 (64, used before 11), leaves: last of C = 64.
    assert!(!at(31, 0, 1, &[11, 20, 30, 31]));
    assert!(!at(21, 3, 1, &[11, 21, 30, 31])); // M has 1 of 1: takes its own: 20 leaves, last of M = 64
    assert!(!at(20, 3, 1, &[11, 20, 30, 31])); // 128 > 64: 21 (64) leaves, last of M = 64
    assert!(!at(32, 0, 1, &[11, 20, 31, 32])); // H has 2 of 2, last of H = 0: 30 (64, the oldest) leaves, last of H = 64
    assert!(!at(33, 0, 1, &[11, 20, 31, 32])); // 64 ≤ 64
    assert!(!at(30, 0, 4, &[11, 20, 30, 32])); // 64 + 16 = 80 > 64: 31 (64) leaves, last of H = 64
    assert!(!at(10, 8, 1, &[11, 20, 30, 32])); // C is plain: a demoted unit never returns
    assert!(!at(12, 8, 1, &[12, 20, 30, 32])); // C has 1 of 1: 11 (64) makes room for the newcomer
    // The class of 20 is data now, so it counts for H, with its whole counter (128 + 64 = 192): H has 3 of 2, M has 0 of 1.
    assert!(at(20, 9, 1, &[12, 20, 30, 32]));
    // M: 64 + 64 = 128 > its last, 64. It takes a slot from H, the only one that exceeds its share. 32 (64) is the coldest there (30: 80,
    // 20: 192).
    assert!(!at(21, 3, 1, &[12, 20, 21, 30]));
    assert!(!at(1, 0, 1, &[12, 20, 21, 30]));
    let want = Counts {
        promotions: 4, // 30, 31, 32, 30
        demotions: 5,  // 10, 30, 31, 11, 32
        fetches: 4,    // 20, 21, 20, 21
        evictions: 2,  // 20, 21
        writebacks: 0,
    };
    assert_eq!(counts(&e), want);
}

/// F = 4: units 0 to 3 are on the fast tier from their first touch on, and 4 is always on the slow tier. First touches are misses.
#[test]
fn linear() {
    for name in ["linear", "mylinear"] {
        let mut e = engine(name, &[], 16, &[4, 16]);
        let work = [0, 0, 4, 4, 3, 4, 3, 0].map(|u| read(0.0, u));
        assert_eq!(hits(&mut e, &work), ".+....++", "{name}");
        for u in [0, 3, 4] {
            assert_eq!(e.home(ExtentId(u)).map(|s| s.0), Some(u), "{name}");
        }
        assert_eq!(counts(&e), Counts::default(), "{name}");
    }
}

/// F = 4. Reads of 0 1 2 3 at 1 to 4 s fill slots 0 to 3 (an access at 0 s has no weight in collectors that use time). 1 is read again at
/// 10 s, and 3 at 20 s. Then the new units 4 (65 s), 5 (66 s) and 6 (100 s) are read. Which units leave for them depends on the collector.
#[test]
fn hot_dst_by_collector() {
    let work = [
        (1.0, 0),
        (2.0, 1),
        (3.0, 2),
        (4.0, 3),
        (10.0, 1),
        (20.0, 3),
        (65.0, 4),
        (66.0, 5),
        (100.0, 6),
    ]
    .map(|(s, u)| read(s, u));
    let want: [(&str, [&[u32]; 3]); 3] = [
        // Last uses: 0 at 1 s, 2 at 3 s, 1 at 10 s, 3 at 20 s. So 0, 2 and 1 leave, in this order.
        (
            "hot-dst-recency",
            [&[1, 2, 3, 4], &[1, 3, 4, 5], &[3, 4, 5, 6]],
        ),
        // Counts: 0 and 2 have 1; 1 and 3 have 2. For 4 (1 > last = 0), 0 leaves, which was used before 2: last = 1. 5 and 6 have 1 each,
        // which is not above last: they stay on the slow tier.
        (
            "hot-dst-frequency",
            [&[1, 2, 3, 4], &[1, 2, 3, 4], &[1, 2, 3, 4]],
        ),
        // 65 s: all four slots are marked. The turn clears the marks, and 0, the oldest (64 s), leaves. 4 is marked in slot 0. 66 s: the
        // hand is at slot 0; the mark of 4 is cleared. 1 was used 56 s ago, within TW = 60 s, so it stays. 2 was used 63 s ago and leaves;
        // the hand is now at slot 3. 100 s: 3 is not marked and was used 80 s ago, so it leaves, although 1 was used longer ago.
        (
            "hot-dst-wsclock",
            [&[1, 2, 3, 4], &[1, 3, 4, 5], &[1, 4, 5, 6]],
        ),
    ];
    for (name, after) in want {
        let mut e = engine(name, &[], 16, &[4, 16]);
        assert_eq!(hits(&mut e, &work[..6]), "....++", "{name}");
        for (t, fast) in work[6..].iter().zip(after) {
            assert!(!touch(&mut e, t), "{name}");
            assert_eq!(on_fast(&e, 16, 4), fast, "{name} after {}", t.unit);
        }
    }
}

/// Worked by hand. F = 1, worth halves in 10 misses, a read at a random place saves 5.556 ms - 0.05 ms = 5376 units, a copy costs
/// 0.05 ms = 48 units.
#[test]
fn benefit() {
    let mut e = engine("benefit", &[("half_life", 10.0)], 8, &[1, 8]);
    // 0 is copied: 5376 > 48. At the miss of 2 two misses have passed: 5376 less 5 % against 5376 less 10 %, and 48: copied.
    // 2 hits, and has 5108 + 5376 = 10484.
    let work = [read(0.0, 0), read(0.0, 2), read(0.0, 2)];
    assert_eq!(hits(&mut e, &work), "..+");
    // 0: 4839 + 5376 = 10215, less 5 %: 9705, against 10484 less 5 %: 9960: not copied. Once more, less 5 %: 14327 against 9436.
    let work = [read(0.0, 0), read(0.0, 0), read(0.0, 0)];
    assert_eq!(hits(&mut e, &work), "..+");
    let copies = Counts {
        fetches: 3,
        evictions: 2,
        ..Counts::default()
    };
    assert_eq!(counts(&e), copies);
    // Requests of 64 KiB bypass the cache. A dirty copy does not leave for another, even after many requests.
    assert!(touch(&mut e, &write(10.0, 0)));
    let work = [
        io(10.0, 3, false, 16),
        io(10.0, 3, false, 16),
        read(10.0, 2),
        read(10.0, 2),
        read(10.0, 2),
        read(10.0, 2),
        read(10.0, 2),
    ];
    assert_eq!(hits(&mut e, &work), ".......");
    assert_eq!(counts(&e), copies);
    // All slots are dirty, so it is written home at 10.05 s although it is not settled; then 2 takes its slot.
    let work = [read(11.0, 2), read(11.0, 2)];
    assert_eq!(hits(&mut e, &work), ".+");
    let want = Counts {
        fetches: 4,
        evictions: 3,
        writebacks: 1,
        ..Counts::default()
    };
    assert_eq!(counts(&e), want);
}

const HERE: &str = include_str!("golden.rs");
const LORIS: &str = include_str!("loris_reference.rs");
const PLANNED: &str = include_str!("planned_reference.rs");
const RECONSTRUCTED: &str = include_str!("reconstructed_reference.rs");
const MODERN: &str = include_str!("modern_reference.rs");
const DSS: &str = include_str!("dss_reference.rs");
const GREENDM_CACHE: &str = include_str!("greendm_cache_reference.rs");
const NULL: &str = include_str!("../src/null/tests.rs");
const CACHES: &str = include_str!("../src/policy/cache/tests/golden.rs");

/// The goldens: preset, file, and name of the test.
const GOLDENS: &[(&str, &str, &str)] = &[
    ("arc", CACHES, "arc"),
    ("azor", RECONSTRUCTED, "azor_golden"),
    ("bcache-like", MODERN, "bcache_golden"),
    ("benefit", HERE, "benefit"),
    ("cache-interval", HERE, "cache_interval"),
    ("cache-ondemand", HERE, "cache_ondemand"),
    ("clock", CACHES, "clock"),
    ("cold-dst-dynamic", LORIS, "cold_dst_golden"),
    ("cold-dst-dynamic-bgclean", HERE, "cold_dst_dynamic_bgclean"),
    ("cold-dst-plain", LORIS, "cold_dst_golden"),
    ("dss-lru", DSS, "dss_lru_golden"),
    ("dss-lru-s", DSS, "dss_lru_s_golden"),
    ("edt", RECONSTRUCTED, "edt_golden"),
    ("fifo", CACHES, "fifo"),
    ("greendm", NULL, "greendm_golden"),
    ("greendm-cache", GREENDM_CACHE, "golden"),
    ("hot", PLANNED, "hro_golden"),
    ("hot-dst-5s", LORIS, "hot_dst_5s_golden"),
    ("hot-dst-80s", HERE, "hot_dst_80s"),
    ("hot-dst-dynamic", LORIS, "hot_dst_dynamic_golden"),
    ("hot-dst-frequency", HERE, "hot_dst_by_collector"),
    ("hot-dst-recency", HERE, "hot_dst_by_collector"),
    ("hot-dst-wsclock", HERE, "hot_dst_by_collector"),
    ("hro", PLANNED, "hro_golden"),
    ("hystor", RECONSTRUCTED, "hystor_golden"),
    ("lfu", CACHES, "lfu"),
    ("linear", HERE, "linear"),
    ("lirs", CACHES, "lirs"),
    ("lru", NULL, "lru_golden"),
    ("lru-2", CACHES, "lru_2"),
    ("mylinear", HERE, "linear"),
    ("oodt", PLANNED, "oodt_golden"),
    ("opencas-like", MODERN, "opencas_golden"),
    ("raf", RECONSTRUCTED, "raf_golden"),
    ("s3-fifo", CACHES, "s3_fifo"),
    ("sieve", CACHES, "sieve"),
    ("smq", CACHES, "smq"),
    ("two-q", CACHES, "two_q"),
    ("type-aware", HERE, "type_aware"),
    ("w-tinylfu", CACHES, "w_tinylfu"),
];

/// The text of the source file of a preset: `policy/NAME.rs` or `policy/cache/NAME.rs`, with `_` for `-`.
fn own_file(name: &str) -> Option<String> {
    let policies = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/policy");
    let file = format!("{}.rs", name.replace('-', "_"));
    [policies.join(&file), policies.join("cache").join(&file)]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())
}

/// Every preset must have a golden that names it: the test `golden` in its own file, or a row in the list above.
#[test]
fn every_preset_has_one() {
    for preset in PRESETS {
        let name = preset.name;
        let quoted = format!("\"{name}\"");
        if let Some((_, file, test)) = GOLDENS.iter().find(|g| g.0 == name) {
            let start = file.find(&format!("#[test]\nfn {test}() {{"));
            let body = &file[start.unwrap_or_else(|| panic!("{name}: no test {test}"))..];
            let end = body.find("\n}\n").map_or(body.len(), |i| i + 2);
            assert!(body[..end].contains(&quoted), "{test} does not use {name}");
        } else {
            let own = own_file(name).unwrap_or_default();
            let has = own.contains("    #[test]\n    fn golden() {") && own.contains(&quoted);
            assert!(
                has,
                "{name} has no golden: work a short sequence by hand, as the test `golden` in its own file"
            );
        }
    }
    for (i, (name, ..)) in GOLDENS.iter().enumerate() {
        let known = PRESETS.iter().any(|p| p.name == *name);
        let twice = GOLDENS[..i].iter().any(|g| g.0 == *name);
        assert!(
            known && !twice,
            "{name}: a row without a preset, or a second one"
        );
    }
}
