//! The `isotherm-lab` program. Everything that can be tested alone is in the library.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

use isotherm_cli::lab::{args::LabCli, run};
use isotherm_cli::{args, program};

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    program(args::parse_as(&words), |cli: &LabCli| run(&cli.command))
}
