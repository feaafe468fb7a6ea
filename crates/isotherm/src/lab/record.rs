//! `isotherm record`: records the requests of a served volume as a trace.

use std::io::{BufReader, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_core::Nanos;
use isotherm_traces::{Flags, Op, Record};
use serde::Serialize;

use super::sorted_trace::{SortedTrace, lost_words};
use crate::Failure;
use crate::args::RecordArgs;
use crate::cmd::recording::End;
use crate::control::Request;
use crate::control::client::served;
use crate::control::entry::{ENTRY_BYTES, Entry, EntryOp};

/// Interval between two checks for the end of the recording.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time to wait until the server has ended the recording.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Records until it is told to stop, or until the volume stops.
///
/// # Errors
/// The volume is not served or already recorded, or the trace cannot be written. The trace appears under its name only when it is complete.
pub fn run(args: &RecordArgs) -> Result<(), Failure> {
    let mut end = End::after(args.seconds)?;
    let mut trace = Trace::create(&args.out)?;
    let mut client = served(&args.volume)?;
    client.ask(&Request::Record)?;
    crate::log::note(format_args!(
        "isotherm: recording {} to {}",
        args.volume.display(),
        args.out.display()
    ));
    end.begin();
    let mut stream = client.into_stream();
    receive(&mut stream, &mut trace, &end)?;
    leave(&mut stream);
    let lost = trace.lost;
    let written = trace.sorted.finish()?;
    let result = Recorded {
        volume: args.volume.to_string_lossy().into_owned(),
        out: args.out.to_string_lossy().into_owned(),
        requests: written,
        lost,
    };
    args.json.print(&result, || {
        format!(
            "{}: {written} requests{}\n",
            args.out.display(),
            lost_words(lost)
        )
    })
}

/// `isotherm record --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Recorded {
    /// The volume.
    volume: String,
    /// The trace that was written.
    out: String,
    /// Requests in it.
    requests: u64,
    /// Requests that are missing.
    lost: u64,
}

/// Adds the requests that the volume sends to the trace, until the recording ends.
fn receive(
    stream: &mut BufReader<UnixStream>,
    trace: &mut Trace,
    end: &End,
) -> Result<(), Failure> {
    let broken = |why: &str| Failure::failed(format!("the recording broke off: {why}"));
    let failed = |e: &std::io::Error| broken(&crate::failure::reason(e));
    stream
        .get_ref()
        .set_read_timeout(Some(CHECK_INTERVAL))
        .map_err(|e| failed(&e))?;
    let mut bytes = [0; ENTRY_BYTES];
    let mut have = 0;
    while !end.is_due() {
        match stream.read(&mut bytes[have..]) {
            // The volume has stopped.
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(e) => return Err(failed(&e)),
        }
        if have == ENTRY_BYTES {
            have = 0;
            let wrong = "the volume sent something else than requests";
            trace.add(Entry::decode(&bytes).ok_or_else(|| broken(wrong))?)?;
        }
    }
    Ok(())
}

/// Tells the server that the recording ends, and waits until it has ended it, so that the next recording can begin. A server that does not
/// answer in time is left alone.
fn leave(stream: &mut BufReader<UnixStream>) {
    let end = Instant::now() + TIMEOUT;
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
    sorted: SortedTrace,
    lost: u64,
}

impl Trace {
    fn create(out: &Path) -> Result<Trace, Failure> {
        let sorted = SortedTrace::create(out)?;
        Ok(Trace { sorted, lost: 0 })
    }

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
        self.sorted.add(Record {
            class: e.class,
            latency_ns: Some(e.latency_ns),
            flags: if e.fua { Flags::FUA } else { Flags::NONE },
            ..Record::new(Nanos(e.time_ns), op, e.offset, e.len)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_of_a_recording_comes_back_in_order_of_arrival() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("t.parquet");
        let mut trace = Trace::create(&path).expect("created");
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
        assert_eq!(trace.sorted.finish().expect("whole"), 4);
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
