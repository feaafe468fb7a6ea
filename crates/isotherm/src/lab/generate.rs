//! `isotherm generate`: man pages, completions and the reference page, from the types that parse the command line.

use std::fs;
use std::path::Path;

use clap::Command;
use clap_complete::{Shell, generate_to};

use super::args::{GenerateArgs, whole};
use crate::Failure;

/// Writes all of them.
///
/// # Errors
/// The directory cannot be written.
pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    let (man, completions) = (args.dir.join("man"), args.dir.join("completions"));
    for dir in [&man, &completions] {
        fs::create_dir_all(dir).map_err(|e| Failure::file(dir, "make it", &e))?;
    }
    let mut root = whole();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut root, "isotherm", &completions)
            .map_err(|e| Failure::file(&completions, "write", &e))?;
    }
    root.build();
    page(&root, "isotherm", &man)?;
    let reference = args.dir.join("reference.md");
    crate::json::to_file(&reference, super::reference::page())
}

/// One page per command: `isotherm-classes-set.1`.
fn page(command: &Command, name: &str, dir: &Path) -> Result<(), Failure> {
    let file = dir.join(format!("{name}.1"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .render(&mut text)
        .map_err(|e| Failure::file(&file, "write", &e))?;
    crate::json::to_file(&file, text)?;
    for sub in command
        .get_subcommands()
        .filter(|s| s.get_name() != "help" && !s.is_hide_set())
    {
        page(sub, &format!("{name}-{}", sub.get_name()), dir)?;
    }
    Ok(())
}
