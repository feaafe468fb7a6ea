//! The policy's state: the core's null engine with files as units.
//!
//! Every file on a tier other than the slowest is a unit. Of the files on the slowest tier, only those that were used are units, so an
//! unused file costs nothing here. When all units are in use, a unit on the slowest tier that was not used for long is dropped.

use crate::catalogue::{Catalogue, NodeId};
use crate::disk::Root;
use crate::path_key::PathKey;
use crate::rules::is_below;
use crate::settings::Refused;
use crate::tree::Tier;
use isotherm_core::null::NullEngine;
use isotherm_core::policy::Policy;
use isotherm_core::volume::{Space, UnitId};
use isotherm_core::{Nanos, TierId};
use isotherm_words::policy_spec::PolicySpec;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// Where the fastest tier has pins and policies.
const FILE: &[u8] = b".isotherm/settings.json";
/// Maximum number of grains over all tiers. A grain is a slot of the core's space, and takes a few bytes.
const GRAINS_MAX: u64 = 1 << 22;
/// Minimum number of units in addition to those that are on fast tiers at mount.
const UNITS_MIN: u32 = 1 << 16;
/// Number of units that are compared to find one to drop.
const FORGET_SAMPLE: u32 = 64;
/// The first class for directories with a policy of their own.
const DIR_CLASS: u8 = 40;
/// Maximum number of directories with a policy of their own: one rule is reserved for all other files.
pub const DIRS_MAX: usize = 15;

/// State that is kept from one mount to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlacementSettings {
    /// Paths, and the tier of everything below each.
    pub pins: BTreeMap<PathKey, Tier>,
    /// Directories, with the preset for everything below, and its share of the fastest tier in per cent.
    pub policies: BTreeMap<PathKey, (String, u8)>,
    /// Ids of the disks of the slowest tier that get no files and lose those that they have; whether nothing is left on each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub drains: BTreeMap<String, bool>,
    /// How full the disks of the slowest tier may be at most, in per cent, while files move to make them even.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<u8>,
}

/// The policy and its state.
pub struct PolicyState {
    pub(crate) engine: NullEngine<Box<dyn Policy>>,
    /// How far the engine's time is ahead of the clock, in nanoseconds: [`crate::placement::Placement::plan_now`] advances the engine to
    /// its next plan.
    pub(crate) ahead: u64,
    units: Units,
    /// Seconds since 1970 of the last access, by node.
    pub(crate) last: HashMap<NodeId, i64>,
    /// When a file whose move did not happen may be tried again, by node.
    pub(crate) retry_at: HashMap<NodeId, Instant>,
    /// Pins and policies of directories.
    pub settings: PlacementSettings,
    /// The policy of all files that have no policy of a directory.
    pub(crate) main: String,
    /// The space of each tier that the policy may fill, in bytes.
    pub(crate) tier_bytes: Vec<u64>,
    /// The engine's number of decisions at the last search for wanted moves; `u64::MAX` if the search must be repeated.
    pub(crate) decisions_seen: u64,
}

/// The mapping between files and units.
#[derive(Debug, Default)]
struct Units {
    of: HashMap<NodeId, u32>,
    /// File of each unit.
    node: Vec<Option<NodeId>>,
    free: Vec<u32>,
    /// Maximum number of units.
    max: u32,
    /// The unit at which the next search for a cold file begins.
    hand: u32,
}

/// The class of data of a file of that size (DSS, Table 3).
pub fn class_of_size(bytes: u64) -> u8 {
    // The bounds are 4 KiB, 16 KiB, and so on up to 1 GiB.
    8 + (0..10).filter(|i| bytes > 4096 << (2 * i)).count() as u8
}

pub(crate) fn policy(text: &str) -> Result<Box<dyn Policy>, Refused> {
    let built = PolicySpec::split(text).and_then(|spec| spec.build());
    built.map_err(Refused)
}

impl PlacementSettings {
    /// Those that the fastest tier has.
    pub(crate) fn load(root: &Root) -> Result<PlacementSettings, Refused> {
        let shown = format!("{}/.isotherm/settings.json", root.path.display());
        let text = root.read_whole(FILE);
        let text = text.map_err(|e| Refused(format!("{shown}: cannot read: {e}")))?;
        let Some(text) = text else {
            return Ok(PlacementSettings::default());
        };
        serde_json::from_slice(&text).map_err(|e| {
            Refused(format!(
                "{shown}: {e}: mend it, or remove it (pins and policies of directories are lost then)"
            ))
        })
    }
    /// The text of the policy, including the policies of directories.
    fn composed(&self, main: &str) -> String {
        if self.policies.is_empty() {
            return main.to_owned();
        }
        let mut text = String::from("type-aware");
        let mut left = 100u8;
        for (i, (preset, share)) in self.policies.values().enumerate() {
            let class = usize::from(DIR_CLASS) + i;
            let preset = preset.replace(',', "/");
            text = format!("{text},rule=class/{class}-{class}:{preset}:{share}");
            left = left.saturating_sub(*share);
        }
        text + &format!(",rule=all:{}:{left}", main.replace(',', "/"))
    }
    /// The class of the nearest directory above that has a policy of its own. If there is none, the class follows from the size.
    pub(crate) fn class(&self, path: &[u8], size: u64) -> u8 {
        let below = self.policies.keys().enumerate();
        let below = below.filter(|(_, dir)| is_below(path, &dir.0));
        let nearest = below.max_by_key(|(_, dir)| dir.0.len());
        nearest.map_or_else(|| class_of_size(size), |(i, _)| DIR_CLASS + i as u8)
    }
    /// Whether the path, or one below it, has a pin or a policy.
    pub(crate) fn has_below(&self, path: &[u8]) -> bool {
        let mut all = self.pins.keys().chain(self.policies.keys());
        all.any(|p| is_below(&p.0, path))
    }
    /// The tier of the nearest pinned path above.
    pub fn pin(&self, path: &[u8]) -> Option<Tier> {
        let above = self.pins.iter().filter(|(p, _)| is_below(path, &p.0));
        above.max_by_key(|(p, _)| p.0.len()).map(|(_, t)| *t)
    }
}

impl PolicyState {
    pub(crate) fn new(
        main: &str,
        settings: PlacementSettings,
        tier_bytes: Vec<u64>,
        cat: &Catalogue,
    ) -> Result<PolicyState, Refused> {
        let total: u64 = tier_bytes.iter().sum();
        let mut grain = 12;
        while grain < 22 && total >> grain > GRAINS_MAX {
            grain += 1;
        }
        let grains = tier_bytes.iter().map(|b| (b >> grain).max(1)).sum::<u64>();
        let last = tier_bytes.len() as Tier - 1;
        let above = cat.all().filter(|n| n.1.is_file() && n.1.tier < last);
        let units = (above.count() as u64 * 2).next_power_of_two();
        let units = units.max(UNITS_MIN.into()).min(grains).min(1 << 24) as u32;
        let bytes: Vec<u64> = tier_bytes.iter().map(|b| (*b).max(1 << grain)).collect();
        let space = Space::of_units(&bytes, grain, units).map_err(|e| Refused(e.to_owned()))?;
        let policy = policy(&settings.composed(main))?;
        let mut policy = PolicyState {
            engine: NullEngine::over(space, policy),
            ahead: 0,
            units: Units {
                max: units,
                ..Units::default()
            },
            last: HashMap::new(),
            retry_at: HashMap::new(),
            settings,
            main: main.to_owned(),
            tier_bytes,
            decisions_seen: 0,
        };
        for (node, n) in cat.all().filter(|n| n.1.is_file() && n.1.tier < last) {
            let path = cat.path(node).unwrap_or_default();
            policy.set_tier(Nanos(0), node, n.tier, n.facts.size, &path);
        }
        Ok(policy)
    }
    /// The unit of a file, if it has one.
    pub(crate) fn unit(&self, node: NodeId) -> Option<UnitId> {
        let unit = UnitId(*self.units.of.get(&node)?);
        self.engine.home(unit).map(|_| unit)
    }
    /// The files that are units.
    pub(crate) fn files(&self) -> impl Iterator<Item = NodeId> {
        self.units.node.iter().flatten().copied()
    }
    /// The unit of a file: its present one, a free one, or the one of a file that was not used for long.
    fn unit_for(&mut self, now: Nanos, node: NodeId) -> Option<UnitId> {
        if let Some(unit) = self.units.of.get(&node) {
            return Some(UnitId(*unit));
        }
        let next = self.units.node.len() as u32;
        let unit = match self.units.free.pop() {
            Some(unit) => unit,
            None if next < self.units.max => {
                self.units.node.push(None);
                next
            }
            None => {
                let coldest = self.coldest()?;
                self.forget(now, coldest);
                self.units.free.pop()?
            }
        };
        self.units.of.insert(node, unit);
        self.units.node[unit as usize] = Some(node);
        Some(UnitId(unit))
    }
    /// Of a sample of files on the slowest tier, the one that was used the longest time ago.
    fn coldest(&mut self) -> Option<NodeId> {
        let (from, all) = (self.units.hand, self.units.node.len() as u32);
        self.units.hand = (from + FORGET_SAMPLE) % all.max(1);
        let slowest = self.tier_bytes.len() as Tier - 1;
        let some = (0..FORGET_SAMPLE.min(all))
            .filter_map(|i| self.units.node[((from + i) % all) as usize]);
        some.filter(|n| self.wanted_tier(*n) == Some(slowest))
            .min_by_key(|n| self.last.get(n))
    }
    /// Whether a move of the file failed a short time ago.
    pub(crate) fn rests(&self, node: NodeId, now: Instant) -> bool {
        self.retry_at.get(&node).is_some_and(|until| *until > now)
    }
    /// Drops the unit of a file that was deleted, or that the policy need not know any more.
    pub(crate) fn forget(&mut self, now: Nanos, node: NodeId) {
        self.last.remove(&node);
        self.retry_at.remove(&node);
        if let Some(unit) = self.units.of.remove(&node) {
            if self.engine.home(UnitId(unit)).is_some() {
                self.engine.discard(now, UnitId(unit));
            }
            self.units.node[unit as usize] = None;
            self.units.free.push(unit);
        }
    }
    /// Tells the policy that a file of that size is on that disk. All from the first one of the slowest tier on belong to that tier.
    pub(crate) fn set_tier(
        &mut self,
        now: Nanos,
        node: NodeId,
        tier: Tier,
        size: u64,
        path: &[u8],
    ) {
        let Some(unit) = self.unit_for(now, node) else {
            return;
        };
        if self.engine.space().bytes_of(unit) != size && !self.engine.resize(now, unit, size) {
            return;
        }
        let slowest = self.tier_bytes.len() as Tier - 1;
        self.engine.settle_at(now, unit, TierId(tier.min(slowest)));
        let class = self.settings.class(path, size);
        self.engine.reclassify(now, unit, class);
    }
    /// The tier on which the policy wants the file.
    pub(crate) fn wanted_tier(&self, node: NodeId) -> Option<Tier> {
        let unit = self.unit(node)?;
        let slot = self.engine.copy(unit).or(self.engine.home(unit))?;
        Some(self.engine.space().geo.tier_of(slot).0)
    }
    /// Whether the policy wants the file as a copy on the fastest tier, with its home on another tier.
    pub(crate) fn is_copy(&self, node: NodeId) -> bool {
        let copy = self.unit(node).and_then(|u| self.engine.copy(u));
        copy.is_some_and(|s| self.engine.space().geo.tier_of(s) == TierId(0))
    }
    /// The policy's state of a file, in words.
    pub fn explain(&mut self, now: Nanos, node: NodeId) -> String {
        match self.unit(node) {
            Some(unit) => self.engine.explain(now, unit),
            None => {
                "the policy does not know it: it was not used for long, or its tier is full".into()
            }
        }
    }
    /// Memory of the policy and its space in bytes.
    pub fn bytes(&self) -> usize {
        self.engine.bytes()
    }
    /// The name of the preset, with its parameters.
    pub fn preset(&self) -> String {
        self.settings.composed(&self.main)
    }
    /// Time of the last access in seconds since 1970.
    pub fn last(&self, node: NodeId) -> Option<i64> {
        self.last.get(&node).copied()
    }
    /// Number of the engine's decisions so far that move or copy a file.
    pub(crate) fn decisions(&self) -> u64 {
        let c = self.engine.counters();
        c.promotions + c.demotions + c.fetches + c.evictions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_and_policies_are_the_nearest() {
        let mut r = PlacementSettings::default();
        r.pins.insert("a".into(), 1);
        r.pins.insert("a/b".into(), 0);
        assert_eq!(r.pin(b"a/b/c"), Some(0));
        assert_eq!(r.pin(b"a/bc"), Some(1));
        assert_eq!(r.pin(b"ab"), None);
        r.policies.insert("db".into(), ("hro".into(), 30));
        assert_eq!(r.class(b"db/x", 5), DIR_CLASS);
        assert_eq!(r.class(b"x", 5 << 20), 14);
        let composed = r.composed("benefit");
        assert_eq!(
            composed,
            "type-aware,rule=class/40-40:hro:30,rule=all:benefit:70"
        );
        assert!(policy(&composed).is_ok());
        assert!(policy("hrro").is_err_and(|e| e.0.contains("hro")));
    }

    /// In the model of a caching policy, a file on the fast tier is a copy, dirty once it was written. In words it is not.
    #[test]
    fn no_policy_calls_a_file_a_copy() {
        let cat = Catalogue::new(crate::tree::Facts::default(), 3);
        for preset in isotherm_core::policy::PRESETS {
            let sizes = vec![1 << 30, 1 << 34];
            let mut p =
                PolicyState::new(preset.name, PlacementSettings::default(), sizes, &cat).unwrap();
            for (node, tier) in [(1, 0), (2, 1)] {
                p.set_tier(Nanos(1), node, tier, 5000, b"f");
                let unit = p.unit(node).unwrap();
                for (n, write) in [(2, true), (3, false), (4, true)] {
                    let start = p.engine.space().start(unit);
                    p.engine.access(Nanos(n), unit, write, 9, (start, 4096));
                }
            }
            for node in [1, 2] {
                let words = p.explain(Nanos(5), node);
                for wrong in ["copy", "copies", "dirty"] {
                    let found = words
                        .split(|c: char| !c.is_alphabetic())
                        .any(|w| w == wrong);
                    assert!(!found, "{}: {words}", preset.name);
                }
            }
        }
    }

    #[test]
    fn sizes_have_the_classes_of_the_table() {
        let class = |b: u64| class_of_size(b);
        assert_eq!(
            [class(0), class(4096), class(4097), class(1 << 20)],
            [8, 8, 9, 12]
        );
        assert_eq!(
            [class((1 << 20) + 1), class(1 << 30), class(1 << 40)],
            [13, 17, 18]
        );
    }
}
