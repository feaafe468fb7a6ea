//! blkparse's text: `maj,min cpu seq seconds pid action RWBS [sector + sectors] [process]`.
//!
//! As in the binary form, a request is its Q event, or its D event in a trace without any Q. The summary at the end is
//! not read.

use super::blktrace::Event;
use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::{Bad, TraceError};
use crate::field::{
    SECTOR, Words, blank, length, number, offset, parse_u64, request, rwbs, seconds,
};
use crate::input::Input;
use crate::record::{Op, Record};

/// The parser.
pub(crate) struct Blkparse {
    pub(crate) event: Event,
}

impl LineParser for Blkparse {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if blank(line) {
            return Ok(Item::Nothing);
        }
        if [&b"CPU"[..], b"Total ", b"Throughput ", b"Input file "]
            .iter()
            .any(|s| line.starts_with(s))
        {
            return Ok(if line.starts_with(b"Input file ") {
                Item::Nothing
            } else {
                Item::End
            });
        }
        let mut words = Words(line);
        let (major, minor) = major_minor(words.field("major,minor")?)?;
        words.number("cpu")?;
        words.number("sequence number")?;
        let time = seconds(words.field("time")?, "time")?;
        // A pid is a number; without process tracking it may be anything that fills the column.
        words.field("pid")?;
        let action = words.field("action")?;
        let want: &[u8] = if self.event == Event::Queued {
            b"Q"
        } else {
            b"D"
        };
        if action != want {
            return Ok(Item::Other);
        }
        let letters = words.field("RWBS")?;
        let Some((op, flags)) = rwbs(letters) else {
            return Ok(Item::Other);
        };
        let device = devices.major_minor(major, minor)?;
        let place = words.next().filter(|w| !w.starts_with(b"["));
        let (at, len) = match place {
            None => (0, 0),
            Some(sector) => {
                let sector = number(sector, "sector")?;
                match words.next() {
                    Some(b"+") => (
                        offset(sector, SECTOR)?,
                        length(words.number("sectors")?, SECTOR)?,
                    ),
                    None => (offset(sector, SECTOR)?, 0),
                    Some(w) if w.starts_with(b"[") => (offset(sector, SECTOR)?, 0),
                    Some(other) => {
                        return Err(Bad::text("\"+\" between sector and sectors", other));
                    }
                }
            }
        };
        let op = if len == 0 && flags.contains(crate::Flags::PREFLUSH) {
            Op::Flush
        } else {
            op
        };
        let at = if op == Op::Flush { 0 } else { at };
        Ok(Item::Request(Record {
            device,
            flags,
            ..request(time, op, at, len)?
        }))
    }
}

fn major_minor(text: &[u8]) -> Result<(u64, u64), Bad> {
    let parse = || {
        let comma = text.iter().position(|&c| c == b',')?;
        Some((parse_u64(&text[..comma])?, parse_u64(&text[comma + 1..])?))
    };
    parse().ok_or_else(|| Bad::text("major,minor", text))
}

/// Looks for a Q event.
pub(crate) fn find_event(mut input: Input) -> Result<Event, TraceError> {
    while let Some(line) = input.line()? {
        if Words(line).nth(5) == Some(b"Q") {
            return Ok(Event::Queued);
        }
    }
    Ok(Event::Issued)
}
