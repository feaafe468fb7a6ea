//! `trace info` and `trace generators`, and functions for all commands that read traces.

use std::path::{Path, PathBuf};

use isotherm_traces::generate::generators;
use isotherm_traces::{Format, Heats, Options, Source, TimeUnit, TraceError};

use super::trace_plot;
use super::{pipe, trace_copy};
use crate::Failure;
use crate::lab::args::{ListArgs, TraceArgs, TraceCommand, TraceInfoArgs, TraceOptions};
use crate::table::table;

/// `isotherm trace …`.
///
/// # Errors
/// The trace cannot be read, or the output cannot be written.
pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    match &args.command {
        TraceCommand::Info(a) => info(a),
        TraceCommand::Convert(a) => trace_copy::convert(a),
        TraceCommand::Cut(a) => trace_copy::cut(a),
        TraceCommand::Merge(a) => trace_copy::merge(a),
        TraceCommand::Sort(a) => trace_copy::sort(a),
        TraceCommand::Generators(a) => list(a),
    }
}

/// `isotherm trace info`.
fn info(a: &TraceInfoArgs) -> Result<(), Failure> {
    let path = find(&a.file)?;
    let options = limited(&a.read, a.limit)?;
    let reader = isotherm_traces::open(&path, &options).map_err(|e| failed(&e))?;
    let mut heats = a.plot.as_ref().map(|_| Heats::default());
    let info = isotherm_traces::info_and_heat(reader, heats.as_mut()).map_err(|e| failed(&e))?;
    if let (Some(file), Some(heats)) = (&a.plot, &heats) {
        trace_plot::draw(&path.display().to_string(), &info, heats, file)?;
    }
    let or_none = |v: Option<String>| v.unwrap_or_else(|| "-".to_owned());
    let whole = |v: Option<f64>| or_none(v.map(|v| format!("{v:.0}")));
    a.json.print(&info, || {
        let sizes = info.request_bytes.map(|s| {
            format!(
                "mean {:.0}, p50 {}, p90 {}, p99 {}, max {}",
                s.mean, s.p50, s.p90, s.p99, s.max
            )
        });
        let reuse = format!(
            "first {:.4}, p50 {}, p90 {}, p99 {} (sampled {:.4}; hit ratios within {:.4})",
            info.reuse.first_ratio,
            whole(info.reuse.p50_bytes),
            whole(info.reuse.p90_bytes),
            whole(info.reuse.p99_bytes),
            info.reuse.sampling_rate,
            info.reuse.lru_error
        );
        let rows: Vec<Vec<String>> = [
            ("format", info.format.clone()),
            ("requests", info.requests.to_string()),
            ("reads", info.reads.to_string()),
            ("writes", info.writes.to_string()),
            ("flushes", info.flushes.to_string()),
            ("discards", info.discards.to_string()),
            ("bytes_read", info.bytes_read.to_string()),
            ("bytes_written", info.bytes_written.to_string()),
            ("unique_4k", info.unique_4k.to_string()),
            ("working_set_bytes", info.working_set_bytes.to_string()),
            (
                "first_byte",
                or_none(info.first_byte.map(|v| v.to_string())),
            ),
            ("last_byte", or_none(info.last_byte.map(|v| v.to_string()))),
            (
                "duration_s",
                or_none(info.duration_s.map(|v| v.to_string())),
            ),
            ("devices", info.devices.to_string()),
            ("sequential_ratio", format!("{:.4}", info.sequential_ratio)),
            ("request_bytes", or_none(sizes)),
            ("reuse_bytes", reuse),
            ("bad_skipped", info.reader.bad_skipped.to_string()),
            (
                "zero_length_dropped",
                info.reader.zero_length_dropped.to_string(),
            ),
            ("sorted", info.reader.sorted.to_string()),
            ("time_went_back", info.reader.time_went_back.to_string()),
            ("other_events", info.reader.other_events.to_string()),
            ("sure", format!("{:?}", info.sure).to_lowercase()),
            ("assumed", info.assumed.join(" ")),
            ("doubts", info.doubts.join(" ")),
        ]
        .map(|(k, v)| vec![k.to_owned(), v])
        .to_vec();
        table(&["trace", &path.display().to_string()], &rows)
    })
}

/// Requests at the start of a trace that are examined for signs of a wrong format or unit before a run.
const EXAMINED: u64 = 50_000;

/// Reports on standard error the assumptions that reading the trace requires, and what no real device does. Only the start of the trace
/// is read.
///
/// # Errors
/// The trace cannot be opened.
pub fn say_assumed(path: &Path, options: &Options) -> Result<(), Failure> {
    if Source::is_generator(path) {
        return Ok(());
    }
    let reader = isotherm_traces::open(path, options).map_err(|e| failed(&e))?;
    for what in reader.assumed() {
        crate::log::note(format_args!("isotherm: {}: {what}", path.display()));
    }
    let most = options.limit.map_or(EXAMINED, |limit| limit.min(EXAMINED));
    let start = Options {
        limit: Some(most),
        ..options.clone()
    };
    // An error in the first requests is reported by the run itself, with the same words.
    if let Ok(info) = isotherm_traces::info(path, &start) {
        for what in &info.doubts {
            crate::log::note(format_args!(
                "WARNING: {}: in the first {} requests: {what}",
                path.display(),
                info.requests
            ));
        }
    }
    Ok(())
}

/// `isotherm trace generators`.
fn list(a: &ListArgs) -> Result<(), Failure> {
    a.json.print(&generators(), || {
        let mut rows = Vec::new();
        for g in generators() {
            rows.push(
                [&format!("gen:{}", g.name), "", g.what, g.source]
                    .map(str::to_owned)
                    .to_vec(),
            );
            for p in g.params {
                rows.push(vec![
                    format!("  {}", p.name),
                    p.show(p.default),
                    p.what.to_owned(),
                    String::new(),
                ]);
            }
            rows.push(vec![
                "  scale".to_owned(),
                g.scale.to_string(),
                "all counts and sizes times this".to_owned(),
                String::new(),
            ]);
            rows.push(vec![
                "  seed".to_owned(),
                "1".to_owned(),
                "seed of everything random".to_owned(),
                String::new(),
            ]);
        }
        table(&["generator", "default", "what", "source"], &rows)
    })
}

/// The path or generator as given, or the path below `$ISOTHERM_TRACES`; `-` is standard input. Of a pipe, the path of a copy.
///
/// # Errors
/// It is in neither place, or a pipe cannot be copied.
pub fn find(path: &Path) -> Result<PathBuf, Failure> {
    let path = if path == Path::new("-") {
        Path::new("/dev/stdin")
    } else {
        path
    };
    if let Some(copy) = pipe::kept(path)? {
        return Ok(copy);
    }
    isotherm_traces::find(path).map_err(|e| {
        // An unknown generator is wrong usage, and is reported before anything else is done.
        if Source::is_generator(path) {
            Failure::usage(e.to_string())
        } else {
            failed(&e)
        }
    })
}

/// The options of the reader.
///
/// # Errors
/// There is no such format.
pub fn options(args: &TraceOptions) -> Result<Options, Failure> {
    Ok(Options {
        format: args.format.as_deref().map(format).transpose()?,
        skip_bad: args.skip_bad,
        trace_unit: args.trace_unit.map(|u| match u {
            crate::lab::args::Unit::Ns => TimeUnit::Nanoseconds,
            crate::lab::args::Unit::Us => TimeUnit::Microseconds,
            crate::lab::args::Unit::Ms => TimeUnit::Milliseconds,
            crate::lab::args::Unit::S => TimeUnit::Seconds,
        }),
        limit: None,
        block_bytes: args.block_bytes,
        columns: args.columns.clone().map(|columns| match args.separator {
            Some(separator) => columns.separated_by(separator),
            None => columns,
        }),
        sort_window: None,
    })
}

/// As [`options`], for the first `limit` requests.
///
/// # Errors
/// As [`options`].
pub fn limited(args: &TraceOptions, limit: Option<u64>) -> Result<Options, Failure> {
    Ok(Options {
        limit,
        ..options(args)?
    })
}

/// The format with that name.
///
/// # Errors
/// There is none; the message names the nearest one.
pub fn format(name: &str) -> Result<Format, Failure> {
    name.parse().map_err(|_| {
        let nearest = isotherm_core::policy::nearest(name, Format::all().map(Format::name));
        Failure::usage(format!(
            "unknown trace format `{name}`; nearest: `{nearest}` (see `isotherm formats`)"
        ))
    })
}

/// Converts an error of a trace.
pub fn failed(error: &TraceError) -> Failure {
    Failure::failed(error.to_string())
}
