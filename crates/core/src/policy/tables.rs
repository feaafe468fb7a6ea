//! Parameters of the published policies, as `isotherm policies` lists them.

/// A parameter as `isotherm policies` lists it.
#[derive(Clone, Copy, Debug)]
pub struct ParamInfo {
    /// Published name.
    pub name: &'static str,
    /// Meaning, with unit and range.
    pub what: &'static str,
    /// Default; in words if it depends on the volume.
    pub default: &'static str,
}

pub(super) const BCACHE: &[ParamInfo] = &[
    ParamInfo {
        name: "sequential_cutoff",
        what: "bytes of a stream from which it bypasses, 0 (never) to 2^40",
        default: "4194304",
    },
    ParamInfo {
        name: "writeback_percent",
        what: "per cent of the cache that should be dirty, 0 to 40",
        default: "10",
    },
    ParamInfo {
        name: "update_seconds",
        what: "seconds between corrections of the rate of cleaning, 1 to 3600",
        default: "5",
    },
    ParamInfo {
        name: "d_term",
        what: "weight of the change of dirty data, 0 to 1000",
        default: "30",
    },
    ParamInfo {
        name: "p_term_inverse",
        what: "divisor of a correction, 1 to 10^6",
        default: "6000",
    },
    ParamInfo {
        name: "rate_minimum",
        what: "minimum rate of cleaning in sectors per second, 1 to 10^6",
        default: "8",
    },
];

pub(super) const BENEFIT: &[ParamInfo] = &[
    ParamInfo {
        name: "half_life",
        what: "misses after which the worth of an extent has halved, in multiples of the fast slots, 0.001 to 100; 0: it never decreases",
        default: "0.3",
    },
    ParamInfo {
        name: "move_price",
        what: "weight of the cost of a copy, 0 to 1000",
        default: "1",
    },
    ParamInfo {
        name: "stream_bypass",
        what: "bytes of a stream from which it bypasses the cache (but for short requests, unless it is 16 times as long and undisturbed), 0 (never) to 2^40",
        default: "262144",
    },
    ParamInfo {
        name: "request_bypass",
        what: "bytes of a request from which it bypasses the cache, 0 (never) to 2^40",
        default: "65536",
    },
    ParamInfo {
        name: "idle_s",
        what: "seconds for which the slow device must be idle before dirty data is written home, 0.001 to 3600",
        default: "0.05",
    },
    ParamInfo {
        name: "settled_s",
        what: "seconds since data was last written before it is written home, 0 to 3600",
        default: "1",
    },
    ParamInfo {
        name: "guard",
        what: "1: while copies cost more than they save, only recently used extents are copied, and writes bypass flash while the slow device alone would answer them sooner; 0: off",
        default: "1",
    },
    ParamInfo {
        name: "parts",
        what: "1: only the requested part of an extent is copied if the rest is rarely requested; 0: always the whole extent",
        default: "1",
    },
    ParamInfo {
        name: "homes",
        what: "1: flash has homes as well and the volume is as large as both tiers, chosen when the volume is created; 0: flash has copies only",
        default: "0",
    },
    ParamInfo {
        name: "goal",
        what: "a named set of the weights that follow: fast (time), quiet (energy), lasting (wear) or cheap (money)",
        default: "fast",
    },
    ParamInfo {
        name: "w_latency",
        what: "weight of device time, 0 to 1000",
        default: "1",
    },
    ParamInfo {
        name: "w_energy",
        what: "seconds of device time that equal one joule, 0 to 10^6",
        default: "0",
    },
    ParamInfo {
        name: "w_wear",
        what: "seconds of device time that equal one dollar of wear, 0 to 10^12",
        default: "0",
    },
    ParamInfo {
        name: "w_money",
        what: "seconds of device time that equal one dollar of wear or energy, 0 to 10^12",
        default: "0",
    },
    ParamInfo {
        name: "w_read",
        what: "additional weight of a read, 0 to 100 (as in oodt)",
        default: "0",
    },
    ParamInfo {
        name: "w_metadata",
        what: "additional weight of an access to metadata (classes 1 to 7), 0 to 100 (as in oodt)",
        default: "0",
    },
    ParamInfo {
        name: "w_class",
        what: "seconds of device time that are added to the worth of an extent for each step of its class' priority, 0 to 10^6 (as in dss-lru-s)",
        default: "0",
    },
    ParamInfo {
        name: "by_request",
        what: "1: an access counts as 1 / (the number of extents of its request) (as in oodt); 0: as 1",
        default: "0",
    },
    ParamInfo {
        name: "w_random",
        what: "1: worth is multiplied by the number of accesses that continued no stream, up to 1023 (as in hro); 0: not",
        default: "0",
    },
    ParamInfo {
        name: "class",
        what: "CLASSES+KEY=VALUE, several times: admit (always, calm, never), pin, min, max (per cent), priority (0 to 12, for w_class)",
        default: "worth decides; priorities as in DSS Tables 3 and 6",
    },
    ParamInfo {
        name: "without",
        what: "for measurements: mechanisms to switch off, joined by +: account, lacks, worth, riding, value, alone, classes, yielding, duel, sooner",
        default: "none",
    },
];

pub(super) const DSS: &[ParamInfo] = &[
    ParamInfo {
        name: "low",
        what: "entries on the free list under which the syncer wakes, from 1",
        default: "fast slots / 10, at least 1",
    },
    ParamInfo {
        name: "high",
        what: "entries on the free list at which the syncer sleeps, from low",
        default: "fast slots / 5, at least 2",
    },
    ParamInfo {
        name: "sync_per_access",
        what: "entries cleaned after an access while it is awake, 1 to 1024",
        default: "1",
    },
    ParamInfo {
        name: "sync_batch",
        what: "dirty entries that the syncer collects before it cleans them, 1 to 128",
        default: "1",
    },
];

pub(super) const DSS_S: &[ParamInfo] = &[
    DSS[0],
    DSS[1],
    DSS[2],
    DSS[3],
    ParamInfo {
        name: "class",
        what: "CLASSES+KEY=VALUE, several times: priority (0 to 12), admit (always, calm, never), pin, min, max (per cent)",
        default: "DSS Tables 3 and 6",
    },
];

pub(super) const EDT: &[ParamInfo] = &[
    ParamInfo {
        name: "interval",
        what: "seconds between plans, 0.001 to 10^9",
        default: "300",
    },
    ParamInfo {
        name: "fast_iops",
        what: "requests/s of the fastest tier, 1 to 10^9; 0: as measured",
        default: "0",
    },
    ParamInfo {
        name: "slow_iops",
        what: "requests/s of the slowest tier, 1 to 10^9; 0: as measured",
        default: "0",
    },
    ParamInfo {
        name: "fast_bandwidth",
        what: "bytes/s of the fastest tier, 1 to 10^12; 0: as measured",
        default: "0",
    },
    ParamInfo {
        name: "slow_bandwidth",
        what: "bytes/s of the slowest tier, 1 to 10^12; 0: as measured",
        default: "0",
    },
    ParamInfo {
        name: "price_ratio",
        what: "price of a fast slot over that of a slow one, 0.001 to 10^6",
        default: "20",
    },
];

pub(super) const HYSTOR: &[ParamInfo] = &[
    ParamInfo {
        name: "window",
        what: "seconds between plans, 0.001 to 10^9",
        default: "60",
    },
    ParamInfo {
        name: "remap_share",
        what: "share of the fast tier that is filled by plans, 0 to 1",
        default: "0.8",
    },
];

pub(super) const OODT: &[ParamInfo] = &[
    ParamInfo {
        name: "migrate_every",
        what: "requests between migrations, 1 to 10^12",
        default: "10000",
    },
    ParamInfo {
        name: "cost",
        what: "how an access is counted: queue, frequency, sequence or inverse-bitmap (OODT figure 2)",
        default: "queue",
    },
    ParamInfo {
        name: "queue",
        what: "pending requests with which an access can merge, 1 to 64",
        default: "8",
    },
    ParamInfo {
        name: "w_read",
        what: "extra weight of reads, 0 to 100",
        default: "0.1",
    },
    ParamInfo {
        name: "w_metadata",
        what: "extra weight of metadata (classes 1 to 7), 0 to 100",
        default: "0.1",
    },
    ParamInfo {
        name: "decay",
        what: "factor on all priorities at each migration, 0 to 1",
        default: "1",
    },
    ParamInfo {
        name: "statistics",
        what: "units whose priority is remembered, 0 (all) to 10^9",
        default: "0",
    },
];

pub(super) const OPENCAS: &[ParamInfo] = &[
    ParamInfo {
        name: "insertion",
        what: "accesses until a unit gets a copy, 1 (always) to 63",
        default: "3",
    },
    ParamInfo {
        name: "trigger",
        what: "per cent of the cache in use above which insertion applies, 0 to 100",
        default: "80",
    },
    ParamInfo {
        name: "seq_cutoff",
        what: "bytes of a stream from which it bypasses a full cache, 0 (never) to 2^40",
        default: "1048576",
    },
    ParamInfo {
        name: "acp",
        what: "1: clean the addresses with the most dirty data all the time (acp); 0: clean stale copies when idle (alru)",
        default: "0",
    },
    ParamInfo {
        name: "wake_up",
        what: "seconds between alru's rounds, 1 to 3600",
        default: "20",
    },
    ParamInfo {
        name: "staleness",
        what: "seconds without access after which alru cleans a copy, 1 to 3600",
        default: "120",
    },
    ParamInfo {
        name: "activity",
        what: "seconds without any access after which alru starts, 0 to 3600",
        default: "10",
    },
    ParamInfo {
        name: "flush_max",
        what: "copies cleaned at a time, 1 to 10000",
        default: "100",
    },
];

pub(super) const PERIOD_5: &[ParamInfo] = &[ParamInfo {
    name: "period",
    what: "seconds between plans, 0.001 to 10^9",
    default: "5",
}];

pub(super) const PERIOD_80: &[ParamInfo] = &[ParamInfo {
    name: "period",
    what: "seconds between plans, 0.001 to 10^9",
    default: "80",
}];

pub(super) const PERIOD_DAY: &[ParamInfo] = &[ParamInfo {
    name: "period",
    what: "seconds between plans, 0.001 to 10^9",
    default: "86400",
}];

pub(super) const RAF: &[ParamInfo] = &[
    ParamInfo {
        name: "sequential",
        what: "bytes from which a single request counts as sequential, 512 to 2^31",
        default: "65536",
    },
    ParamInfo {
        name: "write_share",
        what: "share of the fast tier for writes, 0 to 1",
        default: "0.1",
    },
];

pub(super) const TYPE_AWARE: &[ParamInfo] = &[ParamInfo {
    name: "rule",
    what: "SELECTOR:POLICY:SHARE, up to 16 times; selectors class/N-M, bytes/FROM-TO, all; any preset, NAME/KEY=VALUE",
    default: "none",
}];

pub(super) const GREENDM: &[ParamInfo] = &[
    ParamInfo {
        name: "PT",
        what: "misses until promotion, 1 to 63",
        default: "1",
    },
    ParamInfo {
        name: "TW",
        what: "seconds between accesses that count together; working-set window",
        default: "60",
    },
    ParamInfo {
        name: "LT",
        what: "free fast slots below which demotion starts",
        default: "64 (fast slots / 16 when under 1024)",
    },
    ParamInfo {
        name: "HT",
        what: "free fast slots at which demotion stops",
        default: "128 (fast slots / 8 when under 1024)",
    },
    ParamInfo {
        name: "MCML",
        what: "moves under way at once, 1 to 256",
        default: "16",
    },
];

pub(super) const SMQ: &[ParamInfo] = &[ParamInfo {
    name: "dirty",
    what: "share of the fast slots that may be dirty before cleaning starts, 0 to 1",
    default: "0.1",
}];

pub(super) const W_TINYLFU: &[ParamInfo] = &[
    ParamInfo {
        name: "protected",
        what: "share of the main part that is protected, 0 to 1; read when the volume is opened",
        default: "0.8",
    },
    ParamInfo {
        name: "window",
        what: "share of the fast slots for new copies, 0.001 to 1; read when the volume is opened",
        default: "0.01",
    },
];
