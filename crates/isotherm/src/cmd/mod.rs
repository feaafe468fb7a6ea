//! One module per command, or per group of related commands.

mod adopt;
pub mod ask;
pub mod assemble;
mod cache;
pub mod check;
pub mod classes;
pub mod classify;
pub mod clean;
pub mod create;
mod doctor;
mod export;
pub mod files;
pub(crate) mod files_client;
mod files_disk;
pub mod find;
pub mod fstab;
pub mod grow;
pub mod list;
pub mod policies;
pub(crate) mod record_events;
pub(crate) mod recording;
pub mod release;
pub mod replace;
pub mod serve;
pub mod stats;
pub mod top;
pub mod warm;
pub mod web;
mod what_if;

use std::path::Path;

use isotherm_answers::Noted;
use isotherm_live::volume::description;

use crate::Failure;
use crate::args::Command;
use crate::control::client::{Client, connect, served};
use crate::lab_program;

/// The server of a volume; `None` if it is not served. Refuses a volume that does not exist.
fn server_of(volume: &Path) -> Result<Option<Client>, Failure> {
    if !description(volume).exists() {
        served(volume)?;
    }
    connect(volume)
}

/// Prints the messages for people, and returns the answer.
fn told<T>(answer: Noted<T>) -> T {
    for note in &answer.notes {
        crate::log::note(format_args!("isotherm: {note}"));
    }
    answer.what
}

/// Asks at the terminal whether to go on with `what`, unless `yes` says so.
///
/// # Errors
/// The answer is no, or there is no terminal.
fn confirm(what: &str, yes: bool) -> Result<(), Failure> {
    use std::io::{BufRead, IsTerminal, Write};
    if yes {
        return Ok(());
    }
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(Failure::usage(format!(
            "{what}: repeat the command with --yes"
        )));
    }
    let mut answer = String::new();
    let mut err = std::io::stderr();
    let asked = write!(err, "{what}. Go on? [yes/no] ").and_then(|()| err.flush());
    let read = asked.and_then(|()| input.lock().read_line(&mut answer));
    if read.is_ok() && answer.trim() == "yes" {
        return Ok(());
    }
    Err(Failure::failed(String::from("nothing was done")))
}

/// Refuses a volume that does not exist, or that is being served.
fn must_not_be_served(volume: &Path) -> Result<(), Failure> {
    if server_of(volume)?.is_some() {
        let v = volume.display();
        return Err(Failure::failed(format!(
            "{v}: is being served: stop it first (`isotherm stop {v}`)"
        )));
    }
    Ok(())
}

/// Runs a command.
///
/// # Errors
/// See [`Failure`]: one line for standard error and the exit code.
pub fn run(command: &Command) -> Result<(), Failure> {
    let offline = match command {
        Command::Release(a) => Some(&a.of.volume),
        Command::Check(a) => Some(&a.of.volume),
        Command::Grow(a) => Some(&a.of.volume),
        Command::Replace(a) => Some(&a.volume),
        Command::Cache(a) => Some(&a.volume),
        _ => None,
    };
    // If the volume is not served, its store is, until the command has ended.
    let idle = offline.filter(|v| matches!(connect(v), Ok(None)));
    let _store = idle.map(|v| crate::store::start(v)).transpose()?;
    match command {
        Command::Create(a) => create::run(a),
        Command::Serve(a) => serve::run(a),
        Command::Stop(a) => ask::stop(a),
        Command::Status(a) => ask::status(a),
        Command::List(a) => list::run(a),
        Command::Stats(a) => stats::stats(a),
        Command::Top(a) => top::run(a),
        Command::Web(a) => web::run(a),
        Command::Why(a) => stats::why(a),
        Command::WhatIf(a) => what_if::run(a),
        Command::Set(a) => ask::set(a),
        Command::Classes(a) => classes::run(&a.command),
        Command::Classify(a) => classify::run(a),
        Command::Check(a) => check::run(a),
        Command::Grow(a) => grow::run(a),
        Command::Adopt(a) => adopt::run(a),
        Command::Release(a) => release::run(a),
        Command::Replace(a) => replace::run(a),
        Command::Cache(a) => cache::run(a),
        Command::Clean(a) => clean::run(a),
        Command::Warm(a) => warm::run(a),
        Command::Doctor(a) => doctor::run(a),
        Command::Record(a) if a.events => record_events::run(a),
        Command::Find(a) => find::run(a),
        Command::Assemble(a) => assemble::run(a),
        Command::Fstab(a) => fstab::run(a),
        Command::Export(a) => export::run(a),
        Command::MountHelper(a) => fstab::mount(a),
        Command::Policies(a) => policies::run(a),
        Command::Mount(a) => files::run_mount(a),
        Command::Files(a) => files::run(&a.command),
        // The rest is for the other program, which reads all words itself.
        Command::Record(_)
        | Command::ReplayEvents(_)
        | Command::Generate(_)
        | Command::Devices(_)
        | Command::Cost(_)
        | Command::Sim(_)
        | Command::Compare(_)
        | Command::Plan(_)
        | Command::Sweep(_)
        | Command::Reproduce(_)
        | Command::Trace(_)
        | Command::Formats(_)
        | Command::Demo(_) => Err(lab_program::start()),
    }
}
