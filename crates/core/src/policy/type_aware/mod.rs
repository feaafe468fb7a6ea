//! `type-aware` (Loris V; docs/policy-rules.md section 5): rules send classes or address ranges to sub-policies that share the fast tier.
//!
//! A rule is `SELECTOR:POLICY:SHARE`. Selectors: `class/N-M` (or `class/N`), `bytes/FROM-TO` (of the volume, with K, M, G or T; TO is not
//! part of it), `all`. Policies: `hot-dst-dynamic`, `cache-ondemand`, `cold-dst-plain`, `cold-dst-dynamic`, and `slow`, which keeps its
//! units off the fast tier; or any other preset (`NAME`, or `NAME/KEY=VALUE/…`). Share: per cent of the fast tier. The first rule that
//! matches applies. Units that no rule matches are under `hot-dst-dynamic` with the remaining share. Example:
//! `type-aware,rule=class/1-7:cache-ondemand:20,rule=bytes/0-8G:slow:0`.
//!
//! Every sub-policy has its own order and its own "last evicted". A free slot goes to any sub-policy that needs one. If no slot is free, a
//! sub-policy below its share takes a slot from the one that exceeds its own share most (on ties the first), and the coldest extent there
//! is evicted; a sub-policy at or above its share evicts an extent of its own. An extent whose class changes moves to its new sub-policy
//! with its counter; if its old sub-policy was `slow`, it may return to the fast tier.
//!
//! The five sub-policies above are those of Loris and share the fast tier as it describes. A preset is an independent policy with a fixed
//! quota: it sees its share of the fast tier as a small volume (`preset.rs`) and only the units of its rule. It takes no slot from other
//! sub-policies, and they take none from it; the five share the slots that are in no quota. If a unit has no room on the fast tier any more
//! after a change of rules or class, it is demoted.
//!
//! Over more than two tiers: `middle.rs`.
//!
//! | parameter | range | default |
//! |---|---|---|
//! | rule | see above, up to 16 times | none |
//!
//! 8 bytes per extent, 24 per fast slot and 4 more for each rule; the rule of each extent is stored in the map's row. A rule with a preset
//! takes 12 bytes more per extent, and the memory of the preset. When not to use it: without classes or a known layout all data looks
//! alike, and one of the sub-policies alone does the same.

mod preset;
mod rules;
mod subs;

use super::hold::{FAST, Hold, is_fast};
use super::middle::Middle;
use super::{Access, Action, Outcome, ParamError, Place, Policy, Refusal, Uses, View, WriteTo};
use crate::collector::{Coldest, Collector, InverseBitmap};
use crate::units::Nanos;
use crate::volume::{Position, UnitId};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use rules::{FORM, KINDS, Kind, RULES_MAX, Rule, Selector};
use subs::{Misplaced, Sub};

/// Maximum number of misplaced units that are moved away at a time.
const MISPLACED_MAX: usize = 16;
/// Maximum number of promotions that wait for room.
const WAITING_MAX: usize = 16;
/// Bits of the map's row: sub-policy + 1, and whether the extent is counted as being on the fast tier.
const SUB: u16 = 0xff;
const COUNTED: u16 = 1 << 8;

/// See the module.
pub struct TypeAware {
    counters: InverseBitmap,
    /// The rules, then the default rule.
    subs: Vec<Sub>,
    /// Grains of the fast tier that belong to no quota.
    pool: u32,
    waiting: VecDeque<UnitId>,
    leaving: Vec<UnitId>,
    misplaced: Misplaced,
    middle: Middle,
}

impl Default for TypeAware {
    fn default() -> TypeAware {
        TypeAware {
            counters: InverseBitmap::default(),
            subs: vec![Sub::new(
                "all",
                Rule {
                    selector: Selector::All,
                    kind: Kind::HotDst,
                    percent: 0,
                    policy: None,
                },
            )],
            pool: u32::MAX,
            waiting: VecDeque::new(),
            leaving: Vec::new(),
            misplaced: Misplaced::default(),
            middle: Middle::default(),
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
        let f = view.positions(FAST).end;
        let given: u32 = self.subs.iter().map(|s| s.percent).sum();
        let (last, empty) = (self.subs.len() - 1, Coldest::empty(view));
        self.subs[last].percent = 100 - given.min(100);
        for s in &mut self.subs {
            s.share = (u64::from(f) * u64::from(s.percent) / 100) as u32;
            s.coldest = empty.clone();
            s.have = 0;
            let before = s.preset.take().map(preset::Sub::into_policy);
            if let Some(p) = s.policy.take().or(before) {
                s.preset = Some(preset::Sub::new(p, view, s.share));
            }
        }
        let quotas = self.subs.iter().filter(|s| s.is_preset());
        let quotas: u32 = quotas.map(|s| s.share).sum();
        self.pool = if quotas > 0 {
            f - quotas.min(f)
        } else {
            u32::MAX
        };
        // Rows may hold values of another policy, or of this one from before a crash.
        let presets = self.has_presets();
        for e in (0..view.units()).map(UnitId) {
            view.set_stat(e, view.stat(e) & !COUNTED);
            if presets && view.home(e).is_some() {
                let class = view.class(e);
                self.settle_in(view, e, class);
            }
        }
        for s in 0..f {
            let position = view.position(s);
            if let Some(e) = view.owner(position)
                && !self.subs[self.sub_of(view, e)].is_preset()
            {
                self.enter(view, e, position);
                if self.over() > 0 {
                    self.misplaced.add(e);
                }
            }
        }
        for s in &mut self.subs {
            if let Some(p) = &mut s.preset {
                p.attach(view);
            }
        }
    }
    fn make_room(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let sub = self.assign(view, access.extent, access.class);
        if let Some(p) = &mut self.subs[sub].preset {
            return p.make_room(view, access, wanted);
        }
        let cold = matches!(self.subs[sub].kind, Kind::ColdPlain | Kind::ColdDynamic);
        if cold && self.missing_grains(view, access.extent) > 0 {
            let victim = self.victim(view, sub);
            wanted.extend(victim.map(|e| Self::down(view, e)));
        }
    }
    fn first_touch(&mut self, view: &mut View<'_>, extent: UnitId) -> Place {
        let sub = self.sub_of(view, extent);
        if let Some(p) = &mut self.subs[sub].preset {
            return p.first_touch(view, extent);
        }
        let room = self.pool == u32::MAX || self.missing_grains(view, extent) == 0;
        match self.subs[sub].kind {
            Kind::ColdPlain | Kind::ColdDynamic if room => Place::Tier(FAST),
            _ => Place::Tier(view.slowest()),
        }
    }
    fn on_placed(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        let (sub, tier) = (self.sub_of(view, extent), view.tier_of(position));
        if self.subs[sub].is_preset() {
            return self.subs[sub].inform(
                |p| p.placed(view, extent, tier),
                extent,
                &mut self.misplaced,
            );
        }
        if view.tier_of(position) == FAST {
            self.enter(view, extent, position);
        } else {
            self.leave(view, extent);
            self.counters.placed(view, extent, position); // the order of the tiers in between
        }
    }
    fn on_resized(&mut self, view: &mut View<'_>, extent: UnitId, before: u32) {
        let sub = self.sub_of(view, extent);
        if self.subs[sub].is_preset() {
            let tell = |p: &mut preset::Sub| p.resized(view, extent, before);
            return self.subs[sub].inform(tell, extent, &mut self.misplaced);
        }
        if view.stat(extent) & COUNTED != 0 {
            let have = &mut self.subs[sub].have;
            *have = *have - before + view.weight(extent);
        }
    }
    fn on_discarded(&mut self, view: &mut View<'_>, extent: UnitId, _position: Position) {
        let sub = self.sub_of(view, extent);
        if let Some(p) = &mut self.subs[sub].preset {
            p.removed(view, extent);
        }
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
        if let Some(p) = &mut self.subs[sub].preset {
            p.reclassified(view, extent, class, wanted);
        }
        self.move_misplaced(view, wanted);
        let leaves = self.subs[sub].kind == Kind::Slow && is_fast(view, extent);
        if leaves && !self.leaving.contains(&extent) {
            self.leaving.push(extent);
            wanted.push(Self::hold(view, extent).out(view, extent));
        }
    }
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        let sub = self.sub_of(view, extent);
        if self.subs[sub].is_preset() {
            return self.subs[sub].inform(|p| p.copied(view, extent), extent, &mut self.misplaced);
        }
        self.enter(view, extent, position);
    }
    fn on_uncopied(&mut self, view: &mut View<'_>, extent: UnitId, _position: Position) {
        let sub = self.sub_of(view, extent);
        if let Some(p) = &mut self.subs[sub].preset {
            return p.uncopied(view, extent);
        }
        self.leave(view, extent);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let (e, sub) = (
            access.extent,
            self.assign(view, access.extent, access.class),
        );
        self.counters.touch(view, access);
        if let Some(p) = &mut self.subs[sub].preset {
            p.on_access(view, access, wanted);
            return self.move_misplaced(view, wanted);
        }
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
        if self.missing_grains(view, e) == 0 {
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
    fn keeps_dirty(&self) -> bool {
        let mut presets = self.subs.iter().filter_map(|s| s.preset.as_ref());
        !self.has_presets() || presets.any(preset::Sub::keeps_dirty)
    }
    fn writes_through(&self) -> bool {
        let mut presets = self.subs.iter().filter_map(|s| s.preset.as_ref());
        presets.all(preset::Sub::writes_through)
    }
    fn write_to(&mut self, view: &mut View<'_>, access: &Access) -> WriteTo {
        let sub = self.sub_of(view, access.extent);
        match &mut self.subs[sub].preset {
            Some(p) => p.write_to(view, access),
            None => WriteTo::Both,
        }
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        wanted: &mut Vec<Action>,
    ) {
        let extent = action.extent();
        let sub = self.sub_of(view, extent);
        // The sub-policy that proposed the action, otherwise that of the unit.
        let asked = |s: &Sub| s.preset.as_ref().is_some_and(|p| p.asked(action));
        let asker = self.subs.iter().position(asked).unwrap_or(sub);
        let leaving = self.leaving.iter().position(|&e| e == extent);
        if let (Some(p), None) = (&mut self.subs[asker].preset, leaving) {
            return p.settled(view, action, how, wanted);
        }
        if self.middle.settled(view, &self.counters, action, how) || Hold::is_up(action) {
            return;
        }
        if let Some(i) = leaving {
            self.leaving.swap_remove(i);
            if matches!(how, Outcome::Refused(why) if why != Refusal::Pointless)
                && self.is_misplaced(view, extent)
            {
                self.misplaced.add(extent);
                self.misplaced.refused = Some(view.now());
            }
        } else if how == Outcome::Done {
            let sub = self.sub_of(view, extent);
            self.subs[sub].last_evicted = self.counters.worth(view, extent);
        }
        let next = self.waiting.pop_front();
        if how == Outcome::Done {
            let next = next.filter(|&e| view.home(e).is_some() && !is_fast(view, e));
            match next {
                // The unit needs more room than the evicted one has freed.
                Some(e) if view.weight(e) > 1 && self.missing_grains(view, e) > 0 => {
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
        for s in &mut self.subs {
            if let Some(p) = &mut s.preset {
                p.tick(view, wanted);
            }
        }
        self.move_misplaced(view, wanted);
    }
    fn next_wake(&self) -> Option<Nanos> {
        let presets = self.subs.iter().filter_map(|s| s.preset.as_ref());
        let wakes = presets.filter_map(preset::Sub::next_wake);
        wakes.chain(self.middle.next_wake()).min()
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
        let rule = Rule::parse(name).ok_or(ParamError::Range(FORM))?;
        let given: u32 = self.subs.iter().map(|s| s.percent).sum();
        let attached = self.subs.iter().any(|s| s.share > 0);
        if attached || self.subs.len() > RULES_MAX || given + rule.percent > 100 {
            return Err(ParamError::Range(FORM));
        }
        self.subs.insert(self.subs.len() - 1, Sub::new(name, rule));
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
        if let Some(p) = &s.preset {
            return format!(
                "under rule `{}`, which has {} of its {} fast slots; {}",
                s.text,
                p.used(),
                s.share,
                p.explain(view, extent)
            );
        }
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
        let presets = self.subs.iter().filter_map(|s| s.preset.as_ref());
        self.counters.bytes() + subs + presets.map(preset::Sub::bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_added_up() {
        let mut p = TypeAware::default();
        assert!(p.set_name("rule", "class/1-7:cache-ondemand:60").is_ok());
        assert!(p.set_name("rule", "all:slow:41").is_err(), "over 100 %");
        assert_eq!(
            p.names(),
            [("rule", String::from("class/1-7:cache-ondemand:60"))]
        );
    }
}
