//! Hit-only runs: a trace under a policy with no device time (docs/policy-rules.md section 0), at full speed.
//!
//! One pass decodes the trace, finds the touched extents (`10%` refers to their number, and rows are kept for them only) and keeps the
//! requests, 6 to 18 bytes each, as long as they fit into a budget. Then the requests are played. A longer trace is decoded a second time,
//! so memory is bounded by the budget and by the touched extents, whatever the length of the trace.
//!
//! A plain cache policy is compiled into the loop ([`with_preset`]); other policies are called dynamically. The decisions are the same
//! (test: `tests/hit_only.rs`).

use std::hint::black_box;
use std::time::{Duration, Instant};

use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::{NullCounters, NullEngine};
use isotherm_core::policy::{ParamValue, Policy, Visitor, with_preset};
use isotherm_core::{ExtentId, Nanos, TierId};
use isotherm_traces::{DeviceSpan, Op, Reader, Record, SideBySide, Stats, TraceError};

pub use crate::error::HitOnlyError;
use crate::error::changed;
use crate::kept::{Kept, Kind};
use crate::sim::{Digest, SLOTS_MAX};
use crate::touched::{Spot, Touched};

/// Records that are decoded at a time; this number fits into the first-level cache.
const BATCH: usize = 512;
/// Number of requests whose rows are looked up ahead, so that the cache misses overlap.
const AHEAD: usize = 32;
/// Most fast slots that are kept if the trace touches less than half as many extents.
const FAST_SLOTS_MAX: u64 = 1 << 26;
/// The logical block of a simulated volume, as a power of two: the sector.
const BLOCK_SHIFT: u32 = 9;
/// Default budget in bytes for kept requests: 15 to 44 million requests.
pub const KEEP_BYTES: usize = 256 << 20;

/// The settings of a run.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Preset name.
    pub policy: &'a str,
    /// The parameters of the policy.
    pub params: &'a [(&'a str, ParamValue<'a>)],
    /// log2 of the extent size, 12 to 22.
    pub extent_shift: u32,
    /// The number of fast slots as a function of the number of touched extents; a result below 1 counts as 1.
    pub fast_slots: &'a dyn Fn(u64) -> u64,
    /// Budget in bytes for kept requests ([`KEEP_BYTES`]); a trace that exceeds it is read twice.
    pub keep_bytes: usize,
}

/// Counters of one class of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSums {
    /// Requests.
    pub requests: u64,
    /// Bytes of these requests.
    pub bytes: u64,
    /// Extent accesses.
    pub accesses: u64,
    /// Extent accesses that hit the fast tier.
    pub hits: u64,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct HitOnlyReport {
    /// Requests of any kind.
    pub requests: u64,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes of read requests.
    pub bytes_read: u64,
    /// Bytes of write requests.
    pub bytes_written: u64,
    /// Counters by class; classes without requests are omitted.
    pub by_class: Vec<(u8, ClassSums)>,
    /// Hash of the hit or miss of each access: equal runs have equal digests.
    pub digest: Digest,
    /// The counters of the engine.
    pub counters: NullCounters,
    /// Number of distinct extents that are touched.
    pub touched: u64,
    /// Number of rows that are kept for them.
    pub rows: u64,
    /// Number of fast slots, as requested.
    pub fast_slots: u64,
    /// Memory of map, slots and policy in bytes.
    pub bytes: usize,
    /// Time spent reading and decoding.
    pub reading: Duration,
    /// Total time.
    pub wall: Duration,
    /// The counters of the reader.
    pub reader: Stats,
}

/// Plays a trace. `open` opens it; it is called twice if the trace is too long to be kept.
///
/// # Errors
/// See [`HitOnlyError`].
pub fn hit_only(
    mut open: impl FnMut() -> Result<Reader, TraceError>,
    setup: &Setup<'_>,
) -> Result<HitOnlyReport, HitOnlyError> {
    let begun = Instant::now();
    let gathered = Gathered::read(open()?, setup)?;
    let again = match gathered.kept {
        Some(_) => None,
        None => Some(open()?),
    };
    let run = Run {
        gathered,
        again,
        setup,
        begun,
    };
    with_preset(setup.policy, setup.params, run).map_err(HitOnlyError::Policy)?
}

/// A request that is ready to be played.
#[derive(Clone, Copy)]
struct Ready {
    time: Nanos,
    /// The row of its first extent.
    first: u32,
    len: u32,
    inside: u32,
    class: u8,
    write: bool,
}

impl Ready {
    const NOTHING: Ready = Ready {
        time: Nanos(0),
        first: 0,
        len: 0,
        inside: 0,
        class: 0,
        write: false,
    };
}

/// One device of the trace.
struct Device {
    span: DeviceSpan,
    touched: Touched,
}

/// The result of the first pass.
struct Gathered {
    /// The devices in the order of their first requests.
    devices: Vec<Device>,
    /// Number of a device in the trace → index in `devices`.
    place: Vec<u32>,
    /// The requests, unless there are too many.
    kept: Option<Kept>,
    report: HitOnlyReport,
}

impl Gathered {
    fn read(mut reader: Reader, setup: &Setup<'_>) -> Result<Gathered, HitOnlyError> {
        let mut g = Gathered {
            devices: Vec::new(),
            place: Vec::new(),
            kept: Some(Kept::default()),
            report: HitOnlyReport {
                requests: 0,
                reads: 0,
                writes: 0,
                bytes_read: 0,
                bytes_written: 0,
                by_class: Vec::new(),
                digest: Digest::default(),
                counters: NullCounters::default(),
                touched: 0,
                rows: 0,
                fast_slots: 0,
                bytes: 0,
                reading: Duration::ZERO,
                wall: Duration::ZERO,
                reader: Stats::default(),
            },
        };
        let mut batch = Vec::with_capacity(BATCH);
        while next_batch(&mut reader, &mut batch, &mut g.report.reading)? {
            for r in &batch {
                g.add(r, setup.extent_shift);
            }
            if g.kept
                .as_ref()
                .is_some_and(|k| k.bytes() > setup.keep_bytes)
            {
                g.kept = None;
            }
        }
        g.report.reader = reader.stats();
        for d in &mut g.devices {
            g.report.touched = d.touched.number(g.report.touched);
        }
        Ok(g)
    }
    fn add(&mut self, r: &Record, shift: u32) {
        let sums = &mut self.report;
        sums.requests += 1;
        match r.op {
            Op::Read => {
                sums.reads += 1;
                sums.bytes_read += u64::from(r.len);
            }
            Op::Write => {
                sums.writes += 1;
                sums.bytes_written += u64::from(r.len);
            }
            Op::Flush | Op::Discard => {}
        }
        let place = match self.place.get(r.device as usize) {
            Some(p) if *p != 0 => *p as usize - 1,
            _ => self.new_device(r.device),
        };
        let device = &mut self.devices[place];
        if r.op == Op::Flush {
            return;
        }
        device.span.first = device.span.first.min(r.offset);
        device.span.end = device.span.end.max(r.end());
        // In a run without devices, a discard neither places nor touches data.
        if r.op == Op::Discard {
            return;
        }
        let (from, to) = span(r, shift);
        let spot = device.touched.add(from);
        for e in from + 1..=to {
            device.touched.add(e);
        }
        let kind = Kind::new(r, place as u32, shift);
        if let Some(kept) = &mut self.kept
            && !kept.push(r.time, spot, kind)
        {
            self.kept = None;
        }
    }
    fn new_device(&mut self, device: u32) -> usize {
        if self.place.len() <= device as usize {
            self.place.resize(device as usize + 1, 0);
        }
        self.devices.push(Device {
            span: DeviceSpan {
                device,
                first: u64::MAX,
                end: 0,
            },
            touched: Touched::default(),
        });
        self.place[device as usize] = self.devices.len() as u32;
        self.devices.len() - 1
    }
}

fn next_batch(
    reader: &mut Reader,
    batch: &mut Vec<Record>,
    reading: &mut Duration,
) -> Result<bool, TraceError> {
    batch.clear();
    let begun = Instant::now();
    let n = reader.read_batch(batch, BATCH)?;
    *reading += begun.elapsed();
    Ok(n > 0)
}

/// The first and the last extent of a request of at least one byte.
fn span(r: &Record, shift: u32) -> (u64, u64) {
    (r.offset >> shift, (r.end() - 1) >> shift)
}

/// The second pass, for any policy.
struct Run<'a> {
    gathered: Gathered,
    again: Option<Reader>,
    setup: &'a Setup<'a>,
    begun: Instant,
}

/// The mapping from extents to rows.
enum Rows {
    /// Touched extents, numbered without gaps, or with one skipped number between extents that are not neighbours.
    Ranks,
    /// The address space from the lowest touched extent on, because `linear` places data by address. The values are the base of each
    /// device, in extents, and the lowest extent.
    Addresses(Vec<u64>, u64),
}

impl Run<'_> {
    /// The mapping, and the number of rows.
    fn rows(&self, ranks: u64) -> Result<(Rows, u64), HitOnlyError> {
        let g = &self.gathered;
        let spans: Vec<DeviceSpan> = g.devices.iter().map(|d| d.span).collect();
        let map = SideBySide::new(&spans).map_err(HitOnlyError::Unfit)?;
        if !matches!(self.setup.policy, "linear" | "mylinear") {
            return Ok((Rows::Ranks, ranks));
        }
        let shift = self.setup.extent_shift;
        let bases: Vec<u64> = spans.iter().map(|s| map.base(s.device) >> shift).collect();
        let (mut lowest, mut end) = (u64::MAX, 0);
        for (d, base) in g.devices.iter().zip(&bases) {
            if let Some((from, to)) = d.touched.ends() {
                lowest = lowest.min(base + from);
                end = end.max(base + to + 1);
            }
        }
        Ok((Rows::Addresses(bases, lowest), end - lowest))
    }
    fn geometry(&self, fast: u64, count: u64) -> Result<Geometry, HitOnlyError> {
        // Watermarks count free slots, so slots beyond the last extent matter. Only absurd sizes are reduced, to save memory.
        let fast = fast.min(FAST_SLOTS_MAX.max(2 * count));
        if fast + count > u64::from(SLOTS_MAX) {
            return Err(HitOnlyError::Unfit(format!(
                "{count} extents of {} bytes are too many: choose a larger --extent",
                1u64 << self.setup.extent_shift
            )));
        }
        let member = |tier, slots: u64| Member {
            tier: TierId(tier),
            first_slot: 0,
            slots: slots as u32,
            data_offset: 0,
            stash: isotherm_core::geometry::Stash::default(),
        };
        let members = vec![member(0, fast), member(1, count)];
        Geometry::new(self.setup.extent_shift, BLOCK_SHIFT, count as u32, members)
            .map_err(|e| HitOnlyError::Unfit(e.to_owned()))
    }
}

impl Visitor for Run<'_> {
    type Out = Result<HitOnlyReport, HitOnlyError>;
    fn visit<P: Policy + 'static>(mut self, policy: P) -> Self::Out {
        if self.gathered.report.touched == 0 {
            let why = "no request reads or writes anything";
            return Err(HitOnlyError::Unfit(why.to_owned()));
        }
        let mut ranks = self.gathered.report.touched;
        if policy.minds_gaps() {
            ranks = 0;
            for d in &mut self.gathered.devices {
                d.touched.pad();
                ranks = d.touched.number(ranks);
            }
        }
        let (rows, count) = self.rows(ranks)?;
        let fast = (self.setup.fast_slots)(self.gathered.report.touched).max(1);
        let geo = self
            .geometry(fast, count)?
            .of_kind(policy.uses().volume())
            .map_err(|e| HitOnlyError::Unfit(e.to_owned()))?;
        let mut play = Play {
            engine: NullEngine::new(geo, policy),
            rows,
            count,
            outside: false,
            shift: self.setup.extent_shift,
            by_class: [ClassSums::default(); 64],
            digest: Digest::default(),
            ready: [const { Ready::NOTHING }; AHEAD],
            waiting: 0,
        };
        let g = &mut self.gathered;
        if let Some(kept) = &g.kept {
            kept.each(|time, spot, kind| play.add::<false>(&g.devices, time, spot, kind));
        }
        if let Some(mut reader) = self.again {
            let mut batch = Vec::with_capacity(BATCH);
            while next_batch(&mut reader, &mut batch, &mut g.report.reading)? {
                batch.retain(|r| matches!(r.op, Op::Read | Op::Write));
                for r in &batch {
                    let known = g.place.get(r.device as usize).filter(|p| **p != 0);
                    let Some(place) = known.map(|p| p - 1) else {
                        play.outside = true;
                        continue;
                    };
                    let touched = &mut g.devices[place as usize].touched;
                    let spot = touched.spot(span(r, play.shift).0);
                    play.outside |= !touched.holds(spot);
                    let kind = Kind::new(r, place, play.shift);
                    play.add::<true>(&g.devices, r.time, spot, &kind);
                }
            }
            let again = reader.stats().requests;
            if play.outside || again != g.report.requests {
                return Err(HitOnlyError::Unfit(changed(g.report.requests, again)));
            }
        }
        play.flush();
        let mut report = self.gathered.report;
        report.counters = play.engine.counters();
        report.bytes = play.engine.bytes();
        report.rows = count;
        report.fast_slots = fast;
        report.digest = play.digest;
        let classes = (0..64).zip(play.by_class);
        report.by_class = classes.filter(|(_, c)| c.requests > 0).collect();
        report.wall = self.begun.elapsed();
        Ok(report)
    }
}

struct Play<P> {
    engine: NullEngine<P>,
    rows: Rows,
    /// The number of rows.
    count: u64,
    /// Whether a request touched what the first pass did not see.
    outside: bool,
    shift: u32,
    by_class: [ClassSums; 64],
    digest: Digest,
    ready: [Ready; AHEAD],
    waiting: usize,
}

impl<P: Policy> Play<P> {
    /// Adds a request, which is played soon. Looking up and reading the rows of a group involves no decisions, so the processor can overlap
    /// all of these loads. `AGAIN`: the request is from a second pass, which may differ from the first one.
    #[inline]
    fn add<const AGAIN: bool>(&mut self, devices: &[Device], time: Nanos, spot: Spot, kind: &Kind) {
        let touched = &devices[kind.device as usize].touched;
        let first = match &self.rows {
            Rows::Ranks => touched.rank(spot),
            Rows::Addresses(bases, lowest) => {
                bases[kind.device as usize] + touched.extent(spot) - lowest
            }
        };
        if AGAIN {
            let more = (u64::from(kind.inside) + u64::from(kind.len) - 1) >> self.shift;
            if first + more >= self.count {
                self.outside = true;
                return;
            }
        }
        self.ready[self.waiting] = Ready {
            time,
            first: first as u32,
            len: kind.len,
            inside: kind.inside,
            class: kind.class,
            write: kind.write,
        };
        self.waiting += 1;
        if self.waiting == AHEAD {
            self.flush();
        }
    }
    fn flush(&mut self) {
        let mut seen = 0;
        for r in &self.ready[..self.waiting] {
            seen ^= self.engine.peek(ExtentId(r.first));
        }
        black_box(seen);
        for i in 0..self.waiting {
            let r = self.ready[i];
            self.request(&r);
        }
        self.waiting = 0;
    }
    #[inline]
    fn request(&mut self, r: &Ready) {
        let inside = u64::from(r.inside);
        let more = (inside + u64::from(r.len) - 1) >> self.shift;
        let request = ((u64::from(r.first) << self.shift) + inside, r.len);
        let sums = &mut self.by_class[usize::from(r.class & 63)];
        sums.requests += 1;
        sums.bytes += u64::from(r.len);
        // Neighbours in the trace are neighbours in the rows, so a request stays in one piece.
        for row in r.first..=r.first + more as u32 {
            let e = ExtentId(row);
            let hit = self.engine.access(r.time, e, r.write, r.class, request);
            sums.accesses += 1;
            sums.hits += u64::from(hit);
            self.digest.mix(u64::from(row) << 1 | u64::from(hit));
        }
    }
}
