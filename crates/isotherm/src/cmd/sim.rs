//! `isotherm sim`: a trace under a policy.
//!
//! Hit-only runs as in policy-specs section 0, by `isotherm_lab::hit_only`.

use std::path::Path;

use isotherm_lab::hit_only::{HitOnlyError, HitOnlyReport, KEEP_BYTES, Setup, hit_only};
use serde_json::{Map, Value, json};

use crate::Failure;
use crate::args::SimArgs;
use crate::cmd::trace::{failed, find, options};
use crate::table::table;

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

fn one(args: &SimArgs, trace: &Path) -> Result<Value, Failure> {
    let path = find(trace)?;
    let options = options(&args.read)?;
    let shift = args.extent.trailing_zeros();
    let refuse = |why: String| Failure::failed(format!("{}: {why}", path.display()));
    let params: Vec<(&str, f64)> = args
        .policy
        .params
        .iter()
        .map(|(k, v)| (k.as_str(), *v))
        .collect();
    let setup = Setup {
        policy: &args.policy.name,
        params: &params,
        extent_shift: shift,
        fast_slots: &|touched| match args.fast_size.bytes() {
            Some(bytes) => bytes >> shift,
            None => args.fast_size.of(touched),
        },
        keep_bytes: KEEP_BYTES,
    };
    let r = hit_only(|| isotherm_traces::open(&path, &options), &setup).map_err(|e| match e {
        HitOnlyError::Trace(e) => failed(&e),
        other => refuse(other.to_string()),
    })?;
    let c = r.counters;
    let mut result = figures(&r);
    let simulating = r.wall.saturating_sub(r.reading).as_secs_f64();
    for (k, v) in [
        ("trace", json!(trace)),
        ("policy", json!(args.policy.to_string())),
        ("hit_only", json!(true)),
        ("extent_bytes", json!(args.extent)),
        (
            "fast_bytes",
            json!(r.fast_slots.saturating_mul(u64::from(args.extent))),
        ),
        ("touched_extents", json!(r.touched)),
        (
            "migrated_bytes",
            json!((c.promotions + c.demotions + c.fetches + c.writebacks) * u64::from(args.extent)),
        ),
        ("wall_s", json!(r.wall.as_secs_f64())),
        ("reader_s", json!(r.reading.as_secs_f64())),
        (
            "sim_rate_rps",
            json!(if simulating > 0.0 {
                r.requests as f64 / simulating
            } else {
                0.0
            }),
        ),
        ("bytes_per_extent", json!(r.bytes as f64 / r.touched as f64)),
        ("seed", json!(args.seed)),
        ("reader", json!(r.reader)),
    ] {
        result.insert(k.to_owned(), v);
    }
    Ok(Value::Object(result))
}

fn figures(r: &HitOnlyReport) -> Map<String, Value> {
    let c = &r.counters;
    let by_class: Map<String, Value> = r
        .by_class
        .iter()
        .map(|(class, accesses, hits)| {
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
        ("requests", r.requests),
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
