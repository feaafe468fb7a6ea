//! The presets, by name. Adding a policy: its file, and one entry here.

use super::tables::{
    BCACHE, DSS, EDT, HYSTOR, OODT, OPENCAS, PERIOD_5, PERIOD_80, PERIOD_DAY, RAF, TYPE_AWARE,
};
use super::write_mode::{Moded, RANGE, WriteMode};
use super::{
    Arc, Azor, Bcache, Cache, Cold, ColdDst, Dss, Edt, Every, Fifo, GreenDm, Hold, HotDst, Hystor,
    Interval, Lfu, Linear, Lru, OpenCas, ParamError, Policy, Raf, Rules, S3Fifo, Sieve, Smq,
    TypeAware, WTinyLfu,
};
use crate::collector::{Frequency, Hro, InverseBitmap, Oodt, Recency, WsClock};
use crate::units::Nanos;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// A parameter, for `isotherm policies`.
#[derive(Clone, Copy, Debug)]
pub struct ParamInfo {
    /// Published name.
    pub name: &'static str,
    /// What it does, with unit and range.
    pub what: &'static str,
    /// Default, in words where it depends on the volume.
    pub default: &'static str,
}

/// A named policy.
pub struct Preset {
    /// Name in configuration.
    pub name: &'static str,
    /// One line.
    pub what: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// `tiering` (adds capacity) or `caching`.
    pub kind: &'static str,
    /// Parameters.
    pub params: &'static [ParamInfo],
    make: fn() -> Box<dyn Policy>,
}

const GREENDM: &[ParamInfo] = &[
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

/// Loris' plan every so many seconds.
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

/// HRO's plan once a day.
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

const SMQ: &[ParamInfo] = &[ParamInfo {
    name: "dirty",
    what: "share of the fast slots that may be dirty before cleaning starts, 0 to 1",
    default: "0.1",
}];

const W_TINYLFU: &[ParamInfo] = &[
    ParamInfo {
        name: "protected",
        what: "share of main that is protected, 0 to 1; read at opening",
        default: "0.8",
    },
    ParamInfo {
        name: "window",
        what: "share of the fast slots that takes newcomers, 0.001 to 1; read at opening",
        default: "0.01",
    },
];

/// All presets, by name.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "arc",
        what: "recency and frequency lists share the fast tier as ghosts of what each lost advise; write-back",
        source: "Megiddo and Modha, FAST '03",
        kind: "caching",
        params: &[],
        make: || Box::new(Cache::new("arc", Arc::default())),
    },
    Preset {
        name: "azor",
        what: "direct-mapped lines; metadata, then the higher access count, keeps the line",
        source: "reconstructed from OODT II-IV and Loris II-IV",
        kind: "caching",
        params: &[],
        make: || Box::new(Azor::default()),
    },
    Preset {
        name: "bcache-like",
        what: "LRU with sequential bypass; dirty data is steered to a share of the cache",
        source: "kernel documentation, admin-guide/bcache",
        kind: "caching",
        params: BCACHE,
        make: || Box::new(Bcache::default()),
    },
    Preset {
        name: "cache-interval",
        what: "every period the hottest get copies in place of the coldest; writes go to both",
        source: "Loris IV-C 2",
        kind: "caching",
        params: PERIOD_5,
        make: || loris_interval("cache-interval", Hold::Copy, 5),
    },
    Preset {
        name: "cache-ondemand",
        what: "a read miss worth more than the last evicted gets a copy; writes go to both",
        source: "Loris IV-C 1",
        kind: "caching",
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
        name: "cold-dst-dynamic",
        what: "first touch on fast, the coldest makes room; reads from slow promote",
        source: "Loris IV-B 2",
        kind: "tiering",
        params: &[],
        make: || cold_dst("cold-dst-dynamic", Cold::Dynamic),
    },
    Preset {
        name: "cold-dst-dynamic-bgclean",
        what: "cold-dst-dynamic with a cleaner that works ahead",
        source: "Loris IV-B 3",
        kind: "tiering",
        params: &[],
        make: || cold_dst("cold-dst-dynamic-bgclean", Cold::BackgroundClean),
    },
    Preset {
        name: "cold-dst-plain",
        what: "first touch on fast, the coldest makes room and never returns",
        source: "Loris IV-B 1",
        kind: "tiering",
        params: &[],
        make: || cold_dst("cold-dst-plain", Cold::Plain),
    },
    Preset {
        name: "dss-lru",
        what: "write-back LRU with a free list, a dirty list and a syncer between two watermarks",
        source: "DSS 4.4",
        kind: "caching",
        params: DSS,
        make: || Box::new(Dss::new(false)),
    },
    Preset {
        name: "dss-lru-s",
        what: "dss-lru by class priority: selective eviction and selective allocation",
        source: "DSS 4.4",
        kind: "caching",
        params: DSS,
        make: || Box::new(Dss::new(true)),
    },
    Preset {
        name: "edt",
        what: "every interval each extent goes to the tier where its share of rate, bandwidth and room costs least",
        source: "reconstructed from OODT II-IV and Loris II-IV",
        kind: "tiering",
        params: EDT,
        make: || Box::new(Edt::default()),
    },
    Preset {
        name: "fifo",
        what: "every miss gains a copy, the one fetched longest ago goes; write-back",
        source: "textbook",
        kind: "caching",
        params: &[],
        make: || Box::new(Cache::new("fifo", Fifo::default())),
    },
    Preset {
        name: "greendm",
        what: "first touch fills fast, promotion after PT misses within TW, WSClock demotion between LT and HT",
        source: "GreenDM 6.1.3",
        kind: "tiering",
        params: GREENDM,
        make: || Box::new(GreenDm::default()),
    },
    Preset {
        name: "greendm-cache",
        what: "greendm with copies: misses fetch, WSClock evicts between LT and HT, a bounded write-back queue",
        source: "GreenDM 8",
        kind: "caching",
        params: GREENDM,
        make: || Box::new(GreenDm::caching()),
    },
    Preset {
        name: "hot",
        what: "hro ranked by frequency only",
        source: "HRO IV, the baseline Hot",
        kind: "tiering",
        params: PERIOD_DAY,
        make: || hro("hot", Hro::by_frequency()),
    },
    Preset {
        name: "hot-dst-5s",
        what: "every period the hottest on slow change places with the coldest on fast",
        source: "Loris IV-A 2",
        kind: "tiering",
        params: PERIOD_5,
        make: || loris_interval("hot-dst-5s", Hold::Home, 5),
    },
    Preset {
        name: "hot-dst-80s",
        what: "every period the hottest on slow change places with the coldest on fast",
        source: "Loris IV-A 2",
        kind: "tiering",
        params: PERIOD_80,
        make: || loris_interval("hot-dst-80s", Hold::Home, 80),
    },
    Preset {
        name: "hot-dst-dynamic",
        what: "a read from slow promotes what is worth more than the last evicted; the coldest makes room",
        source: "Loris IV-A 1",
        kind: "tiering",
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
        what: "a read from a slower tier promotes; the least frequently used makes room (counts age)",
        source: "Loris III, on-demand hot-DST with an LFU collector",
        kind: "tiering",
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
        what: "a read from a slower tier promotes; the least recently used makes room",
        source: "Loris III, on-demand hot-DST with an LRU collector",
        kind: "tiering",
        params: &[],
        make: || Box::new(HotDst::new("hot-dst-recency", Box::new(Recency::default()))),
    },
    Preset {
        name: "hot-dst-wsclock",
        what: "a read from a slower tier promotes; GreenDM's clock finds who makes room",
        source: "Loris III with GreenDM's collector",
        kind: "tiering",
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
        what: "every period the largest f * R (frequency, randomness count) go to fast, greedily",
        source: "HRO III",
        kind: "tiering",
        params: PERIOD_DAY,
        make: || hro("hro", Hro::new()),
    },
    Preset {
        name: "hystor",
        what: "the highest inverse-bitmap counters of each window are copied, write misses have a share of their own",
        source: "reconstructed from OODT II-IV and Loris II-IV",
        kind: "caching",
        params: HYSTOR,
        make: || Box::new(Hystor::default()),
    },
    Preset {
        name: "lfu",
        what: "every miss gains a copy, the least frequently used goes; write-back",
        source: "textbook, in-cache counts without ageing",
        kind: "caching",
        params: &[],
        make: || Box::new(Cache::new("lfu", Lfu::default())),
    },
    Preset {
        name: "linear",
        what: "extent e in slot e of the concatenated tiers, for ever",
        source: "GreenDM 6.2.1 baseline",
        kind: "tiering",
        params: &[],
        make: || Box::new(Linear::new("linear")),
    },
    Preset {
        name: "lru",
        what: "every miss gains a copy, the least recently used goes; write-back",
        source: "textbook",
        kind: "caching",
        params: &[],
        make: || Box::new(Cache::new("lru", Lru::default())),
    },
    Preset {
        name: "mylinear",
        what: "linear with statistics",
        source: "GreenDM 6.2.1 baseline",
        kind: "tiering",
        params: &[],
        make: || Box::new(Linear::new("mylinear")),
    },
    Preset {
        name: "oodt",
        what: "every so many requests the highest inverse-size priorities go to fast",
        source: "OODT III",
        kind: "tiering",
        params: OODT,
        make: || oodt(),
    },
    Preset {
        name: "opencas-like",
        what: "LRU with n-hit promotion, sequential cutoff and alru or acp cleaning",
        source: "Open CAS administration guide",
        kind: "caching",
        params: OPENCAS,
        make: || Box::new(OpenCas::default()),
    },
    Preset {
        name: "raf",
        what: "random reads are copied at their second touch, random writes have a share of their own",
        source: "reconstructed from OODT II-IV and Loris II-IV",
        kind: "caching",
        params: RAF,
        make: || Box::new(Raf::default()),
    },
    Preset {
        name: "s3-fifo",
        what: "a small queue sifts newcomers, the main queue keeps what is used; write-back",
        source: "Yang et al., SOSP '23",
        kind: "caching",
        params: &[],
        make: || Box::new(Cache::new("s3-fifo", S3Fifo::default())),
    },
    Preset {
        name: "sieve",
        what: "one queue and a hand that takes the first unit not used since it last passed; write-back",
        source: "Zhang et al., NSDI '24",
        kind: "caching",
        params: &[],
        make: || Box::new(Cache::new("sieve", Sieve::default())),
    },
    Preset {
        name: "smq",
        what: "misses rise in a hotspot multiqueue until they are let in; clean goes before dirty; write-back",
        source: "description of the Linux kernel's dm-cache policy smq",
        kind: "caching",
        params: SMQ,
        make: || Box::new(Cache::new("smq", Smq::default())),
    },
    Preset {
        name: "type-aware",
        what: "rules send classes or address ranges to sub-policies that share the fast tier",
        source: "Loris V",
        kind: "caching",
        params: TYPE_AWARE,
        make: || Box::new(TypeAware::default()),
    },
    Preset {
        name: "w-tinylfu",
        what: "a small window, then a segmented LRU that lets in what was touched more often; write-back",
        source: "Einziger, Friedman and Manes, ACM TOS 2017",
        kind: "caching",
        params: W_TINYLFU,
        make: || Box::new(Cache::new("w-tinylfu", WTinyLfu::default())),
    },
];

/// Why a policy could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// No preset of that name; the nearest one.
    UnknownPolicy(String),
    /// A parameter is wrong.
    Param(String, ParamError),
}

/// A parameter's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamValue<'a> {
    /// A number.
    Number(f64),
    /// A name, as of a write mode, or a rule.
    Name(&'a str),
}

/// Build a preset with parameters that are numbers.
pub fn build<'a>(
    name: &str,
    params: impl Iterator<Item = (&'a str, f64)>,
) -> Result<Box<dyn Policy>, BuildError> {
    build_with(name, params.map(|(k, v)| (k, ParamValue::Number(v))))
}

/// Build a preset with parameters. Every caching preset also takes `write-mode`.
pub fn build_with<'a>(
    name: &str,
    params: impl Iterator<Item = (&'a str, ParamValue<'a>)>,
) -> Result<Box<dyn Policy>, BuildError> {
    let preset = PRESETS
        .iter()
        .find(|p| p.name == name)
        .ok_or_else(|| BuildError::UnknownPolicy(nearest(name, PRESETS.iter().map(|p| p.name))))?;
    let mut policy = (preset.make)();
    for (k, v) in params {
        let set = match v {
            _ if k == WRITE_MODE && preset.kind == "caching" => {
                let mode = match v {
                    ParamValue::Name(n) => WriteMode::parse(n),
                    ParamValue::Number(_) => Err(ParamError::Range(RANGE)),
                };
                match mode {
                    Ok(m) => {
                        policy = Box::new(Moded::new(policy, m));
                        Ok(())
                    }
                    Err(e) => Err(e),
                }
            }
            ParamValue::Number(n) => policy.set(k, n),
            ParamValue::Name(n) => policy.set_name(k, n),
        };
        set.map_err(|e| match e {
            // Policies know their own; there are those that all of a kind have.
            ParamError::Unknown(_) => {
                ParamError::Unknown(nearest(k, preset.parameters().map(|p| p.name)))
            }
            e => e,
        })
        .map_err(|e| BuildError::Param(String::from(k), e))?;
    }
    Ok(policy)
}

/// The parameter that every caching preset has.
const WRITE_MODE: &str = "write-mode";
const WRITE_MODE_INFO: ParamInfo = ParamInfo {
    name: WRITE_MODE,
    what: RANGE,
    default: "as published",
};

impl Preset {
    /// Its parameters, with those that all of its kind have.
    pub fn parameters(&self) -> impl Iterator<Item = &ParamInfo> {
        let common = (self.kind == "caching").then_some(&WRITE_MODE_INFO);
        self.params.iter().chain(common)
    }
}

/// The valid name with the smallest edit distance to `name`, letters compared without case.
pub fn nearest<'a>(name: &str, valid: impl Iterator<Item = &'a str>) -> String {
    valid
        .min_by_key(|v| distance(name, v))
        .map(String::from)
        .unwrap_or_default()
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<u8> = b.bytes().map(|c| c.to_ascii_lowercase()).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x.to_ascii_lowercase() != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::super::Uses;
    use super::*;

    #[test]
    fn names_are_sorted_and_buildable() {
        assert!(PRESETS.windows(2).all(|w| w[0].name < w[1].name));
        for p in PRESETS {
            assert_eq!(
                build(p.name, core::iter::empty()).map(|b| b.name()),
                Ok(p.name)
            );
        }
    }

    #[test]
    fn kinds_say_what_policies_make_of_the_faster_tiers() {
        for p in PRESETS {
            let policy = build(p.name, core::iter::empty()).unwrap();
            let kind = match policy.uses() {
                Uses::Homes => "tiering",
                // With both, the slow tier must hold everything, as for caching.
                Uses::Copies | Uses::Both => "caching",
            };
            assert_eq!(kind, p.kind, "{}", p.name);
        }
    }

    #[test]
    fn listed_parameters_are_those_there_are() {
        for p in PRESETS {
            let policy = (p.make)();
            let (numbers, names) = (policy.params(), policy.names());
            for q in p.params {
                let named = names.iter().any(|x| x.0 == q.name);
                let known = numbers.iter().any(|x| x.0 == q.name) || named || q.name == "rule";
                assert!(known, "{} lists {}", p.name, q.name);
            }
            for (key, value) in &numbers {
                let listed = p.params.iter().any(|q| q.name == *key);
                assert!(listed, "{} does not list {key}", p.name);
                let built = build(p.name, core::iter::once((*key, *value)));
                assert!(built.is_ok(), "{} refuses its own {key}={value}", p.name);
            }
            for (key, value) in &names {
                let listed = p.params.iter().any(|q| q.name == *key);
                assert!(listed, "{} does not list {key}", p.name);
                let named = |v| build_with(p.name, core::iter::once((*key, ParamValue::Name(v))));
                assert!(named(value).is_ok(), "{} refuses {key}={value}", p.name);
                assert!(named("no such").is_err(), "{} takes any {key}", p.name);
            }
            let modes = p.parameters().filter(|q| q.name == WRITE_MODE).count();
            assert_eq!(modes == 1, p.kind == "caching", "{}", p.name);
        }
    }

    #[test]
    fn wrong_names_get_the_nearest() {
        assert_eq!(nearest("grendm", PRESETS.iter().map(|p| p.name)), "greendm");
        assert!(
            matches!(build_with("lru", [("write-mod", ParamValue::Name("write-back"))].into_iter()), Err(BuildError::Param(_, ParamError::Unknown(n))) if n == WRITE_MODE)
        );
        assert!(
            matches!(build_with("lru", [(WRITE_MODE, ParamValue::Name("write-arund"))].into_iter()), Err(BuildError::Param(_, ParamError::Value(_, n))) if n == "write-around")
        );
        assert!(
            matches!(build("greendm", [("PTT", 1.0)].into_iter()), Err(BuildError::Param(_, ParamError::Unknown(n))) if n == "PT")
        );
        assert!(matches!(
            build("greendm", [("PT", 0.0)].into_iter()),
            Err(BuildError::Param(_, ParamError::Range(_)))
        ));
        assert!(
            build(
                "greendm",
                [("LT", 8.0), ("HT", 16.0), ("MCML", 4.0), ("TW", 30.0)].into_iter()
            )
            .is_ok()
        );
    }
}
