//! Extent accesses per second of the lab with full models (bar: 5 M on one core), end to end: the computation of the trace, engine, models
//! and figures are included. Equal digests mean that nothing that is simulated has changed. The first pass is counted apart, because
//! `compare` and `sweep` make it once. Rates are of CPU time.
//!
//! `cargo bench -p isotherm-lab --bench sim [-- REQUESTS] [ssd | hdd [POLICY…]] [untimed]`
//!
//! `untimed` is for profilers that count instructions: valgrind does not let a program read the clock in the way that is used here.

use isotherm_core::Nanos;
use isotherm_lab::sim::{Device, Run, Setup, Synthetic, TimeMode, touched};
use isotherm_lab::size::Size;

/// CPU time of this thread: other work on the machine does not count.
fn cpu_s() -> f64 {
    if std::env::args().any(|a| a == "untimed") {
        return 0.0;
    }
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn rate(what: &str, policy: &str, source: &Synthetic, depth: u32, ssd_only: bool) {
    let mut setup =
        Setup::pair(policy.parse().expect("a preset"), Size::Share(200_000)).expect("sheets");
    setup.time = TimeMode::Closed { depth };
    if ssd_only {
        setup.tiers.remove(1);
        setup.tiers[0].devices = vec![Device::preset("nvme-tlc").expect("a preset")];
    }
    let begun = cpu_s();
    let first = touched(source, 12, None).expect("readable");
    let pass = cpu_s() - begun;
    let begun = cpu_s();
    let r = Run::new(&setup, source)
        .touched(&first)
        .full()
        .expect("runs");
    let all = cpu_s() - begun;
    println!(
        "{what:<34}{policy:<18}{depth:>3}{:>9.2}{:>9.2}{:>9.3}{:>9.1}  {}",
        r.accesses as f64 / all / 1e6,
        r.requests as f64 / all / 1e6,
        r.fast_hit_ratio,
        pass * 1e9 / r.requests as f64,
        r.digest,
    );
}

fn main() {
    let requests = std::env::args()
        .skip(1)
        .find_map(|a| a.parse().ok())
        .unwrap_or(2_000_000);
    let source = |len, write_percent| Synthetic {
        requests,
        bytes: 1 << 30,
        len,
        write_percent,
        gap: Nanos::from_micros(100),
        seed: 1,
    };
    println!(
        "{:<34}{:<18}{:>3}{:>9}{:>9}{:>9}{:>9}  digest",
        "1 GiB, skewed, 4 KiB extents", "policy", "QD", "Macc/s", "Mreq/s", "hits", "pass ns"
    );
    let named: Vec<String> = std::env::args().skip(1).collect();
    let has = |what: &str| named.iter().any(|a| a == what);
    if !has("hdd") {
        for depth in [1, 32] {
            rate(
                "4 KiB reads, SSD alone",
                "linear",
                &source(4096, 0),
                depth,
                true,
            );
        }
        rate(
            "16 KiB 30 % writes, SSD alone",
            "linear",
            &source(16_384, 30),
            8,
            true,
        );
    }
    if has("ssd") {
        return;
    }
    let policies = ["linear", "greendm", "hot-dst-recency", "lru"];
    let some = policies.iter().any(|p| has(p));
    for policy in policies.into_iter().filter(|p| !some || has(p)) {
        for depth in [1, 32] {
            rate(
                "4 KiB reads, SSD + HDD",
                policy,
                &source(4096, 0),
                depth,
                false,
            );
        }
        rate(
            "4 KiB 30 % writes, SSD + HDD",
            policy,
            &source(4096, 30),
            8,
            false,
        );
        rate(
            "16 KiB 30 % writes, SSD + HDD",
            policy,
            &source(16_384, 30),
            8,
            false,
        );
    }
}
