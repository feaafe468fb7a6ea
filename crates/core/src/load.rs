//! What tiers cost and what goes on on them, as the engine measures it from the times at which operations begin and end. Those
//! are events like any other, so a replay of a recorded run measures, and decides, the same. All of it are integers.

use crate::units::{Nanos, TierId};
use crate::volume::Geometry;
use alloc::vec::Vec;

/// What a device of the fastest tier is taken to need before anything was measured, and one of any other.
const FAST: Nanos = Nanos::from_micros(100);
const SLOW: Nanos = Nanos::from_millis(8);
/// The part of an estimate that a new measurement replaces.
const SHARE: u64 = 16;
/// Operations up to this long count as small.
const SMALL: u32 = 64 << 10;

/// What a small operation costs a tier's devices: time of the device for each, at the load measured lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// A read that does not go on where the last operation ended.
    pub read: Nanos,
    /// A write that does not. Where the device takes writes into a cache, this is what that takes.
    pub write: Nanos,
    /// An operation that does.
    pub sequential: Nanos,
}

/// What goes on on a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Operations under way that requests wait for.
    pub waiting: u32,
    /// Time since the last of them ended; 0 while there are any.
    pub quiet: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Tier {
    cost: Cost,
    waiting: u32,
    last: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    last_done: Nanos,
    /// Where the operation issued last ends.
    end: u64,
}

/// An operation, as far as it counts here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub member: usize,
    pub tier: TierId,
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
    tiers: Vec<Tier>,
    members: Vec<Member>,
}

impl Loads {
    /// For a volume of that shape, of which nothing is known.
    pub fn new(geo: &Geometry) -> Loads {
        let tier = |t: u8| {
            let each = if t == 0 { FAST } else { SLOW };
            Tier {
                cost: Cost {
                    read: each,
                    write: each,
                    sequential: Nanos(each.0 / 8),
                },
                waiting: 0,
                last: Nanos(0),
            }
        };
        let member = Member {
            last_done: Nanos(0),
            end: u64::MAX,
        };
        Loads {
            tiers: (0..geo.tiers()).map(tier).collect(),
            members: geo.members.iter().map(|_| member).collect(),
        }
    }
    /// What a small operation costs that tier.
    pub fn cost(&self, t: TierId) -> Cost {
        self.tiers[usize::from(t.0)].cost
    }
    /// What goes on there at `now`.
    pub fn load(&self, t: TierId, now: Nanos) -> Load {
        let t = &self.tiers[usize::from(t.0)];
        Load {
            waiting: t.waiting,
            quiet: if t.waiting > 0 {
                Nanos(0)
            } else {
                now.since(t.last)
            },
        }
    }
    /// Does an operation at `offset` go on where the one issued last ended? Then the next is asked about `len` bytes further.
    pub(crate) fn issue(&mut self, member: usize, offset: u64, len: u32) -> bool {
        let m = &mut self.members[member];
        let sequential = m.end == offset;
        m.end = offset + u64::from(len);
        sequential
    }
    /// An operation that a request waits for begins.
    pub(crate) fn begin(&mut self, t: TierId) {
        self.tiers[usize::from(t.0)].waiting += 1;
    }
    /// A read or write ended; how long the device had it for itself.
    pub(crate) fn end(&mut self, now: Nanos, s: Sample) -> Nanos {
        let m = &mut self.members[s.member];
        let took = now.since(s.issued.max(m.last_done));
        m.last_done = now;
        let t = &mut self.tiers[usize::from(s.tier.0)];
        if s.foreground {
            t.waiting -= 1;
            t.last = now;
        }
        if s.len <= SMALL {
            let of = match (s.sequential, s.write) {
                (true, _) => &mut t.cost.sequential,
                (false, false) => &mut t.cost.read,
                (false, true) => &mut t.cost.write,
            };
            of.0 = (of.0 * (SHARE - 1) + took.0) / SHARE;
        }
        took
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Member as Place;
    use alloc::vec;

    #[test]
    fn time_of_a_device_is_measured() {
        let member = |tier, slots| Place {
            tier: TierId(tier),
            first_slot: 0,
            slots,
            data_offset: 0,
        };
        let geo = Geometry::new(16, 12, 6, vec![member(0, 2), member(1, 6)]).unwrap();
        let (mut l, slow) = (Loads::new(&geo), TierId(1));
        assert_eq!(l.cost(slow).read, SLOW);
        let ms = Nanos::from_millis;
        let sample = |issued, sequential| Sample {
            member: 1,
            tier: slow,
            write: false,
            len: 4096,
            sequential,
            foreground: true,
            issued,
        };
        assert!(!l.issue(1, 0, 4096));
        assert!(l.issue(1, 4096, 4096));
        l.begin(slow);
        l.begin(slow);
        assert_eq!(
            l.load(slow, ms(3)),
            Load {
                waiting: 2,
                quiet: ms(0)
            }
        );
        // Both were issued at once: the second had the device for itself from the end of the first.
        assert_eq!(l.end(ms(4), sample(ms(0), false)), ms(4));
        assert_eq!(l.end(ms(5), sample(ms(0), true)), ms(1));
        assert_eq!(l.cost(slow).read, Nanos((8_000_000 * 15 + 4_000_000) / 16));
        assert_eq!(l.cost(slow).sequential, ms(1));
        assert_eq!(
            l.load(slow, ms(9)),
            Load {
                waiting: 0,
                quiet: ms(4)
            }
        );
        for _ in 0..200 {
            l.begin(slow);
            l.end(ms(6), sample(ms(2), false));
        }
        assert!(l.cost(slow).read < ms(1));
    }
}
