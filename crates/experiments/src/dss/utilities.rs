//! dss-fs: find, tar and fsck over the image that the file server's run leaves.

use isotherm_traces::generate::Mix;

use super::bench::{CONFIGURATIONS, FIND, FSCK, TAR, bench, inputs, phase, three};
use super::show::{hits, syncer};
use crate::greendm::judge::range;
use crate::outcome::{Cell, Row, Table};
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;

/// See the module.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let bench = bench(ctx, Mix::File, super::FILE_SCALE)?;
    inputs(out, &bench);
    out.substitutes.push("find reads every directory; tar archives every tenth directory onto the same file system (the paper: one subdirectory, size not given); fsck reads bitmaps, inode tables up to the last inode in use, indirect blocks and directories unclassified; the page cache is emptied before each".to_owned());
    let reports = three(ctx, &bench)?;
    let mut of = Vec::new();
    for (name, at) in [("find", FIND), ("tar", TAR), ("fsck", FSCK)] {
        let phases: Vec<_> = reports.iter().map(|r| phase(r, at)).collect();
        let row = |(configuration, p): (&&str, &isotherm_lab::sim::Phase)| {
            let printed = |what: &str| out.printed(&format!("{name} {what} {configuration}"));
            Row::new(
                *configuration,
                vec![
                    Cell::new("time / scale", "s", p.elapsed_s / bench.scale)
                        .beside(printed("seconds")),
                    Cell::new("read hits", "%", hits(p)).beside(printed("hits")),
                    Cell::new("syncer", "%", syncer(p)).beside(printed("syncer")),
                    Cell::new("read", "MB", p.all().read as f64 / 1e6),
                    Cell::new("written", "MB", p.all().written as f64 / 1e6),
                ],
            )
        };
        let rows = CONFIGURATIONS.iter().zip(&phases).map(row).collect();
        out.tables.push(Table::new(name, rows));
        range(out, name, [phases[1].elapsed_s / phases[2].elapsed_s], "x");
        of.push(phases);
    }
    let (find, tar) = (&of[0], &of[1]);
    let (a, b) = (hits(&find[1]), hits(&find[2]));
    let why = format!("LRU {a:.1} %, LRU-S {b:.1} %");
    out.judge("find-hits", b > 98.0 && a < b, why);
    let (a, b) = (hits(&tar[1]), hits(&tar[2]));
    out.judge("tar-hits", b > a, format!("LRU {a:.1} %, LRU-S {b:.1} %"));
    let (a, b) = (syncer(&tar[1]), syncer(&tar[2]));
    let why =
        format!("LRU {a:.1} %, LRU-S {b:.1} % (holds: LRU 33 to 67 %, LRU-S less than half of it)");
    out.judge("tar-syncer", (33.0..=67.0).contains(&a) && b < a / 2.0, why);
    super::recorded::FILE.add(ctx, out, 4)
}
