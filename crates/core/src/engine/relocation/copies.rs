//! The life of a copy: it is fetched or allocated, cleaned, and dropped.
//!
//! Durable records name homes and the dirty blocks of copies. Which blocks of a copy are *clean* is known only in memory (and in the
//! records of a clean close). So no record is needed to make a copy or to drop a clean one that was never dirty. A clean needs none either: it
//! ends when its blocks are durable at the home, and a record that still names them in the copy names equal bytes. A later write to the home
//! alone makes a new record due, as any change does. A slot that a durable record names as a dirty copy is allocated again only when a later
//! record is durable that does not name it, as for any other freed slot (`free.rs`).

use super::Relocation;
use super::move_list::{Kind, Move};
use super::moves::NewMove;
use super::parts::Blocks;
use super::proposals::count_own;
use crate::engine::durability::Durability;
use crate::engine::globals::Globals;
use crate::mutants::Mutant;
use crate::policy::{Action, Outcome};
use crate::units::{ExtentId, Slot, TierId};

/// Number of copies in use that a search for one to evict passes over.
const BUSY_MAX: u32 = 16;

fn tiers(g: &Globals) -> impl Iterator<Item = TierId> + use<> {
    (0..g.space.geo.tiers()).map(TierId)
}

impl Relocation {
    pub(super) fn notify_copied(&self, g: &mut Globals, d: &Durability, e: ExtentId, slot: Slot) {
        g.check_place(slot, true);
        if g.background.is_known_to_policy(&g.space.geo, slot) {
            let (policy, mut view, _) = self.ask(g, d, 0);
            policy.on_copied(&mut view, e, slot.into());
        }
    }

    /// The blocks of a fetch are now in the copy's slot, and are read from there from now on.
    pub(super) fn flip_copy(&mut self, g: &mut Globals, d: &mut Durability, index: u16) {
        let m = self.end_move(g, d, index);
        if m.kind == Kind::Relocate {
            self.drop_copy(g, d, m.extent);
        }
        if m.kind != Kind::Fill {
            g.space.map.add_empty_copy(m.extent, m.dst);
        }
        // The move has ended, but the list of its blocks is kept until another move uses the buffer.
        let mut at = 0;
        while let Some((a, z)) = self.next_part(g, index, at) {
            g.space.map.copy_validate(m.extent, a, z);
            at = z;
        }
        if m.kind != Kind::Fill {
            self.notify_copied(g, d, m.extent, m.dst);
        }
        self.settle_move(g, d, &m, Outcome::Done);
    }

    /// Writes the dirty blocks of the extent of `action` home. `own`: for the engine itself, not for the policy. The caller has made sure
    /// that no write of the extent is in progress and that a buffer is free.
    pub(super) fn start_clean(&mut self, g: &mut Globals, action: Action, own: bool) {
        let e = action.extent();
        if let (Some(copy), Some(home)) = (g.space.map.copy(e), g.space.map.home(e)) {
            let all = (0, g.space.geo.blocks_per_extent());
            self.set_parts(g, Blocks::Dirty, e, all);
            let evict = matches!(action, Action::Evict { .. });
            let new = NewMove {
                action,
                extent: e,
                src: copy,
                dst: home,
                kind: Kind::Clean { evict },
                up: false,
                own,
                joins_previous: false,
            };
            self.start_move(g, new);
        }
    }

    /// Starts a clean, or the eviction of a dirty copy, for the engine itself.
    pub(in crate::engine) fn own_clean(&mut self, g: &mut Globals, action: Action) {
        Relocation::proposed(g, action);
        self.start_clean(g, action, true);
    }

    /// Marks the blocks of a clean as clean, because a round is about to flush their home. A later write makes its blocks dirty again. Returns
    /// false if no block is left to clean.
    pub(super) fn apply_clean(&mut self, g: &mut Globals, index: u16, m: &Move) -> bool {
        let (forgets, all) = (
            g.broken(Mutant::ForgetRedirty),
            g.space.geo.blocks_per_extent(),
        );
        let next = |me: &Relocation, g: &Globals, at| {
            if forgets {
                Blocks::Dirty.next(&g.space, m.extent, (at, all))
            } else {
                me.next_part(g, index, at)
            }
        };
        let mut at = 0;
        while let Some((a, z)) = next(self, g, at) {
            g.space.map.copy_cleaned(m.extent, a, z);
            at = z;
        }
        at > 0
    }

    /// Ends a clean whose blocks are durable at the home.
    pub(super) fn cleaned(&mut self, g: &mut Globals, d: &mut Durability, m: &Move, evict: bool) {
        let e = m.extent;
        let dirty = g.space.map.is_dirty(e);
        if !dirty {
            d.copy_cleaned(g, m.src);
        }
        if !evict {
            return self.settle_move(g, d, m, Outcome::Done);
        }
        count_own(g, &mut self.recent, Action::Clean { extent: e });
        // A write in progress will make it dirty again when it ends.
        if dirty || g.has_writers(e) {
            return self.settle_move(g, d, m, Outcome::Stale);
        }
        self.drop_copy(g, d, e);
        self.settle_move(g, d, m, Outcome::Done);
    }

    /// Drops a copy without dirty blocks. If no durable record names its slot, this is free as soon as no read of it is in progress.
    pub(in crate::engine) fn drop_copy(&self, g: &mut Globals, d: &mut Durability, e: ExtentId) {
        let Some(slot) = g.space.map.copy(e) else {
            return;
        };
        d.drop_claim(g, e, slot);
        let recorded = g.space.map.is_recorded(slot);
        g.space.map.drop_copy(e);
        if recorded {
            d.note(g, e);
        }
        if recorded && !g.broken(Mutant::ReuseRecordedCopy) {
            d.free_slot(g, slot, false);
        } else {
            d.free_moved(g, slot);
        }
        if g.background.is_known_to_policy(&g.space.geo, slot) {
            let (policy, mut view, _) = self.ask(g, d, 0);
            policy.on_uncopied(&mut view, e, slot.into());
        }
        g.policy_due = true;
        if g.space.map.is_held(e) {
            g.waiting.extent_changed(e);
        }
    }

    /// Evicts copies because extents need homes, which are more important than copies, and no slot is free. `wanted` extents need one.
    /// Returns true if a slot is free now. Otherwise one may become free later, if there is any copy.
    ///
    /// No more copies are evicted than there are extents that need a slot: those that are on their way count.
    pub(in crate::engine) fn reclaim(
        &mut self,
        g: &mut Globals,
        d: &mut Durability,
        wanted: u32,
    ) -> bool {
        let any_free = |g: &Globals| tiers(g).any(|t| g.space.slots.free(t) > 0);
        if g.space.map.copied() == 0 {
            return false;
        }
        let freeing = |g: &Globals| -> u32 { tiers(g).map(|t| g.space.slots.freeing(t)).sum() };
        let mut coming = freeing(g) + self.moves.evicting();
        while !any_free(g) {
            if let Some((s, e)) = self.next_evictable(g, false) {
                // Such a slot is free at once.
                let at_once = !g.space.map.is_recorded(s) && !g.space.pins.is_pinned(s);
                if !at_once && coming >= wanted {
                    return false;
                }
                self.own_eviction(g, d, e);
            } else if coming < wanted
                && self.has_buffer()
                && !g.failed
                && let Some((_, extent)) = self.next_evictable(g, true)
            {
                self.own_clean(g, Action::Evict { extent });
            } else {
                return false;
            }
            coming += 1;
        }
        true
    }

    /// The next clean or `dirty` copy that may be evicted. Pieces that wait for the extent do not matter, because they check its state again
    /// before they continue. Only moves and writes in progress matter. A search passes over [`BUSY_MAX`] of such copies at most, and the next
    /// one continues where it ended: when one of them has ended, the pieces that need a slot are tried again.
    fn next_evictable(&mut self, g: &mut Globals, dirty: bool) -> Option<(Slot, ExtentId)> {
        for _ in 0..BUSY_MAX {
            let s = g.space.map.next_copy(Slot(self.hand), dirty)?;
            g.steps += 1;
            self.hand = s.0 + 1;
            let e = g.copy_in(s)?;
            if self.moves.of(e).is_none() && !g.has_writers(e) {
                return Some((s, e));
            }
        }
        None
    }

    /// Drops a copy without dirty blocks, for the engine itself.
    pub(in crate::engine) fn own_eviction(
        &mut self,
        g: &mut Globals,
        d: &mut Durability,
        e: ExtentId,
    ) {
        count_own(g, &mut self.recent, Action::Evict { extent: e });
        self.drop_copy(g, d, e);
    }

    /// A write went to the home because the policy wants the copy evicted, but the copy has dirty blocks. Writes these home and evicts the
    /// copy, if this is possible now. Otherwise nothing happens.
    pub(in crate::engine) fn evict_if_possible(&mut self, g: &mut Globals, extent: ExtentId) {
        if g.space.map.is_dirty(extent)
            && g.may_move()
            && self.has_buffer()
            && !g.space.map.is_held(extent)
            && !g.has_writers(extent)
        {
            self.own_clean(g, Action::Evict { extent });
        }
    }
}
