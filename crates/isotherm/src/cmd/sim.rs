//! `isotherm sim`: a trace under a policy.
//!
//! Hit-only runs as in policy-specs section 0. Two passes: the first finds the touched extents (their number is what `10%`
//! is of, and rows are kept for them only), the second plays.

use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_core::geometry::{Geometry, Member, SLOTS_MAX};
use isotherm_core::null::{NullCounters, NullEngine};
use isotherm_core::policy::{Policy, reads_addresses};
use isotherm_core::{ExtentId, TierId};
use isotherm_traces::{Op, Options, Reader, Record, SideBySide};
use roaring::RoaringTreemap;
use serde_json::{Map, Value, json};

use crate::Failure;
use crate::args::SimArgs;
use crate::cmd::trace::{failed, find, options};
use crate::compact::Compact;
use crate::table::table;

/// Records decoded at a time.
const BATCH: usize = 4096;
/// Fast slots kept at most, where the trace touches less than half as many extents.
const FAST_SLOTS_MAX: u64 = 1 << 26;
/// The logical block of a simulated volume, as a power of two: the sector.
const BLOCK_SHIFT: u32 = 9;

/// `isotherm sim`.
///
/// # Errors
/// A trace cannot be read or does not fit the options.
pub fn run(args: &SimArgs) -> Result<(), Failure> {
    if !args.hit_only {
        return Err(Failure::failed(
            "this build has no device models in `sim` yet, so no time and no energy: add --hit-only for hit ratios and moves",
        ));
    }
    let results = args
        .traces
        .iter()
        .map(|t| one(args, t))
        .collect::<Result<Vec<Value>, _>>()?;
    let whole = if let [one] = &results[..] {
        one.clone()
    } else {
        Value::from(results.clone())
    };
    args.json.print(&whole, || {
        let keys = [
            "policy",
            "requests",
            "accesses",
            "fast_hit_ratio",
            "promotions",
            "demotions",
            "sim_rate_rps",
            "trace",
        ];
        let cell = |r: &Value, k: &str| match &r[k] {
            Value::String(s) => s.clone(),
            Value::Number(n) if k == "fast_hit_ratio" => {
                format!("{:.6}", n.as_f64().unwrap_or(f64::NAN))
            }
            Value::Number(n) if k == "sim_rate_rps" => {
                format!("{:.0}", n.as_f64().unwrap_or(f64::NAN))
            }
            v => v.to_string(),
        };
        table(
            &keys,
            &results
                .iter()
                .map(|r| keys.map(|k| cell(r, k)).to_vec())
                .collect::<Vec<_>>(),
        )
    })
}

/// What the first pass finds.
struct Touched {
    extents: RoaringTreemap,
    devices: SideBySide,
}

/// Which row an extent of the trace has.
enum Rows {
    /// Touched extents, numbered without gaps.
    Compact(Compact),
    /// Touched extents, neighbours if and only if they are on the device.
    Neighbours(Compact),
    /// The address space from the lowest touched extent on: what `linear` places is the address.
    From(u64),
}

impl Rows {
    fn row(&mut self, extent: u64) -> u64 {
        match self {
            Rows::Compact(c) => c.rank(extent),
            Rows::Neighbours(c) => c.number(extent),
            Rows::From(lowest) => extent - *lowest,
        }
    }
}

/// Sums over the requests.
#[derive(Default)]
struct Requests {
    all: u64,
    reads: u64,
    writes: u64,
    bytes_read: u64,
    bytes_written: u64,
    by_class: std::collections::BTreeMap<u8, (u64, u64)>,
}

fn one(args: &SimArgs, trace: &Path) -> Result<Value, Failure> {
    let path = find(trace)?;
    let options = options(&args.read)?;
    let shift = args.extent.trailing_zeros();
    let begun = Instant::now();
    let mut reading = Duration::ZERO;
    let touched = first_pass(&path, &options, shift, &mut reading)?;
    let n = touched.extents.len();
    let refuse = |why: String| Failure::failed(format!("{}: {why}", path.display()));
    let (Some(lowest), Some(highest)) = (touched.extents.min(), touched.extents.max()) else {
        return Err(refuse("no request reads or writes anything".into()));
    };
    let fast = match args.fast_size.bytes() {
        Some(bytes) => bytes >> shift,
        None => args.fast_size.of(n),
    }
    .max(1);
    let by_address = matches!(args.policy.name.as_str(), "linear" | "mylinear");
    let (rows, count) = if by_address {
        (Rows::From(lowest), highest - lowest + 1)
    } else {
        let compact = Compact::new(&touched.extents);
        if reads_addresses(&args.policy.name) {
            let count = compact.numbers();
            (Rows::Neighbours(compact), count)
        } else {
            (Rows::Compact(compact), n)
        }
    };
    // Watermarks count free slots, so slots beyond the last extent matter; only absurd sizes are cut, for memory's sake.
    let fast_slots = fast.min(FAST_SLOTS_MAX.max(2 * count));
    if fast_slots + count > u64::from(SLOTS_MAX) {
        return Err(refuse(format!(
            "{count} extents of {} bytes are too many: choose a larger --extent",
            args.extent
        )));
    }
    let member = |tier, slots: u64| Member {
        tier: TierId(tier),
        first_slot: 0,
        slots: slots as u32,
        data_offset: 0,
    };
    let geo = Geometry::new(
        shift,
        BLOCK_SHIFT,
        count as u32,
        vec![member(0, fast_slots), member(1, count)],
    )
    .map_err(|e| refuse(e.to_owned()))?;
    let mut engine = NullEngine::new(geo, args.policy.build()?);
    let mut reader = isotherm_traces::open(&path, &options).map_err(|e| failed(&e))?;
    let mut sums = Requests::default();
    let mut play = Play {
        rows,
        shift,
        engine: &mut engine,
        sums: &mut sums,
    };
    each_batch(&mut reader, &mut reading, |batch| {
        for r in batch {
            let mut r = *r;
            touched.devices.map(&mut r);
            play.request(&r);
        }
    })?;
    let wall = begun.elapsed();
    if let Some(warning) = engine.policy().warning() {
        eprintln!("warning: {}: {warning}", path.display());
    }
    let c = engine.counters();
    let bytes = engine.bytes();
    let mut result = figures(&sums, &c);
    let simulating = wall.saturating_sub(reading).as_secs_f64();
    for (k, v) in [
        ("trace", json!(trace)),
        ("policy", json!(args.policy.to_string())),
        ("hit_only", json!(true)),
        ("extent_bytes", json!(args.extent)),
        (
            "fast_bytes",
            json!(fast.saturating_mul(u64::from(args.extent))),
        ),
        ("touched_extents", json!(n)),
        (
            "migrated_bytes",
            json!((c.promotions + c.demotions + c.fetches + c.writebacks) * u64::from(args.extent)),
        ),
        ("wall_s", json!(wall.as_secs_f64())),
        ("reader_s", json!(reading.as_secs_f64())),
        (
            "sim_rate_rps",
            json!(if simulating > 0.0 {
                sums.all as f64 / simulating
            } else {
                0.0
            }),
        ),
        ("bytes_per_extent", json!(bytes as f64 / n as f64)),
        ("seed", json!(args.seed)),
        ("reader", json!(reader.stats())),
    ] {
        result.insert(k.to_owned(), v);
    }
    Ok(Value::Object(result))
}

fn first_pass(
    path: &Path,
    options: &Options,
    shift: u32,
    reading: &mut Duration,
) -> Result<Touched, Failure> {
    let spans = {
        let begun = Instant::now();
        let spans = isotherm_traces::scan(path, options).map_err(|e| failed(&e))?;
        *reading += begun.elapsed();
        spans
    };
    let devices =
        SideBySide::new(&spans).map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?;
    let mut extents = RoaringTreemap::new();
    let mut reader = isotherm_traces::open(path, options).map_err(|e| failed(&e))?;
    each_batch(&mut reader, reading, |batch| {
        for r in batch
            .iter()
            .filter(|r| matches!(r.op, Op::Read | Op::Write))
        {
            let mut r = *r;
            devices.map(&mut r);
            let (from, to) = span(&r, shift);
            extents.insert_range(from..=to);
        }
    })?;
    Ok(Touched { extents, devices })
}

/// Give every batch of the trace to `f`, and count the time spent reading.
fn each_batch(
    reader: &mut Reader,
    reading: &mut Duration,
    mut f: impl FnMut(&[Record]),
) -> Result<(), Failure> {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        let begun = Instant::now();
        let n = reader
            .read_batch(&mut batch, BATCH)
            .map_err(|e| failed(&e))?;
        *reading += begun.elapsed();
        if n == 0 {
            return Ok(());
        }
        f(&batch);
    }
}

/// First and last extent of a request of at least one byte.
fn span(r: &Record, shift: u32) -> (u64, u64) {
    (r.offset >> shift, (r.end() - 1) >> shift)
}

struct Play<'a> {
    rows: Rows,
    shift: u32,
    engine: &'a mut NullEngine<Box<dyn Policy>>,
    sums: &'a mut Requests,
}

impl Play<'_> {
    fn request(&mut self, r: &Record) {
        self.sums.all += 1;
        let write = match r.op {
            Op::Read => {
                self.sums.reads += 1;
                self.sums.bytes_read += u64::from(r.len);
                false
            }
            Op::Write => {
                self.sums.writes += 1;
                self.sums.bytes_written += u64::from(r.len);
                true
            }
            // Neither places nor touches data in a run without devices.
            Op::Flush | Op::Discard => return,
        };
        let (from, to) = span(r, self.shift);
        // Touched neighbours stay neighbours, so a request stays one piece.
        let first = self.rows.row(from);
        let inside = r.offset & ((1 << self.shift) - 1);
        let request = ((first << self.shift) + inside, r.len);
        let class = self.sums.by_class.entry(r.class).or_default();
        for row in first..=first + (to - from) {
            class.0 += 1;
            class.1 += u64::from(self.engine.access(
                r.time,
                ExtentId(row as u32),
                write,
                r.class,
                request,
            ));
        }
    }
}

fn figures(r: &Requests, c: &NullCounters) -> Map<String, Value> {
    let by_class: Map<String, Value> = r
        .by_class
        .iter()
        .map(|(class, (accesses, hits))| {
            (
                class.to_string(),
                json!({"accesses": accesses, "fast_hits": hits}),
            )
        })
        .collect();
    let mut m = Map::new();
    for k in ["trace", "policy", "extent_bytes", "fast_bytes"] {
        m.insert(k.to_owned(), Value::Null); // filled in by the caller; here for the order
    }
    for (k, v) in [
        ("requests", r.all),
        ("reads", r.reads),
        ("writes", r.writes),
    ] {
        m.insert(k.to_owned(), json!(v));
    }
    m.insert("bytes_read".into(), json!(r.bytes_read));
    m.insert("bytes_written".into(), json!(r.bytes_written));
    m.insert(
        "fast_hit_ratio".into(),
        json!(c.hits as f64 / c.accesses as f64),
    );
    for k in [
        "elapsed_s",
        "throughput_iops",
        "throughput_bytes_per_s",
        "latency_mean_s",
        "latency_p50_s",
        "latency_p95_s",
        "latency_p99_s",
        "energy_j",
        "mean_power_w",
        "spin_downs",
        "fast_read_bytes",
        "fast_write_bytes",
        "wear_eu",
    ] {
        m.insert(k.to_owned(), Value::Null);
    }
    for (k, v) in [
        ("accesses", c.accesses),
        ("promotions", c.promotions),
        ("demotions", c.demotions),
        ("fetches", c.fetches),
        ("evictions", c.evictions),
        ("writebacks", c.writebacks),
        ("refused", c.refused),
    ] {
        m.insert(k.to_owned(), json!(v));
    }
    m.insert("cost".into(), Value::Null);
    m.insert("by_class".into(), Value::Object(by_class));
    m
}
