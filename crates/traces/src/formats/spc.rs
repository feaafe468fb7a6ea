//! SPC (Storage Performance Council, as in the UMass repository): `ASU,LBA,Size,Opcode,Timestamp[,…]`.
//!
//! LBA in blocks of 512 B within the application storage unit (which is a device here), size in bytes, opcode `R` or `W` in either case,
//! time in seconds. Further fields are optional and ignored, as the specification allows.

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::Bad;
use crate::field::{Fields, SECTOR, length, no_record, offset, read_or_write, request, seconds};
use crate::record::Record;

/// The parser.
#[derive(Default)]
pub(crate) struct Spc;

impl LineParser for Spc {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) {
            return Ok(Item::Nothing);
        }
        let mut fields = Fields::new(line, b',');
        let asu = fields.number("ASU")?;
        let lba = fields.number("LBA")?;
        let size = fields.number("Size in bytes")?;
        let op = read_or_write(fields.field("Opcode")?, "Opcode")?;
        let time = seconds(fields.field("Timestamp")?, "Timestamp")?;
        let r = request(time, op, offset(lba, SECTOR)?, length(size, 1)?)?;
        Ok(Item::Request(Record {
            device: devices.number(asu)?,
            ..r
        }))
    }
}
