//! Visual reports: pages of one HTML file each, and pictures.
//!
//! ```text
//!   figures ─► Chart, Table ─► Page ─► one HTML file
//!                        └───► picture ─► SVG ─► PNG
//! ```
//! | file | content |
//! |---|---|
//! | `unit.rs` | prefixes and readable numbers |
//! | `chart.rs` | the charts as plain data; the Pareto front |
//! | `table.rs` | tables, including those under the charts |
//! | `page.rs` | the HTML file, which includes `page.css`, `page.js` and `vendor/` |
//! | `data.rs` | charts as JSON for `page.js` |
//! | `names.rs` | names of traces for labels |
//! | `picture.rs`, `marks.rs` | charts as SVG and PNG |
//! | `run.rs`, `over_time.rs`, `compare.rs`, `sizes.rs`, `plan.rs`, `reproduce.rs`, `cost.rs` | the charts of each kind of page |
//!
//! Callers turn figures into [`Chart`]s and [`Table`]s. This crate computes nothing but shares, sums and fronts.
//!
//! Invariants: a page loads nothing, and no text in it is interpreted as markup.

mod bridge;
mod by_class;
mod chart;
mod compare;
mod cost;
mod data;
mod html;
mod marks;
mod names;
mod over_time;
mod page;
mod picture;
mod plan;
mod reproduce;
mod run;
mod sizes;
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
pub use plan::plan_page;
pub use reproduce::{Claim, Experiment, reproduce_page};
pub use run::run_page;
pub use sizes::{comparison_sizes_page, sizes_page};
pub use table::{Cell, Table, Verdict};
pub use unit::{Kind, Unit, group};
