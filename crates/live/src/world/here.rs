//! Flushes that the engine's thread does itself.
//!
//! io_uring never starts an `fsync` on the spot: a worker does it, which takes a change of threads to the worker and another one back.
//! Many devices flush in less time than that. So where a flush is all that is left to do, and the flushes of this member were short
//! lately, the engine's thread makes the call itself, where it would have slept.
//!
//! The price is that whatever arrives meanwhile waits for the flush. So it is only done if the longest flush of late (each one lets that
//! fade by an eighth) took no more than `flush_here_us`, and if nothing of another member is under way, whose end would have to wait for
//! this one. One flush that takes a second sends the next hundred or so to the ring.
//!
//! Never false: what was queued before the flush is handed to the kernel before it, and a flush that was held back is either done here or
//! put into the ring before this thread sleeps.

use super::{REAL, UringWorld};
use crate::mutants::{LiveMutant, broken};
use io_uring::{opcode, types};
use std::time::{Duration, Instant};

/// Part of the longest time that fades with each flush.
const FADE: u64 = 8;

/// How long the flushes of a member take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlushTime(Option<u64>);

impl FlushTime {
    /// One ended.
    pub(super) fn ended(&mut self, after: Duration) {
        let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let before = self.0.unwrap_or(0);
        self.0 = Some(after.max(before - before / FADE));
    }

    /// May the next one be expected to end so soon? Not before one was seen.
    fn is_within(self, limit: Duration) -> bool {
        self.0.is_some_and(|t| u128::from(t) <= limit.as_nanos())
    }
}

impl UringWorld {
    /// A flush is to begin. It is held back until it is known what else there is to do, if it could be done here.
    pub(super) fn start_flush(&mut self, id: u32) {
        let member = usize::from(self.flight(id).op.member.0);
        self.flight(id).begun = Some(Instant::now());
        if self.members[member].flush_time.is_within(self.flush_here) {
            self.held.push(id);
        } else {
            self.flush_in_ring(id);
        }
    }

    fn flush_in_ring(&mut self, id: u32) {
        let member = self.flight(id).op.member.0;
        let entry = opcode::Fsync::new(types::Fixed(member.into()))
            .flags(types::FsyncFlags::DATASYNC)
            .build();
        self.push(&entry.user_data(id.into()));
    }

    /// Settles what becomes of flushes that were held back; `idle`: there is nothing else to do. True: one was done here.
    pub(super) fn settle_held(&mut self, idle: bool) -> bool {
        let Some(id) = self.held.pop() else {
            return false;
        };
        let member = self.flight(id).op.member;
        let others = |f: &super::Flight| f.waiting & REAL != 0 && f.op.member != member;
        if idle && self.held.is_empty() && !self.flights.iter().flatten().any(others) {
            self.flush_now(id);
            return true;
        }
        self.flush_in_ring(id);
        while let Some(id) = self.held.pop() {
            self.flush_in_ring(id);
        }
        false
    }

    fn flush_now(&mut self, id: u32) {
        if !self.ring.is_idle() {
            self.enter(0, None);
        }
        let member = usize::from(self.flight(id).op.member.0);
        let Some(fd) = self.members[member].fd else {
            return self.completed(id, -libc::ENODEV);
        };
        if broken(LiveMutant::FlushHereNothing) {
            return self.completed(id, 0);
        }
        // SAFETY: plain numbers; the descriptor is open as long as the world is.
        let result = match unsafe { libc::fdatasync(fd) } {
            0 => 0,
            _ => -std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        };
        self.completed(id, result);
    }

    /// The world ends: nobody waits for what was held back.
    pub(super) fn forget_held(&mut self) {
        for id in std::mem::take(&mut self.held) {
            if let Some(Some(f)) = self.flights.get_mut(id as usize) {
                f.waiting &= !REAL;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_stalled_once_is_not_trusted_for_a_while() {
        let limit = Duration::from_micros(500);
        let mut t = FlushTime::default();
        assert!(!t.is_within(limit), "nothing is known yet");
        t.ended(Duration::from_micros(90));
        assert!(t.is_within(limit));
        assert!(!t.is_within(Duration::ZERO), "0 turns it off");
        t.ended(Duration::from_secs(1));
        let mut n = 0;
        while !t.is_within(limit) {
            t.ended(Duration::from_micros(90));
            n += 1;
        }
        assert!((40..100).contains(&n), "{n}");
    }
}
