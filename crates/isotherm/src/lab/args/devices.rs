//! Arguments of `devices`.

use clap::{Args, Subcommand};

use crate::json::JsonArg;

/// `isotherm devices`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  isotherm devices --json\n  isotherm devices validate wd5000aaks smr-8tb\n  isotherm devices measure /dev/sdb --out sdb.toml"
)]
pub struct DevicesArgs {
    /// The command; without one, the models are listed.
    #[command(subcommand)]
    pub command: Option<DevicesCommand>,
    /// Where the list goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// Commands about device models.
#[derive(Debug, Subcommand)]
pub enum DevicesCommand {
    /// Print a model's data sheet, to copy and change for a device of your own
    Show(ShowArgs),
    /// Compare the models with figures that manufacturers and papers published
    Validate(ValidateArgs),
    /// Measure a device, and write a data sheet for it
    Measure(MeasureArgs),
}

/// `isotherm devices show`.
#[derive(Debug, Args)]
#[command(
    after_help = "A sheet of your own must have a name that ends in .toml; it then stands wherever a preset does (--fast mine.toml).\n\n\
    Examples:\n  isotherm devices show nvme-tlc\n  isotherm devices show wd5000aaks > mine.toml"
)]
pub struct ShowArgs {
    /// The model, or a sheet of your own
    #[arg(value_name = "PRESET")]
    pub preset: String,
}

/// `isotherm devices measure`.
#[derive(Debug, Args)]
#[command(
    after_help = "Reads only, unless --destructive says that all data on the device may be lost. The sheet can stand for a preset\n\
    (--fast mine.toml, paced members); its comments say how far a model by it is from each measured figure.\n\n\
    Examples:\n  isotherm devices measure /dev/sdb --out sdb.toml\n  isotherm devices measure /dev/nvme1n1 --destructive --seconds 60"
)]
pub struct MeasureArgs {
    /// The device or file
    #[arg(value_name = "PATH")]
    pub path: std::path::PathBuf,
    /// Also measure writes: all data on the device is lost
    #[arg(long)]
    pub destructive: bool,
    /// Seconds for all reads, and again for all writes, 0.5 to 3600
    #[arg(long, value_name = "S", default_value_t = 12.0, value_parser = seconds)]
    pub seconds: f64,
    /// Name of the device in the sheet
    #[arg(long, value_name = "NAME", default_value = "measured")]
    pub name: String,
    /// The data sheet to write
    #[arg(long, value_name = "FILE", default_value = "measured.toml")]
    pub out: std::path::PathBuf,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.5..=3600.0).contains(&s) => Ok(s),
        _ => Err("a number from 0.5 to 3600 is needed".to_owned()),
    }
}

/// `isotherm devices validate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Fails (exit code 1) if a modelled figure is more than 10 % off.\n\nExamples:\n  isotherm devices validate\n  isotherm devices validate smr-8tb --json"
)]
pub struct ValidateArgs {
    /// Models to try [default: all]
    #[arg(value_name = "PRESET")]
    pub presets: Vec<String>,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}
