//! Code that the naive references share: unit accesses, random work, and the comparison with the null engine at every access. The
//! references are written only from docs/policy-rules.md, with vectors, maps and linear scans.
#![allow(dead_code)]

use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{Policy, build};
use isotherm_core::random::SplitMix64;
use isotherm_core::{ExtentId, Nanos, TierId};

/// One unit access of a request.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    pub now: u64,
    pub unit: u32,
    pub write: bool,
    pub class: u8,
    /// First byte of the whole request.
    pub offset: u64,
    pub bytes: u32,
    /// Whether this is the first unit of its request.
    pub first: bool,
}

/// The counts that are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub promotions: u64,
    pub demotions: u64,
    pub fetches: u64,
    pub evictions: u64,
    pub writebacks: u64,
}

/// A policy that is implemented directly from its description.
pub trait Naive {
    /// Makes an access; returns whether it hit.
    fn access(&mut self, t: &Touch) -> bool;
    fn counts(&self) -> Counts;
}

/// A seeded generator.
pub struct Draw(SplitMix64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(SplitMix64::new(seed))
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }
}

/// The properties of random work.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub units: u32,
    pub requests: u32,
    /// Share of writes, in per cent.
    pub writes: u64,
    /// The classes, which are drawn with equal probability.
    pub classes: &'static [u8],
    /// The gaps between requests in nanoseconds, which are drawn with equal probability.
    pub gaps: &'static [u64],
}

pub const SHIFT: u32 = 12;

/// Random requests, cut into unit accesses: half of them touch a tenth of the units, and this part moves slowly.
pub fn random(draw: &mut Draw, w: &Work) -> Vec<Touch> {
    let mut all = Vec::new();
    let mut now = 0;
    for i in 0..w.requests {
        now += w.gaps[draw.below(w.gaps.len() as u64) as usize];
        let units = u64::from(w.units);
        let at = if draw.below(2) == 0 {
            u64::from(i) / 400 * 7 + draw.below(units / 10 + 1)
        } else {
            draw.below(units)
        } % units;
        let sectors = [1, 8, 8, 8, 12, 16, 64, 600][draw.below(8) as usize];
        let offset = (at << SHIFT)
            + if draw.below(3) == 0 {
                draw.below(8) * 512
            } else {
                0
            };
        let end = (offset + sectors * 512).min(units << SHIFT);
        let (write, class) = (
            draw.below(100) < w.writes,
            w.classes[draw.below(w.classes.len() as u64) as usize],
        );
        for unit in offset >> SHIFT..=(end - 1) >> SHIFT {
            all.push(Touch {
                now,
                unit: unit as u32,
                write,
                class,
                offset,
                bytes: (end - offset) as u32,
                first: unit == offset >> SHIFT,
            });
        }
    }
    all
}

/// A null engine with these numbers of slots on its tiers.
pub fn engine(
    name: &str,
    params: &[(&str, f64)],
    units: u32,
    tiers: &[u32],
) -> NullEngine<Box<dyn Policy>> {
    let policy = build(name, params.iter().copied()).expect("valid parameters");
    engine_of(policy, units, tiers)
}

/// The null engine with an existing policy.
pub fn engine_of(
    policy: Box<dyn Policy>,
    units: u32,
    tiers: &[u32],
) -> NullEngine<Box<dyn Policy>> {
    let members = (0..).zip(tiers).map(|(t, &slots)| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    });
    let geo = Geometry::new(SHIFT, 9, units, members.collect()).expect("a valid shape");
    NullEngine::new(geo, policy)
}

/// Makes one access of the null engine.
pub fn touch(e: &mut NullEngine<Box<dyn Policy>>, t: &Touch) -> bool {
    e.access(
        Nanos(t.now),
        ExtentId(t.unit),
        t.write,
        t.class,
        (t.offset, t.bytes),
    )
}

/// The engine's counts in the form of the references.
pub fn counts(e: &NullEngine<Box<dyn Policy>>) -> Counts {
    let c = e.counters();
    Counts {
        promotions: c.promotions,
        demotions: c.demotions,
        fetches: c.fetches,
        evictions: c.evictions,
        writebacks: c.writebacks,
    }
}

/// Compares: equal hits at every access, equal counts at the end, no refusal.
pub fn compare(
    what: &str,
    ours: &mut NullEngine<Box<dyn Policy>>,
    naive: &mut dyn Naive,
    work: &[Touch],
) {
    for (i, t) in work.iter().enumerate() {
        let (got, want) = (touch(ours, t), naive.access(t));
        assert_eq!(got, want, "{what}: access {i}, {t:?}");
        if i % 16 == 0 || i + 1 == work.len() {
            assert_eq!(
                counts(ours),
                naive.counts(),
                "{what}: after access {i}, {t:?}"
            );
        }
    }
    assert_eq!(ours.counters().refused, 0, "{what}: something was refused");
}

/// A size for the fast tier: one slot, two, few, many, or more than there is data.
pub fn fast_slots(draw: &mut Draw, units: u32) -> u32 {
    match draw.below(8) {
        0 => 1,
        1 => 2,
        2 => units,
        3 => units + 7,
        _ => 1 + draw.below(u64::from(units)) as u32,
    }
}
