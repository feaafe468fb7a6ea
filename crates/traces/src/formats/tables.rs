//! CSV traces with a line of column names: hplajw, Systor '17, Open CAS iotrace (OCTF), and the CSV of this project.

use super::columns::Columns;
use super::custom::direction;
use crate::decode::{Item, LineParser};
use crate::devices::Devices;
use crate::error::Bad;
use crate::field::{
    SECTOR, class, length, no_record, number, offset, optional, read_or_write, request, scaled,
    seconds,
};
use crate::record::{Flags, Op, Record};

/// HP Labs workstation hplajw, decoded from HP SRT: times in microseconds, the response measured from arrival.
#[derive(Default)]
pub(crate) struct Hplajw {
    columns: Option<Columns<6>>,
}

const HPLAJW: [&str; 6] = [
    "time_us",
    "disk",
    "op",
    "offset_bytes",
    "size_bytes",
    "response_us",
];

impl LineParser for Hplajw {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) {
            return Ok(Item::Nothing);
        }
        let Some(columns) = &self.columns else {
            self.columns = Some(Columns::from_line(line, &HPLAJW, 5)?);
            return Ok(Item::Nothing);
        };
        let [time, disk, op, at, size, response] = columns.split(line)?;
        let time = scaled(number(time, "time_us")?, 1_000)?;
        let op = read_or_write(op, "op")?;
        let len = length(number(size, "size_bytes")?, 1)?;
        let r = request(time, op, number(at, "offset_bytes")?, len)?;
        let latency_ns = optional(response, "response_us")?
            .map(|us| scaled(us, 1_000))
            .transpose()?;
        let device = devices.number(number(disk, "disk")?)?;
        Ok(Item::Request(Record {
            latency_ns,
            device,
            ..r
        }))
    }
}

/// Fujitsu VDI of SYSTOR '17: times in seconds, offsets and sizes in bytes. Lines are in the order of completion.
#[derive(Default)]
pub(crate) struct Systor {
    columns: Option<Columns<6>>,
}

const SYSTOR: [&str; 6] = ["Timestamp", "IOType", "LUN", "Offset", "Size", "Response"];

impl LineParser for Systor {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) {
            return Ok(Item::Nothing);
        }
        let Some(columns) = &self.columns else {
            self.columns = Some(Columns::from_line(line, &SYSTOR, 5)?);
            return Ok(Item::Nothing);
        };
        let [time, op, lun, at, size, response] = columns.split(line)?;
        let time = seconds(time, "Timestamp")?;
        let op = read_or_write(op, "IOType")?;
        let len = length(number(size, "Size in bytes")?, 1)?;
        let r = request(time, op, number(at, "Offset in bytes")?, len)?;
        // Some lines of the published set have no response time.
        let latency_ns = if response.is_empty() {
            None
        } else {
            Some(seconds(response, "Response")?)
        };
        let device = devices.number(number(lun, "LUN")?)?;
        Ok(Item::Request(Record {
            latency_ns,
            device,
            ..r
        }))
    }
}

/// `iotrace --trace-parser --io --format csv` of Open CAS: sectors and nanoseconds, columns by name.
#[derive(Default)]
pub(crate) struct Octf {
    columns: Option<Columns<11>>,
}

const OCTF: [&str; 11] = [
    "header.timestamp",
    "io.lba",
    "io.len",
    "io.operation",
    "device.id",
    "io.ioClass",
    "io.flush",
    "io.fua",
    "io.latency",
    "file.id",
    "file.size",
];

/// Open CAS reserves this class for metadata of the file system.
const OCTF_METADATA_CLASS: u8 = 1;

impl LineParser for Octf {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) {
            return Ok(Item::Nothing);
        }
        let Some(columns) = &self.columns else {
            self.columns = Some(Columns::from_line(line, &OCTF, 4)?);
            return Ok(Item::Nothing);
        };
        let [
            time,
            lba,
            len,
            op,
            device,
            io_class,
            flush,
            fua,
            latency,
            file,
            file_size,
        ] = columns.split(line)?;
        let time = number(time, "header.timestamp in nanoseconds")?;
        // Some versions of the tracer omit fields whose value is zero.
        let lba = optional(lba, "io.lba")?.unwrap_or(0);
        let len = length(optional(len, "io.len in sectors")?.unwrap_or(0), SECTOR)?;
        let flush = flag(flush, "io.flush")?;
        let op = match op {
            _ if len == 0 && flush => Op::Flush,
            b"Read" | b"" => Op::Read,
            b"Write" => Op::Write,
            b"Discard" => Op::Discard,
            other => return Err(Bad::text("io.operation Read, Write or Discard", other)),
        };
        let class = class(optional(io_class, "io.ioClass")?.unwrap_or(0))?;
        let flags = Flags::NONE
            .with(Flags::PREFLUSH, flush)
            .with(Flags::FUA, flag(fua, "io.fua")?)
            .with(Flags::META, class == OCTF_METADATA_CLASS);
        let file_size = match optional(file_size, "file.size in sectors")? {
            Some(sectors) if !file.is_empty() => Some(offset(sectors, SECTOR)?),
            _ => None,
        };
        let latency_ns = optional(latency, "io.latency in nanoseconds")?;
        let device = devices.number(optional(device, "device.id")?.unwrap_or(0))?;
        let r = request(time, op, offset(lba, SECTOR)?, len)?;
        Ok(Item::Request(Record {
            file_size,
            latency_ns,
            device,
            class,
            flags,
            ..r
        }))
    }
}

fn flag(text: &[u8], expected: &str) -> Result<bool, Bad> {
    match text {
        b"true" | b"1" => Ok(true),
        b"false" | b"0" | b"" => Ok(false),
        _ => Err(Bad::text(format!("{expected} (true or false)"), text)),
    }
}

/// Columns of this project's CSV. A trace without times lacks the last one.
pub(crate) const CSV: [&str; 9] = [
    "op",
    "offset",
    "length",
    "device",
    "class",
    "flags",
    "file_size",
    "latency_ns",
    "time_ns",
];
const CSV_TIME: usize = 8;

/// This project's CSV: the recorded format as text, for spreadsheets and scripts.
#[derive(Default)]
pub(crate) struct Csv {
    columns: Option<Columns<9>>,
}

impl LineParser for Csv {
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad> {
        if no_record(line) {
            return Ok(Item::Nothing);
        }
        let Some(columns) = &self.columns else {
            self.columns = Some(Columns::from_line(line, &CSV, 3)?);
            return Ok(Item::Nothing);
        };
        let [
            op,
            at,
            len,
            device,
            io_class,
            flags,
            file_size,
            latency_ns,
            time,
        ] = columns.split(line)?;
        let op = direction(op)?;
        let time = if columns.has(CSV_TIME) {
            number(time, "time_ns")?
        } else {
            0
        };
        let r = request(
            time,
            op,
            number(at, "offset")?,
            length(number(len, "length")?, 1)?,
        )?;
        let bits = optional(flags, "flags")?.unwrap_or(0);
        let flags = u8::try_from(bits).ok().and_then(Flags::from_bits);
        Ok(Item::Request(Record {
            device: devices.number(optional(device, "device")?.unwrap_or(0))?,
            class: class(optional(io_class, "class")?.unwrap_or(0))?,
            flags: flags.ok_or_else(|| Bad::value("flags of 5 bits", bits))?,
            file_size: optional(file_size, "file_size")?,
            latency_ns: optional(latency_ns, "latency_ns")?,
            ..r
        }))
    }

    fn timed(&self) -> bool {
        self.columns.as_ref().is_none_or(|c| c.has(CSV_TIME))
    }
}
