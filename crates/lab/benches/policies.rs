//! The cost of every preset: nanoseconds per access in the null world, and bytes per extent. Budget: 300 ns (median).
//!
//! `cargo bench -p isotherm-lab --bench policies`
//!
//! With the words `play POLICY ACCESSES [EXTENTS]` it plays that many accesses and prints a digest of all hits, for profilers that count
//! instructions (`bench/policies/instructions.sh`): equal digests mean equal decisions. It also prints the processor's time per access after
//! as many accesses that are not timed, which fill the cache of a large volume.

use divan::{Bencher, counter::ItemsCount};
use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{PRESETS, build};
use isotherm_core::random::SplitMix64;
use isotherm_core::{ExtentId, Nanos, TierId};

const EXTENTS: u32 = 1 << 18;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [play, policy, accesses, rest @ ..] = &words[..]
        && play == "play"
    {
        let extents = rest.first().map_or(Ok(EXTENTS), |n| n.parse());
        let known = PRESETS.iter().find(|p| p.name == policy);
        let (Some(p), Ok(n), Ok(extents)) = (known, accesses.parse(), extents) else {
            eprintln!("usage: policies play POLICY ACCESSES [EXTENTS]");
            std::process::exit(2);
        };
        return play_once(p.name, n, extents);
    }
    println!(
        "{:<24} {:>16} {:>16}",
        "preset", "bytes/extent", "bytes/fast slot"
    );
    for p in PRESETS {
        let mut run = Run::new(p.name, EXTENTS);
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

fn play_once(policy: &'static str, accesses: u32, extents: u32) {
    let mut run = Run::new(policy, extents);
    run.play(accesses);
    let begun = std::time::Instant::now();
    let hits = run.play(accesses);
    let each = begun.elapsed().as_secs_f64() * 1e9 / f64::from(accesses);
    let c = run.engine.counters();
    println!("{policy}: digest {:016x}, {c:?}", run.digest);
    println!(
        "{policy}: {each:.1} ns per access, {:.1} % hits, {:.1} bytes per fast slot",
        100.0 * f64::from(hits) / f64::from(accesses),
        run.engine.bytes() as f64 / f64::from(extents / 10)
    );
}

/// Skewed accesses (the product of two uniforms), a quarter writes, a tenth of the extents fast.
struct Run {
    engine: NullEngine<Box<dyn isotherm_core::policy::Policy>>,
    extents: u32,
    random: SplitMix64,
    now: u64,
    /// Of which accesses hit.
    digest: u64,
}

impl Run {
    /// A volume of the kind that is made for the policy.
    fn new(policy: &str, extents: u32) -> Run {
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: isotherm_core::geometry::Stash::default(),
        };
        let members = vec![m(0, extents / 10), m(1, extents + 256)];
        let policy = build(policy, std::iter::empty()).expect("policy");
        let geo = Geometry::new(12, 12, extents, members);
        let geo = geo.and_then(|g| g.of_kind(policy.uses().volume()));
        Run {
            engine: NullEngine::new(geo.expect("geometry"), policy),
            extents,
            random: SplitMix64::new(7),
            now: 0,
            digest: 0,
        }
    }
    fn play(&mut self, accesses: u32) -> u32 {
        let n = u64::from(self.extents);
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
    let mut run = Run::new(policy, EXTENTS);
    run.play(EXTENTS * 4);
    bencher
        .counter(ItemsCount::new(1000u32))
        .bench_local(|| run.play(1000));
}
