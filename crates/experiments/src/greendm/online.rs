//! Figure 6.6: FIU online on 2 GB of flash and 6 GB of disk, extents of 4, 16, 64 KB, PT 1, MCML 16.

use super::judge::{Named, ends, only, order, over, range, row};
use super::measure::{Cell, Drive, Measured, measure};
use super::search::{common, describe};
use crate::Ctx;
use crate::outcome::{Outcome, Table};
use crate::work::Work;
use isotherm_lab::LabError;

/// Extent sizes.
pub const EXTENTS: [u32; 3] = [4 << 10, 16 << 10, 64 << 10];
/// Parameters of the figure.
pub const PARAMS: &str = "PT=1,MCML=16";
/// Bytes of the volume (Table 6.3).
const VOLUME: f64 = 8.0 * (1u64 << 30) as f64;

/// The stand-in for the trace.
///
/// # Errors
/// The generator fails.
pub fn work(ctx: &Ctx<'_>) -> Result<Work, LabError> {
    let scale = ctx.scale_or(super::ONLINE_SCALE);
    let spec = format!("gen:fiu-online,scale={scale},seed={}", ctx.seed);
    Work::generate(&spec, Some((VOLUME * scale) as u64), 1)
}

/// Linear, HDD and SSD with the middle extent size, which does not affect them, then `policy` with each extent size.
///
/// # Errors
/// A simulation fails.
pub fn measured(
    ctx: &Ctx<'_>,
    work: &Work,
    policy: &str,
    share: u64,
) -> Result<Vec<Named>, LabError> {
    let mut cells = alone(share, true);
    cells.extend(grid(policy, share, true, true));
    run_cells(ctx, work, cells)
}

fn run_cells(
    ctx: &Ctx<'_>,
    work: &Work,
    cells: Vec<(String, Cell)>,
) -> Result<Vec<Named>, LabError> {
    let (names, cells): (Vec<String>, Vec<Cell>) = cells.into_iter().unzip();
    Ok(names.into_iter().zip(measure(ctx, work, &cells)?).collect())
}

/// Linear, HDD and SSD with the middle extent size.
fn alone(share: u64, write_cache: bool) -> Vec<(String, Cell)> {
    let drives = [
        Drive::Hybrid("mylinear".to_owned(), share),
        Drive::Hdd,
        Drive::Ssd,
    ];
    let cell = |drive: Drive| {
        let label = drive.label();
        let cell = Cell {
            drive,
            extent: EXTENTS[1],
            flushes: true,
            write_cache,
        };
        (label, cell)
    };
    drives.into_iter().map(cell).collect()
}

/// The policy with each extent size.
fn grid(
    policy: &str,
    share: u64,
    flushes: bool,
    write_cache: bool,
) -> impl Iterator<Item = (String, Cell)> {
    EXTENTS.into_iter().map(move |extent| {
        let drive = Drive::Hybrid(format!("{policy},{PARAMS}"), share);
        let cell = Cell {
            drive,
            extent,
            flushes,
            write_cache,
        };
        (format!("{} KiB", extent >> 10), cell)
    })
}

/// The experiment.
///
/// # Errors
/// A simulation fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let work = work(ctx)?;
    describe(out, &work, 4);
    out.substitutes.push("trace: FIU's online trace is not here; gen:fiu-online has its totals (Table 6.3), the share of requests near the volume's begin that linear's wear in 6.2.4 implies, and the reuse with which 4 KiB extents wear 11 % more, so that this one figure is by construction (see docs/reproduce.md)".to_owned());
    let all = measured(ctx, &work, "greendm", 4)?;
    let unflushed = run_cells(ctx, &work, grid("greendm", 4, false, true).collect())?;
    out.inputs.push("`unflushed`: the same with a FLUSH that costs nothing, to tell what durable moves cost: the thesis' prototype writes its map down now and then (6.1.6); not judged".to_owned());
    let mut unbuffered = alone(4, false);
    unbuffered.retain(|(_, c)| c.drive != Drive::Ssd);
    unbuffered.extend(grid("greendm", 4, true, false));
    let unbuffered = run_cells(ctx, &work, unbuffered)?;
    out.inputs.push("`Write buffer off`: the same with the disk's write buffer off, since the thesis does not say how it was; not judged".to_owned());
    let linear = all[0].1.clone();
    let mut rows = Vec::new();
    for (name, m) in &all {
        let label = if name.ends_with("KiB") {
            format!("greendm,{PARAMS}, {name}")
        } else {
            name.clone()
        };
        let beside = (name != "mylinear").then_some(&*linear);
        rows.push(row(out, &label, name, m, beside));
    }
    for (name, m) in &unflushed {
        rows.push(row(
            out,
            &format!("unflushed, {name}"),
            "",
            m,
            Some(&linear),
        ));
    }
    out.tables.push(Table::new("FIU online", rows));
    let linear = unbuffered[0].1.clone();
    let rows = unbuffered.iter().map(|(name, m)| {
        let beside = (name != "mylinear").then_some(&*linear);
        row(out, name, "", m, beside)
    });
    let rows = rows.collect();
    out.tables
        .push(Table::new("FIU online, write buffer off", rows));
    judge(out, &all);
    Ok(())
}

fn judge(out: &mut Outcome, all: &[Named]) {
    let (linear, hdd, ssd) = (&all[0].1, &all[1].1, &all[2].1);
    let hybrids = &all[3..];
    let of = |f: fn(&Measured) -> f64| ends(hybrids.iter().map(|(_, m)| f(m)));
    common(out, linear, hdd, ssd, hybrids);
    range(
        out,
        "energy",
        hybrids
            .iter()
            .map(|(_, m)| over(m.energy_j, linear.energy_j)),
        "%",
    );
    order(
        out,
        "wear-order",
        &[
            ("GreenDM", of(|m| m.wear_10)),
            ("linear", only(linear.wear_10)),
            ("HDD", only(hdd.wear_10)),
        ],
        "eu",
    );
    range(
        out,
        "wear-10",
        hybrids.iter().map(|(_, m)| over(m.wear_10, linear.wear_10)),
        "%",
    );
    range(
        out,
        "wear-100",
        hybrids
            .iter()
            .map(|(_, m)| over(m.wear_100, linear.wear_100)),
        "%",
    );
    let each = |f: fn(&Measured) -> f64| [2, 1, 0].map(|i: usize| only(f(&hybrids[i].1)));
    for (key, f, unit) in [
        ("es-faster", (|m| m.mb_s) as fn(&Measured) -> f64, "MB/s"),
        ("es-wear", |m| m.wear_10, "eu"),
    ] {
        let [large, middle, small] = each(f);
        order(
            out,
            key,
            &[("64 KiB", large), ("16 KiB", middle), ("4 KiB", small)],
            unit,
        );
    }
    let (low, high) = of(|m| m.spun_down * 100.0);
    let (_, stops) = of(|m| m.start_stops as f64);
    out.judge(
        "spun-down",
        high > 0.0,
        format!("{low:.2} to {high:.2} % of the time, at most {stops:.0} start-stop cycles"),
    );
}
