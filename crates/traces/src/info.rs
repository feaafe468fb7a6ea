//! The figures of a trace: `isotherm trace info`.

use std::collections::BTreeMap;
use std::path::Path;

use roaring::RoaringTreemap;
use serde::Serialize;

use crate::error::TraceError;
use crate::format::Format;
use crate::heat::Heats;
use crate::map::Spans;
use crate::open::open;
use crate::reader::{Options, Reader};
use crate::record::{Op, Record};
use crate::repeats::Repeats;
use crate::reuse::{Distances, Reuse};
use crate::stats::Stats;
use crate::stats::Sure;

/// Figures of a trace. The names of the fields are those of `trace info --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Info {
    /// Name of the format.
    pub format: String,
    /// Requests of every kind.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes that reads transferred.
    pub bytes_read: u64,
    /// Bytes that writes transferred.
    pub bytes_written: u64,
    /// Distinct 4 KiB blocks read or written, counted per device.
    pub unique_4k: u64,
    /// Lowest byte touched on any device; `None` if nothing is.
    pub first_byte: Option<u64>,
    /// Highest byte touched on any device.
    pub last_byte: Option<u64>,
    /// From the earliest to the latest request, in seconds; `None` if the trace has no time.
    pub duration_s: Option<f64>,
    /// Devices.
    pub devices: u64,
    /// Share of reads and writes that begin where the request before them on the same device ended.
    pub sequential_ratio: f64,
    /// Reads and writes by size in bytes.
    pub sizes: BTreeMap<u32, u64>,
    /// The distribution of read and write sizes; `None` if there are no reads and writes.
    pub request_bytes: Option<RequestBytes>,
    /// Bytes of the distinct 4 KiB blocks read or written.
    pub working_set_bytes: u64,
    /// Reuse distances in blocks of 4 KiB.
    pub reuse: Reuse,
    /// Requests by class.
    pub by_class: BTreeMap<u8, u64>,
    /// Mean latency of those requests for which the trace has one, in seconds.
    pub latency_mean_s: Option<f64>,
    /// Records that the reader dropped, skipped or corrected.
    pub reader: Stats,
    /// How certain it is that the format was recognised correctly.
    pub sure: Sure,
    /// Assumptions that were made because the trace does not state the fact.
    pub assumed: Vec<String>,
    /// What the content leaves open, and figures that no real device has: signs of a wrong format or unit.
    pub doubts: Vec<String>,
}

/// Requests per second and device, over the whole trace, above which the figure is doubted: some hundred times what a disk serves.
const RATE_DOUBTED: f64 = 20_000.0;
/// Mean request size in bytes above which the figure is doubted.
const MEAN_DOUBTED: f64 = (1 << 20) as f64;
/// Address in bytes above which the figure is doubted: 4 PiB, more than any device has.
const ADDRESS_DOUBTED: u64 = 1 << 52;
/// Accesses of 4 KiB for which reuse is computed: so many, and so many more with each request. It bounds the time for requests of gigabytes.
const PATIENCE: u64 = 1 << 26;
const PATIENCE_EACH: u64 = 1 << 12;
/// Duration in seconds above which the figure is doubted: five years.
const DURATION_DOUBTED: f64 = 5.0 * 365.0 * 86_400.0;

impl Info {
    /// The figures that no real device has, in sentences.
    fn doubted(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let done = (self.reads + self.writes) as f64;
        if let Some(rate) = self
            .duration_s
            .map(|s| done / s / self.devices.max(1) as f64)
            .filter(|&rate| done >= 1_000.0 && rate > RATE_DOUBTED)
        {
            doubts.push(format!(
                "{rate:.0} requests a second on one device: a disk serves some hundred. If it was a disk, the unit of time is wrong (--time-unit)."
            ));
        }
        if let Some(mean) = self
            .request_bytes
            .map(|s| s.mean)
            .filter(|&m| m >= MEAN_DOUBTED)
        {
            doubts.push(format!(
                "The mean request has {mean:.0} bytes: sizes may count bytes or pages where sectors were assumed (--format)."
            ));
        }
        if let Some(last) = self.last_byte.filter(|&last| last >= ADDRESS_DOUBTED) {
            doubts.push(format!(
                "Byte {last} is touched: no device is that large. Addresses may count bytes where sectors were assumed (--format)."
            ));
        }
        if let Some(long) = self.duration_s.filter(|&s| s >= DURATION_DOUBTED) {
            doubts.push(format!(
                "It lasts {:.0} days: the unit of time may be wrong (--time-unit).",
                long / 86_400.0
            ));
        }
        let back = self.reader.time_went_back;
        if back * 10 > self.requests {
            doubts.push(format!(
                "{back} of {} times are smaller than the one before: the column may be no time of arrival.",
                self.requests
            ));
        }
        let odd: u64 = self
            .sizes
            .iter()
            .filter(|(size, _)| *size % 512 != 0)
            .map(|(_, n)| n)
            .sum();
        if odd as f64 > done / 2.0 {
            doubts.push(format!(
                "{odd} requests are no multiple of 512 bytes: a block device has none such."
            ));
        }
        doubts
    }
}

/// The distribution of request sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RequestBytes {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half of the requests are no larger.
    pub p50: u32,
    /// 90 % are no larger.
    pub p90: u32,
    /// 99 % are no larger.
    pub p99: u32,
    /// The largest.
    pub max: u32,
}

impl RequestBytes {
    fn of(sizes: &BTreeMap<u32, u64>) -> Option<RequestBytes> {
        let n: u64 = sizes.values().sum();
        let (&max, _) = sizes.last_key_value()?;
        let bytes: f64 = sizes
            .iter()
            .map(|(&size, &count)| f64::from(size) * count as f64)
            .sum();
        let percentile = |percent: u64| {
            let mut left = (n * percent).div_ceil(100).max(1);
            for (&size, &count) in sizes {
                if count >= left {
                    return size;
                }
                left -= count;
            }
            max
        };
        Some(RequestBytes {
            mean: bytes / n as f64,
            p50: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
            max,
        })
    }
}

/// Reads the trace once and computes its figures.
///
/// Memory grows with the number of distinct 4 KiB blocks (compressed bitmaps, at most some 3 bytes a block) and of
/// distinct request sizes, not with the length of the trace. Reuse distances are
/// exact up to 32 768 distinct blocks and from a sample beyond.
///
/// # Errors
/// As [`open`] and [`Reader::read_batch`].
pub fn info(path: impl AsRef<Path>, options: &Options) -> Result<Info, TraceError> {
    info_reader(open(path, options)?)
}

/// As [`info`], for a reader that was opened in another way. The reader is at its end afterwards.
///
/// # Errors
/// As [`Reader::read_batch`].
pub fn info_reader(reader: Reader) -> Result<Info, TraceError> {
    info_and_heat(reader, None)
}

/// As [`info_reader`]; also adds every read and write to `heat`, for a picture.
///
/// # Errors
/// As [`Reader::read_batch`].
pub fn info_and_heat(mut reader: Reader, mut heat: Option<&mut Heats>) -> Result<Info, TraceError> {
    let mut sums = Sums::default();
    let mut batch = Vec::with_capacity(4096);
    while reader.read_batch(&mut batch, 4096)? > 0 {
        for r in &batch {
            sums.add(r);
            if let Some(heat) = &mut heat {
                heat.add(r);
            }
        }
        batch.clear();
    }
    let duration = reader.timed().then(|| reader.span().as_secs_f64());
    let (impatient, repeated) = (sums.impatient, sums.repeats.doubted(reader.timed()));
    let mut info = sums.info(reader.format().name(), duration, reader.stats());
    info.sure = reader.sure();
    info.assumed = reader.assumed().to_vec();
    info.doubts = reader.doubts().to_vec();
    if impatient {
        info.assumed.push(format!(
            "Reuse and hit ratios are those of the first {:.0} accesses of 4 KiB: the requests are too large to count all of theirs.",
            info.reuse.accesses
        ));
    }
    if reader.format() != Format::Generated {
        info.doubts.extend(repeated);
        info.doubts.extend(info.doubted());
    }
    Ok(info)
}

/// Running sums.
struct Sums {
    /// Read, write, flush, discard.
    ops: [u64; 4],
    bytes: [u64; 4],
    spans: Spans,
    touched: Vec<Touched>,
    sizes: BTreeMap<u32, u64>,
    distances: Distances,
    /// Blocks whose distances may still be computed, and whether there were more.
    patience: u64,
    impatient: bool,
    by_class: BTreeMap<u8, u64>,
    repeats: Repeats,
    sequential: u64,
    latency_ns: u128,
    latencies: u64,
}

/// The distinct blocks of a device, and the end of its last request.
#[derive(Default)]
struct Touched {
    blocks: RoaringTreemap,
    end: Option<u64>,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums {
            ops: [0; 4],
            bytes: [0; 4],
            spans: Spans::default(),
            touched: Vec::new(),
            sizes: BTreeMap::new(),
            distances: Distances::default(),
            patience: PATIENCE,
            impatient: false,
            by_class: BTreeMap::new(),
            repeats: Repeats::default(),
            sequential: 0,
            latency_ns: 0,
            latencies: 0,
        }
    }
}

impl Sums {
    fn add(&mut self, r: &Record) {
        self.ops[r.op as usize] += 1;
        self.bytes[r.op as usize] += u64::from(r.len);
        *self.by_class.entry(r.class).or_default() += 1;
        self.spans.add(r);
        if let Some(ns) = r.latency_ns {
            self.latency_ns += u128::from(ns);
            self.latencies += 1;
        }
        if !matches!(r.op, Op::Read | Op::Write) {
            return;
        }
        *self.sizes.entry(r.len).or_default() += 1;
        self.repeats.add(r);
        let device = r.device as usize;
        if self.touched.len() <= device {
            self.touched.resize_with(device + 1, Touched::default);
        }
        let touched = &mut self.touched[device];
        touched
            .blocks
            .insert_range(r.offset >> 12..=(r.end() - 1) >> 12);
        self.sequential += u64::from(touched.end == Some(r.offset));
        touched.end = Some(r.end());
        let blocks = r.offset >> 12..=(r.end() - 1) >> 12;
        self.patience += PATIENCE_EACH;
        let count = blocks.end() - blocks.start() + 1;
        self.impatient |= count > self.patience;
        if self.impatient {
            return;
        }
        self.patience = self.patience.saturating_sub(count);
        for block in blocks {
            self.distances.access(r.device, block);
        }
    }

    fn info(self, format: &str, duration: Option<f64>, reader: Stats) -> Info {
        let [reads, writes, flushes, discards] = self.ops;
        let requests = reads + writes + flushes + discards;
        let unique_4k: u64 = self.touched.iter().map(|t| t.blocks.len()).sum();
        let used = || self.spans.list().iter().filter(|s| s.end > 0);
        Info {
            format: format.to_owned(),
            requests,
            reads,
            writes,
            flushes,
            discards,
            bytes_read: self.bytes[0],
            bytes_written: self.bytes[1],
            unique_4k,
            working_set_bytes: unique_4k * 4096,
            request_bytes: RequestBytes::of(&self.sizes),
            reuse: self
                .distances
                .summary((!self.impatient).then_some(unique_4k)),
            first_byte: used().map(|s| s.first).min(),
            last_byte: used().map(|s| s.end - 1).max(),
            duration_s: duration.filter(|_| requests > 0),
            devices: self.spans.list().len() as u64,
            sequential_ratio: if reads + writes == 0 {
                0.0
            } else {
                self.sequential as f64 / (reads + writes) as f64
            },
            sizes: self.sizes,
            by_class: self.by_class,
            latency_mean_s: (self.latencies > 0)
                .then(|| self.latency_ns as f64 / self.latencies as f64 / 1e9),
            reader,
            sure: Sure::default(),
            assumed: Vec::new(),
            doubts: Vec::new(),
        }
    }
}
