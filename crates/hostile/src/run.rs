//! Runs of scenarios: several lives of one volume, with many client requests in progress, crashes, and recovery, which may crash, too.

use super::Rng;
use super::audit::audit;
use super::cache_end::CacheEnd;
use super::clients::Pending;
use super::disk::{Disk, Disks};
use super::rollback::Kept;
use super::scenario::superblock;
pub use super::scenario::{Counts, Scenario, Shape};
use super::truth::Truth;
use super::world::{Faults, Hostile};
use isotherm_core::engine::{Mutant, Params};
use isotherm_core::geometry::Kind;
use isotherm_core::policy::Refusal;
use isotherm_core::run::{Loop, Next};
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::store::superblock::{MemberEntry, SuperblockError};
use isotherm_core::store::{self, OpenError, Opened, Superblock, format, keep, open};
use isotherm_core::{Engine, Event, Nanos, Tag, World};
use std::collections::BTreeMap;

/// The superblocks that are on the disks.
pub(super) fn find(disks: &[Disk], mutant: Option<Mutant>) -> Vec<Option<Superblock>> {
    let at = |disk: &Disk, offset, block: &mut [u8]| {
        block.copy_from_slice(disk.get(offset, 4096).ok_or(SuperblockError::Foreign)?);
        Ok(())
    };
    let first = |d| store::superblock_at(&mut |offset, block| at(d, offset, block), 0);
    let first: Vec<_> = disks.iter().map(first).collect();
    let places = store::second_places(first.iter().flatten());
    let one = |(d, first)| {
        let mut read = |offset, block: &mut [u8]| at(d, offset, block);
        let second = store::second_superblock(&mut read, &first, (&places, None), false);
        store::choose_under(mutant, first, second).ok()
    };
    disks.iter().zip(first).map(one).collect()
}

/// The members of a new volume. Nothing may depend on what they hold, but for the homes of a cache volume.
pub(super) fn new_disks(sb: &Superblock) -> Vec<Disk> {
    let slowest = sb.members.iter().map(|m| m.tier).max();
    let disk = |m: &MemberEntry| {
        let shown = sb.kind == Kind::Cache && Some(m.tier) == slowest;
        let new = if shown { Disk::zeros } else { Disk::new };
        new(m.bytes as usize)
    };
    sb.members.iter().map(disk).collect()
}

/// Opens the volume, after what a killed server has kept was restored.
pub(super) fn open_after(
    left: Option<&keep::Kept>,
    media: &mut Disks<'_>,
    found: &[Option<Superblock>],
    mode: Mode,
) -> Result<Opened, OpenError> {
    if let Some(left) = left {
        keep::restore(media, found, left)?;
    }
    open(media, found, mode)
}

pub(super) struct Run {
    pub(super) s: Scenario,
    pub(super) rng: Rng,
    pub(super) sb: Superblock,
    pub(super) truth: Truth,
    pub(super) counts: Counts,
    epoch: u64,
    /// The cache that was removed, if one was.
    pub(super) gone: Option<Disk>,
    /// Whether the dirty copies of that cache were dropped, and perhaps no record states this yet.
    pub(super) accept: bool,
    /// Whether only the process died, so that all data that it acknowledged is in the caches of the devices.
    pub(super) found: bool,
    /// Number of copies that were claimed to be clean when the last life ended in a crash.
    pub(super) claimed: u32,
    /// What the killed server left in its keeper, as long as the power has not failed since.
    pub(super) left: Option<keep::Kept>,
    /// Whether the present contents become the expected ones.
    pub(super) adopt: bool,
    /// Whether the mirror was allowed to lag in the last session, so that a disk could sleep.
    pub(super) sleepy: bool,
    /// Number of successors of members so far.
    pub(super) replaced: u8,
    /// The older copy of a member, if one is planned or made.
    pub(super) kept: Option<Kept>,
}

/// Runs a scenario. The error describes the fault that was found.
pub fn run(s: Scenario) -> Result<Counts, String> {
    let (mut run, mut disks) = Run::begin(s)?;
    for life in 0..s.lives {
        disks = run.live(disks, life)?;
        if disks.is_empty() {
            break;
        }
    }
    Ok(run.counts)
}

impl Run {
    /// Creates a new volume.
    pub(super) fn begin(s: Scenario) -> Result<(Run, Vec<Disk>), String> {
        let mut rng = Rng::new(s.seed);
        let sb = superblock(
            s.seed,
            s.ring
                .unwrap_or(if s.shape == Shape::Large { 12 } else { 4 } + rng.below(4) as u32),
            s.shape,
        );
        let mut disks = new_disks(&sb);
        format(&mut Disks::of(&mut disks), &sb).map_err(|e| format!("format: {e:?}"))?;
        let truth = Truth::new(sb.geometry().map_err(String::from)?.volume_bytes());
        let run = Run {
            epoch: s.seed,
            s,
            rng,
            sb,
            truth,
            counts: Counts::default(),
            gone: None,
            accept: false,
            found: false,
            claimed: 0,
            left: None,
            adopt: false,
            sleepy: false,
            kept: None,
            replaced: 0,
        };
        Ok((run, disks))
    }

    /// Opens the volume. Before that, the power fails a few times during recovery.
    pub(super) fn open(&mut self, disks: &mut [Disk]) -> Result<Opened, String> {
        for _ in 0..self.rng.below(3) {
            let fuse = Some(self.rng.below(14));
            let mode = self.mode();
            let r = self.recover(disks, fuse, mode);
            if let Err(e) = &r
                && !matches!(e, OpenError::Media(_))
            {
                return Err(format!("recovery refused: {e}"));
            }
            self.counts.cut += u64::from(r.is_err());
            for d in disks.iter_mut() {
                d.crash(&mut self.rng, &[]);
            }
            self.found = false;
            self.left = None;
            // The fast member may also be lost at this moment.
            if self.s.lose_fast && self.gone.is_none() {
                self.degraded(disks)?;
            }
        }
        self.old_cache_is_refused(disks)?;
        let mode = self.mode();
        self.counts.restored += u64::from(self.left.as_ref().is_some_and(|l| !l.blocks.is_empty()));
        let opened = self
            .recover(disks, None, mode)
            .map_err(|e| format!("recovery refused: {e}"))?;
        self.left = None;
        if self.claimed > 0 && opened.report.missing.is_empty() {
            let found = opened.space.map.clean_claims();
            self.counts.claimed[0] += u64::from(self.claimed);
            self.counts.claimed[1] += u64::from(found.min(self.claimed));
        }
        self.claimed = 0;
        if std::mem::take(&mut self.found) {
            // Only the process had died, and the members have just been flushed.
            self.truth.flushed(self.truth.moment());
        }
        Ok(opened)
    }

    /// Restores what a killed server has kept, and opens the volume. With `fuse`, the power fails after this number of writes and flushes.
    fn recover(
        &self,
        disks: &mut [Disk],
        fuse: Option<u64>,
        mode: Mode,
    ) -> Result<Opened, OpenError> {
        let found = find(disks, self.s.mutant);
        let mut media = Disks {
            disks,
            fuse,
            mutant: self.s.mutant,
        };
        open_after(self.left.as_ref(), &mut media, &found, mode)
    }

    pub(super) fn mode(&mut self) -> Mode {
        let epoch = self.next_epoch();
        match self.gone {
            None => Mode::ReadWrite { epoch },
            Some(_) => Mode::Degraded {
                epoch,
                loss: self.loss(),
            },
        }
    }

    /// What is done if dirty copies are lost with a cache that is missing.
    pub(super) fn loss(&self) -> Loss {
        if self.accept {
            Loss::Accepted
        } else {
            Loss::Refused
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
        if life > 0 {
            self.replace_some(&mut disks)?;
            self.grow_some(&mut disks)?;
        }
        let opened = self.open(&mut disks)?;
        let mut sb = opened.superblock.clone();
        let start = opened.time_base;
        let params = Params {
            move_buffers: 1 + self.rng.below(10) as u16,
            commit_interval: Nanos::from_millis(20 + self.rng.below(200)),
            claim_after: claim_after(self.s.seed, life),
            // In half of the lives, data becomes too old all the time.
            dirty_age: (self.s.seed + u64::from(life))
                .is_multiple_of(2)
                .then(|| Nanos::from_millis(1 + self.s.seed % 50)),
            dirty_max: (self.s.seed / 2 + u64::from(life))
                .is_multiple_of(2)
                .then(|| 100_000 * (1 + self.s.seed % 9) as u32),
            stage_blocks: 8,
            piece_blocks: 1 + self.rng.below(3) as u32,
            pass_discards: self.rng.one_in(2),
            mutant: self.s.mutant,
            outlives_cache: self.s.end_cache && self.gone.is_none(),
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
        let outlives = params.outlives_cache;
        let engine_keeps = params.kept_writes;
        let mut engine = Engine::new(opened, self.policy(life)?, params.clone());
        let rng = Rng::new(self.rng.draw());
        let mut world = Hostile::new(disks, rng, Faults::default(), 4096, start);
        let volume = self.sb.geometry().map_err(String::from)?.volume_bytes();
        if life > 0 {
            self.verify(&mut engine, &mut world, volume)?;
        }
        super::promises::promise(self.s.seed, life, &mut engine, &mut world);
        world.faults = self.s.faults;
        let last = life + 1 == self.s.lives;
        // Some lives before the last one end well, too, because the guarantees of a clean close must not apply after a later crash.
        let well =
            life < self.s.end_well || (!last && self.s.crash_at.is_none() && self.rng.one_in(4));
        let crash_at = match self.s.crash_at {
            Some(n) if life == 0 => Some(n),
            Some(_) => None,
            None if well => None,
            None => (!last).then(|| self.rng.below(self.s.requests * 2)),
        };
        self.plan_copy();
        let mut ends = outlives.then(|| CacheEnd::plan(self, life, params, sb.clone()));
        let alive = self.work(&mut engine, &mut world, volume, (crash_at, &mut ends))?;
        sb = ends.map_or(sb, CacheEnd::session);
        audit(&engine)?;
        if self.s.switch && alive && !engine.has_failed() {
            Self::settle_down(&mut engine, &mut world, self.s.seed)?;
        }
        let c = engine.counters();
        self.counts.moves += c.promotions.done + c.demotions.done;
        self.counts.stale += c.promotions.stale + c.demotions.stale;
        self.counts.fetches += c.fetches.done;
        self.counts.evictions += c.evictions.done;
        self.counts.writebacks += c.writebacks.done;
        self.counts.batches += c.sleep_batches + c.sleep_limits;
        for m in [
            &c.promotions,
            &c.demotions,
            &c.fetches,
            &c.evictions,
            &c.writebacks,
        ] {
            self.counts.worn += m.refused[Refusal::WearBudget as usize];
            self.counts.asleep += m.refused[Refusal::Asleep as usize];
        }
        self.counts.checkpoints += c.checkpoints;
        self.counts.edges += c.edge_writes;
        self.counts.filled += c.zero_fills;
        self.counts.from_ram += c.served_from_ram;
        self.counts.kept += c.kept;
        self.counts.ahead += c.ahead;
        self.counts.gathered += c.gathered;
        self.counts.joined += c.joined;
        self.counts.repeated += c.joins_repeated;
        self.counts.waited += c.waited;
        if life == 0 {
            self.counts.steps = world.steps;
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
            self.counts.crashes += 1;
            self.claimed = engine.space().map.clean_claims();
            // Sometimes only the process dies. The power may fail later: during recovery, or at the end of the next life.
            let dies = self.rng.one_in(4);
            self.counts.killed += u64::from(dies);
            // (Data that recovery finds although it was not flushed has raised no counter, and the scenarios with older copies depend on
            // the counters that rounds raise.)
            self.found = dies && engine_keeps && !self.s.rollback && !engine.has_failed();
            self.left = (dies && !engine.has_failed()).then(|| keep::Kept {
                epoch: sb.epoch,
                blocks: std::mem::take(&mut world.kept),
            });
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

    /// Clients make requests. Returns false if power was lost or the engine failed before the end.
    fn work(
        &mut self,
        engine: &mut Engine,
        world: &mut Hostile,
        volume: u64,
        (crash_at, ends): (Option<u64>, &mut Option<CacheEnd>),
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
            if let Some(end) = ends
                && !end.step(self, run, (engine, world), &mut flying)?
            {
                alive = false;
                return Ok(Next::Stop);
            }
            while issued < self.s.requests && flying.len() < self.s.depth && !self.rng.one_in(4) {
                issued += 1;
                tag += 1;
                if let Some((req, pending)) = self.request(world, Tag(tag), volume) {
                    flying.insert(req.tag, pending);
                    world.note(req);
                    run.tell(engine, world, Event::Arrived(req));
                }
            }
            if self.s.switch && self.rng.one_in(40) {
                let policy = self.another_policy()?;
                // Not every shape of volume allows every policy. A refusal must change nothing.
                self.counts.switches += u64::from(engine.set_policy(world.now(), policy).is_ok());
            }
            if self.s.copies && self.rng.one_in(60) {
                // A volume that does not run refuses it.
                let _ = engine.clean();
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

/// When clean copies are claimed in this life. (Drawn apart, so that older seeds stay what they were.)
fn claim_after(seed: u64, life: u32) -> Option<Nanos> {
    let mut rng = Rng::new(seed.wrapping_mul(61) ^ u64::from(life));
    (!rng.one_in(4)).then(|| Nanos::from_micros(rng.below(50_000)))
}
