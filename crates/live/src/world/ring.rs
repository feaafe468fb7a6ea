//! The ring itself: with entries of 64 bytes, or of 128, which commands to `/dev/fuse` need.

use io_uring::{CompletionQueue, IoUring, Parameters, Submitter, squeue};
use std::io;
use std::ops::Range;

/// FUSE's switch for its protocol over io_uring; root can set it.
const FUSE_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// A source of requests that keeps entries in the engine's ring and runs on the engine's thread.
///
/// From the time at which an entry is put into the ring until it comes back, the kernel owns the entry and the memory to which it points.
pub trait RingSource: Send {
    /// Passes to `push` the entries for the ring: the entry's number, below 2^16, and the command. What was passed before has been
    /// submitted.
    fn put(&mut self, push: &mut dyn FnMut(u16, RingEntry));
    /// Called when that entry has completed with this result.
    fn back(&mut self, entry: u16, result: i32);
    /// The buffers of the ring in which the kernel registers pages for this source.
    fn buffers(&self) -> Range<u16> {
        0..0
    }
    /// Whether no entry is in the ring or will be put there. Then the source can be dropped.
    fn is_over(&self) -> bool;
}

/// An entry of a [`RingSource`].
pub enum RingEntry {
    /// Of 64 bytes; every ring takes it.
    Short(squeue::Entry),
    /// Of 128 bytes; only a ring with entries of that size takes it.
    Long(squeue::Entry128),
}

impl RingEntry {
    pub(super) fn named(self, name: u64) -> RingEntry {
        match self {
            RingEntry::Short(entry) => RingEntry::Short(entry.user_data(name)),
            RingEntry::Long(entry) => RingEntry::Long(entry.user_data(name)),
        }
    }
}

/// Bit that marks the names of ring sources' entries; the low bits hold source and entry.
const SOURCE: u64 = 1 << 40;
/// No name of a ring source has this bit; the names of bell and stamp have all.
const OTHERS: u64 = 1 << 63;

/// The name of an entry.
pub(super) fn name(source: usize, entry: u16) -> u64 {
    SOURCE | (source as u64) << 16 | u64::from(entry)
}

/// Source and entry, if the name is that of an entry.
pub(super) fn named(data: u64) -> Option<(usize, u16)> {
    (data & SOURCE != 0 && data & OTHERS == 0)
        .then_some(((data & (SOURCE - 1)) as usize >> 16, data as u16))
}

/// See the module.
pub(super) enum Ring {
    Narrow(IoUring),
    Wide(IoUring<squeue::Entry128>),
}

fn build<S: squeue::EntryMarker>(entries: u32, modern: bool) -> io::Result<IoUring<S>> {
    let mut builder = IoUring::<S>::builder();
    builder.setup_clamp().setup_cqsize(entries * 8);
    if modern {
        // Completions are handled when we ask for them, without interrupting this thread: this needs the fewest switches for one thread
        // that submits and waits.
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag();
    }
    builder.build(entries)
}

impl Ring {
    /// Creates a ring for at least `entries`: with entries of 128 bytes if this kernel offers FUSE over io_uring, otherwise of 64. Older
    /// kernels get fewer setup flags.
    pub(super) fn new(entries: u32) -> io::Result<Ring> {
        if offers_fuse()
            && let Ok(ring) = build(entries, true)
        {
            return Ok(Ring::Wide(ring));
        }
        let ring = build(entries, true).or_else(|_| build(entries, false));
        ring.map(Ring::Narrow)
    }

    pub(super) fn is_wide(&self) -> bool {
        matches!(self, Ring::Wide(_))
    }

    pub(super) fn submitter(&self) -> Submitter<'_> {
        match self {
            Ring::Narrow(ring) => ring.submitter(),
            Ring::Wide(ring) => ring.submitter(),
        }
    }

    pub(super) fn params(&self) -> &Parameters {
        match self {
            Ring::Narrow(ring) => ring.params(),
            Ring::Wide(ring) => ring.params(),
        }
    }

    pub(super) fn completion(&mut self) -> CompletionQueue<'_> {
        match self {
            Ring::Narrow(ring) => ring.completion(),
            Ring::Wide(ring) => ring.completion(),
        }
    }

    /// Queues an entry; false if there is no room.
    ///
    /// # Safety
    /// What it points to stays until its completion.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the caller's guarantee.
        unsafe {
            match self {
                Ring::Narrow(ring) => ring.submission().push(entry).is_ok(),
                Ring::Wide(ring) => ring.submission().push(&entry.clone().into()).is_ok(),
            }
        }
    }

    /// As [`Ring::push`], for an entry of a source; a ring with entries of 64 bytes never has room for a long one.
    ///
    /// # Safety
    /// What it points to stays until its completion.
    pub(super) unsafe fn push_any(&mut self, entry: &RingEntry) -> bool {
        // SAFETY: the caller's guarantee.
        unsafe {
            match (self, entry) {
                (ring, RingEntry::Short(entry)) => ring.push(entry),
                (Ring::Wide(ring), RingEntry::Long(entry)) => ring.submission().push(entry).is_ok(),
                (Ring::Narrow(_), RingEntry::Long(_)) => false,
            }
        }
    }

    /// Whether all queued entries were submitted.
    pub(super) fn is_idle(&mut self) -> bool {
        match self {
            Ring::Narrow(ring) => ring.submission().is_empty(),
            Ring::Wide(ring) => ring.submission().is_empty(),
        }
    }

    /// Whether the kernel has work that requires a system call.
    pub(super) fn taskrun(&mut self) -> bool {
        match self {
            Ring::Narrow(ring) => ring.submission().taskrun(),
            Ring::Wide(ring) => ring.submission().taskrun(),
        }
    }
}

/// Whether this kernel offers FUSE over io_uring, and it is enabled.
pub(crate) fn offers_fuse() -> bool {
    std::fs::read(FUSE_SWITCH).is_ok_and(|on| on.starts_with(b"Y"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ring_sources_are_no_others() {
        for (source, entry) in [(0, 0), (3, 65535), (200, 7)] {
            assert_eq!(named(name(source, entry)), Some((source, entry)));
        }
        for other in [
            0,
            77,
            super::super::WATCH,
            super::super::WATCH + 9,
            super::super::BELL,
            super::super::STAMP,
        ] {
            assert_eq!(named(other), None, "{other:x}");
        }
    }
}
