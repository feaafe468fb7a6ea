//! An implementation of docs/policy-rules.md, section 5, line by line.

use crate::reference::{Counts, Naive, Touch};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    OnDemand,
    Interval(u64),
    ColdPlain,
    ColdDynamic,
    ColdClean,
}

#[derive(Clone, Copy, Default)]
struct Unit {
    counter: u32,
    used: u64,
    fast: bool,
    large: bool,
}

pub struct Loris {
    kind: Kind,
    copies: bool,
    slots: usize,
    units: BTreeMap<u32, Unit>,
    uses: u64,
    last: u32,
    estimate: u64,
    t0: Option<u64>,
    plans: u64,
    counts: Counts,
}

impl Loris {
    pub fn new(kind: Kind, copies: bool, slots: u32) -> Loris {
        Loris {
            kind,
            copies,
            slots: slots as usize,
            units: BTreeMap::new(),
            uses: 0,
            last: 0,
            estimate: 0,
            t0: None,
            plans: 0,
            counts: Counts::default(),
        }
    }
    fn full(&self) -> bool {
        self.units.values().filter(|u| u.fast).count() >= self.slots
    }
    /// The unit with the lowest counter; on ties the least recently used.
    fn coldest(&self) -> u32 {
        let fast = self.units.iter().filter(|(_, u)| u.fast);
        *fast
            .min_by_key(|(_, u)| (u.counter, u.used))
            .expect("fast is full")
            .0
    }
    fn down(&mut self, n: u32) {
        self.units.get_mut(&n).expect("known").fast = false;
        if self.copies {
            self.counts.evictions += 1;
        } else {
            self.counts.demotions += 1;
        }
    }
    fn evict_coldest(&mut self) {
        let n = self.coldest();
        self.last = self.units[&n].counter;
        self.down(n);
    }
    fn up(&mut self, n: u32) {
        self.units.get_mut(&n).expect("known").fast = true;
        if self.copies {
            self.counts.fetches += 1;
        } else {
            self.counts.promotions += 1;
        }
    }
    fn clean(&mut self) {
        if self.kind == Kind::ColdClean {
            self.estimate += 1;
            for _ in 0..self.estimate.min(self.slots as u64 / 64) {
                self.evict_coldest();
            }
        }
    }
    fn plan(&mut self) {
        loop {
            let slow = self
                .units
                .iter()
                .filter(|(_, u)| !u.fast && !u.large && u.counter > 0);
            let Some((&n, u)) = slow.max_by_key(|(_, u)| (u.counter, u.used)) else {
                return;
            };
            if u.counter <= self.last {
                return;
            }
            if self.full() {
                if self.units[&self.coldest()].counter >= u.counter {
                    return;
                }
                self.evict_coldest();
            }
            self.up(n);
        }
    }
    fn weight(bytes: u32) -> u32 {
        let pages = f64::from(bytes.div_ceil(4096));
        if pages > 64.0 {
            1
        } else {
            2f64.powf(6.0 - pages.log2().floor()) as u32
        }
    }
}

impl Naive for Loris {
    fn access(&mut self, t: &Touch) -> bool {
        let t0 = *self.t0.get_or_insert(t.now);
        if let Kind::Interval(period) = self.kind {
            while t0 + (self.plans + 1) * period <= t.now {
                self.plans += 1;
                self.plan();
            }
        }
        let large = (13..=18).contains(&t.class);
        let known = self.units.contains_key(&t.unit);
        let hit = known && self.units[&t.unit].fast;
        let cold = matches!(
            self.kind,
            Kind::ColdPlain | Kind::ColdDynamic | Kind::ColdClean
        );
        let mut forced = false;
        if !known {
            let mut fast = false;
            if cold && !large {
                if self.full() {
                    self.evict_coldest();
                    forced = true;
                }
                fast = true;
            }
            self.units.insert(
                t.unit,
                Unit {
                    fast,
                    ..Unit::default()
                },
            );
        }
        self.uses += 1;
        let uses = self.uses;
        let u = self.units.get_mut(&t.unit).expect("known");
        u.counter = u.counter.saturating_add(Self::weight(t.bytes));
        u.used = uses;
        u.large = large;
        let u = *u;
        if large {
            if u.fast {
                self.down(t.unit);
            }
            return hit;
        }
        let on_demand = matches!(
            self.kind,
            Kind::OnDemand | Kind::ColdDynamic | Kind::ColdClean
        );
        if on_demand && !t.write && !u.fast && u.counter > self.last {
            if self.full() {
                self.evict_coldest();
                forced = true;
            }
            self.up(t.unit);
        }
        if forced {
            self.clean();
        }
        hit
    }
    fn counts(&self) -> Counts {
        self.counts
    }
}
