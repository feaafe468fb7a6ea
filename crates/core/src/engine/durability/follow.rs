//! The changes that the mirror must have before a request is acknowledged, so that the volume can be used without its primary.
//!
//! A caching volume has all homes on the slow tier, and its primary on the device that is most likely to be lost: the cache. So, under a
//! caching policy, a FLUSH that makes a change of homes durable (a first write, valid blocks, a discard) is recorded on the mirror, too,
//! before it is answered. The slow disk is awake at that time, because most of these changes come with data for it. Dirty copies are
//! different, because they exist so that this disk can sleep. The mirror need not have the records of all dirty copies. But as long as
//! there are dirty copies, it must have the record of at least one. Then a server that finds only the mirror can distinguish a clean cache
//! from a dirty one. The record of a clean may come to the mirror later: until then the mirror takes a clean copy for a dirty one, and a
//! server that finds only the mirror asks for consent where none is needed. The home of such a copy has all data.
//!
//! Under other policies the mirror may lag. The journal blocks of such a session state this, and the first such block is on the mirror
//! before anything is acknowledged that the mirror lacks. From then on, and until the next session, the metadata does not claim that the
//! mirror is complete.

use super::Durability;
use crate::bits::Bits;
use crate::engine::globals::Globals;
use crate::map::ExtentMap;
use crate::mutants::Mutant;
use crate::units::{ExtentId, Slot};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Follow {
    /// Whether the durable metadata of this session claims that the mirror has all changes named above.
    claimed: bool,
    /// Whether homes or valid blocks have changed since the mirror last received all changes.
    homes: bool,
    /// By extent: whether its last record says that its copy is dirty. The bit set has no memory until there is such a record.
    recorded_dirty: Bits,
    count: u32,
    /// Value of `count` when the mirror was last updated.
    mirrored: u32,
    extents: u32,
}

impl Follow {
    /// The state at the start of a session, when primary and mirror are equal. `fast`: number of slots on the faster tiers.
    pub(super) fn new(claimed: bool, map: &ExtentMap, fast: u32) -> Follow {
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
    /// Notes that a home or valid blocks changed.
    pub(super) fn homes_changed(&mut self) {
        self.homes = true;
    }
    /// Notes that a record of `e` was encoded for the journal or a checkpoint.
    pub(super) fn recorded(&mut self, e: ExtentId, dirty: bool) {
        if !self.claimed {
            return;
        }
        if dirty {
            if self.recorded_dirty.bytes() == 0 {
                self.recorded_dirty = Bits::new(self.extents as usize);
            }
            self.count += u32::from(self.recorded_dirty.set(e.0 as usize));
        } else if self.count > 0 && self.recorded_dirty.get(e.0 as usize) {
            self.recorded_dirty.clear(e.0 as usize);
            self.count -= 1;
        }
    }
    /// Whether no extent is recorded as dirty. Then [`Follow::recorded`] has no effect for an extent without dirty data.
    pub(super) fn none_is_dirty(&self) -> bool {
        !self.claimed || self.count == 0
    }
    /// By extent: whether [`Follow::recorded`] may have an effect for it although it has no dirty data. No bits: for none.
    pub(super) fn recorded_dirty(&self) -> &Bits {
        &self.recorded_dirty
    }
    /// Notes that the records of a round that brings the mirror up to date are encoded. `all`: no change is left for a later round.
    pub(super) fn mirror_updated(&mut self, all: bool) {
        self.homes &= !all;
        self.mirrored = self.count;
    }
    /// Notes that the mirror has a block which states that it may lag.
    pub(super) fn mirror_may_lag(&mut self) {
        *self = Follow::default();
    }
    /// See the field `claimed`.
    pub(super) fn is_claimed(&self) -> bool {
        self.claimed
    }
    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.recorded_dirty.bytes()
    }
}

impl Durability {
    /// Whether the mirror must be updated before anything more is acknowledged as durable.
    pub(super) fn mirror_must_be_updated(&self, g: &Globals) -> bool {
        let f = &self.follow;
        let homes = f.homes && !g.broken(Mutant::MirrorForgetsHomes);
        let dirty = f.count > 0 && f.mirrored == 0 && !g.broken(Mutant::MirrorForgetsDirty);
        let silent = g.broken(Mutant::LazyInSilence) && g.background.lets_mirror_lag();
        f.claimed && (homes || dirty) && !silent
    }
}
