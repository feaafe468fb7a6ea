//! Converts the records of a trace to requests to the volume.

use std::time::{Duration, Instant};

use isotherm_core::engine::REQUEST_BYTES_MAX;
use isotherm_core::{Request, RequestOp, Tag};
use isotherm_traces::{Flags, Op, Record, SideBySide};

use super::source::{BATCH, Records};
use super::touched::{Rows, span};
use crate::LabError;

/// Records that are converted at a time: enough for their cache misses to overlap, and few enough for the first ones to be still in the
/// cache when they are used.
const AHEAD: usize = 32;

/// A request, with its time in the trace in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub time: u64,
    pub req: Request,
    /// Whether it is the first request of its record.
    pub first: bool,
}

/// Reads a batch ahead and converts records to requests.
pub(crate) struct Feed<'a> {
    records: Box<dyn Records>,
    devices: &'a SideBySide,
    rows: Rows,
    shift: u32,
    discards: bool,
    batch: Vec<Record>,
    at: usize,
    left: u64,
    /// The requests of the last records; those from `next` on are still to be delivered.
    ready: Vec<Want>,
    next: usize,
    /// Index in `ready` of the first request of the record that is being converted.
    begun: usize,
    pub reading: Duration,
}

impl<'a> Feed<'a> {
    pub fn new(
        records: Box<dyn Records>,
        devices: &'a SideBySide,
        rows: Rows,
        shift: u32,
        limit: Option<u64>,
        discards: bool,
    ) -> Feed<'a> {
        Feed {
            records,
            devices,
            rows,
            shift,
            discards,
            batch: Vec::with_capacity(BATCH),
            at: 0,
            left: limit.unwrap_or(u64::MAX),
            ready: Vec::with_capacity(2 * AHEAD),
            next: 0,
            begun: 0,
            reading: Duration::ZERO,
        }
    }

    /// The next request; `None` at the end. `expect` is called with the offset of each request that becomes known.
    #[inline]
    pub fn peek(&mut self, expect: impl FnMut(u64)) -> Result<Option<&Want>, LabError> {
        if self.next == self.ready.len() {
            self.more(expect)?;
        }
        Ok(self.ready.get(self.next))
    }

    /// Removes the request that [`Feed::peek`] returned.
    #[inline]
    pub fn taken(&mut self) {
        self.next += 1;
    }

    fn more(&mut self, mut expect: impl FnMut(u64)) -> Result<(), LabError> {
        self.ready.clear();
        self.next = 0;
        while self.ready.is_empty() {
            if self.at == self.batch.len() && !self.fill()? {
                return Ok(());
            }
            let end = self.batch.len().min(self.at + AHEAD);
            for i in self.at..end {
                self.begun = self.ready.len();
                self.convert(self.batch[i]);
            }
            self.at = end;
        }
        for w in &self.ready {
            expect(w.req.offset);
        }
        Ok(())
    }

    pub fn stats(&self) -> isotherm_traces::Stats {
        self.records.stats()
    }

    fn fill(&mut self) -> Result<bool, LabError> {
        self.batch.clear();
        self.at = 0;
        let begun = Instant::now();
        let max = self.left.min(BATCH as u64) as usize;
        let n = self.records.read_batch(&mut self.batch, max)?;
        self.reading += begun.elapsed();
        self.left -= n as u64;
        Ok(n > 0)
    }

    #[inline]
    fn convert(&mut self, mut r: Record) {
        self.devices.map(&mut r);
        let op = match r.op {
            Op::Read => RequestOp::Read,
            Op::Write => RequestOp::Write,
            Op::Flush => RequestOp::Flush,
            Op::Discard => return self.discard(&r),
        };
        if r.flags.contains(Flags::PREFLUSH) && op != RequestOp::Flush {
            self.push(&r, RequestOp::Flush, 0, 0);
        }
        if op == RequestOp::Flush {
            return self.push(&r, op, 0, 0);
        }
        // Neighbours in the trace are neighbours in the rows, so a request stays in one piece.
        let inside = r.offset & ((1 << self.shift) - 1);
        let mut offset = (self.rows.row(r.offset >> self.shift) << self.shift) + inside;
        let mut len = r.len;
        while len > REQUEST_BYTES_MAX {
            self.push(&r, op, offset, REQUEST_BYTES_MAX);
            offset += u64::from(REQUEST_BYTES_MAX);
            len -= REQUEST_BYTES_MAX;
        }
        self.push(&r, op, offset, len);
    }

    #[inline]
    fn push(&mut self, r: &Record, op: RequestOp, offset: u64, len: u32) {
        self.ready.push(Want {
            time: r.time.0,
            req: Request {
                tag: Tag(0),
                op,
                offset,
                len,
                fua: op == RequestOp::Write && r.flags.contains(Flags::FUA),
                class: r.class,
            },
            first: self.ready.len() == self.begun,
        });
    }

    /// Converts a discard. Of its range only touched extents exist, and their rows are adjacent. A discard of extents that nothing else
    /// touches is dropped.
    fn discard(&mut self, r: &Record) {
        if !self.discards {
            return;
        }
        let extent = 1u64 << self.shift;
        let (from, to) = span(r, self.shift);
        let (first, past) = (self.rows.row(from), self.rows.row(to + 1));
        if first == past {
            return;
        }
        // Either end of the range is inside an extent only if that extent is touched.
        let whole = |me: &mut Feed<'_>, e: u64| me.rows.row(e + 1) > me.rows.row(e);
        let start = if whole(self, from) {
            (first << self.shift) + (r.offset & (extent - 1))
        } else {
            first << self.shift
        };
        let end = if whole(self, to) {
            ((past - 1) << self.shift) + ((r.end() - 1) & (extent - 1)) + 1
        } else {
            past << self.shift
        };
        let mut at = start;
        while at < end {
            let len = (end - at).min(1 << 30) as u32;
            self.push(r, RequestOp::Discard, at, len);
            at += u64::from(len);
        }
    }
}
