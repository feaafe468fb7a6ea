//! Arguments of the lab's commands.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use isotherm_core::engine::KNOBS;
use isotherm_models::FlashState;

use crate::json::JsonArg;
use crate::pages::PageArgs;
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
    isotherm sim a.csv --policy lru --fast-size 10% --time trace --standby 0,60 --set sleep_hold_s=3600 --set sleep_hold_bytes=1G"
)]
pub struct SimArgs {
    /// Trace files or generators (gen:NAME,KEY=VALUE,...), each a run of its own; formats are sniffed, .zst and .gz read directly
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// All traces as the volumes of one run, merged by time
    #[arg(long)]
    pub side_by_side: bool,
    /// Estimate hits from samples of the extents, each this share of all (0.01); the error is printed with them. The trace is read
    /// once, for whatever many sizes
    #[arg(long, value_name = "SHARE", requires = "hit_only", conflicts_with = "side_by_side", value_parser = sample)]
    pub sample: Option<f64>,
    /// Policy with parameters, NAME,KEY=VALUE,...
    #[arg(long, default_value = isotherm_core::policy::DEFAULT)]
    pub policy: PolicySpec,
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

/// What a run in the lab is told besides trace and policy.
#[derive(Clone, Debug, Args)]
pub struct WorldArgs {
    /// Size of the fast tier: bytes (8G) or a share of the touched addresses (10%); `sim` takes a list (1%,2%,5%), a run each
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub fast_size: Vec<Size>,
    /// Extent size, a power of two from 4K to 4M [default: 4K]
    #[arg(long, value_name = "SIZE", value_parser = size::extent)]
    pub extent: Option<u32>,
    /// Count hits and moves only: no device models, no time, no energy
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
    /// Flash begins overwritten at random for long (preconditioned, or ftl for short) or erased (fresh), or has no translation
    /// layer: no collection and no write amplification (ideal) [default: preconditioned]
    #[arg(long, value_name = "STATE", conflicts_with = "hit_only", value_parser = FlashState::parse)]
    pub flash: Option<FlashState>,
    /// Spare flash as a share of what is visible, 0.01 to 10, instead of the data sheet's
    #[arg(long, value_name = "SHARE", conflicts_with = "hit_only")]
    pub over_provisioning: Option<f64>,
    /// Where members lie on their drives: spread over all of each, so that seeks are as long as on a drive in use (full), or from
    /// this byte on as the trace has them (0 is a disk's outer edge) [default: full]
    #[arg(long, value_name = "full|BYTE", conflicts_with = "hit_only", value_parser = isotherm_lab::sim::parse_span)]
    pub span: Option<isotherm_models::Span>,
    /// Requests follow each other (closed) or the trace's clock
    #[arg(long, value_enum, conflicts_with = "hit_only")]
    pub time: Option<TimeMode>,
    /// Requests in flight in the closed loop [default: 1]
    #[arg(long, conflicts_with = "hit_only", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub depth: Option<u32>,
    /// The trace's clock runs so many times faster [default: 1]
    #[arg(long, value_name = "FACTOR", conflicts_with = "hit_only")]
    pub accelerate: Option<f64>,
    /// Requests before anything counts
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warm_up: u64,
    /// The volume begins as `create` makes it, empty: extents get their places on the slowest tier when they are first touched,
    /// side by side, on a member of the size that --tier gives it or of the trace's span. Otherwise data lie there before the run,
    /// where the trace has them
    #[arg(long, conflicts_with = "hit_only")]
    pub new_volume: bool,
    /// Seconds between the warm-up and what counts, in which what the warm-up set off ends
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.0,
        conflicts_with = "hit_only"
    )]
    pub rest: f64,
    /// Seconds without use after which each member, fastest first, goes to sleep; 0 = never
    #[arg(
        long,
        value_name = "SECONDS,...",
        value_delimiter = ',',
        conflicts_with = "hit_only"
    )]
    pub standby: Vec<f64>,
    /// Setting of the engine, which works with every policy.
    #[arg(help = engine_settings())]
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "hit_only", value_parser = setting)]
    pub set: Vec<(String, f64)>,
    /// Promise to classes: CLASSES+KEY=VALUE with floor, ceiling (bytes a second), latency, share; or depth=N; docs/serving.md
    #[arg(long, value_name = "ROW", conflicts_with = "hit_only", value_parser = promise)]
    pub qos: Vec<String>,
    /// Years that the fast tier must last: sets wear_bytes_per_day to what its data sheet (or --wear-tbw) allows
    #[arg(long, value_name = "YEARS", conflicts_with = "hit_only")]
    pub wear_years: Option<f64>,
    /// Terabytes (10^12 bytes) that may be written to the fast tier in its life, instead of what the data sheet says
    #[arg(long, value_name = "TB", requires = "wear_years")]
    pub wear_tbw: Option<f64>,
    /// Power of the host beside the devices, watts
    #[arg(
        long,
        value_name = "WATTS",
        default_value_t = 0.0,
        conflicts_with = "hit_only"
    )]
    pub host_power: f64,
    /// Leave out the trace's discards, as hit-only runs do
    #[arg(long)]
    pub no_discards: bool,
    /// The volume is full from the start; else an extent gets its home at its first touch, which is recorded like any change
    #[arg(long, conflicts_with = "hit_only")]
    pub full: bool,
    /// Keep series with at least so many time bins
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        conflicts_with = "hit_only"
    )]
    pub time_bins: u32,
    /// Keep a heat map with so many address bins
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        conflicts_with = "hit_only"
    )]
    pub address_bins: u32,
    /// Seed of everything random; so far nothing in a run is
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Stop after so many requests
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

/// A row of promises, looked at.
fn promise(text: &str) -> Result<String, String> {
    isotherm_lab::qos::spec([text]).map(|_| text.to_owned())
}

/// `PRESET` or `PRESET:SIZE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierArg {
    /// Device preset.
    pub preset: String,
    /// What of it holds data.
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

/// When requests start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeMode {
    /// When an earlier one ends.
    Closed,
    /// When the trace says.
    Trace,
}

/// Unit of a trace's time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
}

/// How to read a trace.
#[derive(Clone, Debug, Default, Args)]
pub struct TraceOptions {
    /// Format of the trace instead of the sniffed one (see `isotherm formats`)
    #[arg(long)]
    pub format: Option<String>,
    /// Bad records to skip and count before giving up
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_bad: u64,
    /// Unit of time where the format leaves it open (disksim, replay, disksim-pages)
    #[arg(long = "time-unit", alias = "trace-unit", value_enum)]
    pub trace_unit: Option<Unit>,
    /// What the columns of a text of no known format hold, by place (- for one that does not matter) or as ROLE=NAME of its first
    /// line: time_s, _ms, _us, _100ns, _ns; device; op (letters), op_read1, op_read0; offset_bytes, _sectors, _4k; length_bytes,
    /// _sectors, _4k; latency_s … _ns; class
    #[arg(long, value_name = "COLUMN,...", conflicts_with = "format")]
    pub columns: Option<isotherm_traces::ColumnMap>,
    /// Bytes of a block in lists of block numbers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub block_bytes: Option<u32>,
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
    /// Directory of the results; what is there already is not run again
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Threads [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Where the summary goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm trace`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  isotherm trace info web.spc.zst --json")]
pub struct TraceArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// What can be done with traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Sum up a trace
    Info(TraceInfoArgs),
    /// Write a trace in another format
    Convert(TraceConvertArgs),
    /// List workload generators with parameters and source
    #[command(after_help = "Example:\n  isotherm trace generators --json")]
    Generators(ListArgs),
}

/// `isotherm trace convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm trace convert web.spc.zst --out web.parquet --to parquet\n  \
    isotherm trace convert gen:postmark,files=4000,transactions=8000 --out postmark.parquet"
)]
pub struct TraceConvertArgs {
    /// The trace to read, or gen:NAME,KEY=VALUE,... (see `isotherm trace generators`)
    pub file: PathBuf,
    /// The trace to write, which must not exist
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Format to write
    #[arg(long, value_name = "FORMAT", default_value = "parquet")]
    pub to: String,
    /// Stop after so many requests
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// How to read it.
    #[command(flatten)]
    pub read: TraceOptions,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm trace info`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm trace info web.spc.zst --json\n  isotherm trace info gen:web-search,scale=0.1"
)]
pub struct TraceInfoArgs {
    /// The trace, or gen:NAME,KEY=VALUE,... (see `isotherm trace generators`)
    pub file: PathBuf,
    /// Draw it as SVG: heat of address over time, request sizes, reuse distances
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Stop after so many requests
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// How to read it.
    #[command(flatten)]
    pub read: TraceOptions,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm policies`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm policies\n  isotherm policies greendm\n  isotherm policies --json"
)]
pub struct PoliciesArgs {
    /// One policy in full: what it does, its parameters and its source
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Where the list goes.
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
    /// Where the figures go as JSON; `-` is standard output, without the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
        default_value = "demo-out/demo.json", default_missing_value = "-")]
    pub json: PathBuf,
    /// Draw the figures into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Where the work directory is made [default: where temporary files go]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Policy of the hybrid, NAME[,KEY=VALUE...]
    #[arg(long, default_value = isotherm_core::policy::DEFAULT)]
    pub policy: PolicySpec,
    /// Files of postmark
    #[arg(long, value_name = "N", default_value_t = 14_000, value_parser = clap::value_parser!(u32).range(1000..=1_000_000))]
    pub files: u32,
    /// Transactions of postmark
    #[arg(long, value_name = "N", default_value_t = 3000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub transactions: u32,
    /// Trace to replay [default: linux-mysql.load, which is built in]
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Requests of the trace
    #[arg(long, value_name = "N", default_value_t = 8000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub limit: u32,
    /// Requests of the trace in flight
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: u16,
    /// Write what is replayed, behind the writes that fill the volume before, as a trace (for `sim --warm-up`, see bench/parity)
    #[arg(long, value_name = "FILE")]
    pub save_trace: Option<PathBuf>,
    /// Leave out postmark, which needs root
    #[arg(long)]
    pub skip_postmark: bool,
    /// Leave out the trace
    #[arg(long)]
    pub skip_trace: bool,
    /// No progress lines
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
