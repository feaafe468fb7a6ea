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
    /// Walk the file system mounted here, and say what its files are
    #[arg(long, value_name = "MOUNTPOINT")]
    pub fs: Option<PathBuf>,
    /// Ask this database what its files are (as psql understands it: key=value words, a URI, or a name)
    #[arg(long, value_name = "DSN")]
    pub postgres: Option<String>,
    /// The volume that holds them, which must be served
    #[arg(long, value_name = "VOLUME", value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// Rules for files, TOML
    #[arg(long, value_name = "FILE", requires = "fs")]
    pub rules: Option<PathBuf>,
    /// Class file of Open CAS (ioclass-config.csv), asked after the rules
    #[arg(long, value_name = "FILE", requires = "fs")]
    pub open_cas: Option<PathBuf>,
    /// Leave out files that no rule fits and no attribute names, instead of classing them by size
    #[arg(long, requires = "fs")]
    pub only_rules: bool,
    /// Do it again every so many seconds, until stopped
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub every: Option<u64>,
    /// Do it again until stopped, but only after something changed (fanotify, root): looks every 60 seconds, or --every
    #[arg(long, requires = "fs")]
    pub watch: bool,
    /// Do it although it cannot be told that the file system lies on this volume
    #[arg(long)]
    pub force: bool,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}
