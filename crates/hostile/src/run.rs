//! Scenarios: clients with many requests in flight, crashes, recovery (itself crashed), several lifetimes of one volume.

use super::Rng;
use super::audit::audit;
use super::chaos::Chaos;
use super::clients::Pending;
use super::disk::{Disk, Disks};
use super::rollback::Kept;
use super::truth::{self, CELL, Truth};
use super::world::{Faults, Hostile};
use isotherm_core::engine::{Drain, Mutant, Params};
use isotherm_core::policy::{self, Policy, Refusal};
use isotherm_core::run::{Loop, Next};
use isotherm_core::store::OpenError;
use isotherm_core::store::open::Mode;
use isotherm_core::store::superblock::{self, MemberEntry, State};
use isotherm_core::store::{MetaArea, Superblock, format, mark_clean, open};
use isotherm_core::{
    Engine, Event, ExtentId, IoError, MemberId, Nanos, Request, RequestOp, Tag, TierId, World,
};
use std::collections::BTreeMap;

/// What the volume looks like. All have 4 KiB extents of 512 B blocks and very small journal rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// 24 extents, 10 fast slots, 20 slow ones.
    Small,
    /// The same with the fast tier on two members: one of them survives the other.
    TwoFast,
    /// The same on three tiers.
    ThreeTiers,
    /// The same with a slow tier that holds all of the volume, so that caching policies can serve it.
    Roomy,
    /// 640 extents, long requests: several journal blocks a round, several blocks and pieces a checkpoint.
    Large,
}

/// One scenario; everything follows from it.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Seed of everything random.
    pub seed: u64,
    /// Requests in a lifetime.
    pub requests: u64,
    /// Lifetimes; each but the last ends in a crash.
    pub lives: u32,
    /// In flight at once.
    pub depth: usize,
    /// What goes wrong while it runs.
    pub faults: Faults,
    /// Safety rule taken out.
    pub mutant: Option<Mutant>,
    /// End the first life at this many device changes (else at a random one).
    pub crash_at: Option<u64>,
    /// Preset to run instead of chaos.
    pub policy: Option<&'static str>,
    /// After every crash, and at the end, look at what is left without the fast member.
    pub lose_fast: bool,
    /// The volume.
    pub shape: Shape,
    /// Change the policy now and then while it runs.
    pub switch: bool,
    /// Chaos about copies only.
    pub copies: bool,
    /// Chaos that is a cache, and says so; `Some(true)`: one that never holds anything that the home lacks.
    pub cache: Option<bool>,
    /// Between two lives the fast member may vanish, and the volume goes on without it if it can.
    pub lose_cache: bool,
    /// At the end of each life an older copy of a member, made during that life, is put back and tried.
    pub rollback: bool,
    /// Journal blocks, if not as few as can be.
    pub ring: Option<u32>,
    /// So many lives, the first ones, end well.
    pub end_well: u32,
    /// Members' counters are never raised: they tell nothing of the journal.
    pub uncounted: bool,
}

impl Scenario {
    /// A plain one.
    pub fn new(seed: u64) -> Scenario {
        Scenario {
            seed,
            requests: 120,
            lives: 3,
            depth: 12,
            faults: Faults::default(),
            mutant: None,
            crash_at: None,
            policy: None,
            lose_fast: false,
            shape: Shape::Small,
            switch: false,
            copies: false,
            cache: None,
            lose_cache: false,
            rollback: false,
            ring: None,
            end_well: 0,
            uncounted: false,
        }
    }
}

/// What a run did, so that a test can see that it did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Did {
    /// Requests answered.
    pub answered: u64,
    /// Moves carried through.
    pub moves: u64,
    /// Moves overtaken.
    pub stale: u64,
    /// Copies made.
    pub fetches: u64,
    /// Copies given up.
    pub evictions: u64,
    /// Dirty copies written home.
    pub writebacks: u64,
    /// Changes of policy.
    pub switches: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Odd writes.
    pub edges: u64,
    /// Reads from a move's buffer.
    pub from_ram: u64,
    /// Crashes survived.
    pub crashes: u64,
    /// Times that a volume went on without its cache.
    pub losses: u64,
    /// Times that it did so after somebody accepted a loss.
    pub accepted: u64,
    /// Times that it refused.
    pub refused: u64,
    /// Older copies of members that were refused.
    pub rolled_back: u64,
    /// Older copies that were accepted, and lacked nothing that was certain.
    pub old_accepted: u64,
    /// Times that held work was done in a batch.
    pub batches: u64,
    /// Actions that the wear budget refused.
    pub worn: u64,
    /// Actions refused because a disk slept.
    pub asleep: u64,
    /// Device changes in the first life.
    pub steps: u64,
    /// Digest of all replies and their order.
    pub digest: u64,
}

/// A new volume of that shape.
fn superblock(seed: u64, ring: u32, shape: Shape) -> Superblock {
    let extents = if shape == Shape::Large { 640 } else { 24 };
    let fast = match shape {
        Shape::Small | Shape::Roomy | Shape::TwoFast => 10,
        Shape::ThreeTiers => 14,
        Shape::Large => 200,
    };
    let area = MetaArea {
        ring_blocks: ring,
        ..MetaArea::for_volume(extents, 8, 0).with_copies(extents, fast, 8)
    };
    let data_offset = |i: u8| (area.end() + 4096 + u64::from(i) * 4096).div_ceil(4096) * 4096;
    let entry = |i: u8, tier: u8, slots: u32| MemberEntry {
        uuid: [i + 1; 16],
        tier: TierId(tier),
        slots,
        data_offset: data_offset(i),
        bytes: data_offset(i) + u64::from(slots) * 4096,
        ..MemberEntry::default()
    };
    let members = match shape {
        Shape::Small => vec![entry(0, 0, 10), entry(1, 1, 20)],
        Shape::Roomy => vec![entry(0, 0, 10), entry(1, 1, 26)],
        Shape::TwoFast => vec![entry(0, 0, 5), entry(1, 0, 5), entry(2, 1, 20)],
        Shape::ThreeTiers => vec![entry(0, 0, 6), entry(1, 1, 8), entry(2, 2, 16)],
        Shape::Large => vec![entry(0, 0, 200), entry(1, 1, 460)],
    };
    let shape = superblock::Shape {
        extent_shift: 12,
        block_shift: 9,
        extents,
        area,
    };
    Superblock {
        policy: String::from("chaos"),
        name: String::from("hostile"),
        ..Superblock::new([0x42; 16], seed, shape, members)
    }
}

/// Superblocks as found on the disks.
pub(super) fn find(disks: &[Disk], sb: &Superblock) -> Vec<Option<Superblock>> {
    (0..disks.len())
        .map(|i| {
            let at = |offset| Superblock::decode(disks[i].get(offset, 4096).unwrap_or(&[]));
            let first = at(0);
            let second = at(sb.copy_offset(MemberId(i as u8)));
            isotherm_core::store::choose(first, second).ok()
        })
        .collect()
}

pub(super) struct Run {
    pub(super) s: Scenario,
    pub(super) rng: Rng,
    pub(super) sb: Superblock,
    pub(super) truth: Truth,
    pub(super) did: Did,
    epoch: u64,
    /// The cache that is gone.
    pub(super) gone: Option<Disk>,
    /// Its dirty copies were given up, which no record may say yet.
    pub(super) accept: bool,
    /// What is there now is what there is.
    pub(super) adopt: bool,
    /// The last session let the mirror lag so that a disk could sleep.
    pub(super) sleepy: bool,
    /// The older copy.
    pub(super) kept: Option<Kept>,
}

/// Run a scenario. Err says what was wrong.
pub fn run(s: Scenario) -> Result<Did, String> {
    let (mut run, mut disks) = Run::begin(s)?;
    for life in 0..s.lives {
        disks = run.live(disks, life)?;
        if disks.is_empty() {
            break;
        }
    }
    Ok(run.did)
}

impl Run {
    /// A fresh volume.
    pub(super) fn begin(s: Scenario) -> Result<(Run, Vec<Disk>), String> {
        let mut rng = Rng::new(s.seed);
        let sb = superblock(
            s.seed,
            s.ring
                .unwrap_or(if s.shape == Shape::Large { 12 } else { 4 } + rng.below(4) as u32),
            s.shape,
        );
        let mut disks: Vec<Disk> = sb
            .members
            .iter()
            .map(|m| Disk::new(m.bytes as usize))
            .collect();
        format(&mut Disks::of(&mut disks), &sb).map_err(|e| format!("format: {e:?}"))?;
        let truth = Truth::new(sb.geometry().map_err(String::from)?.volume_bytes());
        let run = Run {
            epoch: s.seed,
            s,
            rng,
            sb,
            truth,
            did: Did::default(),
            gone: None,
            accept: false,
            adopt: false,
            sleepy: false,
            kept: None,
        };
        Ok((run, disks))
    }

    fn policy(&self, life: u32) -> Result<Box<dyn Policy>, String> {
        if let Some(name) = self.s.policy {
            return policy::build(name, core::iter::empty()).map_err(|e| format!("{e:?}"));
        }
        let seed = self.s.seed ^ (u64::from(life) << 32);
        if let Some(through) = self.s.cache {
            return Ok(Box::new(Chaos::cache(seed, through)));
        }
        Ok(Box::new(if self.s.copies {
            Chaos::copies(seed)
        } else {
            Chaos::new(seed)
        }))
    }

    /// A policy that leaves no copy dirty (for every other seed), one that keeps no copies, then one that keeps nothing else: each ends
    /// up with what it can use.
    fn settle_down(engine: &mut Engine, world: &mut Hostile, seed: u64) -> Result<(), String> {
        let mut run = Loop::new();
        for name in ["write-around", "linear", "lru"] {
            let policy = match name {
                "write-around" if seed.is_multiple_of(2) => continue,
                "write-around" => {
                    let mode = ("write-mode", policy::ParamValue::Name(name));
                    policy::build_with("lru", [mode].into_iter())
                }
                _ => policy::build(name, core::iter::empty()),
            };
            let policy = policy.map_err(|e| format!("{e:?}"))?;
            if engine.set_policy(world.now(), policy).is_err() {
                continue;
            }
            let mut patience = 20_000;
            while engine.draining() != Drain::None || engine.progress().0 > 0 {
                world.pass(Nanos::from_millis(1));
                let now = world.now();
                run.call(engine, world, |e, out| e.tick(now, out));
                run.turn(engine, world, engine.next_wake(), None);
                patience -= 1;
                if patience == 0 || engine.has_failed() {
                    return Err(format!("{:?} under {name} does not end", engine.draining()));
                }
            }
            audit(engine)?;
            let (space, slowest) = (engine.space(), engine.space().geo.slowest());
            let high = (0..space.geo.extents)
                .filter_map(|e| space.map.home(ExtentId(e)))
                .any(|s| space.geo.tier_of(s) != slowest);
            let left = match name {
                "linear" => space.map.copied() > 0,
                "lru" => high,
                _ => high || space.map.dirty() > 0,
            };
            if left {
                return Err(format!("{name} is left with what it has no use for"));
            }
        }
        Ok(())
    }

    fn another_policy(&mut self) -> Result<Box<dyn Policy>, String> {
        // Every preset must bear what any other left behind.
        let all = policy::PRESETS;
        match all.get(self.rng.below(3 * all.len() as u64 / 2) as usize) {
            Some(p) => {
                let modes = policy::WRITE_MODES;
                let mode = (p.kind() == "caching")
                    .then(|| modes.get(self.rng.below(2 * modes.len() as u64) as usize))
                    .flatten();
                let mode = mode.map(|m| ("write-mode", policy::ParamValue::Name(m)));
                policy::build_with(p.name, mode.into_iter()).map_err(|e| format!("{e:?}"))
            }
            None => Ok(Box::new(Chaos::new(self.rng.draw()))),
        }
    }

    /// Budgets and sleep, by lots of their own: half of all lives have none.
    fn budgets(&self, life: u32) -> Params {
        let mut rng = Rng::new(self.s.seed ^ u64::from(life) << 40 ^ 0x0b0d_6e75);
        let mut p = Params::default();
        if rng.one_in(4) {
            // A move a millisecond at most, some every second at least.
            p.wear_bytes_per_day = Some(86_400 * 4096 * (1 + rng.below(1000)));
            p.wear_burst = Nanos::from_millis(1 + rng.below(1000));
        }
        if rng.one_in(3) {
            let members = self.sb.members.len();
            let asleep =
                |rng: &mut Rng| (!rng.one_in(4)).then(|| Nanos::from_micros(50 + rng.below(5000)));
            p.standby_after = (0..members).map(|_| asleep(&mut rng)).collect();
            p.sleep_hold = (!rng.one_in(4)).then(|| Nanos::from_millis(1 + rng.below(100)));
            p.sleep_hold_bytes = rng.one_in(2).then(|| 4096 * (1 + rng.below(8)));
        }
        p.moves_max = rng.one_in(6).then(|| 1 + rng.below(3) as u16);
        p.flush_ahead = [0, 1, 1, 2][(self.s.seed % 4) as usize];
        p
    }

    /// Open, with recovery losing power a few times first.
    fn open(&mut self, disks: &mut [Disk]) -> Result<isotherm_core::store::Opened, String> {
        for _ in 0..self.rng.below(3) {
            let fuse = Some(self.rng.below(14));
            let found = find(disks, &self.sb);
            let mode = self.mode();
            let mutant = self.s.mutant;
            let r = open(
                &mut Disks {
                    disks,
                    fuse,
                    mutant,
                },
                &found,
                mode,
            );
            if let Err(e) = &r
                && !matches!(e, OpenError::Media(_))
            {
                return Err(format!("recovery refused: {e}"));
            }
            for d in disks.iter_mut() {
                d.crash(&mut self.rng, &[]);
            }
            // Who comes to rely on the mirror alone may come then.
            if self.s.lose_fast && self.gone.is_none() {
                self.degraded(disks)?;
            }
        }
        self.old_cache_is_refused(disks)?;
        let found = find(disks, &self.sb);
        let mode = self.mode();
        let (fuse, mutant) = (None, self.s.mutant);
        open(
            &mut Disks {
                disks,
                fuse,
                mutant,
            },
            &found,
            mode,
        )
        .map_err(|e| format!("recovery refused: {e}"))
    }

    fn mode(&mut self) -> Mode {
        let epoch = self.next_epoch();
        match self.gone {
            None => Mode::ReadWrite { epoch },
            Some(_) => Mode::Degraded {
                epoch,
                accept_loss: self.accept,
            },
        }
    }

    pub(super) fn next_epoch(&mut self) -> u64 {
        self.epoch = self.epoch.wrapping_mul(31).wrapping_add(7);
        self.epoch
    }

    #[expect(clippy::too_many_lines, reason = "one scenario")]
    pub(super) fn live(&mut self, mut disks: Vec<Disk>, life: u32) -> Result<Vec<Disk>, String> {
        if self.s.lose_cache && life > 0 && self.gone.is_none() && self.rng.one_in(2) {
            self.lose(&mut disks, self.policy(life)?.uses())?;
        }
        let opened = self.open(&mut disks)?;
        let sb = opened.superblock.clone();
        let start = opened.time_base;
        let params = Params {
            move_buffers: 1 + self.rng.below(10) as u16,
            commit_interval: Nanos::from_millis(20 + self.rng.below(200)),
            stage_blocks: 8,
            piece_blocks: 1 + self.rng.below(3) as u32,
            pass_discards: self.rng.one_in(2),
            mutant: self.s.mutant,
            counter_every: (!self.s.uncounted).then(|| {
                Nanos::from_micros(if self.s.rollback {
                    0
                } else {
                    self.rng.below(30_000)
                })
            }),
            ..self.budgets(life)
        };
        self.sleepy = params.sleep_hold.is_some();
        let mut engine = Engine::new(opened, self.policy(life)?, params);
        let rng = Rng::new(self.rng.draw());
        let mut world = Hostile::new(disks, rng, Faults::default(), 4096, start);
        let volume = self.sb.geometry().map_err(String::from)?.volume_bytes();
        if life > 0 {
            self.verify(&mut engine, &mut world, volume)?;
        }
        world.faults = self.s.faults;
        let last = life + 1 == self.s.lives;
        // Some lives before the last end well, too: what a clean close promises is void for later crashes.
        let well =
            life < self.s.end_well || (!last && self.s.crash_at.is_none() && self.rng.one_in(4));
        let crash_at = match self.s.crash_at {
            Some(n) if life == 0 => Some(n),
            Some(_) => None,
            None if well => None,
            None => (!last).then(|| self.rng.below(self.s.requests * 2)),
        };
        self.plan_copy();
        let alive = self.work(&mut engine, &mut world, volume, crash_at)?;
        audit(&engine)?;
        if self.s.switch && alive && !engine.has_failed() {
            Self::settle_down(&mut engine, &mut world, self.s.seed)?;
        }
        let c = engine.counters();
        self.did.moves += c.promotions.done + c.demotions.done;
        self.did.stale += c.promotions.stale + c.demotions.stale;
        self.did.fetches += c.fetches.done;
        self.did.evictions += c.evictions.done;
        self.did.writebacks += c.writebacks.done;
        self.did.batches += c.sleep_batches + c.sleep_limits;
        for m in [
            &c.promotions,
            &c.demotions,
            &c.fetches,
            &c.evictions,
            &c.writebacks,
        ] {
            self.did.worn += m.refused[Refusal::WearBudget as usize];
            self.did.asleep += m.refused[Refusal::Asleep as usize];
        }
        self.did.checkpoints += c.checkpoints;
        self.did.edges += c.edge_writes;
        self.did.from_ram += c.served_from_ram;
        if life == 0 {
            self.did.steps = world.steps;
        }
        if well && alive && !engine.has_failed() {
            let (mut disks, failed) = Self::close(engine, world, &sb)?;
            if failed {
                for d in &mut disks {
                    d.crash(&mut self.rng, &[]);
                }
            } else {
                self.truth.settled();
                self.accept = false;
            }
            self.put_back(&disks, !failed)?;
            return Ok(disks);
        }
        if !alive || crash_at.is_some() || !last || engine.has_failed() {
            self.did.crashes += 1;
            // Now and then only the process dies. Power fails later, if at all: in recovery, or with the next life.
            let dies = self.rng.one_in(4);
            let (mut disks, rng) = if dies { world.die() } else { world.crash() };
            self.rng = rng;
            self.put_back(&disks, false)?;
            if self.s.lose_fast && self.gone.is_none() {
                self.degraded(&mut disks)?;
            }
            return Ok(disks);
        }
        self.end(engine, world, &sb, volume)
    }

    /// Close and mark clean; true if the engine failed meanwhile.
    fn close(
        mut engine: Engine,
        mut world: Hostile,
        sb: &Superblock,
    ) -> Result<(Vec<Disk>, bool), String> {
        let mut run = Loop::new();
        run.tell(&mut engine, &mut world, Event::Closed);
        let mut patience = 10_000;
        run.run(&mut engine, &mut world, |_, engine, _| {
            patience -= 1;
            match engine.next_wake() {
                _ if engine.is_closed() => Ok(Next::Stop),
                _ if patience == 0 => Err(String::from("close does not come to an end")),
                wake => Ok(Next::Wait(wake)),
            }
        })?;
        let failed = engine.has_failed();
        let mut disks = std::mem::take(&mut world.disks);
        if !failed {
            let mut all = Disks::of(&mut disks);
            mark_clean(&mut all, sb, &engine.closing(), world.now())
                .map_err(|e| format!("{e:?}"))?;
        }
        Ok((disks, failed))
    }

    /// Clean end: everything answered must be there, exactly.
    fn end(
        &mut self,
        engine: Engine,
        world: Hostile,
        sb: &Superblock,
        volume: u64,
    ) -> Result<Vec<Disk>, String> {
        let (mut disks, failed) = Self::close(engine, world, sb)?;
        self.accept &= failed;
        if self.s.lose_fast && self.gone.is_none() {
            self.degraded(&mut disks)?;
        }
        let opened = self.open(&mut disks)?;
        let start = opened.time_base;
        let mut engine = Engine::new(opened, self.policy(99)?, Params::default());
        let mut world = Hostile::new(disks, Rng::new(1), Faults::default(), 4096, start);
        if failed {
            self.verify(&mut engine, &mut world, volume)?;
        } else {
            let data = read_all(&mut engine, &mut world, volume)?;
            for c in 0..self.truth.cells() {
                let b = data[c / 64]
                    .as_ref()
                    .map(|d| &d[c % 64 * CELL..][..CELL])
                    .map_err(|e| format!("{e:?}"))?;
                if !self.truth.is_live(c, b) {
                    return Err(format!(
                        "after a clean close cell {c} holds {:?}",
                        truth::version_of(c, b)
                    ));
                }
            }
        }
        Ok(Vec::new())
    }

    /// The fast member is gone: what the slow one serves is its own or an error.
    fn degraded(&mut self, disks: &mut [Disk]) -> Result<(), String> {
        let mut found = find(disks, &self.sb);
        found[0] = None;
        let clean = found.iter().flatten().all(|s| s.state == State::Clean);
        let opened = match open(&mut Disks::of(disks), &found, Mode::ReadOnly) {
            Ok(o) => o,
            Err(e) => return Err(format!("degraded open refused: {e}")),
        };
        let start = opened.time_base;
        let volume = self.sb.geometry().map_err(String::from)?.volume_bytes();
        let mut engine = Engine::new(
            opened,
            Box::new(policy::Linear::new("linear")),
            Params {
                read_only: true,
                ..Params::default()
            },
        );
        let mut world = Hostile::new(disks.to_vec(), Rng::new(2), Faults::default(), 4096, start);
        for (i, block) in read_all(&mut engine, &mut world, volume)?
            .into_iter()
            .enumerate()
        {
            let Ok(data) = block else { continue };
            for c in 0..64 {
                let b = &data[c * CELL..(c + 1) * CELL];
                Truth::check_own(i * 64 + c, b)?;
                if clean && !self.truth.is_live(i * 64 + c, b) {
                    return Err(format!(
                        "degraded after a clean close: cell {} is old",
                        i * 64 + c
                    ));
                }
            }
        }
        Ok(())
    }

    /// After a crash: every cell holds something that it may hold.
    fn verify(
        &mut self,
        engine: &mut Engine,
        world: &mut Hostile,
        volume: u64,
    ) -> Result<(), String> {
        for (i, block) in read_all(engine, world, volume)?.into_iter().enumerate() {
            let data = block.map_err(|e| format!("read after recovery: {e:?}"))?;
            for c in 0..data.len() / CELL {
                let cell = &data[c * CELL..(c + 1) * CELL];
                if self.adopt {
                    self.truth.adopt(i * 64 + c, cell)?;
                } else {
                    self.truth.check_crashed(i * 64 + c, cell)?;
                }
            }
        }
        self.adopt = false;
        Ok(())
    }

    /// Clients at work. False if power was lost (or the engine failed) before the end.
    fn work(
        &mut self,
        engine: &mut Engine,
        world: &mut Hostile,
        volume: u64,
        crash_at: Option<u64>,
    ) -> Result<bool, String> {
        let mut flying: BTreeMap<Tag, Pending> = BTreeMap::new();
        let (mut issued, mut tag) = (0, 0u32);
        let mut patience = self.s.requests * 400 + 10_000;
        let mut alive = true;
        Loop::new().run(engine, world, |run, engine, world| {
            self.settle(engine, world, &mut flying)?;
            if crash_at.is_some_and(|n| world.steps >= n) {
                alive = false;
                return Ok(Next::Stop);
            }
            while issued < self.s.requests && flying.len() < self.s.depth && !self.rng.one_in(4) {
                issued += 1;
                tag += 1;
                if let Some((req, pending)) = self.request(world, Tag(tag), volume) {
                    flying.insert(req.tag, pending);
                    run.tell(engine, world, Event::Arrived(req));
                }
            }
            if self.s.switch && self.rng.one_in(40) {
                let policy = self.another_policy()?;
                // A shape may not allow it; refusing must change nothing.
                self.did.switches += u64::from(engine.set_policy(world.now(), policy).is_ok());
            }
            self.settle(engine, world, &mut flying)?;
            if issued == self.s.requests && flying.is_empty() {
                return Ok(Next::Stop);
            }
            self.copy_if_due(world);
            patience -= 1;
            if patience == 0 {
                return Err(format!(
                    "no progress: {} requests unanswered, {} operations in flight; {}",
                    flying.len(),
                    world.in_flight(),
                    engine.under_way()
                ));
            }
            Ok(Next::Wait(engine.next_wake()))
        })?;
        Ok(alive)
    }
}

/// Read the whole volume, an extent at a time.
pub(super) fn read_all(
    engine: &mut Engine,
    world: &mut Hostile,
    volume: u64,
) -> Result<Vec<Result<Vec<u8>, IoError>>, String> {
    let mut all = Vec::new();
    let mut run = Loop::new();
    for i in 0..volume / 4096 {
        let tag = Tag(1_000_000 + i as u32);
        world.give(tag, 4096, 0, None);
        let req = Request {
            tag,
            op: RequestOp::Read,
            offset: i * 4096,
            len: 4096,
            fua: false,
            class: 0,
        };
        run.tell(engine, world, Event::Arrived(req));
        let mut patience = 10_000;
        run.run(engine, world, |_, engine, world| {
            let replies = world.take_replies();
            if let Some(r) = replies.iter().find(|r| r.0 == tag) {
                all.push(r.1.map(|()| world.take(tag)));
                return Ok(Next::Stop);
            }
            patience -= 1;
            if patience == 0 {
                return Err(String::from("a read is never answered"));
            }
            Ok(Next::Wait(engine.next_wake()))
        })?;
    }
    Ok(all)
}
