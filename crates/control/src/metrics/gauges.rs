//! Gauges that each show one figure of `stats`.

/// A gauge without labels: its name, its help text, and the key of its figure in `stats`.
pub(super) type Figure = (&'static str, &'static str, &'static str);

/// Sizes of the volume.
pub(super) const SIZES: &[Figure] = &[
    ("volume_bytes", "Size of the volume", "/volume_bytes"),
    ("extent_bytes", "Size of an extent", "/extent_bytes"),
    (
        "mapped_extents",
        "Extents that hold something",
        "/mapped_extents",
    ),
];

/// The state of the volume.
pub(super) const STATE: &[Figure] = &[
    ("serving_seconds", "Since serving began", "/elapsed_s"),
    (
        "requests_in_flight",
        "Requests that were not answered yet",
        "/in_flight",
    ),
    (
        "buffer_bytes",
        "Request memory that is in use",
        "/buffer_bytes_out",
    ),
    (
        "dirty_bytes",
        "Bytes that only the cache holds",
        "/copies/dirty_bytes",
    ),
    (
        "dirty_seconds",
        "Greatest age that data can have which only the cache holds",
        "/copies/dirty_for_at_most_s",
    ),
    (
        "cleaning_seconds",
        "Estimate of the time that it takes to write all of it to the slowest tier",
        "/copies/cleaning_takes_s",
    ),
    (
        "copied_extents",
        "Extents with a copy on a faster tier",
        "/copies/extents",
    ),
    (
        "mirror_lag_blocks",
        "Journal blocks that the mirror lacks",
        "/commit/mirror_lag_blocks",
    ),
];

/// The budget of power.
pub(super) const POWER_BUDGET: &[Figure] = &[
    (
        "power_budget_watts",
        "Mean power above which no moves begin",
        "/power_budget/limit_w",
    ),
    (
        "power_budget_left_joules",
        "What may be taken at once; negative: no moves begin",
        "/power_budget/left_j",
    ),
];

/// The budget of writes to the fastest tier.
pub(super) const WEAR_BUDGET: &[Figure] = &[
    (
        "wear_budget_bytes_per_day",
        "What the fastest tier may be written in a day",
        "/wear_budget/bytes_per_day",
    ),
    (
        "wear_budget_left_bytes",
        "What may be written to it now",
        "/wear_budget/left_bytes",
    ),
];

/// The last check of the data that was not interrupted.
pub(super) const DATA_CHECK: &[Figure] = &[
    (
        "data_check_timestamp_seconds",
        "End of the last complete check of the data, in seconds since 1970",
        "/data_check/last/time_unix_s",
    ),
    (
        "data_check_lost_bytes",
        "Bytes that it could read from no member",
        "/data_check/last/lost_bytes",
    ),
    (
        "data_check_differing_bytes",
        "Bytes that it found to differ between copy and home",
        "/data_check/last/differing_bytes",
    ),
    (
        "data_check_bad_places",
        "Extents in which it found places that cannot be read",
        "/data_check/last/bad_places",
    ),
];
