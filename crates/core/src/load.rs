//! The costs and the present load of tiers.
//!
//! Times are measured: the engine reports the begin and the end of operations. These reports follow from recorded events, so the replay of
//! a recorded run measures the same times and makes the same decisions. Values that cannot be measured (energy, the price of wear, the
//! wake-up time of a sleeping device) come from data sheets, if there are any ([`crate::engine::Params::costs`], which is recorded, too).
//! Times come from data sheets, too, until the first operations have ended. All values are integers.

use crate::units::{MemberId, Nanos, TierId};
use crate::volume::Geometry;
use alloc::vec::Vec;

/// A new measurement replaces 1/16 of an estimate.
const SHARE: u64 = 16;
/// The longest time that a write cache is assumed to need, nanoseconds.
const CACHED_MAX: u64 = 1_000_000_000;
/// Operations of up to this number of bytes count as small.
const SMALL: u32 = 64 << 10;

/// A device is clearly sooner than another one if it needs less time by this part (one half) of its own.
const CLEARLY: u64 = 2;
/// A device with fewer operations in progress is not behind, whatever its times are. The kernel reads some 30 pieces ahead for one program, and
/// what that program reads of a warm set must come from flash, also where flash and disk are alike.
const BEHIND: u32 = 64;
/// A device does the reads of one that is behind only if each takes at most so many times as long. For a disk in the place of flash each would
/// delay those that only the disk can serve: 0.95 to 1.05 of the time without, on 15 real traces at depth 32.
const ALIKE: u64 = 8;
/// Power that sleep is taken to save if the costs do not state it, microwatts. Data sheets of 3.5-inch disks say 3 to 7.5 W.
const SAVED_UW: u64 = 4_000_000;

/// The costs of an operation on a tier's devices: the mean cost of small operations at the recent load, and the additional cost of each
/// byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Device time of a small read that does not begin where the last operation ended.
    pub read: Nanos,
    /// The same for a write. If the device has a write cache, this is the time until the write is in the cache.
    pub write: Nanos,
    /// Device time of a small operation that begins where the last one ended.
    pub sequential: Nanos,
    /// Time for each additional byte of a read, picoseconds.
    pub read_byte_ps: u64,
    /// The same for a write.
    pub write_byte_ps: u64,
    /// Energy of a small random read above the idle power, nanojoules; 0: unknown.
    pub read_nj: u64,
    /// The same for a write.
    pub write_nj: u64,
    /// Energy of each additional byte, picojoules; 0: unknown.
    pub byte_pj: u64,
    /// Price of the wear of each byte written, 10⁻¹⁵ dollars; 0: writes do not wear the device, or the price is unknown.
    pub wear_byte_fusd: u64,
    /// Time from the first operation until a sleeping device is ready; 0: it never sleeps, or the time is unknown.
    pub wake: Nanos,
    /// Energy of a wake-up, microjoules; 0: unknown.
    pub wake_uj: u64,
    /// Power of a device that is awake and has nothing to do, microwatts; 0: unknown.
    pub idle_uw: u64,
    /// Power in standby, microwatts.
    pub standby_uw: u64,
    /// Time from the command until the device is in standby.
    pub down: Nanos,
    /// Energy of this time, microjoules.
    pub down_uj: u64,
}

impl Cost {
    /// The costs of the fastest tier if nothing is known about it: 20 000 operations and 250 MB per second. For the slowest tier these are
    /// 180 operations and 100 MB per second ([`Cost::SLOW`]). These are the defaults of `edt` (docs/policy-rules.md section 6, after OODT's
    /// flash drive and disk). The costs of tiers in between are interpolated geometrically.
    pub const FAST: Cost = Cost::timed(Nanos(50_000), 4_000);
    /// See [`Cost::FAST`].
    pub const SLOW: Cost = Cost::timed(Nanos(5_555_555), 10_000);

    const fn timed(each: Nanos, byte_ps: u64) -> Cost {
        Cost {
            read: each,
            write: each,
            sequential: Nanos(each.0 / 8),
            read_byte_ps: byte_ps,
            write_byte_ps: byte_ps,
            read_nj: 0,
            write_nj: 0,
            byte_pj: 0,
            wear_byte_fusd: 0,
            wake: Nanos(0),
            wake_uj: 0,
            idle_uw: 0,
            standby_uw: 0,
            down: Nanos(0),
            down_uj: 0,
        }
    }
    /// The costs that are assumed for tier `t` of `n` if there is neither a measurement nor a data sheet.
    pub fn unknown(t: u8, n: u8) -> Cost {
        match t {
            0 => Cost::FAST,
            _ if t + 1 == n => Cost::SLOW,
            _ => Cost::between(Cost::FAST, Cost::SLOW, t, n - 1),
        }
    }
    /// The times at step `i` of `n` from `a` to `b`, interpolated geometrically.
    fn between(a: Cost, b: Cost, i: u8, n: u8) -> Cost {
        let on = |a: u64, b: u64| geometric(a, b, i, n);
        let each = Nanos(on(a.read.0, b.read.0));
        Cost::timed(each, on(a.read_byte_ps, b.read_byte_ps))
    }
    /// Device time that a small write still needs after the device has accepted it into its write cache. The device empties its cache in a
    /// favourable order, which takes about a third of the time of random places (model `st32000641as`: 174 writes per second at depth 32,
    /// 60 one by one).
    pub fn debt(&self, sequential: bool) -> Nanos {
        let random = Nanos(self.read.since(self.write).0 / 3);
        if sequential {
            random.min(self.sequential)
        } else {
            random
        }
    }
    /// The power that sleep saves, microwatts, and whether it was assumed because no data sheet states it.
    pub fn saved_uw(&self) -> (u64, bool) {
        match self.idle_uw {
            0 => (SAVED_UW, true),
            idle => (idle.saturating_sub(self.standby_uw), false),
        }
    }
    /// The time for which staying awake takes as much energy as going to sleep, sleeping and waking up. `None` if the energy of a wake-up is
    /// unknown, or if sleep saves nothing. A device that sleeps for less time than it needs to stop saves nothing either, so it is at least
    /// that time.
    pub fn break_even(&self) -> Option<Nanos> {
        let (saved, _) = self.saved_uw();
        if self.wake_uj == 0 || saved == 0 {
            return None;
        }
        // Microjoules are microwatts times seconds.
        let stopping = u128::from(self.standby_uw) * u128::from(self.down.0) / 1_000_000_000;
        let energy = u128::from(self.wake_uj) + u128::from(self.down_uj);
        let even = energy.saturating_sub(stopping) * 1_000_000_000 / u128::from(saved);
        let even = Nanos(u64::try_from(even).unwrap_or(u64::MAX));
        Some(even.max(self.down))
    }
    /// Device time of an operation of `bytes` bytes.
    pub fn time(&self, write: bool, sequential: bool, bytes: u32) -> Nanos {
        let (each, byte) = if write {
            (self.write, self.write_byte_ps)
        } else {
            (self.read, self.read_byte_ps)
        };
        let each = if sequential { self.sequential } else { each };
        Nanos(each.0.saturating_add(u64::from(bytes) * byte / 1000))
    }
}

/// The number at step `i` of `n` from `a` to `b`, interpolated geometrically and rounded down: the largest `x` with xⁿ ≤ aⁿ⁻ⁱ · bⁱ, by
/// bisection. With up to 8 tiers the powers do not fit into integers; a comparison of sums of logarithms to 2⁻³² does.
fn geometric(a: u64, b: u64, i: u8, n: u8) -> u64 {
    let (n, i) = (u128::from(n), u128::from(i));
    let wanted = log2(a) * (n - i) + log2(b) * i;
    let (mut lo, mut hi) = (a.min(b), a.max(b));
    while lo < hi {
        let mid = lo + (hi - lo).div_ceil(2);
        if log2(mid) * n <= wanted {
            lo = mid;
        } else {
            hi = mid - 1;
        }
    }
    lo
}

/// Logarithm to base 2 of a number of at least 1, in units of 2⁻³². The whole part is the position of the highest bit; the other bits are
/// found by repeated squaring.
fn log2(x: u64) -> u128 {
    let whole = x.max(1).ilog2();
    let mut rest = u128::from(x.max(1)) << (63 - whole);
    let mut log = u128::from(whole);
    for _ in 0..32 {
        rest = (rest * rest) >> 63;
        let bit = rest >> 64;
        rest >>= bit;
        log = log << 1 | bit;
    }
    log
}

/// The load of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of operations in progress for which requests wait.
    pub waiting: u32,
    /// Number of all operations in progress.
    pub in_flight: u32,
    /// Time since the end of the last operation for which a request waited; 0 while there are such operations.
    pub quiet: Nanos,
    /// Whether all of its members sleep.
    pub asleep: bool,
}

/// Recent durations of small operations on a tier for which requests waited, from start to end, including the time in the device's queue.
/// Before there are any: the device time according to the data sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// Reads, including the reads of fetches that serve a request.
    pub read: Nanos,
    /// Writes.
    pub write: Nanos,
    /// Writes that found the device with nothing in progress, whether a request waited for them or not; 0 before there was one.
    pub lone_write: Nanos,
}

/// The load of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberLoad {
    /// Its tier.
    pub tier: TierId,
    /// See [`Load`].
    pub waiting: u32,
    /// See [`Load`].
    pub in_flight: u32,
    /// See [`Load`].
    pub quiet: Nanos,
    /// Recent mean of the device time of a read or write of any length.
    pub service: Nanos,
    /// Whether it was sent to sleep and nothing has woken it since.
    pub asleep: bool,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    tier: TierId,
    /// The end of its last operation, and of the last one for which a request waited.
    last_done: Nanos,
    last_waited: Nanos,
    waiting: u32,
    in_flight: u32,
    /// The end of the last issued operation, as an offset.
    end: u64,
    service: Nanos,
    asleep: bool,
    /// Estimated device time at `last_done` until its write cache is empty, nanoseconds.
    cached: u64,
}

/// A measured operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub member: usize,
    /// Whether data was read or written: not metadata, a flush or a discard.
    pub data: bool,
    /// Whether it is a flush.
    pub flush: bool,
    pub write: bool,
    pub len: u32,
    pub sequential: bool,
    /// Whether a request waits for it.
    pub foreground: bool,
    /// Whether nothing else was in progress when it began.
    pub alone: bool,
    pub issued: Nanos,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Loads {
    costs: Vec<Cost>,
    latencies: Vec<Latencies>,
    members: Vec<Member>,
}

impl Loads {
    /// The loads of a volume of this geometry, if nothing is known about its devices.
    pub fn new(geo: &Geometry) -> Loads {
        let member = |tier| Member {
            tier,
            last_done: Nanos(0),
            last_waited: Nanos(0),
            waiting: 0,
            in_flight: 0,
            end: u64::MAX,
            service: Nanos(0),
            asleep: false,
            cached: 0,
        };
        let costs: Vec<Cost> = (0..geo.tiers())
            .map(|t| Cost::unknown(t, geo.tiers()))
            .collect();
        Loads {
            latencies: costs.iter().map(Latencies::by).collect(),
            costs,
            members: geo.members.iter().map(|m| member(m.tier)).collect(),
        }
    }
    /// Sets the initial costs from data sheets, by tier. If the list is shorter, the other tiers are unchanged.
    pub(crate) fn start_with(&mut self, costs: &[Cost]) {
        for (mine, given) in self.costs.iter_mut().zip(costs) {
            *mine = *given;
        }
        self.latencies = self.costs.iter().map(Latencies::by).collect();
    }
    /// Takes over the costs and latencies that others have measured, tier by tier.
    pub fn measured_by(&mut self, other: &Loads) {
        for (mine, theirs) in self.costs.iter_mut().zip(&other.costs) {
            *mine = *theirs;
        }
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            *mine = *theirs;
        }
    }
    /// The recent durations of operations on this tier for which requests waited.
    #[inline]
    pub fn latencies(&self, t: TierId) -> Latencies {
        self.latencies[usize::from(t.0)]
    }
    /// The costs of this tier.
    #[inline]
    pub fn cost(&self, t: TierId) -> &Cost {
        &self.costs[usize::from(t.0)]
    }
    /// The load of a tier at `now`.
    pub fn load(&self, t: TierId, now: Nanos) -> Load {
        let mut load = Load {
            waiting: 0,
            in_flight: 0,
            quiet: Nanos(u64::MAX),
            asleep: true,
        };
        for m in self.members.iter().filter(|m| m.tier == t) {
            load.waiting += m.waiting;
            load.in_flight += m.in_flight;
            load.quiet = load.quiet.min(m.quiet(now));
            load.asleep &= m.asleep;
        }
        load
    }
    /// The load of a member at `now`; `None`: there is no such member.
    pub fn member(&self, id: MemberId, now: Nanos) -> Option<MemberLoad> {
        let m = self.members.get(usize::from(id.0))?;
        Some(MemberLoad {
            tier: m.tier,
            waiting: m.waiting,
            in_flight: m.in_flight,
            quiet: m.quiet(now),
            service: m.service,
            asleep: m.asleep,
        })
    }
    /// Whether a member has so much to do that another one may be sooner ([`BEHIND`]).
    #[inline]
    pub(crate) fn is_behind(&self, id: MemberId) -> bool {
        self.members[usize::from(id.0)].in_flight >= BEHIND
    }
    /// Whether a small random read that is issued to member `a` now would end clearly sooner than one that is issued to `b`, each after what is
    /// in progress on its device. Never if `a` sleeps or is a disk beside flash ([`ALIKE`]).
    #[inline]
    pub(crate) fn is_sooner(&self, a: MemberId, b: MemberId) -> bool {
        let of = |id: MemberId| {
            let m = &self.members[usize::from(id.0)];
            (m, self.costs[usize::from(m.tier.0)].read.0)
        };
        let ((a, a_read), (b, b_read)) = (of(a), of(b));
        if a.asleep || a_read / ALIKE > b_read {
            return false;
        }
        let ends = |m: &Member, read: u64| {
            let before = u64::from(m.in_flight).saturating_mul(m.service.0);
            before.saturating_add(read)
        };
        let sooner = ends(a, a_read);
        sooner.saturating_add(sooner / CLEARLY) < ends(b, b_read)
    }
    /// A member was sent to sleep, or woke.
    pub(crate) fn sleeps(&mut self, member: usize, asleep: bool) {
        self.members[member].asleep = asleep;
    }
    /// Notes that an operation of `len` bytes at `offset` is issued. Returns whether it begins where the operation before it ended.
    pub(crate) fn issue(&mut self, member: usize, offset: u64, len: u32) -> bool {
        let m = &mut self.members[member];
        let sequential = m.end == offset;
        m.end = offset + u64::from(len);
        sequential
    }
    /// Notes that an operation begins; `waited`: a request waits for it. Returns whether the device has nothing else to do.
    pub(crate) fn begin(&mut self, member: usize, waited: bool) -> bool {
        let m = &mut self.members[member];
        let alone = m.in_flight == 0;
        m.in_flight += 1;
        m.waiting += u32::from(waited);
        alone
    }
    /// The time at which the write caches of a tier will be empty, as estimated, if nothing else comes; `None` while a request waits for
    /// the tier, since a device serves that first.
    pub(crate) fn caches_empty(&self, t: TierId, now: Nanos) -> Option<Nanos> {
        let members = self.members.iter().filter(|m| m.tier == t);
        members
            .map(|m| (m.waiting == 0).then(|| m.cache_empty(now)))
            .try_fold(now, |latest, at| Some(latest.max(at?)))
    }
    /// Notes that an operation has ended, and learns from it. Returns its device time.
    pub(crate) fn end(&mut self, now: Nanos, s: Sample) -> Nanos {
        let m = &mut self.members[s.member];
        let took = now.since(s.issued.max(m.last_done));
        if s.alone {
            m.cached = m.cached.saturating_sub(s.issued.since(m.last_done).0);
        }
        if s.flush {
            m.cached = 0;
        }
        m.last_done = now;
        m.in_flight -= 1;
        if s.foreground {
            m.waiting -= 1;
            m.last_waited = now;
        }
        if !s.data {
            return took;
        }
        if s.write {
            let debt = self.costs[usize::from(m.tier.0)].debt(s.sequential);
            m.cached = (m.cached + debt.0).min(CACHED_MAX);
        }
        if s.foreground && s.len <= SMALL {
            let latencies = &mut self.latencies[usize::from(m.tier.0)];
            let answer = if s.write {
                &mut latencies.write
            } else {
                &mut latencies.read
            };
            learn(&mut answer.0, now.since(s.issued).0);
        }
        if s.alone && s.write && s.len <= SMALL {
            let lone = &mut self.latencies[usize::from(m.tier.0)].lone_write.0;
            let measured = now.since(s.issued).0.max(1);
            if *lone == 0 {
                *lone = measured;
            }
            learn(lone, measured);
        }
        learn(&mut m.service.0, took.0);
        let cost = &mut self.costs[usize::from(m.tier.0)];
        let each = match (s.sequential, s.write) {
            (true, _) => &mut cost.sequential,
            (false, false) => &mut cost.read,
            (false, true) => &mut cost.write,
        };
        if s.len <= SMALL {
            learn(&mut each.0, took.0);
        } else {
            let bytes = took.0.saturating_sub(each.0) * 1000 / u64::from(s.len);
            let byte = if s.write {
                &mut cost.write_byte_ps
            } else {
                &mut cost.read_byte_ps
            };
            learn(byte, bytes);
        }
        took
    }
}

impl Latencies {
    fn by(cost: &Cost) -> Latencies {
        Latencies {
            read: cost.read,
            write: cost.write,
            lone_write: Nanos(0),
        }
    }
}

impl Member {
    /// The time at which its write cache will be empty: it is emptied while the member has nothing else to do.
    fn cache_empty(&self, now: Nanos) -> Nanos {
        let from = if self.in_flight > 0 {
            now
        } else {
            self.last_done
        };
        from + Nanos(self.cached)
    }
    fn quiet(&self, now: Nanos) -> Nanos {
        if self.waiting > 0 {
            Nanos(0)
        } else {
            now.since(self.last_waited)
        }
    }
}

fn learn(estimate: &mut u64, measured: u64) {
    *estimate = (*estimate * (SHARE - 1) + measured) / SHARE;
}

#[cfg(test)]
mod tests;
