//! Moves under way, and what limits them. What happens to them is in `moves.rs` and `copies.rs`.

use crate::bits::Bits;
use crate::engine::Params;
use crate::engine::by_extent::ByExtent;
use crate::policy::{Action, Outcome};
use crate::stats::Histogram;
use crate::units::{ExtentId, Nanos, Slot};
use alloc::vec::Vec;

/// Moves whose copies are complete wait at most this long for company, so that one flush serves a batch, when somebody waits for
/// one of them.
const BATCH_WAIT: Nanos = Nanos::from_millis(5);
/// The longest that they wait when nobody does. Otherwise they wait twice as long as the last such round took: moves then keep
/// the devices flushing for a third of the time at most.
const CALM_WAIT_MAX: Nanos = Nanos::from_millis(100);
/// Copied moves that are reason enough for a round: a disk writes so many at random places in about 0.2 s, for which requests wait.
const BATCH: u32 = 32;
/// Moves that read or write at once, where neither policy nor settings say how many. More of them would only stand in the
/// devices' queues, before requests.
pub(super) const AT_WORK: u32 = 16;
/// How often foreground latency is judged against its limit.
const FEEDBACK_EVERY: Nanos = Nanos::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Reading,
    /// Read, waits for the others of its batch.
    Gathered,
    Writing,
    /// Copied, waits for a round.
    Copied,
    /// Its record is part of the current round.
    Committing,
}

/// What a move is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Home to a slot on another tier, which becomes the home.
    Rehome,
    /// Home to a free slot on a faster tier, which becomes a copy.
    Fetch,
    /// Home to the copy that is there already: what that lacks.
    Fill,
    /// Copy to a free slot on another tier, which becomes the copy.
    Relocate,
    /// Dirty blocks of the copy to the home.
    Clean {
        /// Then give up the copy.
        evict: bool,
    },
}

/// A move under way.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Move {
    pub(super) action: Action,
    pub(in crate::engine) extent: ExtentId,
    pub(super) src: Slot,
    pub(in crate::engine) dst: Slot,
    pub(super) kind: Kind,
    pub(super) up: bool,
    /// The engine's own idea: the policy does not hear of it.
    pub(super) own: bool,
    pub(super) step: Step,
    /// Operations in flight.
    pub(super) left: u32,
    pub(super) failed: bool,
    /// Overtaken by a write or discard: the copy must not be used.
    pub(in crate::engine) stale: bool,
    /// Bytes of the wear budget that are set aside for it.
    pub(super) owed: u32,
    /// The event that it was started in.
    pub(super) batch: u32,
    /// It is part of the operation of the move before it, and no limit counts it.
    pub(super) rides: bool,
}

impl Move {
    /// Is what it carries in its buffer?
    pub(in crate::engine) fn has_buffer(&self) -> bool {
        self.step != Step::Reading
    }
    /// Has it come to nothing?
    pub(super) fn lost(&self) -> Option<Outcome> {
        if self.failed {
            Some(Outcome::Failed)
        } else {
            self.stale.then_some(Outcome::Stale)
        }
    }
    /// Is its record being written?
    pub(in crate::engine) fn is_committing(&self) -> bool {
        self.step == Step::Committing
    }
    /// To a faster tier?
    pub(in crate::engine) fn is_promotion(&self) -> bool {
        self.up
    }
    /// Does it write dirty blocks home?
    pub(in crate::engine) fn is_clean(&self) -> bool {
        matches!(self.kind, Kind::Clean { .. })
    }
    /// Does it write where the extent's blocks are, or may come to be, while it is under way? Then giving it up is not
    /// enough: its writes must have ended before anybody else writes there.
    pub(in crate::engine) fn writes_in_place(&self) -> bool {
        matches!(self.kind, Kind::Fill | Kind::Clean { .. })
    }
}

/// Moves under way, and what limits them.
#[derive(Clone)]
pub(super) struct Moves {
    list: Vec<Option<Move>>,
    /// By extent: the index of its move. An extent has one move at most.
    by_extent: ByExtent<u16>,
    /// By index: is there a move?
    busy: Bits,
    /// By move: the blocks that it is about, for those that are not about all.
    pub(super) parts: Vec<Bits>,
    active: u32,
    /// Of those that read or write, the ones that are part of another's operation.
    riders: u32,
    /// Since when a copied move waits for a round.
    copied_since: Option<Nanos>,
    copied: u32,
    /// How long they wait when nobody waits for them; not at all until a round showed what it costs.
    calm_wait: Nanos,
    pub(super) bytes_per_s: Option<u64>,
    /// Bytes that may be moved now; negative after a burst.
    pub(super) budget: i64,
    refilled: Nanos,
    /// Moves allowed by latency feedback.
    allowed: u32,
    window: Histogram,
    window_start: Nanos,
}

impl core::fmt::Debug for Moves {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.list.iter().flatten()).finish()
    }
}

impl Moves {
    pub(super) fn new(p: &Params) -> Moves {
        let n = p.move_buffers.max(1);
        Moves {
            list: alloc::vec![None; usize::from(n)],
            by_extent: ByExtent::new(usize::from(n)),
            busy: Bits::new(usize::from(n)),
            parts: alloc::vec![Bits::default(); usize::from(n)],
            active: 0,
            riders: 0,
            copied_since: None,
            copied: 0,
            calm_wait: Nanos(0),
            bytes_per_s: p.move_bytes_per_s,
            budget: 0,
            refilled: Nanos(0),
            allowed: AT_WORK,
            window: Histogram::default(),
            window_start: Nanos(0),
        }
    }
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }
    /// Moves under way.
    pub(super) fn active(&self) -> u32 {
        self.active
    }
    /// The move of an extent.
    #[inline]
    pub(super) fn of(&self, e: ExtentId) -> Option<u16> {
        self.by_extent.get(e)
    }
    pub(super) fn get(&self, i: u16) -> Move {
        self.list[usize::from(i)].expect("move not under way")
    }
    /// The move in buffer `i`, if there is one.
    pub(super) fn at(&mut self, i: u16) -> Option<&mut Move> {
        self.list[usize::from(i)].as_mut()
    }
    /// The first buffer from `i` on that has a move.
    pub(super) fn next_busy(&self, i: u16) -> Option<u16> {
        let (i, n) = (usize::from(i), self.list.len());
        let next = i + self.busy.run(i.min(n), n, false);
        (next < n).then_some(next as u16)
    }
    /// Moves under way, in the order of their buffers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Move)> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            let i = self.next_busy(at)?;
            at = i + 1;
            self.list[usize::from(i)].as_ref().map(|m| (i, m))
        })
    }
    /// A move starts in a free buffer. One whose extent has a move already is the caller's bug: the gate would not know of both.
    pub(super) fn put(&mut self, i: u16, m: Move) {
        assert!(
            self.of(m.extent).is_none() && self.is_free(i),
            "the extent has a move, or the buffer is in use"
        );
        *self.by_extent.entry(m.extent) = i;
        self.busy.set(usize::from(i));
        self.active += 1;
        self.count(&m, true);
        self.list[usize::from(i)] = Some(m);
    }
    /// A move ended. Its buffer is free.
    pub(super) fn take(&mut self, i: u16) -> Move {
        let m = self.get(i);
        self.list[usize::from(i)] = None;
        self.by_extent.remove(m.extent);
        self.busy.clear(usize::from(i));
        self.active -= 1;
        self.count(&m, false);
        m
    }
    /// Counts a move in (or out) as its step is.
    fn count(&mut self, m: &Move, come: bool) {
        let copied = m.step == Step::Copied;
        let rides = m.rides && !matches!(m.step, Step::Copied | Step::Committing);
        let by = |n: &mut u32, one: bool| {
            if come {
                *n += u32::from(one);
            } else {
                *n -= u32::from(one);
            }
        };
        by(&mut self.copied, copied);
        by(&mut self.riders, rides);
    }
    /// Does a request wait for it?
    pub(super) fn is_foreground(&self, i: u16) -> bool {
        self.list[usize::from(i)].is_some_and(|m| m.up && !m.own)
    }
    pub(super) fn is_background(&self, i: u16) -> bool {
        self.list[usize::from(i)].is_some_and(|m| m.own || !m.up)
    }
    pub(super) fn step(&mut self, i: u16, step: Step) {
        if let Some(m) = self.list[usize::from(i)] {
            self.count(&m, false);
            let m = Move { step, ..m };
            self.count(&m, true);
            self.list[usize::from(i)] = Some(m);
        }
    }
    pub(super) fn committing(&mut self, i: u16) {
        self.step(i, Step::Committing);
    }
    pub(super) fn mark_stale(&mut self, i: u16) {
        if let Some(m) = &mut self.list[usize::from(i)] {
            m.stale = true;
        }
    }
    /// Copied moves that wait for a round, as (index, extent, destination), and the members that must be flushed for them.
    pub(super) fn copied(&self) -> impl Iterator<Item = (u16, Move)> + '_ {
        let waits = |m: &Move| m.step == Step::Copied && !m.stale;
        let all = (self.copied > 0).then(|| self.iter());
        let copied = all.into_iter().flatten();
        copied.filter_map(move |(i, m)| waits(m).then_some((i, *m)))
    }
    /// A write to blocks `from..to` is about to be issued: what move `i` read of them is old.
    pub(super) fn overtake(&mut self, i: u16, from: u32, to: u32) {
        self.parts[usize::from(i)].fill(from as usize, to as usize, false);
    }
    /// The first run of blocks of move `i` at or after `from`, of `blocks`.
    pub(super) fn part(&self, i: u16, from: u32, blocks: u32) -> Option<(u32, u32)> {
        let bits = &self.parts[usize::from(i)];
        let skip = bits.run(from as usize, blocks as usize, false) as u32;
        let a = from + skip;
        let n = bits.run(a as usize, blocks as usize, true) as u32;
        (n > 0).then_some((a, a + n))
    }
    pub(super) fn has_free(&self) -> bool {
        (self.active as usize) < self.list.len()
    }
    /// Is buffer `i` free?
    pub(super) fn is_free(&self, i: u16) -> bool {
        self.list.get(usize::from(i)).is_some_and(Option::is_none)
    }
    /// Where the longest run of free buffers starts: those that follow may be joined.
    pub(super) fn longest_free(&self) -> Option<u16> {
        let (mut at, mut start, mut longest) = (0, 0, 0);
        while at < self.list.len() {
            let free = self.busy.run(at, self.list.len(), false);
            if free > longest {
                (start, longest) = (at, free);
            }
            at += free;
            at += self.busy.run(at, self.list.len(), true);
        }
        (longest > 0).then_some(start as u16)
    }
    /// The policy that asked for these is gone.
    pub(super) fn disown(&mut self) {
        for m in self.list.iter_mut().flatten() {
            m.own = true;
        }
    }
    /// Moves that still read or write. One that only waits for its record burdens nobody.
    pub(super) fn at_work(&self) -> u32 {
        self.active - self.copied
    }
    /// Those of them that cost the slower device an operation of its own: what MCML counts.
    pub(super) fn copying(&self) -> u32 {
        self.at_work() - self.riders
    }
    /// Should a round be started for the moves that wait? `urgent`: somebody waits for an extent or a slot.
    pub(super) fn want_round(&self, now: Nanos, urgent: bool) -> bool {
        let Some(since) = self.copied_since else {
            return false;
        };
        // With half of the buffers waiting, the other half goes on copying while the round is under way.
        self.copied >= BATCH.min(self.list.len() as u32 / 2).max(1)
            || self.active as usize == self.list.len()
            || (urgent && self.copied == self.active)
            || now.since(since) >= self.wait(urgent)
    }
    /// When [`Moves::want_round`] will say so if nothing else happens.
    pub(super) fn next_wake(&self, urgent: bool) -> Option<Nanos> {
        self.copied_since.map(|t| t + self.wait(urgent))
    }
    fn wait(&self, urgent: bool) -> Nanos {
        if urgent {
            BATCH_WAIT.min(self.calm_wait)
        } else {
            self.calm_wait
        }
    }
    /// A round that carried moves took that long.
    pub(super) fn round_took(&mut self, time: Nanos) {
        self.calm_wait = Nanos(time.0.saturating_mul(2)).min(CALM_WAIT_MAX);
    }
    /// `count` moves from `index` on begin to write to the fastest tier: how much of it was set aside before.
    pub(super) fn pay(&mut self, index: u16, count: u16, len: u32) -> u32 {
        let mut paid = 0;
        let moves = self.list.iter_mut().skip(usize::from(index));
        for m in moves.take(usize::from(count)).flatten() {
            let part = m.owed.min(len - paid);
            m.owed -= part;
            paid += part;
        }
        paid
    }
    /// Is more under way than the bandwidth for moves allows?
    pub(super) fn is_overdrawn(&self) -> bool {
        self.bytes_per_s.is_some() && self.budget < 0
    }
    pub(super) fn set_rate(&mut self, bytes_per_s: Option<u64>) {
        if self.bytes_per_s.is_none() {
            // What was moved while there was no limit is not owed.
            self.budget = 0;
        }
        self.bytes_per_s = bytes_per_s;
    }
    pub(super) fn refill(&mut self, now: Nanos) {
        if let Some(rate) = self.bytes_per_s {
            let ms = (now.since(self.refilled).0 / 1_000_000).min(1000);
            if ms > 0 {
                self.refilled = now;
                // A second's worth at most: a long idle time does not become a burst.
                self.budget = self
                    .budget
                    .saturating_add((ms * rate / 1000) as i64)
                    .min(rate as i64);
            }
        }
    }
    /// A foreground request took `latency`: over the limit, moves are halved; under it, one more is allowed.
    pub(super) fn foreground(&mut self, now: Nanos, latency: Nanos, limit: Option<Nanos>) {
        let Some(limit) = limit else { return };
        self.window.add(latency);
        if now.since(self.window_start) >= FEEDBACK_EVERY {
            let over = self.window.quantile(0.99) > limit;
            self.allowed = if over {
                self.allowed / 2
            } else {
                (self.allowed + 1).min(AT_WORK)
            };
            self.window.clear();
            self.window_start = now;
        }
    }
    /// Moves that latency feedback allows. Without a limit, or without traffic that could suffer, all of them.
    pub(super) fn allowed(&mut self, now: Nanos, limit: Option<Nanos>) -> u32 {
        if limit.is_none() {
            return u32::MAX;
        }
        if now.since(self.window_start) >= FEEDBACK_EVERY + FEEDBACK_EVERY {
            self.allowed = AT_WORK;
        }
        self.allowed
    }
    /// Some move was copied, or is no longer: since when does one wait for a round?
    pub(super) fn waits_since(&mut self, now: Nanos) {
        self.copied_since = if self.copied == 0 {
            None
        } else {
            self.copied_since.or(Some(now))
        };
    }
}
