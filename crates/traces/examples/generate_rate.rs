//! How fast a generator makes records: `cargo run --release -p isotherm-traces --example generate_rate gen:zipf,requests=100000000`.

use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for name in std::env::args().skip(1) {
        let mut reader = isotherm_traces::open(&name, &isotherm_traces::Options::default())?;
        let mut batch = Vec::with_capacity(4096);
        let (begun, mut n) = (Instant::now(), 0u64);
        while reader.read_batch(&mut batch, 4096)? > 0 {
            n += batch.len() as u64;
            batch.clear();
        }
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{name}: {n} records in {seconds:.2} s, {:.1} M/s",
            n as f64 / seconds / 1e6
        );
    }
    Ok(())
}
