//! `hit_only TRACE POLICY SLOTS [ROUNDS]`: requests/s and miss ratio, for profiles.
use isotherm_lab::hit_only::{KEEP_BYTES, Setup, hit_only};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let slots: u64 = args[3].parse()?;
    for _ in 0..args.get(4).map_or(Ok(1), |n| n.parse())? {
        let setup = Setup {
            policy: &args[2],
            params: &[],
            extent_shift: 12,
            fast_slots: &|_| slots,
            keep_bytes: KEEP_BYTES,
        };
        let r = hit_only(
            || isotherm_traces::open(&args[1], &isotherm_traces::Options::default()),
            &setup,
        )?;
        println!(
            "{} miss {:.6} {:.2} M/s reading {:.1} ms wall {:.1} ms",
            args[2],
            1.0 - r.counters.hits as f64 / r.counters.accesses as f64,
            r.requests as f64 / r.wall.as_secs_f64() / 1e6,
            r.reading.as_secs_f64() * 1e3,
            r.wall.as_secs_f64() * 1e3
        );
    }
    Ok(())
}
