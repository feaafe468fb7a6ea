//! The start of the lab's program, `isotherm-lab`, which carries out the commands that no volume and no mount needs.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::{Failure, programs};

/// The program's name.
pub const PROGRAM: &str = "isotherm-lab";
/// The variable in which `isotherm` says its version to the lab's program.
pub const STARTED_BY: &str = "ISOTHERM_STARTED_BY";
/// This version, which both programs must have.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commands that it has alone. Of `record` and `files record` it has the traces; `isotherm` reads their words first.
pub const COMMANDS: [&str; 12] = [
    "compare",
    "cost",
    "demo",
    "devices",
    "formats",
    "generate",
    "plan",
    "replay-events",
    "reproduce",
    "sim",
    "sweep",
    "trace",
];

/// Whether a command line, the program's name first, is for the lab's program: one of its commands, or the help of one.
pub fn is_for_it(words: &[OsString]) -> bool {
    let word = |n: usize| words.get(n).and_then(|w| w.to_str()).unwrap_or_default();
    let at = if word(1) == "help" { 2 } else { 1 };
    COMMANDS.contains(&word(at))
}

/// Puts the lab's program, with the same words, in the place of this one. Returns only if that fails.
pub fn start() -> Failure {
    let program = match programs::installed(PROGRAM) {
        Ok(program) => program,
        Err(e) => return Failure::failed(format!("this command is one of the lab's, and {e}")),
    };
    let e = Command::new(&program)
        .arg0(OsStr::new("isotherm"))
        .args(std::env::args_os().skip(1))
        .env(STARTED_BY, VERSION)
        .exec();
    Failure::file(&program, "start", &e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_says_which_program_it_is() {
        let of = |line: &str| is_for_it(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(of("isotherm sim t") && of("isotherm help sim") && of("isotherm trace --help"));
        assert!(!of("isotherm status sim") && !of("isotherm help status") && !of("isotherm"));
    }

    /// The list, what `isotherm --help` shows, and what the other program has are the same.
    #[test]
    #[cfg(feature = "lab")]
    fn both_programs_name_the_same_commands() {
        use clap::CommandFactory;
        let (here, there) = (
            crate::args::Cli::command(),
            crate::lab::args::LabCli::command(),
        );
        let mut shared = Vec::new();
        let not_here = ["files", "record"];
        for c in (there.get_subcommands()).filter(|c| !not_here.contains(&c.get_name())) {
            let shown = (here.find_subcommand(c.get_name())).expect("a command of isotherm");
            let about = |c: &clap::Command| c.get_about().map(ToString::to_string);
            assert_eq!(about(shown), about(c), "{}", c.get_name());
            shared.push(c.get_name().to_owned());
        }
        shared.sort();
        assert_eq!(shared, COMMANDS);
    }
}
