//! Reads and writes the stamp of a served volume (see `stamp.rs`) through the ring, so that the engine's thread does not wait.
//!
//! ```text
//! idle ─ operations, and an interval has gone by ─► reading ─ ours ─► writing ─► idle
//!                                                      └ another's ─► overtaken: everything is refused from then on
//! ```
//! Without operations no stamp is written, so that no disk is woken. The clock continues while the machine is suspended.

use super::faults::errno;
use super::stamping::{Stamping, overtaken_by};
use super::{Fault, UringWorld};
use crate::buffers::{ALIGNMENT, Buffer};
use crate::error::{Error, ErrorKind};
use crate::mutants::{LiveMutant, broken};
use crate::stamp::{self, BYTES, INTERVAL, Kind, LEASE, Stamp};
use io_uring::{opcode, types};
use isotherm_core::store::BLOCK;
use isotherm_core::store::layout::STAMP_AT;
use isotherm_core::{DeviceOp, Event, IoError, Nanos, OpKind};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::AsRawFd;
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
pub(super) struct Heartbeat {
    stamp: Stamp,
    member: usize,
    block: Buffer,
    phase: Phase,
    /// Time at which the write of the last stamp began; it is complete.
    written_at: Duration,
    /// Time at which the last read of the stamp began.
    read_at: Duration,
    /// Whether there were operations since that read.
    active: bool,
    held: Vec<(DeviceOp, Vec<u8>)>,
    /// The time as of the last look at the clock, and the time of a cheap clock then, which does not count while the machine is suspended.
    looked: Duration,
    looked_coarse: Duration,
    /// Whether another server has taken over the volume.
    overtaken: bool,
    /// Whether the stamp can no longer be read or written: then writes are refused, and reads continue.
    broken: bool,
    /// Whether the member with the stamp has failed, and the volume may go on without it: operations are held until that is decided.
    waits: bool,
}

/// A look at the clock counts as the present for this long. It is short beside the second that [`LEASE`] leaves to a server that claims the
/// volume.
const LOOK_HOLDS: Duration = Duration::from_millis(10);

const UNSTAMPED: &str = "the activity stamp cannot be read or written";

fn clock(id: ClockId) -> Duration {
    let t = clock_gettime(id);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

pub(super) fn now() -> Duration {
    // This clock exists since Linux 2.6.39.
    clock(ClockId::Boottime)
}

impl Heartbeat {
    /// The member with the stamp, which is the primary.
    pub(super) fn member(&self) -> usize {
        self.member
    }
    /// `stamp` was claimed on `member` just now.
    pub(super) fn new(stamp: Stamp, member: usize) -> Heartbeat {
        Heartbeat {
            stamp,
            member,
            block: Buffer::new(0, BLOCK as u32, ALIGNMENT as u32),
            phase: Phase::Idle,
            written_at: now(),
            read_at: Duration::ZERO,
            active: false,
            held: Vec::new(),
            looked: now(),
            looked_coarse: clock(ClockId::MonotonicCoarse),
            overtaken: false,
            broken: false,
            waits: false,
        }
    }
    /// Looks at the clock, once for all events that came together.
    pub(super) fn look(&mut self) {
        (self.looked, self.looked_coarse) = (now(), clock(ClockId::MonotonicCoarse));
    }
    /// The time as of the last look, which is repeated if it was some time ago.
    fn now(&mut self) -> Duration {
        if clock(ClockId::MonotonicCoarse).saturating_sub(self.looked_coarse) > LOOK_HOLDS {
            self.look();
        }
        self.looked
    }
    /// Takes the outcome of a stamp that was written without the ring, at this time.
    fn has_stamped(&mut self, at: Duration, outcome: Result<(), Error>) -> Result<(), Error> {
        match &outcome {
            Ok(()) => (self.read_at, self.written_at) = (at, at),
            Err(e) if e.kind == ErrorKind::InUse => self.overtaken = true,
            Err(_) => self.broken = true,
        }
        outcome
    }
    fn has_ended(&self) -> bool {
        self.overtaken || self.broken
    }
    /// Whether the stamp can not be read now, in order to be written.
    fn cannot_begin(&self) -> bool {
        self.is_under_way() || self.has_ended() || self.waits
    }
    /// The member with the stamp, and the time for which the kernel has not answered an operation on it; `None`: there is none.
    pub(super) fn open_for(&self) -> Option<(usize, Duration)> {
        let since = match self.phase {
            Phase::Idle => return None,
            Phase::Reading => self.read_at,
            Phase::Writing(since) => since,
        };
        Some((self.member, self.looked.saturating_sub(since)))
    }
    /// Whether the kernel uses the memory of the stamp.
    pub(super) fn is_under_way(&self) -> bool {
        self.phase != Phase::Idle
    }
}

impl UringWorld {
    /// Whether another server has taken over the volume.
    pub fn is_overtaken(&self) -> bool {
        self.heartbeat.as_ref().is_some_and(|b| b.overtaken)
    }

    /// Whether the volume can no longer be stamped.
    pub fn is_unstamped(&self) -> bool {
        self.heartbeat.as_ref().is_some_and(Heartbeat::has_ended)
    }

    /// Whether `op` may go to its device now. If not, it is held until the stamp is written again, or it has ended with an error.
    pub(super) fn may_go(&mut self, op: &DeviceOp, meta: &[u8]) -> bool {
        let Some(heartbeat) = &mut self.heartbeat else {
            return true;
        };
        let (overtaken, unstamped) = (heartbeat.overtaken, heartbeat.broken);
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
        if heartbeat.waits {
            heartbeat.held.push((*op, meta.to_vec()));
            return false;
        }
        if unstamped || op.kind == OpKind::Standby {
            return true;
        }
        heartbeat.active = true;
        let blind = broken(LiveMutant::NoLookAfterGap);
        let age = heartbeat.now().saturating_sub(heartbeat.written_at);
        if heartbeat.held.is_empty() && (blind || age <= LEASE) {
            return true;
        }
        heartbeat.held.push((*op, meta.to_vec()));
        self.read_stamp();
        false
    }

    /// Time at which [`UringWorld::heartbeat_if_due`] must be called.
    pub(super) fn next_heartbeat(&self) -> Option<Nanos> {
        let heartbeat = self.heartbeat.as_ref()?;
        if !heartbeat.active || heartbeat.cannot_begin() {
            return None;
        }
        let left = (heartbeat.read_at + INTERVAL).saturating_sub(heartbeat.looked);
        Some(self.seen + Nanos(left.as_nanos() as u64))
    }

    /// Begins to read the stamp, and then to write it, if that is due.
    pub(super) fn heartbeat_if_due(&mut self) {
        let due = |b: &Heartbeat| b.active && b.looked.saturating_sub(b.read_at) >= INTERVAL;
        if self.heartbeat.as_ref().is_some_and(due) {
            self.read_stamp();
        }
    }

    fn read_stamp(&mut self) {
        let Some(heartbeat) = &mut self.heartbeat else {
            return;
        };
        if heartbeat.cannot_begin() {
            return;
        }
        (heartbeat.read_at, heartbeat.active, heartbeat.phase) = (now(), false, Phase::Reading);
        self.issue_stamp();
    }

    pub(super) fn issue_stamp(&mut self) {
        let Some(heartbeat) = &mut self.heartbeat else {
            return;
        };
        let member = heartbeat.member;
        let device = self.devices.get(member).and_then(Option::as_ref);
        let read = heartbeat.phase == Phase::Reading;
        // The stamp of another server must not be hidden by the page cache.
        let file = match device.map(|d| &d.past_cache) {
            Some(file) if !read || file.forget(STAMP_AT, BLOCK).is_ok() => file,
            _ => return self.stamped(-Errno::IO.raw_os_error()),
        };
        let fd = types::Fd(file.file().as_raw_fd());
        let at = heartbeat.block.as_mut_ptr();
        let entry = match heartbeat.phase {
            Phase::Idle => return,
            Phase::Reading => opcode::Read::new(fd, at, BLOCK as u32)
                .offset(STAMP_AT)
                .build(),
            Phase::Writing(_) => opcode::Write::new(fd, at, BLOCK as u32)
                .offset(STAMP_AT)
                .build(),
        };
        let how = self.members[member].how_to_issue();
        self.push(&entry.flags(how).user_data(STAMP));
    }

    /// Handles the kernel's answer.
    pub(super) fn stamped(&mut self, res: i32) {
        if matches!(errno(-res), Some(Errno::INTR | Errno::AGAIN)) {
            return self.issue_stamp();
        }
        if self.stamp_waits_for_return(errno(-res)) {
            return;
        }
        let Some(heartbeat) = &mut self.heartbeat else {
            return;
        };
        let phase = std::mem::replace(&mut heartbeat.phase, Phase::Idle);
        if res != BLOCK as i32 {
            let errno = Some(-res).filter(|&e| e > 0);
            if self.can_lose >> heartbeat.member & 1 == 1 {
                heartbeat.waits = true;
                self.woken = true;
                return;
            }
            heartbeat.broken = true;
            return self.give_up(UNSTAMPED.into(), errno);
        }
        match phase {
            Phase::Idle => {}
            Phase::Reading => {
                if let Some(what) =
                    overtaken_by(&heartbeat.stamp, heartbeat.written_at, &heartbeat.block)
                {
                    heartbeat.overtaken = true;
                    return self.give_up(what, None);
                }
                let bytes = heartbeat.stamp.next(Kind::Serving);
                heartbeat.block.fill(0);
                heartbeat.block[..BYTES].copy_from_slice(&bytes);
                heartbeat.phase = Phase::Writing(now());
                self.issue_stamp();
            }
            Phase::Writing(since) => {
                heartbeat
                    .stamp
                    .last
                    .copy_from_slice(&heartbeat.block[..BYTES]);
                heartbeat.written_at = since;
                for (op, meta) in std::mem::take(&mut heartbeat.held) {
                    self.begin(&op, &meta);
                }
            }
        }
    }

    /// Whether the member with the stamp has failed, and the volume may go on without it.
    pub(crate) fn waits_for_stamp(&self) -> bool {
        self.heartbeat.as_ref().is_some_and(|b| b.waits)
    }

    /// The volume is stamped on this member from now on, because the one with the stamp has failed. Operations stay held.
    ///
    /// # Errors
    /// Another server has the volume, or the stamp cannot be written.
    pub(crate) fn move_stamp(&mut self, member: usize) -> Result<(), Error> {
        self.finish_heartbeat();
        let (Some(heartbeat), devices) = (&mut self.heartbeat, &self.devices) else {
            return Ok(());
        };
        // What cannot be read says nothing. The other members have the stamp with which this session began.
        let read = |place: usize| stamp::read(devices.get(place)?.as_ref()?).ok();
        let old = read(heartbeat.member)
            .and_then(|b| overtaken_by(&heartbeat.stamp, heartbeat.written_at, &b));
        let new = read(member).and_then(|b| heartbeat.stamp.rival(&b));
        let new = new.map(|by| format!("the volume was taken over by {}", by.words()));
        if let Some(what) = old.or(new) {
            heartbeat.overtaken = true;
            return Err(Error::new(ErrorKind::InUse, what));
        }
        self.stamp_on(member)
    }

    /// Operations that were held until it is decided whether the volume goes on without the member with the stamp: they are forgotten, because
    /// it does, and their engine has ended.
    pub(crate) fn forget_held(&mut self) {
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.waits = false;
            heartbeat.held.clear();
        }
    }

    /// The volume does not go on without the member with the stamp: it has failed, and the operations that were held are treated so.
    pub(crate) fn give_up_stamp(&mut self) {
        if let Some(heartbeat) = &mut self.heartbeat
            && std::mem::take(&mut heartbeat.waits)
        {
            heartbeat.broken = true;
            self.give_up(UNSTAMPED.into(), None);
        }
    }

    /// Reports the fault, and treats the operations that wait for the stamp like all later ones: they are refused, except reads if the
    /// stamp could only not be read or written.
    fn give_up(&mut self, what: String, errno: Option<i32>) {
        let Some(heartbeat) = &mut self.heartbeat else {
            return;
        };
        let (member, held) = (heartbeat.member, std::mem::take(&mut heartbeat.held));
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
        self.finish_heartbeat();
        if let Some(heartbeat) = &self.heartbeat
            && let Some(Some(device)) = self.devices.get(heartbeat.member)
        {
            return !heartbeat.overtaken && heartbeat.stamp.is_on(device).unwrap_or(false);
        }
        true
    }

    /// Stamps the volume without the ring and waits for it. This is called while no other operation is in progress, before work on the
    /// members that passes the ring.
    ///
    /// # Errors
    /// Another server has the volume, or the stamp cannot be read or written. Everything is refused from then on.
    pub(crate) fn stamp_at_once(&mut self) -> Result<(), Error> {
        self.finish_heartbeat();
        let (Some(heartbeat), devices) = (&mut self.heartbeat, &self.devices) else {
            return Ok(());
        };
        let device = devices.get(heartbeat.member).and_then(Option::as_ref);
        let (false, Some(device)) = (heartbeat.has_ended(), device) else {
            let what = "the activity stamp was lost: stop the volume and check the devices";
            return Err(Error::new(ErrorKind::Device, what));
        };
        let since = now();
        let at = heartbeat.written_at;
        let stamped = stamp::read(device).and_then(|block| {
            match overtaken_by(&heartbeat.stamp, at, &block) {
                Some(what) => Err(Error::new(ErrorKind::InUse, what)),
                None => heartbeat.stamp.put(device, Kind::Serving),
            }
        });
        heartbeat.has_stamped(since, stamped)
    }

    /// Lets a thread stamp the volume at intervals, until [`UringWorld::stamped_meanwhile`]: for work on the members that passes the ring and
    /// may take long. `None` if the volume is not stamped, or no thread can be started.
    ///
    /// # Errors
    /// As for [`UringWorld::stamp_at_once`].
    pub(crate) fn stamp_meanwhile(&mut self) -> Result<Option<Stamping>, Error> {
        self.stamp_at_once()?;
        let heartbeat = self.heartbeat.as_ref();
        Ok(heartbeat.and_then(|h| {
            let device = self.devices.get(h.member)?.as_ref()?;
            Stamping::start(h.stamp.clone(), device, h.written_at)
        }))
    }

    /// Ends the thread of [`UringWorld::stamp_meanwhile`].
    ///
    /// # Errors
    /// It found that another server has the volume, or the stamp cannot be read or written. Everything is refused from then on.
    pub(crate) fn stamped_meanwhile(&mut self, stamping: Option<Stamping>) -> Result<(), Error> {
        let (Some(heartbeat), Some(stamping)) = (&mut self.heartbeat, stamping) else {
            return Ok(());
        };
        let kept = stamping.end()?;
        heartbeat.stamp = kept.stamp;
        heartbeat.has_stamped(kept.written_at, kept.outcome)
    }

    /// The volume is stamped on this member from now on: a device that has just become the primary.
    ///
    /// # Errors
    /// The stamp cannot be written there.
    pub(crate) fn stamp_on(&mut self, member: usize) -> Result<(), Error> {
        let (Some(heartbeat), devices) = (&mut self.heartbeat, &self.devices) else {
            return Ok(());
        };
        if let Some(device) = devices.get(member).and_then(Option::as_ref) {
            heartbeat.stamp.put(device, Kind::Serving)?;
            heartbeat.member = member;
        }
        Ok(())
    }

    /// After this, the kernel does not use the memory of the stamp.
    pub(super) fn finish_heartbeat(&mut self) {
        while self.heartbeat.as_ref().is_some_and(Heartbeat::is_under_way) && !self.stamp_is_away()
        {
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
