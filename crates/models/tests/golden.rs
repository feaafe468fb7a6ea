//! Digests of every completion time of fixed work: a model may become faster, but its answers may change only on purpose.
//!
//! A commit that changes a number explains it.

use isotherm_core::Nanos;
use isotherm_models::{FlashState, ModelOp, Options, preset};

/// A generator of its own, since the digests below depend on its numbers.
fn next(seed: &mut u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 20
}

/// FNV-1a over ids, times and the counters at the end of 20,000 mixed operations in a closed loop.
fn digest(name: &str, options: &Options, depth: u64) -> u64 {
    let mut model = preset(name, options).unwrap();
    let blocks = model.capacity() / 4096;
    let (mut seed, mut now, mut done) = (9, Nanos(0), Vec::new());
    let (mut issued, mut finished) = (0u64, 0u64);
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut mix = |x: u64| hash = (hash ^ x).wrapping_mul(0x0100_0000_01b3);
    let mut run = 0;
    while finished < 20_000 {
        while issued < 20_000 && issued - finished < depth {
            let r = next(&mut seed);
            // A third of the operations continue at the end of the previous one.
            let (op, block) = match r % 12 {
                0..=3 => (ModelOp::Read, next(&mut seed) % blocks),
                4..=6 => (ModelOp::Write, next(&mut seed) % blocks),
                7..=8 => (ModelOp::Read, run),
                9..=10 => (ModelOp::Write, run),
                _ if r.is_multiple_of(16) => (ModelOp::Flush, 0),
                _ => (ModelOp::Read, next(&mut seed) % 1000),
            };
            let pages = 1 + r / 16 % 16;
            if block == run {
                run = (run + pages) % (blocks / 2);
            }
            model.start(now, issued, op, block * 4096, (pages * 4096) as u32);
            issued += 1;
        }
        now = model.next_event().unwrap();
        model.poll(now, &mut done);
        for id in done.drain(..) {
            mix(id);
            mix(now.0);
            finished += 1;
        }
    }
    let c = model.counters(now);
    for x in [c.busy_ns, c.seeks, c.seek_distance, c.cache_hits] {
        mix(x);
    }
    for ns in c.state_ns {
        mix(ns);
    }
    hash
}

#[test]
fn answers_are_those_of_last_time() {
    let through = Options {
        write_cache: Some(false),
        ..Options::default()
    };
    let plain = Options {
        flash: FlashState::Rated,
        ..Options::default()
    };
    let small = Options {
        size: 1 << 30,
        flash: FlashState::Preconditioned,
        ..Options::default()
    };
    let mut wrong = Vec::new();
    for (name, options, depth, want) in GOLDEN.iter().map(|(name, kind, depth, want)| {
        let options = match *kind {
            "through" => &through,
            "ftl" => &small,
            _ => &plain,
        };
        (*name, options, *depth, *want)
    }) {
        let got = digest(name, options, depth);
        if got != want {
            wrong.push(format!("{name} depth {depth}: {got:#018x}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Preset, options, depth, digest.
const GOLDEN: &[(&str, &str, u64, u64)] = &[
    ("wd5000aaks", "plain", 1, 0x5f32_6136_77b9_302a),
    ("wd5000aaks", "plain", 8, 0x774a_3fa7_4a7b_1d5b),
    ("wd5000aaks", "plain", 64, 0xc384_2257_bcc2_39e7),
    ("wd5000aaks", "through", 1, 0x8863_6d3d_6101_389e),
    ("wd5000aaks", "through", 8, 0xb5f0_edda_f14e_9910),
    ("wd5000aaks", "through", 64, 0xb213_9910_b5a5_7a99),
    ("exos-18tb", "plain", 16, 0x551a_7922_7795_0fe6),
    ("smr-8tb", "plain", 4, 0x4ddd_b4c1_9c40_8559),
    ("intel-320-300", "plain", 32, 0x8327_2f9b_c02f_1016),
    ("intel-320-300", "ftl", 4, 0x036f_8205_a8f5_5504),
    ("nvme-tlc", "plain", 64, 0x6ff7_e141_4f55_bbe8),
    ("remote", "plain", 16, 0x84d6_2067_ec97_1cc9),
];
