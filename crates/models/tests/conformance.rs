//! One suite for all models: properties that must hold for any requests.

use isotherm_core::Nanos;
use isotherm_models::{
    Counters, DeviceModel, ModelOp, Options, POWER_STATES, PowerState, Sheet, Span, preset,
    presets, sheet,
};
use proptest::prelude::*;

const NAMES: [&str; 8] = [
    "wd5000aaks",
    "exos-18tb",
    "smr-8tb",
    "ocz-vertex3-maxiops",
    "intel-x25e-32",
    "nvme-qlc",
    "pcm",
    "remote",
];
const SIZE: u64 = 1 << 30;

#[derive(Clone, Debug)]
struct Step {
    wait: u64,
    op: ModelOp,
    offset: u64,
    len: u32,
    poll: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        8 => Just(ModelOp::Read),
        6 => Just(ModelOp::Write),
        2 => Just(ModelOp::WriteThrough),
        2 => Just(ModelOp::Flush),
        1 => Just(ModelOp::Discard),
        1 => Just(ModelOp::Standby),
    ];
    // Gaps from zero to seconds, and offsets that often continue or repeat.
    let wait = prop_oneof![4 => 0u64..20_000, 2 => 0u64..20_000_000, 1 => 0u64..20_000_000_000];
    let offset = prop_oneof![
        (0u64..SIZE / 4096).prop_map(|b| b * 4096),
        (0u64..64).prop_map(|b| b * 4096)
    ];
    let len = prop_oneof![Just(4096u32), Just(65_536), Just(1 << 20), 1u32..10_000];
    (wait, op, offset, len, any::<bool>()).prop_map(|(wait, op, offset, len, poll)| {
        let len = if matches!(op, ModelOp::Flush | ModelOp::Standby) {
            0
        } else {
            len
        };
        Step {
            wait,
            op,
            offset,
            len,
            poll,
        }
    })
}

/// The completion time of each id; the model is polled at every event or only sometimes.
fn drive(
    model: &mut dyn DeviceModel,
    steps: &[Step],
    eager: bool,
) -> (Vec<(u64, u64)>, Counters, u64) {
    let (mut now, mut out, mut done) = (0, Vec::new(), Vec::new());
    let mut worn = 0.0;
    for (id, s) in steps.iter().enumerate() {
        let until = now + s.wait;
        while let Some(at) = model.next_event().filter(|e| eager && e.0 <= until) {
            model.poll(at, &mut done);
            out.extend(done.drain(..).map(|id| (id, at.0)));
        }
        now = until;
        model.start(Nanos(now), id as u64, s.op, s.offset, s.len);
        if s.poll {
            model.poll(Nanos(now), &mut done);
            out.extend(done.drain(..).map(|id| (id, now)));
        }
        let c = model.counters(Nanos(now));
        // An array's times are means over its disks, each rounded down.
        let in_states = c.state_ns.iter().sum::<u64>();
        assert!(
            in_states <= now && now - in_states <= POWER_STATES as u64,
            "all time is in a state: {c:?}"
        );
        let w = model.wear();
        let sum = w.host_eu + w.flash_eu.unwrap_or(0.0);
        assert!(sum >= worn, "wear fell from {worn} to {sum}");
        worn = sum;
    }
    while let Some(at) = model.next_event() {
        now = now.max(at.0);
        model.poll(at, &mut done);
        out.extend(done.drain(..).map(|id| (id, now)));
    }
    (out, model.counters(Nanos(now)), now)
}

fn make(name: &str, write_cache: bool, queue_depth: u32) -> Box<dyn DeviceModel> {
    let options = Options {
        size: SIZE,
        span: Span::Full,
        write_cache: Some(write_cache),
        queue_depth: Some(queue_depth),
        ..Options::default()
    };
    preset(name, &options).unwrap()
}

/// The shortest time of an operation, and the lowest and highest power of the device.
fn bounds(name: &str, s: &Step) -> (u64, f64, f64) {
    let sheet = sheet(name).unwrap();
    if let Some(h) = &sheet.hdd {
        let p = &h.power;
        let command = (h.overhead_us * 1e3) as u64;
        let moved = if matches!(s.op, ModelOp::Read | ModelOp::Write | ModelOp::WriteThrough) {
            f64::from(s.len) / h.interface_mb_s
        } else {
            0.0
        };
        let max = p.active_w.max(p.seek_w).max(p.spin_up_j / p.spin_up_s);
        return (command + (moved * 1e3) as u64, p.standby_w, max);
    }
    if let Some(d) = &sheet.ssd {
        let us = match s.op {
            ModelOp::Read => d.sequential_read_us + f64::from(s.len) / d.read_mb_s,
            ModelOp::Write | ModelOp::WriteThrough => {
                d.sequential_write_us + f64::from(s.len) / d.write_mb_s
            }
            _ => 0.0,
        };
        return ((us * 1e3) as u64, d.power.standby_w, f64::INFINITY);
    }
    let r = sheet.remote.unwrap();
    let us = match s.op {
        ModelOp::Read => r.read_ms * 1e3 + f64::from(s.len) / r.read_mb_s,
        ModelOp::Write | ModelOp::WriteThrough => {
            r.write_ms * 1e3 + f64::from(s.len) / r.write_mb_s
        }
        _ => 0.0,
    };
    ((us * 1e3) as u64, 0.0, r.host_w)
}

fn idle_w(name: &str) -> f64 {
    let s = sheet(name).unwrap();
    let of_disk = s.hdd.map(|h| h.power.idle_w);
    of_disk.or(s.ssd.map(|s| s.power.idle_w)).unwrap_or(0.0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_model_keeps_its_word(
        steps in prop::collection::vec(step(), 1..120),
        which in 0..NAMES.len(),
        write_cache: bool,
        depth in prop_oneof![Just(1u32), Just(4), Just(32)],
    ) {
        let name = NAMES[which];
        let mut model = make(name, write_cache, depth);
        let (out, c, end) = drive(model.as_mut(), &steps, true);

        // Each id completes once, in the order of time, and not before the device could have done it.
        prop_assert_eq!(out.len(), steps.len());
        prop_assert!(out.windows(2).all(|w| w[0].1 <= w[1].1), "{:?}", out);
        let mut seen = vec![false; steps.len()];
        let mut arrived = 0;
        let arrivals: Vec<u64> = steps.iter().map(|s| { arrived += s.wait; arrived }).collect();
        for &(id, at) in &out {
            let i = id as usize;
            prop_assert!(!seen[i], "id {} twice", id);
            seen[i] = true;
            let (least, ..) = bounds(name, &steps[i]);
            // Rounding to nanoseconds may lose one per term.
            prop_assert!(at + 4 >= arrivals[i] + least, "{:?} took {} of {}", steps[i], at - arrivals[i], least);
        }

        // All bytes and operations must be counted.
        let sum = |op| steps.iter().filter(|s| s.op == op).map(|s| u64::from(s.len)).sum::<u64>();
        let count = |op| steps.iter().filter(|s| s.op == op).count() as u64;
        let bytes_written = sum(ModelOp::Write) + sum(ModelOp::WriteThrough);
        let writes = count(ModelOp::Write) + count(ModelOp::WriteThrough);
        prop_assert_eq!((c.bytes_read, c.bytes_written), (sum(ModelOp::Read), bytes_written));
        prop_assert_eq!((c.reads, c.writes, c.flushes), (count(ModelOp::Read), writes, count(ModelOp::Flush)));
        prop_assert!(c.start_stops <= count(ModelOp::Standby));

        // Time and energy: the times of the states add up to the elapsed time; power is between standby and the highest value of the sheet.
        prop_assert_eq!(c.state_ns.iter().sum::<u64>(), end);
        prop_assert!(c.busy_ns <= end);
        let (_, least_w, most_w) = bounds(name, &steps[0]);
        let seconds = Nanos(end).as_secs_f64();
        prop_assert!(c.energy_j() >= least_w * seconds * (1.0 - 1e-9));
        if steps.iter().all(|s| s.op != ModelOp::Standby) {
            prop_assert!(c.energy_j() >= idle_w(name) * seconds * (1.0 - 1e-9), "below idle: {:?}", c);
        }
        prop_assert!(c.energy_j() <= most_w * seconds * (1.0 + 1e-9) || most_w.is_infinite());

        // Late polling changes the time at which a completion is reported, but not what the device does.
        let mut late = make(name, write_cache, depth);
        let (mut late_out, late_c, _) = drive(late.as_mut(), &steps, false);
        let mut out = out;
        prop_assert_eq!(late_c.bytes_read, c.bytes_read);
        prop_assert_eq!(late_c.seek_distance, c.seek_distance);
        prop_assert_eq!(late_c.busy_ns, c.busy_ns);
        out.sort_unstable();
        late_out.sort_unstable();
        prop_assert!(out.iter().zip(&late_out).all(|(a, b)| a.0 == b.0 && b.1 >= a.1));

        // Equal calls give equal answers.
        let mut again = make(name, write_cache, depth);
        let (mut again_out, again_c, _) = drive(again.as_mut(), &steps, true);
        again_out.sort_unstable();
        prop_assert_eq!(again_out, out);
        prop_assert_eq!(again_c, c);
    }
}

/// The lowest and highest power of each state according to the sheet, by the number of the state. Both are equal except for active flash:
/// its units continue to work after the reply, which counts as work and not as active time, so that state alone has no highest power.
fn state_watts(s: &Sheet) -> [(f64, f64); POWER_STATES] {
    let mut watts = [(0.0, 0.0); POWER_STATES];
    let mut set = |state: PowerState, least: f64, most: f64| watts[state as usize] = (least, most);
    if let Some(h) = &s.hdd {
        let (p, n) = (
            &h.power,
            s.array.as_ref().map_or(1.0, |a| f64::from(a.disks)),
        );
        for (state, w) in [
            (PowerState::Idle, p.idle_w),
            (PowerState::Active, p.active_w),
            (PowerState::Seek, p.seek_w),
            (PowerState::Standby, p.standby_w),
            (PowerState::SpinDown, p.idle_w),
            (PowerState::SpinUp, p.spin_up_j / p.spin_up_s),
        ] {
            set(state, w * n, w * n);
        }
    } else if let Some(d) = &s.ssd {
        let p = &d.power;
        set(PowerState::Idle, p.idle_w, p.idle_w);
        set(PowerState::Active, p.idle_w, f64::INFINITY);
        set(PowerState::Standby, p.standby_w, p.standby_w);
    } else if let Some(r) = &s.remote {
        set(PowerState::Idle, r.host_w, r.host_w);
        set(PowerState::Active, r.host_w, r.host_w);
    }
    watts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Energy is the sum over the states of the sheet's power times the time in it, for every preset and any load.
    #[test]
    fn energy_is_power_times_time_in_each_state(
        steps in prop::collection::vec(step(), 1..80),
        which: prop::sample::Index,
        write_cache: bool,
    ) {
        let all = presets().unwrap();
        let sheet = which.get(&all);
        let mut model = make(&sheet.name, write_cache, 32);
        let (_, _, end) = drive(model.as_mut(), &steps, true);
        // Some more seconds, so that the units finish their work.
        let end = end + 10_000_000_000;
        let c = model.counters(Nanos(end));
        // An array's times are means over its disks, rounded down to a nanosecond each.
        let rounding = 10e-9 * sheet.array.as_ref().map_or(0.0, |a| f64::from(a.disks)) * 100.0;
        prop_assert!(c.state_ns.iter().sum::<u64>().abs_diff(end) <= POWER_STATES as u64);
        for (state, (least, most)) in state_watts(sheet).into_iter().enumerate() {
            let seconds = c.state_ns[state] as f64 * 1e-9;
            let joules = c.state_j[state];
            let low = least * seconds;
            let high = if most.is_finite() { most * seconds } else { f64::INFINITY };
            prop_assert!(
                joules >= low * (1.0 - 1e-9) - rounding && joules <= high * (1.0 + 1e-9) + rounding,
                "{}, state {}: {} J in {} s, of {} to {} W", sheet.name, state, joules, seconds, least, most
            );
        }
        let sum: f64 = c.state_j.iter().sum();
        prop_assert!((sum - c.energy_j()).abs() <= sum * 1e-12);
        if let Some(p) = sheet.ssd.as_ref().map(|s| &s.power) {
            let seconds = Nanos(end).as_secs_f64();
            let most = p.read_w.max(p.write_w).max(p.idle_w);
            prop_assert!(c.energy_j() <= most * seconds, "{}: {} J in {} s", sheet.name, c.energy_j(), seconds);
        }
    }
}

#[test]
fn idle_devices_draw_idle_power() {
    for name in NAMES {
        let sheet = sheet(name).unwrap();
        let model = sheet.model(&Options::default()).unwrap();
        let c = model.counters(Nanos::from_secs(100));
        let idle_w = sheet
            .hdd
            .map(|h| h.power.idle_w)
            .or(sheet.ssd.map(|s| s.power.idle_w))
            .unwrap_or(0.0);
        assert!(
            (c.energy_j() - 100.0 * idle_w).abs() < 1e-6,
            "{name}: {}",
            c.energy_j()
        );
        assert_eq!(c.time_in(PowerState::Idle), Nanos::from_secs(100), "{name}");
    }
}
