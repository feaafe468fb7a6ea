//! `isotherm files record`: records the operations on the files of a mounted file system as a trace of the lab.
//!
//! The lab's traces have addresses, so each file gets some: whole pieces of [`PIECE`] bytes that belong to no other file, and that follow
//! one another as far as the size of the file was known when the recording first saw it. The addresses of a deleted file are discarded and
//! not used again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use isotherm_core::Nanos;
use isotherm_files::recording::{ENTRY_BYTES, Entry, HEAD_BYTES, Op as FileOp};
use isotherm_traces::{Op, Record};
use rustix::io::Errno;
use serde::Serialize;

use super::sorted_trace::{SortedTrace, lost_words};
use crate::Failure;
use crate::args::FilesRecordArgs;
use crate::cmd::files_client::{fetch, order};
use crate::cmd::recording::End;

/// `isotherm files record --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RecordedFiles {
    /// A path of the mounted tree.
    path: String,
    /// The trace that was written.
    out: String,
    /// Requests in it.
    requests: u64,
    /// Files that they are of.
    files: u64,
    /// Requests that are missing.
    lost: u64,
}

/// Addresses are given to files in pieces of this size.
const PIECE: u64 = 64 << 10;
/// Interval between two fetches while little happens.
const FETCH_INTERVAL: Duration = Duration::from_millis(20);
/// Longest record: a longer operation becomes several.
const LONGEST: u64 = 1 << 30;

/// Records until it is told to stop.
///
/// # Errors
/// Nothing of this program is mounted there, it is recorded already, or the trace cannot be written.
pub fn run(args: &FilesRecordArgs) -> Result<(), Failure> {
    let mut end = End::after(args.seconds)?;
    let mut trace = Trace::create(&args.out)?;
    order(&args.path, "record", "start")?;
    crate::log::note(format_args!(
        "isotherm: recording {} to {}",
        args.path.display(),
        args.out.display()
    ));
    end.begin();
    let mut over = false;
    loop {
        let batch = match fetch(&args.path, "record") {
            Ok(batch) => batch,
            // The file system was unmounted. The recording has everything until then.
            Err(Errno::NODATA | Errno::NOTCONN | Errno::NOENT | Errno::OPNOTSUPP) => break,
            Err(e) => return Err(Failure::file(&args.path, "record", &e.into())),
        };
        let many = trace.add_batch(&batch)?;
        // After the end, entries that were recorded before it are still fetched.
        if over && many == 0 {
            break;
        }
        over |= end.is_due();
        if many == 0 {
            std::thread::sleep(FETCH_INTERVAL);
        }
    }
    // This fails if the file system was unmounted, which also ends the recording.
    let _ = order(&args.path, "record", "stop");
    let (files, lost) = (trace.files, trace.lost);
    let written = trace.sorted.finish()?;
    let result = RecordedFiles {
        path: args.path.to_string_lossy().into_owned(),
        out: args.out.to_string_lossy().into_owned(),
        requests: written,
        files,
        lost,
    };
    args.json.print(&result, || {
        format!(
            "{}: {written} requests to {files} files{}\n",
            args.out.display(),
            lost_words(lost)
        )
    })
}

struct Trace {
    sorted: SortedTrace,
    lost: u64,
    files: u64,
    /// The address of each piece of each file, by node.
    pieces: BTreeMap<u64, BTreeMap<u64, u64>>,
    next: u64,
}

impl Trace {
    fn create(out: &Path) -> Result<Trace, Failure> {
        Ok(Trace {
            sorted: SortedTrace::create(out)?,
            lost: 0,
            files: 0,
            pieces: BTreeMap::new(),
            next: 0,
        })
    }
    /// Returns the number of entries.
    fn add_batch(&mut self, batch: &[u8]) -> Result<usize, Failure> {
        let wrong = || {
            Failure::failed("the recording broke off: the mount sent something else than entries")
        };
        let (head, rest) = batch.split_at_checked(HEAD_BYTES).ok_or_else(wrong)?;
        self.lost = head.try_into().map_or(self.lost, u64::from_le_bytes);
        let mut many = 0;
        for bytes in rest.chunks(ENTRY_BYTES) {
            let entry = bytes.try_into().ok().and_then(Entry::decode);
            self.add(&entry.ok_or_else(wrong)?)?;
            many += 1;
        }
        Ok(many)
    }
    fn add(&mut self, e: &Entry) -> Result<(), Failure> {
        let op = match e.op {
            FileOp::Read => Op::Read,
            FileOp::Write => Op::Write,
            FileOp::Sync => return self.push(e, Op::Flush, 0, 0),
            FileOp::Drop => Op::Discard,
        };
        let key = e.node;
        let end = e.offset.saturating_add(e.len);
        if op != Op::Discard {
            self.give(key, e.size.max(end));
        }
        let Some(all) = self.pieces.get(&key) else {
            return Ok(());
        };
        // Runs of neighbouring addresses.
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (piece, address) in all.range(e.offset / PIECE..end.div_ceil(PIECE)) {
            let from = e.offset.max(piece * PIECE);
            let to = end.min((piece + 1) * PIECE);
            let start = address + (from - piece * PIECE);
            match runs.last_mut() {
                Some((at, len)) if *at + *len == start && *len + (to - from) <= LONGEST => {
                    *len += to - from;
                }
                _ => runs.push((start, to - from)),
            }
        }
        if op == Op::Discard && e.offset == 0 && e.len == u64::MAX {
            self.pieces.remove(&key);
        }
        for (start, len) in runs.into_iter().filter(|r| r.1 > 0) {
            self.push(e, op, start, len as u32)?;
        }
        Ok(())
    }
    /// Gives a file more addresses, so that it has enough for this number of bytes.
    fn give(&mut self, key: u64, bytes: u64) {
        let files = &mut self.files;
        let all = self.pieces.entry(key).or_insert_with(|| {
            *files += 1;
            BTreeMap::new()
        });
        let first = all.last_key_value().map_or(0, |(piece, _)| piece + 1);
        for piece in first..bytes.div_ceil(PIECE) {
            all.insert(piece, self.next);
            self.next += PIECE;
        }
    }
    fn push(&mut self, e: &Entry, op: Op, offset: u64, len: u32) -> Result<(), Failure> {
        self.sorted.add(Record {
            class: e.class,
            file_size: (op != Op::Flush).then_some(e.size),
            latency_ns: Some(e.latency_ns),
            ..Record::new(Nanos(e.time_ns), op, offset, len)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(op: FileOp, node: u64, offset: u64, len: u64, size: u64) -> Entry {
        Entry {
            time_ns: 7,
            latency_ns: 1,
            offset,
            size,
            len,
            node,
            op,
            class: 9,
        }
    }

    #[test]
    fn files_have_addresses_of_their_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("t.parquet");
        let mut t = Trace::create(&path).expect("created");
        let ops = [
            entry(FileOp::Read, 1, 4096, 8192, 3 * PIECE),
            entry(FileOp::Write, 2, 0, 100, 100),
            // The file grows; its new piece follows the piece of the other file.
            entry(FileOp::Write, 1, 3 * PIECE - 10, 20, 3 * PIECE + 10),
            entry(FileOp::Sync, 1, 0, 0, 0),
            entry(FileOp::Drop, 1, 0, u64::MAX, 3 * PIECE + 10),
            entry(FileOp::Drop, 9, 0, u64::MAX, 5),
            // Another file with the same node number.
            entry(FileOp::Read, 1, 0, 5, 5),
        ];
        for e in &ops {
            t.add(e).expect("written");
        }
        assert_eq!(t.files, 3);
        t.sorted.finish().expect("complete");
        let reader = isotherm_traces::open(&path, &isotherm_traces::Options::default());
        let all: Vec<Record> = reader.expect("opened").map(|r| r.expect("read")).collect();
        let shown: Vec<(Op, u64, u64)> = all
            .iter()
            .map(|r| (r.op, r.offset, u64::from(r.len)))
            .collect();
        assert_eq!(
            shown,
            [
                (Op::Read, 4096, 8192),
                (Op::Write, 3 * PIECE, 100),
                (Op::Write, 3 * PIECE - 10, 10),
                (Op::Write, 4 * PIECE, 10),
                (Op::Flush, 0, 0),
                (Op::Discard, 0, 3 * PIECE),
                (Op::Discard, 4 * PIECE, PIECE),
                (Op::Read, 5 * PIECE, 5),
            ]
        );
        assert!(all[0].class == 9 && all[0].file_size == Some(3 * PIECE));
    }
}
