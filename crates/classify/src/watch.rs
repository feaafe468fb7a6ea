//! Records which metadata has been written since the last reading.

use crate::classes::{INODES, JOURNAL, Source};
use crate::map::Found;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most ranges that are kept. If there are more, everything must be read again.
const WAITING_MAX: usize = 1 << 16;
/// Most places where a file system may begin.
const PROBES: usize = 16;

/// The engine's thread reports every write; the thread that updates layouts takes the reports.
pub struct Watch {
    written: Mutex<Vec<Range<u64>>>,
    any: AtomicBool,
    overrun: AtomicBool,
    /// Bytes at which a superblock or partition table is, or may be created; a write there is recorded.
    probes: [AtomicU64; PROBES],
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            written: Mutex::default(),
            any: AtomicBool::new(false),
            overrun: AtomicBool::new(false),
            probes: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
        }
    }
}

impl Watch {
    /// Watches the first 16 of these bytes, and no others.
    pub fn probe(&self, places: &[u64]) {
        let places = places.iter().copied().chain(std::iter::repeat(u64::MAX));
        for (probe, place) in self.probes.iter().zip(places) {
            probe.store(place, Ordering::Relaxed);
        }
    }

    /// Whether a write, discard or write-zeroes of these bytes changes metadata that shows the location of data. It is recorded when it has
    /// ended ([`Watch::note`]), because a read of the layout that happens meanwhile may still return the old contents.
    #[inline]
    pub(crate) fn minds(&self, offset: u64, len: u32, found: Found) -> bool {
        let class = found.mark.class();
        // Directories and the journal contain no information about the location of data.
        let shows = class != 0 && class <= JOURNAL && found.mark.source() == Some(Source::Layout);
        let end = offset.saturating_add(u64::from(len));
        let is_probe = |p: &AtomicU64| (offset..end).contains(&p.load(Ordering::Relaxed));
        shows && (class <= INODES + 1 || found.mixed) || self.probes.iter().any(is_probe)
    }

    /// Records that these bytes were written.
    pub(crate) fn note(&self, range: Range<u64>) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = written.last_mut()
            && last.end == range.start
        {
            last.end = range.end;
        } else if written.len() < WAITING_MAX {
            written.push(range);
        } else {
            self.overrun.store(true, Ordering::Relaxed);
        }
        drop(written);
        self.any.store(true, Ordering::Release);
    }

    /// Whether anything was written.
    pub fn has_news(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// The ranges that were written, in order; `None` if there were too many to keep.
    pub fn take(&self) -> Option<Vec<Range<u64>>> {
        self.any.store(false, Ordering::Release);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let all = std::mem::take(&mut *written);
        (!self.overrun.swap(false, Ordering::Relaxed)).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Mark;

    #[test]
    fn only_changes_of_the_layout_are_noted() {
        let w = Watch::default();
        let found = |class| Found {
            mark: Mark::new(class, Source::Layout),
            mixed: false,
        };
        let written = |offset: u64, len: u32, found: Found| {
            if w.minds(offset, len, found) {
                w.note(offset..offset + u64::from(len));
            }
        };
        w.probe(&[1024, 1 << 20]);
        for class in [0, 6, 7, 8, 18, 25] {
            written(1 << 30, 4096, found(class));
        }
        assert!(!w.has_news());
        written(8192, 4096, found(4));
        written(12288, 4096, found(4));
        written(0, 4096, found(0));
        written((1 << 20) - 512, 1024, found(0));
        assert!(w.has_news());
        let all = w.take().unwrap();
        assert_eq!(
            all,
            [8192..16384, 0..4096, (1 << 20) - 512..(1 << 20) + 512]
        );
        (0..=WAITING_MAX as u64).for_each(|i| written(i * 8192, 512, found(3)));
        assert_eq!(w.take(), None);
        assert_eq!(w.take(), Some(vec![]));
    }
}
