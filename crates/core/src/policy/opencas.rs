//! `opencas-like`: the decisions of Open CAS, according to its guide (no code was copied).
//!
//! *Promotion* (nhit): while at least `trigger` per cent of the cache are in use, a unit gets a copy at its `insertion`-th access without
//! one; otherwise at the first. *Sequential cutoff*: if the cache is full, a stream that has reached `seq_cutoff` bytes bypasses it. The
//! least recently used copies are evicted first. Writes go only to the copy (write-back).
//!
//! *Cleaning* alru: every `wake_up` seconds, if nothing was accessed for `activity` seconds, dirty copies not accessed for `staleness`
//! seconds are written home, least recently used first, `flush_max` at a time until none is left. *Cleaning* acp: every 10 ms, up to
//! `flush_max` dirty copies are written home. They are taken from the 100 MiB of addresses that have most dirty copies (on ties the lower
//! addresses), in the order in which they became dirty.
//!
//! | parameter | range | default | unit |
//! |---|---|---|---|
//! | insertion | 1…63 | 3 | accesses until a unit gets a copy; 1: always |
//! | trigger | 0…100 | 80 | per cent of the cache taken from which insertion counts |
//! | seq_cutoff | 0…2⁴⁰ | 1048576 | bytes of a stream from which it bypasses; 0: never |
//! | acp | 0, 1 | 0 | 1: clean by acp instead of alru |
//! | wake_up | 1…3600 | 20 | seconds between alru's rounds |
//! | staleness | 1…3600 | 120 | seconds without access after which alru cleans a copy |
//! | activity | 0…3600 | 10 | seconds without access after which alru works |
//! | flush_max | 1…10000 | 100 | copies cleaned at a time |
//!
//! Memory: 21 bytes per fast slot. The access count is stored in the map's row and is reset when the copy is made. When not to use it: for
//! work under full load that accesses each unit only once or twice, because then nothing is admitted (this is the purpose of nhit) and
//! nothing is cleaned (alru).

use super::hold::{FAST, make_room};
use super::shares::Shares;
use super::{Access, Action, Outcome, ParamError, Place, Policy, Uses, View, param};
use crate::collector::{Heap, Lists, Streams};
use crate::units::Nanos;
use crate::volume::{Position, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

const ACP_WAKE: Nanos = Nanos::from_millis(10);
const ACP_CHUNK: u64 = 100 << 20;

/// See the module.
#[derive(Clone, Debug)]
pub struct OpenCas {
    insertion: u16,
    trigger: u32,
    cutoff: u64,
    acp: bool,
    wake_up: Nanos,
    staleness: Nanos,
    activity: Nanos,
    flush_max: u32,
    streams: Streams,
    shares: Shares,
    /// For acp: per chunk, the slots of dirty copies, least recently dirtied first. The chunk with the most dirty copies is on top.
    chunks: Lists,
    chunk_units: u32,
    counts: Vec<u32>,
    order: Heap,
    next: Option<Nanos>,
    last: Nanos,
}

impl Default for OpenCas {
    fn default() -> OpenCas {
        OpenCas {
            insertion: 3,
            trigger: 80,
            cutoff: 1 << 20,
            acp: false,
            wake_up: Nanos::from_secs(20),
            staleness: Nanos::from_secs(120),
            activity: Nanos::from_secs(10),
            flush_max: 100,
            streams: Streams::default(),
            shares: Shares::default(),
            chunks: Lists::new(0, 0),
            chunk_units: 1,
            counts: Vec::new(),
            order: Heap::default(),
            next: None,
            last: Nanos(0),
        }
    }
}

impl OpenCas {
    fn dirtied(&mut self, e: UnitId, position: u32) {
        if !self.acp || self.chunks.contains(position) {
            return;
        }
        let c = e.0 / self.chunk_units;
        self.chunks.push_tail(c, position);
        self.recount(c, 1);
    }
    fn cleaned(&mut self, e: UnitId, position: u32) {
        if self.acp && self.chunks.contains(position) {
            self.chunks.unlink(position);
            self.recount(e.0 / self.chunk_units, -1);
        }
    }
    fn recount(&mut self, c: u32, by: i32) {
        let n = &mut self.counts[c as usize];
        *n = n.saturating_add_signed(by);
        if *n == 0 {
            self.order.remove(c);
        } else {
            self.order.set(c, (u64::from(u32::MAX - *n), u64::from(c)));
        }
    }
    fn clean_chunk(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        let Some((_, c)) = self.order.top() else {
            return;
        };
        for _ in 0..self.flush_max {
            let Some(s) = self.chunks.head(c) else {
                return;
            };
            let Some(extent) = view.owner(view.position(s)) else {
                self.chunks.unlink(s);
                self.recount(c, -1);
                continue;
            };
            self.cleaned(extent, s);
            wanted.push(Action::Clean { extent });
        }
    }
    fn clean_stale(&mut self, view: &View<'_>, now: Nanos, wanted: &mut Vec<Action>) {
        let old = |e: &UnitId| now.since(view.last(*e)) >= self.staleness;
        let stale = self.shares.by_age(view, 0).take_while(old);
        let dirty = stale.filter(|&e| view.is_dirty(e) && !view.is_held(e));
        wanted.extend(
            dirty
                .take(self.flush_max as usize)
                .map(|extent| Action::Clean { extent }),
        );
    }
    fn count(stat: u16) -> u16 {
        stat & 63
    }
}

impl Policy for OpenCas {
    fn name(&self) -> &'static str {
        "opencas-like"
    }
    fn uses(&self) -> Uses {
        Uses::Copies
    }
    fn attach(&mut self, view: &mut View<'_>) {
        let f = view.positions(FAST).end;
        self.shares = Shares::new(view, vec![f]);
        if self.acp {
            self.chunk_units = (ACP_CHUNK / u64::from(view.grain())).max(1) as u32;
            let chunks = view.units().div_ceil(self.chunk_units);
            self.chunks = Lists::new(f, chunks);
            self.counts = vec![0; chunks as usize];
            self.order = Heap::new(chunks);
            for s in 0..f {
                if let Some(e) = view.owner(view.position(s)).filter(|&e| view.is_dirty(e)) {
                    self.dirtied(e, s);
                }
            }
        }
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.shares.arrived(view, extent, position.index());
        view.set_stat(extent, 0);
    }
    fn on_uncopied(&mut self, _view: &mut View<'_>, extent: UnitId, position: Position) {
        self.shares.remove(position.index());
        self.cleaned(extent, position.index());
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let extent = access.extent;
        view.set_last(extent, access.now);
        self.last = access.now;
        let every = if self.acp { ACP_WAKE } else { self.wake_up };
        self.next.get_or_insert(access.now + every);
        let (_, run) = self.streams.note(access);
        if let Some(s) = access.copy {
            return self.shares.touch(s.index());
        }
        let full = view.missing_grains(FAST, extent) > 0;
        if (full && self.cutoff > 0 && run >= self.cutoff) || self.shares.is_coming(extent) {
            return;
        }
        let n = (Self::count(view.stat(extent)) + 1).min(63);
        view.set_stat(extent, n);
        let taken = u64::from(self.shares.have(0)) * 100;
        let counts = taken >= u64::from(self.shares.limit(0)) * u64::from(self.trigger);
        if counts && n < self.insertion {
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
    fn write_to(&mut self, view: &mut View<'_>, access: &Access) -> super::WriteTo {
        if let Some(s) = view.copy(access.extent) {
            self.dirtied(access.extent, s.index());
        }
        super::WriteTo::Copy
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
            if let Some(s) = view.copy(extent).filter(|_| view.is_dirty(extent)) {
                self.dirtied(extent, s.index());
                // Refused: the next round tries again.
                self.next = Some(view.now() + self.wake_up);
            }
        } else if how != Outcome::Done {
            self.shares.failed(extent);
        }
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        let Some(next) = self.next.filter(|&t| t <= view.now()) else {
            return;
        };
        let every = if self.acp { ACP_WAKE } else { self.wake_up };
        if self.acp {
            self.clean_chunk(view, wanted);
        } else if next.since(self.last) >= self.activity {
            self.clean_stale(view, next, wanted);
            if !wanted.is_empty() {
                return; // the next batch follows at once, until no copy is stale
            }
        }
        self.next = Some(if self.acp && wanted.is_empty() {
            // Nothing is dirty, so rounds before the next access have nothing to do.
            Nanos(next.0 + ((view.now().0 - next.0) / every.0 + 1) * every.0)
        } else {
            next + every
        });
    }
    fn next_wake(&self) -> Option<Nanos> {
        self.next
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        let whole = |lo: f64, hi: f64, what| param::whole(value, lo, hi, what);
        let seconds = |lo: f64| {
            let what = "seconds, a whole number up to 3600";
            whole(lo, 3600.0, what).map(Nanos::from_secs)
        };
        match key {
            "insertion" => {
                self.insertion = whole(1.0, 63.0, "accesses, a whole number from 1 to 63")? as u16;
            }
            "trigger" => {
                self.trigger = whole(0.0, 100.0, "per cent, a whole number from 0 to 100")? as u32;
            }
            "seq_cutoff" => {
                let what = "bytes, a whole number from 0 (never) to 2^40";
                self.cutoff = whole(0.0, 1_099_511_627_776.0, what)?;
            }
            "acp" if self.shares.limit_is_set() => {
                return Err(ParamError::Range("chosen before the volume is opened"));
            }
            "acp" => self.acp = whole(0.0, 1.0, "0 (alru) or 1")? == 1,
            "wake_up" => self.wake_up = seconds(1.0)?,
            "staleness" => self.staleness = seconds(1.0)?,
            "activity" => self.activity = seconds(0.0)?,
            "flush_max" => {
                let what = "copies, a whole number from 1 to 10000";
                self.flush_max = whole(1.0, 10_000.0, what)? as u32;
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
            ("insertion", f64::from(self.insertion)),
            ("trigger", f64::from(self.trigger)),
            ("seq_cutoff", self.cutoff as f64),
            ("acp", f64::from(u8::from(self.acp))),
            ("wake_up", self.wake_up.as_secs_f64()),
            ("staleness", self.staleness.as_secs_f64()),
            ("activity", self.activity.as_secs_f64()),
            ("flush_max", f64::from(self.flush_max)),
        ]
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let idle = view.last_words(extent);
        let missed = |n| {
            if view.is_uniform() {
                format!("no copy; {n} accesses without one")
            } else {
                format!("not on the fast tier; {n} accesses since")
            }
        };
        let what = match view.copy(extent) {
            Some(_) if view.is_dirty(extent) => {
                String::from(view.either("a dirty copy", "on the fast tier"))
            }
            Some(_) => String::from(view.either("a clean copy", "on the fast tier")),
            None => format!(
                "{}, at {} it {} (at once while under {} % of the cache are taken)",
                missed(Self::count(view.stat(extent))),
                self.insertion,
                view.either("gets one", "comes there"),
                self.trigger
            ),
        };
        format!("{what}; {idle}")
    }
    fn bytes(&self) -> usize {
        self.shares.bytes()
            + self.chunks.bytes()
            + self.counts.len() * 4
            + self.order.bytes()
            + self.streams.bytes()
    }
}
