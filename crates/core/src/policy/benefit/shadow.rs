//! The guard of writes: compares the response time of flash with that of a model of the slow device alone (the shadow).
//!
//! The shadow gets every access and has its own queue and write cache. Reads queue for the arm. A write is answered at once if the write
//! cache has room, and leaves work for the arm, which later reads may have to wait for. For each write that flash gets, the guard adds the
//! response time of flash, and subtracts the response time of the shadow and the time that a later read would have waited for the write.
//! Once flash is behind by [`MAX_BEHIND`] random reads, writes bypass it. A part of 1 / [`FORGIVEN_SHARE`] of the time that the shadow
//! needs for all requests is forgiven. Flash is tried again once half of the [`MAX_BEHIND`] reads is forgiven, so all trials together cost
//! at most this part. If a write bypasses flash and the shadow would have answered it later than flash, the difference is forgiven at once,
//! because the slow device has become slower than it was.

use crate::load::Cost;
use crate::units::Nanos;
use crate::volume::UnitId;

/// The time by which flash may be behind, in random reads of the slow device. It is never counted as ahead, so that a gain in one hour does
/// not allow a loss in the next.
const MAX_BEHIND: i64 = 4;
/// 1 / `FORGIVEN_SHARE` of the time that the slow device alone would need is forgiven.
const FORGIVEN_SHARE: u64 = 64;
/// Number of writes at random places that fit into the slow device's write cache. Those of the modelled disks hold 64 runs.
const CACHED_WRITES: u64 = 64;
/// A new value replaces 1 / `SHARE` of the mean time between reads.
const SHARE: u64 = 16;

/// An access, as the shadow gets it.
#[derive(Clone, Copy, Debug)]
pub struct ShadowAccess {
    /// The extent.
    pub extent: UnitId,
    /// Whether it is a write.
    pub write: bool,
    /// Whether it continues a stream.
    pub goes_on: bool,
    /// Device time that a write at a random place still needs after it was answered, nanoseconds; 0: the device has no write cache.
    pub deferred: u64,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shadow {
    /// The time at which the shadow has done all of its work.
    busy_until: Nanos,
    /// The time of the last read, and the mean time between reads in nanoseconds.
    last_read: Nanos,
    read_interval: u64,
    /// The last write: its extent, and its cost at the shadow in nanoseconds.
    write: Option<(UnitId, u64)>,
    /// Nanoseconds by which flash is behind.
    flash_behind: i64,
    /// Whether writes bypass flash.
    bypass: bool,
}

impl Shadow {
    /// An access arrives at `now`. `slow`: the costs of the slow device.
    pub fn access(&mut self, now: Nanos, slow: &Cost, a: ShadowAccess) {
        let before = self.busy_until.since(now).0;
        if !a.write {
            let each = if a.goes_on {
                slow.sequential
            } else {
                slow.read
            };
            self.busy_until = self.busy_until.max(now) + each;
            let gap = now.since(self.last_read).0;
            self.read_interval = (self.read_interval * (SHARE - 1) + gap) / SHARE;
            self.last_read = now;
            let alone = self.busy_until.since(now).0;
            return self.forgive(bounded(alone / FORGIVEN_SHARE), slow.read.0);
        }
        // A slow device without a write cache does the write before it answers.
        let (room, more) = if a.deferred > 0 {
            (CACHED_WRITES * a.deferred, a.deferred)
        } else {
            (slow.write.0, slow.write.0)
        };
        let more = if a.goes_on {
            more.min(slow.sequential.0)
        } else {
            more
        };
        self.busy_until = self.busy_until.max(now) + Nanos(more);
        let waits = self.busy_until.since(now).0.saturating_sub(room);
        // A read that arrives before all of this work is done waits for this write.
        let gap = self.read_interval.max(now.since(self.last_read).0).max(1);
        let chance = (more / 2).saturating_add(before).min(gap);
        let later = u128::from(more) * u128::from(chance) / u128::from(gap);
        let counts = slow.write.0.saturating_add(waits) + later as u64;
        self.write = Some((a.extent, counts));
        self.forgive(bounded(counts / FORGIVEN_SHARE), slow.read.0);
    }
    /// Reduces the time by which flash is behind. `read`: nanoseconds of a random read of the slow device.
    fn forgive(&mut self, ns: i64, read: u64) {
        self.flash_behind = (self.flash_behind - ns).max(0);
        self.bypass &= self.flash_behind > MAX_BEHIND * bounded(read) / 2;
    }
    /// The cost of a write to `e` at the shadow minus that at flash (nanoseconds), if it is the last write that the shadow got.
    fn slow_minus_flash(&mut self, e: UnitId, flash: u64) -> Option<i64> {
        let (_, alone) = self.write.take().filter(|w| w.0 == e)?;
        Some(bounded(alone) - bounded(flash))
    }
    /// Flash gets this write and answers it in `flash` nanoseconds. `read`: nanoseconds of a random read of the slow device.
    pub fn write_to_flash(&mut self, e: UnitId, flash: u64, read: u64) {
        let Some(more) = self.slow_minus_flash(e, flash).filter(|_| !self.bypass) else {
            return;
        };
        self.flash_behind = (self.flash_behind - more).max(0);
        self.bypass = self.flash_behind > MAX_BEHIND * bounded(read);
    }
    /// Whether flash is so far behind the slow device alone that writes bypass it.
    pub fn writes_bypass_flash(&self) -> bool {
        self.bypass
    }
    /// This write bypasses flash, which would have answered it in `flash` nanoseconds. `read`: as in [`Shadow::write_to_flash`].
    pub fn write_bypassed(&mut self, e: UnitId, flash: u64, read: u64) {
        let more = self.slow_minus_flash(e, flash).unwrap_or(0);
        self.forgive(more.max(0), read);
    }
}

/// Limits a time to 18 minutes, so that sums cannot overflow.
fn bounded(ns: u64) -> i64 {
    ns.min(1 << 40) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// Reads take 9 ms; the write cache accepts a write in 100 µs.
    const DISK: Cost = Cost {
        read: Nanos(9 * MS),
        write: Nanos(MS / 10),
        sequential: Nanos(MS / 2),
        ..Cost::SLOW
    };
    const DEBT: u64 = 3 * MS;

    /// A write at a random place arrives.
    fn arrive(s: &mut Shadow, at: u64, e: u32) {
        let seen = ShadowAccess {
            extent: UnitId(e),
            write: true,
            goes_on: false,
            deferred: DEBT,
        };
        s.access(Nanos(at), &DISK, seen);
    }
    fn write(s: &mut Shadow, at: u64, e: u32, flash: u64) {
        arrive(s, at, e);
        s.write_to_flash(UnitId(e), flash, DISK.read.0);
    }
    fn bypass(s: &mut Shadow, at: u64, e: u32, flash: u64) {
        arrive(s, at, e);
        s.write_bypassed(UnitId(e), flash, DISK.read.0);
    }

    #[test]
    fn a_late_flash_is_passed_by_and_all_trials_cost_a_part_of_what_the_disk_needs() {
        let mut s = Shadow::default();
        let (mut late, mut trials, mut before) = (0, 0, false);
        let all = 200_000u64;
        for i in 1..=all {
            // Flash needs 5 ms for a write that the disk's write cache accepts at once.
            if s.writes_bypass_flash() {
                bypass(&mut s, i * 1000 * MS, 1, 5 * MS);
            } else {
                write(&mut s, i * 1000 * MS, 1, 5 * MS);
                late += 5 * MS - DISK.write.0;
            }
            trials += u32::from(s.writes_bypass_flash() && !before);
            before = s.writes_bypass_flash();
        }
        let least = MAX_BEHIND as u64 * DISK.read.0;
        // The small delay of later reads by a write is not counted here.
        let most = least + 5 * MS + all * DISK.write.0 / FORGIVEN_SHARE * 11 / 10;
        assert!(
            trials > 10 && (least..most).contains(&late),
            "{trials} {late}"
        );
        // Flash that is as fast as the disk's write cache is never behind.
        let mut s = Shadow::default();
        (1..5000).for_each(|i| write(&mut s, i * 1000 * MS, 1, MS / 10));
        assert!(!s.writes_bypass_flash());
    }

    #[test]
    fn a_disk_that_is_busy_now_gets_no_writes_any_more() {
        let mut s = Shadow::default();
        (1..60u64).for_each(|i| write(&mut s, i * 1000 * MS, 1, 5 * MS));
        assert!(s.writes_bypass_flash());
        // A burst that would fill the disk's write cache.
        let wrong = (0..1000).take_while(|_| {
            bypass(&mut s, 100_000 * MS, 1, 5 * MS);
            s.writes_bypass_flash()
        });
        assert!((64..100).contains(&wrong.count()), "{s:?}");
    }

    #[test]
    fn a_burst_fills_the_cache_of_the_disk_as_well() {
        let mut s = Shadow::default();
        // Of 1000 simultaneous writes, the disk's write cache accepts 64; the others would wait 1.4 s on average. Flash is behind for a
        // few of them only.
        let passed = (0..1000).filter(|&i| {
            let passes_by = s.writes_bypass_flash();
            if passes_by {
                bypass(&mut s, 1000 * MS, i, 20 * MS);
            } else {
                write(&mut s, 1000 * MS, i, 20 * MS);
            }
            passes_by
        });
        assert!((1..100).contains(&passed.count()));
        assert!(!s.writes_bypass_flash(), "{s:?}");
        // Reads arrive all the time, so one of them would wait for each write at the disk.
        let mut busy = Shadow::default();
        for i in 1..1000u64 {
            let read = ShadowAccess {
                extent: UnitId(0),
                write: false,
                goes_on: false,
                deferred: DEBT,
            };
            busy.access(Nanos(i * 10 * MS), &DISK, read);
            write(&mut busy, i * 10 * MS, 1, 2 * MS);
        }
        assert!(!busy.writes_bypass_flash(), "{busy:?}");
    }

    #[test]
    fn a_write_that_did_not_come_to_flash_counts_nothing() {
        let mut s = Shadow::default();
        write(&mut s, MS, 1, 1 << 50);
        let then = s.flash_behind;
        s.write_to_flash(UnitId(1), 1 << 50, DISK.read.0);
        s.write_to_flash(UnitId(2), 1 << 50, DISK.read.0);
        assert_eq!(s.flash_behind, then);
    }
}
