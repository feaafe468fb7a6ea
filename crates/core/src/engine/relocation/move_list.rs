//! The moves in progress, and their limits. The steps of moves are in `moves.rs` and `copies.rs`.

use crate::bits::Bits;
use crate::by_number::ByNumber;
use crate::engine::Params;
use crate::policy::{Action, Outcome};
use crate::stats::Histogram;
use crate::units::{ExtentId, Nanos, Slot};
use alloc::vec::Vec;

/// The longest time that a move whose data is copied waits for a round, if a request waits, too. Some waiting is useful, because one flush
/// then serves several moves.
const BATCH_WAIT: Nanos = Nanos::from_millis(5);
/// The longest such wait if no request waits. The wait is twice the duration of the last round with moves, but at most this: so the devices
/// flush for moves in at most a third of the time. If all moves are copied, a round is due as soon as the last one ended that long ago: a
/// longer wait would only bring its flushes to the next requests.
const CALM_WAIT_MAX: Nanos = Nanos::from_millis(100);
/// How much longer a round of cleans waits until the write caches of the slowest tier are empty. A disk writes its cache while no request
/// waits; a flush makes it write all of that first, about 0.2 s for 64 places, and every request that arrives meanwhile waits. If a disk
/// has hardly any idle time this wait has no effect, so it is only a little longer than such a flush.
const EMPTY_WAIT_MAX: Nanos = Nanos::from_millis(300);
/// Number of copied moves that start a round. A disk needs about 0.2 s to write this number of extents at random places, and requests wait
/// during that time.
const BATCH: u32 = 32;
/// Largest number of moves that read or write at the same time, if neither policy nor settings limit it. More moves would only wait in the
/// devices' queues, and requests would wait behind them.
pub(super) const AT_WORK: u32 = 16;
/// Interval at which foreground latency is compared with its limit.
const FEEDBACK_EVERY: Nanos = Nanos::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Reading,
    /// The source was read. The move waits for the other moves of its batch.
    Gathered,
    /// The source was read. A claim is withdrawn before anything is written to the destination.
    Withdrawing,
    Writing,
    /// The destination was written. The move waits for a round.
    Copied,
    /// Its record is part of the current round.
    Committing,
}

/// The kinds of moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// From the home to a slot on another tier, which becomes the home.
    Rehome,
    /// From the home to a free slot on a faster tier, which becomes a copy.
    Fetch,
    /// From the home to the existing copy: the blocks that the copy lacks.
    Fill,
    /// From the copy to a free slot on another tier, which becomes the copy.
    Relocate,
    /// The dirty blocks of the copy to the home.
    Clean {
        /// Whether the copy is then dropped.
        evict: bool,
    },
}

/// A move in progress.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Move {
    pub(super) action: Action,
    pub(in crate::engine) extent: ExtentId,
    pub(in crate::engine) src: Slot,
    pub(in crate::engine) dst: Slot,
    pub(super) kind: Kind,
    pub(super) up: bool,
    /// Whether the engine itself started it; then the policy is not informed.
    pub(super) own: bool,
    pub(super) step: Step,
    /// Number of its operations in progress.
    pub(super) left: u32,
    pub(super) failed: bool,
    /// Whether a write or discard made it stale: its data must not be used.
    pub(in crate::engine) stale: bool,
    /// Bytes of the wear budget that are reserved for it.
    pub(super) owed: u32,
    /// The event in which it was started.
    pub(super) batch: u32,
    /// Whether it is part of the operation of the previous move, so that the policy's limit does not count it.
    pub(super) joins_previous: bool,
}

impl Move {
    /// Whether its data was read into its buffer.
    pub(in crate::engine) fn has_buffer(&self) -> bool {
        self.step != Step::Reading
    }
    /// The outcome, if it can no longer succeed.
    pub(super) fn lost(&self) -> Option<Outcome> {
        if self.failed {
            Some(Outcome::Failed)
        } else {
            self.stale.then_some(Outcome::Stale)
        }
    }
    /// Whether its record is being written.
    pub(in crate::engine) fn is_committing(&self) -> bool {
        self.step == Step::Committing
    }
    /// Whether it goes to a faster tier.
    pub(in crate::engine) fn is_promotion(&self) -> bool {
        self.up
    }
    /// Whether it writes dirty blocks home.
    pub(in crate::engine) fn is_clean(&self) -> bool {
        matches!(self.kind, Kind::Clean { .. })
    }
    /// Whether it is a clean after which the copy is dropped.
    pub(in crate::engine) fn evicts(&self) -> bool {
        matches!(self.kind, Kind::Clean { evict: true })
    }
    /// Whether it writes to a slot that the extent uses already (its home, or its copy). Then it is not enough to abandon the move: its
    /// writes must have ended before another write goes there.
    pub(in crate::engine) fn writes_in_place(&self) -> bool {
        matches!(self.kind, Kind::Fill | Kind::Clean { .. })
    }
}

/// The moves in progress, and their limits.
#[derive(Clone)]
pub(super) struct Moves {
    list: Vec<Option<Move>>,
    /// By extent: the index of its move. An extent has at most one move.
    by_extent: ByNumber<u16>,
    /// By index: whether there is a move.
    busy: Bits,
    /// For each move that does not concern the whole extent, its blocks.
    pub(super) parts: Vec<Bits>,
    active: u32,
    /// Number of cleans after which the copy is dropped.
    evicting: u32,
    /// Number of moves that read or write as a part of another move's operation.
    joined: u32,
    /// The time since which a copied move has been waiting for a round.
    copied_since: Option<Nanos>,
    copied: u32,
    /// The wait for a round if no request waits; zero until the first round with moves has been measured.
    calm_wait: Nanos,
    /// The end of the last round that carried moves.
    last_round: Nanos,
    pub(super) bytes_per_s: Option<u64>,
    /// Number of bytes that may be moved now; negative after a burst.
    pub(super) budget: i64,
    refilled: Nanos,
    /// Number of moves that latency feedback allows.
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
            by_extent: ByNumber::new(usize::from(n)),
            busy: Bits::new(usize::from(n)),
            parts: alloc::vec![Bits::default(); usize::from(n)],
            active: 0,
            evicting: 0,
            joined: 0,
            copied_since: None,
            copied: 0,
            calm_wait: Nanos(0),
            last_round: Nanos(0),
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
    /// Number of moves in progress.
    pub(super) fn active(&self) -> u32 {
        self.active
    }
    /// Number of moves that will free the slot of a copy.
    pub(super) fn evicting(&self) -> u32 {
        self.evicting
    }
    /// The move of an extent.
    #[inline]
    pub(super) fn of(&self, e: ExtentId) -> Option<u16> {
        self.by_extent.get(e.0)
    }
    pub(super) fn get(&self, i: u16) -> Move {
        self.list[usize::from(i)].expect("move not under way")
    }
    /// The move in buffer `i`, if there is one.
    pub(super) fn at(&mut self, i: u16) -> Option<&mut Move> {
        self.list[usize::from(i)].as_mut()
    }
    /// The index of the first move in progress from buffer `i` on.
    pub(super) fn next_busy(&self, i: u16) -> Option<u16> {
        let (i, n) = (usize::from(i), self.list.len());
        let next = i + self.busy.run(i.min(n), n, false);
        (next < n).then_some(next as u16)
    }
    /// The moves in progress, in the order of their buffers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Move)> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            let i = self.next_busy(at)?;
            at = i + 1;
            self.list[usize::from(i)].as_ref().map(|m| (i, m))
        })
    }
    /// Adds a move that starts in a free buffer. Its extent must have no other move, because the gate would see only one of the two.
    pub(super) fn put(&mut self, i: u16, m: Move) {
        assert!(
            self.of(m.extent).is_none() && self.is_free(i),
            "the extent has a move, or the buffer is in use"
        );
        *self.by_extent.entry(m.extent.0) = i;
        self.busy.set(usize::from(i));
        self.active += 1;
        self.count(&m, true);
        self.list[usize::from(i)] = Some(m);
    }
    /// Removes a move that ended. Its buffer is free.
    pub(super) fn take(&mut self, i: u16) -> Move {
        let m = self.get(i);
        self.list[usize::from(i)] = None;
        self.by_extent.remove(m.extent.0);
        self.busy.clear(usize::from(i));
        self.active -= 1;
        self.count(&m, false);
        m
    }
    /// Adds a move to the counters by step (`come`), or subtracts it.
    fn count(&mut self, m: &Move, come: bool) {
        let copied = m.step == Step::Copied;
        let joins_previous = m.joins_previous && !matches!(m.step, Step::Copied | Step::Committing);
        let by = |n: &mut u32, one: bool| {
            if come {
                *n += u32::from(one);
            } else {
                *n -= u32::from(one);
            }
        };
        let evicts = matches!(m.kind, Kind::Clean { evict: true });
        by(&mut self.evicting, evicts);
        by(&mut self.copied, copied);
        by(&mut self.joined, joins_previous);
    }
    /// Whether a request may wait for it: it is a promotion or fetch that the policy proposed.
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
    /// The copied moves that wait for a round and are not stale, with their indexes.
    pub(super) fn copied(&self) -> impl Iterator<Item = (u16, Move)> + '_ {
        let waits = |m: &Move| m.step == Step::Copied && !m.stale;
        let all = (self.copied > 0).then(|| self.iter());
        let copied = all.into_iter().flatten();
        copied.filter_map(move |(i, m)| waits(m).then_some((i, *m)))
    }
    /// Whether a copied move waits for a round.
    #[inline]
    pub(super) fn has_copied(&self) -> bool {
        self.copied > 0
    }
    /// Whether a copied move, stale or not, concerns one of `these` extents.
    pub(super) fn has_copied_of(&self, these: impl Fn(ExtentId) -> bool) -> bool {
        self.iter()
            .any(|(_, m)| m.step == Step::Copied && these(m.extent))
    }
    /// A write to blocks `from..to` is about to be issued: the data that move `i` read of them is outdated.
    pub(super) fn mark_overwritten(&mut self, i: u16, from: u32, to: u32) {
        self.parts[usize::from(i)].fill(from as usize, to as usize, false);
    }
    /// The first run of blocks that move `i` concerns, at or after block `from` and before block `blocks`.
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
    /// Whether buffer `i` is free.
    pub(super) fn is_free(&self, i: u16) -> bool {
        self.list.get(usize::from(i)).is_some_and(Option::is_none)
    }
    /// The start of the longest run of free buffers: moves in consecutive buffers may be joined.
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
    /// Another policy takes over: the moves count as the engine's own, so that no outcome is reported.
    pub(super) fn detach_policy(&mut self) {
        for m in self.list.iter_mut().flatten() {
            m.own = true;
        }
    }
    /// Number of moves that still read or write. A move that only waits for its record is no load for the devices.
    pub(super) fn at_work(&self) -> u32 {
        self.active - self.copied
    }
    /// Number of these moves that need a separate operation on the slower device. The papers' limit of concurrent moves (MCML) counts
    /// these.
    pub(super) fn copying(&self) -> u32 {
        self.at_work() - self.joined
    }
    /// Whether a round should start for the moves that wait. `urgent`: a request waits for an extent or a slot; `empty`: when the write
    /// caches of the slowest tier will be empty, so that a flush delays nobody, or `None` while a request waits for that tier; `cleans`:
    /// whether the round has only cleans after which copies stay.
    pub(super) fn want_round(
        &self,
        now: Nanos,
        urgent: bool,
        empty: impl Fn() -> Option<Nanos>,
        cleans: impl Fn() -> bool,
    ) -> bool {
        let Some(since) = self.copied_since else {
            return false;
        };
        let extra = self.extra(urgent, cleans);
        // At the latest, a round starts when half of the buffers wait, so that the other half can be used meanwhile.
        let half = (self.list.len() as u32 / 2).max(1);
        if self.copied >= half
            || self.active as usize == self.list.len()
            || (urgent && self.copied == self.active)
            || (extra.0 == 0 && self.copied >= BATCH)
            || now >= since + self.wait(urgent) + extra
        {
            return true;
        }
        let is_due = self.copied >= BATCH || now >= self.due(since, urgent);
        is_due && (urgent || empty().is_some_and(|t| t <= now))
    }
    /// The time from which a round for moves that wait since `since` starts as soon as the caches are empty: they have waited long enough,
    /// or all moves are copied and the last such round ended long enough ago.
    fn due(&self, since: Nanos, urgent: bool) -> Nanos {
        let waited = since + self.wait(urgent);
        if self.copied < self.active {
            return waited;
        }
        waited.min(since.max(self.last_round + self.calm_wait))
    }
    /// How much longer than [`Moves::wait`] such a round waits for empty caches. Only cleans wait: what moves home or frees a slot is
    /// needed soon. If rounds take no time, there is nothing to wait for.
    fn extra(&self, urgent: bool, cleans: impl Fn() -> bool) -> Nanos {
        if urgent || self.calm_wait.0 == 0 || !cleans() {
            Nanos(0)
        } else {
            EMPTY_WAIT_MAX
        }
    }
    /// The time at which [`Moves::want_round`] will return true if nothing else happens.
    pub(super) fn next_wake(
        &self,
        urgent: bool,
        empty: impl Fn() -> Option<Nanos>,
        cleans: impl Fn() -> bool,
    ) -> Option<Nanos> {
        let since = self.copied_since?;
        let last = since + self.wait(urgent) + self.extra(urgent, cleans);
        if urgent {
            return Some(last);
        }
        let due = if self.copied >= BATCH {
            since
        } else {
            self.due(since, urgent)
        };
        Some(empty().map_or(last, |t| due.max(t).min(last)))
    }
    fn wait(&self, urgent: bool) -> Nanos {
        if urgent {
            BATCH_WAIT.min(self.calm_wait)
        } else {
            self.calm_wait
        }
    }
    /// Notes the end and the duration of a round that recorded moves.
    pub(super) fn round_took(&mut self, now: Nanos, time: Nanos) {
        self.last_round = now;
        self.calm_wait = Nanos(time.0.saturating_mul(2)).min(CALM_WAIT_MAX);
    }
    /// Called when `count` moves from `index` on begin to write to the fastest tier. Returns the number of bytes of the wear budget that
    /// were reserved for this operation.
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
    /// Whether the moves have used more than the bandwidth for moves allows.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.bytes_per_s.is_some() && self.budget < 0
    }
    pub(super) fn set_rate(&mut self, bytes_per_s: Option<u64>) {
        if self.bytes_per_s.is_none() {
            // Bytes that were moved while there was no limit do not count.
            self.budget = 0;
        }
        self.bytes_per_s = bytes_per_s;
    }
    pub(super) fn refill(&mut self, now: Nanos) {
        if let Some(rate) = self.bytes_per_s {
            let ms = (now.since(self.refilled).0 / 1_000_000).min(1000);
            if ms > 0 {
                self.refilled = now;
                // At most the bytes of one second are saved up, so that a long idle time is not followed by a burst.
                self.budget = self
                    .budget
                    .saturating_add((ms * rate / 1000) as i64)
                    .min(rate as i64);
            }
        }
    }
    /// Notes the latency of a foreground request. If the 99th percentile is above the limit, the number of allowed moves is halved;
    /// otherwise one more is allowed.
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
    /// Number of moves that latency feedback allows. There is no restriction without a limit. After a time without requests, the full
    /// number is allowed.
    pub(super) fn allowed(&mut self, now: Nanos, limit: Option<Nanos>) -> u32 {
        if limit.is_none() {
            return u32::MAX;
        }
        if now.since(self.window_start) >= FEEDBACK_EVERY + FEEDBACK_EVERY {
            self.allowed = AT_WORK;
        }
        self.allowed
    }
    /// Updates the time since which a copied move has been waiting. Called whenever the number of copied moves may have changed.
    pub(super) fn update_waiting_since(&mut self, now: Nanos) {
        self.copied_since = if self.copied == 0 {
            None
        } else {
            self.copied_since.or(Some(now))
        };
    }
}
