//! The ends of a life, and the checks after each. A clean close must keep all answered data, a crash must keep all flushed data, and
//! without the fast member no extent may show another extent's bytes.

use super::Rng;
use super::disk::{Disk, Disks};
use super::run::{Run, find};
use super::truth::CELL;
use super::world::{Faults, Hostile};
use isotherm_core::engine::Params;
use isotherm_core::policy;
use isotherm_core::run::{Loop, Next};
use isotherm_core::store::open::Mode;
use isotherm_core::store::superblock::State;
use isotherm_core::store::{Superblock, mark_clean, open};
use isotherm_core::{Engine, Event, IoError, Request, RequestOp, Tag, World};

impl Run {
    /// Closes the volume and marks it clean. Returns true if the engine has failed in the meantime.
    pub(super) fn close(
        mut engine: Engine,
        mut world: Hostile,
        sb: &Superblock,
    ) -> Result<(Vec<Disk>, bool), String> {
        let mut run = Loop::new();
        run.tell(&mut engine, &mut world, Event::Closed);
        let mut patience = 10_000;
        run.run(&mut engine, &mut world, |run, engine, world| {
            patience -= 1;
            if engine.has_lost_cache() {
                let now = world.now();
                run.call(engine, world, |e, out| {
                    e.go_on_without_guarantee(now, out);
                });
            }
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

    /// Checks after a clean end that exactly the answered data is there.
    pub(super) fn end(
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
            let truth = &mut self.truth;
            for_each_cell(&mut engine, &mut world, volume, |c, b| match b {
                None => truth.check_unreadable(c),
                Some(b) if truth.is_live(c, b) => Ok(()),
                Some(b) => Err(format!(
                    "after a clean close cell {c} holds {:?}",
                    truth.version(c, b)
                )),
            })?;
        }
        Ok(Vec::new())
    }

    /// Opens the volume without the fast member: every read must return the extent's own data or an error.
    pub(super) fn degraded(&mut self, disks: &mut [Disk]) -> Result<(), String> {
        let mut found = find(disks, self.s.mutant);
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
                self.truth.check_own(i * 64 + c, b)?;
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

    /// Checks after a crash that every cell has one of its permitted values.
    pub(super) fn verify(
        &mut self,
        engine: &mut Engine,
        world: &mut Hostile,
        volume: u64,
    ) -> Result<(), String> {
        let (truth, adopt) = (&mut self.truth, self.adopt);
        for_each_cell(engine, world, volume, |c, cell| match cell {
            Some(cell) if adopt => truth.adopt(c, cell),
            Some(cell) => truth.check_crashed(c, cell),
            None => truth.check_unreadable(c),
        })?;
        self.adopt = false;
        Ok(())
    }
}

/// Reads the whole volume, and calls `check` with each cell, or with nothing if its block cannot be read.
pub(super) fn for_each_cell(
    engine: &mut Engine,
    world: &mut Hostile,
    volume: u64,
    mut check: impl FnMut(usize, Option<&[u8]>) -> Result<(), String>,
) -> Result<(), String> {
    for (i, extent) in read_all(engine, world, volume)?.into_iter().enumerate() {
        for b in i * 8..(i + 1) * 8 {
            let block = match &extent {
                Ok(data) => Ok(data[b % 8 * 512..][..512].to_vec()),
                // Some of its blocks may be readable.
                Err(_) => read_at(engine, world, (b as u64 * 512, 512))?,
            };
            for c in 0..512 / CELL {
                let cell = block.as_ref().ok().map(|data| &data[c * CELL..][..CELL]);
                check(b * 8 + c, cell)?;
            }
        }
    }
    Ok(())
}

/// Reads the whole volume, one extent at a time.
pub(super) fn read_all(
    engine: &mut Engine,
    world: &mut Hostile,
    volume: u64,
) -> Result<Vec<Result<Vec<u8>, IoError>>, String> {
    let all = (0..volume / 4096).map(|i| read_at(engine, world, (i * 4096, 4096)));
    all.collect()
}

/// Reads some bytes.
fn read_at(
    engine: &mut Engine,
    world: &mut Hostile,
    (offset, len): (u64, u32),
) -> Result<Result<Vec<u8>, IoError>, String> {
    let (tag, mut read) = (Tag(1_000_000 + (offset / 512) as u32), None);
    world.give(tag, len as usize, 0, None);
    let req = Request {
        tag,
        op: RequestOp::Read,
        offset,
        len,
        fua: false,
        class: 0,
    };
    let mut run = Loop::new();
    run.tell(engine, world, Event::Arrived(req));
    let mut patience = 10_000;
    run.run(engine, world, |_, engine, world| {
        let replies = world.take_replies();
        if let Some(r) = replies.iter().find(|r| r.0 == tag) {
            read = Some(r.1.map(|()| world.take(tag)));
            return Ok(Next::Stop);
        }
        patience -= 1;
        if patience == 0 {
            return Err(String::from("a read is never answered"));
        }
        Ok(Next::Wait(engine.next_wake()))
    })?;
    read.ok_or_else(|| String::from("a read has no answer"))
}
