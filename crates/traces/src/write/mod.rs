//! Writers. A trace appears under its name only when it is complete; until then the file beside it is called `NAME.part`. A pipe or
//! standard output is written directly, in formats that are written in order.

mod columnar;
mod lines;
mod oracle;
mod sink;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::error::TraceError;
use crate::format::Format;
use crate::notes::Notes;
use crate::record::{Flags, Op, Record};
use sink::Target;
pub use sink::is_stream;

/// The information that a writer needs in advance.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// The format: one of [`Format::writable`].
    pub format: Format,
    /// Whether the times of the records are meaningful. If not, formats that can omit them do.
    pub timed: bool,
    /// Text that must stay with the data (a licence). blkreplay and Parquet keep it.
    pub header: Vec<u8>,
    /// Bytes of an object in oracleGeneral. Requests are split into objects.
    pub block_bytes: u32,
    /// What was assumed of the original. CSV, blkreplay and Parquet keep it.
    pub notes: Notes,
}

impl WriteOptions {
    /// The defaults: times are meaningful, no header, objects of 4 KiB.
    pub fn new(format: Format) -> WriteOptions {
        WriteOptions {
            format,
            timed: true,
            header: Vec::new(),
            block_bytes: 4096,
            notes: Notes::default(),
        }
    }
}

/// Counts of the written records, and a list of the properties that the format could not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Written {
    /// Requests written.
    pub requests: u64,
    /// Requests that were left out because the format does not have their operation.
    pub dropped: u64,
    /// Fields that some request had and that the format does not have.
    pub lost: BTreeSet<&'static str>,
    /// Times of the original that were raised because they were smaller than the time before.
    #[serde(skip_serializing_if = "crate::stats::is_zero")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub time_went_back: u64,
    /// What was assumed of the original, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// What its content leaves open, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}

/// The encoder of one format.
trait Encode {
    /// Writes one request.
    fn encode(
        &mut self,
        r: &Record,
        devices: &[String],
        written: &mut Written,
    ) -> Result<(), Refusal>;

    /// Writes the buffered data and completes the file.
    fn finish(self: Box<Self>, devices: &[String]) -> std::io::Result<()>;
}

/// The reason why a request was not written.
enum Refusal {
    /// The error of the operating system.
    Io(std::io::Error),
    /// The format cannot hold the request, and omitting it would change the trace.
    Cannot(String),
}

impl From<std::io::Error> for Refusal {
    fn from(e: std::io::Error) -> Refusal {
        Refusal::Io(e)
    }
}

/// A trace that is being written. If it is dropped before [`Writer::finish`], it leaves no file.
pub struct Writer {
    target: Target,
    encoder: Option<Box<dyn Encode>>,
    devices: Vec<String>,
    written: Written,
    seen: u64,
}

impl Format {
    /// The formats that can be written.
    pub fn writable() -> impl Iterator<Item = Format> {
        Format::all().filter(|f| {
            use Format::{Blkreplay, Csv, FioV2, FioV3, Oracle, Parquet};
            matches!(f, Blkreplay | FioV2 | FioV3 | Oracle | Csv | Parquet)
        })
    }

    /// Whether the format distinguishes devices. If not, a writer accepts one device only, so lay several side by side first.
    pub(crate) fn holds_devices(self) -> bool {
        !matches!(self, Format::Blkreplay | Format::Oracle)
    }
}

impl Writer {
    /// Begins a trace at `path`. Text is compressed if the name ends in `.zst` or `.gz`.
    ///
    /// # Errors
    /// The format cannot be written, or the file cannot be created.
    pub fn create(path: impl AsRef<Path>, options: &WriteOptions) -> Result<Writer, TraceError> {
        let path = path.as_ref();
        let format = options.format;
        if !Format::writable().any(|f| f == format) {
            let can = Format::writable()
                .map(Format::name)
                .collect::<Vec<_>>()
                .join(", ");
            return Err(TraceError::unsupported(
                path,
                format!("{format} can be read but not written; write one of: {can}"),
            ));
        }
        let target = Target::new(path);
        if target.compressed() && matches!(format, Format::Parquet | Format::Oracle) {
            let what =
                format!("{format} is not written compressed: take a name without .zst or .gz");
            return Err(TraceError::unsupported(path, what));
        }
        if target.stream && format == Format::Oracle {
            let what = format!(
                "{format} is completed from its end to its beginning, which a pipe does not allow: give a file, or another format"
            );
            return Err(TraceError::unsupported(path, what));
        }
        let encoder: std::io::Result<Box<dyn Encode>> = match format {
            Format::Parquet => {
                columnar::Parquet::create(&target, options).map(|e| Box::new(e) as Box<dyn Encode>)
            }
            Format::Oracle => {
                oracle::Oracle::create(&target, options).map(|e| Box::new(e) as Box<dyn Encode>)
            }
            _ => lines::Lines::create(&target, options).map(|e| Box::new(e) as Box<dyn Encode>),
        };
        let encoder = encoder.map_err(|source| TraceError::Open {
            path: target.part.clone(),
            source,
        })?;
        let mut written = Written::default();
        if !options.header.is_empty() && !matches!(format, Format::Blkreplay | Format::Parquet) {
            written.lost.insert("header");
        }
        if !options.notes.is_empty()
            && matches!(format, Format::FioV2 | Format::FioV3 | Format::Oracle)
        {
            written.lost.insert("assumptions");
        }
        written.assumed.clone_from(&options.notes.assumed);
        written.doubts.clone_from(&options.notes.doubts);
        Ok(Writer {
            target,
            encoder: Some(encoder),
            devices: Vec::new(),
            written,
            seen: 0,
        })
    }

    /// Sets the name of the next device: that of device 0 first, then that of device 1, and so on. A device without a name gets a made-up
    /// one.
    pub fn name_device(&mut self, name: String) {
        self.devices.push(name);
    }

    /// Notes that devices of the original lie side by side in the copy.
    pub(crate) fn note_joined(&mut self) {
        self.written.lost.insert("device");
    }

    /// How many devices have names.
    pub fn named_devices(&self) -> u32 {
        self.devices.len() as u32
    }

    /// Writes one request. Its time must not be smaller than that of the request before.
    ///
    /// # Errors
    /// The format cannot hold the request (the message says why), or the disk fails.
    pub fn write(&mut self, r: &Record) -> Result<(), TraceError> {
        let Some(encoder) = &mut self.encoder else {
            return Err(TraceError::unsupported(
                &self.target.path,
                "nothing can be written after a failure",
            ));
        };
        self.seen += 1;
        let failed = match encoder.encode(r, &self.devices, &mut self.written) {
            Ok(()) => return Ok(()),
            Err(Refusal::Io(source)) => TraceError::write(&self.target.path, source),
            Err(Refusal::Cannot(why)) => {
                TraceError::unsupported(&self.target.path, format!("request {}: {why}", self.seen))
            }
        };
        self.encoder = None;
        Err(failed)
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// The disk fails, or a write failed before.
    pub fn finish(mut self) -> Result<Written, TraceError> {
        let Some(encoder) = self.encoder.take() else {
            return Err(TraceError::unsupported(
                &self.target.path,
                "not finished: a write failed before",
            ));
        };
        encoder
            .finish(&self.devices)
            .map_err(|source| TraceError::write(&self.target.path, source))?;
        self.target
            .publish()
            .map_err(|source| TraceError::write(&self.target.path, source))?;
        Ok(std::mem::take(&mut self.written))
    }
}

/// Records which fields of `r` a format without extra fields loses.
fn note_extras(r: &Record, kept: Flags, lost: &mut BTreeSet<&'static str>) {
    if r.class != 0 {
        lost.insert("class");
    }
    if r.flags.bits() & !kept.bits() != 0 {
        lost.insert("flags");
    }
    if r.file_size.is_some() {
        lost.insert("file_size");
    }
    if r.latency_ns.is_some() {
        lost.insert("latency_ns");
    }
}

/// The name of a device; a made-up one if none is known.
fn device_name(devices: &[String], id: u32) -> String {
    devices
        .get(id as usize)
        .cloned()
        .unwrap_or_else(|| format!("device{id}"))
}

/// Refuses any device but the first.
fn only_device_0(r: &Record, format: Format) -> Result<(), Refusal> {
    if r.device == 0 {
        return Ok(());
    }
    Err(Refusal::Cannot(format!(
        "{format} holds one device; lay them side by side first"
    )))
}

/// Whether the request moves data.
fn moves_data(op: Op) -> bool {
    matches!(op, Op::Read | Op::Write)
}

/// The path of the incomplete trace.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}
