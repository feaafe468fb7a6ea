//! Which clean copies durable records keep over a crash: those that the policy wants to keep.
#![allow(clippy::unwrap_used)]

mod rig;

use isotherm_core::engine::Params;
use isotherm_core::policy::{
    Access, Action, Outcome, ParamError, Place, Policy, View, WriteTo, build,
};
use isotherm_core::*;
use rig::Run;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// `lru`, of which only the copies of extents below a number are kept.
struct Keeps {
    lru: Box<dyn Policy>,
    below: Arc<AtomicU32>,
    /// The last time at which it was asked, how often then, and how often at most at one time.
    asked: Arc<Mutex<(Nanos, u32, u32)>>,
}

impl Policy for Keeps {
    fn inner(&self) -> Option<&dyn Policy> {
        Some(&*self.lru)
    }
    fn inner_mut(&mut self) -> Option<&mut dyn Policy> {
        Some(&mut *self.lru)
    }
    fn name(&self) -> &'static str {
        "keeps"
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.lru.attach(view);
    }
    fn first_touch(&mut self, view: &mut View<'_>, extent: ExtentId) -> Place {
        self.lru.first_touch(view, extent)
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        self.lru.on_access(view, access, wanted);
    }
    fn keeps_over_crash(&self, view: &View<'_>, extent: ExtentId) -> bool {
        let mut asked = self.asked.lock().unwrap();
        let (at, n, _) = *asked;
        let n = if at == view.now() { n + 1 } else { 1 };
        *asked = (view.now(), n, asked.2.max(n));
        extent.0 < self.below.load(Ordering::Relaxed)
    }
    fn write_to(&mut self, view: &mut View<'_>, access: &Access) -> WriteTo {
        self.lru.write_to(view, access)
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        self.lru.on_settled(view, action, how, wanted);
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        self.lru.set(key, value)
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        self.lru.params()
    }
    fn explain(&self, view: &View<'_>, extent: ExtentId) -> String {
        self.lru.explain(view, extent)
    }
}

/// Flash of 64 slots, full of clean copies of extents 0 to 63, which have rested for ten minutes.
fn rested(below: u32) -> (Run, Arc<AtomicU32>) {
    let mut run = Run::of(rig::sized("lru", Params::default(), 64, 640));
    let lru = build("lru", core::iter::empty()).unwrap();
    let below = Arc::new(AtomicU32::new(below));
    let policy = Keeps {
        lru,
        below: Arc::clone(&below),
        asked: Arc::default(),
    };
    run.engine.set_policy(run.now, Box::new(policy)).unwrap();
    for e in 0..64 {
        run.submit(RequestOp::Read, e);
        run.run(run.now + Nanos::from_millis(10));
    }
    run.run(run.now + Nanos::from_secs(600));
    (run, below)
}

fn claimed(run: &Run) -> Vec<u32> {
    let map = &run.engine.space().map;
    let claims = |e: &u32| {
        let copy = map.copy(ExtentId(*e));
        copy.is_some_and(|s| map.is_claimed_clean(s))
    };
    (0..640).filter(claims).collect()
}

#[test]
fn only_copies_that_the_policy_keeps_are_claimed() {
    let (mut run, below) = rested(40);
    assert_eq!(claimed(&run), (0..40).collect::<Vec<_>>());
    // At rest nothing wakes the engine, although copies without a claim remain.
    assert_eq!(run.run(run.now + Nanos::from_secs(600)), 0);
    // The policy wants to keep fewer. After the next change the other claims are withdrawn.
    below.store(8, Ordering::Relaxed);
    run.submit(RequestOp::Read, 63);
    run.submit(RequestOp::Read, 100);
    run.run(run.now + Nanos::from_secs(600));
    let now = claimed(&run);
    assert!(now.len() >= 7 && now.iter().all(|e| *e < 8), "{now:?}");
    // And more again.
    below.store(640, Ordering::Relaxed);
    run.submit(RequestOp::Read, 101);
    run.run(run.now + Nanos::from_secs(600));
    assert_eq!(claimed(&run).len(), 64);
}

#[test]
fn a_burst_of_writes_after_a_rest_waits_only_for_slots_with_claims() {
    let slowest = |below| {
        let (mut run, _) = rested(below);
        run.latencies.clear();
        (500..516).for_each(|e| run.submit(RequestOp::Write, e));
        run.run(run.now + Nanos::from_secs(1));
        assert_eq!(run.latencies.len(), 16);
        assert!((500..516).all(|e| run.engine.space().map.copy(ExtentId(e)).is_some()));
        run.latencies.iter().max().copied()
    };
    // Each operation takes up to 2.02 ms; a record on flash and on the disk is several, one after the other.
    assert!(slowest(64) > Some(Nanos::from_millis(4)));
    assert!(slowest(0) < Some(Nanos::from_micros(2_100)));
}

/// A look at many copies is divided, so that no request waits for it.
#[test]
fn one_look_asks_about_some_thousands_of_copies() {
    let slots = 10_000;
    let mut run = Run::of(rig::sized("lru", Params::default(), slots, 2 * slots));
    let asked = Arc::default();
    let policy = Keeps {
        lru: build("lru", core::iter::empty()).unwrap(),
        below: Arc::new(AtomicU32::new(slots)),
        asked: Arc::clone(&asked),
    };
    run.engine.set_policy(run.now, Box::new(policy)).unwrap();
    for e in 0..u64::from(slots) {
        run.submit(RequestOp::Read, e);
        run.run(run.now + Nanos::from_millis(10));
    }
    run.run(run.now + Nanos::from_secs(600));
    assert_eq!(run.engine.space().map.clean_claims(), slots);
    assert_eq!(asked.lock().unwrap().2, 4096);
}
