//! Streams the requests of an open trace.

use std::path::{Path, PathBuf};

use isotherm_core::Nanos;

use crate::decode::{Decode, Run};
use crate::error::TraceError;
use crate::format::Format;
use crate::formats::column_map::ColumnMap;
use crate::record::{Op, Record};
use crate::stats::{Stats, Sure};
use crate::time_unit::TimeUnit;

/// Time between two requests of a trace without times.
const UNTIMED_STEP: Nanos = Nanos::from_millis(1);
/// Records that the iterator decodes at a time; this number fits into the second-level cache.
const BATCH: usize = 4096;

/// How to read a trace. `Options::default()` recognises the format by its content and refuses the first bad record.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format. If absent, it is recognised by the content.
    pub format: Option<Format>,
    /// Bad records to skip and count before giving up.
    pub skip_bad: u64,
    /// Unit of time where the format leaves it open (DiskSim's columns, a column `time`). If absent, it is inferred from the numbers.
    pub trace_unit: Option<TimeUnit>,
    /// Stop after this many requests.
    pub limit: Option<u64>,
    /// Bytes of a block in lists of block numbers, 4096 when absent; and of an object number in oracleGeneral, by evidence when absent.
    pub block_bytes: Option<u32>,
    /// Sort the requests by time, each past at most this many others. Formats that are in the order of completion or of processors are
    /// sorted within 65 536 when absent, and others are not.
    pub sort_window: Option<usize>,
    /// The meaning of the columns of a text that is in no known format; used instead of `format`.
    pub columns: Option<ColumnMap>,
}

/// A trace being read. Iterate over it, or fill batches.
///
/// Memory is bounded: a read buffer, a batch, and a table of device names.
pub struct Reader {
    path: PathBuf,
    format: Format,
    decoder: Box<dyn Decode>,
    run: Run,
    /// Requests still to deliver.
    left: u64,
    /// The absolute time that becomes time zero.
    origin: Option<u64>,
    last: u64,
    /// The iterator's batch, and how many of its records are delivered.
    batch: Vec<Record>,
    delivered: usize,
    /// An error that follows good records of the same batch.
    failed: Option<TraceError>,
    done: bool,
}

impl Reader {
    pub(crate) fn new(
        path: &Path,
        format: Format,
        decoder: Box<dyn Decode>,
        run: Run,
        limit: Option<u64>,
    ) -> Reader {
        Reader {
            path: path.to_owned(),
            format,
            decoder,
            run,
            left: limit.unwrap_or(u64::MAX),
            origin: None,
            last: 0,
            batch: Vec::new(),
            delivered: 0,
            failed: None,
            done: false,
        }
    }

    /// The format, recognised or given.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the times come from the trace; final once the first record was read. If not, there is 1 ms from one request to the next.
    pub fn timed(&self) -> bool {
        self.decoder.timed()
    }

    /// From the first to the last request so far, as they are delivered: the span that a replay takes.
    pub fn span(&self) -> Nanos {
        Nanos(self.last)
    }

    /// How certain it is that the format was recognised correctly.
    pub fn sure(&self) -> Sure {
        self.run.sure
    }

    /// The assumptions that were made because the trace does not state the fact, in sentences.
    pub fn assumed(&self) -> &[String] {
        &self.run.assumed
    }

    /// What the content leaves open, so that another reading would be as good, in sentences.
    pub fn doubts(&self) -> &[String] {
        &self.run.doubts
    }

    /// Counters so far.
    pub fn stats(&self) -> Stats {
        self.run.stats
    }

    /// Text before the first record (a licence). It is complete once the first record was read.
    pub fn header(&self) -> &[u8] {
        self.decoder.header()
    }

    /// The name in the trace of the device that records name by number.
    pub fn device_name(&self, device: u32) -> Option<String> {
        self.run.devices.label(device)
    }

    /// Appends up to `max` records to `out` and returns how many; 0 means the end.
    ///
    /// # Errors
    /// Reading fails, or a record is bad and may not be skipped. The good records before it are delivered first. After the error the reader
    /// is at its end.
    pub fn read_batch(&mut self, out: &mut Vec<Record>, max: usize) -> Result<usize, TraceError> {
        let before = out.len();
        // Records that the iterator decoded ahead go first.
        let ahead = &self.batch[self.delivered..];
        let ahead = &ahead[..ahead.len().min(max)];
        out.extend_from_slice(ahead);
        self.delivered += ahead.len();
        let target = before + max;
        while out.len() < target && !self.done {
            let start = out.len();
            let want = start + ((target - start) as u64).min(self.left) as usize;
            if want == start {
                self.done = true;
                break;
            }
            match self.decoder.decode(out, want, &mut self.run) {
                Ok(more) => self.done = !more,
                Err(e) => {
                    self.done = true;
                    self.failed = Some(e);
                }
            }
            self.settle(out, start);
        }
        match self.failed.take() {
            Some(e) if out.len() == before => Err(e),
            later => {
                self.failed = later;
                Ok(out.len() - before)
            }
        }
    }

    /// Drops empty requests in `out[start..]`, and makes times relative and not falling.
    fn settle(&mut self, out: &mut Vec<Record>, start: usize) {
        let timed = self.decoder.timed();
        let (mut kept, stats) = (start, &mut self.run.stats);
        for i in start..out.len() {
            let r = &mut out[i];
            if r.len == 0 && r.op != Op::Flush {
                stats.zero_length_dropped += 1;
                continue;
            }
            if timed {
                let origin = *self.origin.get_or_insert(r.time.0);
                let time = r.time.0.saturating_sub(origin);
                if r.time.0 < origin || time < self.last {
                    stats.time_went_back += 1;
                } else {
                    self.last = time;
                }
                r.time = Nanos(self.last);
            } else {
                r.time = Nanos(stats.requests * UNTIMED_STEP.0);
            }
            stats.requests += 1;
            // Usually nothing is dropped, and no record is moved.
            if kept != i {
                out[kept] = out[i];
            }
            kept += 1;
        }
        self.left -= (kept - start) as u64;
        out.truncate(kept);
    }
}

impl Iterator for Reader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Result<Record, TraceError>> {
        if self.delivered == self.batch.len() {
            let mut batch = std::mem::take(&mut self.batch);
            batch.clear();
            self.delivered = 0;
            let filled = self.read_batch(&mut batch, BATCH);
            self.batch = batch;
            match filled {
                Ok(0) => return None,
                Ok(_) => {}
                Err(e) => return Some(Err(e)),
            }
        }
        self.delivered += 1;
        Some(Ok(self.batch[self.delivered - 1]))
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("path", &self.path)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}
