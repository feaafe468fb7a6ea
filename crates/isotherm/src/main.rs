//! The `isotherm` program. Everything that can be tested alone is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use isotherm_cli::{args, cmd, program};

fn main() -> ExitCode {
    program(args::parse(std::env::args_os()), |cli| {
        cmd::run(&cli.command)
    })
}
