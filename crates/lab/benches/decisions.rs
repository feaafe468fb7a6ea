//! The cost of a decision in the whole engine (submit, device operation, completion, reply) over a null world that completes at once, and
//! in the hit-only null engine. Budget: 300 ns per request.
//!
//! `cargo bench -p isotherm-lab --bench decisions`

mod ram;

use divan::{Bencher, counter::ItemsCount};
use isotherm_core::engine::Params;
use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{PRESETS, build};
use isotherm_core::random::SplitMix64;
use isotherm_core::store::open::Mode;
use isotherm_core::store::superblock::{MemberEntry, Shape};
use isotherm_core::store::{Media, MetaArea, Superblock, format, open};
use isotherm_core::{Effect, Engine, ExtentId, MemberId, Nanos, Request, RequestOp, Tag, TierId};
use ram::Ram;

fn main() {
    divan::main();
}

const EXTENTS: u32 = 1 << 18; // 16 GiB of 64 KiB

fn engine(policy: &str) -> Engine {
    let area = MetaArea::for_volume(EXTENTS, 16, 4 << 30);
    let entry = |i: u8, slots: u32| MemberEntry {
        uuid: [i; 16],
        tier: TierId(i),
        slots,
        data_offset: 256 << 20,
        bytes: 1 << 40,
        ..MemberEntry::default()
    };
    let shape = Shape {
        kind: isotherm_core::geometry::Kind::Tiering,
        extent_shift: 16,
        block_shift: 12,
        extents: EXTENTS,
        area,
    };
    let members = vec![entry(0, EXTENTS / 4), entry(1, EXTENTS)];
    let sb = Superblock::new([1; 16], 1, shape, members);
    let mut ram = Ram::default();
    format(&mut ram, &sb).expect("format");
    let found: Vec<_> = (0..2)
        .map(|i| Superblock::decode(&sb_block(&mut ram, i)).ok())
        .collect();
    let opened = open(&mut ram, &found, Mode::ReadWrite { epoch: 2 }).expect("open");
    Engine::new(
        opened,
        build(policy, std::iter::empty()).expect("policy"),
        Params::default(),
    )
}

fn sb_block(ram: &mut Ram, i: u8) -> Vec<u8> {
    let mut b = vec![0; 4096];
    ram.read(MemberId(i), 0, &mut b).expect("read");
    b
}

struct Null {
    now: Nanos,
    out: Vec<Effect>,
    replies: u64,
}

impl Null {
    /// Carry everything out until nothing is left.
    fn drain(&mut self, e: &mut Engine) {
        let mut next = Vec::new();
        while !self.out.is_empty() {
            for x in self.out.drain(..) {
                match x {
                    Effect::Start(op) => e.complete(self.now, op.id, Ok(op.len), &mut next),
                    Effect::Reply { .. } => self.replies += 1,
                    _ => {}
                }
            }
            std::mem::swap(&mut self.out, &mut next);
        }
    }
}

fn requests(bencher: Bencher, policy: &str, hot: u64, write: bool) {
    let mut e = engine(policy);
    let mut w = Null {
        now: Nanos(1),
        out: Vec::with_capacity(64),
        replies: 0,
    };
    let mut random = SplitMix64::new(42);
    let mut go = |e: &mut Engine, w: &mut Null, op, extents: u64| {
        w.now = w.now + Nanos(1000);
        let offset = random.below(extents * 16) * 4096;
        e.submit(
            w.now,
            Request {
                tag: Tag(0),
                op,
                offset,
                len: 4096,
                fua: false,
                class: 0,
            },
            &mut w.out,
        );
        w.drain(e);
    };
    for _ in 0..hot * 40 {
        go(&mut e, &mut w, RequestOp::Write, hot);
    }
    let op = if write {
        RequestOp::Write
    } else {
        RequestOp::Read
    };
    bencher.counter(ItemsCount::new(1000u32)).bench_local(|| {
        for _ in 0..1000 {
            go(&mut e, &mut w, op, hot);
        }
    });
}

#[divan::bench(args = ["linear", "greendm", "hot-dst-recency", "hot-dst-frequency"])]
fn engine_reads_on_fast(bencher: Bencher, policy: &str) {
    requests(bencher, policy, 20_000, false);
}

#[divan::bench(args = ["linear", "greendm", "hot-dst-recency", "hot-dst-frequency"])]
fn engine_writes_on_fast(bencher: Bencher, policy: &str) {
    requests(bencher, policy, 20_000, true);
}

#[divan::bench(args = PRESETS.iter().map(|p| p.name))]
fn hit_only(bencher: Bencher, policy: &str) {
    let m = |t, slots| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    };
    let n = 1u32 << 18;
    let geo = Geometry::new(12, 12, n, vec![m(0, n / 10), m(1, n + 256)]).expect("geometry");
    let mut e = NullEngine::new(geo, build(policy, std::iter::empty()).expect("policy"));
    let mut random = SplitMix64::new(7);
    let mut now = 0;
    let mut access = move |e: &mut NullEngine<_>| {
        // Skewed: the product of two uniforms.
        let x = random.below(u64::from(n)) * random.below(u64::from(n)) / u64::from(n);
        now += 10_000;
        // A third of the accesses are writes. They arrive every 10 µs, so that a plan is due at times.
        let write = random.below(3) == 0;
        e.access(Nanos(now), ExtentId(x as u32), write, 0, (x << 12, 4096))
    };
    for _ in 0..n * 4 {
        access(&mut e);
    }
    bencher
        .counter(ItemsCount::new(1000u32))
        .bench_local(|| (0..1000).filter(|_| access(&mut e)).count());
}
