//! Five columns, `time device lba size op`: DiskSim and SSDsim ASCII, and two relatives that look the same.
//!
//! op is 1 for a read, 0 for a write. What the numbers count is not in the file, so it is weighed:
//!
//! | format | lba | size |
//! |---|---|---|
//! | `disksim` | 512 B sectors | 512 B sectors |
//! | `replay` | bytes | bytes |
//! | `disksim-pages` | 512 B sectors | 4 KiB pages |
//!
//! Where every lba and every size is a multiple of 512, they count bytes: in sectors all requests would be multiples of
//! 256 KiB at multiples of 256 KiB. Where every lba is a multiple of 8 and sizes are not, or requests follow each other
//! only if sizes are pages, sizes are pages.
//!
//! Times with a point are milliseconds, as in DiskSim's manual, or seconds if milliseconds would make more than 20 000
//! requests a second. Whole numbers are nanoseconds if every one is a
//! multiple of 1 000 (a clock of microseconds), or if hardly any two requests are less than 1 000 apart: in bursts real
//! requests follow each other within a millisecond (9 to 97 % of the gaps of the traces that were looked at), never
//! within a microsecond (below 0.1 %); unless that would make more than 20 000 a second. Else they are microseconds.

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::{Bad, TraceError};
use crate::field::{SECTOR, Words, blank, length, offset, parse_ns, parse_u64, request, word};
use crate::format::Format;
use crate::input::Input;
use crate::reader::TimeUnit;
use crate::record::{Op, Record};

/// Bytes of a page where sizes count pages.
const PAGE: u64 = 4096;
/// Requests below which the numbers say nothing.
const FEW: usize = 16;
/// Requests whose times are looked at.
const LOOK: usize = 20_000;

/// What a number counts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    lba: u64,
    size: u64,
}

impl Counts {
    /// As `format` has it.
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
        if blank(line) {
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

/// Which of the three formats the first lines speak, and why. `None` where too little tells.
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
    // How often a request begins where the one before it on the same device ends.
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
    // Some small writes of sectors at the begin of pages are no pages; where most sizes are no multiple of 8, or requests follow each
    // other only if sizes are pages, they are.
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

/// Requests a second above which a unit is not believed if the next larger one is as good: some hundred times what a disk serves.
const RATE_DOUBTED: f64 = 20_000.0;

/// What the first times of a trace look like.
#[derive(Default)]
struct Times {
    read: usize,
    points: bool,
    /// Some is no multiple of 1 000.
    odd: bool,
    gaps: usize,
    /// Gaps of less than 1 000 units, and of none.
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

    /// More requests a second than are believed, if times count this.
    fn too_many(&self, unit: TimeUnit) -> bool {
        let seconds = (self.most - self.least) * unit.ns() as f64 / 1e9;
        self.read >= FEW && self.read as f64 > RATE_DOUBTED * seconds
    }
}

/// Looks at the times in `input` for their unit, and says why.
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
