//! A run in phases: the work of each phase by class of data, and the resulting content of the fastest tier (DSS 5.3). It also keeps the
//! times of each request, for callers that know which requests belong together.

use std::collections::BTreeMap;

use isotherm_core::stats::CLASSES;
use isotherm_core::units::ExtentId;
use isotherm_core::{Engine, Request, RequestOp, TierId};
use serde::Serialize;

use super::report::Usage;
use super::world::Mark;

/// Figures of a run from one request to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Phase {
    /// Number of requests, including flushes and discards.
    pub requests: u64,
    /// Seconds from its first request to the first request of the next phase, or to the last reply.
    pub elapsed_s: f64,
    /// Figures by class.
    pub classes: BTreeMap<u8, PhaseClass>,
    /// Bytes of extents on the fastest tier at its end, by the class that last touched them.
    pub cached_bytes: BTreeMap<u8, u64>,
    /// Bytes that fetches copied to faster tiers.
    pub fetched_bytes: u64,
    /// Bytes that were written back to homes.
    pub written_back_bytes: u64,
    /// Bytes of homes that were moved.
    pub migrated_bytes: u64,
    /// Promotions and fetches that the engine refused.
    pub refused_up: u64,
    /// The resources that were used.
    pub usage: Usage,
}

/// One class in one phase, in bytes of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseClass {
    /// Bytes read.
    pub read: u64,
    /// Bytes read from the fastest tier.
    pub fast_read: u64,
    /// Bytes written.
    pub written: u64,
}

impl Phase {
    /// The sum over all classes.
    pub fn all(&self) -> PhaseClass {
        let add = |a: PhaseClass, b: &PhaseClass| PhaseClass {
            read: a.read + b.read,
            fast_read: a.fast_read + b.fast_read,
            written: a.written + b.written,
        };
        self.classes.values().fold(PhaseClass::default(), add)
    }
}

/// The times of a request's start and answer, in nanoseconds of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The time of its start.
    pub begun: u64,
    /// The time at which its last piece was answered.
    pub answered: u64,
}

/// The state at the end of a phase.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub mark: Mark,
    requests: u64,
    classes: Vec<PhaseClass>,
    cached: BTreeMap<u8, u64>,
}

/// Collects the phases.
#[derive(Debug)]
pub(super) struct Phases {
    /// Number of requests before each phase, in ascending order.
    begins: Vec<u64>,
    pub ends: Vec<End>,
    classes: Vec<PhaseClass>,
    /// For each extent, the class that last touched it.
    of: Vec<u8>,
    shift: u32,
    pub replies: Vec<Reply>,
}

impl Phases {
    pub fn new(begins: &[u64], extents: u64, shift: u32) -> Phases {
        Phases {
            begins: begins.to_vec(),
            ends: Vec::new(),
            classes: vec![PhaseClass::default(); CLASSES],
            of: vec![0; extents as usize],
            shift,
            replies: Vec::new(),
        }
    }

    /// Whether a phase begins with this request.
    pub fn begins_at(&self, before: u64) -> bool {
        self.begins.get(self.ends.len()) == Some(&before)
    }

    pub fn end(&mut self, mark: Mark, requests: u64, engine: &Engine) {
        let space = engine.space();
        let mut cached = BTreeMap::new();
        for (row, &class) in self.of.iter().enumerate() {
            let e = ExtentId(row as u32);
            let slot = space.map.copy(e).or(space.map.home(e));
            if slot.is_some_and(|s| space.geo.tier_of(s) == TierId(0)) {
                *cached.entry(class).or_insert(0) += 1 << self.shift;
            }
        }
        self.ends.push(End {
            mark,
            requests,
            classes: self.classes.clone(),
            cached,
        });
    }

    /// Records that a request, or a piece of one, was submitted.
    pub fn submitted(&mut self, now: u64, req: &Request, first: bool) {
        if first {
            self.replies.push(Reply {
                begun: now,
                answered: now,
            });
        }
        let len = u64::from(req.len);
        let class = &mut self.classes[usize::from(req.class) % CLASSES];
        match req.op {
            RequestOp::Read => class.read += len,
            RequestOp::Write => class.written += len,
            _ => return,
        }
        if len > 0 {
            let (from, to) = (
                req.offset >> self.shift,
                (req.offset + len - 1) >> self.shift,
            );
            let rows = self.of.get_mut(from as usize..=to as usize);
            if let Some(rows) = rows {
                rows.fill(req.class);
            }
        }
    }

    pub fn served_by_fastest(&mut self, class: u8, len: u32) {
        self.classes[usize::from(class) % CLASSES].fast_read += u64::from(len);
    }

    pub fn answered(&mut self, request: u64, now: u64) {
        if let Some(r) = self.replies.get_mut(request as usize) {
            r.answered = r.answered.max(now);
        }
    }

    /// The phases. `usage` gives the resources that were used between two marks.
    pub fn finish(&self, usage: impl Fn(&Mark, &Mark) -> Usage) -> Vec<Phase> {
        let pairs = self.ends.windows(2);
        pairs.map(|w| phase(&w[0], &w[1], &usage)).collect()
    }
}

fn phase(a: &End, b: &End, usage: &impl Fn(&Mark, &Mark) -> Usage) -> Phase {
    let (c, w) = (&b.mark.counters, &a.mark.counters);
    let classes = b.classes.iter().zip(&a.classes).enumerate();
    let classes = classes.filter_map(|(i, (b, a))| {
        let d = PhaseClass {
            read: b.read - a.read,
            fast_read: b.fast_read - a.fast_read,
            written: b.written - a.written,
        };
        (d != PhaseClass::default()).then_some((i as u8, d))
    });
    let refused = |c: &isotherm_core::stats::Counters| {
        let up = c.promotions.refused.iter().chain(&c.fetches.refused);
        up.sum::<u64>()
    };
    Phase {
        requests: b.requests - a.requests,
        elapsed_s: b.mark.now.saturating_sub(a.mark.now) as f64 / 1e9,
        classes: classes.collect(),
        cached_bytes: b.cached.clone(),
        fetched_bytes: c.fetched_bytes - w.fetched_bytes,
        written_back_bytes: c.written_back_bytes - w.written_back_bytes,
        migrated_bytes: c.migrated_bytes - w.migrated_bytes,
        refused_up: refused(c) - refused(w),
        usage: usage(&a.mark, &b.mark),
    }
}
