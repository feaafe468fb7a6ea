//! What an access is worth beyond the time that it saves, and what an extent is worth beyond its accesses.
//!
//! By default nothing: all that counts is time, energy and wear (`weights.rs`). With these weights the orders of older policies come out
//! as special cases, which the tests below compare:
//!
//! | order | weights |
//! |---|---|
//! | `oodt`: a block of a request of s blocks gains (1 + read + metadata) / s, nothing is forgotten | `by_request=1`, `w_read`, `w_metadata`, `half_life=0` |
//! | `hro`: (requests) · (random requests), nothing is forgotten | `w_random=1`, `half_life=0` |
//! | `dss-lru-s`: priority of the class, then who was used last | `w_class` as large as it may be, `half_life=0.001` |
//!
//! With `w_random` or `w_class` the policy's 16 bits of an extent hold its class and how many of its accesses went on with no stream.

use crate::policy::classes::LOWEST;
use crate::policy::{Access, ParamError, View, is_metadata, param, priority};
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// Of an extent's 16 bits: random accesses, and above them the class.
const RANDOM_BITS: u32 = 10;
const RANDOM_MOST: u16 = (1 << RANDOM_BITS) - 1;

/// See the module. Integers, so that a replay decides the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Thousandths that a read, and an access to metadata, count more.
    read: u64,
    metadata: u64,
    /// Nanoseconds that an extent is worth for each step of priority above the lowest.
    class: u64,
    /// An access counts as its share of the request.
    by_request: bool,
    /// Worth is multiplied by the number of random accesses.
    random: bool,
}

impl Order {
    /// Change a weight; `None`: it has no such weight.
    pub fn set(&mut self, key: &str, value: f64) -> Option<Result<(), ParamError>> {
        let switch = |value| param::whole(value, 0.0, 1.0, "0 (off) or 1 (on)").map(|v| v == 1);
        let weight = |value| {
            param::within(value, 0.0, 100.0, "a weight, 0 to 100").map(|v| (v * 1e3) as u64)
        };
        Some(match key {
            "w_read" => weight(value).map(|v| self.read = v),
            "w_metadata" => weight(value).map(|v| self.metadata = v),
            "w_class" => param::within(value, 0.0, 1e6, "seconds, 0 to 10^6")
                .map(|v| self.class = (v * 1e9) as u64),
            "by_request" => switch(value).map(|v| self.by_request = v),
            "w_random" => switch(value).map(|v| self.random = v),
            _ => return None,
        })
    }
    /// Names and values.
    pub fn list(&self) -> Vec<(&'static str, f64)> {
        let switch = |on| f64::from(u8::from(on));
        vec![
            ("w_read", self.read as f64 / 1e3),
            ("w_metadata", self.metadata as f64 / 1e3),
            ("w_class", self.class as f64 / 1e9),
            ("by_request", switch(self.by_request)),
            ("w_random", switch(self.random)),
        ]
    }
    fn uses_bits(&self) -> bool {
        self.random || self.class > 0
    }
    /// The extent's bits are what a policy before this one left: they mean nothing.
    pub fn attach(view: &mut View<'_>) {
        (0..view.units()).for_each(|e| view.set_stat(UnitId(e), 0));
    }
    /// An access, which goes on with a stream or does not: note that, and say what it counts if it `saves` so many nanoseconds.
    pub fn counts(&self, view: &mut View<'_>, access: &Access, goes_on: bool, saves: u64) -> u64 {
        let e = access.extent;
        if self.uses_bits() {
            let random = view.stat(e) & RANDOM_MOST;
            let random = (random + u16::from(!goes_on)).min(RANDOM_MOST);
            view.set_stat(e, random | u16::from(access.class % 64) << RANDOM_BITS);
        }
        let read = if access.write { 0 } else { self.read };
        let metadata = if is_metadata(access.class) {
            self.metadata
        } else {
            0
        };
        let each = saves.saturating_mul(1000 + read + metadata) / 1000;
        if !self.by_request {
            return each;
        }
        let unit = view.unit_bytes(e).max(1);
        let end = access.request_offset + u64::from(access.request_bytes.max(1));
        let blocks = (end - 1) / unit - access.request_offset / unit + 1;
        each / blocks
    }
    /// What an extent is worth whose score is `worth`, by that and beyond.
    pub fn worth(&self, view: &View<'_>, worth: u64, e: UnitId) -> u64 {
        if !self.uses_bits() {
            return worth;
        }
        let bits = view.stat(e);
        let times = if self.random {
            u64::from(bits & RANDOM_MOST)
        } else {
            1
        };
        let steps = u64::from(LOWEST - priority((bits >> RANDOM_BITS) as u8));
        let class = self.class.saturating_mul(steps);
        worth.saturating_mul(times).saturating_add(class)
    }
}
