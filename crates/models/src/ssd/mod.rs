//! A flash drive: units that work in parallel, one interface, and a buffer before the programming.
//!
//! ```text
//!   read  ─► the unit that is free first ─► interface ─► done at a time known at once
//!   write ─► room in the buffer          ─► interface ─► done at a time known at once; units take it later
//! ```
//! A unit answers after the latency but stays occupied for `units / IOPS`. So the drive has both its published latency when idle and its
//! published rate when busy, and reads wait behind programming. The finish time is known at the start, so no event is simulated; a heap
//! keeps completions in order. `back.rs` has what is done behind the replies.
//!
//! Invariants: a computed result never changes; an operation never ends before its latency and its transfer are over.

mod back;
mod flash;
mod ftl;
mod sheet;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use isotherm_core::Nanos;

use back::Back;
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

/// What an operation needs of the drive.
#[derive(Clone, Copy, Debug)]
struct Task {
    /// Units that it occupies, and the time for which it occupies each of them.
    units: u64,
    each: u64,
    latency: u64,
    move_ns: u64,
    /// Bytes that it occupies in the buffer if it is a write.
    held: u64,
    /// See `Ssd::task`.
    work: u64,
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
    back: Back,
    /// Whether written data survives a loss of power before it is in the flash, so that FLUSH does not wait for that.
    protected: bool,
    /// The interface is booked up to this time. It is a virtual clock: it limits the rate and does not order operations.
    interface: u64,
    last_write: u64,
    reads: Streams,
    writes: Streams,
    pending: BinaryHeap<Reverse<(u64, u64, u64)>>,
    sequence: u64,
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
            back: Back::new(
                s.units,
                u64::from(s.write_buffer_kib) << 10,
                ftl.as_ref().map_or(0, Flash::put_off),
                ftl.as_ref().map_or(0, Flash::owed),
            ),
            protected: s.power_loss_protection,
            interface: 0,
            last_write: 0,
            reads: Streams::default(),
            writes: Streams::default(),
            pending: BinaryHeap::with_capacity(256),
            sequence: 0,
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

    /// The work of an operation on `len` bytes from `offset` on, with `extra` unit-nanoseconds of collection.
    ///
    /// Work is measured in unit-nanoseconds. It is the share of the drive's capability that the operation uses: of its rate of operations
    /// or of its bandwidth, whichever share is larger. A drive at either limit works with all units and draws the sheet's active power;
    /// waiting for the latency is not work. A random operation over several pages counts as that number of operations and is spread over
    /// the units.
    #[inline]
    fn task(&self, cost: Cost, sequential: bool, (offset, len): (u64, u32), extra: u64) -> Task {
        let all = self.back.units();
        let move_ns = cost.move_ns(len);
        let (units, latency, occupied) = if sequential {
            (1, cost.sequential, cost.sequential)
        } else if u64::from(len) <= cost.page && offset.is_multiple_of(cost.page) {
            (1, cost.latency, cost.occupied)
        } else {
            let pages = u64::from(len).div_ceil(cost.page).clamp(1, all);
            let occupied = cost.random(offset, u64::from(len), all);
            (pages, cost.latency, occupied)
        };
        // A part of a mapping unit waits together with the rest of it.
        let held = if sequential {
            u64::from(len)
        } else {
            (offset + u64::from(len)).div_ceil(cost.page) * cost.page
                - offset / cost.page * cost.page
        };
        Task {
            held,
            units,
            each: (occupied + extra) / units,
            latency,
            move_ns,
            work: (occupied + extra).max(move_ns * all),
        }
    }

    /// The end of an operation that units or the buffer take at `begin` and that arrived at `at`.
    #[inline]
    fn transfer(&mut self, task: Task, at: u64, begin: u64) -> u64 {
        self.interface = self.interface.max(at) + task.move_ns;
        (begin + task.latency + task.move_ns).max(self.interface)
    }

    fn read(&mut self, now: u64, offset: u64, len: u32) -> u64 {
        let at = self.awake(now);
        let place = self.span.map(offset);
        let run = self.reads.note(place, place + u64::from(len));
        let task = self.task(self.read, run, (place, len), 0);
        self.read_work += task.work;
        let begin = self.back.read(at, task.units, task.each);
        self.transfer(task, at, begin)
    }

    fn write(&mut self, now: u64, offset: u64, len: u32) -> u64 {
        let at = self.awake(now);
        let place = self.span.map(offset);
        let run = self.writes.note(place, place + u64::from(len));
        let extra = if self.ftl.is_some() {
            let due = self.programme(offset, len);
            self.back.owe(due)
        } else {
            0
        };
        let task = self.task(self.write, run, (place, len), extra);
        self.write_work += task.work;
        let begin = self.back.write(now, at, task.held, (task.units, task.each));
        let finish = self.transfer(task, at, begin);
        self.last_write = self.last_write.max(finish);
        finish
    }

    /// The time at which all that was written is durable, if the drive begins at `at`.
    fn durable(&mut self, at: u64) -> u64 {
        let written = at.max(self.last_write);
        let programmed = if self.protected { 0 } else { self.back.drain() };
        written.max(programmed) + self.flush
    }

    /// The flash layer's part of a write. Returns the unit-nanoseconds of garbage collection that it causes.
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
        self.back.settle(now, self.asleep_since.is_none());
        let finish = match op {
            ModelOp::Read => self.read(now, offset, len),
            ModelOp::Write => self.write(now, offset, len),
            ModelOp::WriteThrough => {
                let written = self.write(now, offset, len);
                self.durable(written)
            }
            ModelOp::Flush => {
                let at = self.awake(now);
                self.durable(at)
            }
            ModelOp::Discard => {
                let at = self.awake(now);
                if let Some(f) = &mut self.ftl {
                    f.discard(offset, len);
                }
                at + self.discard
            }
            ModelOp::Standby => {
                // The buffer is empty before the drive sleeps.
                let at = now.max(self.back.drain()).max(self.back.busy_until);
                self.totals.start_stops += u64::from(self.asleep_since.is_none());
                self.asleep_since.get_or_insert(at);
                at
            }
        };
        if op != ModelOp::Standby {
            self.back.busy(now, finish);
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

    /// The lower of both latencies and the transfer, of which the interface does one at a time. A write into the buffer takes no less, since
    /// its latency is that of the buffer.
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

    /// Energy: idle power all the time, plus, for work (see `task`), its share of the additional power of reading or writing. The work of an
    /// operation counts when it arrives, so a report during a burst is ahead by at most the queued work; collection in idle time counts
    /// when it is done.
    fn counters(&self, now: Nanos) -> Counters {
        let now = now.0.max(self.now);
        let [idle_w, read_w, write_w, standby_w] = self.watts;
        let mut out = self.totals;
        let mut back = self.back.clone();
        back.settle(now, self.asleep_since.is_none());
        // Operations do not overlap anything before their arrival, so the future part is at the end of the busy time.
        out.busy_ns = back.busy_ns - back.busy_until.saturating_sub(now);
        let standby = self.standby_ns + self.asleep_since.map_or(0, |s| now.saturating_sub(s));
        let units = back.units() as f64;
        let active = out.busy_ns.min(now - standby.min(now));
        let idle = now - active - standby.min(now);
        let work_j = (self.read_work as f64 * (read_w - idle_w)
            + (self.write_work + back.collected()) as f64 * (write_w - idle_w))
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
mod behind;
#[cfg(test)]
mod tests;
