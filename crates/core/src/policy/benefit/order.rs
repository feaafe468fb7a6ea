//! Weights by which accesses and extents of certain kinds are worth more than the time that they save.
//!
//! By default all are 0, and only time, energy and wear count (`weights.rs`). With these weights `benefit` orders extents as older policies
//! do; `tests/orders.rs` compares the orders:
//!
//! | order | weights |
//! |---|---|
//! | `oodt`: each block of a request of s blocks gains (1 + read + metadata) / s; worth never decreases | `by_request=1`, `w_read`, `w_metadata`, `half_life=0` |
//! | `hro`: (requests) · (random requests); worth never decreases | `w_random=1`, `half_life=0` |
//! | `dss-lru-s`: by the priority of the class, then by the last use | the maximum of `w_class`, `half_life=0.001` |
//!
//! With `w_random` or `w_class`, the 16 bits that the volume keeps for the policy of each extent hold the extent's class and the number of
//! its accesses that continued no stream.

use crate::policy::classes::LOWEST;
use crate::policy::{Access, ParamError, View, is_metadata, param};
use crate::volume::UnitId;
use alloc::vec;
use alloc::vec::Vec;

/// Of an extent's 16 bits, the lower ones count random accesses; the class is above them.
const RANDOM_BITS: u32 = 10;
const RANDOM_MOST: u16 = (1 << RANDOM_BITS) - 1;

/// See the module. All values are integers, so that a replay makes the same decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Additional weight of a read, and of an access to metadata, thousandths.
    read: u64,
    metadata: u64,
    /// Nanoseconds that are added to an extent's worth for each step of priority above the lowest.
    class: u64,
    /// Whether an access counts as 1 / (the number of extents of its request).
    by_request: bool,
    /// Whether worth is multiplied by the number of random accesses.
    random: bool,
}

impl Order {
    /// Changes a weight; `None`: there is no weight of this name here.
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
    /// The class in an extent's bits.
    #[inline]
    pub fn class(view: &View<'_>, e: UnitId) -> u8 {
        (view.stat(e) >> RANDOM_BITS) as u8
    }
    /// Stores the class of an extent, below 64, in its bits.
    #[inline]
    pub fn set_class(view: &mut View<'_>, e: UnitId, class: u8) {
        let random = view.stat(e) & RANDOM_MOST;
        view.set_stat(e, random | u16::from(class) << RANDOM_BITS);
    }
    /// Number of extents of the request of an access.
    pub fn units_of(view: &View<'_>, access: &Access) -> u64 {
        let unit = view.unit_bytes(access.extent).max(1);
        let end = access.request_offset + u64::from(access.request_bytes.max(1));
        (end - 1) / unit - access.request_offset / unit + 1
    }
    /// Counts an access, which continues a stream if `goes_on`. Returns its worth in nanoseconds if the access `saves` this time.
    pub fn access_worth(
        &self,
        view: &mut View<'_>,
        access: &Access,
        goes_on: bool,
        saves: u64,
    ) -> u64 {
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
        each / Order::units_of(view, access)
    }
    /// The worth of an extent with these weights, from the `worth` that its score gives. `priority` returns the priority of a class.
    #[inline]
    pub fn worth(
        &self,
        view: &View<'_>,
        worth: u64,
        e: UnitId,
        priority: impl Fn(u8) -> u8,
    ) -> u64 {
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
