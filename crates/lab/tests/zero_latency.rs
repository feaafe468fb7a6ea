//! Hit-only runs are the lab without time: in a world whose devices answer at once, the whole engine must decide as the null engine does.
//!
//! Three rules of the live engine must have no effect for this, so the test is set up accordingly:
//! - A move is settled only when its record is durable, so the next access may come before that. In this test a request is one extent (the
//!   trace is cut beforehand), and all effects of an access end before the next access.
//! - MCML, busy extents and flushes of metadata cause refusals: with devices that answer at once, none of them occurs.
//! - A background scan ends after 2048 slots and continues a microsecond later: accesses are further apart.

use std::collections::VecDeque;

use isotherm_core::Nanos;
use isotherm_core::policy::PRESETS;
use isotherm_lab::sim::{Memory, Report, Run, Setup, Source, Synthetic, TimeMode, TraceFile};
use isotherm_lab::size::Size;
use isotherm_models::{Counters, DeviceModel, ModelOp, Wear};
use isotherm_traces::{Op, Record};

/// A device that answers at once.
struct Instant {
    ended: VecDeque<u64>,
    now: Nanos,
}

impl DeviceModel for Instant {
    fn start(&mut self, now: Nanos, id: u64, _op: ModelOp, _offset: u64, _len: u32) {
        self.now = now;
        self.ended.push_back(id);
    }
    fn next_event(&self) -> Option<Nanos> {
        (!self.ended.is_empty()).then_some(self.now)
    }
    fn poll(&mut self, _now: Nanos, done: &mut Vec<u64>) {
        done.extend(self.ended.drain(..));
    }
    fn counters(&self, _now: Nanos) -> Counters {
        Counters::default()
    }
    fn wear(&self) -> Wear {
        Wear::default()
    }
    fn capacity(&self) -> u64 {
        u64::MAX
    }
}

fn instant(_tier: u8, _bytes: u64) -> Box<dyn DeviceModel> {
    Box::new(Instant {
        ended: VecDeque::new(),
        now: Nanos(0),
    })
}

/// Reads and writes, cut into extents, at least 10 µs apart.
fn cut(source: &dyn Source, extent: u64, limit: usize) -> Memory {
    let whole = Memory::load(source).expect("readable");
    let mut records: Vec<Record> = Vec::new();
    for r in whole
        .records
        .iter()
        .filter(|r| matches!(r.op, Op::Read | Op::Write))
        .take(limit)
    {
        let mut at = r.offset;
        while at < r.end() {
            let end = r.end().min((at / extent + 1) * extent);
            let time = records
                .last()
                .map_or(r.time, |l| r.time.max(l.time + Nanos::from_micros(10)));
            records.push(Record {
                time,
                offset: at,
                len: (end - at) as u32,
                ..*r
            });
            at = end;
        }
    }
    Memory::new("cut", records)
}

fn decisions(r: &Report) -> (u64, String, u64, u64, u64, u64, u64) {
    (
        r.accesses,
        format!("{:.9}", r.fast_hit_ratio),
        r.promotions,
        r.demotions,
        r.fetches,
        r.evictions,
        r.writebacks,
    )
}

fn equal_under_every_tiering_preset(trace: &Memory, fast: Size) {
    let mut moved = 0;
    // cold-DST makes room for a new extent. Without device time the room is there at once. On a volume the new extent does not wait for it
    // (a demotion takes a commit round, however fast the devices are), and starts on the slow tier instead.
    let waits = |name: &str| name.starts_with("cold-dst");
    for preset in PRESETS
        .iter()
        .filter(|p| p.kind() == "tiering" && !waits(p.name))
    {
        // edt compares the capabilities of tiers; devices without latency have unlimited ones unless parameters state others.
        let spec = match preset.name {
            "edt" => "edt,fast_iops=20000,slow_iops=180,fast_bandwidth=2.5e8,slow_bandwidth=1e8",
            other => other,
        };
        let policy = spec.parse().expect("a preset");
        let setup = Setup {
            time: TimeMode::Trace { acceleration: 1.0 },
            ..Setup::pair(policy, fast).expect("sheets")
        };
        let hits = Run::new(&setup, trace).hit_only().expect("runs");
        let full = Run::new(&setup, trace)
            .models(&instant)
            .full()
            .expect("runs");
        let (h, f) = (decisions(&hits), decisions(&full));
        // Every access is served in the same way. When the trace ends, the last proposed moves are in progress, or a plan is due.
        assert_eq!((h.0, &h.1), (f.0, &f.1), "{}", preset.name);
        for (a, b) in [(h.2, f.2), (h.3, f.3)] {
            assert!(a.abs_diff(b) <= 16 + a / 6, "{}: {h:?} {f:?}", preset.name);
        }
        moved += hits.promotions + hits.demotions;
    }
    assert!(moved > 100, "the trace moves something: {moved}");
}

#[test]
fn on_a_recorded_trace() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/linux-mysql.load.zst"
    );
    let file = TraceFile::new(path, isotherm_traces::Options::default());
    equal_under_every_tiering_preset(&cut(&file, 4096, 20_000), Size::Share(100_000));
}

#[test]
fn on_a_synthetic_trace_of_partial_extents() {
    let source = Synthetic {
        requests: 60_000,
        bytes: 64 << 20,
        len: 1024,
        write_percent: 30,
        gap: Nanos::from_millis(2),
        seed: 3,
    };
    equal_under_every_tiering_preset(&cut(&source, 4096, 60_000), Size::Bytes(2 << 20));
}
