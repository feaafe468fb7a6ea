//! The page of runs that differ in the size of the fast tier: curves over the sizes.

use isotherm_lab::compare;
use isotherm_lab::sim::Report;

use super::chart::{Axis, Chart, Line, LineStyle, Lines, Plot};
use super::names::labels;
use super::page::Page;
use super::table::{Cell, Table};
use super::unit::Unit;

/// If the largest size is more than this many times the smallest, the axis of sizes is logarithmic.
const WIDE: f64 = 10.0;

/// A figure of a run that is drawn over the sizes.
struct Figure {
    label: &'static str,
    unit: Unit,
    note: &'static str,
    of: fn(&Report) -> Option<f64>,
    /// Whether one device alone has it.
    alone: bool,
}

const FIGURES: [Figure; 6] = [
    Figure {
        label: "Miss ratio",
        unit: Unit::SHARE,
        note: "Accesses that the fast tier does not serve. Less is better.",
        of: |r| Some(1.0 - r.fast_hit_ratio),
        alone: false,
    },
    Figure {
        label: "Mean latency",
        unit: Unit::SECONDS,
        note: "Less is better.",
        of: |r| r.latency_mean_s,
        alone: true,
    },
    Figure {
        label: "Latency, 99th percentile",
        unit: Unit::SECONDS,
        note: "Less is better.",
        of: |r| r.latency_p99_s,
        alone: true,
    },
    Figure {
        label: "Elapsed",
        unit: Unit::SECONDS,
        note: "Less is better.",
        of: |r| r.elapsed_s,
        alone: true,
    },
    Figure {
        label: "Energy",
        unit: Unit::JOULES,
        note: "Less is better.",
        of: |r| r.energy_j,
        alone: true,
    },
    Figure {
        label: "Bytes moved",
        unit: Unit::BYTES,
        note: "Less is better.",
        of: |r| Some(r.migrated_bytes as f64),
        alone: false,
    },
];

/// A run at one size.
struct At<'a> {
    line: String,
    share: f64,
    report: &'a Report,
    alone: bool,
}

/// The part of the touched extents that a fast tier of `bytes` holds.
fn share(bytes: u64, r: &Report) -> f64 {
    bytes as f64 / (r.touched_extents.max(1) * u64::from(r.extent_bytes)) as f64
}

/// The page of `sim` over several sizes, for one trace or several.
pub fn sizes_page(reports: &[Report]) -> Page {
    let traces = several(reports.iter().map(|r| r.trace.as_str()));
    let names = labels(reports.iter().map(|r| r.trace.as_str()));
    let runs: Vec<At<'_>> = reports
        .iter()
        .zip(&names)
        .map(|(r, name)| At {
            line: if traces {
                format!("{}, {}", r.policy, name)
            } else {
                r.policy.clone()
            },
            share: share(r.fast_bytes, r),
            report: r,
            alone: false,
        })
        .collect();
    let title = reports.first().map_or("", |r| r.policy.as_str());
    let mut names = names.clone();
    names.dedup();
    let page = Page::new(
        format!("{title} over sizes of the fast tier"),
        names.join(", "),
    );
    curves(page, &runs, &[])
}

/// The page of `compare` over several sizes. One device alone is a level line, and Belady's MIN a line of its own.
pub fn comparison_sizes_page(all: &[compare::Comparison]) -> Page {
    let traces = several(all.iter().map(|c| c.trace.as_str()));
    let mut names = labels(all.iter().map(|c| c.trace.as_str()));
    let name = |of: &str, trace: &str| {
        if traces {
            format!("{of}, {trace}")
        } else {
            of.to_owned()
        }
    };
    let (mut runs, mut best) = (Vec::new(), Vec::new());
    for (c, trace) in all.iter().zip(&names) {
        let Some(first) = c.rows.first() else {
            continue;
        };
        let at = share(c.fast_bytes, &first.report);
        runs.extend(c.rows.iter().map(|r| At {
            line: name(&r.name, trace),
            share: at,
            report: &r.report,
            alone: r.is_alone(),
        }));
        best.push((name("MIN", trace), at, 1.0 - c.bounds.hit_ratio));
    }
    names.dedup();
    let mut page = Page::new("Policies over sizes of the fast tier", names.join(", "));
    page.text("MIN is Belady's bound: no policy that admits a unit only at an access misses less.");
    curves(page, &runs, &best)
}

fn several<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let mut names: Vec<&str> = names.collect();
    names.dedup();
    names.len() > 1
}

/// Adds the charts and the table of all figures that a run has. `best`: line, size and value of the least miss ratio.
fn curves(mut page: Page, runs: &[At<'_>], best: &[(String, f64, f64)]) -> Page {
    let sizes = || runs.iter().map(|r| r.share);
    let (least, most) = (
        sizes().fold(f64::INFINITY, f64::min),
        sizes().fold(0.0, f64::max),
    );
    let label = "Fast tier, share of touched data";
    let x = if least > 0.0 && most > WIDE * least {
        Axis::log(label, Unit::SHARE)
    } else {
        Axis::new(label, Unit::SHARE)
    };
    let known: Vec<&Figure> = FIGURES
        .iter()
        .filter(|f| runs.iter().any(|r| value(f, r).is_some()))
        .collect();
    for (i, f) in known.iter().enumerate() {
        let points = runs
            .iter()
            .filter_map(|r| Some((r.line.as_str(), r.share, value(f, r)?)));
        let best = best.iter().filter(|_| i == 0);
        let best = best.map(|(line, at, v)| (line.as_str(), *at, *v));
        page.chart(Chart::new(
            f.label,
            f.note,
            Plot::Lines(Lines {
                x: x.clone(),
                y: Axis::new(f.label, f.unit),
                series: lines(points.chain(best)),
                style: LineStyle::Straight,
            }),
        ));
    }
    page.heading("Figures").table(table(&known, runs));
    page
}

fn value(f: &Figure, r: &At<'_>) -> Option<f64> {
    (f.of)(r.report).filter(|_| f.alone || !r.alone)
}

/// One line for each name, in the order in which names appear; its points by ascending size.
fn lines<'a>(points: impl Iterator<Item = (&'a str, f64, f64)>) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::new();
    for (name, x, y) in points {
        match all.iter_mut().find(|l| l.name == name) {
            Some(line) => line.points.push((x, y)),
            None => all.push(Line {
                name: name.to_owned(),
                points: vec![(x, y)],
            }),
        }
    }
    for line in &mut all {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    all
}

fn table(figures: &[&Figure], runs: &[At<'_>]) -> Table {
    let mut columns = vec!["Policy".to_owned(), "Fast tier".to_owned()];
    columns.extend(figures.iter().map(|f| f.label.to_owned()));
    let rows = runs.iter().map(|r| {
        let mut row = vec![Cell::text(&r.line), Cell::Number(r.share, Unit::SHARE)];
        row.extend(
            figures
                .iter()
                .map(|f| value(f, r).map_or(Cell::Empty, |v| Cell::Number(v, f.unit))),
        );
        row
    });
    Table {
        caption: "The fast tier as a share of the touched data.".to_owned(),
        rows: rows.collect(),
        columns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_points_in_order_of_size() {
        let points = [
            ("lru", 0.2, 0.5),
            ("arc", 0.1, 0.6),
            ("lru", 0.05, 0.9),
            ("lru", 0.1, 0.7),
        ];
        let all = lines(points.into_iter());
        let names: Vec<_> = all.iter().map(|l| l.name.as_str()).collect();
        assert_eq!(names, ["lru", "arc"]);
        assert_eq!(all[0].points, [(0.05, 0.9), (0.1, 0.7), (0.2, 0.5)]);
    }
}
