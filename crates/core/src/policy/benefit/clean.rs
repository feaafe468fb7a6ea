//! Dirty data goes home: when, and how much at once.

use super::shadow::Seen;
use super::without::Part;
use super::{Benefit, FAST, millis};
use crate::policy::{Access, Action, View};
use crate::units::Nanos;
use crate::volume::UnitId;
use alloc::vec::Vec;

/// Cleans asked for in one call at most, and slots of dirty data looked at to find them.
const CLEANS: usize = 64;
const CLEAN_LOOKS: u32 = 256;
/// Cleans that are worth a commit round of their own, and writes that a round takes the slow device as long as. A round takes two writes at
/// random places, as long as six writes that a cache has sorted: about a quarter of a batch of so many.
const FEW: usize = 16;
const ROUND: usize = 2;
/// The part of flash, one in so many, that must be dirty for cleaning to take half of the time that the slow device is quiet.
const NEEDED: u32 = 4;
/// Cleans in a batch while clean copies are scarce: long batches keep fewer requests waiting for a round.
const SCARCE: usize = 64;
/// Of 256 gaps that lasted so long, how many must go on for as long as a batch takes: while less than half of flash is dirty, and else.
const MOST: u32 = 230;
const HALF: u32 = 200;
/// Of the writes that find the slow device with nothing to do, one in so many goes there.
const PROBES: u32 = 16;

impl Benefit {
    pub(super) fn mark(&mut self, e: UnitId, dirty: bool) {
        if dirty != self.dirty.contains(e.0 as usize) {
            if dirty {
                self.dirty.insert(e.0 as usize);
                self.dirty_count += 1;
            } else {
                self.dirty.remove(e.0 as usize);
                self.dirty_count -= 1;
            }
        }
    }
    fn is_full_of_dirt(&self) -> bool {
        u64::from(self.dirty_count) * 10 > u64::from(self.fast) * 8
    }
    /// What a write to a place of its own takes of the slow device: one that takes writes into a cache owes the seeks.
    fn written_at_random(view: &View<'_>) -> Nanos {
        let slow = view.cost(view.slowest());
        Nanos(slow.write.max(slow.read).0.max(1))
    }
    /// What a write at a random place leaves the slow device to do, which has taken it into its cache.
    pub(super) fn debt(view: &View<'_>) -> Nanos {
        view.cost(view.slowest()).debt(false)
    }
    /// The slow device has more to do.
    pub(super) fn owes(&mut self, now: Nanos, time: Nanos) {
        self.busy = self.busy.max(now) + time;
    }
    /// Since when nobody has asked the slow device for anything, and it had the time to do what it was asked for.
    pub(super) fn quiet(&self, view: &View<'_>) -> Nanos {
        let load = view.load(view.slowest());
        let quiet = if load.waiting > 0 {
            Nanos(0)
        } else {
            load.quiet
        };
        if !self.has(Part::Emptying) {
            return quiet;
        }
        quiet.min(view.now().since(self.busy))
    }
    /// Have settled data written home for a part of the time that the slow device has been quiet. What makes that durable takes it as long as
    /// some writes, so a few are waited for.
    pub(super) fn clean(&mut self, view: &View<'_>, quiet: Nanos, wanted: &mut Vec<Action>) {
        let few = FEW.min(self.dirty_count as usize);
        let room = self.room(view, quiet);
        if room < ROUND + few {
            return;
        }
        let most = room.saturating_sub(ROUND).min(CLEANS);
        self.batch(view, most, u64::MAX, wanted);
    }
    /// Flash is so full of dirty data that this costs more than cleaning a batch: whoever is worth less than those who were missed.
    pub(super) fn clean_for_room(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        let cost = self.batch_takes(view);
        self.regret.paid(cost);
        let before = self.cleaning;
        self.batch(view, SCARCE, self.regret.bar(), wanted);
        let found = u64::from(self.cleaning - before);
        self.batches.begins(view.now(), found);
    }
    /// Nanoseconds of the slow device for such a batch: as measured, or until one was, what its writes and its round should take.
    pub(super) fn batch_takes(&self, view: &View<'_>) -> u64 {
        if let Some(each) = self.batches.each() {
            return each.saturating_mul(SCARCE as u64);
        }
        let each = Benefit::debt(view).max(view.cost(view.slowest()).write);
        each.0 * SCARCE as u64 + ROUND as u64 * Benefit::written_at_random(view).0
    }
    /// Have up to `most` settled copies written home that are worth less than `bar`.
    fn batch(&mut self, view: &View<'_>, most: usize, bar: u64, wanted: &mut Vec<Action>) {
        let (now, urgent) = (millis(view.now()), self.is_full_of_dirt());
        let settled = millis(self.settings.settled);
        let (mut found, mut from) = (0, self.at as usize);
        for _ in 0..CLEAN_LOOKS.min(self.dirty_count) {
            let Some(i) = self
                .dirty
                .first_from(from)
                .or_else(|| self.dirty.first_from(0))
            else {
                break;
            };
            let e = UnitId(i as u32);
            from = i + 1;
            let Some(s) = view.copy(e).filter(|_| view.is_dirty(e)) else {
                if view.in_flight(e) == 0 && !view.is_held(e) {
                    // Its write failed, or it is gone.
                    self.mark(e, false);
                }
                continue;
            };
            let age = self
                .written
                .get(s.index() as usize)
                .map_or(0, |w| now.wrapping_sub(*w));
            let wait = age < settled && !urgent && bar == u64::MAX;
            if view.is_held(e) || wait || self.worth(view, e) >= bar {
                continue;
            }
            wanted.push(Action::Clean { extent: e });
            found += 1;
            if found == most {
                break;
            }
        }
        self.cleaning += found as u32;
        self.at = from as u32;
        if found > 0 {
            let debt = Benefit::debt(view).0;
            let takes = debt * found as u64 + ROUND as u64 * Benefit::written_at_random(view).0;
            self.owes(view.now(), Nanos(debt * (found + ROUND) as u64));
            self.harm.cleans(view.now(), found as u64, takes);
        }
    }
    /// Writes at random places that the slow device may be given now: as long as half of the time that it has been quiet, and no longer
    /// than most gaps go on that lasted so long. The fuller of dirt flash is, the more gaps may end too early.
    ///
    /// While little is dirty, no request lacks a clean copy, so cleaning gains nothing yet, and a batch that ends a gap too late costs as much
    /// as ever. So a part of that half is used: the part of [`NEEDED`] of flash that is dirty.
    fn room(&self, view: &View<'_>, quiet: Nanos) -> usize {
        let each = Benefit::written_at_random(view).0;
        let needed = (self.fast / NEEDED).max(1);
        let part = u128::from(self.dirty_count.min(needed));
        let half = u128::from(quiet.0 / 2) * part / u128::from(needed);
        let room = half as u64 / each;
        let enough = if self.is_half_dirty() { HALF } else { MOST };
        let so_far = view.load(view.slowest()).quiet;
        let mut n = room.min((CLEANS + ROUND) as u64);
        while n > 0 && self.has(Part::Gaps) {
            let more = Nanos(n * each);
            match self.gaps.chance(so_far, more) {
                Some(c) if c < enough => n = n * 2 / 3,
                _ => break,
            }
        }
        n as usize
    }
    fn is_half_dirty(&self) -> bool {
        u64::from(self.dirty_count) * 2 >= u64::from(self.fast)
    }
    /// Does flash, which has a queue, answer writes so late that the slow device would have done one more by then? A small fast device
    /// whose buffer is full does that in a burst of writes.
    fn is_flash_late(&self, view: &View<'_>) -> bool {
        self.has(Part::Late)
            && view.load(FAST).waiting > 0
            && view.latencies(FAST).write >= Benefit::debt(view)
    }
    /// Nanoseconds that a write to the slow device counts: until it is answered, and what it keeps others waiting for.
    fn slow_write(&self, view: &View<'_>) -> u64 {
        let (t, debt) = (view.slowest(), Benefit::debt(view).0);
        let gap = self.reads_gap.max(view.now().since(self.last_read)).0;
        let work = debt / 2 + self.busy.since(view.now()).0;
        let later = u128::from(debt) * u128::from(work) / u128::from(gap.max(1));
        let later = u64::try_from(later).unwrap_or(u64::MAX);
        let waiting = debt.saturating_mul(u64::from(view.load(t).waiting));
        let answer = view.latencies(t).write.0;
        answer.saturating_add(later).saturating_add(waiting)
    }
    /// Should a write go to the slow device, which takes writes into a cache, all told?
    ///
    /// A write leaves that device work to do, which delays a read by half of its time on average, with the chance that a read
    /// comes meanwhile; by all of it while there is older work; and by all of it each of those that wait already. What flash takes
    /// must be cleaned, which costs the requests that come meanwhile what it was seen to cost ([`super::harm`]). While somebody
    /// waits for the slow device or it has work to do, flash takes the write, unless flash is late itself.
    ///
    /// How soon the slow device answers is known from writes that went there; while it has nothing to do, one is sent there now
    /// and then to see. In a burst the answers of a moment ago say nothing of the next, so flash takes it.
    pub(super) fn slow_is_sooner(&mut self, view: &View<'_>, known: bool) -> bool {
        let t = view.slowest();
        let (cost, waiting) = (view.cost(t), view.load(t).waiting);
        if !self.has(Part::Sooner) {
            return false;
        }
        if cost.write.0 * 2 >= cost.read.0 {
            return false;
        }
        if (waiting > 0 || self.busy > view.now()) && !self.is_flash_late(view) {
            return false;
        }
        let slow = self.slow_write(view);
        // What was used lately is written again, and cleaned once for several writes.
        let harm = if self.has(Part::Harm) {
            self.harm.each().min(cost.read.0) / if known { 2 } else { 1 }
        } else {
            0
        };
        slow < view.latencies(FAST).write.0.saturating_add(harm)
            || (self.quiet(view) >= self.settings.idle && self.draw(PROBES) == 0)
    }
    /// The shadow of the slow device alone sees an access.
    pub(super) fn sees(&mut self, view: &View<'_>, access: &Access, goes_on: bool) {
        let seen = Seen {
            extent: access.extent,
            write: access.write,
            goes_on,
            debt: Benefit::debt(view).0,
        };
        let mut slow = *view.cost(view.slowest());
        // Flash is measured by what a write waits for, so the disk is as well: of a batch of writes, each takes it less than one alone.
        let lone = view.latencies(view.slowest()).lone_write;
        if lone.0 > 0 {
            slow.write = lone;
        }
        self.shadow.comes(access.now, &slow, seen);
    }
    /// Writes pass flash by: the slow device alone would have answered them sooner.
    pub(super) fn is_behind(&self, view: &View<'_>) -> bool {
        self.settings.guard
            && self.has(Part::Alone)
            && !self.is_spared(view)
            && self.shadow.is_behind()
    }
    /// A write to an extent with a copy goes home all the same. A clean copy goes then, for which nothing need be made durable; a dirty one
    /// is kept, or that would have to be recorded first.
    pub(super) fn passes_copy_by(&self, view: &View<'_>, e: UnitId) -> bool {
        let is_clean = !self.dirty.contains(e.0 as usize) && !view.is_dirty(e);
        is_clean && self.is_behind(view) && !view.is_held(e)
    }
    /// A read goes to the slow device.
    pub(super) fn reads_slow(&mut self, now: Nanos) {
        let gap = now.since(self.last_read).0;
        self.reads_gap = Nanos((self.reads_gap.0 * 15 + gap) / 16);
        self.last_read = now;
    }
}
