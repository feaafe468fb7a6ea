//! Tables: those of the pages, and the one under each chart.

use super::chart::{Axis, Bars, Chart, Heat, Lines, Plot, Scale, Scatter};
use super::html::clean;
use super::unit::{Unit, digits};
use maud::{Markup, html};

/// Most rows of a chart's table. The button below it copies all rows.
const ROWS_MAX: usize = 60;
/// Tables with more columns are set closer, so that a screen of 1280 pixels has them whole.
const WIDE: usize = 9;
/// Rows and columns of a heat map's table.
const HEAT_ROWS: usize = 32;
const HEAT_COLUMNS: usize = 12;

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The caption above it; may be empty.
    pub caption: String,
    /// The column headings.
    pub columns: Vec<String>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// The content of a table cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text, aligned left.
    Text(String),
    /// A number with its unit, aligned right.
    Number(f64, Unit),
    /// The best number of its column.
    Best(f64, Unit),
    /// A number that is already formatted, aligned right.
    Written(String),
    /// The verdict on a claim.
    Verdict(Verdict),
    /// No value.
    Empty,
}

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds here.
    Holds,
    /// It does not hold.
    Fails,
    /// It holds in part: the size is near, or only the direction is right.
    Partly,
    /// It would hold but is not counted: fitted, or true for every measurement.
    Aside,
    /// This run cannot decide it.
    Open,
}

impl Verdict {
    /// The verdict in words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "does not hold",
            Verdict::Partly => "near, or direction only",
            Verdict::Aside => "not counted: fitted or vacuous",
            Verdict::Open => "cannot be judged here",
        }
    }
    fn mark(self) -> (&'static str, &'static str) {
        match self {
            Verdict::Holds => ("holds", "✓"),
            Verdict::Fails => ("fails", "✗"),
            Verdict::Partly => ("open", "≈"),
            Verdict::Aside => ("open", "–"),
            Verdict::Open => ("open", "?"),
        }
    }
}

impl Cell {
    /// A cell with text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }
    /// A cell with a number, or an empty cell.
    pub fn number(value: Option<f64>, unit: Unit) -> Cell {
        value.map_or(Cell::Empty, |v| Cell::Number(v, unit))
    }

    fn html(&self) -> Markup {
        html! {
            @match self {
                Cell::Text(t) => td { (clean(t)) },
                Cell::Number(v, unit) => td.n { (clean(&unit.text(*v))) },
                Cell::Best(v, unit) => td.n { b { (clean(&unit.text(*v))) "*" } },
                Cell::Written(t) => td.n { (clean(t)) },
                Cell::Verdict(v) => {
                    @let (class, sign) = v.mark();
                    td.v.(class) { span aria-hidden="true" { (sign) } " " (v.text()) }
                },
                Cell::Empty => td.n { "–" },
            }
        }
    }
    fn is_number(&self) -> bool {
        matches!(self, Cell::Number(..) | Cell::Best(..) | Cell::Written(_))
    }
}

impl Table {
    /// The table as HTML.
    pub fn html(&self) -> Markup {
        let has_numbers = |i: usize| {
            self.rows
                .iter()
                .any(|r| r.get(i).is_some_and(Cell::is_number))
        };
        html! {
            div.scroll tabindex="0" {
                table.wide[self.columns.len() > WIDE] {
                    @if !self.caption.is_empty() { caption { span { (clean(&self.caption)) } } }
                    thead { tr {
                        @for (i, c) in self.columns.iter().enumerate() {
                            th.n[has_numbers(i)] scope="col" { (clean(c)) }
                        }
                    } }
                    tbody {
                        @for r in &self.rows { tr { @for c in r { (c.html()) } } }
                    }
                }
            }
        }
    }
}

impl Chart {
    /// The figures of the chart as a table. A long table is thinned and says so.
    pub fn table(&self) -> Table {
        match &self.plot {
            Plot::Lines(l) => lines(l),
            Plot::Bars(b) => bars(b),
            Plot::Heat(h) => heat(h),
            Plot::Scatter(s) => scatter(s),
        }
    }
}

/// Heading and divisor of a column with values up to `max`.
fn heading(axis: &Axis, max: f64) -> (String, f64) {
    if axis.scale == Scale::Log {
        return (axis.label.clone(), 1.0);
    }
    let (factor, unit) = axis.unit.step(max);
    if unit.is_empty() {
        (axis.label.clone(), factor)
    } else {
        (format!("{} ({unit})", axis.label), factor)
    }
}

fn value(axis: &Axis, v: f64, factor: f64) -> Cell {
    if !v.is_finite() {
        Cell::Empty
    } else if axis.scale == Scale::Log {
        Cell::Number(v, axis.unit)
    } else {
        Cell::Written(digits(v / factor))
    }
}

pub(super) fn greatest(values: impl Iterator<Item = f64>) -> f64 {
    values
        .filter(|v| v.is_finite())
        .fold(0.0, |a, v| a.max(v.abs()))
}

/// Every n-th row including the last one, and a remark about the omitted rows.
fn thin<T>(rows: Vec<T>) -> (Vec<T>, String) {
    let (n, step) = (rows.len(), rows.len().div_ceil(ROWS_MAX).max(1));
    if step == 1 {
        return (rows, String::new());
    }
    let kept = rows
        .into_iter()
        .enumerate()
        .filter(|(i, _)| i % step == 0 || i + 1 == n);
    (
        kept.map(|(_, r)| r).collect(),
        format!("Every {step}th of {n} rows"),
    )
}

fn lines(l: &Lines) -> Table {
    let xs = |line: &super::chart::Line| line.points.iter().map(|p| p.0).collect::<Vec<_>>();
    let shared = l.series.windows(2).all(|w| xs(&w[0]) == xs(&w[1]));
    let all = || l.series.iter().flat_map(|s| &s.points);
    let (x_head, xf) = heading(&l.x, greatest(all().map(|p| p.0)));
    let (y_head, yf) = heading(&l.y, greatest(all().map(|p| p.1)));
    if shared {
        let mut columns = vec![x_head];
        columns.extend(l.series.iter().map(|s| {
            if l.series.len() == 1 {
                y_head.clone()
            } else {
                format!("{}: {y_head}", s.name)
            }
        }));
        let first = l.series.first().map(xs).unwrap_or_default();
        let rows = first
            .iter()
            .enumerate()
            .map(|(i, &x)| {
                let mut row = vec![value(&l.x, x, xf)];
                row.extend(l.series.iter().map(|s| value(&l.y, s.points[i].1, yf)));
                row
            })
            .collect();
        let (rows, caption) = thin(rows);
        return Table {
            caption,
            columns,
            rows,
        };
    }
    let rows = l
        .series
        .iter()
        .flat_map(|s| {
            s.points
                .iter()
                .map(|&(x, y)| vec![Cell::text(&s.name), value(&l.x, x, xf), value(&l.y, y, yf)])
        })
        .collect();
    let (rows, caption) = thin(rows);
    Table {
        caption,
        columns: vec!["Series".to_owned(), x_head, y_head],
        rows,
    }
}

fn bars(b: &Bars) -> Table {
    let max = greatest(
        b.series
            .iter()
            .flat_map(|s| s.values.iter().flatten().copied()),
    );
    let (y_head, factor) = heading(&b.y, max);
    let mut columns = vec![b.x_label.clone()];
    columns.extend(b.series.iter().map(|s| {
        if b.series.len() == 1 {
            y_head.clone()
        } else {
            format!("{}: {y_head}", s.name)
        }
    }));
    let rows = b
        .categories
        .iter()
        .enumerate()
        .map(|(i, c)| {
            let mut row = vec![Cell::text(c)];
            row.extend(b.series.iter().map(|s| {
                let v = s.values.get(i).copied().flatten();
                v.map_or(Cell::Empty, |v| value(&b.y, v, factor))
            }));
            row
        })
        .collect();
    Table {
        caption: String::new(),
        columns,
        rows,
    }
}

/// Rows are addresses and columns are times. Neighbours are added, so that the table is readable.
fn heat(h: &Heat) -> Table {
    let (columns, cells) = h.shape();
    let (wide, high) = (
        columns.div_ceil(HEAT_COLUMNS).max(1),
        cells.div_ceil(HEAT_ROWS).max(1),
    );
    let (xu, yu) = (h.x.unit, h.y.unit);
    let mut heads = vec![format!("{} from", h.y.label)];
    heads.extend(
        (0..columns)
            .step_by(wide)
            .map(|c| xu.text(c as f64 * h.x_bin)),
    );
    let rows = (0..cells)
        .step_by(high)
        .map(|y| {
            let mut row = vec![Cell::Written(yu.text(y as f64 * h.y_bin))];
            row.extend((0..columns).step_by(wide).map(|x| {
                let sum: u64 = (x..(x + wide).min(columns))
                    .flat_map(|i| (y..(y + high).min(cells)).map(move |j| h.sum(i, j)))
                    .sum();
                Cell::Written(sum.to_string())
            }));
            row
        })
        .collect();
    Table {
        caption: format!(
            "{} by {} (columns begin at) and {}",
            h.label, h.x.label, h.y.label
        ),
        columns: heads,
        rows,
    }
}

fn scatter(s: &Scatter) -> Table {
    let front = s.front(s.x, s.y);
    let mut columns = vec!["Configuration".to_owned(), "On the front".to_owned()];
    columns.extend(s.metrics.iter().map(|m| m.axis.label.clone()));
    let rows = s
        .points
        .iter()
        .enumerate()
        .map(|(i, p)| {
            let on = if front.contains(&i) { "yes" } else { "" };
            let mut row = vec![Cell::text(&p.name), Cell::text(on)];
            row.extend(s.metrics.iter().enumerate().map(|(m, metric)| {
                Cell::number(p.values.get(m).copied().flatten(), metric.axis.unit)
            }));
            row
        })
        .collect();
    Table {
        caption: String::new(),
        columns,
        rows,
    }
}
