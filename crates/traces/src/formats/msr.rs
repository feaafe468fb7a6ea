//! MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! Time and response in 100 ns units (time since 1601), offset and size in bytes. Host and disk together are a device. Copies of these
//! traces often lack the last column; then no line has it.

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::Bad;
use crate::field::{Fields, length, no_record, number, read_or_write, request, scaled};
use crate::record::Record;

/// The Windows clock counts in units of this length.
const TICK_NS: u64 = 100;

/// The parser.
#[derive(Default)]
pub(crate) struct Msr {
    /// Whether lines have a response time; known from the first record.
    response: Option<bool>,
}

/// The first name in the line of column names.
const FIRST: &[u8] = b"Timestamp,";

impl LineParser for Msr {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) || is_names(line) {
            return Ok(Item::Nothing);
        }
        let mut fields = Fields::new(line, b',');
        let time = scaled(fields.number("Timestamp in 100 ns")?, TICK_NS)?;
        let host = fields.field("Hostname")?;
        let disk = fields.field("DiskNumber")?;
        number(disk, "DiskNumber")?;
        let op = read_or_write(fields.field("Type")?, "Type")?;
        let offset = fields.number("Offset in bytes")?;
        let size = fields.number("Size in bytes")?;
        let response = match fields.next() {
            None if self.response != Some(true) => None,
            text => Some(
                text.ok_or_else(|| Bad::value("ResponseTime in 100 ns", "the end of the line"))?,
            ),
        };
        if self.response == Some(false) && response.is_some() {
            let what = "the end of the line after Size, as in the first line";
            return Err(Bad::text(what, line));
        }
        let latency_ns = response
            .map(|text| scaled(number(text, "ResponseTime in 100 ns")?, TICK_NS))
            .transpose()?;
        // Host and disk are neighbours in the line, so one slice of the line is the name and nothing is copied.
        let name = &line[span(line, host).start..span(line, disk).end];
        let r = request(time, op, offset, length(size, 1)?)?;
        self.response = Some(response.is_some());
        Ok(Item::Request(Record {
            device: devices.name(name)?,
            latency_ns,
            ..r
        }))
    }
}

/// Whether `line` is the line of column names, in whichever case.
fn is_names(line: &[u8]) -> bool {
    line.get(..FIRST.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(FIRST))
}

/// The position of `part`, a slice of `line`, within `line`.
fn span(line: &[u8], part: &[u8]) -> std::ops::Range<usize> {
    let start = part.as_ptr() as usize - line.as_ptr() as usize;
    start..start + part.len()
}
