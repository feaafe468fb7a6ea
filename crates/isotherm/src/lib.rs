//! The commands `isotherm` and `isotherm-lab`: their command lines and their output.
//!
//! ```text
//!  argv ─► args (clap) ─► cmd::* ─► live · files · core ─► json / text
//!            │              │
//!            │              └► isotherm_control: one line of JSON each way, over the socket beside the volume
//!            └► lab_program ─► isotherm-lab: lab::args ─► lab::* ─► lab · traces · models · report
//! ```
//!
//! Guarantee: a command that fails leaves nothing half-made, gives the reason in one line, and exits with 1, or with 2 after wrong usage.
#![forbid(unsafe_code)]

pub mod answers;
pub mod args;
pub mod cmd;
mod events_file;
mod files_metrics;
pub mod frame;
pub mod human;
pub mod json;
#[cfg(feature = "lab")]
pub mod lab;
pub mod lab_program;
pub mod log;
pub mod member;
pub mod metrics;
pub mod notify;
pub mod overview;
mod patience;
mod programs;
pub mod progress;
mod smart;
mod store;
pub mod table;
pub mod view;

pub use isotherm_control as control;
use isotherm_control::{classes, failure, figures, place, tap};

pub use isotherm_control::Failure;
pub use isotherm_words::{policy_spec, size};

/// What both programs do: parse, log, run. The exit code is the failure's.
pub fn program<C>(
    parsed: Result<Option<C>, Failure>,
    run: impl FnOnce(&C) -> Result<(), Failure>,
) -> std::process::ExitCode {
    let done = match parsed {
        Ok(Some(cli)) => (log::start().map_err(Failure::usage)).and_then(|()| run(&cli)),
        Ok(None) => Ok(()),
        Err(failure) => Err(failure),
    };
    let Err(failure) = done else {
        return std::process::ExitCode::SUCCESS;
    };
    if failure != Failure::Bad {
        log::note(format_args!("isotherm: {failure}"));
    }
    std::process::ExitCode::from(failure.code())
}
