use super::*;
use crate::volume::Member as Place;
use alloc::vec;

fn loads() -> Loads {
    let member = |tier, slots| Place {
        tier: TierId(tier),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: crate::geometry::Stash::default(),
    };
    let shape = vec![member(0, 2), member(1, 6), member(1, 6)];
    Loads::new(&Geometry::new(16, 12, 6, shape).unwrap())
}
const SLOW: TierId = TierId(1);
const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn sample(issued: Nanos, sequential: bool) -> Sample {
    Sample {
        member: 1,
        data: true,
        flush: false,
        write: false,
        len: 4096,
        sequential,
        foreground: true,
        alone: false,
        issued,
    }
}

#[test]
fn time_of_a_device_is_measured() {
    let mut l = loads();
    let before = *l.cost(SLOW);
    assert_eq!(before, Cost::SLOW);
    assert!(!l.issue(1, 0, 4096));
    assert!(l.issue(1, 4096, 4096));
    l.begin(1, true);
    l.begin(1, true);
    let busy = l.load(SLOW, MS(3));
    assert_eq!((busy.waiting, busy.in_flight, busy.quiet), (2, 2, MS(0)));
    // Both were issued at once: the second occupied the device from the end of the first.
    assert_eq!(l.end(MS(4), sample(MS(0), false)), MS(4));
    assert_eq!(l.end(MS(5), sample(MS(0), true)), MS(1));
    let read = (before.read.0 * 15 + 4_000_000) / 16;
    assert_eq!(l.cost(SLOW).read, Nanos(read));
    // The request of the second operation waited for the time of both.
    let answer = (read * 15 + 5_000_000) / 16;
    let first = (before.read.0 * 15 + 4_000_000) / 16;
    assert_eq!((answer, first), (l.latencies(SLOW).read.0, read));
    let sequential = (before.sequential.0 * 15 + 1_000_000) / 16;
    assert_eq!(l.cost(SLOW).sequential, Nanos(sequential));
    for _ in 0..200 {
        l.begin(1, true);
        l.end(MS(6), sample(MS(2), false));
    }
    assert!(l.cost(SLOW).read < MS(1));
}

#[test]
fn a_write_alone_is_told_from_writes_of_a_batch() {
    let mut l = loads();
    assert_eq!(l.latencies(SLOW).lone_write, Nanos(0));
    let write = |l: &mut Loads, alone, from, to| {
        let s = sample(MS(from), false);
        let s = Sample {
            alone,
            write: true,
            ..s
        };
        l.end(MS(to), s);
    };
    assert!(l.begin(1, true) && !l.begin(1, true));
    write(&mut l, true, 10, 13);
    write(&mut l, false, 10, 13);
    assert_eq!(l.latencies(SLOW).lone_write, MS(3));
    assert!(l.begin(1, false));
}

#[test]
fn a_write_cache_is_empty_after_idle_time_or_a_flush() {
    let mut l = loads();
    // Reads take 9 ms and writes no time, so each write leaves work of 3 ms.
    l.costs[1].read = MS(9);
    l.costs[1].write = Nanos(0);
    let write = Sample {
        write: true,
        foreground: false,
        ..sample(MS(100), false)
    };
    (0..10).for_each(|_| {
        l.begin(1, false);
    });
    (0..10).for_each(|_| {
        l.costs[1].write = Nanos(0);
        l.end(MS(100), write);
    });
    assert_eq!(l.caches_empty(SLOW, MS(100)), Some(MS(130)));
    // Nothing to do for 10 ms, then a read of 5 ms.
    let alone = l.begin(1, true);
    assert_eq!((alone, l.caches_empty(SLOW, MS(112))), (true, None));
    let read = Sample {
        alone,
        ..sample(MS(110), false)
    };
    l.end(MS(115), read);
    assert_eq!(l.caches_empty(SLOW, MS(115)), Some(MS(135)));
    assert_eq!(l.caches_empty(SLOW, MS(200)), Some(MS(200)));
    l.begin(1, false);
    let flush = Sample {
        data: false,
        flush: true,
        foreground: false,
        ..sample(MS(116), false)
    };
    l.end(MS(120), flush);
    assert_eq!(l.caches_empty(SLOW, MS(120)), Some(MS(120)));
}

#[test]
fn members_are_told_apart() {
    let mut l = loads();
    let of = |l: &Loads, m| l.member(MemberId(m), MS(9)).unwrap();
    l.begin(1, true);
    l.end(MS(5), sample(MS(0), false));
    l.begin(2, false);
    assert_eq!((of(&l, 1).in_flight, of(&l, 1).quiet), (0, MS(4)));
    assert_eq!((of(&l, 2).in_flight, of(&l, 2).waiting), (1, 0));
    assert_eq!(of(&l, 1).service, Nanos(5_000_000 / 16));
    assert_eq!(l.member(MemberId(3), MS(9)), None);
    // The last operation of the tier was on its first member. The tier sleeps when both members do.
    assert_eq!(l.load(SLOW, MS(9)).quiet, MS(4));
    l.sleeps(1, true);
    assert!(of(&l, 1).asleep && !l.load(SLOW, MS(9)).asleep);
    l.sleeps(2, true);
    assert!(l.load(SLOW, MS(9)).asleep && !l.load(TierId(0), MS(9)).asleep);
}

#[test]
fn bytes_are_learned_from_long_operations() {
    let mut l = loads();
    let each = l.cost(SLOW).read;
    for _ in 0..400 {
        l.begin(1, true);
        let long = Sample {
            len: 1 << 20,
            ..sample(MS(0), false)
        };
        // The device was idle when this operation was issued.
        l.members[1].last_done = Nanos(0);
        l.end(Nanos(each.0 + (5 << 20)), long);
    }
    let cost = l.cost(SLOW);
    assert!((4_900..=5_000).contains(&cost.read_byte_ps), "{cost:?}");
    assert_eq!(cost.write_byte_ps, Cost::SLOW.write_byte_ps);
    let long = cost.time(false, false, 1 << 20);
    assert!(long > each && long < Nanos(each.0 + (6 << 20)));
}

#[test]
fn middle_tiers_lie_on_the_geometric_line() {
    assert_eq!(log2(1 << 20), 20 << 32);
    // √(50 µs · 5.556 ms) = 527 µs: 1897 operations a second.
    let middle = Cost::unknown(1, 3);
    assert_eq!(1_000_000_000 / middle.read.0, 1897);
    assert_eq!(geometric(1, 1000, 1, 3), 10);
    assert_eq!(geometric(1000, 1, 1, 3), 100);
    assert_eq!(geometric(7, 7, 3, 7), 7);
}

#[test]
fn the_break_even_time_follows_from_the_sheet() {
    let of = |wake_uj| Cost {
        wake_uj,
        ..Cost::SLOW
    };
    assert_eq!(
        of(450_000_000).break_even(),
        Some(Nanos::from_millis(112_500))
    );
    assert_eq!(of(1).saved_uw(), (4_000_000, true));
    // 5 W idle, 1 W in standby, 10 s down with 40 J, up with 400 J: (40 + 400 - 10) / 4.
    let known = Cost {
        idle_uw: 5_000_000,
        standby_uw: 1_000_000,
        down: Nanos::from_secs(10),
        down_uj: 40_000_000,
        ..of(400_000_000)
    };
    assert_eq!(known.break_even(), Some(Nanos::from_millis(107_500)));
    assert_eq!(known.saved_uw(), (4_000_000, false));
    let soon = Cost {
        wake_uj: 1,
        ..known
    };
    assert_eq!(soon.break_even(), Some(known.down), "it must stop first");
    // Nothing known, and nothing saved.
    let none = Cost {
        standby_uw: 6_000_000,
        ..known
    };
    assert_eq!((of(0).break_even(), none.break_even()), (None, None));
    let huge = Cost {
        idle_uw: 1,
        standby_uw: 0,
        wake_uj: u64::MAX,
        down_uj: u64::MAX,
        ..known
    };
    assert_eq!(huge.break_even(), Some(Nanos::MAX));
}

/// Member 0 is flash of 100 µs a read. A device is sooner if it needs two thirds of the time, is no disk beside flash, and is awake.
#[test]
fn another_device_is_sooner_only_if_it_is_alike_and_awake() {
    let with = |slow_us: u64| {
        let mut l = loads();
        l.costs[0].read = Nanos(100_000);
        l.costs[1].read = Nanos(slow_us * 1000);
        l.members[0].service = Nanos(100_000);
        l
    };
    let (fast, slow) = (MemberId(0), MemberId(1));
    let mut l = with(400);
    for _ in 1..BEHIND {
        l.begin(0, true);
    }
    assert!(!l.is_behind(fast));
    l.begin(0, true);
    assert!(l.is_behind(fast) && !l.is_behind(slow));
    // 6.5 ms on flash, 0.4 ms on the other one.
    assert!(l.is_sooner(slow, fast));
    // With nine of 0.4 ms in progress there a read ends after 4 ms; with ten after 4.4 ms, which is more than two thirds of 6.5.
    l.members[1].service = Nanos(400_000);
    for _ in 0..9 {
        l.begin(1, true);
    }
    assert!(l.is_sooner(slow, fast));
    l.begin(1, true);
    assert!(!l.is_sooner(slow, fast));
    // A disk is left alone, however far flash is behind.
    let mut disk = with(900);
    for _ in 0..10_000 {
        disk.begin(0, true);
    }
    assert!(!disk.is_sooner(slow, fast));
    let mut asleep = with(400);
    for _ in 0..BEHIND {
        asleep.begin(0, true);
    }
    assert!(asleep.is_sooner(slow, fast));
    asleep.sleeps(1, true);
    assert!(!asleep.is_sooner(slow, fast));
}
