//! The figures of a volume at one moment for the web view, made from the answers of `stats` and `status`.

use isotherm_answers::{Cause, CauseKind, Device, Draining, Failure, Level, Sleep, Stats, Status};
use serde::Serialize;

use crate::overview::{Overview, Sample, TierLine};

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

/// The figures of a volume at one moment.
#[derive(Serialize)]
pub struct Frame<'a> {
    time_unix_s: f64,
    name: String,
    sentence: String,
    well: bool,
    health: Level,
    causes: &'a [Cause],
    failed: bool,
    failure: Option<&'a Failure>,
    degraded: bool,
    read_only: Option<bool>,
    policy: String,
    paced: bool,
    seconds: f64,
    elapsed_s: f64,
    volume_bytes: u64,
    extent_bytes: u64,
    extents: u64,
    tiers: Vec<OfTier>,
    served_fast: Option<f64>,
    moves: Vec<Moves>,
    moving: u64,
    refusals: Vec<Refusals>,
    device: Option<&'a Device>,
    front_ends: Option<&'a [String]>,
    reads_per_s: f64,
    writes_per_s: f64,
    flushes_per_s: f64,
    read_bytes_per_s: f64,
    written_bytes_per_s: f64,
    read_mean_s: Option<f64>,
    write_mean_s: Option<f64>,
    read_p99_s: f64,
    write_p99_s: f64,
    dirty_bytes: u64,
    dirty_for_at_most_s: Option<f64>,
    cleaning_takes_s: Option<f64>,
    draining: Option<Draining>,
    draining_left: u32,
    queue: u64,
    errors: u64,
    power_w: Option<f64>,
    energy: Option<Energy>,
    wear: Wear,
    classes: Vec<OfClass<'a>>,
    members: Vec<Member<'a>>,
    /// For the curves: time, reads, writes, bytes read and written per second, mean latencies of reads and writes, dirty bytes, power, share
    /// of the fastest tier. The first poll has means since serving began, which do not belong into a curve.
    point: Option<[Option<f64>; 10]>,
}

#[derive(Serialize)]
struct OfTier {
    tier: u64,
    used_bytes: u64,
    bytes: u64,
    served: Option<f64>,
    asleep: usize,
    members: usize,
}

#[derive(Serialize)]
struct Moves {
    kind: &'static str,
    per_s: f64,
    refused: u64,
    proposed: u64,
    done: u64,
}

#[derive(Serialize)]
struct Refusals {
    why: String,
    count: u64,
    what: Option<&'static str>,
}

#[derive(Serialize)]
struct Energy {
    joules: f64,
    mean_w: f64,
    kwh_per_day: f64,
}

/// Bytes written to the fastest tier, and how long it lasts at that rate.
#[derive(Serialize)]
pub(crate) struct Wear {
    written_bytes: f64,
    bytes_per_day: Option<f64>,
    limit_bytes: Option<f64>,
    /// `None`: not known.
    pub(crate) years: Option<f64>,
    budget_bytes_per_day: Option<u64>,
}

#[derive(Serialize)]
struct OfClass<'a> {
    class: String,
    name: &'a str,
    accesses: u64,
    fast: u64,
    fast_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Member<'a> {
    path: &'a str,
    tier: u8,
    paced: Option<&'a str>,
    health: &'static str,
    errors: u64,
    reads: u64,
    writes: u64,
    bytes_read: u64,
    bytes_written: u64,
    move_bytes_read: u64,
    move_bytes_written: u64,
    energy_j: Option<f64>,
    asleep: Option<bool>,
    sleep: Option<&'a Sleep>,
    standby_s: Option<f64>,
}

/// The figures of `now`, with rates since `before`.
pub fn frame<'a>(now: &'a Sample, before: Option<&Sample>) -> Frame<'a> {
    let o = Overview::new(now, before);
    let (stats, status) = (&now.stats, &now.status);
    let served = status.served.as_ref();
    let elapsed = stats.elapsed_s;
    let unix = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64();
    let extent = stats.extent_bytes.max(1);
    let served_fast = o.tiers.first().and_then(|t| t.served);
    let [reads, writes, flushes] = o.per_s;
    let [read_bytes, written_bytes] = o.bytes_per_s;
    Frame {
        time_unix_s: unix,
        tiers: tiers(&o),
        moves: moves(&o, stats),
        refusals: refusals(&o),
        point: (!o.whole).then(|| point(&o, unix)),
        name: o.name,
        sentence: o.sentence,
        well: o.well,
        health: stats.health.state,
        causes: &stats.health.causes,
        failed: stats.failure.is_some(),
        failure: stats.failure.as_ref(),
        degraded: status.degraded,
        read_only: served.map(|v| v.read_only),
        policy: o.policy,
        paced: o.paced,
        seconds: o.seconds,
        elapsed_s: elapsed,
        volume_bytes: stats.volume_bytes,
        extent_bytes: extent,
        extents: stats.volume_bytes.div_ceil(extent),
        served_fast,
        moving: o.moving,
        device: served.and_then(|v| v.device.as_ref()),
        front_ends: served.map(|v| &v.front_ends[..]),
        reads_per_s: reads,
        writes_per_s: writes,
        flushes_per_s: flushes,
        read_bytes_per_s: read_bytes,
        written_bytes_per_s: written_bytes,
        read_mean_s: o.mean_s[0],
        write_mean_s: o.mean_s[1],
        read_p99_s: o.p99_s[0],
        write_p99_s: o.p99_s[1],
        dirty_bytes: o.dirty,
        dirty_for_at_most_s: stats.copies.dirty_for_at_most_s,
        cleaning_takes_s: stats.copies.cleaning_takes_s,
        draining: stats.copies.draining,
        draining_left: stats.copies.draining_left,
        queue: o.queue,
        errors: o.errors,
        power_w: o.power_w,
        energy: energy(stats, elapsed),
        wear: wear(stats, elapsed),
        classes: classes(stats),
        members: members(stats, status),
    }
}

/// See [`Frame::point`].
fn point(o: &Overview, unix: f64) -> [Option<f64>; 10] {
    let rate = |n| Some(rounded(n));
    [
        rate(unix),
        rate(o.per_s[0]),
        rate(o.per_s[1]),
        rate(o.bytes_per_s[0]),
        rate(o.bytes_per_s[1]),
        o.mean_s[0],
        o.mean_s[1],
        Some(o.dirty as f64),
        o.power_w,
        o.tiers.first().and_then(|t| t.served),
    ]
}

fn tiers(o: &Overview) -> Vec<OfTier> {
    let one = |t: &TierLine| OfTier {
        tier: t.tier,
        used_bytes: t.used,
        bytes: t.size,
        served: t.served,
        asleep: t.asleep.0,
        members: t.asleep.1,
    };
    o.tiers.iter().map(one).collect()
}

fn moves(o: &Overview, stats: &Stats) -> Vec<Moves> {
    let all = o.moves.iter().zip(stats.moves.kinds());
    let one = |(&(kind, per_s, refused, proposed), (_, m))| {
        let m: &isotherm_answers::MoveCounts = m;
        Moves {
            kind,
            per_s,
            refused,
            proposed,
            done: m.done,
        }
    };
    all.map(one).collect()
}

fn refusals(o: &Overview) -> Vec<Refusals> {
    let one = |(why, n): &(String, u64)| Refusals {
        what: REFUSED.iter().find(|r| r.0 == why).map(|r| r.1),
        why: why.clone(),
        count: *n,
    };
    o.refusals.iter().map(one).collect()
}

/// One decimal digit is enough for curves.
fn rounded(n: f64) -> f64 {
    (n * 10.0).round() / 10.0
}

/// Energy since serving began, and energy per day; `None` if that of a member is not known.
fn energy(stats: &Stats, elapsed: f64) -> Option<Energy> {
    let joules = stats.energy_j.filter(|_| elapsed > 0.0)?;
    Some(Energy {
        joules,
        mean_w: joules / elapsed,
        kwh_per_day: joules / elapsed * 86_400.0 / 3.6e6,
    })
}

/// Bytes written to the fastest tier, and the resulting lifetime.
pub(crate) fn wear(stats: &Stats, elapsed: f64) -> Wear {
    let written = stats.fast_write_bytes as f64;
    let per_day = (elapsed >= DAY_FROM_S).then(|| written / elapsed * 86_400.0);
    let years = match (stats.wear_limit_bytes, per_day) {
        (Some(limit), Some(d)) if d > 0.0 => Some(limit / d / 365.25),
        _ => None,
    };
    Wear {
        written_bytes: written,
        bytes_per_day: per_day,
        limit_bytes: stats.wear_limit_bytes,
        years,
        budget_bytes_per_day: stats.wear_budget.as_ref().map(|b| b.bytes_per_day),
    }
}

fn classes(stats: &Stats) -> Vec<OfClass<'_>> {
    let mut used: Vec<_> = (stats.by_class.iter())
        .filter(|(_, c)| c.accesses > 0)
        .collect();
    used.sort_by_key(|(_, c)| std::cmp::Reverse(c.accesses));
    used.into_iter()
        .map(|(i, c)| OfClass {
            class: i.to_string(),
            name: &c.name,
            accesses: c.accesses,
            fast: c.fast_hits,
            fast_bytes: c.fast_bytes,
        })
        .collect()
}

/// What is wrong with a member, by the health of the volume.
fn of_member(stats: &Stats, status: &Status, member: usize) -> &'static str {
    if (status.missing_members.iter()).any(|m| usize::from(*m) == member) {
        return "missing";
    }
    let mut causes = stats.health.causes.iter();
    match causes
        .find(|c| c.member == Some(member as u64))
        .map(|c| c.kind)
    {
        Some(CauseKind::Failure) => "failed",
        Some(kind) => kind.word(),
        None => "well",
    }
}

fn members<'a>(stats: &'a Stats, status: &'a Status) -> Vec<Member<'a>> {
    let all = stats.members.iter().enumerate();
    all.map(|(i, m)| {
        let described = status.members.get(i);
        Member {
            path: &m.path,
            tier: m.tier,
            paced: m.paced.as_deref(),
            health: of_member(stats, status, i),
            errors: m.errors,
            reads: m.reads,
            writes: m.writes,
            bytes_read: m.bytes_read,
            bytes_written: m.bytes_written,
            move_bytes_read: m.move_bytes_read,
            move_bytes_written: m.move_bytes_written,
            energy_j: m.energy_j,
            asleep: described.and_then(|d| d.asleep),
            sleep: described.and_then(|d| d.sleep.as_ref()),
            standby_s: described.and_then(|d| d.standby_s),
        }
    })
    .collect()
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
        assert_eq!(first.point, None);
        let f = frame(&b, Some(&a));
        assert!((f.reads_per_s - 8000.0).abs() < 0.5);
        assert!(f.point.is_some());
        let years = f.wear.years.expect("a forecast");
        assert!((years - 1.0).abs() < 1e-6, "{years}");
        assert_eq!(
            f.refusals[0].what, None,
            "`room` is no reason of the engine's"
        );
        // It is too early for a rate per day.
        assert_eq!(frame(&sample(30.0, 1), None).wear.bytes_per_day, None);
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
        assert_eq!((f.failed, f.well), (true, false));
        assert_eq!(f.members[0].health, "failed");
        assert_eq!(f.members[1].health, "silent");
    }

    #[test]
    fn every_refusal_is_explained() {
        assert_eq!(REFUSED.map(|r| r.0), REFUSALS);
    }
}
