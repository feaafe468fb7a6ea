//! Arguments of `isotherm classify`.

use std::path::PathBuf;

use clap::Args;

use crate::json::JsonArg;

/// `isotherm classify`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("of what").required(true).args(["fs", "postgres"]),
    after_help = "Examples:\n  isotherm classify --fs /srv --volume v --rules media.toml\n  \
    isotherm classify --fs /srv --volume v --every 600   # until it is stopped\n  \
    isotherm classify --fs /srv --volume v --watch       # the same, where something changed\n  \
    isotherm classify --postgres 'host=/run/postgresql dbname=shop' --volume v\n\n\
    The file of rules is described in docs/serving.md; a file's attribute user.isotherm.class goes before them:\n  \
    setfattr -n user.isotherm.class -v class-40 film.mkv"
)]
pub struct ClassifyArgs {
    /// Walk the file system that is mounted here, and register the classes of its files
    #[arg(long, value_name = "MOUNTPOINT")]
    pub fs: Option<PathBuf>,
    /// Read the classes of this database's files from its catalogue (in psql's form: key=value words, a URI, or a name)
    #[arg(long, value_name = "DSN")]
    pub postgres: Option<String>,
    /// The volume that holds these files; it must be served
    #[arg(long, value_name = "VOLUME", value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// Rules for files, TOML
    #[arg(long, value_name = "FILE", requires = "fs")]
    pub rules: Option<PathBuf>,
    /// Class file of Open CAS (ioclass-config.csv), which is used after the rules
    #[arg(long, value_name = "FILE", requires = "fs")]
    pub open_cas: Option<PathBuf>,
    /// Leave out files for which there is neither a rule nor an attribute, instead of classifying them by size
    #[arg(long, requires = "fs")]
    pub only_rules: bool,
    /// Repeat this every N seconds, until stopped
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub every: Option<u64>,
    /// Repeat this until stopped, but only after a change (fanotify, root): checks every 60 seconds, or --every
    #[arg(long, requires = "fs")]
    pub watch: bool,
    /// Do this although it cannot be verified that the file system is on this volume
    #[arg(long)]
    pub force: bool,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}
