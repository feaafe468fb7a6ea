//! The figures of runs as text, for `isotherm sim`.

use isotherm_lab::sim::{MemberUsage, Report};

use crate::table::table;

/// Miss ratios by size.
pub fn curve(reports: &[Report]) -> String {
    let or = |v: Option<f64>, scale: f64| {
        v.map_or_else(|| "-".to_owned(), |v| format!("{:.3}", v * scale))
    };
    let row = |r: &Report| {
        vec![
            r.policy.clone(),
            r.fast_bytes.to_string(),
            format!(
                "{:.2}%",
                r.fast_bytes as f64 / (r.touched_extents.max(1) * u64::from(r.extent_bytes)) as f64
                    * 100.0
            ),
            format!("{:.6}", r.fast_hit_ratio),
            format!("{:.6}", 1.0 - r.fast_hit_ratio),
            r.sample.map_or_else(
                || "-".to_owned(),
                |s| format!("{:.6}", s.fast_hit_ratio_error),
            ),
            format!("{:.6}", r.fast_served_ratio),
            or(r.elapsed_s, 1.0),
            or(r.latency_mean_s, 1e3),
            r.trace.clone(),
        ]
    };
    let head = [
        "policy",
        "fast_bytes",
        "of_touched",
        "fast_hit_ratio",
        "miss_ratio",
        "+-95%",
        "fast_served_ratio",
        "elapsed_s",
        "mean_ms",
        "trace",
    ];
    table(&head, &reports.iter().map(row).collect::<Vec<_>>())
}

/// Hits and moves, a run in each row.
pub fn hits(reports: &[Report]) -> String {
    let rows: Vec<Vec<String>> = reports
        .iter()
        .map(|r| {
            vec![
                r.policy.clone(),
                r.requests.to_string(),
                r.accesses.to_string(),
                format!("{:.6}", r.fast_hit_ratio),
                r.promotions.to_string(),
                r.demotions.to_string(),
                r.fetches.to_string(),
                format!("{:.0}", r.sim_rate_rps),
                r.trace.clone(),
            ]
        })
        .collect();
    table(
        &[
            "policy",
            "requests",
            "accesses",
            "fast_hit_ratio",
            "promotions",
            "demotions",
            "fetches",
            "sim_rate_rps",
            "trace",
        ],
        &rows,
    )
}

/// The place of a member on its drive, for display. On flash it makes no difference.
fn place(m: &MemberUsage) -> String {
    if m.kind != "hdd" {
        String::new()
    } else if m.span == "full" {
        format!(
            "laid over all of its {:.0} GB (--span)",
            m.capacity_bytes as f64 / 1e9
        )
    } else {
        format!(
            "from byte {} on of its {:.0} GB (--span)",
            m.span,
            m.capacity_bytes as f64 / 1e9
        )
    }
}

/// All figures of each run.
pub fn figures(reports: &[Report]) -> String {
    let mut text = String::new();
    for r in reports {
        let mut rows = run_rows(r);
        let members = r.usage.iter().flat_map(|u| &u.members);
        rows.extend(members.map(|(name, m)| vec![name.clone(), member(m)]));
        text += &table(&["trace", &r.trace], &rows);
    }
    text
}

/// The figures of a run, one row each.
fn run_rows(r: &Report) -> Vec<Vec<String>> {
    let s = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.6} s"));
    let energy = (r.energy_j.unwrap_or(0.0), r.mean_power_w.unwrap_or(0.0));
    let rate = (
        r.throughput_iops.unwrap_or(0.0),
        r.throughput_bytes_per_s.unwrap_or(0.0) / 1e6,
    );
    let hits = format!("{:.4} of {} accesses", r.fast_hit_ratio, r.accesses);
    let served = format!(
        "{:.4}, first touches placed there included",
        r.fast_served_ratio
    );
    let moves = format!(
        "{} up, {} down, {} fetched, {} given up, {} written back; {} refused",
        r.promotions, r.demotions, r.fetches, r.evictions, r.writebacks, r.refused
    );
    let simulated = format!(
        "{:.0} requests/s, {:.0} accesses/s",
        r.sim_rate_rps, r.sim_rate_accesses_per_s
    );
    [
        ("policy", r.policy.clone()),
        ("requests", r.requests.to_string()),
        ("fast hits", hits),
        ("served from fast", served),
        ("elapsed", s(r.elapsed_s)),
        (
            "throughput",
            format!("{:.0} requests/s, {:.2} MB/s", rate.0, rate.1),
        ),
        ("latency mean", s(r.latency_mean_s)),
        ("latency p50", s(r.latency_p50_s)),
        ("latency p95", s(r.latency_p95_s)),
        ("latency p99", s(r.latency_p99_s)),
        (
            "energy",
            format!("{:.3} J, {:.3} W mean", energy.0, energy.1),
        ),
        ("moves", moves),
        ("digest", r.digest.clone()),
        ("simulated at", simulated),
    ]
    .map(|(k, v)| vec![k.to_owned(), v])
    .to_vec()
}

/// The figures of a member, in one line.
fn member(m: &MemberUsage) -> String {
    let flash = m.write_amplification.map_or_else(String::new, |a| {
        let worn = m.flash_wear_eu.unwrap_or(0.0);
        format!("; flash written {a:.2} times, {worn:.3} eu by erases")
    });
    format!(
        "{}, {:.3} GB {}: {} reads, {} writes, busy {:.3} s, {:.3} J, {:.3} eu{flash}",
        m.preset,
        m.bytes as f64 / 1e9,
        place(m),
        m.reads,
        m.writes,
        m.busy_s,
        m.energy_j,
        m.wear_eu
    )
}
