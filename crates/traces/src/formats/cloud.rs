//! Two cloud block stores, both without a header line.
//!
//! Alibaba: `device_id,opcode,offset,length,timestamp` (bytes, microseconds).
//! Tencent CBS: `Timestamp,Offset,Size,IOType,VolumeID` (whole seconds, 512 B sectors, 0 read, 1 write).

use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::Bad;
use crate::field::{Fields, SECTOR, length, no_record, offset, read_or_write, request, scaled};
use crate::record::{Op, Record};

/// Alibaba block traces.
#[derive(Default)]
pub(crate) struct Alibaba;

impl LineParser for Alibaba {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) || line.starts_with(b"device_id,") {
            return Ok(Item::Nothing);
        }
        let mut fields = Fields::new(line, b',');
        let device = fields.number("device_id")?;
        let op = read_or_write(fields.field("opcode")?, "opcode")?;
        let offset = fields.number("offset in bytes")?;
        let len = fields.number("length in bytes")?;
        let time = scaled(fields.number("timestamp in microseconds")?, 1_000)?;
        fields.end("timestamp")?;
        let r = request(time, op, offset, length(len, 1)?)?;
        Ok(Item::Request(Record {
            device: devices.number(device)?,
            ..r
        }))
    }
}

/// Tencent cloud block storage.
#[derive(Default)]
pub(crate) struct Tencent;

impl LineParser for Tencent {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) || line.starts_with(b"Timestamp,") {
            return Ok(Item::Nothing);
        }
        let mut fields = Fields::new(line, b',');
        let time = scaled(fields.number("Timestamp in seconds")?, 1_000_000_000)?;
        let start = fields.number("Offset in sectors")?;
        let size = fields.number("Size in sectors")?;
        let op = match fields.field("IOType")? {
            b"0" => Op::Read,
            b"1" => Op::Write,
            other => return Err(Bad::text("IOType 0 (read) or 1 (write)", other)),
        };
        let volume = fields.number("VolumeID")?;
        fields.end("VolumeID")?;
        let r = request(time, op, offset(start, SECTOR)?, length(size, SECTOR)?)?;
        Ok(Item::Request(Record {
            device: devices.number(volume)?,
            ..r
        }))
    }
}
