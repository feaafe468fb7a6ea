//! Bounds that no policy can beat, computed from the whole trace.
//!
//! The *service cost* of a policy is `misses · slow + hits · fast + moves`, with each move at its price: the time of the devices if they
//! worked one after another. The bounds are on that sum and on the number of hits, so they hold for every order and every queue.
//!
//! **Hits, demand fill** ([`belady`]): L. A. Belady's MIN (IBM Systems Journal 5, 1966) with bypass: on a miss, the unit whose next use is
//! farthest in the future is evicted or not admitted. No policy that places a unit on tier 0 only when it is accessed has more hits. A
//! planner that fetches units without an access may have more; its fetches count in the service cost.
//!
//! **Service cost** ([`interval_bound`]): the trace is divided into intervals of K accesses. Within an interval, a unit with n accesses
//! saves at most n · (slow − fast). F units may be on tier 0 when the interval begins (for tiering also: be placed there at their first
//! touch). Every other saving costs at least one move, because each further unit on tier 0 needs a promotion or a demotion. So no policy
//! saves more per interval than `Σ max(0, saving − move) + Σ over the F largest of min(saving, move)`: a knapsack whose items all weigh one
//! slot, which is solved by taking the largest. The arrival of the first F units is not charged, so the result is a bound and not a
//! schedule. The tightest bound over several K is used.
//!
//! **Service cost, demand write-back caching** ([`write_back_bound`]): there are at most as many hits as with MIN. Every unit with hits is
//! fetched at least once. Every unit with more hits than later reads was written on tier 0, so either it is written back once, or it is
//! among the F units that are dirty at the end.

use std::collections::BinaryHeap;

use isotherm_core::Nanos;
use isotherm_traces::Op;
use serde::Serialize;

use crate::LabError;
use crate::sim::{Report, Shape, Source, Touched, span};

/// Seconds of device time for one extent. They are means over reads and writes in the proportion of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prices {
    /// An access that tier 0 serves.
    pub fast_s: f64,
    /// An access that another tier serves.
    pub slow_s: f64,
    /// Promotion of a home: a read from slow and a write to fast.
    pub promotion_s: f64,
    /// Demotion of a home: a read from fast and a write to slow.
    pub demotion_s: f64,
    /// Copying an extent that was just read: a write to fast.
    pub fetch_s: f64,
    /// Writing back a dirty copy: a read from fast and a write to slow.
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

/// The extent accesses of a trace: 4 bytes each, and with times 16 bytes a request more.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    units: Vec<u32>,
    pub(crate) extents: usize,
    /// Of each request: its time, and how many accesses it is. Empty unless it was asked for.
    requests: Vec<(Nanos, u32)>,
}

impl Sequence {
    /// Made from unit numbers below `extents`, each with a flag for writes.
    pub fn new(extents: u32, accesses: impl Iterator<Item = (u32, bool)>) -> Sequence {
        Sequence {
            units: accesses
                .map(|(u, w)| u | if w { WRITE } else { 0 })
                .collect(),
            extents: extents as usize,
            requests: Vec::new(),
        }
    }
    /// The same with the time of each access, which is a request of its own.
    pub fn timed(extents: u32, accesses: impl Iterator<Item = (Nanos, u32, bool)>) -> Sequence {
        let all: Vec<_> = accesses.collect();
        let units = all.iter().map(|&(_, u, w)| (u, w));
        Sequence {
            requests: all.iter().map(|&(at, ..)| (at, 1)).collect(),
            ..Sequence::new(extents, units)
        }
    }
    /// The accesses of `source`, with the row numbers of the run; `timed`: with the time of each request.
    ///
    /// # Errors
    /// It cannot be read, or has more than 2³² accesses.
    pub fn load(
        source: &dyn Source,
        touched: &Touched,
        shape: &Shape,
        limit: Option<u64>,
        timed: bool,
    ) -> Result<Sequence, LabError> {
        let mut rows = shape.rows(touched);
        let (mut units, mut requests) = (Vec::new(), Vec::new());
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
                if timed {
                    requests.push((r.time, (to - from) as u32 + 1));
                }
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
            requests,
        })
    }
    /// Number of accesses.
    pub fn len(&self) -> usize {
        self.units.len()
    }
    /// Whether there are no accesses.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }
    /// Share of reads.
    pub fn read_share(&self) -> f64 {
        let reads = self.units.iter().filter(|u| **u & WRITE == 0).count();
        reads as f64 / self.units.len().max(1) as f64
    }
    /// Whether access `i` is a write.
    pub(crate) fn is_write(&self, i: usize) -> bool {
        self.units[i] & WRITE != 0
    }
    /// When each request came and how many accesses it is, if it was loaded with times.
    pub(crate) fn requests(&self) -> &[(Nanos, u32)] {
        &self.requests
    }
    pub(crate) fn unit(&self, i: usize) -> usize {
        (self.units[i] & !WRITE) as usize
    }
    /// For each access, the index of the next access to the same unit.
    pub(crate) fn next_uses(&self) -> Vec<u32> {
        let mut last = vec![NEVER; self.extents];
        let mut next = vec![NEVER; self.units.len()];
        for i in (0..self.units.len()).rev() {
            next[i] = std::mem::replace(&mut last[self.unit(i)], i as u32);
        }
        next
    }
}

/// The largest number of hits of any demand-fill policy with `slots` on tier 0. See the module.
pub fn belady(s: &Sequence, slots: u64) -> u64 {
    let next = s.next_uses();
    // Next use of each resident unit; NEVER = not resident.
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

/// A lower bound for the service cost of every policy of a kind, and the interval that gave it. See the module.
pub fn interval_bound(s: &Sequence, slots: u64, p: &Prices, caching: bool) -> (f64, usize) {
    let price = if caching {
        p.fetch_s
    } else {
        p.promotion_s.min(p.demotion_s)
    };
    tightest(s, slots, p, (price, caching))
}

/// The same for policies that have both homes and copies on tier 0: a first touch may be placed there, and a unit may also come as a copy.
pub fn mixed_bound(s: &Sequence, slots: u64, p: &Prices) -> f64 {
    let price = p.promotion_s.min(p.demotion_s).min(p.fetch_s);
    tightest(s, slots, p, (price, false)).0
}

/// The tightest bound over several lengths of the interval. `price` is that of a move; `caching`: a first touch is never on tier 0.
fn tightest(s: &Sequence, slots: u64, p: &Prices, kind: (f64, bool)) -> (f64, usize) {
    let all = s.len() as f64 * p.slow_s;
    let mut best = (0.0f64, 0);
    let mut k = (slots as usize / 2).clamp(1, s.len().max(1));
    loop {
        let cost = all - savings(s, slots, p.saved(), kind, k);
        if cost > best.0 {
            best = (cost, k);
        }
        if k >= s.len() {
            return best;
        }
        k = k.saturating_mul(2).min(s.len());
    }
}

fn savings(s: &Sequence, slots: u64, d: f64, (price, caching): (f64, bool), k: usize) -> f64 {
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
            // The first touch of a unit is never a hit.
            let first = !std::mem::replace(&mut seen[u], true);
            let saving = f64::from(counts[u] - u32::from(first)) * d;
            counts[u] = 0;
            total += (saving - price).max(0.0);
            // A unit that was never touched cannot have a copy when the interval begins.
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

/// A lower bound for the service cost of every demand-filled write-back cache; `hits` is the result of [`belady`]. See the module.
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
        // The saving with the write-back or by hits on reads alone, and the saving if the write-back is not charged.
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
