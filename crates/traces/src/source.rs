//! The source of requests: a trace file or a generator.

use std::path::{Path, PathBuf};

use crate::decode::Run;
use crate::error::TraceError;
use crate::format::Format;
use crate::generate::{Generated, PREFIX, Spec};
use crate::info::{Info, info_reader};
use crate::map::{DeviceSpan, scan_reader};
use crate::open::open_merged;
use crate::reader::{Options, Reader};

/// The variable with the folder in which traces are looked for that are named without a directory.
pub const TRACES_VAR: &str = "ISOTHERM_TRACES";

/// The trace or generator as given, or the trace below `$ISOTHERM_TRACES`.
///
/// # Errors
/// It is in neither place; the generator does not exist; or it does not have these parameters.
pub fn find(name: &Path) -> Result<PathBuf, TraceError> {
    if Source::is_generator(name) {
        Source::of(name)?;
        return Ok(name.to_owned());
    }
    if name.exists() || name.is_absolute() {
        return Ok(name.to_owned());
    }
    match std::env::var_os(TRACES_VAR).map(|dir| PathBuf::from(dir).join(name)) {
        Some(there) if there.exists() => Ok(there),
        Some(there) => Err(TraceError::unsupported(
            name,
            format!(
                "no such trace, and none at {} ({TRACES_VAR}) either",
                there.display()
            ),
        )),
        None => Err(TraceError::unsupported(
            name,
            format!(
                "no such trace (set {TRACES_VAR} to the directory of your traces to name them by file name)"
            ),
        )),
    }
}

/// The text given as a trace: a path, or `gen:NAME,key=value…`.
///
/// A file whose name begins with `gen:` must be named with its directory: `./gen:x`.
#[derive(Clone, Debug)]
pub enum Source {
    /// A trace file.
    File(PathBuf),
    /// A generator.
    Generator(Box<Spec>),
}

impl Source {
    /// Parses a name. Nothing is opened.
    ///
    /// # Errors
    /// The name is that of a generator that does not exist, or that does not have these parameters.
    pub fn of(name: impl AsRef<Path>) -> Result<Source, TraceError> {
        let name = name.as_ref();
        match name.to_str() {
            Some(text) if text.starts_with(PREFIX) => text
                .parse()
                .map(|spec| Source::Generator(Box::new(spec)))
                .map_err(|e| TraceError::unsupported(name, format!("{e}"))),
            _ => Ok(Source::File(name.to_owned())),
        }
    }

    /// Whether `name` has the form of a generator, valid or not.
    pub fn is_generator(name: &Path) -> bool {
        name.to_str().is_some_and(|n| n.starts_with(PREFIX))
    }

    /// Begins to read the file, or to generate.
    ///
    /// # Errors
    /// As [`crate::open`]; also if the parameters of a generator contradict each other.
    pub fn open(&self, options: &Options) -> Result<Reader, TraceError> {
        match self {
            Source::File(path) => open_merged(&[path], options),
            Source::Generator(spec) => {
                let mut run = Run::default();
                let generated = Generated::new(spec, &mut run)?;
                let name = PathBuf::from(spec.to_string());
                Ok(Reader::new(
                    &name,
                    Format::Generated,
                    Box::new(generated),
                    run,
                    options.limit,
                ))
            }
        }
    }

    /// The part of each device that the trace touches. This reads or generates the trace once.
    ///
    /// # Errors
    /// As [`Source::open`] and [`Reader::read_batch`].
    pub fn scan(&self, options: &Options) -> Result<Vec<DeviceSpan>, TraceError> {
        scan_reader(self.open(options)?)
    }

    /// The figures of the trace. This reads or generates it once.
    ///
    /// # Errors
    /// As [`Source::open`] and [`Reader::read_batch`].
    pub fn info(&self, options: &Options) -> Result<Info, TraceError> {
        info_reader(self.open(options)?)
    }
}
