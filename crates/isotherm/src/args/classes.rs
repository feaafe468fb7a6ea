//! Arguments of the commands about classes of data.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use isotherm_classify::classes;

use super::VolumeArgs;
use crate::json::JsonArg;

/// `isotherm classes`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  isotherm classes show v")]
pub struct ClassesArgs {
    /// The command.
    #[command(subcommand)]
    pub command: ClassesCommand,
}

/// The commands about classes.
#[derive(Debug, Subcommand)]
pub enum ClassesCommand {
    /// Show the classes of data on a served volume, their sources, and figures for each class
    #[command(after_help = "Example:\n  isotherm classes show v")]
    Show(VolumeArgs),
    /// Set the classes of ranges, switch sources, give rows and promises
    Set(ClassesSetArgs),
    /// Read the classes of ranges from a file
    Import(ClassesImportArgs),
    /// Write all ranges to a file that `import` can read
    Export(ClassesExportArgs),
}

/// `isotherm classes set`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm classes set v bytes/0-8G=db-index bytes/8G-9G=class-40\n  \
    isotherm classes set v 1-7+pin 13-18+admit=never 8+max=30   # how benefit and dss-lru-s treat them\n  \
    isotherm classes set v 1-7+floor=5M+latency=20ms 13-18+ceiling=50M   # promises, under any policy\n  isotherm classes set v layout=off\n  isotherm classes set v layout=again   # look at everything anew\n\n\
    Sources: front-end, ranges, database, files, layout, and guess, which is off until it is switched on."
)]
pub struct ClassesSetArgs {
    /// The volume, which must be served
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// bytes/FROM-TO=CLASS (TO is exclusive; CLASS is a name or 0 to 63), SOURCE=on, SOURCE=off, layout=again; under benefit and
    /// dss-lru-s CLASSES+KEY=VALUE (priority, admit, pin, min, max: docs/policies.md), rows=none; under any policy CLASSES+KEY=VALUE (floor, ceiling,
    /// latency, share: docs/serving.md), depth=N (concurrent requests on a tier), qos=none
    #[arg(required = true, value_name = "WHAT")]
    pub what: Vec<ClassesWhat>,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm classes import`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  isotherm classes import v ranges.json\n\n\
    A file that ends in .csv is a class file of Open CAS: its sectors (lba) become ranges, its priorities and allocations rows of\n\
    benefit and dss-lru-s; for its rules about files give it to `classify --fs --open-cas`. Else the file is {\"ranges\": [{\"offset\": 0, \"bytes\": 65536, \"class\": \"journal\"}, …]}; a class is a name or a number.")]
pub struct ClassesImportArgs {
    /// The volume, which must be served
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// JSON, or ioclass-config.csv
    pub file: PathBuf,
    /// The source for which the ranges count: ranges, database or files
    #[arg(long, default_value = "ranges")]
    pub source: String,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm classes export`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  isotherm classes export v ranges.json")]
pub struct ClassesExportArgs {
    /// The volume, which must be served
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// The file to write (JSON); an existing one is replaced
    pub file: PathBuf,
}

/// One item to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassesWhat {
    /// First byte, bytes, class.
    Range(u64, u64, u8),
    /// A source, and whether it is on.
    Switch(String, bool),
    /// Examine the layout again.
    Again,
    /// A row of the policy's table.
    Row(String),
    /// No rows.
    NoRows,
    /// A promise to classes, or the depth with which they are kept.
    Promise(String),
    /// No promises.
    NoPromises,
}

impl FromStr for ClassesWhat {
    type Err = String;

    fn from_str(text: &str) -> Result<ClassesWhat, String> {
        let form = || {
            format!(
                "`{text}`: write bytes/FROM-TO=CLASS, SOURCE=on, SOURCE=off, layout=again, CLASSES+KEY=VALUE, rows=none, depth=N or qos=none"
            )
        };
        if text == "rows=none" {
            return Ok(ClassesWhat::NoRows);
        }
        if text == "qos=none" {
            return Ok(ClassesWhat::NoPromises);
        }
        if isotherm_words::qos::is_row(text) || text.starts_with("depth=") {
            isotherm_words::qos::spec([text])?;
            return Ok(ClassesWhat::Promise(text.to_owned()));
        }
        if text.starts_with(|c: char| c.is_ascii_digit())
            && text.contains('+')
            && !text.contains(',')
        {
            return Ok(ClassesWhat::Row(text.to_owned()));
        }
        let (what, value) = text.split_once('=').ok_or_else(form)?;
        if let Some(range) = what.strip_prefix("bytes/") {
            let (from, to) = range.split_once('-').ok_or_else(form)?;
            let (from, to) = (crate::member::offset(from)?, crate::member::offset(to)?);
            let class = classes::parse(value).ok_or_else(|| {
                format!("class `{value}`: give its number, 0 to 63, or a name such as journal")
            })?;
            let bytes = to.checked_sub(from).filter(|n| *n > 0);
            let bytes = bytes.ok_or_else(|| format!("`{range}`: ends before it begins"))?;
            return Ok(ClassesWhat::Range(from, bytes, class));
        }
        match value {
            "on" | "off" => Ok(ClassesWhat::Switch(what.to_owned(), value == "on")),
            "again" if what == "layout" => Ok(ClassesWhat::Again),
            _ => Err(form()),
        }
    }
}
