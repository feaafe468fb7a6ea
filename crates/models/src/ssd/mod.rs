//! A flash drive: units that work in parallel, one interface, and a buffer before the programming.
//!
//! ```text
//!   start ─► the unit that is free first ─► interface ─► done at a time known at once
//! ```
//! A unit answers after the latency but stays occupied for `units / IOPS`. So the drive has both its published latency when idle and its
//! published rate when busy, and reads wait behind programming. The finish time is known at the start, so no event is simulated; a heap
//! keeps completions in order.
//!
//! Invariants: a computed result never changes; an operation never ends before its latency and its transfer are over.

mod flash;
mod ftl;
mod sheet;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use isotherm_core::Nanos;

use flash::Flash;
pub use ftl::{Ftl, greedy_write_amplification};
pub use sheet::{FtlSheet, Rated, SsdPower, SsdSheet};

use crate::model::{Counters, DeviceModel, Least, ModelOp, PowerState, Wear};
use crate::options::{FlashState, Options};
use crate::span::SpanMap;

/// Number of sequential runs that are remembered, for reads and for writes each.
const STREAMS: usize = 4;
/// Up to this many bytes, the cost of a random operation is counted by pages; it is the physical page of flash chips (some planes of 4 or 8
/// KiB). Bytes beyond it are transferred at the drive's bandwidth, as in a sequential run.
const BY_PAGES: u64 = 16 << 10;
/// Most units over which one operation is spread.
const UNITS_AT_ONCE: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Streams {
    ends: [u64; STREAMS],
    next: usize,
}

impl Streams {
    /// Whether `offset` continues a run. In either case a run now ends at `end`.
    #[inline]
    fn note(&mut self, offset: u64, end: u64) -> bool {
        for e in &mut self.ends {
            if *e == offset && offset != 0 {
                *e = end;
                return true;
            }
        }
        self.ends[self.next] = end;
        self.next = (self.next + 1) % STREAMS;
        false
    }
}

#[derive(Clone, Copy, Debug)]
struct Cost {
    latency: u64,
    occupied: u64,
    sequential: u64,
    ns_per_byte: f64,
    /// Bytes that one random operation of `occupied` reads or writes.
    page: u64,
}

impl Cost {
    fn new(latency_us: f64, iops: f64, sequential_us: f64, mb_s: f64, units: u32) -> Cost {
        Cost {
            latency: (latency_us * 1e3) as u64,
            occupied: (f64::from(units) * 1e9 / iops) as u64,
            sequential: (sequential_us * 1e3) as u64,
            ns_per_byte: 1e3 / mb_s,
            page: 4096,
        }
    }

    /// Time of the transfer.
    fn move_ns(&self, len: u32) -> u64 {
        (f64::from(len) * self.ns_per_byte) as u64
    }

    /// Unit-nanoseconds of a random operation on `len` bytes from `offset` on that uses `units` units.
    fn random(&self, offset: u64, len: u64, units: u64) -> u64 {
        let pages = (offset + len).div_ceil(self.page) - offset / self.page;
        let dear = pages.min((BY_PAGES / self.page).max(1));
        let rest = (pages - dear) * self.page;
        dear * self.occupied + (rest as f64 * self.ns_per_byte) as u64 * units
    }
}

/// The flash drive model. See the module's head.
#[derive(Debug)]
pub struct Ssd {
    capacity: u64,
    span: SpanMap,
    read: Cost,
    write: Cost,
    flush: u64,
    discard: u64,
    wake: u64,
    watts: [f64; 4],
    write_limit_pages: f64,
    reads_per_write: f64,

    now: u64,
    /// The times at which the units are free, earliest first. The units are interchangeable.
    units: VecDeque<u64>,
    /// The interface is booked up to this time. It is a virtual clock: it limits the rate and does not order operations.
    interface: u64,
    last_write: u64,
    reads: Streams,
    writes: Streams,
    pending: BinaryHeap<Reverse<(u64, u64, u64)>>,
    sequence: u64,
    busy_until: u64,
    asleep_since: Option<u64>,
    /// Unit-nanoseconds of work, for the energy.
    read_work: u64,
    write_work: u64,
    standby_ns: u64,
    totals: Counters,
    ftl: Option<Flash>,
}

impl Ssd {
    /// Makes a drive from its data sheet. The sheet must have passed [`crate::Sheet::parse`].
    pub fn new(sheet: &SsdSheet, options: &Options) -> Ssd {
        let s = sheet;
        let us = |t: f64| (t * 1e3) as u64;
        let mut write = Cost::new(
            s.write_us,
            s.write_iops,
            s.sequential_write_us,
            s.write_mb_s,
            s.units,
        );
        let ftl = Flash::new(s, options, write.occupied);
        if let Some(f) = &ftl {
            write.occupied = f.left_for_programming();
        }
        if let Some(f) = s
            .ftl
            .as_ref()
            .filter(|_| options.flash == FlashState::Ideal)
        {
            write.occupied = flash::programming(f, write.occupied as f64).0 as u64;
        }
        if let Some(f) = &s.ftl {
            write.page = write.page.max(u64::from(f.page_kib) << 10);
        }
        Ssd {
            capacity: s.capacity,
            span: SpanMap::new(options.span, options.size, s.capacity),
            read: Cost::new(
                s.read_us,
                s.read_iops,
                s.sequential_read_us,
                s.read_mb_s,
                s.units,
            ),
            write,
            flush: us(s.flush_us),
            discard: us(s.discard_us),
            wake: us(s.power.wake_us),
            watts: [
                s.power.idle_w,
                s.power.read_w,
                s.power.write_w,
                s.power.standby_w,
            ],
            write_limit_pages: s.write_limit_gb * 1e9 / 4096.0,
            reads_per_write: options.reads_per_write.unwrap_or(s.reads_per_write),
            now: 0,
            units: VecDeque::from(vec![0; s.units as usize]),
            interface: 0,
            last_write: 0,
            reads: Streams::default(),
            writes: Streams::default(),
            pending: BinaryHeap::with_capacity(256),
            sequence: 0,
            busy_until: 0,
            asleep_since: None,
            read_work: 0,
            write_work: 0,
            standby_ns: 0,
            totals: Counters::default(),
            ftl,
        }
    }

    /// Bytes programmed divided by bytes that the host wrote, so far. `None` without FTL or writes.
    pub fn write_amplification(&self) -> Option<f64> {
        let f = self.ftl.as_ref()?;
        let host = self.totals.bytes_written;
        (host > 0).then(|| f.bytes_programmed() as f64 / host as f64)
    }

    /// Memory of the flash layer's tables in bytes; 0 without a flash layer.
    pub fn flash_memory_bytes(&self) -> usize {
        self.ftl.as_ref().map_or(0, Flash::memory_bytes)
    }

    /// The units that are free first take the work, and after it `extra` nanoseconds of their own. Returns (finish, work).
    ///
    /// Work is measured in unit-nanoseconds. It is the share of the drive's capability that the operation uses: of its rate of operations
    /// or of its bandwidth, whichever share is larger. A drive at either limit works with all units and draws the sheet's active power;
    /// waiting for the latency is not work. A random operation over several pages counts as that number of operations and is spread over
    /// the units.
    #[inline]
    fn transfer(
        &mut self,
        cost: Cost,
        sequential: bool,
        at: u64,
        (offset, len): (u64, u32),
        extra: u64,
    ) -> (u64, u64) {
        let units = self.units.len() as u64;
        let move_ns = cost.move_ns(len);
        let (begin, latency, occupied) = if sequential {
            let begin = self.take(at, 1, cost.sequential + extra);
            (begin, cost.sequential, cost.sequential)
        } else if u64::from(len) <= cost.page && offset.is_multiple_of(cost.page) {
            let begin = self.take(at, 1, cost.occupied + extra);
            (begin, cost.latency, cost.occupied)
        } else {
            let occupied = cost.random(offset, u64::from(len), units);
            let pages = u64::from(len).div_ceil(cost.page).clamp(1, units);
            let begin = self.take(at, pages, (occupied + extra) / pages);
            (begin, cost.latency, occupied)
        };
        self.interface = self.interface.max(at) + move_ns;
        (
            (begin + latency + move_ns).max(self.interface),
            (occupied + extra).max(move_ns * units),
        )
    }

    /// Occupies the `n` units that are free first for `each`. Returns the time at which the last of them begins.
    #[inline]
    fn take(&mut self, at: u64, n: u64, each: u64) -> u64 {
        let mut begin = at;
        // A unit that is occupied here may be free again before another one, so all are taken before any is put back.
        let mut free = [0u64; UNITS_AT_ONCE];
        let n = (n as usize).min(UNITS_AT_ONCE);
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

    /// The flash layer's part of a write. Returns the nanoseconds of garbage collection, which occupy the unit that takes the write.
    fn programme(&mut self, offset: u64, len: u32) -> u64 {
        let Some(f) = &mut self.ftl else { return 0 };
        f.write(offset, len)
    }

    fn awake(&mut self, now: u64) -> u64 {
        match self.asleep_since.take() {
            None => now,
            Some(since) => {
                self.standby_ns += now.saturating_sub(since);
                now + self.wake
            }
        }
    }
}

impl DeviceModel for Ssd {
    #[inline]
    fn start(&mut self, now: Nanos, id: u64, op: ModelOp, offset: u64, len: u32) {
        if let Some(finish) = self.start_timed(now, op, offset, len) {
            self.sequence += 1;
            self.pending.push(Reverse((finish.0, self.sequence, id)));
        }
    }

    #[inline]
    fn start_timed(&mut self, now: Nanos, op: ModelOp, offset: u64, len: u32) -> Option<Nanos> {
        self.now = self.now.max(now.0);
        self.totals.note(op, offset, len);
        let now = self.now;
        let finish = match op {
            ModelOp::Read => {
                let at = self.awake(now);
                let place = self.span.map(offset);
                let run = self.reads.note(place, place + u64::from(len));
                let (finish, work) = self.transfer(self.read, run, at, (place, len), 0);
                self.read_work += work;
                finish
            }
            ModelOp::Write | ModelOp::WriteThrough => {
                let at = self.awake(now);
                let place = self.span.map(offset);
                let run = self.writes.note(place, place + u64::from(len));
                let extra = if self.ftl.is_some() {
                    self.programme(offset, len)
                } else {
                    0
                };
                let (finish, work) = self.transfer(self.write, run, at, (place, len), extra);
                self.write_work += work;
                self.last_write = self.last_write.max(finish);
                if op == ModelOp::WriteThrough {
                    finish + self.flush
                } else {
                    finish
                }
            }
            ModelOp::Flush => self.awake(now).max(self.last_write) + self.flush,
            ModelOp::Discard => {
                let at = self.awake(now);
                if let Some(f) = &mut self.ftl {
                    f.discard(offset, len);
                }
                at + self.discard
            }
            ModelOp::Standby => {
                let at = now.max(self.busy_until);
                self.totals.start_stops += u64::from(self.asleep_since.is_none());
                self.asleep_since.get_or_insert(at);
                at
            }
        };
        if op != ModelOp::Standby {
            self.totals.busy_ns += finish - now.max(self.busy_until).min(finish);
            self.busy_until = self.busy_until.max(finish);
        }
        Some(Nanos(finish))
    }

    #[inline]
    fn next_event(&self) -> Option<Nanos> {
        self.pending.peek().map(|p| Nanos(p.0.0))
    }

    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Vec<u64>) {
        self.now = self.now.max(now.0);
        while let Some(Reverse((finish, _, id))) = self.pending.peek() {
            if *finish > self.now {
                break;
            }
            done.push(*id);
            self.pending.pop();
        }
    }

    /// The lower of both latencies and the transfer, of which the interface does one at a time.
    fn least(&self, op: ModelOp, len: u32) -> Option<Least> {
        let cost = if op == ModelOp::Read {
            &self.read
        } else {
            &self.write
        };
        let alone = cost.move_ns(len);
        Some(Least {
            whole: Nanos(cost.latency.min(cost.sequential) + alone),
            alone: Nanos(alone),
        })
    }

    /// Energy: idle power all the time, plus, for work (see `transfer`), its share of the additional power of reading or writing. Work
    /// counts when it begins, so a report during a burst is ahead by at most the queued work.
    fn counters(&self, now: Nanos) -> Counters {
        let now = now.0.max(self.now);
        let [idle_w, read_w, write_w, standby_w] = self.watts;
        let mut out = self.totals;
        // Operations do not overlap anything before their arrival, so the future part is at the end of the busy time.
        out.busy_ns -= self.busy_until.saturating_sub(now);
        let standby = self.standby_ns + self.asleep_since.map_or(0, |s| now.saturating_sub(s));
        let units = self.units.len() as f64;
        let active = out.busy_ns.min(now - standby.min(now));
        let idle = now - active - standby.min(now);
        let work_j = (self.read_work as f64 * (read_w - idle_w)
            + self.write_work as f64 * (write_w - idle_w))
            / units;
        out.state_ns[PowerState::Idle as usize] = idle;
        out.state_ns[PowerState::Active as usize] = active;
        out.state_ns[PowerState::Standby as usize] = standby;
        out.state_j[PowerState::Idle as usize] = idle as f64 * 1e-9 * idle_w;
        out.state_j[PowerState::Active as usize] = (active as f64 * idle_w + work_j) * 1e-9;
        out.state_j[PowerState::Standby as usize] = standby as f64 * 1e-9 * standby_w;
        if let Some(f) = &self.ftl {
            (out.flash_pages_written, out.erases) = f.programmed_and_erased();
            out.flash_bytes_written = f.bytes_programmed();
        }
        out
    }

    fn wear(&self) -> Wear {
        let reads = if self.reads_per_write > 0.0 {
            self.totals.pages_read as f64 / self.reads_per_write
        } else {
            0.0
        };
        let used = self.totals.pages_written as f64 + reads;
        let host_eu = if self.write_limit_pages > 0.0 {
            used * 1e6 / self.write_limit_pages
        } else {
            0.0
        };
        let flash_eu = self.ftl.as_ref().and_then(Flash::wear_eu);
        Wear { host_eu, flash_eu }
    }

    fn set_reads_per_write(&mut self, reads: f64) {
        self.reads_per_write = reads.max(0.0);
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}

#[cfg(test)]
mod amplification;
#[cfg(test)]
mod tests;
