//! The lab's program, `isotherm-lab`: simulation, comparison, costs, traces, devices and the demo. One module per command, or per group
//! of related commands.
//!
//! `isotherm` starts it for these commands ([`crate::lab_program`]), so its users see one program. A service needs none of this, nor the
//! libraries below it (Parquet, pictures).

pub mod args;
mod compare;
mod cost;
pub mod demo;
mod devices;
mod files_record;
mod formats;
mod generate;
mod measure;
mod pages;
mod pipe;
mod plan;
mod progress;
mod record;
pub mod reference;
mod replay_events;
mod reproduce;
mod sim;
mod sim_text;
mod sorted_trace;
mod sweep;
mod trace;
mod trace_copy;
mod trace_plot;

use crate::Failure;
use crate::args::FilesCommand;
use crate::lab_program::{STARTED_BY, VERSION};
use args::LabCommand;

/// Runs a command.
///
/// # Errors
/// See [`Failure`]: one line for standard error and the exit code.
pub fn run(command: &LabCommand) -> Result<(), Failure> {
    if let Some(other) = std::env::var_os(STARTED_BY).filter(|v| v != VERSION) {
        let other = other.to_string_lossy();
        return Err(Failure::failed(format!(
            "isotherm is version {other} and isotherm-lab is {VERSION}: install both from one version"
        )));
    }
    match command {
        LabCommand::ReplayEvents(a) => replay_events::run(a),
        LabCommand::Generate(a) => generate::run(a),
        LabCommand::Devices(a) => devices::run(a),
        LabCommand::Cost(a) => cost::run(a),
        LabCommand::Sim(a) => sim::run(a),
        LabCommand::Compare(a) => compare::run(a),
        LabCommand::Plan(a) => plan::run(a),
        LabCommand::Sweep(a) => sweep::run(a),
        LabCommand::Reproduce(a) => reproduce::run(a),
        LabCommand::Trace(a) => trace::run(a),
        LabCommand::Formats(a) => formats::run(a),
        LabCommand::Demo(a) => demo::run(a),
        LabCommand::Record(a) if !a.events => record::run(a),
        LabCommand::Files(a) => match &a.command {
            FilesCommand::Record(a) => files_record::run(a),
            _ => Err(of_the_other("files")),
        },
        LabCommand::Record(_) => Err(of_the_other("record --events")),
    }
}

fn of_the_other(command: &str) -> Failure {
    Failure::usage(format!("call it as `isotherm {command}`"))
}
