//! Makes pages from the results of the lab's commands: comparisons, sweeps, reproduced experiments.

use std::collections::HashMap;

use serde_json::Value;

use super::compare::{Comparison, Entry, compare_page, metrics};
use super::cost::CostCurve;
use super::names::labels;
use super::page::Page;
use super::reproduce::{Claim, Experiment, reproduce_page};
use super::table::{Cell, Table, Verdict};
use isotherm_experiments::{self as reproduce, Outcome};
use isotherm_lab::compare;
use isotherm_lab::sim::Report;

/// Most cost curves in a chart.
const CURVES_MAX: usize = 8;
/// Indexes in [`metrics`] of the axes of the trade-off: what is moved, or the size of the fast tier if that varies, against throughput, or
/// against latency if the trace's clock sets the pace.
const UP: usize = 0;
const LATENCY: usize = 1;
const MOVED: usize = 8;
const FAST_TIER: usize = 10;
/// Index in [`metrics`] of the hits, which a device alone does not have.
const HITS: usize = 3;
/// Indexes in [`metrics`] of figures of the fast tier, which the slow device alone does not have.
const OF_FAST: [usize; 2] = [4, 10];

/// The cost of a run as a function of the time factor; `None` if a member has no price, which would count as free of charge.
pub fn cost_curve(name: &str, report: &Report) -> Option<CostCurve> {
    let c = report.cost.as_ref().filter(|c| c.unpriced.is_empty())?;
    Some(CostCurve {
        name: name.to_owned(),
        once_usd: c.purchase_usd + c.service_usd,
        per_run_usd: c.recurring_usd,
    })
}

/// The page of `compare`, for one trace or several.
pub fn comparison_page(all: &[compare::Comparison]) -> Page {
    let names = labels(all.iter().map(|c| c.trace.as_str()));
    let mut page = Comparison {
        title: "Policies side by side".to_owned(),
        subtitle: names.join(", "),
        notes: Vec::new(),
        metrics: metrics(),
        x: MOVED,
        y: UP,
        entries: Vec::new(),
        cost: Vec::new(),
    };
    for (c, name) in all.iter().zip(&names) {
        let b = &c.bounds;
        page.notes.push(format!(
            "{}: no policy hits more than {:.4} (Belady's MIN with bypass) or serves at less than {:.3} s (tiering), {:.3} s (caching) and {:.3} s (write-back caches filled on demand) of device time; regret is the distance to the one of its kind.",
            name,
            b.hit_ratio,
            b.tiering_cost_s,
            b.caching_cost_s,
            b.write_back_cost_s.max(b.caching_cost_s)
        ));
        page.notes
            .extend(c.left_out.iter().map(|w| format!("Left out: {w}")));
        for r in &c.rows {
            let setting = if all.len() > 1 {
                name.clone()
            } else {
                String::new()
            };
            let curve = cost_curve(&r.name, &r.report);
            page.entries.push(Entry {
                policy: r.name.clone(),
                field: setting.clone(),
                setting,
                values: row_values(r, curve.as_ref()),
                reference: r.is_alone(),
            });
            if all.len() == 1 && page.cost.len() < CURVES_MAX {
                page.cost.extend(curve);
            }
        }
    }
    // If the trace's clock sets the pace, all runs serve the same number of requests per second and differ in latency.
    let rates = || page.entries.iter().filter_map(|e| e.values[UP]);
    let (least, most) = (
        rates().fold(f64::INFINITY, f64::min),
        rates().fold(0.0, f64::max),
    );
    if most < 1.1 * least {
        page.y = LATENCY;
    }
    compare_page(&page)
}

/// The values of [`metrics`] for a row of a comparison. Of a device alone, those that speak of tiers are left out: its only tier counts as the
/// fastest one in its report.
fn row_values(row: &compare::Row, cost: Option<&CostCurve>) -> Vec<Option<f64>> {
    let mut values = super::compare::values(&row.report, cost);
    if row.is_alone() {
        values[HITS] = None;
    }
    if row.has_no_fast_tier() {
        for i in OF_FAST {
            values[i] = None;
        }
    }
    values
}

/// The page of a sweep, from the cells that the sweep wrote (`cells.json`).
pub fn sweep_page(cells: &[Value]) -> Page {
    let traces: Vec<&str> = cells
        .iter()
        .filter_map(|c| c["cell"]["trace"].as_str())
        .collect();
    let short: HashMap<&str, String> = traces
        .iter()
        .copied()
        .zip(labels(traces.iter().copied()))
        .collect();
    let several = |key: &str| {
        let first = cells.first().map(|c| &c["cell"][key]);
        cells.iter().any(|c| Some(&c["cell"][key]) != first)
    };
    let varied: Vec<&str> = [
        "trace",
        "fast_size",
        "extent",
        "fast",
        "slow",
        "span",
        "depth",
        "seed",
    ]
    .into_iter()
    .filter(|k| several(k))
    .collect();
    compare_page(&Comparison {
        title: "Sweep".to_owned(),
        subtitle: format!("{} cells", cells.len()),
        notes: Vec::new(),
        metrics: metrics(),
        x: if varied.contains(&"fast_size") {
            FAST_TIER
        } else {
            MOVED
        },
        y: UP,
        entries: cells
            .iter()
            .map(|c| sweep_entry(c, &varied, &short))
            .collect(),
        cost: Vec::new(),
    })
}

/// The entry of a cell. Its name holds the settings that vary; `short` has the labels of traces.
fn sweep_entry(c: &Value, varied: &[&str], short: &HashMap<&str, String>) -> Entry {
    let words = |v: &Value| match v.as_str() {
        Some(s) => short.get(s).cloned().unwrap_or_else(|| s.to_owned()),
        None => v.to_string(),
    };
    let setting: Vec<String> = varied
        .iter()
        .filter(|k| !c["cell"][**k].is_null())
        .map(|k| format!("{} {}", k.replace('_', " "), words(&c["cell"][*k])))
        .collect();
    Entry {
        policy: words(&c["cell"]["policy"]),
        setting: setting.join(", "),
        values: sweep_values(&c["report"]),
        field: if varied.contains(&"trace") {
            words(&c["cell"]["trace"])
        } else {
            String::new()
        },
        reference: false,
    }
}

/// The [`metrics`] of a report.
fn sweep_values(r: &Value) -> Vec<Option<f64>> {
    const KEYS: [&str; 11] = [
        "throughput_iops",
        "latency_mean_s",
        "latency_p99_s",
        "fast_hit_ratio",
        "fast_served_ratio",
        "energy_j",
        "mean_power_w",
        "wear_eu",
        "migrated_bytes",
        "elapsed_s",
        "fast_bytes",
    ];
    let figure = |k: &str| match &r[k] {
        Value::Object(by_member) => {
            let all = by_member.values().filter_map(Value::as_f64);
            all.max_by(f64::total_cmp)
        }
        v => v.as_f64(),
    };
    let mut values: Vec<Option<f64>> = KEYS.iter().map(|k| figure(k)).collect();
    let free = r["cost"]["unpriced"]
        .as_array()
        .is_some_and(|u| !u.is_empty());
    let cost = |k: &str| r["cost"][k].as_f64().filter(|_| !free);
    let once = cost("purchase_usd")
        .zip(cost("service_usd"))
        .map(|(a, b)| a + b);
    for factor in [1.0, 1000.0] {
        values.push(once.zip(cost("recurring_usd")).map(|(o, r)| o + factor * r));
    }
    values
}

/// The page of reproduced experiments.
pub fn outcomes_page(outcomes: &[Outcome]) -> Page {
    let experiments: Vec<Experiment> = outcomes.iter().map(experiment).collect();
    reproduce_page(&experiments)
}

fn experiment(o: &Outcome) -> Experiment {
    let claims = o.claims.iter().map(|c| Claim {
        text: c.text.clone(),
        paper: c.at.clone(),
        ours: String::new(),
        verdict: match c.verdict {
            reproduce::Verdict::Holds => Verdict::Holds,
            reproduce::Verdict::Near | reproduce::Verdict::Direction => Verdict::Partly,
            reproduce::Verdict::Fitted | reproduce::Verdict::Vacuous => Verdict::Aside,
            reproduce::Verdict::DoesNotHold => Verdict::Fails,
            reproduce::Verdict::CannotBeJudged => Verdict::Open,
        },
        why: format!("{}: {}", c.verdict.text(), c.figures),
    });
    Experiment {
        id: o.id.clone(),
        title: o.title.clone(),
        set_up: o.inputs.join("; "),
        substitutes: o.substitutes.join("; "),
        claims: claims.collect(),
        tables: o.tables.iter().map(table).collect(),
        charts: Vec::new(),
    }
}

fn table(t: &reproduce::Table) -> Table {
    let mut columns = vec![String::new()];
    for c in t.rows.iter().take(1).flat_map(|r| &r.cells) {
        let unit = if c.unit.is_empty() {
            String::new()
        } else {
            format!(" ({})", c.unit)
        };
        columns.push(format!("{}{unit}", c.name));
        columns.push("paper".to_owned());
    }
    let rows = t.rows.iter().map(|r| {
        let mut row = vec![Cell::Text(r.label.clone())];
        for c in &r.cells {
            row.push(
                c.ours
                    .map_or(Cell::Empty, |v| Cell::Written(format!("{v:.4}"))),
            );
            row.push(match &c.paper {
                Some(p) if p.low < p.high => Cell::Written(format!("{} to {}", p.low, p.high)),
                Some(p) => Cell::Written(p.low.to_string()),
                None => Cell::Empty,
            });
        }
        row
    });
    Table {
        caption: t.title.clone(),
        rows: rows.collect(),
        columns,
    }
}
