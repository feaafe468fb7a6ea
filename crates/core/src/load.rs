//! What tiers cost and what goes on on them.
//!
//! Times are measured: the engine tells when operations begin and end. Those are events like any other, so a replay of a recorded run
//! measures, and decides, the same. What cannot be seen from outside (energy, the price of wear, how long a sleeping device needs) comes
//! from data sheets where there are any ([`crate::engine::Params::costs`], which is recorded too), and so do the times until the first
//! operations have ended. All of it are integers.

use crate::units::{MemberId, Nanos, TierId};
use crate::volume::Geometry;
use alloc::vec::Vec;

/// The part of an estimate that a new measurement replaces.
const SHARE: u64 = 16;
/// Operations up to this long count as small.
const SMALL: u32 = 64 << 10;

/// What a tier's devices cost: a mean over small operations, at the load measured lately, and what more bytes add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Time of the device for a small read that does not go on where the last operation ended.
    pub read: Nanos,
    /// The same for a write. Where the device takes writes into a cache, this is what that takes.
    pub write: Nanos,
    /// A small operation that goes on where the last one ended.
    pub sequential: Nanos,
    /// Time for a byte more of a read, picoseconds.
    pub read_byte_ps: u64,
    /// The same for a write.
    pub write_byte_ps: u64,
    /// Energy of a small random read beyond what idling takes, nanojoules; 0: not known.
    pub read_nj: u64,
    /// The same for a write.
    pub write_nj: u64,
    /// Energy of a byte more, picojoules; 0: not known.
    pub byte_pj: u64,
    /// Price of the wear that a byte written is, 10⁻¹⁵ dollars; 0: the device does not wear by writing, or it is not known.
    pub wear_byte_fusd: u64,
    /// Time from the first operation to ready where the device sleeps; 0: it never does, or it is not known.
    pub wake: Nanos,
    /// Energy of a wake-up, microjoules; 0: not known.
    pub wake_uj: u64,
}

impl Cost {
    /// Of a tier of which nothing is known: 20 000 and 180 operations and 250 and 100 MB a second, the usual figures of `edt`
    /// (docs/policy-rules.md section 6, after OODT's flash drive and disk). Tiers in between lie on the geometric line.
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
        }
    }
    /// What is taken for tier `t` of `n` before anything was measured and without a sheet.
    pub fn unknown(t: u8, n: u8) -> Cost {
        match t {
            0 => Cost::FAST,
            _ if t + 1 == n => Cost::SLOW,
            _ => Cost::between(Cost::FAST, Cost::SLOW, t, n - 1),
        }
    }
    /// The times `i` of `n` steps from `a` to `b` on the geometric line.
    fn between(a: Cost, b: Cost, i: u8, n: u8) -> Cost {
        let on = |a: u64, b: u64| geometric(a, b, i, n);
        let each = Nanos(on(a.read.0, b.read.0));
        Cost::timed(each, on(a.read_byte_ps, b.read_byte_ps))
    }
    /// Time of the device for an operation of `bytes`.
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

/// The number `i` of `n` steps from `a` to `b` on the geometric line between them, rounded down: the largest `x` with
/// xⁿ ≤ aⁿ⁻ⁱ · bⁱ, by halving. With at most 8 tiers the powers do not fit into integers; comparing sums of logarithms to 2⁻³² does.
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

/// Logarithm to base 2 of a number from 1 on, in units of 2⁻³²: the whole part from the highest bit, the rest by squaring.
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

/// What goes on on a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Operations under way that requests wait for.
    pub waiting: u32,
    /// Operations under way, these among them.
    pub in_flight: u32,
    /// Time since the last that a request waited for ended; 0 while there are any.
    pub quiet: Nanos,
    /// All of its members sleep.
    pub asleep: bool,
}

/// How long small operations that requests waited for took lately on a tier, from their start to their end, standing in the
/// device's queue included. Before any was seen: what the device takes by its sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Reads, those among them that a fetch rides on.
    pub read: Nanos,
    /// Writes.
    pub write: Nanos,
}

/// What goes on on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberLoad {
    /// Its tier.
    pub tier: TierId,
    /// As for a tier.
    pub waiting: u32,
    /// As for a tier.
    pub in_flight: u32,
    /// As for a tier.
    pub quiet: Nanos,
    /// How long it had a read or write for itself lately, of whatever length.
    pub service: Nanos,
    /// It was sent to sleep, and nothing has woken it since.
    pub asleep: bool,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    tier: TierId,
    /// When its last operation, and the last that a request waited for, ended.
    last_done: Nanos,
    last_waited: Nanos,
    waiting: u32,
    in_flight: u32,
    /// Where the operation issued last ends.
    end: u64,
    service: Nanos,
    asleep: bool,
}

/// An operation, as far as it counts here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub member: usize,
    /// Data were read or written: not metadata, a flush, a discard.
    pub data: bool,
    pub write: bool,
    pub len: u32,
    pub sequential: bool,
    /// A request waits for it.
    pub foreground: bool,
    pub issued: Nanos,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Loads {
    costs: Vec<Cost>,
    answers: Vec<Answers>,
    members: Vec<Member>,
}

impl Loads {
    /// For a volume of that shape, of which nothing is known.
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
        };
        let costs: Vec<Cost> = (0..geo.tiers())
            .map(|t| Cost::unknown(t, geo.tiers()))
            .collect();
        Loads {
            answers: costs.iter().map(Answers::by).collect(),
            costs,
            members: geo.members.iter().map(|m| member(m.tier)).collect(),
        }
    }
    /// Begin with what sheets say, by tier; tiers beyond the list stay as they are.
    pub(crate) fn start_with(&mut self, costs: &[Cost]) {
        for (mine, given) in self.costs.iter_mut().zip(costs) {
            *mine = *given;
        }
        self.answers = self.costs.iter().map(Answers::by).collect();
    }
    /// How long requests waited for operations of that tier lately.
    pub fn answers(&self, t: TierId) -> Answers {
        self.answers[usize::from(t.0)]
    }
    /// What that tier costs.
    pub fn cost(&self, t: TierId) -> Cost {
        self.costs[usize::from(t.0)]
    }
    /// What goes on on a tier at `now`.
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
    /// What goes on on a member at `now`; `None`: there is no such member.
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
    /// A member was sent to sleep, or woke.
    pub(crate) fn sleeps(&mut self, member: usize, asleep: bool) {
        self.members[member].asleep = asleep;
    }
    /// Does an operation at `offset` go on where the one issued last ended? Then the next is asked about `len` bytes further.
    pub(crate) fn issue(&mut self, member: usize, offset: u64, len: u32) -> bool {
        let m = &mut self.members[member];
        let sequential = m.end == offset;
        m.end = offset + u64::from(len);
        sequential
    }
    /// An operation begins; `waited`: a request waits for it.
    pub(crate) fn begin(&mut self, member: usize, waited: bool) {
        let m = &mut self.members[member];
        m.in_flight += 1;
        m.waiting += u32::from(waited);
    }
    /// An operation ended; how long the device had it for itself.
    pub(crate) fn end(&mut self, now: Nanos, s: Sample) -> Nanos {
        let m = &mut self.members[s.member];
        let took = now.since(s.issued.max(m.last_done));
        m.last_done = now;
        m.in_flight -= 1;
        if s.foreground {
            m.waiting -= 1;
            m.last_waited = now;
        }
        if !s.data {
            return took;
        }
        if s.foreground && s.len <= SMALL {
            let answers = &mut self.answers[usize::from(m.tier.0)];
            let answer = if s.write {
                &mut answers.write
            } else {
                &mut answers.read
            };
            learn(&mut answer.0, now.since(s.issued).0);
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

impl Answers {
    fn by(cost: &Cost) -> Answers {
        Answers {
            read: cost.read,
            write: cost.write,
        }
    }
}

impl Member {
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
mod tests {
    use super::*;
    use crate::volume::Member as Place;
    use alloc::vec;

    fn loads() -> Loads {
        let member = |tier, slots| Place {
            tier: TierId(tier),
            first_slot: 0,
            slots,
            data_offset: 0,
        };
        let shape = vec![member(0, 2), member(1, 6), member(1, 6)];
        Loads::new(&Geometry::new(16, 12, 6, shape).unwrap())
    }
    const SLOW: TierId = TierId(1);
    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn sample(issued: Nanos, sequential: bool) -> Sample {
        Sample {
            member: 1,
            data: true,
            write: false,
            len: 4096,
            sequential,
            foreground: true,
            issued,
        }
    }

    #[test]
    fn time_of_a_device_is_measured() {
        let mut l = loads();
        let before = l.cost(SLOW);
        assert_eq!(before, Cost::SLOW);
        assert!(!l.issue(1, 0, 4096));
        assert!(l.issue(1, 4096, 4096));
        l.begin(1, true);
        l.begin(1, true);
        let busy = l.load(SLOW, MS(3));
        assert_eq!((busy.waiting, busy.in_flight, busy.quiet), (2, 2, MS(0)));
        // Both were issued at once: the second had the device for itself from the end of the first.
        assert_eq!(l.end(MS(4), sample(MS(0), false)), MS(4));
        assert_eq!(l.end(MS(5), sample(MS(0), true)), MS(1));
        let read = (before.read.0 * 15 + 4_000_000) / 16;
        assert_eq!(l.cost(SLOW).read, Nanos(read));
        // A request waited for the second as long as for both.
        let answer = (read * 15 + 5_000_000) / 16;
        let first = (before.read.0 * 15 + 4_000_000) / 16;
        assert_eq!((answer, first), (l.answers(SLOW).read.0, read));
        let sequential = (before.sequential.0 * 15 + 1_000_000) / 16;
        assert_eq!(l.cost(SLOW).sequential, Nanos(sequential));
        for _ in 0..200 {
            l.begin(1, true);
            l.end(MS(6), sample(MS(2), false));
        }
        assert!(l.cost(SLOW).read < MS(1));
    }

    #[test]
    fn members_are_told_apart() {
        let mut l = loads();
        let of = |l: &Loads, m| l.member(MemberId(m), MS(9)).unwrap();
        l.begin(1, true);
        l.end(MS(5), sample(MS(0), false));
        l.begin(2, false);
        assert_eq!((of(&l, 1).in_flight, of(&l, 1).quiet), (0, MS(4)));
        assert_eq!((of(&l, 2).in_flight, of(&l, 2).waiting), (1, 0));
        assert_eq!(of(&l, 1).service, Nanos(5_000_000 / 16));
        assert_eq!(l.member(MemberId(3), MS(9)), None);
        // The tier's last was the first member's; it sleeps when both do.
        assert_eq!(l.load(SLOW, MS(9)).quiet, MS(4));
        l.sleeps(1, true);
        assert!(of(&l, 1).asleep && !l.load(SLOW, MS(9)).asleep);
        l.sleeps(2, true);
        assert!(l.load(SLOW, MS(9)).asleep && !l.load(TierId(0), MS(9)).asleep);
    }

    #[test]
    fn bytes_are_learned_from_long_operations() {
        let mut l = loads();
        let each = l.cost(SLOW).read;
        for _ in 0..400 {
            l.begin(1, true);
            let long = Sample {
                len: 1 << 20,
                ..sample(MS(0), false)
            };
            // A device that was idle: its last operation counts as ended when this one was issued.
            l.members[1].last_done = Nanos(0);
            l.end(Nanos(each.0 + (5 << 20)), long);
        }
        let cost = l.cost(SLOW);
        assert!((4_900..=5_000).contains(&cost.read_byte_ps), "{cost:?}");
        assert_eq!(cost.write_byte_ps, Cost::SLOW.write_byte_ps);
        let long = cost.time(false, false, 1 << 20);
        assert!(long > each && long < Nanos(each.0 + (6 << 20)));
    }

    #[test]
    fn middle_tiers_lie_on_the_geometric_line() {
        assert_eq!(log2(1 << 20), 20 << 32);
        // √(50 µs · 5.556 ms) = 527 µs: 1897 operations a second.
        let middle = Cost::unknown(1, 3);
        assert_eq!(1_000_000_000 / middle.read.0, 1897);
        assert_eq!(geometric(1, 1000, 1, 3), 10);
        assert_eq!(geometric(1000, 1, 1, 3), 100);
        assert_eq!(geometric(7, 7, 3, 7), 7);
    }
}
