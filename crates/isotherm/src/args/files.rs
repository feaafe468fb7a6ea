//! Arguments of the commands about whole files: `mount` and `files`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use isotherm_files::layout::Create;

use crate::json::JsonArg;
use crate::size;

/// `isotherm mount`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm mount --fast /ssd/files --slow /hdd/files /mnt/files\n  \
    isotherm mount --fast /ssd --slow /nfs --tier /hdd --policy hro --rule '*.iso=slow' --quota 0=50G /mnt/files\n  \
    isotherm mount --fast /ssd --slow /disk1 --slow /disk2 --slow /disk3 /mnt/files\n\n\
    Existing directories full of files can be mounted as they are; when unmounted they are plain directories again. \
    While they are mounted, use the files below the mount point only: `cp DIR/x MOUNT/x` would empty x, and `mv` would delete it. \
    See `isotherm files --help` for what can be asked of a mounted file system."
)]
pub struct MountArgs {
    /// Directory of the fast tier
    #[arg(long, value_name = "DIR")]
    pub fast: PathBuf,
    /// Directory of the slow tier; repeatable: one for each disk, in any order
    #[arg(long, value_name = "DIR", required = true)]
    pub slow: Vec<PathBuf>,
    /// Which disk of a slow tier of several gets a file that is new there
    #[arg(
        long,
        value_name = "RULE",
        value_enum,
        default_value = "same-directory"
    )]
    pub create: CreateArg,
    /// Directory of a tier between them, faster ones first; repeatable
    #[arg(long, value_name = "DIR")]
    pub tier: Vec<PathBuf>,
    /// Empty directory to use as the mount point
    pub mountpoint: PathBuf,
    /// Policy with parameters, NAME,KEY=VALUE,... (see `isotherm policies`)
    #[arg(long, default_value = isotherm_files::placement::DEFAULT)]
    pub policy: String,
    /// MATCH=TIER: a rule that places files on a tier, independent of the policy; MATCH is a pattern of the path, size>N, size<N, age>DAYS
    /// or owner:UID; TIER is fast, slow or a number; repeatable, the first matching rule applies
    #[arg(long, value_name = "MATCH=TIER", value_parser = isotherm_files::rules::Rule::parse)]
    pub rule: Vec<isotherm_files::rules::Rule>,
    /// TIER=SIZE: limit of the bytes of files on a tier (by number, 0 is the fast one); repeatable
    #[arg(long, value_name = "TIER=SIZE", value_parser = quota)]
    pub quota: Vec<(u8, u64)>,
    /// LOW,HIGH in per cent: if a tier is fuller than HIGH, new files go to another, and the coldest files leave until it is at LOW
    #[arg(long, value_name = "LOW,HIGH", default_value = "80,90", value_parser = marks)]
    pub watermarks: (u8, u8),
    /// Let the kernel read and write files itself: as fast as on the tier, but an open file cannot be moved, and a writer gets ENOSPC when
    /// its tier is full. With `=reads`, only reads: then writers do not get ENOSPC while another tier has space
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub passthrough: Option<PassthroughArg>,
    /// Let the kernel buffer writes for a while: small writes cost less.
    /// A crash of this program loses data that was not synced, and fsync or close reports that a tier is full
    #[arg(long, conflicts_with = "passthrough")]
    pub writeback: bool,
    /// With a caching policy, keep copies on the fast tier: the files stay on their tiers, and every change is made to the file and its copy.
    /// Without this option, a file is moved where its policy wants a copy
    #[arg(long, conflicts_with = "passthrough")]
    pub copies: bool,
    /// `SIZE[:PERCENT]`: keep the first SIZE bytes of files of slower tiers on the fast one, once they were read, in at most PERCENT of it
    /// (default 5). Programs that only look at the beginning of a file then wake no sleeping disk. The kernel reads ahead: 64K serves a read
    /// of 32 KiB, 256K one of 128 KiB
    #[arg(long, value_name = "SIZE[:PERCENT]", value_parser = heads, conflicts_with = "passthrough")]
    pub heads: Option<(u64, u8)>,
    /// With --copies: of files of 64 MiB and more, keep the parts that are used most, in at most PERCENT of the fast tier, in place of whole
    /// copies [default: 25]. 0: none, and such files are copied whole
    #[arg(long, value_name = "PERCENT", requires = "copies", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub ranges: Option<u8>,
    /// Move no files, except with `isotherm files migrate --now`
    #[arg(long)]
    pub no_moves: bool,
    /// For tests: move every file at random, without end, by this seed
    #[arg(long, value_name = "SEED", hide = true)]
    pub chaos: Option<u64>,
    /// Session threads
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: u8,
    /// Serve even if a disk other than the fastest tier's is missing: its files are shown, and reading or changing them fails with EIO. If its
    /// names are not known, add --accept-tiers to serve without them
    #[arg(long)]
    pub degraded: bool,
    /// Accept these directories as the tiers from now on, even if they differ from those of the last time: files of a disk that is left out
    /// are not shown any more
    #[arg(long)]
    pub accept_tiers: bool,
    /// Serve metrics of the disks for Prometheus on unix:PATH or 127.0.0.1:PORT, as /metrics
    #[arg(long, value_name = "ADDRESS", value_parser = isotherm_web::local_address)]
    pub metrics: Option<isotherm_web::Address>,
    /// Refuse all changes
    #[arg(long)]
    pub read_only: bool,
    /// Only the user who mounts may use the mount
    #[arg(long)]
    pub private: bool,
}

/// How the disk of a file is chosen within its tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CreateArg {
    /// The one that has the file's directory, while it is below its upper mark; else the one with the most free space.
    SameDirectory,
    /// The one with the most free space.
    MostFree,
    /// The one of which the largest part is free.
    PercentFree,
}

impl CreateArg {
    /// The rule of that name.
    pub fn rule(self) -> Create {
        match self {
            CreateArg::SameDirectory => Create::SameDirectory,
            CreateArg::MostFree => Create::MostFree,
            CreateArg::PercentFree => Create::PercentFree,
        }
    }
}

/// What the kernel does itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PassthroughArg {
    /// Reads and writes.
    All,
    /// Reads.
    Reads,
}

fn quota(text: &str) -> Result<(u8, u64), String> {
    let form = "TIER=SIZE, as 0=50G";
    let (tier, bytes) = text.split_once('=').ok_or(form)?;
    let tier = tier.parse().map_err(|_| form)?;
    Ok((tier, size::absolute(bytes).map_err(|e| e.to_string())?))
}

fn heads(text: &str) -> Result<(u64, u8), String> {
    let form = || "SIZE[:PERCENT], as 256K or 64K:2; SIZE at least 4K, PERCENT 1 to 100".to_owned();
    let (bytes, percent) = text.split_once(':').unwrap_or((text, "5"));
    let bytes = size::absolute(bytes).map_err(|e| e.to_string())?;
    match percent.parse() {
        Ok(percent) if (1..=100).contains(&percent) && bytes >= 4096 => Ok((bytes, percent)),
        _ => Err(form()),
    }
}

fn marks(text: &str) -> Result<(u8, u8), String> {
    let form = || "two numbers, LOW,HIGH, up to 100, the first not above the second".to_owned();
    let (low, high) = text.split_once(',').ok_or_else(form)?;
    match (low.parse(), high.parse()) {
        (Ok(low), Ok(high)) if low <= high && high <= 100 => Ok((low, high)),
        _ => Err(form()),
    }
}

/// `isotherm files`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm files status /mnt/files\n  isotherm files why /mnt/files/a.db\n  isotherm files migrate /mnt/files --dry-run"
)]
pub struct FilesArgs {
    /// The command.
    #[command(subcommand)]
    pub command: FilesCommand,
}

/// Commands about a mounted file system.
#[derive(Debug, Subcommand)]
pub enum FilesCommand {
    /// Show the tiers of a mount and its state
    #[command(
        after_help = "Examples:\n  isotherm files status /mnt/files\n  isotherm files status /mnt/files --json"
    )]
    Status(FilesStatusArgs),
    /// Print the figures of a mount
    #[command(after_help = "Example:\n  isotherm files stats /mnt/files --json")]
    Stats(PathArgs),
    /// Show the tier of a file, and its path there
    #[command(
        name = "where",
        after_help = "Example:\n  isotherm files where /mnt/files/a.db"
    )]
    Where(PathArgs),
    /// Explain what decides the place of a file
    #[command(after_help = "Example:\n  isotherm files why /mnt/files/a.db")]
    Why(PathArgs),
    /// Keep a file, or all files below a directory, on a tier
    #[command(after_help = "Example:\n  isotherm files pin /mnt/files/db --to fast")]
    Pin(PinArgs),
    /// Remove a pin: the policy decides again
    #[command(after_help = "Example:\n  isotherm files unpin /mnt/files/db")]
    Unpin(PathArgs),
    /// Move files that belong on another tier, or show which would move
    #[command(
        after_help = "Examples:\n  isotherm files migrate /mnt/files --dry-run\n  isotherm files migrate /mnt/files --now"
    )]
    Migrate(MigrateArgs),
    /// List the disks of the tiers, add one, empty one, or make those of the slowest tier equally full
    #[command(
        after_help = "Examples:\n  isotherm files disk list /mnt/files\n  isotherm files disk add /mnt/files /disk4     # then mount with it\n  isotherm files disk drain /mnt/files /disk2   # then mount without it"
    )]
    Disk(DiskArgs),
    /// Compare names and attributes with the contents of the tiers
    #[command(
        after_help = "Example:\n  isotherm files check /mnt/files --repair   # what is there counts from then on"
    )]
    Check(FilesCheckArgs),
    /// Give all files below a directory a policy of their own, with a share of the fast tier
    #[command(
        after_help = "Examples:\n  isotherm files policy /mnt/files/db hro --share 30\n  isotherm files policy /mnt/files/db --none"
    )]
    Policy(PolicyArgs),
    /// Record reads, writes, syncs and deletions of files as a trace for the lab
    #[command(
        after_help = "Example:\n  isotherm files record /mnt/files --out today.parquet --seconds 3600   # then: sim today.parquet"
    )]
    Record(FilesRecordArgs),
}

/// A path in a mounted file system.
#[derive(Debug, Args)]
pub struct PathArgs {
    /// The mount point, or a path in it
    pub path: PathBuf,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm files status`.
#[derive(Debug, Args)]
pub struct FilesStatusArgs {
    /// The mount.
    #[command(flatten)]
    pub of: PathArgs,
    /// Print every key, one on each line
    #[arg(long)]
    pub all: bool,
}

/// `isotherm files pin`.
#[derive(Debug, Args)]
pub struct PinArgs {
    /// A file or directory
    pub path: PathBuf,
    /// fast, slow or a number
    #[arg(long, value_name = "TIER", default_value = "fast")]
    pub to: String,
}

/// `isotherm files migrate`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["now", "dry_run"]))]
pub struct MigrateArgs {
    /// The mount point
    pub path: PathBuf,
    /// Make plans now, and move files
    #[arg(long)]
    pub now: bool,
    /// Make plans now, show which files would move, and move none
    #[arg(long)]
    pub dry_run: bool,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm files disk`.
#[derive(Debug, Args)]
pub struct DiskArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DiskCommand,
}

/// The commands about disks.
#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Show each disk of each tier: its state, space and files, and what waits or moves there
    #[command(after_help = "Example:\n  isotherm files disk list /mnt/files --json")]
    List(PathArgs),
    /// Make a directory a further disk of the slowest tier while it is mounted; name it, too, at each later mount
    #[command(
        after_help = "Examples:\n  isotherm files disk add /mnt/files /disk4\n  isotherm files disk add /mnt/files /disk4 --json"
    )]
    Add(AddArgs),
    /// Move everything from a disk of the slowest tier to the others of that tier, and put nothing there any more, also after a crash;
    /// when it is empty, the next mount may leave it out
    #[command(
        visible_alias = "remove",
        after_help = "Examples:\n  isotherm files disk drain /mnt/files /disk2\n  isotherm files disk drain /mnt/files /disk2 --cancel"
    )]
    Drain(DrainArgs),
    /// Move files from the fuller disks of the slowest tier to the emptier ones, also after a crash, until none is above the aim
    #[command(
        after_help = "Examples:\n  isotherm files disk balance /mnt/files\n  isotherm files disk balance /mnt/files --to 70"
    )]
    Balance(BalanceArgs),
}

/// An order about disks.
#[derive(Debug, Args)]
pub struct DiskOrder {
    /// The mount point
    pub path: PathBuf,
    /// Withdraw the order: nothing moves for it any more
    #[arg(long)]
    pub cancel: bool,
    /// Give the order, and do not wait for the end
    #[arg(long, conflicts_with = "cancel")]
    pub no_wait: bool,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm files disk add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// The mount point
    pub path: PathBuf,
    /// The directory: on a file system of its own, empty or with files whose names no other disk has
    pub directory: PathBuf,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm files disk drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The order.
    #[command(flatten)]
    pub order: DiskOrder,
    /// The disk: its directory, or its number in `disk list`
    pub disk: String,
}

/// `isotherm files disk balance`.
#[derive(Debug, Args)]
pub struct BalanceArgs {
    /// The order.
    #[command(flatten)]
    pub order: DiskOrder,
    /// How full a disk may be at most, in per cent (default: as full as all are together)
    #[arg(long, value_name = "PERCENT", conflicts_with = "cancel", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub to: Option<u8>,
}

/// `isotherm files check`.
#[derive(Debug, Args)]
pub struct FilesCheckArgs {
    /// The mount point
    pub path: PathBuf,
    /// Show the contents of the tiers from then on
    #[arg(long)]
    pub repair: bool,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm files record`.
#[derive(Debug, Args)]
pub struct FilesRecordArgs {
    /// The mount point
    pub path: PathBuf,
    /// Trace to write (Parquet); it must not exist
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Stop after N seconds; without this option, SIGINT (Ctrl-C) or SIGTERM stops, and so does an unmount
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub seconds: Option<u64>,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm files policy`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["preset", "none"]))]
pub struct PolicyArgs {
    /// A directory in the mounted file system
    pub dir: PathBuf,
    /// Policy with parameters, NAME,KEY=VALUE,...
    pub preset: Option<String>,
    /// Share of the fast tier in per cent
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub share: u8,
    /// Remove the directory's own policy
    #[arg(long)]
    pub none: bool,
}
