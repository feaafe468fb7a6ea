//! An implementation of docs/policy-rules.md, sections 4 (`oodt`) and 7 (`hro`, `hot`), line by line.

use crate::reference::{Counts, Naive, SHIFT, Touch};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Copy, Default)]
struct File {
    last: Option<(bool, u64, u64)>, // type, time, end
    frequency: u64,
    randomness: u64,
    fast: bool,
}

pub struct Hro {
    hot: bool,
    slots: usize,
    period: u64,
    t0: Option<u64>,
    plans: u64,
    units: BTreeMap<u32, File>,
    counts: Counts,
}

impl Hro {
    pub fn new(hot: bool, slots: u32, period: u64) -> Hro {
        Hro {
            hot,
            slots: slots as usize,
            period,
            t0: None,
            plans: 0,
            units: BTreeMap::new(),
            counts: Counts::default(),
        }
    }
    fn plan(&mut self) {
        let score = |u: &File| u.frequency * if self.hot { 1 } else { u.randomness };
        let mut order: Vec<u32> = self.units.keys().copied().collect();
        order.sort_by_key(|n| {
            let u = &self.units[n];
            (std::cmp::Reverse(score(u)), !u.fast, *n)
        });
        let chosen = &order[..order.len().min(self.slots)];
        for (n, u) in &mut self.units {
            let goes = chosen.contains(n);
            self.counts.demotions += u64::from(u.fast && !goes);
            self.counts.promotions += u64::from(!u.fast && goes);
            u.fast = goes;
        }
    }
}

impl Naive for Hro {
    fn access(&mut self, t: &Touch) -> bool {
        let t0 = *self.t0.get_or_insert(t.now);
        while t0 + (self.plans + 1) * self.period <= t.now {
            self.plans += 1;
            self.plan();
        }
        let (from, to) = (u64::from(t.unit) << SHIFT, (u64::from(t.unit) + 1) << SHIFT);
        let start = t.offset.max(from);
        let end = (t.offset + u64::from(t.bytes)).min(to);
        let u = self.units.entry(t.unit).or_default();
        let merges = u.last.is_some_and(|(write, time, last_end)| {
            write == t.write && t.now - time < 500_000_000 && start == last_end
        });
        if !merges {
            u.randomness += 1;
        }
        u.last = Some((t.write, t.now, end));
        u.frequency += 1;
        u.fast
    }
    fn counts(&self) -> Counts {
        self.counts
    }
}

struct Request {
    start: u32,
    end: u32,
    write: bool,
    meta: bool,
}

pub struct OodtParams {
    pub queue: usize,
    pub w_read: f64,
    pub w_metadata: f64,
    pub migrate_every: u64,
    pub decay: f64,
}

/// The policy on any number of tiers.
pub struct Oodt {
    p: OodtParams,
    tiers: Vec<usize>,
    queue: VecDeque<Request>,
    requests: u64,
    /// Priority, the sum without the read term, tier.
    blocks: BTreeMap<u32, (f64, f64, usize)>,
    counts: Counts,
}

impl Oodt {
    pub fn new(p: OodtParams, tiers: &[u32]) -> Oodt {
        Oodt {
            p,
            tiers: tiers.iter().map(|&t| t as usize).collect(),
            queue: VecDeque::new(),
            requests: 0,
            blocks: BTreeMap::new(),
            counts: Counts::default(),
        }
    }
    fn score(&mut self, r: &Request) {
        let s = f64::from(r.end - r.start + 1);
        let read = if r.write { 0.0 } else { self.p.w_read };
        let meta = if r.meta { self.p.w_metadata } else { 0.0 };
        for b in r.start..=r.end {
            let block = self.blocks.get_mut(&b).expect("accessed");
            block.0 += (1.0 / s) * (1.0 + read + meta);
            block.1 += (1.0 / s) * (1.0 + meta);
        }
    }
    fn migrate(&mut self) {
        while let Some(r) = self.queue.pop_front() {
            self.score(&r);
        }
        let mut left: Vec<u32> = self
            .blocks
            .iter()
            .filter(|b| b.1.0 > 0.0)
            .map(|b| *b.0)
            .collect();
        let lowest = self.tiers.len() - 1;
        for tier in 0..=lowest {
            let sum = |b: &u32| {
                if tier == 0 {
                    self.blocks[b].0
                } else {
                    self.blocks[b].1
                }
            };
            left.sort_by(|a, b| {
                sum(b)
                    .total_cmp(&sum(a))
                    .then((self.blocks[b].2 == tier).cmp(&(self.blocks[a].2 == tier)))
                    .then(a.cmp(b))
            });
            let n = if tier == lowest {
                left.len()
            } else {
                self.tiers[tier].min(left.len())
            };
            for b in left.drain(..n) {
                let at = &mut self.blocks.get_mut(&b).expect("known").2;
                self.counts.promotions += u64::from(tier < *at);
                self.counts.demotions += u64::from(tier > *at);
                *at = tier;
            }
        }
        for b in self.blocks.values_mut() {
            b.0 *= self.p.decay;
            b.1 *= self.p.decay;
        }
    }
    pub fn tier(&self, unit: u32) -> Option<usize> {
        self.blocks.get(&unit).map(|b| b.2)
    }
}

impl Naive for Oodt {
    fn access(&mut self, t: &Touch) -> bool {
        if t.first {
            if self.requests > 0 && self.requests.is_multiple_of(self.p.migrate_every) {
                self.migrate();
            }
            self.requests += 1;
        }
        let slowest = self.tiers.len() - 1;
        let hit = self.blocks.entry(t.unit).or_insert((0.0, 0.0, slowest)).2 == 0;
        let meta = (1..=7).contains(&t.class);
        for r in &mut self.queue {
            if r.write != t.write || r.meta != meta {
                continue;
            }
            if t.unit + 1 == r.start {
                r.start = t.unit;
                return hit;
            }
            if t.unit == r.end + 1 {
                r.end = t.unit;
                return hit;
            }
            if (r.start..=r.end).contains(&t.unit) {
                return hit;
            }
        }
        if self.queue.len() == self.p.queue {
            let r = self.queue.pop_front().expect("full");
            self.score(&r);
        }
        self.queue.push_back(Request {
            start: t.unit,
            end: t.unit,
            write: t.write,
            meta,
        });
        hit
    }
    fn counts(&self) -> Counts {
        self.counts
    }
}
