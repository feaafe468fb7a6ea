//! hro-t2: the record that HRO keeps for each file.

use super::bench::{bench, inputs, substitutes, systems};
use crate::outcome::{Cell, Row, Table};
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;

/// Table II: the fields of a hash entry, with their width in bits.
const FIELDS: [(&str, u32); 9] = [
    ("device", 8),
    ("inode", 48),
    ("count", 32),
    ("size", 64),
    ("frequency", 32),
    ("type", 8),
    ("time", 32),
    ("offset", 64),
    ("end", 64),
];
/// The number of files in the paper's example.
const FILES: f64 = 1e6;

/// See the module.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let bits: u32 = FIELDS.iter().map(|f| f.1).sum();
    let bytes = f64::from(bits) / 8.0;
    let bench = bench(ctx, "mail")?;
    let systems = systems(ctx, &bench)?;
    inputs(out, &bench, &systems);
    substitutes(out);
    let cells = |entry: f64, beside: bool| {
        let printed = |key: &str| beside.then(|| out.printed(key)).flatten();
        vec![
            Cell::new("an entry", "bytes", entry).beside(printed("entry")),
            Cell::new("a million", "MB", entry * FILES / 1e6).beside(printed("million")),
        ]
    };
    let ours = systems
        .last()
        .map_or(f64::NAN, |s| s.report.bytes_per_extent);
    out.tables.push(Table::new(
        "Table II: the sum of the fields; ours for an extent, map and statistics together",
        vec![
            Row::new("Table II", cells(bytes, true)),
            Row::new("hro here, an extent", cells(ours, false)),
        ],
    ));
    let why = format!(
        "the fields of Table II are {bits} bits, {bytes} bytes: 50 leaves {} for the hash table's links",
        50.0 - bytes
    );
    out.judge("fifty", bytes <= 50.0, why);
    let mb = 50.0 * FILES / 1e6;
    out.judge(
        "million",
        (mb - 50.0).abs() < 1e-9,
        format!("50 bytes for each of 10^6 files are {mb} MB"),
    );
    Ok(())
}
