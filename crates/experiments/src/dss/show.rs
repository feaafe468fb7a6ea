//! Sums and rows that several of DSS' experiments share.

use std::collections::BTreeMap;

use crate::outcome::Cell;
use isotherm_lab::sim::{Phase, PhaseClass};

/// Groups of classes that the paper's figures distinguish: name, classes.
pub const GROUPS: [(&str, std::ops::RangeInclusive<u8>); 5] = [
    ("unclassified", 0..=0),
    ("metadata", 1..=7),
    ("files to 64 KB", 8..=10),
    ("64 KB to 1 MB", 11..=12),
    ("over 1 MB", 13..=18),
];

/// `part` as a percentage of `whole`.
pub fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        part / whole * 100.0
    } else {
        0.0
    }
}

/// The percentage of a sum by class that belongs to a range of classes.
pub fn share(by_class: &BTreeMap<u8, u64>, classes: std::ops::RangeInclusive<u8>) -> f64 {
    let part: u64 = by_class.range(classes).map(|x| x.1).sum();
    percent(part as f64, by_class.values().sum::<u64>() as f64)
}

/// One figure of each class of a phase.
pub fn by_class(phase: &Phase, f: fn(&PhaseClass) -> u64) -> BTreeMap<u8, u64> {
    phase.classes.iter().map(|(c, x)| (*c, f(x))).collect()
}

/// The percentage of read blocks that the cache served; NaN without a cache.
pub fn hits(phase: &Phase) -> f64 {
    if phase.usage.members.len() < 2 {
        return f64::NAN;
    }
    let all = phase.all();
    percent(all.fast_read as f64, all.read as f64)
}

/// The percentage of all moved blocks that were moved to clean the cache. Each of these is read from the cache and written to the disk
/// (5.4).
pub fn syncer(phase: &Phase) -> f64 {
    let all = phase.all();
    let cleaned = 2.0 * phase.written_back_bytes as f64;
    percent(cleaned, cleaned + (all.read + all.written) as f64)
}

/// The cells of a table row, one for each of [`GROUPS`].
pub fn groups(by_class: &BTreeMap<u8, u64>) -> Vec<Cell> {
    let cell = |(name, classes): &(&str, std::ops::RangeInclusive<u8>)| {
        Cell::new(name, "%", share(by_class, classes.clone()))
    };
    GROUPS.iter().map(cell).collect()
}
