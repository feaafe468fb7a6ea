//! The policies of figures 2 to 14 under recordings of real mounts, and the statements of the paper about which policy is faster.
//!
//! These tables get no verdicts: the recordings are seconds long, on 2 cores, whereas the paper's runs took half an hour.

use super::grid::{Grid, HDD, Named, SIZES};
use super::load::{LARGE, Load, WEB_CLASS, working_set};
use crate::greendm::judge::over;
use crate::outcome::{Cell, Row, Table};
use crate::recorded::{self, CLIENTS, FILE, MAIL, PIECE, WEB, ZIPF, reach};
use crate::work::Work;
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;
use isotherm_lab::sim::Memory;
use isotherm_traces::Record;

/// How the speeds of two groups of policies are compared.
#[derive(Clone, Copy)]
pub enum Rule {
    /// The slowest of the first group against the fastest of the second.
    All,
    /// The fastest of the first group against the fastest of the second.
    Best,
}

/// A statement of the paper that one group of policies is faster than another.
pub struct Direction {
    /// The statement as text.
    pub text: &'static str,
    /// The loads for which the paper states it.
    pub loads: &'static [recorded::Load],
    /// The group that should be faster.
    pub faster: &'static [&'static str],
    /// The other group.
    pub slower: &'static [&'static str],
    /// How they are compared.
    pub rule: Rule,
}

const HOT: &[&str] = &["hot-dst-5s", "hot-dst-dynamic"];
const COLD: &[&str] = &["cold-dst-plain", "cold-dst-dynamic"];
const ON_DEMAND: &[&str] = &["cache-ondemand"];
const INTERVAL: &[&str] = &["cache-interval"];
const OTHERS: &[&str] = &[
    "hot-dst-5s",
    "hot-dst-dynamic",
    "cache-interval",
    "cache-ondemand",
];
const DISK: &[&str] = &[HDD];

const fn over_all(
    text: &'static str,
    loads: &'static [recorded::Load],
    faster: &'static [&'static str],
    slower: &'static [&'static str],
) -> Direction {
    Direction {
        text,
        loads,
        faster,
        slower,
        rule: Rule::All,
    }
}

/// The statements of figures 2 to 5.
pub const OF_HOT: &[Direction] = &[
    over_all("every Hot-DST over the disk alone", &[ZIPF], HOT, DISK),
    over_all(
        "dynamic over every 5 s",
        &[MAIL],
        &["hot-dst-dynamic"],
        &["hot-dst-5s"],
    ),
];
/// The statements of figures 6 to 9.
pub const OF_COLD: &[Direction] = &[
    over_all("Cold-DST over the disk alone", &[ZIPF], COLD, DISK),
    over_all(
        "shifting locality: dynamic over plain",
        &[ZIPF],
        &["cold-dst-dynamic"],
        &["cold-dst-plain"],
    ),
    over_all(
        "no locality: plain over dynamic",
        &[WEB],
        &["cold-dst-plain"],
        &["cold-dst-dynamic"],
    ),
];
/// The statements of figures 10 to 13.
pub const OF_CACHING: &[Direction] = &[
    over_all(
        "both ways of caching over the disk alone",
        &[ZIPF],
        &["cache-interval", "cache-ondemand"],
        DISK,
    ),
    over_all(
        "on-demand caching over interval-driven",
        &[MAIL, FILE, WEB, ZIPF],
        ON_DEMAND,
        INTERVAL,
    ),
    over_all(
        "dynamic Hot-DST over on-demand caching",
        &[MAIL, FILE],
        &["hot-dst-dynamic"],
        ON_DEMAND,
    ),
    over_all(
        "on-demand caching over dynamic Hot-DST",
        &[WEB, ZIPF],
        ON_DEMAND,
        &["hot-dst-dynamic"],
    ),
    Direction {
        text: "the better Cold-DST over the best other",
        loads: &[MAIL, FILE, WEB],
        faster: COLD,
        slower: OTHERS,
        rule: Rule::Best,
    },
];

impl Direction {
    fn gain(&self, grid: &Grid, size: u64) -> f64 {
        let speeds = |of: &[&str]| of.iter().map(|p| grid.speed(p, size)).collect::<Vec<_>>();
        let (faster, slower) = (speeds(self.faster), speeds(self.slower));
        let least = faster.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        match self.rule {
            Rule::All => over(least, most(&slower)),
            Rule::Best => over(most(&faster), most(&slower)),
        }
    }
}

/// Adds a table of the policies for each load of the statements, and a table of the statements, if the recordings are present.
///
/// # Errors
/// A simulation fails.
pub fn add(ctx: &Ctx<'_>, out: &mut Outcome, directions: &[Direction]) -> Result<(), LabError> {
    let mut loads: Vec<recorded::Load> = Vec::new();
    for load in directions.iter().flat_map(|d| d.loads) {
        if !loads.contains(load) {
            loads.push(*load);
        }
    }
    let Some(records) = recorded::read(ctx, out, &loads)? else {
        return Ok(());
    };
    let mut names: Vec<&'static str> = Vec::new();
    for name in directions
        .iter()
        .flat_map(|d| d.faster.iter().chain(d.slower))
    {
        if *name != HDD && !names.contains(name) {
            names.push(name);
        }
    }
    // The periods are those of the paper: the recordings are not scaled.
    let policies: Vec<Named> = (names.iter())
        .map(|name| Named {
            name,
            spec: (*name).to_owned(),
        })
        .collect();
    let mut rows = Vec::new();
    for (load, records) in loads.iter().zip(records) {
        let grid = measure(ctx, out, load.0, records.to_vec(), &policies)?;
        let about = directions.iter().filter(|d| d.loads.contains(load));
        rows.extend(about.map(|d| row(&format!("{}: {}", load.0, d.text), |s| d.gain(&grid, s))));
    }
    out.tables.push(Table::new(DIRECTIONS, rows));
    Ok(())
}

const DIRECTIONS: &str =
    "directions of the paper, as recorded on a real mount (above zero: as the paper says)";

fn row(label: &str, gain: impl Fn(u64) -> f64) -> Row {
    let cell = |s| Cell::new(&format!("gain at {s} %"), "%", gain(s));
    Row::new(label, SIZES.map(cell).to_vec())
}

/// A recording as a load.
pub(super) fn load(name: &'static str, records: Vec<Record>) -> Load {
    let label = format!("{name}, recorded");
    Load {
        name,
        warm_up: 0,
        extents: working_set(&records, PIECE),
        extent: PIECE,
        timed: false,
        work: Work {
            bytes: reach(&records),
            memory: Memory::new(&label, records),
            name: label,
            depth: CLIENTS,
            phases: Vec::new(),
        },
    }
}

fn measure(
    ctx: &Ctx<'_>,
    out: &mut Outcome,
    name: &'static str,
    records: Vec<Record>,
    policies: &[Named],
) -> Result<Grid, LabError> {
    let load = load(name, records);
    load.describe(out);
    let grid = Grid::measure(ctx, load, policies, &SIZES)?;
    grid.recorded_table(out);
    Ok(grid)
}

/// Adds figure 14 under the recordings of the file server and the web server at the same time, each with its own files.
///
/// # Errors
/// A simulation fails.
pub fn mixed(ctx: &Ctx<'_>, out: &mut Outcome, policies: &[Named]) -> Result<(), LabError> {
    let Some(parts) = recorded::read(ctx, out, &[FILE, WEB])? else {
        return Ok(());
    };
    let grid = measure(
        ctx,
        out,
        "mixed",
        side_by_side(&parts[0], &parts[1]),
        policies,
    )?;
    // In the paper, Cold-DST is faster than type-aware.
    let others = policies.iter().skip(1).filter(|p| !COLD.contains(&p.name));
    let rows = others.map(|p| {
        let label = format!("{} over {}", policies[0].name, p.name);
        row(&label, |s| grid.ahead(policies[0].name, p.name, s))
    });
    out.tables.push(Table::new(DIRECTIONS, rows.collect()));
    Ok(())
}

/// Both loads at the same time, until the shorter one ends. The web server's files are behind the file server's, and their classes differ.
pub(super) fn side_by_side(file: &[Record], web: &[Record]) -> Vec<Record> {
    let behind = reach(file);
    let last = |of: &[Record]| of.last().map_or(0, |r| r.time.0);
    let until = last(file).min(last(web));
    let of_web = web.iter().map(|r| Record {
        offset: r.offset + behind,
        class: r.class
            + if (1..LARGE).contains(&r.class) {
                WEB_CLASS
            } else {
                0
            },
        ..*r
    });
    let mut all: Vec<Record> = file.iter().copied().chain(of_web).collect();
    all.retain(|r| r.time.0 <= until);
    all.sort_by_key(|r| r.time);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;
    use isotherm_core::Nanos;
    use isotherm_traces::Op;

    #[test]
    fn recordings_run_beside_the_generators() {
        let quiet = |_: &str| ();
        let ctx = Ctx::on_fixtures(&quiet, 0.001);
        for (id, loads, directions) in [
            ("loris-2-5", 2, 2),
            ("loris-6-9", 2, 3),
            ("loris-10-13", 4, 12),
            ("loris-14", 1, 2),
        ] {
            let out = Experiment::find(id).unwrap().run(&ctx).unwrap();
            let of = |end: &str| {
                let all = out.tables.iter();
                all.filter(|t| t.title.contains(end)).collect::<Vec<_>>()
            };
            let tables = of(", as recorded on a real mount");
            assert_eq!(tables.len(), loads + 1, "{id}");
            let said = of("directions of the paper");
            assert_eq!(said[0].rows.len(), directions, "{id}");
            for row in tables.iter().flat_map(|t| &t.rows) {
                let first = row.cells[0].ours.unwrap();
                assert!(first.is_finite(), "{id} {}", row.label);
            }
        }
    }

    /// Without the files, the experiments run nevertheless, and say what is missing.
    #[test]
    fn without_recordings_the_generators_are_alone() {
        let quiet = |_: &str| ();
        for traces in [None, Some(std::path::PathBuf::from("/nonexistent"))] {
            let ctx = Ctx {
                scale: Some(0.001),
                traces,
                ..Ctx::new(&quiet)
            };
            let out = Experiment::find("loris-14").unwrap().run(&ctx).unwrap();
            let said = out.substitutes.join("\n");
            assert!(said.contains("would be run beside"), "{said}");
            assert_eq!(out.tables.len(), 1);
        }
    }

    #[test]
    fn two_loads_side_by_side_share_no_file() {
        let r = |time, offset, class| Record {
            class,
            ..Record::new(Nanos(time), Op::Read, offset, 4096)
        };
        let file = [r(0, 0, 9), r(5, 8 << 20, 14)];
        let web = [r(1, 0, 9), r(2, 4096, 14), r(6, 0, 9)];
        let all = side_by_side(&file, &web);
        let seen: Vec<_> = all.iter().map(|r| (r.time.0, r.offset, r.class)).collect();
        let behind = 12 << 20;
        let expected = [
            (0, 0, 9),
            (1, behind, 9 + WEB_CLASS),
            (2, behind + 4096, 14),
            (5, 8 << 20, 14),
        ];
        assert_eq!(seen, expected);
    }
}
