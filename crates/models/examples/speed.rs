//! Nanoseconds that the models themselves cost for an operation (start and poll), through `dyn`.
//!
//! `cargo run --release -p isotherm-models --example speed`

use std::hint::black_box;
use std::time::Instant;

use isotherm_core::Nanos;
use isotherm_models::measure::{Work, run};
use isotherm_models::{ModelOp, Options, SheetError, preset};

/// Start, next event, poll: what the lab does for an operation at depth 1, offsets made beforehand.
fn depth_one(name: &str, options: &Options) -> Result<f64, SheetError> {
    let mut model = preset(name, options)?;
    let mut seed = 1u64;
    let offsets: Vec<u64> = (0..1 << 16)
        .map(|_| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 20) % (model.capacity() / 4096) * 4096
        })
        .collect();
    let (mut now, mut done) = (Nanos(0), Vec::with_capacity(4));
    let count = 2_000_000u64;
    let begin = Instant::now();
    for i in 0..count {
        let op = if i % 3 == 0 {
            ModelOp::Write
        } else {
            ModelOp::Read
        };
        model.start(now, i, op, offsets[i as usize & 0xffff], 4096);
        now = model.next_event().unwrap_or(now);
        model.poll(now, &mut done);
        black_box(&done);
        done.clear();
    }
    Ok(begin.elapsed().as_nanos() as f64 / count as f64)
}

fn main() -> Result<(), SheetError> {
    let plain = Options::default();
    let fcfs = Options {
        queue_depth: Some(1),
        ..plain
    };
    let flash = Options {
        size: 1 << 30,
        ftl: true,
        ..plain
    };
    for (what, name, options) in [
        ("SSD, depth 1", "intel-320-300", &plain),
        ("SSD, depth 1, 32 units", "nvme-tlc", &plain),
        ("SSD with FTL, depth 1", "intel-320-300", &flash),
        ("HDD, first come first served", "wd5000aaks", &fcfs),
        ("HDD, NCQ, depth 1", "wd5000aaks", &plain),
        ("remote, depth 1", "remote", &plain),
    ] {
        println!("{what:<32}{:>8.0} ns/op", depth_one(name, options)?);
    }
    for (name, depth) in [("intel-320-300", 32), ("nvme-tlc", 32), ("wd5000aaks", 32)] {
        let mut model = preset(name, &plain)?;
        let span = model.capacity();
        let work = Work {
            op: ModelOp::Read,
            len: 4096,
            random: true,
            span,
            depth,
            count: 1_000_000,
            seed: 1,
        };
        let begin = Instant::now();
        run(model.as_mut(), Nanos(0), &work);
        let each = begin.elapsed().as_nanos() as f64 / work.count as f64;
        println!(
            "{:<32}{each:>8.0} ns/op, generator included",
            format!("{name}, depth {depth}")
        );
    }
    Ok(())
}
