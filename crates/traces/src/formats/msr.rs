//! MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! Time and response in 100 ns units (time since 1601), offset and size in bytes. Host and disk together are a device.

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::Bad;
use crate::field::{Fields, blank, length, read_or_write, request, scaled};
use crate::record::Record;

/// The Windows clock counts in units of this length.
const TICK_NS: u64 = 100;

/// The parser.
#[derive(Default)]
pub(crate) struct Msr;

impl LineParser for Msr {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if blank(line) || line.starts_with(b"Timestamp,") {
            return Ok(Item::Nothing);
        }
        let mut fields = Fields::new(line, b',');
        let time = scaled(fields.number("Timestamp in 100 ns")?, TICK_NS)?;
        let host = fields.field("Hostname")?;
        let disk = fields.field("DiskNumber")?;
        crate::field::number(disk, "DiskNumber")?;
        let op = read_or_write(fields.field("Type")?, "Type")?;
        let offset = fields.number("Offset in bytes")?;
        let size = fields.number("Size in bytes")?;
        let response = scaled(fields.number("ResponseTime in 100 ns")?, TICK_NS)?;
        // Host and disk are neighbours in the line, so one slice of the line is the name and nothing is copied.
        let name = &line[span(line, host).start..span(line, disk).end];
        let r = request(time, op, offset, length(size, 1)?)?;
        Ok(Item::Request(Record {
            device: devices.name(name)?,
            latency_ns: Some(response),
            ..r
        }))
    }
}

/// The position of `part`, a slice of `line`, within `line`.
fn span(line: &[u8], part: &[u8]) -> std::ops::Range<usize> {
    let start = part.as_ptr() as usize - line.as_ptr() as usize;
    start..start + part.len()
}
