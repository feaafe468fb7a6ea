//! Reads and writes the stamp of a served volume (see `stamp.rs`) through the ring, so that the engine's thread does not wait.
//!
//! ```text
//! idle ─ operations, and an interval has gone by ─► reading ─ ours ─► writing ─► idle
//!                                                      └ another's ─► overtaken: everything is refused from then on
//! ```
//! Without operations no stamp is written, so that no disk is woken. The clock continues while the machine is suspended.

use super::faults::errno;
use super::{Fault, UringWorld};
use crate::buffers::{ALIGNMENT, Buffer};
use crate::mutants::{LiveMutant, broken};
use crate::stamp::{BYTES, INTERVAL, Kind, LEASE, Seen, Stamp};
use io_uring::{opcode, types};
use isotherm_core::store::BLOCK;
use isotherm_core::store::layout::STAMP_AT;
use isotherm_core::{DeviceOp, Event, IoError, Nanos, OpKind};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime};

/// The name of the stamp's operations in the ring.
pub(super) const STAMP: u64 = u64::MAX - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Reading,
    /// A write that began at this time is in progress.
    Writing(Duration),
}

/// See the module.
pub(super) struct Beat {
    stamp: Stamp,
    member: usize,
    block: Buffer,
    phase: Phase,
    /// Time at which the write of the last stamp began; it is complete.
    good: Duration,
    /// Time at which the last read of the stamp began.
    looked: Duration,
    /// Whether there were operations since that read.
    active: bool,
    held: Vec<(DeviceOp, Vec<u8>)>,
    /// Whether another server has taken over the volume.
    overtaken: bool,
    /// Whether the stamp can no longer be read or written: then writes are refused, and reads continue.
    broken: bool,
}

fn now() -> Duration {
    // This clock exists since Linux 2.6.39.
    let t = clock_gettime(ClockId::Boottime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

impl Beat {
    /// `stamp` was claimed on `member` just now.
    pub(super) fn new(stamp: Stamp, member: usize) -> Beat {
        Beat {
            stamp,
            member,
            block: Buffer::new(0, BLOCK as u32, ALIGNMENT as u32),
            phase: Phase::Idle,
            good: now(),
            looked: Duration::ZERO,
            active: false,
            held: Vec::new(),
            overtaken: false,
            broken: false,
        }
    }
    fn has_ended(&self) -> bool {
        self.overtaken || self.broken
    }
    /// Whether the kernel uses the memory of the stamp.
    pub(super) fn is_under_way(&self) -> bool {
        self.phase != Phase::Idle
    }
}

impl UringWorld {
    /// Whether another server has taken over the volume.
    pub fn is_overtaken(&self) -> bool {
        self.beat.as_ref().is_some_and(|b| b.overtaken)
    }

    /// Whether the volume can no longer be stamped.
    pub fn is_unstamped(&self) -> bool {
        self.beat.as_ref().is_some_and(Beat::has_ended)
    }

    /// Whether `op` may go to its device now. If not, it is held until the stamp is written again, or it has ended with an error.
    pub(super) fn may_go(&mut self, op: &DeviceOp, meta: &[u8]) -> bool {
        let Some(beat) = &mut self.beat else {
            return true;
        };
        let (overtaken, unstamped) = (beat.overtaken, beat.broken);
        if overtaken || unstamped && op.kind != OpKind::Read {
            let error = if overtaken {
                IoError::Gone
            } else {
                IoError::Io
            };
            self.ready.push(Event::Finished {
                id: op.id,
                result: Err(error),
            });
            return false;
        }
        if unstamped || op.kind == OpKind::Standby {
            return true;
        }
        beat.active = true;
        let blind = broken(LiveMutant::NoLookAfterGap);
        if beat.held.is_empty() && (blind || now().saturating_sub(beat.good) <= LEASE) {
            return true;
        }
        beat.held.push((*op, meta.to_vec()));
        self.look();
        false
    }

    /// Time at which [`UringWorld::beat_if_due`] must be called.
    pub(super) fn next_beat(&self) -> Option<Nanos> {
        let beat = self.beat.as_ref()?;
        if !beat.active || beat.is_under_way() || beat.has_ended() {
            return None;
        }
        let left = (beat.looked + INTERVAL).saturating_sub(now());
        Some(self.seen + Nanos(left.as_nanos() as u64))
    }

    /// Begins to read the stamp, and then to write it, if that is due.
    pub(super) fn beat_if_due(&mut self) {
        let due = |b: &Beat| b.active && now().saturating_sub(b.looked) >= INTERVAL;
        if self.beat.as_ref().is_some_and(due) {
            self.look();
        }
    }

    fn look(&mut self) {
        let Some(beat) = &mut self.beat else { return };
        if beat.is_under_way() || beat.has_ended() {
            return;
        }
        (beat.looked, beat.active, beat.phase) = (now(), false, Phase::Reading);
        self.issue_stamp();
    }

    fn issue_stamp(&mut self) {
        let Some(beat) = &mut self.beat else { return };
        let (fd, at) = (types::Fixed(beat.member as u32), beat.block.as_mut_ptr());
        let entry = match beat.phase {
            Phase::Idle => return,
            Phase::Reading => opcode::Read::new(fd, at, BLOCK as u32)
                .offset(STAMP_AT)
                .build(),
            Phase::Writing(_) => opcode::Write::new(fd, at, BLOCK as u32)
                .offset(STAMP_AT)
                .build(),
        };
        self.push(&entry.user_data(STAMP));
    }

    /// Handles the kernel's answer.
    pub(super) fn stamped(&mut self, res: i32) {
        if matches!(errno(-res), Some(Errno::INTR | Errno::AGAIN)) {
            return self.issue_stamp();
        }
        let Some(beat) = &mut self.beat else { return };
        let phase = std::mem::replace(&mut beat.phase, Phase::Idle);
        if res != BLOCK as i32 {
            let errno = Some(-res).filter(|&e| e > 0);
            beat.broken = true;
            return self.give_up("the activity stamp cannot be read or written".into(), errno);
        }
        match phase {
            Phase::Idle => {}
            Phase::Reading => {
                let seen = Seen::decode(&beat.block);
                let claimed = seen.as_ref().is_some_and(|s| s.kind == Kind::Claim);
                // A server that claims the volume waits longer than our lease, so it sees this write and gives up.
                let in_time = claimed && now().saturating_sub(beat.good) <= LEASE;
                if !beat.stamp.is_last(&beat.block)
                    && !in_time
                    && !broken(LiveMutant::ServeOvertaken)
                {
                    let who = seen.map_or_else(|| "somebody".into(), |s| s.words());
                    let what = format!(
                        "the volume was taken over by {who} while this server did not stamp it"
                    );
                    beat.overtaken = true;
                    return self.give_up(what, None);
                }
                let bytes = beat.stamp.next(Kind::Serving);
                beat.block.fill(0);
                beat.block[..BYTES].copy_from_slice(&bytes);
                beat.phase = Phase::Writing(now());
                self.issue_stamp();
            }
            Phase::Writing(since) => {
                beat.stamp.last.copy_from_slice(&beat.block[..BYTES]);
                beat.good = since;
                for (op, meta) in std::mem::take(&mut beat.held) {
                    self.begin(&op, &meta);
                }
            }
        }
    }

    /// Reports the fault. Operations that wait for the stamp, and all later ones, are refused.
    fn give_up(&mut self, what: String, errno: Option<i32>) {
        let Some(beat) = &mut self.beat else { return };
        let (member, held) = (beat.member, std::mem::take(&mut beat.held));
        for (op, meta) in held {
            if self.may_go(&op, &meta) {
                self.begin(&op, &meta);
            }
        }
        self.fault = Some(Fault {
            member,
            what,
            errno,
            at: SystemTime::now(),
        });
        self.woken = true;
    }

    /// Waits for the stamp's operation in progress, if any, and returns whether the volume is still ours. This is called at the end, when
    /// no other operation is in progress.
    pub(crate) fn is_still_ours(&mut self) -> bool {
        self.finish_beat();
        if let Some(beat) = &self.beat
            && let Some(Some(device)) = self.devices.get(beat.member)
        {
            return !beat.overtaken && beat.stamp.is_on(device).unwrap_or(false);
        }
        true
    }

    /// After this, the kernel does not use the memory of the stamp.
    pub(super) fn finish_beat(&mut self) {
        while self.beat.as_ref().is_some_and(Beat::is_under_way) {
            self.enter(1, Some(Duration::from_secs(1)));
            self.take_completions();
            let (stamps, others) = std::mem::take(&mut self.cqes)
                .into_iter()
                .partition::<Vec<_>, _>(|c| c.0 == STAMP);
            self.cqes = others;
            for (_, res, _) in stamps {
                self.stamped(res);
            }
        }
    }
}
