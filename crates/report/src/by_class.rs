//! A run by class of data: its requests, the tiers that served them, and the work of the devices (DSS figures 2, 3 and 5).

use super::chart::{Axis, BarSeries, Bars, Chart, Plot};
use super::unit::Unit;
use isotherm_lab::sim::{ClassReport, Report, Used};

/// The charts of a run whose requests have classes; no chart if they have none.
pub(super) fn charts(r: &Report) -> Vec<Chart> {
    let mut rows: Vec<(u8, &ClassReport)> = (r.by_class.iter())
        .filter_map(|(class, c)| Some((class.parse().ok()?, c)))
        .collect();
    rows.sort_by_key(|r| r.0);
    if rows.iter().all(|r| r.0 == 0) {
        return vec![];
    }
    let of = |f: &dyn Fn(&ClassReport) -> Option<f64>| rows.iter().map(|r| f(r.1)).collect();
    let used = |f: fn(&Used) -> Option<f64>| of(&move |c| c.used.as_ref().and_then(f));
    let own = |f: fn(&Used) -> Option<f64>| r.own_work.as_ref().and_then(f);
    let classes: Vec<String> = rows.iter().map(|r| name(r.0)).collect();
    let with_own: Vec<String> = (classes.iter().cloned())
        .chain(["the volume itself".to_owned()])
        .collect();
    let mut all = vec![
        bars(
            "Accesses by class",
            "Extent accesses, by where they were served (DSS figures 3 and 5).",
            Unit::COUNT,
            &classes,
            vec![
                ("fast tier", of(&|c| Some(c.fast_hits as f64))),
                (
                    "elsewhere",
                    of(&|c| Some((c.accesses - c.fast_hits) as f64)),
                ),
            ],
        ),
        bars(
            "Bytes by class",
            "Bytes of the requests (DSS figure 2).",
            Unit::BYTES,
            &classes,
            vec![("requests", of(&|c| Some(c.bytes as f64)))],
        ),
    ];
    if r.own_work.is_none() {
        return all;
    }
    // The last bar is the work that belongs to no class.
    let whole = |f: fn(&Used) -> Option<f64>| -> Vec<Option<f64>> {
        let mut values: Vec<Option<f64>> = used(f);
        values.push(own(f));
        values
    };
    all.push(bars(
        "Device time by class",
        "Time that devices worked for it, moves included.",
        Unit::SECONDS,
        &with_own,
        vec![("devices", whole(|u| Some(u.device_time_s)))],
    ));
    all.push(bars(
        "Fast tier written by class",
        "Bytes written to the fast tier, moves included: what wears it.",
        Unit::BYTES,
        &with_own,
        vec![("fast tier", whole(|u| Some(u.fast_write_bytes as f64)))],
    ));
    let energy = |r: &(u8, &ClassReport)| r.1.used.is_some_and(|u| u.energy_j.is_some());
    if rows.iter().any(energy) {
        all.push(bars(
            "Energy by class",
            "Joules beyond idling, by the data sheets.",
            Unit::JOULES,
            &with_own,
            vec![("devices", whole(|u| u.energy_j))],
        ));
    }
    all
}

type Series = (&'static str, Vec<Option<f64>>);

/// One chart with a bar per class, which is divided if there are several series.
fn bars(title: &str, note: &str, unit: Unit, names: &[String], series: Vec<Series>) -> Chart {
    Chart {
        title: title.to_owned(),
        note: note.to_owned(),
        plot: Plot::Bars(Bars {
            x_label: "Class".to_owned(),
            categories: names.to_vec(),
            y: Axis::new(title, unit),
            stacked: series.len() > 1,
            series: (series.into_iter())
                .map(|(name, values)| BarSeries {
                    name: name.to_owned(),
                    values,
                })
                .collect(),
            lying: true,
        }),
    }
}

/// The name of a class with its meaning in Differentiated Storage Services, Tables 3 and 6.
fn name(class: u8) -> String {
    let what = match class {
        0 => "unclassified",
        1..=7 => "metadata",
        8..=18 => "files by size",
        19..=25 => "database",
        _ => return class.to_string(),
    };
    format!("{class} ({what})")
}
