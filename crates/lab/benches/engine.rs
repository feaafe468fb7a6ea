//! The cost of an access in the engine alone, over two simple devices, eight servers of 60 µs and one of 5 ms, without the lab's loop and
//! models. 262 144 extents of 4 KiB, a fast tier of 20 %, skewed accesses. CPU time of the thread for the last three quarters.
//!
//! `cargo bench -p isotherm-lab --bench engine -- POLICY DEPTH WRITES_PERCENT REQUESTS`
//!
//! To compare two trees, build the program in each and run both in turn: equal digests mean that all device operations and their times
//! are the same.

mod ram;

use isotherm_core::engine::Params;
use isotherm_core::policy::build;
use isotherm_core::random::SplitMix64;
use isotherm_core::store::open::Mode;
use isotherm_core::store::superblock::{MemberEntry, Shape};
use isotherm_core::store::{Media, MetaArea, Superblock, format, open};
use isotherm_core::{
    DeviceOp, Effect, Engine, MemberId, Nanos, OpId, OpKind, Request, RequestOp, Tag, TierId,
};
use ram::Ram;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::error::Error;

type Outcome<T> = Result<T, Box<dyn Error>>;

const EXTENTS: u32 = 1 << 18;

/// An engine over an empty volume.
fn engine(policy: &str) -> Outcome<Engine> {
    let area = MetaArea::for_volume(EXTENTS, 1, 1 << 30).with_copies(EXTENTS, EXTENTS / 5, 1);
    let entry = |i: u8, slots: u32| MemberEntry {
        uuid: [i; 16],
        tier: TierId(i),
        slots,
        data_offset: 128 << 30,
        bytes: 1 << 50,
        ..MemberEntry::default()
    };
    let shape = Shape {
        kind: isotherm_core::geometry::Kind::Tiering,
        extent_shift: 12,
        block_shift: 12,
        extents: EXTENTS,
        area,
    };
    let members = vec![entry(0, EXTENTS / 5), entry(1, EXTENTS + 1024)];
    let sb = Superblock::new([1; 16], 1, shape, members);
    let mut ram = Ram::default();
    format(&mut ram, &sb).map_err(|e| format!("format: {e:?}"))?;
    let found: Vec<_> = (0..2)
        .map(|i| {
            let mut block = vec![0; 4096];
            ram.read(MemberId(i), 0, &mut block).ok()?;
            Superblock::decode(&block).ok()
        })
        .collect();
    let opened =
        open(&mut ram, &found, Mode::ReadWrite { epoch: 2 }).map_err(|e| format!("open: {e}"))?;
    let policy = build(policy, std::iter::empty()).map_err(|e| format!("{e:?}"))?;
    let asked = policy.move_rules().limit.unwrap_or(0).min(1024) as u16;
    let params = Params {
        map_on_read: true,
        own_slots: true,
        move_buffers: Params::buffers_for(4096).max(asked),
        unread_metadata: true,
        counter_every: None,
        flush_ahead: 0,
        flush_gather: 0,
        ..Params::default()
    };
    Ok(Engine::new(opened, policy, params))
}

/// Both devices: when each server is free, and the ends of operations, by time and order of start.
struct Devices {
    servers: [Vec<u64>; 2],
    ends: BinaryHeap<Reverse<(u64, u64, u32, u32)>>,
    started: u64,
    digest: u64,
}

impl Devices {
    fn start(&mut self, now: u64, op: &DeviceOp) {
        let m = usize::from(op.member.0);
        let (read, write) = [(60_000, 30_000), (5_000_000, 3_000_000)][m];
        let takes = match op.kind {
            OpKind::Read => read,
            OpKind::Flush => read / 2,
            _ => write,
        } + (op.offset >> 12) % 7 * 1000;
        if let Some(free) = self.servers[m].iter_mut().min() {
            *free = now.max(*free) + takes;
            self.started += 1;
            self.ends
                .push(Reverse((*free, self.started, op.id.0, op.len)));
        }
        let what = op.offset ^ u64::from(op.member.0) << 50 ^ now;
        self.digest = self.digest.wrapping_mul(31).wrapping_add(what);
    }
}

/// CPU time of this thread.
fn cpu_ns() -> i64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

fn run(policy: &str, depth: u32, writes: u64, requests: u32) -> Outcome<()> {
    let mut e = engine(policy)?;
    let mut devices = Devices {
        servers: [vec![0; 8], vec![0]],
        ends: BinaryHeap::new(),
        started: 0,
        digest: 0,
    };
    let (mut random, n) = (SplitMix64::new(1), u64::from(EXTENTS));
    let mut free: Vec<u32> = (0..depth).rev().collect();
    let (mut now, mut ticked, mut sent, mut done, mut begun) = (0, 0, 0, 0, cpu_ns());
    let mut out = Vec::new();
    while done < requests {
        if let Some(tag) = free.pop().filter(|_| sent < requests) {
            sent += 1;
            if sent == requests / 4 {
                begun = cpu_ns();
            }
            let offset = (random.below(n) * random.below(n) / n) << 12;
            let op = if random.below(100) < writes {
                RequestOp::Write
            } else {
                RequestOp::Read
            };
            let request = Request {
                tag: Tag(tag),
                op,
                offset,
                len: 4096,
                fua: false,
                class: 0,
            };
            e.submit(Nanos(now), request, &mut out);
        } else {
            let wake = e.next_wake().map_or(u64::MAX, |w| w.0.max(ticked));
            match devices.ends.peek() {
                Some(&Reverse((at, _, id, len))) if at <= wake => {
                    devices.ends.pop();
                    now = now.max(at);
                    e.complete(Nanos(now), OpId(id), Ok(len), &mut out);
                }
                _ if wake < u64::MAX => {
                    now = now.max(wake);
                    ticked = now + 1000;
                    e.tick(Nanos(now), &mut out);
                }
                _ => return Err(format!("the volume hangs: {}", e.under_way()).into()),
            }
        }
        for effect in out.drain(..) {
            match effect {
                Effect::Start(op) => devices.start(now, &op),
                Effect::Reply { tag, result } => {
                    result.map_err(|error| format!("a request failed: {error:?}"))?;
                    done += 1;
                    free.push(tag.0);
                }
                _ => {}
            }
        }
    }
    let each = (cpu_ns() - begun) as f64 / f64::from(requests - requests / 4);
    let c = e.counters();
    println!(
        "{policy}, depth {depth}, {writes} % writes: {each:.0} ns an access; waited {}, up {}, down {}, fetched {}, rounds {}, digest {:016x}",
        c.waited, c.promotions.done, c.demotions.done, c.fetches.done, c.rounds, devices.digest
    );
    Ok(())
}

fn main() -> Outcome<()> {
    // Cargo adds `--bench`.
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|w| *w != "--bench")
        .collect();
    match words[..] {
        [] => run("lru", 8, 30, 300_000),
        [policy, depth, writes, requests] => run(
            policy,
            depth.parse::<u32>()?.max(1),
            writes.parse()?,
            requests.parse()?,
        ),
        _ => Err("usage: engine [POLICY DEPTH WRITES_PERCENT REQUESTS]".into()),
    }
}
