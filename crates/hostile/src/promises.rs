//! Random promises to classes, from a separate generator. Most lives have none.
//!
//! A held request must be answered exactly once, and not before it was admitted; no flushed data may depend on a promise.

use crate::Rng;
use crate::world::Hostile;
use isotherm_core::qos::{Row, Spec};
use isotherm_core::run::Loop;
use isotherm_core::{Engine, ExtentId, Nanos, World};

/// Number of classes to which extents are assigned.
const CLASSES: u64 = 4;

/// Makes promises to the classes of a life's extents, or makes none.
pub fn promise(seed: u64, life: u32, engine: &mut Engine, world: &mut Hostile) {
    let mut rng = Rng::new(seed ^ u64::from(life) << 24 ^ 0x9009_5e1f);
    if !rng.one_in(4) {
        return;
    }
    let mut spec = Spec {
        depth: 1 + rng.below(8) as u16,
        ..Spec::default()
    };
    for class in 0..CLASSES {
        // The rates fit requests of some kilobytes, in a world in which operations take microseconds.
        let rate = |rng: &mut Rng| (1 << 20) + rng.below(200 << 20);
        let mut row = Row::of(1 << class);
        row.ceiling = rng.one_in(3).then(|| rate(&mut rng));
        let below = row.ceiling.unwrap_or(u64::MAX);
        row.floor = rng.one_in(3).then(|| rate(&mut rng).min(below));
        row.latency = (rng.one_in(3)).then(|| Nanos::from_micros(100 + rng.below(5000)));
        row.share = 1 + rng.below(400) as u16;
        if rng.one_in(2) {
            spec.add(row).expect("it is within its limits");
        }
    }
    engine.promise(spec);
    let mut run = Loop::new();
    for e in 0..engine.space().geo.extents {
        let now = world.now();
        let class = (u64::from(e) % CLASSES) as u8;
        run.call(engine, world, |engine, out| {
            engine.reclassify(now, ExtentId(e), class, out);
        });
    }
}
