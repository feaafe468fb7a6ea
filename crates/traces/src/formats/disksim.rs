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
//! The units of lba and size show in which request follows which, and in their divisors (`units.rs`); the unit of time in the gaps between
//! requests (`time_unit.rs`).

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::{Bad, TraceError};
use crate::field::{Words, length, no_record, offset, parse_ns, parse_u64, request, word};
use crate::format::Format;
use crate::input::Input;
use crate::record::{Op, Record};
use crate::time_unit::{FEW, Found, LOOK, TimeUnit, Times};
use crate::units::{Row, Units, name, weigh};

/// The units of each of the formats.
const UNITS: [(Format, Units); 3] = [
    (Format::DiskSim, Units::SECTORS),
    (Format::Replay, Units::BYTES),
    (Format::DiskSimPages, Units::PAGES),
];

/// The units of `format`.
pub(crate) fn units(format: Format) -> Units {
    let row = UNITS.iter().find(|(f, _)| *f == format);
    row.map_or(Units::SECTORS, |(_, units)| *units)
}

/// The parser.
pub(crate) struct DiskSim {
    pub(crate) unit: TimeUnit,
    pub(crate) units: Units,
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
            offset(lba, self.units.at)?,
            length(size, self.units.size)?,
        )?;
        Ok(Item::Request(Record {
            device: devices.number(device)?,
            ..r
        }))
    }
}

/// What the first lines show of the units.
pub(crate) enum Weighed {
    /// The lines fit this format, for this reason.
    Shown(Format, String),
    /// They show nothing, or units that none of the formats has: a doubt, in a sentence.
    Open(String),
}

/// Infers from the first lines which of the three formats a file has. `None` if there are too few.
pub(crate) fn examine(head: &[u8]) -> Option<Weighed> {
    let row = |line: &[u8]| {
        let mut words = Words(line);
        words.next()?;
        let device = parse_u64(words.next()?)?;
        Some(Row {
            device,
            at: parse_u64(words.next()?)?,
            size: parse_u64(words.next()?)?,
        })
    };
    let rows: Vec<Row> = head.split(|&c| c == b'\n').filter_map(row).collect();
    if rows.len() < FEW {
        return None;
    }
    let Some((units, why)) = weigh(&rows, None) else {
        return Some(Weighed::Open(
            "Nothing shows whether lba and size count sectors, as is assumed, or bytes or pages: name the format (--format disksim, replay or disksim-pages)."
                .to_owned(),
        ));
    };
    let counts = format!(
        "{why}: addresses count {}, sizes {}",
        name(units.at),
        name(units.size)
    );
    Some(match UNITS.iter().find(|(_, of)| *of == units) {
        Some(&(format, _)) => Weighed::Shown(format, counts),
        None => Weighed::Open(format!(
            "{counts}, which no format with these columns has: name them (--columns)."
        )),
    })
}

/// Infers the unit of the times in `input`, and says why.
pub(crate) fn find_unit(mut input: Input) -> Result<Found, TraceError> {
    let mut times = Times::default();
    while times.read < LOOK
        && let Some(line) = input.line()?
    {
        times.add(word(line).0);
    }
    Ok(times.infer(TimeUnit::Milliseconds))
}
