//! Arguments of `isotherm reproduce`.

use std::path::PathBuf;

use clap::Args;

use crate::json::JsonArg;
use crate::lab::pages::PageArgs;

/// `isotherm reproduce`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm reproduce list\n  isotherm reproduce greendm-7.2\n  \
    isotherm reproduce greendm-6.5 greendm-6.6 --scale 1 --json=out.json\n  isotherm reproduce hro-6 --seeds 5\n  \
    isotherm reproduce hro-6 --recording mail=mail-1.parquet --recording mail=mail-2.parquet\n  isotherm reproduce all"
)]
pub struct ReproduceArgs {
    /// Experiments (greendm-6.5 or a figure of it, greendm-6.5a), `all` of this build, or `list`
    #[arg(value_name = "ID", default_value = "list")]
    pub ids: Vec<String>,
    /// Scale of sizes and counts of simulated workloads; 1 is the papers' size [default: each experiment's own, see list]
    #[arg(long, value_name = "S", value_parser = scale)]
    pub scale: Option<f64>,
    /// Seed of the generated workloads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Run with N seeds, from --seed on, and judge claims over all of them; verdicts need 5 or more
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub seeds: u16,
    /// Judge on a recording of a mount of files (`isotherm files record`) in place of the generators. NAME is mail, file, web or zipf for Loris
    /// (figures 2 to 14) and mail, office or research for HRO (figures 6 to 9). Repeat it for each load, and with further recordings of
    /// each load in place of further seeds
    #[arg(long, value_name = "NAME=FILE", value_parser = recording, conflicts_with = "seeds")]
    pub recording: Vec<(String, PathBuf)>,
    /// Pages and pictures.
    #[command(flatten)]
    pub page: PageArgs,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

const LOADS: [&str; 6] = ["mail", "file", "web", "zipf", "office", "research"];

fn recording(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if LOADS.contains(&name) && !file.is_empty() => {
            Ok((name.to_owned(), file.into()))
        }
        _ => Err(format!(
            "NAME=FILE is needed, as in --recording mail=mail.parquet; NAME is one of {}",
            LOADS.join(", ")
        )),
    }
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.001..=10.0).contains(&s) => Ok(s),
        _ => Err("a number from 0.001 to 10 is needed, as in --scale 0.25".to_owned()),
    }
}
