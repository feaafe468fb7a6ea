//! Policies under a workload at several sizes of the fast tier, compared with the disk alone.

use std::fmt::Write;
use std::sync::Arc;

use super::load::Load;
use crate::Ctx;
use crate::cell::{self, Store, simulate};
use crate::greendm::judge::{over, show};
use crate::outcome::{Cell, Outcome, Row, Table};
use isotherm_lab::LabError;
use isotherm_lab::sim::Report;
use isotherm_lab::size::Size;

/// The sizes of flash in percent of the working set (Loris V-A).
pub const SIZES: [u64; 3] = [25, 50, 75];
/// The slow device of Loris V-A.
pub const SLOW: &str = "wd5000aaks";
/// The fast device of Loris V-A.
pub const FAST: &str = "ocz-vertex3-maxiops";
/// Figures are alike if they differ by at most this, in percent.
pub const ALIKE: f64 = 5.0;

/// A policy under the name that the figures use.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// The preset.
    pub name: &'static str,
    /// The policy with its parameters.
    pub spec: String,
}

/// Makes a policy from a preset. Its periods shrink with the scale, so that a run has the same number of them.
pub fn policy(ctx: &Ctx<'_>, name: &'static str) -> Named {
    named(name, ctx.scale_or(super::SCALE))
}

/// A policy with its period times a factor.
pub fn named(name: &'static str, scale: f64) -> Named {
    let period = match name {
        "hot-dst-5s" | "cache-interval" => Some(5.0),
        "hot-dst-80s" => Some(80.0),
        _ => None,
    };
    let spec = period.map_or(name.to_owned(), |p| format!("{name},period={}", p * scale));
    Named { name, spec }
}

/// The results under a workload.
pub struct Grid {
    /// The workload.
    pub load: Load,
    hdd: Arc<Report>,
    /// Policy, size in percent, report.
    cells: Vec<(&'static str, u64, Arc<Report>)>,
}

impl Grid {
    /// Runs each policy at each size.
    ///
    /// # Errors
    /// A simulation fails.
    pub fn measure(
        ctx: &Ctx<'_>,
        load: Load,
        policies: &[Named],
        sizes: &[u64],
    ) -> Result<Grid, LabError> {
        let base = |c: cell::Cell| cell::Cell {
            extent: load.extent,
            warm_up: load.warm_up,
            // Loris' layers keep their maps in memory (III), so neither Loris nor the policies that it is compared with flush for them.
            flushes: false,
            ..c
        };
        let mut cells = vec![base(cell::Cell::alone(SLOW))];
        let mut names = Vec::new();
        for p in policies {
            for &size in sizes {
                let extents = (load.extents * size / 100).max(1);
                let fast = Size::Bytes(extents * u64::from(load.extent));
                let tiers = vec![Store::new(FAST, fast), Store::all(SLOW)];
                cells.push(base(cell::Cell::hybrid(&p.spec, tiers)));
                names.push((p.name, size));
            }
        }
        let mut reports = simulate(ctx, &load.work, &cells)?.into_iter();
        let hdd = reports
            .next()
            .ok_or_else(|| LabError::setup("the disk alone was not run"))?;
        let cells = names
            .into_iter()
            .zip(reports)
            .map(|((name, size), r)| (name, size, r))
            .collect();
        Ok(Grid { load, hdd, cells })
    }

    /// A cell's report.
    pub fn report(&self, policy: &str, size: u64) -> Option<&Report> {
        let of = |c: &&(&'static str, u64, Arc<Report>)| c.0 == policy && c.1 == size;
        self.cells.iter().find(of).map(|c| &*c.2)
    }

    /// The speed in requests per second; NaN for a cell that was not run.
    pub fn speed(&self, policy: &str, size: u64) -> f64 {
        let report = if policy == HDD {
            Some(&*self.hdd)
        } else {
            self.report(policy, size)
        };
        report.map_or(f64::NAN, speed)
    }

    /// How much faster the policy is than the disk alone, in percent.
    pub fn gain(&self, policy: &str, size: u64) -> f64 {
        over(self.speed(policy, size), speed(&self.hdd))
    }

    /// How much faster `a` is than `b`, in percent.
    pub fn ahead(&self, a: &str, b: &str, size: u64) -> f64 {
        over(self.speed(a, size), self.speed(b, size))
    }

    /// The table of a figure.
    pub fn table(&self, out: &mut Outcome, figure: &str) {
        let title = format!("Figure {figure}: {}", self.load.name);
        out.tables.push(Table::new(title, self.rows()));
    }

    /// The table of a workload that was recorded.
    pub fn recorded_table(&self, out: &mut Outcome) {
        let title = format!("{}, as recorded on a real mount", self.load.name);
        out.tables.push(Table::new(title, self.rows()));
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = vec![self.row("HDD alone", &self.hdd)];
        for (name, size, r) in &self.cells {
            rows.push(self.row(&format!("{name}, {size} %"), r));
        }
        rows
    }

    fn row(&self, label: &str, r: &Report) -> Row {
        let first = if self.load.timed {
            Cell::new("time", "s", r.elapsed_s.unwrap_or(f64::NAN))
        } else {
            Cell::new("IOPS", "1/s", speed(r))
        };
        // The disk alone counts as the fastest tier.
        let alone = std::ptr::eq(r, &raw const *self.hdd);
        let fast_hits = if alone {
            f64::NAN
        } else {
            r.fast_hit_ratio * 100.0
        };
        let up = |kind: &str| r.moves.as_ref().and_then(|m| m.get(kind));
        let ups = ["promotions", "fetches"];
        let (mut proposed, mut refused) = (0, 0);
        for m in ups.iter().filter_map(|k| up(k)) {
            proposed += m.proposed;
            refused += m.refused.values().sum::<u64>();
        }
        Row::new(
            label,
            vec![
                first,
                Cell::new("over HDD", "%", over(speed(r), speed(&self.hdd))),
                Cell::new("fast hits", "%", fast_hits),
                Cell::new("writes to fast", "%", fast_writes(r) * 100.0),
                Cell::new("brought up", "", (r.promotions + r.fetches) as f64),
                Cell::new("sent down", "", (r.demotions + r.evictions) as f64),
                Cell::new("moved", "MB", r.migrated_bytes as f64 / 1e6),
                Cell::new(
                    "moves up refused",
                    "%",
                    refused as f64 / f64::from(proposed.max(1) as u32) * 100.0,
                ),
            ],
        )
    }
}

/// The name that stands for the disk alone.
pub const HDD: &str = "HDD";

fn speed(r: &Report) -> f64 {
    r.requests as f64 / r.elapsed_s.unwrap_or(f64::NAN)
}

/// The share of the bytes written by requests that go to flash.
pub fn fast_writes(r: &Report) -> f64 {
    let fast = r.usage.as_ref().and_then(|u| u.members.get("fast"));
    fast.map_or(f64::NAN, |m| {
        let foreground = m
            .bytes_written
            .saturating_sub(m.move_bytes_written + m.meta_bytes_written);
        foreground as f64 / r.bytes_written.max(1) as f64
    })
}

/// The outcomes of a policy's proposals to demote.
pub fn demoted(r: &Report) -> String {
    let Some(m) = r.moves.as_ref().and_then(|m| m.get("demotions")) else {
        return "no demotions".to_owned();
    };
    let mut text = format!("{} of {} demotions done", m.done, m.proposed);
    for (why, n) in &m.refused {
        // Writing to a string does not fail.
        let _ = write!(text, ", {n} refused ({why})");
    }
    text
}

/// Judges that the figure of each of `cells` is above `least` percent (for a negative `least`: not lower than that). A cell is a label and
/// its figure.
pub fn every(out: &mut Outcome, key: &str, cells: &[(String, f64)], least: f64) {
    let holds = !cells.is_empty() && cells.iter().all(|(_, v)| *v > least);
    out.judge(key, holds, listed(cells));
}

/// Judges that no figure is above a bound.
pub fn none(out: &mut Outcome, key: &str, cells: &[(String, f64)], most: f64) {
    let holds = !cells.is_empty() && cells.iter().all(|(_, v)| *v < most);
    out.judge(key, holds, listed(cells));
}

/// `web server 25 %: +12.0 %, …`
pub fn listed(cells: &[(String, f64)]) -> String {
    let mut text = String::new();
    for (i, (what, v)) in cells.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        let sign = if *v > 0.0 { "+" } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{what}: {sign}{} %", show(*v));
    }
    text
}

/// A labelled figure for each grid and size.
pub fn each(grids: &[&Grid], sizes: &[u64], f: impl Fn(&Grid, u64) -> f64) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    for g in grids {
        for &size in sizes {
            let what = if grids.len() > 1 {
                format!("{} at {size} %", g.load.name)
            } else {
                format!("{size} %")
            };
            all.push((what, f(g, size)));
        }
    }
    all
}
