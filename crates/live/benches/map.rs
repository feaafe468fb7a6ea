//! The cost of a request in the engine on maps of different sizes, with default pages and with huge pages.
//!
//! ```text
//! cargo bench -p isotherm-live --bench map -- [rounds=3] [requests=2000000] [largest=100000000]
//! valgrind --tool=callgrind --cache-sim=yes --instr-atstart=no map only=EXTENTS:POLICY:TOGETHER [requests=200000]
//! ```
//! The second form is for `bench/map/misses.sh`: it runs one case under callgrind, which counts only the requests. The volume is created
//! before callgrind simulates anything, and 10^6 requests that are not counted fill the simulated caches.
//!
//! Measures the whole engine (submit, device operation, completion, reply) over a world that completes at once. Every extent has a home,
//! and 4 KiB reads go to random extents: one at a time, or 32 that arrive together, whose rows are then fetched together
//! (`isotherm_core::run`). Policies: `linear` keeps no state for an extent and has a tiering volume; `lru` and `benefit` have a cache volume,
//! in which most reads are misses that make copies.

#[path = "../../lab/benches/ram/mod.rs"]
mod ram;

use isotherm_core::engine::Params;
use isotherm_core::policy::build;
use isotherm_core::random::SplitMix64;
use isotherm_core::store::open::Mode;
use isotherm_core::store::superblock::{MemberEntry, Shape};
use isotherm_core::store::{Media, MetaArea, Superblock, format, open};
use isotherm_core::{
    Effect, Engine, ExtentId, MemberId, Nanos, Request, RequestOp, Slot, Tag, TierId,
};
use isotherm_live::volume::ask_for_huge;
use ram::Ram;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::time::Instant;

/// Requests before callgrind counts: they touch more cache lines than the simulated caches have.
const WARM_UP: u32 = 1_000_000;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// An engine whose extents all have a home: at their addresses in a cache volume, else in a random order of slots.
fn engine(policy: &str, extents: u32) -> Outcome<Engine> {
    let area = MetaArea::for_volume(extents, 16, 64 << 30);
    let entry = |i: u8, slots: u32| MemberEntry {
        uuid: [i; 16],
        tier: TierId(i),
        slots,
        data_offset: 128 << 30,
        bytes: 1 << 50,
        ..MemberEntry::default()
    };
    let policy = build(policy, std::iter::empty()).map_err(|e| format!("{e:?}"))?;
    let shape = Shape {
        kind: policy.uses().volume(),
        extent_shift: 16,
        block_shift: 12,
        extents,
        area,
    };
    let members = vec![entry(0, extents / 10), entry(1, extents)];
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
    let mode = Mode::ReadWrite { epoch: 2 };
    let mut opened = open(&mut ram, &found, mode).map_err(|e| format!("open: {e}"))?;
    // Only the rows are filled, as recovery loads them: reads need nothing else.
    let first = opened.space.geo.tier_slots(TierId(1)).start;
    let moved = if opened.space.geo.is_cache() {
        0
    } else {
        extents
    };
    for e in 0..moved {
        let slot = first + (u64::from(e) * 2_654_435_761 % u64::from(extents)) as u32;
        opened.space.map.load(ExtentId(e), Some(Slot(slot)));
    }
    Ok(Engine::new(opened, policy, Params::default()))
}

/// Reads at random extents, `together` at a time. Returns nanoseconds per request.
fn reads(
    e: &mut Engine,
    now: &mut u64,
    random: &mut SplitMix64,
    requests: u32,
    together: u32,
) -> f64 {
    let bytes = u64::from(e.space().geo.extents) << 16;
    let (mut out, mut next, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
    let begun = Instant::now();
    for _ in 0..requests / together {
        *now += 1000;
        let at = Nanos(*now);
        offsets.clear();
        for _ in 0..together {
            offsets.push(random.below(bytes) & !4095);
        }
        if together > 1 {
            for &o in &offsets {
                e.expect(o);
            }
        }
        for &offset in &offsets {
            let read = Request {
                tag: Tag(0),
                op: RequestOp::Read,
                offset,
                len: 4096,
                fua: false,
                class: 0,
            };
            e.submit(at, read, &mut out);
        }
        while !out.is_empty() {
            for effect in out.drain(..) {
                if let Effect::Start(op) = effect {
                    e.complete(at, op.id, Ok(op.len), &mut next);
                }
            }
            std::mem::swap(&mut out, &mut next);
        }
    }
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(requests)
}

/// Writes a line to the file that `bench/performance.py` names, if it runs this bench.
fn keep(case: &str, of: &str, round: u32, value: f64) -> Outcome<()> {
    println!("{case:<24} {of:<34} {value:>8.1}");
    let Some(path) = std::env::var_os("BENCH_KEEP") else {
        return Ok(());
    };
    let mut file = File::options().append(true).create(true).open(path)?;
    writeln!(file, "{case}\t{of}\t{round}\t{value:.2}")?;
    Ok(())
}

/// Tells the callgrind under which this process runs to switch its simulation on or off (`-i on`), or to forget its counts (`-z`).
fn callgrind(words: &[&str]) -> Outcome<()> {
    let id = std::process::id().to_string();
    let done = Command::new("callgrind_control")
        .args(words)
        .arg(&id)
        .output();
    let done = done.map_err(|e| format!("callgrind_control: {e}; it is a part of valgrind"))?;
    let said = String::from_utf8_lossy(&done.stdout);
    if done.status.success() && said.contains("OK") {
        return Ok(());
    }
    let what = words.join(" ");
    Err(format!("callgrind_control {what}: {said}; only= needs valgrind --tool=callgrind").into())
}

/// Runs one case, given as `EXTENTS:POLICY:TOGETHER`, and lets callgrind count its requests.
fn only(case: &str, requests: u32) -> Outcome<()> {
    let words: Vec<&str> = case.split(':').collect();
    let [extents, policy, together] = words[..] else {
        return Err(format!("only={case}: write EXTENTS:POLICY:TOGETHER").into());
    };
    let extents = extents.parse()?;
    let together = together.parse::<u32>()?.clamp(1, 1000);
    let mut e = engine(policy, extents)?;
    let (mut now, mut random) = (u64::from(extents), SplitMix64::new(42));
    callgrind(&["-i", "on"])?;
    reads(&mut e, &mut now, &mut random, WARM_UP, together);
    callgrind(&["-z"])?;
    reads(&mut e, &mut now, &mut random, requests, together);
    callgrind(&["-i", "off"])?;
    let counted = requests / together * together;
    let bytes = e.memory().per_extent(extents);
    println!("{counted} requests, {bytes:.2} bytes an extent");
    Ok(())
}

fn main() -> Outcome<()> {
    let mut one = None;
    let (mut rounds, mut requests, mut largest) = (3, 2_000_000, 100_000_000);
    // Cargo adds `--bench`.
    for word in std::env::args().skip(1).filter(|w| w != "--bench") {
        match word.split_once('=') {
            Some(("rounds", n)) => rounds = n.parse()?,
            Some(("requests", n)) => requests = n.parse::<u32>()?.max(1000),
            Some(("largest", n)) => largest = n.parse()?,
            Some(("only", case)) => one = Some(case.to_owned()),
            _ => {
                return Err("usage: map [rounds=N] [requests=N] [largest=EXTENTS] [only=EXTENTS:POLICY:TOGETHER]".into());
            }
        }
    }
    if let Some(case) = one {
        return only(&case, requests);
    }
    for round in 1..=rounds {
        for extents in [10_000, 1_000_000, 100_000_000] {
            for policy in ["linear", "lru", "benefit"] {
                if extents > largest {
                    continue;
                }
                let mut e = engine(policy, extents)?;
                let (mut now, mut random) = (e.space().geo.extents.into(), SplitMix64::new(42));
                let case = format!("{extents} extents, {policy}");
                for pages in ["pages as they come", "huge pages"] {
                    if pages == "huge pages" && ask_for_huge(&e.space().map) == 0 {
                        continue;
                    }
                    reads(&mut e, &mut now, &mut random, requests / 10, 1);
                    for together in [1, 32] {
                        let ns = reads(&mut e, &mut now, &mut random, requests, together);
                        keep(&case, &format!("{together} together, {pages}"), round, ns)?;
                    }
                }
                if round == 1 {
                    let memory = e.memory();
                    println!("{case}: {:.2} bytes an extent", memory.per_extent(extents));
                }
            }
        }
    }
    Ok(())
}
