//! When the next read may begin.
//!
//! A device that has had no other work for [`REST`] is read from at once. On one that is in use, the scrub reads [`FLOOR`] bytes per second,
//! so that it ends on a volume that is never idle: four reads of 1 MiB take about 6 % of a disk's time. (`md` guarantees 1 MiB/s by default.)
//! Only the devices of homes count: copies are read beside their homes, and the flash that holds them is in use all the time where it serves
//! its purpose.

use super::look::{Look, MemberWork, Spot};
use super::{How, Wait};
use std::time::{Duration, Instant};

/// Bytes per second that are read from a device in use.
pub const FLOOR: u64 = 4 << 20;
/// A device without other work for this time is idle.
const REST: Duration = Duration::from_millis(50);
/// Interval at which a device in use is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Interval at which a sleeping device is looked at.
const STILL_ASLEEP: Duration = Duration::from_millis(500);

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Read now.
    Go,
    /// Look again after this time.
    Later(Wait, Duration),
}

/// The numbers of the members that hold the extents of a look.
pub(super) fn used(look: &Look) -> Vec<usize> {
    members(look.placed.iter().flat_map(|p| [p.home, p.copy]))
}

/// The numbers of the members of their homes.
fn homes(look: &Look) -> Vec<usize> {
    members(look.placed.iter().map(|p| p.home))
}

fn members(spots: impl Iterator<Item = Option<Spot>>) -> Vec<usize> {
    let mut used: Vec<usize> = spots.flatten().map(|s| usize::from(s.member.0)).collect();
    used.sort_unstable();
    used.dedup();
    used
}

/// See the module.
pub(crate) struct Pace {
    how: How,
    /// For each member, its operations and the time at which their number last changed.
    seen: Vec<(u64, Instant)>,
    /// The earliest time at which a device in use may be read.
    due: Option<Instant>,
}

impl Pace {
    pub fn new(how: How) -> Pace {
        Pace {
            how,
            seen: Vec::new(),
            due: None,
        }
    }

    /// Whether the extents of a look may be read at `now`.
    pub(super) fn next(&mut self, look: &Look, now: Instant) -> Next {
        self.next_of(&look.members, (&used(look), &homes(look)), now)
    }

    /// Whether the members in `used` may be read at `now`. Those in `homes` must be idle for it, or it must be time.
    pub fn next_of(
        &mut self,
        members: &[MemberWork],
        (used, homes): (&[usize], &[usize]),
        now: Instant,
    ) -> Next {
        self.notice(members, now);
        let asleep = |m: &usize| members.get(*m).is_some_and(|m| m.asleep);
        if !self.how.wake && used.iter().any(asleep) {
            return Next::Later(Wait::Sleep, STILL_ASLEEP);
        }
        let idle = |m: &usize| {
            let since = self.seen.get(*m).map(|s| s.1);
            since.is_none_or(|t| now.saturating_duration_since(t) >= REST)
        };
        let is_due = self.due.is_none_or(|t| t <= now);
        if is_due || (self.how.rate.is_none() && homes.iter().all(idle)) {
            return Next::Go;
        }
        let left = self.due.map_or(LOOK_AGAIN, |t| t - now);
        Next::Later(Wait::Turn, left.min(LOOK_AGAIN))
    }

    /// Notes which members had other work since the last look.
    fn notice(&mut self, members: &[MemberWork], now: Instant) {
        self.seen.resize(members.len(), (0, now));
        for (seen, member) in self.seen.iter_mut().zip(members) {
            if seen.0 != member.operations {
                *seen = (member.operations, now);
            }
        }
    }

    /// Counts a read of `bytes` that begins at `now`.
    pub fn takes(&mut self, bytes: u64, now: Instant) {
        let rate = self.how.rate.unwrap_or(FLOOR).max(1);
        let time = Duration::from_secs_f64(bytes as f64 / rate as f64);
        // Time that was not used is not made up for later.
        let from = self.due.filter(|t| self.how.rate.is_some() && *t > now);
        self.due = Some(from.unwrap_or(now) + time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrub::look::Placed;
    use isotherm_core::{MemberId, Slot};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    static BUSY: AtomicU64 = AtomicU64::new(0);

    /// A look at one extent on member 1, which has done `operations`, with a copy on member 0.
    fn look(operations: u64, asleep: bool) -> Look {
        let home = Some(Spot {
            slot: Slot(9),
            member: MemberId(1),
            at: 4096,
        });
        // The member of the copy is always in use.
        let copy = Some(Spot {
            slot: Slot(1),
            member: MemberId(0),
            at: 4096,
        });
        let placed = Placed {
            home,
            copy,
            blocks: vec![3; 16],
            at_rest: true,
            moved: false,
            home_writes: 0,
        };
        let members = vec![
            MemberWork {
                operations: BUSY.fetch_add(1, Ordering::Relaxed),
                asleep: false,
            },
            MemberWork { operations, asleep },
        ];
        Look {
            engine: 1,
            moves: 0,
            members,
            devices: Arc::new(Vec::new()),
            placed: vec![placed],
            block: 4096,
        }
    }

    #[test]
    fn a_device_in_use_is_read_slowly_and_an_idle_one_at_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pace = Pace::new(How::default());
        assert_eq!(pace.next(&look(1, false), at(0)), Next::Go);
        pace.takes(1 << 20, at(0));
        // The other work goes on: 1 MiB in 250 ms.
        for ms in (10..250).step_by(10) {
            let next = pace.next(&look(ms, false), at(ms));
            assert!(matches!(next, Next::Later(Wait::Turn, _)), "{ms}");
        }
        assert_eq!(pace.next(&look(250, false), at(250)), Next::Go);
        pace.takes(1 << 20, at(250));
        // It ends: the device is idle after 50 ms.
        assert_ne!(pace.next(&look(250, false), at(290)), Next::Go);
        for ms in [300, 301, 302] {
            assert_eq!(pace.next(&look(250, false), at(ms)), Next::Go);
            pace.takes(1 << 20, at(ms));
        }
    }

    #[test]
    fn a_rate_holds_whether_the_device_is_idle_or_not() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pace = Pace::new(How {
            rate: Some(10 << 20),
            wake: false,
        });
        let mut read = 0;
        for ms in 0..1000 {
            let busy = if ms < 500 { ms } else { 500 };
            if pace.next(&look(busy, false), at(ms)) == Next::Go {
                pace.takes(1 << 20, at(ms));
                read += 1;
            }
        }
        assert_eq!(read, 10);
    }

    #[test]
    fn a_sleeping_disk_is_left_alone_unless_it_may_be_woken() {
        let now = Instant::now();
        for rate in [None, Some(1 << 30)] {
            let mut pace = Pace::new(How { rate, wake: false });
            let next = pace.next(&look(1, true), now);
            assert_eq!(next, Next::Later(Wait::Sleep, STILL_ASLEEP));
            let mut pace = Pace::new(How { rate, wake: true });
            assert_eq!(pace.next(&look(1, true), now), Next::Go);
        }
    }
}
