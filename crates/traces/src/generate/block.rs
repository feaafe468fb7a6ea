//! Block-level workloads: uniform, Zipf, and stand-ins for two traces that GreenDM replays.
//!
//! Calibrated on GreenDM Table 6.3: totals of reads and writes, exactly; mean sizes; the size of the volume.
//!
//! | | volume | reads | mean | writes | mean |
//! |---|---|---|---|---|---|
//! | web search | 32 GB | 1 055 236 | 16 KB | 212 | 8 KB |
//! | FIU online | 8 GB | 655 526 | 8 KB | 4 211 786 | 4 KB |
//!
//! Also calibrated:
//! - Web search: the concentration of requests on 1 MiB regions, from the 40 s of the trace that are available (16 769 requests). They
//!   touch 3 654 such regions; the 10, 100, 500, 1000, 2000 busiest regions take 3, 16, 46, 64, 85 % of the requests, and hardly a page is
//!   read twice. Zipf-Mandelbrot over 32 768 regions with s = 3, q = 1500 gives 4 194 regions and 2, 13, 46, 67, 85 %.
//! - FIU online: in GreenDM 6.2.4 a hybrid that migrates data wears its flash only 11 to 19 % more than a hybrid whose flash is simply the
//!   first quarter of the volume, and in 9.1.2 half as much flash costs the latter 8 % of its flash accesses. So most requests go to the
//!   beginning of the volume: `front`. The Zipf exponent over regions is chosen such that extents of 4 KiB wear the flash 11 % more, as the
//!   paper reports.
//!
//! Assumed, because no source states it: the sizes behind the means, the arrivals (exponential gaps over the duration), and a share of
//! sequential writes in FIU online (logs of a course server).

use isotherm_core::Nanos;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};

use super::dist::{Scatter, Sizes, Zipf};
use super::param::{Param, Values};
use super::run::{Requests, Rng};
use crate::layout::LayoutError;
use crate::record::{Op, Record};

const SPAN: Param = Param::bytes(
    "span",
    1 << 30,
    (4096, 1 << 44),
    "addresses touched (GreenDM 6.1.3: 256 MB + 768 MB)",
);
const REQUESTS: Param = Param::count("requests", 1_000_000, (0, 1 << 50), "requests");
const SIZE: Param = Param::bytes("size", 4096, (512, 16 << 20), "bytes of a request");
const READS: Param = Param::real("reads", 1.0, (0.0, 1.0), "share of reads");
const GAP: Param = Param::seconds(
    "gap",
    0.001,
    (0.0, 1e6),
    "seconds from request to request (GreenDM 6.1.3 runs for 20 minutes)",
);

/// Requests at uniformly random places of a span.
pub(super) const UNIFORM: &[Param] = &[SPAN, REQUESTS, SIZE, READS, GAP];

/// Zipf over blocks.
pub(super) const ZIPF: &[Param] = &[
    SPAN.or(17_179_869_184.0),
    REQUESTS.or(10_000_000.0),
    SIZE,
    READS.or(0.7),
    Param::real("exponent", 0.9, (0.0, 5.0), "Zipf exponent"),
    GAP.or(0.0001),
];

/// A probability as a threshold for a random number of 32 bits.
fn threshold(share: f64) -> u64 {
    (share * 4_294_967_296.0) as u64
}

/// Uniform or Zipf requests of one size.
pub(super) struct Blocks {
    rng: Rng,
    left: u64,
    zipf: Option<Zipf>,
    scatter: Scatter,
    places: u64,
    size: u32,
    reads: u64,
    gap: u64,
    now: u64,
}

impl Blocks {
    pub fn new(v: &Values) -> Result<Blocks, LayoutError> {
        let size = v.count("size") / 512 * 512;
        let blocks = (v.scaled("span", 1) / size).max(1);
        let exponent = v.has("exponent").then(|| v.real("exponent"));
        if blocks > 1 << 32 {
            return Err(LayoutError::Config(
                "span (at most 2^32 requests of `size`)",
            ));
        }
        Ok(Blocks {
            rng: Rng::seed_from_u64(v.seed),
            left: v.scaled("requests", 0),
            zipf: exponent.map(|s| Zipf::new(blocks, s)),
            scatter: Scatter::new(blocks),
            places: blocks,
            size: size as u32,
            reads: threshold(v.real("reads")),
            gap: (v.real("gap") * 1e9) as u64,
            now: 0,
        })
    }
}

impl Requests for Blocks {
    fn left(&self) -> u64 {
        self.left
    }

    fn next(&mut self) -> Record {
        let block = match &self.zipf {
            Some(zipf) => self.scatter.place(zipf.rank(&mut self.rng)),
            None => self.rng.random_range(0..self.places),
        };
        let read = u64::from(self.rng.random::<u32>()) < self.reads;
        let op = if read { Op::Read } else { Op::Write };
        let r = Record::new(Nanos(self.now), op, block * u64::from(self.size), self.size);
        self.now = self.now.saturating_add(self.gap);
        self.left -= 1;
        r
    }
}

/// GreenDM's web search.
pub(super) const WEB_SEARCH: &[Param] = &[
    Param::bytes(
        "span",
        32 << 30,
        (1 << 20, 1 << 44),
        "volume (GreenDM Table 6.3)",
    ),
    Param::count(
        "reads",
        1_055_236,
        (0, 1 << 40),
        "reads (GreenDM Table 6.3)",
    ),
    Param::count("writes", 212, (0, 1 << 40), "writes (GreenDM Table 6.3)"),
    Param::real(
        "exponent",
        3.0,
        (0.0, 5.0),
        "Zipf exponent of the choice of a region (see the module)",
    ),
    Param::bytes(
        "region",
        1 << 20,
        (4096, 1 << 30),
        "bytes of a region, in which places are uniform (see the module)",
    ),
    Param::real(
        "flat",
        1500.0,
        (0.0, 1e9),
        "about so many of the first ranks are nearly alike: q of Zipf-Mandelbrot, times scale (see the module)",
    ),
    Param::real(
        "front",
        0.0,
        (0.0, 1.0),
        "share of requests to the volume's first eighth, beside its part of the rest (GreenDM 6.2.4, 9.1.2)",
    ),
    Param::real(
        "sequential",
        0.0,
        (0.0, 1.0),
        "share of writes that follow the one before (assumed)",
    ),
    Param::seconds(
        "duration",
        11_400.0,
        (0.0, 1e9),
        "seconds from first to last request (assumed)",
    ),
];

/// GreenDM's FIU online.
pub(super) const FIU_ONLINE: &[Param] = &[
    WEB_SEARCH[0].or(8_589_934_592.0),
    WEB_SEARCH[1].or(655_526.0),
    WEB_SEARCH[2].or(4_211_786.0),
    Param {
        what: "Zipf exponent of the choice of a region (see the module)",
        ..WEB_SEARCH[3].or(1.4)
    },
    Param {
        what: "bytes of a region, in which places are uniform (assumed)",
        ..WEB_SEARCH[4].or(65_536.0)
    },
    WEB_SEARCH[5].or(0.0),
    WEB_SEARCH[6].or(0.8),
    WEB_SEARCH[7].or(0.3),
    WEB_SEARCH[8].or(604_800.0),
];

/// Sizes of web search's reads. Their mean is the 16 KB of the table.
pub(super) const SEARCH_READS: &[(u64, f64)] = &[
    (8 << 10, 0.55),
    (16 << 10, 0.15),
    (24 << 10, 0.05),
    (32 << 10, 0.25),
];
/// Sizes of web search's writes: 8 KB.
pub(super) const SEARCH_WRITES: &[(u64, f64)] = &[(8 << 10, 1.0)];
/// Sizes of FIU online's reads. Their mean is the 8 KB of the table.
pub(super) const ONLINE_READS: &[(u64, f64)] = &[(4 << 10, 0.5), (8 << 10, 0.25), (16 << 10, 0.25)];
/// Sizes of FIU online's writes: 4 KB, the block size of the traced system.
pub(super) const ONLINE_WRITES: &[(u64, f64)] = &[(4 << 10, 1.0)];

/// Regions with different popularity, at scattered places of the volume.
struct Regions {
    zipf: Zipf,
    scatter: Scatter,
}

impl Regions {
    fn new(v: &Values, regions: u64) -> Regions {
        Regions {
            zipf: Zipf::flattened(regions, v.real("exponent"), v.real("flat") * v.scale),
            scatter: Scatter::new(regions),
        }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        self.scatter.place(self.zipf.rank(rng))
    }
}

/// A stand-in for a trace of which only totals are known.
pub(super) struct Totals {
    rng: Rng,
    reads: u64,
    writes: u64,
    read_sizes: Sizes,
    write_sizes: Sizes,
    whole: Regions,
    front: Option<(u64, Regions)>,
    region: u64,
    span: u64,
    sequential: f64,
    write_end: u64,
    mean_gap: f64,
    now: f64,
}

impl Totals {
    pub fn new(v: &Values, read_sizes: &[(u64, f64)], write_sizes: &[(u64, f64)]) -> Totals {
        let region = v.count("region") / 4096 * 4096;
        let regions = (v.scaled("span", 1 << 20) / region).max(1);
        let (reads, writes) = (v.scaled("reads", 0), v.scaled("writes", 0));
        Totals {
            rng: Rng::seed_from_u64(v.seed),
            read_sizes: Sizes::new(read_sizes),
            write_sizes: Sizes::new(write_sizes),
            whole: Regions::new(v, regions),
            front: (v.real("front") > 0.0).then(|| {
                (
                    threshold(v.real("front")),
                    Regions::new(v, (regions / 8).max(1)),
                )
            }),
            region,
            span: regions * region,
            sequential: v.real("sequential"),
            write_end: 0,
            mean_gap: v.real("duration") * v.scale * 1e9 / (reads + writes).max(1) as f64,
            now: 0.0,
            reads,
            writes,
        }
    }
}

impl Requests for Totals {
    fn left(&self) -> u64 {
        self.reads + self.writes
    }

    fn next(&mut self) -> Record {
        // Drawn without replacement, so that the totals are exact.
        let read = self.rng.random_range(0..self.left()) < self.reads;
        let (op, sizes, left) = if read {
            (Op::Read, &self.read_sizes, &mut self.reads)
        } else {
            (Op::Write, &self.write_sizes, &mut self.writes)
        };
        *left -= 1;
        let len = sizes.draw(&mut self.rng);
        let offset = if !read
            && self.write_end + len <= self.span
            && self.rng.random::<f64>() < self.sequential
        {
            self.write_end
        } else {
            let regions = match &self.front {
                Some((share, front)) if u64::from(self.rng.random::<u32>()) < *share => front,
                _ => &self.whole,
            };
            let region = regions.draw(&mut self.rng) * self.region;
            let inside = self.rng.random_range(0..self.region / 4096) * 4096;
            (region + inside).min(self.span.saturating_sub(len))
        };
        if !read {
            self.write_end = offset + len;
        }
        let r = Record::new(Nanos(self.now as u64), op, offset, len as u32);
        let gap: f64 = Exp1.sample(&mut self.rng);
        self.now += gap * self.mean_gap;
        r
    }
}
