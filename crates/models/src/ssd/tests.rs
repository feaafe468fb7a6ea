use super::*;
use crate::{FlashState, Options, sheet};
use isotherm_core::random::SplitMix64;

fn drive(name: &str, options: &Options) -> Ssd {
    Ssd::new(sheet(name).unwrap().ssd.as_ref().unwrap(), options)
}

#[test]
fn sequential_overwrites_and_discards_cost_no_copies() {
    let mut ftl = Ftl::new(10_000, 64, 0.1);
    for _ in 0..5 {
        for p in 0..10_000 {
            ftl.write(p, p);
        }
    }
    assert!(
        ftl.write_amplification().unwrap() < 1.01,
        "{:?}",
        ftl.write_amplification()
    );
    // If half the space is discarded, it is spare space.
    let amplify = |discard: bool| {
        let mut ftl = Ftl::new(10_000, 64, 0.1);
        ftl.write(0, 9_999);
        if discard {
            ftl.discard(5_000, 10_000);
        }
        let mut random = SplitMix64::new(3);
        for _ in 0..60_000 {
            let p = random.below(5_000);
            ftl.write(p, p);
        }
        ftl.write_amplification().unwrap()
    };
    assert!(
        amplify(true) < 0.6 * amplify(false),
        "{} {}",
        amplify(true),
        amplify(false)
    );
}

#[test]
fn collection_shows_in_time_and_wear() {
    let size = 256 << 20;
    let run = |flash| {
        let mut d = drive(
            "intel-320-300",
            &Options {
                size,
                flash,
                ..Options::default()
            },
        );
        let (mut random, mut done, mut now) = (SplitMix64::new(9), Vec::new(), Nanos(0));
        for i in 0..300_000 {
            d.start(
                now,
                i,
                ModelOp::Write,
                random.below(size / 4096) * 4096,
                4096,
            );
            now = d.next_event().unwrap();
            d.poll(now, &mut done);
        }
        (now, d)
    };
    let (plain, p) = run(FlashState::Ideal);
    let (real, r) = run(FlashState::Preconditioned);
    assert!(real.0 > plain.0 * 2, "{real:?} {plain:?}");
    let c = r.counters(real);
    assert!(c.erases > 0 && c.flash_pages_written > c.pages_written);
    assert!(r.write_amplification().unwrap() > 2.0);
    // The whole drive shares the wear of a member: programmed bytes divided by the bytes that its flash can take in its life.
    let life = 3000.0 * 300e9 * 1.074;
    let want = c.flash_bytes_written as f64 / life * 1e6;
    let eu = r.wear().flash_eu.unwrap();
    assert!((eu / want - 1.0).abs() < 0.15, "{eu} {want}");
    assert_eq!(
        (p.wear().flash_eu, p.wear().host_eu),
        (None, r.wear().host_eu)
    );
}

#[test]
fn wear_follows_greendm() {
    // GreenDM 7.2: 365 GB written to a drive of 36,500 GB is a hundredth of its life.
    let mut d = drive("intel-320-300", &Options::default());
    for i in 0..365_000u64 {
        d.start(
            Nanos(i),
            i,
            ModelOp::Write,
            i * 1_000_000 / 4096 % 70_000_000 * 4096,
            1_000_000 / 4096 * 4096,
        );
    }
    let written = d.counters(Nanos(0)).bytes_written as f64;
    assert!((d.wear().host_eu - written / 36_500e9 * 1e6).abs() < 1e-6);
    assert!(
        (d.wear().host_eu - 10_000.0).abs() < 50.0,
        "{}",
        d.wear().host_eu
    );
    // Reads count a tenth or a hundredth. A page that is read in part counts as a whole.
    let page = 4096.0 / 36_500e9 * 1e6;
    for (ratio, share) in [(10.0, 0.1), (100.0, 0.01), (0.0, 0.0)] {
        let mut d = drive(
            "intel-320-300",
            &Options {
                reads_per_write: Some(ratio),
                ..Options::default()
            },
        );
        d.start(Nanos(0), 0, ModelOp::Read, 4000, 200);
        assert!((d.wear().host_eu - 2.0 * share * page).abs() < 1e-12);
        d.set_reads_per_write(4.0);
        assert!((d.wear().host_eu - 2.0 * 0.25 * page).abs() < 1e-12);
    }
}

#[test]
fn a_finish_known_at_start_is_the_one_that_poll_would_tell() {
    let options = Options {
        size: 64 << 20,
        flash: FlashState::Fresh,
        ..Options::default()
    };
    let (mut a, mut b) = (drive("ocz-40", &options), drive("ocz-40", &options));
    let (mut random, mut done) = (SplitMix64::new(5), Vec::new());
    let (mut times, mut told) = (Vec::new(), Vec::new());
    for i in 0..5000u64 {
        while let Some(at) = b.next_event().filter(|t| t.0 <= i * 60_000) {
            b.poll(at, &mut done);
            told.extend(done.drain(..).map(|id| (at.0, id)));
        }
        let op = if i % 3 == 0 {
            ModelOp::Read
        } else {
            ModelOp::Write
        };
        let offset = random.below(64 << 8) * 4096;
        let now = Nanos(i * 60_000);
        b.start(now, i, op, offset, 4096);
        times.push((a.start_timed(now, op, offset, 4096).unwrap().0, i));
    }
    assert_eq!(a.next_event(), None);
    times.sort_unstable();
    while let Some(at) = b.next_event() {
        b.poll(at, &mut done);
        told.extend(done.drain(..).map(|id| (at.0, id)));
    }
    told.sort_unstable();
    assert!(told == times, "the two disagree");
    assert_eq!(a.wear(), b.wear());
}

#[test]
fn an_idle_drive_answers_in_its_latency_and_a_flush_covers_writes() {
    let mut d = drive("intel-x25e-32", &Options::default());
    d.start(Nanos(0), 1, ModelOp::Read, 1 << 30, 4096);
    let read = 75_000 + 4096 * 1000 / 250;
    assert_eq!(d.next_event(), Some(Nanos(read)));
    d.start(Nanos(0), 2, ModelOp::Write, 2 << 30, 4096);
    d.start(Nanos(0), 3, ModelOp::Flush, 0, 0);
    let mut done = Vec::new();
    d.poll(Nanos(read - 1), &mut done);
    assert!(done.is_empty());
    d.poll(Nanos::from_secs(1), &mut done);
    assert_eq!(done, [1, 2, 3]);
}

#[test]
fn sleep_saves_power_and_waking_takes_time() {
    let mut d = drive("ocz-vertex3-maxiops", &Options::default());
    d.start(Nanos(0), 1, ModelOp::Standby, 0, 0);
    let second = Nanos::from_secs(1);
    assert!((d.counters(second).energy_j() - 0.1).abs() < 1e-9);
    d.start(second, 2, ModelOp::Read, 1 << 30, 4096);
    let mut done = Vec::new();
    d.poll(second, &mut done);
    assert_eq!(done, [1]);
    assert!(d.next_event().unwrap().since(second).0 > 10_000_000);
    assert_eq!(d.counters(second).start_stops, 1);
}

/// Mean power in watts of `op` at a depth that saturates every drive, from start to end.
fn drawn(name: &str, op: ModelOp, random: bool, len: u32) -> f64 {
    let mut d = drive(
        name,
        &Options {
            flash: FlashState::Fresh,
            ..Options::default()
        },
    );
    let work = crate::measure::Work {
        op,
        len,
        random,
        span: d.capacity(),
        depth: 256,
        count: 20_000,
        seed: 5,
    };
    let (outcome, end) = crate::measure::run(&mut d, Nanos(0), &work);
    d.counters(end).energy_j() / outcome.seconds
}

#[test]
fn a_drive_at_its_limit_draws_its_sheets_active_power() {
    let sheets = crate::presets().unwrap();
    let mut looked_at = 0;
    for sheet in &sheets {
        let Some(ssd) = &sheet.ssd else { continue };
        for (op, watts) in [
            (ModelOp::Read, ssd.power.read_w),
            (ModelOp::Write, ssd.power.write_w),
        ] {
            for (random, len) in [(true, 4096), (false, 128 << 10)] {
                let got = drawn(&sheet.name, op, random, len);
                assert!(
                    (got / watts - 1.0).abs() < 0.1,
                    "{} {op:?} random {random}: {got:.3} W, the sheet says {watts}",
                    sheet.name
                );
                looked_at += 1;
            }
        }
    }
    assert!(looked_at >= 20, "{looked_at}");
}

#[test]
fn half_the_load_draws_half_of_what_work_adds() {
    let sheet = sheet("nvme-tlc").unwrap();
    let power = &sheet.ssd.as_ref().unwrap().power;
    let mut d = drive("nvme-tlc", &Options::default());
    // 128 KiB take 18.7 us at 7 GB/s; one of them every 37.4 us is half of that rate.
    let (step, count) = (37_449, 10_000u64);
    let mut done = Vec::new();
    for i in 0..count {
        d.start(Nanos(i * step), i, ModelOp::Read, i << 17, 128 << 10);
        d.poll(Nanos(i * step), &mut done);
    }
    let end = Nanos(count * step);
    let watts = d.counters(end).energy_j() / end.as_secs_f64();
    let want = f64::midpoint(power.idle_w, power.read_w);
    assert!(
        (watts / want - 1.0).abs() < 0.02,
        "{watts:.3} W instead of {want:.3}"
    );
}

#[test]
fn the_layers_of_all_drives_are_small() {
    for s in crate::presets().unwrap() {
        let Some(ssd) = s.ssd.as_ref().filter(|s| s.ftl.is_some()) else {
            continue;
        };
        let d = Ssd::new(ssd, &Options::default());
        let bytes = d.flash_memory_bytes();
        assert!((1 << 20..4 << 20).contains(&bytes), "{}: {bytes}", s.name);
    }
}

#[test]
fn sixteen_kilobytes_at_random_cost_more_than_four() {
    let rate = |name: &str, op, len| {
        let mut d = drive(
            name,
            &Options {
                flash: FlashState::Ideal,
                ..Options::default()
            },
        );
        let work = crate::measure::Work {
            op,
            len,
            random: true,
            span: d.capacity(),
            depth: 64,
            count: 20_000,
            seed: 5,
        };
        crate::measure::run(&mut d, Nanos(0), &work).0
    };
    for op in [ModelOp::Read, ModelOp::Write] {
        let (small, large) = (
            rate("intel-x25e-32", op, 4096),
            rate("intel-x25e-32", op, 16384),
        );
        assert!(
            (large.iops / small.iops - 0.25).abs() < 0.02,
            "{op:?}: {} and {}",
            small.iops,
            large.iops
        );
        // An operation of a megabyte runs at nearly the drive's bandwidth.
        let huge = rate("intel-x25e-32", op, 1 << 20);
        assert!(huge.mb_s > 0.7 * if op == ModelOp::Read { 250.0 } else { 170.0 });
    }
    // A drive with mapping units of 64 KiB writes at least one of them.
    let (small, large) = (
        rate("nvme-qlc", ModelOp::Write, 4096),
        rate("nvme-qlc", ModelOp::Write, 65536),
    );
    assert!((large.iops / small.iops - 1.0).abs() < 0.02);
}

/// Flash that never collects is not slower than an erased drive, whatever state the sheet's rate is of; the sheet's rate is that of `rated`.
#[test]
fn ideal_flash_is_not_slower_than_fresh() {
    for s in crate::presets().unwrap() {
        let Some(ssd) = s.ssd.as_ref().filter(|s| s.ftl.is_some()) else {
            continue;
        };
        let rate = |flash| {
            let options = Options {
                flash,
                ..Options::default()
            };
            let mut d = Ssd::new(ssd, &options);
            let work = crate::measure::Work {
                op: ModelOp::Write,
                len: 4096,
                random: true,
                span: d.capacity(),
                depth: 32,
                count: 20_000,
                seed: 3,
            };
            crate::measure::run(&mut d, Nanos(0), &work).0.iops
        };
        let [ideal, fresh, rated, worn] = [
            FlashState::Ideal,
            FlashState::Fresh,
            FlashState::Rated,
            FlashState::Preconditioned,
        ]
        .map(rate);
        assert!(ideal >= 0.999 * fresh, "{}: {ideal} {fresh}", s.name);
        assert!(ideal >= 0.999 * rated, "{}: {ideal} {rated}", s.name);
        assert!(worn <= 1.001 * rated, "{}: {worn} {rated}", s.name);
        let steady = ssd.ftl.as_ref().is_some_and(|f| f.rated == Rated::Steady);
        assert_eq!(ideal > 1.01 * rated, steady, "{}: {ideal} {rated}", s.name);
    }
}
