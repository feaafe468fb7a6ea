//! Gauges that each show one figure of `stats`.

use isotherm_answers::Stats;

/// A gauge without labels: its name, its help text, and its figure; without one it has no sample.
pub(super) type Figure = (&'static str, &'static str, fn(&Stats) -> Option<f64>);

/// Sizes of the volume.
pub(super) const SIZES: &[Figure] = &[
    ("volume_bytes", "Size of the volume", |s| {
        Some(s.volume_bytes as f64)
    }),
    ("extent_bytes", "Size of an extent", |s| {
        Some(s.extent_bytes as f64)
    }),
    ("mapped_extents", "Extents that hold something", |s| {
        Some(s.mapped_extents as f64)
    }),
];

/// The state of the volume.
pub(super) const STATE: &[Figure] = &[
    ("serving_seconds", "Since serving began", |s| {
        Some(s.elapsed_s)
    }),
    (
        "requests_in_flight",
        "Requests that were not answered yet",
        |s| Some(s.in_flight as f64),
    ),
    ("buffer_bytes", "Request memory that is in use", |s| {
        Some(s.buffer_bytes_out as f64)
    }),
    ("dirty_bytes", "Bytes that only the cache holds", |s| {
        Some(s.copies.dirty_bytes as f64)
    }),
    (
        "dirty_seconds",
        "Greatest age that data can have which only the cache holds",
        |s| s.copies.dirty_for_at_most_s,
    ),
    (
        "cleaning_seconds",
        "Estimate of the time that it takes to write all of it to the slowest tier",
        |s| s.copies.cleaning_takes_s,
    ),
    (
        "copied_extents",
        "Extents with a copy on a faster tier",
        |s| Some(s.copies.extents as f64),
    ),
    (
        "mirror_lag_blocks",
        "Journal blocks that the mirror lacks",
        |s| Some(s.commit.mirror_lag_blocks as f64),
    ),
];

/// The budget of power.
pub(super) const POWER_BUDGET: &[Figure] = &[
    (
        "power_budget_watts",
        "Mean power above which no moves begin",
        |s| s.power_budget.as_ref().map(|b| b.limit_w),
    ),
    (
        "power_budget_left_joules",
        "What may be taken at once; negative: no moves begin",
        |s| s.power_budget.as_ref().map(|b| b.left_j),
    ),
];

/// The budget of writes to the fastest tier.
pub(super) const WEAR_BUDGET: &[Figure] = &[
    (
        "wear_budget_bytes_per_day",
        "What the fastest tier may be written in a day",
        |s| s.wear_budget.as_ref().map(|b| b.bytes_per_day as f64),
    ),
    (
        "wear_budget_left_bytes",
        "What may be written to it now",
        |s| s.wear_budget.as_ref().map(|b| b.left_bytes as f64),
    ),
];

/// The last check of the data that was not interrupted.
pub(super) const DATA_CHECK: &[Figure] = &[
    (
        "data_check_timestamp_seconds",
        "End of the last complete check of the data, in seconds since 1970",
        |s| s.data_check.last.as_ref().map(|l| l.time_unix_s as f64),
    ),
    (
        "data_check_lost_bytes",
        "Bytes that it could read from no member",
        |s| s.data_check.last.as_ref().map(|l| l.lost_bytes as f64),
    ),
    (
        "data_check_differing_bytes",
        "Bytes that it found to differ between copy and home",
        |s| s.data_check.last.as_ref().map(|l| l.differing_bytes as f64),
    ),
    (
        "data_check_bad_places",
        "Extents in which it found places that cannot be read",
        |s| s.data_check.last.as_ref().map(|l| l.bad_places as f64),
    ),
];
