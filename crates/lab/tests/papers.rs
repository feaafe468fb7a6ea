//! Published policies on real traces: exact counts of every preset (`golden/papers.tsv`; write it anew with
//! `ISOTHERM_BLESS=1`, and say in the commit why a number changed), and the naive references of the core's tests on the
//! heads of the fixtures.

#[path = "../../core/tests/reference/dss.rs"]
mod dss;
#[path = "../../core/tests/reference/greendm_cache.rs"]
mod greendm_cache;
#[path = "../../core/tests/reference/loris.rs"]
mod loris;
#[path = "../../core/tests/reference/modern.rs"]
mod modern;
#[allow(dead_code)] // the core looks at tiers as well
#[path = "../../core/tests/reference/planned.rs"]
mod planned;
#[path = "../../core/tests/reference/reconstructed.rs"]
mod reconstructed;
#[path = "../../core/tests/reference/mod.rs"]
mod reference;
#[path = "papers/trace.rs"]
mod trace;

use isotherm_core::policy::PRESETS;
use loris::Kind;
use reference::{Naive, engine, touch};
use std::fmt::Write;
use trace::{Trace, find, load};

/// Presets that have golden counts of their own in another file, and the baselines.
const NOT_HERE: &[&str] = &[
    "arc",
    "clock",
    "fifo",
    "lfu",
    "linear",
    "lirs",
    "lru",
    "lru-2",
    "mylinear",
    "s3-fifo",
    "sieve",
    "smq",
    "two-q",
    "w-tinylfu",
];
const TRACES: [&str; 4] = [
    "linux-mysql.load.zst",
    "linux-webserver-2.load.zst",
    "cloudphysics-io.vscsi.zst",
    "msr-web_0-head65k.csv.zst",
];
const SECOND: u64 = 1_000_000_000;

/// 10 % of the touched units.
fn fast(t: &Trace) -> u32 {
    (t.touched / 10).max(1)
}

#[test]
fn golden_counts() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/papers.tsv");
    let bless = std::env::var_os("ISOTHERM_BLESS").is_some();
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let mut table = String::from(
        "# 4 KiB units, fast size 10 %, hro and hot with period=600. trace, policy, accesses, hits, promotions, demotions, fetches, evictions, writebacks\n",
    );
    let mut wrong = Vec::new();
    for name in TRACES {
        let Some(file) = find(name) else {
            println!("SKIPPED {name}: neither a fixture nor in $ISOTHERM_TRACES");
            for line in known.lines().filter(|l| l.starts_with(name)) {
                writeln!(table, "{line}").expect("a string");
            }
            continue;
        };
        let trace = load(&file, usize::MAX);
        for preset in PRESETS.iter().filter(|p| !NOT_HERE.contains(&p.name)) {
            // These traces are shorter than a day, so the period is one in which plans take place.
            let params: &[(&str, f64)] = match preset.name {
                "hro" | "hot" => &[("period", 600.0)],
                _ => &[],
            };
            let mut e = engine(
                preset.name,
                params,
                trace.units,
                &[fast(&trace), trace.units],
            );
            for t in &trace.work {
                touch(&mut e, t);
            }
            let c = e.counters();
            let line = format!(
                "{name}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
                preset.name,
                c.accesses,
                c.hits,
                c.promotions,
                c.demotions,
                c.fetches,
                c.evictions,
                c.writebacks
            );
            if !known.lines().any(|l| l == line) {
                wrong.push(line.clone());
            }
            writeln!(table, "{line}").expect("a string");
        }
    }
    if bless {
        std::fs::write(&path, table).expect("the table can be written");
    } else {
        assert!(
            wrong.is_empty(),
            "not as in {}:\n{}",
            path.display(),
            wrong.join("\n")
        );
    }
}

/// All naive references of the core's tests.
fn references(f: u32, slow: u32) -> Vec<(&'static str, Box<dyn Naive>)> {
    let loris = |kind, copies| -> Box<dyn Naive> { Box::new(loris::Loris::new(kind, copies, f)) };
    let (slots, slow) = (f as usize, slow as usize);
    let oodt = planned::OodtParams {
        queue: 8,
        w_read: 0.1,
        w_metadata: 0.1,
        migrate_every: 10_000,
        decay: 1.0,
    };
    vec![
        ("hot-dst-dynamic", loris(Kind::OnDemand, false)),
        ("hot-dst-5s", loris(Kind::Interval(5 * SECOND), false)),
        ("hot-dst-80s", loris(Kind::Interval(80 * SECOND), false)),
        ("cold-dst-plain", loris(Kind::ColdPlain, false)),
        ("cold-dst-dynamic", loris(Kind::ColdDynamic, false)),
        ("cold-dst-dynamic-bgclean", loris(Kind::ColdClean, false)),
        ("cache-ondemand", loris(Kind::OnDemand, true)),
        ("cache-interval", loris(Kind::Interval(5 * SECOND), true)),
        (
            "oodt",
            Box::new(planned::Oodt::new(oodt, &[f, slow as u32])),
        ),
        (
            "hro",
            Box::new(planned::Hro::new(false, f, 86_400 * SECOND)),
        ),
        ("hot", Box::new(planned::Hro::new(true, f, 86_400 * SECOND))),
        (
            "greendm-cache",
            Box::new(greendm_cache::Cache::new(slots, 1, 60 * SECOND)),
        ),
        ("dss-lru", Box::new(dss::Dss::new(false, slots, 1))),
        ("dss-lru-s", Box::new(dss::Dss::new(true, slots, 1))),
        (
            "hystor",
            Box::new(reconstructed::Hystor::new(slots, 60 * SECOND)),
        ),
        ("raf", Box::new(reconstructed::Raf::new(slots))),
        ("azor", Box::new(reconstructed::Azor::new(slots))),
        (
            "bcache-like",
            Box::new(modern::Bcache::new(slots, 4 << 20, 10)),
        ),
        (
            "opencas-like",
            Box::new(modern::OpenCas::new(slots, false, 1 << 20, 100)),
        ),
        (
            "edt",
            Box::new(reconstructed::Edt::new(slots, slow, 300 * SECOND)),
        ),
    ]
}

#[test]
fn references_agree_on_the_fixtures() {
    for (name, limit) in [
        ("windows-shared-server.load.zst", usize::MAX),
        ("linux-mysql.load.zst", 1200),
    ] {
        let trace = load(&find(name).expect("a fixture"), limit);
        let f = fast(&trace);
        for (policy, mut naive) in references(f, trace.units) {
            let mut ours = engine(policy, &[], trace.units, &[f, trace.units]);
            for (i, t) in trace.work.iter().enumerate() {
                let (got, want) = (touch(&mut ours, t), naive.access(t));
                assert_eq!(got, want, "{policy} on {name}: access {i}, {t:?}");
            }
            let counts = reference::counts(&ours);
            assert_eq!(counts, naive.counts(), "{policy} on {name}");
        }
    }
}

/// Copies decide as homes do (docs/policy-rules.md section 5).
#[test]
fn caching_hits_as_tiering_does() {
    for name in ["linux-mysql.load.zst", "windows-shared-server.load.zst"] {
        let trace = load(&find(name).expect("a fixture"), usize::MAX);
        let run = |policy: &str| {
            let mut e = engine(policy, &[], trace.units, &[fast(&trace), trace.units]);
            let hits: Vec<bool> = trace.work.iter().map(|t| touch(&mut e, t)).collect();
            (hits, e.counters())
        };
        for (cache, tiering) in [
            ("cache-ondemand", "hot-dst-dynamic"),
            ("cache-interval", "hot-dst-5s"),
        ] {
            let ((a, c), (b, t)) = (run(cache), run(tiering));
            assert!(a == b, "{cache} and {tiering} differ on {name}");
            assert_eq!((c.fetches, c.evictions), (t.promotions, t.demotions));
        }
    }
}
