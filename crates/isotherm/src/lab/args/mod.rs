//! The command line of the lab's program, as types.

mod cost;
mod devices;
mod other;
mod plan;
mod reproduce;
mod sim;
mod trace;

use clap::{CommandFactory, Parser, Subcommand};

use crate::args::{Cli, FilesArgs, RecordArgs};
use crate::lab_program::COMMANDS;

pub use cost::{Amount, CapacityArgs, CostArgs, CostCommand, Device, Example, ShelvesArgs};
pub use devices::{DevicesArgs, DevicesCommand, MeasureArgs, ValidateArgs};
pub use other::{GenerateArgs, ReplayEventsArgs};
pub use plan::PlanArgs;
pub use reproduce::ReproduceArgs;
pub use sim::{
    CompareArgs, DemoArgs, ListArgs, PolicyList, SimArgs, SweepArgs, TierArg, TimeMode, WorldArgs,
};
pub use trace::{
    TraceArgs, TraceCommand, TraceConvertArgs, TraceCopyArgs, TraceCutArgs, TraceInfoArgs,
    TraceMergeArgs, TraceOptions, TraceSortArgs, Unit,
};

/// The lab of `isotherm`; all its commands can be called as `isotherm COMMAND`.
#[derive(Debug, Parser)]
#[command(
    name = "isotherm",
    version,
    subcommand_required = true,
    arg_required_else_help = false,
    max_term_width = 100
)]
pub struct LabCli {
    /// The command.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Replay a recorded run and show whether its decisions differ
    ReplayEvents(ReplayEventsArgs),
    /// Write man pages and completions for shells
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// Replay a trace under a policy
    Sim(SimArgs),
    /// Compare policies with each other, with one device alone and with the best possible
    Compare(CompareArgs),
    /// Say how much flash in front of a disk is worth its money
    Plan(PlanArgs),
    /// Run a grid of simulations on all cores
    Sweep(SweepArgs),
    /// Reproduce figures and tables of the papers, with verdicts
    Reproduce(ReproduceArgs),
    /// Inspect and convert trace files
    Trace(TraceArgs),
    /// List device models, or compare them with published figures
    Devices(DevicesArgs),
    /// Compute the cost of a system: purchase, energy, power, wear, service
    Cost(CostArgs),
    /// List trace formats
    #[command(after_help = "Example:\n  isotherm formats --json")]
    Formats(ListArgs),
    /// Show a volume, a workload and its figures in one command
    Demo(DemoArgs),
    /// Record the requests of a served volume as a trace
    #[command(hide = true)]
    Record(RecordArgs),
    /// `files record`
    #[command(hide = true)]
    Files(FilesArgs),
}

/// The command line of both programs, for the manual and completions.
pub fn whole() -> clap::Command {
    let lab = LabCli::command();
    let of_lab = |name: &str| COMMANDS.contains(&name).then(|| lab.find_subcommand(name));
    let shown = Cli::command();
    // Each is put in its place anew, because clap moves a changed one to the end.
    let names: Vec<String> = (shown.get_subcommands())
        .map(|c| c.get_name().to_owned())
        .collect();
    names.into_iter().fold(shown, |all, name| {
        let own = of_lab(&name).flatten().cloned();
        all.mut_subcommand(name, |c| own.unwrap_or(c))
    })
}
