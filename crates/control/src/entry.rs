//! A recorded request on its way from the served volume to `isotherm record`.
//!
//! ```text
//! 0 time ns │ 8 offset │ 16 latency ns │ 24 length │ 28 op │ 29 class │ 30 fua │ 31 zero      little endian, 32 bytes
//! ```
//! The format is binary because JSON lines cannot keep up with the request rate of a volume.

use isotherm_core::RequestOp;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 32;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryOp {
    /// Read.
    Read,
    /// Write, including writes of zeros.
    Write,
    /// Flush.
    Flush,
    /// Discard.
    Discard,
    /// Not a request: the number of requests lost so far, because the queue was full, is in `offset`.
    Lost,
}

/// One request with its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Time of arrival, in nanoseconds since the recording began.
    pub time_ns: u64,
    /// Nanoseconds from arrival to reply.
    pub latency_ns: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// The operation.
    pub op: EntryOp,
    /// Kind of data, 0…63.
    pub class: u8,
    /// Whether it must be durable before the reply.
    pub fua: bool,
}

impl EntryOp {
    /// The kind of a front end's request.
    pub fn of(op: RequestOp) -> EntryOp {
        match op {
            RequestOp::Read => EntryOp::Read,
            RequestOp::Write | RequestOp::WriteZeroes { keep: true } => EntryOp::Write,
            RequestOp::Flush => EntryOp::Flush,
            // Both give space up. A hole of the block file, which is also a discard of a loop device, comes as the second.
            RequestOp::Discard | RequestOp::WriteZeroes { keep: false } => EntryOp::Discard,
        }
    }
}

const OPS: [EntryOp; 5] = [
    EntryOp::Read,
    EntryOp::Write,
    EntryOp::Flush,
    EntryOp::Discard,
    EntryOp::Lost,
];

impl Entry {
    /// Encodes the entry.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut b = [0; ENTRY_BYTES];
        b[..8].copy_from_slice(&self.time_ns.to_le_bytes());
        b[8..16].copy_from_slice(&self.offset.to_le_bytes());
        b[16..24].copy_from_slice(&self.latency_ns.to_le_bytes());
        b[24..28].copy_from_slice(&self.len.to_le_bytes());
        b[28] = OPS.iter().position(|o| *o == self.op).unwrap_or(0) as u8;
        b[29] = self.class;
        b[30] = u8::from(self.fua);
        b
    }

    /// Decodes an entry; `None` if the bytes are not valid.
    pub fn decode(b: &[u8; ENTRY_BYTES]) -> Option<Entry> {
        let u64_at = |i: usize| {
            b[i..i + 8]
                .iter()
                .rev()
                .fold(0, |n, x| n << 8 | u64::from(*x))
        };
        if b[29] > 63 || b[30] > 1 || b[31] != 0 {
            return None;
        }
        Some(Entry {
            time_ns: u64_at(0),
            offset: u64_at(8),
            latency_ns: u64_at(16),
            len: b[24..28]
                .iter()
                .rev()
                .fold(0, |n, x| n << 8 | u32::from(*x)),
            op: *OPS.get(usize::from(b[28]))?,
            class: b[29],
            fua: b[30] == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_come_back(time_ns: u64, latency_ns: u64, offset: u64, len: u32, op in 0usize..5, class in 0u8..64, fua: bool) {
            let e = Entry { time_ns, latency_ns, offset, len, op: OPS[op], class, fua };
            prop_assert_eq!(Entry::decode(&e.encode()), Some(e));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let good = Entry {
            time_ns: 1,
            latency_ns: 2,
            offset: 3,
            len: 4,
            op: EntryOp::Read,
            class: 5,
            fua: true,
        }
        .encode();
        for (at, value) in [(28, 5), (29, 64), (30, 2), (31, 1)] {
            let mut b = good;
            b[at] = value;
            assert_eq!(Entry::decode(&b), None, "byte {at}");
        }
    }
}
