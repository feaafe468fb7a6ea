//! The tail device: a small device that continues a disk which was adopted whole, because its file system reaches to its end and cannot
//! shrink. Stash, mark and second superblock of the disk are there.
//!
//! ```text
//!  data device                     tail device
//!  0                    data bytes │ 0       4096                       tail bytes
//!  │ the member's bytes 0 … ───────│ label │ ── … the member's last bytes │
//! ```
//! To the engine and the store both are one member (`device/joined.rs`). The label tells whose tail it is, and where the member continues.

use crate::device::{Device, OpenHow};
use crate::error::{Error, ErrorKind};
use crate::members::probe::open_quietly;
use crate::{MemberConfig, stack};
use isotherm_core::crc32c::crc32c;
use isotherm_core::store::BLOCK;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Length of the label, at byte 0 of the tail device.
pub const LABEL_BYTES: u64 = BLOCK as u64;
/// The first bytes of a label.
pub(crate) const MAGIC: [u8; 8] = *b"ISOTTAIL";
const VERSION: u32 = 1;

/// What a tail device states about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// Identity of the volume.
    pub volume: [u8; 16],
    /// Identity of the member.
    pub member: [u8; 16],
    /// Bytes of the data device that belong to the member, a multiple of 4096: there the member continues on the tail device.
    pub data_bytes: u64,
    /// Bytes of the tail device that are used, with the label.
    pub tail_bytes: u64,
}

impl Label {
    /// The label of a pair of devices of these sizes, before there is a volume.
    pub(crate) fn of_sizes(data: u64, tail: u64) -> Label {
        let whole = |bytes: u64| bytes / LABEL_BYTES * LABEL_BYTES;
        Label {
            data_bytes: whole(data),
            tail_bytes: whole(tail).max(LABEL_BYTES),
            ..Label::default()
        }
    }

    /// Size of the member that both devices are.
    pub(crate) fn member_bytes(&self) -> u64 {
        self.data_bytes + (self.tail_bytes - LABEL_BYTES)
    }

    /// As it lies on the device.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK] {
        let mut b = [0; BLOCK];
        b[..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[16..32].copy_from_slice(&self.volume);
        b[32..48].copy_from_slice(&self.member);
        b[48..56].copy_from_slice(&self.data_bytes.to_le_bytes());
        b[56..64].copy_from_slice(&self.tail_bytes.to_le_bytes());
        let sum = crc32c(&b);
        b[12..16].copy_from_slice(&sum.to_le_bytes());
        b
    }

    /// The label in the first block of a device. `None`: there is none, or it is damaged, or of a later version.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Label> {
        let mut b: [u8; BLOCK] = block.get(..BLOCK)?.try_into().ok()?;
        let word = |b: &[u8], at: usize| Some(u32::from_le_bytes(b[at..at + 4].try_into().ok()?));
        let long = |b: &[u8], at: usize| Some(u64::from_le_bytes(b[at..at + 8].try_into().ok()?));
        let sum = word(&b, 12)?;
        b[12..16].fill(0);
        let whole = b[..8] == MAGIC && word(&b, 8)? == VERSION && crc32c(&b) == sum;
        let label = Label {
            volume: b[16..32].try_into().ok()?,
            member: b[32..48].try_into().ok()?,
            data_bytes: long(&b, 48)?,
            tail_bytes: long(&b, 56)?,
        };
        let sane = |n: u64| n.is_multiple_of(LABEL_BYTES) && (LABEL_BYTES..1 << 62).contains(&n);
        (whole && sane(label.data_bytes) && sane(label.tail_bytes)).then_some(label)
    }

    /// The label on the device or file at `path`, without a lock. `None`: there is none.
    ///
    /// # Errors
    /// It cannot be opened or read.
    pub fn read(path: &Path) -> io::Result<Option<Label>> {
        stack::reachable(path)?;
        let file = open_quietly(path)?;
        let mut block = crate::buffers::Buffer::new(0, BLOCK as u32, BLOCK as u32);
        match file.read_exact_at(&mut block, 0) {
            Ok(()) => Ok(Label::decode(&block)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Whether a first block is that of a tail device, whole or damaged.
pub(crate) fn is_label(block: &[u8]) -> bool {
    block.starts_with(&MAGIC)
}

fn refused(data: &Path, tail: &Path, kind: ErrorKind, what: impl std::fmt::Display) -> Error {
    let (data, tail) = (data.display(), tail.display());
    Error::new(kind, format!("{data} with its tail {tail}: {what}"))
}

/// Opens and locks a member that is in the description: its device, and its tail if it has one. `volume` is the identity that the label must
/// state.
///
/// # Errors
/// As [`Device::open`]; or the tail is missing, is another one, or one of both devices has become shorter.
pub fn open_member(
    m: &MemberConfig,
    volume: Option<[u8; 16]>,
    how: OpenHow,
) -> Result<Device, Error> {
    let Some(path) = &m.tail else {
        return Device::open(&m.path, how);
    };
    let both = |e: Error| {
        Error::new(
            e.kind,
            format!(
                "{} with its tail {}: both are needed: {e}",
                m.path.display(),
                path.display()
            ),
        )
    };
    let data = Device::open(&m.path, how).map_err(both)?;
    let tail = Device::open(path, how).map_err(both)?;
    let bad = |kind, what: String| Err(refused(&m.path, path, kind, what));
    let mut block = crate::buffers::Buffer::new(0, BLOCK as u32, BLOCK as u32);
    if let Err(e) = tail.past_cache.read_exact_at(&mut block, 0) {
        return bad(
            ErrorKind::Device,
            format!("its label cannot be read: {e}: check the device"),
        );
    }
    let Some(label) = Label::decode(&block) else {
        return bad(
            ErrorKind::Volume,
            "the tail carries no label of a tail, or a damaged one: attach the right device, or correct `tail` in the description".into(),
        );
    };
    if volume.is_some_and(|v| v != label.volume) {
        let of = crate::config::format_uuid(&label.volume);
        return bad(
            ErrorKind::Volume,
            format!(
                "the tail belongs to volume {of}, not to this one: attach the tail of this volume"
            ),
        );
    }
    for (device, is, least) in [
        (&data, "the data device", label.data_bytes),
        (&tail, "the tail", label.tail_bytes),
    ] {
        if device.bytes < least {
            let what = format!(
                "{is} has {} bytes, and {least} are used: it was cut short, or is another device: give it its size back",
                device.bytes
            );
            return bad(ErrorKind::Device, what);
        }
    }
    Ok(data.join(tail, label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_as_it_was_written_and_no_other_is() {
        let label = Label {
            volume: [1; 16],
            member: [2; 16],
            data_bytes: 5 << 30,
            tail_bytes: 8 << 20,
        };
        let block = label.encode();
        assert_eq!(Label::decode(&block), Some(label));
        assert_eq!(label.member_bytes(), (5 << 30) + (8 << 20) - 4096);
        for at in [0, 8, 12, 16, 40, 50, 60, 4000] {
            let mut other = block;
            other[at] ^= 1;
            assert_eq!(Label::decode(&other), None, "byte {at}");
        }
        assert_eq!(Label::decode(&block[..4000]), None);
        let odd = Label {
            data_bytes: 1000,
            ..label
        };
        assert_eq!(Label::decode(&odd.encode()), None);
        assert_eq!(Label::of_sizes(10_000, 100).data_bytes, 8192);
    }
}
