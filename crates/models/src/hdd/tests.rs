use super::*;
use crate::Options;
use isotherm_core::random::SplitMix64;

fn disk(options: &Options) -> Hdd {
    let sheet = crate::sheet("wd5000aaks").unwrap();
    Hdd::new(sheet.hdd.as_ref().unwrap(), options)
}

/// Polls at each event until nothing is left; returns (id, time).
fn drain(d: &mut Hdd) -> Vec<(u64, u64)> {
    let (mut out, mut done) = (Vec::new(), Vec::new());
    while let Some(at) = d.next_event() {
        d.poll(at, &mut done);
        out.extend(done.drain(..).map(|id| (id, at.0)));
    }
    out
}

#[test]
fn the_arm_does_one_thing_at_a_time() {
    // Random, sequential, cached and spindle work together. The intervals are taken from the model's own state.
    let mut d = disk(&Options {
        write_cache: Some(true),
        ..Options::default()
    });
    let mut last = 0;
    let mut jobs = 0;
    let mut random = SplitMix64::new(1);
    let mut current = None;
    for i in 0..3000u64 {
        let seed = random.draw();
        let offset = (seed >> 20) % 100_000_000 * 4096;
        let (op, offset) = match seed >> 61 {
            0..=2 => (ModelOp::Read, offset),
            3..=5 => (ModelOp::Write, offset),
            6 => (ModelOp::Read, i * 4096),
            _ if i % 50 == 0 => (ModelOp::Standby, 0),
            _ => (ModelOp::Flush, 0),
        };
        d.start(
            Nanos(i * 3_000_000),
            i,
            op,
            offset,
            if op == ModelOp::Read || op == ModelOp::Write {
                4096
            } else {
                0
            },
        );
        // Steps through every event before the next arrival, so that each job is observed.
        loop {
            if let Some(r) = d.running
                && current != Some((r.begin, r.finish))
            {
                assert!(r.begin >= last, "{r:?} begins before {last}");
                assert!(r.begin <= r.seek_end && r.seek_end <= r.finish, "{r:?}");
                last = r.finish;
                jobs += 1;
                current = Some((r.begin, r.finish));
            }
            let Some(at) = d.next_event().filter(|t| t.0 <= (i + 1) * 3_000_000) else {
                break;
            };
            d.poll(at, &mut Vec::new());
        }
    }
    assert!(jobs > 1000, "{jobs}");
}

#[test]
fn seek_curve_meets_its_three_figures() {
    let sheet = crate::sheet("wd7500aaks").unwrap().hdd.unwrap();
    let g = Geometry::new(&sheet);
    let last = g.locate(sheet.capacity - 1);
    let place = |cylinder| Place { cylinder, ..last };
    let ms = |from: u32, to: u32| g.seek_ns((from, u64::MAX), &place(to)) as f64 / 1e6;
    assert!((ms(0, 1) - 2.0).abs() < 0.1, "{}", ms(0, 1));
    assert!(
        (ms(0, last.cylinder) - 21.0).abs() < 0.3,
        "{}",
        ms(0, last.cylinder)
    );
    let n = 400;
    let at = |i: u32| (u64::from(i) * u64::from(last.cylinder) / u64::from(n)) as u32;
    let total: f64 = (0..n)
        .flat_map(|a| (0..n).map(move |b| (a, b)))
        .map(|(a, b)| ms(at(a), at(b)))
        .sum();
    let mean = total / f64::from(n * n);
    assert!((mean - 8.9).abs() < 0.1, "{mean}");
    // A longer distance never takes less time.
    assert!((1..n).all(|i| ms(0, at(i)) <= ms(0, at(i + 1))));
}

#[test]
fn every_byte_has_its_own_place_and_tracks_follow_on() {
    let sheet = crate::sheet("wd5000aaks").unwrap().hdd.unwrap();
    let g = Geometry::new(&sheet);
    let mut previous = g.locate(0);
    let mut offset = 0;
    while offset + 4096 < sheet.capacity {
        offset += if offset % 3 == 0 { 4096 } else { 99_999_744 };
        let p = g.locate(offset.min(sheet.capacity - 1));
        assert!((p.track, p.within) > (previous.track, previous.within));
        assert!(p.angle < g.rev_ns && p.within < p.track_bytes);
        previous = p;
    }
    assert!(g.locate(0).track_bytes > g.locate(sheet.capacity - 1).track_bytes);
}

#[test]
fn the_first_access_wakes_the_disk_and_pays_for_it() {
    let mut d = disk(&Options::default());
    let spin_up = 11_000_000_000;
    d.start(Nanos(0), 1, ModelOp::Standby, 0, 0);
    let down = drain(&mut d)[0].1;
    assert!((5_000_000_000..5_001_000_000).contains(&down), "{down}");
    // A flush has nothing to write, so the disk stays asleep.
    let later = down + 100_000_000_000;
    d.start(Nanos(later), 2, ModelOp::Flush, 0, 0);
    let flushed = drain(&mut d)[0].1;
    assert!(flushed - later < 1_000_000);
    assert_eq!(
        d.counters(Nanos(flushed)).time_in(PowerState::Standby).0,
        flushed - down
    );
    // A second standby command while asleep starts no second cycle.
    d.start(Nanos(later + 1_000_000), 3, ModelOp::Standby, 0, 0);
    drain(&mut d);
    let access = later + 10_000_000;
    d.start(Nanos(access), 4, ModelOp::Read, 1 << 30, 4096);
    let up = drain(&mut d)[0].1;
    assert!(
        up - access >= spin_up && up - access < spin_up + 40_000_000,
        "{}",
        up - access
    );
    let c = d.counters(Nanos(up));
    assert_eq!(c.start_stops, 1);
    assert_eq!(c.time_in(PowerState::SpinUp).0, spin_up);
    assert!((c.state_j[PowerState::SpinUp as usize] - 165.0).abs() < 1e-6);
    assert!((d.wear().host_eu - 1e6 / 50_000.0).abs() < 1e-9);
}

#[test]
fn an_access_during_spin_down_waits_for_both() {
    let mut d = disk(&Options {
        write_cache: Some(false),
        ..Options::default()
    });
    d.start(Nanos(0), 1, ModelOp::Standby, 0, 0);
    d.start(Nanos(1_000_000_000), 2, ModelOp::Write, 0, 4096);
    // A report during a state change knows the state of the spindle.
    let spent = |s| d.counters(Nanos(4_000_000_000)).time_in(s).0;
    assert_eq!(
        (spent(PowerState::SpinDown), spent(PowerState::Idle)),
        (3_999_900_000, 100_000)
    );
    let out = drain(&mut d);
    assert_eq!(out[0].0, 1);
    assert!(
        out[1].1 > 16_000_000_000 && out[1].1 < 16_100_000_000,
        "{out:?}"
    );
}

#[test]
fn a_far_command_is_not_starved_by_near_ones() {
    let sheet = crate::sheet("wd5000aaks").unwrap().hdd.unwrap();
    let mut d = Hdd::new(&sheet, &Options::default());
    let far = 10_000;
    let mut worst = 0;
    let mut done = Vec::new();
    let mut now = Nanos(0);
    for i in 0..16 {
        d.start(now, i, ModelOp::Read, i * 50_000_000, 4096);
    }
    d.start(now, far, ModelOp::Read, sheet.capacity - 8192, 4096);
    for i in 16..2000u64 {
        now = d.next_event().unwrap();
        d.poll(now, &mut done);
        for id in done.drain(..) {
            if id == far {
                worst = now.0;
            } else {
                d.start(now, i, ModelOp::Read, i * 7_368_787 % 250_000 * 4096, 4096);
            }
        }
        if worst > 0 {
            break;
        }
    }
    // It is passed over for a while (otherwise the queue would not reorder), but not for long after its age limit.
    let limit = (sheet.max_age_ms * 1e6) as u64;
    assert!(worst > limit && worst < limit + 100_000_000, "{worst}");
}

/// A command that waits outside of the queue has no age: the drive learns of it only when it enters. Otherwise, under overload, every
/// command would be too old, and the drive would serve them in order of arrival instead of the nearest first.
#[test]
fn a_long_queue_is_served_as_fast_as_a_full_one() {
    let place = |i: u64| i * 7_368_787 % 250_000 * 4096;
    let mut all_at_once = disk(&Options::default());
    (0..2000).for_each(|i| all_at_once.start(Nanos(0), i, ModelOp::Read, place(i), 4096));
    let last = drain(&mut all_at_once)
        .into_iter()
        .map(|d| d.1)
        .max()
        .unwrap();
    let (mut closed, mut now, mut done) = (disk(&Options::default()), Nanos(0), Vec::new());
    let mut next = 0..2000;
    next.by_ref()
        .take(32)
        .for_each(|i| closed.start(now, i, ModelOp::Read, place(i), 4096));
    while let Some(t) = closed.next_event() {
        now = t;
        closed.poll(now, &mut done);
        for _ in done.drain(..) {
            if let Some(i) = next.next() {
                closed.start(now, i, ModelOp::Read, place(i), 4096);
            }
        }
    }
    let share = last as f64 / now.0 as f64;
    assert!((0.97..1.03).contains(&share), "{share}");
}

#[test]
fn sequential_reads_come_from_read_ahead_even_with_pauses() {
    let mut d = disk(&Options::default());
    let mut now = 0;
    let mut slow = 0;
    for i in 0..500u64 {
        d.start(Nanos(now), i, ModelOp::Read, i * 65_536, 65_536);
        let at = drain(&mut d)[0].1;
        // 64 KiB pass in half a millisecond; a miss costs a revolution.
        slow += u64::from(at - now > 3_000_000);
        now = at + 2_000_000 * (i % 3);
    }
    assert!(slow < 15, "{slow} of 500 missed");
    assert!(d.counters(Nanos(now)).cache_hits > 480);
}

#[test]
fn a_write_makes_the_buffer_forget() {
    let mut d = disk(&Options::default());
    let read = |d: &mut Hdd, now: u64| {
        d.start(Nanos(now), 1, ModelOp::Read, 1 << 20, 4096);
        drain(d)[0].1
    };
    let t = read(&mut d, 0);
    let again = read(&mut d, t);
    assert!(again - t < 200_000, "held by the buffer: {}", again - t);
    d.start(Nanos(again), 2, ModelOp::Write, 1 << 20, 4096);
    let written = drain(&mut d)[0].1;
    let fresh = read(&mut d, written);
    assert!(
        fresh - written > 1_000_000,
        "must come from the platter: {}",
        fresh - written
    );
}

#[test]
fn with_the_write_cache_a_flush_waits_for_the_platter() {
    let cost = |write_cache| {
        let mut d = disk(&Options {
            write_cache: Some(write_cache),
            ..Options::default()
        });
        for i in 0..20 {
            d.start(Nanos(0), i, ModelOp::Write, i * 20_000_000_000, 4096);
        }
        let written = drain_ids(&mut d, 20);
        d.start(Nanos(written), 99, ModelOp::Flush, 0, 0);
        let flushed = drain_ids(&mut d, 1);
        (written, flushed - written)
    };
    let (through, cheap) = cost(false);
    let (cached, dear) = cost(true);
    assert!(cached < through / 10, "{cached} {through}");
    assert!(cheap < 1_000_000 && dear > 20_000_000, "{cheap} {dear}");
}

#[test]
fn a_write_through_waits_for_the_platter_and_for_no_other_write() {
    let mut d = disk(&Options::default());
    for i in 0..20 {
        d.start(Nanos(0), i, ModelOp::Write, i * 20_000_000_000, 4096);
    }
    let written = drain_ids(&mut d, 20);
    d.start(Nanos(written), 99, ModelOp::WriteThrough, 410 << 30, 4096);
    let through = drain_ids(&mut d, 1) - written;
    // At most the rest of one write back, a seek and a turn.
    assert!((1_000_000..50_000_000).contains(&through), "{through}");
    assert!(d.dirty.len() > 10, "the others stay in the buffer");
    assert_eq!(d.totals.writes, 21);
}

/// Continues until `n` ids were reported.
fn drain_ids(d: &mut Hdd, n: usize) -> u64 {
    let mut done = Vec::new();
    let mut now = Nanos(0);
    while done.len() < n {
        now = d.next_event().unwrap();
        d.poll(now, &mut done);
    }
    now.0
}

#[test]
fn buffered_data_still_crosses_the_interface() {
    let mut d = disk(&Options::default());
    let len = 65_536;
    d.start(Nanos(0), 1, ModelOp::Read, 0, len);
    let t = drain(&mut d)[0].1;
    // The next request comes as the last bytes of the run leave the platter: at most the interface time is left.
    let ahead = d.ahead.unwrap();
    let read = ahead.time_of(&d.geometry, 2 * u64::from(len));
    let asked = read - 1 - d.overhead;
    assert!(asked > t);
    d.start(Nanos(asked), 2, ModelOp::Read, u64::from(len), len);
    assert_eq!(
        drain(&mut d)[0].1,
        read - 1 + d.interface_ns(u64::from(len))
    );
}

#[test]
fn busy_time_counts_only_what_has_passed() {
    let mut d = disk(&Options::default());
    d.start(Nanos(0), 1, ModelOp::Read, 1 << 38, 4096);
    let r = d.running.unwrap();
    assert_eq!(d.counters(Nanos(r.begin + 1000)).busy_ns, 1000);
    assert_eq!(d.counters(Nanos(r.finish)).busy_ns, r.finish - r.begin);
}

#[test]
fn a_flush_waits_for_what_came_before_it_and_for_no_more() {
    let mut d = disk(&Options::default());
    // The first run is being written back, a second one waits, then comes FLUSH, then runs for which the FLUSH need not wait.
    for i in 0..2 {
        d.start(Nanos(0), i, ModelOp::Write, i * (100 << 30), 4096);
    }
    d.start(Nanos(200_000), 10, ModelOp::Flush, 0, 0);
    for i in 20..60 {
        d.start(
            Nanos(300_000),
            i,
            ModelOp::Write,
            (i * 7_777_777_777) % (400 << 30) / 4096 * 4096,
            4096,
        );
    }
    let mut done = Vec::new();
    let mut flushed = 0;
    while let Some(at) = d.next_event() {
        d.poll(at, &mut done);
        if done.contains(&10) {
            flushed = at.0;
            break;
        }
        done.clear();
    }
    assert!(!d.dirty.is_empty(), "later writes are still in the buffer");
    assert!((4_000_000..60_000_000).contains(&flushed), "{flushed}");
}

#[test]
fn rewriting_buffered_data_takes_no_more_room() {
    let mut d = disk(&Options::default());
    // A read keeps the arm busy, so that nothing is written back meanwhile.
    d.start(Nanos(0), 0, ModelOp::Read, 400 << 30, 4096);
    for i in 1..5000 {
        d.start(Nanos(i), i, ModelOp::Write, 1 << 20, 65_536);
    }
    assert_eq!((d.dirty.len(), d.dirty_bytes), (1, 65_536));
    assert!(d.room.is_empty());
    let mut done = Vec::new();
    d.poll(Nanos::from_secs(10), &mut done);
    assert_eq!(done.len(), 5000);
    assert_eq!(d.dirty_bytes, 0);
}

/// Operations per second of 4 KiB at random places with `depth` in flight; of four operations, `writes` are writes. It is the mean of
/// six sequences of places, none of which differs from the mean by more than 6 %.
fn mixed(writes: u64, depth: u64) -> f64 {
    let each = [0, 1, 2, 3, 4, 5].map(|seed| mixed_once(writes, depth, seed));
    let mean = each.iter().sum::<f64>() / 6.0;
    assert!(
        each.iter().all(|x| (x / mean - 1.0).abs() < 0.06),
        "{each:?}"
    );
    mean
}

fn mixed_once(writes: u64, depth: u64, seed: u64) -> f64 {
    let options = Options::default();
    let mut d = crate::preset("st32000641as", &options).unwrap();
    let blocks = d.capacity() / 4096;
    let (mut random, mut now, mut done) = (SplitMix64::new(seed), Nanos(0), Vec::new());
    let (mut issued, mut finished) = (0u64, 0u64);
    let mut half = (0, Nanos(0));
    while finished < 8000 {
        while issued - finished < depth {
            let op = if random.below(4) < writes {
                ModelOp::Write
            } else {
                ModelOp::Read
            };
            d.start(now, issued, op, random.below(blocks) * 4096, 4096);
            issued += 1;
        }
        now = d.next_event().unwrap();
        done.clear();
        d.poll(now, &mut done);
        finished += done.len() as u64;
        if finished < 2000 {
            half = (finished, now); // the buffer is full by then
        }
    }
    (finished - half.0) as f64 / now.since(half.1).as_secs_f64()
}

/// A mixture of reads and writes is served about as fast as either alone, because the buffer is written back in an order that suits the
/// arm.
#[test]
fn a_mixture_is_as_fast_as_its_parts() {
    let (reads, half, writes) = (mixed(0, 32), mixed(2, 32), mixed(4, 32));
    let parts = 2.0 / (1.0 / reads + 1.0 / writes);
    assert!(half > 0.8 * parts, "{reads} {half} {writes}");
}

/// MB/s of this number of sequential readers of 64 KiB, far apart, with one request at a time each.
fn streams(readers: u64, ahead: u64) -> f64 {
    let text = include_str!("../../presets/wd5000aaks.toml");
    let with = format!("read_ahead_kib = 512\nmin_read_ahead_kib = {ahead} #");
    let text = text.replace("read_ahead_kib = 512", &with);
    let sheet = crate::Sheet::parse(&text, "wd5000aaks.toml").unwrap();
    let mut d = sheet.model(&Options::default()).unwrap();
    let (mut now, mut done) = (Nanos(0), Vec::new());
    for i in 0..2000u64 {
        let at = i % readers * (100 << 30) + i / readers * 65_536;
        d.start(now, i, ModelOp::Read, at, 65_536);
        while done.is_empty() {
            now = d.next_event().unwrap();
            d.poll(now, &mut done);
        }
        done.clear();
    }
    2000.0 * 65_536.0 / 1e6 / now.as_secs_f64()
}

#[test]
fn sequential_readers_beside_each_other_read_ahead_a_little() {
    let (one, two) = (streams(1, 256), streams(2, 256));
    assert!(one > 100.0, "{one}");
    let apart = streams(2, 0);
    assert!(apart < 10.0 && two > 2.5 * apart, "{apart} {two}");
}
