//! The figures of a volume at one moment for the web view, made from the answers of `stats` and `status`.

use isotherm_answers::{CauseKind, Stats, Status};
use serde_json::{Value, json};

use crate::overview::{Overview, Sample};

/// A rate per day is shown only after ten minutes.
const DAY_FROM_S: f64 = 600.0;

/// The meaning of each reason for a refusal.
pub const REFUSED: [(&str, &str); 11] = [
    (
        "pointless",
        "it is there already, or there is nothing to move",
    ),
    ("busy", "requests or another move were at work on it"),
    ("full", "the tier had no free room"),
    ("limit", "as many moves as allowed were under way"),
    ("metadata_flush", "metadata was being written"),
    (
        "throttled",
        "moves had used their bandwidth, or requests were slower than their limit",
    ),
    ("closed", "the volume is closing, read-only or failed"),
    (
        "no_copies",
        "the volume was made without room for records of copies",
    ),
    (
        "wear_budget",
        "the fast tier may not be written that much a day",
    ),
    ("asleep", "a disk sleeps, and this is no reason to wake it"),
    ("power_budget", "the devices take more power than they may"),
];

/// The figures of `now`, with rates since `before`.
pub fn frame(now: &Sample, before: Option<&Sample>) -> Value {
    let o = Overview::new(now, before);
    let (stats, status) = (&now.stats, &now.status);
    let served = status.served.as_ref();
    let elapsed = stats.elapsed_s;
    let unix = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64();
    let served_fast = o.tiers.first().and_then(|t| t.served);
    let extent = stats.extent_bytes.max(1);
    let tiers = o.tiers.iter().map(|t| {
        json!({
            "tier": t.tier, "used_bytes": t.used, "bytes": t.size, "served": t.served,
            "asleep": t.asleep.0, "members": t.asleep.1,
        })
    });
    let moves = o.moves.iter().zip(stats.moves.kinds());
    let moves = moves.map(|((kind, per_s, refused, proposed), (_, m))| {
        json!({
            "kind": kind, "per_s": per_s, "refused": refused, "proposed": proposed, "done": m.done,
        })
    });
    let refusals = o.refusals.iter().map(|(why, n)| {
        let what = REFUSED.iter().find(|r| r.0 == why).map(|r| r.1);
        json!({"why": why, "count": n, "what": what})
    });
    let mut all = json!({
        "time_unix_s": unix, "name": o.name, "sentence": o.sentence, "well": o.well, "health": stats.health.state, "causes": stats.health.causes,
        "failed": stats.failure.is_some(), "failure": stats.failure, "degraded": status.degraded,
        "read_only": served.map(|v| v.read_only), "policy": o.policy, "paced": o.paced, "seconds": o.seconds, "elapsed_s": elapsed,
        "volume_bytes": stats.volume_bytes, "extent_bytes": extent,
        "extents": stats.volume_bytes.div_ceil(extent),
        "tiers": tiers.collect::<Vec<_>>(), "served_fast": served_fast,
        "moves": moves.collect::<Vec<_>>(), "moving": o.moving, "refusals": refusals.collect::<Vec<_>>(),
        "device": served.map(|v| &v.device), "front_ends": served.map(|v| &v.front_ends),
    });
    let rest = json!({
        "reads_per_s": o.per_s[0], "writes_per_s": o.per_s[1], "flushes_per_s": o.per_s[2],
        "read_bytes_per_s": o.bytes_per_s[0], "written_bytes_per_s": o.bytes_per_s[1],
        "read_mean_s": o.mean_s[0], "write_mean_s": o.mean_s[1], "read_p99_s": o.p99_s[0], "write_p99_s": o.p99_s[1],
        "dirty_bytes": o.dirty, "dirty_for_at_most_s": stats.copies.dirty_for_at_most_s,
        "cleaning_takes_s": stats.copies.cleaning_takes_s, "draining": stats.copies.draining, "draining_left": stats.copies.draining_left,
        "queue": o.queue, "errors": o.errors, "power_w": o.power_w, "energy": energy(stats, elapsed), "wear": wear(stats, elapsed),
        "classes": classes(stats), "members": members(stats, status),
        // The first poll has means since serving began, which do not belong into a curve.
        "point": (!o.whole).then(|| json!([
            rounded(unix), rounded(o.per_s[0]), rounded(o.per_s[1]), rounded(o.bytes_per_s[0]), rounded(o.bytes_per_s[1]),
            o.mean_s[0], o.mean_s[1], o.dirty, o.power_w, served_fast,
        ])),
    });
    // One macro call would exceed the compiler's recursion limit.
    for (k, v) in rest.as_object().into_iter().flatten() {
        all[k.as_str()] = v.clone();
    }
    all
}

/// One decimal digit is enough for curves.
fn rounded(n: f64) -> f64 {
    (n * 10.0).round() / 10.0
}

/// Energy since serving began, and energy per day; null if a member is not modelled.
fn energy(stats: &Stats, elapsed: f64) -> Value {
    let Some(joules) = stats.energy_j.filter(|_| elapsed > 0.0) else {
        return Value::Null;
    };
    json!({"joules": joules, "mean_w": joules / elapsed, "kwh_per_day": joules / elapsed * 86_400.0 / 3.6e6})
}

/// Bytes written to the fastest tier, and the resulting lifetime.
pub(crate) fn wear(stats: &Stats, elapsed: f64) -> Value {
    let written = stats.fast_write_bytes as f64;
    let per_day = (elapsed >= DAY_FROM_S).then(|| written / elapsed * 86_400.0);
    let years = match (stats.wear_limit_bytes, per_day) {
        (Some(limit), Some(d)) if d > 0.0 => Some(limit / d / 365.25),
        _ => None,
    };
    json!({
        "written_bytes": written, "bytes_per_day": per_day, "limit_bytes": stats.wear_limit_bytes, "years": years,
        "budget_bytes_per_day": stats.wear_budget.as_ref().map(|b| b.bytes_per_day),
    })
}

fn classes(stats: &Stats) -> Value {
    let mut used: Vec<_> = (stats.by_class.iter())
        .filter(|(_, c)| c.accesses > 0)
        .collect();
    used.sort_by_key(|(_, c)| std::cmp::Reverse(c.accesses));
    let row = |(i, c): (&u8, &isotherm_answers::ClassFigures)| {
        json!({
            "class": i.to_string(), "name": c.name, "accesses": c.accesses, "fast": c.fast_hits, "fast_bytes": c.fast_bytes,
        })
    };
    used.into_iter().map(row).collect()
}

/// What is wrong with a member, by the health of the volume.
fn of_member(stats: &Stats, status: &Status, member: usize) -> Value {
    if (status.missing_members.iter()).any(|m| usize::from(*m) == member) {
        return json!("missing");
    }
    let mut causes = stats.health.causes.iter();
    match causes
        .find(|c| c.member == Some(member as u64))
        .map(|c| c.kind)
    {
        Some(CauseKind::Failure) => json!("failed"),
        Some(kind) => json!(kind),
        None => json!("well"),
    }
}

fn members(stats: &Stats, status: &Status) -> Value {
    let of = |(i, m): (usize, &isotherm_answers::MemberFigures)| {
        let described = status.members.get(i);
        json!({
            "path": m.path, "tier": m.tier, "paced": m.paced, "health": of_member(stats, status, i), "errors": m.errors,
            "reads": m.reads, "writes": m.writes, "bytes_read": m.bytes_read, "bytes_written": m.bytes_written,
            "move_bytes_read": m.move_bytes_read, "move_bytes_written": m.move_bytes_written,
            "energy_j": m.energy_j, "asleep": described.and_then(|d| d.asleep), "sleep": described.map(|d| &d.sleep),
            "standby_s": described.and_then(|d| d.standby_s),
        })
    };
    stats.members.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overview::tests::sample;
    use isotherm_core::policy::REFUSALS;

    #[test]
    fn a_frame_has_rates_forecasts_and_a_point() {
        let (mut a, mut b) = (sample(1000.0, 100), sample(1002.0, 300));
        for s in [&mut a, &mut b] {
            s.stats.fast_write_bytes = (1002e9 / 86_400.0) as u64;
            s.stats.wear_limit_bytes = Some(365.25e9);
        }
        let first = frame(&a, None);
        assert_eq!(first["point"], Value::Null);
        let f = frame(&b, Some(&a));
        assert_eq!(f["reads_per_s"].as_f64().map(f64::round), Some(8000.0));
        assert_eq!(f["point"].as_array().map(Vec::len), Some(10));
        let years = f["wear"]["years"].as_f64().expect("a forecast");
        assert!((years - 1.0).abs() < 1e-6, "{years}");
        assert_eq!(
            f["refusals"][0]["what"],
            Value::Null,
            "`room` is no reason of the engine's"
        );
        // It is too early for a rate per day.
        assert_eq!(
            frame(&sample(30.0, 1), None)["wear"]["bytes_per_day"],
            Value::Null
        );
        let cause = |kind, member| isotherm_answers::Cause {
            state: isotherm_answers::Level::Failed,
            kind,
            member: Some(member),
            path: None,
            what: String::new(),
            detail: String::new(),
            todo: String::new(),
            errno: None,
            error: None,
            count: None,
            since_unix_s: None,
            last_unix_s: None,
        };
        b.stats.failure = Some(isotherm_answers::Failure {
            reason: "flush of member 0 failed".into(),
            member: Some(0),
            path: None,
            errno: None,
            time_unix_s: 0.0,
        });
        b.stats.health.state = isotherm_answers::Level::Failed;
        b.stats.health.causes = vec![
            cause(CauseKind::Failure, 0),
            cause(CauseKind::Errors, 0),
            cause(CauseKind::Silent, 1),
        ];
        let f = frame(&b, Some(&a));
        assert_eq!((&f["failed"], &f["well"]), (&json!(true), &json!(false)));
        assert_eq!(
            (&f["members"][0]["health"], &f["members"][1]["health"]),
            (&json!("failed"), &json!("silent"))
        );
    }

    #[test]
    fn every_refusal_is_explained() {
        assert_eq!(REFUSED.map(|r| r.0), REFUSALS);
    }
}
