//! `greendm`: GreenDM's tiering (Li, chapter 6; docs/policy-rules.md section 3).
//!
//! An extent is mapped at its first touch, to the lowest free fast slot. An extent on a slower tier is promoted after PT misses, if the
//! time between two of them is at most TW. In the background, demotion keeps between LT and HT fast slots free; WSClock selects the
//! victims. Promotion and demotion share only the number of free slots.
//!
//! | parameter | range | default | unit |
//! |---|---|---|---|
//! | PT | 1…63 | 1 | misses until promotion. The text says "exceeds" and "is reached" (6.1.3); with "exceeds", PT = 1 would need two, so *reached* |
//! | TW | 0…10⁶ | 60 | seconds between accesses that count together, and the working-set window (Table 6.1) |
//! | LT | 1…slots | 64 | free fast slots below which demotion starts; max(1, ⌊F/16⌋) when F < 1024 |
//! | HT | LT…slots | 128 | free fast slots at which it stops; min(F, max(2, ⌊F/8⌋)) when F < 1024 |
//! | MCML | 1…256 | 16 | maximum number of concurrent moves |
//!
//! `greendm-cache` (chapter 8): homes stay on the slowest tier, promotion becomes a copy ("pre-fetch"), demotion its eviction. The first
//! touch counts as a miss, and so do write misses; so with PT = 1 an extent gets a copy at its first touch. Writes that hit go to the copy,
//! and the extent enters a write-back queue of at most max(1, ⌊F/8⌋) extents. When the queue overflows, the oldest is written home; any
//! extent is written home when its copy is evicted. Write misses go to the home.
//!
//! When not to use it: for uniform accesses (it promotes extents that are not used again, and with PT = 1 every miss writes an extent to
//! flash), and for scans longer than the fast tier.

use super::hold::{FAST, Hold};
use super::{
    Access, Action, MoveRules, Outcome, ParamError, Place, Policy, Refusal, Uses, View, WriteTo,
};
use crate::collector::{Collector, Lists, WsClock};
use crate::units::{Nanos, TierId};
use crate::volume::{Position, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct GreenDm {
    hold: Hold,
    clock: WsClock,
    promotion_threshold: u16,
    low: Option<u32>,
    high: Option<u32>,
    move_limit: u32,
    /// Per tier: whether demotion is running (from LT up to HT), and the number of demotions in progress.
    demoting: Vec<(bool, u32)>,
    /// Time of the next tick if a scan was cut short or a demotion was refused.
    wake: Option<Nanos>,
    /// Slots of dirty copies that wait to be written home, in the order of their arrival.
    dirty: Lists,
    dirty_count: u32,
}

impl Default for GreenDm {
    fn default() -> GreenDm {
        GreenDm {
            hold: Hold::Home,
            clock: WsClock::new(Nanos::from_secs(60)),
            promotion_threshold: 1,
            low: None,
            high: None,
            move_limit: 16,
            demoting: Vec::new(),
            wake: None,
            dirty: Lists::new(0, 1),
            dirty_count: 0,
        }
    }
}

impl GreenDm {
    /// Creates `greendm-cache`.
    pub fn caching() -> GreenDm {
        GreenDm {
            hold: Hold::Copy,
            ..GreenDm::default()
        }
    }
    /// Writes home the oldest copies of the write-back queue, until it is within its limit.
    fn drain(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        let limit = (view.positions(FAST).end / 8).max(1);
        while self.dirty_count > limit
            && let Some(s) = self.dirty.head(0)
        {
            self.unqueue(s);
            wanted.extend(
                view.owner(view.position(s))
                    .map(|extent| Action::Clean { extent }),
            );
        }
    }
    fn unqueue(&mut self, s: u32) {
        self.dirty_count -= u32::from(self.dirty.contains(s));
        self.dirty.unlink(s);
    }
    fn queue(&mut self, s: u32) {
        if !self.dirty.contains(s) {
            self.dirty.push_tail(0, s);
            self.dirty_count += 1;
        }
    }
    /// (LT, HT) for a tier of `slots` slots.
    fn watermarks(&self, slots: u32) -> (u32, u32) {
        let (lt, ht) = if slots < 1024 {
            ((slots / 16).max(1), (slots / 8).max(2).min(slots))
        } else {
            (64, 128)
        };
        let low = self.low.unwrap_or(lt).min(slots);
        (low, self.high.unwrap_or(ht).clamp(low, slots))
    }
    /// The tier to which a victim goes: `next`, or a slower tier if `next` has too little room for it.
    fn target(view: &View<'_>, copies: bool, next: TierId, extent: UnitId) -> Option<TierId> {
        if copies || view.weight(extent) == 1 {
            return Some(next);
        }
        let mut below = (next.0..view.tiers()).map(TierId);
        below.find(|&t| view.missing_grains(t, extent) == 0)
    }
    fn demote(&mut self, view: &mut View<'_>, tier: TierId, wanted: &mut Vec<Action>) {
        let i = usize::from(tier.0);
        let range = view.positions(tier);
        let slots = range.end - range.start;
        let (low, high) = self.watermarks(slots);
        if slots == 1 {
            return; // docs/policy-rules.md section 3: no demotion by watermark
        }
        let (active, under_way) = self.demoting[i];
        let coming = view.free(tier) + view.freeing(tier) + under_way;
        if !active && coming >= low {
            return;
        }
        self.demoting[i].0 = coming < high;
        if coming >= high {
            self.clock.end_batch(tier);
            return;
        }
        let copies = self.hold == Hold::Copy;
        let below = (tier.0 + 1..view.tiers())
            .map(TierId)
            .find(|&t| copies || view.free(t) > 0);
        let room = self
            .move_limit
            .saturating_sub(view.moves() + wanted.len() as u32);
        let Some(to) = below.filter(|_| room > 0) else {
            return;
        };
        for _ in 0..room.min(high - coming) {
            match self.clock.victim(view, tier, wanted) {
                Some(extent) => {
                    let Some(to) = Self::target(view, copies, to, extent) else {
                        // No slower tier has room for a unit of that size.
                        self.wake = Some(view.now() + Nanos::from_millis(100));
                        return;
                    };
                    self.demoting[i].1 += 1;
                    wanted.push(if copies {
                        Action::Evict { extent }
                    } else {
                        Action::Move { extent, to }
                    });
                }
                None if *view.budget() == 0 => {
                    self.wake = Some(view.now());
                    return;
                }
                None => {
                    self.wake = Some(view.now() + Nanos::from_millis(100));
                    return;
                }
            }
        }
    }
}

impl Policy for GreenDm {
    fn name(&self) -> &'static str {
        match self.hold {
            Hold::Home => "greendm",
            Hold::Copy => "greendm-cache",
        }
    }
    fn uses(&self) -> Uses {
        self.hold.uses()
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.clock.attach(view);
        self.demoting = alloc::vec![(false, 0); usize::from(view.tiers())];
        if self.hold == Hold::Copy {
            let slots = view.positions(FAST).end;
            self.dirty = Lists::new(slots, 1);
            self.dirty_count = 0;
            for s in 0..slots {
                if view
                    .owner(view.position(s))
                    .is_some_and(|e| view.is_dirty(e))
                {
                    self.queue(s);
                }
            }
        }
    }
    fn fixes_places(&self) -> bool {
        true
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(match self.hold {
            Hold::Home => FAST,
            Hold::Copy => view.slowest(),
        })
    }
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.clock.placed(view, extent, position);
    }
    fn on_uncopied(&mut self, _view: &mut View<'_>, _extent: UnitId, position: Position) {
        self.unqueue(position.index());
    }
    fn on_placed(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.clock.placed(view, extent, position);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let miss = match self.hold {
            Hold::Home => access.home.is_some_and(|h| view.tier_of(h) != FAST),
            Hold::Copy => access.copy.is_none(),
        };
        if let Some(s) = access.copy.filter(|_| access.write) {
            self.queue(s.index());
        }
        if miss {
            let stat = view.stat(access.extent);
            let gap = Nanos(access.now.0 / 1000 * 1000).since(view.last(access.extent));
            let n = if gap <= self.clock.window {
                WsClock::misses(stat) + 1
            } else {
                1
            };
            view.set_stat(access.extent, WsClock::with_misses(stat, n));
            if n >= self.promotion_threshold {
                wanted.push(self.hold.up(access.extent));
            }
        }
        self.clock.touch(view, access);
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        _wanted: &mut Vec<Action>,
    ) {
        let (extent, to) = match action {
            Action::Move { to, .. } if to == FAST => return, // a promotion
            Action::Move { extent, to } => (extent, to),
            Action::Evict { extent } => (extent, TierId(1)),
            Action::Clean { extent } => {
                // A copy that could not be written home now is still dirty.
                if let Some(s) = view.copy(extent).filter(|_| view.is_dirty(extent)) {
                    self.queue(s.index());
                }
                return;
            }
            Action::Fetch { .. } | Action::FetchPart { .. } | Action::Allocate { .. } => return,
        };
        // The demotion belongs to the nearest faster tier that counts one in progress.
        let Some(i) = (0..usize::from(to.0))
            .rev()
            .find(|&i| self.demoting[i].1 > 0)
        else {
            return;
        };
        self.demoting[i].1 -= 1;
        if let Outcome::Refused(why) = how
            && !matches!(why, Refusal::Pointless | Refusal::Busy)
        {
            if let Some(s) = view.copy(extent).or(view.home(extent)) {
                self.clock.put_back(TierId(i as u8), s);
            }
            self.wake = Some(view.now() + Nanos::from_millis(5));
        }
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        self.wake = None;
        if self.hold == Hold::Copy {
            self.drain(view, wanted);
            return self.demote(view, FAST, wanted);
        }
        for t in 0..view.tiers() - 1 {
            self.demote(view, TierId(t), wanted);
        }
    }
    fn next_wake(&self) -> Option<Nanos> {
        self.wake
    }
    fn write_to(&mut self, _view: &mut View<'_>, access: &Access) -> WriteTo {
        // A write miss went to the home, and the copy that it caused holds the same data.
        match access.copy {
            Some(_) => WriteTo::Copy,
            None => WriteTo::Both,
        }
    }
    fn move_rules(&self) -> MoveRules {
        MoveRules {
            limit: Some(self.move_limit),
            yield_to_metadata: true,
            idle_extents_only: true,
            rounds_yield: false,
        }
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        let whole = |lo: f64, hi: f64, what: &'static str| {
            if (lo..=hi).contains(&value) && value % 1.0 < f64::EPSILON {
                Ok(value as u32)
            } else {
                Err(ParamError::Range(what))
            }
        };
        match key {
            "PT" => {
                self.promotion_threshold =
                    whole(1.0, 63.0, "PT: a whole number of misses, 1 to 63")? as u16;
            }
            "TW" => {
                if !(0.0..=1e6).contains(&value) {
                    return Err(ParamError::Range("TW: seconds, 0 to 1000000"));
                }
                self.clock.window = Nanos((value * 1e9) as u64);
            }
            "LT" => {
                let v = whole(
                    1.0,
                    536_870_911.0,
                    "LT: a whole number of slots, at least 1",
                )?;
                if self.high.is_some_and(|h| v > h) {
                    return Err(ParamError::Range("LT: at most HT; raise HT first"));
                }
                self.low = Some(v);
            }
            "HT" => {
                let v = whole(
                    1.0,
                    536_870_911.0,
                    "HT: a whole number of slots, at least LT",
                )?;
                if self.low.is_some_and(|l| v < l) {
                    return Err(ParamError::Range("HT: at least LT; lower LT first"));
                }
                self.high = Some(v);
            }
            "MCML" => {
                self.move_limit = whole(1.0, 256.0, "MCML: a whole number of moves, 1 to 256")?;
            }
            _ => {
                return Err(ParamError::Unknown(super::nearest(
                    key,
                    ["PT", "TW", "LT", "HT", "MCML"].into_iter(),
                )));
            }
        }
        Ok(())
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        alloc::vec![
            ("PT", f64::from(self.promotion_threshold)),
            ("TW", self.clock.window.as_secs_f64()),
            ("LT", f64::from(self.low.unwrap_or(64))),
            ("HT", f64::from(self.high.unwrap_or(128))),
            ("MCML", f64::from(self.move_limit)),
        ]
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let stat = view.stat(extent);
        let idle = view.last_words(extent);
        let (misses, usage) = (WsClock::misses(stat), WsClock::usage(stat));
        let pt = self.promotion_threshold;
        let at = view.copy(extent).or(view.home(extent));
        match at.map(|s| view.tier_of(s)) {
            None => String::from(
                "not mapped: the first write puts it into the lowest free slot of the fast tier",
            ),
            Some(TierId(0)) => format!(
                "{usage} accesses, {idle}, {}; it is demoted when fewer than {} fast slots are free and the clock hand finds it unmarked for over {:.0} s, or as the oldest",
                if at.is_some_and(|s| self.clock.is_marked(FAST, s)) {
                    "marked since the hand last passed"
                } else {
                    "not accessed since the hand last passed"
                },
                self.watermarks(view.positions(TierId(0)).end).0,
                self.clock.window.as_secs_f64()
            ),
            Some(_) => format!(
                "{usage} accesses, {idle}, {misses} of {pt} misses within {:.0} s of each other; at {pt} it is promoted if a fast slot is free",
                self.clock.window.as_secs_f64()
            ),
        }
    }
    fn bytes(&self) -> usize {
        self.clock.bytes() + self.dirty.bytes()
    }
}
