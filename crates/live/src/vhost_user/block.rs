//! The virtio block device (virtio 1.2, section 5.2): what it offers, and what its requests say.

use super::ring::Part;
use crate::port::Port;
use isotherm_core::RequestOp;
use std::ops::Range;
use vm_memory::{Address, Bytes, GuestMemoryMmap};

/// Most parts of a request's data.
pub(super) const SEGMENTS: u32 = 126;
/// Most bytes of a request's data. Drivers ask for much less at once; more is an error.
pub(super) const DATA_MAX: u32 = 32 << 20;
/// Most queues of a device.
pub(super) const QUEUES_MAX: u16 = 16;

/// Features of a virtio device that do not depend on its type.
pub(super) mod feature {
    pub const RO: u64 = 1 << 5;
    pub const FLUSH: u64 = 1 << 9;
    pub const EVENT_IDX: u64 = 1 << 29;
    /// Of vhost-user: there are protocol features.
    pub const PROTOCOL: u64 = 1 << 30;
}
/// SEG_MAX, BLK_SIZE, FLUSH, TOPOLOGY, MQ, DISCARD, WRITE_ZEROES; INDIRECT_DESC, EVENT_IDX; VERSION_1.
///
/// Not CONFIG_WCE: the next server would not know a guest's choice, and answer writes too early.
const OFFERED: u64 = (1 << 2 | 1 << 6 | feature::FLUSH | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14)
    | (1 << 28 | feature::EVENT_IDX)
    | 1 << 32;

const SECTOR: u64 = 512;
/// Most sectors of a range, and most ranges, of a discard or of zeros.
const RANGE_SECTORS: u32 = (1 << 30) / SECTOR as u32;
const RANGES: usize = 16;
const RANGE_BYTES: usize = 16;
const HEADER: usize = 16;
const ID_BYTES: usize = 20;

/// How a request ended.
pub(super) mod status {
    pub const OK: u8 = 0;
    pub const ERROR: u8 = 1;
    pub const UNSUPPORTED: u8 = 2;
}

/// The features of the device.
pub(super) fn features(read_only: bool) -> u64 {
    OFFERED | feature::PROTOCOL | if read_only { feature::RO } else { 0 }
}

/// The configuration; bytes that no field has are zeros.
pub(super) fn config(port: &dyn Port, extent: u32) -> [u8; 64] {
    let block = port.block_bytes();
    let physical = block.max(4096);
    let mut bytes = [0; 64];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &(port.volume_bytes() / SECTOR).to_le_bytes());
    put(12, &SEGMENTS.to_le_bytes());
    put(20, &block.to_le_bytes());
    // Topology, in logical blocks.
    put(24, &[(physical / block).trailing_zeros() as u8]);
    put(26, &((physical / block) as u16).to_le_bytes());
    put(28, &(extent / block).to_le_bytes());
    put(34, &QUEUES_MAX.to_le_bytes());
    put(36, &RANGE_SECTORS.to_le_bytes());
    put(40, &(RANGES as u32).to_le_bytes());
    put(44, &(port.engine_block() / SECTOR as u32).to_le_bytes());
    put(48, &RANGE_SECTORS.to_le_bytes());
    put(52, &(RANGES as u32).to_le_bytes());
    // Zeros may free space.
    put(56, &[1]);
    bytes
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// A read, a write or a flush of so many bytes at a byte.
    Io(RequestOp, u64, u32),
    /// A discard or zeros: ranges of first byte and length.
    Ranges(RequestOp, Vec<(u64, u64)>),
    /// The name of the device.
    Name,
}

/// A request's memory, without header and status: `range` of the bytes of those parts.
pub(super) struct Data<'a> {
    parts: &'a [Part],
    range: Range<u64>,
}

fn bytes(parts: &[Part]) -> u64 {
    parts.iter().map(|p| u64::from(p.len)).sum()
}

/// The parts that the device reads, and those that it writes.
fn split(parts: &[Part]) -> (&[Part], &[Part]) {
    parts.split_at(parts.partition_point(|p| !p.writable))
}

/// The memory to which the data of a request is written, and the byte after it for the status. `None` if there is no room for a status.
pub(super) fn to_write(parts: &[Part]) -> Option<(Data<'_>, Data<'_>)> {
    let parts = split(parts).1;
    let end = bytes(parts);
    let data = end.checked_sub(1)?;
    let part = |range| Data { parts, range };
    Some((part(0..data), part(data..end)))
}

impl Data<'_> {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Calls `f` for each piece that is one part: its place in the memory, and its place in the data.
    fn each(&self, mut f: impl FnMut(vm_memory::GuestAddress, Range<usize>) -> bool) -> bool {
        let mut start = 0;
        self.parts.iter().all(|part| {
            let end = start + u64::from(part.len);
            let (from, to) = (self.range.start.max(start), self.range.end.min(end));
            let skipped = from.saturating_sub(start);
            start = end;
            if from >= to {
                return true;
            }
            let place = |at: u64| (at - self.range.start) as usize;
            (part.at.checked_add(skipped)).is_some_and(|at| f(at, place(from)..place(to)))
        })
    }

    /// Copies it to `to`. Returns false if that is not as long, or a part is not in the memory.
    pub fn copy_to(&self, mem: &GuestMemoryMmap, to: &mut [u8]) -> bool {
        self.len() == to.len() as u64
            && self.each(|at, place| mem.read_slice(&mut to[place], at).is_ok())
    }

    /// Copies `from` to its start. Returns false if it is shorter, or a part is not in the memory.
    pub fn copy_from(&self, mem: &GuestMemoryMmap, from: &[u8]) -> bool {
        let end = self.range.start + from.len() as u64;
        let to = Data {
            parts: self.parts,
            range: self.range.start..end,
        };
        end <= self.range.end && to.each(|at, place| mem.write_slice(&from[place], at).is_ok())
    }
}

/// What the request in this memory asks of a volume of so many bytes, and the data that it brings.
///
/// # Errors
/// The status with which the request ends.
pub(super) fn task<'a>(
    mem: &GuestMemoryMmap,
    parts: &'a [Part],
    volume: u64,
) -> Result<(Task, Data<'a>), u8> {
    let (to_read, to_write) = split(parts);
    let part = |range| Data {
        parts: to_read,
        range,
    };
    let (start, end) = (HEADER as u64, bytes(to_read));
    let mut header = [0; HEADER];
    if end < start || !part(0..start).copy_to(mem, &mut header) {
        return Err(status::ERROR);
    }
    let [k0, k1, k2, k3, _, _, _, _, sector @ ..] = header;
    let data = part(start..end);
    let io = |op, len: u64| {
        let at = extent(u64::from_le_bytes(sector), len / SECTOR, volume)?;
        let fits = len > 0 && len.is_multiple_of(SECTOR) && len <= u64::from(DATA_MAX);
        fits.then_some(Task::Io(op, at.0, len as u32))
            .ok_or(status::ERROR)
    };
    let task = match u32::from_le_bytes([k0, k1, k2, k3]) {
        0 => io(RequestOp::Read, bytes(to_write).saturating_sub(1))?,
        1 => io(RequestOp::Write, data.len())?,
        4 => Task::Io(RequestOp::Flush, 0, 0),
        8 => Task::Name,
        kind @ (11 | 13) => ranges(mem, &data, kind == 11, volume)?,
        _ => return Err(status::UNSUPPORTED),
    };
    Ok((task, data))
}

/// First byte and length of sectors that the volume has.
fn extent(sector: u64, sectors: u64, volume: u64) -> Result<(u64, u64), u8> {
    let end = sector.checked_add(sectors);
    let is_inside = end.is_some_and(|end| end <= volume / SECTOR);
    is_inside
        .then_some((sector.wrapping_mul(SECTOR), sectors * SECTOR))
        .ok_or(status::ERROR)
}

fn ranges(
    mem: &GuestMemoryMmap,
    data: &Data<'_>,
    is_discard: bool,
    volume: u64,
) -> Result<Task, u8> {
    let mut list = [0; RANGES * RANGE_BYTES];
    let len = data.len() as usize;
    let list = list.get_mut(..len).ok_or(status::ERROR)?;
    let (all, []) = list.as_chunks::<RANGE_BYTES>() else {
        return Err(status::ERROR);
    };
    if all.is_empty() || !data.copy_to(mem, list) {
        return Err(status::ERROR);
    }
    let mut ranges = Vec::with_capacity(RANGES);
    let mut frees = true;
    for range in list.as_chunks::<RANGE_BYTES>().0 {
        let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, flags @ ..] = *range;
        let sectors = u32::from_le_bytes([n0, n1, n2, n3]);
        // The only flag says that zeros may free space.
        match (u32::from_le_bytes(flags), is_discard) {
            (0, true) | (1, false) => {}
            (0, false) => frees = false,
            _ => return Err(status::UNSUPPORTED),
        }
        if sectors > RANGE_SECTORS {
            return Err(status::ERROR);
        }
        let sector = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        ranges.push(extent(sector, sectors.into(), volume)?);
    }
    let op = if is_discard {
        RequestOp::Discard
    } else {
        RequestOp::WriteZeroes { keep: !frees }
    };
    Ok(Task::Ranges(op, ranges))
}

/// The name of the device: the first digits of the volume's identity.
pub(super) fn name(uuid: [u8; 16]) -> [u8; ID_BYTES] {
    let mut name = [0; ID_BYTES];
    let digits = crate::config::format_uuid(&uuid).replace('-', "");
    for (to, from) in name.iter_mut().zip(digits.bytes()) {
        *to = from;
    }
    name
}
