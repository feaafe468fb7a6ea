//! Arguments of the commands about traces, and of reading traces.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use isotherm_core::Nanos;

use super::ListArgs;
use crate::json::JsonArg;

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
    /// Format of the trace instead of the detected one (see `isotherm formats`)
    #[arg(long)]
    pub format: Option<String>,
    /// Number of bad records that are skipped and counted before the command fails
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_bad: u64,
    /// Unit of time, if the format does not define it (disksim, replay, disksim-pages, a column `time`)
    #[arg(long = "time-unit", alias = "trace-unit", value_enum)]
    pub trace_unit: Option<Unit>,
    /// Meaning of the columns of a text without a known format, by position (- for a column to ignore) or as ROLE=NAME of its first line:
    /// time_s, _ms, _us, _100ns, _ns; plus_s … _ns (added to the time); done_s … _ns (completion); device; op (letters), op_read1,
    /// op_read0, or op=W for all; offset_bytes, _sectors, _4k; length_bytes, _sectors, _4k; latency_s … _ns; class. time, offset and length
    /// without a unit: by evidence
    #[arg(
        long,
        value_name = "COLUMN,...",
        conflicts_with = "format",
        allow_hyphen_values = true
    )]
    pub columns: Option<isotherm_traces::ColumnMap>,
    /// Separator of the columns: a character, `tab` or `blank` [default: found in the first line]
    #[arg(long, value_name = "CHAR", requires = "columns", allow_hyphen_values = true, value_parser = separator)]
    pub separator: Option<u8>,
    /// Bytes of a block in lists of block numbers, and of an object number in oracle-general
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub block_bytes: Option<u32>,
}

/// `isotherm trace`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  isotherm trace info web.spc.zst --json")]
pub struct TraceArgs {
    /// The command.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// Commands about traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Show the figures of a trace
    Info(TraceInfoArgs),
    /// Write a trace in another format
    Convert(TraceConvertArgs),
    /// Write a part of a trace: an interval of time, or one request of N
    Cut(TraceCutArgs),
    /// Merge traces by time into one
    Merge(TraceMergeArgs),
    /// Write a trace with its requests sorted by time
    Sort(TraceSortArgs),
    /// List workload generators with parameters and source
    #[command(after_help = "Example:\n  isotherm trace generators --json")]
    Generators(ListArgs),
}

/// `isotherm trace convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm trace convert web.spc.zst --out web.parquet --to parquet\n  \
    isotherm trace convert gen:postmark,files=4000,transactions=8000 --out postmark.parquet\n  \
    isotherm trace convert web.spc.zst --to csv --out - | head"
)]
pub struct TraceConvertArgs {
    /// The trace to read, or gen:NAME,KEY=VALUE,... (see `isotherm trace generators`)
    pub file: PathBuf,
    /// Format to write
    #[arg(long, alias = "as", value_name = "FORMAT", default_value = "parquet")]
    pub to: String,
    /// The copy.
    #[command(flatten)]
    pub copy: TraceCopyArgs,
    /// Stop after N requests
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
}

/// What all commands have that write a trace.
#[derive(Debug, Args)]
pub struct TraceCopyArgs {
    /// The trace to write, which must not exist; or a pipe, or `-` for standard output, in formats that are written in order (not
    /// oracle-general)
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// How to read it.
    #[command(flatten)]
    pub read: TraceOptions,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm trace cut`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm trace cut week.csv.zst --from 24h --to 48h --out tuesday.parquet\n  \
    isotherm trace cut web.spc.zst --to 90 --as csv --out -\n  \
    isotherm trace cut web.spc.zst --every 10 --out tenth.parquet"
)]
pub struct TraceCutArgs {
    /// The trace to read, or gen:NAME,KEY=VALUE,... (see `isotherm trace generators`)
    pub file: PathBuf,
    /// Requests from this time on, since the beginning of the trace; it is time zero of the copy. Seconds, or a number with s, m, h or d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Nanos>,
    /// Requests before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Nanos>,
    /// One request of N, the first one first
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub every: u64,
    /// Format to write
    #[arg(long = "as", value_name = "FORMAT", default_value = "parquet")]
    pub written_as: String,
    /// The copy.
    #[command(flatten)]
    pub copy: TraceCopyArgs,
}

/// `isotherm trace merge`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm trace merge usr_0.csv usr_1.csv --out usr.parquet\n  \
    isotherm trace merge web.spc.zst gen:postmark --from-zero --out both.parquet"
)]
pub struct TraceMergeArgs {
    /// The traces, which have one format and one clock, and call a device by one name
    #[arg(required = true, num_args = 2.., value_name = "TRACE")]
    pub files: Vec<PathBuf>,
    /// Begin each trace at its own time zero, with devices of its own; formats may differ
    #[arg(long)]
    pub from_zero: bool,
    /// Format to write
    #[arg(long, alias = "as", value_name = "FORMAT", default_value = "parquet")]
    pub to: String,
    /// The copy.
    #[command(flatten)]
    pub copy: TraceCopyArgs,
}

/// `isotherm trace sort`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  isotherm trace sort odd.txt --columns time_us,op,offset_sectors,length_bytes --out sorted.parquet"
)]
pub struct TraceSortArgs {
    /// The trace to read
    pub file: PathBuf,
    /// Requests that a request may have to pass; memory is some 150 bytes for each. The command fails if it is too small
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=1 << 28))]
    pub window: u32,
    /// Format to write
    #[arg(long, alias = "as", value_name = "FORMAT", default_value = "parquet")]
    pub to: String,
    /// The copy.
    #[command(flatten)]
    pub copy: TraceCopyArgs,
}

/// `isotherm trace info`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm trace info web.spc.zst --json\n  isotherm trace info gen:web-search,scale=0.1"
)]
pub struct TraceInfoArgs {
    /// The trace, or gen:NAME,KEY=VALUE,... (see `isotherm trace generators`)
    pub file: PathBuf,
    /// Draw an SVG: heat of addresses over time, request sizes, reuse distances
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Stop after N requests
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// How to read it.
    #[command(flatten)]
    pub read: TraceOptions,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// The separator of columns.
fn separator(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        b"blank" | b"space" => Ok(b' '),
        [c] if c.is_ascii() => Ok(*c),
        _ => Err("one character, `tab` or `blank`".to_owned()),
    }
}

/// A time since the beginning of a trace.
fn moment(text: &str) -> Result<Nanos, String> {
    const UNITS: [(char, f64); 4] = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', 86_400.0)];
    let unit = UNITS.iter().find(|(letter, _)| text.ends_with(*letter));
    let (number, factor) = match unit {
        Some((letter, factor)) => (text.trim_end_matches(*letter), *factor),
        None => (text, 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|n| n * factor);
    seconds
        .filter(|s| (0.0..1.8e10).contains(s))
        .map(|s| Nanos((s * 1e9) as u64))
        .ok_or_else(|| {
            "a time in seconds, or with s, m, h or d, such as 90, 1.5h or 2d (--as names the format)".to_owned()
        })
}
