//! Reference streams without times: ARC `.lis` (`start count ignored number`), and lists of block numbers as text or binary.

use crate::decode::{FixedParser, Item, LineParser, le32, le64};
use crate::devices::Devices;
use crate::error::Bad;
use crate::field::{SECTOR, Words, length, no_record, number, offset, request};
use crate::record::Op;

/// ARC paper traces: 512 B blocks, reads only; a line is one request of `count` blocks.
#[derive(Default)]
pub(crate) struct Arc;

impl LineParser for Arc {
    fn line(&mut self, line: &[u8], _: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) {
            return Ok(Item::Nothing);
        }
        let mut words = Words(line);
        let start = words.number("first block")?;
        let count = words.number("count of blocks")?;
        words.number("a number that is ignored")?;
        words.number("number of the request")?;
        if let Some(more) = words.next() {
            return Err(Bad::text("the end of the line after four numbers", more));
        }
        Ok(Item::Request(request(
            0,
            Op::Read,
            offset(start, SECTOR)?,
            length(count, SECTOR)?,
        )?))
    }

    fn timed(&self) -> bool {
        false
    }
}

/// One block number per line. `#` begins a comment. `*` marks a phase in LIRS traces and is skipped.
pub(crate) struct BlockList {
    pub(crate) block_bytes: u32,
}

impl LineParser for BlockList {
    fn line(&mut self, line: &[u8], _: &mut Devices) -> Result<Item, Bad> {
        let text = line.trim_ascii();
        if text.is_empty() || text[0] == b'#' || text == b"*" {
            return Ok(Item::Nothing);
        }
        let block = number(text, "a block number")?;
        let block_bytes = self.block_bytes;
        Ok(Item::Request(request(
            0,
            Op::Read,
            offset(block, u64::from(block_bytes))?,
            block_bytes,
        )?))
    }

    fn timed(&self) -> bool {
        false
    }
}

/// Block numbers of `BYTES` bytes each, 4 or 8, little-endian.
pub(crate) struct Numbers<const BYTES: usize> {
    pub(crate) block_bytes: u32,
}

impl<const BYTES: usize> FixedParser for Numbers<BYTES> {
    const SIZE: usize = BYTES;
    const TIMED: bool = false;

    fn record(&mut self, b: &[u8], _: &mut Devices) -> Result<Item, Bad> {
        let block = if BYTES == 8 {
            le64(b, 0)
        } else {
            u64::from(le32(b, 0))
        };
        let at = offset(block, u64::from(self.block_bytes))?;
        Ok(Item::Request(request(0, Op::Read, at, self.block_bytes)?))
    }
}
