//! An engine over two members, in a world in which operations only take time.
#![allow(clippy::unwrap_used, dead_code)]

use isotherm_core::engine::Params;
use isotherm_core::policy::{Policy, Refusal, build};
use isotherm_core::random::SplitMix64;
use isotherm_core::stats::MoveCounters;
use isotherm_core::store::open::Mode;
use isotherm_core::store::superblock::{MemberEntry, Shape};
use isotherm_core::store::{BLOCK, Media, MediaError, MetaArea, Superblock, format, open};
use isotherm_core::*;
use std::collections::BTreeMap;

pub const EXTENT: u64 = 4096;
pub const FAST: u32 = 16;
pub const EXTENTS: u32 = 96;

/// The metadata of the members: data is never read.
/// Members that keep only the blocks that were written, because the metadata of a disk is at both of its ends.
#[derive(Default)]
struct Ram(BTreeMap<(u8, u64), Vec<u8>>);
impl Media for Ram {
    fn read(&mut self, m: MemberId, o: u64, b: &mut [u8]) -> Result<(), MediaError> {
        for (at, part) in (o..).step_by(BLOCK).zip(b.chunks_mut(BLOCK)) {
            match self.0.get(&(m.0, at)) {
                Some(block) => part.copy_from_slice(block),
                None => part.fill(0),
            }
        }
        Ok(())
    }
    fn write(&mut self, m: MemberId, o: u64, b: &[u8]) -> Result<(), MediaError> {
        for (at, part) in (o..).step_by(BLOCK).zip(b.chunks(BLOCK)) {
            self.0.insert((m.0, at), part.to_vec());
        }
        Ok(())
    }
    fn flush(&mut self, _m: MemberId) -> Result<(), MediaError> {
        Ok(())
    }
}

/// Fast is on member 0, slow on member 1, which has room for all extents.
pub fn engine(policy: &str, params: Params) -> Engine {
    sized(policy, params, FAST, EXTENTS)
}

/// The same with other numbers of fast slots and of extents.
pub fn sized(policy: &str, params: Params, fast: u32, extents: u32) -> Engine {
    shaped(policy, params, (fast, extents), 12)
}

/// The same with another size of extents, in blocks of 512 bytes.
pub fn shaped(policy: &str, params: Params, size: (u32, u32), shift: u32) -> Engine {
    let policy = build(policy, core::iter::empty()).unwrap();
    let kind = policy.uses().volume();
    of_kind(kind, policy, params, size, shift)
}

/// A tiering volume under any policy, so that homes need slots.
pub fn tiering(policy: &str, params: Params, fast: u32, extents: u32) -> Engine {
    let policy = build(policy, core::iter::empty()).unwrap();
    of_kind(geometry::Kind::Tiering, policy, params, (fast, extents), 12)
}

/// The metadata areas of these volumes.
pub fn area(kind: geometry::Kind, (fast, extents): (u32, u32), shift: u32) -> MetaArea {
    let blocks = 1 << (shift - 9);
    let recorded = kind.recorded(extents, fast);
    MetaArea::for_volume(recorded, blocks, 0).with_copies(recorded, fast, blocks)
}

fn of_kind(
    kind: geometry::Kind,
    policy: Box<dyn Policy>,
    params: Params,
    (fast, extents): (u32, u32),
    shift: u32,
) -> Engine {
    let area = area(kind, (fast, extents), shift);
    let member = |i: u8, slots: u32| MemberEntry {
        uuid: [i + 1; 16],
        tier: TierId(i),
        slots,
        ..MemberEntry::default()
    };
    let shape = Shape {
        kind,
        extent_shift: shift,
        block_shift: 9,
        extents,
        area,
    };
    let members = vec![member(0, fast), member(1, extents + 8)];
    let sb = Superblock::new([7; 16], 1, shape, members).placed(4096);
    let mut ram = Ram::default();
    format(&mut ram, &sb).unwrap();
    let found: Vec<_> = (0..2u8)
        .map(|m| Superblock::decode(&ram.0[&(m, 0)]).ok())
        .collect();
    let opened = open(&mut ram, &found, Mode::ReadWrite { epoch: 2 }).unwrap();
    Engine::new(
        opened,
        policy,
        Params {
            map_on_read: true,
            ..params
        },
    )
}

/// The time, devices whose operations take time, and the writes of moves to the fast member with their times.
pub struct Run {
    pub engine: Engine,
    pub now: Nanos,
    pub due: BTreeMap<(Nanos, u32), DeviceOp>,
    pub out: Vec<Effect>,
    pub random: SplitMix64,
    pub tag: u32,
    pub replies: u32,
    pub moved: Vec<(Nanos, u64)>,
    /// The operations on the slow member that woke it, and its standby commands, with their times.
    pub sleeps: Vec<(Nanos, Option<OpKind>)>,
    /// Time that the slow member needs to wake up, and the time at which it is ready after its last wake-up.
    pub wake: Nanos,
    ready: Nanos,
    /// Whether its own cache answers the operation that wakes it.
    pub cached: bool,
    /// Whether the slow member refuses to go to standby.
    pub restless: bool,
    /// When each request arrived, by tag, and how long those took that are answered.
    arrived: BTreeMap<u32, Nanos>,
    pub latencies: Vec<Nanos>,
}

impl Run {
    pub fn new(policy: &str, params: Params) -> Run {
        Run::of(engine(policy, params))
    }
    pub fn of(engine: Engine) -> Run {
        Run {
            engine,
            now: Nanos(0),
            due: BTreeMap::new(),
            out: Vec::new(),
            random: SplitMix64::new(1),
            tag: 0,
            replies: 0,
            moved: Vec::new(),
            sleeps: Vec::new(),
            wake: Nanos(0),
            ready: Nanos(0),
            cached: false,
            restless: false,
            arrived: BTreeMap::new(),
            latencies: Vec::new(),
        }
    }
    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }
    pub fn carry_out(&mut self) {
        for e in std::mem::take(&mut self.out) {
            let op = match e {
                Effect::Start(op) => op,
                Effect::Reply { tag, result } => {
                    assert_eq!(result, Ok(()));
                    // Some tests submit requests to the engine themselves.
                    if let Some(arrived) = self.arrived.remove(&tag.0) {
                        self.latencies.push(self.now.since(arrived));
                    }
                    self.replies += 1;
                    continue;
                }
                _ => continue,
            };
            if matches!(
                (op.kind, op.buf, op.member),
                (OpKind::Write, BufRef::Move { .. }, MemberId(0))
            ) {
                self.moved.push((self.now, u64::from(op.len)));
            }
            let ready = self.ready;
            if op.member == MemberId(1) {
                let asleep = self.sleeps.last().is_some_and(|n| n.1.is_none());
                match op.kind {
                    OpKind::Standby => self.sleeps.push((self.now, None)),
                    kind if asleep => {
                        self.sleeps.push((self.now, Some(kind)));
                        self.ready = self.now + self.wake;
                    }
                    _ => {}
                }
            }
            let takes = Nanos(20_000 + self.draw(2_000_000));
            let begins = match op.member {
                MemberId(1) if self.cached => self.now.max(ready),
                MemberId(1) => self.now.max(self.ready),
                _ => self.now,
            };
            self.due.insert((begins + takes, op.id.0), op);
        }
    }
    pub fn submit(&mut self, op: RequestOp, extent: u64) {
        self.tag += 1;
        let (offset, len) = if op == RequestOp::Flush {
            (0, 0)
        } else {
            (extent * EXTENT, EXTENT as u32)
        };
        let req = Request {
            tag: Tag(self.tag),
            op,
            offset,
            len,
            fua: false,
            class: 0,
        };
        self.arrived.insert(self.tag, self.now);
        self.engine.submit(self.now, req, &mut self.out);
        self.carry_out();
    }
    /// Runs until `until`. Returns how often the engine was called only because a time had come.
    pub fn run(&mut self, until: Nanos) -> u32 {
        let mut ticks = 0;
        loop {
            let done = self.due.first_key_value().map(|(k, _)| k.0);
            let wake = self
                .engine
                .next_wake()
                .map(|t| Nanos(t.0.max(self.now.0 + 1000)));
            let next = [done, wake]
                .into_iter()
                .flatten()
                .min()
                .filter(|t| *t <= until);
            let Some(next) = next else { break };
            self.now = next;
            if done == Some(next) {
                let (_, op) = self.due.pop_first().unwrap();
                let refused = self.restless && op.kind == OpKind::Standby;
                let result = if refused {
                    Err(IoError::Io)
                } else {
                    Ok(op.len)
                };
                self.engine.complete(self.now, op.id, result, &mut self.out);
            } else {
                ticks += 1;
                self.engine.tick(self.now, &mut self.out);
            }
            self.carry_out();
        }
        self.now = until;
        ticks
    }
    /// Makes `n` requests, one every `gap`. Different extents are hot one after the other.
    pub fn busy(&mut self, n: u64, gap: Nanos, writes: u64) {
        for i in 0..n {
            let hot = i / 200 * 7;
            let extent = if self.draw(4) == 0 {
                self.draw(u64::from(EXTENTS))
            } else {
                (hot + self.draw(24)) % u64::from(EXTENTS)
            };
            let op = if self.draw(100) < writes {
                RequestOp::Write
            } else {
                RequestOp::Read
            };
            self.submit(op, extent);
            let until = self.now + gap;
            self.run(until);
        }
    }
    pub fn refused(&self, why: Refusal) -> u64 {
        let c = self.engine.counters();
        let all: [&MoveCounters; 5] = [
            &c.promotions,
            &c.demotions,
            &c.fetches,
            &c.evictions,
            &c.writebacks,
        ];
        all.iter().map(|m| m.refused[why as usize]).sum()
    }
}
