//! Judges GreenDM's claims, and makes the table of the six measures of figures 6.5 to 6.7.
//!
//! A direction holds if it holds in every cell. Sizes are judged by [`crate::verdict`].

use std::sync::Arc;

use super::measure::Measured;
use crate::outcome::{Cell, Outcome, Row};

/// A measured drive with its name.
pub type Named = (String, Arc<Measured>);

/// `a` relative to `b`: the difference in percent.
pub fn over(a: f64, b: f64) -> f64 {
    (a / b - 1.0) * 100.0
}

/// The smallest and the largest value.
pub fn ends(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values
        .into_iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| {
            (l.min(v), h.max(v))
        })
}

/// About three digits.
pub fn show(value: f64) -> String {
    match value.abs() {
        a if a >= 100.0 => format!("{value:.0}"),
        a if a >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `from to to`, or one value.
pub fn span(low: f64, high: f64, unit: &str) -> String {
    let (a, b) = (show(low), show(high));
    if a == b {
        format!("{a} {unit}")
    } else {
        format!("{a} to {b} {unit}")
    }
}

/// Judges claim `key` against the value that is printed under the same key.
pub fn range(out: &mut Outcome, key: &str, values: impl IntoIterator<Item = f64>, unit: &str) {
    let values: Vec<f64> = values.into_iter().collect();
    let Some(p) = out.printed(key) else {
        return out.cannot(key, "the data file has no value");
    };
    let (low, high) = ends(values.iter().copied());
    let why = format!(
        "ours {}, printed {}; {} cells",
        span(low, high, unit),
        span(p.low, p.high, unit),
        values.len()
    );
    out.judge_size(key, values, unit, why);
}

/// Judges `a > b`, and shows the names and figures of both.
pub fn greater(out: &mut Outcome, key: &str, a: (&str, f64), b: (&str, f64), unit: &str) {
    let why = format!("{} {} {unit}, {} {} {unit}", a.0, show(a.1), b.0, show(b.1));
    out.judge(key, a.1 > b.1, why);
}

/// Judges the order of the four kinds of drive in `measure`. Each kind is given by its smallest and largest value, and must be above the
/// next.
pub fn order(out: &mut Outcome, key: &str, kinds: &[(&str, (f64, f64))], unit: &str) {
    let holds = kinds.windows(2).all(|w| w[0].1.0 > w[1].1.1);
    let why: Vec<String> = kinds
        .iter()
        .map(|(name, (l, h))| format!("{name} {}", span(*l, *h, unit)))
        .collect();
    out.judge(key, holds, why.join(", "));
}

/// The same value as smallest and largest.
pub fn only(v: f64) -> (f64, f64) {
    (v, v)
}

/// The percentage of promotions that the engine did not begin: fast tier full, extent busy, limit reached, or map being written.
fn refused(m: &Measured) -> f64 {
    let up = m.report.moves.as_ref().and_then(|m| m.get("promotions"));
    up.map_or(f64::NAN, |up| {
        up.refused.values().sum::<u64>() as f64 / up.proposed.max(1) as f64 * 100.0
    })
}

/// A table row of the six measures, compared with linear. `key` is the suffix of the keys of the printed values for this row.
pub fn row(out: &Outcome, label: &str, key: &str, m: &Measured, linear: Option<&Measured>) -> Row {
    let by = |f: fn(&Measured) -> f64| linear.map_or(f64::NAN, |l| over(f(m), f(l)));
    let times = |f: fn(&Measured) -> f64| linear.map_or(f64::NAN, |l| f(m) / f(l));
    let printed = |what: &str| out.printed(&format!("{what} {key}"));
    let r = &m.report;
    Row {
        label: label.to_owned(),
        cells: vec![
            Cell::new("throughput", "MB/s", m.mb_s),
            Cell::new("over linear", "%", by(|m| m.mb_s)).beside(printed("faster")),
            Cell::new("energy", "kJ", m.energy_j / 1e3),
            Cell::new("over linear", "%", by(|m| m.energy_j)).beside(printed("energy")),
            Cell::new("power", "W", m.power_w),
            Cell::new("over linear", "%", by(|m| m.power_w)),
            Cell::new("spun down", "%", m.spun_down * 100.0),
            Cell::new("start-stops", "", m.start_stops as f64),
            Cell::new("wear 1/10", "eu", m.wear_10),
            Cell::new("of linear", "x", times(|m| m.wear_10)).beside(printed("wear-10")),
            Cell::new("wear 1/100", "eu", m.wear_100),
            Cell::new("of linear", "x", times(|m| m.wear_100)).beside(printed("wear-100")),
            Cell::new("flash hits", "%", m.flash_hits * 100.0),
            Cell::new("promotions", "", (r.promotions + r.fetches) as f64),
            Cell::new("demotions", "", (r.demotions + r.evictions) as f64),
            Cell::new("moves up refused", "%", refused(m)),
        ],
    }
}
