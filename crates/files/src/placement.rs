//! Who decides what lies where: the core's policies over files as units, pins, rules and watermarks.
//!
//! The policy runs in the core's null engine (`isotherm_core::null`) over a space with a unit for each file. Accesses go in, in batches;
//! where the engine then has a file that is elsewhere, a move is wanted. A move that does not happen is told to the engine, so that
//! the two never drift apart. Caching presets decide as they do, and a file is moved where they want a copy: it is always at
//! one place only.

use crate::catalogue::{Catalogue, NodeId};
use crate::disk::Root;
use crate::mover::Outcome;
use crate::moves::Moving;
use crate::rules::Rule;
use crate::store::{Refused, Settings, refuse};
use crate::tree::{Facts, Tier};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{BuildError, ParamError, ParamValue, Policy, build_with};
use isotherm_core::volume::{Space, UnitId};
use isotherm_core::{Nanos, TierId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The preset where none is named.
pub const DEFAULT: &str = "benefit";
/// Accesses that wait to be told; more are counted and forgotten.
const SEEN_MAX: usize = 1 << 16;
/// Grains over all tiers at most: seats of the core's space, some bytes each.
const GRAINS_MAX: u64 = 1 << 22;
const UNITS_MIN: u32 = 1 << 16;
/// The first class of directories with a policy of their own.
const DIR_CLASS: u8 = 40;
/// Directories with a policy of their own at most: one rule is for what is left.
pub const DIRS_MAX: usize = 15;
/// A file that could not be moved is left alone for so long.
const REST: Duration = Duration::from_secs(30);

/// An access.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    node: NodeId,
    write: bool,
    offset: u64,
    bytes: u32,
    when: Option<Instant>,
}

impl Seen {
    /// Of that file, just now.
    pub fn new(node: NodeId, write: bool, offset: u64, bytes: u32) -> Seen {
        Seen {
            node,
            write,
            offset,
            bytes,
            when: Some(Instant::now()),
        }
    }
}

/// What is remembered from one mount to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Remembered {
    /// Paths, and the tier that all below belong on.
    pub pins: BTreeMap<String, Tier>,
    /// Directories, the preset for all below, and its share of the fastest tier in per cent.
    pub policies: BTreeMap<String, (String, u8)>,
}

/// A move that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which file.
    pub node: NodeId,
    /// Where it is.
    pub from: Tier,
    /// Where it belongs.
    pub to: Tier,
    /// Who wants it.
    pub why: &'static str,
}

/// The policy and what it knows.
pub struct Brain {
    engine: NullEngine<Box<dyn Policy>>,
    /// Time of the engine ahead of the clock: plans that were asked for early.
    ahead: u64,
    units: u32,
    /// Seconds since 1970 of the last access, by node.
    last: HashMap<NodeId, i64>,
    resting: HashMap<NodeId, Instant>,
    /// Pins and policies of directories.
    pub remembered: Remembered,
    main: String,
    shape: Vec<u64>,
    grain: u32,
    stirred: u64,
}

/// See the module.
pub struct Placement {
    seen: Mutex<Vec<Seen>>,
    gone: Mutex<Vec<NodeId>>,
    /// The policy.
    pub brain: Mutex<Brain>,
    /// Rules, the first that matches counts.
    pub rules: Vec<Rule>,
    /// Files under way.
    pub moving: Moving,
    /// Accesses that nobody had time to hear.
    pub unheard: AtomicU64,
    /// Moves that were done, refused, failed.
    pub done: [AtomicU64; 3],
    /// Reads and writes that came to us.
    pub accesses: AtomicU64,
    /// Files move by themselves.
    pub moves: bool,
    /// All moves that are wanted are asked for, now.
    pub hurry: AtomicBool,
    /// No more.
    pub stop: AtomicBool,
    start: Instant,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds since 1970.
pub fn wall() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs() as i64)
}

/// What kind of data a file of that size is (DSS, Table 3).
pub fn class_of_size(bytes: u64) -> u8 {
    let bounds = [
        4u64 << 10,
        16 << 10,
        64 << 10,
        256 << 10,
        1 << 20,
        4 << 20,
        16 << 20,
        64 << 20,
        256 << 20,
        1 << 30,
    ];
    8 + bounds.iter().filter(|b| bytes > **b).count() as u8
}

fn policy(text: &str) -> Result<Box<dyn Policy>, Refused> {
    let mut words = text.split(',');
    let name = words.next().unwrap_or_default();
    let mut params = Vec::new();
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            return refuse(format!("policy {text}: {word}: a parameter is KEY=VALUE"));
        };
        let value = value
            .parse()
            .map_or(ParamValue::Name(value), ParamValue::Number);
        params.push((key, value));
    }
    build_with(name, params.into_iter()).map_err(|e| {
        Refused(match e {
            BuildError::UnknownPolicy(near) => {
                format!("no policy is called {name}: is it {near}? See `isotherm policies`")
            }
            BuildError::Param(key, ParamError::Unknown(near)) => {
                format!("policy {name} has no parameter {key}: is it {near}?")
            }
            BuildError::Param(key, ParamError::Range(range) | ParamError::Value(range, _)) => {
                format!("policy {name}: {key} must be {range}")
            }
        })
    })
}

/// Is `path` the directory (or file) `of`, or below it?
fn is_below(path: &[u8], of: &[u8]) -> bool {
    of == b"." || path == of || (path.starts_with(of) && path.get(of.len()) == Some(&b'/'))
}

impl Remembered {
    /// The policy in words, with those of directories.
    fn composed(&self, main: &str) -> String {
        if self.policies.is_empty() {
            return main.to_owned();
        }
        let mut text = String::from("type-aware");
        let mut left = 100u8;
        for (i, (preset, share)) in self.policies.values().enumerate() {
            let class = usize::from(DIR_CLASS) + i;
            let preset = preset.replace(',', "/");
            for word in [
                ",rule=class/",
                &class.to_string(),
                "-",
                &class.to_string(),
                ":",
                &preset,
                ":",
                &share.to_string(),
            ] {
                text += word;
            }
            left = left.saturating_sub(*share);
        }
        text + &format!(",rule=all:{}:{left}", main.replace(',', "/"))
    }
    /// The nearest directory above with a policy of its own, by its place.
    fn class(&self, path: &[u8], size: u64) -> u8 {
        let below = self.policies.keys().enumerate();
        let below = below.filter(|(_, dir)| is_below(path, dir.as_bytes()));
        let nearest = below.max_by_key(|(_, dir)| dir.len());
        nearest.map_or_else(|| class_of_size(size), |(i, _)| DIR_CLASS + i as u8)
    }
    /// Where all below the nearest pinned path belong.
    pub fn pin(&self, path: &[u8]) -> Option<Tier> {
        let above = self
            .pins
            .iter()
            .filter(|(p, _)| is_below(path, p.as_bytes()));
        above.max_by_key(|(p, _)| p.len()).map(|(_, t)| *t)
    }
}

impl Brain {
    fn new(
        main: &str,
        remembered: Remembered,
        shape: Vec<u64>,
        cat: &Catalogue,
    ) -> Result<Brain, Refused> {
        let total: u64 = shape.iter().sum();
        let mut grain = 12;
        while grain < 22 && total >> grain > GRAINS_MAX {
            grain += 1;
        }
        let grains = shape.iter().map(|b| (b >> grain).max(1)).sum::<u64>();
        let units = (cat.numbers() as u32 * 2)
            .next_power_of_two()
            .max(UNITS_MIN);
        let units = u64::from(units).min(grains).min(1 << 24) as u32;
        let bytes: Vec<u64> = shape.iter().map(|b| (*b).max(1 << grain)).collect();
        let space = Space::of_units(&bytes, grain, units).map_err(|e| Refused(e.to_owned()))?;
        let policy = policy(&remembered.composed(main))?;
        let mut brain = Brain {
            engine: NullEngine::over(space, policy),
            ahead: 0,
            units,
            last: HashMap::new(),
            resting: HashMap::new(),
            remembered,
            main: main.to_owned(),
            shape,
            grain,
            stirred: 0,
        };
        for (node, n) in cat.all().filter(|n| n.1.is_file()) {
            let path = cat.path(node).unwrap_or_default();
            brain.meet(Nanos(0), node, n.tier, n.facts.size, &path);
        }
        Ok(brain)
    }
    fn knows(&self, node: NodeId) -> bool {
        node < self.units && self.engine.home(UnitId(node)).is_some()
    }
    /// A file of that size is on that tier.
    fn meet(&mut self, now: Nanos, node: NodeId, tier: Tier, size: u64, path: &[u8]) {
        if node >= self.units {
            return;
        }
        let unit = UnitId(node);
        if self.engine.space().bytes_of(unit) != size && !self.engine.resize(now, unit, size) {
            return;
        }
        self.engine.settle_at(now, unit, TierId(tier));
        let class = self.remembered.class(path, size);
        self.engine.reclassify(now, unit, class);
    }
    /// Where the policy has it.
    fn belongs(&self, node: NodeId) -> Option<Tier> {
        if !self.knows(node) {
            return None;
        }
        let unit = UnitId(node);
        let seat = self.engine.copy(unit).or(self.engine.home(unit))?;
        Some(self.engine.space().geo.tier_of(seat).0)
    }
    /// What the policy knows of a file.
    pub fn explain(&mut self, now: Nanos, node: NodeId) -> String {
        if self.knows(node) {
            self.engine.explain(now, UnitId(node))
        } else {
            "the policy does not know it: it was not used since it came, or its tier is full".into()
        }
    }
    /// Memory of the policy and its space, bytes.
    pub fn bytes(&self) -> usize {
        self.engine.bytes()
    }
    /// The preset's name and parameters.
    pub fn policy(&self) -> String {
        self.remembered.composed(&self.main)
    }
    /// Bytes of a grain, in which the policy counts room.
    pub fn grain_bytes(&self) -> u64 {
        1 << self.grain
    }
    /// When it was used last, seconds since 1970.
    pub fn last(&self, node: NodeId) -> Option<i64> {
        self.last.get(&node).copied()
    }
    fn counted(&self) -> u64 {
        let c = self.engine.counters();
        c.promotions + c.demotions + c.fetches + c.evictions
    }
}

impl Placement {
    pub(crate) fn new(
        settings: &Settings,
        roots: &Arc<Vec<Root>>,
        cat: &Catalogue,
        quotas: &[Option<u64>],
    ) -> Result<Placement, Refused> {
        let mut on = vec![0u64; roots.len()];
        for (_, n) in cat.all().filter(|n| n.1.is_file()) {
            on[usize::from(n.tier)] += n.facts.size;
        }
        let mut shape = Vec::new();
        for (t, root) in roots.iter().enumerate() {
            let free = root.room().map_or(0, |r| r.0);
            let mut all = on[t] + free;
            if let Some(q) = quotas[t] {
                all = all.min(q.max(on[t]));
            }
            if t + 1 < roots.len() {
                all = all / 100 * u64::from(settings.marks.1);
            }
            shape.push(all.max(on[t]));
        }
        let remembered = crate::remember::load(&roots[0])?;
        let tiers = roots.len();
        if let Some(r) = settings.rules.iter().find(|r| r.tier.of(tiers).is_none()) {
            return refuse(format!("rule {}: there are only {tiers} tiers", r.text));
        }
        Ok(Placement {
            seen: Mutex::default(),
            gone: Mutex::default(),
            brain: Mutex::new(Brain::new(&settings.policy, remembered, shape, cat)?),
            rules: settings.rules.clone(),
            moving: Moving::default(),
            unheard: AtomicU64::new(0),
            done: Default::default(),
            accesses: AtomicU64::new(0),
            moves: settings.moves,
            hurry: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            start: Instant::now(),
        })
    }
    /// An access happened.
    pub fn see(&self, seen: Seen) {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        let mut all = lock(&self.seen);
        if all.len() < SEEN_MAX {
            all.push(seen);
        } else {
            drop(all);
            self.unheard.fetch_add(1, Ordering::Relaxed);
        }
    }
    pub(crate) fn forget(&self, node: NodeId) {
        lock(&self.gone).push(node);
    }
    pub(crate) fn count(&self, outcome: Outcome) {
        let at = match outcome {
            Outcome::Done => 0,
            Outcome::Refused(_) => 1,
            Outcome::Failed(_) | Outcome::Stuck(_) => 2,
        };
        self.done[at].fetch_add(1, Ordering::Relaxed);
    }
    fn at(&self, brain: &Brain, when: Instant) -> Nanos {
        let since = when.saturating_duration_since(self.start);
        Nanos(since.as_nanos() as u64 + brain.ahead)
    }
    /// The policy's time.
    pub fn now(&self, brain: &Brain) -> Nanos {
        self.at(brain, Instant::now())
    }
    /// Tell the policy what happened since.
    pub fn listen(&self, cat: impl Fn(NodeId) -> Option<(Tier, Facts, Vec<u8>)>) {
        let (gone, seen) = (
            std::mem::take(&mut *lock(&self.gone)),
            std::mem::take(&mut *lock(&self.seen)),
        );
        // The catalogue before the policy, as everywhere: neither waits for the other.
        let mut facts: HashMap<NodeId, Option<(Tier, Facts, Vec<u8>)>> = HashMap::new();
        for s in &seen {
            facts.entry(s.node).or_insert_with(|| cat(s.node));
        }
        let mut brain = lock(&self.brain);
        let brain = &mut *brain;
        let now = self.now(brain);
        for node in gone {
            brain.last.remove(&node);
            brain.resting.remove(&node);
            if brain.knows(node) {
                brain.engine.discard(now, UnitId(node));
            }
        }
        let (mut before, wall) = (Nanos(0), wall());
        for s in seen {
            let Some(Some((tier, facts, path))) = facts.get(&s.node) else {
                continue;
            };
            // Several threads saw them: the engine's time never goes back.
            let when = self.at(brain, s.when.unwrap_or(self.start)).max(before);
            before = when;
            brain.last.insert(s.node, wall);
            let size = facts.size.max(s.offset + u64::from(s.bytes));
            if !brain.knows(s.node) {
                brain.meet(when, s.node, *tier, size, path);
            }
            if !brain.knows(s.node) {
                continue;
            }
            let unit = UnitId(s.node);
            if brain.engine.space().bytes_of(unit) != size && !brain.engine.resize(when, unit, size)
            {
                continue;
            }
            let class = brain.remembered.class(path, size);
            brain.engine.reclassify(when, unit, class);
            let start = brain.engine.space().start(unit) + s.offset.min((1 << 40) - 1);
            brain
                .engine
                .access(when, unit, s.write, class, (start, s.bytes));
        }
        let now = self.now(brain).max(before);
        brain.engine.advance(now);
    }
    /// Let the plan that the policy makes once in a while be made now.
    pub fn plan_now(&self) {
        let mut brain = lock(&self.brain);
        let now = self.now(&brain);
        if let Some(due) = brain.engine.next_wake()
            && due > now
        {
            brain.ahead += due.0 - now.0;
            brain.engine.advance(due);
        }
        brain.stirred = u64::MAX;
    }
    /// Moves that are wanted, down before up. `all`: also of those that rest.
    pub fn wanted(&self, cat: &Catalogue, all: bool) -> Vec<Wanted> {
        let mut brain = lock(&self.brain);
        let fixed = !self.rules.is_empty() || !brain.remembered.pins.is_empty();
        let counted = brain.counted();
        if !all && !fixed && brain.stirred == counted {
            return Vec::new();
        }
        brain.stirred = counted;
        let (wall, now) = (wall(), Instant::now());
        brain.resting.retain(|_, until| *until > now);
        let mut wanted = Vec::new();
        let tiers = brain.shape.len();
        for (node, n) in cat.all().filter(|n| n.1.is_file() && n.1.links() > 0) {
            let (mut to, mut why) = (brain.belongs(node), "policy");
            if fixed && let Some(path) = cat.path(node) {
                let rule = self.rules.iter().find(|r| r.matches(&path, &n.facts, wall));
                if let Some(t) = rule.and_then(|r| r.tier.of(tiers)) {
                    (to, why) = (Some(t), "rule");
                }
                if let Some(t) = brain.remembered.pin(&path) {
                    (to, why) = (Some(t), "pin");
                }
            }
            let Some(to) = to.filter(|t| *t != n.tier) else {
                continue;
            };
            if !all && brain.resting.contains_key(&node) {
                continue;
            }
            wanted.push(Wanted {
                node,
                from: n.tier,
                to,
                why,
            });
        }
        wanted.sort_by_key(|w| (w.to < w.from, w.node));
        wanted
    }
    /// The coldest files of a tier that is too full, as many as bring it below its lower mark, and the tier below for each.
    pub fn overflow(&self, cat: &Catalogue, tier: Tier, mut bytes: u64) -> Vec<Wanted> {
        let brain = lock(&self.brain);
        let wall = wall();
        let mut files: Vec<(i64, NodeId, u64)> = Vec::new();
        for (node, n) in cat
            .all()
            .filter(|n| n.1.is_file() && n.1.tier == tier && n.1.links() > 0)
        {
            if brain.resting.contains_key(&node) {
                continue;
            }
            if let Some(path) = cat.path(node) {
                let rule = self.rules.iter().find(|r| r.matches(&path, &n.facts, wall));
                let rule = rule.and_then(|r| r.tier.of(brain.shape.len()));
                if brain.remembered.pin(&path).or(rule) == Some(tier) {
                    continue;
                }
            }
            let used = n.facts.atime.sec.max(n.facts.mtime.sec);
            files.push((brain.last(node).unwrap_or(used), node, n.facts.blocks * 512));
        }
        files.sort_unstable();
        let mut wanted = Vec::new();
        for (_, node, size) in files {
            if bytes == 0 {
                break;
            }
            bytes = bytes.saturating_sub(size.max(1));
            wanted.push(Wanted {
                node,
                from: tier,
                to: tier + 1,
                why: "watermark",
            });
        }
        wanted
    }
    /// A file is there now, whoever wanted what; after a move that did not happen it is left alone for a while.
    pub fn settled(&self, node: NodeId, tier: Tier, facts: &Facts, path: &[u8], moved: bool) {
        let mut brain = lock(&self.brain);
        let now = self.now(&brain);
        brain.meet(now, node, tier, facts.size, path);
        brain.stirred = u64::MAX;
        if !moved {
            brain.resting.insert(node, Instant::now() + REST);
        }
    }
    /// Other pins or policies of directories: the policy begins anew, with every file where it is.
    ///
    /// # Errors
    /// No such policy.
    pub fn remember(&self, new: Remembered, cat: &Catalogue) -> Result<(), Refused> {
        let mut brain = lock(&self.brain);
        if new.policies == brain.remembered.policies {
            brain.remembered = new;
            brain.stirred = u64::MAX;
            return Ok(());
        }
        let last = std::mem::take(&mut brain.last);
        let mut next = Brain::new(&brain.main, new, brain.shape.clone(), cat)?;
        next.last = last;
        next.stirred = u64::MAX;
        *brain = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_and_policies_are_the_nearest() {
        let mut r = Remembered::default();
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
