//! The units of addresses, sizes and times: settled by evidence, or stated as a doubt.

mod common;

use std::fmt::Write as _;

use common::{columns, oracle, read, written};
use isotherm_core::random::SplitMix64;
use isotherm_traces::{Format, Options, Sure, open};

/// Lines `time 0 lba size op` of requests of which some follow the one before, with lba and size in these units.
fn five_columns(at_unit: u64, size_unit: u64, first: u64, seed: u64) -> String {
    let (mut r, mut end, mut text) = (SplitMix64::new(seed), first * at_unit, String::new());
    for i in 0..400 {
        let size = 4096 * (1 + r.below(9));
        if r.below(4) > 0 {
            end = first * at_unit + 4096 * r.below(1 << 22);
        }
        let (at, size) = (end / at_unit, size / size_unit);
        writeln!(text, "{i}.5 0 {at} {size} {}", r.below(2)).expect("writing text");
        end += size * size_unit;
    }
    text
}

#[test]
fn what_follows_what_tells_pages_from_sectors_at_any_alignment() {
    for seed in 0..20 {
        // A partition that begins at sector 63: no address is a multiple of 8.
        for first in [0, 1, 63] {
            for (size_unit, format) in [(4096, "disksim-pages"), (512, "disksim")] {
                let text = five_columns(512, size_unit, first, seed);
                let (found, records) = read(text.as_bytes(), &Options::default());
                assert_eq!(found.format, format, "{first} {seed} {:?}", found.assumed);
                assert!(found.doubts.is_empty(), "{:?}", found.doubts);
                assert!(records.iter().all(|r| r.len <= 9 * 4096));
            }
        }
        // Units that none of these formats has are named, not taken for another.
        let text = five_columns(512, 1, 63, seed);
        let (found, _) = read(text.as_bytes(), &Options::default());
        assert!(
            found.sure == Sure::Guess && found.doubts[0].contains("sizes bytes"),
            "{:?}",
            found.doubts
        );
    }
}

#[test]
fn numbers_that_show_no_unit_are_doubted() {
    let mut r = SplitMix64::new(9);
    let mut text = String::new();
    for i in 0..400 {
        writeln!(text, "{i}.5 0 {} {} 1", r.below(1 << 30), 1 + r.below(7)).expect("writing text");
    }
    let (found, _) = read(text.as_bytes(), &Options::default());
    assert_eq!(
        (found.format.as_str(), found.sure),
        ("disksim", Sure::Guess)
    );
    assert!(
        found.doubts[0].contains("Nothing shows whether lba and size"),
        "{:?}",
        found.doubts
    );
    // So are numbers of which one follows another in equal units that no sector shows: they may be bytes.
    let (mut at, mut odd) = (12_345, String::new());
    for i in 0..400 {
        let size = 1 + r.below(9_000);
        writeln!(odd, "{i}.5 0 {at} {size} 1").expect("writing text");
        at = if i % 2 == 0 {
            at + size
        } else {
            r.below(1 << 30)
        };
    }
    let (found, _) = read(odd.as_bytes(), &Options::default());
    assert!(
        found.sure == Sure::Guess && found.doubts[0].contains("lba and size"),
        "{:?}",
        found.doubts
    );
    // A user who names the format has no doubt.
    let named = Options {
        format: Some(Format::DiskSim),
        ..Options::default()
    };
    assert!(read(text.as_bytes(), &named).0.doubts.is_empty());
}

/// At random, the gaps of a trace are alike in every unit: an SSD in nanoseconds is a disk in microseconds.
#[test]
fn times_that_fit_two_units_are_doubted_and_others_are_not() {
    let lines = |gap: &mut dyn FnMut(u64) -> u64| {
        let (mut t, mut text) = (1_003, String::new());
        for i in 0..3_000 {
            t += gap(i);
            writeln!(text, "{t} 0 {} 8 1", i * 24).expect("writing text");
        }
        read(text.as_bytes(), &Options::default()).0
    };
    let mut r = SplitMix64::new(3);
    let random = lines(&mut |_| {
        ((r.below(1 << 20) + 1) as f64 / 1e6)
            .ln()
            .mul_add(-9e3, 1.0) as u64
    });
    assert!(
        random.sure == Sure::Guess && random.doubts[0].contains("unit of time"),
        "{:?}",
        random.doubts
    );
    // Requests in bursts of some 100 us, and pauses of 50 ms.
    let bursts = lines(&mut |i| {
        if i % 10 == 0 {
            50_007
        } else {
            1 + i * 13 % 101
        }
    });
    assert!(bursts.doubts.is_empty(), "{:?}", bursts.doubts);
    assert!(bursts.assumed.iter().any(|s| s.contains("microseconds")));
    // Nanoseconds of a device that serves 80 000 requests a second, all about 12 us apart: as microseconds 83 a second, but never two
    // within a millisecond.
    let even = lines(&mut |i| 11_003 + i * 7919 % 2_000);
    assert!(
        even.doubts
            .iter()
            .all(|d| !d.contains("Nothing shows the unit"))
    );
    assert!(
        even.assumed.iter().any(|s| s.contains("nanoseconds")),
        "{:?}",
        even.assumed
    );
    // A clock of 100 ns, as Windows has it.
    let ticks = lines(&mut |i| 100 * (3 + i * 131 % 897));
    assert!(
        ticks.assumed.iter().any(|s| s.contains("nanoseconds")),
        "{:?}",
        ticks.assumed
    );
}

#[test]
fn object_numbers_count_what_follows_what_shows() {
    for unit in [512_u64, 4096] {
        for seed in 0..10 {
            let (mut r, mut at, mut trace) = (SplitMix64::new(seed), 777, Vec::new());
            for i in 0..500_u32 {
                let units = 1 + r.below(5);
                trace.extend(oracle(i / 9, at, (units * unit) as u32, -1));
                at = if r.below(3) == 0 {
                    at + units
                } else {
                    1 + r.below(1 << 28)
                };
            }
            let (found, records) = read(&trace, &Options::default());
            assert_eq!(found.format, "oracle-general");
            assert_eq!(records[0].offset, 777 * unit, "{:?}", found.assumed);
            assert!(found.doubts.is_empty(), "{:?}", found.doubts);
            assert!(
                found
                    .assumed
                    .iter()
                    .any(|s| s.contains("all are taken as reads"))
            );
        }
    }
    let (mut r, mut trace) = (SplitMix64::new(4), Vec::new());
    for i in 0..500_u32 {
        trace.extend(oracle(i, r.below(1 << 28), 1_000, -1));
    }
    let (found, records) = read(&trace, &Options::default());
    assert!(
        found.sure == Sure::Guess && found.doubts[0].contains("--block-bytes"),
        "{:?}",
        found.doubts
    );
    let bytes = Options {
        block_bytes: Some(1),
        ..Options::default()
    };
    let (known, in_bytes) = read(&trace, &bytes);
    assert!(known.doubts.iter().all(|d| !d.contains("--block-bytes")));
    assert_eq!(records[1].offset, 4096 * in_bytes[1].offset);
}

#[test]
fn columns_without_a_unit_leave_a_doubt_where_one_remains() {
    let mut r = SplitMix64::new(8);
    let mut text = String::new();
    let mut at = 5_001;
    for i in 0..200 {
        let len = 8 * (1 + r.below(4));
        writeln!(text, "{} {at} {len}", 17 + i * 7).expect("writing text");
        at = if r.below(2) == 0 {
            at + len
        } else {
            r.below(1 << 24)
        };
    }
    let (open, records) = read(text.as_bytes(), &columns("time,offset,length"));
    assert_eq!(open.sure, Sure::Guess);
    assert!(open.doubts[0].contains("unit of time"), "{:?}", open.doubts);
    assert!(
        open.assumed.iter().any(|s| s.contains("sectors of 512 B")),
        "{:?}",
        open.assumed
    );
    assert!(
        open.assumed
            .iter()
            .any(|s| s.contains("all are taken as reads"))
    );
    let (stated, same) = read(
        text.as_bytes(),
        &columns("time_us,offset_sectors,length_sectors,op=R"),
    );
    assert_eq!((stated.sure, same), (Sure::Certain, records));
    assert!(
        stated.assumed.is_empty() && stated.doubts.is_empty(),
        "{:?}",
        stated.doubts
    );
    // Clocks since 1970 state their unit by their digits.
    for (factor, digits) in [(1_u64, "read in s"), (1_000_000, "read in us")] {
        let epoch: Vec<String> = (0..99)
            .map(|i| format!("{} {} 4096", (1_538_323_200 + i) * factor, i * i * 4096))
            .collect();
        let (found, records) = read(epoch.join("\n").as_bytes(), &columns("time,offset,length"));
        assert!(found.doubts.is_empty(), "{:?}", found.doubts);
        assert!(
            found.assumed.iter().any(|s| s.contains(digits)),
            "{:?}",
            found.assumed
        );
        assert_eq!(records[98].time.0, 98_000_000_000);
    }
}

#[test]
fn a_suggestion_takes_no_clock_for_an_address_and_states_no_guess() {
    let suggested = |text: &str| {
        let (_dir, path) = written(text.as_bytes());
        let failed = open(&path, &Options::default())
            .expect_err("no format")
            .to_string();
        let (_, rest) = failed.split_once("`--columns ").expect("a suggestion");
        rest.split_once('`').expect("its end").0.to_owned()
    };
    let clock = |unit: u64| {
        let mut r = SplitMix64::new(unit);
        let row = |i: u64| {
            // Not quite in order, as records of several processors.
            let time = (1_538_323_200 + i / 3) * unit + if i % 11 == 3 { 0 } else { unit };
            format!(
                "h{} {time} R {} {}\n",
                i % 3,
                8 * r.below(1 << 20),
                8 * (1 + i % 4)
            )
        };
        suggested(&(0..64).map(row).collect::<Vec<_>>().concat())
    };
    assert_eq!(clock(1), "-,time_s,op,offset_sectors,length_sectors");
    assert_eq!(clock(1_000), "-,time_ms,op,offset_sectors,length_sectors");
    let small = (0..64)
        .map(|i| format!("{} x {} 512\n", 17 + i * 7, i * i * 512))
        .collect::<Vec<_>>()
        .concat();
    let line = suggested(&small);
    assert_eq!(line, "time,-,offset_bytes,length_bytes");
    // What is suggested can be used, and is not certain.
    let (found, _) = read(small.as_bytes(), &columns(&line));
    assert!(found.sure == Sure::Guess && !found.doubts.is_empty());
}
