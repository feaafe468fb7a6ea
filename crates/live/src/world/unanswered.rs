//! Operations that a member does not answer, and its errors, for other threads (`vitals.rs`).
//!
//! Such operations are only reported. They are not given up: the kernel still has their memory, and a write that arrives late must not
//! overwrite newer data. So what needs the member waits as long as the kernel does, and everything else goes on.

use super::heartbeat::Heartbeat;
use super::{REAL, UringWorld};
use crate::vitals::{Deed, Unanswered, Vital};
use isotherm_core::{DeviceOp, Nanos, OpKind};
use std::time::Duration;

/// Interval at which operations in progress are looked at, and the age from which on one is reported.
const INTERVAL: Nanos = Nanos::from_secs(1);

/// No volume has more members. An array, because this happens while requests are served, and so must not allocate.
const MEMBERS_MAX: usize = 64;

fn deed(kind: OpKind) -> Option<Deed> {
    Some(match kind {
        OpKind::Read => Deed::Read,
        OpKind::Write | OpKind::WriteZeroes => Deed::Write,
        OpKind::Flush => Deed::Flush,
        OpKind::Discard => Deed::Discard,
        OpKind::Standby => return None,
    })
}

/// The operations of one member in progress.
#[derive(Clone, Copy, Default)]
struct Open {
    oldest: Option<Nanos>,
    reads: u32,
    writes: u32,
    flushes: u32,
}

impl UringWorld {
    /// The members have changed, or a session begins.
    pub(super) fn register_vitals(&mut self) {
        let mut vitals = self.vitals.locked();
        vitals.members.resize(self.members.len(), Vital::default());
        for (vital, m) in vitals.members.iter_mut().zip(&self.members) {
            vital.local_file = m.keep.is_some();
        }
    }

    /// Another device is in the place of a member.
    pub(super) fn forget_vital(&mut self, member: usize) {
        if let Some(vital) = self.vitals.locked().members.get_mut(member) {
            *vital = Vital::default();
        }
    }

    /// An operation failed with this number, 0 if it only ended early.
    pub(super) fn note_error(&self, op: &DeviceOp, errno: i32) {
        if let Some(deed) = deed(op.kind) {
            let errno = Some(errno).filter(|&e| e > 0);
            self.vitals.failed(usize::from(op.member.0), deed, errno);
        }
    }

    /// Time at which [`UringWorld::check_answers`] must be called.
    pub(super) fn next_answers_check(&self) -> Option<Nanos> {
        let stamping = self.heartbeat.as_ref().is_some_and(Heartbeat::is_under_way);
        let some = self.flights.len() > self.free.len() || stamping || self.any_unanswered;
        some.then(|| self.answers_checked + INTERVAL)
    }

    /// Looks at the operations in progress, if that is due, and reports members that have not answered for a second.
    pub(super) fn check_answers(&mut self) {
        if self.seen.since(self.answers_checked) < INTERVAL {
            return;
        }
        self.answers_checked = self.seen;
        let mut open = [Open::default(); MEMBERS_MAX];
        let mut add = |member: usize, since: Nanos, deed: Option<Deed>| {
            let Some(o) = open.get_mut(member) else {
                return;
            };
            o.oldest = Some(o.oldest.map_or(since, |t| t.min(since)));
            match deed {
                Some(Deed::Read) => o.reads += 1,
                Some(Deed::Flush) => o.flushes += 1,
                _ => o.writes += 1,
            }
        };
        for f in self.flights.iter().flatten() {
            if f.waiting & REAL != 0 && f.op.kind != OpKind::Standby {
                add(usize::from(f.op.member.0), f.since, deed(f.op.kind));
            }
        }
        if let Some((member, age)) = self.heartbeat.as_ref().and_then(Heartbeat::open_for) {
            let since = Nanos(self.seen.0.saturating_sub(age.as_nanos() as u64));
            add(member, since, Some(Deed::Write));
        }
        let late = |o: &Open| o.oldest.is_some_and(|t| self.seen.since(t) >= INTERVAL);
        let any = open.iter().any(late);
        if !any && !std::mem::take(&mut self.any_unanswered) {
            return;
        }
        self.any_unanswered = any;
        let flushes = if any { self.requests.flushes() } else { 0 };
        let now = std::time::Instant::now();
        let mut vitals = self.vitals.locked();
        vitals.flushes_waiting = u32::try_from(flushes).unwrap_or(u32::MAX);
        for (vital, o) in vitals.members.iter_mut().zip(&open) {
            let since = o.oldest.filter(|_| late(o)).and_then(|t| {
                let age = Duration::from_nanos(self.seen.since(t).0);
                now.checked_sub(age)
            });
            // The begin stays the same while the same operation is the oldest one, whatever the clocks' rounding.
            let before = vital.unanswered.map(|u| u.since);
            vital.unanswered = since.map(|since| Unanswered {
                since: before.filter(|b| is_close(*b, since)).unwrap_or(since),
                reads: o.reads,
                writes: o.writes,
                flushes: o.flushes,
            });
        }
    }
}

fn is_close(a: std::time::Instant, b: std::time::Instant) -> bool {
    let apart = a.saturating_duration_since(b) + b.saturating_duration_since(a);
    apart < Duration::from_millis(500)
}
