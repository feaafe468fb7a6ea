//! Table I: the two devices.

use isotherm_core::Nanos;
use isotherm_models::measure::{Work, run as drive};
use isotherm_models::{FlashState, ModelOp, Options, preset};

use super::grid::{FAST, SLOW};
use crate::Ctx;
use crate::greendm::judge::over;
use crate::outcome::{Cell, Outcome, Row, Table};
use isotherm_lab::LabError;

/// "Models within 10 %".
const NEAR: f64 = 10.0;
/// Partitions of Loris V-A.
const PARTITION: u64 = 8 << 30;
/// Operations per figure, enough for an accuracy of a percent.
const OPERATIONS: u64 = 4000;

/// A figure of the model: sequential in 128 KiB, random in 4 KiB over `span` bytes (0: the whole device). Random writes are measured with
/// the disk's write buffer off. With it on they would be as fast as at a large queue depth, but in the table they are slower than reads.
fn measured(name: &str, op: ModelOp, random: bool, depth: u32, span: u64) -> Result<f64, LabError> {
    let buffered = !(random && op == ModelOp::Write && name == SLOW);
    let options = Options {
        flash: FlashState::Fresh,
        write_cache: (!buffered).then_some(false),
        ..Options::default()
    };
    let mut model = preset(name, &options)?;
    let work = Work {
        op,
        len: if random { 4 << 10 } else { 128 << 10 },
        random,
        span: if span == 0 { model.capacity() } else { span },
        depth,
        // A sequential write must be many times larger than the buffer.
        count: if random { OPERATIONS } else { 3 * OPERATIONS },
        seed: 7,
    };
    let (found, _) = drive(model.as_mut(), Nanos(0), &work);
    Ok(if random { found.iops } else { found.mb_s })
}

/// The experiment.
///
/// # Errors
/// A model cannot be made.
pub fn run(_: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    out.inputs.push("models, not devices: 128 KiB sequential from the first byte on, uniform random 4 KiB over the whole device, 1 in flight on the disk, 32 on flash; random writes of the disk with its write buffer off".to_owned());
    out.substitutes.push("the paper does not say how it measured; the disk's seek curve was scaled until its 112 random reads a second come out over the whole disk, flash has its figures from this table, so that the table is by construction".to_owned());
    let mut rows = Vec::new();
    for (name, depth, says) in [(SLOW, 1, "hdd"), (FAST, 32, "ssd")] {
        let mut cells = Vec::new();
        for (random, unit, what) in [(false, "MB/s", "mb-s"), (true, "IOPS", "iops")] {
            let key = format!("{says}-{what}");
            let mut far: f64 = 0.0;
            let mut why = Vec::new();
            // The seek curve of the disk was fitted to its random reads only, so the writes are a claim of their own.
            let apart = says == "hdd" && random;
            for (op, verb) in [(ModelOp::Read, "read"), (ModelOp::Write, "write")] {
                let ours = measured(name, op, random, depth, 0)?;
                let printed = out.printed(&format!("{key}-{verb}"));
                let theirs = printed.as_ref().map_or(f64::NAN, |p| p.low);
                let off = over(ours, theirs);
                let off = if off.is_nan() {
                    f64::INFINITY
                } else {
                    off.abs()
                };
                let text = format!("{verb} {ours:.0} instead of {theirs:.0} {unit}");
                if apart && op == ModelOp::Write {
                    out.judge("hdd-iops-writes", off <= NEAR, text);
                } else {
                    far = far.max(off);
                    why.push(text);
                }
                let label = format!("{verb}, {}", if random { "random" } else { "sequential" });
                cells.push(Cell::new(&label, unit, ours).beside(printed));
            }
            out.judge(&key, far <= NEAR, why.join(", "));
        }
        rows.push(Row::new(name, cells));
    }
    let mut cells = Vec::new();
    for random in [false, true] {
        for (op, verb) in [(ModelOp::Read, "read"), (ModelOp::Write, "write")] {
            let ours = measured(SLOW, op, random, 1, PARTITION)?;
            let label = format!("{verb}, {}", if random { "random" } else { "sequential" });
            cells.push(Cell::new(
                &label,
                if random { "IOPS" } else { "MB/s" },
                ours,
            ));
        }
    }
    rows.push(Row::new(format!("{SLOW}, its first 8 GB only"), cells));
    out.tables.push(Table::new("Table I: devices", rows));
    Ok(())
}
