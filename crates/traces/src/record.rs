//! One request of a trace, in the units of every format: bytes and nanoseconds.

use std::fmt;

use isotherm_core::Nanos;

/// The operation of a traced request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Data was read.
    Read,
    /// Data was written.
    Write,
    /// A cache flush without data.
    Flush,
    /// The range was discarded (discard, trim, unmap).
    Discard,
}

impl Op {
    /// The name of the operation in this project's own formats.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of request flags. It is empty for formats that have no flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Durable before the reply (force unit access).
    pub const FUA: Flags = Flags(1);
    /// File-system metadata.
    pub const META: Flags = Flags(2);
    /// Flush the volatile cache before this request.
    pub const PREFLUSH: Flags = Flags(4);
    /// Read-ahead: no program waits for it yet.
    pub const AHEAD: Flags = Flags(8);
    /// A program waits for this write.
    pub const SYNC: Flags = Flags(16);

    const KNOWN: u8 = 31;

    /// The flags as the bits of the recorded format.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// From the bits of the recorded format; `None` if a bit is unknown.
    pub const fn from_bits(bits: u8) -> Option<Flags> {
        if bits & !Self::KNOWN == 0 {
            Some(Flags(bits))
        } else {
            None
        }
    }

    /// Whether every flag of `other` is set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union with `other` if `on`, else the set itself. It lets parsers collect flags without branches.
    #[must_use]
    pub const fn with(self, other: Flags, on: bool) -> Flags {
        if on { Flags(self.0 | other.0) } else { self }
    }
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Arrival, relative to the first record of the trace; never smaller than the record before it.
    pub time: Nanos,
    /// First byte on the device.
    pub offset: u64,
    /// Size in bytes of the file to which the request belongs, where the trace has it.
    pub file_size: Option<u64>,
    /// From arrival to completion, in nanoseconds, where the trace has it.
    pub latency_ns: Option<u64>,
    /// Bytes; 0 only for a flush.
    pub len: u32,
    /// The device, numbered from 0 in the order in which the reader met them; see `Reader::device_name`.
    pub device: u32,
    /// The operation.
    pub op: Op,
    /// Kind of data, 0…63 (0 = unclassified).
    pub class: u8,
    /// Request flags.
    pub flags: Flags,
}

impl Record {
    /// A plain request: device 0, no class, no flags, and nothing else known.
    pub const fn new(time: Nanos, op: Op, offset: u64, len: u32) -> Record {
        Record {
            time,
            offset,
            file_size: None,
            latency_ns: None,
            len,
            device: 0,
            op,
            class: 0,
            flags: Flags::NONE,
        }
    }

    /// The first byte after the request. Readers make sure that this does not overflow.
    pub const fn end(&self) -> u64 {
        self.offset + self.len as u64
    }
}
