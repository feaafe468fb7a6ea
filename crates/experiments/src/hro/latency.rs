//! hro-6: latency by type of operation.

use super::bench::{Kind, WEEKS, bench, inputs, latency, substitutes, systems, under};
use super::recorded::{self, Figure};
use crate::greendm::judge::range;
use crate::outcome::{Cell, Row, Table};
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;

const TYPES: [(&str, Option<Kind>); 4] = [
    ("", None),
    ("read-", Some(Kind::Read)),
    ("write-", Some(Kind::Write)),
    ("meta-", Some(Kind::Metadata)),
];
/// Figures are almost the same if they differ by at most this, in percent.
const SAME: f64 = 5.0;

/// See the module.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    for week in WEEKS {
        let bench = bench(ctx, week)?;
        let systems = systems(ctx, &bench)?;
        inputs(out, &bench, &systems);
        let mut rows = Vec::new();
        for (name, kind) in TYPES {
            let of: Vec<f64> = systems
                .iter()
                .map(|s| latency(s.work, &s.report, kind).unwrap_or(f64::NAN))
                .collect();
            let cut = [under(of[2], of[0]), under(of[2], of[1])];
            let key = |i: usize| format!("{week}-{name}{}", ["hdd", "hot"][i]);
            let mut cells: Vec<Cell> = systems
                .iter()
                .zip(&of)
                .map(|(system, s)| Cell::new(system.name, "ms", s * 1e3))
                .collect();
            cells.push(Cell::new("HRO under HDD", "%", cut[0]).beside(out.printed(&key(0))));
            cells.push(Cell::new("HRO under HOT", "%", cut[1]).beside(out.printed(&key(1))));
            let label = match kind {
                None => "all",
                Some(Kind::Read) => "reads",
                Some(Kind::Write) => "writes",
                Some(Kind::Metadata) => "metadata",
            };
            rows.push(Row::new(label, cells));
            let none = format!("no such request of {week} counts at this scale");
            for i in [0, 1] {
                if out.printed(&key(i)).is_some() {
                    if cut[i].is_finite() {
                        range(out, &key(i), [cut[i]], "%");
                    } else {
                        out.cannot(&key(i), none.as_str());
                    }
                }
            }
            if kind == Some(Kind::Metadata) && week != "research" {
                let claim = format!("{week}-meta");
                let why = format!(
                    "metadata blocks: HRO {:.1} % under HDD, {:.1} % under HOT",
                    cut[0], cut[1]
                );
                if !cut[0].is_finite() {
                    out.cannot(&claim, none);
                } else if week == "mail" {
                    out.judge(&claim, cut.iter().all(|c| c.abs() <= SAME), why);
                } else {
                    out.judge(&claim, cut.iter().all(|c| *c > 0.0), why);
                }
            }
        }
        out.tables
            .push(Table::new(format!("figure 6: {week}"), rows));
    }
    substitutes(out);
    out.substitutes.push("latencies are of block requests, the paper's of file operations, of which many end in memory".to_owned());
    recorded::add(ctx, out, Figure::Latency)
}
