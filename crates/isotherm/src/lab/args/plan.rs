//! Arguments of `isotherm plan`.

use std::path::PathBuf;

use clap::Args;

use super::TraceOptions;
use crate::json::JsonArg;
use crate::lab::pages::PageArgs;
use crate::policy_spec::PolicySpec;
use crate::size::{self, Size};

/// `isotherm plan`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm record v --out day.parquet --seconds 86400 && isotherm plan day.parquet --html plan.html\n  \
    isotherm plan web.spc.zst --fast nvme-tlc --slow exos-18tb --growth 20%/y --electricity 0.25\n  \
    isotherm plan web.spc.zst --data 4T --price-fast 150 --price-slow 280 --json=plan.json"
)]
pub struct PlanArgs {
    /// The trace: a recording of a volume or of any disk, or gen:NAME,KEY=VALUE,...; it needs times
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Model of the flash
    #[arg(long, value_name = "PRESET", default_value = isotherm_lab::plan::FAST)]
    pub fast: String,
    /// Model of the disk
    #[arg(long, value_name = "PRESET", default_value = isotherm_lab::plan::SLOW)]
    pub slow: String,
    /// Price of a whole flash drive in dollars, instead of its sheet's
    #[arg(long, value_name = "USD")]
    pub price_fast: Option<f64>,
    /// Price of a whole disk in dollars, instead of its sheet's
    #[arg(long, value_name = "USD")]
    pub price_slow: Option<f64>,
    /// Sizes of the flash of the hybrids, in bytes or as shares of the data that the trace touches
    #[arg(
        long,
        value_name = "SIZE,...",
        value_delimiter = ',',
        default_value = "1%,2%,5%,10%,20%"
    )]
    pub fast_size: Vec<Size>,
    /// Data that the volume must hold today [default: up to the last byte that the trace touches]
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    pub data: Option<u64>,
    /// Growth of data and work a year: drives are bought for the data at the end, and wear follows the work
    #[arg(long, value_name = "PERCENT/y", default_value = "0%/y", value_parser = growth, allow_hyphen_values = true)]
    pub growth: f64,
    /// Years for which it is bought
    #[arg(long, default_value_t = 5.0)]
    pub years: f64,
    /// Price of electricity, dollars per kWh, cooling included
    #[arg(long, value_name = "USD", default_value_t = 0.30)]
    pub electricity: f64,
    /// Policy of the hybrids
    #[arg(long, value_name = "NAME,K=V", default_value = isotherm_core::policy::DEFAULT)]
    pub policy: PolicySpec,
    /// Extent size, a power of two from 4K to 4M
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = size::extent)]
    pub extent: u32,
    /// Stop after N requests
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// How to read the trace.
    #[command(flatten)]
    pub read: TraceOptions,
    /// Pages and pictures.
    #[command(flatten)]
    pub page: PageArgs,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `20%/y`, `20%` or `0.2`.
fn growth(text: &str) -> Result<f64, String> {
    let bare = text.trim().trim_end_matches("/y").trim_end_matches("/a");
    let (number, part) = match bare.strip_suffix('%') {
        Some(n) => (n, 0.01),
        None => (bare, 1.0),
    };
    let value: f64 = number
        .trim()
        .parse()
        .map_err(|_| format!("`{text}` is no growth: give it as 20%/y"))?;
    if !(-0.5..=10.0).contains(&(value * part)) {
        return Err(format!("`{text}`: must be within -50%/y and 1000%/y"));
    }
    Ok(value * part)
}

#[cfg(test)]
mod tests {
    use super::growth;

    #[test]
    fn growth_is_a_share_a_year() {
        for (text, want) in [("20%/y", 0.2), ("20%", 0.2), ("0.2", 0.2), ("-5%/y", -0.05)] {
            let got = growth(text).expect(text);
            assert!((got - want).abs() < 1e-12, "{text}: {got}");
        }
        for text in ["", "x%", "20 a year", "-60%", "2000%/y", "nan"] {
            assert!(growth(text).is_err(), "{text}");
        }
    }
}
