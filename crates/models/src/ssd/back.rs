//! What a drive does behind its replies: units that work, writes that wait for them in a buffer, and garbage collection in idle time.
//!
//! ```text
//!   write ─► buffer ─► the unit that is free first      read ─► the unit that is free first
//! ```
//! A write leaves the buffer when units take it, in the order of arrival. A read goes before the writes that still wait, but not before those
//! that units have. If a write does not fit into the buffer, units are promised to the oldest writes until it does; later reads go behind
//! these. So every time is known when an operation arrives.
//!
//! Garbage collection is a debt. The drive keeps some flash erased; a write takes of it and owes the work that replaces it. The whole drive
//! works the debt off while it is idle. Beyond the erased flash, a write waits for what it owes. A drive that begins used owes for writes
//! before the run. That work takes idle time, but comes last and does not count as work of the run.
//!
//! Invariants: no debt is lost or paid twice; the busy time covers the time from a write's arrival until units have programmed it, and all
//! collection for writes of the run.

use std::collections::VecDeque;

/// Most units over which one operation is spread.
const UNITS_AT_ONCE: usize = 16;

/// A write in the buffer.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// When it arrived, and from when on units may take it (the drive is awake).
    arrived: u64,
    ready: u64,
    bytes: u64,
    units: usize,
    each: u64,
}

/// See the module. Times are in nanoseconds, work in unit-nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Back {
    /// The times at which the units are free, earliest first. The units are interchangeable.
    units: VecDeque<u64>,
    waiting: VecDeque<Waiting>,
    /// Bytes that wait, and the bytes for which there is room.
    held: u64,
    room: u64,
    /// The time at which the last write that a unit has taken is in the flash.
    programmed: u64,
    /// Collection that is due for writes of the run and for those before it, and the most that can be put off of both.
    owed: u64,
    past: u64,
    owed_max: u64,
    /// Collection for writes of the run that was done in idle time.
    collected: u64,
    /// Idle time before this was used.
    settled: u64,
    /// Time with an operation in the drive, data in its buffer or collection, up to `busy_until`.
    pub busy_ns: u64,
    pub busy_until: u64,
}

impl Back {
    /// `units` idle units behind a buffer of `room` bytes. `put_off` is the most collection that can wait for idle time, and `past` is due.
    pub fn new(units: u32, room: u64, put_off: u64, past: u64) -> Back {
        Back {
            units: VecDeque::from(vec![0; units as usize]),
            waiting: VecDeque::new(),
            held: 0,
            room,
            programmed: 0,
            owed: 0,
            past: past.min(put_off),
            owed_max: put_off,
            collected: 0,
            settled: 0,
            busy_ns: 0,
            busy_until: 0,
        }
    }

    /// Number of units.
    pub fn units(&self) -> u64 {
        self.units.len() as u64
    }

    /// Collection in idle time for writes of the run, so far.
    pub fn collected(&self) -> u64 {
        self.collected
    }

    /// Does what is done by `now`: units take writes, and an idle drive that is awake collects.
    #[inline]
    pub fn settle(&mut self, now: u64, awake: bool) {
        while let Some(w) = self.waiting.front() {
            if self.begin(*w) > now {
                return;
            }
            self.take_oldest();
        }
        let from = self.busy_until.max(self.settled);
        self.settled = self.settled.max(now);
        if awake && from < now && self.owed + self.past > 0 {
            let n = self.units();
            let idle = (now - from) * n;
            let work = self.owed.min(idle);
            self.owed -= work;
            self.collected += work;
            self.busy(from, from + work.div_ceil(n));
            self.past -= self.past.min(idle - work);
        }
    }

    /// The collection that a write which owes `work` has to wait for.
    #[inline]
    pub fn owe(&mut self, work: u64) -> u64 {
        let now = (self.owed + self.past + work)
            .saturating_sub(self.owed_max)
            .min(work);
        self.owed += work - now;
        now
    }

    /// A read takes `n` units for `each`. Returns the time at which the last of them begins.
    #[inline]
    pub fn read(&mut self, at: u64, n: u64, each: u64) -> u64 {
        self.take(at, (n as usize).min(UNITS_AT_ONCE), each)
    }

    /// A write of `bytes` that arrived at `arrived` needs `n` units for `each`, from `at` on. Returns the time from which the drive has room for
    /// it.
    #[inline]
    pub fn write(&mut self, arrived: u64, at: u64, bytes: u64, (n, each): (u64, u64)) -> u64 {
        let units = (n as usize).min(UNITS_AT_ONCE);
        self.held += bytes;
        self.waiting.push_back(Waiting {
            arrived,
            ready: at,
            bytes,
            units,
            each,
        });
        let mut from = at;
        while self.held > self.room {
            from = from.max(self.take_oldest());
        }
        from
    }

    /// Promises units to all that waits. Returns the time at which it is in the flash.
    pub fn drain(&mut self) -> u64 {
        while !self.waiting.is_empty() {
            self.take_oldest();
        }
        self.programmed
    }

    /// An operation is in the drive from `from` to `until`.
    #[inline]
    pub fn busy(&mut self, from: u64, until: u64) {
        self.busy_ns += until - from.max(self.busy_until).min(until);
        self.busy_until = self.busy_until.max(until);
    }

    /// The time at which units can take a write.
    #[inline]
    fn begin(&self, w: Waiting) -> u64 {
        let last = w.units.min(self.units.len()).saturating_sub(1);
        w.ready.max(self.units.get(last).copied().unwrap_or(0))
    }

    /// Units take the oldest write that waits. Returns the time at which the last of them begins.
    fn take_oldest(&mut self) -> u64 {
        let Some(w) = self.waiting.pop_front() else {
            return 0;
        };
        self.held -= w.bytes;
        let begin = self.take(w.ready, w.units, w.each);
        self.programmed = self.programmed.max(begin + w.each);
        self.busy(w.arrived, begin + w.each);
        begin
    }

    /// Occupies the `n` units that are free first for `each`. Returns the time at which the last of them begins.
    #[inline]
    fn take(&mut self, at: u64, n: usize, each: u64) -> u64 {
        let mut begin = at;
        // A unit that is occupied here may be free again before another one, so all are taken before any is put back.
        let mut free = [0u64; UNITS_AT_ONCE];
        for slot in &mut free[..n] {
            begin = at.max(self.units.pop_front().unwrap_or(0));
            *slot = begin + each;
        }
        for &until in &free[..n] {
            self.occupy(until);
        }
        begin
    }

    /// A unit is busy until `free`. This is mostly later than for all others, so a search from the back beats a heap.
    #[inline]
    fn occupy(&mut self, free: u64) {
        let mut i = self.units.len();
        while i > 0 && self.units[i - 1] > free {
            i -= 1;
        }
        if i == self.units.len() {
            self.units.push_back(free);
        } else {
            self.units.insert(i, free);
        }
    }
}
