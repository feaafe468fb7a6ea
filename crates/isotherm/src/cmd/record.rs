//! `isotherm record`: records the requests of a served volume as a trace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isotherm_core::Nanos;
use isotherm_traces::{Flags, Format, Op, Record, WriteOptions, Writer};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Failure;
use crate::args::RecordArgs;
use crate::cmd::trace::failed;
use crate::control::Request;
use crate::control::client::served;
use crate::control::entry::{ENTRY_BYTES, Entry, EntryOp};

/// Requests that are held back for sorting: they arrive in the order of completion and are written in the order of arrival.
const REORDER: usize = 65_536;
/// Interval between two checks for the end of the recording.
const LOOK: Duration = Duration::from_millis(100);
/// How long the end of the recording by the server is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Records until it is told to stop, or until the volume stops.
///
/// # Errors
/// The volume is not served or already recorded, or the trace cannot be written. The trace appears under its name only when it is complete.
#[expect(clippy::too_many_lines, reason = "to be divided")]
pub fn run(args: &RecordArgs) -> Result<(), Failure> {
    if args.out.exists() {
        return Err(Failure::failed(format!(
            "{}: exists already: choose another name",
            args.out.display()
        )));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|e| Failure::failed(format!("cannot watch for signals: {e}")))?;
    }
    let mut client = served(&args.volume)?;
    let mut trace = Trace {
        writer: Writer::create(&args.out, &WriteOptions::new(Format::Parquet))
            .map_err(|e| failed(&e))?,
        waiting: BinaryHeap::new(),
        seen: 0,
        last: 0,
        lost: 0,
    };
    client.ask(&Request::Record)?;
    let mut stream = client.into_stream();
    let broken = |e: &std::io::Error| {
        Failure::failed(format!(
            "the recording broke off: {}",
            crate::failure::reason(e)
        ))
    };
    stream
        .get_ref()
        .set_read_timeout(Some(LOOK))
        .map_err(|e| broken(&e))?;
    eprintln!(
        "isotherm: recording {} to {}",
        args.volume.display(),
        args.out.display()
    );
    let until = args
        .seconds
        .map(|s| Instant::now() + Duration::from_secs(s));
    let mut bytes = [0; ENTRY_BYTES];
    let mut have = 0;
    while !stop.load(Ordering::Relaxed) && until.is_none_or(|u| Instant::now() < u) {
        match stream.read(&mut bytes[have..]) {
            // The volume has stopped.
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(e) => return Err(broken(&e)),
        }
        if have == ENTRY_BYTES {
            have = 0;
            let entry = Entry::decode(&bytes).ok_or_else(|| {
                Failure::failed(
                    "the recording broke off: the volume sent something else than requests",
                )
            })?;
            trace.add(entry)?;
        }
    }
    leave(&mut stream);
    let lost = trace.lost;
    let written = trace.finish()?;
    let result = json!({"volume": args.volume, "out": args.out, "requests": written, "lost": lost});
    args.json.print(&result, || {
        let lost = if lost > 0 {
            format!(", {lost} lost because the recorder fell behind")
        } else {
            String::new()
        };
        format!("{}: {written} requests{lost}\n", args.out.display())
    })
}

/// Tells the server that nothing more is wanted, and waits until it has ended the recording, so that the next one can begin. A server that
/// does not answer in time is left alone.
fn leave(stream: &mut std::io::BufReader<UnixStream>) {
    let end = Instant::now() + PATIENCE;
    let mut rest = [0; 4096];
    if stream.get_ref().shutdown(Shutdown::Write).is_err() {
        return;
    }
    while Instant::now() < end {
        match stream.read(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

struct Trace {
    writer: Writer,
    /// Ordered by arrival. The number keeps requests with equal times in the order in which they came.
    waiting: BinaryHeap<Reverse<(u64, u64, Line)>>,
    seen: u64,
    last: u64,
    lost: u64,
}

/// An entry without its time; it has an order only because the heap requires one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    offset: u64,
    latency_ns: u64,
    len: u32,
    op: Op,
    class: u8,
    fua: bool,
}

impl Trace {
    fn add(&mut self, e: Entry) -> Result<(), Failure> {
        let op = match e.op {
            EntryOp::Read => Op::Read,
            EntryOp::Write => Op::Write,
            EntryOp::Flush => Op::Flush,
            EntryOp::Discard => Op::Discard,
            EntryOp::Lost => {
                self.lost = e.offset;
                return Ok(());
            }
        };
        let line = Line {
            offset: e.offset,
            latency_ns: e.latency_ns,
            len: e.len,
            op,
            class: e.class,
            fua: e.fua,
        };
        self.seen += 1;
        let number = self.seen;
        self.waiting.push(Reverse((e.time_ns, number, line)));
        if self.waiting.len() > REORDER {
            self.write_one()
        } else {
            Ok(())
        }
    }

    fn write_one(&mut self) -> Result<(), Failure> {
        let Some(Reverse((time, _, l))) = self.waiting.pop() else {
            return Ok(());
        };
        // It arrived later than all requests that were held back. Its place in the order is already written, so its time is raised to the
        // last one.
        self.last = self.last.max(time);
        let record = Record {
            class: l.class,
            latency_ns: Some(l.latency_ns),
            flags: if l.fua { Flags::FUA } else { Flags::NONE },
            ..Record::new(Nanos(self.last), l.op, l.offset, l.len)
        };
        self.writer.write(&record).map_err(|e| failed(&e))
    }

    fn finish(mut self) -> Result<u64, Failure> {
        while !self.waiting.is_empty() {
            self.write_one()?;
        }
        self.writer
            .finish()
            .map(|w| w.requests)
            .map_err(|e| failed(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_of_a_recording_comes_back_in_order_of_arrival() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("t.parquet");
        let writer = Writer::create(&path, &WriteOptions::new(Format::Parquet));
        let mut trace = Trace {
            writer: writer.expect("created"),
            waiting: BinaryHeap::new(),
            seen: 0,
            last: 0,
            lost: 0,
        };
        let entry = |time_ns, op, offset, len| Entry {
            time_ns,
            latency_ns: time_ns * 3 + 1,
            offset,
            len,
            op,
            class: (time_ns % 64) as u8,
            fua: op == EntryOp::Write,
        };
        // The entries come in the order of completion.
        let entries = [
            entry(70, EntryOp::Write, 1 << 45, 32 << 20),
            entry(5, EntryOp::Read, 0, 512),
            entry(63, EntryOp::Discard, 4096, u32::MAX),
            entry(64, EntryOp::Flush, 0, 0),
        ];
        for e in entries {
            trace.add(e).expect("written");
        }
        let lost = Entry {
            op: EntryOp::Lost,
            ..entry(0, EntryOp::Read, 17, 0)
        };
        trace.add(lost).expect("counted");
        assert_eq!(trace.lost, 17);
        assert_eq!(trace.finish().expect("whole"), 4);
        let reader = isotherm_traces::open(&path, &isotherm_traces::Options::default());
        let back: Vec<Record> = reader
            .expect("opens")
            .collect::<Result<_, _>>()
            .expect("sound");
        let want = |e: &Entry, op| Record {
            class: e.class,
            flags: if e.fua { Flags::FUA } else { Flags::NONE },
            // A volume does not know files, so readers of recordings find the column empty.
            file_size: None,
            latency_ns: Some(e.latency_ns),
            // Times count from the first request.
            ..Record::new(Nanos(e.time_ns - 5), op, e.offset, e.len)
        };
        let [write, read, discard, flush] = entries;
        assert_eq!(
            back,
            [
                want(&read, Op::Read),
                want(&discard, Op::Discard),
                want(&flush, Op::Flush),
                want(&write, Op::Write)
            ]
        );
    }
}
