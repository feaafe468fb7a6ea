//! The page that compares several runs: `compare` (policies) and `sweep` (policies × settings).

use super::chart::{Axis, BarSeries, Bars, Better, Chart, Metric, Plot, Point, Scale, Scatter};
use super::cost::{CostCurve, cost_chart};
use super::page::Page;
use super::table::{Cell, Table};
use super::unit::Unit;
use isotherm_lab::sim::Report;

/// Most policies that get bars of their own colour. With more of them, each metric is a chart with named bars.
const SERIES_MAX: usize = 8;
/// The number of metrics that get a bar chart. The others are in the table and in the trade-off.
const BARS_MAX: usize = 8;

/// Several runs and the metrics to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Heading of the page.
    pub title: String,
    /// One line on what was run.
    pub subtitle: String,
    /// Remarks for the reader, a paragraph each (the meaning of a bound, what was omitted).
    pub notes: Vec<String>,
    /// The metrics; [`metrics`] has the usual ones.
    pub metrics: Vec<Metric>,
    /// Index of the metric on the horizontal axis of the trade-off at first.
    pub x: usize,
    /// Index of the metric on its vertical axis.
    pub y: usize,
    /// The runs.
    pub entries: Vec<Entry>,
    /// Cost as a function of the time factor, for the runs that have prices.
    pub cost: Vec<CostCurve>,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Policy with its parameters, or a reference such as `HDD only`.
    pub policy: String,
    /// Further settings, such as `10 %, 64 KiB`; empty if there are none.
    pub setting: String,
    /// The values by metric; [`values`] has those of [`metrics`].
    pub values: Vec<Option<f64>>,
    /// The group within which entries compete: the trace, if there are several.
    pub field: String,
    /// Whether it is one device alone: a reference, which is never the best nor on the front.
    pub reference: bool,
}

impl Entry {
    /// The whole configuration as text.
    pub fn name(&self) -> String {
        if self.setting.is_empty() {
            self.policy.clone()
        } else {
            format!("{}, {}", self.policy, self.setting)
        }
    }
}

/// The usual metrics of a comparison; [`values`] are in the same order.
pub fn metrics() -> Vec<Metric> {
    use Better::{Higher, Lower};
    let metric = |label: &str, unit, better| Metric {
        axis: Axis::new(label, unit),
        better,
    };
    vec![
        metric("Throughput", Unit::IOPS, Higher),
        metric("Mean latency", Unit::SECONDS, Lower),
        metric("Latency, 99th percentile", Unit::SECONDS, Lower),
        metric("Fast hits", Unit::SHARE, Higher),
        metric("Served from fast", Unit::SHARE, Higher),
        metric("Energy", Unit::JOULES, Lower),
        metric("Mean power", Unit::WATTS, Lower),
        metric("Greatest wear", Unit::EU, Lower),
        metric("Bytes moved", Unit::BYTES, Lower),
        metric("Elapsed", Unit::SECONDS, Lower),
        metric("Fast tier", Unit::BYTES, Lower),
        metric("Cost of one run", Unit::USD, Lower),
        metric("Cost of 1000 runs", Unit::USD, Lower),
    ]
}

/// The values of [`metrics`] for a run.
pub fn values(r: &Report, cost: Option<&CostCurve>) -> Vec<Option<f64>> {
    let worn = r
        .wear_eu
        .as_ref()
        .and_then(|w| w.values().copied().max_by(f64::total_cmp));
    vec![
        r.throughput_iops,
        r.latency_mean_s,
        r.latency_p99_s,
        Some(r.fast_hit_ratio),
        Some(r.fast_served_ratio),
        r.energy_j,
        r.mean_power_w,
        worn,
        Some(r.migrated_bytes as f64),
        r.elapsed_s,
        Some(r.fast_bytes as f64),
        cost.map(|c| c.usd(1.0)),
        cost.map(|c| c.usd(1000.0)),
    ]
}

/// Makes the page.
pub fn compare_page(c: &Comparison) -> Page {
    let c = &known(c);
    let mut page = Page::new(&c.title, &c.subtitle);
    for n in &c.notes {
        page.text(n);
    }
    page.heading("Figures").table(table(c));
    if !c.metrics.is_empty() && c.entries.len() > 1 {
        page.heading("Which to choose");
        for field in fields(c) {
            page.chart(trade_off(c, field));
        }
        page.heading("Side by side");
        for m in 0..c.metrics.len().min(BARS_MAX) {
            page.chart(bars(c, m));
        }
    }
    if !c.cost.is_empty() {
        page.heading("Cost").chart(cost_chart(&c.cost));
    }
    page
}

/// The comparison without metrics that no run has.
fn known(c: &Comparison) -> Comparison {
    let value = |e: &Entry, m: usize| e.values.get(m).copied().flatten();
    let kept: Vec<usize> = (0..c.metrics.len())
        .filter(|&m| c.entries.iter().any(|e| value(e, m).is_some()))
        .collect();
    let place = |m: usize, other: usize| {
        kept.iter()
            .position(|k| *k == m)
            .unwrap_or(other.min(kept.len().saturating_sub(1)))
    };
    Comparison {
        metrics: kept.iter().map(|&m| c.metrics[m].clone()).collect(),
        x: place(c.x, 1),
        y: place(c.y, 0),
        entries: c
            .entries
            .iter()
            .map(|e| Entry {
                values: kept.iter().map(|&m| value(e, m)).collect(),
                ..e.clone()
            })
            .collect(),
        ..c.clone()
    }
}

fn fields(c: &Comparison) -> Vec<&String> {
    distinct(c.entries.iter().map(|e| &e.field))
}

/// The printed form of the best value of a column in one field; `None` if all values print alike.
fn best(c: &Comparison, m: usize, field: &String) -> Option<String> {
    let unit = c.metrics[m].axis.unit;
    let all = || {
        let those = c.entries.iter();
        let those = those.filter(move |e| !e.reference && e.field == *field);
        those.filter_map(move |e| e.values[m])
    };
    let best = match c.metrics[m].better {
        Better::Lower => all().min_by(f64::total_cmp),
        Better::Higher => all().max_by(f64::total_cmp),
    };
    let best = unit.text(best?);
    all().any(|v| unit.text(v) != best).then_some(best)
}

fn table(c: &Comparison) -> Table {
    let fields = fields(c);
    let best: Vec<Vec<Option<String>>> = fields
        .iter()
        .map(|f| (0..c.metrics.len()).map(|m| best(c, m, f)).collect())
        .collect();
    let settings = c.entries.iter().any(|e| !e.setting.is_empty());
    let mut columns = vec!["Policy".to_owned()];
    columns.extend(settings.then(|| "Setting".to_owned()));
    columns.extend(c.metrics.iter().map(|m| m.axis.label.clone()));
    let rows = c.entries.iter().map(|e| {
        let mut row = vec![Cell::text(&e.policy)];
        row.extend(settings.then(|| Cell::text(&e.setting)));
        let mine = fields.iter().position(|f| !e.reference && **f == e.field);
        let values = e.values.iter().zip(&c.metrics).enumerate();
        row.extend(values.map(|(m, (v, metric))| {
            let unit = metric.axis.unit;
            let best = mine.and_then(|i| best[i][m].as_ref());
            match v {
                // Values that print alike are a tie, and each of them is marked as best.
                Some(v) if best.is_some_and(|b| *b == unit.text(*v)) => Cell::Best(*v, unit),
                Some(v) => Cell::Number(*v, unit),
                None => Cell::Empty,
            }
        }));
        row
    });
    let of = if fields.len() > 1 {
        "The best of each column, for each trace,"
    } else {
        "The best of each column"
    };
    let aside = if c.entries.iter().any(|e| e.reference) {
        " One device alone is no choice here and is not marked."
    } else {
        ""
    };
    Table {
        caption: format!(
            "{of} is bold and marked with *; what prints alike is marked alike, and nothing where all do.{aside}"
        ),
        rows: rows.collect(),
        columns,
    }
}

/// If values differ by more than this factor, a linear axis cannot show them.
const WIDE: f64 = 100.0;

fn trade_off(c: &Comparison, field: &String) -> Chart {
    let shown = || c.entries.iter().filter(move |e| e.field == *field);
    let mut metrics = c.metrics.clone();
    for (m, metric) in metrics.iter_mut().enumerate() {
        let all = || shown().filter_map(move |e| e.values[m]);
        let (least, most) = (
            all().fold(f64::INFINITY, f64::min),
            all().fold(0.0, f64::max),
        );
        if least > 0.0 && most / least > WIDE {
            metric.axis.scale = Scale::Log;
        }
    }
    Chart {
        title: if field.is_empty() {
            "Trade-off".to_owned()
        } else {
            format!("Trade-off, {field}")
        },
        note: "Each point is a configuration; hovering names it. Those in a circle are on the front: no other is better in both \
            figures. One device alone is shown to measure against and is never on the front."
            .to_owned(),
        plot: Plot::Scatter(Scatter {
            metrics,
            x: c.x,
            y: c.y,
            points: shown()
                .map(|e| Point {
                    name: e.name(),
                    group: e.policy.clone(),
                    values: e.values.clone(),
                    reference: e.reference,
                })
                .collect(),
        }),
    }
}

fn distinct<'a>(of: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut all: Vec<&String> = Vec::new();
    for s in of {
        if !all.contains(&s) {
            all.push(s);
        }
    }
    all
}

fn bars(c: &Comparison, m: usize) -> Chart {
    let metric = &c.metrics[m];
    let settings = distinct(c.entries.iter().map(|e| &e.setting));
    let policies = distinct(c.entries.iter().map(|e| &e.policy));
    let grid = settings.len() > 1 && policies.len() <= SERIES_MAX;
    let at = |p: &String, s: &String| {
        let entry = c.entries.iter().find(|e| e.policy == *p && e.setting == *s);
        entry.and_then(|e| e.values[m])
    };
    let bars = if grid {
        let series = policies.iter().map(|p| BarSeries {
            name: (*p).clone(),
            values: settings.iter().map(|s| at(p, s)).collect(),
        });
        Bars {
            x_label: "Setting".to_owned(),
            categories: settings.iter().map(|s| (*s).clone()).collect(),
            y: metric.axis.clone(),
            series: series.collect(),
            stacked: false,
            lying: false,
        }
    } else {
        let series = BarSeries {
            name: metric.axis.label.clone(),
            values: c.entries.iter().map(|e| e.values[m]).collect(),
        };
        Bars {
            x_label: "Configuration".to_owned(),
            categories: c.entries.iter().map(Entry::name).collect(),
            y: metric.axis.clone(),
            series: vec![series],
            stacked: false,
            lying: true,
        }
    };
    let wanted = match metric.better {
        Better::Higher => "More is better.",
        Better::Lower => "Less is better.",
    };
    Chart {
        title: metric.axis.label.clone(),
        note: wanted.to_owned(),
        plot: Plot::Bars(bars),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(policy: &str, setting: &str, value: f64, reference: bool) -> Entry {
        Entry {
            policy: policy.to_owned(),
            setting: setting.to_owned(),
            values: vec![Some(value), Some(value)],
            field: setting.to_owned(),
            reference,
        }
    }

    fn page(entries: Vec<Entry>) -> Comparison {
        let metric = |better| Metric {
            axis: Axis::new("m", Unit::SECONDS),
            better,
        };
        Comparison {
            title: String::new(),
            subtitle: String::new(),
            notes: Vec::new(),
            metrics: vec![metric(Better::Lower), metric(Better::Higher)],
            x: 0,
            y: 1,
            entries,
            cost: Vec::new(),
        }
    }

    /// Names of the entries that are marked as best in the first column.
    fn starred(c: &Comparison) -> Vec<String> {
        let column = if c.entries.iter().any(|e| !e.setting.is_empty()) {
            2
        } else {
            1
        };
        let rows = table(c).rows.into_iter().zip(&c.entries);
        rows.filter(|(r, _)| matches!(r[column], Cell::Best(..)))
            .map(|(_, e)| e.name())
            .collect()
    }

    #[test]
    fn the_best_is_a_policy_ties_are_alike_and_traces_apart() {
        let alone = || entry("hdd-only", "", 1.0, true);
        let all = vec![
            alone(),
            entry("a", "", 2.0, false),
            entry("b", "", 3.0, false),
        ];
        assert_eq!(starred(&page(all)), ["a"]);
        // 2.0 s and 2.000_000_1 s print alike.
        let tie = vec![
            entry("a", "", 2.0, false),
            entry("b", "", 2.000_000_1, false),
            entry("c", "", 9.0, false),
        ];
        assert_eq!(starred(&page(tie)), ["a", "b"]);
        let same = vec![
            alone(),
            entry("a", "", 2.0, false),
            entry("b", "", 2.0, false),
        ];
        assert!(starred(&page(same)).is_empty());
        let two = vec![
            entry("a", "one", 2.0, false),
            entry("b", "one", 3.0, false),
            entry("a", "two", 30.0, false),
            entry("b", "two", 20.0, false),
        ];
        assert_eq!(starred(&page(two)), ["a, one", "b, two"]);
    }
}
