//! A lower bound for the mean latency of every cache over slow devices, with its proof.
//!
//! **The runs.** The cache keeps copies of extents on the fastest tier and all homes on slower tiers, and copies an extent only after a
//! request for it. That holds for every policy that uses nothing but copies ([`isotherm_core::policy::Uses::Copies`]), whatever it does
//! with writes, when it cleans, and in which order devices work. There is no warm-up. A slow device states two times for each
//! operation ([`isotherm_models::DeviceModel::least`]): `whole`, the least time from start to end, and `alone`, during which it does this one operation
//! only. Both grow with the length, and `alone` of a joined operation is at least the sum of its parts' times.
//!
//! **Forced reads.** A read of an extent that no earlier request of the trace has read, written or discarded finds no copy and no move of
//! the extent, so its bytes come from a slow device after the request has arrived. (A later write cannot serve it: requests for the
//! same bytes keep their order.) A request with such reads is a *job*: it ends after operations that cover these bytes, each extent's
//! part of them by one operation. So
//!
//! 1. its latency is at least the `whole` of its longest part;
//! 2. the slow devices together spend at least the sum `p` of its parts' `alone` times for it, after its arrival and before its end.
//!
//! **The sum.** For any set of jobs, the sum of their latencies is at least the sum of the first times. It is also at least the least sum
//! on *one* machine that is as fast as all slow devices together, may interrupt its work and has nothing else to do: a run is such a
//! schedule, made worse by other work. On one such machine, shortest remaining time first gives the least sum (L. Schrage, Operations
//! Research 16, 1968). Both hold for any set of jobs, so the larger of the two counts for each period in which that machine is busy.
//!
//! **The others.** A write ends after an operation that covers its longest part on some tier, and any other read takes no less than
//! nothing: it may be served from the memory of a move. The least time of a write to flash is that of its buffer, so what the flash does
//! behind it, now or when the drive is idle, is not in the bound. Flushes and records of the volume only add time.
//!
//! In a closed loop, arrivals depend on the run, so only the first times count. The bound is equal to the best latency if first reads rule
//! and the stated times are reached. Where the slow device states none, nothing is known that is near what a run can reach, and there
//! is no bound: the arm of a disk may be at the right place by chance, and its buffer may have the data.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use isotherm_core::Nanos;
use isotherm_core::engine::REQUEST_BYTES_MAX;
use isotherm_models::Least;
use isotherm_traces::{Op, Record};
use roaring::RoaringTreemap;

use crate::LabError;
use crate::sim::{Source, Touched};

/// How fast the tiers are at best.
pub struct Service<'a> {
    /// The least times of a read of that many bytes from a slow device, of the fastest one if there are several.
    pub slow_read: &'a dyn Fn(u32) -> Least,
    /// The least time of a write of that many bytes to any tier.
    pub write: &'a dyn Fn(u32) -> Nanos,
    /// Devices of the slower tiers.
    pub devices: u32,
    /// Requests come at their times, divided by this; `None`: a closed loop.
    pub acceleration: Option<f64>,
}

/// A request that must read from a slow device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its arrival.
    pub at: Nanos,
    /// Its least latency.
    pub whole: Nanos,
    /// The time for which it occupies a slow device.
    pub alone: Nanos,
}

/// Collects the requests of a trace in their order. See the module.
pub struct Bound<'a> {
    service: Service<'a>,
    shift: u32,
    seen: RoaringTreemap,
    jobs: Vec<Job>,
    requests: u64,
    others_ns: u128,
}

impl<'a> Bound<'a> {
    /// No requests yet, with extents of 2^`shift` bytes.
    pub fn new(service: Service<'a>, shift: u32) -> Bound<'a> {
        Bound {
            service,
            shift,
            seen: RoaringTreemap::new(),
            jobs: Vec::new(),
            requests: 0,
            others_ns: 0,
        }
    }

    /// The next request of the trace. Long ones are several requests, as in a run.
    pub fn note(&mut self, r: &Record) {
        match r.op {
            Op::Flush => {}
            Op::Discard if r.len == 0 => {}
            Op::Discard => {
                let range = r.offset >> self.shift..=(r.end() - 1) >> self.shift;
                self.seen.insert_range(range);
            }
            Op::Read | Op::Write => {
                let (mut offset, end) = (r.offset, r.end());
                while offset < end {
                    let len = (end - offset).min(u64::from(REQUEST_BYTES_MAX));
                    self.request(r.time, r.op == Op::Write, offset, len);
                    offset += len;
                }
            }
        }
    }

    fn request(&mut self, at: Nanos, write: bool, offset: u64, len: u64) {
        self.requests += 1;
        let (mut whole, mut alone, mut longest) = (0, 0, 0);
        let (mut from, end) = (offset, offset + len);
        while from < end {
            let extent = from >> self.shift;
            let next = ((extent + 1) << self.shift).min(end);
            let part = (next - from) as u32;
            longest = longest.max(part);
            if self.seen.insert(extent) && !write {
                let least = (self.service.slow_read)(part);
                whole = whole.max(least.whole.0);
                alone += least.alone.0;
            }
            from = next;
        }
        if write {
            self.others_ns += u128::from((self.service.write)(longest).0);
        } else if whole > 0 {
            let at = match self.service.acceleration {
                None | Some(1.0) => at,
                Some(a) => Nanos((at.0 as f64 / a) as u64),
            };
            self.jobs.push(Job {
                at,
                whole: Nanos(whole),
                alone: Nanos(alone),
            });
        }
    }

    /// The least mean latency, rounded down; `None` if there was no read or write.
    pub fn mean(mut self) -> Option<Nanos> {
        if self.requests == 0 {
            return None;
        }
        let jobs = match self.service.acceleration {
            None => self.jobs.iter().map(|j| u128::from(j.whole.0)).sum(),
            Some(_) => least_sum(&mut self.jobs, self.service.devices.max(1)),
        };
        Some(Nanos(
            ((jobs + self.others_ns) / u128::from(self.requests)) as u64,
        ))
    }
}

/// The least mean latency of a trace, in seconds; `None`: it has no requests. See the module.
///
/// # Errors
/// The trace cannot be read.
pub fn latency_bound(
    source: &dyn Source,
    touched: &Touched,
    limit: Option<u64>,
    service: Service<'_>,
) -> Result<Option<f64>, LabError> {
    let mut bound = Bound::new(service, touched.shift);
    let mut reader = source.open()?;
    let mut reading = std::time::Duration::ZERO;
    crate::sim::each_batch(reader.as_mut(), limit, &mut reading, |batch| {
        for r in batch {
            let mut r = *r;
            touched.devices.map(&mut r);
            bound.note(&r);
        }
        Ok(())
    })?;
    Ok(bound.mean().map(Nanos::as_secs_f64))
}

/// Nanoseconds that the jobs are there in sum, at least, with that many slow devices. Sorts the jobs by arrival.
pub fn least_sum(jobs: &mut [Job], devices: u32) -> u128 {
    jobs.sort_by_key(|j| j.at);
    // Times are in nanoseconds divided by the number of devices, so that all are whole numbers.
    let devices = u128::from(devices);
    let (mut now, mut next, mut sum) = (0u128, 0, 0u128);
    let mut waiting: BinaryHeap<Reverse<(u128, u128)>> = BinaryHeap::new();
    while next < jobs.len() {
        now = now.max(u128::from(jobs[next].at.0) * devices);
        // One busy period: until nothing waits.
        let (mut queued, mut each) = (0u128, 0u128);
        loop {
            while let Some(j) = jobs.get(next) {
                let at = u128::from(j.at.0) * devices;
                if at > now {
                    break;
                }
                waiting.push(Reverse((u128::from(j.alone.0), at)));
                each += u128::from(j.whole.0) * devices;
                next += 1;
            }
            let Some(Reverse((left, at))) = waiting.pop() else {
                break;
            };
            let coming = jobs.get(next).map(|j| u128::from(j.at.0) * devices);
            match coming {
                Some(c) if c < now + left => {
                    waiting.push(Reverse((left - (c - now), at)));
                    now = c;
                }
                _ => {
                    now += left;
                    queued += now - at;
                }
            }
        }
        sum += queued.max(each);
    }
    sum / devices
}
