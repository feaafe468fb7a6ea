//! `benefit`: copies on flash of the data that saves the most time of the slow device.
//!
//! Homes stay on the slowest tier, and copies go to the fastest. So the loss of a cache without dirty data loses nothing, and any policy
//! can take over. All values are in nanoseconds of device time. The value of an access is the time that the fast device saves on it
//! ([`View::cost`]). The value of an extent is the sum of these, and it halves with every `half_life` × (fast slots) misses. A copy is
//! made if its extent is worth more than the least valuable of 16 clean copies drawn at random plus `move_price` × the cost of the copy.
//!
//! - A read that misses reads from the slow device anyway, so the fetch uses its data. A write that misses gets an empty copy, and
//!   nothing is read.
//! - No request waits until a dirty copy is clean: if no clean copy can be evicted, the request goes to the slow device.
//! - Only the more valuable half of the clean copies is kept over a crash, because a write that takes the slot of a copy with such a record
//!   waits for a round, and behind one that flushes the slow device (`victims.rs`).
//! - Long requests and sequential streams bypass the cache, because the slow device serves them well; streams of short requests
//!   only if they are very long and undisturbed (`admit.rs`).
//! - Dirty data is written home in the order of addresses. This begins when the slow device has had no request for `idle_s`.
//!   A batch takes up to half of the time for which the device has been idle, and is large enough
//!   to be worth a commit round. It contains only data that was not written for `settled_s`, unless more than 20 % of flash is dirty.
//! - If the rest of an extent is rarely requested, only the part that is read is copied (`regions.rs`).
//! - If the slow device is never idle, as in a closed loop, all copies would become dirty. The policy adds up the time that misses lose
//!   because no dirty copy can be evicted. When this equals the measured time of a batch of cleans, a batch is written (`regret.rs`,
//!   `batches.rs`).
//! - A model of the slow device alone computes when that device would have answered. If flash answers writes later, they bypass it
//!   (`shadow.rs`).
//! - An account of what copies save and cost prevents that fetches of data that is not used again slow the slow device down
//!   (`account.rs`). A new flash is filled all the same with the parts that are read, until it had as many misses as slots.
//! - If a set that is larger than flash is read repeatedly, copies stay until another extent is worth more even before its present access.
//!   Two miniature caches on a sample of the extents show when this is better (`duel.rs`).
//! - If requests have classes, the policy measures what copies of each class save, which counts for extents that were used once or twice
//!   (`reuse.rs`), and rows for classes hold whatever that is (`classes.rs`).
//!
//! | parameter | range | default | unit |
//! |---|---|---|---|
//! | half_life | 0, 0.001…100 | 0.3 | number of misses after which worth has halved, in fast slots; 0: never |
//! | move_price | 0…1000 | 1 | weight of the cost of a copy |
//! | stream_bypass | 0…2⁴⁰ | 262144 | bytes; a stream of this length or more bypasses the cache; 0: none does |
//! | request_bypass | 0…2⁴⁰ | 65536 | bytes; a request of this size or more bypasses the cache; 0: none does |
//! | idle_s | 0.001…3600 | 0.05 | seconds for which the slow device must be idle before cleaning begins |
//! | settled_s | 0…3600 | 1 | seconds since the last write of data before it is cleaned |
//! | guard | 0, 1 | 1 | 1: while copies cost more than they save, only recently used extents are copied; writes bypass flash while the slow device alone would answer them sooner |
//! | parts | 0, 1 | 1 | 1: only a part of an extent is copied if the rest is rarely requested |
//! | homes | 0, 1 | 0 | 1: flash has homes as well, so that the volume is as large as both tiers (`homes.rs`) |
//! | goal | fast, quiet, lasting, cheap | fast | a named set of the weights below (`weights.rs`) |
//! | w_latency | 0…1000 | 1 | weight of device time |
//! | w_energy | 0…10⁶ | 0 | seconds of device time that equal one joule |
//! | w_wear | 0…10¹² | 0 | seconds that equal one dollar of wear |
//! | w_money | 0…10¹² | 0 | seconds that equal one dollar of wear or energy |
//! | w_read, w_metadata | 0…100 | 0 | additional weight of a read, and of an access to metadata (`order.rs`) |
//! | w_class | 0…10⁶ | 0 | seconds that are added to an extent's worth for each step of its class' priority |
//! | by_request | 0, 1 | 0 | 1: an access counts as 1 / (the number of extents of its request) |
//! | w_random | 0, 1 | 0 | 1: worth is multiplied by the number of random accesses |
//! | class | CLASSES+KEY=VALUE | none | what holds for data of these classes, several times (`class_table.rs`, `classes.rs`) |
//! | without | names | none | mechanisms that are switched off, for measurements (`without.rs`) |
//!
//! If energy has a weight, the policy also lets the slow device sleep: the worth of an access that would wake it includes the cost of a
//! wake-up. Writes go to flash while it sleeps, and also once it has had no request for [`LULL`], because a write then would restart its
//! standby timer.
//!
//! Memory: 12 bytes for each fast slot, 11 for each extent without a copy that is remembered (as many as flash has slots, or 2^20 if that is
//! more), 2 for each dirty one, and 1 for each fast slot if classes are known. With homes on flash, and in a cache volume of at most 2^20
//! extents: 8 bytes for each extent, 4 for each fast slot. The miniature caches take 6 KiB. Source: none, this is Isotherm's
//! own policy; that all costs are expressed in one unit is an older idea (HRO, OODT). When not to use it: if capacity matters, because
//! copies add none.
//! `bench/benefit/adversary.py` and `lab/tests/guard.rs` search for workloads on which the slow device alone is faster.

mod account;
mod admit;
mod batches;
mod classes;
mod clean;
mod duel;
mod explain;
mod homes;
mod order;
mod regions;
mod regret;
mod reuse;
mod score;
mod settings;
mod shadow;
mod victims;
mod weights;
#[cfg(test)]
mod tests {
    mod kept;
    mod loops;
    mod orders;
}
mod without;

use super::hold::FAST;
use super::{Access, Action, MoveRules, Outcome, ParamError, Place, Policy, Uses, View, WriteTo};
use crate::collector::Streams;
use crate::units::Nanos;
use crate::volume::{Position, UnitId, UnitSet};
use account::Account;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use batches::Batches;
use classes::Classes;
use duel::Duel;
use order::Order;
use regions::Regions;
use regret::Regret;
use score::Scores;
use settings::Settings;
use shadow::Shadow;
pub use weights::GOALS;
use without::Part;

/// Maximum number of copies in progress. It can be large: a fetch uses the data of a read that the slow device serves in any case.
const MOVES: u32 = 128;

/// See the module.
#[derive(Clone, Debug)]
pub struct Benefit {
    settings: Settings,
    fast_slots: u32,
    scores: Scores,
    streams: Streams,
    regions: Regions,
    /// The extents whose copies are dirty.
    dirty: UnitSet,
    /// For each fast slot: the time of its last write, milliseconds.
    last_written_ms: Vec<u32>,
    /// The extents of copies that were proposed and are not settled.
    pending_copies: Vec<UnitId>,
    /// Number of homes that are moving to the slow tier.
    demoting: u32,
    /// Number of cleans in progress.
    cleaning: u32,
    /// The extent at which the search for dirty copies continues.
    clean_cursor: u32,
    /// When the policy wants to be called again.
    next_tick: Option<Nanos>,
    /// The time that is lost because flash is full of dirty data.
    regret: Regret,
    /// A model of the slow device alone, and the comparison of flash with it.
    shadow: Shadow,
    /// The measured time of cleaning under load.
    batches: Batches,
    seed: u64,
    /// The account of what copies saved and cost.
    account: Account,
    /// What is known about classes of data.
    classes: Classes,
    /// Whether copies stay until others have shown that they are worth more.
    duel: Duel,
    /// The median worth of the clean copies that a search for a victim met.
    usual_worth: u64,
}

impl Default for Benefit {
    fn default() -> Benefit {
        Benefit {
            settings: Settings::default(),
            fast_slots: 0,
            scores: Scores::default(),
            streams: Streams::default(),
            regions: Regions::default(),
            dirty: UnitSet::default(),
            last_written_ms: Vec::new(),
            pending_copies: Vec::new(),
            demoting: 0,
            cleaning: 0,
            clean_cursor: 0,
            next_tick: None,
            regret: Regret::default(),
            shadow: Shadow::default(),
            batches: Batches::default(),
            seed: 0x9e37_79b9_7f4a_7c15,
            account: Account::default(),
            classes: Classes::default(),
            duel: Duel::default(),
            usual_worth: 0,
        }
    }
}

/// If energy has a weight and no request has used the slow device for this time, writes no longer go there. With 10 ms to 5 s the energy
/// of the tuning traces is the same within 4 %; a longer time does less to the latency of a device that is never idle for long.
const LULL: Nanos = Nanos::from_secs(1);

/// An extent whose worth has fallen to no less than this part (1/8) of one access was used within about three half-lives. Three half-lives
/// of 0.3 fast slots each are nearly as many misses as flash has slots. So a copy of it would still exist if all copies could be evicted.
const REUSED: u64 = 1 << 3;

/// What is known about an extent when it is accessed.
#[derive(Clone, Copy, Debug)]
struct Recency {
    /// Its worth before the access, nanoseconds.
    before: u64,
    /// Whether it was used within about one half-life.
    is_recent: bool,
    /// Whether it was used so recently that a copy made then would still exist if all copies could be evicted ([`REUSED`]).
    is_reused: bool,
}

fn millis(t: Nanos) -> u32 {
    (t.0 / 1_000_000) as u32
}

impl Benefit {
    fn has(&self, part: Part) -> bool {
        self.settings.without.has(part)
    }
    /// The worth of an extent, nanoseconds of device time.
    fn worth(&self, view: &View<'_>, e: UnitId) -> u64 {
        let class = (self.class_of(view, e), self.one_access(view));
        self.worth_in_order(view, self.scores.worth(e, view.copy(e)), e, class)
    }
    fn half_life(&self) -> u32 {
        if self.settings.half_life == 0 {
            return 0;
        }
        let misses = u64::from(self.fast_slots) * u64::from(self.settings.half_life) / 1000;
        u32::try_from(misses).unwrap_or(u32::MAX).max(1)
    }
}

impl Policy for Benefit {
    fn name(&self) -> &'static str {
        "benefit"
    }
    fn uses(&self) -> Uses {
        if self.settings.homes {
            Uses::Both
        } else {
            Uses::Copies
        }
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.fast_slots = view.positions(FAST).end;
        self.scores = Scores::new(view, self.half_life());
        view.forget_stats();
        self.regions = Regions::new(view.units());
        self.dirty = UnitSet::new(view.units());
        self.last_written_ms = vec![millis(view.now()); self.fast_slots as usize];
        let saves = self.value_saved(view);
        self.account = Account::open(Benefit::slow_read(view));
        self.attach_classes(view);
        self.duel = Duel::new(if view.is_uniform() {
            self.fast_slots
        } else {
            0
        });
        for (s, e) in view.residents(FAST) {
            if view.copy(e) == Some(s) {
                // After a restart each existing copy is worth one access.
                self.scores.touch(e, Some(s), saves);
                self.duel.found(e, self.scores.entry(e, Some(s)));
                self.dirty.put(e, view.is_dirty(e));
            }
        }
        if !self.dirty.is_empty() {
            self.next_tick = Some(view.now() + self.settings.idle);
        }
    }
    fn make_room(&mut self, view: &mut View<'_>, _access: &Access, wanted: &mut Vec<Action>) {
        wanted.extend(self.room_for_home(view));
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, slot: Position) {
        self.scores.copied(extent, slot);
        if self.scores.worth(extent, Some(slot)) == 0 && !self.pending_copies.contains(&extent) {
            // The user wants it here. As after a restart, the copy is worth one access, so the first that is worth more may replace it.
            let saves = self.value_saved(view);
            self.scores.touch(extent, Some(slot), saves);
        }
        self.note_copied_class(view, extent, slot);
    }
    fn on_uncopied(&mut self, _view: &mut View<'_>, extent: UnitId, slot: Position) {
        self.scores.uncopied(extent, slot);
        self.dirty.remove(extent);
        self.note_uncopied_class(slot);
    }
    fn on_reclassified(
        &mut self,
        view: &mut View<'_>,
        extent: UnitId,
        class: u8,
        _wanted: &mut Vec<Action>,
    ) {
        self.note_new_class(view, extent, class);
    }
    fn on_discarded(&mut self, _view: &mut View<'_>, extent: UnitId, _slot: Position) {
        self.scores.forget(extent);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let extent = access.extent;
        view.set_last(extent, access.now);
        let (goes_on, run) = self.streams.note(access);
        let saves = self.value_saved(view);
        self.update_shadow(view, access, goes_on);
        self.note_class(view, access, goes_on);
        let copy = access.copy.filter(|c| view.tier_of(*c) == FAST);
        let before = self.scores.worth(extent, copy);
        let recency = Recency {
            before,
            is_recent: before.saturating_mul(2) >= saves,
            is_reused: before.saturating_mul(REUSED) >= saves,
        };
        let counts = self
            .settings
            .order
            .access_worth(view, access, goes_on, saves);
        self.scores.touch(extent, copy, counts);
        let is_at_home = access.home.is_some_and(|h| view.tier_of(h) == FAST);
        if !is_at_home {
            self.compare_orders(view, access, before, run);
        }
        if is_at_home {
            // Its home is on flash, so a copy would save nothing.
        } else if copy.is_some() && (access.write || view.holds(access)) {
            let saved = Benefit::hit_saves(view, access);
            self.account.earn(saved, Benefit::slow_read(view));
        } else {
            if copy.is_some() {
                self.regions.note_missing_blocks(extent);
            }
            let load = view.load(view.slowest());
            self.batches.note_queue(access.now, load.waiting);
            if self.cleaning > 0 {
                let takes = if access.write {
                    Benefit::deferred_write_time(view).0
                } else {
                    Benefit::slow_read(view)
                };
                self.batches.add_request_time(takes);
            }
            self.scores.advance_clock();
            self.duel.note_miss(self.scores.clock());
            self.on_miss(view, access, run, recency, wanted);
        }
        if !self.dirty.is_empty() && self.next_tick.is_none() {
            self.next_tick = Some(access.now + self.settings.idle);
        }
        if self.cleaning == 0
            && self.regret.has_loss()
            && self.regret.justifies(self.load_batch_time(view))
        {
            self.next_tick = Some(access.now);
        }
    }
    fn keeps_over_crash(&self, view: &View<'_>, extent: UnitId) -> bool {
        self.worth(view, extent) >= self.usual_worth
    }
    fn write_to(&mut self, view: &mut View<'_>, access: &Access) -> WriteTo {
        let e = access.extent;
        let (answer, read) = (view.latencies(FAST).write.0, Benefit::slow_read(view));
        if self.write_bypasses_copy(view, e) {
            self.shadow.write_bypassed(e, answer, read);
            return WriteTo::Home;
        }
        self.shadow.write_to_flash(e, answer, read);
        if !view.is_dirty(e) {
            self.dirty.insert(e);
        }
        if let Some(s) = view.copy(e)
            && let Some(w) = self.last_written_ms.get_mut(s.index() as usize)
        {
            *w = millis(access.now);
        }
        self.next_tick
            .get_or_insert(access.now + self.settings.idle);
        WriteTo::Copy
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        _how: Outcome,
        _wanted: &mut Vec<Action>,
    ) {
        let extent = action.extent();
        match action {
            Action::Clean { .. } => {
                self.cleaning = self.cleaning.saturating_sub(1);
                if self.cleaning == 0 {
                    let waiting = view.load(view.slowest()).waiting;
                    self.batches.note_queue(view.now(), waiting);
                    self.batches.end(view.now());
                }
                self.dirty.put(extent, view.is_dirty(extent));
                if !self.dirty.is_empty() {
                    self.next_tick
                        .get_or_insert(view.now() + Nanos::from_millis(5));
                }
            }
            Action::Move { to, .. } if to != FAST => {
                self.demoting = self.demoting.saturating_sub(1);
            }
            Action::Evict { .. } => {}
            _ => {
                // No extent is in this list twice.
                if let Some(i) = self.pending_copies.iter().position(|e| *e == extent) {
                    self.pending_copies.swap_remove(i);
                }
                self.settle_class(extent);
            }
        }
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        if self.next_tick.is_none_or(|t| t > view.now()) {
            return;
        }
        if self.dirty.is_empty() || self.cleaning > 0 {
            // The last clean that settles sets the next time.
            self.next_tick = None;
            return;
        }
        let (patience, quiet) = (self.settings.idle, view.load(view.slowest()).quiet);
        self.next_tick = Some(if self.regret.justifies(self.load_batch_time(view)) {
            self.clean_under_load(view, wanted);
            view.now() + patience
        } else if quiet >= patience {
            self.clean_in_idle_time(view, quiet, wanted);
            // In case no dirty data was old enough.
            view.now() + patience.max(Nanos::from_millis(100))
        } else {
            view.now() + Nanos(patience.0 - quiet.0)
        });
    }
    fn next_wake(&self) -> Option<Nanos> {
        self.next_tick
    }
    fn reads_sooner(&self) -> bool {
        self.has(Part::Sooner)
    }
    fn move_rules(&self) -> MoveRules {
        MoveRules {
            limit: self.has(Part::Riding).then_some(MOVES),
            rounds_yield: self.has(Part::Yielding),
            ..MoveRules::default()
        }
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        let homes = self.settings.homes;
        self.settings.set(key, value)?;
        if self.fast_slots > 0 && self.settings.homes != homes {
            self.settings.homes = homes;
            return Err(ParamError::Range("0 or 1, before the volume is opened"));
        }
        let half_life = self.half_life();
        self.scores.set_half_life(half_life);
        Ok(())
    }
    fn set_name(&mut self, key: &str, name: &str) -> Result<(), ParamError> {
        if key == "class" {
            return self.set_class_row(name);
        }
        self.settings.set_name(key, name)
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        self.settings.list()
    }
    fn names(&self) -> Vec<(&'static str, String)> {
        let mut names = self.settings.names();
        names.extend(self.classes.names());
        names
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        self.explain_extent(view, extent)
    }
    fn bytes(&self) -> usize {
        self.scores.bytes()
            + self.dirty.bytes()
            + self.streams.bytes()
            + self.regions.bytes()
            + self.classes.bytes()
            + self.duel.bytes()
            + self.last_written_ms.capacity() * 4
    }
}
