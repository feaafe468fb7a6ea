//! The cost of every preset: nanoseconds per access in the null world, and bytes per extent. Budget: 300 ns (median).
//!
//! `cargo bench -p isotherm-lab --bench policies`
//!
//! With the words `play POLICY ACCESSES` it plays that many accesses untimed and prints a digest of all hits, for profilers that count
//! instructions (`bench/policies/instructions.sh`): equal digests mean equal decisions.

use divan::{Bencher, counter::ItemsCount};
use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{PRESETS, build};
use isotherm_core::random::SplitMix64;
use isotherm_core::{ExtentId, Nanos, TierId};

const EXTENTS: u32 = 1 << 18;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [play, policy, accesses, ..] = &words[..]
        && play == "play"
    {
        let (Some(p), Ok(n)) = (PRESETS.iter().find(|p| p.name == policy), accesses.parse()) else {
            eprintln!("usage: policies play POLICY ACCESSES");
            std::process::exit(2);
        };
        let mut run = Run::new(p.name);
        run.play(n);
        let c = run.engine.counters();
        println!("{policy}: digest {:016x}, {c:?}", run.digest);
        return;
    }
    println!(
        "{:<24} {:>16} {:>16}",
        "preset", "bytes/extent", "bytes/fast slot"
    );
    for p in PRESETS {
        let mut run = Run::new(p.name);
        run.play(EXTENTS * 2);
        println!(
            "{:<24} {:>16.1} {:>16.1}",
            p.name,
            run.engine.bytes() as f64 / f64::from(EXTENTS),
            run.engine.policy().bytes() as f64 / f64::from(EXTENTS / 10)
        );
    }
    divan::main();
}

/// Skewed accesses (the product of two uniforms), a quarter writes, a tenth of the extents fast.
struct Run {
    engine: NullEngine<Box<dyn isotherm_core::policy::Policy>>,
    random: SplitMix64,
    now: u64,
    /// Of which accesses hit.
    digest: u64,
}

impl Run {
    fn new(policy: &str) -> Run {
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: isotherm_core::geometry::Stash::default(),
        };
        let members = vec![m(0, EXTENTS / 10), m(1, EXTENTS + 256)];
        let geo = Geometry::new(12, 12, EXTENTS, members).expect("geometry");
        Run {
            engine: NullEngine::new(geo, build(policy, std::iter::empty()).expect("policy")),
            random: SplitMix64::new(7),
            now: 0,
            digest: 0,
        }
    }
    fn play(&mut self, accesses: u32) -> u32 {
        let n = u64::from(EXTENTS);
        let mut hits = 0;
        for _ in 0..accesses {
            let x = self.random.below(n) * self.random.below(n) / n;
            let write = self.random.below(4) == 0;
            self.now += 1000;
            let request = (x << 12, 4096);
            let hit = self
                .engine
                .access(Nanos(self.now), ExtentId(x as u32), write, 0, request);
            hits += u32::from(hit);
            self.digest = self.digest.wrapping_mul(31).wrapping_add(u64::from(hit));
        }
        hits
    }
}

#[divan::bench(args = PRESETS.iter().map(|p| p.name))]
fn access(bencher: Bencher, policy: &str) {
    let mut run = Run::new(policy);
    run.play(EXTENTS * 4);
    bencher
        .counter(ItemsCount::new(1000u32))
        .bench_local(|| run.play(1000));
}
