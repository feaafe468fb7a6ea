//! The presets, by name. Adding a policy: its file, and one entry here.

use super::{Cache, GreenDm, HotDst, Linear, Lru, ParamError, Policy};
use crate::collector::{Frequency, Recency, WsClock};
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

/// All presets, by name.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "greendm",
        what: "first touch fills fast, promotion after PT misses within TW, WSClock demotion between LT and HT",
        source: "GreenDM 6.1.3",
        kind: "tiering",
        params: GREENDM,
        make: || Box::new(GreenDm::default()),
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
];

/// Why a policy could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// No preset of that name; the nearest one.
    UnknownPolicy(String),
    /// A parameter is wrong.
    Param(String, ParamError),
}

/// Build a preset with parameters.
pub fn build<'a>(
    name: &str,
    params: impl Iterator<Item = (&'a str, f64)>,
) -> Result<Box<dyn Policy>, BuildError> {
    let preset = PRESETS
        .iter()
        .find(|p| p.name == name)
        .ok_or_else(|| BuildError::UnknownPolicy(nearest(name, PRESETS.iter().map(|p| p.name))))?;
    let mut policy = (preset.make)();
    for (k, v) in params {
        policy
            .set(k, v)
            .map_err(|e| BuildError::Param(String::from(k), e))?;
    }
    Ok(policy)
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
    use super::*;

    #[test]
    fn names_are_sorted_and_buildable() {
        assert!(PRESETS.windows(2).all(|w| w[0].name < w[1].name));
        for p in PRESETS {
            assert_eq!(
                build(p.name, core::iter::empty()).map(|b| b.name()),
                Ok(p.name)
            );
            let uses = build(p.name, core::iter::empty()).map(|b| b.uses());
            let caching = p.kind == "caching";
            assert_eq!(
                uses == Ok(crate::policy::Uses::Copies),
                caching,
                "{}",
                p.name
            );
        }
    }

    #[test]
    fn wrong_names_get_the_nearest() {
        assert_eq!(nearest("grendm", PRESETS.iter().map(|p| p.name)), "greendm");
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
