//! The data that a previous policy leaves behind.
//!
//! The new policy takes over at once, with the space as it is. Data at places that it does not use (copies, if it keeps none; homes on the
//! faster tiers, if it keeps copies there) is moved away in the background while the volume is served; dirty copies are written home first.
//! If the policy keeps copies but leaves none dirty (a write mode that writes through or around), dirty copies are written home and stay.
//! The same happens when a volume is opened with such a policy, so a crash in the meantime does no harm. It also happens once when the user
//! asks for it ([`Engine::clean`]); then no sleeping disk is spared.
//!
//! [`Engine::clean`]: crate::Engine::clean

use super::age::Ages;
use super::limit::{Attempts, Limit};
use super::sleep::ASK_AGAIN;
use super::{Background, SLOTS_PER_STEP};
use crate::engine::globals::Globals;
use crate::engine::parts::Parts;
use crate::mutants::Mutant;
use crate::policy::{Action, Policy, Uses};
use crate::units::{ExtentId, Nanos, Slot, TierId};
use crate::volume::{Geometry, Space};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

/// Delay before the next step, so that a long list does not stall requests.
const NEXT: Nanos = Nanos::from_millis(1);
/// Delay before the next attempt, if data could not be moved now.
const AGAIN: Nanos = Nanos::from_millis(20);

/// Largest memory, in bytes, that a policy may need for the extents of a cache volume, whose other memory follows from the flash.
pub const PER_UNIT_MOST: u64 = 256 << 20;

/// Reason why a policy cannot take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchError {
    /// A policy that places homes, for a cache volume, whose homes have fixed places.
    FixedHomes,
    /// The slowest tier cannot hold all homes: extents of the volume, slots there.
    TooSmall {
        /// Extents of the volume.
        extents: u32,
        /// Slots of the slowest tier.
        slots: u32,
    },
    /// The policy keeps something for each extent of the volume, and together that is more than [`PER_UNIT_MOST`].
    PerExtent {
        /// Name of the policy.
        policy: &'static str,
        /// Bytes for each extent.
        each: u32,
        /// Bytes for all of them.
        all: u64,
    },
    /// The metadata areas have no room for copies.
    NoRoom,
    /// The volume is closing, failed, or serves reads only.
    Closed,
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwitchError::FixedHomes => write!(
                f,
                "this is a cache volume: each block has its home on the slow tier, at its own address, and only copies are placed. The policy places homes: create a tiering volume for it (`create --policy` with it, or `--capacity all`) and copy the data"
            ),
            SwitchError::TooSmall { extents, slots } => write!(
                f,
                "a caching policy keeps all of the volume on the slowest tier: that has {slots} slots for {extents} extents. Create a volume for caching instead"
            ),
            SwitchError::PerExtent { policy, each, all } => write!(
                f,
                "{policy} keeps {each} bytes of memory for each extent of the slow tier, as its authors describe it: {} MiB for this volume, and {} MiB are allowed. The other caching policies need memory for the flash only; or create the volume with larger extents",
                all >> 20,
                PER_UNIT_MOST >> 20
            ),
            SwitchError::NoRoom => write!(
                f,
                "the volume's metadata areas have no room for copies (it was created by an older isotherm, or has one tier)"
            ),
            SwitchError::Closed => write!(f, "the volume is closing, failed or read-only"),
        }
    }
}

/// The data that the present policy has no use for, and that is being removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Nothing.
    None,
    /// Copies are evicted: the number that is left.
    Copies(u32),
    /// Homes on the faster tiers are moved down: at most this number is left.
    Homes(u32),
    /// Dirty copies are written home and stay: the number that is left.
    Dirty(u32),
}

/// How far it is that the user wants everything at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Nobody has asked.
    No,
    /// Dirty copies are written home.
    Data,
    /// A round is to bring the marks of the disks to what is dirty.
    Marks,
    /// That round has begun.
    Written,
}

/// Progress of the removal.
#[derive(Clone, Debug)]
pub(super) struct Draining {
    uses: Uses,
    /// Whether the policy leaves no copy dirty.
    cleans: bool,
    /// Whether the user has asked to write home what is dirty.
    asked: Asked,
    /// What is dirty for too long.
    pub(super) ages: Ages,
    /// What is dirty beyond the limit.
    pub(super) limit: Limit,
    /// Whether dirty data can be written home.
    pub(super) attempts: Attempts,
    /// Time of the next step. `None`: done, or nothing to do.
    next: Option<Nanos>,
    /// The first slot that was not examined yet since the policy took over.
    hand: u32,
    /// Slots to examine besides: those to which data has come since, and those whose data could not be moved yet, or is being moved.
    again: VecDeque<Slot>,
}

impl Draining {
    /// How the policy uses the faster tiers.
    pub(super) fn uses(&self) -> Uses {
        self.uses
    }
    pub(super) fn new(policy: &dyn Policy, space: &Space) -> Draining {
        let (uses, cleans) = (policy.uses(), !policy.keeps_dirty());
        let fast = space.geo.tier_slots(space.geo.slowest()).start;
        let free = |t| space.slots.free(TierId(t)) + space.slots.lost(TierId(t));
        let used: u32 = fast - (0..space.geo.slowest().0).map(free).sum::<u32>();
        let due = match uses {
            Uses::Homes => space.map.copied() > 0,
            Uses::Copies => used > space.map.copied(),
            Uses::Both => false,
        };
        let due = due || cleans && space.map.dirty() > 0;
        Draining {
            uses,
            cleans,
            asked: Asked::No,
            ages: Ages::default(),
            limit: Limit::default(),
            attempts: Attempts::default(),
            next: due.then_some(Nanos(0)),
            // If there is nothing to remove yet, what comes is reported.
            hand: if due { 0 } else { fast },
            again: VecDeque::new(),
        }
    }
    /// Dirty copies are written home, all that there are now.
    fn clean(&mut self) {
        (self.asked, self.hand, self.next) = (Asked::Data, 0, Some(Nanos(0)));
    }
    /// Whether all dirty data is being written home.
    pub(super) fn cleans_all(&self) -> bool {
        self.next.is_some() && (self.cleans || self.asked != Asked::No || self.limit.cleans())
    }
    /// What was dirty for too long or too much under another policy (`before`) is removed under this one, too.
    pub(super) fn go_on_with(&mut self, before: Draining) {
        (self.ages, self.limit, self.attempts) = (before.ages, before.limit, before.attempts);
        if self.limit.cleans() {
            self.begin(Nanos(0));
        }
        let old: Vec<Slot> = self.ages.all_old();
        for slot in old {
            self.look_at(slot, Nanos(0));
        }
    }
    /// There is data to remove somewhere.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.next = Some(self.next.map_or(now, |t| t.min(now)));
    }
    /// There is data to remove in `slot`.
    pub(super) fn look_at(&mut self, slot: Slot, now: Nanos) {
        self.next.get_or_insert(now + AGAIN);
        self.again.push_back(slot);
    }
    /// Makes the next step due now, if there is one: a batch of background work begins, and the removal belongs to it.
    pub(super) fn make_due(&mut self, now: Nanos) {
        self.next = self.next.map(|t| t.min(now));
    }
}

/// Whether a policy can run on a volume of this shape. `has_room`: the volume's checkpoints have room for copies.
///
/// # Errors
/// The reason why it cannot.
pub fn fits(geo: &Geometry, has_room: bool, policy: &dyn Policy) -> Result<(), SwitchError> {
    let slow = geo.tier_slots(geo.slowest());
    let slots = slow.end - slow.start;
    let each = policy.unit_bytes();
    let all = u64::from(each) * u64::from(geo.extents);
    match policy.uses() {
        _ if geo.is_cache() && all > PER_UNIT_MOST => Err(SwitchError::PerExtent {
            policy: policy.name(),
            each,
            all,
        }),
        Uses::Homes | Uses::Both if geo.is_cache() => Err(SwitchError::FixedHomes),
        Uses::Homes => Ok(()),
        _ if !has_room => Err(SwitchError::NoRoom),
        Uses::Copies if slots < geo.extents => Err(SwitchError::TooSmall {
            extents: geo.extents,
            slots,
        }),
        _ => Ok(()),
    }
}

impl Background {
    /// The kind of data that is being removed, and the amount that is left.
    pub(in crate::engine) fn draining(&self, space: &Space) -> Drain {
        if self.drain.next.is_none() {
            return Drain::None;
        }
        let (geo, slots) = (&space.geo, &space.slots);
        let fast = geo.tier_slots(geo.slowest()).start;
        let free = |t| {
            let t = TierId(t);
            slots.free(t) + slots.freeing(t) + slots.lost(t)
        };
        let used = fast - (0..geo.slowest().0).map(free).sum::<u32>();
        match self.drain.uses {
            Uses::Homes => Drain::Copies(space.map.copied()),
            Uses::Copies if used > space.map.copied() => Drain::Homes(used - space.map.copied()),
            _ if self.drain.cleans || self.drain.asked != Asked::No => {
                Drain::Dirty(space.map.dirty())
            }
            // What is only old is everyday work.
            Uses::Copies | Uses::Both if self.drain.hand >= fast => Drain::None,
            _ => Drain::Homes(0),
        }
    }
    /// Whether the existing copies are being evicted because the policy does not use them.
    pub(in crate::engine) fn evicts_all_copies(&self) -> bool {
        self.drain.next.is_some() && self.drain.uses == Uses::Homes
    }
    /// Whether the user waits for what is dirty to be at home.
    pub(in crate::engine) fn is_asked(&self) -> bool {
        self.drain.asked != Asked::No
    }
    /// Whether there is data to remove.
    pub(in crate::engine) fn removes(&self) -> bool {
        self.drain.next.is_some()
    }
    /// The time of the next step of the removal, or of a look for old data; `None` if there is nothing to remove.
    pub(in crate::engine) fn drain_due(&self) -> Option<Nanos> {
        Nanos::earlier(self.drain.next, self.drain.ages.due())
    }
}

impl Background {
    /// A round that flushes the disks begins. Returns whether it must remove the marks that are not needed.
    pub(in crate::engine) fn wants_exact_marks(&mut self) -> bool {
        let wants = self.drain.asked == Asked::Marks;
        if wants {
            self.drain.asked = Asked::Written;
        }
        wants
    }
}

impl Globals {
    /// The user wants what is dirty now to be at home soon.
    pub(in crate::engine) fn clean(&mut self) {
        self.background.drain.clean();
    }

    /// Data arrived in `slot` by a move that was in progress when the policy changed, or (a home) because the slowest tier was full for a
    /// moment. If the policy does not use that place, the data is moved away again.
    pub(in crate::engine) fn check_place(&mut self, slot: Slot, is_copy: bool) {
        let unwanted = match self.background.drain.uses {
            Uses::Homes => is_copy,
            Uses::Copies => !is_copy && self.space.geo.tier_of(slot) != self.space.geo.slowest(),
            Uses::Both => false,
        };
        if unwanted {
            self.background.drain.look_at(slot, self.clock);
        }
    }

    /// A write made a copy dirty. If the policy leaves no copy dirty (the write was in progress when it took over), it is written home.
    #[inline]
    pub(in crate::engine) fn copy_became_dirty(&mut self, e: ExtentId) {
        self.heed_limit(0);
        if self.background.drain.cleans
            && let Some(slot) = self.space.map.copy(e)
        {
            self.background.drain.look_at(slot, self.clock);
        }
    }
}

/// The result of a look at a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is nothing to remove.
    Nothing,
    /// The removal has begun. It may still fail.
    Begun,
    /// The data is in use, or has no other place at the moment.
    InUse,
    /// No more data can be moved at the moment.
    NoBuffer,
}

impl Parts<'_> {
    /// Examines some slots for data that the policy does not use.
    pub(in crate::engine) fn drain_step(&mut self) {
        let now = self.globals.clock;
        self.age_step();
        let written = self.globals.counters.written_back_bytes;
        self.globals.background.note_pace(now, written);
        if self.drain().next.is_none_or(|t| t > now) {
            return;
        }
        let fast = self.globals.fast_slots();
        let asked = self.drain().asked != Asked::No;
        let dirty = self.globals.space.map.all_dirty_blocks();
        self.drain().limit.look(dirty, 0);
        let limited = self.drain().limit.cleans();
        if !asked
            && !limited
            && self
                .globals
                .may_disturb(&[], self.durability.mirror())
                .is_err()
        {
            self.drain().next = Some(now + ASK_AGAIN);
            return;
        }
        let known = self.drain().again.len() as u32;
        let mut moved = false;
        for i in 0..SLOTS_PER_STEP {
            let drain = self.drain();
            let s = if i < known {
                drain.again.pop_front()
            } else {
                (drain.hand < fast).then_some(Slot(drain.hand))
            };
            let Some(s) = s else { break };
            drain.hand += u32::from(i >= known);
            self.globals.steps += 1;
            let how = self.drain_slot(s);
            if how == Step::Nothing {
                self.drain().ages.is_clean(s);
            } else {
                self.drain().again.push_back(s);
            }
            if how == Step::NoBuffer {
                break;
            }
            moved |= how == Step::Begun;
        }
        moved |= self.limit_step();
        let rest = self.rest();
        let drain = self.drain();
        let left = drain.hand < fast || !drain.again.is_empty();
        // What is in use is looked at later. The rest of the slots is examined at once.
        let next = if moved || (drain.again.is_empty() && !limited) {
            NEXT
        } else {
            AGAIN
        };
        drain.next = (left || limited).then_some(now + next.max(rest));
        if asked && !left {
            self.finish_asked();
        }
    }

    /// The delay before the next step that failed attempts require.
    fn rest(&mut self) -> Nanos {
        let c = &self.globals.counters;
        // A dirty copy that is evicted counts as written home when it is there.
        let (done, failed) = (c.writebacks.done, c.writebacks.failed + c.evictions.failed);
        self.drain().attempts.note(done, failed)
    }

    /// All that was asked home is there. The marks of the disks are to say so, too: then the flash may be lost.
    fn finish_asked(&mut self) {
        let (is_idle, again) = (self.durability.is_idle(), self.globals.clock + AGAIN);
        let forgets = self.globals.broken(Mutant::AskedForgetsMarks);
        let drain = self.drain();
        match drain.asked {
            Asked::Data if forgets => {
                drain.asked = Asked::No;
                return;
            }
            Asked::Written if is_idle => {
                drain.asked = Asked::No;
                return;
            }
            Asked::Data => drain.asked = Asked::Marks,
            _ => {}
        }
        drain.next = Some(again);
        if self.drain().asked == Asked::Marks {
            self.globals.background.want_round();
        }
    }

    fn drain(&mut self) -> &mut Draining {
        &mut self.globals.background.drain
    }

    /// Begins to remove the data in `s` if the policy does not use it.
    pub(super) fn drain_slot(&mut self, s: Slot) -> Step {
        let (g, r) = (&mut *self.globals, &mut *self.relocation);
        let Some(extent) = g.space.map.owner(s) else {
            return Step::Nothing;
        };
        let is_copy = g.copy_in(s) == Some(extent);
        let drain = &g.background.drain;
        let uses = drain.uses;
        let limited = drain.limit.cleans();
        let wanted = drain.cleans || drain.asked != Asked::No || drain.ages.is_old(s);
        let cleans = wanted || limited;
        let dirty = is_copy && cleans && g.space.map.is_dirty(extent);
        let must_go = match uses {
            Uses::Homes => is_copy,
            Uses::Copies => !is_copy,
            Uses::Both => false,
        };
        if !must_go && !dirty {
            return Step::Nothing;
        }
        // Uses at most half of the buffers, because the policy needs some, too, unless too much is dirty.
        let busy = !limited && r.active() * 2 > r.buffers() as u32;
        if busy || !r.has_buffer() {
            return Step::NoBuffer;
        }
        if r.of(extent).is_some() || g.space.map.is_held(extent) || g.has_writers(extent) {
            return Step::InUse;
        }
        // A home on a middle tier may have a copy on the fastest, which must go before the home can move.
        let covered = !is_copy && g.space.map.copy(extent).is_some();
        if !is_copy && !covered {
            let to = g.space.geo.slowest();
            if r.own_move(g, extent, to) {
                return Step::Begun;
            }
            // A slot may wait for a mirror that sleeps, and nothing else may wake it.
            if g.space.slots.freeing(to) > 0 {
                g.background.want_round();
            }
            return Step::InUse;
        }
        if must_go || covered {
            self.give_up_copy(extent);
        } else {
            r.own_clean(g, Action::Clean { extent });
        }
        Step::Begun
    }

    fn give_up_copy(&mut self, extent: ExtentId) {
        let (g, d, r) = (
            &mut *self.globals,
            &mut *self.durability,
            &mut *self.relocation,
        );
        if g.space.map.is_dirty(extent) {
            r.own_clean(g, Action::Evict { extent });
        } else {
            r.own_eviction(g, d, extent);
        }
    }
}
