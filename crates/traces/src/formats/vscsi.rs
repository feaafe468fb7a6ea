//! VMware vscsi traces (CloudPhysics): little-endian records of 32 bytes (version 1) or 40 (version 2).
//!
//! ```text
//! v1   0 u32 serial   4 u32 bytes   8 u32 segments  12 u16 command  14 u16 version  16 u64 lbn  24 u64 time µs
//! v2   0 u16 command  2 u16 version 4 u32 serial     8 u32 bytes    12 u32 segments 16 u64 lbn  24 u64 time µs  32 u64 response µs
//! ```
//! The version is in the upper byte of its field; lbn counts 512 B sectors; the command is SCSI's.

use crate::decode::{FixedParser, Item, le16, le32, le64};
use crate::devices::Devices;
use crate::error::Bad;
use crate::field::{SECTOR, offset, request, scaled};
use crate::record::{Op, Record};

/// Version 1.
#[derive(Default)]
pub(crate) struct Vscsi1;

/// Version 2.
#[derive(Default)]
pub(crate) struct Vscsi2;

impl FixedParser for Vscsi1 {
    const SIZE: usize = 32;

    fn record(&mut self, b: &[u8], _: &mut Devices) -> Result<Item, Bad> {
        version(le16(b, 14), 1)?;
        item(le16(b, 12), le32(b, 4), le64(b, 16), le64(b, 24), None)
    }
}

impl FixedParser for Vscsi2 {
    const SIZE: usize = 40;

    fn record(&mut self, b: &[u8], _: &mut Devices) -> Result<Item, Bad> {
        version(le16(b, 2), 2)?;
        let response = scaled(le64(b, 32), 1_000)?;
        item(
            le16(b, 0),
            le32(b, 8),
            le64(b, 16),
            le64(b, 24),
            Some(response),
        )
    }
}

fn version(field: u16, want: u16) -> Result<(), Bad> {
    if field >> 8 == want {
        return Ok(());
    }
    Err(Bad::value(
        format!("version {want} in the upper byte"),
        format!("0x{field:04x}"),
    ))
}

fn item(
    command: u16,
    len: u32,
    lbn: u64,
    time_us: u64,
    latency_ns: Option<u64>,
) -> Result<Item, Bad> {
    // READ and WRITE (6, 10, 12, 16), WRITE AND VERIFY (10, 12, 16), COMPARE AND WRITE, ORWRITE, XPWRITE, WRITE ATOMIC and WRITE STREAM;
    // SYNCHRONIZE CACHE (10, 16), UNMAP and WRITE SAME (10, 16). VERIFY and PRE-FETCH transfer nothing, WRITE LONG and WRITE BUFFER no
    // blocks, EXTENDED COPY and tokens name no place here.
    let op = match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e | 0x89 | 0x8b | 0x51 | 0x9c | 0x9a => {
            Op::Write
        }
        0x35 | 0x91 => Op::Flush,
        0x42 | 0x41 | 0x93 => Op::Discard,
        0x00..=0xff => return Ok(Item::Other),
        _ => {
            return Err(Bad::value(
                "a SCSI command of one byte",
                format!("0x{command:04x}"),
            ));
        }
    };
    let len = if op == Op::Flush { 0 } else { len };
    let r = request(scaled(time_us, 1_000)?, op, offset(lbn, SECTOR)?, len)?;
    Ok(Item::Request(Record { latency_ns, ..r }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_writes_blocks_is_a_write_and_one_that_only_looks_is_nothing() {
        let op = |command| match item(command, 512, 8, 5, None) {
            Ok(Item::Request(r)) => Some(r.op),
            _ => None,
        };
        for c in [
            0x0a, 0x2a, 0xaa, 0x8a, 0x2e, 0xae, 0x8e, 0x89, 0x8b, 0x51, 0x9c, 0x9a,
        ] {
            assert_eq!(op(c), Some(Op::Write), "{c:x}");
        }
        for c in [0x08, 0x28, 0xa8, 0x88] {
            assert_eq!(op(c), Some(Op::Read), "{c:x}");
        }
        for c in [
            0x00, 0x12, 0x25, 0x2f, 0x34, 0x3b, 0x3f, 0x83, 0x8f, 0x90, 0xa0, 0xaf,
        ] {
            assert_eq!(op(c), None, "{c:x}");
        }
        assert!(item(0x100, 512, 8, 5, None).is_err());
    }
}
