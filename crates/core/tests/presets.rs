//! Compares `type-aware` with a naive implementation of its documentation; tests the effects of the write modes, and properties of every
//! preset.

mod reference;

use isotherm_core::TierId;
use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{ParamValue, Policy, WRITE_MODES, build_with};
use reference::{
    Counts, Draw, Naive, SHIFT, Touch, Work, compare, counts, fast_slots, random, touch,
};
use std::collections::BTreeMap;

fn engine(
    name: &str,
    names: &[(&str, &str)],
    units: u32,
    fast: u32,
) -> NullEngine<Box<dyn Policy>> {
    let m = |t, slots| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    };
    let geo = Geometry::new(SHIFT, 9, units, vec![m(0, fast), m(1, units)]).expect("a valid shape");
    let params = names.iter().map(|(k, v)| (*k, ParamValue::Name(v)));
    NullEngine::new(geo, build_with(name, params).expect("valid parameters"))
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    HotDst,
    Cache,
    ColdPlain,
    ColdDynamic,
    Slow,
}

#[derive(Clone, Copy)]
struct Unit {
    sub: usize,
    counter: u32,
    used: u64,
    fast: bool,
    copy: bool,
}

/// The accesses to which a rule applies, its policy, and its share of the fast tier in per cent.
type Rule = (fn(&Touch) -> bool, Kind, u32);

struct TypeAware {
    rules: Vec<Rule>,
    last: Vec<u32>,
    slots: usize,
    units: BTreeMap<u32, Unit>,
    uses: u64,
    counts: Counts,
}

impl TypeAware {
    fn have(&self, sub: usize) -> u32 {
        self.units
            .values()
            .filter(|u| u.fast && u.sub == sub)
            .count() as u32
    }
    fn share(&self, sub: usize) -> u32 {
        (self.slots as u64 * u64::from(self.rules[sub].2) / 100) as u32
    }
    fn full(&self) -> bool {
        self.units.values().filter(|u| u.fast).count() == self.slots
    }
    fn down(&mut self, n: u32) {
        let u = self.units.get_mut(&n).expect("known");
        u.fast = false;
        if std::mem::take(&mut u.copy) {
            self.counts.evictions += 1;
        } else {
            self.counts.demotions += 1;
        }
    }
    /// Makes room for `sub`. Returns false if no policy has a unit that can leave.
    fn make_room(&mut self, sub: usize) -> bool {
        let mut from = sub;
        if self.have(sub) < self.share(sub) {
            let over = |s: usize| self.have(s).saturating_sub(self.share(s));
            let most = (0..self.rules.len()).max_by_key(|s| (over(*s), std::cmp::Reverse(*s)));
            from = most.filter(|s| over(*s) > 0).unwrap_or(sub);
        }
        let theirs = self.units.iter().filter(|(_, u)| u.fast && u.sub == from);
        let Some((&n, u)) = theirs.min_by_key(|(_, u)| (u.counter, u.used)) else {
            return false;
        };
        self.last[from] = u.counter;
        self.down(n);
        true
    }
}

impl Naive for TypeAware {
    fn access(&mut self, t: &Touch) -> bool {
        let sub = self
            .rules
            .iter()
            .position(|r| (r.0)(t))
            .expect("the last rule is for all");
        let kind = self.rules[sub].1;
        let hit = self.units.get(&t.unit).is_some_and(|u| u.fast);
        if !self.units.contains_key(&t.unit) {
            let mut fast = matches!(kind, Kind::ColdPlain | Kind::ColdDynamic);
            if fast && self.full() {
                fast = self.make_room(sub);
            }
            self.units.insert(
                t.unit,
                Unit {
                    sub,
                    counter: 0,
                    used: 0,
                    fast,
                    copy: false,
                },
            );
        }
        self.uses += 1;
        let uses = self.uses;
        let pages = t.bytes.div_ceil(4096);
        let u = self.units.get_mut(&t.unit).expect("known");
        u.sub = sub;
        u.used = uses;
        u.counter += if pages > 64 { 1 } else { 64 >> pages.ilog2() };
        let u = *u;
        if kind == Kind::Slow && u.fast {
            self.down(t.unit);
        }
        let stays = matches!(kind, Kind::Slow | Kind::ColdPlain);
        if stays || t.write || u.fast || u.counter <= self.last[sub] {
            return hit;
        }
        if self.full() && !self.make_room(sub) {
            return hit;
        }
        let u = self.units.get_mut(&t.unit).expect("known");
        u.fast = true;
        u.copy = kind == Kind::Cache;
        if u.copy {
            self.counts.fetches += 1;
        } else {
            self.counts.promotions += 1;
        }
        hit
    }
    fn counts(&self) -> Counts {
        self.counts
    }
}

#[test]
fn type_aware_on_random_work() {
    for seed in 0..60 {
        let mut draw = Draw::new(seed);
        let units = 30 + draw.below(120) as u32;
        let fast = fast_slots(&mut draw, units);
        let texts = [
            ("rule", "class/1-7:cache-ondemand:20"),
            ("rule", "bytes/0-64K:slow:0"),
            ("rule", "class/8:cold-dst-dynamic:30"),
            ("rule", "class/9-10:cold-dst-plain:10"),
        ];
        let mut naive = TypeAware {
            rules: vec![
                (|t| (1..=7).contains(&t.class), Kind::Cache, 20),
                (|t| t.unit < 16, Kind::Slow, 0),
                (|t| t.class == 8, Kind::ColdDynamic, 30),
                (|t| (9..=10).contains(&t.class), Kind::ColdPlain, 10),
                (|_| true, Kind::HotDst, 40),
            ],
            last: vec![0; 5],
            slots: fast as usize,
            units: BTreeMap::new(),
            uses: 0,
            counts: Counts::default(),
        };
        let work = random(
            &mut draw,
            &Work {
                units,
                requests: 1500,
                writes: [0, 30, 70, 100][seed as usize % 4],
                classes: if seed % 3 == 0 {
                    &[0]
                } else {
                    &[0, 1, 7, 8, 9, 30]
                },
                gaps: &[0, 1_000],
            },
        );
        let mut ours = engine("type-aware", &texts, units, fast);
        compare(
            &format!("seed {seed}, F {fast} of {units}"),
            &mut ours,
            &mut naive,
            &work,
        );
    }
}

fn io(unit: u32, write: bool) -> Touch {
    Touch {
        now: 0,
        unit,
        write,
        class: 0,
        offset: u64::from(unit) << 12,
        bytes: 4096,
        first: true,
    }
}

/// F = 2. Accesses: read 0, write 0, write 1, read 1, write 2, read 0. Worked by hand, for each mode on `lru`: hits as a string, then
/// (fetches, evictions, writebacks).
#[test]
fn write_modes() {
    let work = [
        (0, false),
        (0, true),
        (1, true),
        (1, false),
        (2, true),
        (0, false),
    ];
    let want = [
        // 0 and 1 become dirty; 2 evicts 0, then 0 evicts 1; both are written home.
        ("write-back", ".+.+..", (4, 2, 2)),
        // Write misses make no copy: 1 gets one by its read, 2 never, and 0 stays.
        ("write-through-update", ".+...+", (2, 0, 0)),
        // The same as write-back, but no copy is ever dirty.
        ("write-through-all", ".+.+..", (4, 2, 0)),
        // The write of 0 hits and drops its copy. Reads make copies of 1 and, at the end, of 0.
        ("write-around", ".+....", (3, 1, 0)),
        // The read of 0 makes no copy, its write does; 2 evicts 0.
        ("write-only", "...+..", (3, 1, 1)),
        ("read-only", ".+....", (3, 1, 0)),
        ("pass-through", "......", (0, 0, 0)),
    ];
    assert_eq!(
        WRITE_MODES.map(String::from),
        want.map(|w| String::from(w.0))
    );
    for (mode, hits, (fetches, evictions, writebacks)) in want {
        let mut e = engine("lru", &[("write-mode", mode)], 8, 2);
        let got: String = work
            .iter()
            .map(|&(unit, write)| {
                if touch(&mut e, &io(unit, write)) {
                    '+'
                } else {
                    '.'
                }
            })
            .collect();
        assert_eq!(got, hits, "{mode}");
        let c = counts(&e);
        assert_eq!(
            (c.fetches, c.evictions, c.writebacks),
            (fetches, evictions, writebacks),
            "{mode}"
        );
    }
}

/// Every caching preset must work under every mode: counts are consistent, and modes that write through leave no dirty copy.
#[test]
fn every_cache_under_every_mode() {
    use isotherm_core::policy::PRESETS;
    for preset in PRESETS.iter().filter(|p| p.kind() == "caching") {
        for mode in WRITE_MODES {
            let mut draw = Draw::new(7);
            let (units, fast) = (150, 20);
            let w = Work {
                units,
                requests: 1200,
                writes: 50,
                classes: &[0, 5, 9],
                gaps: &[0, 400_000_000],
            };
            let mut e = engine(preset.name, &[("write-mode", mode)], units, fast);
            for t in random(&mut draw, &w) {
                touch(&mut e, &t);
            }
            let (c, what) = (e.counters(), format!("{} under {mode}", preset.name));
            let there = (0..units)
                .filter(|u| e.copy(isotherm_core::ExtentId(*u)).is_some())
                .count();
            assert_eq!(c.fetches - c.evictions, there as u64, "{what}");
            assert!(there <= fast as usize, "{what}");
            if !matches!(mode, "write-back" | "write-only") {
                assert_eq!(c.writebacks, 0, "{what}");
            }
            if mode == "pass-through" && preset.name != "cache-interval" && preset.name != "hystor"
            {
                assert_eq!(
                    (c.hits - c.promotions.min(c.hits), c.fetches),
                    (0, 0),
                    "{what}"
                );
            }
        }
    }
}

/// For every preset: it explains every extent, on any tier; the explanation changes with its state; the same work gives the same decisions;
/// its memory is counted.
#[test]
fn every_preset_explains_and_repeats_itself() {
    use isotherm_core::policy::PRESETS;
    use isotherm_core::{ExtentId, Nanos};
    for preset in PRESETS {
        let run = || {
            let (units, mut draw) = (120, Draw::new(11));
            let w = Work {
                units: units - 1, // the last one is never touched
                requests: 1500,
                writes: 40,
                classes: &[0, 2, 8, 14],
                gaps: &[0, 900_000_000],
            };
            let mut e = engine(preset.name, &[], units, 15);
            let untouched = e.explain(Nanos(0), ExtentId(3));
            let work = random(&mut draw, &w);
            let now = Nanos(work.last().map_or(0, |t| t.now) + 5_000_000_000);
            let hits: Vec<bool> = work.iter().map(|t| touch(&mut e, t)).collect();
            let words: Vec<String> = (0..units).map(|u| e.explain(now, ExtentId(u))).collect();
            assert!(
                words.iter().all(|w| w.len() > 15),
                "{}: {words:?}",
                preset.name
            );
            if preset.name != "linear" {
                assert_ne!(words[3], untouched, "{}", preset.name);
            }
            (hits, words, e.counters(), e.policy().bytes())
        };
        let (a, b) = (run(), run());
        assert_eq!(a, b, "{}", preset.name);
        let stateless = matches!(preset.name, "linear" | "mylinear");
        assert!(stateless || a.3 > 0, "{}", preset.name);
    }
}
