//! The first pass: the extents that a trace touches. `10%` refers to them, and rows are kept for them only.

use std::time::{Duration, Instant};

use isotherm_traces::{DeviceSpan, Op, Record, SideBySide, Stats};
use roaring::RoaringTreemap;

use super::source::{BATCH, Records, Source};
use crate::LabError;
use crate::compact::Compact;

/// The result of the first pass.
#[derive(Clone, Debug)]
pub struct Touched {
    /// Extents that are read or written, devices side by side.
    pub extents: RoaringTreemap,
    /// The base addresses of the devices.
    pub devices: SideBySide,
    /// log2 of the extent size of this pass.
    pub shift: u32,
    /// Number of requests, including flushes and discards.
    pub requests: u64,
    /// Time spent reading.
    pub reading: Duration,
}

/// The mapping from an extent of the trace to a row of the map.
pub enum Rows {
    /// Touched extents, numbered without gaps in the order of addresses.
    Compact(Compact),
    /// The address space from the lowest touched extent on, because `linear` places data by address.
    From {
        /// The lowest touched extent.
        lowest: u64,
        /// The number of rows.
        extents: u64,
    },
}

impl Touched {
    /// The extents, and the one after each. If these are numbered, extents that are not neighbours do not become neighbours.
    pub fn padded(&self) -> RoaringTreemap {
        let mut all = self.extents.clone();
        for e in &self.extents {
            all.insert(e + 1);
        }
        all
    }

    /// Compares the number of requests of this pass with that of a later one. `stats` is empty for sources that do not count. With a `limit`
    /// there is nothing to compare: a source that merges others reads ahead. `outside` tells whether the later pass touched extents that this
    /// one did not see.
    ///
    /// # Errors
    /// The passes differ, because something writes to the trace.
    pub(crate) fn unchanged(
        &self,
        name: &str,
        limit: Option<u64>,
        stats: &Stats,
        outside: bool,
    ) -> Result<(), LabError> {
        let counted = limit.is_none() && stats.requests > 0;
        if !outside && (!counted || stats.requests == self.requests) {
            return Ok(());
        }
        let changed = crate::error::changed(self.requests, stats.requests);
        Err(LabError::setup(format!("{name}: {changed}")))
    }
}

impl Rows {
    /// The row of a touched extent. For another extent it is the row of the next touched one, or the number of rows if there is none.
    pub fn row(&mut self, extent: u64) -> u64 {
        match self {
            Rows::Compact(c) => c.rank(extent),
            Rows::From { lowest, extents } => extent.saturating_sub(*lowest).min(*extents),
        }
    }
}

/// The first and the last extent of a request of at least one byte.
pub fn span(r: &Record, shift: u32) -> (u64, u64) {
    (r.offset >> shift, (r.end() - 1) >> shift)
}

/// Passes every batch of a trace to `f`, up to `limit` requests, and measures the time of reading.
pub(crate) fn each_batch(
    reader: &mut dyn Records,
    limit: Option<u64>,
    reading: &mut Duration,
    mut f: impl FnMut(&[Record]) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let mut batch = Vec::with_capacity(BATCH);
    let mut left = limit.unwrap_or(u64::MAX);
    loop {
        batch.clear();
        let begun = Instant::now();
        let n = reader.read_batch(&mut batch, left.min(BATCH as u64) as usize)?;
        *reading += begun.elapsed();
        if n == 0 {
            return Ok(());
        }
        left -= n as u64;
        f(&batch)?;
    }
}

/// Reads the trace once.
///
/// # Errors
/// It cannot be read, or its devices do not fit side by side.
pub fn touched(source: &dyn Source, shift: u32, limit: Option<u64>) -> Result<Touched, LabError> {
    struct Seen {
        span: DeviceSpan,
        extents: RoaringTreemap,
    }
    let mut seen: Vec<Seen> = Vec::new();
    let mut place: Vec<u32> = Vec::new();
    let (mut requests, mut reading) = (0, Duration::ZERO);
    let mut reader = source.open()?;
    each_batch(reader.as_mut(), limit, &mut reading, |batch| {
        requests += batch.len() as u64;
        for r in batch {
            let device = r.device as usize;
            if place.len() <= device {
                place.resize(device + 1, 0);
            }
            if place[device] == 0 {
                seen.push(Seen {
                    span: DeviceSpan {
                        device: r.device,
                        first: u64::MAX,
                        end: 0,
                    },
                    extents: RoaringTreemap::new(),
                });
                place[device] = seen.len() as u32;
            }
            let s = &mut seen[place[device] as usize - 1];
            if r.op != Op::Flush {
                s.span.first = s.span.first.min(r.offset);
                s.span.end = s.span.end.max(r.end());
            }
            if matches!(r.op, Op::Read | Op::Write) {
                let (from, to) = span(r, shift);
                if from == to {
                    s.extents.insert(from);
                } else {
                    s.extents.insert_range(from..=to);
                }
            }
        }
        Ok(())
    })?;
    let spans: Vec<DeviceSpan> = seen.iter().map(|s| s.span).collect();
    let devices =
        SideBySide::new(&spans).map_err(|e| LabError::setup(format!("{}: {e}", source.name())))?;
    let mut extents = RoaringTreemap::new();
    for s in seen {
        // Devices begin at multiples of the largest extent.
        let base = devices.base(s.span.device) >> shift;
        if base == 0 && extents.is_empty() {
            extents = s.extents;
        } else {
            extents
                .append(s.extents.iter().map(|e| e + base))
                .map_err(|_| LabError::setup("devices of the trace overlap"))?;
        }
    }
    Ok(Touched {
        extents,
        devices,
        shift,
        requests,
        reading,
    })
}
