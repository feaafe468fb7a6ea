//! The policy's proposals, tried in order: each is started now, or refused with a reason.

use super::Relocation;
use super::move_list::{AT_WORK, Kind};
use super::moves::NewMove;
use super::parts::Blocks;
use super::recent_moves::{EndedMove, RecentMoves};
use crate::engine::durability::Durability;
use crate::engine::globals::Globals;
use crate::mutants::Mutant;
use crate::policy::{Action, Outcome, Refusal};
use crate::proposals::{self, Checked, Executor};
use crate::stats::{CLASSES, Counters, MoveCounters};
use crate::units::{ExtentId, Slot, TierId};
use crate::volume::Space;

/// The engine as an [`Executor`]. Its moves take time, so most of them have not ended when they have started.
struct Timed<'a> {
    r: &'a mut Relocation,
    g: &'a mut Globals,
    d: &'a mut Durability,
}

impl Executor for Timed<'_> {
    fn space(&self) -> &Space {
        &self.g.space
    }
    fn proposed(&mut self, action: Action, up: bool) {
        counted(&mut self.g.counters, action, up).proposed += 1;
    }
    fn may(&self, action: Action) -> Result<(), Refusal> {
        if !self.g.may_move() {
            return Err(Refusal::Closed);
        }
        let copies = matches!(
            action,
            Action::Fetch { .. } | Action::FetchPart { .. } | Action::Allocate { .. }
        );
        if copies && !self.r.copies_fit && action.extent().0 < self.g.space.geo.extents {
            return Err(Refusal::NoCopies);
        }
        // What is lost with earlier flash is at the home alone, until all of the extent was written again, durably.
        if copies
            && self.g.space.lost.is_open(action.extent())
            && !self.g.broken(Mutant::CopyOfLost)
        {
            return Err(Refusal::Busy);
        }
        Ok(())
    }
    fn start(&mut self, action: Action, checked: Checked) -> Result<bool, Refusal> {
        let (r, g, d) = (&mut *self.r, &mut *self.g, &mut *self.d);
        match checked {
            Checked::Move {
                extent,
                from,
                to,
                up,
            } => r.try_move(g, d, action, (extent, from, to), up),
            Checked::Fetch { extent, home, to } => {
                r.try_fetch(g, d, action, (extent, home, to), false)
            }
            Checked::FetchPart {
                extent,
                home,
                to,
                from,
                bytes,
            } => r.try_fetch_part(g, d, action, (extent, home, to), (from, bytes)),
            Checked::Allocate { extent, to } => r.try_allocate(g, d, extent, to),
            Checked::Clean { extent } => r.try_clean(g, d, action, extent),
            Checked::Evict { extent } => r.try_evict(g, d, action, extent),
        }
    }
    fn ended(&mut self, action: Action, up: bool, how: Outcome) {
        let ended = EndedMove {
            at: self.g.clock,
            action,
            up,
            own: false,
            how,
        };
        self.r.settle(self.g, self.d, ended);
    }
}

fn counted(c: &mut Counters, action: Action, up: bool) -> &mut MoveCounters {
    match action {
        Action::Move { .. } if up => &mut c.promotions,
        Action::Move { .. } => &mut c.demotions,
        Action::Fetch { .. } | Action::FetchPart { .. } | Action::Allocate { .. } => &mut c.fetches,
        Action::Clean { .. } => &mut c.writebacks,
        Action::Evict { .. } => &mut c.evictions,
    }
}

/// The counter of the extent's class.
fn by_class(g: &mut Globals, action: Action, up: bool) -> &mut u64 {
    let class = usize::from(g.account_class(action.extent())) % CLASSES;
    let c = &mut g.counters.classes[class];
    match action {
        Action::Move { .. } if up => &mut c.promotions,
        Action::Move { .. } => &mut c.demotions,
        Action::Fetch { .. } | Action::FetchPart { .. } | Action::Allocate { .. } => &mut c.fetches,
        Action::Clean { .. } => &mut c.writebacks,
        Action::Evict { .. } => &mut c.evictions,
    }
}

/// Counts a clean or eviction that the engine did for itself, without a proposal.
pub(super) fn count_own(g: &mut Globals, recent: &mut RecentMoves, action: Action) {
    recent.note(EndedMove {
        at: g.clock,
        action,
        up: false,
        own: true,
        how: Outcome::Done,
    });
    let c = counted(&mut g.counters, action, false);
    c.proposed += 1;
    c.settle(Outcome::Done);
    *by_class(g, action, false) += 1;
}

impl Relocation {
    /// Tries the policy's proposals, in order.
    pub(in crate::engine) fn try_proposals(&mut self, g: &mut Globals, d: &mut Durability) {
        let mut wanted = core::mem::take(&mut g.proposals);
        sort_cleans(&g.space, &mut wanted);
        proposals::carry_out(&mut Timed { r: self, g, d }, &mut wanted);
        // The list's memory is kept. The policy may have made more proposals in the meantime.
        wanted.append(&mut g.proposals);
        g.proposals = wanted;
    }

    /// Refuses all proposals of the policy, and drops those that it makes in response.
    pub(in crate::engine) fn refuse_proposals(&mut self, g: &mut Globals, d: &mut Durability) {
        let mut wanted = core::mem::take(&mut g.proposals);
        let mut executor = Timed { r: self, g, d };
        proposals::refuse_all(&mut executor, &mut wanted, Refusal::Throttled);
        g.proposals.clear();
    }

    /// Counts an action of the engine itself, as a proposal of the policy is counted.
    pub(super) fn proposed(g: &mut Globals, action: Action) {
        counted(&mut g.counters, action, false).proposed += 1;
    }

    /// Records the outcome of an action, which may be a refusal.
    pub(super) fn settle(&mut self, g: &mut Globals, d: &Durability, ended: EndedMove) {
        let EndedMove {
            action,
            up,
            own,
            how,
            ..
        } = ended;
        counted(&mut g.counters, action, up).settle(how);
        if how == Outcome::Done {
            *by_class(g, action, up) += 1;
        }
        if !matches!(how, Outcome::Refused(_)) {
            self.recent.note(ended);
        }
        if !own {
            let (policy, mut view, wanted) = self.ask(g, d, 0);
            policy.on_settled(&mut view, action, how, wanted);
        }
        g.policy_due |= !matches!(how, Outcome::Refused(_));
    }

    fn try_move(
        &mut self,
        g: &mut Globals,
        d: &Durability,
        action: Action,
        (extent, src, to): (ExtentId, Slot, TierId),
        up: bool,
    ) -> Result<bool, Refusal> {
        if g.space.geo.is_cache() && !g.broken(Mutant::MoveFixedHome) {
            return Err(Refusal::Pointless);
        }
        // A read in progress does not prevent a move. A write does, because it could end after the move has read the data.
        if g.space.pins.count(src).1 > 0 {
            return Err(Refusal::Busy);
        }
        let joins_previous = self.may_copy(g, d, extent, src, up)?;
        let (policy, view, _) = self.ask(g, d, 0);
        let beside = policy.beside(&view, extent, to);
        let dst = g.space.take_on(extent, to, beside).ok_or(Refusal::Full)?;
        let may = g.may_disturb(&[src, dst], d.mirror());
        if let Err(why) = may.and_then(|()| may_wear(g, to)) {
            g.space.slots.put_back(dst);
            return Err(why);
        }
        let new = NewMove {
            action,
            extent,
            src,
            dst,
            kind: Kind::Rehome,
            up,
            own: false,
            joins_previous,
        };
        self.start_move(g, new);
        Ok(false)
    }

    fn try_fetch(
        &mut self,
        g: &mut Globals,
        d: &Durability,
        action: Action,
        (e, home, to): (ExtentId, Slot, TierId),
        own: bool,
    ) -> Result<bool, Refusal> {
        let copy = g.space.map.copy(e);
        let (kind, src, parts) = match copy {
            None => (Kind::Fetch, home, Blocks::Valid),
            Some(c) if g.space.geo.tier_of(c) == to => (Kind::Fill, home, Blocks::Lacking),
            // A dirty copy is not moved: its new slot would have to be recorded before the old one could be freed.
            Some(_) if g.space.map.is_dirty(e) => return Err(Refusal::Busy),
            Some(c) => (Kind::Relocate, c, Blocks::Copied),
        };
        let all = (0, g.space.geo.blocks_per_extent());
        if !parts.any(&g.space, e, all) {
            return Err(Refusal::Pointless);
        }
        if g.has_writers(e) && !g.broken(Mutant::FetchUnderWriter) {
            return Err(Refusal::Busy);
        }
        let joins_previous = self.may_copy(g, d, e, src, true)?;
        // A copy needs no record, so the mirror is not needed.
        g.may_disturb(&[src], None)?;
        if kind != Kind::Fill && g.space.slots.free(to) == 0 {
            return Err(Refusal::Full);
        }
        may_wear(g, to)?;
        let dst = match copy {
            Some(c) if kind == Kind::Fill => c,
            _ => g.space.slots.take_lowest(to).ok_or(Refusal::Full)?,
        };
        self.set_parts(g, parts, e, all);
        let new = NewMove {
            action,
            extent: e,
            src,
            dst,
            kind,
            up: true,
            own,
            joins_previous,
        };
        self.start_move(g, new);
        Ok(false)
    }

    /// Copies what flash lacks of an extent to the fastest tier, for the engine itself, if the rules for fetches allow it.
    pub(in crate::engine) fn warm(
        &mut self,
        g: &mut Globals,
        d: &Durability,
        extent: ExtentId,
    ) -> Result<(), Refusal> {
        let home = g.space.map.home(extent).ok_or(Refusal::Pointless)?;
        let copy = g.space.map.copy(extent);
        // A copy on a middle tier is completed there.
        let to = copy.map_or(TierId(0), |c| g.space.geo.tier_of(c));
        let action = Action::Fetch { extent, to };
        self.try_fetch(g, d, action, (extent, home, to), true)?;
        Relocation::proposed(g, action);
        Ok(())
    }

    /// Fetches a part of the extent into its copy. A new copy is empty and clean until the fetch has ended, so the state is correct even if
    /// the fetch is abandoned.
    fn try_fetch_part(
        &mut self,
        g: &mut Globals,
        d: &mut Durability,
        action: Action,
        (e, home, to): (ExtentId, Slot, TierId),
        (from, bytes): (u32, u32),
    ) -> Result<bool, Refusal> {
        let shift = g.space.geo.block_shift;
        let asked = (from >> shift, ((from + bytes - 1) >> shift) + 1);
        let copy = g.space.map.copy(e);
        if copy.is_some_and(|c| g.space.geo.tier_of(c) != to) {
            return Err(Refusal::Busy);
        }
        let parts = if copy.is_some() {
            Blocks::Lacking
        } else {
            Blocks::Valid
        };
        if !parts.any(&g.space, e, asked) {
            return Err(Refusal::Pointless);
        }
        if g.has_writers(e) && !g.broken(Mutant::FetchUnderWriter) {
            return Err(Refusal::Busy);
        }
        let joins_previous = self.may_copy(g, d, e, home, true)?;
        g.may_disturb(&[home], None)?;
        if copy.is_none() && g.space.slots.free(to) == 0 {
            return Err(Refusal::Full);
        }
        may_wear(g, to)?;
        let dst = match copy {
            Some(c) => c,
            None => g.space.slots.take_lowest(to).ok_or(Refusal::Full)?,
        };
        self.set_parts(g, parts, e, asked);
        if copy.is_none() {
            g.space.map.add_empty_copy(e, dst);
        }
        let new = NewMove {
            action,
            extent: e,
            src: home,
            dst,
            kind: Kind::Fill,
            up: true,
            own: false,
            joins_previous,
        };
        self.start_move(g, new);
        if copy.is_none() {
            self.notify_copied(g, d, e, dst);
        }
        Ok(false)
    }

    fn try_allocate(
        &mut self,
        g: &mut Globals,
        d: &Durability,
        e: ExtentId,
        to: TierId,
    ) -> Result<bool, Refusal> {
        // The rule that serialises writes to extents with a copy (`replicas.rs`) does not know a write to the home that is already in
        // progress.
        if g.space.map.is_held(e) || g.has_writers(e) {
            return Err(Refusal::Busy);
        }
        if g.space.slots.free(to) == 0 {
            return Err(Refusal::Full);
        }
        may_wear(g, to)?;
        let slot = g.space.slots.take_lowest(to).ok_or(Refusal::Full)?;
        g.space.map.add_empty_copy(e, slot);
        // The write for which it is allocated goes to the copy, so the home's disk is not woken by it.
        g.set_waking(None);
        self.notify_copied(g, d, e, slot);
        Ok(true)
    }

    fn try_clean(
        &mut self,
        g: &mut Globals,
        d: &Durability,
        action: Action,
        e: ExtentId,
    ) -> Result<bool, Refusal> {
        if g.has_writers(e) {
            return Err(Refusal::Busy);
        }
        if let Some(home) = g.space.map.home(e) {
            self.may_copy(g, d, e, home, false)?;
            g.may_disturb(&[home], d.mirror())?;
        }
        self.start_clean(g, action, false);
        Ok(false)
    }

    fn try_evict(
        &mut self,
        g: &mut Globals,
        d: &mut Durability,
        action: Action,
        e: ExtentId,
    ) -> Result<bool, Refusal> {
        if g.space.map.is_dirty(e) && !g.broken(Mutant::DropDirtyCopy) {
            return self.try_clean(g, d, action, e);
        }
        if g.space.map.is_held(e) || g.has_writers(e) {
            return Err(Refusal::Busy);
        }
        self.drop_copy(g, d, e);
        Ok(true)
    }

    /// Whether a move of extent `e` from `src` may start. The caller has checked writes in progress. `Ok(true)`: it becomes part of the
    /// operation of the previous move. Such a move counts only for the limit `moves_max`.
    fn may_copy(
        &mut self,
        g: &mut Globals,
        d: &Durability,
        e: ExtentId,
        src: Slot,
        up: bool,
    ) -> Result<bool, Refusal> {
        let rules = g.policy.move_rules();
        let reads = |s: Option<Slot>| s.is_some_and(|s| g.space.pins.is_pinned(s));
        if g.space.map.is_held(e)
            || (rules.idle_extents_only
                && (reads(g.space.map.home(e)) || reads(g.space.map.copy(e))))
        {
            return Err(Refusal::Busy);
        }
        if up && rules.yield_to_metadata && d.writing_metadata() {
            return Err(Refusal::MetadataFlush);
        }
        let joins_previous = self.would_join(g, src, up);
        let limit = rules.limit.unwrap_or(AT_WORK);
        let own = g.params.moves_max.map_or(u32::MAX, u32::from);
        if (!joins_previous && self.moves.copying() >= limit)
            || self.moves.at_work() >= own
            || !self.moves.has_free()
        {
            return Err(Refusal::Limit);
        }
        self.moves.refill(g.clock);
        let mut allowed = self.moves.allowed(g.clock, g.params.p99_limit);
        if g.clock < g.yield_until {
            allowed = allowed.min(1);
        }
        if (!joins_previous && self.moves.copying() >= allowed) || self.moves.is_overdrawn() {
            return Err(Refusal::Throttled);
        }
        g.may_take_power()?;
        Ok(joins_previous)
    }
}

/// Whether the wear budget admits a move to `to`. This must be the last check, because each check of the budget counts as a proposal.
fn may_wear(g: &mut Globals, to: TierId) -> Result<(), Refusal> {
    let cost = i64::from(g.space.geo.extent_bytes());
    if to == TierId(0) && !g.devices.wear.admits(cost) {
        return Err(Refusal::WearBudget);
    }
    Ok(())
}

/// Sorts consecutive proposals of cleans by the addresses of the homes.
fn sort_cleans(space: &Space, wanted: &mut [Action]) {
    let clean = |a: &Action| matches!(a, Action::Clean { .. });
    for batch in wanted.chunk_by_mut(|a, b| clean(a) && clean(b)) {
        if batch.len() > 1 {
            batch.sort_by_key(|a| {
                let e = a.extent();
                let known = e.0 < space.geo.extents;
                (known.then(|| space.map.home(e)).flatten(), e)
            });
        }
    }
}
