//! No run takes less energy than the bound, and for small traces the bound is that of the best choice of all.

use isotherm_core::Nanos;
use isotherm_core::policy::PRESETS;
use isotherm_lab::bound::Sequence;
use isotherm_lab::energy::{Powers, energy_bound};
use isotherm_lab::sim::{Device, Memory, Run, Setup, Tier, TimeMode};
use isotherm_lab::size::Size;
use isotherm_models::Sleep;
use isotherm_traces::{Op, Record};
use proptest::prelude::*;

/// Accesses: the time before each in seconds (more often short than long), its unit, and whether it is a write.
fn accesses(units: u32, n: usize) -> impl Strategy<Value = Vec<(u64, u32, bool)>> {
    let gap = prop_oneof![3 => 0u64..5, 2 => 30u64..400, 1 => 300u64..4000];
    let one = (gap, 0..units, 0..units, any::<bool>());
    prop::collection::vec(one, 1..n).prop_map(|all| {
        let mut now = 0;
        let at = |(gap, a, b, write): (u64, u32, u32, bool)| {
            now += gap;
            (now, a.min(b), write)
        };
        all.into_iter().map(at).collect()
    })
}

fn powers(timer_s: Option<f64>) -> Powers {
    Powers {
        always_w: 1.0,
        awake_w: 5.0,
        sleep: Sleep {
            idle_w: 5.0,
            standby_w: 1.0,
            down_s: 8.0,
            down_j: 40.0,
            up_s: 20.0,
            up_j: 400.0,
            cycle_eu: 0.0,
        },
        timer_s,
        acceleration: 1.0,
        ahead: 0,
        disk_bytes: 1 << 40,
    }
}

/// A time at which the disk may be used, and the access that comes then.
#[derive(Clone, Copy)]
struct Event {
    at: f64,
    access: Option<(u32, bool)>,
    compulsory: bool,
}

/// The accesses, and between each two of them the middle and the end of every timer.
fn events(of: &[(u64, u32, bool)], timer: f64) -> Vec<Event> {
    let mut seen = std::collections::HashSet::new();
    let free = |at| Event {
        at,
        access: None,
        compulsory: false,
    };
    let (mut all, mut extra, mut last) = (Vec::new(), vec![free(timer)], 0.0);
    for &(at, unit, write) in of {
        let at = at as f64;
        let compulsory = seen.insert(unit) && !write;
        extra.push(free(f64::midpoint(last, at)));
        if compulsory {
            extra.push(free(at + timer));
        }
        last = at;
        all.push(Event {
            at,
            access: Some((unit, write)),
            compulsory,
        });
    }
    all.extend(extra.into_iter().filter(|e| e.at < last));
    all.sort_by(|a, b| a.at.total_cmp(&b.at));
    all
}

/// Whether flash of `slots` serves these accesses alone.
fn fits(between: &[Event], slots: usize) -> bool {
    let (mut written, mut first) = (Vec::new(), Vec::new());
    for (unit, write) in between.iter().filter_map(|e| e.access) {
        if !first.iter().any(|&(u, _)| u == unit) {
            first.push((unit, write));
        }
        if write && !written.contains(&unit) {
            written.push(unit);
        }
    }
    written.len() <= slots && first.iter().filter(|f| !f.1).count() <= slots
}

/// The least joules of all choices of events at which the disk is used.
fn least(of: &[(u64, u32, bool)], slots: usize, p: &Powers) -> f64 {
    let timer = p.timer_s.unwrap_or(f64::INFINITY);
    let all = events(of, timer);
    let end = of.last().map_or(0.0, |a| a.0 as f64);
    let last_read = all.iter().rfind(|e| e.compulsory).map_or(0.0, |e| e.at);
    let s = &p.sleep;
    let mut most: f64 = 0.0;
    for choice in 0u32..1 << all.len() {
        let used = |i: usize| choice >> i & 1 == 1;
        if all
            .iter()
            .enumerate()
            .any(|(i, e)| e.compulsory && !used(i))
        {
            continue;
        }
        // From when the disk may sleep, the savings, and the first event since its last use.
        let (mut from, mut asleep_from, mut saved, mut next) = (timer, timer, 0.0, 0);
        let mut possible = true;
        for (i, e) in all.iter().enumerate().filter(|&(i, _)| used(i)) {
            possible &= fits(&all[next..i], slots);
            let asleep = (p.awake_w - s.standby_w) * (e.at - from - s.down_s).max(0.0);
            let share = if e.at <= last_read {
                1.0
            } else {
                ((end - e.at) / s.up_s).min(1.0)
            };
            saved += (asleep - share * (s.up_j - p.awake_w * s.up_s)).max(0.0);
            if e.compulsory {
                asleep_from = e.at + timer;
            }
            (from, next) = (asleep_from.max(e.at), i + 1);
        }
        if possible && fits(&all[next..], slots) {
            most = most.max(saved + (p.awake_w - s.standby_w) * (end - from - s.down_s).max(0.0));
        }
    }
    (p.always_w + p.awake_w) * end - most
}

fn bound(of: &[(u64, u32, bool)], units: u32, slots: u64, p: &Powers) -> f64 {
    let accesses = of.iter().map(|&(at, u, w)| (Nanos::from_secs(at), u, w));
    let places: Vec<u64> = (0..u64::from(units)).collect();
    energy_bound(&Sequence::timed(units, accesses), &places, slots, p).expect("has requests")
}

/// A run of this policy, and its bound: 40 % of the data on flash. Units are `apart` extents from each other.
fn ran(
    of: &[(u64, u32, bool)],
    policy: &str,
    pair: (&str, &str),
    timer: f64,
    (hold, apart): (bool, u64),
) -> (f64, f64, f64) {
    let record = |&(at, u, w): &(u64, u32, bool)| {
        let op = if w { Op::Write } else { Op::Read };
        Record::new(Nanos::from_secs(at), op, u64::from(u) * apart * 65536, 4096)
    };
    let trace = Memory::new("random", of.iter().map(record).collect());
    let share = Size::Share(400_000);
    let mut s = Setup::pair(policy.parse().expect("a policy"), share).expect("sheets");
    let mut disk = Device::preset(pair.1).expect("a preset");
    disk.standby_after_s = Some(timer);
    let flash = Device::preset(pair.0).expect("a preset");
    s.tiers = vec![
        Tier::new(flash, share),
        Tier::new(disk, Size::Share(1_000_000)),
    ];
    s.extent_bytes = 65536;
    s.time = TimeMode::Trace { acceleration: 1.0 };
    if hold {
        s.settings.push(("sleep_hold_s".to_owned(), 3600.0));
    }
    let r = Run::new(&s, &trace)
        .energy_bound(true)
        .full()
        .expect("runs");
    let b = r.energy_bound.expect("a bound");
    (r.energy_j.expect("timed"), b.energy_j, b.any_size_j)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn it_is_the_least_of_all_choices(of in accesses(4, 6), slots in 1usize..4, timer in 5u32..200) {
        let p = powers(Some(f64::from(timer)));
        let (mine, all) = (bound(&of, 4, slots as u64, &p), least(&of, slots, &p));
        prop_assert!((mine - all).abs() < 1e-6, "{mine} J, best choice {all} J");
        prop_assert!(bound(&of, 4, u64::MAX, &p) <= mine + 1e-6);
        prop_assert!(mine <= bound(&of, 4, slots as u64, &powers(None)) + 1e-6);
    }

    #[test]
    fn no_run_takes_less(
        of in accesses(12, 120),
        policy in 0usize..64,
        pair in 0usize..3,
        timer in prop_oneof![Just(20.0), Just(60.0), Just(600.0)],
        hold in any::<bool>(),
        apart in prop_oneof![Just(1u64), Just(100)],
    ) {
        let caching: Vec<&str> = PRESETS.iter().filter(|p| p.kind() == "caching").map(|p| p.name).collect();
        let names = [&["benefit,goal=quiet", "benefit"][..], &caching[..]].concat();
        let policy = if policy < 16 { names[0] } else { names[policy % names.len()] };
        let pair = [("sata-enterprise", "exos-18tb"), ("nvme-tlc", "smr-8tb"), ("intel-x25e-32", "wd5000aaks")][pair];
        let (ran, bound, any_size) = ran(&of, policy, pair, timer, (hold, apart));
        prop_assert!(bound <= ran * (1.0 + 1e-9), "{policy} on {pair:?}, timer {timer}: {ran} J, bound {bound} J");
        prop_assert!(any_size <= bound * (1.0 + 1e-9));
    }
}

#[test]
fn by_hand() {
    // One first read at 0 s and one at 1000 s. The timer takes 60 s and the stop 8 s, the wake-up takes 400 J in place of 100 J.
    let p = powers(Some(60.0));
    let two = [(0, 0, false), (1000, 1, false)];
    assert!((bound(&two, 2, 1, &p) - (6000.0 - 4.0 * 932.0 + 300.0)).abs() < 1e-6);
    // The drive may have read the second extent ahead, but not one before the first.
    let ahead = Powers { ahead: 1, ..p };
    assert!((bound(&two, 2, 1, &ahead) - (6000.0 - 4.0 * 932.0)).abs() < 1e-6);
    let back = [(0, 1, false), (1000, 0, false)];
    assert!((bound(&back, 2, 1, &ahead) - bound(&two, 2, 1, &p)).abs() < 1e-6);
    // The second read finds the extent on flash.
    let again = [(0, 0, false), (1000, 0, false)];
    assert!((bound(&again, 1, 1, &p) - (6000.0 - 4.0 * 932.0)).abs() < 1e-6);
    // With one slot the disk must be used at the second write, but sleeps as soon as that is done.
    let writes = [
        (0, 0, true),
        (500, 1, true),
        (1000, 0, true),
        (1100, 0, true),
    ];
    assert!((bound(&writes, 2, 2, &p) - (6600.0 - 4.0 * 1032.0)).abs() < 1e-6);
    let slept = 4.0 * (432.0 + 592.0);
    assert!((bound(&writes, 2, 1, &p) - (6600.0 - slept + 300.0)).abs() < 1e-6);
}

#[test]
fn without_times_or_one_disk_there_is_none() {
    let mut s =
        Setup::pair("lru".parse().expect("a policy"), Size::Share(100_000)).expect("sheets");
    assert_eq!(Powers::of(&s), None, "closed loop");
    s.time = TimeMode::Trace { acceleration: 2.0 };
    assert!(Powers::of(&s).is_some());
    s.warm_up = 1;
    assert_eq!(Powers::of(&s), None, "warm-up");
    s.warm_up = 0;
    let disk = s.tiers[1].devices[0].clone();
    s.tiers[1].devices.push(disk);
    assert_eq!(Powers::of(&s), None, "two disks");
}
