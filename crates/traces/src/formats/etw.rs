//! Disk events of Windows' event tracing as text, as in the traces of Microsoft's production servers (SNIA IOTTA 158; Kavalanekar and others,
//! IISWC 2008): `DiskRead, TimeStamp, Process Name ( PID), ThreadID, IrpPtr, ByteOffset, IOSize, ElapsedTime, DiskNum, …`.
//!
//! Times are in microseconds, offset and size in bytes, hexadecimal with `0x`. An event is logged when the request completes (its start is an
//! event of its own, `DiskReadInit`), so the request arrived `ElapsedTime` earlier. Lines before `EndHeader` say which columns each event has.

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::Bad;
use crate::field::{Fields, hex, length, no_record, number, request, scaled};
use crate::record::{Op, Record};

/// A microsecond in nanoseconds.
const US: u64 = 1_000;

/// The parser.
#[derive(Default)]
pub(crate) struct Etw {
    in_header: bool,
}

impl LineParser for Etw {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) {
            return Ok(Item::Nothing);
        }
        let mut fields = Fields::new(line, b',');
        let op = match fields.field("the name of an event")? {
            b"BeginHeader" => {
                self.in_header = true;
                return Ok(Item::Nothing);
            }
            b"EndHeader" => {
                self.in_header = false;
                return Ok(Item::Nothing);
            }
            _ if self.in_header => return Ok(Item::Nothing),
            b"DiskRead" => Op::Read,
            b"DiskWrite" => Op::Write,
            b"DiskFlush" => Op::Flush,
            _ => return Ok(Item::Other),
        };
        let done = fields.number("TimeStamp in microseconds")?;
        for skipped in ["Process Name", "ThreadID", "IrpPtr"] {
            fields.field(skipped)?;
        }
        let (offset, len) = if op == Op::Flush {
            (0, 0)
        } else {
            let offset = either(fields.field("ByteOffset")?, "ByteOffset")?;
            (
                offset,
                length(either(fields.field("IOSize")?, "IOSize")?, 1)?,
            )
        };
        let elapsed = fields.number("ElapsedTime in microseconds")?;
        let device = devices.number(fields.number("DiskNum")?)?;
        let start = scaled(done.saturating_sub(elapsed), US)?;
        Ok(Item::Request(Record {
            device,
            latency_ns: Some(scaled(elapsed, US)?),
            ..request(start, op, offset, len)?
        }))
    }
}

/// A hexadecimal number with `0x`, or a decimal one.
fn either(text: &[u8], expected: &str) -> Result<u64, Bad> {
    match hex(text) {
        Some(n) => Ok(n),
        None if text.starts_with(b"0x") => Err(Bad::text(
            format!("{expected} (hexadecimal, with 0x)"),
            text,
        )),
        None => number(text, expected),
    }
}
