//! The buffer and the collection in idle time, against times worked out by hand.

use super::*;
use crate::{Options, Sheet, presets, sheet};

/// One unit that programmes 4 KiB in a millisecond, latencies of 10 and 20 µs, 4.096 µs for a transfer, a flush of 100 µs.
fn simple(buffer_kib: u32, protected: bool) -> Sheet {
    let mut s = sheet("sata-enterprise").unwrap();
    let d = s.ssd.as_mut().unwrap();
    (d.units, d.write_iops, d.read_iops) = (1, 1000.0, 1000.0);
    (d.write_us, d.sequential_write_us) = (10.0, 10.0);
    (d.read_us, d.sequential_read_us) = (20.0, 20.0);
    (d.read_mb_s, d.write_mb_s, d.flush_us) = (1000.0, 1000.0, 100.0);
    (d.write_buffer_kib, d.power_loss_protection) = (buffer_kib, protected);
    d.ftl = None;
    s
}

fn model(s: &Sheet) -> Ssd {
    Ssd::new(s.ssd.as_ref().unwrap(), &Options::default())
}

/// A random place of 4 KiB that continues no other one.
fn place(i: u64) -> u64 {
    (i * 7919 + 13) % 100_000 * 8192
}

fn write(d: &mut Ssd, now: u64, i: u64) -> u64 {
    d.start_timed(Nanos(now), ModelOp::Write, place(i), 4096)
        .unwrap()
        .0
}

#[test]
fn a_write_waits_for_room_and_not_for_a_unit() {
    // One is in the unit, and `room` wait; each of the others waits until a unit has taken as many as are ahead of it.
    for room in [0, 1, 5] {
        let mut d = model(&simple(room * 4, true));
        for i in 0..20u64 {
            let taken = i.saturating_sub(u64::from(room)) * 1_000_000;
            let alone = 10_000 + 4096 + taken;
            let crossed = (i + 1) * 4096;
            assert_eq!(
                write(&mut d, 0, i),
                alone.max(crossed),
                "write {i}, room {room}"
            );
        }
    }
}

#[test]
fn a_write_that_is_larger_than_the_buffer_waits_for_units() {
    let mut d = model(&simple(4, true));
    for i in 0..3 {
        write(&mut d, 0, i);
    }
    // Two are ahead in the buffer and the unit; 8 KiB do not fit, so the unit must take them: from 3 ms on.
    let finish = d.start_timed(Nanos(0), ModelOp::Write, place(9), 8192);
    assert_eq!(finish, Some(Nanos(3_000_000 + 10_000 + 8192)));
}

#[test]
fn flush_waits_for_the_flash_unless_the_buffer_is_protected() {
    for (protected, want) in [
        // The last reply, after five transfers.
        (true, 5 * 4096 + 100_000),
        (false, 5_000_000 + 100_000),
    ] {
        for through in [false, true] {
            let mut d = model(&simple(64, protected));
            for i in 0..if through { 4 } else { 5 } {
                write(&mut d, 0, i);
            }
            let finish = if through {
                d.start_timed(Nanos(0), ModelOp::WriteThrough, place(4), 4096)
            } else {
                d.start_timed(Nanos(0), ModelOp::Flush, 0, 0)
            };
            assert_eq!(finish, Some(Nanos(want)), "{protected} {through}");
            // Nothing waits any more if the flash had to have it.
            let again = d.start_timed(Nanos(20_000_000), ModelOp::Flush, 0, 0);
            assert_eq!(again, Some(Nanos(20_100_000)));
        }
    }
}

#[test]
fn a_read_goes_before_writes_that_wait() {
    let mut d = model(&simple(64, true));
    for i in 0..10 {
        write(&mut d, 0, i);
    }
    // The third is being programmed until 3 ms.
    let read = |d: &mut Ssd, now, i| d.start_timed(Nanos(now), ModelOp::Read, place(i), 4096);
    assert_eq!(
        read(&mut d, 2_500_000, 50),
        Some(Nanos(3_000_000 + 20_000 + 4096))
    );
    // Writes that a FLUSH of an unprotected drive waits for have units; a read after it goes behind them.
    let mut d = model(&simple(64, false));
    for i in 0..10 {
        write(&mut d, 0, i);
    }
    d.start_timed(Nanos(2_500_000), ModelOp::Flush, 0, 0);
    assert_eq!(
        read(&mut d, 2_500_000, 50),
        Some(Nanos(10_000_000 + 20_000 + 4096))
    );
}

#[test]
fn programming_after_the_reply_is_active_time() {
    let mut d = model(&simple(64, true));
    for i in 0..8 {
        write(&mut d, 0, i);
    }
    let at = |ms: u64| {
        d.counters(Nanos(ms * 1_000_000))
            .time_in(PowerState::Active)
    };
    assert_eq!(at(3), Nanos(3_000_000));
    assert_eq!(at(100), Nanos(8_000_000));
    // Eight milliseconds of writing with all units.
    let p = sheet("sata-enterprise").unwrap().ssd.unwrap().power;
    let want = 0.1 * p.idle_w + 0.008 * (p.write_w - p.idle_w);
    let got = d.counters(Nanos(100_000_000)).energy_j();
    assert!((got / want - 1.0).abs() < 1e-9, "{got} {want}");
}

/// A used drive of 64 MiB: it answers at once if it has time between writes, and waits for collection if not. Both cost the same energy.
#[test]
fn idle_time_pays_for_collection() {
    let options = Options {
        size: 64 << 20,
        ..Options::default()
    };
    let sheet = sheet("sata-enterprise").unwrap();
    let ssd = sheet.ssd.as_ref().unwrap();
    let run = |gap: Option<u64>| {
        let mut d = Ssd::new(ssd, &options);
        let mut random = isotherm_core::random::SplitMix64::new(4);
        // After a second, there is room for what is written here.
        let (mut now, mut slowest) = (gap.map_or(0, |_| 1_000_000_000), 0);
        for _ in 0..40_000 {
            let at = random.below((64 << 20) / 4096) * 4096;
            let end = d.start_timed(Nanos(now), ModelOp::Write, at, 4096).unwrap();
            slowest = slowest.max(end.0 - now);
            now = gap.map_or(now, |g| end.0 + g);
        }
        let end = Nanos::from_secs(3000);
        (d.counters(end).energy_j(), slowest, d)
    };
    let (spaced_j, spaced, _) = run(Some(50_000_000));
    let (dense_j, dense, d) = run(None);
    let latency = (ssd.write_us * 1e3) as u64 + (4096.0 * 1e3 / ssd.write_mb_s) as u64;
    assert_eq!(spaced, latency, "no write waits");
    assert!(dense > 1_000_000_000, "a second of work at once: {dense}");
    assert!(
        (spaced_j / dense_j - 1.0).abs() < 1e-6,
        "{spaced_j} {dense_j}"
    );
    // By the pages that were copied and erased, at the times of the sheet.
    let f = ssd.ftl.as_ref().unwrap();
    let occupied = 16.0 * 1e9 / ssd.write_iops;
    let (programming, scale) = flash::programming(f, occupied);
    let pages = d.counters(Nanos(0)).flash_pages_written as f64;
    let collection = (pages - 40_000.0) * f.copy_us + pages * f.erase_us / 1024.0;
    // The bandwidth that a write takes is a larger share of the drive than its programming.
    let write = programming.max(4096.0 * 1e3 / ssd.write_mb_s * 16.0);
    let seconds = (40_000.0 * write * 1e-9 + collection * scale * 1e-6) / 16.0;
    let want = seconds * (ssd.power.write_w - ssd.power.idle_w);
    let added = dense_j - 3000.0 * ssd.power.idle_w;
    assert!((added / want - 1.0).abs() < 0.03, "{added} J, not {want}");
    assert!(d.write_amplification().unwrap() > 2.0);
}

#[test]
fn what_was_due_before_the_run_is_not_its_energy() {
    let d = Ssd::new(
        sheet("sata-enterprise").unwrap().ssd.as_ref().unwrap(),
        &Options::default(),
    );
    let c = d.counters(Nanos::from_secs(1000));
    assert_eq!(c.time_in(PowerState::Active), Nanos(0));
}

/// Bursts of writes and reads, ten seconds apart: each drive, as it is after years, answers sooner than a disk that is idle.
#[test]
fn a_drive_with_time_between_bursts_answers_sooner_than_a_disk() {
    let disk = sheet("exos-18tb").unwrap().cost(&Options::default());
    let disk = disk.unwrap().read;
    for s in presets().unwrap() {
        let Some(ssd) = &s.ssd else { continue };
        let mut d = Ssd::new(ssd, &Options::default());
        let mut random = isotherm_core::random::SplitMix64::new(8);
        for i in 0..600u64 {
            let now = Nanos::from_secs(10 + i / 4 * 10);
            let at = random.below(ssd.capacity / 65536) * 65536;
            let op = [ModelOp::Write, ModelOp::Read][i as usize % 2];
            let end = d.start_timed(now, op, at, 65536).unwrap();
            let took = end.since(now);
            assert!(took < disk, "{} {op:?}: {took:?}, a disk {disk:?}", s.name);
        }
    }
}
