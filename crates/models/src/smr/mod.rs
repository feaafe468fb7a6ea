//! A drive-managed shingled disk. Its tracks overlap, so that a band of them can be rewritten only as a whole.
//!
//! ```text
//!             ┌─ continues a stream that began at a band's start ─► in place
//!   write ────┤─ continues what a never-written band holds ───────► in place
//!             └─ anything else ─► media cache (a log on conventional tracks); full: wait for a band to be cleaned
//!   read ─► the newest: from the log, from the band, or from both
//!   idle, or writes that wait ─► clean: read the band, read its pieces in the log, write the band
//! ```
//! All of this is work for the arm of an ordinary disk model ([`crate::hdd`]), which serves both host and cleaning. Bands are cleaned in
//! the order in which they became dirty, as A. Aghayev and P. Desnoyers found ("Skylight: a window on shingled disk operation", FAST 2015).
//! A new model is a used drive: every band is full until a discard says otherwise.
//!
//! Invariants: a host operation ends when all of its parts have ended; cleaning never loses an extent that arrived after it began.

mod log;
mod sheet;

mod device;

use std::collections::VecDeque;

use isotherm_core::Nanos;

pub use sheet::SmrSheet;

use crate::hdd::{Hdd, HddSheet};
use crate::model::{Counters, DeviceModel, ModelOp};
use crate::options::Options;
use crate::span::SpanMap;
use log::{BLOCK, Log, Piece};

/// Inner id of the cleaner's operations. The inner ids of host operations are slot numbers.
const CLEANER: u64 = u64::MAX;
/// Bytes that the cleaner moves per operation. A host command waits for at most one such operation.
const CHUNK: u64 = 1 << 20;
/// Number of sequential runs that are tracked, and of bands that are written in place, at a time.
const STREAMS: usize = 8;

/// A host operation in progress.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    id: u64,
    parts: u32,
    not_before: u64,
}

/// A band that a stream rewrites from its start.
#[derive(Clone, Copy, Debug)]
struct Open {
    band: u64,
    /// Number of its blocks that are rewritten so far.
    at: u64,
}

/// A sequential run: the offset of its next byte, and its length so far.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    end: u64,
    bytes: u64,
}

/// The band that is being cleaned: the ranges of the disk that are still to be read and to be written.
#[derive(Debug)]
struct Cleaning {
    band: u64,
    /// Extents from this position of the log on are newer than this cleaning.
    until: u64,
    /// (is a read, offset, bytes); the next step is the last element.
    steps: Vec<(bool, u64, u64)>,
    /// Blocks of data in the band when the cleaning is done.
    holds: u64,
    under_way: bool,
}

/// The shingled disk model. See the module's head.
#[derive(Debug)]
pub struct Smr {
    disk: Hdd,
    span: SpanMap,
    capacity: u64,
    /// Size of the media cache, which is before the first band.
    cache_bytes: u64,
    band_blocks: u64,
    idle_clean: u64,
    stream_bytes: u64,
    cached_write: u64,

    now: u64,
    log: Log,
    /// Blocks with data, counted from each band's start.
    written: Vec<u32>,
    open: VecDeque<Open>,
    /// Bands whose rewriting was abandoned half-way. Their rest must be merged again.
    torn: VecDeque<u64>,
    runs: [Run; STREAMS],
    next_run: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    in_flight: u32,
    /// Writes that wait for the media cache: (id, offset, bytes).
    room: VecDeque<(u64, ModelOp, u64, u64)>,
    /// The drive's bookkeeping of cached writes takes until this time.
    log_busy: u64,
    /// Operations that are done on the medium but not answered yet: (time, id), in order of time.
    held: VecDeque<(u64, u64)>,
    finished: VecDeque<(u64, u64)>,
    cleaning: Option<Cleaning>,
    idle_at: Option<u64>,
    asleep: bool,
    buffer: Vec<u64>,
    pieces: Vec<Piece>,
    totals: Counters,
}

impl Smr {
    /// Makes a shingled disk from its data sheet. Both tables must have passed [`crate::Sheet::parse`].
    pub fn new(hdd: &HddSheet, smr: &SmrSheet, options: &Options) -> Smr {
        let band_blocks = u64::from(smr.band_mib) * (1 << 20) / BLOCK;
        let log_blocks = (smr.media_cache_gb * 1e9 / BLOCK as f64) as u64;
        let bands = (hdd.capacity / BLOCK).div_ceil(band_blocks);
        let inner = HddSheet {
            capacity: hdd.capacity + log_blocks * BLOCK,
            ..hdd.clone()
        };
        let whole = Options {
            size: 0,
            span: crate::Span::default(),
            ..*options
        };
        Smr {
            disk: Hdd::new(&inner, &whole),
            span: SpanMap::new(options.span, options.size, hdd.capacity),
            capacity: hdd.capacity,
            cache_bytes: log_blocks * BLOCK,
            band_blocks,
            idle_clean: (smr.idle_clean_ms * 1e6) as u64,
            stream_bytes: u64::from(smr.stream_kib) * 1024,
            cached_write: (smr.cached_write_us * 1e3) as u64,
            now: 0,
            log: Log::new(log_blocks, band_blocks, smr.media_cache_extents as usize),
            written: vec![band_blocks as u32; bands as usize],
            open: VecDeque::with_capacity(STREAMS),
            torn: VecDeque::new(),
            runs: [Run::default(); STREAMS],
            next_run: 0,
            slots: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            room: VecDeque::new(),
            log_busy: 0,
            held: VecDeque::new(),
            finished: VecDeque::new(),
            cleaning: None,
            idle_at: None,
            asleep: false,
            buffer: Vec::new(),
            pieces: Vec::new(),
            totals: Counters::default(),
        }
    }

    /// Bytes in the media cache that wait for cleaning.
    pub fn cached_bytes(&self) -> u64 {
        self.log.used_blocks() * BLOCK
    }

    /// Bytes written to the medium divided by bytes that the host wrote. `None` before the first write.
    pub fn write_amplification(&self) -> Option<f64> {
        let host = self.totals.bytes_written;
        let medium = self.disk.counters(Nanos(self.now)).bytes_written;
        (host > 0).then(|| medium as f64 / host as f64)
    }

    fn slot(&mut self, id: u64, bytes: u64) -> u32 {
        let slot = Slot {
            id,
            parts: 0,
            // The parts are processed independently, but all bytes cross one interface.
            not_before: self.now + self.disk.command_ns(bytes),
        };
        self.in_flight += 1;
        if let Some(i) = self.free.pop() {
            self.slots[i as usize] = slot;
            return i;
        }
        self.slots.push(slot);
        self.slots.len() as u32 - 1
    }

    fn part(&mut self, slot: u32, op: ModelOp, at: u64, bytes: u64) {
        self.slots[slot as usize].parts += 1;
        self.disk
            .start(Nanos(self.now), u64::from(slot), op, at, bytes as u32);
    }

    fn home(&self, block: u64) -> u64 {
        self.cache_bytes + block * BLOCK
    }

    /// Length of the sequential run to which a write at `offset` belongs, including that write.
    fn run(&mut self, offset: u64, bytes: u64) -> u64 {
        let known = self
            .runs
            .iter_mut()
            .find(|r| r.end == offset && r.bytes > 0);
        if let Some(r) = known {
            r.end += bytes;
            r.bytes += bytes;
            return r.bytes;
        }
        let end = offset + bytes;
        self.runs[self.next_run] = Run { end, bytes };
        self.next_run = (self.next_run + 1) % STREAMS;
        bytes
    }

    /// Whether this part of a write, `at` blocks into `band`, may be written in place. If so, that is recorded.
    fn in_place(&mut self, band: u64, at: u64, blocks: u64, stream: bool) -> bool {
        let end = at + blocks;
        if let Some(i) = self.open.iter().position(|o| o.band == band && o.at == at) {
            self.open[i].at = end;
            if end >= u64::from(self.written[band as usize]) {
                // No old data is left in the band, so the rest of it is free for appending.
                self.written[band as usize] = end as u32;
                self.open.remove(i);
            }
            return true;
        }
        if at == u64::from(self.written[band as usize]) {
            self.written[band as usize] = end as u32;
            return true;
        }
        if at == 0 && stream {
            self.open.retain(|o| o.band != band);
            if self.open.len() == STREAMS
                && let Some(o) = self.open.pop_front()
            {
                self.torn.push_back(o.band);
            }
            self.open.push_back(Open { band, at: end });
            return true;
        }
        false
    }

    fn write(&mut self, id: u64, op: ModelOp, offset: u64, bytes: u64) {
        let stream = self.run(offset, bytes) >= self.stream_bytes;
        let slot = self.slot(id, bytes);
        let mut first = offset / BLOCK;
        let end = (offset + bytes.max(1)).div_ceil(BLOCK);
        while first < end {
            let band = first / self.band_blocks;
            let at = first % self.band_blocks;
            let blocks = (end - first).min(self.band_blocks - at);
            if self.in_place(band, at, blocks, stream) {
                self.log.forget(first, blocks, u64::MAX);
                self.part(slot, op, self.home(first), blocks * BLOCK);
            } else {
                let place = self.log.append(first, blocks);
                let place = self.log.place(place) * BLOCK;
                self.log_busy = self.log_busy.max(self.now) + self.cached_write;
                let answer = &mut self.slots[slot as usize].not_before;
                *answer = self.log_busy.max(*answer);
                self.part(slot, op, place, blocks * BLOCK);
            }
            first += blocks;
        }
    }

    fn read(&mut self, id: u64, offset: u64, bytes: u64) {
        let slot = self.slot(id, bytes);
        if self.log.is_empty() {
            return self.part(slot, ModelOp::Read, self.cache_bytes + offset, bytes);
        }
        let first = offset / BLOCK;
        let end = (offset + bytes.max(1)).div_ceil(BLOCK);
        let mut pieces = core::mem::take(&mut self.pieces);
        self.log.pieces(first, end - first, &mut pieces);
        if let [Piece::Home(..)] = pieces[..] {
            self.part(slot, ModelOp::Read, self.cache_bytes + offset, bytes);
        } else {
            for p in &pieces {
                match *p {
                    Piece::Home(at, n) => self.part(slot, ModelOp::Read, self.home(at), n * BLOCK),
                    Piece::Log(at, n) => {
                        let at = self.log.place(at) * BLOCK;
                        self.part(slot, ModelOp::Read, at, n * BLOCK);
                    }
                }
            }
        }
        pieces.clear();
        self.pieces = pieces;
    }

    fn complete(&mut self, t: u64, inner: u64) {
        if inner == CLEANER {
            return self.cleaned_step(t);
        }
        let slot = &mut self.slots[inner as usize];
        slot.parts -= 1;
        if slot.parts > 0 {
            return;
        }
        let (id, at) = (slot.id, t.max(slot.not_before));
        self.free.push(inner as u32);
        self.hold(at, id);
    }

    fn hold(&mut self, at: u64, id: u64) {
        let after = self.held.iter().rposition(|h| h.0 <= at);
        self.held.insert(after.map_or(0, |i| i + 1), (at, id));
    }

    fn next_inside(&self) -> u64 {
        let held = self.held.front().map_or(u64::MAX, |h| h.0);
        let disk = self.disk.next_event().map_or(u64::MAX, |t| t.0);
        held.min(disk).min(self.idle_at.unwrap_or(u64::MAX))
    }

    fn advance(&mut self, to: u64) {
        loop {
            let t = self.next_inside();
            if t > to {
                break;
            }
            self.now = self.now.max(t);
            if self.held.front().is_some_and(|h| h.0 <= t) {
                self.finished.extend(self.held.pop_front());
                self.in_flight -= 1;
                self.await_idleness(t);
            } else if self.disk.next_event().is_some_and(|d| d.0 <= t) {
                let mut done = core::mem::take(&mut self.buffer);
                self.disk.poll(Nanos(t), &mut done);
                for id in done.drain(..) {
                    self.complete(t, id);
                }
                self.buffer = done;
            } else {
                self.idle_at = None;
                self.clean();
            }
        }
        self.now = self.now.max(to);
    }

    fn await_idleness(&mut self, t: u64) {
        let dirty = !self.log.is_empty() || !self.torn.is_empty() || self.cleaning.is_some();
        let busy = self.cleaning.as_ref().is_some_and(|c| c.under_way);
        self.idle_at =
            (dirty && !busy && self.in_flight == 0 && !self.asleep).then_some(t + self.idle_clean);
    }

    /// Starts the cleaner's next step, for the current band or for the next one.
    fn clean(&mut self) {
        while self.cleaning.is_none() {
            let Some(band) = self.torn.pop_front().or_else(|| self.log.oldest()) else {
                return;
            };
            self.open.retain(|o| o.band != band);
            self.cleaning = Some(self.plan(band)).filter(|c| !c.steps.is_empty());
        }
        let Some(c) = &mut self.cleaning else { return };
        if let Some((read, at, bytes)) = c.steps.last_mut() {
            let op = if *read { ModelOp::Read } else { ModelOp::Write };
            let n = (*bytes).min(CHUNK);
            self.disk.start(Nanos(self.now), CLEANER, op, *at, n as u32);
            *at += n;
            *bytes -= n;
            if *bytes == 0 {
                c.steps.pop();
            }
            c.under_way = true;
        }
    }

    fn plan(&mut self, band: u64) -> Cleaning {
        let first = band * self.band_blocks;
        let old = u64::from(self.written[band as usize]);
        let mut pieces = core::mem::take(&mut self.pieces);
        let end = self.log.of_band(band, &mut pieces);
        let holds = old.max(end - first);
        // The last step comes first.
        let mut steps = vec![(false, self.home(first), holds * BLOCK)];
        for p in pieces.drain(..).rev() {
            if let Piece::Log(at, n) = p {
                steps.push((true, self.log.place(at) * BLOCK, n * BLOCK));
            }
        }
        self.pieces = pieces;
        if old > 0 {
            steps.push((true, self.home(first), old * BLOCK));
        }
        steps.retain(|s| s.2 > 0);
        Cleaning {
            band,
            until: self.log.head(),
            steps,
            holds,
            under_way: false,
        }
    }

    fn cleaned_step(&mut self, t: u64) {
        let Some(c) = &mut self.cleaning else { return };
        c.under_way = false;
        if c.steps.is_empty() {
            self.cleaned_band();
            self.fill_room();
        }
        let dirty = !self.log.is_empty() || !self.torn.is_empty() || self.cleaning.is_some();
        if dirty && (!self.room.is_empty() || (self.in_flight == 0 && !self.asleep)) {
            self.clean();
        } else {
            self.await_idleness(t);
        }
    }

    fn cleaned_band(&mut self) {
        let Some(c) = self.cleaning.take() else {
            return;
        };
        self.log
            .forget(c.band * self.band_blocks, self.band_blocks, c.until);
        self.log.requeue(c.band);
        let written = &mut self.written[c.band as usize];
        *written = (*written).max(c.holds as u32);
    }

    fn fill_room(&mut self) {
        while let Some(&(id, op, offset, bytes)) = self.room.front() {
            if !self.log.fits(bytes.div_ceil(BLOCK) + 1) {
                break;
            }
            self.room.pop_front();
            // It counted as in flight while it waited.
            self.in_flight -= 1;
            self.write(id, op, offset, bytes);
        }
    }

    fn discard(&mut self, offset: u64, bytes: u64) {
        let first = offset.div_ceil(BLOCK);
        let end = (offset + bytes) / BLOCK;
        if first >= end {
            return;
        }
        self.log.forget(first, end - first, u64::MAX);
        let cleaning = self.cleaning.as_ref().map(|c| c.band);
        for band in first.div_ceil(self.band_blocks)..end / self.band_blocks {
            if Some(band) != cleaning {
                self.written[band as usize] = 0;
                self.open.retain(|o| o.band != band);
                self.torn.retain(|t| *t != band);
            }
        }
    }
}

#[cfg(test)]
mod tests;
