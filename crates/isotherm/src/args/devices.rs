//! Arguments of `devices`.

use clap::{Args, Subcommand};

use crate::json::JsonArg;

/// `isotherm devices`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  isotherm devices --json\n  isotherm devices validate wd5000aaks smr-8tb"
)]
pub struct DevicesArgs {
    /// What to do instead of listing.
    #[command(subcommand)]
    pub command: Option<DevicesCommand>,
    /// Where the list goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// What can be done with device models.
#[derive(Debug, Subcommand)]
pub enum DevicesCommand {
    /// Run the makers' and papers' own tests on models: published beside modelled figures
    Validate(ValidateArgs),
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
