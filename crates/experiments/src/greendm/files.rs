//! Figure 6.7: Filebench's file server, files chosen by a Gamma distribution of shape 1, 4, 16, on 2 GB of flash and 6 GB of
//! disk, extents of 128 KB, PT 1, MCML 4, 16, 64.

use super::judge::{Named, ends, greater, only, order, over, range, row};
use super::measure::{Drive, Measured};
use super::search::{MCML, describe, named};
use crate::Ctx;
use crate::outcome::{Outcome, Table};
use crate::work::Work;
use isotherm_lab::LabError;

/// Shapes of the Gamma distribution.
pub const GAMMA: [u32; 3] = [1, 4, 16];
/// Extent size: the mean I/O size (figure 6.7).
pub const EXTENT: u32 = 128 << 10;
/// The number of files at which the layout of the file system reaches the 8 GB of 6.2.5.
const FILES: u32 = 31_000;
/// Filebench's file server runs 50 processes.
const DEPTH: u32 = 50;

/// The workload with that Gamma shape.
///
/// # Errors
/// The generator fails.
pub fn work(ctx: &Ctx<'_>, gamma: u32) -> Result<Work, LabError> {
    let scale = ctx.scale_or(super::FILES_SCALE);
    let spec = format!(
        "gen:file-server-greendm,files={FILES},prepare=0,gamma={gamma},loops=200000,scale={scale},seed={}",
        ctx.seed
    );
    Work::generate(&spec, None, DEPTH)
}

/// Linear, HDD, SSD, then `policy` with each MCML.
///
/// # Errors
/// A simulation fails.
pub fn measured(
    ctx: &Ctx<'_>,
    work: &Work,
    policy: &str,
    share: u64,
) -> Result<Vec<Named>, LabError> {
    let mut drives = vec![
        Drive::Hybrid("mylinear".to_owned(), share),
        Drive::Hdd,
        Drive::Ssd,
    ];
    drives.extend(MCML.map(|m| Drive::Hybrid(format!("{policy},PT=1,MCML={m}"), share)));
    named(ctx, work, &drives, EXTENT)
}

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    out.substitutes.push("workload: Filebench on a file system is stood for by gen:file-server-greendm, its block requests below 1 GB of page cache (times the scale); the Gamma's scale is assumed, the thesis prints the shape only".to_owned());
    let mut all = Vec::new();
    for gamma in GAMMA {
        let work = work(ctx, gamma)?;
        if gamma == GAMMA[0] {
            describe(out, &work, 4);
        }
        let measured = measured(ctx, &work, "greendm", 4)?;
        let linear = measured[0].1.clone();
        let rows = measured
            .iter()
            .map(|(name, m)| {
                row(
                    out,
                    name,
                    &format!("Gamma {gamma} {name}"),
                    m,
                    (name != "mylinear").then_some(&*linear),
                )
            })
            .collect();
        out.tables
            .push(Table::new(format!("File server, Gamma {gamma}"), rows));
        all.push(measured);
    }
    judge(out, &all);
    Ok(())
}

/// Compares every GreenDM cell with its linear cell.
fn by_linear(all: &[Vec<Named>], f: fn(&Measured, &Measured) -> f64) -> Vec<f64> {
    all.iter()
        .flat_map(|one| one[3..].iter().map(move |(_, m)| f(m, &one[0].1)))
        .collect()
}

#[expect(clippy::too_many_lines, reason = "claims in the paper's order")]
fn judge(out: &mut Outcome, all: &[Vec<Named>]) {
    let hybrids = |one: &[Named], f: fn(&Measured) -> f64| ends(one[3..].iter().map(|(_, m)| f(m)));
    let holds = |one: &Vec<Named>, f: fn(&Measured) -> f64| {
        let (low, high) = hybrids(one, f);
        (f(&one[2].1), high, low, f(&one[0].1), f(&one[1].1))
    };
    let speeds: Vec<_> = all.iter().map(|one| holds(one, |m| m.mb_s)).collect();
    let words = |v: &[(f64, f64, f64, f64, f64)], unit: &str| -> String {
        let each: Vec<String> = GAMMA
            .iter()
            .zip(v)
            .map(|(g, (ssd, high, low, linear, hdd))| format!("Gamma {g}: SSD {ssd:.1}, GreenDM {low:.1} to {high:.1}, linear {linear:.1}, HDD {hdd:.1} {unit}"))
            .collect();
        each.join("; ")
    };
    let ordered = speeds
        .iter()
        .all(|(ssd, high, low, linear, hdd)| ssd > high && low > linear && linear > hdd);
    out.judge("order", ordered, words(&speeds, "MB/s"));
    range(
        out,
        "faster",
        by_linear(all, |m, l| over(m.mb_s, l.mb_s)),
        "%",
    );
    range(
        out,
        "power",
        by_linear(all, |m, l| over(m.power_w, l.power_w)),
        "%",
    );
    range(
        out,
        "wear-10",
        by_linear(all, |m, l| m.wear_10 / l.wear_10),
        "x",
    );
    let energies: Vec<_> = all
        .iter()
        .map(|one| holds(one, |m| m.energy_j / 1e3))
        .collect();
    let ordered = energies.iter().all(|(ssd, high, low, linear, hdd)| {
        ssd < low && ssd < linear && high < hdd && linear < hdd
    });
    out.judge("energy-order", ordered, words(&energies, "kJ"));
    let wear = |gamma: usize, mcml: usize| all[gamma][3 + mcml].1.wear_10;
    let more = (0..MCML.len()).all(|m| wear(2, m) > wear(1, m) && wear(1, m) > wear(0, m));
    let each = MCML.iter().enumerate().map(|(m, name)| {
        let of = |gamma| wear(gamma, m);
        format!("MCML {name}: {:.0}, {:.0}, {:.0} eu", of(0), of(1), of(2))
    });
    let why = each.collect::<Vec<_>>().join("; ");
    out.judge("gamma-wear", more, format!("Gamma 1, 4, 16 with {why}"));
    let mean =
        |one: &[Named]| one[3..].iter().map(|(_, m)| m.mb_s).sum::<f64>() / (one.len() - 3) as f64;
    let (low, high) = ends(all.iter().map(|one| mean(one)));
    let by_mcml = all
        .iter()
        .map(|one| hybrids(one, |m| m.mb_s))
        .map(|(l, h)| h / l);
    let (_, by_mcml) = ends(by_mcml);
    greater(
        out,
        "gamma-dominates",
        ("fastest/slowest by Gamma:", high / low),
        ("by MCML:", by_mcml),
        "",
    );
    let speed = |gamma: usize, mcml: usize| all[gamma][3 + mcml].1.mb_s;
    order(
        out,
        "small-gamma-large-mcml",
        &[
            ("MCML 64:", only(speed(0, 2))),
            ("MCML 4 and 16:", ends([speed(0, 0), speed(0, 1)])),
        ],
        "MB/s",
    );
    order(
        out,
        "large-gamma-small-mcml",
        &[
            ("MCML 4:", only(speed(2, 0))),
            ("MCML 16 and 64:", ends([speed(2, 1), speed(2, 2)])),
        ],
        "MB/s",
    );
    let (low, high) = hybrids(&all[0], |m| m.spun_down * 100.0);
    out.judge(
        "spun-down",
        high >= 5.0 && low <= 20.0,
        format!("{low:.1} to {high:.1} % of the time"),
    );
}
