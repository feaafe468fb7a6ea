use super::*;
use crate::measure::{Work, run};
use crate::sheet;

/// The preset with a small media cache, so that it fills quickly.
fn disk(media_cache_gb: f64) -> Smr {
    let s = sheet("smr-8tb").unwrap();
    let smr = SmrSheet {
        media_cache_gb,
        ..s.smr.unwrap()
    };
    Smr::new(&s.hdd.unwrap(), &smr, &Options::default())
}

fn random_writes(d: &mut Smr, now: Nanos, count: u64, seed: u64) -> (f64, Nanos) {
    let work = Work {
        op: ModelOp::Write,
        len: 4096,
        random: true,
        span: d.capacity,
        depth: 4,
        count,
        seed,
    };
    let (out, end) = run(d, now, &work);
    (out.iops, end)
}

/// Processes all events and returns the time of the last one.
fn settle(d: &mut Smr) -> Nanos {
    let (mut now, mut done) = (Nanos(d.now), Vec::new());
    while let Some(at) = d.next_event() {
        now = at;
        d.poll(at, &mut done);
    }
    now
}

#[test]
fn random_writes_are_fast_until_the_media_cache_is_full_and_again_after_cleaning() {
    let mut d = disk(0.02);
    let blocks = (0.02e9 / 4096.0) as u64;
    let (burst, now) = random_writes(&mut d, Nanos(0), blocks - 10, 1);
    let (full, now) = random_writes(&mut d, now, 60, 2);
    assert!(burst > 1000.0, "{burst}");
    assert!(full < burst / 100.0 && full > 0.5, "{full} after {burst}");
    assert!(d.cached_bytes() > 15 << 20);
    // Without commands the drive empties the cache, and half of it in half of the time.
    let before = d.cached_bytes();
    let mut done = Vec::new();
    d.poll(Nanos(now.0 + 60_000_000_000), &mut done);
    assert!(d.cached_bytes() < before && d.cached_bytes() > 0);
    let end = settle(&mut d);
    assert_eq!(d.cached_bytes(), 0);
    assert!(end.since(now).0 > 600_000_000_000, "{end:?}");
    let (again, _) = random_writes(&mut d, end, blocks - 10, 3);
    assert!((again / burst - 1.0).abs() < 0.2, "{again} {burst}");
}

#[test]
fn reads_do_not_mind_a_full_cache() {
    let read = |d: &mut Smr, now| {
        let work = Work {
            op: ModelOp::Read,
            len: 4096,
            random: true,
            span: d.capacity,
            depth: 1,
            count: 300,
            seed: 5,
        };
        run(d, now, &work).0.iops
    };
    let clean = read(&mut disk(0.02), Nanos(0));
    let mut d = disk(0.02);
    let (_, now) = random_writes(&mut d, Nanos(0), 4000, 1);
    let dirty = read(&mut d, now);
    assert!((dirty / clean - 1.0).abs() < 0.1, "{dirty} {clean}");
}

#[test]
fn what_was_written_is_read_from_where_it_is() {
    let mut d = disk(1.0);
    let mut done = Vec::new();
    let middle = d.capacity / 2 / 4096 * 4096;
    d.start(Nanos(0), 1, ModelOp::Write, middle, 8192);
    while done.is_empty() {
        let at = d.next_event().unwrap();
        d.poll(at, &mut done);
    }
    // Half of the read is in the log and half in the band, so it has two parts.
    let slots = |d: &Smr| d.slots.iter().map(|s| s.parts).sum::<u32>();
    d.start(Nanos(d.now), 2, ModelOp::Read, middle + 4096, 8192);
    assert_eq!(slots(&d), 2);
    settle(&mut d);
    assert_eq!(d.cached_bytes(), 0);
    // Cleaning has read the band and the extent, and has written the band.
    let c = d.counters(Nanos(d.now));
    let band = d.band_blocks * BLOCK;
    assert_eq!(c.medium_bytes_written, 8192 + band);
    assert_eq!(c.medium_bytes_read, 8192 + 8192 + band);
    assert_eq!((c.bytes_written, c.bytes_read), (8192, 8192));
    // The band is clean again, so the read has one part.
    d.start(Nanos(d.now), 3, ModelOp::Read, middle + 4096, 8192);
    assert_eq!(slots(&d), 1);
}

#[test]
fn sequential_writes_go_to_their_place() {
    let mut d = disk(1.0);
    let work = Work {
        op: ModelOp::Write,
        len: 1 << 20,
        random: false,
        span: d.capacity,
        depth: 1,
        count: 4096,
        seed: 1,
    };
    let (out, _) = run(&mut d, Nanos(0), &work);
    assert!((180.0..210.0).contains(&out.mb_s), "{}", out.mb_s);
    // Only the band in which the run was recognised went through the cache.
    assert!(d.cached_bytes() <= d.band_blocks * BLOCK);
    settle(&mut d);
    assert!(d.write_amplification().unwrap() < 1.05);
}

#[test]
fn a_discarded_band_takes_writes_in_place() {
    let mut d = disk(1.0);
    let band = d.band_blocks * BLOCK;
    let mut done = Vec::new();
    d.start(Nanos(0), 0, ModelOp::Discard, 0, (4 * band) as u32);
    for i in 0..64 {
        let now = Nanos(d.now);
        d.start(now, i, ModelOp::Write, band + i * 65_536, 65_536);
        let at = d.next_event().unwrap();
        d.poll(at, &mut done);
    }
    assert_eq!(d.cached_bytes(), 0);
    // This does not hold where there is data.
    d.start(Nanos(d.now), 99, ModelOp::Write, 8 * band, 65_536);
    assert_eq!(d.cached_bytes(), 65_536);
}

#[test]
fn a_stream_given_up_half_way_costs_a_rewrite() {
    let mut d = disk(1.0);
    let band = d.band_blocks * BLOCK;
    let mut done = Vec::new();
    let mut id = 0;
    // Nine streams of a band and a half are more than the drive tracks, so bands are abandoned half-way.
    for s in 0..9u64 {
        for i in 0..45 {
            let now = Nanos(d.now);
            d.start(
                now,
                id,
                ModelOp::Write,
                s * 100 * band + i * (1 << 20),
                1 << 20,
            );
            id += 1;
            let at = d.next_event().unwrap();
            d.poll(at, &mut done);
        }
    }
    assert_eq!(d.torn.len(), 1);
    settle(&mut d);
    assert!(d.torn.is_empty() && d.cached_bytes() == 0);
    assert_eq!(done.len() + d.finished.len(), done.len());
}

#[test]
fn a_sleeping_disk_is_not_woken_to_clean() {
    let mut d = disk(1.0);
    d.start(Nanos(0), 1, ModelOp::Write, 1 << 40, 4096);
    d.start(Nanos(1), 2, ModelOp::Standby, 0, 0);
    let end = settle(&mut d);
    assert!(end.0 < 100_000_000_000 && d.cached_bytes() > 0);
    let later = Nanos(end.0 + 3_600_000_000_000);
    let c = d.counters(later);
    assert_eq!(c.start_stops, 1);
    assert!(c.time_in(crate::PowerState::Standby).0 >= 3_600_000_000_000);
    // The next access wakes it, and then it cleans.
    d.start(later, 3, ModelOp::Read, 0, 4096);
    settle(&mut d);
    assert_eq!(d.cached_bytes(), 0);
}
