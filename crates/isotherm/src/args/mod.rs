//! The command line, as types.

mod classes;
mod classify;
mod files;
mod life;
mod system;
mod volume;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Parser, Subcommand};

use crate::Failure;
use crate::json::join_two_words;
use crate::lab_program;

pub use classes::{
    ClassesArgs, ClassesCommand, ClassesExportArgs, ClassesImportArgs, ClassesSetArgs, ClassesWhat,
};
pub use classify::ClassifyArgs;
pub use files::{
    AddArgs, BalanceArgs, DiskCommand, DiskOrder, DrainArgs, FilesArgs, FilesCheckArgs,
    FilesCommand, FilesRecordArgs, FilesStatusArgs, MigrateArgs, MountArgs, PassthroughArg,
    PathArgs, PinArgs, PolicyArgs,
};
pub use life::{
    AdoptArgs, CacheAddArgs, CacheArgs, CacheCommand, CacheRemoveArgs, CacheSpareArgs, CleanArgs,
    DoctorArgs, ReleaseArgs, ReplaceArgs, WarmArgs,
};
pub use volume::{
    CheckArgs, CreateArgs, FindArgs, GrowArgs, MachineWebArgs, RecordArgs, ServeArgs, SetArgs,
    StatsArgs, StatusArgs, StopArgs, TopArgs, VolumeArgs, WebArgs, WhatIfArgs, WhyArgs,
};

pub use system::{AssembleArgs, ExportArgs, FstabArgs, MountHelperArgs, PoliciesArgs, VolumesArgs};

/// A volume on the command line: a path, or a bare name that is resolved to one.
fn volume_name() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|p| isotherm_control::place::find(&p))
}

/// One volume out of fast-and-small and slow-and-large devices, and a lab to choose them.
#[derive(Debug, Parser)]
#[command(
    name = "isotherm",
    version,
    subcommand_required = true,
    arg_required_else_help = false,
    max_term_width = 100,
    after_help = "Example:\n  isotherm create v --fast ssd.img:1G --slow hdd.img:10G\n  isotherm serve v --device\n  isotherm top v"
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a volume out of devices or files
    Create(CreateArgs),
    /// Serve a volume in the foreground until `stop`, SIGTERM or SIGINT
    Serve(ServeArgs),
    /// Stop serving; returns when all data and state is written
    #[command(after_help = "Examples:\n  isotherm stop v\n  isotherm stop v --within 120")]
    Stop(StopArgs),
    /// List the volumes of this machine
    List(VolumesArgs),
    /// Show a volume's description and state
    #[command(
        after_help = "Examples:\n  isotherm status v\n  isotherm status v --all | grep params\n  isotherm status v --json | jq .state"
    )]
    Status(StatusArgs),
    /// Print the figures of a served volume
    Stats(StatsArgs),
    /// Watch volumes in the terminal
    Top(TopArgs),
    /// Show all volumes of this machine in a browser
    Web(MachineWebArgs),
    /// Show the place of a byte of a served volume, and the reason
    Why(WhyArgs),
    /// Predict hits and latency with other flash or another policy
    WhatIf(WhatIfArgs),
    /// Change parameters of a served volume
    Set(SetArgs),
    /// Show and set the classes of data on a volume
    Classes(ClassesArgs),
    /// Classify the files of a file system or a database on a volume
    Classify(ClassifyArgs),
    /// Verify the metadata of a volume that is not served
    Check(CheckArgs),
    /// Let a volume grow after devices of its slowest tier have become larger
    Grow(GrowArgs),
    /// Put flash in front of a device that holds a file system, in place
    Adopt(AdoptArgs),
    /// Give the disks of a cache volume back as plain disks
    Release(ReleaseArgs),
    /// Replace a member of a volume by another device
    Replace(ReplaceArgs),
    /// Give a cache volume flash, take it out, or use all of an enlarged device
    Cache(CacheArgs),
    /// Write home now what only the flash of a served volume has
    Clean(CleanArgs),
    /// Copy data of a served volume to flash in idle time, before it is read
    Warm(WarmArgs),
    /// List what is wrong with a volume or at risk, and what mends it
    Doctor(DoctorArgs),
    /// Record the requests of a served volume as a trace
    Record(RecordArgs),
    /// Replay a recorded run and show whether its decisions differ
    ReplayEvents(LabWords),
    /// Find volumes on devices and print their descriptions
    Find(FindArgs),
    /// Print a volume's description as `create --config` takes it
    Export(ExportArgs),
    /// Show which volumes of this machine are complete, and start their services
    Assemble(AssembleArgs),
    /// Print the line for /etc/fstab that mounts a volume's file system at boot
    Fstab(FstabArgs),
    /// The command that mount(8) runs for `mount -t isotherm`
    #[command(hide = true)]
    MountHelper(MountHelperArgs),
    /// Write man pages and completions for shells
    #[command(hide = true)]
    Generate(LabWords),
    /// Replay a trace under a policy
    Sim(LabWords),
    /// Compare policies with each other, with one device alone and with the best possible
    Compare(LabWords),
    /// Say how much flash in front of a disk is worth its money
    Plan(LabWords),
    /// Run a grid of simulations on all cores
    Sweep(LabWords),
    /// Reproduce figures and tables of the papers, with verdicts
    Reproduce(LabWords),
    /// Inspect and convert trace files
    Trace(LabWords),
    /// List policies, or show one with its parameters and source
    Policies(PoliciesArgs),
    /// List device models, or compare them with published figures
    Devices(LabWords),
    /// Compute the cost of a system: purchase, energy, power, wear, service
    Cost(LabWords),
    /// List trace formats
    Formats(LabWords),
    /// Mount a fast and a slow directory as one tree; files move between them
    Mount(MountArgs),
    /// Show and change the state of a mounted file system
    Files(FilesArgs),
    /// Show a volume, a workload and its figures in one command
    Demo(LabWords),
}

/// The words after a command of the lab. They are for the lab's program ([`crate::lab_program`]) and are not read here.
#[derive(Debug, clap::Args)]
pub struct LabWords {
    /// All words
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Parses a command line of `isotherm`; `None` if it asked for help or version, which is then printed.
///
/// # Errors
/// [`Failure::Usage`] in one line. A command of the lab is none of this parser's: its program is started here, in the place of this one, and
/// the error is then that it cannot be.
pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Option<Cli>, Failure> {
    let mut words: Vec<OsString> = words.collect();
    if called_as(&words, "mount.isotherm") {
        words.insert(1, "mount-helper".into());
    }
    if lab_program::is_for_it(&words) {
        return Err(lab_program::start());
    }
    if words.len() < 2 && std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        // A program gets one line, as for every wrong call; a user at a terminal gets some help without `--help`.
        crate::json::to_stdout(SHORT_HELP)?;
    }
    parse_as(&words)
}

/// Parses the command line of one of the two programs; see [`parse`].
///
/// # Errors
/// [`Failure::Usage`] in one line.
pub fn parse_as<C: Parser>(words: &[OsString]) -> Result<Option<C>, Failure> {
    let text: Option<Vec<String>> = words
        .iter()
        .map(|w| w.to_str().map(str::to_owned))
        .collect();
    let parses = |w: &[String]| C::try_parse_from(w).is_ok();
    let parsed = match text.and_then(|t| join_two_words(&t, parses)) {
        Some(joined) => C::try_parse_from(joined),
        None => C::try_parse_from(words),
    };
    match parsed {
        Ok(cli) => Ok(Some(cli)),
        Err(e) if e.use_stderr() => Err(Failure::Usage(one_line(&e, words, &C::command()))),
        Err(e) => match e.print() {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::file(
                std::path::Path::new("standard output"),
                "write",
                &e,
            )),
            _ => Ok(None),
        },
    }
}

/// The output of `isotherm` without arguments.
const SHORT_HELP: &str = "\
Isotherm: fast-and-small and slow-and-large devices as one volume.

  isotherm create v --fast /dev/nvme0n1p3 --slow /dev/sda   make a volume
  isotherm serve v --device      serve it; then: mkfs.ext4 /dev/isotherm/v
  isotherm list                  the volumes of this machine
  isotherm status v              what one is and how it does
  isotherm stats v               its figures; isotherm top: live
  isotherm why v 1536M           where a byte is, and why
  isotherm stop v                end serving

  isotherm --help                all commands; isotherm COMMAND --help: one, with an example
";

/// Whether this program was called by that name, as through a link.
fn called_as(words: &[OsString], name: &str) -> bool {
    let own = words.first().map(std::path::Path::new);
    own.and_then(std::path::Path::file_name) == Some(name.as_ref())
}

/// clap's message without its paragraphs: the error, the hint, and the command for help.
fn one_line(error: &clap::Error, words: &[OsString], commands: &clap::Command) -> String {
    let rendered = error.render().to_string();
    let kept = rendered
        .lines()
        .map(str::trim)
        .take_while(|l| !l.starts_with("Usage:"));
    let mut text = String::new();
    // clap's hint to write `-- -1` would make a value of an option an argument of the command.
    let of_no_use =
        |l: &str| l.starts_with("For more information") || l.starts_with("tip: to pass");
    for line in kept.filter(|l| !l.is_empty() && !of_no_use(l)) {
        let line = line
            .strip_prefix("error: ")
            .or(line.strip_prefix("tip: "))
            .unwrap_or(line);
        if !text.is_empty() {
            text += if text.ends_with(':') { " " } else { "; " };
        }
        text += line;
    }
    let unknown = error.get(clap::error::ContextKind::InvalidArg);
    if let Some(clap::error::ContextValue::String(word)) = unknown
        && let Some(number) = word.strip_prefix('-')
        && number.starts_with(|c: char| c.is_ascii_digit())
    {
        text += "; no value is negative, and a name that begins with `-` is written `./-NAME`";
    }
    // clap also lists the commands that are called by other programs only.
    for hidden in commands.get_subcommands().filter(|c| c.is_hide_set()) {
        text = text.replace(&format!("{}, ", hidden.get_name()), "");
    }
    let word = words.get(1).and_then(|w| w.to_str());
    let files = commands.find_subcommand("files");
    if let Some(word) = word
        && error.kind() == clap::error::ErrorKind::InvalidSubcommand
        && files.is_some_and(|f| f.find_subcommand(word).is_some())
    {
        return format!(
            "unrecognized subcommand '{word}'; for a mounted file system it is `isotherm files {word}`; see `isotherm files {word} --help`"
        );
    }
    let command = word.and_then(|w| commands.find_subcommand(w));
    let help = command.map_or_else(
        || "isotherm --help".to_owned(),
        |c| format!("isotherm {} --help", c.get_name()),
    );
    format!("{text}; see `{help}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines after `Example` in a command's help.
    fn examples(help: &str) -> Vec<String> {
        let part = help.split("Example").nth(1).unwrap_or_default();
        let lines = part.lines().map(str::trim);
        lines
            .filter(|l| {
                l.starts_with("isotherm ") || l.contains(" isotherm ") || l.starts_with("mount ")
            })
            .map(str::to_owned)
            .collect()
    }

    fn walk(c: &mut clap::Command, path: &str) {
        let help = c.render_long_help().to_string();
        let own = examples(&help);
        assert!(!own.is_empty(), "{path} has no example");
        // `mount-helper` is called by another name.
        // The volume is named before what to do with its flash.
        let path_shown = path.replace("isotherm cache ", "isotherm cache v ");
        let shows = |l: &String| {
            format!("{l} ").contains(&format!("{path_shown} ")) || path.ends_with("-helper")
        };
        assert!(
            own.iter().all(shows),
            "{path} shows another's example: {own:?}"
        );
        let names: Vec<String> = (c.get_subcommands())
            .map(|s| s.get_name().to_owned())
            .filter(|n| n != "help")
            .collect();
        for name in names {
            if let Some(sub) = c.find_subcommand_mut(&name) {
                walk(sub, &format!("{path} {name}"));
            }
        }
    }

    #[test]
    #[cfg(feature = "lab")]
    fn the_definition_is_sound_and_every_command_shows_its_own_example() {
        let mut root = crate::lab::args::whole();
        root.build();
        root.clone().debug_assert();
        walk(&mut root, "isotherm");
    }

    #[test]
    fn a_subcommand_of_files_is_found_without_its_first_word() {
        let words = ["isotherm", "pin", "mnt/a"].map(OsString::from);
        let Err(Failure::Usage(said)) = parse(words.into_iter()) else {
            panic!("taken");
        };
        assert!(said.contains("`isotherm files pin`"), "{said}");
    }
}
