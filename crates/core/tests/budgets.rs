//! Budgets and throttles of the engine, which apply to every policy.
#![allow(clippy::unwrap_used)]

mod rig;

use isotherm_core::engine::{KNOBS, Params, knob};
use isotherm_core::load::Cost;
use isotherm_core::policy::{PRESETS, Refusal};
use isotherm_core::*;
use rig::{EXTENT, Run, engine};

const DAY: f64 = 86_400.0;

/// The largest number of bytes by which any window exceeds the budget for that window; negative if none does.
fn excess(moved: &[(Nanos, u64)], rate_per_s: f64, burst: f64) -> f64 {
    let mut worst = f64::MIN;
    for i in 0..moved.len() {
        let mut sum = 0;
        for &(t, bytes) in &moved[i..] {
            sum += bytes;
            let allowed = rate_per_s * t.since(moved[i].0).as_secs_f64() + burst;
            worst = worst.max(sum as f64 - allowed);
        }
    }
    worst
}

#[test]
fn moves_never_write_more_than_rate_times_window_and_burst() {
    // Tiering policies, caching policies, Loris' policies.
    for name in [
        "greendm",
        "lru",
        "hot-dst-dynamic",
        "cache-ondemand",
        "hot-dst-5s",
        "arc",
    ] {
        for (rate, burst_s, writes) in
            [(40_000.0, 2.0, 0), (200_000.0, 0.5, 30), (8_000.0, 30.0, 5)]
        {
            let params = Params {
                wear_bytes_per_day: Some((rate * DAY) as u64),
                wear_burst: Nanos((burst_s * 1e9) as u64),
                ..Params::default()
            };
            let mut free = Run::new(name, Params::default());
            free.busy(3000, Nanos::from_millis(5), writes);
            let mut run = Run::new(name, params);
            run.busy(3000, Nanos::from_millis(5), writes);
            let b = run.engine.wear_budget().unwrap();
            assert!(b.left_bytes <= b.burst_bytes as i64);
            let over = excess(&run.moved, rate, b.burst_bytes as f64);
            assert!(over <= 0.0, "{name} {rate}/s: {over} bytes over");
            let sum = |m: &[(Nanos, u64)]| m.iter().map(|x| x.1).sum::<u64>();
            let (had, wanted) = (sum(&run.moved), sum(&free.moved));
            let allowed = rate * run.now.as_secs_f64();
            assert!(had as f64 <= allowed, "the budget starts empty");
            if wanted as f64 > 1.5 * allowed {
                assert!(
                    run.refused(Refusal::WearBudget) > 0,
                    "{name} {rate}: {had} of {wanted}"
                );
            }
            // Without requests that write, only moves and metadata use the budget: they must use most of it.
            if writes == 0 && wanted as f64 > 4.0 * allowed {
                assert!(
                    had as f64 > 0.2 * allowed,
                    "{name} {rate}: {had} of {allowed}"
                );
            }
            assert_eq!(run.replies, run.tag, "{name}: every request was answered");
        }
    }
}

#[test]
fn requests_use_up_the_budget_and_are_never_refused() {
    let params = || Params {
        wear_bytes_per_day: Some(86_400 * 100_000),
        wear_burst: Nanos::from_secs(4),
        ..Params::default()
    };
    let mut idle = Run::new("greendm", params());
    idle.run(Nanos::from_secs(100));
    idle.engine.tick(idle.now, &mut idle.out);
    let b = idle.engine.wear_budget().unwrap();
    assert_eq!(
        (b.left_bytes, b.burst_bytes),
        (400_000, 400_000),
        "no more than the burst is saved up"
    );
    // Under greendm new data goes to the fast tier. 400 writes of 4 KiB in 2 s exceed the budget of that time.
    let mut run = Run::new("greendm", params());
    for i in 0..400 {
        run.submit(RequestOp::Write, i % 8);
        let until = run.now + Nanos::from_millis(5);
        run.run(until);
    }
    let b = run.engine.wear_budget().unwrap();
    assert!(b.left_bytes < -1_000_000, "{b:?}");
    assert_eq!(run.replies, 400);
    // The budget must be positive again before any extent is promoted.
    run.busy(200, Nanos::from_millis(5), 0);
    assert!(run.moved.is_empty() && run.engine.counters().promotions.done == 0);
    let until = run.now + Nanos::from_secs(60);
    run.run(until);
    run.busy(400, Nanos::from_millis(5), 0);
    assert!(!run.moved.is_empty());
}

#[test]
fn admission_becomes_stricter_gradually() {
    // The demand is steady and far above the budget. The admitted share must settle, without pauses and bursts.
    let mut run = Run::new(
        "lru",
        Params {
            wear_bytes_per_day: Some(86_400 * 50_000),
            wear_burst: Nanos::from_secs(20),
            ..Params::default()
        },
    );
    run.busy(12_000, Nanos::from_millis(5), 0);
    let half = Nanos(run.now.0 / 2);
    let seconds = run.now.since(half).as_secs_f64();
    let late: Vec<_> = run.moved.iter().filter(|m| m.0 > half).collect();
    let rate = late.iter().map(|m| m.1).sum::<u64>() as f64 / seconds;
    assert!(
        (30_000.0..=50_500.0).contains(&rate),
        "{rate} bytes/s of 50000, metadata left out"
    );
    let longest = late
        .windows(2)
        .map(|w| w[1].0.since(w[0].0).0)
        .max()
        .unwrap();
    assert!(longest < 2_000_000_000, "a pause of {longest} ns");
    let b = run.engine.wear_budget().unwrap();
    assert!(
        b.left_bytes > 0 && b.left_bytes < b.burst_bytes as i64 / 2,
        "{b:?}"
    );
}

#[test]
fn a_new_budget_is_empty_and_a_removed_one_refuses_nothing() {
    let mut run = Run::new("lru", Params::default());
    run.busy(300, Nanos::from_millis(5), 0);
    let before = run.moved.len();
    run.engine.set("wear_bytes_per_day", 1.0).unwrap();
    run.busy(300, Nanos::from_millis(5), 0);
    // Moves that were in progress still ended.
    assert!(run.moved.len() <= before + 16 && run.refused(Refusal::WearBudget) > 0);
    let (held, refused) = (run.moved.len(), run.refused(Refusal::WearBudget));
    run.engine.set("wear_bytes_per_day", 0.0).unwrap();
    run.busy(300, Nanos::from_millis(5), 0);
    assert!(run.moved.len() > held && run.refused(Refusal::WearBudget) == refused);
    assert!(run.engine.wear_budget().is_none());
}

/// Data sheets that state an idle power of 5 W.
fn sheets() -> Vec<Cost> {
    let idle_uw = 5_000_000;
    [Cost::FAST, Cost::SLOW]
        .map(|c| Cost { idle_uw, ..c })
        .to_vec()
}

#[test]
fn every_throttle_limits_every_policy() {
    let at_once = Params {
        moves_max: Some(1),
        ..Params::default()
    };
    let slowly = Params {
        move_bytes_per_s: Some(20_000),
        ..Params::default()
    };
    let politely = Params {
        p99_limit: Some(Nanos(1)),
        ..Params::default()
    };
    let sparing = Params {
        wear_bytes_per_day: Some(1),
        ..Params::default()
    };
    let frugally = Params {
        power_limit_uw: Some(9_999_999),
        costs: sheets(),
        ..Params::default()
    };
    let mut felt = [0u32; 5];
    for preset in PRESETS {
        let mut free = Run::new(preset.name, Params::default());
        free.busy(1500, Nanos::from_millis(5), 20);
        if free.moved.is_empty() {
            continue;
        }
        for (i, (params, why)) in [
            (&at_once, Refusal::Limit),
            (&slowly, Refusal::Throttled),
            (&politely, Refusal::Throttled),
            (&sparing, Refusal::WearBudget),
            (&frugally, Refusal::PowerBudget),
        ]
        .into_iter()
        .enumerate()
        {
            let mut run = Run::new(preset.name, params.clone());
            run.busy(1500, Nanos::from_millis(5), 20);
            let name = preset.name;
            if i == 0 {
                // A move that only waits for its record does not count.
                let at_work = |o: &&DeviceOp| matches!(o.buf, BufRef::Move { .. });
                assert!(run.due.values().filter(at_work).count() <= 1, "{name}");
            }
            // The last request may wait for a move, which takes several operations.
            let until = run.now + Nanos::from_millis(100);
            run.run(until);
            let bytes: u64 = run.moved.iter().map(|m| m.1).sum();
            assert_eq!(run.replies, run.tag, "{name}");
            felt[i] += u32::from(run.refused(why) > 0);
            match i {
                // The rate, the bytes of one second that may be saved up, and those of one move that began while some budget was left.
                1 => assert!(
                    bytes as f64 <= 20_000.0 * (run.now.as_secs_f64() + 1.0) + EXTENT as f64,
                    "{name}: {bytes}"
                ),
                3 | 4 => assert_eq!(bytes, 0, "{name}"),
                _ => {}
            }
        }
    }
    assert!(
        felt.iter().all(|n| *n >= 10),
        "refusals under {felt:?} policies"
    );
}

#[test]
fn a_new_bandwidth_limit_ignores_earlier_moves() {
    let mut run = Run::new("lru", Params::default());
    run.busy(1000, Nanos::from_millis(5), 0);
    assert!(run.moved.len() > 100);
    run.engine.set("move_bytes_per_s", 40_000.0).unwrap();
    let before = run.moved.len();
    run.busy(400, Nanos::from_millis(5), 0);
    let moved = run.moved.len() - before;
    assert!(
        (8..=30).contains(&moved),
        "{moved} extents in 2 s at ten a second"
    );
}

#[test]
fn knobs_have_ranges_and_values() {
    let mut e = engine("lru", Params::default());
    assert!(e.set("power_limit_w", 2.0).is_err(), "no data sheets");
    e.set("power_limit_w", 0.0).unwrap();
    let params = Params {
        costs: sheets(),
        ..Params::default()
    };
    let mut e = engine("lru", params);
    for k in KNOBS {
        let before = e.knobs();
        assert!(
            e.set(k.name, -1.0).is_err() && e.set(k.name, f64::NAN).is_err(),
            "{}",
            k.name
        );
        assert_eq!(e.knobs(), before);
        let value = 2f64.clamp(k.limits.0, k.limits.1);
        e.set(k.name, value).unwrap();
        let now = e.knobs().iter().find(|x| x.0 == k.name).unwrap().1;
        assert!((now - value).abs() < 1e-6, "{}: {now}", k.name);
    }
    assert!(knob("wear_byte_per_day", 1.0).is_err());
}
