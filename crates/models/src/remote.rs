//! A remote store: latency, a limited number of requests in flight, a link, a price list.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use isotherm_core::Nanos;
use serde::Deserialize;

use crate::check::{Check, SheetError};
use crate::model::{Counters, DeviceModel, Least, ModelOp, PowerState, Wear};
use crate::options::Options;

/// A remote store. MB = 10⁶ bytes, GB = 10⁹.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteSheet {
    /// Capacity in bytes. A remote store has no fixed end; the sheet states how much may be used.
    pub capacity: u64,
    /// Time to the first byte of a read.
    pub read_ms: f64,
    /// Time to the acknowledgement of a write, without its transfer.
    pub write_ms: f64,
    /// Number of requests that are served at a time.
    pub connections: u32,
    /// Rate of the link from the store.
    pub read_mb_s: f64,
    /// Rate of the link to the store.
    pub write_mb_s: f64,
    /// Additional power of the local host while the store is attached.
    pub host_w: f64,
    /// Price of 1000 reads.
    pub usd_per_1000_reads: f64,
    /// Price of 1000 writes; flushes are free.
    pub usd_per_1000_writes: f64,
    /// Price of a GB read.
    pub usd_per_gb_read: f64,
    /// Rent of a GB for a month.
    pub usd_per_gb_month: f64,
}

impl RemoteSheet {
    pub(crate) fn check(&self, file: &str) -> Result<(), SheetError> {
        let c = Check {
            file,
            table: "remote",
        };
        c.at_least("capacity", self.capacity as f64, 1e6)?;
        c.at_least("read_ms", self.read_ms, 0.0)?;
        c.at_least("write_ms", self.write_ms, 0.0)?;
        c.within("connections", f64::from(self.connections), 1.0, 4096.0)?;
        c.at_least("read_mb_s", self.read_mb_s, 0.001)?;
        c.at_least("write_mb_s", self.write_mb_s, 0.001)?;
        c.at_least("host_w", self.host_w, 0.0)?;
        c.at_least("usd_per_1000_reads", self.usd_per_1000_reads, 0.0)?;
        c.at_least("usd_per_1000_writes", self.usd_per_1000_writes, 0.0)?;
        c.at_least("usd_per_gb_read", self.usd_per_gb_read, 0.0)?;
        c.at_least("usd_per_gb_month", self.usd_per_gb_month, 0.0)
    }

    /// The price of the requests in `counters`, without the rent.
    pub fn request_usd(&self, counters: &Counters) -> f64 {
        counters.reads as f64 / 1e3 * self.usd_per_1000_reads
            + counters.writes as f64 / 1e3 * self.usd_per_1000_writes
            + counters.bytes_read as f64 / 1e9 * self.usd_per_gb_read
    }
}

/// The model of a remote store. A connection is busy from request to answer; all connections share the links.
#[derive(Debug)]
pub struct Remote {
    capacity: u64,
    latency: [u64; 2],
    ns_per_byte: [f64; 2],
    link: [u64; 2],
    /// The times at which the connections are free, earliest first.
    connections: BinaryHeap<Reverse<u64>>,
    pending: BinaryHeap<Reverse<(u64, u64, u64)>>,
    sequence: u64,
    last_write: u64,
    busy_until: u64,
    now: u64,
    host_w: f64,
    totals: Counters,
}

impl Remote {
    /// Makes a store from its sheet. The only field of `options` that could apply is the member's size, which is ignored.
    pub fn new(sheet: &RemoteSheet, _options: &Options) -> Remote {
        Remote {
            capacity: sheet.capacity,
            latency: [(sheet.read_ms * 1e6) as u64, (sheet.write_ms * 1e6) as u64],
            ns_per_byte: [1e3 / sheet.read_mb_s, 1e3 / sheet.write_mb_s],
            link: [0; 2],
            connections: (0..sheet.connections).map(|_| Reverse(0)).collect(),
            pending: BinaryHeap::with_capacity(256),
            sequence: 0,
            last_write: 0,
            busy_until: 0,
            now: 0,
            host_w: sheet.host_w,
            totals: Counters::default(),
        }
    }

    /// Time on the link.
    fn move_ns(&self, way: usize, len: u32) -> u64 {
        (f64::from(len) * self.ns_per_byte[way]) as u64
    }

    fn transfer(&mut self, way: usize, len: u32) -> u64 {
        let free = self.connections.pop().map_or(0, |c| c.0);
        let begin = self.now.max(free);
        let move_ns = self.move_ns(way, len);
        self.link[way] = self.link[way].max(self.now) + move_ns;
        let finish = (begin + self.latency[way] + move_ns).max(self.link[way]);
        self.connections.push(Reverse(finish));
        finish
    }
}

impl DeviceModel for Remote {
    fn start(&mut self, now: Nanos, id: u64, op: ModelOp, offset: u64, len: u32) {
        if let Some(finish) = self.start_timed(now, op, offset, len) {
            self.sequence += 1;
            self.pending.push(Reverse((finish.0, self.sequence, id)));
        }
    }

    fn start_timed(&mut self, now: Nanos, op: ModelOp, offset: u64, len: u32) -> Option<Nanos> {
        self.now = self.now.max(now.0);
        self.totals.note(op, offset, len);
        let finish = match op {
            ModelOp::Read => self.transfer(0, len),
            ModelOp::Write | ModelOp::WriteThrough => {
                let finish = self.transfer(1, len);
                self.last_write = self.last_write.max(finish);
                finish
            }
            // A write that is acknowledged is durable.
            ModelOp::Flush => self.now.max(self.last_write),
            ModelOp::Discard => self.transfer(1, 0),
            ModelOp::Standby => self.now,
        };
        self.totals.busy_ns += finish - self.now.max(self.busy_until).min(finish);
        self.busy_until = self.busy_until.max(finish);
        Some(Nanos(finish))
    }

    fn next_event(&self) -> Option<Nanos> {
        self.pending.peek().map(|p| Nanos(p.0.0))
    }

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

    /// The latency and the transfer, of which the link does one at a time.
    fn least(&self, op: ModelOp, len: u32) -> Option<Least> {
        let way = usize::from(op != ModelOp::Read);
        let alone = self.move_ns(way, len);
        Some(Least {
            whole: Nanos(self.latency[way] + alone),
            alone: Nanos(alone),
        })
    }

    fn counters(&self, now: Nanos) -> Counters {
        let now = now.0.max(self.now);
        let mut out = self.totals;
        out.busy_ns -= self.busy_until.saturating_sub(now);
        for (state, ns) in [
            (PowerState::Active, out.busy_ns),
            (PowerState::Idle, now - out.busy_ns.min(now)),
        ] {
            out.state_ns[state as usize] = ns;
            out.state_j[state as usize] = ns as f64 * 1e-9 * self.host_w;
        }
        out
    }

    fn wear(&self) -> Wear {
        Wear::default()
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}
