//! dss-tco: the cost of drives for the same work. The paper gives the result of an analysis and not the analysis itself.

use isotherm_traces::generate::Mix;

use super::bench::{CONFIGURATIONS, TRANSACTIONS, bench, inputs, phase, three};
use crate::greendm::judge::range;
use crate::outcome::{Cell, Row, Table};
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;

/// Prices in dollars of a hard drive and of a 32 GB X25-E when the paper was written.
const HDD_USD: f64 = 75.0;
/// See [`HDD_USD`].
const SSD_USD: f64 = 400.0;
/// The cache's share of the SSD: 18 of 32 GB (5.2).
const SSD_USED: f64 = 18.0 / 32.0;
/// Drives of the array (5.1).
const DRIVES: f64 = 5.0;

/// See the module.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let bench = bench(ctx, Mix::File, super::FILE_SCALE)?;
    inputs(out, &bench);
    out.substitutes.push(format!("the paper's analysis is not printed: here drives are added until the file server's work is done in the time that one array without cache takes; {DRIVES} drives of ${HDD_USD} an array, an SSD of ${SSD_USD} of which the cache takes 18 of 32 GB (typical prices of 2010)"));
    let reports = three(ctx, &bench)?;
    let seconds: Vec<f64> = reports
        .iter()
        .map(|r| phase(r, TRANSACTIONS).elapsed_s)
        .collect();
    let array = DRIVES * HDD_USD;
    let cost = |i: usize| {
        let cache = if i == 0 { 0.0 } else { SSD_USD * SSD_USED };
        (array + cache) * seconds[i] / seconds[0]
    };
    let row = |(i, name): (usize, &&str)| {
        Row::new(
            *name,
            vec![
                Cell::new("arrays for the same work", "", seconds[i] / seconds[0]),
                Cell::new("drives and SSDs", "$", cost(i)),
            ],
        )
    };
    let rows = CONFIGURATIONS.iter().enumerate().map(row).collect();
    out.tables.push(Table::new("cost of the same work", rows));
    range(out, "half", [(1.0 - cost(2) / cost(1)) * 100.0], "%");
    Ok(())
}
