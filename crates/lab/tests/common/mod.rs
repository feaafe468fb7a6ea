//! Code that several tests share.
#![allow(dead_code, reason = "each test uses its part")]

use std::path::PathBuf;

use isotherm_lab::hit_only::{HitOnlyReport, KEEP_BYTES, Setup, hit_only};
use isotherm_traces::{Options, open};

/// The plain caches.
pub const PLAIN: [&str; 12] = [
    "arc",
    "clock",
    "fifo",
    "lfu",
    "lirs",
    "lru",
    "lru-2",
    "s3-fifo",
    "sieve",
    "smq",
    "two-q",
    "w-tinylfu",
];

/// A fixture, or a trace below `$ISOTHERM_TRACES`; `None` if it is not there.
pub fn trace(name: &str) -> Option<PathBuf> {
    let fixtures = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"));
    let others = std::env::var_os("ISOTHERM_TRACES").map(PathBuf::from);
    [Some(fixtures), others]
        .into_iter()
        .flatten()
        .map(|dir| dir.join(name))
        .find(|path| path.exists())
}

/// Plays a trace in extents of 4 KiB, with the number of fast slots that `slots` gives for the number of touched extents.
pub fn play(
    path: &std::path::Path,
    policy: &str,
    slots: &dyn Fn(u64) -> u64,
    keep_bytes: usize,
) -> HitOnlyReport {
    let setup = Setup {
        policy,
        params: &[],
        extent_shift: 12,
        fast_slots: slots,
        keep_bytes,
    };
    hit_only(|| open(path, &Options::default()), &setup)
        .unwrap_or_else(|e| panic!("{}: {policy}: {e}", path.display()))
}

/// As [`play`], with a share of the touched extents in percent.
pub fn play_share(path: &std::path::Path, policy: &str, percent: u64) -> HitOnlyReport {
    play(path, policy, &|touched| touched * percent / 100, KEEP_BYTES)
}
