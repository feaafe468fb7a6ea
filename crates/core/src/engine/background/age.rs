//! The age of dirty data: what stayed dirty for `dirty_age` is written home, whatever the policy thinks of it.
//!
//! Twice in that time all dirty slots are compared with those of half that time before. A slot that is among both is old by now: it became
//! dirty half of `dirty_age` ago at least, and `dirty_age` ago at most. (Its data may be younger, if it was cleaned and written again between
//! the two looks.) Old data is removed from flash by `drain.rs`, with all its considerations.
//!
//! Nothing stores when each slot became dirty. What is known is a time after which everything dirty became so: the last moment at which
//! nothing was dirty or, later than that, the begin of the last look but one, once its old data is at home.

use super::{Background, SLOTS_PER_STEP};
use crate::bits::Bits;
use crate::engine::Engine;
use crate::engine::globals::Globals;
use crate::engine::parts::Parts;
use crate::units::{Nanos, Slot};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Delay before the next part of a look.
const NEXT: Nanos = Nanos::from_millis(1);
/// Largest number of old slots that wait to be cleaned. With more, a look pauses.
const MOST: usize = 4096;

/// Time after which everything that is dirty now became dirty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Since {
    /// Nothing is dirty.
    #[default]
    Clean,
    /// Something was dirty when the engine began, and may be still.
    Unknown,
    At(Nanos),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Ages {
    since: Since,
    /// Time between two looks; `None`: dirty data may have any age.
    period: Option<Nanos>,
    /// Time of the next part of a look.
    next: Option<Nanos>,
    /// When the next look begins.
    begins: Nanos,
    /// When the look in progress, or else the last one, began, and the look before it.
    began: [Option<Nanos>; 2],
    /// When the look before the last complete one began: what is not old became dirty later.
    young: Option<Nanos>,
    /// The first slot that was not looked at yet.
    hand: usize,
    /// The slots that were dirty at the last look.
    seen: Bits,
    /// Slots with old data.
    old: BTreeSet<Slot>,
}

impl Ages {
    pub(super) fn set(&mut self, age: Option<Nanos>, fast: usize, now: Nanos) {
        let period = age.map(|t| Nanos((t.0 / 2).max(1)));
        if period == self.period {
            return;
        }
        *self = Ages {
            since: self.since,
            period,
            next: period.map(|t| now + t),
            begins: now,
            seen: Bits::new(if period.is_some() { fast } else { 0 }),
            ..Ages::default()
        };
    }
    #[inline]
    pub(super) fn due(&self) -> Option<Nanos> {
        self.next
    }
    pub(super) fn is_old(&self, slot: Slot) -> bool {
        self.old.contains(&slot)
    }
    pub(super) fn all_old(&self) -> Vec<Slot> {
        self.old.iter().copied().collect()
    }
    /// The slot has nothing dirty any more.
    pub(super) fn is_clean(&mut self, slot: Slot) {
        if self.old.remove(&slot) {
            self.nothing_is_older();
        }
    }
    /// If no old data is left, what is dirty is as young as the last look has shown.
    fn nothing_is_older(&mut self) {
        let Some(young) = self.young.filter(|_| self.old.is_empty()) else {
            return;
        };
        self.since = match self.since {
            Since::Clean => Since::Clean,
            Since::Unknown => Since::At(young),
            Since::At(t) => Since::At(t.max(young)),
        };
    }
    /// What opening has found is dirty.
    pub(super) fn opened_dirty(&mut self) {
        self.since = Since::Unknown;
    }
    /// A look begins.
    fn begin(&mut self, now: Nanos, period: Nanos) {
        self.begins = now + period;
        self.began = [Some(now), self.began[0]];
    }
    /// All slots were looked at.
    fn end(&mut self) {
        self.hand = 0;
        self.young = self.began[1];
        self.nothing_is_older();
    }
}

impl Background {
    pub(in crate::engine) fn set_age(&mut self, age: Option<Nanos>, fast: usize, now: Nanos) {
        self.drain.ages.set(age, fast, now);
    }
}

impl Parts<'_> {
    /// Looks at some slots, if that is due.
    pub(super) fn age_step(&mut self) {
        let (now, fast) = (self.globals.clock, self.globals.fast_slots() as usize);
        let ages = &mut self.globals.background.drain.ages;
        let Some(period) = ages.period.filter(|_| ages.next.is_some_and(|t| t <= now)) else {
            return;
        };
        if ages.old.len() < MOST {
            if ages.hand == 0 {
                ages.begin(now, period);
            }
            self.globals.look_for_old(fast);
        }
        let ages = &mut self.globals.background.drain.ages;
        ages.next = Some(if ages.hand >= fast {
            ages.end();
            ages.begins.max(now + NEXT)
        } else {
            now + NEXT
        });
    }
}

impl Globals {
    /// An event ends: notes whether something is dirty.
    #[inline]
    pub(in crate::engine) fn note_dirty(&mut self) {
        let (dirty, ages) = (self.space.map.dirty(), &mut self.background.drain.ages);
        if dirty == 0 {
            ages.since = Since::Clean;
        } else if ages.since == Since::Clean {
            ages.since = Since::At(self.clock);
        }
    }

    fn look_for_old(&mut self, fast: usize) {
        let from = self.background.drain.ages.hand;
        let end = fast.min(from + SLOTS_PER_STEP as usize);
        for i in from..end {
            let slot = Slot(i as u32);
            let dirty = self.space.map.is_dirty_in(slot);
            let ages = &mut self.background.drain.ages;
            let old = dirty && ages.seen.get(i);
            ages.seen.put(i, dirty);
            if old && ages.old.insert(slot) {
                self.background.drain.look_at(slot, self.clock);
            }
        }
        self.background.drain.ages.hand = end;
        self.steps += u64::from(SLOTS_PER_STEP);
    }
}

impl Engine {
    /// The greatest age that dirty data can have at `now`; `None`: nothing is dirty, or what opening has found dirty may be still.
    pub fn dirty_age(&self, now: Nanos) -> Option<Nanos> {
        match self.globals.background.drain.ages.since {
            Since::At(since) => Some(now.since(since)),
            Since::Clean | Since::Unknown => None,
        }
    }
}
