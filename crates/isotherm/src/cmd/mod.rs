//! One module a command, or a few that belong together.

pub mod demo;
pub mod sim;
pub mod tables;
pub mod trace;

use crate::Failure;
use crate::args::Command;

/// Run a command.
///
/// # Errors
/// See [`Failure`]: one line for standard error and the exit code.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Sim(a) => sim::run(a),
        Command::Trace(a) => trace::run(a),
        Command::Policies(a) => tables::policies(a),
        Command::Formats(a) => tables::formats(a),
        Command::Demo(a) => demo::run(a),
    }
}
