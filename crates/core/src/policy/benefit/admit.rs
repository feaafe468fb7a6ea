//! Which extents are copied: the price of a copy, the copy that it replaces, and how much of the extent is fetched.

use super::classes::Rule;
use super::victims::Draws;
use super::without::Part;
use super::{Benefit, FAST, Recency};
use crate::policy::{Access, Action, View};
use crate::volume::UnitId;
use alloc::vec::Vec;

/// See [`Benefit::bypasses`]. Without a limit for short requests, scans took up to 1.2 times as long as on the disk alone.
const SHORT_RUN: u64 = 16;

impl Benefit {
    /// How much more than its victim a new copy must be worth: the cost of the copy times `move_price`.
    pub(super) fn copy_price(&self, view: &View<'_>, unit: UnitId) -> u64 {
        let cost = self
            .settings
            .weights
            .copy(view.cost(FAST), view.unit_bytes(unit));
        cost.saturating_mul(self.settings.price) / 100
    }
    /// Called if a read misses a recently used extent and the extent is not copied. If it would be copied if the dirty copies that the
    /// `search` for a victim found were clean, the saving of a hit is lost, and this is recorded. (Writes do not count: a slow device with
    /// a write cache empties it about as fast as copies are cleaned.)
    fn note_lost_hit(&mut self, view: &View<'_>, access: &Access, worth: u64, search: Draws) {
        if access.write || !self.has(Part::Value) {
            return;
        }
        let bar = (worth, self.copy_price(view, access.extent));
        if self.has_dirty_candidate_below(view, search, bar) {
            self.regret.add_loss(Benefit::time_saved(view), worth);
        }
    }
    /// Whether a request bypasses the cache because it is long, or because the stream that it belongs to (`run` bytes so far) is. Of short
    /// requests several fit into an extent, so that a copy serves those that follow, and each of them may cost the slow device a seek. So
    /// they bypass only in a stream that is [`SHORT_RUN`] times as long, and not if another request came in between: the arm has moved then.
    pub(super) fn bypasses(&self, view: &View<'_>, access: &Access, run: u64) -> bool {
        let (s, bytes) = (&self.settings, u64::from(access.request_bytes));
        let is_short = bytes * 2 <= view.unit_bytes(access.extent);
        let is_scan = !self.streams.is_interrupted() && run / SHORT_RUN >= s.stream;
        let is_stream = s.stream > 0 && run >= s.stream && (is_scan || !is_short);
        is_stream || (s.request > 0 && bytes >= s.request)
    }
    /// Nanoseconds of a random read of the slow device.
    pub(super) fn slow_read(view: &View<'_>) -> u64 {
        view.cost(view.slowest()).read.0
    }
    /// The additional cost of a fetch of the whole extent instead of the requested blocks: for the slow device and for flash, nanoseconds.
    fn cost_of_rest(&self, view: &View<'_>, access: &Access) -> (u64, u64) {
        let (_, asked) = view.part(access);
        let unit = view.unit_bytes(access.extent);
        let more = unit.saturating_sub(u64::from(asked));
        if more == 0 {
            return (0, 0);
        }
        let read = more.saturating_mul(view.cost(view.slowest()).read_byte_ps) / 1000;
        let (fast, w) = (view.cost(FAST), &self.settings.weights);
        let bytes = more.saturating_mul(fast.write_byte_ps) / 1000;
        let wear = w
            .copy(fast, unit)
            .saturating_sub(w.copy(fast, u64::from(asked)));
        let flash = wear
            .saturating_add(bytes)
            .saturating_mul(self.settings.price)
            / 100;
        (read, flash)
    }
    /// The fetch for a read that misses: of the whole extent, or of the requested blocks only.
    fn fetch(&self, view: &View<'_>, access: &Access) -> Action {
        let (extent, to) = (access.extent, FAST);
        let pays = || {
            let (read, flash) = self.cost_of_rest(view, access);
            self.regions
                .should_fetch_whole(extent, Benefit::time_saved(view), read + flash)
        };
        match self.fetch_of_part(view, access) {
            Some(part @ Action::FetchPart { .. }) if !pays() => part,
            _ => Action::Fetch { extent, to },
        }
    }
    /// The fetch of the requested blocks only, for which the slow device does no more than for the request. `None`: parts are not copied.
    fn fetch_of_part(&self, view: &View<'_>, access: &Access) -> Option<Action> {
        let (extent, to) = (access.extent, FAST);
        let (from, bytes) = view.part(access);
        if u64::from(bytes) >= view.unit_bytes(extent) {
            return Some(Action::Fetch { extent, to });
        }
        self.settings.parts.then_some(Action::FetchPart {
            extent,
            to,
            from,
            bytes,
        })
    }
    /// The fetch by which a read fills a free slot although the account refuses copies. Until there were as many misses as flash has slots,
    /// no extent can have been used again after as many, so the account cannot know. A part costs the slow device nothing.
    fn first_fill(&self, view: &View<'_>, access: &Access) -> Option<Action> {
        let is_new = self.scores.clock() <= self.fast_slots && !access.write;
        let fills = is_new
            && view.copy(access.extent).is_none()
            && !self.needs_victim(view, access.class)
            && !self.promotes_home(view, access.extent);
        self.fetch_of_part(view, access).filter(|_| fills)
    }
    /// Enters a miss into the account: if the extent was used recently (`is_recent`), the saving of a hit, otherwise the cost of its fetch
    /// `what`. Returns whether the account allows the copy.
    fn account_allows(
        &mut self,
        view: &View<'_>,
        access: &Access,
        is_recent: bool,
        what: Action,
    ) -> bool {
        let read = Benefit::slow_read(view);
        if is_recent {
            let saved = if access.write {
                Benefit::deferred_write_time(view).0
            } else {
                read
            };
            self.account.earn(saved, read);
        } else if !access.write {
            let more = if matches!(what, Action::FetchPart { .. }) {
                0
            } else {
                self.cost_of_rest(view, access).0
            };
            let copy = view.cost(FAST).write.0;
            self.account.pay(more.saturating_add(copy), read);
        }
        let guard = self.settings.guard && self.has(Part::Account);
        is_recent || !guard || !self.account.is_negative()
    }
    /// The action that frees a slot for a copy that is worth `worth` and costs `price`, if there is a copy that is worth less, or if worth
    /// does not matter (`forced`).
    fn replace(
        &mut self,
        view: &View<'_>,
        access: &Access,
        (worth, price, forced): (u64, u64, bool),
        recency: Recency,
    ) -> Option<Action> {
        let (clean, search) = self.victim(view, Some(access.class));
        let goes = clean.filter(|&(least, victim)| {
            let least = least.saturating_add(Benefit::demotion_cost(view, victim));
            worth > least.saturating_add(price) || forced
        });
        let Some((_, victim)) = goes else {
            if recency.is_reused {
                self.note_lost_hit(view, access, worth, search);
            }
            return None;
        };
        Some(self.free_slot_of(view, victim))
    }
    /// Decides on the copy for a request that the slow device must serve, and proposes it and the eviction that it needs. `run`: length of
    /// the stream that the request belongs to, bytes.
    pub(super) fn on_miss(
        &mut self,
        view: &mut View<'_>,
        access: &Access,
        run: u64,
        recency: Recency,
        wanted: &mut Vec<Action>,
    ) {
        let is_recent = recency.is_recent;
        let extent = access.extent;
        // A write that would wake the slow device, or restart its standby timer, goes to flash, even if its extent is worth little; so does
        // data of some classes.
        let rule = self.class_rule(access.class);
        let absorbed = rule == Rule::Copied || access.write && self.spares_slow_device(view);
        if rule == Rule::Refused
            || (self.bypasses(view, access, run) && !absorbed)
            || self.pending_copies.contains(&extent)
            || Benefit::is_home_on_flash(view, extent)
        {
            return;
        }
        let passes = access.write && !absorbed && self.settings.guard;
        if passes && self.writes_bypass_flash(view) {
            let (answer, read) = (view.latencies(FAST).write.0, Benefit::slow_read(view));
            self.shadow.write_bypassed(extent, answer, read);
            return;
        }
        let to = FAST;
        let mut what = if access.write {
            Action::Allocate { extent, to }
        } else if self.promotes_home(view, extent) {
            Action::Move { extent, to }
        } else {
            self.fetch(view, access)
        };
        if !self.account_allows(view, access, is_recent, what) && !absorbed {
            let Some(part) = self.first_fill(view, access) else {
                return;
            };
            what = part;
        }
        let (worth, price) = if self.has(Part::Worth) {
            (self.worth(view, extent), self.copy_price(view, extent))
        } else {
            (u64::MAX, 0)
        };
        if view.copy(extent).is_some() {
            // There is a copy, but the requested blocks are missing in it.
            if (worth <= price && !absorbed) || !self.has(Part::Lacks) {
                return;
            }
        } else if self.needs_victim(view, access.class) {
            let counts = self.worth_against_copies(view, access, recency.before, worth);
            match self.replace(view, access, (counts, price, absorbed), recency) {
                Some(leaves @ Action::Move { .. }) => {
                    // The move takes a while. A later miss will find the slot free.
                    return wanted.push(leaves);
                }
                Some(leaves) => wanted.push(leaves),
                None => return,
            }
        } else if worth <= price && !absorbed {
            return;
        }
        if matches!(what, Action::FetchPart { .. }) && view.copy(extent).is_none() {
            self.regions.note_partial_copy(extent);
        }
        self.expect_class(view, access);
        self.pending_copies.push(extent);
        wanted.push(what);
    }
}
