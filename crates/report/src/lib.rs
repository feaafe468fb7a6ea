//! Reports that one looks at: pages of one HTML file, and pictures.
//!
//! ```text
//!   figures ─► Chart, Table ─► Page ─► one HTML file
//!                        └───► picture ─► SVG ─► PNG
//! ```
//! | file | what it owns |
//! |---|---|
//! | `unit.rs` | prefixes, numbers for people |
//! | `chart.rs` | what can be drawn, as plain data; the Pareto front |
//! | `table.rs` | tables, those under the charts too |
//! | `page.rs` | the HTML file; `page.css`, `page.js` and `vendor/` go into it |
//! | `data.rs` | charts as JSON for `page.js` |
//! | `picture.rs`, `marks.rs` | charts as SVG and PNG |
//! | `run.rs`, `compare.rs`, `reproduce.rs`, `cost.rs` | which charts a page has |
//!
//! Whoever has figures makes [`Chart`]s and [`Table`]s of them; nothing here computes any but shares, sums and fronts.
//!
//! Never made false: a page loads nothing, and no text given to it becomes markup.

mod bridge;
mod by_class;
mod chart;
mod compare;
mod cost;
mod data;
mod html;
mod marks;
mod page;
mod picture;
mod reproduce;
mod run;
mod table;
mod unit;

pub use bridge::{comparison_page, cost_curve, outcomes_page, sweep_page};
pub use chart::{
    Axis, BarSeries, Bars, Better, Chart, Heat, Layer, Line, LineStyle, Lines, Metric, Plot, Point,
    Scale, Scatter,
};
pub use compare::{Comparison, Entry, compare_page, metrics, values};
pub use cost::{CostCurve, cost_chart};
pub use page::{Page, Tile};
pub use reproduce::{Claim, Experiment, reproduce_page};
pub use run::run_page;
pub use table::{Cell, Table, Verdict};
pub use unit::{Kind, Unit, group};
