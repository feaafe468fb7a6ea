//! fio iolog, versions 2 and 3 (fio's manual, "Trace file format").
//!
//! v2: `filename action [offset length]`. Only `wait` actions carry time: microseconds since the previous `wait`.
//! v3: `timestamp filename action [offset length]`, microseconds since the start. Offsets and lengths in bytes.

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::{Bad, TraceError};
use crate::field::{Words, length, no_record, request, scaled};
use crate::input::Input;
use crate::record::{Op, Record};

pub(crate) const HEADER_V2: &str = "fio version 2 iolog";
pub(crate) const HEADER_V3: &str = "fio version 3 iolog";

/// The parser. `WAITS` is true for version 2.
pub(crate) struct Fio {
    version: u8,
    /// Version 2 with at least one `wait`, or version 3.
    timed: bool,
    /// Sum of the waits so far, in microseconds.
    waited_us: u64,
    header_seen: bool,
}

impl Fio {
    pub(crate) fn v2(timed: bool) -> Fio {
        Fio {
            version: 2,
            timed,
            waited_us: 0,
            header_seen: false,
        }
    }

    pub(crate) fn v3() -> Fio {
        Fio {
            version: 3,
            timed: true,
            waited_us: 0,
            header_seen: false,
        }
    }
}

impl LineParser for Fio {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) {
            return Ok(Item::Nothing);
        }
        if !self.header_seen {
            self.header_seen = true;
            let header = if self.version == 2 {
                HEADER_V2
            } else {
                HEADER_V3
            };
            return if line.trim_ascii() == header.as_bytes() {
                Ok(Item::Nothing)
            } else {
                Err(Bad::text(format!("the first line \"{header}\""), line))
            };
        }
        let mut words = Words(line);
        let time_us = if self.version == 2 {
            self.waited_us
        } else {
            words.number("timestamp in microseconds")?
        };
        let file = words.field("filename")?;
        let op = match words.field("action")? {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Discard,
            b"sync" | b"datasync" => Op::Flush,
            b"add" | b"open" | b"close" => return Ok(Item::Nothing),
            b"wait" if self.version == 2 => {
                let wait = words.number("microseconds to wait")?;
                self.waited_us = self.waited_us.saturating_add(wait);
                return Ok(Item::Nothing);
            }
            other => {
                return Err(Bad::text(
                    "an action: read, write, trim, sync, datasync, add, open or close",
                    other,
                ));
            }
        };
        let (offset, len) = if op == Op::Flush {
            (0, 0)
        } else {
            (
                words.number("offset in bytes")?,
                length(words.number("length in bytes")?, 1)?,
            )
        };
        let r = request(scaled(time_us, 1_000)?, op, offset, len)?;
        Ok(Item::Request(Record {
            device: devices.name(file)?,
            ..r
        }))
    }

    fn timed(&self) -> bool {
        self.timed
    }
}

/// Whether a version 2 log has a `wait` action. A log that fio before 3.31 recorded has none, and so it has no times.
pub(crate) fn has_waits(mut input: Input) -> Result<bool, TraceError> {
    while let Some(line) = input.line()? {
        if Words(line).nth(1) == Some(b"wait") {
            return Ok(true);
        }
    }
    Ok(false)
}
