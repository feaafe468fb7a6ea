//! Commands of SPC-4 and SBC-3, and their errors. No I/O.

pub use super::disk::{Disk, MAX_RANGES, MAX_TRANSFER, MAX_UNMAP};
use super::pdu::{u32_at, u64_at};
use super::reservations::PARAMETERS;
pub use super::sense::{SENSE, Sense};

/// Maximum amount of data that is compared with data from an initiator, in bytes.
pub const MAX_COMPARE: u32 = 256 << 10;
/// A range of the disk, with the attributes of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// The data must be durable before the reply.
    pub fua: bool,
    /// The group number, 0 to 31.
    pub class: u8,
}

/// A decoded command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// The answer is known at once; at most this many bytes of it are sent.
    Say(Vec<u8>, usize),
    /// Nothing needs to be done; the answer has no data.
    Nothing,
    /// Send these bytes.
    Read(Extent),
    /// Take these bytes.
    Write(Extent),
    /// Checks that these bytes are readable.
    Verify(Extent),
    /// Compares these bytes with the data that follows.
    Compare(Extent),
    /// Make everything durable.
    Flush {
        /// The group number.
        class: u8,
    },
    /// Unmaps ranges, which follow as this many bytes of data.
    Unmap {
        /// Bytes of data.
        data: u32,
        /// The group number.
        class: u8,
    },
    /// Writes one block, which follows, to all blocks of the range.
    WriteSame {
        /// The range.
        extent: Extent,
        /// No block follows; zeros are written.
        zeros: bool,
        /// The space may be freed.
        unmap: bool,
    },
    /// Reports the reservation and its holder.
    ReserveIn {
        /// Service action.
        action: u8,
        /// Maximum size of the answer in bytes.
        room: usize,
    },
    /// Registers, reserves or removes; [`PARAMETERS`] bytes follow.
    ReserveOut {
        /// Service action.
        action: u8,
        /// Scope and type.
        scope_type: u8,
    },
    /// Reports which blocks are mapped, beginning with this byte.
    Status {
        /// First byte.
        offset: u64,
        /// Maximum size of the answer in bytes.
        room: usize,
    },
}

impl Task {
    /// Number of bytes that the initiator sends with the command.
    pub fn data_in(&self, block: u32) -> u32 {
        match self {
            Task::Write(e) | Task::Compare(e) => e.len,
            Task::Unmap { data, .. } => *data,
            Task::ReserveOut { .. } => PARAMETERS as u32,
            Task::WriteSame { zeros: false, .. } => block,
            _ => 0,
        }
    }
}

fn u16_at(b: &[u8], at: usize) -> u32 {
    u32::from(b[at]) << 8 | u32::from(b[at + 1])
}

/// The blocks that a command names.
struct Blocks {
    lba: u64,
    count: u32,
    flags: u8,
    group: u8,
}

impl Blocks {
    /// Reads the fields; their places depend on the length of the command, which its first byte determines.
    fn of(cdb: &[u8; 16]) -> Blocks {
        let (lba, count, group) = match cdb[0] >> 5 {
            0 => {
                let lba = u32_at(cdb, 0) & 0x1f_ffff;
                let count = if cdb[4] == 0 { 256 } else { u32::from(cdb[4]) };
                return Blocks {
                    lba: lba.into(),
                    count,
                    flags: 0,
                    group: 0,
                };
            }
            4 => (u64_at(cdb, 2), u32_at(cdb, 10), cdb[14]),
            5 => (u32_at(cdb, 2).into(), u32_at(cdb, 6), cdb[10]),
            _ => (u32_at(cdb, 2).into(), u16_at(cdb, 7), cdb[6]),
        };
        Blocks {
            lba,
            count,
            flags: cdb[1],
            group: group & 0x1f,
        }
    }

    /// The range, if it is on the disk and not too long.
    fn extent(&self, disk: &Disk, most: u64) -> Result<Extent, Sense> {
        let end = self.lba.checked_add(self.count.into());
        if self.lba > disk.blocks() || end.is_none_or(|e| e > disk.blocks()) {
            return Err(Sense::RANGE);
        }
        let bytes = u64::from(self.count) * u64::from(disk.block);
        if bytes > most {
            return Err(Sense::FIELD);
        }
        Ok(Extent {
            offset: self.lba * u64::from(disk.block),
            len: bytes as u32,
            fua: self.flags & 8 != 0,
            class: self.group,
        })
    }
}

/// Decodes a command to the disk.
///
/// # Errors
/// The sense data for the initiator.
pub fn task(disk: &Disk, cdb: &[u8; 16]) -> Result<Task, Sense> {
    let writes = matches!(
        cdb[0],
        0x0a | 0x2a | 0x8a | 0xaa | 0x2e | 0x8e | 0xae | 0x41 | 0x93 | 0x42
    );
    let task = match cdb[0] {
        0x00 | 0x1b => Task::Nothing, // TEST UNIT READY; START STOP UNIT: the disk has no motor to start or stop.
        0x03 => Task::Say(Sense(0, 0, 0).bytes().to_vec(), usize::from(cdb[4])),
        0x12 => Task::Say(super::vpd::inquiry(disk, cdb)?, u16_at(cdb, 3) as usize),
        0x1a => Task::Say(super::vpd::mode_sense(disk, cdb)?, usize::from(cdb[4])),
        0x5a => Task::Say(super::vpd::mode_sense(disk, cdb)?, u16_at(cdb, 7) as usize),
        0x25 => Task::Say(super::vpd::capacity_10(disk, cdb)?, 8),
        0x9e => match cdb[1] & 0x1f {
            0x10 => Task::Say(super::vpd::capacity_16(disk), u32_at(cdb, 10) as usize),
            0x12 => status(disk, cdb)?,
            _ => return Err(Sense::FIELD),
        },
        0xa0 => Task::Say(super::vpd::report_luns(cdb)?, u32_at(cdb, 6) as usize),
        0x08 | 0x28 | 0x88 | 0xa8 => Task::Read(moved(disk, cdb)?),
        0x0a | 0x2a | 0x8a | 0xaa => Task::Write(moved(disk, cdb)?),
        // WRITE AND VERIFY is executed as a durable write; the verification is left to the checks of the members.
        0x2e | 0x8e | 0xae => {
            let e = verified(disk, cdb, MAX_TRANSFER)?;
            Task::Write(Extent { fua: true, ..e })
        }
        0x2f | 0x8f | 0xaf if cdb[1] & 2 != 0 => Task::Compare(verified(disk, cdb, MAX_COMPARE)?),
        0x2f | 0x8f | 0xaf => Task::Verify(verified(disk, cdb, MAX_TRANSFER)?),
        0x35 | 0x91 => {
            let b = Blocks::of(cdb);
            b.extent(disk, u64::MAX)?;
            Task::Flush { class: b.group }
        }
        0x42 => Task::Unmap {
            data: u16_at(cdb, 7),
            class: cdb[6] & 0x1f,
        },
        0x41 | 0x93 => write_same(disk, cdb)?,
        0x5e => Task::ReserveIn {
            action: cdb[1] & 0x1f,
            room: u16_at(cdb, 7) as usize,
        },
        // Parameter lists with other ports, which would be longer, are not supported.
        0x5f if u32_at(cdb, 5) != PARAMETERS as u32 => return Err(Sense::LENGTH),
        0x5f => Task::ReserveOut {
            action: cdb[1] & 0x1f,
            scope_type: cdb[2],
        },
        // Legacy RESERVE and RELEASE (16, 17, 56, 57) are among these: see docs/serving.md.
        _ => return Err(Sense::OPCODE),
    };
    if writes && disk.read_only {
        return Err(Sense::PROTECTED);
    }
    Ok(task)
}

/// The range of a read or write. Protection information is not stored, so a request for it is an error.
fn moved(disk: &Disk, cdb: &[u8; 16]) -> Result<Extent, Sense> {
    if cdb[0] >= 0x20 && cdb[1] & 0xe0 != 0 {
        return Err(Sense::FIELD);
    }
    Blocks::of(cdb).extent(disk, MAX_TRANSFER.into())
}

fn verified(disk: &Disk, cdb: &[u8; 16], most: u32) -> Result<Extent, Sense> {
    // BYTCHK 0 (check the medium) and 1 (compare with the data) are supported, 3 (compare many blocks with one) is not.
    if cdb[1] & 0xe4 != 0 {
        return Err(Sense::FIELD);
    }
    Blocks::of(cdb).extent(disk, most.into())
}

fn write_same(disk: &Disk, cdb: &[u8; 16]) -> Result<Task, Sense> {
    let b = Blocks::of(cdb);
    let is_16 = cdb[0] == 0x93;
    let zeros = is_16 && cdb[1] & 1 != 0;
    let unmap = cdb[1] & 8 != 0;
    // Protection information, anchors, and counts that mean the rest of the disk are not supported.
    if cdb[1] & 0xf6 != 0 || b.count == 0 {
        return Err(Sense::FIELD);
    }
    let extent = Extent {
        fua: false,
        ..b.extent(disk, MAX_TRANSFER.into())?
    };
    Ok(Task::WriteSame {
        extent,
        zeros,
        unmap,
    })
}

fn status(disk: &Disk, cdb: &[u8; 16]) -> Result<Task, Sense> {
    let lba = u64_at(cdb, 2);
    if lba >= disk.blocks() {
        return Err(Sense::RANGE);
    }
    Ok(Task::Status {
        offset: lba * u64::from(disk.block),
        room: u32_at(cdb, 10) as usize,
    })
}

/// The ranges of an unmap's data, as bytes.
///
/// # Errors
/// Lengths contradict each other, exceed the announced limits, or a range goes beyond the last block.
pub fn unmap_ranges(disk: &Disk, data: &[u8]) -> Result<Vec<(u64, u64)>, Sense> {
    if data.is_empty() {
        return Ok(Vec::new());
    }
    if data.len() < 8 {
        return Err(Sense::LENGTH);
    }
    let said = u16_at(data, 2) as usize;
    if !said.is_multiple_of(16) || said > data.len() - 8 {
        return Err(Sense::PARAMETER);
    }
    if said / 16 > MAX_RANGES {
        return Err(Sense::PARAMETER);
    }
    let (mut ranges, mut all) = (Vec::new(), 0u64);
    for d in data[8..8 + said].chunks_exact(16) {
        let (lba, count) = (u64_at(d, 0), u64::from(u32_at(d, 8)));
        if lba.checked_add(count).is_none_or(|e| e > disk.blocks()) {
            return Err(Sense::RANGE);
        }
        let bytes = count * u64::from(disk.block);
        all += bytes;
        if all > MAX_UNMAP {
            return Err(Sense::PARAMETER);
        }
        if count > 0 {
            ranges.push((lba * u64::from(disk.block), bytes));
        }
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    pub(super) fn disk() -> Disk {
        Disk {
            name: "v".into(),
            target: "iqn.2026-01.org.example:v".into(),
            uuid: [1; 16],
            present_blocks: AtomicU64::new(1 << 20),
            block: 512,
            preferred: 64 << 10,
            read_only: false,
            zeros: true,
        }
    }

    fn cdb(bytes: &[u8]) -> [u8; 16] {
        let mut c = [0; 16];
        c[..bytes.len()].copy_from_slice(bytes);
        c
    }

    #[test]
    fn every_length_of_read_and_write_names_the_same_blocks() {
        let extent = |fua, class| Extent {
            offset: 7 * 512,
            len: 3 * 512,
            fua,
            class,
        };
        for (bytes, want) in [
            (&[0x08, 0, 0, 7, 3, 0][..], Task::Read(extent(false, 0))),
            (
                &[0x28, 0, 0, 0, 0, 7, 0x25, 0, 3, 0],
                Task::Read(extent(false, 5)),
            ),
            (
                &[0x2a, 8, 0, 0, 0, 7, 31, 0, 3, 0],
                Task::Write(extent(true, 31)),
            ),
            (
                &[0xaa, 8, 0, 0, 0, 7, 0, 0, 0, 3, 9, 0],
                Task::Write(extent(true, 9)),
            ),
            (
                &[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 3, 1, 0],
                Task::Write(extent(false, 1)),
            ),
        ] {
            assert_eq!(task(&disk(), &cdb(bytes)), Ok(want), "{bytes:x?}");
        }
        let six = Blocks::of(&cdb(&[0x08, 0, 0, 7, 0, 0]));
        assert_eq!(six.count, 256, "0 means 256 there");
    }

    #[test]
    fn what_is_not_there_or_too_much_is_refused() {
        let last = [0x28, 0, 0, 0x0f, 0xff, 0xff, 0, 0, 1, 0];
        assert!(task(&disk(), &cdb(&last)).is_ok());
        for (bytes, want) in [
            (
                &[0x28, 0, 0, 0x0f, 0xff, 0xff, 0, 0, 2, 0][..],
                Sense::RANGE,
            ),
            (&[0x28, 0, 0, 0x10, 0, 1, 0, 0, 0, 0], Sense::RANGE),
            (
                &[0x88, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 9],
                Sense::RANGE,
            ),
            (&[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], Sense::FIELD),
            (&[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0], Sense::FIELD),
            (&[0x16, 0, 0, 0, 0, 0], Sense::OPCODE),
            (&[0x5f, 0, 0, 0, 0, 0, 0, 0, 25, 0], Sense::LENGTH),
            (&[0x93, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Sense::FIELD),
        ] {
            assert_eq!(task(&disk(), &cdb(bytes)), Err(want), "{bytes:x?}");
        }
        let protected = Disk {
            read_only: true,
            ..disk()
        };
        let write = cdb(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(task(&protected, &write), Err(Sense::PROTECTED));
    }

    #[test]
    fn ranges_of_an_unmap_are_checked_before_any_is_given_up() {
        let list = |ranges: &[(u64, u32)]| {
            let n = ranges.len() as u16 * 16;
            let mut b = vec![0; 8];
            b[..2].copy_from_slice(&(n + 6).to_be_bytes());
            b[2..4].copy_from_slice(&n.to_be_bytes());
            for (lba, count) in ranges {
                b.extend_from_slice(&lba.to_be_bytes());
                b.extend_from_slice(&count.to_be_bytes());
                b.extend_from_slice(&[0; 4]);
            }
            b
        };
        assert_eq!(
            unmap_ranges(&disk(), &list(&[(1, 2), (9, 0), (8, 1)])),
            Ok(vec![(512, 1024), (4096, 512)])
        );
        assert_eq!(
            unmap_ranges(&disk(), &list(&[(1, 2), (1 << 20, 1)])),
            Err(Sense::RANGE)
        );
        assert_eq!(unmap_ranges(&disk(), &[0; 5]), Err(Sense::LENGTH));
        let mut cut = list(&[(1, 2), (3, 4)]);
        cut.pop();
        assert_eq!(unmap_ranges(&disk(), &cut), Err(Sense::PARAMETER));
        let many = vec![(0, 1); MAX_RANGES + 1];
        assert_eq!(unmap_ranges(&disk(), &list(&many)), Err(Sense::PARAMETER));
    }
}
