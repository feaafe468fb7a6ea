//! Sub-policies: the assignment of units, the exchange of slots between sub-policies that share, and evictions.

use super::super::hold::{FAST, Hold, is_fast};
use super::super::{Action, Policy, View};
use super::rules::{Kind, Rule, Selector};
use super::{COUNTED, MISPLACED_MAX, SUB, TypeAware, preset};
use crate::collector::{Coldest, Collector};
use crate::units::Nanos;
use crate::volume::{Position, UnitId};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

/// A rule in force.
pub(super) struct Sub {
    pub(super) text: String,
    pub(super) selector: Selector,
    pub(super) kind: Kind,
    pub(super) percent: u32,
    /// Its limit and its present number of slots.
    pub(super) share: u32,
    pub(super) have: u32,
    pub(super) last_evicted: u64,
    pub(super) coldest: Coldest,
    /// For a preset: the policy until it is attached, and then the sub-policy.
    pub(super) policy: Option<Box<dyn Policy>>,
    pub(super) preset: Option<preset::Sub>,
}

impl Sub {
    pub(super) fn new(text: &str, rule: Rule) -> Sub {
        Sub {
            text: String::from(text),
            selector: rule.selector,
            kind: rule.kind,
            percent: rule.percent,
            share: 0,
            have: 0,
            last_evicted: 0,
            coldest: Coldest::default(),
            policy: rule.policy,
            preset: None,
        }
    }
    pub(super) fn is_preset(&self) -> bool {
        self.kind == Kind::Preset
    }
    /// Informs the sub-policy of a preset about unit `e`. If the unit should not be on its tier, it is added to `misplaced`.
    pub(super) fn inform(
        &mut self,
        tell: impl FnOnce(&mut preset::Sub) -> bool,
        e: UnitId,
        misplaced: &mut Misplaced,
    ) {
        if let Some(p) = &mut self.preset
            && !tell(p)
        {
            misplaced.add(e);
        }
    }
}

/// Units on the fast tier for which their sub-policy has no room or no use there.
#[derive(Default)]
pub(super) struct Misplaced {
    pub(super) units: VecDeque<UnitId>,
    /// The time at which the demotion of such a unit was refused. At the same time it is not tried again, because the reason still holds.
    pub(super) refused: Option<Nanos>,
}

impl Misplaced {
    pub(super) fn add(&mut self, e: UnitId) {
        if !self.units.contains(&e) {
            self.units.push_back(e);
        }
    }
}

impl TypeAware {
    /// The sub-policy of an extent. The row holds its number + 1, so that a fresh row has none.
    pub(super) fn sub_of(&self, view: &View<'_>, e: UnitId) -> usize {
        usize::from(view.stat(e) & SUB).clamp(1, self.subs.len()) - 1
    }
    pub(super) fn rule_for(&self, view: &View<'_>, e: UnitId, class: u8) -> usize {
        let start = view.start(e);
        let found = self
            .subs
            .iter()
            .position(|s| s.selector.matches(class, start));
        found.unwrap_or(self.subs.len() - 1)
    }
    /// The extent is on the fast tier, in `position`, and is counted for its sub-policy.
    pub(super) fn enter(&mut self, view: &mut View<'_>, e: UnitId, position: Position) {
        let (i, stat) = (self.sub_of(view, e), view.stat(e));
        self.subs[i].coldest.enter(FAST, position);
        if stat & COUNTED == 0 {
            self.subs[i].have += view.weight(e);
        }
        view.set_stat(e, stat | COUNTED);
    }
    /// Notes that the extent has left the fast tier. Its slot stays in the heap until it reaches the top.
    pub(super) fn leave(&mut self, view: &mut View<'_>, e: UnitId) {
        let (i, stat) = (self.sub_of(view, e), view.stat(e));
        if stat & COUNTED != 0 {
            self.subs[i].have -= view.weight(e);
        }
        view.set_stat(e, stat & !COUNTED);
    }
    /// Assigns an extent to the rule that it matches.
    pub(super) fn assign(&mut self, view: &mut View<'_>, e: UnitId, class: u8) -> usize {
        let to = self.rule_for(view, e, class);
        let before = view.stat(e) & SUB;
        if usize::from(before) == to + 1 {
            return to;
        }
        if let Some(p) = (before > 0)
            .then(|| self.sub_of(view, e))
            .and_then(|i| self.subs[i].preset.as_mut())
        {
            p.removed(view, e);
        }
        self.leave(view, e);
        view.set_stat(e, to as u16 + 1);
        if self.subs[to].is_preset() {
            self.subs[to].inform(|p| p.take_in(view, e, true), e, &mut self.misplaced);
        } else if is_fast(view, e)
            && let Some(s) = view.copy(e).or(view.home(e))
        {
            self.enter(view, e, s);
            if self.over() > 0 {
                self.misplaced.add(e);
            }
        }
        to
    }
    /// Assigns a unit that existed before this policy to the rule that it matches, as far as that is known.
    pub(super) fn settle_in(&mut self, view: &mut View<'_>, e: UnitId, class: u8) {
        let to = self.rule_for(view, e, class);
        view.set_stat(e, to as u16 + 1);
        self.subs[to].inform(|p| p.take_in(view, e, false), e, &mut self.misplaced);
    }
    /// Whether any rule has a preset.
    pub(super) fn has_presets(&self) -> bool {
        self.subs.iter().any(Sub::is_preset)
    }
    /// Limit and present size, in grains, of the sub-policies that share. Without quotas the only limit is the size of the tier.
    pub(super) fn shared(&self) -> (u32, u32) {
        let sum = |f: fn(&Sub) -> u32| self.subs.iter().filter(|s| !s.is_preset()).map(f).sum();
        (self.pool, sum(|s| s.have))
    }
    /// Grains by which the sub-policies that share exceed their limit.
    pub(super) fn over(&self) -> u32 {
        let (pool, have) = self.shared();
        have.saturating_sub(pool)
    }
    /// Grains that the fast tier lacks for a unit of the sub-policies that share.
    pub(super) fn missing_grains(&self, view: &View<'_>, e: UnitId) -> u32 {
        let (pool, have) = self.shared();
        let over = (have + view.weight(e)).saturating_sub(pool);
        view.missing_grains(FAST, e).max(over.min(view.weight(e)))
    }
    /// Whether a unit is on the fast tier and should not be there.
    pub(super) fn is_misplaced(&self, view: &View<'_>, e: UnitId) -> bool {
        is_fast(view, e) && self.has_presets()
    }
    /// Proposes to move away some of the misplaced units.
    pub(super) fn move_misplaced(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        if self.misplaced.units.is_empty()
            || self.misplaced.refused.is_some_and(|t| view.now() <= t)
        {
            return;
        }
        self.misplaced.refused = None;
        for _ in 0..self.misplaced.units.len().min(MISPLACED_MAX) {
            let Some(e) = self.misplaced.units.pop_front() else {
                return;
            };
            if is_fast(view, e) && !self.leaving.contains(&e) {
                self.leaving.push(e);
                wanted.push(Self::hold(view, e).out(view, e));
            }
        }
    }
    /// The unit that is evicted to make room for `sub`.
    pub(super) fn victim(&mut self, view: &View<'_>, sub: usize) -> Option<UnitId> {
        let mut from = sub;
        if self.subs[sub].have < self.subs[sub].share {
            let over = |s: &Sub| {
                if s.is_preset() {
                    return 0;
                }
                s.have.saturating_sub(s.share)
            };
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
            let position = view.copy(e).or(view.home(e))?;
            self.subs[from].coldest.leave(FAST, position);
        }
    }
    pub(super) fn hold(view: &View<'_>, e: UnitId) -> Hold {
        match view.copy(e) {
            Some(_) => Hold::Copy,
            None => Hold::Home,
        }
    }
    pub(super) fn down(view: &View<'_>, e: UnitId) -> Action {
        Self::hold(view, e).down(view, e)
    }
    pub(super) fn up(&self, view: &View<'_>, e: UnitId) -> Action {
        match self.subs[self.sub_of(view, e)].kind {
            Kind::Cache => Hold::Copy.up(e),
            _ => Hold::Home.up(e),
        }
    }
}
