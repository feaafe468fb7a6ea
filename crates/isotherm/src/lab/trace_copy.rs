//! `trace convert`, `trace cut`, `trace merge` and `trace sort`: the commands that write a trace.

use std::io::ErrorKind::BrokenPipe;
use std::path::{Path, PathBuf};

use isotherm_traces::{Format, Options, Pick, Reader, TraceError, WriteOptions};

use super::trace::{failed, find, format, limited, options, say_assumed};
use crate::Failure;
use crate::lab::args::{
    TraceConvertArgs, TraceCopyArgs, TraceCutArgs, TraceMergeArgs, TraceSortArgs,
};

/// `isotherm trace convert`.
pub(super) fn convert(a: &TraceConvertArgs) -> Result<(), Failure> {
    let read = limited(&a.copy.read, a.limit)?;
    one(&a.file, &read, &a.to, &a.copy, &Pick::default())
}

/// `isotherm trace cut`.
pub(super) fn cut(a: &TraceCutArgs) -> Result<(), Failure> {
    let all = Pick::default();
    let (from, to) = (a.from.unwrap_or(all.from), a.to.unwrap_or(all.to));
    if from >= to {
        return Err(Failure::usage("--from must be earlier than --to"));
    }
    let pick = Pick {
        from,
        to,
        every: a.every,
    };
    one(
        &a.file,
        &options(&a.copy.read)?,
        &a.written_as,
        &a.copy,
        &pick,
    )
}

/// `isotherm trace sort`.
pub(super) fn sort(a: &TraceSortArgs) -> Result<(), Failure> {
    let read = Options {
        sort_window: Some(a.window as usize),
        ..options(&a.copy.read)?
    };
    let out = Out::of(&a.to, &a.copy)?;
    let path = find(&a.file)?;
    // A copy that is not sorted is not written, so the window is tried first.
    let tried = isotherm_traces::info(&path, &read).map_err(|e| failed(&e))?;
    if tried.reader.time_went_back > 0 {
        return Err(Failure::failed(format!(
            "{}: {} requests would have to pass more than {} others: give a larger --window",
            path.display(),
            tried.reader.time_went_back,
            a.window
        )));
    }
    say_assumed(&path, &read)?;
    out.write(
        &|| isotherm_traces::open(&path, &read),
        &Pick::default(),
        read.block_bytes,
    )
}

/// `isotherm trace merge`.
pub(super) fn merge(a: &TraceMergeArgs) -> Result<(), Failure> {
    let (read, out) = (options(&a.copy.read)?, Out::of(&a.to, &a.copy)?);
    let files = a
        .files
        .iter()
        .map(|f| find(f))
        .collect::<Result<Vec<_>, _>>()?;
    for file in &files {
        say_assumed(file, &read)?;
    }
    let open = || {
        if a.from_zero {
            isotherm_traces::open_from_zero(&files, &read)
        } else {
            isotherm_traces::open_merged(&files, &read)
        }
    };
    out.write(&open, &Pick::default(), read.block_bytes)
}

/// Writes a copy of one trace.
fn one(
    file: &Path,
    read: &Options,
    to: &str,
    copy: &TraceCopyArgs,
    pick: &Pick,
) -> Result<(), Failure> {
    let out = Out::of(to, copy)?;
    let path = find(file)?;
    say_assumed(&path, read)?;
    out.write(
        &|| isotherm_traces::open(&path, read),
        pick,
        read.block_bytes,
    )
}

/// The trace to be written.
struct Out<'a> {
    copy: &'a TraceCopyArgs,
    path: PathBuf,
    format: Format,
    stream: bool,
    to_stdout: bool,
}

impl Out<'_> {
    /// Checks that the trace can be written before anything is read.
    fn of<'a>(to: &str, copy: &'a TraceCopyArgs) -> Result<Out<'a>, Failure> {
        let format = format(to)?;
        if !Format::writable().any(|f| f == format) {
            let names: Vec<_> = Format::writable().map(Format::name).collect();
            return Err(Failure::usage(format!(
                "format `{format}` can only be read; to write there are: {}",
                names.join(", ")
            )));
        }
        let path = if copy.out == Path::new("-") {
            PathBuf::from("/dev/stdout")
        } else {
            copy.out.clone()
        };
        let stream = isotherm_traces::is_stream(&path);
        let to_stdout = stream && is_stdout(&path);
        if to_stdout && copy.json.is_stdout() {
            return Err(Failure::usage(
                "--json: the trace goes to standard output, so the figures need a file: --json=FILE",
            ));
        }
        if !stream && path.exists() {
            return Err(Failure::failed(format!(
                "{}: exists already: choose another name",
                path.display()
            )));
        }
        Ok(Out {
            copy,
            path,
            format,
            stream,
            to_stdout,
        })
    }

    /// Writes the picked requests, and says what was written.
    fn write(
        &self,
        open: &dyn Fn() -> Result<Reader, TraceError>,
        pick: &Pick,
        block_bytes: Option<u32>,
    ) -> Result<(), Failure> {
        let how = WriteOptions::new(self.format);
        let how = WriteOptions {
            block_bytes: block_bytes.unwrap_or(how.block_bytes),
            ..how
        };
        let written = match isotherm_traces::copy(open, pick, &self.path, &how) {
            // A reader that has closed the pipe has what it wants.
            Err(TraceError::Write { source, .. }) if self.stream && source.kind() == BrokenPipe => {
                return Ok(());
            }
            written => written.map_err(|e| failed(&e))?,
        };
        let words = || {
            let lost: Vec<_> = written.lost.iter().copied().collect();
            let lost = if lost.is_empty() {
                String::new()
            } else {
                format!("; {} does not hold: {}", self.format, lost.join(", "))
            };
            format!(
                "{}: {} requests as {}, {} dropped{lost}\n",
                self.path.display(),
                written.requests,
                self.format,
                written.dropped
            )
        };
        if self.to_stdout && self.copy.json.json.is_none() {
            crate::log::note(format_args!("isotherm: {}", words().trim_end()));
            return Ok(());
        }
        self.copy.json.print(&written, words)
    }
}

/// Whether this path is the standard output of this process.
fn is_stdout(path: &Path) -> bool {
    [path, Path::new("/proc/self/fd/1")]
        .map(std::fs::canonicalize)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .is_ok_and(|p| p[0] == p[1])
        || path == Path::new("/dev/stdout")
}
