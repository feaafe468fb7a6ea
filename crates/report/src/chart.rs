//! What can be drawn, as plain data. Whoever has figures fills these in; pages and pictures are made from them alone.

use super::unit::Unit;

/// One chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What is seen, as a heading.
    pub title: String,
    /// One or two sentences on how to read it; may be empty.
    pub note: String,
    /// What is drawn.
    pub plot: Plot,
}

/// The kinds of charts.
#[derive(Clone, Debug, PartialEq)]
pub enum Plot {
    /// Values over a continuous axis: time, addresses, time factors, CDFs.
    Lines(Lines),
    /// Values by category, side by side or stacked.
    Bars(Bars),
    /// Counts over two axes.
    Heat(Heat),
    /// Configurations by two of their figures, with the Pareto front.
    Scatter(Scatter),
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// From zero.
    #[default]
    Linear,
    /// By powers of ten; values that are not positive are left out.
    Log,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is measured, without the unit.
    pub label: String,
    /// In what.
    pub unit: Unit,
    /// How it is divided.
    pub scale: Scale,
}

impl Axis {
    /// A linear axis.
    pub fn new(label: impl Into<String>, unit: Unit) -> Axis {
        Axis {
            label: label.into(),
            unit,
            scale: Scale::Linear,
        }
    }
    /// A logarithmic axis.
    pub fn log(label: impl Into<String>, unit: Unit) -> Axis {
        Axis {
            scale: Scale::Log,
            ..Axis::new(label, unit)
        }
    }
}

/// Values over a continuous axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// In the order of the legend.
    pub series: Vec<Line>,
    /// How values are joined.
    pub style: LineStyle,
}

/// How values are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineStyle {
    /// Straight from one to the next.
    #[default]
    Straight,
    /// A value holds until the next one (CDFs).
    Steps,
    /// Areas on top of each other; all lines need the same x values.
    Stacked,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// By rising x. A value that is not finite is a gap.
    pub points: Vec<(f64, f64)>,
}

impl Line {
    /// A line of values at `start`, `start + step`…
    pub fn regular(
        name: impl Into<String>,
        start: f64,
        step: f64,
        values: impl IntoIterator<Item = f64>,
    ) -> Line {
        Line {
            name: name.into(),
            points: values
                .into_iter()
                .enumerate()
                .map(|(i, v)| (start + step * i as f64, v))
                .collect(),
        }
    }

    /// The cumulative distribution of `samples`: x = value, y = share of samples at or below it. At most `steps` points.
    pub fn cdf(name: impl Into<String>, samples: &[f64], steps: usize) -> Line {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let steps = steps.clamp(1, n.max(1));
        let points = (1..=steps)
            .filter_map(|i| {
                let rank = (n * i).div_ceil(steps);
                let v = sorted.get(rank.checked_sub(1)?)?;
                Some((*v, rank as f64 / n as f64))
            })
            .collect();
        Line {
            name: name.into(),
            points,
        }
    }
}

/// Values by category.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// What the categories are.
    pub x_label: String,
    /// Across, or downwards if `lying`.
    pub categories: Vec<String>,
    /// The values' axis.
    pub y: Axis,
    /// One bar in each category.
    pub series: Vec<BarSeries>,
    /// On top of each other instead of side by side.
    pub stacked: bool,
    /// Bars lie; for long names of categories.
    pub lying: bool,
}

/// One bar in each category.
#[derive(Clone, Debug, PartialEq)]
pub struct BarSeries {
    /// For the legend.
    pub name: String,
    /// By category; `None` if there is none.
    pub values: Vec<Option<f64>>,
}

/// Counts over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// Across.
    pub x: Axis,
    /// Width of a column, in x's unit.
    pub x_bin: f64,
    /// Up.
    pub y: Axis,
    /// Height of a cell, in y's unit.
    pub y_bin: f64,
    /// What is counted.
    pub label: String,
    /// Whose sum is shown at first; more than one can be chosen alone.
    pub layers: Vec<Layer>,
}

/// One part of the counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// For people, such as `tier 0`.
    pub name: String,
    /// By column, then by cell upwards. All columns and layers are equally long.
    pub columns: Vec<Vec<u64>>,
}

impl Heat {
    /// Columns and cells of one.
    pub fn shape(&self) -> (usize, usize) {
        let columns = self.layers.first().map_or(0, |l| l.columns.len());
        let cells = self.layers.iter().flat_map(|l| &l.columns).map(Vec::len);
        (columns, cells.max().unwrap_or(0))
    }
    /// All layers' count in a cell.
    pub fn sum(&self, column: usize, cell: usize) -> u64 {
        let at = |l: &Layer| l.columns.get(column)?.get(cell).copied();
        self.layers.iter().filter_map(at).sum()
    }
}

/// Configurations by their figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Scatter {
    /// The figures that every point has.
    pub metrics: Vec<Metric>,
    /// Which one is across at first.
    pub x: usize,
    /// Which one is up at first.
    pub y: usize,
    /// The configurations.
    pub points: Vec<Point>,
}

/// A figure to choose by.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its axis.
    pub axis: Axis,
    /// Which end is wanted.
    pub better: Better,
}

/// Which end of a figure is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Small ones: time, energy, wear, cost.
    Lower,
    /// Large ones: throughput, hit ratio.
    Higher,
}

/// One configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What hovering shows: the whole configuration.
    pub name: String,
    /// Points of a group look alike (a policy).
    pub group: String,
    /// Something to measure against that is no choice, such as one device alone: it is drawn and never on the front.
    pub reference: bool,
    /// One a metric; `None` if not known.
    pub values: Vec<Option<f64>>,
}

impl Scatter {
    /// Numbers of the points that no other beats in both `x` and `y`, by rising x. References neither beat nor are beaten.
    pub fn front(&self, x: usize, y: usize) -> Vec<usize> {
        let sign = |m: usize| match self.metrics.get(m).map(|m| m.better) {
            Some(Better::Higher) => -1.0,
            _ => 1.0,
        };
        let (sx, sy) = (sign(x), sign(y));
        let value =
            |p: &Point, m: usize| p.values.get(m).copied().flatten().filter(|v| v.is_finite());
        let mut all: Vec<(usize, f64, f64)> = self
            .points
            .iter()
            .enumerate()
            .filter(|(_, p)| !p.reference)
            .filter_map(|(i, p)| Some((i, value(p, x)? * sx, value(p, y)? * sy)))
            .collect();
        all.sort_by(|a, b| {
            a.1.total_cmp(&b.1)
                .then(a.2.total_cmp(&b.2))
                .then(a.0.cmp(&b.0))
        });
        let mut best: Option<(f64, f64)> = None;
        all.retain(|&(_, a, b)| {
            // Twins of a point of the front are on it too.
            let on = best.is_none_or(|(x, y)| b < y || (a, b) == (x, y));
            if on {
                best = Some((a, b));
            }
            on
        });
        if sx < 0.0 {
            all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        }
        all.into_iter().map(|(i, ..)| i).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scatter(values: &[(f64, f64)], better: [Better; 2]) -> Scatter {
        Scatter {
            metrics: better
                .map(|better| Metric {
                    axis: Axis::new("m", Unit::COUNT),
                    better,
                })
                .to_vec(),
            x: 0,
            y: 1,
            points: values
                .iter()
                .map(|&(a, b)| Point {
                    name: format!("{a} {b}"),
                    group: "g".to_owned(),
                    reference: false,
                    values: vec![Some(a), Some(b)],
                })
                .collect(),
        }
    }

    #[test]
    fn the_front_is_what_nothing_beats() {
        use Better::{Higher, Lower};
        let v = [
            (1.0, 9.0),
            (2.0, 5.0),
            (3.0, 6.0),
            (4.0, 1.0),
            (2.0, 7.0),
            (4.0, 1.0),
        ];
        assert_eq!(scatter(&v, [Lower, Lower]).front(0, 1), [0, 1, 3, 5]);
        assert_eq!(scatter(&v, [Higher, Lower]).front(0, 1), [3, 5]);
        assert_eq!(scatter(&v, [Lower, Higher]).front(0, 1), [0]);
        let mut s = scatter(&v, [Lower, Lower]);
        s.points[0].values[1] = None;
        s.points[3].values[0] = Some(f64::NAN);
        assert_eq!(s.front(0, 1), [1, 5]);
        assert!(scatter(&[], [Lower, Lower]).front(0, 1).is_empty());
    }

    #[test]
    fn references_are_not_on_the_front_and_hide_nobody() {
        let mut s = scatter(
            &[(1.0, 1.0), (2.0, 5.0), (3.0, 4.0)],
            [Better::Lower, Better::Lower],
        );
        assert_eq!(s.front(0, 1), [0]);
        s.points[0].reference = true;
        assert_eq!(s.front(0, 1), [1, 2]);
    }

    /// Against the definition, over all small cases of a grid.
    #[test]
    fn the_front_agrees_with_its_definition() {
        let mut state = 7_u64;
        for _ in 0..200 {
            let v: Vec<(f64, f64)> = (0..12)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (((state >> 33) % 6) as f64, ((state >> 50) % 6) as f64)
                })
                .collect();
            let s = scatter(&v, [Better::Lower, Better::Higher]);
            let mut got = s.front(0, 1);
            got.sort_unstable();
            let beaten = |a: &(f64, f64)| {
                v.iter()
                    .any(|b| b.0 <= a.0 && b.1 >= a.1 && (b.0 < a.0 || b.1 > a.1))
            };
            let want: Vec<usize> = (0..v.len()).filter(|&i| !beaten(&v[i])).collect();
            assert_eq!(got, want, "{v:?}");
        }
    }

    #[test]
    fn a_cdf_ends_at_one() {
        let l = Line::cdf("x", &[3.0, 1.0, 2.0, f64::NAN, 2.0], 4);
        assert_eq!(l.points, [(1.0, 0.25), (2.0, 0.5), (2.0, 0.75), (3.0, 1.0)]);
        assert_eq!(Line::cdf("x", &[], 10).points, []);
        assert_eq!(Line::cdf("x", &[5.0; 1000], 10).points.len(), 10);
    }
}
