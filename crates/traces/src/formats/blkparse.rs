//! blkparse's text: `maj,min cpu seq seconds pid action RWBS [sector + sectors] [process]`.
//!
//! As in the binary form, a request is its Q event, or its D event in a trace without any Q event. The summary at the end is not read.

use super::blktrace::Event;
use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::{Bad, TraceError};
use crate::field::{
    SECTOR, Words, length, no_record, number, offset, parse_u64, request, rwbs, seconds,
};
use crate::input::Input;
use crate::record::{Op, Record};

/// The parser.
pub(crate) struct Blkparse {
    pub(crate) event: Event,
}

impl LineParser for Blkparse {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) {
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
        let time = unwrapped(seconds(words.field("time")?, "time")?);
        // A pid is usually a number. Without process tracking the column may hold any text.
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

/// An event that precedes the first one of the trace has a negative time. blkparse prints it as the 64-bit number to which it wraps, with
/// the seconds cut to 32 bits: 1266874889.7. Such a time counts as the beginning of the trace.
fn unwrapped(time: u64) -> u64 {
    const CUT: u128 = (u64::MAX as u128 + 1) / NS / (1 << 32) * (1 << 32) * NS;
    const NS: u128 = 1_000_000_000;
    // No event is more than a day before the beginning, and a real time of this value is 40 years after it.
    const DAY: u128 = 86_400 * NS;
    let whole = CUT + u128::from(time);
    if (u64::MAX as u128 - DAY..=u64::MAX as u128).contains(&whole) {
        0
    } else {
        time
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_below_zero_are_the_beginning() {
        // 2^64 ns minus 1 ns and 2^64 ns minus one minute, as blkparse prints them.
        for text in ["1266874889.709551615", "1266874829.709551616"] {
            assert_eq!(
                unwrapped(seconds(text.as_bytes(), "").unwrap()),
                0,
                "{text}"
            );
        }
        for text in [
            "0.5",
            "780.25",
            "1266700000.0",
            "1266874890.0",
            "4000000000.0",
        ] {
            let time = seconds(text.as_bytes(), "").unwrap();
            assert_eq!(unwrapped(time), time, "{text}");
        }
    }
}
