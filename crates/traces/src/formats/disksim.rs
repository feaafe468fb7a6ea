//! DiskSim and SSDsim ASCII: `time device lba size op`.
//!
//! lba and size in 512 B sectors, op 1 read, 0 write. The unit of time is not in the file: whole numbers are nanoseconds
//! if every one is a multiple of 1 000, else microseconds; numbers with a point are milliseconds, as in DiskSim's manual.
//! The first needs a look through the trace, which ends at the first number that decides.

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::{Bad, TraceError};
use crate::field::{SECTOR, Words, blank, length, offset, parse_ns, parse_u64, request, word};
use crate::input::Input;
use crate::reader::TimeUnit;
use crate::record::{Op, Record};

/// The parser.
pub(crate) struct DiskSim {
    pub(crate) unit: TimeUnit,
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
        let size = words.number("size in sectors")?;
        let op = match words.field("op")? {
            b"1" => Op::Read,
            b"0" => Op::Write,
            other => return Err(Bad::text("op 1 (read) or 0 (write)", other)),
        };
        if let Some(more) = words.next() {
            return Err(Bad::text("the end of the line after op", more));
        }
        let r = request(time, op, offset(lba, SECTOR)?, length(size, SECTOR)?)?;
        Ok(Item::Request(Record {
            device: devices.number(device)?,
            ..r
        }))
    }
}

/// Looks through `input` until the unit is clear.
pub(crate) fn find_unit(mut input: Input) -> Result<TimeUnit, TraceError> {
    while let Some(line) = input.line()? {
        let (time, _) = word(line);
        if parse_u64(time).is_some_and(|t| t % 1_000 != 0) {
            return Ok(TimeUnit::Microseconds);
        }
        if time.contains(&b'.') && parse_ns(time, 1).is_some() {
            return Ok(TimeUnit::Milliseconds);
        }
    }
    Ok(TimeUnit::Nanoseconds)
}
