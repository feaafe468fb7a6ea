//! Arguments of small commands of the lab.

use std::path::PathBuf;

use clap::Args;

use crate::json::JsonArg;

/// `isotherm replay-events`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  isotherm replay-events run.events --json")]
pub struct ReplayEventsArgs {
    /// The file, recorded by `record --events` or `serve --events`
    pub file: PathBuf,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm generate`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  isotherm generate target/generated")]
pub struct GenerateArgs {
    /// Directory: man pages go to DIR/man, completions of bash, zsh and fish to DIR/completions, the reference to DIR/reference.md
    pub dir: PathBuf,
}
