//! What it costs to know what a request carries: nanoseconds of CPU time a look-up, by how well the map fits the processor's caches.
//!
//! `cargo bench -p isotherm-classify`

use isotherm_classify::{Classifier, Layers, Source};
use isotherm_core::RequestOp;
use isotherm_core::random::SplitMix64;
use rustix::time::{ClockId, clock_gettime};
use std::array;
use std::hint::black_box;
use std::sync::Arc;

const LOOKUPS: u64 = 1 << 20;
/// Requests that come at the same time.
const TOGETHER: usize = 32;

/// CPU time of this thread, ns: what a machine that does other things, too, does not change much.
fn now() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn median(mut f: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..9).map(|_| f()).collect();
    all.sort_by(f64::total_cmp);
    all[4]
}

fn main() {
    println!(
        "{:>10} {:>9} {:>12} {:>14} {:>14} {:>12}",
        "volume", "request", "ns/request", "ns, together", "ns, sequential", "map MiB/GiB"
    );
    for gib in [1u64, 64, 512] {
        let bytes = gib << 30;
        let mut layers = Layers::new(bytes);
        // Files of 16 KiB side by side: nothing is of one class for long.
        let mut random = SplitMix64::new(1);
        for b in (0..bytes >> 12).step_by(4) {
            layers.set(Source::Ranges, b, b + 4, 8 + random.below(8) as u8);
        }
        while !layers.is_settled() {
            layers.settle(1 << 20);
        }
        let mut c = Classifier::new(Arc::clone(layers.shared()), Arc::default(), 16);
        for len in [4096u32, 65536, 1 << 20] {
            let span = bytes - u64::from(len);
            let mut time = |random: bool| {
                let mut places = SplitMix64::new(3);
                let begun = now();
                for i in 0..LOOKUPS {
                    let at = if random {
                        places.below(span)
                    } else {
                        i * 4096 % span
                    };
                    black_box(c.class(RequestOp::Read, at >> 12 << 12, len, 0));
                }
                (now() - begun) as f64 / LOOKUPS as f64
            };
            let (random, sequential) = (median(|| time(true)), median(|| time(false)));
            let together = median(|| {
                let mut places = SplitMix64::new(3);
                let begun = now();
                for _ in 0..LOOKUPS / TOGETHER as u64 {
                    // As the engine's thread does with the requests that it finds at once.
                    let all: [u64; TOGETHER] = array::from_fn(|_| places.below(span) >> 12 << 12);
                    for at in all {
                        c.expect(at, len);
                    }
                    for at in all {
                        black_box(c.class(RequestOp::Read, at, len, 0));
                    }
                }
                (now() - begun) as f64 / LOOKUPS as f64
            });
            let mib = layers.shared().memory() as f64 / f64::from(1 << 20) / gib as f64;
            println!(
                "{gib:>6} GiB {:>5} KiB {random:>12.1} {together:>14.1} {sequential:>14.1} {mib:>12.3}",
                len >> 10
            );
        }
    }
}
