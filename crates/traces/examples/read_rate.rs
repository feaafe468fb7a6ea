//! How fast traces are read: `cargo run --release -p isotherm-traces --example read_rate TRACE…`.
//!
//! Prints records per second for each, batch by batch as the lab reads, best of five passes.

use std::time::Instant;

use isotherm_traces::{Options, TraceError, open};

const PASSES: u32 = 5;
const BATCH: usize = 4096;

fn main() -> Result<(), TraceError> {
    for path in std::env::args().skip(1) {
        let (mut best, mut records, mut format) = (f64::MAX, 0, "");
        for _ in 0..PASSES {
            let start = Instant::now();
            let mut reader = open(&path, &Options::default())?;
            let mut batch = Vec::with_capacity(BATCH);
            records = 0;
            while reader.read_batch(&mut batch, BATCH)? > 0 {
                records += batch.len();
                batch.clear();
            }
            format = reader.format().name();
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!(
            "{:8.2} M records/s  {records:>9} records  {format:<14} {path}",
            records as f64 / best / 1e6
        );
    }
    Ok(())
}
