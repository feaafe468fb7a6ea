//! Reads and writes of extents that have a copy.
//!
//! A block is read in the copy if it is valid there, else at the home. A write goes where the policy says, with one rule on
//! top: blocks that are dirty stay so until a clean has taken them home, so a write that would pass the copy by goes to both
//! instead. Writes to the same blocks of such an extent take turns: two replicas written by two writers at once could end up
//! with one of them each, and nobody would know.

use crate::engine::requests::data::Runs;
use crate::engine::{Engine, Mutant, Req, Waiter};
use crate::io::Effect;
use crate::policy::WriteTo;
use crate::units::{ExtentId, Nanos, Slot};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A write in flight to an extent with a copy.
#[derive(Clone, Copy, Debug)]
struct Writing {
    to: u32,
    mode: WriteTo,
    /// Device operations that have not ended.
    left: u8,
    failed: bool,
    /// The policy wants the copy gone.
    evict: bool,
}

/// Writes in flight to extents with a copy, by extent and first block. They do not overlap.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Replicas {
    writing: BTreeMap<(u32, u32), Writing>,
}

impl Replicas {
    /// Is nothing in flight? (The question of a volume without copies.)
    #[inline]
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.writing.is_empty()
    }
    /// Is a write in flight to any of these blocks?
    fn overlaps(&self, e: ExtentId, from: u32, to: u32) -> bool {
        self.writing
            .range((e.0, 0)..(e.0, to))
            .next_back()
            .is_some_and(|(_, w)| w.to > from)
    }
}

impl Engine {
    /// First and last block (not included) of a piece.
    pub(in crate::engine) fn blocks_of(&self, w: &Waiter) -> (u32, u32) {
        let geo = &self.space.geo;
        let base = u64::from(w.extent.0) << geo.extent_shift;
        (
            ((w.from - base) >> geo.block_shift) as u32,
            ((w.to - base) >> geo.block_shift) as u32,
        )
    }

    fn byte_of(&self, e: ExtentId, block: u32) -> u64 {
        let geo = &self.space.geo;
        (u64::from(e.0) << geo.extent_shift) + (u64::from(block) << geo.block_shift)
    }

    /// Read each stretch where it is valid.
    pub(in crate::engine) fn read_copied(
        &mut self,
        req: &Req,
        w: &Waiter,
        (home, copy): (Slot, Slot),
        runs: &mut Runs,
        out: &mut Vec<Effect>,
    ) {
        let e = w.extent;
        let (mut b, end) = self.blocks_of(w);
        while b < end {
            let (n, copied) = self.space.map.copy_run(e, b, end);
            let (n, valid) = if copied {
                (n, false)
            } else {
                self.space.map.run(e, b, b + n)
            };
            let (from, to) = (self.byte_of(e, b), self.byte_of(e, b + n));
            if copied {
                self.join_run(w, copy, from, to, false, &mut runs.copy, out);
            } else if valid {
                self.join_run(w, home, from, to, false, &mut runs.home, out);
            } else {
                self.read_nothing(req, w, from, to, out);
            }
            b += n;
        }
    }

    /// A write to an extent with a copy.
    pub(in crate::engine) fn write_copied(
        &mut self,
        now: Nanos,
        w: &Waiter,
        (home, copy): (Slot, Slot),
        runs: &mut Runs,
        out: &mut Vec<Effect>,
    ) {
        let e = w.extent;
        let (from, to) = self.blocks_of(w);
        if self.replicas.overlaps(e, from, to) && !self.broken(Mutant::UnorderedReplicas) {
            return self.wait(*w);
        }
        let req = *self.reqs.at(w.req);
        let access = self.access(now, &req, e, Some(home), Some(copy));
        let (policy, mut view, _) = self.view(now, 0);
        let wish = policy.write_to(&mut view, &access);
        let wish = if self.is_draining_copies() {
            WriteTo::Home
        } else {
            wish
        };
        let dirty = self.space.map.any_dirty(e, from, to);
        let mode = match wish {
            WriteTo::Home if dirty && !self.broken(Mutant::PassDirtyBy) => WriteTo::Both,
            m => m,
        };
        let held = self.space.map.is_held(e);
        if mode == WriteTo::Home {
            let stale = self.broken(Mutant::KeepStaleCopy);
            if !held && !self.space.map.is_dirty(e) && !self.has_writers(e) && !stale {
                self.counters.evictions.proposed += 1;
                self.counters.evictions.done += 1;
                self.drop_copy(now, e, out);
                return self.write_piece(w, home, runs, out);
            }
            // Before the write is issued, or a read would find the old bytes after one that found the new ones.
            if !stale {
                self.space.map.copy_forget(e, from, to);
            }
        } else if held && let Some(i) = self.moves.of(e).filter(|&i| self.moves.get(i).is_clean()) {
            // What the clean has read of these blocks is old from now on: they stay dirty.
            self.moves.overtake(i, from, to);
        }
        let fua = self.is_forced(w.req, e, (from, to), mode);
        self.replicas.writing.insert(
            (e.0, from),
            Writing {
                to,
                mode,
                left: if mode == WriteTo::Both { 2 } else { 1 },
                failed: false,
                evict: wish == WriteTo::Home,
            },
        );
        if mode != WriteTo::Home {
            // Write-through forces the home, which is the truth after a crash.
            let fua = fua && mode == WriteTo::Copy;
            self.join_run(w, copy, w.from, w.to, fua, &mut runs.copy, out);
        }
        if mode != WriteTo::Copy {
            self.join_run(w, home, w.from, w.to, fua, &mut runs.home, out);
        }
    }

    /// Is a FUA write durable by itself, because every record needed to find it is durable already? If not, it ends with a
    /// round.
    fn is_forced(&mut self, r: u32, e: ExtentId, (from, to): (u32, u32), mode: WriteTo) -> bool {
        if !self.reqs.at(r).fua {
            return false;
        }
        let map = &self.space.map;
        let found = match mode {
            WriteTo::Copy => map.all_dirty(e, from, to),
            WriteTo::Both | WriteTo::Home => {
                map.all_valid(e, from, to) && !map.any_dirty(e, from, to)
            }
        };
        let fua = found && !self.failed && self.is_known(e);
        self.reqs.at(r).needs_round |= !fua;
        fua
    }

    /// A device write to blocks from `from` on of `e`, in `slot`, ended. False if it is none of an extent with a copy.
    pub(in crate::engine) fn replica_written(
        &mut self,
        now: Nanos,
        e: ExtentId,
        slot: Slot,
        (from, to): (u32, u32),
        ok: bool,
    ) -> bool {
        let Some(w) = self.replicas.writing.get_mut(&(e.0, from)) else {
            return false;
        };
        w.left -= 1;
        w.failed |= !ok;
        let w = *w;
        let early = w.mode == WriteTo::Both && self.broken(Mutant::TrustOneReplica);
        if ok && self.space.map.home(e) == Some(slot) && self.space.map.validate(e, from, to) {
            self.commit.note_home(e, now, self.params.commit_interval);
        }
        if w.left > 0 && !early {
            return true;
        }
        self.replicas.writing.remove(&(e.0, from));
        self.settle_replicas(now, e, (from, to), w);
        if w.evict {
            self.evict_behind(e);
        }
        // A piece that wants a slot may find one to make free now.
        self.freed |= !self.starving.is_empty();
        true
    }

    fn settle_replicas(&mut self, now: Nanos, e: ExtentId, (from, to): (u32, u32), w: Writing) {
        if self.space.map.copy(e).is_none() {
            return;
        }
        match w.mode {
            WriteTo::Home => {}
            // Old or new bytes, nobody knows: what the home has is read there.
            _ if w.failed => {
                if !self.broken(Mutant::TrustOneReplica) {
                    self.space.map.copy_doubt(e, from, to);
                }
            }
            WriteTo::Copy => {
                if self.space.map.copy_dirty(e, from, to) {
                    self.commit.note(e, now, self.params.commit_interval);
                }
                self.soiled(now);
            }
            WriteTo::Both => self.space.map.copy_validate(e, from, to),
        }
    }
}
