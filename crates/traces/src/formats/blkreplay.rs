//! blkreplay `.load`: `start ; sector ; length ; op ; replay_delay ; replay_duration`.
//!
//! Times are in seconds, lengths in sectors of 512 B. Free text (a licence) may precede the line of column names. It is kept, because the
//! licence must stay with every file that is made from the first. Format of Thomas Schoebel-Theuer's blkreplay.

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::Bad;
use crate::field::{Fields, SECTOR, length, offset, request, rwbs, seconds};
use crate::record::{Op, Record};

/// Text longer than this is not a header.
const HEADER_MAX: usize = 64 << 10;

/// The parser.
#[derive(Default)]
pub(crate) struct Blkreplay {
    header: Vec<u8>,
    in_data: bool,
}

impl Blkreplay {
    /// The header text ends at the line of column names, or at the first record if there is no such line.
    fn header_line(&mut self, line: &[u8]) -> Result<Option<Item>, Bad> {
        if is_column_line(line) {
            self.in_data = true;
            return Ok(Some(Item::Nothing));
        }
        if looks_like_record(line) {
            self.in_data = true;
            return Ok(None);
        }
        if self.header.len() + line.len() > HEADER_MAX {
            return Err(Bad::text(
                "the column line \"start ; sector; length ; op\" after the header text",
                line,
            ));
        }
        self.header.extend_from_slice(line);
        self.header.push(b'\n');
        Ok(Some(Item::Nothing))
    }
}

/// Whether `line` is the line of column names.
pub(crate) fn is_column_line(line: &[u8]) -> bool {
    let mut fields = Fields::new(line, b';');
    fields.next() == Some(b"start") && fields.next() == Some(b"sector")
}

/// Whether `line` is a number, a semicolon and another number. No header text looks like that.
pub(crate) fn looks_like_record(line: &[u8]) -> bool {
    let mut fields = Fields::new(line, b';');
    let (Some(start), Some(sector)) = (fields.next(), fields.next()) else {
        return false;
    };
    seconds(start, "").is_ok() && crate::field::parse_u64(sector).is_some()
}

impl LineParser for Blkreplay {
    fn line(&mut self, line: &[u8], _: &mut Devices) -> Result<Item, Bad> {
        if !self.in_data
            && let Some(item) = self.header_line(line)?
        {
            return Ok(item);
        }
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            return Ok(Item::Nothing);
        }
        // A file that was concatenated from several has the header text of each. blkreplay, too, skips lines that are not records.
        if !line[0].is_ascii_digit() && !line.starts_with(b".") {
            return Ok(Item::Other);
        }
        let mut fields = Fields::new(line, b';');
        let time = seconds(fields.field("start")?, "start")?;
        let sector = fields.number("sector")?;
        let sectors = fields.number("length in sectors")?;
        let letters = fields.field("op")?;
        let (op, flags) = rwbs(letters).ok_or_else(|| Bad::text("op (R or W)", letters))?;
        let len = length(sectors, SECTOR)?;
        // The kernel reports an empty flush as a write of length 0.
        let op = if len == 0 && flags.contains(crate::Flags::PREFLUSH) {
            Op::Flush
        } else {
            op
        };
        let r = request(time, op, offset(sector, SECTOR)?, len)?;
        Ok(Item::Request(Record { flags, ..r }))
    }

    fn header(&self) -> &[u8] {
        &self.header
    }
}
