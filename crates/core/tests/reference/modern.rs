//! Naive implementations of `bcache-like` and `opencas-like`, from the comments at the head of their source files.

use crate::reference::{Counts, Naive, SHIFT, Touch};
use std::collections::BTreeMap;

/// End of a stream and its bytes so far, most recent last.
#[derive(Default)]
struct Streams {
    ends: Vec<(u64, u64)>,
    run: u64,
}

impl Streams {
    fn run(&mut self, t: &Touch) -> u64 {
        if t.first {
            let at = self.ends.iter().rposition(|e| e.0 == t.offset);
            let before = at.map_or(0, |i| self.ends.remove(i).1);
            if self.ends.len() == 32 {
                self.ends.remove(0);
            }
            self.run = before + u64::from(t.bytes);
            self.ends.push((t.offset + u64::from(t.bytes), self.run));
        }
        self.run
    }
}

#[derive(Clone, Copy)]
struct Copied {
    unit: u32,
    dirty: bool,
    used: u64,
    /// The time at which it became dirty, as a count of writes.
    dirtied: u64,
}

/// Least recently used first.
#[derive(Default)]
struct Lru {
    slots: usize,
    copies: Vec<Copied>,
    writes: u64,
    counts: Counts,
}

impl Lru {
    fn touch(&mut self, t: &Touch) -> bool {
        let Some(i) = self.copies.iter().position(|c| c.unit == t.unit) else {
            return false;
        };
        let mut c = self.copies.remove(i);
        c.used = t.now;
        self.copies.push(c);
        true
    }
    fn full(&self) -> bool {
        self.copies.len() == self.slots
    }
    fn insert(&mut self, t: &Touch) {
        if self.full() {
            let gone = self.copies.remove(0);
            self.counts.evictions += 1;
            self.counts.writebacks += u64::from(gone.dirty);
        }
        self.counts.fetches += 1;
        self.copies.push(Copied {
            unit: t.unit,
            dirty: false,
            used: t.now,
            dirtied: 0,
        });
    }
    fn dirty(&mut self, unit: u32) {
        self.writes += 1;
        if let Some(c) = self.copies.iter_mut().find(|c| c.unit == unit && !c.dirty) {
            c.dirty = true;
            c.dirtied = self.writes;
        }
    }
    fn clean(&mut self, unit: u32) {
        let c = self
            .copies
            .iter_mut()
            .find(|c| c.unit == unit)
            .expect("there");
        assert!(std::mem::take(&mut c.dirty));
        self.counts.writebacks += 1;
    }
    fn dirty_count(&self) -> usize {
        self.copies.iter().filter(|c| c.dirty).count()
    }
}

pub struct Bcache {
    lru: Lru,
    streams: Streams,
    cutoff: u64,
    percent: i64,
    t0: Option<u64>,
    updates: u64,
    rate: i64,
    budget: i64,
    dirty_then: i64,
    at: u32,
}

impl Bcache {
    pub fn new(slots: usize, cutoff: u64, percent: i64) -> Bcache {
        Bcache {
            lru: Lru {
                slots,
                ..Lru::default()
            },
            streams: Streams::default(),
            cutoff,
            percent,
            t0: None,
            updates: 0,
            rate: 8,
            budget: 0,
            dirty_then: 0,
            at: 0,
        }
    }
    fn update(&mut self) {
        let sectors = (1 << SHIFT) / 512;
        let dirty = self.lru.dirty_count() as i64 * sectors;
        let error = dirty - self.lru.slots as i64 * sectors * self.percent / 100;
        self.rate = (self.rate + (error * 5 + (dirty - self.dirty_then) * 30) / 6000).max(8);
        self.dirty_then = dirty;
        if dirty == 0 {
            self.budget = 0;
            return;
        }
        self.budget = (self.budget + self.rate * 5).min(dirty);
        while self.budget >= sectors {
            let mut units: Vec<u32> = self
                .lru
                .copies
                .iter()
                .filter(|c| c.dirty)
                .map(|c| c.unit)
                .collect();
            units.sort_unstable();
            let Some(&unit) = units.iter().find(|u| **u >= self.at).or(units.first()) else {
                break;
            };
            self.at = unit + 1;
            self.budget -= sectors;
            self.lru.clean(unit);
        }
    }
}

impl Naive for Bcache {
    fn access(&mut self, t: &Touch) -> bool {
        let t0 = *self.t0.get_or_insert(t.now);
        while t0 + (self.updates + 1) * 5_000_000_000 <= t.now {
            self.updates += 1;
            self.update();
        }
        let run = self.streams.run(t);
        let hit = self.lru.touch(t);
        if !hit && run < self.cutoff {
            self.lru.insert(t);
        }
        if t.write && self.lru.dirty_count() * 100 <= self.lru.slots * 40 {
            self.lru.dirty(t.unit);
        }
        hit
    }
    fn counts(&self) -> Counts {
        self.lru.counts
    }
}

pub struct OpenCas {
    lru: Lru,
    streams: Streams,
    seen: BTreeMap<u32, u32>,
    acp: bool,
    cutoff: u64,
    flush_max: usize,
    t0: Option<u64>,
    rounds: u64,
    last: u64,
}

impl OpenCas {
    pub fn new(slots: usize, acp: bool, cutoff: u64, flush_max: usize) -> OpenCas {
        OpenCas {
            lru: Lru {
                slots,
                ..Lru::default()
            },
            streams: Streams::default(),
            seen: BTreeMap::new(),
            acp,
            cutoff,
            flush_max,
            t0: None,
            rounds: 0,
            last: 0,
        }
    }
    /// Cleans once; returns whether there was something to clean.
    fn round(&mut self, now: u64) -> bool {
        if self.acp {
            let chunk = |u: u32| u / (100 << 20 >> SHIFT);
            let mut by_chunk: BTreeMap<u32, Vec<(u64, u32)>> = BTreeMap::new();
            for c in self.lru.copies.iter().filter(|c| c.dirty) {
                by_chunk
                    .entry(chunk(c.unit))
                    .or_default()
                    .push((c.dirtied, c.unit));
            }
            let most = by_chunk
                .iter()
                .max_by_key(|(n, v)| (v.len(), std::cmp::Reverse(**n)));
            let Some((_, units)) = most else { return false };
            let mut units = units.clone();
            units.sort_unstable();
            for (_, unit) in units.into_iter().take(self.flush_max) {
                self.lru.clean(unit);
            }
            return true;
        }
        if now - self.last >= 10_000_000_000 {
            let stale = |c: &&Copied| c.dirty && now >= c.used + 120_000_000_000;
            let units: Vec<u32> = self
                .lru
                .copies
                .iter()
                .filter(stale)
                .map(|c| c.unit)
                .collect();
            for unit in units {
                self.lru.clean(unit);
            }
        }
        true
    }
}

impl Naive for OpenCas {
    fn access(&mut self, t: &Touch) -> bool {
        let t0 = *self.t0.get_or_insert(t.now);
        let period = if self.acp { 10_000_000 } else { 20_000_000_000 };
        while t0 + (self.rounds + 1) * period <= t.now {
            self.rounds += 1;
            if !self.round(t0 + self.rounds * period) {
                self.rounds = (t.now - t0) / period; // nothing is dirty until the present access
            }
        }
        self.last = t.now;
        let run = self.streams.run(t);
        let hit = self.lru.touch(t);
        if !hit && (!self.lru.full() || run < self.cutoff) {
            let n = self.seen.entry(t.unit).or_default();
            *n += 1;
            let under_load = self.lru.copies.len() * 100 >= self.lru.slots * 80;
            if !under_load || *n >= 3 {
                *n = 0;
                self.lru.insert(t);
            }
        }
        if t.write {
            self.lru.dirty(t.unit);
        }
        hit
    }
    fn counts(&self) -> Counts {
        self.lru.counts
    }
}
