//! Arguments of the lab's commands.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use isotherm_core::engine::KNOBS;
use isotherm_models::FlashState;

use super::trace::TraceOptions;
use crate::json::JsonArg;
use crate::lab::pages::PageArgs;
use crate::policy_spec::PolicySpec;
use crate::size::{self, Size};

/// `isotherm sim`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm sim web.spc.zst --policy greendm,PT=2 --fast-size 10%\n  \
    isotherm sim a.csv --policy linear --fast-size 1G --extent 64K --hit-only --json=out.json\n  \
    isotherm sim a.csv --policy lru --fast-size 1%,2%,5%,10% --hit-only\n  \
    isotherm sim huge.parquet --policy s3-fifo --fast-size 1%,2%,5%,10% --hit-only --sample 0.001\n  \
    isotherm sim a.csv --policy greendm --tier nvme-tlc:1% --tier intel-320-300:10% --tier exos-18tb --time trace --html=run.html\n  \
    isotherm sim a.csv --policy lru --fast-size 10% --fast nvme-tlc --time trace --wear-years 5 --set wear_burst_h=6\n  \
    isotherm sim a.csv --policy lru --fast-size 10% --flash fresh --over-provisioning 0.28\n  \
    isotherm sim a.csv --policy lru --fast-size 10% --time trace --standby 0,60 --set sleep_hold_s=3600 --set sleep_hold_bytes=1G\n  \
    isotherm sim run.events --as-recorded --tier nvme-tlc --tier exos-18tb --policy lru --time trace"
)]
pub struct SimArgs {
    /// Trace files or generators (gen:NAME,KEY=VALUE,...), each in a run of its own; formats are detected, .zst and .gz are read directly
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Replay all traces as the volumes of one run, merged by time
    #[arg(long)]
    pub side_by_side: bool,
    /// Estimate hits from samples of the extents, each with this share of all extents (0.01); the error is printed, too. The trace is read
    /// once, for any number of sizes
    #[arg(long, value_name = "SHARE", requires = "hit_only", conflicts_with = "side_by_side", value_parser = sample)]
    pub sample: Option<f64>,
    /// Begin in the state of the recorded volume (of `record --events`), with its map, its places on the members and its settings. Devices
    /// are named by --tier, without sizes, or by --fast and --slow
    #[arg(long, conflicts_with_all = ["side_by_side", "hit_only", "new_volume", "full", "fast_size", "extent"])]
    pub as_recorded: bool,
    /// Report the least energy that any choice of times at which the disk is used would take, too (key `energy_bound`): a lower bound for
    /// caches that copy data when it is accessed. Needs --time trace and one disk on the slowest tier
    #[arg(long, conflicts_with_all = ["hit_only", "as_recorded"])]
    pub energy_bound: bool,
    /// Policy with parameters, NAME,KEY=VALUE,... [default: benefit; with --as-recorded that of the recording]
    #[arg(long)]
    pub policy: Option<PolicySpec>,
    /// Devices, sizes and time.
    #[command(flatten)]
    pub world: WorldArgs,
    /// How to read the traces.
    #[command(flatten)]
    pub read: TraceOptions,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
    /// Pages and pictures.
    #[command(flatten)]
    pub page: PageArgs,
}

/// Settings of a run in the lab in addition to trace and policy.
#[derive(Clone, Debug, Args)]
pub struct WorldArgs {
    /// Size of the fast tier: bytes (8G) or a share of the touched addresses (10%); `sim` and `compare` take a list (1%,2%,5%) with a run for each
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub fast_size: Vec<Size>,
    /// Extent size, a power of two from 4K to 4M [default: 4K]
    #[arg(long, value_name = "SIZE", value_parser = size::extent)]
    pub extent: Option<u32>,
    /// Count only hits and moves: no device models, no time, no energy
    #[arg(long)]
    pub hit_only: bool,
    /// Model of the fast device [default: the first of intel-x25e-32, intel-320-300, sata-enterprise, nvme-tlc that is large enough]
    #[arg(long, value_name = "PRESET")]
    pub fast: Option<String>,
    /// Model of the slow device [default: the first of wd5000aaks, wd7500aaks, exos-18tb that is large enough]
    #[arg(long, value_name = "PRESET")]
    pub slow: Option<String>,
    /// A tier, fastest first, instead of --fast, --slow and --fast-size; the last one needs no size
    #[arg(long, value_name = "PRESET[:SIZE]", conflicts_with_all = ["fast", "slow", "fast_size"])]
    pub tier: Vec<TierArg>,
    /// Initial state of flash: overwritten at random for a long time (preconditioned, or ftl for short), erased (fresh), or without a
    /// translation layer, so without garbage collection and write amplification (ideal), or the same at the sheet's rates (rated)
    /// [default: preconditioned]
    #[arg(long, value_name = "STATE", conflicts_with = "hit_only", value_parser = FlashState::parse)]
    pub flash: Option<FlashState>,
    /// Spare flash as a share of the visible capacity, 0.01 to 10, instead of the data sheet's
    #[arg(long, value_name = "SHARE", conflicts_with = "hit_only")]
    pub over_provisioning: Option<f64>,
    /// Place of members on their drives: spread over the whole drive, so that seeks are as long as on a drive in use (full), or from this
    /// byte on with the trace's addresses (0 is a disk's outer edge) [default: full]
    #[arg(long, value_name = "full|BYTE", conflicts_with = "hit_only", value_parser = isotherm_lab::sim::parse_span)]
    pub span: Option<isotherm_models::Span>,
    /// Requests follow one another (closed), or arrive at the trace's times (trace)
    #[arg(long, value_enum, conflicts_with = "hit_only")]
    pub time: Option<TimeMode>,
    /// Number of concurrent requests in the closed loop [default: 1]
    #[arg(long, conflicts_with = "hit_only", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub depth: Option<u32>,
    /// Factor by which the trace's clock runs faster [default: 1]
    #[arg(long, value_name = "FACTOR", conflicts_with = "hit_only")]
    pub accelerate: Option<f64>,
    /// Microseconds that a client of the closed loop needs between a reply and its next request: a sequential writer with a FLUSH after each
    /// write that needs some misses a revolution of the disk
    #[arg(
        long,
        value_name = "MICROSECONDS",
        default_value_t = 0.0,
        conflicts_with = "hit_only"
    )]
    pub client_us: f64,
    /// Number of requests at the start that are not measured
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warm_up: u64,
    /// A tiering volume is empty at the start, as `create` makes it: extents get their places on the slowest tier when they are first touched,
    /// as near to their addresses as there is room, on a member of the size in --tier, or of the trace's span. Without this option, and always in a cache volume, data is at
    /// the trace's addresses
    #[arg(long, conflicts_with = "hit_only")]
    pub new_volume: bool,
    /// Pause in seconds between warm-up and measurement, in which moves of the warm-up end
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.0,
        conflicts_with = "hit_only"
    )]
    pub rest: f64,
    /// Seconds without use after which each member, fastest first, goes to standby; 0 = never
    #[arg(
        long,
        value_name = "SECONDS,...",
        value_delimiter = ',',
        conflicts_with = "hit_only"
    )]
    pub standby: Vec<f64>,
    /// A setting of the engine, which works with every policy.
    #[arg(help = engine_settings())]
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "hit_only", value_parser = setting)]
    pub set: Vec<(String, f64)>,
    /// Promise to classes: CLASSES+KEY=VALUE with floor, ceiling (bytes a second), latency, share; or depth=N; docs/serving.md
    #[arg(long, value_name = "ROW", conflicts_with = "hit_only", value_parser = promise)]
    pub qos: Vec<String>,
    /// Years that the fast tier must last: sets wear_bytes_per_day to what its data sheet (or --wear-tbw) allows
    #[arg(long, value_name = "YEARS", conflicts_with = "hit_only")]
    pub wear_years: Option<f64>,
    /// Terabytes (10^12 bytes) that may be written to the fast tier in its life, instead of the data sheet's value
    #[arg(long, value_name = "TB", requires = "wear_years")]
    pub wear_tbw: Option<f64>,
    /// Power of the host in addition to the devices, watts
    #[arg(
        long,
        value_name = "WATTS",
        default_value_t = 0.0,
        conflicts_with = "hit_only"
    )]
    pub host_power: f64,
    /// Ignore the trace's discards, as hit-only runs do
    #[arg(long)]
    pub no_discards: bool,
    /// Every extent has a home from the start; otherwise it gets one at its first touch, which is recorded if it is a write
    #[arg(long, conflicts_with = "hit_only")]
    pub full: bool,
    /// Record series with at least N time bins
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        conflicts_with = "hit_only"
    )]
    pub time_bins: u32,
    /// Record a heat map with N address bins
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        conflicts_with = "hit_only"
    )]
    pub address_bins: u32,
    /// Seed of all random numbers; so far a run uses none
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Stop after N requests
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
}

/// The share of a sample.
fn sample(text: &str) -> Result<f64, String> {
    let rate = text
        .parse()
        .map_err(|_| format!("`{text}`: a share such as 0.01"))?;
    isotherm_lab::sample::check_rate(rate)
}

/// `KEY=VALUE` of the engine.
fn setting(text: &str) -> Result<(String, f64), String> {
    let (key, value) = crate::member::knob(text)?;
    isotherm_lab::sim::check_setting(&key, value)?;
    Ok((key, value))
}

/// A row of promises, which is checked.
fn promise(text: &str) -> Result<String, String> {
    isotherm_words::qos::spec([text]).map(|_| text.to_owned())
}

/// `PRESET` or `PRESET:SIZE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierArg {
    /// Device preset.
    pub preset: String,
    /// The part of it that holds data.
    pub size: Option<Size>,
}

impl std::str::FromStr for TierArg {
    type Err = String;

    fn from_str(text: &str) -> Result<TierArg, String> {
        let (preset, size) = match text.split_once(':') {
            Some((p, s)) => (p, Some(s.parse::<Size>().map_err(|e| e.to_string())?)),
            None => (text, None),
        };
        isotherm_models::sheet(preset).map_err(|e| e.to_string())?;
        Ok(TierArg {
            preset: preset.to_owned(),
            size,
        })
    }
}

/// The time at which requests start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeMode {
    /// When an earlier one ends.
    Closed,
    /// At the trace's time.
    Trace,
}

/// `isotherm compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  isotherm compare web.spc.zst --policies lru,greendm,PT=2,hot-dst-recency --fast-size 10% --depth 8"
)]
pub struct CompareArgs {
    /// Trace files, each compared by itself
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Policies A,B,...; an item with `=` is a parameter of the policy before it
    #[arg(long, value_name = "A,K=V,B", value_parser = policies, default_value = "benefit,bcache-like,dss-lru,lru,greendm")]
    pub policies: PolicyList,
    /// Devices, sizes and time.
    #[command(flatten)]
    pub world: WorldArgs,
    /// How to read the traces.
    #[command(flatten)]
    pub read: TraceOptions,
    /// Pages and pictures.
    #[command(flatten)]
    pub page: PageArgs,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// Policies in the order given.
pub type PolicyList = std::sync::Arc<[PolicySpec]>;

fn policies(text: &str) -> Result<PolicyList, String> {
    PolicySpec::list(text).map(Into::into)
}

/// `isotherm sweep`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  isotherm sweep grid.toml --out results")]
pub struct SweepArgs {
    /// The grid (docs/lab.md lists its keys)
    #[arg(value_name = "GRID.toml")]
    pub grid: PathBuf,
    /// Directory of the results; cells that are there already are not run again
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Number of threads [default: number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Where the summary goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// A command that only lists.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Where the list goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm demo`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm demo\n  isotherm demo --skip-postmark --json out.json --plot out.svg"
)]
pub struct DemoArgs {
    /// Write the figures as JSON to this file; `-` is standard output, without the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
        default_value = "demo-out/demo.json", default_missing_value = "-")]
    pub json: PathBuf,
    /// Draw the figures into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Directory in which the work directory is created [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Policy of the hybrid, NAME[,KEY=VALUE...]
    #[arg(long, default_value = isotherm_core::policy::DEFAULT)]
    pub policy: PolicySpec,
    /// Number of files of postmark
    #[arg(long, value_name = "N", default_value_t = 14_000, value_parser = clap::value_parser!(u32).range(1000..=1_000_000))]
    pub files: u32,
    /// Number of transactions of postmark
    #[arg(long, value_name = "N", default_value_t = 3000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub transactions: u32,
    /// Trace to replay [default: linux-mysql.load, which is built in]
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Number of requests of the trace
    #[arg(long, value_name = "N", default_value_t = 8000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub limit: u32,
    /// Number of concurrent requests of the trace
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: u16,
    /// Write the replayed requests, after the writes that fill the volume, as a trace (for `sim --warm-up`, see bench/parity)
    #[arg(long, value_name = "FILE")]
    pub save_trace: Option<PathBuf>,
    /// Record the events of each replay into this directory: hdd.events, hybrid.events and ssd.events (for `sim --as-recorded`, see
    /// bench/parity)
    #[arg(long, value_name = "DIR")]
    pub save_events: Option<PathBuf>,
    /// Skip postmark, which needs root
    #[arg(long)]
    pub skip_postmark: bool,
    /// Skip the trace
    #[arg(long)]
    pub skip_trace: bool,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// Help of `--set`, with the names of all knobs.
fn engine_settings() -> String {
    let knobs: Vec<&str> = KNOBS.iter().map(|k| k.name).collect();
    format!(
        "Setting of the engine, which works with every policy: {}; docs/reference.md says units and ranges",
        knobs.join(", ")
    )
}
