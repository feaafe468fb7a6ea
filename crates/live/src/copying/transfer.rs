//! Copies slots from a member to its successor. What cannot be read in one piece is read in small parts; parts that cannot be read at all are
//! remembered, and taken from another member that has them (`elsewhere.rs`).

use super::elsewhere::{Unreadable, words};
use crate::buffers::{ALIGNMENT, Buffer};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use isotherm_core::Slot;
use isotherm_core::geometry::Geometry;
use isotherm_core::store::{Successor, Superblock};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Size of a read after a larger one has failed, in bytes.
pub(super) const SMALL: usize = 4096;

/// Where the slots of a member lie on its device and on that of its successor.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub place: usize,
    old: Geometry,
    next: Geometry,
}

impl Places {
    /// For a volume with this superblock.
    ///
    /// # Errors
    /// The shape of the volume would be impossible.
    pub fn of(sb: &Superblock, successor: &Successor) -> Result<Places, Error> {
        let place = usize::from(successor.place.0);
        let mut later = sb.clone();
        successor.room.put(&mut later.members[place]);
        match [sb, &later].map(Superblock::geometry) {
            [Ok(old), Ok(next)] => Ok(Places { place, old, next }),
            _ => Err(Error::new(
                ErrorKind::Volume,
                "the shape of the volume is impossible",
            )),
        }
    }

    /// Bytes of a slot.
    pub fn extent(&self) -> usize {
        1 << self.old.extent_shift
    }

    fn at(&self, geo: &Geometry, index: u32) -> u64 {
        geo.locate(Slot(geo.members[self.place].first_slot + index))
            .1
    }

    /// The first byte of a slot of the member, by its index, on the old device and on the new one.
    pub fn both(&self, index: u32) -> (u64, u64) {
        (self.at(&self.old, index), self.at(&self.next, index))
    }

    /// Whether slot `index` follows `n` slots behind `first`, on both devices.
    pub fn joins(&self, first: u32, n: u32, index: u32) -> bool {
        let far = u64::from(n) << self.old.extent_shift;
        let (from, to) = self.both(first);
        index == first + n && self.both(index) == (from + far, to + far)
    }

    /// The geometry before the replacement.
    pub fn old(&self) -> &Geometry {
        &self.old
    }
}

/// The end of a sentence about a failure.
pub(crate) const AS_BEFORE: &str = "nothing was replaced, and the volume is as it was before";

/// The device that is copied.
#[derive(Debug)]
pub(crate) struct Source {
    pub file: File,
    pub path: PathBuf,
    /// Whether it is read through the page cache.
    pub cached: bool,
}

/// A copy in progress.
pub(crate) struct Transfer<'a> {
    pub source: &'a Source,
    pub to: &'a Device,
    pub places: &'a Places,
    pub unreadable: &'a mut Unreadable,
    piece: Buffer,
}

pub(crate) fn failed(path: &Path, at: u64, what: &str, e: &io::Error) -> Error {
    let path = path.display();
    let what = format!("{path}: cannot be {what} at byte {at}: {e}; {AS_BEFORE}");
    Error::new(ErrorKind::Device, what)
}

impl<'a> Transfer<'a> {
    /// `most` is the largest number of bytes that are copied at once; an extent may be larger.
    pub fn new(
        source: &'a Source,
        to: &'a Device,
        places: &'a Places,
        unreadable: &'a mut Unreadable,
        most: usize,
    ) -> Transfer<'a> {
        let bytes = most.max(places.extent());
        Transfer {
            source,
            to,
            places,
            unreadable,
            piece: Buffer::new(0, bytes as u32, ALIGNMENT as u32),
        }
    }

    /// Largest number of slots that are copied at once.
    pub fn most(&self) -> u32 {
        (self.piece.len() / self.places.extent()) as u32
    }

    /// Copies `n` slots from `first` on, which follow each other on both devices.
    ///
    /// # Errors
    /// The new device cannot be written. What cannot be read is only noted.
    pub fn copy(&mut self, first: u32, n: u32) -> Result<(), Error> {
        let extent = self.places.extent();
        let (from, to) = self.places.both(first);
        let bytes = n as usize * extent;
        for index in first..first + n {
            self.unreadable.forget(index);
        }
        let buf = &mut self.piece[..bytes];
        if self.source.file.read_exact_at(buf, from).is_err() {
            for (index, slot) in (first..).zip(buf.chunks_mut(extent)) {
                let at = from + u64::from(index - first) * extent as u64;
                for (part, small) in (0..).zip(slot.chunks_mut(SMALL)) {
                    let read = self
                        .source
                        .file
                        .read_exact_at(small, at + u64::from(part) * SMALL as u64);
                    if let Err(e) = read {
                        small.fill(0);
                        self.unreadable.note(index, part, &e);
                    }
                }
            }
        }
        if self.source.cached {
            // If this fails, the cache forgets the pages by itself.
            let _ = fadvise(
                &self.source.file,
                from,
                NonZeroU64::new(bytes as u64),
                Advice::DontNeed,
            );
        }
        self.put(to, bytes)
    }

    /// Copies these slots, which ascend. `progress` is told the number of bytes after each piece.
    ///
    /// # Errors
    /// As for [`Transfer::copy`].
    pub fn copy_all(&mut self, slots: &[u32], mut progress: impl FnMut(u64)) -> Result<u64, Error> {
        let mut rest = slots;
        let mut done = 0;
        while let Some(&first) = rest.first() {
            let joined = (1..self.most()).zip(&rest[1..]);
            let n = 1 + joined
                .take_while(|&(n, &index)| self.places.joins(first, n, index))
                .count();
            self.copy(first, n as u32)?;
            rest = &rest[n..];
            done += (n * self.places.extent()) as u64;
            progress(done);
        }
        Ok(done)
    }

    /// Memory for `len` bytes, at most a piece.
    pub(super) fn part(&mut self, len: usize) -> &mut [u8] {
        &mut self.piece[..len]
    }

    /// Writes the first `len` bytes of this memory to byte `to` of the new device.
    pub(super) fn put(&self, to: u64, len: usize) -> Result<(), Error> {
        let done = self.to.file.write_all_at(&self.piece[..len], to);
        done.map_err(|e| failed(&self.to.path, to, "written", &e))
    }

    /// Makes what was copied durable.
    ///
    /// # Errors
    /// The new device fails.
    pub fn flush(&self) -> Result<(), Error> {
        let done = self.to.file.sync_data();
        done.map_err(|e| failed(&self.to.path, 0, "flushed", &e))
    }
}

/// The refusal of a copy of which these parts of the old device are held by nothing that can be read.
pub(crate) fn lost(source: &Source, ranges: &[(u64, u64)], error: &str) -> Error {
    let (path, ranges) = (source.path.display(), words(ranges));
    let what = format!(
        "{path}: cannot be read at {ranges}: {error}, and no clean copy on another member holds what was there; {AS_BEFORE}"
    );
    Error::new(ErrorKind::Device, what)
}
