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
//! Times with a point are milliseconds, as in DiskSim's manual. Whole numbers are nanoseconds if every one is a
//! multiple of 1 000 (a clock of microseconds), or if hardly any two requests are less than 1 000 apart: in bursts real
//! requests follow each other within a millisecond (9 to 97 % of the gaps of the traces that were looked at), never
//! within a microsecond (below 0.1 %). Else they are microseconds.

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
    if aligned && odd_sizes * 4 > rows.len() && follows(8) >= follows(1) {
        return Some((
            Format::DiskSimPages,
            "every lba is a multiple of 8 and sizes are not: sizes count pages of 4 KiB",
        ));
    }
    None
}

/// Looks at the times in `input` for their unit, and says why.
pub(crate) fn find_unit(mut input: Input) -> Result<(TimeUnit, &'static str), TraceError> {
    let (mut last, mut odd) = (None, false);
    let (mut gaps, mut short, mut none) = (0usize, 0usize, 0usize);
    while gaps + none < LOOK
        && let Some(line) = input.line()?
    {
        let (time, _) = word(line);
        if time.contains(&b'.') && parse_ns(time, 1).is_some() {
            let why = "times have a decimal point, as in DiskSim's manual";
            return Ok((TimeUnit::Milliseconds, why));
        }
        let Some(t) = parse_u64(time) else {
            continue;
        };
        odd |= t % 1_000 != 0;
        if let Some(last) = last.replace(t) {
            match t.saturating_sub(last) {
                0 => none += 1,
                1..1_000 => (gaps, short) = (gaps + 1, short + 1),
                _ => gaps += 1,
            }
        }
    }
    Ok(if !odd {
        (TimeUnit::Nanoseconds, "every time is a multiple of 1 000")
    } else if gaps >= FEW && short * 100 < gaps && none * 20 < gaps {
        let why = "hardly any two requests are less than 1 000 units apart";
        (TimeUnit::Nanoseconds, why)
    } else {
        (TimeUnit::Microseconds, "as in most such traces")
    })
}
