//! Figures 7.1 to 7.3: the cost of the runs of figures 6.5 to 6.7, repeated 1 to 100 000 times.
//!
//! Prices are those of 7.2: $529 for 300 GB of flash, $200 for 2 TB of disk, $100 of service, LIPA 2013; a read counts as a tenth of a
//! write. A run at scale s is priced as 1/s times as many runs on drives that are 1/s times as large.

use isotherm_models::cost::{MemberPrice, MemberUsage, Prices, Rounding, Tariff, Usage};
use isotherm_models::sheet;

use super::judge::{Named, ends, order, range};
use super::measure::{DISK, Drive, FLASH, Measured};
use super::search::{MCML, PT};
use super::{files, online, search};
use crate::Ctx;
use crate::outcome::{Cell, Outcome, Row, Table};
use crate::work::Work;
use isotherm_lab::LabError;

/// Time factors of the figures.
pub const FACTORS: [u64; 6] = [1, 10, 100, 1000, 10_000, 100_000];
/// As in the worked example (7.2).
const SERVICE_USD: f64 = 100.0;

/// The cost of a drive at each of [`FACTORS`].
pub type Totals = [f64; FACTORS.len()];

/// Prices one cell. `caching` means that the disk holds the whole volume.
///
/// # Errors
/// A preset is invalid; a test makes sure that none is.
pub fn totals(
    work: &Work,
    drive: &Drive,
    m: &Measured,
    scale: f64,
    caching: bool,
) -> Result<Totals, LabError> {
    let whole = work.bytes as f64 / scale;
    let (flash, disk) = match drive {
        Drive::Ssd => (whole, 0.0),
        Drive::Hdd => (0.0, whole),
        Drive::Hybrid(_, share) => {
            let flash = whole / *share as f64;
            (flash, if caching { whole } else { whole - flash })
        }
    };
    let (flash_sheet, disk_sheet) = (sheet(FLASH)?, sheet(DISK)?);
    let limit = disk_sheet
        .hdd
        .as_ref()
        .map_or(f64::INFINITY, |h| h.start_stop_limit);
    let member = |s, bytes: f64| {
        MemberPrice::of_sheet(s, bytes as u64)
            .ok_or_else(|| LabError::setup("a preset has no price"))
    };
    let prices = Prices {
        tariff: Tariff::preset("lipa-2013")?,
        members: vec![member(&flash_sheet, flash)?, member(&disk_sheet, disk)?],
        service_usd: SERVICE_USD,
        rounding: Rounding::Exact,
    };
    let worn = |wear_eu| MemberUsage {
        wear_eu,
        ..MemberUsage::default()
    };
    let usage = Usage {
        elapsed_s: m.elapsed_s / scale,
        host_energy_j: m.energy_j / scale,
        members: vec![
            worn(m.wear_10 / scale),
            worn(m.start_stops as f64 / limit * 1e6 / scale),
        ],
    };
    Ok(FACTORS.map(|f| prices.tco(&usage, f).total_usd()))
}

/// The priced drives of one workload, in the order of the runs: linear, HDD, SSD, GreenDM's cells.
fn priced(work: &Work, all: &[Named], scale: f64) -> Result<Vec<(String, Totals)>, LabError> {
    all.iter()
        .map(|(name, m)| {
            let drive = match name.as_str() {
                "HDD" => Drive::Hdd,
                "SSD" => Drive::Ssd,
                other => Drive::Hybrid(other.to_owned(), 4),
            };
            Ok((name.clone(), totals(work, &drive, m, scale, false)?))
        })
        .collect()
}

fn table(out: &mut Outcome, title: &str, all: &[(String, Totals)]) {
    let rows = all
        .iter()
        .map(|(name, t)| {
            let cells = FACTORS
                .iter()
                .zip(t)
                .map(|(f, usd)| Cell::new(&format!("x {f}"), "$", *usd));
            Row::new(name.clone(), cells.collect())
        })
        .collect();
    out.tables.push(Table::new(title, rows));
}

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    out.inputs.push("the runs of greendm-6.5, 6.6 and 6.7, priced as in 7.2; runs at scale S count as 1/S of them, on drives 1/S as large".to_owned());
    out.substitutes.push(
        "as in greendm-6.5, 6.6 and 6.7; the host's power is assumed, so energy is too".to_owned(),
    );
    let work = search::work(ctx)?;
    let all = priced(
        &work,
        &search::measured(ctx, &work, 4)?,
        ctx.scale_or(super::SEARCH_SCALE),
    )?;
    table(out, "Web search", &all);
    ends_of(out, "search", &all, true);
    most_over_linear(out, "search-1000", &[&all]);
    let last = |i: usize| all[3 + i].1[FACTORS.len() - 1];
    let by_pt: Vec<(f64, f64)> = (0..PT.len())
        .map(|pt| ends((0..MCML.len()).map(|m| last(pt * MCML.len() + m))))
        .collect();
    order(
        out,
        "search-pt",
        &[
            ("PT 1:", by_pt[0]),
            ("PT 4:", by_pt[1]),
            ("PT 16:", by_pt[2]),
        ],
        "$",
    );
    out.judge(
        "search-mcml",
        last(0) < last(2),
        format!("x 100000: MCML 4 ${:.0}, MCML 64 ${:.0}", last(0), last(2)),
    );

    let work = online::work(ctx)?;
    let all = priced(
        &work,
        &online::measured(ctx, &work, "greendm", 4)?,
        ctx.scale_or(super::ONLINE_SCALE),
    )?;
    table(out, "FIU online", &all);
    ends_of(out, "online", &all, false);
    most_over_linear(out, "online-1000", &[&all]);
    let last: Vec<f64> = all[3..].iter().map(|(_, t)| t[FACTORS.len() - 1]).collect();
    out.judge(
        "online-es",
        last[0] < last[1] && last[1] < last[2],
        format!(
            "x 100000: 4 KiB ${:.0}, 16 KiB ${:.0}, 64 KiB ${:.0}",
            last[0], last[1], last[2]
        ),
    );
    served(ctx, out)
}

/// The file server's part.
fn served(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let mut all = Vec::new();
    for gamma in files::GAMMA {
        let work = files::work(ctx, gamma)?;
        let one = priced(
            &work,
            &files::measured(ctx, &work, "greendm", 4)?,
            ctx.scale_or(super::FILES_SCALE),
        )?;
        table(out, &format!("File server, Gamma {gamma}"), &one);
        all.push(one);
    }
    let every = |f: fn(&[(String, Totals)]) -> bool| all.iter().all(|one| f(one));
    out.judge(
        "files-1",
        every(|one| short_term(one).0),
        short_term(&all[0]).1,
    );
    out.judge(
        "files-1e5",
        every(|one| long_term(one, true).0),
        long_term(&all[0], true).1,
    );
    let views: Vec<&Vec<(String, Totals)>> = all.iter().collect();
    most_over_linear(out, "files-1000", &views);
    let last: Vec<f64> = all[0][3..]
        .iter()
        .map(|(_, t)| t[FACTORS.len() - 1])
        .collect();
    out.judge(
        "files-mcml",
        last[2] < last[0] && last[2] < last[1],
        format!(
            "Gamma 1, x 100000: MCML 4 ${:.0}, 16 ${:.0}, 64 ${:.0}",
            last[0], last[1], last[2]
        ),
    );
    Ok(())
}

/// Factor 1: SSD has the highest cost, HDD the lowest.
fn short_term(all: &[(String, Totals)]) -> (bool, String) {
    let (linear, hdd, ssd) = (all[0].1[0], all[1].1[0], all[2].1[0]);
    let (low, high) = ends(all[3..].iter().map(|(_, t)| t[0]).chain([linear]));
    (
        ssd > high && low > hdd,
        format!("x 1: SSD ${ssd:.2}, hybrids ${low:.2} to {high:.2}, HDD ${hdd:.2}"),
    )
}

/// Factor 100 000: HDD has the lowest cost; GreenDM has the highest, or SSD is among the highest.
fn long_term(all: &[(String, Totals)], greendm: bool) -> (bool, String) {
    let last = FACTORS.len() - 1;
    let (linear, hdd, ssd) = (all[0].1[last], all[1].1[last], all[2].1[last]);
    let (low, high) = ends(all[3..].iter().map(|(_, t)| t[last]));
    let top = if greendm {
        low > ssd && low > linear
    } else {
        ssd > linear
    };
    (
        top && hdd < linear && hdd < ssd && hdd < low,
        format!(
            "x 100000: GreenDM ${low:.0} to {high:.0}, SSD ${ssd:.0}, linear ${linear:.0}, HDD ${hdd:.0}"
        ),
    )
}

fn ends_of(out: &mut Outcome, work: &str, all: &[(String, Totals)], greendm: bool) {
    let (holds, why) = short_term(all);
    out.judge(&format!("{work}-1"), holds, why);
    let (holds, why) = long_term(all, greendm);
    out.judge(&format!("{work}-1e5"), holds, why);
    if greendm {
        let over = |t: &Totals, i: usize| t[i] - all[0].1[i];
        // "The difference is only $1" at factor 1. The drives are the same, so the difference may be zero.
        let grows = all[3..]
            .iter()
            .all(|(_, t)| (1..FACTORS.len()).all(|i| over(t, i) > over(t, i - 1)));
        let (_, first) = ends(all[3..].iter().map(|(_, t)| over(t, 0)));
        let (_, last) = ends(all[3..].iter().map(|(_, t)| over(t, FACTORS.len() - 1)));
        out.judge(
            &format!("{work}-grows"),
            grows,
            format!("at most ${first:.2} at x 1, ${last:.0} at x 100000"),
        );
    }
}

/// The largest difference at factor 1000 between GreenDM's cost and linear's.
fn most_over_linear(out: &mut Outcome, key: &str, all: &[&Vec<(String, Totals)>]) {
    let over = all
        .iter()
        .flat_map(|one| one[3..].iter().map(move |(_, t)| t[3] - one[0].1[3]));
    let (_, most) = ends(over);
    range(out, key, [most], "$");
}
