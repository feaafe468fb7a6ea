//! The energy that a volume estimates by data sheets, beside the complete models, and the budget of power.

use isotherm_core::Nanos;
use isotherm_lab::sim::{Device, Memory, Report, Setup, TimeMode, run};
use isotherm_lab::size::Size;
use isotherm_traces::{Op, Record};

const EXTENT: u64 = 64 << 10;
const MS: u64 = 1_000_000;

/// Requests at random times, `gap_ms` apart on average, to places of which a few are used most; a quarter of them writes. `runs`: each is
/// followed by this number of requests that continue it.
fn trace(seconds: u64, gap_ms: u64, runs: u64) -> Memory {
    let (mut records, mut now) = (Vec::new(), 0);
    let mut random = isotherm_core::random::SplitMix64::new(gap_ms);
    let mut draw = |below| random.below(below);
    while now < seconds * 1000 * MS {
        let op = if draw(4) == 0 { Op::Write } else { Op::Read };
        let extent = draw(20) * draw(200);
        for i in 0..=runs {
            let at = extent * EXTENT + i * 8192;
            records.push(Record::new(Nanos(now), op, at, 8192));
        }
        now += (1 + draw(2 * gap_ms)) * MS;
    }
    Memory::new("random", records)
}

fn setup(policy: &str, fast: &str, slow: &str, settings: &[(&str, f64)]) -> Setup {
    let policy = policy.parse().expect("a policy");
    let mut s = Setup::pair(policy, Size::Share(100_000)).expect("sheets");
    s.extent_bytes = EXTENT as u32;
    s.time = TimeMode::Trace { acceleration: 1.0 };
    s.tiers[0].devices[0] = Device::preset(fast).expect("a preset");
    s.tiers[1].devices[0] = Device::preset(slow).expect("a preset");
    s.settings = (settings.iter())
        .map(|(k, v)| ((*k).to_owned(), *v))
        .collect();
    s
}

/// For each member, the estimated energy and that of the model, joules.
fn energies(r: &Report) -> Vec<(String, f64, f64)> {
    let members = &r.usage.as_ref().expect("full").members;
    let pair = |(name, m): (&String, &isotherm_lab::sim::MemberUsage)| {
        let estimate = m.energy_estimate_j.expect("the sheet states powers");
        (name.clone(), estimate, m.energy_j)
    };
    members.iter().map(pair).collect()
}

#[test]
fn the_estimate_is_close_to_the_models() {
    let pairs = [
        ("sata-enterprise", "exos-18tb"),
        ("nvme-tlc", "smr-8tb"),
        ("intel-x25e-32", "wd5000aaks"),
    ];
    for (fast, slow) in pairs {
        for (gap_ms, runs) in [(4, 0), (20, 0), (400, 0), (40, 5), (20_000, 0)] {
            let mut s = setup("benefit", fast, slow, &[]);
            // It sleeps in the last of these.
            s.tiers[1].devices[0].standby_after_s = Some(5.0);
            let r = run(&s, &trace(600, gap_ms, runs)).expect("runs");
            let all = energies(&r);
            for (name, estimate, model) in &all {
                println!("{fast} {slow} {gap_ms} {runs} {name}: {estimate:.1} of {model:.1} J");
                let ratio = estimate / model;
                // Flash that copies its own pages takes more than the sheet's cost of a write.
                let least = if name == "fast" { 0.6 } else { 0.93 };
                assert!(
                    (least..1.05).contains(&ratio),
                    "{fast} {slow} {gap_ms} {runs} {name}: {estimate} of {model} J"
                );
            }
        }
    }
}

fn refused(r: &Report) -> u64 {
    let moves = r.moves.as_ref().expect("full").values();
    moves.filter_map(|m| m.refused.get("power_budget")).sum()
}

/// Bytes that moves copied. An empty copy that a write fills is no move.
fn copied(r: &Report) -> u64 {
    r.migrated_bytes
}

#[test]
fn moves_begin_only_while_the_budget_of_power_allows_them() {
    let trace = trace(600, 10, 0);
    let play = |policy: &str, watts: f64| {
        let settings = [("power_limit_w", watts)];
        let s = setup(policy, "sata-enterprise", "exos-18tb", &settings);
        run(&s, &trace).expect("runs")
    };
    for policy in ["benefit", "lru", "greendm", "bcache-like"] {
        let free = play(policy, 0.0);
        let mean_w = energies(&free).iter().map(|e| e.1).sum::<f64>() / 600.0;
        assert_eq!(free.power_budget_left_j, None);
        // A limit that is never reached changes nothing but that the bucket is empty at first.
        let ample = play(policy, 1000.0);
        assert!(refused(&ample) <= 2, "{policy}: {}", refused(&ample));
        assert!(ample.power_budget_left_j.is_some_and(|j| j > 59_000.0));
        // The disk that only waits already takes more than this.
        let none = play(policy, 5.0);
        assert!(refused(&none) > 0 && copied(&none) == 0, "{policy}");
        assert!(none.power_budget_left_j.is_some_and(|j| j < 0.0));
        assert_eq!(none.bytes_written, free.bytes_written);
        // Between the idle power (6.7 W) and what the policy takes.
        let some = play(policy, f64::midpoint(6.7, mean_w));
        println!(
            "{policy}: {mean_w:.2} W, moves copied {} and {} bytes",
            copied(&free),
            copied(&some)
        );
        assert!(refused(&some) > 0, "{policy}");
        assert!(copied(&some) < copied(&free), "{policy}");
    }
}

#[test]
fn a_limit_needs_the_data_sheets_of_all_members() {
    let mut s = setup(
        "lru",
        "sata-enterprise",
        "exos-18tb",
        &[("power_limit_w", -1.0)],
    );
    let e = run(&s, &trace(1, 100, 0)).expect_err("negative");
    assert!(e.to_string().contains("power_limit_w: watts"), "{e}");
    s.settings = [("power_limit_w".to_owned(), 9.0)].into_iter().collect();
    s.tiers[1].devices[0] = Device::preset("remote").expect("a preset");
    let e = run(&s, &trace(1, 100, 0)).expect_err("no power in the sheet");
    assert!(e.to_string().contains("power_limit_w: 0, unless"), "{e}");
}
