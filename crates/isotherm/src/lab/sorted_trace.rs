//! A recorded trace in the order of arrival.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::path::Path;

use isotherm_core::Nanos;
use isotherm_traces::{Format, Record, WriteOptions, Writer};

use super::trace::failed;
use crate::Failure;
use crate::cmd::recording::exists;

/// Number of records that are held back for sorting: they arrive in the order of completion, and are written in the order of arrival.
const REORDER: usize = 65_536;

/// A record that is held back.
struct PendingRecord {
    time: u64,
    /// Keeps records with equal times in the order in which they came.
    number: u64,
    record: Record,
}

impl Ord for PendingRecord {
    fn cmp(&self, other: &PendingRecord) -> Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

impl PartialOrd for PendingRecord {
    fn partial_cmp(&self, other: &PendingRecord) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PendingRecord {
    fn eq(&self, other: &PendingRecord) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PendingRecord {}

/// A trace that sorts its records by time.
pub(super) struct SortedTrace {
    writer: Writer,
    waiting: BinaryHeap<Reverse<PendingRecord>>,
    seen: u64,
    last: u64,
}

impl SortedTrace {
    /// A new Parquet file.
    ///
    /// # Errors
    /// The file exists, or cannot be created.
    pub(super) fn create(out: &Path) -> Result<SortedTrace, Failure> {
        if out.exists() {
            return Err(exists(out));
        }
        let writer = Writer::create(out, &WriteOptions::new(Format::Parquet));
        Ok(SortedTrace {
            writer: writer.map_err(|e| failed(&e))?,
            waiting: BinaryHeap::new(),
            seen: 0,
            last: 0,
        })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(&mut self, record: Record) -> Result<(), Failure> {
        self.seen += 1;
        self.waiting.push(Reverse(PendingRecord {
            time: record.time.0,
            number: self.seen,
            record,
        }));
        if self.waiting.len() > REORDER {
            self.write_one()?;
        }
        Ok(())
    }

    fn write_one(&mut self) -> Result<(), Failure> {
        let Some(Reverse(PendingRecord { time, record, .. })) = self.waiting.pop() else {
            return Ok(());
        };
        // A record may arrive later than all that were held back. Its place in the order is already written, so its time is raised to the
        // last one.
        self.last = self.last.max(time);
        let record = Record {
            time: Nanos(self.last),
            ..record
        };
        self.writer.write(&record).map_err(|e| failed(&e))
    }

    /// Writes the remaining records, and gives the file its name. Returns the number of records.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        while !self.waiting.is_empty() {
            self.write_one()?;
        }
        let written = self.writer.finish().map_err(|e| failed(&e))?;
        Ok(written.requests)
    }
}

/// The part of a recording's summary that counts lost records; empty without any.
pub(super) fn lost_words(lost: u64) -> String {
    if lost > 0 {
        format!(", {lost} lost because the recorder fell behind")
    } else {
        String::new()
    }
}
