//! A naive implementation of docs/policy-rules.md, section 6, with the choices that the comments in the policies' source files state.

use crate::reference::{Counts, Naive, SHIFT, Touch};
use std::collections::{BTreeMap, BTreeSet};

/// Ends of streams, most recent last.
#[derive(Default)]
pub struct Streams {
    ends: Vec<u64>,
    sequential: bool,
}

impl Streams {
    fn continues(&mut self, t: &Touch) -> bool {
        if t.first {
            let at = self.ends.iter().rposition(|e| *e == t.offset);
            self.sequential = at.is_some();
            if let Some(i) = at {
                self.ends.remove(i);
            } else if self.ends.len() == 32 {
                self.ends.remove(0);
            }
            self.ends.push(t.offset + u64::from(t.bytes));
        }
        self.sequential
    }
}

#[derive(Clone, Copy)]
struct Copied {
    unit: u32,
    writes: bool,
    dirty: bool,
}

#[derive(Default)]
pub struct Raf {
    reads: usize,
    writes: usize,
    streams: Streams,
    seen: BTreeSet<u32>,
    lru: Vec<Copied>,
    counts: Counts,
}

impl Raf {
    pub fn new(slots: usize) -> Raf {
        let writes = (slots / 10).max(1).min((slots - 1).max(1));
        Raf {
            reads: slots - writes,
            writes,
            ..Raf::default()
        }
    }
}

/// Removes the oldest entry of a share.
fn drop_oldest(lru: &mut Vec<Copied>, writes: bool, counts: &mut Counts) {
    let i = lru
        .iter()
        .position(|c| c.writes == writes)
        .expect("share is full");
    counts.evictions += 1;
    counts.writebacks += u64::from(lru.remove(i).dirty);
}

impl Naive for Raf {
    fn access(&mut self, t: &Touch) -> bool {
        let sequential = self.streams.continues(t) || t.bytes >= 65_536;
        if let Some(i) = self.lru.iter().position(|c| c.unit == t.unit) {
            let mut c = self.lru.remove(i);
            c.dirty |= t.write;
            self.lru.push(c);
            return true;
        }
        if sequential {
            return false;
        }
        let second = !self.seen.insert(t.unit);
        if !t.write && !second {
            return false;
        }
        let limit = if t.write { self.writes } else { self.reads };
        if limit == 0 {
            return false;
        }
        if self.lru.iter().filter(|c| c.writes == t.write).count() == limit {
            drop_oldest(&mut self.lru, t.write, &mut self.counts);
        }
        self.counts.fetches += 1;
        self.lru.push(Copied {
            unit: t.unit,
            writes: t.write,
            dirty: t.write,
        });
        false
    }
    fn counts(&self) -> Counts {
        self.counts
    }
}

pub struct Azor {
    lines: Vec<Option<u32>>,
    units: BTreeMap<u32, (bool, u32)>,
    counts: Counts,
}

impl Azor {
    pub fn new(slots: usize) -> Azor {
        Azor {
            lines: vec![None; slots],
            units: BTreeMap::new(),
            counts: Counts::default(),
        }
    }
}

impl Naive for Azor {
    fn access(&mut self, t: &Touch) -> bool {
        let u = self.units.entry(t.unit).or_default();
        *u = ((1..=7).contains(&t.class), u.1 + 1);
        let (metadata, count) = *u;
        let i = t.unit as usize % self.lines.len();
        let takes = match self.lines[i] {
            Some(h) if h == t.unit => return true,
            None => true,
            Some(h) => {
                let (m, n) = self.units[&h];
                self.counts.evictions +=
                    u64::from((metadata && !m) || (metadata == m && count > n));
                (metadata && !m) || (metadata == m && count > n)
            }
        };
        if takes {
            self.counts.fetches += 1;
            self.lines[i] = Some(t.unit);
        }
        false
    }
    fn counts(&self) -> Counts {
        self.counts
    }
}

pub struct Hystor {
    remap: usize,
    writes: usize,
    window: u64,
    t0: Option<u64>,
    windows: u64,
    units: BTreeMap<u32, (u32, bool)>,
    lru: Vec<Copied>, // `writes` false: remap share
    counts: Counts,
}

impl Hystor {
    pub fn new(slots: usize, window: u64) -> Hystor {
        let remap = (slots * 8 / 10).min(slots - 1);
        Hystor {
            remap,
            writes: slots - remap,
            window,
            t0: None,
            windows: 0,
            units: BTreeMap::new(),
            lru: Vec::new(),
            counts: Counts::default(),
        }
    }
    fn worth(&self, unit: u32) -> u64 {
        let (n, metadata) = self.units[&unit];
        let near = |x: u32| self.units.get(&x).map_or(0, |u| u.0 / 4);
        if metadata {
            return 1 << 32;
        }
        u64::from(
            n.max(near(unit + 1))
                .max(unit.checked_sub(1).map_or(0, near)),
        )
    }
    fn plan(&mut self) {
        let here = |s: &Self, u: u32| s.lru.iter().any(|c| c.unit == u && !c.writes);
        let mut order: Vec<(u64, bool, u32)> = self
            .units
            .keys()
            .map(|&u| (self.worth(u), here(self, u), u))
            .filter(|x| x.0 > 0 || x.1)
            .collect();
        order.sort_by_key(|x| (std::cmp::Reverse(x.0), !x.1, x.2));
        order.truncate(self.remap);
        let chosen: BTreeSet<u32> = order.iter().map(|x| x.2).collect();
        let gone: Vec<Copied> = self
            .lru
            .extract_if(.., |c| !c.writes && !chosen.contains(&c.unit))
            .collect();
        self.counts.evictions += gone.len() as u64;
        self.counts.writebacks += gone.iter().filter(|c| c.dirty).count() as u64;
        for unit in chosen {
            if let Some(c) = self.lru.iter_mut().find(|c| c.unit == unit) {
                c.writes = false;
            } else {
                self.counts.fetches += 1;
                self.lru.push(Copied {
                    unit,
                    writes: false,
                    dirty: false,
                });
            }
        }
        for u in self.units.values_mut() {
            u.0 /= 2;
        }
    }
}

impl Naive for Hystor {
    fn access(&mut self, t: &Touch) -> bool {
        let t0 = *self.t0.get_or_insert(t.now);
        while t0 + (self.windows + 1) * self.window <= t.now {
            self.windows += 1;
            self.plan();
        }
        let pages = t.bytes.div_ceil(4096);
        let b = if pages > 64 {
            1
        } else {
            1 << (6 - pages.ilog2())
        };
        let u = self.units.entry(t.unit).or_default();
        *u = (u.0 + b, u.1 || (1..=7).contains(&t.class));
        if let Some(i) = self.lru.iter().position(|c| c.unit == t.unit) {
            let mut c = self.lru.remove(i);
            c.dirty |= t.write;
            self.lru.push(c);
            return true;
        }
        if t.write {
            if self.lru.iter().filter(|c| c.writes).count() == self.writes {
                drop_oldest(&mut self.lru, true, &mut self.counts);
            }
            self.counts.fetches += 1;
            self.lru.push(Copied {
                unit: t.unit,
                writes: true,
                dirty: true,
            });
        }
        false
    }
    fn counts(&self) -> Counts {
        self.counts
    }
}

pub struct Edt {
    fast: usize,
    slow: usize,
    interval: u64,
    t0: Option<u64>,
    plans: u64,
    streams: Streams,
    /// Number of random requests, sequential bytes / 512, whether the unit is on fast.
    units: BTreeMap<u32, (u32, u32, bool)>,
    counts: Counts,
}

impl Edt {
    pub fn new(fast: usize, slow: usize, interval: u64) -> Edt {
        Edt {
            fast,
            slow,
            interval,
            t0: None,
            plans: 0,
            streams: Streams::default(),
            units: BTreeMap::new(),
            counts: Counts::default(),
        }
    }
    fn plan(&mut self) {
        let seconds = self.interval as f64 / 1e9;
        let mut wants: Vec<(f64, bool, u32)> = Vec::new();
        for (&n, &(random, sectors, fast)) in &self.units {
            let (rate, bandwidth) = (
                f64::from(random) / seconds,
                f64::from(sectors) * 512.0 / seconds,
            );
            let cost = |iops: f64, bw: f64, slots: usize, price: f64| {
                let slots = slots as f64;
                (rate / iops).max(bandwidth / bw).max(1.0 / slots) * (price * slots)
            };
            let saving = cost(180.0, 1e8, self.slow, 1.0) - cost(20_000.0, 2.5e8, self.fast, 20.0);
            if saving > 0.0 {
                wants.push((saving, !fast, n));
            }
        }
        wants.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        wants.truncate(self.fast);
        for (n, u) in &mut self.units {
            let goes = wants.iter().any(|w| w.2 == *n);
            self.counts.promotions += u64::from(goes && !u.2);
            self.counts.demotions += u64::from(!goes && u.2);
            *u = (0, 0, goes);
        }
    }
}

impl Naive for Edt {
    fn access(&mut self, t: &Touch) -> bool {
        let t0 = *self.t0.get_or_insert(t.now);
        while t0 + (self.plans + 1) * self.interval <= t.now {
            self.plans += 1;
            self.plan();
        }
        let sequential = self.streams.continues(t);
        let (from, to) = (u64::from(t.unit) << SHIFT, (u64::from(t.unit) + 1) << SHIFT);
        let bytes = (t.offset + u64::from(t.bytes)).min(to) - t.offset.max(from);
        let u = self.units.entry(t.unit).or_default();
        if sequential {
            u.1 += (bytes / 512) as u32;
        } else {
            u.0 += 1;
        }
        u.2
    }
    fn counts(&self) -> Counts {
        self.counts
    }
}
