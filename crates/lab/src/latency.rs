//! A lower bound for the mean latency of every demand-filled cache, computed from the whole trace.
//!
//! The model is that of the other bounds ([`crate::bound`]) with a queue: an operation of the slow tier takes `slow_s`, one of the fast
//! tier `fast_s`, and a device of the slow tier does one after the other. Writes always go to the fast tier, cleaning costs nothing, the
//! fast tier has no queue, and what a request needs of an extent is fetched with the rest of it for nothing. Under these conditions:
//!
//! 1. The first access of an extent, if it is a read, finds nothing on the fast tier whatever a policy does. The requests with such an
//!    access go to the slow tier. Together they wait there at least as long as if nobody else came: no schedule of more work of equal
//!    length ends the same requests sooner in sum, because leaving out the others makes a schedule for these. The least sum is that of
//!    serving in the order of arrival, as all take equally long.
//! 2. At most [`read_hits`] reads find their extent, so some others miss as well. Which requests these are is not known. Each takes at
//!    least `slow_s`, and no more of them are counted than there must be if requests of several extents miss with all at once.
//!
//! The sum of both, and `fast_s` for every other request, is below what any policy reaches that fills its cache on demand. One that
//! prefetches may be better. It is tight where first reads rule, and promises too much where dirty data must go home under load.
//!
//! In a closed loop no request waits for one that has not been sent, so no waiting is counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::bound::{Sequence, read_hits};

/// How long operations take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Seconds that a device of the slow tier takes for one.
    pub slow_s: f64,
    /// Seconds that the fast tier takes.
    pub fast_s: f64,
    /// Devices of the slow tier.
    pub devices: u32,
    /// Requests come at their times, divided by this; `None`: a closed loop.
    pub acceleration: Option<f64>,
}

/// The least mean latency in seconds, for a sequence that was loaded with times; `None`: it has no requests. See the module.
pub fn latency_bound(s: &Sequence, slots: u64, service: &Service) -> Option<f64> {
    let n = s.requests().len();
    if n == 0 {
        return None;
    }
    let mut seen = vec![false; s.extents];
    let (mut first, mut reads, mut forgiven) = (Vec::new(), 0u64, 0u64);
    let mut i = 0;
    for &(at, accesses) in s.requests() {
        let all = i..i + accesses as usize;
        i = all.end;
        let is_read = !s.is_write(all.start);
        let fresh = all
            .filter(|&a| !std::mem::replace(&mut seen[s.unit(a)], true))
            .count() as u64;
        if !is_read {
            continue;
        }
        reads += u64::from(accesses);
        if fresh > 0 {
            first.push(at);
            // All its accesses may miss together.
            forgiven += u64::from(accesses);
        } else {
            forgiven += u64::from(accesses - 1);
        }
    }
    let missing = reads - read_hits(s, slots);
    let others = missing.saturating_sub(forgiven);
    let (slow, fast) = (service.slow_s, service.fast_s.min(service.slow_s));
    let queued = match service.acceleration {
        None => first.len() as f64 * slow,
        Some(a) => {
            let times = first.iter().map(|at| at.as_secs_f64() / a);
            flow(times.collect(), slow, service.devices)
        }
    };
    let rest = n as u64 - first.len() as u64 - others;
    Some((queued + others as f64 * slow + rest as f64 * fast) / n as f64)
}

/// How long requests that come at `times` are there in sum, if each takes one of `devices` for `slow_s`.
fn flow(mut times: Vec<f64>, slow_s: f64, devices: u32) -> f64 {
    times.sort_by(f64::total_cmp);
    let mut free: BinaryHeap<Reverse<Time>> =
        (0..devices.max(1)).map(|_| Reverse(Time(0.0))).collect();
    let mut sum = 0.0;
    for at in times {
        let Some(Reverse(Time(begin))) = free.pop() else {
            break;
        };
        let end = begin.max(at) + slow_s;
        sum += end - at;
        free.push(Reverse(Time(end)));
    }
    sum
}

/// Seconds, in order.
#[derive(Clone, Copy, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Time) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Time) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
