//! Reads and writes of extents that have a copy.
//!
//! A block is read from the copy if it is valid there, else from the home. The policy decides where a write goes, with one additional rule:
//! dirty blocks stay dirty until a clean has written them home, so a write to the home that covers dirty blocks goes to the copy, too.
//! Overlapping writes to such an extent are serialised. If two writes went to both replicas concurrently, the replicas could end up with
//! the data of different writes, and nothing would detect this.

use super::pieces::access;
use super::rescue::can_use_home;
use super::runs::Runs;
use super::{Req, Requests, Waiter};
use crate::engine::globals::Globals;
use crate::engine::parts::Parts;
use crate::engine::relocation::Relocation;
use crate::mutants::Mutant;
use crate::policy::WriteTo;
use crate::units::{ExtentId, Slot};
use alloc::collections::BTreeMap;

/// A write in progress to an extent with a copy.
#[derive(Clone, Copy, Debug)]
struct Writing {
    to: u32,
    mode: WriteTo,
    /// Number of device operations that have not ended.
    left: u8,
    /// Whether the write to the home, and the one to the copy, has failed.
    failed_home: bool,
    failed_copy: bool,
    /// Whether it goes to the home because the copy's device has failed to take it. Until it has ended, the copy's blocks count.
    past_copy: bool,
    /// Whether the policy wants the copy evicted.
    evict: bool,
}

impl Writing {
    /// Number of blocks that a write from block `from` on makes dirty, at most.
    fn makes_dirty(&self, from: u32) -> u64 {
        match self.mode {
            WriteTo::Copy => u64::from(self.to - from),
            WriteTo::Both | WriteTo::Home => 0,
        }
    }
}

/// What a device write was that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// No write to an extent with a copy.
    Elsewhere,
    /// One of the writes to an extent with a copy.
    Noted,
    /// The last of these. The copy's device has failed it, so it is written to the home.
    Again,
    /// The last of these. The copy's device has failed it, and the home cannot take its place any more.
    Lost,
}

/// Writes in progress to extents with a copy. The key is the extent and the first block. They do not overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Replicas {
    writing: BTreeMap<(u32, u32), Writing>,
    /// Number of blocks that those of them which go to the copy alone will make dirty, at most.
    coming: u64,
}

impl Replicas {
    /// Such a write begins, or goes on in another mode.
    fn put(&mut self, key: (u32, u32), w: Writing) {
        self.end(key);
        self.coming += w.makes_dirty(key.1);
        self.writing.insert(key, w);
    }
    /// Such a write has ended.
    fn end(&mut self, key: (u32, u32)) {
        let ended = self.writing.remove(&key);
        self.coming -= ended.map_or(0, |w| w.makes_dirty(key.1));
    }
    /// Whether no such write is in progress. (For a volume without copies, only this function is called.)
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.writing.is_empty()
    }
    /// Whether the write that begins at block `from` can still reach the home if its write to the copy fails.
    pub(super) fn may_reach_home(&self, e: ExtentId, from: u32) -> bool {
        let w = self.writing.get(&(e.0, from));
        w.is_some_and(|w| w.mode != WriteTo::Home && !w.failed_home)
    }
    /// Whether a write to any of these blocks is in progress.
    fn overlaps(&self, e: ExtentId, from: u32, to: u32) -> bool {
        self.writing
            .range((e.0, 0)..(e.0, to))
            .next_back()
            .is_some_and(|(_, w)| w.to > from)
    }
}

impl Requests {
    /// Whether blocks `from..to`, which are valid in the copy, are to be read from the home, because its device would answer clearly sooner:
    /// flash is far behind. They must equal those of the copy, and no write to them may be in progress: this read could return the old bytes
    /// after another one has returned the new ones.
    fn is_home_sooner(
        &self,
        g: &Globals,
        w: &Waiter,
        (home, copy): (Slot, Slot),
        (from, to): (u32, u32),
    ) -> bool {
        let (loads, fast) = (&g.space.loads, g.space.geo.locate(copy).0);
        if !loads.is_behind(fast) || w.past_home || !g.policy.reads_sooner() {
            return false;
        }
        if !loads.is_sooner(g.space.geo.locate(home).0, fast) {
            return false;
        }
        let map = &g.space.map;
        let equal = !map.any_dirty(w.extent, from, to) || g.broken(Mutant::ReadPastDirty);
        let quiet =
            !self.replicas.overlaps(w.extent, from, to) || g.broken(Mutant::ReadUnderWriter);
        let there = map.run(w.extent, from, to) == (to - from, true);
        equal
            && quiet
            && there
            && can_use_home(g, w.extent)
            && !g.space.lost.any(w.extent, from, to)
    }

    /// Reads each run of blocks from the copy if it is valid there, else from the home.
    pub(super) fn read_copied(
        &mut self,
        g: &mut Globals,
        req: &Req,
        w: &Waiter,
        (home, copy): (Slot, Slot),
        runs: &mut Runs,
    ) {
        let e = w.extent;
        let (mut b, end) = g.blocks_of(w);
        while b < end {
            let (n, copied) = g.space.map.copy_run(e, b, end);
            let (n, at_home) = if copied {
                let places = (home, copy);
                (n, self.is_home_sooner(g, w, places, (b, b + n)))
            } else {
                g.space.map.run(e, b, b + n)
            };
            let bytes = (g.byte_of(e, b), g.byte_of(e, b + n));
            if at_home {
                self.join_run(g, w, home, bytes, false, &mut runs.home);
            } else if copied {
                self.join_run(g, w, copy, bytes, false, &mut runs.copy);
            } else {
                self.read_nothing(g, req, w, bytes);
            }
            b += n;
        }
    }

    /// Writes to an extent with a copy.
    pub(super) fn write_copied(
        &mut self,
        p: &mut Parts<'_>,
        w: &Waiter,
        (home, copy): (Slot, Slot),
        runs: &mut Runs,
    ) {
        if w.past_copy {
            return self.write_past(p, w, home, runs);
        }
        let e = w.extent;
        let (from, to) = p.globals.blocks_of(w);
        if self.replicas.overlaps(e, from, to) && !p.globals.broken(Mutant::UnorderedReplicas) {
            return self.wait(p.globals, *w);
        }
        let req = *self.list.at(w.req);
        let mut wanted = write_target(p, &req, e, (home, copy));
        if wanted == WriteTo::Copy && p.globals.is_at_limit(e, (from, to), self.replicas.coming) {
            wanted = WriteTo::Both;
        }
        let dirty = p.globals.space.map.any_dirty(e, from, to);
        let mode = match wanted {
            WriteTo::Home if dirty && !p.globals.broken(Mutant::PassDirtyBy) => WriteTo::Both,
            m => m,
        };
        let held = p.globals.space.map.is_held(e);
        if mode == WriteTo::Home {
            let stale = p.globals.broken(Mutant::KeepStaleCopy);
            if !held && !p.globals.space.map.is_dirty(e) && !p.globals.has_writers(e) && !stale {
                p.relocation.own_eviction(p.globals, p.durability, e);
                return self.write_piece(p, w, home, runs);
            }
            // The copy's blocks become invalid before the write is issued. Otherwise a read could return the old bytes after another read
            // has returned the new ones.
            if !stale
                && p.globals.space.map.copy_forget(e, from, to)
                && !p.globals.broken(Mutant::PassClaimBy)
            {
                p.durability.note(p.globals, e);
            }
        } else if held
            && let Some(i) = p
                .relocation
                .of(e)
                .filter(|&i| p.relocation.get(i).is_clean())
        {
            // The bytes of these blocks that the clean has read are outdated from now on, so the blocks stay dirty.
            p.relocation.mark_overwritten(i, from, to);
        }
        let fua = self.is_forced(p, w.req, e, (from, to), mode);
        self.replicas.put(
            (e.0, from),
            Writing {
                to,
                mode,
                left: if mode == WriteTo::Both { 2 } else { 1 },
                failed_home: false,
                failed_copy: false,
                past_copy: false,
                evict: wanted == WriteTo::Home,
            },
        );
        if mode != WriteTo::Home {
            // With write-through only the write to the home has FUA, because after a crash the home has the valid data.
            let fua = fua && mode == WriteTo::Copy;
            self.join_run(p.globals, w, copy, (w.from, w.to), fua, &mut runs.copy);
        }
        if mode != WriteTo::Copy {
            self.join_run(p.globals, w, home, (w.from, w.to), fua, &mut runs.home);
        }
    }

    /// Writes to the home what the copy's device has failed to take.
    fn write_past(&mut self, p: &mut Parts<'_>, w: &Waiter, home: Slot, runs: &mut Runs) {
        let e = w.extent;
        let (from, to) = p.globals.blocks_of(w);
        // A clean may be writing older bytes to the same place.
        if p.relocation.of(e).is_some() && !p.globals.broken(Mutant::RescueUnderClean) {
            return self.wait(p.globals, *w);
        }
        let fua = self.is_forced(p, w.req, e, (from, to), WriteTo::Home);
        self.join_run(p.globals, w, home, (w.from, w.to), fua, &mut runs.home);
        Relocation::unpin(p.globals, p.durability, home, true);
    }

    /// Whether the device writes have FUA and need no round, because every record that is needed to find the data is already durable. If
    /// such a record is missing, the reply waits for a round; this also applies to a write that must only survive a kill of the server.
    fn is_forced(
        &mut self,
        p: &Parts<'_>,
        r: u32,
        e: ExtentId,
        (from, to): (u32, u32),
        mode: WriteTo,
    ) -> bool {
        let req = *self.list.at(r);
        if !req.found {
            return false;
        }
        let map = &p.globals.space.map;
        let found = match mode {
            WriteTo::Copy => map.all_dirty(e, from, to) || map.is_claimed(e, from, to),
            // (A record that still names these blocks would hide them. With write-through the copy is not written durably.)
            WriteTo::Both | WriteTo::Home => {
                let named = map.copy(e).is_some_and(|s| map.is_recorded(s));
                let named = named && !p.globals.broken(Mutant::FuaPassesClaimBy);
                map.all_valid(e, from, to) && !map.any_dirty(e, from, to) && !named
            }
        };
        let found = found && !p.globals.failed && p.durability.is_findable(p.globals, e, req.fua);
        self.list.at(r).needs_round |= !found;
        found && req.fua
    }

    /// Handles the end of a device write to blocks `from..to` of `e`, in `slot`.
    pub(super) fn replica_written(
        &mut self,
        p: &mut Parts<'_>,
        e: ExtentId,
        slot: Slot,
        (from, to): (u32, u32),
        ok: bool,
    ) -> Written {
        let Some(w) = self.replicas.writing.get_mut(&(e.0, from)) else {
            return Written::Elsewhere;
        };
        w.left -= 1;
        let at_home = p.globals.space.map.home(e) == Some(slot);
        w.failed_home |= !ok && at_home;
        w.failed_copy |= !ok && !at_home;
        let (w, g) = (*w, &mut *p.globals);
        let early = w.mode == WriteTo::Both && g.broken(Mutant::TrustOneReplica);
        if ok && at_home && g.space.map.validate(e, from, to) {
            p.durability.note(g, e);
        }
        if w.left > 0 && !early {
            return Written::Noted;
        }
        if w.failed_copy && w.mode != WriteTo::Home && !w.failed_home && can_use_home(g, e) {
            // It keeps its turn, and is written to the home (again, because a clean may have written older bytes there meanwhile).
            let past = Writing {
                mode: WriteTo::Home,
                left: 1,
                failed_copy: false,
                past_copy: true,
                ..w
            };
            self.replicas.put((e.0, from), past);
            // It is unknown what the copy contains now. Its clean blocks are read from the home; dirty ones stay until the home has newer ones.
            if g.space.map.copy(e).is_some() && g.space.map.copy_invalidate_clean(e, from, to) {
                p.durability.note(g, e);
            }
            // Until it is issued, no move of the extent begins.
            if let Some(home) = g.space.map.home(e) {
                g.space.pins.pin(home, true);
            }
            return Written::Again;
        }
        self.replicas.end((e.0, from));
        settle_replicas(p, e, (from, to), w);
        if w.evict {
            p.relocation.evict_if_possible(p.globals, e);
        }
        // A piece that waits for a slot may now find one that can be freed.
        if p.globals.waiting.is_starving() {
            p.globals.waiting.slot_freed();
        }
        if w.failed_copy {
            Written::Lost
        } else {
            Written::Noted
        }
    }
}

/// The policy's choice of the replicas to which a write goes.
fn write_target(p: &mut Parts<'_>, req: &Req, e: ExtentId, (home, copy): (Slot, Slot)) -> WriteTo {
    let access = access(p.globals, req, e, Some(home), Some(copy));
    let (policy, mut view, _) = p.relocation.ask(p.globals, p.durability, 0);
    let to = policy.write_to(&mut view, &access);
    if p.globals.background.evicts_all_copies() {
        WriteTo::Home
    } else {
        to
    }
}

fn settle_replicas(p: &mut Parts<'_>, e: ExtentId, (from, to): (u32, u32), w: Writing) {
    let g = &mut *p.globals;
    let Some(slot) = g.space.map.copy(e) else {
        return;
    };
    match w.mode {
        WriteTo::Home if w.past_copy && !w.failed_home => {
            // The home has the newest bytes, and the copy may have any.
            let due = g.space.map.copy_forget(e, from, to);
            if due && !g.broken(Mutant::RescueUnrecorded) {
                p.durability.note(g, e);
            }
        }
        WriteTo::Home => {}
        // It is unknown whether the blocks contain old or new bytes. From now on they are read from the home, if they are valid there.
        _ if w.failed_home || w.failed_copy => {
            if !g.broken(Mutant::TrustOneReplica) && g.space.map.copy_invalidate_clean(e, from, to)
            {
                p.durability.note(g, e);
            }
        }
        WriteTo::Copy => {
            let claimed = g.space.map.is_claimed(e, from, to);
            let forgets = g.broken(Mutant::ClaimUnnamed) && g.space.map.is_named(e);
            let changed = g.space.map.copy_dirty(e, from, to);
            if changed && !claimed && !forgets {
                p.durability.note(g, e);
            } else if changed {
                p.durability.relied_on(slot);
            }
            g.copy_became_dirty(e);
        }
        WriteTo::Both => g.space.map.copy_validate(e, from, to),
    }
}
