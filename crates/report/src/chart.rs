//! The charts that can be drawn, as plain data. Pages and pictures are made from these values alone.

use super::unit::Unit;

/// One chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The heading.
    pub title: String,
    /// One or two sentences on how to read the chart; may be empty.
    pub note: String,
    /// The content.
    pub plot: Plot,
}

impl Chart {
    /// A chart with that heading and note.
    pub fn new(title: impl Into<String>, note: impl Into<String>, plot: Plot) -> Chart {
        Chart {
            title: title.into(),
            note: note.into(),
            plot,
        }
    }
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

/// The scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from zero.
    #[default]
    Linear,
    /// Logarithmic; values that are not positive are omitted.
    Log,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The name of the quantity, without the unit.
    pub label: String,
    /// The unit.
    pub unit: Unit,
    /// The scale.
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
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines, in the order of the legend.
    pub series: Vec<Line>,
    /// How points are joined.
    pub style: LineStyle,
}

/// How points are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineStyle {
    /// By straight lines.
    #[default]
    Straight,
    /// A value is kept until the next one (CDFs).
    Steps,
    /// As areas stacked on each other; all lines need the same x values.
    Stacked,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// The points by ascending x. A value that is not finite is a gap.
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

    /// The cumulative distribution of `samples`: x is a value, y the share of samples that are not larger. At most `steps` points.
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
    /// The name of the categories' axis.
    pub x_label: String,
    /// The categories, from left to right, or downwards if `lying`.
    pub categories: Vec<String>,
    /// The axis of the values.
    pub y: Axis,
    /// The series; each has one bar per category.
    pub series: Vec<BarSeries>,
    /// Whether bars are stacked; otherwise they are side by side.
    pub stacked: bool,
    /// Whether bars are horizontal, which suits long names of categories.
    pub lying: bool,
}

/// A series with one bar per category.
#[derive(Clone, Debug, PartialEq)]
pub struct BarSeries {
    /// The name in the legend.
    pub name: String,
    /// The values by category; `None` if there is none.
    pub values: Vec<Option<f64>>,
}

/// Counts over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// The horizontal axis.
    pub x: Axis,
    /// Width of a column, in x's unit.
    pub x_bin: f64,
    /// The vertical axis.
    pub y: Axis,
    /// Height of a cell, in y's unit.
    pub y_bin: f64,
    /// The name of the counted quantity.
    pub label: String,
    /// The layers. Their sum is shown first; if there are several, the reader can select one.
    pub layers: Vec<Layer>,
}

/// One part of the counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The name that readers see, such as `tier 0`.
    pub name: String,
    /// Counts by column, then by cell upwards. All columns of all layers have the same length.
    pub columns: Vec<Vec<u64>>,
}

impl Heat {
    /// The number of columns, and of cells in a column.
    pub fn shape(&self) -> (usize, usize) {
        let columns = self.layers.first().map_or(0, |l| l.columns.len());
        let cells = self.layers.iter().flat_map(|l| &l.columns).map(Vec::len);
        (columns, cells.max().unwrap_or(0))
    }
    /// The count of a cell over all layers.
    pub fn sum(&self, column: usize, cell: usize) -> u64 {
        let at = |l: &Layer| l.columns.get(column)?.get(cell).copied();
        self.layers.iter().filter_map(at).sum()
    }
}

/// Configurations as points in a plane of two figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Scatter {
    /// The figures that every point has.
    pub metrics: Vec<Metric>,
    /// Index of the metric on the horizontal axis at first.
    pub x: usize,
    /// Index of the metric on the vertical axis at first.
    pub y: usize,
    /// The configurations.
    pub points: Vec<Point>,
}

/// A metric that can be assigned to an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its axis.
    pub axis: Axis,
    /// Which direction is better.
    pub better: Better,
}

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Small values: time, energy, wear, cost.
    Lower,
    /// Large values: throughput, hit ratio.
    Higher,
}

/// One configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The whole configuration, which is shown on hovering.
    pub name: String,
    /// The group (a policy). Points of a group look alike.
    pub group: String,
    /// Whether it is a reference for comparison and not a candidate, such as one device alone: it is drawn and is never on the front.
    pub reference: bool,
    /// One value per metric; `None` if it is unknown.
    pub values: Vec<Option<f64>>,
}

impl Scatter {
    /// Indexes of the points that no other point dominates in `x` and `y`, by ascending x. References neither dominate nor are dominated.
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
            // A point with the same values as a point of the front is also on the front.
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

    /// Compares with the definition, for all small cases on a grid.
    #[test]
    fn the_front_agrees_with_its_definition() {
        let mut random = isotherm_core::random::SplitMix64::new(7);
        for _ in 0..200 {
            let v: Vec<(f64, f64)> = (0..12)
                .map(|_| (random.below(6) as f64, random.below(6) as f64))
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
