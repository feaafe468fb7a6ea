//! Makes a part of a device read as zeros.

use super::Device;
use crate::buffers::ALIGNMENT;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are cleared with one system call, after which progress is reported.
const CLEAR_STEP: u64 = 1 << 30;
/// Bytes of zeros that are written with one system call.
const WRITE_STEP: usize = 1 << 20;

impl Device {
    /// Makes the bytes from `from` on, and before `to`, read as zeros. Where the device can, nothing is written and the space is given back; else
    /// zeros are written, which takes a disk hours. `progress` is told the bytes that are done and their number.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn clear(&self, from: u64, to: u64, progress: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        let (mut at, to) = (from, to.min(self.bytes));
        let ways = [
            Some(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
            Some(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE),
            None,
        ];
        let mut ways = ways.into_iter();
        let mut way = ways.next().flatten();
        while at < to {
            let len = (to - at).min(CLEAR_STEP);
            let done = match way {
                Some(how) => {
                    let call = || rustix::fs::fallocate(&self.file, how, at, len);
                    rustix::io::retry_on_intr(call)
                }
                None => return self.write_zeros(at, to, progress),
            };
            match done {
                Ok(()) => {
                    at += len;
                    progress(at - from, to - from);
                }
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL) => {
                    way = ways.next().flatten();
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn write_zeros(
        &self,
        from: u64,
        to: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> io::Result<()> {
        // Direct I/O needs aligned memory.
        let memory = vec![0; WRITE_STEP + ALIGNMENT];
        let zeros = &memory[memory.as_ptr().align_offset(ALIGNMENT)..][..WRITE_STEP];
        let mut at = from;
        while at < to {
            let n = (to - at).min(zeros.len() as u64);
            self.file.write_all_at(&zeros[..n as usize], at)?;
            at += n;
            progress(at - from, to - from);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Device, OpenHow};
    use super::WRITE_STEP;
    use std::io;

    type Way = fn(&Device, u64, u64, &mut dyn FnMut(u64, u64)) -> io::Result<()>;

    /// Each way clears exactly the bytes that it is told, whether they are many steps or a part of one, and tells how far it is.
    #[test]
    fn only_what_is_asked_for_is_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let all = 3 * WRITE_STEP + 5 * 4096;
        let ends = [
            (0, all),
            (4096, all - 4096),
            (3 * 4096, 4 * 4096),
            (WRITE_STEP, 2 * WRITE_STEP),
            (8192, 8192),
        ];
        let ways: [(&str, Way); 2] = [
            ("clear", |d, from, to, told| d.clear(from, to, told)),
            ("zeros", |d, from, to, told| d.write_zeros(from, to, told)),
        ];
        for (name, way) in ways {
            for (from, to) in ends {
                std::fs::write(&path, vec![0xab; all]).unwrap();
                let device = Device::open(&path, OpenHow::default()).unwrap();
                let mut told = Vec::new();
                way(&device, from as u64, to as u64, &mut |done, of| {
                    told.push((done, of));
                })
                .unwrap();
                drop(device);
                let bytes = std::fs::read(&path).unwrap();
                assert_eq!(bytes.len(), all, "{name} {from} {to}");
                for (at, byte) in bytes.into_iter().enumerate() {
                    let expected = if at >= from && at < to { 0 } else { 0xab };
                    assert_eq!(byte, expected, "{name} {from} {to}: byte {at}");
                }
                let len = (to - from) as u64;
                let last = (len > 0).then_some((len, len));
                assert_eq!(told.last().copied(), last, "{name} {from} {to}");
                let grows = told.windows(2).all(|w| w[0].0 < w[1].0);
                assert!(grows && told.iter().all(|t| t.1 == len), "{told:?}");
            }
        }
    }

    /// What lies past the end of the device is not cleared, and the device gets no longer.
    #[test]
    fn the_end_of_the_device_is_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        std::fs::write(&path, vec![0xab; 64 << 10]).unwrap();
        let device = Device::open(&path, OpenHow::default()).unwrap();
        device.clear(60 << 10, 1 << 20, &mut |_, _| {}).unwrap();
        drop(device);
        let bytes = std::fs::read(&path).unwrap();
        let zeros = bytes.iter().rev().take_while(|&&b| b == 0).count();
        assert_eq!((bytes.len(), zeros), (64 << 10, 4 << 10));
    }
}
