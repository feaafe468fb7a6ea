//! Budgets of the engine: they hold for every policy, since the engine has them.
#![allow(clippy::unwrap_used)]

use isotherm_core::engine::{KNOBS, Params, knob};
use isotherm_core::policy::{PRESETS, Refusal, build};
use isotherm_core::stats::MoveCounters;
use isotherm_core::store::open::Mode;
use isotherm_core::store::superblock::{MemberEntry, State};
use isotherm_core::store::{Media, MediaError, MetaArea, Superblock, format, open};
use isotherm_core::*;
use std::collections::BTreeMap;

const EXTENT: u64 = 4096;
const FAST: u32 = 16;
const EXTENTS: u32 = 96;
const DAY: f64 = 86_400.0;

struct Ram(Vec<Vec<u8>>);
impl Media for Ram {
    fn read(&mut self, m: MemberId, o: u64, b: &mut [u8]) -> Result<(), MediaError> {
        b.copy_from_slice(&self.0[usize::from(m.0)][o as usize..o as usize + b.len()]);
        Ok(())
    }
    fn write(&mut self, m: MemberId, o: u64, b: &[u8]) -> Result<(), MediaError> {
        self.0[usize::from(m.0)][o as usize..o as usize + b.len()].copy_from_slice(b);
        Ok(())
    }
    fn flush(&mut self, _m: MemberId) -> Result<(), MediaError> {
        Ok(())
    }
}

/// Fast on member 0, slow on member 1, which holds all extents.
fn engine(policy: &str, params: Params) -> Engine {
    let area = MetaArea::for_volume(EXTENTS, 8, 0).with_copies(EXTENTS, FAST, 8);
    let data_offset = (area.end() + 4096).div_ceil(4096) * 4096;
    let member = |i: u8, slots: u32| MemberEntry {
        uuid: [i + 1; 16],
        tier: TierId(i),
        slots,
        data_offset,
        bytes: data_offset + u64::from(slots) * EXTENT,
        hint: String::new(),
    };
    let sb = Superblock {
        uuid: [7; 16],
        copies: false,
        generation: 1,
        epoch: 1,
        prev_generation: 0,
        prev_epoch: 0,
        first_seq: 1,
        prev_first_seq: 1,
        state: State::Clean,
        extent_shift: 12,
        block_shift: 9,
        extents: EXTENTS,
        area,
        index: 0,
        members: vec![member(0, FAST), member(1, EXTENTS + 8)],
        time_base: Nanos(0),
        policy: String::new(),
        name: String::new(),
    };
    let mut ram = Ram(sb
        .members
        .iter()
        .map(|m| vec![0; m.bytes as usize])
        .collect());
    format(&mut ram, &sb).unwrap();
    let found: Vec<_> = ram
        .0
        .iter()
        .map(|d| Superblock::decode(&d[..4096]).ok())
        .collect();
    let opened = open(&mut ram, &found, Mode::ReadWrite { epoch: 2 }).unwrap();
    let policy = build(policy, core::iter::empty()).unwrap();
    Engine::new(
        opened,
        policy,
        Params {
            map_on_read: true,
            ..params
        },
    )
}

/// Time, devices that take a while, and what moves wrote to the fast member when.
struct Run {
    engine: Engine,
    now: Nanos,
    due: BTreeMap<(Nanos, u32), DeviceOp>,
    out: Vec<Effect>,
    seed: u64,
    tag: u32,
    replies: u32,
    moved: Vec<(Nanos, u64)>,
    /// Operations on the slow member that woke it, and what put it to sleep.
    naps: Vec<(Nanos, Option<OpKind>)>,
}

impl Run {
    fn new(policy: &str, params: Params) -> Run {
        Run {
            engine: engine(policy, params),
            now: Nanos(0),
            due: BTreeMap::new(),
            out: Vec::new(),
            seed: 1,
            tag: 0,
            replies: 0,
            moved: Vec::new(),
            naps: Vec::new(),
        }
    }
    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }
    fn carry_out(&mut self) {
        for e in std::mem::take(&mut self.out) {
            let op = match e {
                Effect::Start(op) => op,
                Effect::Reply { result, .. } => {
                    assert_eq!(result, Ok(()));
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
            if op.member == MemberId(1) {
                let asleep = self.naps.last().is_some_and(|n| n.1.is_none());
                match op.kind {
                    OpKind::Standby => self.naps.push((self.now, None)),
                    kind if asleep => self.naps.push((self.now, Some(kind))),
                    _ => {}
                }
            }
            let takes = 20_000 + self.draw(2_000_000);
            self.due.insert((self.now + Nanos(takes), op.id.0), op);
        }
    }
    fn submit(&mut self, op: RequestOp, extent: u64) {
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
        self.engine.submit(self.now, req, &mut self.out);
        self.carry_out();
    }
    /// Let everything happen until `until`; how often the engine woke up for nothing but time.
    fn run(&mut self, until: Nanos) -> u32 {
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
                self.engine
                    .complete(self.now, op.id, Ok(op.len), &mut self.out);
            } else {
                ticks += 1;
                self.engine.tick(self.now, &mut self.out);
            }
            self.carry_out();
        }
        self.now = until;
        ticks
    }
    /// Requests on extents that are hot by turns, `n` of them, one every `gap`.
    fn busy(&mut self, n: u64, gap: Nanos, writes: u64) {
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
    fn refused(&self, why: Refusal) -> u64 {
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

/// The largest sum of bytes within any window, less what the budget allows in it.
fn excess(moved: &[(Nanos, u64)], rate_per_s: f64, burst: f64) -> f64 {
    let mut worst = f64::MIN;
    for i in 0..moved.len() {
        let mut sum = 0;
        for &(t, bytes) in &moved[i..] {
            sum += bytes;
            let allowed = rate_per_s * t.since(moved[i].0).as_secs_f64() + burst;
            worst = worst.max(sum as f64 - allowed);
        }
    }
    worst
}

#[test]
fn moves_never_write_more_than_rate_times_window_and_burst() {
    // Tiering, caching, Loris.
    for name in [
        "greendm",
        "lru",
        "hot-dst-dynamic",
        "cache-ondemand",
        "hot-dst-5s",
        "arc",
    ] {
        for (rate, burst_s, writes) in
            [(40_000.0, 2.0, 0), (200_000.0, 0.5, 30), (8_000.0, 30.0, 5)]
        {
            let params = Params {
                wear_bytes_per_day: Some((rate * DAY) as u64),
                wear_burst: Nanos((burst_s * 1e9) as u64),
                ..Params::default()
            };
            let mut free = Run::new(name, Params::default());
            free.busy(3000, Nanos::from_millis(5), writes);
            let mut run = Run::new(name, params);
            run.busy(3000, Nanos::from_millis(5), writes);
            let b = run.engine.wear_budget().unwrap();
            assert!(b.left_bytes <= b.burst_bytes as i64);
            let over = excess(&run.moved, rate, b.burst_bytes as f64);
            assert!(over <= 0.0, "{name} {rate}/s: {over} bytes over");
            let sum = |m: &[(Nanos, u64)]| m.iter().map(|x| x.1).sum::<u64>();
            let (had, wanted) = (sum(&run.moved), sum(&free.moved));
            let allowed = rate * run.now.as_secs_f64();
            assert!(had as f64 <= allowed, "the budget starts empty");
            if wanted as f64 > 1.5 * allowed {
                assert!(
                    run.refused(Refusal::WearBudget) > 0,
                    "{name} {rate}: {had} of {wanted}"
                );
            }
            // Without requests that write, nothing but moves and metadata use it: it is used, not hoarded.
            if writes == 0 && wanted as f64 > 4.0 * allowed {
                assert!(
                    had as f64 > 0.2 * allowed,
                    "{name} {rate}: {had} of {allowed}"
                );
            }
            assert_eq!(run.replies, run.tag, "{name}: every request was answered");
        }
    }
}

#[test]
fn requests_use_up_the_budget_and_are_never_refused() {
    let params = || Params {
        wear_bytes_per_day: Some(86_400 * 100_000),
        wear_burst: Nanos::from_secs(4),
        ..Params::default()
    };
    let mut idle = Run::new("greendm", params());
    idle.run(Nanos::from_secs(100));
    idle.engine.tick(idle.now, &mut idle.out);
    let b = idle.engine.wear_budget().unwrap();
    assert_eq!(
        (b.left_bytes, b.burst_bytes),
        (400_000, 400_000),
        "no more than the burst is saved up"
    );
    // New data goes to fast under greendm: 400 writes of 4 KiB in 2 s are more than what came in.
    let mut run = Run::new("greendm", params());
    for i in 0..400 {
        run.submit(RequestOp::Write, i % 8);
        let until = run.now + Nanos::from_millis(5);
        run.run(until);
    }
    let b = run.engine.wear_budget().unwrap();
    assert!(b.left_bytes < -1_000_000, "{b:?}");
    assert_eq!(run.replies, 400);
    // It is worked off before anything goes up again.
    run.busy(200, Nanos::from_millis(5), 0);
    assert!(run.moved.is_empty() && run.engine.counters().promotions.done == 0);
    let until = run.now + Nanos::from_secs(60);
    run.run(until);
    run.busy(400, Nanos::from_millis(5), 0);
    assert!(!run.moved.is_empty());
}

#[test]
fn admission_tightens_little_by_little() {
    // A steady demand, far over the budget: what passes is a share that settles, not bursts after pauses.
    let mut run = Run::new(
        "lru",
        Params {
            wear_bytes_per_day: Some(86_400 * 50_000),
            wear_burst: Nanos::from_secs(20),
            ..Params::default()
        },
    );
    run.busy(12_000, Nanos::from_millis(5), 0);
    let half = Nanos(run.now.0 / 2);
    let seconds = run.now.since(half).as_secs_f64();
    let late: Vec<_> = run.moved.iter().filter(|m| m.0 > half).collect();
    let rate = late.iter().map(|m| m.1).sum::<u64>() as f64 / seconds;
    assert!(
        (30_000.0..=50_500.0).contains(&rate),
        "{rate} bytes/s of 50000, metadata left out"
    );
    let longest = late
        .windows(2)
        .map(|w| w[1].0.since(w[0].0).0)
        .max()
        .unwrap();
    assert!(longest < 2_000_000_000, "a pause of {longest} ns");
    let b = run.engine.wear_budget().unwrap();
    assert!(
        b.left_bytes > 0 && b.left_bytes < b.burst_bytes as i64 / 2,
        "{b:?}"
    );
}

#[test]
fn a_budget_that_begins_has_saved_up_nothing_and_one_that_ends_refuses_nothing() {
    let mut run = Run::new("lru", Params::default());
    run.busy(300, Nanos::from_millis(5), 0);
    let before = run.moved.len();
    run.engine.set("wear_bytes_per_day", 1.0).unwrap();
    run.busy(300, Nanos::from_millis(5), 0);
    // What was under way still ended.
    assert!(run.moved.len() <= before + 16 && run.refused(Refusal::WearBudget) > 0);
    let (held, refused) = (run.moved.len(), run.refused(Refusal::WearBudget));
    run.engine.set("wear_bytes_per_day", 0.0).unwrap();
    run.busy(300, Nanos::from_millis(5), 0);
    assert!(run.moved.len() > held && run.refused(Refusal::WearBudget) == refused);
    assert!(run.engine.wear_budget().is_none());
}

#[test]
fn every_policy_heeds_every_throttle() {
    let at_once = Params {
        moves_max: Some(1),
        ..Params::default()
    };
    let slowly = Params {
        move_bytes_per_s: Some(20_000),
        ..Params::default()
    };
    let politely = Params {
        p99_limit: Some(Nanos(1)),
        ..Params::default()
    };
    let sparing = Params {
        wear_bytes_per_day: Some(1),
        ..Params::default()
    };
    let mut felt = [0u32; 4];
    for preset in PRESETS {
        let mut free = Run::new(preset.name, Params::default());
        free.busy(1500, Nanos::from_millis(5), 20);
        if free.moved.is_empty() {
            continue;
        }
        for (i, (params, why)) in [
            (&at_once, Refusal::Limit),
            (&slowly, Refusal::Throttled),
            (&politely, Refusal::Throttled),
            (&sparing, Refusal::WearBudget),
        ]
        .into_iter()
        .enumerate()
        {
            let mut run = Run::new(preset.name, params.clone());
            run.busy(1500, Nanos::from_millis(5), 20);
            let bytes: u64 = run.moved.iter().map(|m| m.1).sum();
            let name = preset.name;
            assert_eq!(run.replies, run.tag, "{name}");
            felt[i] += u32::from(run.refused(why) > 0);
            match i {
                // A second's worth, and what is begun while anything is left.
                1 => assert!(
                    bytes as f64 <= 20_000.0 * (run.now.as_secs_f64() + 1.0) + EXTENT as f64,
                    "{name}: {bytes}"
                ),
                3 => assert_eq!(bytes, 0, "{name}"),
                _ => {}
            }
            if i == 0 {
                assert!(run.engine.progress().0 <= 1, "{name}");
            }
        }
    }
    assert!(
        felt.iter().all(|n| *n >= 10),
        "refusals under {felt:?} policies"
    );
}

#[test]
fn a_limit_of_bandwidth_begins_without_debts() {
    let mut run = Run::new("lru", Params::default());
    run.busy(1000, Nanos::from_millis(5), 0);
    assert!(run.moved.len() > 100);
    run.engine.set("move_bytes_per_s", 40_000.0).unwrap();
    let before = run.moved.len();
    run.busy(400, Nanos::from_millis(5), 0);
    let moved = run.moved.len() - before;
    assert!(
        (8..=30).contains(&moved),
        "{moved} extents in 2 s at ten a second"
    );
}

#[test]
fn knobs_have_ranges_and_values() {
    let mut e = engine("lru", Params::default());
    for k in KNOBS {
        let before = e.knobs();
        assert!(
            e.set(k.name, -1.0).is_err() && e.set(k.name, f64::NAN).is_err(),
            "{}",
            k.name
        );
        assert_eq!(e.knobs(), before);
        e.set(k.name, 0.5f64.max(k.limits.0).max(2.0)).unwrap();
        let now = e.knobs().iter().find(|x| x.0 == k.name).unwrap().1;
        assert!((now - 2.0).abs() < 1e-6, "{}: {now}", k.name);
    }
    assert!(knob("wear_byte_per_day", 1.0).is_err());
}
