//! The charts of one run over its time.

use super::chart::{Axis, Chart, Line, LineStyle, Lines, Plot};
use super::unit::Unit;
use isotherm_lab::sim::{MemberSeries, Series};

/// A chart over the time of the run.
fn timed(title: &str, note: &str, y: Axis, series: Vec<Line>, style: LineStyle) -> Chart {
    let lines = Lines {
        x: Axis::new("Time", Unit::SECONDS),
        y,
        series,
        style,
    };
    Chart::new(title, note, Plot::Lines(lines))
}

/// The charts over time.
pub(crate) fn over_time(s: &Series) -> Vec<Chart> {
    debug_assert!(s.bin_s > 0.0);
    let mut charts = requests_over_time(s);
    charts.extend(devices_over_time(s));
    charts
}

/// A line with a value for each interval.
fn line(s: &Series, name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Line {
    Line::regular(name, 0.0, s.bin_s, values)
}

/// A line of counts by interval, as a rate.
fn rate(s: &Series, name: &str, counts: &[u64]) -> Line {
    line(s, name, counts.iter().map(|n| *n as f64 / s.bin_s))
}

/// A line for each member.
fn each(s: &Series, f: impl Fn(&MemberSeries) -> Vec<f64>) -> Vec<Line> {
    s.members.iter().map(|m| line(s, label(m), f(m))).collect()
}

/// The values of the intervals in which something was counted, and gaps between them.
fn gaps(values: &[f64], counts: &[u64]) -> Vec<f64> {
    let value = |(v, n): (&f64, &u64)| if *n > 0 { *v } else { f64::NAN };
    values.iter().zip(counts).map(value).collect()
}

fn requests_over_time(s: &Series) -> Vec<Chart> {
    let straight = LineStyle::Straight;
    let hits = s.fast_hits.iter().zip(&s.accesses).map(|(h, a)| {
        if *a > 0 {
            *h as f64 / *a as f64
        } else {
            f64::NAN
        }
    });
    vec![
        timed(
            "Throughput",
            "Bytes of the requests answered in each interval.",
            Axis::new("Throughput", Unit::BYTES_PER_S),
            vec![rate(s, "requests", &s.bytes)],
            straight,
        ),
        timed(
            "Request rate",
            "Requests answered in each interval.",
            Axis::new("Rate", Unit::IOPS),
            vec![rate(s, "requests", &s.requests)],
            straight,
        ),
        timed(
            "Latency",
            "Mean of the requests answered in each interval.",
            Axis::new("Mean latency", Unit::SECONDS),
            vec![line(s, "latency", gaps(&s.latency_mean_s, &s.requests))],
            straight,
        ),
        timed(
            "Hits on the fast tier",
            "Share of extent accesses that tier 0 served.",
            Axis::new("Hits", Unit::SHARE),
            vec![line(s, "hits", hits)],
            straight,
        ),
    ]
}

fn devices_over_time(s: &Series) -> Vec<Chart> {
    let straight = LineStyle::Straight;
    let per_s = |m: &MemberSeries| m.bytes.iter().map(|b| *b as f64 / s.bin_s).collect();
    let mut charts = vec![
        timed(
            "Power",
            "Mean power of each member in each interval, on top of each other.",
            Axis::new("Power", Unit::WATTS),
            each(s, |m| m.power_w.clone()),
            LineStyle::Stacked,
        ),
        timed(
            "Device traffic",
            "Bytes read and written by each member, moves and metadata included.",
            Axis::new("Traffic", Unit::BYTES_PER_S),
            each(s, per_s),
            straight,
        ),
        timed(
            "Moves",
            "Extents moved up and down, a second.",
            Axis::new("Moves per second", Unit::COUNT),
            vec![rate(s, "up", &s.promotions), rate(s, "down", &s.demotions)],
            straight,
        ),
    ];
    let moved = s.members.iter().filter(|m| m.seeks.iter().any(|n| *n > 0));
    let arms: Vec<Line> = moved
        .map(|m| line(s, label(m), gaps(&m.seek_distance, &m.seeks)))
        .collect();
    if !arms.is_empty() {
        charts.push(timed(
            "Seek distance",
            "Mean distance of the arm movements in each interval (as figure 7 of HRO); a gap where the arm stood still.",
            Axis::new("Distance", Unit::CYLINDERS),
            arms,
            straight,
        ));
    }
    charts
}

fn label(m: &MemberSeries) -> String {
    format!("{} (tier {})", m.name, m.tier)
}
