//! Five columns, `time device lba size op`: DiskSim and SSDsim ASCII, and two relatives that look the same.
//!
//! `op` is 1 for a read and 0 for a write. The file does not state the units of the other numbers, so they are inferred:
//!
//! | format | lba | size |
//! |---|---|---|
//! | `disksim` | 512 B sectors | 512 B sectors |
//! | `replay` | bytes | bytes |
//! | `disksim-pages` | 512 B sectors | 4 KiB pages |
//!
//! If every lba and every size is a multiple of 512, they count bytes: as sectors, all requests would be multiples of 256 KiB at multiples
//! of 256 KiB. If every lba is a multiple of 8 and most sizes are not, or if requests are consecutive only when sizes count pages, then
//! sizes count pages.
//!
//! Times with a decimal point are milliseconds, as in DiskSim's manual, or seconds if milliseconds would mean more than 20 000 requests per
//! second. Whole numbers are nanoseconds if each of them is a multiple of 1 000 (a microsecond clock), or if hardly any two requests are
//! less than 1 000 apart, unless either would mean more than 20 000 requests per second. Otherwise they are microseconds. The second rule
//! holds because real requests come in bursts: in the traces that were examined, 9 to 97 % of the gaps are below a millisecond and fewer
//! than 0.1 % are below a microsecond.

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::{Bad, TraceError};
use crate::field::{SECTOR, Words, length, no_record, offset, parse_ns, parse_u64, request, word};
use crate::format::Format;
use crate::input::Input;
use crate::record::{Op, Record};
use crate::time_unit::TimeUnit;

/// Bytes of a page where sizes count pages.
const PAGE: u64 = 4096;
/// With fewer requests than this, the numbers are not conclusive.
const FEW: usize = 16;
/// The number of requests whose times are examined.
const LOOK: usize = 20_000;

/// The unit of a number, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    lba: u64,
    size: u64,
}

impl Counts {
    /// The units of `format`.
    pub(crate) fn of(format: Format) -> Counts {
        match format {
            Format::Replay => Counts { lba: 1, size: 1 },
            Format::DiskSimPages => Counts {
                lba: SECTOR,
                size: PAGE,
            },
            _ => Counts {
                lba: SECTOR,
                size: SECTOR,
            },
        }
    }
}

/// The parser.
pub(crate) struct DiskSim {
    pub(crate) unit: TimeUnit,
    pub(crate) counts: Counts,
}

impl LineParser for DiskSim {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) {
            return Ok(Item::Nothing);
        }
        let mut words = Words(line);
        let time = words.field("time")?;
        let time =
            parse_ns(time, self.unit.ns()).ok_or_else(|| Bad::text("time (a number)", time))?;
        let device = words.number("device")?;
        let lba = words.number("lba")?;
        let size = words.number("size")?;
        let op = match words.field("op")? {
            b"1" => Op::Read,
            b"0" => Op::Write,
            other => return Err(Bad::text("op 1 (read) or 0 (write)", other)),
        };
        if let Some(more) = words.next() {
            return Err(Bad::text("the end of the line after op", more));
        }
        let r = request(
            time,
            op,
            offset(lba, self.counts.lba)?,
            length(size, self.counts.size)?,
        )?;
        Ok(Item::Request(Record {
            device: devices.number(device)?,
            ..r
        }))
    }
}

/// Infers from the first lines which of the three formats a file has, and says why. `None` if there is too little to decide.
pub(crate) fn weigh(head: &[u8]) -> Option<(Format, &'static str)> {
    let columns = |line: &[u8]| {
        let mut words = Words(line);
        words.next()?;
        let device = parse_u64(words.next()?)?;
        Some((device, parse_u64(words.next()?)?, parse_u64(words.next()?)?))
    };
    let rows: Vec<(u64, u64, u64)> = head.split(|&c| c == b'\n').filter_map(columns).collect();
    if rows.len() < FEW {
        return None;
    }
    let multiples = |of: u64, n: fn(&(u64, u64, u64)) -> u64| {
        rows.iter().filter(|row| n(row).is_multiple_of(of)).count()
    };
    if multiples(SECTOR, |r| r.1) == rows.len() && multiples(SECTOR, |r| r.2) == rows.len() {
        return Some((
            Format::Replay,
            "every lba and size is a multiple of 512: they count bytes",
        ));
    }
    // The number of requests that begin where the previous request on the same device ended.
    let follows = |per_size: u64| {
        let pairs = rows.iter().zip(&rows[1..]);
        pairs
            .filter(|(a, b)| {
                a.0 == b.0 && a.2 > 0 && a.1.saturating_add(a.2.saturating_mul(per_size)) == b.1
            })
            .count()
    };
    let aligned = multiples(8, |r| r.1) == rows.len();
    let odd_sizes = rows.len() - multiples(8, |r| r.2);
    // A few small writes in sectors at the beginning of a page are no proof of page units. Proof is that most sizes are not a multiple of
    // 8, or that more requests are consecutive if sizes count pages.
    let (as_pages, as_sectors) = (follows(8), follows(1));
    let most = odd_sizes * 2 > rows.len() && as_pages >= as_sectors;
    if aligned && (most || odd_sizes * 4 > rows.len() && as_pages > as_sectors) {
        return Some((
            Format::DiskSimPages,
            "every lba is a multiple of 8 and sizes are not: sizes count pages of 4 KiB",
        ));
    }
    None
}

/// A unit that implies more requests per second than this is rejected if the next larger unit fits as well. It is some hundred times what a
/// disk serves.
const RATE_DOUBTED: f64 = 20_000.0;

/// Statistics of the first times of a trace.
#[derive(Default)]
struct Times {
    read: usize,
    points: bool,
    /// At least one time is not a multiple of 1 000.
    odd: bool,
    gaps: usize,
    /// The number of gaps below 1 000 units, and of gaps of zero.
    short: usize,
    none: usize,
    least: f64,
    most: f64,
}

impl Times {
    fn look(mut input: Input) -> Result<Times, TraceError> {
        let (mut t, mut last) = (Times::default(), None);
        while t.read < LOOK
            && let Some(line) = input.line()?
        {
            let (time, _) = word(line);
            let text = std::str::from_utf8(time).unwrap_or_default();
            let (Some(_), Ok(value)) = (parse_ns(time, 1), text.parse::<f64>()) else {
                continue;
            };
            t.points |= time.contains(&b'.');
            t.least = if t.read == 0 {
                value
            } else {
                t.least.min(value)
            };
            t.most = t.most.max(value);
            t.read += 1;
            let Some(whole) = parse_u64(time) else {
                continue;
            };
            t.odd |= whole % 1_000 != 0;
            if let Some(last) = last.replace(whole) {
                match whole.saturating_sub(last) {
                    0 => t.none += 1,
                    1..1_000 => (t.gaps, t.short) = (t.gaps + 1, t.short + 1),
                    _ => t.gaps += 1,
                }
            }
        }
        Ok(t)
    }

    /// Whether times in this unit mean an implausible number of requests per second.
    fn too_many(&self, unit: TimeUnit) -> bool {
        let seconds = (self.most - self.least) * unit.ns() as f64 / 1e9;
        self.read >= FEW && self.read as f64 > RATE_DOUBTED * seconds
    }
}

/// Infers the unit of the times in `input`, and says why.
pub(crate) fn find_unit(input: Input) -> Result<(TimeUnit, &'static str), TraceError> {
    let t = Times::look(input)?;
    Ok(if t.points {
        if t.too_many(TimeUnit::Milliseconds) && !t.too_many(TimeUnit::Seconds) {
            let why = "times have a decimal point, and as milliseconds there would be more than 20 000 requests a second";
            (TimeUnit::Seconds, why)
        } else {
            let why = "times have a decimal point, as in DiskSim's manual";
            (TimeUnit::Milliseconds, why)
        }
    } else if !t.odd {
        (TimeUnit::Nanoseconds, "every time is a multiple of 1 000")
    } else if t.gaps >= FEW
        && t.short * 100 < t.gaps
        && t.none * 20 < t.gaps
        && !t.too_many(TimeUnit::Nanoseconds)
    {
        let why = "hardly any two requests are less than 1 000 units apart";
        (TimeUnit::Nanoseconds, why)
    } else {
        (TimeUnit::Microseconds, "as in most such traces")
    })
}
