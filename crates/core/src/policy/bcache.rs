//! `bcache-like`: the decisions of the kernel's bcache, according to its documentation (admin-guide/bcache.rst; no code was copied).
//!
//! A miss gets a copy unless it belongs to a stream that has reached `sequential_cutoff`; the least recently used copies are evicted first.
//! A write goes to the copy while at most 40 % of the cache is dirty, otherwise to copy and home. Every `update_seconds` a controller
//! adjusts the cleaning so that dirty data approaches `writeback_percent` of the cache: the rate of cleaning, in sectors of 512 bytes a
//! second, changes by (error · update_seconds + d_term · growth) / p_term_inverse, where error is dirty minus target sectors and growth is
//! the change of dirty sectors since the last update; it is at least `rate_minimum`. Copies are cleaned at that rate, in circular address
//! order.
//!
//! | parameter | range | default | unit |
//! |---|---|---|---|
//! | sequential_cutoff | 0…2⁴⁰ | 4194304 | bytes of a stream from which it bypasses; 0: never |
//! | writeback_percent | 0…40 | 10 | per cent of the cache that should be dirty |
//! | update_seconds | 1…3600 | 5 | seconds between corrections of the rate |
//! | d_term | 0…1000 | 30 | weight of the change of dirty data |
//! | p_term_inverse | 1…10⁶ | 6000 | divisor of a correction |
//! | rate_minimum | 1…10⁶ | 8 | sectors a second |
//!
//! Memory: 9 bytes per fast slot, and 2 for each dirty copy. Only the decisions are those of bcache: there are no buckets, no log and no
//! congestion test, and one stream table serves all processes. When not to use it: if flash wear matters, because it copies all data at its
//! first access; `raf` and `opencas-like` do not.

use super::hold::{FAST, make_room};
use super::shares::Shares;
use super::{Access, Action, Outcome, ParamError, Place, Policy, Uses, View, WriteTo, param};
use crate::collector::Streams;
use crate::units::Nanos;
use crate::volume::{Position, UnitId, UnitSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Percentage of dirty data above which writes go to the home as well.
const CUTOFF_WRITEBACK: u32 = 40;
/// Maximum number of cleanings that one call proposes in a live volume.
const AT_ONCE: usize = 16;

/// See the module.
#[derive(Clone, Debug)]
pub struct Bcache {
    cutoff: u64,
    percent: u32,
    update: Nanos,
    d_term: i64,
    p_inverse: i64,
    minimum: i64,
    streams: Streams,
    shares: Shares,
    dirty: UnitSet,
    next: Option<Nanos>,
    /// Cleaning rate in sectors per second, and the number of sectors that may be cleaned now.
    rate: i64,
    budget: i64,
    dirty_then: i64,
    /// The number of the unit at which the next search for a dirty copy starts.
    at: u32,
    sectors: i64,
}

impl Default for Bcache {
    fn default() -> Bcache {
        Bcache {
            cutoff: 4 << 20,
            percent: 10,
            update: Nanos::from_secs(5),
            d_term: 30,
            p_inverse: 6000,
            minimum: 8,
            streams: Streams::default(),
            shares: Shares::default(),
            dirty: UnitSet::default(),
            next: None,
            rate: 8,
            budget: 0,
            dirty_then: 0,
            at: 0,
            sectors: 8,
        }
    }
}

impl Bcache {
    /// Corrects the rate; called every `update_seconds`.
    fn correct(&mut self) {
        let dirty = i64::from(self.dirty.len()) * self.sectors;
        let all = i64::from(self.shares.limit(0)) * self.sectors;
        let error = dirty - all * i64::from(self.percent) / 100;
        let seconds = (self.update.0 / 1_000_000_000) as i64;
        let growth = dirty - self.dirty_then;
        self.dirty_then = dirty;
        let change = (error * seconds + growth * self.d_term) / self.p_inverse;
        self.rate = (self.rate + change).clamp(self.minimum, 1 << 31);
        self.budget = if self.dirty.is_empty() {
            0
        } else {
            (self.budget + self.rate * seconds).min(dirty)
        };
    }
    fn clean(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        while self.budget >= self.sectors && wanted.len() < AT_ONCE && !self.dirty.is_empty() {
            let next = self.dirty.first_from(self.at);
            let Some(e) = next.or_else(|| self.dirty.first_from(0)) else {
                return;
            };
            self.at = e.0 + 1;
            self.budget -= self.sectors;
            self.dirty.remove(e);
            if view.is_dirty(e) {
                wanted.push(Action::Clean { extent: e });
            }
        }
    }
}

impl Policy for Bcache {
    fn name(&self) -> &'static str {
        "bcache-like"
    }
    fn uses(&self) -> Uses {
        Uses::Copies
    }
    fn attach(&mut self, view: &mut View<'_>) {
        let f = view.positions(FAST).end;
        self.shares = Shares::new(view, vec![f]);
        self.dirty = UnitSet::new(view.units());
        self.sectors = i64::from(view.grain() / 512);
        self.rate = self.minimum;
        for s in 0..f {
            if let Some(e) = view.owner(view.position(s)).filter(|&e| view.is_dirty(e)) {
                self.dirty.insert(e);
            }
        }
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.shares.arrived(view, extent, position.index());
    }
    fn on_uncopied(&mut self, _view: &mut View<'_>, extent: UnitId, position: Position) {
        self.shares.remove(position.index());
        self.dirty.remove(extent);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let extent = access.extent;
        view.set_last(extent, access.now);
        self.next.get_or_insert(access.now + self.update);
        let (_, run) = self.streams.note(access);
        if let Some(s) = access.copy {
            return self.shares.touch(s.index());
        }
        if (self.cutoff > 0 && run >= self.cutoff) || self.shares.is_coming(extent) {
            return;
        }
        let oldest = |leaving: &[Action]| self.shares.oldest(view, 0, leaving);
        if !make_room(view, extent, wanted, oldest) {
            return;
        }
        self.shares.expect(extent, 0);
        wanted.push(if access.write {
            Action::Allocate { extent, to: FAST }
        } else {
            Action::Fetch { extent, to: FAST }
        });
    }
    fn write_to(&mut self, _view: &mut View<'_>, access: &Access) -> WriteTo {
        if u64::from(self.dirty.len()) * 100
            > u64::from(self.shares.limit(0)) * u64::from(CUTOFF_WRITEBACK)
        {
            return WriteTo::Both;
        }
        self.dirty.insert(access.extent);
        WriteTo::Copy
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        _wanted: &mut Vec<Action>,
    ) {
        let extent = action.extent();
        if let Action::Clean { .. } = action {
            self.dirty.put(extent, view.is_dirty(extent));
        } else if how != Outcome::Done {
            self.shares.failed(extent);
        }
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        self.clean(view, wanted);
        if wanted.is_empty()
            && let Some(next) = self.next.filter(|&t| t <= view.now())
        {
            self.correct();
            self.next = Some(next + self.update);
            self.clean(view, wanted);
        }
    }
    fn next_wake(&self) -> Option<Nanos> {
        self.next
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        let whole = |lo: f64, hi: f64, what| param::whole(value, lo, hi, what);
        match key {
            "sequential_cutoff" => {
                let what = "bytes, a whole number from 0 (never) to 2^40";
                self.cutoff = whole(0.0, 1_099_511_627_776.0, what)?;
            }
            "writeback_percent" => {
                self.percent = whole(0.0, 40.0, "per cent, a whole number from 0 to 40")? as u32;
            }
            "update_seconds" => {
                let s = whole(1.0, 3600.0, "seconds, a whole number from 1 to 3600")?;
                self.update = Nanos::from_secs(s);
            }
            "d_term" => self.d_term = whole(0.0, 1000.0, "a whole number from 0 to 1000")? as i64,
            "p_term_inverse" => {
                self.p_inverse = whole(1.0, 1e6, "a whole number from 1 to 10^6")? as i64;
            }
            "rate_minimum" => {
                let what = "sectors a second, a whole number from 1 to 10^6";
                self.minimum = whole(1.0, 1e6, what)? as i64;
            }
            _ => {
                let names = self.params();
                let nearest = super::nearest(key, names.iter().map(|p| p.0));
                return Err(ParamError::Unknown(nearest));
            }
        }
        Ok(())
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("sequential_cutoff", self.cutoff as f64),
            ("writeback_percent", f64::from(self.percent)),
            ("update_seconds", self.update.as_secs_f64()),
            ("d_term", self.d_term as f64),
            ("p_term_inverse", self.p_inverse as f64),
            ("rate_minimum", self.minimum as f64),
        ]
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let idle = view.last_words(extent);
        let what = match view.copy(extent) {
            Some(_) if view.is_dirty(extent) => view.either("a dirty copy", "on the fast tier"),
            Some(_) => view.either("a clean copy", "on the fast tier"),
            None => view.either(
                "no copy; an access makes one unless its stream is over the cutoff",
                "not on the fast tier; an access brings it there unless its stream is over the cutoff",
            ),
        };
        if !view.is_uniform() {
            return format!("{what}; {idle}");
        }
        format!(
            "{what}; {idle}; {} of {} copies dirty, cleaned at {} sectors/s",
            self.dirty.len(),
            self.shares.limit(0),
            self.rate
        )
    }
    fn bytes(&self) -> usize {
        self.shares.bytes() + self.dirty.bytes() + self.streams.bytes()
    }
}
