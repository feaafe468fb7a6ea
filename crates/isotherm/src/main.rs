//! The `isotherm` program. Everything that can be tested alone is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use isotherm_cli::{Failure, args, cmd};

fn main() -> ExitCode {
    let command = match args::parse(std::env::args_os()) {
        Ok(Some(cli)) => cli.command,
        Ok(None) => return ExitCode::SUCCESS,
        Err(failure) => return fail(&failure),
    };
    if let Err(e) = isotherm_cli::log::start() {
        return fail(&Failure::usage(e));
    }
    match cmd::run(&command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    if *failure != Failure::Bad {
        isotherm_cli::log::note(format_args!("isotherm: {failure}"));
    }
    ExitCode::from(failure.code())
}
