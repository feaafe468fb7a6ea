//! Copies traces: into other formats, in parts, merged or sorted.

use std::path::Path;

use isotherm_core::Nanos;

use crate::error::TraceError;
use crate::format::Format;
use crate::map::{SideBySide, Spans};
use crate::notes::Notes;
use crate::open::open;
use crate::reader::{Options, Reader};
use crate::record::Record;
use crate::write::{WriteOptions, Writer, Written};

/// Records read at a time.
const BATCH: usize = 4096;

/// The part of a trace that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Requests from this time on, since the beginning of the trace. It becomes time zero of the copy.
    pub from: Nanos,
    /// Requests before this time.
    pub to: Nanos,
    /// One request of so many, the first one first; at least 1.
    pub every: u64,
}

impl Default for Pick {
    /// All requests.
    fn default() -> Pick {
        Pick {
            from: Nanos(0),
            to: Nanos(u64::MAX),
            every: 1,
        }
    }
}

impl Pick {
    /// Whether times decide what is copied.
    fn by_time(&self) -> bool {
        *self
            != Pick {
                every: self.every,
                ..Pick::default()
            }
    }
}

/// The picked records of a reader, and how many were in the part of the time.
struct Picked {
    reader: Reader,
    pick: Pick,
    seen: u64,
    over: bool,
}

impl Picked {
    /// Replaces `batch` by the next picked records. Returns false at the end.
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, TraceError> {
        batch.clear();
        while batch.is_empty() && !self.over {
            if self.reader.read_batch(batch, BATCH)? == 0 {
                return Ok(false);
            }
            // Times do not fall.
            self.over = batch.last().is_some_and(|r| r.time >= self.pick.to);
            let (pick, seen) = (self.pick, &mut self.seen);
            batch.retain_mut(|r| {
                let within = pick.from <= r.time && r.time < pick.to;
                r.time = r.time.since(pick.from);
                *seen += u64::from(within);
                within && (*seen - 1).is_multiple_of(pick.every.max(1))
            });
        }
        Ok(!batch.is_empty())
    }
}

/// Reads `from` and writes it to `to` in `format`.
///
/// Several devices are laid side by side (see [`SideBySide`]) if the format does not distinguish them.
///
/// # Errors
/// As those of reading and writing; `to` is then not created.
pub fn convert(
    from: impl AsRef<Path>,
    read: &Options,
    to: impl AsRef<Path>,
    format: Format,
) -> Result<Written, TraceError> {
    let options = WriteOptions {
        block_bytes: read.block_bytes.unwrap_or(4096),
        ..WriteOptions::new(format)
    };
    copy(
        &|| open(from.as_ref(), read),
        &Pick::default(),
        to,
        &options,
    )
}

/// Writes the picked requests of a trace to `to`; `open` opens the trace, once or twice. Times, header and what was assumed are those of the
/// trace, whatever `options` says.
///
/// Several devices are laid side by side (see [`SideBySide`]) if the format does not distinguish them.
///
/// # Errors
/// As those of reading and writing; also if a part of the time is picked of a trace without times. `to` is then not created.
pub fn copy(
    open: &dyn Fn() -> Result<Reader, TraceError>,
    pick: &Pick,
    to: impl AsRef<Path>,
    options: &WriteOptions,
) -> Result<Written, TraceError> {
    let begin = || {
        let reader = open()?;
        Ok::<Picked, TraceError>(Picked {
            reader,
            pick: *pick,
            seen: 0,
            over: false,
        })
    };
    let holds = options.format.holds_devices();
    let (mut map, mut joined) = (SideBySide::default(), false);
    let mut batch = Vec::with_capacity(BATCH);
    if !holds {
        let (mut spans, mut picked) = (Spans::default(), begin()?);
        while picked.next(&mut batch)? {
            for r in &batch {
                spans.add(r);
            }
        }
        let path = picked.reader.path();
        map = SideBySide::new(spans.list()).map_err(|why| TraceError::unsupported(path, why))?;
        joined = spans.list().len() > 1;
    }
    let mut picked = begin()?;
    // The first batch determines whether there are times, and completes the header.
    let mut more = picked.next(&mut batch)?;
    let reader = &picked.reader;
    if pick.by_time() && !reader.timed() {
        let what = "has no times: take a part of it by --limit or --every";
        return Err(TraceError::unsupported(reader.path(), what));
    }
    let mut writer = Writer::create(
        to,
        &WriteOptions {
            timed: reader.timed(),
            header: Notes::stripped(reader.header()),
            notes: Notes {
                sure: reader.sure(),
                assumed: reader.assumed().to_vec(),
                doubts: reader.doubts().to_vec(),
            },
            ..options.clone()
        },
    )?;
    if joined {
        writer.note_joined();
    }
    while more {
        while let Some(name) = picked.reader.device_name(writer.named_devices()) {
            writer.name_device(name);
        }
        for r in &mut batch {
            if !holds {
                map.map(r);
                r.device = 0;
            }
            writer.write(r)?;
        }
        more = picked.next(&mut batch)?;
    }
    let mut written = writer.finish()?;
    written.time_went_back = picked.reader.stats().time_went_back;
    Ok(written)
}
