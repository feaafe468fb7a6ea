//! `trace info`, and what all commands that read traces share.

use std::path::{Path, PathBuf};

use isotherm_traces::{Format, Options, TimeUnit, TraceError};

use crate::Failure;
use crate::args::{TraceArgs, TraceCommand, TraceConvertArgs, TraceOptions};
use crate::table::table;

/// Where traces outside the tree are looked for.
const TRACES_VAR: &str = "ISOTHERM_TRACES";

/// `isotherm trace …`.
///
/// # Errors
/// The trace cannot be read, or the output not written.
pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    match &args.command {
        TraceCommand::Info(a) => {
            let path = find(&a.file)?;
            let info = isotherm_traces::info(&path, &limited(&a.read, a.limit)?)
                .map_err(|e| failed(&e))?;
            a.json.print(&info, || {
                let or_none = |v: Option<u64>| v.map_or_else(|| "-".to_owned(), |v| v.to_string());
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
                    ("first_byte", or_none(info.first_byte)),
                    ("last_byte", or_none(info.last_byte)),
                    (
                        "duration_s",
                        info.duration_s
                            .map_or_else(|| "-".to_owned(), |d| d.to_string()),
                    ),
                    ("devices", info.devices.to_string()),
                    ("sequential_ratio", format!("{:.4}", info.sequential_ratio)),
                    ("bad_skipped", info.reader.bad_skipped.to_string()),
                ]
                .map(|(k, v)| vec![k.to_owned(), v])
                .to_vec();
                table(&["trace", &path.display().to_string()], &rows)
            })
        }
        TraceCommand::Convert(a) => convert(a),
    }
}

fn convert(a: &TraceConvertArgs) -> Result<(), Failure> {
    let to = format(&a.to)?;
    if !Format::writable().any(|f| f == to) {
        let names: Vec<_> = Format::writable().map(Format::name).collect();
        return Err(Failure::usage(format!(
            "format `{to}` can only be read; to write there are: {}",
            names.join(", ")
        )));
    }
    if a.out.exists() {
        return Err(Failure::failed(format!(
            "{}: exists already: choose another name",
            a.out.display()
        )));
    }
    let written = isotherm_traces::convert(find(&a.file)?, &limited(&a.read, a.limit)?, &a.out, to)
        .map_err(|e| failed(&e))?;
    a.json.print(&written, || {
        let lost: Vec<_> = written.lost.iter().copied().collect();
        let lost = if lost.is_empty() {
            String::new()
        } else {
            format!("; {to} does not hold: {}", lost.join(", "))
        };
        format!(
            "{}: {} requests, {} dropped{lost}\n",
            a.out.display(),
            written.requests,
            written.dropped
        )
    })
}

/// The trace as given, or below `$ISOTHERM_TRACES`.
///
/// # Errors
/// It is in neither place.
pub fn find(path: &Path) -> Result<PathBuf, Failure> {
    if path.exists() || path.is_absolute() {
        return Ok(path.to_owned());
    }
    match std::env::var_os(TRACES_VAR).map(|dir| PathBuf::from(dir).join(path)) {
        Some(there) if there.exists() => Ok(there),
        Some(there) => Err(Failure::failed(format!(
            "{}: no such trace, and none at {} ({TRACES_VAR}) either",
            path.display(),
            there.display()
        ))),
        None => Err(Failure::failed(format!(
            "{}: no such trace (set {TRACES_VAR} to the directory of your traces to name them by file name)",
            path.display()
        ))),
    }
}

/// What the reader is told.
///
/// # Errors
/// No such format.
pub fn options(args: &TraceOptions) -> Result<Options, Failure> {
    Ok(Options {
        format: args.format.as_deref().map(format).transpose()?,
        skip_bad: args.skip_bad,
        trace_unit: args.trace_unit.map(|u| match u {
            crate::args::Unit::Ns => TimeUnit::Nanoseconds,
            crate::args::Unit::Us => TimeUnit::Microseconds,
            crate::args::Unit::Ms => TimeUnit::Milliseconds,
            crate::args::Unit::S => TimeUnit::Seconds,
        }),
        limit: None,
        block_bytes: args.block_bytes,
    })
}

fn limited(args: &TraceOptions, limit: Option<u64>) -> Result<Options, Failure> {
    Ok(Options {
        limit,
        ..options(args)?
    })
}

/// A format by name.
///
/// # Errors
/// None of that name; the nearest one is named.
pub fn format(name: &str) -> Result<Format, Failure> {
    name.parse().map_err(|_| {
        let nearest = isotherm_core::policy::nearest(name, Format::all().map(Format::name));
        Failure::usage(format!(
            "unknown trace format `{name}`; nearest: `{nearest}` (see `isotherm formats`)"
        ))
    })
}

/// A trace's error as ours.
pub fn failed(error: &TraceError) -> Failure {
    Failure::failed(error.to_string())
}
