//! Properties that must hold for every run of any trace.

use isotherm_core::Nanos;
use isotherm_lab::sim::{Memory, Observe, Report, Setup, Tier, TimeMode, run};
use isotherm_lab::size::Size;
use isotherm_traces::{Flags, Op, Record};
use proptest::prelude::*;

fn record() -> impl Strategy<Value = (u64, Op, u64, u32, u8, bool)> {
    (
        0u64..5_000_000,
        prop_oneof![
            6 => Just(Op::Read),
            6 => Just(Op::Write),
            1 => Just(Op::Flush),
            1 => Just(Op::Discard),
        ],
        0u64..4096,
        1u32..300,
        0u8..4,
        any::<bool>(),
    )
}

/// Sector-aligned requests in order of time.
fn trace() -> impl Strategy<Value = Memory> {
    prop::collection::vec(record(), 1..120).prop_map(|rows| {
        let mut now = 0;
        let mut records = vec![Record::new(Nanos(0), Op::Write, 0, 4096)];
        for (gap, op, sector, sectors, class, fua) in rows {
            now += gap;
            let len = if op == Op::Flush { 0 } else { sectors * 512 };
            records.push(Record {
                class,
                flags: Flags::NONE.with(Flags::FUA, fua),
                ..Record::new(Nanos(now), op, sector * 512, len)
            });
        }
        Memory::new("random", records)
    })
}

fn setup() -> impl Strategy<Value = Setup> {
    let policy = prop::sample::select(vec![
        "linear",
        "greendm",
        "greendm,PT=2",
        "hot-dst-recency",
        "hot-dst-frequency",
    ]);
    let time = prop_oneof![
        (1u32..9).prop_map(|depth| TimeMode::Closed { depth }),
        (0.1..10.0f64).prop_map(|acceleration| TimeMode::Trace { acceleration }),
    ];
    let settings = prop::sample::select(vec![
        vec![],
        vec![("wear_bytes_per_day", 1e12), ("wear_burst_h", 0.001)],
        vec![("moves_max", 2.0), ("move_bytes_per_s", 1e6)],
    ]);
    let policy = (policy, settings);
    (policy, time, 12u32..17, 5u32..60, any::<bool>()).prop_map(
        |((policy, settings), time, shift, share, third)| {
            let policy = policy.parse().expect("a preset");
            let mut s = Setup::pair(policy, Size::Share(share * 10_000)).expect("sheets");
            s.time = time;
            s.extent_bytes = 1 << shift;
            s.host_w = 10.0;
            let owned = |(k, v): (&str, f64)| (k.to_owned(), v);
            s.settings = settings.into_iter().map(owned).collect();
            s.observe = Observe {
                time_bins: 8,
                address_bins: 4,
            };
            if third {
                let more = Tier::new(s.tiers[0].devices[0].clone(), Size::Share(200_000));
                s.tiers.insert(1, more);
            }
            s
        },
    )
}

fn sum(r: &Report, of: fn(&isotherm_lab::sim::MemberUsage) -> u64) -> u64 {
    let usage = r.usage.as_ref().expect("a full run");
    usage.members.values().map(of).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_is_lost_and_nothing_is_free(trace in trace(), setup in setup()) {
        let r = run(&setup, &trace).expect("runs");
        // Every byte that is written reaches a device in the foreground, once. A write to a partly unwritten extent takes no more: writes
        // are whole sectors.
        let written = sum(&r, |m| m.bytes_written - m.move_bytes_written - m.meta_bytes_written);
        prop_assert_eq!(written, r.bytes_written);
        // Every byte read comes from a device or from a move's buffer, or was discarded and reads as zeros.
        let read = sum(&r, |m| m.bytes_read - m.move_bytes_read);
        let elsewhere = r.ram_read_bytes.unwrap_or(0) + r.zero_read_bytes.unwrap_or(0);
        prop_assert_eq!(read + elsewhere, r.bytes_read);
        // Moves write the bytes that they read, except moves that became stale in between.
        let (from, to) = (sum(&r, |m| m.move_bytes_read), sum(&r, |m| m.move_bytes_written));
        prop_assert!(to <= from && r.migrated_bytes <= to, "{} {} {}", from, to, r.migrated_bytes);
        // The least energy of a device is that of its idle (or sleeping) power; the host's is added.
        let elapsed = r.elapsed_s.expect("full");
        let usage = r.usage.as_ref().expect("full");
        for (tier, m) in usage.members.values().map(|m| (usize::from(m.tier), m)) {
            let sheet = setup.tiers[tier].devices[0].sheet_for(m.bytes).expect("fits");
            let floor = match (&sheet.hdd, &sheet.ssd) {
                (Some(h), _) => h.power.idle_w,
                (_, Some(s)) => s.power.idle_w,
                _ => 0.0,
            };
            prop_assert!(m.energy_j >= floor * elapsed * 0.999_999 - 1e-9, "{} J in {} s", m.energy_j, elapsed);
            prop_assert!(m.wear_eu >= 0.0 && m.busy_s <= elapsed * 1.000_001 + 1e-9);
        }
        prop_assert!(r.energy_j >= Some(usage.host_j));
        // No request is answered faster than any device can answer.
        prop_assert!(r.latency_mean_s >= Some(1e-6) || r.reads + r.writes == 0);
        prop_assert!(r.latency_p50_s <= r.latency_p95_s && r.latency_p95_s <= r.latency_p99_s);
        // Sums over classes and over time equal the totals.
        prop_assert_eq!(r.by_class.values().map(|c| c.requests).sum::<u64>(), r.reads + r.writes);
        prop_assert_eq!(r.by_class.values().map(|c| c.accesses).sum::<u64>(), r.accesses);
        let s = r.series.as_ref().expect("asked for");
        prop_assert_eq!(s.requests.iter().sum::<u64>(), r.reads + r.writes);
        prop_assert_eq!(s.arrivals.iter().sum::<u64>(), r.reads + r.writes);
        prop_assert_eq!(s.accesses.iter().sum::<u64>(), r.accesses);
        prop_assert_eq!(s.request_sizes.iter().sum::<u64>(), r.reads + r.writes);
        // The heat map must contain all operations, tier by tier.
        let heat = s.heat.as_ref().expect("asked for");
        let by_size: Vec<u64> = s.operation_sizes.iter().map(|t| t.iter().sum()).collect();
        let by_address: Vec<u64> = heat.by_tier.iter().map(|t| t.iter().sum()).collect();
        prop_assert_eq!(&by_size, &by_address);
        let on_map: u64 = heat.operations.iter().flatten().sum();
        prop_assert_eq!(on_map, by_size.iter().sum::<u64>());
        // The power over all bins is the energy of the member.
        for m in &s.members {
            let whole = m.power_w.len() - 1;
            let last = elapsed - whole as f64 * s.bin_s;
            let joules: f64 = m.power_w.iter().enumerate()
                .map(|(i, w)| w * if i == whole { last.max(1e-9) } else { s.bin_s }).sum();
            let own = usage.members[&m.name].energy_j;
            prop_assert!((joules - own).abs() <= own * 1e-6 + 1e-6, "{}: {} and {}", m.name, joules, own);
        }
        let again = run(&setup, &trace).expect("runs");
        prop_assert_eq!(&again.digest, &r.digest);
        prop_assert_eq!((again.energy_j, again.series), (r.energy_j, r.series));
    }

    #[test]
    fn more_work_is_more_of_everything(trace in trace(), setup in setup()) {
        let part = Setup { limit: Some(trace.records.len() as u64 / 2 + 1), ..setup.clone() };
        let (a, b) = (run(&part, &trace).expect("runs"), run(&setup, &trace).expect("runs"));
        prop_assert!(a.requests <= b.requests && a.bytes_written <= b.bytes_written);
        // Empty records are dropped, so there may be fewer requests than records.
        let before = Setup { warm_up: b.requests / 2, ..setup.clone() };
        let tail = run(&before, &trace).expect("runs");
        prop_assert_eq!(&tail.digest, &b.digest);
        prop_assert!(tail.requests + before.warm_up == b.requests);
        prop_assert!(tail.energy_j <= b.energy_j && tail.elapsed_s <= b.elapsed_s);
        for (k, w) in tail.wear_eu.as_ref().expect("full") {
            prop_assert!(*w >= 0.0 && *w <= b.wear_eu.as_ref().expect("full")[k] + 1e-12, "wear falls");
        }
    }
}
