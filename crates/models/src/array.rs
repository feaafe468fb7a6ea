//! An array of equal disks behind one address space, in the layout of RAID-1E: data in chunks, each on two neighbouring disks.
//!
//! ```text
//!   disk   0   1   2   3   4          chunk c lies in places 2c and 2c + 1,
//!          A   A   B   B   C          place p on disk p mod n, row p div n
//!          C   D   D   E   E
//! ```
//! A read goes to the copy whose disk has fewer commands, a write to both copies. An operation over several chunks ends when its last part
//! ends. The controller has no cache of its own. Invariant: each id is reported once, when all of its parts are done.

use isotherm_core::Nanos;
use serde::Deserialize;

use crate::check::{Check, SheetError};
use crate::hdd::{Hdd, HddSheet};
use crate::model::{Counters, DeviceModel, ModelOp, Wear};
use crate::options::Options;

/// The parameters that turn the sheet's disk into an array.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArraySheet {
    /// Disks, 3 or more.
    pub disks: u32,
    /// Size of a chunk, in KiB.
    pub chunk_kib: u32,
}

impl ArraySheet {
    pub(crate) fn check(&self, file: &str) -> Result<(), SheetError> {
        let c = Check {
            file,
            table: "array",
        };
        c.within("disks", f64::from(self.disks), 3.0, 64.0)?;
        c.within("chunk_kib", f64::from(self.chunk_kib), 4.0, 65_536.0)
    }

    /// Capacity in bytes of an array of such disks: half of their sum, in whole chunks.
    pub fn capacity(&self, disk: u64) -> u64 {
        let chunk = u64::from(self.chunk_kib) << 10;
        disk / chunk * u64::from(self.disks) / 2 * chunk
    }
}

/// An operation in progress.
#[derive(Clone, Copy, Debug)]
struct Flight {
    id: u64,
    parts: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Array {
    disks: Vec<Hdd>,
    in_flight: Vec<u32>,
    chunk: u64,
    capacity: u64,
    flights: Vec<Flight>,
    free: Vec<u64>,
    done: Vec<u64>,
    host: Counters,
}

impl Array {
    /// Makes an array of disks from their sheets. Both sheets must have passed [`crate::Sheet::parse`].
    pub fn new(disk: &HddSheet, sheet: &ArraySheet, options: &Options) -> Array {
        let chunk = u64::from(sheet.chunk_kib) << 10;
        let n = u64::from(sheet.disks);
        // Each disk gets its share of the member, so that a span covers the same part of each disk.
        let size = match options.size {
            0 => 0,
            bytes => ((2 * bytes.div_ceil(chunk)).div_ceil(n) * chunk).min(disk.capacity),
        };
        let each = Options { size, ..*options };
        Array {
            disks: (0..n).map(|_| Hdd::new(disk, &each)).collect(),
            in_flight: vec![0; sheet.disks as usize],
            chunk,
            capacity: sheet.capacity(disk.capacity),
            flights: Vec::new(),
            free: Vec::new(),
            done: Vec::new(),
            host: Counters::default(),
        }
    }

    /// Disk and row of a place.
    fn at(&self, place: u64) -> (usize, u64) {
        let n = self.disks.len() as u64;
        ((place % n) as usize, place / n)
    }

    fn part(&mut self, now: Nanos, flight: u64, disk: usize, op: ModelOp, offset: u64, len: u32) {
        self.flights[flight as usize].parts += 1;
        self.in_flight[disk] += 1;
        self.disks[disk].start(now, flight, op, offset, len);
    }

    fn data(&mut self, now: Nanos, flight: u64, op: ModelOp, offset: u64, len: u32) {
        let end = (offset + u64::from(len)).min(self.capacity);
        let mut at = offset.min(self.capacity.saturating_sub(u64::from(len)));
        loop {
            let (chunk, within) = (at / self.chunk, at % self.chunk);
            let n = (self.chunk - within).min(end.saturating_sub(at)) as u32;
            let copies = [self.at(2 * chunk), self.at(2 * chunk + 1)];
            let place = |(_, row): (usize, u64)| row * self.chunk + within;
            let places = copies.map(place);
            if op == ModelOp::Read {
                let [a, b] = copies.map(|c| self.in_flight[c.0]);
                let i = usize::from(b < a);
                self.part(now, flight, copies[i].0, op, places[i], n);
            } else {
                for i in 0..2 {
                    self.part(now, flight, copies[i].0, op, places[i], n);
                }
            }
            at += u64::from(n);
            if at >= end || n == 0 {
                break;
            }
        }
    }

    /// The disk with the earliest next event.
    fn first(&self) -> Option<(Nanos, usize)> {
        let events = self.disks.iter().enumerate();
        events
            .filter_map(|(i, d)| d.next_event().map(|t| (t, i)))
            .min()
    }
}

impl DeviceModel for Array {
    fn start(&mut self, now: Nanos, id: u64, op: ModelOp, offset: u64, len: u32) {
        self.host.note(op, offset, len);
        let flight = self.free.pop().unwrap_or_else(|| {
            self.flights.push(Flight { id, parts: 0 });
            self.flights.len() as u64 - 1
        });
        self.flights[flight as usize] = Flight { id, parts: 0 };
        match op {
            ModelOp::Read | ModelOp::Write | ModelOp::WriteThrough => {
                self.data(now, flight, op, offset, len);
            }
            // A disk ignores a discard but answers it.
            ModelOp::Discard => self.part(now, flight, 0, op, 0, 0),
            ModelOp::Flush | ModelOp::Standby => {
                for i in 0..self.disks.len() {
                    self.part(now, flight, i, op, 0, 0);
                }
            }
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.first().map(|f| f.0)
    }

    fn poll(&mut self, now: Nanos, done: &mut Vec<u64>) {
        // In the order of time over all disks, so that ids are reported in the order of their last parts.
        loop {
            let due = self.first().filter(|f| f.0 <= now);
            let Some((at, disk)) = due else { break };
            let mut parts = core::mem::take(&mut self.done);
            self.disks[disk].poll(at, &mut parts);
            for flight in parts.drain(..) {
                self.in_flight[disk] -= 1;
                let f = &mut self.flights[flight as usize];
                f.parts -= 1;
                if f.parts == 0 {
                    done.push(f.id);
                    self.free.push(flight);
                }
            }
            self.done = parts;
        }
    }

    /// Operations and bytes are counted as the host issued them. Energy, seeks, hits and stops are sums over the disks, and times are the
    /// mean over the disks.
    fn counters(&self, now: Nanos) -> Counters {
        let n = self.disks.len() as u64;
        let mut out = self.host;
        for d in &self.disks {
            let c = d.counters(now);
            out.busy_ns += c.busy_ns;
            out.seeks += c.seeks;
            out.seek_distance += c.seek_distance;
            out.cache_hits += c.cache_hits;
            out.start_stops += c.start_stops;
            for (to, from) in out.state_ns.iter_mut().zip(c.state_ns) {
                *to += from;
            }
            for (to, from) in out.state_j.iter_mut().zip(c.state_j) {
                *to += from;
            }
        }
        out.busy_ns /= n;
        for ns in &mut out.state_ns {
            *ns /= n;
        }
        out
    }

    /// The mean over the disks.
    fn wear(&self) -> Wear {
        let sum: f64 = self.disks.iter().map(|d| d.wear().host_eu).sum();
        Wear {
            host_eu: sum / self.disks.len() as f64,
            flash_eu: None,
        }
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Outcome, Work, run};
    use crate::{preset, sheet};

    fn rate(name: &str, op: ModelOp, random: bool, depth: u32) -> Outcome {
        let options = Options {
            write_cache: Some(false),
            ..Options::default()
        };
        let mut m = preset(name, &options).unwrap();
        let work = Work {
            op,
            len: if random { 4096 } else { 1 << 20 },
            random,
            span: m.capacity(),
            depth,
            count: 3000,
            seed: 3,
        };
        run(m.as_mut(), Nanos(0), &work).0
    }

    #[test]
    fn five_disks_hold_half_and_serve_as_many() {
        let one = sheet("wd7500aaks").unwrap().capacity();
        let array = sheet("raid1e-5").unwrap();
        assert_eq!(
            array.capacity() / 1_000_000_000,
            one * 5 / 2 / 1_000_000_000
        );
        // One command uses one arm; many use five, and a write uses two of them.
        let disk = rate("wd7500aaks", ModelOp::Read, true, 1).iops;
        assert!((rate("raid1e-5", ModelOp::Read, true, 1).iops / disk - 1.0).abs() < 0.1);
        let deep = rate("raid1e-5", ModelOp::Read, true, 40).iops
            / rate("wd7500aaks", ModelOp::Read, true, 8).iops;
        assert!((4.0..5.5).contains(&deep), "{deep}");
        let writes = rate("raid1e-5", ModelOp::Write, true, 40).iops
            / rate("wd7500aaks", ModelOp::Write, true, 16).iops;
        assert!((1.9..2.9).contains(&writes), "{writes}");
    }

    #[test]
    fn each_id_comes_out_once_when_its_last_part_has() {
        let mut m = preset("raid1e-5", &Options::default()).unwrap();
        let mut done = Vec::new();
        // A request over several chunks, one over all disks, an empty one, and one beyond the end.
        let end = m.capacity();
        for (id, (op, offset, len)) in [
            (ModelOp::Read, 60 << 10, 8 << 10),
            (ModelOp::Write, 0, 4 << 20),
            (ModelOp::Read, 0, 0),
            (ModelOp::Read, end, 4096),
            (ModelOp::Discard, 0, 1 << 30),
            (ModelOp::Flush, 0, 0),
            (ModelOp::Standby, 0, 0),
        ]
        .into_iter()
        .enumerate()
        {
            m.start(Nanos(id as u64 * 1000), id as u64, op, offset, len);
        }
        let mut last = Nanos(0);
        while let Some(at) = m.next_event() {
            assert!(at >= last);
            last = at;
            m.poll(at, &mut done);
        }
        done.sort_unstable();
        assert_eq!(done, [0, 1, 2, 3, 4, 5, 6]);
        let c = m.counters(last);
        assert_eq!((c.reads, c.writes, c.bytes_written), (3, 1, 4 << 20));
        assert!(c.energy_j() > 0.0 && c.start_stops == 5);
    }
}
