//! The known formats, by name.

use std::fmt;
use std::str::FromStr;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// blkreplay `.load` text.
    Blkreplay,
    /// SPC, as in the UMass repository.
    Spc,
    /// FIU home, mail and web sets.
    Fiu,
    /// MSR Cambridge CSV.
    Msr,
    /// VMware vscsi, version 1.
    Vscsi1,
    /// VMware vscsi, version 2.
    Vscsi2,
    /// DiskSim and SSDsim ASCII.
    DiskSim,
    /// The columns of DiskSim with addresses and sizes in bytes, as replay tools write them.
    Replay,
    /// The columns of DiskSim with addresses in sectors and sizes in pages of 4 KiB.
    DiskSimPages,
    /// ARC paper `.lis`.
    Arc,
    /// oracleGeneral of libCacheSim.
    Oracle,
    /// Linux blktrace, binary.
    Blktrace,
    /// blkparse's text.
    Blkparse,
    /// fio iolog, version 2.
    FioV2,
    /// fio iolog, version 3.
    FioV3,
    /// Alibaba block traces.
    Alibaba,
    /// Tencent cloud block storage.
    Tencent,
    /// SYSTOR '17 VDI.
    Systor,
    /// Disk events of Windows' event tracing as text.
    Etw,
    /// HP Labs hplajw as CSV.
    Hplajw,
    /// Open CAS iotrace CSV.
    Octf,
    /// Windows Performance Analyzer's table of disk usage as CSV.
    Wpa,
    /// biosnoop of BCC.
    Biosnoop,
    /// iosnoop of perf-tools.
    Iosnoop,
    /// CSV of libCacheSim.
    LibCacheSim,
    /// Plain list of block numbers.
    BlockList,
    /// Binary list of block numbers of 32 bits. Nothing in the content shows it, so it must be named.
    Blocks32,
    /// Binary list of block numbers of 64 bits. Nothing in the content shows it, so it must be named.
    Blocks64,
    /// The CSV of this project.
    Csv,
    /// Columns that the user names ([`crate::ColumnMap`]). Not among [`Format::all`].
    Columns,
    /// The recorded format of this project.
    Parquet,
    /// Not a file format: requests that a generator makes ([`crate::Source`]). Not among [`Format::all`].
    Generated,
    /// The requests of an events file.
    Events,
}

/// One row of the table of formats.
struct Row {
    format: Format,
    name: &'static str,
    what: &'static str,
}

const fn row(format: Format, name: &'static str, what: &'static str) -> Row {
    Row { format, name, what }
}

/// The row that `trace info` prints for generated requests.
const GENERATED: Row = row(
    Format::Generated,
    "generated",
    "requests made by gen:NAME (see `isotherm trace generators`)",
);

/// The row that `trace info` prints for text whose columns the user named.
const COLUMNS: Row = row(
    Format::Columns,
    "columns",
    "text whose columns --columns names",
);

const TABLE: &[Row] = &[
    row(
        Format::Blkreplay,
        "blkreplay",
        "start ; sector ; length ; op ; … (seconds, 512 B sectors)",
    ),
    row(
        Format::Spc,
        "spc",
        "ASU,LBA,Size,Opcode,Timestamp (512 B blocks, bytes, seconds)",
    ),
    row(
        Format::Fiu,
        "fiu",
        "ts pid process lba size R|W major minor md5 (ns, 512 B blocks)",
    ),
    row(
        Format::Msr,
        "msr",
        "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime (100 ns, bytes)",
    ),
    row(
        Format::Vscsi1,
        "vscsi1",
        "32-byte records (512 B blocks, us)",
    ),
    row(
        Format::Vscsi2,
        "vscsi2",
        "40-byte records (512 B blocks, us, response time)",
    ),
    row(
        Format::DiskSim,
        "disksim",
        "time device lba size op (ns, us or ms; 512 B sectors; 1 read, 0 write)",
    ),
    row(
        Format::Replay,
        "replay",
        "time device offset size op (ns, us or ms; bytes; 1 read, 0 write)",
    ),
    row(
        Format::DiskSimPages,
        "disksim-pages",
        "time device lba size op (ns, us or ms; 512 B sectors, sizes in 4 KiB pages)",
    ),
    row(
        Format::Arc,
        "arc",
        "start_block count 0 request_number (512 B blocks, reads, no time)",
    ),
    row(
        Format::Oracle,
        "oracle-general",
        "24-byte records: u32 time s, u64 object, u32 size, i64 next access",
    ),
    row(
        Format::Blktrace,
        "blktrace",
        "struct blk_io_trace, version 7, either byte order",
    ),
    row(
        Format::Blkparse,
        "blkparse",
        "maj,min cpu seq seconds pid action RWBS sector + sectors [process]",
    ),
    row(
        Format::FioV2,
        "fio-v2",
        "filename action offset length (bytes; time by wait, us)",
    ),
    row(
        Format::FioV3,
        "fio-v3",
        "timestamp filename action offset length (us, bytes)",
    ),
    row(
        Format::Alibaba,
        "alibaba",
        "device_id,opcode,offset,length,timestamp (bytes, us)",
    ),
    row(
        Format::Tencent,
        "tencent",
        "Timestamp,Offset,Size,IOType,VolumeID (seconds, 512 B sectors, 0 read, 1 write)",
    ),
    row(
        Format::Systor,
        "systor17",
        "Timestamp,Response,IOType,LUN,Offset,Size with a line of names (seconds, bytes)",
    ),
    row(
        Format::Etw,
        "etw",
        "DiskRead, TimeStamp, Process ( PID), ThreadID, IrpPtr, ByteOffset, IOSize, ElapsedTime, DiskNum, … (us, hex bytes)",
    ),
    row(
        Format::Hplajw,
        "hplajw",
        "time_us,disk,op,offset_bytes,size_bytes,wait_us,response_us with a line of names",
    ),
    row(
        Format::Octf,
        "octf",
        "columns by name: header.timestamp, io.lba, io.len, io.operation, … (ns, sectors)",
    ),
    row(
        Format::BlockList,
        "blocks",
        "one block number per line (reads, no time)",
    ),
    row(
        Format::Blocks32,
        "blocks-u32",
        "binary list of block numbers, 4 bytes each, little-endian (reads, no time); is not recognised",
    ),
    row(
        Format::Blocks64,
        "blocks-u64",
        "binary list of block numbers, 8 bytes each, little-endian (reads, no time); is not recognised",
    ),
    row(
        Format::Wpa,
        "wpa",
        "columns by name: Init Time (s), Complete Time (s), Disk, IO Type, Min Offset, Size (B), … (Windows Performance Analyzer)",
    ),
    row(
        Format::Biosnoop,
        "biosnoop",
        "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms) (BCC; seconds, sectors, bytes)",
    ),
    row(
        Format::Iosnoop,
        "iosnoop",
        "[STARTs ENDs] COMM PID TYPE DEV BLOCK BYTES LATms (perf-tools; seconds, sectors, bytes)",
    ),
    row(
        Format::LibCacheSim,
        "libcachesim",
        "columns by name: time, op, size, lbn (seconds, bytes, sectors); or time, obj_id, obj_size (unit of ids by evidence)",
    ),
    row(
        Format::Csv,
        "csv",
        "time_ns,device,op,offset,length,class,flags,file_size,latency_ns with a line of names",
    ),
    row(
        Format::Parquet,
        "parquet",
        "Parquet: time_ns, device, op, offset, length, class, flags, file_size, latency_ns",
    ),
    row(
        Format::Events,
        "isotherm-events",
        "events file of `record --events`: its requests, with latency (ns, bytes)",
    ),
];

impl Format {
    /// Every format, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Format> {
        TABLE.iter().map(|row| row.format)
    }

    fn row(self) -> &'static Row {
        // Every other variant has its row; a test checks both lists.
        let other = if self == Format::Columns {
            &COLUMNS
        } else {
            &GENERATED
        };
        TABLE.iter().find(|row| row.format == self).unwrap_or(other)
    }

    /// The name to type.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The form of a record, in one line.
    pub fn description(self) -> &'static str {
        self.row().what
    }

    /// All names, for messages.
    pub fn names() -> String {
        TABLE
            .iter()
            .map(|row| row.name)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a name that is not a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown trace format \"{name}\"; known: {}", Format::names())]
pub struct UnknownFormat {
    /// The name that was given.
    pub name: String,
}

/// Other names by which the formats are known.
const ALIASES: &[(&str, Format)] = &[
    ("load", Format::Blkreplay),
    ("vscsi", Format::Vscsi1),
    ("ascii", Format::DiskSim),
    ("ssdsim", Format::DiskSim),
    ("lis", Format::Arc),
    ("oraclegeneral", Format::Oracle),
    ("fio", Format::FioV3),
    ("cbs", Format::Tencent),
    ("systor", Format::Systor),
    ("ms-server", Format::Etw),
    ("iotrace", Format::Octf),
    ("lba", Format::BlockList),
];

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Format, UnknownFormat> {
        TABLE
            .iter()
            .find(|row| row.name.eq_ignore_ascii_case(name))
            .map(|row| row.format)
            .or_else(|| {
                ALIASES
                    .iter()
                    .find(|(alias, _)| alias.eq_ignore_ascii_case(name))
                    .map(|&(_, format)| format)
            })
            .ok_or_else(|| UnknownFormat {
                name: name.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_its_format() {
        for format in Format::all() {
            assert_eq!(format.name().parse(), Ok(format));
            assert_eq!(format.row().format, format);
        }
        assert_eq!("oracleGeneral".parse(), Ok(Format::Oracle));
        let message = "nosuch"
            .parse::<Format>()
            .expect_err("no such format")
            .to_string();
        assert!(
            message.contains("nosuch") && message.contains("blkreplay"),
            "{message}"
        );
    }
}
