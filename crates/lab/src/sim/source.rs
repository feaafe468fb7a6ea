//! Sources of requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use isotherm_core::Nanos;
use isotherm_core::random::SplitMix64;
use isotherm_traces::{Op, Options, Reader, Record, TraceError};

/// Records that are read at a time; this number fits into the second-level cache.
pub const BATCH: usize = 4096;

/// A trace that can be read several times.
pub trait Source: Send + Sync {
    /// The name in reports.
    fn name(&self) -> String;
    /// Opens it at the first request.
    ///
    /// # Errors
    /// It cannot be opened.
    fn open(&self) -> Result<Box<dyn Records>, TraceError>;
}

/// A trace that is being read. Times never fall; only flushes have length 0.
pub trait Records {
    /// Appends up to `max` records and returns their number; 0 means the end.
    ///
    /// # Errors
    /// Reading fails or a record is bad.
    fn read_batch(&mut self, out: &mut Vec<Record>, max: usize) -> Result<usize, TraceError>;
    /// The counters of a file's reader.
    fn stats(&self) -> isotherm_traces::Stats {
        isotherm_traces::Stats::default()
    }
}

impl Records for Reader {
    fn read_batch(&mut self, out: &mut Vec<Record>, max: usize) -> Result<usize, TraceError> {
        Reader::read_batch(self, out, max)
    }
    fn stats(&self) -> isotherm_traces::Stats {
        Reader::stats(self)
    }
}

/// A trace file.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The options for reading it.
    pub options: Options,
    /// The name in reports.
    pub label: String,
}

impl TraceFile {
    /// The file at `path`, labelled with its name.
    pub fn new(path: impl AsRef<Path>, options: Options) -> TraceFile {
        let path = path.as_ref().to_owned();
        TraceFile {
            label: path.display().to_string(),
            path,
            options,
        }
    }
}

impl Source for TraceFile {
    fn name(&self) -> String {
        self.label.clone()
    }
    fn open(&self) -> Result<Box<dyn Records>, TraceError> {
        Ok(Box::new(isotherm_traces::open(&self.path, &self.options)?))
    }
}

/// Requests in memory: 64 bytes each.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The name in reports.
    pub label: String,
    /// The requests, in order of time.
    pub records: Arc<[Record]>,
}

impl Memory {
    /// These requests.
    pub fn new(label: &str, records: Vec<Record>) -> Memory {
        Memory {
            label: label.to_owned(),
            records: records.into(),
        }
    }
    /// Reads all records of `source`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load(source: &dyn Source) -> Result<Memory, TraceError> {
        let mut reader = source.open()?;
        let mut records = Vec::new();
        while reader.read_batch(&mut records, BATCH)? > 0 {}
        Ok(Memory::new(&source.name(), records))
    }
}

struct MemoryReader {
    records: Arc<[Record]>,
    at: usize,
}

impl Source for Memory {
    fn name(&self) -> String {
        self.label.clone()
    }
    fn open(&self) -> Result<Box<dyn Records>, TraceError> {
        Ok(Box::new(MemoryReader {
            records: self.records.clone(),
            at: 0,
        }))
    }
}

impl Records for MemoryReader {
    fn read_batch(&mut self, out: &mut Vec<Record>, max: usize) -> Result<usize, TraceError> {
        let rest = &self.records[self.at..];
        let n = rest.len().min(max);
        out.extend_from_slice(&rest[..n]);
        self.at += n;
        Ok(n)
    }
    fn stats(&self) -> isotherm_traces::Stats {
        isotherm_traces::Stats {
            requests: self.at as u64,
            ..isotherm_traces::Stats::default()
        }
    }
}

/// Several traces as the devices of one run, merged by time. On ties the order is the given one.
pub struct Volumes(Vec<Box<dyn Source>>);

impl Volumes {
    /// Makes a source of these traces, side by side.
    pub fn new(sources: Vec<Box<dyn Source>>) -> Volumes {
        Volumes(sources)
    }
}

impl Source for Volumes {
    fn name(&self) -> String {
        let names: Vec<String> = self.0.iter().map(|s| s.name()).collect();
        names.join(" + ")
    }
    fn open(&self) -> Result<Box<dyn Records>, TraceError> {
        let open = |s: &dyn Source| {
            Ok(Lane {
                records: s.open()?,
                batch: Vec::with_capacity(BATCH),
                at: 0,
                ended: false,
                numbers: Vec::new(),
            })
        };
        Ok(Box::new(Merged {
            lanes: self
                .0
                .iter()
                .map(|s| open(s.as_ref()))
                .collect::<Result<_, TraceError>>()?,
            devices: 0,
        }))
    }
}

struct Lane {
    records: Box<dyn Records>,
    batch: Vec<Record>,
    at: usize,
    ended: bool,
    /// The lane's device → its number in the run + 1; 0 if the device was not seen.
    numbers: Vec<u32>,
}

struct Merged {
    lanes: Vec<Lane>,
    devices: u32,
}

impl Records for Merged {
    fn read_batch(&mut self, out: &mut Vec<Record>, max: usize) -> Result<usize, TraceError> {
        let mut n = 0;
        while n < max {
            for l in &mut self.lanes {
                if l.at == l.batch.len() && !l.ended {
                    l.batch.clear();
                    l.at = 0;
                    l.ended = l.records.read_batch(&mut l.batch, BATCH)? == 0;
                }
            }
            let next = self
                .lanes
                .iter_mut()
                .filter(|l| l.at < l.batch.len())
                .min_by_key(|l| l.batch[l.at].time);
            let Some(l) = next else { break };
            let mut r = l.batch[l.at];
            l.at += 1;
            let own = r.device as usize;
            if l.numbers.len() <= own {
                l.numbers.resize(own + 1, 0);
            }
            if l.numbers[own] == 0 {
                self.devices += 1;
                l.numbers[own] = self.devices;
            }
            r.device = l.numbers[own] - 1;
            out.push(r);
            n += 1;
        }
        Ok(n)
    }
    fn stats(&self) -> isotherm_traces::Stats {
        let mut sum = isotherm_traces::Stats::default();
        for s in self.lanes.iter().map(|l| l.records.stats()) {
            sum.requests += s.requests;
            sum.bad_skipped += s.bad_skipped;
            sum.zero_length_dropped += s.zero_length_dropped;
            sum.sorted += s.sorted;
            sum.time_went_back += s.time_went_back;
            sum.other_events += s.other_events;
        }
        sum
    }
}

/// A computed trace of any length. An address is the product of two uniform numbers, so low addresses are hot.
#[derive(Clone, Copy, Debug)]
pub struct Synthetic {
    /// Number of requests.
    pub requests: u64,
    /// Size of the address space in bytes, a multiple of `len`.
    pub bytes: u64,
    /// Length of a request in bytes; requests are aligned to it.
    pub len: u32,
    /// Percentage of writes.
    pub write_percent: u32,
    /// Time between requests.
    pub gap: Nanos,
    /// Seed of the addresses and operations.
    pub seed: u64,
}

impl Source for Synthetic {
    fn name(&self) -> String {
        format!("synthetic:{}x{}@{}", self.requests, self.len, self.seed)
    }
    fn open(&self) -> Result<Box<dyn Records>, TraceError> {
        Ok(Box::new(SyntheticReader {
            of: *self,
            done: 0,
            random: SplitMix64::new(self.seed),
        }))
    }
}

struct SyntheticReader {
    of: Synthetic,
    done: u64,
    random: SplitMix64,
}

impl Records for SyntheticReader {
    fn read_batch(&mut self, out: &mut Vec<Record>, max: usize) -> Result<usize, TraceError> {
        let n = (self.of.requests - self.done).min(max as u64);
        let places = (self.of.bytes / u64::from(self.of.len)).max(1);
        for _ in 0..n {
            let (a, b) = (self.random.draw(), self.random.draw());
            let scale = |x: u64, of: u64| ((u128::from(x) * u128::from(of)) >> 64) as u64;
            let place = scale(b, scale(a, places) + 1);
            let write = (a & 0xffff) * 100 < u64::from(self.of.write_percent) << 16;
            let time = Nanos(self.done.saturating_mul(self.of.gap.0));
            let op = if write { Op::Write } else { Op::Read };
            out.push(Record::new(
                time,
                op,
                place * u64::from(self.of.len),
                self.of.len,
            ));
            self.done += 1;
        }
        Ok(n as usize)
    }
    fn stats(&self) -> isotherm_traces::Stats {
        isotherm_traces::Stats {
            requests: self.done,
            ..isotherm_traces::Stats::default()
        }
    }
}
