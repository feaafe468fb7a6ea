//! `hystor`, **reconstructed**: its paper was not available. The rules are those that OODT II–IV and Loris II–III describe
//! (docs/policy-rules.md section 6). Homes stay on the slowest tier; the fast one is divided.
//!
//! *Remap share* (80 %): every `window` seconds from the first access, the extents with the highest worth get their copies there. The worth
//! of an extent is its inverse-bitmap counter (see `inverse-bitmap`), or a quarter of a neighbour's counter if that is more. An extent that
//! had metadata requests (classes 1…7) is worth more than any extent without. On ties, extents that are there already stay, then the lower
//! number comes first. *Write-back share* (20 %): every write miss gets a copy; the least recently used copy is evicted, and is written
//! home then. Counters are halved after each window.
//!
//! | parameter | range | default | unit |
//! |---|---|---|---|
//! | window | 0.001…10⁹ | 60 | seconds between plans |
//! | remap_share | 0…1 | 0.8 | part of the fast tier that plans fill; at least one slot is left for writes |
//!
//! Memory: 8 bytes and 1 bit per extent, 33 bytes per fast slot; a large cache volume refuses it. When not to use it: for reads whose hot set changes within a window,
//! because a read alone never makes a copy.

use super::classes::is_metadata;
use super::hold::FAST;
use super::shares::Shares;
use super::{Access, Action, Outcome, ParamError, Place, Policy, Uses, View, param};
use crate::collector::{Heap, Raised, Rank, weight};
use crate::units::Nanos;
use crate::volume::{Position, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Interval at which a plan that takes longer than a window is continued. Each move that settles continues it, too.
const LOOK_AGAIN: Nanos = Nanos::from_millis(10);
/// Bit for metadata in the word that holds the window of a counter.
const METADATA: u32 = 1 << 31;
const REMAP: u8 = 0;
const WRITES: u8 = 1;

/// Whether a unit gets room in the remap share.
enum Exchange {
    Fits,
    TooBig,
    NotWorth,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Hystor {
    window: Nanos,
    remap_share: f64,
    /// Per unit: the counter and the window in which it was valid. The highest bit of the window says that metadata was accessed.
    units: Vec<(u32, u32)>,
    raised: Raised,
    now: u32,
    next: Option<Nanos>,
    shares: Shares,
    /// Slots of the remap share; the slot of lowest worth is on top.
    remap: Heap,
    queue: Vec<(Rank, UnitId)>,
    /// The number of windows that end with the plan in progress, if there is one.
    planning: Option<u32>,
    /// Time of the last step of the plan in progress.
    looked: Nanos,
}

impl Default for Hystor {
    fn default() -> Hystor {
        Hystor {
            window: Nanos::from_secs(60),
            remap_share: 0.8,
            units: Vec::new(),
            raised: Raised::default(),
            now: 0,
            next: None,
            shares: Shares::default(),
            remap: Heap::default(),
            queue: Vec::new(),
            planning: None,
            looked: Nanos(0),
        }
    }
}

impl Hystor {
    fn counter(&self, e: u32) -> u32 {
        let (n, at) = self.units[e as usize];
        n.checked_shr(self.now - (at & !METADATA)).unwrap_or(0)
    }
    fn has_metadata(&self, e: UnitId) -> bool {
        self.units[e.0 as usize].1 & METADATA != 0
    }
    /// The rank of an extent; on ties, lower numbers come first.
    fn rank(&self, e: UnitId) -> Rank {
        let n = self.units.len() as u32;
        let near = [e.0.checked_sub(1), (e.0 + 1 < n).then_some(e.0 + 1)];
        let quarter = near.iter().flatten().map(|&x| self.counter(x) / 4).max();
        let worth = if self.has_metadata(e) {
            u64::from(u32::MAX) + 1
        } else {
            u64::from(self.counter(e.0).max(quarter.unwrap_or(0)))
        };
        (worth, u64::from(u32::MAX - e.0))
    }
    fn begin(&mut self, view: &View<'_>) {
        let mut raised = Vec::new();
        self.raised.take(&mut raised);
        self.queue.clear();
        for e in raised {
            let there = view
                .copy(e)
                .is_some_and(|s| self.shares.of(s.index()) == REMAP);
            if view.home(e).is_some() && !there {
                self.queue.push((self.rank(e), e));
            }
        }
        self.queue.sort_unstable();
        // Since the last plan, ranks have risen and fallen.
        for s in 0..view.positions(FAST).end {
            let here = view
                .owner(view.position(s))
                .filter(|_| self.shares.of(s) == REMAP);
            if let Some(e) = here {
                self.remap.set(s, self.rank(e));
            } else {
                self.remap.remove(s);
            }
        }
    }
    /// Evicts the coldest units of the remap share for `extent`, if all of them are worth less.
    fn exchange(
        &mut self,
        view: &View<'_>,
        rank: Rank,
        extent: UnitId,
        wanted: &mut Vec<Action>,
    ) -> Exchange {
        let weight = view.weight(extent);
        if weight > self.shares.limit(REMAP) {
            return Exchange::TooBig;
        }
        let mut lacks = self.shares.missing_grains(REMAP, weight);
        while lacks > 0 {
            let Some((_, s)) = self.remap.top().filter(|top| top.0.0 < rank.0) else {
                return Exchange::NotWorth;
            };
            self.remap.remove(s);
            let Some(extent) = view.owner(view.position(s)) else {
                return Exchange::Fits;
            };
            lacks = lacks.saturating_sub(view.weight(extent));
            wanted.push(Action::Evict { extent });
        }
        Exchange::Fits
    }
    /// Proposes the next exchange; the plan ends if there is none.
    fn step(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        while let Some((rank, extent)) = self.queue.pop() {
            if rank.0 == 0 || self.shares.limit(REMAP) == 0 {
                break;
            }
            match self.exchange(view, rank, extent, wanted) {
                Exchange::Fits => {}
                Exchange::TooBig => continue,
                Exchange::NotWorth => break,
            }
            if let Some(s) = view.copy(extent) {
                // The copy is already on the fast tier, in the write-back share: no data moves.
                self.shares.assign(s.index(), REMAP);
                self.remap.set(s.index(), rank);
                if wanted.is_empty() {
                    continue;
                }
            } else {
                self.shares.expect(extent, REMAP);
                wanted.push(Action::Fetch { extent, to: FAST });
            }
            return;
        }
        self.queue = Vec::new(); // frees the memory: plans are rare, and the queue may be long
        // The counters are halved only after the plan, because it compares the counts of its window.
        let windows = self.planning.take().unwrap_or(0);
        self.now = self.now.saturating_add(windows).min(!METADATA);
    }
}

impl Policy for Hystor {
    fn name(&self) -> &'static str {
        "hystor"
    }
    fn uses(&self) -> Uses {
        Uses::Copies
    }
    fn unit_bytes(&self) -> u32 {
        // A counter with its window, and a bit.
        9
    }
    fn attach(&mut self, view: &mut View<'_>) {
        let (f, n) = (view.positions(FAST).end, view.units());
        let remap = ((f64::from(f) * self.remap_share) as u32).min(f - 1);
        self.shares = Shares::new(view, vec![remap, f - remap]);
        self.remap = Heap::with_room(f, remap);
        self.units = vec![(0, 0); n as usize];
        self.raised = Raised::new(n);
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.shares.arrived(view, extent, position.index());
        if self.shares.of(position.index()) == REMAP {
            self.remap.set(position.index(), self.rank(extent));
        }
    }
    fn on_uncopied(&mut self, _view: &mut View<'_>, _extent: UnitId, position: Position) {
        self.shares.remove(position.index());
        self.remap.remove(position.index());
    }
    fn on_discarded(&mut self, _view: &mut View<'_>, extent: UnitId, _position: Position) {
        self.units[extent.0 as usize] = (0, self.now);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let extent = access.extent;
        view.set_last(extent, access.now);
        self.next.get_or_insert(access.now + self.window);
        let n = self.counter(extent.0);
        let metadata = is_metadata(access.class) || self.has_metadata(extent);
        let flag = if metadata { METADATA } else { 0 };
        self.units[extent.0 as usize] = (
            n.saturating_add(weight(access.request_bytes)),
            self.now | flag,
        );
        for e in extent.0.saturating_sub(1)..=(extent.0 + 1).min(self.units.len() as u32 - 1) {
            self.raised.note(UnitId(e));
        }
        if let Some(s) = access.copy {
            return self.shares.touch(s.index());
        }
        if self.shares.is_coming(extent) {
            return;
        }
        if !access.write {
            return;
        }
        if !self.shares.make_room(view, WRITES, extent, wanted) {
            return;
        }
        self.shares.expect(extent, WRITES);
        wanted.push(Action::Allocate { extent, to: FAST });
    }
    fn on_settled(
        &mut self,
        _view: &mut View<'_>,
        action: Action,
        how: Outcome,
        _wanted: &mut Vec<Action>,
    ) {
        if how != Outcome::Done {
            self.shares.failed(action.extent());
        }
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        if self.planning.is_none()
            && let Some(next) = self.next.filter(|&t| t <= view.now())
        {
            self.begin(view);
            // Windows without an access change only the counters.
            let missed = (view.now().0 - next.0) / self.window.0;
            self.next = Some(Nanos(next.0 + (missed + 1) * self.window.0));
            self.planning = Some(missed as u32 + 1);
        }
        if self.planning.is_some() && wanted.is_empty() {
            self.step(view, wanted);
        }
        self.looked = view.now();
    }
    fn next_wake(&self) -> Option<Nanos> {
        // The next plan waits until this one ends, even if it is overdue. A wake-up time in the past would call `tick` in vain, again
        // and again.
        let planning = self.planning.is_some();
        self.next.map(|t| {
            if planning {
                t.max(self.looked + LOOK_AGAIN)
            } else {
                t
            }
        })
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        match key {
            "window" => {
                let s = param::within(value, 0.001, 1e9, "seconds, 0.001 to 10^9")?;
                self.window = Nanos((s * 1e9) as u64);
            }
            "remap_share" => {
                self.remap_share = param::within(value, 0.0, 1.0, "a part from 0 to 1")?;
            }
            _ => {
                let names = ["window", "remap_share"];
                return Err(ParamError::Unknown(super::nearest(key, names.into_iter())));
            }
        }
        Ok(())
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("window", self.window.as_secs_f64()),
            ("remap_share", self.remap_share),
        ]
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let idle = view.last_words(extent);
        let what = match view.copy(extent) {
            Some(s) if self.shares.of(s.index()) == WRITES => view.either(
                "a copy in the write-back share",
                "on the fast tier, in the share of written files",
            ),
            Some(_) => {
                view.either("a copy in the remap share", "on the fast tier, in the remap share")
            }
            None => view.either(
                "no copy; a write, or being worth enough at the next plan, makes one",
                "not on the fast tier; a write, or being worth enough at the next plan, brings it there",
            ),
        };
        let kind = if self.has_metadata(extent) {
            "metadata, "
        } else {
            ""
        };
        format!(
            "{kind}counter {}, worth {}; {what}; {idle}",
            self.counter(extent.0),
            self.rank(extent).0
        )
    }
    fn bytes(&self) -> usize {
        self.units.len() * 8
            + self.raised.bytes()
            + self.shares.bytes()
            + self.remap.bytes()
            + self.queue.capacity() * size_of::<(Rank, UnitId)>()
    }
}
