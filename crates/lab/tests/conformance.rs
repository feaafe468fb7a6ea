//! Properties that every preset must have: one suite for all in [`PRESETS`], so a new preset is tested as soon as it is listed.

use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::{NullCounters, NullEngine};
use isotherm_core::policy::{
    Access, Action, Outcome, PRESETS, ParamError, Place, Policy, Preset, Refusal, View, build,
};
use isotherm_core::random::SplitMix64;
use isotherm_core::{ExtentId, Nanos, TierId};

type Engine = NullEngine<Box<dyn Policy>>;

/// One access of a workload.
#[derive(Clone, Copy)]
struct Touch {
    extent: u32,
    write: bool,
}

/// Tiers of these sizes; the slowest has room for all extents and a few more.
fn shape(tiers: &[u32], extents: u32) -> Geometry {
    let last = tiers.len() - 1;
    let members = tiers.iter().enumerate().map(|(t, slots)| Member {
        tier: TierId(t as u8),
        first_slot: 0,
        slots: if t == last { extents + 64 } else { *slots },
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    });
    Geometry::new(12, 12, extents, members.collect()).expect("a valid shape")
}

fn make(p: &Preset) -> Box<dyn Policy> {
    build(p.name, std::iter::empty()).expect("presets build")
}

/// Plays with 10 ms between accesses, so that intervals of seconds pass, too.
fn play(e: &mut Engine, from: u64, touches: &[Touch]) -> Vec<bool> {
    let at = |i: usize| Nanos::from_millis(10 * (from + i as u64));
    let one = |(i, t): (usize, &Touch)| {
        let request = (u64::from(t.extent) << 12, 4096);
        e.access(at(i), ExtentId(t.extent), t.write, 0, request)
    };
    touches.iter().enumerate().map(one).collect()
}

/// Skewed accesses, two thirds of them reads.
fn mixed(seed: u64, extents: u32, n: usize) -> Vec<Touch> {
    let mut random = SplitMix64::new(seed);
    let mut one = || {
        let x = u64::from(extents);
        Touch {
            extent: (random.below(x) * random.below(x) / x) as u32,
            write: random.below(3) == 0,
        }
    };
    (0..n).map(|_| one()).collect()
}

fn workloads(extents: u32) -> Vec<(&'static str, Vec<Touch>)> {
    let all = |write| {
        let m = mixed(5, extents, 4000);
        m.into_iter().map(|t| Touch { write, ..t }).collect()
    };
    let sequential = (0..3 * extents).map(|i| Touch {
        extent: i % extents,
        write: false,
    });
    let hot = Touch {
        extent: extents / 2,
        write: false,
    };
    vec![
        ("mixed", mixed(4, extents, 4000)),
        ("all writes", all(true)),
        ("all reads", all(false)),
        ("sequential", sequential.collect()),
        ("one hot block", vec![hot; 2000]),
    ]
}

const SHAPES: [&[u32]; 6] = [
    &[20, 0],
    &[1, 0],     // one fast slot
    &[400, 0],   // larger than the data
    &[8, 32, 0], // three tiers
    &[4, 8, 40, 0],
    &[1, 1, 0],
];
const EXTENTS: u32 = 200;

/// Properties that must hold after any run: every unit has one home, no two share a slot, copies are on faster tiers, counts are
/// consistent.
fn check(e: &Engine, geo: &Geometry, hits: usize, accesses: usize, what: &str) {
    let c = e.counters();
    assert_eq!(
        (c.accesses, c.hits),
        (accesses as u64, hits as u64),
        "{what}"
    );
    let mut taken = std::collections::BTreeSet::new();
    let mut copies = 0;
    for x in (0..geo.extents).map(ExtentId) {
        let (home, copy) = (e.home(x), e.copy(x));
        for s in home.into_iter().chain(copy) {
            assert!(taken.insert(s), "{what}: two units in slot {s}");
        }
        if let Some(s) = copy {
            copies += 1;
            let home = home.map(|h| geo.tier_of(h));
            assert!(
                home > Some(geo.tier_of(s)),
                "{what}: a copy that is no faster than its home"
            );
        }
    }
    assert_eq!(
        c.fetches - c.evictions,
        copies,
        "{what}: copies = fetches - evictions"
    );
    assert!(copies <= u64::from(geo.tier_slots(geo.slowest()).start));
}

#[test]
fn every_shape_and_workload_ends_well() {
    for p in PRESETS {
        for tiers in SHAPES {
            for (name, touches) in workloads(EXTENTS) {
                let geo = shape(tiers, EXTENTS);
                let mut e = NullEngine::new(geo.clone(), make(p));
                let hits = play(&mut e, 0, &touches).iter().filter(|h| **h).count();
                let what = format!("{} on {tiers:?}, {name}", p.name);
                check(&e, &geo, hits, touches.len(), &what);
            }
        }
    }
}

/// A few units that are read repeatedly must end on fast, unless the preset never moves anything.
#[test]
fn does_something() {
    for p in PRESETS {
        let geo = shape(&[20, 0], EXTENTS);
        let mut e = NullEngine::new(geo, make(p));
        // First come units that fill fast if first touches are placed there; then ten units from the middle, which have been demoted by
        // then, for more than a day, so that daily plans take place. No unit is accessed right after its neighbour: its accesses would
        // always be inside the pending request of the scan, where an access queue merges them (oodt).
        let read = |extent| Touch {
            extent,
            write: false,
        };
        play(
            &mut e,
            0,
            &(0..EXTENTS)
                .map(|i| read(i * 7 % EXTENTS))
                .collect::<Vec<_>>(),
        );
        let again: Vec<Touch> = (0..3000).map(|i| read(EXTENTS / 2 + i % 10 * 3)).collect();
        let day = 86_400 * 100;
        for round in 1..=4 {
            play(&mut e, round * day, &again);
        }
        let hits = play(&mut e, 5 * day, &again).iter().filter(|h| **h).count();
        let c = e.counters();
        if p.name.ends_with("linear") {
            assert_eq!((hits, c.promotions + c.fetches), (0, 0), "{}", p.name);
            continue;
        }
        // By design, units on slow stay there under cold-dst-plain, and edt does not move a unit whose accesses cost little on either tier
        // (its own tests contain moves).
        if p.name == "cold-dst-plain" || p.name == "edt" {
            continue;
        }
        assert!(
            c.promotions + c.fetches > 0,
            "{} moves nothing: {c:?}",
            p.name
        );
        assert!(
            hits > 0,
            "{}: ten units read 15 000 times never hit",
            p.name
        );
        // The default rules of type-aware have parts of both kinds.
        let caching = make(p).uses() == isotherm_core::policy::Uses::Copies;
        assert!(
            !caching || c.promotions + c.demotions == 0,
            "{} moves homes",
            p.name
        );
    }
}

#[test]
fn same_calls_same_decisions() {
    for p in PRESETS {
        let run = || {
            let mut e = NullEngine::new(shape(&[20, 0], EXTENTS), make(p));
            let hits = play(&mut e, 0, &mixed(9, EXTENTS, 6000));
            let places: Vec<_> = (0..EXTENTS)
                .map(|x| (e.home(ExtentId(x)), e.copy(ExtentId(x))))
                .collect();
            (hits, e.counters(), places)
        };
        assert!(run() == run(), "{}", p.name);
    }
}

/// Bound of a policy's own memory in bytes: `per_slot` for each fast slot, `per_extent` for each extent, and a constant. A preset that is
/// not named here has the widest bound.
fn bound(name: &str) -> (usize, usize, usize) {
    match name {
        "linear" | "mylinear" => (0, 0, 2048),
        "lru" | "fifo" => (8, 0, 2048),
        "clock" | "sieve" => (9, 0, 2048),
        // Half as many ghosts as slots.
        "two-q" => (9 + 18, 0, 2048),
        "lirs" => (45, 0, 2048),
        "lru-2" => (24 + 8 + 32, 0, 2048),
        "lfu" => (32, 0, 2048),
        "w-tinylfu" => (29, 0, 2048),
        // A ghost entry has 25 to 34 bytes.
        "arc" => (9 + 35, 0, 2048),
        "s3-fifo" => (9 + 32, 0, 2048),
        "smq" => (10 + 10 + 4 + 22, 0, 2048),
        _ => (64, 64, 16 << 10),
    }
}

#[test]
fn memory_is_bounded_and_does_not_grow() {
    for p in PRESETS {
        for (fast, extents) in [(1u32, 50u32), (100, 1000), (1000, 5000), (1025, 3000)] {
            let mut e = NullEngine::new(shape(&[fast, 0], extents), make(p));
            let (per_slot, per_extent, fixed) = bound(p.name);
            let most = per_slot * fast as usize + per_extent * extents as usize + fixed;
            play(&mut e, 0, &mixed(3, extents, 5000));
            let after = e.policy().bytes();
            assert!(
                after <= most,
                "{}: {after} bytes for {fast} fast slots, {extents} extents: over {most}",
                p.name
            );
            play(&mut e, 5000, &mixed(8, extents, 20_000));
            let later = e.policy().bytes();
            assert!(
                later <= most,
                "{}: {later} bytes later: over {most}",
                p.name
            );
        }
    }
}

/// Passes the calls of a policy on, but hides a random share of its proposals from the engine and reports them to the policy as refused, as
/// the engine would do.
struct Refusing {
    inner: Box<dyn Policy>,
    random: SplitMix64,
    refused: u64,
    /// Share of hidden proposals, of 8.
    share: u64,
}

impl Refusing {
    /// Drops some proposals and reports them as refused; the proposals that the policy then makes are treated in the same way.
    fn sift(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        for _ in 0..64 {
            let mut more = Vec::new();
            let mut kept = Vec::new();
            for a in wanted.drain(..) {
                if self.random.below(8) < self.share {
                    self.refused += 1;
                    let how = Outcome::Refused(Refusal::Busy);
                    self.inner.on_settled(view, a, how, &mut more);
                } else {
                    kept.push(a);
                }
            }
            let done = more.is_empty();
            kept.append(&mut more);
            *wanted = kept;
            if done {
                return;
            }
        }
        panic!(
            "{} asks again at once when refused, for ever",
            self.inner.name()
        );
    }
}

impl Policy for Refusing {
    fn inner(&self) -> Option<&dyn Policy> {
        Some(&*self.inner)
    }
    fn inner_mut(&mut self) -> Option<&mut dyn Policy> {
        Some(&mut *self.inner)
    }
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.inner.attach(view);
    }
    fn first_touch(&mut self, view: &mut View<'_>, extent: ExtentId) -> Place {
        self.inner.first_touch(view, extent)
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        self.inner.on_access(view, access, wanted);
        self.sift(view, wanted);
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        self.inner.on_settled(view, action, how, wanted);
        self.sift(view, wanted);
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        self.inner.tick(view, wanted);
        self.sift(view, wanted);
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        self.inner.set(key, value)
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        self.inner.params()
    }
    fn explain(&self, view: &View<'_>, extent: ExtentId) -> String {
        self.inner.explain(view, extent)
    }
}

/// With refusals the lists must follow the real state: the run ends, and after the refusals have stopped the policy works as well as a new
/// one, within a tenth.
#[test]
fn survives_refusals() {
    let touches = mixed(21, EXTENTS, 6000);
    for p in PRESETS {
        for share in [1, 4, 7] {
            let geo = shape(&[20, 0], EXTENTS);
            let wrapped: Box<dyn Policy> = Box::new(Refusing {
                inner: make(p),
                random: SplitMix64::new(77),
                refused: 0,
                share,
            });
            let mut e = NullEngine::new(geo.clone(), wrapped);
            let hits = play(&mut e, 0, &touches).iter().filter(|h| **h).count();
            let what = format!("{}, {share} of 8 refused", p.name);
            check(&e, &geo, hits, touches.len(), &what);
        }
    }
}

/// Half of the proposals are refused for a time, then none: the copies in a cache's lists must be those that exist, so a full fast tier
/// must still exchange its copies.
#[test]
fn caches_turn_over_after_refusals() {
    for p in PRESETS.iter().filter(|p| p.kind() == "caching") {
        let geo = shape(&[20, 0], EXTENTS);
        let wrapped: Box<dyn Policy> = Box::new(Refusing {
            inner: make(p),
            random: SplitMix64::new(5),
            refused: 0,
            share: 4,
        });
        let mut e = NullEngine::new(geo, wrapped);
        play(&mut e, 0, &mixed(2, EXTENTS, 3000));
        let before: NullCounters = e.counters();
        // Two working sets, one after the other, each new to the fast tier.
        for half in [0, EXTENTS - 10] {
            let set: Vec<Touch> = (0..4000)
                .map(|i| Touch {
                    extent: half + i % 10,
                    write: false,
                })
                .collect();
            let at = 100_000 * u64::from(half + 1);
            play(&mut e, at, &set);
            let hits = play(&mut e, at + 50_000, &set)
                .iter()
                .filter(|h| **h)
                .count();
            assert!(
                hits > 0,
                "{}: a working set of half the fast tier never hits",
                p.name
            );
        }
        // Without rules, type-aware moves homes.
        let c = e.counters();
        let came = c.fetches - before.fetches + c.promotions - before.promotions;
        assert!(came > 0, "{}", p.name);
    }
}

#[test]
fn presets_explain_and_name_their_parameters() {
    for p in PRESETS {
        let mut policy = make(p);
        assert_eq!(policy.name(), p.name);
        let known: Vec<&str> = p.params.iter().map(|i| i.name).collect();
        for (key, value) in policy.params() {
            assert!(known.contains(&key), "{}: `{key}` is not listed", p.name);
            assert_eq!(
                policy.set(key, value),
                Ok(()),
                "{}: {key} = {value}",
                p.name
            );
            assert!(
                matches!(policy.set(key, f64::NAN), Err(ParamError::Range(_))),
                "{}: {key}",
                p.name
            );
        }
        assert!(matches!(
            policy.set("no such", 1.0),
            Err(ParamError::Unknown(_))
        ));
        assert!(["tiering", "caching"].contains(&p.kind()));
        assert!(!p.what.is_empty() && !p.source.is_empty(), "{}", p.name);
    }
}
