//! What no policy can beat: bounds computed with the whole trace known.
//!
//! A policy's *service cost* is `misses · slow + hits · fast + moves`, each move at its price: what the devices would take one
//! after the other. The bounds are on that sum and on the number of hits, so they hold for every order and every queue.
//!
//! **Hits, demand fill** ([`belady`]): L. A. Belady's MIN (IBM Systems Journal 5, 1966) with bypass: on a miss the unit that
//! is used farthest in the future goes, or never comes. No policy that places a unit on tier 0 only when it is accessed has
//! more hits. A planner that fetches units nobody is just accessing may have more; its fetches count in the service cost.
//!
//! **Service cost** ([`interval_bound`]): the trace is cut into intervals of K accesses. Within one, a unit with n accesses saves
//! at most n · (slow − fast). F units may be on tier 0 when it begins (for tiering also: be placed there at their first touch);
//! every other saving costs at least one move, since for each further unit on tier 0 one has to come up or another to go down.
//! So per interval no policy saves more than `Σ max(0, saving − move) + Σ over the F largest of min(saving, move)`: a knapsack
//! whose items all weigh one slot, solved by taking the largest. How the first F came there is not charged, therefore it is a
//! bound and not a schedule. The tightest over several K counts.
//!
//! **Service cost, demand write-back caching** ([`write_back_bound`]): as many hits as MIN at most; every unit with hits is
//! fetched once at least; every unit with more hits than it has later reads was written on tier 0, so it is written home once
//! or is among the F that are dirty at the end.

use std::collections::BinaryHeap;

use isotherm_traces::Op;
use serde::Serialize;

use crate::LabError;
use crate::sim::{Report, Shape, Source, Touched, span};

/// Seconds that the devices take for one extent, mean of reads and writes as the trace mixes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Prices {
    /// An access that tier 0 serves.
    pub fast_s: f64,
    /// Any other.
    pub slow_s: f64,
    /// Moving a home up: read slow, write fast.
    pub promotion_s: f64,
    /// Moving a home down: read fast, write slow.
    pub demotion_s: f64,
    /// Making a copy of what was just read: write fast.
    pub fetch_s: f64,
    /// Writing a dirty copy home: read fast, write slow.
    pub writeback_s: f64,
}

impl Prices {
    /// The service cost of a run.
    pub fn of(&self, r: &Report) -> f64 {
        let hits = (r.fast_hit_ratio * r.accesses as f64).round();
        (r.accesses as f64 - hits) * self.slow_s
            + hits * self.fast_s
            + r.promotions as f64 * self.promotion_s
            + r.demotions as f64 * self.demotion_s
            + r.fetches as f64 * self.fetch_s
            + r.writebacks as f64 * self.writeback_s
    }
    fn saved(&self) -> f64 {
        (self.slow_s - self.fast_s).max(0.0)
    }
}

const WRITE: u32 = 1 << 31;
const NEVER: u32 = u32::MAX;

/// The extent accesses of a trace: 4 bytes each.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    units: Vec<u32>,
    extents: usize,
}

impl Sequence {
    /// From unit numbers below `extents` and whether each is a write.
    pub fn new(extents: u32, accesses: impl Iterator<Item = (u32, bool)>) -> Sequence {
        Sequence {
            units: accesses
                .map(|(u, w)| u | if w { WRITE } else { 0 })
                .collect(),
            extents: extents as usize,
        }
    }
    /// The accesses of `source`, with the rows that the run uses.
    ///
    /// # Errors
    /// It cannot be read, or has more than 2³² accesses.
    pub fn load(
        source: &dyn Source,
        touched: &Touched,
        shape: &Shape,
        limit: Option<u64>,
    ) -> Result<Sequence, LabError> {
        let mut rows = shape.rows(touched);
        let mut units = Vec::new();
        let mut reader = source.open()?;
        let mut reading = std::time::Duration::ZERO;
        crate::sim::each_batch(reader.as_mut(), limit, &mut reading, |batch| {
            for r in batch
                .iter()
                .filter(|r| matches!(r.op, Op::Read | Op::Write))
            {
                let mut r = *r;
                touched.devices.map(&mut r);
                let (from, to) = span(&r, touched.shift);
                let first = rows.row(from) as u32;
                let mark = if r.op == Op::Write { WRITE } else { 0 };
                units.extend((first..=first + (to - from) as u32).map(|u| u | mark));
            }
            if units.len() >= NEVER as usize {
                return Err(LabError::setup(
                    "the trace has too many accesses for a bound: use --limit",
                ));
            }
            Ok(())
        })?;
        Ok(Sequence {
            units,
            extents: shape.extents as usize,
        })
    }
    /// Accesses.
    pub fn len(&self) -> usize {
        self.units.len()
    }
    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }
    /// Share of reads.
    pub fn read_share(&self) -> f64 {
        let reads = self.units.iter().filter(|u| **u & WRITE == 0).count();
        reads as f64 / self.units.len().max(1) as f64
    }
    fn unit(&self, i: usize) -> usize {
        (self.units[i] & !WRITE) as usize
    }
    /// Place of each access's next one to the same unit.
    fn next_uses(&self) -> Vec<u32> {
        let mut last = vec![NEVER; self.extents];
        let mut next = vec![NEVER; self.units.len()];
        for i in (0..self.units.len()).rev() {
            next[i] = std::mem::replace(&mut last[self.unit(i)], i as u32);
        }
        next
    }
}

/// The most hits that demand fill can have with `slots` on tier 0. See the module.
pub fn belady(s: &Sequence, slots: u64) -> u64 {
    let next = s.next_uses();
    // Next use of what is resident; NEVER = not resident.
    let mut resident = vec![NEVER; s.extents];
    let mut heap: BinaryHeap<(u32, u32)> = BinaryHeap::new();
    let (mut count, mut hits) = (0u64, 0u64);
    for (i, &after) in next.iter().enumerate() {
        let u = s.unit(i);
        let was = std::mem::replace(&mut resident[u], after) != NEVER;
        hits += u64::from(was);
        count -= u64::from(was);
        if after == NEVER {
            continue;
        }
        heap.push((after, u as u32));
        count += 1;
        if count > slots {
            while let Some((at, v)) = heap.pop() {
                if resident[v as usize] == at {
                    resident[v as usize] = NEVER;
                    count -= 1;
                    break;
                }
            }
        }
        if heap.len() > 4 * count as usize + 4096 {
            heap.retain(|&(at, v)| resident[v as usize] == at);
        }
    }
    hits
}

/// Service cost that no policy of a kind is below, and the interval that gave it. See the module.
pub fn interval_bound(s: &Sequence, slots: u64, p: &Prices, caching: bool) -> (f64, usize) {
    let all = s.len() as f64 * p.slow_s;
    let mut best = (0.0f64, 0);
    let mut k = (slots as usize / 2).clamp(1, s.len().max(1));
    loop {
        let cost = all - savings(s, slots, p, caching, k);
        if cost > best.0 {
            best = (cost, k);
        }
        if k >= s.len() {
            return best;
        }
        k = k.saturating_mul(2).min(s.len());
    }
}

fn savings(s: &Sequence, slots: u64, p: &Prices, caching: bool, k: usize) -> f64 {
    let d = p.saved();
    let price = if caching {
        p.fetch_s
    } else {
        p.promotion_s.min(p.demotion_s)
    };
    let mut seen = vec![false; s.extents];
    let mut counts = vec![0u32; s.extents];
    let (mut units, mut free) = (Vec::new(), Vec::new());
    let (mut total, mut start) = (0.0, 0);
    while start < s.len() {
        let end = (start + k).min(s.len());
        for i in start..end {
            let u = s.unit(i);
            if counts[u] == 0 {
                units.push(u);
            }
            counts[u] += 1;
        }
        for &u in &units {
            // The first touch of all is no hit for anybody.
            let first = !std::mem::replace(&mut seen[u], true);
            let saving = f64::from(counts[u] - u32::from(first)) * d;
            counts[u] = 0;
            total += (saving - price).max(0.0);
            // A copy of what was never touched cannot be there when the interval begins.
            if !(caching && first) {
                free.push(saving.min(price));
            }
        }
        let n = free.len().min(slots as usize);
        if n < free.len() {
            free.select_nth_unstable_by(n, |a, b| b.total_cmp(a));
        }
        total += free[..n].iter().sum::<f64>();
        units.clear();
        free.clear();
        start = end;
    }
    total
}

/// Service cost that no demand-filled write-back cache is below; `hits` is what [`belady`] says. See the module.
pub fn write_back_bound(s: &Sequence, slots: u64, p: &Prices, hits: u64) -> f64 {
    let d = p.saved();
    let mut again = vec![(0u32, 0u32); s.extents];
    let mut seen = vec![false; s.extents];
    for i in 0..s.len() {
        let u = s.unit(i);
        if std::mem::replace(&mut seen[u], true) {
            again[u].0 += 1;
            again[u].1 += u32::from(s.units[i] & WRITE == 0);
        }
    }
    let (mut total, mut spared) = (0.0, Vec::new());
    for (all, reads) in again {
        let (all, reads) = (f64::from(all) * d, f64::from(reads) * d);
        // With the write-back, without it by hits on reads alone, and with it forgiven.
        let (best, forgiven) = ((all - p.writeback_s).max(reads), all);
        let charged = (best - p.fetch_s).max(0.0);
        total += charged;
        let gain = (forgiven - p.fetch_s).max(0.0) - charged;
        if gain > 0.0 {
            spared.push(gain);
        }
    }
    spared.sort_by(|a, b| b.total_cmp(a));
    total += spared.iter().take(slots as usize).sum::<f64>();
    s.len() as f64 * p.slow_s - total.min(hits as f64 * d)
}
