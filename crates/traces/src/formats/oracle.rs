//! oracleGeneral of libCacheSim: little-endian records of 24 bytes, no header.
//!
//! ```text
//! 0 u32 time s   4 u64 object   12 u32 size   16 i64 next access (a record's number; -1 or its maximum: never)
//! ```
//! An object cache has names, not addresses. Object n is therefore taken to begin at n × block size; which size that is (a block of 4 KiB, a
//! sector, a byte) shows in which request follows which. The format has no direction, so every request is taken as a read. Object numbers that are hashes exceed the address space and are refused.

use isotherm_core::Nanos;

use crate::decode::{FixedParser, Item, le32, le64};
use crate::devices::Devices;
use crate::error::{Bad, TraceError};
use crate::field::{request, scaled};
use crate::input::Input;
use crate::record::{Op, Record};
use crate::time_unit::{FEW, LOOK};
use crate::units::{Row, name, weigh};

/// The parser.
pub(crate) struct Oracle {
    pub(crate) block_bytes: u32,
}

/// Bytes of a record.
pub(crate) const SIZE: usize = 24;

impl FixedParser for Oracle {
    const SIZE: usize = SIZE;

    #[inline]
    fn record(&mut self, b: &[u8], _: &mut Devices) -> Result<Item, Bad> {
        let (time, object, size) = (le32(b, 0), le64(b, 4), le32(b, 12));
        let at = object.checked_mul(u64::from(self.block_bytes)).ok_or_else(|| {
            Bad::value("an object number that times the block size is an address (hashed names are not)", object)
        })?;
        Ok(Item::Request(request(
            scaled(u64::from(time), 1_000_000_000)?,
            Op::Read,
            at,
            size,
        )?))
    }

    fn plain(&mut self, bytes: &[u8], max: usize, out: &mut Vec<Record>) -> usize {
        let before = out.len();
        let block_bytes = u64::from(self.block_bytes);
        let (records, _) = bytes.as_chunks::<SIZE>();
        out.extend(records.iter().take(max).map_while(|b| {
            let (time, object, size) = (le32(b, 0), le64(b, 4), le32(b, 12));
            let at = object.checked_mul(block_bytes)?;
            at.checked_add(u64::from(size))?;
            // 2^32 seconds fit into 64 bits of nanoseconds.
            let time = Nanos(u64::from(time) * 1_000_000_000);
            Some(Record::new(time, Op::Read, at, size))
        }));
        out.len() - before
    }
}

/// Whether `head` may consist of such records: times rise, sizes are plausible, and the next access comes later than the record.
pub(crate) fn looks_like(head: &[u8]) -> bool {
    let mut last = 0;
    let mut records = head.chunks_exact(SIZE).take(64).enumerate();
    let plausible = records.all(|(i, b)| {
        let (time, size, next) = (le32(b, 0), le32(b, 12), le64(b, 16) as i64);
        let rising = time >= last && (i == 0 || time - last < 10_000_000);
        last = time;
        rising
            && size > 0
            && size < 1 << 30
            && ((-2..0).contains(&next) || next > i as i64 || next == i64::MAX)
    });
    head.len() >= SIZE && plausible
}

/// The size in bytes to which object numbers count, and what shows it; the size is `None` if nothing does. The answer is `None` if there
/// are too few records.
pub(crate) fn find_block(mut input: Input) -> Result<Option<(Option<u32>, String)>, TraceError> {
    let mut rows = Vec::new();
    while rows.len() < LOOK {
        input.fill(SIZE)?;
        let Some(b) = input.unread().get(..SIZE) else {
            break;
        };
        let (at, size) = (le64(b, 4), u64::from(le32(b, 12)));
        rows.push(Row {
            device: 0,
            at,
            size,
        });
        input.consume(SIZE);
    }
    if rows.len() < FEW {
        return Ok(None);
    }
    Ok(Some(match weigh(&rows, Some(1)) {
        Some((units, why)) => {
            let what = format!("Object numbers count {}: {why}; --block-bytes says otherwise.", name(units.at));
            (Some(units.at as u32), what)
        }
        None => (
            None,
            "Object numbers are read as blocks of 4 KiB, but nothing shows their unit: --block-bytes states it (512 for sectors, 1 for bytes)."
                .to_owned(),
        ),
    }))
}
