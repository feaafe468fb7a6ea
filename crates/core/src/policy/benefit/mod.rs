//! `benefit`: what is kept on flash is what saves most of the slow device's time.
//!
//! Homes stay on the slowest tier, copies go to the fastest: the loss of a clean cache costs nothing, and any policy can follow.
//! Everything is weighed in nanoseconds of device time. An access is worth what the fast device saves on it
//! ([`View::cost`]); an extent is worth the sum of that, halved with every `half_life` × (fast slots) misses. A copy is made
//! when its extent is worth more than the worst of 16 clean copies drawn at random plus `move_price` × what making it costs.
//!
//! - A read that misses is at the slow device anyway: it fetches. A write that misses gets an empty copy, and nothing is read.
//! - No request waits for a dirty copy: where no clean one can go, the request goes to the slow device.
//! - Long requests and streams pass the cache by: the slow device is good at those.
//! - Dirty data is written home in the order of addresses, when nobody has asked the slow device for anything for `idle_s`
//!   and it had the time to empty its own cache of writes, in batches that take up to half of the time that it has been quiet
//!   and are worth a commit round, and only what was not written for `settled_s`, unless more than 80 % is dirty.
//! - Of an extent whose rest is hardly ever asked for, only the part that is read is copied (`regions.rs`).
//! - No batch of cleans is longer than most gaps go on that lasted as long (`gaps.rs`), and what cleaning costs those who come meanwhile
//!   is seen and counts (`harm.rs`): a slow device that takes writes into a cache, and has nothing to do, gets them itself.
//! - Where the slow device is never quiet, as in a closed loop, all copies would become dirty: once reads that miss have lost as much as a
//!   batch of cleans was seen to take, because no dirty copy could go, one is done (`regret.rs`, `batches.rs`).
//! - A shadow of the slow device alone says what it would have answered: where flash takes writes later, they pass it by (`shadow.rs`).
//! - An account of what copies save and cost keeps fetches that are not used again from slowing the slow device down (`account.rs`).
//!
//! | parameter | range | default | unit |
//! |---|---|---|---|
//! | half_life | 0, 0.001…100 | 0.3 | fast slots, in misses: worth halves in so many; 0: never |
//! | move_price | 0…1000 | 1 | weight of the cost of a copy |
//! | stream_bypass | 0…2⁴⁰ | 262144 | bytes of a stream from which it passes the cache by; 0: never |
//! | request_bypass | 0…2⁴⁰ | 65536 | bytes of a request from which it does; 0: never |
//! | idle_s | 0.001…3600 | 0.05 | seconds that the slow device is quiet before cleaning |
//! | settled_s | 0…3600 | 5 | seconds that data was not written before it is cleaned |
//! | guard | 0, 1 | 1 | 1: in debt, only what was used lately is copied; writes go where they are answered sooner, cleaning counted |
//! | parts | 0, 1 | 1 | 1: parts of extents are copied where the rest is not asked for |
//! | homes | 0, 1 | 0 | 1: homes lie on flash as well, so that the volume is as large as both tiers (`homes.rs`) |
//! | goal | fast, quiet, lasting, cheap | fast | a set of the weights below (`weights.rs`) |
//! | w_latency | 0…1000 | 1 | weight of device time |
//! | w_energy | 0…10⁶ | 0 | seconds of device time that a joule is worth |
//! | w_wear | 0…10¹² | 0 | seconds that a dollar of wear is worth |
//! | w_money | 0…10¹² | 0 | seconds that a dollar of wear or energy is worth |
//! | w_read, w_metadata | 0…100 | 0 | how much more a read counts, and an access to metadata (`order.rs`) |
//! | w_class | 0…10⁶ | 0 | seconds that an extent is worth for each step of its class' priority |
//! | by_request | 0, 1 | 0 | 1: an access counts as its share of the request |
//! | w_random | 0, 1 | 0 | 1: worth is multiplied by the number of random accesses |
//! | without | names | none | what is left out, for measurements (`without.rs`) |
//!
//! With a weight of energy, the slow device's sleep is spared as well: an access that would wake it is worth a wake-up more, and
//! writes go to flash while it sleeps.
//!
//! 8 bytes and 1 bit an extent, 4 bytes a fast slot. Source: none, Isotherm's own; the idea that everything has one currency is
//! older (HRO, OODT). When not to use it: where capacity counts, since copies add none; where sets a little larger than flash are read over and over, since its order is close to recency.
//! `bench/benefit/adversary.py` and `lab/tests/guard.rs` look for work on which the slow device alone is faster.

mod account;
mod admit;
mod batches;
mod clean;
mod gaps;
mod harm;
mod homes;
mod order;
mod regions;
mod regret;
mod score;
mod settings;
mod shadow;
mod victims;
mod weights;
#[cfg(test)]
mod tests {
    mod orders;
}
mod without;

use super::hold::FAST;
use super::{Access, Action, MoveRules, Outcome, ParamError, Place, Policy, Uses, View, WriteTo};
use crate::bits::BitTree;
use crate::collector::Streams;
use crate::units::Nanos;
use crate::volume::{Position, UnitId};
use account::Account;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use batches::Batches;
use gaps::Gaps;
use harm::Harm;
use order::Order;
use regions::Regions;
use regret::Regret;
use score::Scores;
use settings::Settings;
use shadow::Shadow;
pub use weights::GOALS;
use without::Part;

/// Copies under way at once: a fetch rides on a read that is at the slow device in any case.
const MOVES: u32 = 128;

/// See the module.
#[derive(Clone, Debug)]
pub struct Benefit {
    settings: Settings,
    fast: u32,
    scores: Scores,
    streams: Streams,
    regions: Regions,
    dirty: BitTree,
    dirty_count: u32,
    /// By fast slot: when it was last written, in milliseconds.
    written: Vec<u32>,
    /// Copies asked for and not settled.
    coming: Vec<UnitId>,
    /// Homes on their way to the slow tier.
    down: u32,
    /// Cleans under way; where cleaning goes on.
    cleaning: u32,
    at: u32,
    next: Option<Nanos>,
    /// Until when the slow device is taken to work on what it was asked for, its cache of writes among it.
    busy: Nanos,
    /// How long the slow device is left alone.
    gaps: Gaps,
    /// What cleaning costs those who wait.
    harm: Harm,
    /// What is lost because flash is full of dirty data.
    regret: Regret,
    /// What the slow device alone would have answered.
    shadow: Shadow,
    /// What cleaning under load takes.
    batches: Batches,
    /// When a read went to the slow device last, and the mean time between such reads.
    last_read: Nanos,
    reads_gap: Nanos,
    seed: u64,
    /// What copies saved and cost.
    account: Account,
}

impl Default for Benefit {
    fn default() -> Benefit {
        Benefit {
            settings: Settings::default(),
            fast: 0,
            scores: Scores::default(),
            streams: Streams::default(),
            regions: Regions::default(),
            dirty: BitTree::new(0),
            dirty_count: 0,
            written: Vec::new(),
            coming: Vec::new(),
            down: 0,
            cleaning: 0,
            at: 0,
            next: None,
            busy: Nanos(0),
            gaps: Gaps::default(),
            harm: Harm::default(),
            regret: Regret::default(),
            shadow: Shadow::default(),
            batches: Batches::default(),
            last_read: Nanos(0),
            reads_gap: Nanos(0),
            seed: 0x9e37_79b9_7f4a_7c15,
            account: Account::default(),
        }
    }
}

/// What was used within so many half-lives would still have its copy, were none lost to dirty data: three of 0.3 fast slots in misses
/// are as many misses as there are slots, nearly.
const REUSED: u64 = 1 << 3;

/// What is known of an extent when it is asked for.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// It was used within a half-life.
    known: bool,
    /// It was used so lately that a copy made then would still be there, were none lost to dirty data.
    reused: bool,
}

fn millis(t: Nanos) -> u32 {
    (t.0 / 1_000_000) as u32
}

impl Benefit {
    fn has(&self, part: Part) -> bool {
        self.settings.without.has(part)
    }
    /// What an extent is worth, nanoseconds of device time.
    fn worth(&self, view: &View<'_>, e: UnitId) -> u64 {
        self.settings.order.worth(view, self.scores.worth(e), e)
    }
    fn half_life(&self) -> u32 {
        if self.settings.half_life == 0 {
            return 0;
        }
        let misses = u64::from(self.fast) * u64::from(self.settings.half_life) / 1000;
        u32::try_from(misses).unwrap_or(u32::MAX).max(1)
    }
    /// Nanoseconds that an access saves on the fast device. A write that a disk's cache takes at once is a debt of a seek.
    fn saves_time(view: &View<'_>) -> u64 {
        let (fast, slow) = (view.cost(FAST), view.cost(view.slowest()));
        slow.read.0.saturating_sub(fast.read.0).max(1)
    }
    /// What that is worth, with all that counts.
    fn saves(&self, view: &View<'_>) -> u64 {
        let (fast, slow) = (view.cost(FAST), view.cost(view.slowest()));
        let w = &self.settings.weights;
        let wake = if self.is_spared(view) {
            w.wake(slow)
        } else {
            0
        };
        w.read(slow)
            .saturating_sub(w.read(fast))
            .max(1)
            .saturating_add(wake)
    }
    /// The slow device sleeps, and that is worth something.
    fn is_spared(&self, view: &View<'_>) -> bool {
        self.settings.weights.spares_sleep() && view.load(view.slowest()).asleep
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
        let units = view.units();
        self.fast = view.positions(FAST).end;
        self.scores = Scores::new(units, self.half_life());
        Order::attach(view);
        self.regions = Regions::new(units);
        self.dirty = BitTree::new(units as usize);
        self.written = vec![millis(view.now()); self.fast as usize];
        let saves = self.saves(view);
        self.account = Account::open(Benefit::slow_read(view));
        for (s, e) in view.residents(FAST) {
            if view.copy(e) == Some(s) {
                // After a restart all that is there is worth one access.
                self.scores.touch(e, saves);
                self.mark(e, view.is_dirty(e));
            }
        }
        if self.dirty_count > 0 {
            self.next = Some(view.now() + self.settings.idle);
        }
    }
    fn make_room(&mut self, view: &mut View<'_>, _access: &Access, wanted: &mut Vec<Action>) {
        wanted.extend(self.room_for_home(view));
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_uncopied(&mut self, _view: &mut View<'_>, extent: UnitId, _slot: Position) {
        self.mark(extent, false);
    }
    fn on_discarded(&mut self, _view: &mut View<'_>, extent: UnitId, _slot: Position) {
        self.scores.forget(extent);
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let extent = access.extent;
        view.set_last(extent, access.now);
        let (goes_on, run) = self.streams.note(access);
        let saves = self.saves(view);
        self.sees(view, access, goes_on);
        let before = self.scores.worth(extent);
        let seen = Seen {
            known: before.saturating_mul(2) >= saves,
            reused: before.saturating_mul(REUSED) >= saves,
        };
        let counts = self.settings.order.counts(view, access, goes_on, saves);
        self.scores.touch(extent, counts);
        let copied = access.copy.is_some_and(|c| view.tier_of(c) == FAST);
        if access.home.is_some_and(|h| view.tier_of(h) == FAST) {
            // Its home is on flash: nothing is saved beyond that.
        } else if copied && (access.write || view.holds(access)) {
            let saved = if access.write {
                Benefit::debt(view).0
            } else {
                Benefit::saves_time(view)
            };
            self.account.earn(saved, Benefit::slow_read(view));
        } else {
            if copied {
                self.regions.lacked(extent);
            }
            let load = view.load(view.slowest());
            if load.waiting == 0 {
                self.gaps.ended(load.quiet);
            }
            if self.cleaning > 0 {
                self.harm.comes(access.now, Benefit::slow_read(view) / 2);
                let takes = if access.write {
                    Benefit::debt(view).0
                } else {
                    Benefit::slow_read(view)
                };
                self.batches.beside(takes);
            }
            if !access.write {
                self.reads_slow(access.now);
            } else if !goes_on {
                self.owes(access.now, Benefit::debt(view));
            }
            self.scores.missed();
            self.miss(view, access, run, seen, wanted);
        }
        if self.dirty_count > 0 && self.next.is_none() {
            self.next = Some(access.now + self.settings.idle);
        }
        if self.cleaning == 0 && self.regret.is_any() && self.regret.pays(self.batch_takes(view)) {
            self.next = Some(access.now);
        }
    }
    fn write_to(&mut self, view: &mut View<'_>, access: &Access) -> WriteTo {
        let e = access.extent;
        let (answer, read) = (view.latencies(FAST).write.0, Benefit::slow_read(view));
        if self.passes_copy_by(view, e) {
            self.shadow.passed(e, answer, read);
            return WriteTo::Home;
        }
        self.shadow.flash_takes(e, answer, read);
        self.mark(e, true);
        if let Some(s) = view.copy(e)
            && let Some(w) = self.written.get_mut(s.index() as usize)
        {
            *w = millis(access.now);
        }
        self.next.get_or_insert(access.now + self.settings.idle);
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
                    self.batches.ended(view.now());
                }
                self.mark(extent, view.is_dirty(extent));
                if self.dirty_count > 0 {
                    self.next.get_or_insert(view.now() + Nanos::from_millis(5));
                }
            }
            Action::Move { to, .. } if to != FAST => self.down = self.down.saturating_sub(1),
            Action::Evict { .. } => {}
            _ => {
                // No extent is in it twice.
                if let Some(i) = self.coming.iter().position(|e| *e == extent) {
                    self.coming.swap_remove(i);
                }
            }
        }
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        if self.next.is_none_or(|t| t > view.now()) {
            return;
        }
        if self.dirty_count == 0 || self.cleaning > 0 {
            // The last clean to settle asks again.
            self.next = None;
            return;
        }
        let (patience, quiet) = (self.settings.idle, self.quiet(view));
        self.next = Some(if self.regret.pays(self.batch_takes(view)) {
            self.clean_for_room(view, wanted);
            view.now() + patience
        } else if quiet >= patience {
            self.clean(view, quiet, wanted);
            // If nothing was settled.
            view.now() + patience.max(Nanos::from_millis(100))
        } else {
            view.now() + Nanos(patience.0 - quiet.0)
        });
    }
    fn next_wake(&self) -> Option<Nanos> {
        self.next
    }
    fn move_rules(&self) -> MoveRules {
        MoveRules {
            limit: self.has(Part::Riding).then_some(MOVES),
            ..MoveRules::default()
        }
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        let homes = self.settings.homes;
        self.settings.set(key, value)?;
        if self.fast > 0 && self.settings.homes != homes {
            self.settings.homes = homes;
            return Err(ParamError::Range("0 or 1, before the volume is opened"));
        }
        let half_life = self.half_life();
        self.scores.set_half_life(half_life);
        Ok(())
    }
    fn set_name(&mut self, key: &str, name: &str) -> Result<(), ParamError> {
        self.settings.set_name(key, name)
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        self.settings.list()
    }
    fn names(&self) -> Vec<(&'static str, String)> {
        self.settings.names()
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let ms = |ns: u64| ns as f64 / 1e6;
        let what = match view.copy(extent) {
            Some(_) if view.is_dirty(extent) => "a dirty copy",
            Some(_) => "a clean copy",
            None if Benefit::lives_fast(view, extent) => "its home is on flash",
            None => "no copy",
        };
        format!(
            "{what}; its accesses cost the slow device {:.1} ms lately, an access saves {:.2} ms, a copy must be worth {:.2} ms \
             more than the one that goes (goal {}); {} of {} fast slots are dirty; copies have saved {:.0} ms more than they cost \
             (within bounds)",
            ms(self.worth(view, extent)),
            ms(self.saves(view)),
            ms(self.price(view, extent)),
            self.settings.weights.name(),
            self.dirty_count,
            self.fast,
            self.account.balance() as f64 / 1e6,
        )
    }
    fn bytes(&self) -> usize {
        self.scores.bytes()
            + self.dirty.bytes()
            + self.streams.bytes()
            + self.regions.bytes()
            + self.written.capacity() * 4
    }
}
