//! `type-aware` (Loris V; policy-specs section 5): rules send classes or address ranges to sub-policies that share the fast tier.
//!
//! A rule is `SELECTOR:POLICY:SHARE`. Selectors: `class/N-M` (or `class/N`), `bytes/FROM-TO` (of the volume, with K, M, G or T;
//! TO is not part of it), `all`. Policies: `hot-dst-dynamic`, `cache-ondemand`, `cold-dst-plain`, `cold-dst-dynamic`, and `slow`, which keeps
//! off fast. Share: per cent of the fast tier. The first rule that matches counts; what no rule matches is under `hot-dst-dynamic`
//! with the share that is left. As in `type-aware,rule=class/1-7:cache-ondemand:20,rule=bytes/0-8G:slow:0`.
//!
//! Every sub-policy has its own order and its own "last evicted". A free slot goes to whoever asks. With none, a sub-policy
//! under its share takes from the one that is furthest over its own (the first among equals), coldest first; one at or over its
//! share takes from itself. An extent whose class changes goes over to its new sub-policy with its counter; from one that keeps off
//! fast it may return.
//!
//! Over more than two tiers: `middle.rs`.
//!
//! | parameter | range | default |
//! |---|---|---|
//! | rule | see above, up to 16 times | none |
//!
//! 8 bytes an extent, 24 a fast slot and 4 more for each rule; the rule in force rides in the map's row. When not to use it: without classes or a known layout there is nothing to tell
//! apart, and one of its sub-policies alone does the same.

use super::hold::{FAST, Hold, is_fast};
use super::middle::Middle;
use super::{Access, Action, Outcome, ParamError, Place, Policy, Uses, View, WriteTo};
use crate::collector::{Coldest, Collector, InverseBitmap};
use crate::units::Nanos;
use crate::volume::{Seat, UnitId};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

const RULES_MAX: usize = 16;
/// Promotions that wait for room at most.
const WAITING_MAX: usize = 16;
/// In the row: sub-policy + 1, and whether the extent counts as being on fast.
const SUB: u16 = 0xff;
const COUNTED: u16 = 1 << 8;
const FORM: &str = "SELECTOR:POLICY:SHARE, as class/1-7:cache-ondemand:20, bytes/0-8G:slow:0 or all:hot-dst-dynamic:50, up to 16 times and 100 % together";

/// Which accesses a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selector {
    All,
    Classes(u8, u8),
    Bytes(u64, u64),
}

/// What is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    HotDst,
    Cache,
    ColdPlain,
    ColdDynamic,
    Slow,
}

const KINDS: [(&str, Kind); 5] = [
    ("hot-dst-dynamic", Kind::HotDst),
    ("cache-ondemand", Kind::Cache),
    ("cold-dst-plain", Kind::ColdPlain),
    ("cold-dst-dynamic", Kind::ColdDynamic),
    ("slow", Kind::Slow),
];

#[derive(Clone, Debug)]
struct Sub {
    text: String,
    selector: Selector,
    kind: Kind,
    percent: u32,
    /// Slots it may have, slots it has.
    share: u32,
    have: u32,
    last_evicted: u64,
    coldest: Coldest,
}

impl Sub {
    fn new(text: &str, selector: Selector, kind: Kind, percent: u32) -> Sub {
        Sub {
            text: String::from(text),
            selector,
            kind,
            percent,
            share: 0,
            have: 0,
            last_evicted: 0,
            coldest: Coldest::default(),
        }
    }
    fn parse(text: &str) -> Option<Sub> {
        let mut parts = text.split(':');
        let (selector, kind, share) = (parts.next()?, parts.next()?, parts.next()?);
        let selector = match selector.split_once('/') {
            None if selector == "all" => Selector::All,
            Some(("class", r)) => {
                let (a, b) = r.split_once('-').unwrap_or((r, r));
                Selector::Classes(a.parse().ok()?, b.parse().ok().filter(|b| *b < 64)?)
            }
            Some(("bytes", r)) => {
                let (a, b) = r.split_once('-')?;
                Selector::Bytes(bytes(a)?, bytes(b)?)
            }
            _ => return None,
        };
        let kind = KINDS.iter().find(|k| k.0 == kind)?.1;
        let percent = share.parse().ok().filter(|p| *p <= 100)?;
        parts
            .next()
            .is_none()
            .then(|| Sub::new(text, selector, kind, percent))
    }
    fn matches(&self, class: u8, start: u64) -> bool {
        match self.selector {
            Selector::All => true,
            Selector::Classes(a, b) => (a..=b).contains(&class),
            Selector::Bytes(a, b) => (a..b).contains(&start),
        }
    }
}

fn bytes(text: &str) -> Option<u64> {
    let shift = match text.as_bytes().last()? {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        _ => 0,
    };
    let digits = &text[..text.len() - usize::from(shift > 0)];
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// See the module.
pub struct TypeAware {
    counters: InverseBitmap,
    /// The rules, then the one for what is left.
    subs: Vec<Sub>,
    waiting: VecDeque<UnitId>,
    leaving: Vec<UnitId>,
    middle: Middle,
}

impl Default for TypeAware {
    fn default() -> TypeAware {
        TypeAware {
            counters: InverseBitmap::default(),
            subs: vec![Sub::new("all", Selector::All, Kind::HotDst, 0)],
            waiting: VecDeque::new(),
            leaving: Vec::new(),
            middle: Middle::default(),
        }
    }
}

impl TypeAware {
    /// The sub-policy that an extent is under: its number + 1 rides in the row, so that a fresh row is under none.
    fn sub_of(&self, view: &View<'_>, e: UnitId) -> usize {
        usize::from(view.stat(e) & SUB).clamp(1, self.subs.len()) - 1
    }
    fn rule_for(&self, view: &View<'_>, e: UnitId, class: u8) -> usize {
        let start = view.start(e);
        let found = self.subs.iter().position(|s| s.matches(class, start));
        found.unwrap_or(self.subs.len() - 1)
    }
    /// The extent is on fast, in `slot`, and counts for its sub-policy.
    fn enter(&mut self, view: &mut View<'_>, e: UnitId, seat: Seat) {
        let (i, stat) = (self.sub_of(view, e), view.stat(e));
        self.subs[i].coldest.enter(FAST, seat);
        if stat & COUNTED == 0 {
            self.subs[i].have += view.weight(e);
        }
        view.set_stat(e, stat | COUNTED);
    }
    /// It is not any more. Its slot is taken out of the order when it surfaces there.
    fn leave(&mut self, view: &mut View<'_>, e: UnitId) {
        let (i, stat) = (self.sub_of(view, e), view.stat(e));
        if stat & COUNTED != 0 {
            self.subs[i].have -= view.weight(e);
        }
        view.set_stat(e, stat & !COUNTED);
    }
    /// Put an extent under the rule that it matches.
    fn assign(&mut self, view: &mut View<'_>, e: UnitId, class: u8) -> usize {
        let to = self.rule_for(view, e, class);
        if usize::from(view.stat(e) & SUB) != to + 1 {
            let fast = view.stat(e) & COUNTED != 0;
            self.leave(view, e);
            view.set_stat(e, to as u16 + 1);
            if let Some(s) = view.copy(e).or(view.home(e)).filter(|_| fast) {
                self.enter(view, e, s);
            }
        }
        to
    }
    /// Who makes room for `sub`.
    fn victim(&mut self, view: &View<'_>, sub: usize) -> Option<UnitId> {
        let mut from = sub;
        if self.subs[sub].have < self.subs[sub].share {
            let over = |s: &Sub| s.have.saturating_sub(s.share);
            let most = self.subs.iter().map(over).max().filter(|n| *n > 0);
            from = most
                .and_then(|n| self.subs.iter().position(|s| over(s) == n))
                .unwrap_or(sub);
        }
        loop {
            let counters = &self.counters;
            let coldest = &mut self.subs[from].coldest;
            let e = coldest.find(view, FAST, |e| counters.rank(view, e))?;
            if self.sub_of(view, e) == from {
                return Some(e);
            }
            // The slot went to another sub-policy's extent.
            let seat = view.copy(e).or(view.home(e))?;
            self.subs[from].coldest.leave(FAST, seat);
        }
    }
    fn hold(view: &View<'_>, e: UnitId) -> Hold {
        match view.copy(e) {
            Some(_) => Hold::Copy,
            None => Hold::Home,
        }
    }
    fn down(view: &View<'_>, e: UnitId) -> Action {
        Self::hold(view, e).down(view, e)
    }
    fn up(&self, view: &View<'_>, e: UnitId) -> Action {
        match self.subs[self.sub_of(view, e)].kind {
            Kind::Cache => Hold::Copy.up(e),
            _ => Hold::Home.up(e),
        }
    }
}

impl Policy for TypeAware {
    fn name(&self) -> &'static str {
        "type-aware"
    }
    fn uses(&self) -> Uses {
        Uses::Both
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.counters.attach(view);
        self.middle.attach(view);
        let f = view.seats(FAST).end;
        let given: u32 = self.subs.iter().map(|s| s.percent).sum();
        let (last, empty) = (self.subs.len() - 1, Coldest::empty(view));
        self.subs[last].percent = 100 - given.min(100);
        for s in &mut self.subs {
            s.share = (u64::from(f) * u64::from(s.percent) / 100) as u32;
            s.coldest = empty.clone();
            s.have = 0;
        }
        // Rows may hold what another policy, or this one before a crash, left in them.
        for e in (0..view.units()).map(UnitId) {
            view.set_stat(e, view.stat(e) & !COUNTED);
        }
        for s in 0..f {
            let seat = view.seat(s);
            if let Some(e) = view.owner(seat) {
                self.enter(view, e, seat);
            }
        }
    }
    fn make_room(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let sub = self.assign(view, access.extent, access.class);
        let cold = matches!(self.subs[sub].kind, Kind::ColdPlain | Kind::ColdDynamic);
        if cold && view.lacks(FAST, access.extent) > 0 {
            let victim = self.victim(view, sub);
            wanted.extend(victim.map(|e| Self::down(view, e)));
        }
    }
    fn first_touch(&mut self, view: &mut View<'_>, extent: UnitId) -> Place {
        match self.subs[self.sub_of(view, extent)].kind {
            Kind::ColdPlain | Kind::ColdDynamic => Place::Tier(FAST),
            _ => Place::Tier(view.slowest()),
        }
    }
    fn on_placed(&mut self, view: &mut View<'_>, extent: UnitId, seat: Seat) {
        if view.tier_of(seat) == FAST {
            self.enter(view, extent, seat);
        } else {
            self.leave(view, extent);
            self.counters.placed(view, extent, seat); // the order of the tiers in between
        }
    }
    fn on_resized(&mut self, view: &mut View<'_>, extent: UnitId, before: u32) {
        if view.stat(extent) & COUNTED != 0 {
            let sub = self.sub_of(view, extent);
            let have = &mut self.subs[sub].have;
            *have = *have - before + view.weight(extent);
        }
    }
    fn on_discarded(&mut self, view: &mut View<'_>, extent: UnitId, _seat: Seat) {
        self.leave(view, extent);
        self.counters.forget(extent);
    }
    fn on_reclassified(
        &mut self,
        view: &mut View<'_>,
        extent: UnitId,
        class: u8,
        wanted: &mut Vec<Action>,
    ) {
        let sub = self.assign(view, extent, class);
        let leaves = self.subs[sub].kind == Kind::Slow && is_fast(view, extent);
        if leaves && !self.leaving.contains(&extent) {
            self.leaving.push(extent);
            wanted.push(Self::hold(view, extent).out(view, extent));
        }
    }
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, seat: Seat) {
        self.enter(view, extent, seat);
    }
    fn on_uncopied(&mut self, view: &mut View<'_>, extent: UnitId, _seat: Seat) {
        self.leave(view, extent);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let (e, sub) = (
            access.extent,
            self.assign(view, access.extent, access.class),
        );
        self.counters.touch(view, access);
        let kind = self.subs[sub].kind;
        let fast = is_fast(view, e);
        if kind == Kind::Slow && fast && !self.leaving.contains(&e) {
            self.leaving.push(e);
            wanted.push(Self::hold(view, e).out(view, e));
        }
        if matches!(kind, Kind::Slow | Kind::ColdPlain) || access.write || fast {
            return;
        }
        let worth = self.counters.worth(view, e);
        if worth <= self.subs[sub].last_evicted {
            if kind != Kind::Cache {
                self.middle.rise(view, e, worth, wanted);
            }
            return;
        }
        if view.lacks(FAST, e) == 0 {
            wanted.push(self.up(view, e));
        } else if !view.could_fit(FAST, e) {
            // Never.
        } else if let Some(cold) = self.victim(view, sub) {
            wanted.push(Self::down(view, cold));
            if self.waiting.len() == WAITING_MAX {
                self.waiting.pop_front();
            }
            self.waiting.push_back(e);
        }
    }
    fn writes_through(&self) -> bool {
        true
    }
    fn write_to(&mut self, _view: &mut View<'_>, _access: &Access) -> WriteTo {
        WriteTo::Both
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        if self.middle.settled(view, &self.counters, action, how) || Hold::is_up(action) {
            return;
        }
        let extent = action.extent();
        if let Some(i) = self.leaving.iter().position(|&e| e == extent) {
            self.leaving.swap_remove(i);
        } else if how == Outcome::Done {
            let sub = self.sub_of(view, extent);
            self.subs[sub].last_evicted = self.counters.worth(view, extent);
        }
        let next = self.waiting.pop_front();
        if how == Outcome::Done {
            let next = next.filter(|&e| view.home(e).is_some() && !is_fast(view, e));
            match next {
                // One that takes more room than the last one left.
                Some(e) if view.weight(e) > 1 && view.lacks(FAST, e) > 0 => {
                    let sub = self.sub_of(view, e);
                    if let Some(cold) = self.victim(view, sub) {
                        wanted.push(Self::down(view, cold));
                        self.waiting.push_front(e);
                    }
                }
                _ => wanted.extend(next.map(|e| self.up(view, e))),
            }
        }
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        self.middle.keep_room(view, &mut self.counters, wanted);
    }
    fn next_wake(&self) -> Option<Nanos> {
        self.middle.next_wake()
    }
    fn set(&mut self, key: &str, _value: f64) -> Result<(), ParamError> {
        if key != "rule" {
            return Err(ParamError::Unknown(String::from("rule")));
        }
        Err(ParamError::Range(FORM))
    }
    fn set_name(&mut self, key: &str, name: &str) -> Result<(), ParamError> {
        if key != "rule" {
            return Err(ParamError::Unknown(String::from("rule")));
        }
        let sub = Sub::parse(name).ok_or(ParamError::Range(FORM))?;
        let given: u32 = self.subs.iter().map(|s| s.percent).sum();
        let attached = self.subs.iter().any(|s| s.share > 0);
        if attached || self.subs.len() > RULES_MAX || given + sub.percent > 100 {
            return Err(ParamError::Range(FORM));
        }
        self.subs.insert(self.subs.len() - 1, sub);
        Ok(())
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn names(&self) -> Vec<(&'static str, String)> {
        let rules = &self.subs[..self.subs.len() - 1];
        rules.iter().map(|s| ("rule", s.text.clone())).collect()
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let s = &self.subs[self.sub_of(view, extent)];
        let kind = KINDS.iter().find(|k| k.1 == s.kind).map_or("", |k| k.0);
        let place = if is_fast(view, extent) {
            "on the fast tier"
        } else {
            "not on the fast tier"
        };
        format!(
            "{}; {place}; under rule `{}` ({kind}), which has {} of its {} fast slots and last evicted an extent worth {}",
            self.counters.explain(view, extent),
            s.text,
            s.have,
            s.share,
            s.last_evicted
        )
    }
    fn bytes(&self) -> usize {
        let subs: usize = self.subs.iter().map(|s| s.coldest.bytes()).sum();
        self.counters.bytes() + subs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let s = Sub::parse("bytes/4K-1G:cold-dst-plain:30").unwrap();
        assert_eq!(
            (s.selector, s.kind, s.percent),
            (Selector::Bytes(4096, 1 << 30), Kind::ColdPlain, 30)
        );
        let s = Sub::parse("class/7:slow:0").unwrap();
        assert_eq!((s.selector, s.kind), (Selector::Classes(7, 7), Kind::Slow));
        for wrong in [
            "",
            "all",
            "all:slow",
            "all:fast:3",
            "all:slow:101",
            "class/70:slow:1",
            "bytes/9:slow:1",
            "all:slow:1:2",
        ] {
            assert!(Sub::parse(wrong).is_none(), "{wrong}");
        }
        let mut p = TypeAware::default();
        assert!(p.set_name("rule", "class/1-7:cache-ondemand:60").is_ok());
        assert!(p.set_name("rule", "all:slow:41").is_err(), "over 100 %");
        assert_eq!(
            p.names(),
            [("rule", String::from("class/1-7:cache-ondemand:60"))]
        );
    }
}
