//! A member of two devices: a data device, and behind its bytes those of its tail device (`tail.rs`).

use super::{Device, bytes_of};
use crate::mutants::{LiveMutant, broken};
use crate::tail::{LABEL_BYTES, Label};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The second device of a member.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The tail device.
    pub tail: Device,
    /// What its label states.
    pub label: Label,
    /// Bytes of the data device alone.
    own_bytes: u64,
}

/// A range of a member that lies on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Whether it is on the tail device.
    pub on_tail: bool,
    /// Its first byte there.
    pub at: u64,
    /// Its length; that of the whole range, unless this continues on the tail device.
    pub len: u64,
}

/// The first part of `len` bytes from byte `at` of a member that continues on its tail device at byte `boundary`.
pub(crate) fn first_part(boundary: Option<u64>, at: u64, len: u64) -> Part {
    match boundary {
        Some(boundary) if at >= boundary => Part {
            on_tail: true,
            at: at - boundary + LABEL_BYTES,
            len,
        },
        Some(boundary) => Part {
            on_tail: false,
            at,
            len: len.min(boundary - at),
        },
        None => Part {
            on_tail: false,
            at,
            len,
        },
    }
}

impl Device {
    /// This device and behind it `tail`, as one.
    pub(crate) fn join(mut self, tail: Device, label: Label) -> Device {
        let own_bytes = self.bytes;
        self.bytes = label.member_bytes();
        self.align = self.align.max(tail.align);
        self.direct &= tail.direct;
        self.note = self.note.take().or_else(|| tail.note.clone());
        self.joined = Some(Box::new(Joined {
            tail,
            label,
            own_bytes,
        }));
        self
    }

    /// Bytes of the device itself, without a tail device.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.joined.as_ref().map_or(self.bytes, |j| j.own_bytes)
    }

    /// Its size in bytes now, which may differ from the one when it was opened.
    ///
    /// # Errors
    /// The system does not tell it.
    pub fn present_bytes(&self) -> io::Result<u64> {
        match &self.joined {
            Some(j) => Ok(j.label.member_bytes()),
            None => bytes_of(&self.file),
        }
    }

    /// The tail device, if there is one.
    #[must_use]
    pub fn tail(&self) -> Option<&Device> {
        self.joined.as_ref().map(|j| &j.tail)
    }

    /// The byte at which the member continues on its tail device, if it has one.
    pub(crate) fn boundary(&self) -> Option<u64> {
        self.joined.as_ref().map(|j| j.label.data_bytes)
    }

    /// Its paths, for people.
    #[must_use]
    pub fn names(&self) -> String {
        let tail = self.tail().map(|t| format!(" + {}", t.path.display()));
        format!("{}{}", self.path.display(), tail.unwrap_or_default())
    }

    /// Calls `f` with each part of a range: its device, the first byte there, and its place in the range.
    fn each_part(
        &self,
        at: u64,
        len: u64,
        mut f: impl FnMut(&Device, u64, Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let part = first_part(self.boundary(), at + done, len - done);
            let device = self.tail().filter(|_| part.on_tail).unwrap_or(self);
            f(device, part.at, done as usize..(done + part.len) as usize)?;
            done += part.len;
        }
        Ok(())
    }

    /// The parts of a range of the member that lie on its devices.
    pub(super) fn parts(&self, range: Range<u64>) -> Vec<(&Device, Range<u64>)> {
        let mut parts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let part = first_part(self.boundary(), at, range.end - at);
            let device = self.tail().filter(|_| part.on_tail).unwrap_or(self);
            parts.push((device, part.at..part.at + part.len));
            at += part.len;
        }
        parts
    }

    /// Fills `buf` with the data from byte `at` on.
    ///
    /// # Errors
    /// A device fails, or the member ends before.
    pub fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.each_part(at, buf.len() as u64, |device, at, range| {
            device.file.read_exact_at(&mut buf[range], at)
        })
    }

    /// Writes `buf` to byte `at` and what follows.
    ///
    /// # Errors
    /// A device fails.
    pub fn write_all_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        let done = self.each_part(at, buf.len() as u64, |device, at, range| {
            device.file.write_all_at(&buf[range], at)
        });
        self.note_write(at, buf.len());
        done
    }

    /// As [`Device::read_exact_at`], past the page cache.
    pub(crate) fn read_past_cache(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.each_part(at, buf.len() as u64, |device, at, range| {
            device.past_cache.read_exact_at(&mut buf[range], at)
        })
    }

    /// As [`Device::write_all_at`], past the page cache.
    pub(crate) fn write_past_cache(&self, buf: &[u8], at: u64) -> io::Result<()> {
        let done = self.each_part(at, buf.len() as u64, |device, at, range| {
            device.past_cache.write_all_at(&buf[range], at)
        });
        self.note_write(at, buf.len());
        done
    }

    /// Makes what was written durable, on both devices.
    ///
    /// # Errors
    /// A device fails.
    pub fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        match self.tail() {
            Some(tail) if !broken(LiveMutant::FlushDataAlone) => tail.file.sync_data(),
            _ => Ok(()),
        }
    }

    /// Writes the label of the tail device, durably.
    pub(crate) fn write_label(&self, volume: [u8; 16], member: [u8; 16]) -> io::Result<()> {
        let put = |j: &Joined| {
            let label = Label {
                volume,
                member,
                ..j.label
            };
            j.put(&label.encode())
        };
        self.joined.as_deref().map_or(Ok(()), put)
    }

    /// Erases the label of the tail device, durably.
    pub(crate) fn erase_label(&self) -> io::Result<()> {
        let zeros = [0; LABEL_BYTES as usize];
        self.joined.as_ref().map_or(Ok(()), |j| j.put(&zeros))
    }
}

impl Joined {
    fn put(&self, block: &[u8]) -> io::Result<()> {
        let bytes = block.len() as u32;
        let mut aligned = crate::buffers::Buffer::new(0, bytes, bytes);
        aligned.copy_from_slice(block);
        self.tail.past_cache.write_all_at(&aligned, 0)?;
        self.tail.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::OpenHow;

    const CUT: u64 = 5 << 12;

    fn pair(dir: &std::path::Path) -> Device {
        let open = |name: &str, bytes| {
            let how = OpenHow {
                create: Some(bytes),
                ..OpenHow::default()
            };
            Device::open(&dir.join(name), how).unwrap()
        };
        let (data, tail) = (open("data", CUT + 512), open("tail", 4 << 12));
        let label = Label::of_sizes(data.bytes, tail.bytes);
        data.join(tail, label)
    }

    #[test]
    fn a_range_is_cut_where_the_tail_begins() {
        let part = |at, len| {
            let p = first_part(Some(8192), at, len);
            (p.on_tail, p.at, p.len)
        };
        assert_eq!(part(0, 8192), (false, 0, 8192));
        assert_eq!(part(4096, 8192), (false, 4096, 4096));
        assert_eq!(part(8192, 4096), (true, 4096, 4096));
        assert_eq!(part(12288, 4096), (true, 8192, 4096));
        assert_eq!(first_part(None, 7, 9).len, 9);
    }

    #[test]
    fn both_devices_are_one_member() {
        let dir = tempfile::tempdir().unwrap();
        let device = pair(dir.path());
        assert_eq!((device.bytes, device.own_bytes()), (8 << 12, CUT + 512));
        device.write_label([1; 16], [2; 16]).unwrap();
        let mut buf = crate::buffers::Buffer::new(0, 16384, 4096);
        buf.fill(7);
        device.write_past_cache(&buf[..8192], CUT - 4096).unwrap();
        device.write_all_at(&buf[..4096], CUT + 8192).unwrap();
        device.sync_data().unwrap();
        buf.fill(0);
        device.read_exact_at(&mut buf, CUT - 4096).unwrap();
        assert!(buf[..8192].iter().all(|&b| b == 7) && buf[8192..12288].iter().all(|&b| b == 0));
        assert!(buf[12288..].iter().all(|&b| b == 7));
        assert!(device.read_past_cache(&mut buf, 7 << 12).is_err());
        let (data, tail) = (dir.path().join("data"), dir.path().join("tail"));
        let data = std::fs::read(data).unwrap();
        assert!(
            data[CUT as usize - 4096..CUT as usize]
                .iter()
                .all(|&b| b == 7)
        );
        assert!(data[CUT as usize..].iter().all(|&b| b == 0));
        let label = Label::read(&tail).unwrap().unwrap();
        assert_eq!((label.volume, label.data_bytes), ([1; 16], CUT));
        device.erase_label().unwrap();
        assert_eq!(Label::read(&tail).unwrap(), None);
    }
}
