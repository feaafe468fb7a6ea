//! Miss ratios against libCacheSim, an independent implementation, on the same pre-split traces and sizes.
//!
//! Needs its Python package: `scripts/peer-libcachesim` puts it where this test looks (`target/peer`, or `$ISOTHERM_PEER`).
//! Without it the test says so and passes. Traces: the fixtures, and more below `$ISOTHERM_TRACES`.

mod common;

use isotherm_lab::hit_only::KEEP_BYTES;
use isotherm_traces::{Format, Options, convert};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A preset and its name in libCacheSim. Left out: `WTinyLFU` (other hash functions and another sketch), `LIRS` (its ghosts are not bounded;
/// equal up to 500 slots) and `LRUK` (remembers nothing of evicted units).
const PAIRS: [(&str, &str); 8] = [
    ("lru", "LRU"),
    ("fifo", "FIFO"),
    ("lfu", "LFU"),
    ("arc", "ARC"),
    ("s3-fifo", "S3FIFO"),
    ("sieve", "Sieve"),
    ("clock", "Clock"),
    ("two-q", "TwoQ"),
];
/// Sizes for which ⌊F/10⌋ and ⌊0.9 F⌋ are exact, because libCacheSim's S3-FIFO computes the size of its ghost list from them.
const SIZES: [u64; 4] = [20, 500, 2000, 20_000];

fn python() -> Option<PathBuf> {
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peer"));
    let dir = std::env::var_os("ISOTHERM_PEER").map_or(beside, PathBuf::from);
    let python = dir.join("venv/bin/python");
    let mut import = Command::new(&python);
    import.args(["-c", "import libcachesim"]);
    let works = import.output().is_ok_and(|o| o.status.success());
    works.then_some(python)
}

fn peer_ratios(python: &Path, trace: &Path, slots: u64) -> Vec<f64> {
    let out = Command::new(python)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/peer_miss_ratios.py"
        ))
        .arg(trace)
        .arg(slots.to_string())
        .args(PAIRS.map(|p| p.1))
        .output()
        .expect("python runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let ratio = |name: &str| {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|l| l.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    PAIRS.iter().map(|p| ratio(p.1)).collect()
}

#[test]
fn miss_ratios_are_those_of_libcachesim() {
    let Some(python) = python() else {
        println!("skipped: no Python package `libcachesim`; run scripts/peer-libcachesim");
        return;
    };
    let dir = tempfile::tempdir().expect("a scratch directory");
    for name in [
        "linux-mysql.load.zst",
        "windows-shared-server.load.zst",
        "arc-OLTP-head100k.lis.zst",
        "arc-OLTP.lis.zst",
        "linux-webserver-2.load.zst",
    ] {
        let Some(source) = common::trace(name) else {
            println!("skipped: {name} is not in $ISOTHERM_TRACES");
            continue;
        };
        let flat = dir.path().join(format!("{name}.oracle"));
        convert(&source, &Options::default(), &flat, Format::Oracle).expect("converted");
        for slots in SIZES {
            let theirs = peer_ratios(&python, &flat, slots);
            for ((policy, peer), theirs) in PAIRS.iter().zip(theirs) {
                let c = common::play(&flat, policy, &|_| slots, KEEP_BYTES).counters;
                let ours = 1.0 - c.hits as f64 / c.accesses as f64;
                // Both are a quotient of whole numbers, so a difference of half an access is not caused by rounding.
                assert!(
                    (ours - theirs).abs() < 0.5 / c.accesses as f64,
                    "{name}, {slots} slots: {policy} {ours:.9}, {peer} {theirs:.9}"
                );
            }
        }
    }
}
