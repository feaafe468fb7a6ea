//! Synchronous metadata I/O for creation, recovery and marking a volume clean.

use crate::buffers::{ALIGNMENT, Buffer};
use crate::device::Device;
use crate::mutants::{LiveMutant, broken};
use crate::vitals::{Board, Deed};
use crate::volume::ask_for_huge;
use isotherm_core::MemberId;
#[cfg(doc)]
use isotherm_core::store;
use isotherm_core::store::superblock::SuperblockError;
use isotherm_core::store::{BLOCK, Media, MediaError};
use isotherm_core::volume::ExtentMap;
use rustix::io::Errno;
use std::io;

/// Bytes of the aligned bounce buffer, which is the size of one read of recovery.
const BOUNCE: usize = 1 << 20;

fn unreadable(error: Errno) -> SuperblockError {
    SuperblockError::Unreadable(error.raw_os_error())
}

/// The reason why there is no superblock where a read gave this error.
pub(crate) fn because(error: &io::Error) -> SuperblockError {
    unreadable(Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// Whether a transfer consists of blocks that every device takes with direct I/O, as all metadata does.
fn whole_blocks(at: u64, bytes: usize) -> bool {
    at.is_multiple_of(BLOCK as u64) && bytes.is_multiple_of(BLOCK)
}

/// Members as [`Media`]. Every access to a missing member fails.
pub struct FileMedia<'a> {
    devices: &'a [Option<Device>],
    bounce: Buffer,
    last: Option<io::Error>,
    /// Where others can see what is under way.
    board: Option<&'a Board>,
}

impl<'a> FileMedia<'a> {
    /// A medium over the members, in the order of the member list.
    pub fn new(devices: &'a [Option<Device>]) -> FileMedia<'a> {
        FileMedia {
            devices,
            bounce: Buffer::new(0, BOUNCE as u32, ALIGNMENT as u32),
            last: None,
            board: None,
        }
    }

    /// The same for members that are being served, so that others can see which one does not answer.
    pub(crate) fn watched(devices: &'a [Option<Device>], board: &'a Board) -> FileMedia<'a> {
        FileMedia {
            board: Some(board),
            ..FileMedia::new(devices)
        }
    }

    /// The size of a member in bytes; `None`: it is missing.
    pub(crate) fn size(&self, member: MemberId) -> Option<u64> {
        let device = self.devices.get(usize::from(member.0))?;
        device.as_ref().map(|d| d.bytes)
    }

    /// The system's error of the last [`MediaError`].
    pub fn last_error(&self) -> Option<&io::Error> {
        self.last.as_ref()
    }

    /// [`Media::read`] as the search for superblocks wants it ([`store::superblock_at`]).
    ///
    /// # Errors
    /// The member is missing, or gave this error.
    pub fn read_superblock(
        &mut self,
        member: MemberId,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), SuperblockError> {
        self.read(member, offset, to)
            .map_err(|_| self.last.as_ref().map_or(unreadable(Errno::IO), because))
    }

    fn run(
        &mut self,
        (member, offset, deed): (MemberId, u64, Deed),
        f: impl FnOnce(&Device, &mut Buffer) -> io::Result<()>,
    ) -> Result<(), MediaError> {
        let index = usize::from(member.0);
        if let Some(board) = self.board {
            board.begun(index, deed);
        }
        let result = match self.devices.get(index) {
            Some(Some(device)) => f(device, &mut self.bounce),
            _ => Err(Errno::NODEV.into()),
        };
        if let Some(board) = self.board {
            board.ended();
        }
        result.map_err(|e| {
            self.last = Some(e);
            MediaError { member, offset }
        })
    }
}

impl Media for FileMedia<'_> {
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MediaError> {
        self.run((member, offset, Deed::Read), |device, bounce| {
            let mut at = offset;
            for part in buf.chunks_mut(BOUNCE) {
                let bounce = &mut bounce[..part.len()];
                if whole_blocks(at, bounce.len()) {
                    device.read_past_cache(bounce, at)?;
                } else {
                    device.read_exact_at(bounce, at)?;
                }
                part.copy_from_slice(bounce);
                at += part.len() as u64;
            }
            Ok(())
        })
    }

    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MediaError> {
        self.run((member, offset, Deed::Write), |device, bounce| {
            let mut at = offset;
            for part in buf.chunks(BOUNCE) {
                let bounce = &mut bounce[..part.len()];
                bounce.copy_from_slice(part);
                if whole_blocks(at, bounce.len()) {
                    device.write_past_cache(bounce, at)?;
                } else {
                    device.write_all_at(bounce, at)?;
                }
                at += part.len() as u64;
            }
            Ok(())
        })
    }

    fn bytes(&self, member: MemberId) -> Option<u64> {
        self.size(member)
    }

    fn map_made(&mut self, map: &ExtentMap) {
        ask_for_huge(map);
    }

    fn flush(&mut self, member: MemberId) -> Result<(), MediaError> {
        if broken(LiveMutant::MediaFlushNothing) {
            return Ok(());
        }
        self.run((member, 0, Deed::Flush), |device, _| device.sync_data())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::OpenHow;

    #[test]
    fn what_is_written_is_read_and_errors_name_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let how = OpenHow {
            create: Some(8 << 20),
            ..OpenHow::default()
        };
        let devices = [
            Some(Device::open(&dir.path().join("a"), how).unwrap()),
            None,
        ];
        let mut media = FileMedia::new(&devices);
        // Longer than the bounce buffer, and from memory that is not aligned.
        let data: Vec<u8> = (0..(3 << 20) / 2 + 4097).map(|i| (i % 251) as u8).collect();
        media.write(MemberId(0), 4096, &data[1..]).unwrap();
        media.flush(MemberId(0)).unwrap();
        let mut back = vec![0; data.len()];
        media.read(MemberId(0), 4096, &mut back[1..]).unwrap();
        assert_eq!(back[1..], data[1..]);
        let beyond = media.read(MemberId(0), (8 << 20) - 4096, &mut back[..8192]);
        assert_eq!(
            beyond,
            Err(MediaError {
                member: MemberId(0),
                offset: (8 << 20) - 4096
            })
        );
        assert_eq!(
            media.flush(MemberId(1)),
            Err(MediaError {
                member: MemberId(1),
                offset: 0
            })
        );
        assert_eq!(
            media.last_error().and_then(Errno::from_io_error),
            Some(Errno::NODEV)
        );
    }
}
