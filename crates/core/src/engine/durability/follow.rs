//! What the mirror must know before anything is acknowledged, so that the volume can go on without its primary.
//!
//! A caching volume has all homes on the slow tier, and its primary on the device that is most likely to be lost: the cache.
//! So, under a caching policy, a FLUSH that makes a change of homes durable (a first write, valid blocks, a discard) tells
//! the mirror, too, before it is answered. The slow disk is awake then: most of these changes come with data for it. Dirty
//! copies are another matter, since they are there to let that disk sleep: the mirror need not know which there are, but
//! it must know of one as long as there is any. Then whoever finds the mirror alone can tell a clean cache from a dirty one.
//!
//! Under other policies the mirror follows lazily. The blocks of such a session say so, and the first of them is on the
//! mirror before anything is acknowledged that the mirror lacks. From then on nothing is claimed until the next session.

use crate::bits::Bits;
use crate::engine::{Engine, Mutant};
use crate::map::ExtentMap;
use crate::policy::Uses;
use crate::units::{ExtentId, Slot};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Follow {
    /// The durable metadata of this session says that the mirror follows.
    claimed: bool,
    /// Homes or valid blocks changed since the mirror was last told of all changes.
    homes: bool,
    /// By extent: the last record says that its copy is dirty. No bits until the first such record.
    told: Bits,
    count: u32,
    /// How many such extents the mirror knew of when it was last told.
    mirrored: u32,
    extents: u32,
}

impl Follow {
    /// For a session that begins with primary and mirror alike, and this map.
    pub(in crate::engine) fn new(claimed: bool, map: &ExtentMap, fast: u32) -> Follow {
        let mut f = Follow {
            claimed,
            extents: map.extents(),
            ..Follow::default()
        };
        if map.dirty() > 0 {
            for s in (0..fast).map(Slot) {
                if let Some(e) = map.owner(s).filter(|&e| map.copy(e) == Some(s)) {
                    f.recorded(e, map.is_dirty(e));
                }
            }
        }
        f.mirrored = f.count;
        f
    }
    /// A home or valid blocks changed.
    pub(in crate::engine) fn homes_changed(&mut self) {
        self.homes = true;
    }
    /// A journal record of `e` was encoded.
    pub(in crate::engine) fn recorded(&mut self, e: ExtentId, dirty: bool) {
        if !self.claimed {
            return;
        }
        if dirty {
            if self.told.bytes() == 0 {
                self.told = Bits::new(self.extents as usize);
            }
            self.count += u32::from(self.told.set(e.0 as usize));
        } else if self.count > 0 && self.told.get(e.0 as usize) {
            self.told.clear(e.0 as usize);
            self.count -= 1;
        }
    }
    /// A round that tells the mirror everything has its records; `all`: no change is left for a later one.
    pub(in crate::engine) fn told(&mut self, all: bool) {
        self.homes &= !all;
        self.mirrored = self.count;
    }
    /// The mirror has a block that says that it may lag.
    pub(in crate::engine) fn disclaimed(&mut self) {
        *self = Follow::default();
    }
    /// Does the durable metadata claim that the mirror follows?
    pub(in crate::engine) fn is_claimed(&self) -> bool {
        self.claimed
    }
    /// Bytes of memory.
    pub(in crate::engine) fn bytes(&self) -> usize {
        self.told.bytes()
    }
}

impl Engine {
    /// Must the mirror be told something before anything more is acknowledged as durable?
    pub(in crate::engine) fn owes_mirror(&self) -> bool {
        let f = &self.commit.follow;
        let homes = f.homes && !self.broken(Mutant::MirrorForgetsHomes);
        let dirty = f.count > 0 && f.mirrored == 0 && !self.broken(Mutant::MirrorForgetsDirty);
        f.claimed && (homes || dirty) && !(self.broken(Mutant::LazyInSilence) && self.is_lazy())
    }

    /// May the mirror lag? Under policies that move homes; and while a disk is to sleep in spite of writes, since telling it of
    /// the first dirty copy would wake it.
    pub(in crate::engine) fn is_lazy(&self) -> bool {
        self.drain.uses() != Uses::Copies || self.lull.is_on()
    }

    /// Is everything needed to find `e` durable now, on whoever must know?
    pub(in crate::engine) fn is_known(&self, e: ExtentId) -> bool {
        self.commit.is_recorded(e) && !self.owes_mirror()
    }
}
