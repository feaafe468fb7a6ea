//! The guard of writes: what the slow device alone would have answered, its queue and its cache of writes counted, beside what flash does.
//!
//! A shadow of the slow device alone sees every access. Reads queue for its arm. A write is answered at once while the cache of writes has
//! room; what it leaves the arm to do waits until no read does. A write that flash takes adds the time that flash answers in, and subtracts
//! the time that the shadow would have answered in and that a read would have waited for the arm later. Once flash is behind by as much as
//! [`MOST`] reads, writes pass it by. One part in [`ALLOWED`] of what the slow device alone would have needed for all requests is forgiven:
//! so flash is tried again once that repaid half of it, and all trials together cost no more than that part. If a write passes flash by and
//! the slow device alone would have answered it later, that is repaid at once: the slow device is not what it was.

use crate::load::Cost;
use crate::units::Nanos;
use crate::volume::UnitId;

/// Random reads of the slow device by which flash may be behind. It is never taken to be ahead: a good hour does not pay for a bad one.
const MOST: i64 = 4;
/// Flash may be late by one part in so many of what the slow device alone would have needed.
const ALLOWED: u64 = 64;
/// Writes at random places that a slow device's cache takes before one must wait. Those of the models' disks hold 64 runs.
const CACHED: u64 = 64;
/// The part of the mean time between reads that a new one replaces.
const SHARE: u64 = 16;

/// An access, as the shadow sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// What is asked for.
    pub extent: UnitId,
    pub write: bool,
    /// It begins where a request of late ended.
    pub goes_on: bool,
    /// Nanoseconds that a write at a random place leaves the slow device to do beyond its answer.
    pub debt: u64,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shadow {
    /// Until when the slow device alone would work.
    work: Nanos,
    /// When the last read came, and the mean time between reads.
    last_read: Nanos,
    reads_gap: u64,
    /// The last write: its extent, and what it would have counted on the slow device alone.
    write: Option<(UnitId, u64)>,
    /// Nanoseconds that flash is behind.
    late: i64,
    /// Writes pass flash by.
    passes: bool,
}

impl Shadow {
    /// An access comes at `now`; `slow`: costs of the slow device.
    pub fn comes(&mut self, now: Nanos, slow: &Cost, a: Seen) {
        let before = self.work.since(now).0;
        if !a.write {
            let each = if a.goes_on {
                slow.sequential
            } else {
                slow.read
            };
            self.work = self.work.max(now) + each;
            let gap = now.since(self.last_read).0;
            self.reads_gap = (self.reads_gap * (SHARE - 1) + gap) / SHARE;
            self.last_read = now;
            let alone = self.work.since(now).0;
            return self.repay(bounded(alone / ALLOWED), slow.read.0);
        }
        // A slow device without a cache of writes does the write before it answers.
        let (room, more) = if a.debt > 0 {
            (CACHED * a.debt, a.debt)
        } else {
            (slow.write.0, slow.write.0)
        };
        let more = if a.goes_on {
            more.min(slow.sequential.0)
        } else {
            more
        };
        self.work = self.work.max(now) + Nanos(more);
        let waits = self.work.since(now).0.saturating_sub(room);
        // A read that comes before all of that is done waits for this write.
        let gap = self.reads_gap.max(now.since(self.last_read).0).max(1);
        let chance = (more / 2).saturating_add(before).min(gap);
        let later = u128::from(more) * u128::from(chance) / u128::from(gap);
        let counts = slow.write.0.saturating_add(waits) + later as u64;
        self.write = Some((a.extent, counts));
        self.repay(bounded(counts / ALLOWED), slow.read.0);
    }
    /// Flash is behind by that much less. `read`: nanoseconds of a random read of the slow device.
    fn repay(&mut self, ns: i64, read: u64) {
        self.late = (self.late - ns).max(0);
        self.passes &= self.late > MOST * bounded(read) / 2;
    }
    /// What the slow device alone would have needed for that write, if it was the last one, less what flash needs.
    fn more(&mut self, e: UnitId, flash: u64) -> Option<i64> {
        let (_, alone) = self.write.take().filter(|w| w.0 == e)?;
        Some(bounded(alone) - bounded(flash))
    }
    /// Flash takes that write, which it answers in `flash` nanoseconds; `read`: those of a random read of the slow device.
    pub fn flash_takes(&mut self, e: UnitId, flash: u64, read: u64) {
        let Some(more) = self.more(e, flash).filter(|_| !self.passes) else {
            return;
        };
        self.late = (self.late - more).max(0);
        self.passes = self.late > MOST * bounded(read);
    }
    /// Does flash answer writes later than the slow device alone would, by enough?
    pub fn is_behind(&self) -> bool {
        self.passes
    }
    /// That write passes flash by, which would answer it in `flash` nanoseconds.
    pub fn passed(&mut self, e: UnitId, flash: u64, read: u64) {
        let more = self.more(e, flash).unwrap_or(0);
        self.repay(more.max(0), read);
    }
}

/// Eighteen minutes at most: nothing overflows.
fn bounded(ns: u64) -> i64 {
    ns.min(1 << 40) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// Reads take 9 ms, writes are taken into a cache in 100 µs.
    const DISK: Cost = Cost {
        read: Nanos(9 * MS),
        write: Nanos(MS / 10),
        sequential: Nanos(MS / 2),
        ..Cost::SLOW
    };
    const DEBT: u64 = 3 * MS;

    /// A write at a random place comes.
    fn comes(s: &mut Shadow, at: u64, e: u32) {
        let seen = Seen {
            extent: UnitId(e),
            write: true,
            goes_on: false,
            debt: DEBT,
        };
        s.comes(Nanos(at), &DISK, seen);
    }
    fn write(s: &mut Shadow, at: u64, e: u32, flash: u64) {
        comes(s, at, e);
        s.flash_takes(UnitId(e), flash, DISK.read.0);
    }
    fn passes(s: &mut Shadow, at: u64, e: u32, flash: u64) {
        comes(s, at, e);
        s.passed(UnitId(e), flash, DISK.read.0);
    }

    #[test]
    fn a_late_flash_is_passed_by_and_all_trials_cost_a_part_of_what_the_disk_needs() {
        let mut s = Shadow::default();
        let (mut late, mut trials, mut before) = (0, 0, false);
        let all = 200_000u64;
        for i in 1..=all {
            // Flash takes 5 ms for what the disk's cache takes at once.
            if s.is_behind() {
                passes(&mut s, i * 1000 * MS, 1, 5 * MS);
            } else {
                write(&mut s, i * 1000 * MS, 1, 5 * MS);
                late += 5 * MS - DISK.write.0;
            }
            trials += u32::from(s.is_behind() && !before);
            before = s.is_behind();
        }
        let least = MOST as u64 * DISK.read.0;
        // What a write owes the reads that come later is not counted here, and is a little.
        let most = least + 5 * MS + all * DISK.write.0 / ALLOWED * 11 / 10;
        assert!(
            trials > 10 && (least..most).contains(&late),
            "{trials} {late}"
        );
        // A flash that is as fast as the disk's cache never is behind.
        let mut s = Shadow::default();
        (1..5000).for_each(|i| write(&mut s, i * 1000 * MS, 1, MS / 10));
        assert!(!s.is_behind());
    }

    #[test]
    fn a_disk_that_is_busy_now_gets_no_writes_any_more() {
        let mut s = Shadow::default();
        (1..60u64).for_each(|i| write(&mut s, i * 1000 * MS, 1, 5 * MS));
        assert!(s.is_behind());
        // A burst that would fill its cache.
        let wrong = (0..1000).take_while(|_| {
            passes(&mut s, 100_000 * MS, 1, 5 * MS);
            s.is_behind()
        });
        assert!((64..100).contains(&wrong.count()), "{s:?}");
    }

    #[test]
    fn a_burst_fills_the_cache_of_the_disk_as_well() {
        let mut s = Shadow::default();
        // 1000 writes at once: the disk's cache takes 64, the others would wait 1.4 s on average. Flash is behind for some of them only.
        let passed = (0..1000).filter(|&i| {
            let passes_by = s.is_behind();
            if passes_by {
                passes(&mut s, 1000 * MS, i, 20 * MS);
            } else {
                write(&mut s, 1000 * MS, i, 20 * MS);
            }
            passes_by
        });
        assert!((1..100).contains(&passed.count()));
        assert!(!s.is_behind(), "{s:?}");
        // Reads come all the time: each write at the disk would keep one of them waiting.
        let mut busy = Shadow::default();
        for i in 1..1000u64 {
            let read = Seen {
                extent: UnitId(0),
                write: false,
                goes_on: false,
                debt: DEBT,
            };
            busy.comes(Nanos(i * 10 * MS), &DISK, read);
            write(&mut busy, i * 10 * MS, 1, 2 * MS);
        }
        assert!(!busy.is_behind(), "{busy:?}");
    }

    #[test]
    fn a_write_that_did_not_come_to_flash_counts_nothing() {
        let mut s = Shadow::default();
        write(&mut s, MS, 1, 1 << 50);
        let then = s.late;
        s.flash_takes(UnitId(1), 1 << 50, DISK.read.0);
        s.flash_takes(UnitId(2), 1 << 50, DISK.read.0);
        assert_eq!(s.late, then);
    }
}
