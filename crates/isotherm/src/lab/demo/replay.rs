//! Replays the first minutes of a real trace in a closed loop against each set-up, and checks every byte.
//!
//! Data: sector `s` as written by request `v` (0 = the initial filling) contains words that are mixed from both numbers, so that a lost,
//! torn, stale or misplaced write shows at the next read. A request that overlaps one in flight waits for it if either of them writes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use isotherm_core::random::SplitMix64;
use isotherm_core::{IoError, Nanos, RequestOp};
use isotherm_live::port::{Buffer, Completion, IoRequest, Port};
use isotherm_live::{OpenMode, Server, Volume};
use isotherm_traces::{Format, Op, Options, Record, WriteOptions, Writer};

use super::Progress;
use super::process::Stop;
use super::report::{Row, Workload};
use super::setup::{EXTENT, FAST_SHARE, SetUp, Sized};
use crate::events_file::EventsFile;
use crate::lab::args::DemoArgs;
use crate::{Failure, figures};

/// Shipped with the program, unchanged (blkreplay; GNU all-permissive, its notice is inside).
const MYSQL: &[u8] = include_bytes!("../../../../../fixtures/linux-mysql.load.zst");
/// Touched regions of this size are placed side by side, in the order of addresses.
const REGION: u64 = 1 << 20;
const SECTOR: u64 = 512;
/// A request without an answer after this time is an error.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The requests to replay.
pub struct Plan {
    name: String,
    records: Vec<Record>,
    /// Touched extents in the compacted address space.
    extents: Vec<u64>,
    volume: u64,
    span: u64,
    depth: usize,
    policy: String,
    minutes: f64,
    /// The directory for recordings of the replays.
    events: Option<PathBuf>,
}

/// Free bytes that are needed.
pub fn room() -> u64 {
    // Members are sparse files. Touched data is written at most once on each tier, and the trace is small.
    1 << 30
}

impl Plan {
    /// Reads the trace.
    ///
    /// # Errors
    /// It cannot be read, or has no requests.
    pub fn new(args: &DemoArgs, work: &Path) -> Result<Plan, Failure> {
        let (path, name) = if let Some(path) = &args.trace {
            (path.clone(), path.display().to_string())
        } else {
            let path = work.join("linux-mysql.load.zst");
            fs::write(&path, MYSQL).map_err(|e| Failure::file(&path, "write", &e))?;
            (path, "linux-mysql.load".to_owned())
        };
        let options = Options {
            limit: Some(u64::from(args.limit)),
            ..Options::default()
        };
        let reader =
            isotherm_traces::open(&path, &options).map_err(|e| Failure::failed(e.to_string()))?;
        let read: Result<Vec<Record>, _> = reader.collect();
        let read = read.map_err(|e| Failure::failed(e.to_string()))?;
        let plan = Plan::of(read, name, usize::from(args.depth), args.policy.to_string())?;
        Ok(Plan {
            events: args.save_events.clone(),
            ..plan
        })
    }

    fn of(
        mut records: Vec<Record>,
        name: String,
        depth: usize,
        policy: String,
    ) -> Result<Plan, Failure> {
        records.retain(|r| matches!(r.op, Op::Read | Op::Write | Op::Flush));
        let (Some(last), span) = (
            records.last(),
            records.iter().map(Record::end).max().unwrap_or(0),
        ) else {
            return Err(Failure::failed(format!("{name}: has no reads and writes")));
        };
        let minutes = last.time.as_secs_f64() / 60.0;
        let units =
            |r: &Record, size: u64| r.offset / size..(r.end().div_ceil(size)).max(r.offset / size);
        let data = |r: &&Record| r.op != Op::Flush;
        let regions: BTreeSet<u64> = (records.iter().filter(data))
            .flat_map(|r| units(r, REGION))
            .collect();
        if regions.is_empty() {
            return Err(Failure::failed(format!("{name}: has no reads and writes")));
        }
        let regions: Vec<u64> = regions.into_iter().collect();
        for r in records.iter_mut().filter(|r| r.op != Op::Flush) {
            // Every region was inserted above. The further regions of a request follow its first one without a gap.
            let rank = regions.partition_point(|&x| x < r.offset / REGION) as u64;
            r.offset = rank * REGION + r.offset % REGION;
        }
        let extents: BTreeSet<u64> = (records.iter().filter(data))
            .flat_map(|r| units(r, EXTENT))
            .collect();
        let volume = regions.len() as u64 * REGION;
        Ok(Plan {
            name,
            records,
            extents: extents.into_iter().collect(),
            volume,
            span,
            depth,
            policy,
            minutes,
            events: None,
        })
    }

    /// The filling and the replayed requests, as a trace that the lab can play in the same way.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, file: &Path) -> Result<(), Failure> {
        let failed = |e: isotherm_traces::TraceError| Failure::failed(e.to_string());
        let mut w = Writer::create(file, &WriteOptions::new(Format::Parquet)).map_err(failed)?;
        for &extent in &self.extents {
            let fill = Record::new(Nanos(0), Op::Write, extent * EXTENT, EXTENT as u32);
            w.write(&fill).map_err(failed)?;
        }
        // As in this demo, the filling is on the devices before measuring begins, and the replayed requests come at the end.
        w.write(&Record::new(Nanos(0), Op::Flush, 0, 0))
            .map_err(failed)?;
        for r in &self.records {
            w.write(r).map_err(failed)?;
        }
        let last = self.records.last().map_or(Nanos(0), |r| r.time);
        w.write(&Record::new(last, Op::Flush, 0, 0))
            .map_err(failed)?;
        w.finish().map(drop).map_err(failed)
    }

    fn working_set(&self) -> u64 {
        self.extents.len() as u64 * EXTENT
    }

    fn fast(&self) -> u32 {
        ((self.extents.len() as f64 * FAST_SHARE).round() as u32).max(2)
    }

    /// Notes for the reader.
    pub fn notes(&self) -> Vec<String> {
        vec![format!(
            "trace: the first {} requests ({:.1} minutes) of {}, closed loop, {} in flight; the touched 1 MiB regions of its \
             {:.1} GiB are put side by side in address order ({} MiB); working set {} MiB in 64 KiB extents, filled beforehand \
             (unpaced, untimed); fast tier of the hybrid {} MiB; every read is checked, and all of it once more at the end",
            self.records.len(),
            self.minutes,
            self.name,
            self.depth,
            self.span as f64 / f64::from(1 << 30),
            self.volume >> 20,
            self.working_set() >> 20,
            (u64::from(self.fast()) * EXTENT) >> 20,
        )]
    }
}

/// Measures one set-up: fill, replay, read back.
pub fn measure(
    kind: SetUp,
    plan: &Plan,
    stop: &Stop,
    say: &Progress,
    work: &Path,
) -> Result<Row, Failure> {
    let dir = work.join(format!("trace-{kind:?}"));
    fs::create_dir(&dir).map_err(|e| Failure::file(&dir, "make the directory", &e))?;
    let place = Place {
        kind,
        volume: dir.join("v"),
        dir: dir.clone(),
    };
    say.line(&format!(
        "{}, trace: fill {} MiB",
        kind.words(),
        plan.working_set() >> 20
    ));
    let sized = Sized::find(
        kind,
        &plan.policy,
        (plan.volume / EXTENT) as u32,
        plan.fast(),
        &dir,
    )?;
    sized.create(&dir)?;
    let mut run = Run::new(plan, stop);
    let server = place.open(&sized, false)?;
    run.fill(&server.port())?;
    server.stop().map_err(|e| Failure::failed(e.to_string()))?;
    say.line(&format!(
        "{}, trace: replay {} requests",
        kind.words(),
        plan.records.len()
    ));
    let server = place.open(&sized, true)?;
    let start = |dir: &Path| {
        let file = dir.join(format!("{kind:?}.events").to_lowercase());
        EventsFile::start(&file, &server.handle(), u64::MAX)
    };
    let events = plan.events.as_deref().map(start).transpose()?;
    let begun = Instant::now();
    run.replay(&server.port())?;
    let elapsed = begun.elapsed();
    let spent = Nanos(elapsed.as_nanos() as u64);
    let alone = figures::Beside::alone(sized.config(&dir, true), spent);
    let stats = (server.handle()).call(move |engine, world| figures::stats(engine, world, alone));
    let stats = stats.ok_or_else(|| Failure::failed("the volume closed by itself"))?;
    server.stop().map_err(|e| Failure::failed(e.to_string()))?;
    if let Some(events) = events {
        events.finish();
    }
    say.line(&format!("{}, trace: read everything back", kind.words()));
    let server = place.open(&sized, false)?;
    run.read_back(&server.port())?;
    server.stop().map_err(|e| Failure::failed(e.to_string()))?;
    fs::remove_dir_all(&dir).map_err(|e| Failure::file(&dir, "remove", &e))?;
    let mut row = Row::new(kind, Workload::Trace, elapsed.as_secs_f64(), &stats);
    // Latencies are those of the client, which include the wait for the engine's thread.
    run.latencies.sort_unstable();
    row.latency_p50_s = quantile(&run.latencies, 0.5);
    row.latency_p99_s = quantile(&run.latencies, 0.99);
    row.working_set_bytes = plan.working_set();
    row.checked_bytes = Some(run.checked);
    Ok(row)
}

fn quantile(sorted: &[Duration], q: f64) -> f64 {
    let at = ((sorted.len() as f64 * q).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).map_or(0.0, Duration::as_secs_f64)
}

struct Place {
    kind: SetUp,
    volume: PathBuf,
    dir: PathBuf,
}

impl Place {
    fn open(&self, sized: &Sized, paced: bool) -> Result<Server, Failure> {
        let file = isotherm_live::volume::description(&self.volume);
        let opened = Volume::open_config(
            sized.config(&self.dir, paced),
            &file,
            &self.dir,
            OpenMode::ReadWrite,
        );
        let server = opened.and_then(Volume::serve);
        server.map_err(|e| Failure::failed(format!("{}: {e}", self.kind.words())))
    }
}

/// An answer, and its request.
struct Done {
    slot: usize,
    result: Result<(), IoError>,
    buf: Option<Buffer>,
    at: Instant,
}

/// A request in flight.
#[derive(Clone, Copy)]
struct Flight {
    op: RequestOp,
    offset: u64,
    len: u32,
    version: u32,
    begun: Instant,
}

struct Run<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    /// For each sector, the number of the request that wrote it last; 0 = the filling.
    versions: Vec<u32>,
    flights: Vec<Option<Flight>>,
    send: Sender<Done>,
    receive: Receiver<Done>,
    latencies: Vec<Duration>,
    checked: u64,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, stop: &'a Stop) -> Run<'a> {
        let (send, receive) = mpsc::channel();
        Run {
            plan,
            stop,
            versions: vec![0; (plan.volume / SECTOR) as usize],
            flights: vec![None; plan.depth],
            send,
            receive,
            latencies: Vec::with_capacity(plan.records.len()),
            checked: 0,
        }
    }

    fn fill(&mut self, port: &Arc<dyn Port>) -> Result<(), Failure> {
        for &extent in &self.plan.extents {
            self.issue(port, RequestOp::Write, extent * EXTENT, EXTENT as u32, 0)?;
        }
        self.end(port)
    }

    fn replay(&mut self, port: &Arc<dyn Port>) -> Result<(), Failure> {
        self.latencies.clear();
        self.checked = 0;
        for (i, r) in self.plan.records.iter().enumerate() {
            let op = match r.op {
                Op::Write => RequestOp::Write,
                Op::Flush => RequestOp::Flush,
                _ => RequestOp::Read,
            };
            self.issue(port, op, r.offset, r.len, i as u32 + 1)?;
        }
        self.end(port)
    }

    fn read_back(&mut self, port: &Arc<dyn Port>) -> Result<(), Failure> {
        // The latencies of this part are not those of the replay.
        let latencies = std::mem::take(&mut self.latencies);
        for &extent in &self.plan.extents {
            self.issue(port, RequestOp::Read, extent * EXTENT, EXTENT as u32, 0)?;
        }
        self.end(port)?;
        self.latencies = latencies;
        Ok(())
    }

    fn sectors(offset: u64, len: u32) -> std::ops::Range<usize> {
        (offset / SECTOR) as usize..(offset + u64::from(len)).div_ceil(SECTOR) as usize
    }

    /// Waits for a free place and for all requests in flight that overlap this one, then submits it.
    fn issue(
        &mut self,
        port: &Arc<dyn Port>,
        op: RequestOp,
        offset: u64,
        len: u32,
        version: u32,
    ) -> Result<(), Failure> {
        self.stop.check()?;
        let races = |f: &Flight| {
            (f.op == RequestOp::Write || op == RequestOp::Write)
                && f.offset < offset + u64::from(len)
                && offset < f.offset + u64::from(f.len)
        };
        let slot = loop {
            let free = self.flights.iter().position(Option::is_none);
            match free {
                Some(slot) if !self.flights.iter().flatten().any(races) => break slot,
                _ => self.take()?,
            }
        };
        let mut buf = (op != RequestOp::Flush).then(|| port.buffer(offset, len));
        if let Some(buf) = buf.as_mut().filter(|_| op == RequestOp::Write) {
            let sectors = Self::sectors(offset, len);
            self.versions[sectors.clone()].fill(version);
            for (sector, bytes) in sectors.zip(buf.chunks_mut(SECTOR as usize)) {
                stamp(sector as u64, version, bytes);
            }
        }
        let send = self.send.clone();
        let done = Completion::new(move |result, buf| {
            // If the run has failed, nobody receives this any more.
            let _ = send.send(Done {
                slot,
                result,
                buf,
                at: Instant::now(),
            });
        });
        self.flights[slot] = Some(Flight {
            op,
            offset,
            len,
            version,
            begun: Instant::now(),
        });
        port.submit(
            IoRequest {
                op,
                offset,
                len,
                fua: false,
                class: 0,
                buffer: buf,
                pages: None,
            },
            done,
        );
        Ok(())
    }

    /// Handles one answer.
    fn take(&mut self) -> Result<(), Failure> {
        let done = self
            .receive
            .recv_timeout(TIMEOUT)
            .map_err(|_| Failure::failed(format!("no answer for {} s", TIMEOUT.as_secs())))?;
        let Some(flight) = self.flights[done.slot].take() else {
            return Err(Failure::failed("a request was answered twice"));
        };
        let Flight {
            op,
            offset,
            len,
            version,
            begun,
        } = flight;
        if let Err(e) = done.result {
            return Err(Failure::failed(format!(
                "request {version}: {op:?} of {len} bytes at {offset}: {e:?}"
            )));
        }
        self.latencies.push(done.at.duration_since(begun));
        if op != RequestOp::Read {
            return Ok(());
        }
        let buf = done
            .buf
            .ok_or_else(|| Failure::failed("a read came back without its buffer"))?;
        self.checked += u64::from(len);
        check(&self.versions, offset, &buf).map_err(|at| {
            let want = self.versions[(at / SECTOR) as usize];
            Failure::failed(format!(
                "wrong data: byte {at} of the volume is not what request {want} wrote there"
            ))
        })
    }

    /// Waits for all answers, then flushes.
    fn end(&mut self, port: &Arc<dyn Port>) -> Result<(), Failure> {
        while self.flights.iter().any(Option::is_some) {
            self.take()?;
        }
        let (send, receive) = mpsc::channel();
        let done = Completion::new(move |result, _| {
            let _ = send.send(result);
        });
        port.submit(IoRequest::flush(), done);
        match receive.recv_timeout(TIMEOUT) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(Failure::failed(format!("flush: {e:?}"))),
            Err(_) => Err(Failure::failed(format!(
                "no answer to a flush for {} s",
                TIMEOUT.as_secs()
            ))),
        }
    }
}

/// The first byte of the first wrong sector.
fn check(versions: &[u32], offset: u64, data: &[u8]) -> Result<(), u64> {
    let mut want = [0; SECTOR as usize];
    let first = offset / SECTOR;
    for (sector, bytes) in (first..).zip(data.chunks(SECTOR as usize)) {
        let want = &mut want[..bytes.len()];
        stamp(sector, versions[sector as usize], want);
        if want != bytes {
            return Err(sector * SECTOR);
        }
    }
    Ok(())
}

/// The contents of a sector as a request writes it.
fn stamp(sector: u64, version: u32, bytes: &mut [u8]) {
    // In practice no two pairs (sector, version) begin with the same words.
    let mut random = SplitMix64::new(
        sector.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ u64::from(version).wrapping_mul(0xd1b5_4a32_d192_ed03),
    );
    random.fill(bytes);
}

#[cfg(test)]
mod tests;
