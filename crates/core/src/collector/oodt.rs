//! `oodt`: inverse request size after merging through an access queue (OODT III; docs/policy-rules.md section 4).
//!
//! A request of s blocks that leaves the queue (`access_queue.rs`) gives each of its blocks
//! p = (1/s) · (1 + w_read·\[read\] + w_metadata·\[metadata\]), in binary64. For tiers below the first, a second sum without the read
//! term is used; it is kept only if there are more than two tiers.
//!
//! Metadata means classes 1…7 (docs/policy-rules.md section 9).
//!
//! For comparison (OODT figure 2), `cost` replaces 1/s by the measure of earlier work, without a queue and for every access:
//! `frequency` adds 1; `sequence` adds 1, or nothing if the request continues one of the last 32 streams or is of 64 KiB or more, as in
//! `raf`; `inverse-bitmap` adds that collector's increment divided by 64. The weights apply to all.
//!
//! | parameter | range | default | unit |
//! |---|---|---|---|
//! | cost | `queue`, `frequency`, `sequence`, `inverse-bitmap` | `queue` | the amount that an access adds |
//! | queue | 1…64 | 8 | pending requests |
//! | w_read | 0…100 | 0.1 | extra weight of reads |
//! | w_metadata | 0…100 | 0.1 | extra weight of metadata |
//! | decay | 0…1 | 1 | factor on all priorities at each migration; 1: none, as published |
//! | statistics | 0…10⁹ | 0 | maximum number of units whose priority is remembered; the least recently scored are dropped first (OODT 5.1); 0: all |
//!
//! Memory: 8 bytes per extent (16 with more than two tiers), 24 per fast slot, 1 bit per extent; with `statistics`, 8 bytes more per extent
//! for their order. With a decay below 1, a migration reads and writes every priority once.

use super::{AccessQueue, Coldest, Collector, Lists, Pending, Raised, Rank, Streams, weight};
use crate::policy::{Access, View, is_metadata};
use crate::units::TierId;
use crate::volume::{Position, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// A request of at least this number of bytes is sequential under [`Cost::Sequence`].
const SEQUENTIAL: u32 = 65_536;

/// The amount that an access adds, before the weights of reads and metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    Queue,
    Frequency,
    Sequence,
    InverseBitmap,
}

const COSTS: [(&str, Cost); 4] = [
    ("queue", Cost::Queue),
    ("frequency", Cost::Frequency),
    ("sequence", Cost::Sequence),
    ("inverse-bitmap", Cost::InverseBitmap),
];

/// See the module.
#[derive(Clone, Debug)]
pub struct Oodt {
    cost: Cost,
    streams: Streams,
    queue: AccessQueue,
    w_read: f64,
    w_metadata: f64,
    decay: f64,
    /// Maximum number of remembered units; 0 for all.
    statistics: u32,
    priority: Vec<f64>,
    /// The sum without the read term; used with three tiers or more.
    lower: Vec<f64>,
    coldest: Coldest,
    raised: Raised,
    /// Units whose priority was dropped, so that their ranks in the order of the fast tier are too high.
    shrunk: Vec<UnitId>,
    /// Scored units, least recently scored first. Used only if statistics are bounded.
    known: Option<Lists>,
    known_count: u32,
}

impl Default for Oodt {
    fn default() -> Oodt {
        Oodt {
            cost: Cost::Queue,
            streams: Streams::default(),
            queue: AccessQueue::default(),
            w_read: 0.1,
            w_metadata: 0.1,
            decay: 1.0,
            statistics: 0,
            priority: Vec::new(),
            lower: Vec::new(),
            coldest: Coldest::default(),
            raised: Raised::default(),
            shrunk: Vec::new(),
            known: None,
            known_count: 0,
        }
    }
}

/// The rank of a unit. Priorities are not negative, so the bits of the numbers have the same order as the numbers.
fn rank(p: f64, e: UnitId) -> Rank {
    (p.to_bits(), u64::from(u32::MAX - e.0))
}

impl Oodt {
    fn score(&mut self, r: Pending) {
        self.gain(r, 1.0 / f64::from(r.end - r.start + 1));
    }
    /// Adds `share`, multiplied by the weights, to each block of `r`.
    fn gain(&mut self, r: Pending, share: f64) {
        let metadata = if r.metadata { self.w_metadata } else { 0.0 };
        let read = if r.write { 0.0 } else { self.w_read };
        for b in r.start..=r.end {
            self.priority[b as usize] += share * (1.0 + read + metadata);
            if let Some(p) = self.lower.get_mut(b as usize) {
                *p += share * (1.0 + metadata);
            }
            self.raised.note(UnitId(b));
            self.remember(b);
        }
    }
    /// Notes that `b` was scored. With bounded statistics, the unit that was scored longest ago may be dropped.
    fn remember(&mut self, b: u32) {
        let Some(list) = &mut self.known else {
            return;
        };
        self.known_count += u32::from(!list.contains(b));
        list.unlink(b);
        list.push_tail(0, b);
        if self.known_count > self.statistics
            && let Some(old) = list.head(0)
        {
            list.unlink(old);
            self.known_count -= 1;
            self.drop_priority(old);
        }
    }
    fn drop_priority(&mut self, b: u32) {
        self.priority[b as usize] = 0.0;
        if let Some(p) = self.lower.get_mut(b as usize) {
            *p = 0.0;
        }
        self.shrunk.push(UnitId(b));
    }
    /// The priority, and the sum without the read term if it is kept.
    pub fn priorities(&self, e: UnitId) -> (f64, Option<f64>) {
        let i = e.0 as usize;
        (self.priority[i], self.lower.get(i).copied())
    }
    /// The amount that `access` adds by itself; `None` with the queue.
    fn share(&mut self, access: &Access) -> Option<f64> {
        match self.cost {
            Cost::Queue => None,
            Cost::Frequency => Some(1.0),
            Cost::Sequence => {
                let continues = self.streams.note(access).0;
                let random = !continues && access.request_bytes < SEQUENTIAL;
                Some(f64::from(u8::from(random)))
            }
            Cost::InverseBitmap => Some(f64::from(weight(access.request_bytes)) / 64.0),
        }
    }
}

impl Collector for Oodt {
    fn name(&self) -> &'static str {
        "oodt"
    }
    fn attach(&mut self, view: &mut View<'_>) {
        let n = view.units() as usize;
        self.priority = vec![0.0; n];
        if view.tiers() > 2 {
            self.lower = vec![0.0; n];
        }
        self.coldest = Coldest::new(view);
        self.raised = Raised::new(n as u32);
        self.known = (self.statistics > 0).then(|| Lists::new(n as u32, 1));
    }
    fn touch(&mut self, view: &mut View<'_>, access: &Access) {
        let metadata = is_metadata(access.class);
        let b = access.extent.0;
        match self.share(access) {
            None => {
                if let Some(r) = self.queue.access(b, access.write, metadata) {
                    self.score(r);
                }
            }
            Some(share) if share > 0.0 => {
                let alone = Pending {
                    start: b,
                    end: b,
                    write: access.write,
                    metadata,
                };
                self.gain(alone, share);
            }
            Some(_) => {}
        }
        view.set_last(access.extent, access.now);
    }
    fn placed(&mut self, view: &mut View<'_>, _extent: UnitId, position: Position) {
        self.coldest.enter(view.tier_of(position), position);
    }
    fn left(&mut self, view: &mut View<'_>, _extent: UnitId, position: Position) {
        self.coldest.leave(view.tier_of(position), position);
    }
    fn forget(&mut self, extent: UnitId) {
        if let Some(list) = &mut self.known {
            self.known_count -= u32::from(list.contains(extent.0));
            list.unlink(extent.0);
        }
        self.drop_priority(extent.0);
    }
    fn coldest(&mut self, view: &mut View<'_>, tier: TierId) -> Option<UnitId> {
        for e in self.shrunk.drain(..) {
            if let Some(s) = view.home(e) {
                self.coldest.enter(view.tier_of(s), s);
            }
        }
        let priority = &self.priority;
        self.coldest
            .find(view, tier, |e| rank(priority[e.0 as usize], e))
    }
    fn rank(&self, _view: &View<'_>, extent: UnitId) -> Rank {
        rank(self.priority[extent.0 as usize], extent)
    }
    fn lower_worth(&self, _view: &View<'_>, extent: UnitId) -> u64 {
        let i = extent.0 as usize;
        self.lower.get(i).unwrap_or(&self.priority[i]).to_bits()
    }
    fn settle(&mut self, _view: &mut View<'_>) {
        while let Some(r) = self.queue.pop() {
            self.score(r);
        }
        // All priorities are multiplied by the same factor, so the order does not change, and the decay may come before or after the
        // ranking.
        if self.decay < 1.0 {
            for p in self.priority.iter_mut().chain(&mut self.lower) {
                *p *= self.decay;
            }
            self.coldest.again();
        }
    }
    fn raised(&mut self, out: &mut Vec<UnitId>) {
        self.raised.take(out);
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let idle = view.last_words(extent);
        let (p, lower) = self.priorities(extent);
        let lower = lower.map_or(String::new(), |l| {
            format!(" ({l:.4} without the weight of reads, for slower tiers)")
        });
        format!("priority {p:.4}{lower}, {idle}")
    }
    fn set(&mut self, key: &str, value: f64) -> Option<Result<(), &'static str>> {
        let check = |ok: bool, what| if ok { Ok(()) } else { Err(what) };
        Some(match key {
            "queue" => check(
                (1.0..=64.0).contains(&value) && value % 1.0 == 0.0,
                "pending requests, a whole number from 1 to 64",
            )
            .map(|()| self.queue.resize(value as usize)),
            "w_read" => check((0.0..=100.0).contains(&value), "a weight from 0 to 100")
                .map(|()| self.w_read = value),
            "w_metadata" => check((0.0..=100.0).contains(&value), "a weight from 0 to 100")
                .map(|()| self.w_metadata = value),
            "decay" => check((0.0..=1.0).contains(&value), "a factor from 0 to 1")
                .map(|()| self.decay = value),
            "statistics" => check(
                self.priority.is_empty() && (0.0..=1e9).contains(&value) && value % 1.0 == 0.0,
                "units, a whole number from 0 (all) to 10^9, before the volume is opened",
            )
            .map(|()| self.statistics = value as u32),
            _ => return None,
        })
    }
    fn set_name(&mut self, key: &str, name: &str) -> Option<Result<(), &'static str>> {
        (key == "cost").then(|| {
            let known = COSTS.iter().find(|c| c.0 == name);
            let cost = known.ok_or("queue, frequency, sequence or inverse-bitmap")?;
            // Requests that wait in the queue were counted by the rule of the queue.
            while let Some(r) = self.queue.pop() {
                self.score(r);
            }
            self.cost = cost.1;
            Ok(())
        })
    }
    fn names(&self) -> Vec<(&'static str, String)> {
        let name = COSTS.iter().find(|c| c.1 == self.cost).map(|c| c.0);
        vec![("cost", String::from(name.unwrap_or_default()))]
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("queue", self.queue.size() as f64),
            ("w_read", self.w_read),
            ("w_metadata", self.w_metadata),
            ("decay", self.decay),
            ("statistics", f64::from(self.statistics)),
        ]
    }
    fn bytes(&self) -> usize {
        (self.priority.len() + self.lower.len()) * 8
            + self.coldest.bytes()
            + self.raised.bytes()
            + self.streams.bytes()
            + self.known.as_ref().map_or(0, Lists::bytes)
    }
}
