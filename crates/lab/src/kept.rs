//! Requests of a trace in a compact form, kept from the pass that collects them to the pass that plays them.
//!
//! A request takes 6 bytes, and 12 where the time changes. Everything else about it (length, offset in its first extent, direction, class,
//! device) is one of a few kinds, each of which is stored once. Touching fresh memory takes longer than decoding a record, so this size
//! determines the speed of a hit-only run.

use std::collections::HashMap;

use isotherm_core::Nanos;
use isotherm_traces::{Op, Record};

use crate::touched::Spot;

/// The properties of a request besides its time and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    /// Length in bytes.
    pub len: u32,
    /// Offset in its first extent.
    pub inside: u32,
    /// Index of its device.
    pub device: u32,
    /// Kind of data.
    pub class: u8,
    /// Whether it is a write.
    pub write: bool,
}

impl Kind {
    #[inline]
    pub(crate) fn new(r: &Record, device: u32, shift: u32) -> Kind {
        Kind {
            len: r.len,
            inside: r.offset as u32 & ((1 << shift) - 1),
            device,
            class: r.class,
            write: r.op == Op::Write,
        }
    }
}

/// The requests.
#[derive(Default)]
pub(crate) struct Kept {
    spots: Vec<u32>,
    kind: Vec<u16>,
    kinds: Vec<Kind>,
    number: HashMap<Kind, u16>,
    last: u16,
    /// Index of the first request of each time.
    from: Vec<u32>,
    times: Vec<Nanos>,
}

impl Kept {
    /// Keeps a request. Returns false if it does not fit (too many kinds, or extents too far apart); then no further request can be kept.
    #[inline]
    pub(crate) fn push(&mut self, time: Nanos, spot: Spot, kind: Kind) -> bool {
        let Some(spot) = spot.pack() else {
            return false;
        };
        if self.kinds.get(usize::from(self.last)) != Some(&kind) {
            match self.other(kind) {
                Some(k) => self.last = k,
                None => return false,
            }
        }
        if self.times.last() != Some(&time) {
            self.from.push(self.spots.len() as u32);
            self.times.push(time);
        }
        self.spots.push(spot);
        self.kind.push(self.last);
        true
    }
    fn other(&mut self, kind: Kind) -> Option<u16> {
        if let Some(k) = self.number.get(&kind) {
            return Some(*k);
        }
        let k = u16::try_from(self.kinds.len()).ok()?;
        self.kinds.push(kind);
        self.number.insert(kind, k);
        Some(k)
    }
    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.spots.len() * 6 + self.times.len() * 12 + self.kinds.len() * 2 * size_of::<Kind>()
    }
    /// Passes the requests to `f`, in order.
    #[inline]
    pub(crate) fn each(&self, mut f: impl FnMut(Nanos, Spot, &Kind)) {
        // A run consists of the requests of one time.
        for (run, time) in self.times.iter().enumerate() {
            let from = self.from[run] as usize;
            let to = self
                .from
                .get(run + 1)
                .map_or(self.spots.len(), |n| *n as usize);
            for (s, k) in self.spots[from..to].iter().zip(&self.kind[from..to]) {
                f(*time, Spot::unpack(*s), &self.kinds[usize::from(*k)]);
            }
        }
    }
}
