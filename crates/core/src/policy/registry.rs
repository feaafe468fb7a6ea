//! The presets, by name. Adding a policy: its file, and one entry here.

use super::tables::{
    BCACHE, BENEFIT, DSS, DSS_S, EDT, GREENDM, HYSTOR, OODT, OPENCAS, PERIOD_5, PERIOD_80,
    PERIOD_DAY, ParamInfo, RAF, SMQ, TYPE_AWARE, W_TINYLFU,
};
use super::write_mode::RANGE;
use super::{
    Arc, Azor, Bcache, Benefit, Cache, Clock, Cold, ColdDst, Dss, Edt, Every, Fifo, GreenDm, Hold,
    HotDst, Hystor, Interval, Lfu, Linear, Lirs, Lru, Lru2, OpenCas, Policy, Raf, Rules, S3Fifo,
    Sieve, Smq, TwoQ, TypeAware, Uses, WTinyLfu,
};
use crate::collector::{Frequency, Hro, InverseBitmap, Oodt, Recency, WsClock};
use crate::units::Nanos;
use alloc::boxed::Box;

/// The default preset for two tiers. Of all presets, it was in the fewest cases slower than the disk alone (`docs/policies-compared.md`).
pub const DEFAULT: &str = "benefit";

/// The default preset for other numbers of tiers: a cache needs two tiers, and leaves those in the middle empty. Of the tiering presets this
/// one has the least mean latency over three tiers (`bench/policies/tiers.py`).
pub const DEFAULT_TIERS: &str = "hot-dst-5s";

/// A named policy.
pub struct Preset {
    /// Name in configuration.
    pub name: &'static str,
    /// Description of one line.
    pub what: &'static str,
    /// Publication.
    pub source: &'static str,
    /// Parameters.
    pub params: &'static [ParamInfo],
    pub(super) make: fn() -> Box<dyn Policy>,
}

/// A Loris preset that plans at a fixed interval in seconds.
fn loris_interval(name: &'static str, hold: Hold, seconds: u64) -> Box<dyn Policy> {
    Box::new(Interval::new(
        name,
        Box::new(InverseBitmap::for_plans()),
        Rules {
            hold,
            every: Every::Time(Nanos::from_secs(seconds)),
            every_name: "period",
            admission: true,
            sieve: true,
            matrix: false,
            neighbours: false,
        },
    ))
}

/// An HRO preset, which plans once a day.
fn hro(name: &'static str, collector: Hro) -> Box<dyn Policy> {
    Box::new(Interval::new(
        name,
        Box::new(collector),
        Rules {
            hold: Hold::Home,
            every: Every::Time(Nanos::from_secs(86_400)),
            every_name: "period",
            admission: false,
            sieve: false,
            matrix: false,
            neighbours: false,
        },
    ))
}

fn oodt() -> Box<dyn Policy> {
    Box::new(Interval::new(
        "oodt",
        Box::new(Oodt::default()),
        Rules {
            hold: Hold::Home,
            every: Every::Requests(10_000),
            every_name: "migrate_every",
            admission: false,
            sieve: false,
            matrix: true,
            neighbours: true,
        },
    ))
}

fn cold_dst(name: &'static str, kind: Cold) -> Box<dyn Policy> {
    Box::new(ColdDst::new(name, Box::new(InverseBitmap::default()), kind))
}

/// All presets, by name.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "arc",
        what: "a recency list and a frequency list divide the fast tier; hits on recently evicted addresses move the division; write-back",
        source: "Megiddo and Modha, FAST '03",
        params: &[],
        make: || Box::new(Cache::new("arc", Arc::default())),
    },
    Preset {
        name: "azor",
        what: "a direct-mapped cache; on a conflict metadata stays, otherwise the unit with the higher access count",
        source: "reconstructed from OODT II-IV and Loris II-IV",
        params: &[],
        make: || Box::new(Azor::default()),
    },
    Preset {
        name: "bcache-like",
        what: "LRU with sequential bypass; a controller keeps dirty data at a share of the cache",
        source: "kernel documentation, admin-guide/bcache",
        params: BCACHE,
        make: || Box::new(Bcache::default()),
    },
    Preset {
        name: "benefit",
        what: "copies of what saves most of the slow device's time; cleans while that is idle; bypasses streams",
        source: "Isotherm",
        params: BENEFIT,
        make: || Box::new(Benefit::default()),
    },
    Preset {
        name: "cache-interval",
        what: "every period the hottest units get copies, which replace the coldest; writes go to both tiers",
        source: "Loris IV-C 2",
        params: PERIOD_5,
        make: || loris_interval("cache-interval", Hold::Copy, 5),
    },
    Preset {
        name: "cache-ondemand",
        what: "a unit that a read misses gets a copy if its value exceeds that of the last evicted; writes go to both tiers",
        source: "Loris IV-C 1",
        params: &[],
        make: || {
            Box::new(HotDst::holding(
                "cache-ondemand",
                Box::new(InverseBitmap::default()),
                Hold::Copy,
            ))
        },
    },
    Preset {
        name: "clock",
        what: "a queue in which a unit that was used gets a second round; write-back",
        source: "Corbató, 1968",
        params: &[],
        make: || Box::new(Cache::new("clock", Clock::default())),
    },
    Preset {
        name: "cold-dst-dynamic",
        what: "a unit starts on the fast tier, the coldest is demoted; a read from the slow tier promotes",
        source: "Loris IV-B 2",
        params: &[],
        make: || cold_dst("cold-dst-dynamic", Cold::Dynamic),
    },
    Preset {
        name: "cold-dst-dynamic-bgclean",
        what: "cold-dst-dynamic with a cleaner that demotes in advance",
        source: "Loris IV-B 3",
        params: &[],
        make: || cold_dst("cold-dst-dynamic-bgclean", Cold::BackgroundClean),
    },
    Preset {
        name: "cold-dst-plain",
        what: "a unit starts on the fast tier, the coldest is demoted and never promoted",
        source: "Loris IV-B 1",
        params: &[],
        make: || cold_dst("cold-dst-plain", Cold::Plain),
    },
    Preset {
        name: "dss-lru",
        what: "write-back LRU with a free list, a dirty list and a syncer between two watermarks",
        source: "DSS 4.4",
        params: DSS,
        make: || Box::new(Dss::new(false)),
    },
    Preset {
        name: "dss-lru-s",
        what: "dss-lru by class priority: selective eviction and selective allocation",
        source: "DSS 4.4",
        params: DSS_S,
        make: || Box::new(Dss::new(true)),
    },
    Preset {
        name: "edt",
        what: "every interval each extent goes to the tier where its share of rate, bandwidth and space costs least",
        source: "reconstructed from OODT II-IV and Loris II-IV",
        params: EDT,
        make: || Box::new(Edt::default()),
    },
    Preset {
        name: "fifo",
        what: "every miss makes a copy and evicts the one made longest ago; write-back",
        source: "textbook",
        params: &[],
        make: || Box::new(Cache::new("fifo", Fifo::default())),
    },
    Preset {
        name: "greendm",
        what: "units start on the fast tier until it is full; PT misses within TW promote; WSClock demotes between LT and HT",
        source: "GreenDM 6.1.3",
        params: GREENDM,
        make: || Box::new(GreenDm::default()),
    },
    Preset {
        name: "greendm-cache",
        what: "greendm with copies: a miss makes a copy, WSClock evicts between LT and HT, the write-back queue is bounded",
        source: "GreenDM 8",
        params: GREENDM,
        make: || Box::new(GreenDm::caching()),
    },
    Preset {
        name: "hot",
        what: "hro ranked by frequency only",
        source: "HRO IV, the baseline Hot",
        params: PERIOD_DAY,
        make: || hro("hot", Hro::by_frequency()),
    },
    Preset {
        name: "hot-dst-5s",
        what: "every period the hottest units of the slow tier change places with the coldest of the fast tier",
        source: "Loris IV-A 2",
        params: PERIOD_5,
        make: || loris_interval("hot-dst-5s", Hold::Home, 5),
    },
    Preset {
        name: "hot-dst-80s",
        what: "every period the hottest units of the slow tier change places with the coldest of the fast tier",
        source: "Loris IV-A 2",
        params: PERIOD_80,
        make: || loris_interval("hot-dst-80s", Hold::Home, 80),
    },
    Preset {
        name: "hot-dst-dynamic",
        what: "a read from the slow tier promotes a unit hotter than the last evicted; the coldest is demoted",
        source: "Loris IV-A 1",
        params: &[],
        make: || {
            Box::new(HotDst::new(
                "hot-dst-dynamic",
                Box::new(InverseBitmap::default()),
            ))
        },
    },
    Preset {
        name: "hot-dst-frequency",
        what: "a read from a slower tier promotes; the least frequently used unit is demoted (counts age)",
        source: "Loris III, on-demand hot-DST with an LFU collector",
        params: &[],
        make: || {
            Box::new(HotDst::new(
                "hot-dst-frequency",
                Box::new(Frequency::default()),
            ))
        },
    },
    Preset {
        name: "hot-dst-recency",
        what: "a read from a slower tier promotes; the least recently used unit is demoted",
        source: "Loris III, on-demand hot-DST with an LRU collector",
        params: &[],
        make: || Box::new(HotDst::new("hot-dst-recency", Box::new(Recency::default()))),
    },
    Preset {
        name: "hot-dst-wsclock",
        what: "a read from a slower tier promotes; GreenDM's WSClock selects the unit to demote",
        source: "Loris III with GreenDM's collector",
        params: &[],
        make: || {
            Box::new(HotDst::new(
                "hot-dst-wsclock",
                Box::new(WsClock::new(Nanos::from_secs(60))),
            ))
        },
    },
    Preset {
        name: "hro",
        what: "every period the units with the largest f * R (frequency times randomness count) go to the fast tier",
        source: "HRO III",
        params: PERIOD_DAY,
        make: || hro("hro", Hro::new()),
    },
    Preset {
        name: "hystor",
        what: "every window the units with the highest inverse-bitmap counters are copied; write misses have a separate share",
        source: "reconstructed from OODT II-IV and Loris II-IV",
        params: HYSTOR,
        make: || Box::new(Hystor::default()),
    },
    Preset {
        name: "lfu",
        what: "every miss makes a copy and evicts the least frequently used; write-back",
        source: "textbook, in-cache counts without ageing",
        params: &[],
        make: || Box::new(Cache::new("lfu", Lfu::default())),
    },
    Preset {
        name: "linear",
        what: "extent e stays in slot e of the concatenated tiers",
        source: "GreenDM 6.2.1 baseline",
        params: &[],
        make: || Box::new(Linear::new("linear")),
    },
    Preset {
        name: "lirs",
        what: "keeps the units with the shortest distance between two accesses; write-back",
        source: "Jiang and Zhang, SIGMETRICS '02",
        params: &[],
        make: || Box::new(Cache::new("lirs", Lirs::default())),
    },
    Preset {
        name: "lru",
        what: "every miss makes a copy and evicts the least recently used; write-back",
        source: "textbook",
        params: &[],
        make: || Box::new(Cache::new("lru", Lru::default())),
    },
    Preset {
        name: "lru-2",
        what: "evicts the unit whose last access but one is the oldest; write-back",
        source: "O'Neil, O'Neil and Weikum, SIGMOD '93",
        params: &[],
        make: || Box::new(Cache::new("lru-2", Lru2::default())),
    },
    Preset {
        name: "mylinear",
        what: "linear with statistics",
        source: "GreenDM 6.2.1 baseline",
        params: &[],
        make: || Box::new(Linear::new("mylinear")),
    },
    Preset {
        name: "oodt",
        what: "every migrate_every requests the units with the highest inverse-size priorities go to the fast tier",
        source: "OODT III",
        params: OODT,
        make: || oodt(),
    },
    Preset {
        name: "opencas-like",
        what: "LRU with n-hit promotion, sequential cutoff and alru or acp cleaning",
        source: "Open CAS administration guide",
        params: OPENCAS,
        make: || Box::new(OpenCas::default()),
    },
    Preset {
        name: "raf",
        what: "a unit is copied at its second random read; random writes have a separate share",
        source: "reconstructed from OODT II-IV and Loris II-IV",
        params: RAF,
        make: || Box::new(Raf::default()),
    },
    Preset {
        name: "s3-fifo",
        what: "new copies enter a small queue, and those that are used move to the main queue; write-back",
        source: "Yang et al., SOSP '23",
        params: &[],
        make: || Box::new(Cache::new("s3-fifo", S3Fifo::default())),
    },
    Preset {
        name: "sieve",
        what: "one queue, in which a hand evicts the first unit not used since it last passed; write-back",
        source: "Zhang et al., NSDI '24",
        params: &[],
        make: || Box::new(Cache::new("sieve", Sieve::default())),
    },
    Preset {
        name: "smq",
        what: "a hotspot multiqueue admits frequently missed units; clean copies are evicted before dirty ones; write-back",
        source: "description of the Linux kernel's dm-cache policy smq",
        params: SMQ,
        make: || Box::new(Cache::new("smq", Smq::default())),
    },
    Preset {
        name: "two-q",
        what: "new copies enter a queue, and those that are missed soon after it an LRU list; write-back",
        source: "Johnson and Shasha, VLDB '94",
        params: &[],
        make: || Box::new(Cache::new("two-q", TwoQ::default())),
    },
    Preset {
        name: "type-aware",
        what: "rules send classes or address ranges to sub-policies that share the fast tier",
        source: "Loris V",
        params: TYPE_AWARE,
        make: || Box::new(TypeAware::default()),
    },
    Preset {
        name: "w-tinylfu",
        what: "a small window, then a segmented LRU that admits a unit only if it was used more often than the victim; write-back",
        source: "Einziger, Friedman and Manes, ACM TOS 2017",
        params: W_TINYLFU,
        make: || Box::new(Cache::new("w-tinylfu", WTinyLfu::default())),
    },
];

/// The parameter that every preset around a [`Cache`] has.
pub(super) const METADATA_SHARE: &str = "metadata_share";
const METADATA_SHARE_INFO: ParamInfo = ParamInfo {
    name: METADATA_SHARE,
    what: "per cent of fast slots in which copies with file-system metadata are not evicted, 0 to 90",
    default: "0",
};

/// The parameter that every caching preset has.
pub(super) const WRITE_MODE: &str = "write-mode";
const WRITE_MODE_INFO: ParamInfo = ParamInfo {
    name: WRITE_MODE,
    what: RANGE,
    default: "as published",
};

impl Preset {
    /// How it uses the faster tiers, unless a parameter changes it. Only a preset that keeps nothing but copies makes a cache volume.
    pub fn uses(&self) -> Uses {
        (self.make)().uses()
    }
    /// `tiering` (adds capacity) or `caching`: as the policy itself says. With homes and copies on the faster tiers
    /// (`type-aware`), the slowest tier must hold everything, as for caching.
    pub fn kind(&self) -> &'static str {
        self.uses().kind()
    }
    /// Whether it keeps copies.
    pub fn is_caching(&self) -> bool {
        self.uses() != Uses::Homes
    }
    /// Its parameters, including those that it shares with other caching presets.
    pub fn parameters(&self) -> impl Iterator<Item = &ParamInfo> {
        let keeps = (self.make)().set(METADATA_SHARE, 0.0).is_ok();
        let metadata = keeps.then_some(&METADATA_SHARE_INFO);
        let mode = self.is_caching().then_some(&WRITE_MODE_INFO);
        self.params.iter().chain(metadata).chain(mode)
    }
}
