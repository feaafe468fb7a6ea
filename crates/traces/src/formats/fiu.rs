//! FIU (Florida International University): `ts pid process lba size R|W major minor md5`.
//!
//! Time in nanoseconds, lba and size in 512 B blocks, one MD5 per 4 KiB or per 512 B block at the end.

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::Bad;
use crate::field::{SECTOR, Words, length, no_record, number, offset, read_or_write, request};
use crate::record::Record;

/// Fields from `lba` to `md5`. They are counted from the end of the line, because a process name may hold spaces.
const TAIL: usize = 6;
/// Fields before them: time, pid and a process name of one word.
const HEAD: usize = 3;

/// The parser.
#[derive(Default)]
pub(crate) struct Fiu;

impl LineParser for Fiu {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) {
            return Ok(Item::Nothing);
        }
        // A ring of the last words, so that a process name of any length needs no allocation.
        let mut tail = [&b""[..]; TAIL];
        let (mut count, mut time) = (0, &b""[..]);
        for word in Words(line) {
            if count == 0 {
                time = word;
            }
            tail[count % TAIL] = word;
            count += 1;
        }
        if count < HEAD + TAIL {
            return Err(Bad::text(
                "ts pid process lba size R|W major minor md5",
                line,
            ));
        }
        let from_end = |i: usize| tail[(count + i) % TAIL];
        let time = number(time, "ts in nanoseconds")?;
        let lba = number(from_end(0), "lba")?;
        let size = number(from_end(1), "size in 512 B blocks")?;
        let op = read_or_write(from_end(2), "R or W")?;
        let major = number(from_end(3), "major")?;
        let minor = number(from_end(4), "minor")?;
        let device = devices.major_minor(major, minor)?;
        let r = request(time, op, offset(lba, SECTOR)?, length(size, SECTOR)?)?;
        Ok(Item::Request(Record { device, ..r }))
    }
}
