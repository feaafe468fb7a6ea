//! Copies that were proposed and are not there yet, and the dirty copies that make room for them.
//!
//! A dirty victim is written home before it is dropped, which takes the time of a disk. Meanwhile its newcomer waits, and is copied when the
//! slot is free. Where no device takes time, an eviction has ended before its newcomer is tried, and nothing waits.
//!
//! Each newcomer that had to wait raises the number of slots that are kept free by one, up to [`SPARE_SHARE`]: then the next victims are
//! written home ahead of their newcomers.
//!
//! Invariant: no more newcomers wait than slots are free or are becoming free for them. So at no time more units are kept, or wait, than
//! there are slots, and no cache of this kind has more hits than Belady's MIN. For this, a newcomer whose victim is read again is given up.

use crate::policy::hold::{FAST, clear, leaves};
use crate::policy::{Access, Action, View};
use crate::units::Nanos;
use crate::volume::UnitId;
use alloc::vec::Vec;

/// The part of the slots that may be kept free. It has to hold what is admitted between two rounds, because the slot of a dirty copy is free
/// only when a record of it is durable.
const SPARE_SHARE: u32 = 8;
/// The time after which waiting newcomers are looked at again although nothing has happened. It doubles up to the longest.
const LOOK: Nanos = Nanos::from_millis(10);
const LOOK_MOST: Nanos = Nanos::from_secs(5);

/// How far a newcomer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Proposed by its access; `true` if that is a write.
    Proposed(bool),
    /// Waits for a slot.
    Waiting,
    /// Proposed since there is a slot.
    Late,
}

/// A copy that is to come.
#[derive(Clone, Copy, Debug)]
struct Newcomer {
    unit: UnitId,
    stage: Stage,
    /// What a write has written of it, as [`View::part`] says; `None`: a read, which wants all.
    part: Option<(u32, u32)>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Coming {
    list: Vec<Newcomer>,
    /// Evictions that have not ended, each with the newcomer that it makes room for.
    leaving: Vec<(UnitId, UnitId)>,
    /// Number of newcomers that wait.
    waiting: u32,
    /// Slots to keep free.
    spare: u32,
    /// When to look again, and the time after which that was.
    look: Option<Nanos>,
    after: Nanos,
}

impl Coming {
    /// Whether a copy of `unit` is to come.
    #[inline]
    pub fn contains(&self, unit: UnitId) -> bool {
        self.list.iter().any(|c| c.unit == unit)
    }
    /// Whether the copy of `unit` is made by a write.
    pub fn is_written(&self, unit: UnitId) -> bool {
        let mut all = self.list.iter();
        all.any(|c| c.unit == unit && c.stage == Stage::Proposed(true))
    }
    /// Whether `unit` cannot come without an eviction.
    #[inline]
    pub fn is_full(&self, view: &View<'_>, unit: UnitId) -> bool {
        if !view.is_uniform() {
            return view.missing_grains(FAST, unit) > 0;
        }
        self.room(view) < 1 + self.spare + self.waiting
    }
    /// Slots that are free or are becoming free.
    #[inline]
    fn room(&self, view: &View<'_>) -> u32 {
        view.free(FAST) + view.freeing(FAST) + self.leaving.len() as u32
    }
    /// Proposes evictions for `unit`, which cannot come without them: of the units that `next` names, and one more if fewer slots are free
    /// than should be. If there are not enough, it proposes nothing and returns false.
    #[inline]
    pub fn make_room(
        &self,
        view: &View<'_>,
        unit: UnitId,
        wanted: &mut Vec<Action>,
        mut next: impl FnMut(&[Action]) -> Option<UnitId>,
    ) -> bool {
        if !view.is_uniform() {
            let lacks = view.missing_grains(FAST, unit);
            return view.could_fit(FAST, unit) && clear(view, lacks, wanted, next);
        }
        let first = wanted.len();
        let made = clear(view, 1, wanted, &mut next);
        let lacks = (1 + self.spare + self.waiting).saturating_sub(self.room(view));
        if made && lacks > 1 {
            let more = next(&wanted[first..]).map(|extent| Action::Evict { extent });
            wanted.extend(more);
        }
        made
    }
    /// The unit of `access` is to come, and these proposals make room for it. Returns the proposal of its copy.
    #[inline]
    pub fn expect(&mut self, view: &View<'_>, access: &Access, making_room: &[Action]) -> Action {
        let unit = access.extent;
        let leaving = making_room.iter().map(|a| (a.extent(), unit));
        self.leaving.extend(leaving);
        self.list.push(Newcomer {
            unit,
            stage: Stage::Proposed(access.write),
            part: access.write.then(|| view.part(access)),
        });
        Self::proposal(access)
    }
    fn proposal(access: &Access) -> Action {
        let (extent, to) = (access.extent, FAST);
        if access.write {
            Action::Allocate { extent, to }
        } else {
            Action::Fetch { extent, to }
        }
    }
    /// If the unit of `access` waits and there is a slot, returns the proposal of its copy, which need not wait any longer.
    pub fn hurry(&mut self, view: &View<'_>, access: &Access) -> Option<Action> {
        let unit = access.extent;
        let mut all = self.list.iter_mut();
        let c = all.find(|c| c.unit == unit && c.stage == Stage::Waiting)?;
        if view.missing_grains(FAST, unit) > 0 {
            return None;
        }
        c.stage = Stage::Proposed(access.write);
        self.waiting -= 1;
        Some(Self::proposal(access))
    }
    /// The copy of `unit` is there or will not come.
    pub fn forget(&mut self, unit: UnitId) {
        let waits = |c: &Newcomer| c.unit == unit && c.stage == Stage::Waiting;
        self.waiting -= u32::from(self.list.iter().any(waits));
        self.list.retain(|c| c.unit != unit);
    }
    /// There was no slot for `unit`. Returns whether one is becoming free, so that it waits.
    pub fn waits(&mut self, view: &View<'_>, unit: UnitId) -> bool {
        let room = if view.is_uniform() {
            self.room(view) > self.waiting
        } else {
            self.leaving.iter().any(|l| l.1 == unit)
        };
        let Some(c) = self.list.iter_mut().find(|c| c.unit == unit && room) else {
            return false;
        };
        c.stage = Stage::Waiting;
        self.waiting += 1;
        if view.is_uniform() {
            let most = view.positions(FAST).len() as u32 / SPARE_SHARE;
            self.spare = (self.spare + 1).min(most);
        }
        self.look_at(view.now());
        true
    }
    fn look_at(&mut self, now: Nanos) {
        self.after = LOOK;
        self.look = Some(now + LOOK);
    }
    /// The eviction of `victim` ended; `gone`: it has no copy any more. Returns the newcomer that waited for it in vain.
    pub fn left(&mut self, view: &View<'_>, victim: UnitId, gone: bool) -> Option<UnitId> {
        let at = self.leaving.iter().position(|l| l.0 == victim)?;
        let (_, unit) = self.leaving.remove(at);
        if gone {
            self.look_at(view.now());
            return None;
        }
        self.given_up(unit)
    }
    /// `victim` is used again. Returns the newcomer that is given up for it.
    #[inline]
    pub fn used_again(&mut self, victim: UnitId) -> Option<UnitId> {
        let (_, unit) = *self.leaving.iter().find(|l| l.0 == victim)?;
        self.given_up(unit)
    }
    fn given_up(&self, unit: UnitId) -> Option<UnitId> {
        let mut all = self.list.iter();
        all.any(|c| c.unit == unit && c.stage == Stage::Waiting)
            .then_some(unit)
    }
    /// Proposes the waiting newcomers for which there is a slot now, unless requests to them are in progress.
    pub fn look(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        if self.waiting == 0 {
            self.look = None;
            return;
        }
        let before = wanted.len();
        let mut free = view.free(FAST);
        for c in &mut self.list {
            let e = c.unit;
            let ready = c.stage == Stage::Waiting && view.weight(e) <= free;
            if !ready || view.is_held(e) || view.in_flight(e) > 0 || leaves(wanted, e) {
                continue;
            }
            free -= view.weight(e);
            c.stage = Stage::Late;
            self.waiting -= 1;
            let (extent, to) = (e, FAST);
            wanted.push(match c.part {
                Some((from, bytes)) if bytes > 0 => Action::FetchPart {
                    extent,
                    to,
                    from,
                    bytes,
                },
                _ => Action::Fetch { extent, to },
            });
        }
        if wanted.len() > before {
            self.look_at(view.now());
        } else if self.look.is_none_or(|t| t <= view.now()) {
            self.after = Nanos(self.after.0.saturating_mul(2)).min(LOOK_MOST);
            self.look = Some(view.now() + self.after);
        }
    }
    /// When to look again.
    pub fn next_look(&self) -> Option<Nanos> {
        self.look.filter(|_| self.waiting > 0)
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.list.capacity() * size_of::<Newcomer>()
            + self.leaving.capacity() * size_of::<(UnitId, UnitId)>()
    }
}
