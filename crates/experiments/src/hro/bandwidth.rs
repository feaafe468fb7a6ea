//! hro-8: bandwidth.

use super::bench::{System, WEEKS, bandwidth, bench, inputs, substitutes, systems};
use super::recorded::{self, Figure};
use crate::greendm::judge::{over, range};
use crate::outcome::{Cell, Row, Table};
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;

/// See the module.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let mut gains = Vec::new();
    for week in WEEKS {
        let bench = bench(ctx, week)?;
        let systems = systems(ctx, &bench)?;
        inputs(out, &bench, &systems);
        let of: Vec<f64> = systems.iter().map(|s| bandwidth(&s.report)).collect();
        let row = |(i, s): (usize, &System<'_>)| {
            let key = |base: &str| {
                (i == 2)
                    .then(|| out.printed(&format!("{week}-{base}")))
                    .flatten()
            };
            Row::new(
                s.name,
                vec![
                    Cell::new("bandwidth", "MB/s", of[i]),
                    Cell::new("over HDD", "%", over(of[i], of[0])).beside(key("hdd")),
                    Cell::new("over HOT", "%", over(of[i], of[1])).beside(key("hot")),
                    Cell::new(
                        "accesses of the SSD",
                        "%",
                        if i == 0 {
                            0.0
                        } else {
                            s.report.fast_hit_ratio * 100.0
                        },
                    ),
                ],
            )
        };
        let rows = systems.iter().enumerate().map(row).collect();
        out.tables
            .push(Table::new(format!("figure 8: {week}"), rows));
        gains.push((over(of[2], of[0]), over(of[2], of[1])));
    }
    substitutes(out);
    for (week, (hdd, hot)) in WEEKS.iter().zip(&gains).take(2) {
        range(out, &format!("{week}-hdd"), [*hdd], "%");
        range(out, &format!("{week}-hot"), [*hot], "%");
    }
    let of = |f: fn(&(f64, f64)) -> f64| {
        let each = WEEKS
            .iter()
            .zip(&gains)
            .map(|(w, g)| format!("{w} {:.1}", f(g)));
        each.collect::<Vec<_>>().join(", ")
    };
    let why = format!("over HDD, %: {}; over HOT: {}", of(|g| g.0), of(|g| g.1));
    out.judge(
        "order",
        gains.iter().all(|g| g.0 > 0.0 && g.1 > 0.0),
        why.clone(),
    );
    let (mail, office, research) = (gains[0].0, gains[1].0, gains[2].0);
    out.judge(
        "office-most",
        office > mail && office > research,
        why.clone(),
    );
    out.judge("research-least", research < mail && research < office, why);
    recorded::add(ctx, out, Figure::Bandwidth)
}
