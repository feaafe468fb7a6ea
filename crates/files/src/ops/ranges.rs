//! Calls on ranges of files: space and holes, the next data, copies from file to file.

use crate::copies::Update;
use crate::disk::copy_range;
use crate::live::Live;
use crate::placement::Access;
use crate::recording::Op;
use crate::store::Store;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::sync::Arc;

/// Calls of fallocate(2) after which a range holds no data.
const GIVES_UP: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::ZERO_RANGE);

/// Bytes of space that a write of that range may need: what lies behind the beginning of the next hole, or behind the end of the file.
pub(crate) fn growth(fd: &OwnedFd, offset: u64, bytes: u64) -> u64 {
    let end = offset.saturating_add(bytes);
    // Behind the end of the file there is no hole to be found, and space is needed from the first byte on.
    let hole = rustix::fs::seek(fd, SeekFrom::Hole(offset)).unwrap_or(offset);
    end.saturating_sub(hole.max(offset))
}

impl Store {
    /// Preallocates space, punches holes or zeroes a range, as fallocate(2).
    ///
    /// # Errors
    /// As fallocate(2).
    pub fn fallocate(
        &self,
        live: &Arc<Live>,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Result<(), Errno> {
        let flags = FallocateFlags::from_bits(mode as u32).ok_or(Errno::OPNOTSUPP)?;
        let start = self.recording.start();
        self.with_room(live, Update::Drop, |fd, _| {
            rustix::fs::fallocate(fd, flags, offset, len)
        })?;
        if flags.intersects(GIVES_UP) {
            self.note(start, Op::Drop, live.node, (offset, len));
        }
        Ok(())
    }
    /// The next data or hole. A copy answers for the file: it has the same bytes, and its holes are zeros.
    ///
    /// # Errors
    /// There is none after the offset, or a device error.
    pub fn seek(&self, live: &Live, offset: u64, hole: bool) -> Result<u64, Errno> {
        let to = if hole {
            SeekFrom::Hole(offset)
        } else {
            SeekFrom::Data(offset)
        };
        rustix::fs::seek(self.source_of(live, 0, u64::MAX)?, to)
    }
    /// Copies a range from one file to another, or within one.
    ///
    /// # Errors
    /// There is no space, or a device error.
    pub fn copy(
        &self,
        from: &Live,
        a: u64,
        to: &Arc<Live>,
        b: u64,
        len: u64,
    ) -> Result<u64, Errno> {
        // Ranges with the same offset in two files are the common case (cp). For all other ranges the kernel falls back to reads and writes.
        if a != b || from.node == to.node {
            return Err(Errno::XDEV);
        }
        let source = self.source_of(from, a, len)?;
        // The source may be moved in the meantime. The copy is then made from its old descriptor, which has the same bytes.
        let start = self.recording.start();
        let copied = self.with_room(to, Update::Drop, |fd, _| copy_range(&source, fd, a, len))?;
        from.mark_used();
        let bytes = u32::try_from(copied).unwrap_or(u32::MAX);
        for (node, op, write) in [(from.node, Op::Read, false), (to.node, Op::Write, true)] {
            self.note(start, op, node, (a, copied));
            self.placement.record(Access::new(node, write, a, bytes));
        }
        Ok(copied)
    }
    /// A descriptor of these bytes of a file: of its copy if that is valid and holds them, so that the disk at home is not woken, else of the file at home.
    fn source_of(&self, live: &Live, offset: u64, len: u64) -> Result<OwnedFd, Errno> {
        loop {
            let held = live.hold();
            let dup = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
            let copy = held.copy().filter(|c| c.covers(offset, len));
            if let Some(Ok(fd)) = copy.map(|c| c.with(dup)) {
                return Ok(fd);
            }
            if let Ok(fd) = held.fd() {
                return dup(fd);
            }
            drop(held);
            self.open_home(live)?;
        }
    }
}
