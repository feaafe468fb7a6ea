//! The begin and end of the sessions of a scene, and checks of the contents.

use super::stage::{CELLS, EXTENT, Stage};
use crate::Rng;
use crate::disk::Disks;
use crate::ends::{for_each_cell, read_all};
use crate::loss::forfeit;
use crate::run::find;
use crate::truth::CELL;
use crate::world::{Fate, Faults, Hostile};
use isotherm_core::run::Loop;
use isotherm_core::store::keep::{self, Kept};
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::store::{OpenError, Superblock, mark_clean, open_after_loss};
use isotherm_core::volume::lost::LostPart;
use isotherm_core::{Engine, Event, IoError, MemberId, Nanos};
use std::collections::BTreeMap;

impl Stage {
    /// Lets the power fail. For each unflushed sector, `keep` tells whether it has reached the medium.
    pub(super) fn lose_power(&mut self, keep: impl Fn(MemberId, u64) -> bool) {
        self.forget();
        self.kept = None;
        if let Some(w) = self.world.take() {
            self.disks = w.lose_power(&keep);
        } else {
            for (m, d) in (0u8..).zip(&mut self.disks) {
                d.settle(&|at| keep(MemberId(m), at));
            }
        }
    }
    /// Lets the process die. Completed writes stay in the caches of the devices.
    pub(super) fn die(&mut self) {
        self.forget();
        if let Some(mut w) = self.world.take() {
            self.disks = std::mem::take(&mut w.disks);
            self.kept = self.session.as_ref().map(|sb| Kept {
                epoch: sb.epoch,
                blocks: std::mem::take(&mut w.kept),
            });
        }
    }
    fn forget(&mut self) {
        self.engine = None;
        self.asked.clear();
    }
    /// Begins to close the volume.
    pub(super) fn begin_close(&mut self) -> Result<(), String> {
        if let Some((engine, world, run)) = self.both() {
            run.tell(engine, world, Event::Closed);
        }
        self.pump()
    }
    /// Closes the volume cleanly. If `fuse` is set, the process dies in the last step (marking the members as clean), after this number of
    /// changes.
    pub(super) fn close(&mut self, fuse: Option<u64>) -> Result<(), String> {
        self.begin_close()?;
        let (Some(engine), Some(world)) = (&self.engine, &mut self.world) else {
            return Err(String::from("the volume is not served"));
        };
        if !engine.is_closed() {
            return Err(String::from("closing does not come to an end"));
        }
        let sb = self.session.clone().ok_or("no session")?;
        let mutant = self.mutant;
        let disks = &mut world.disks;
        let all = &mut Disks {
            disks,
            fuse,
            mutant,
        };
        let marked = mark_clean(all, &sb, &engine.closing(), Nanos::from_secs(1));
        if fuse.is_none() {
            marked.map_err(|e| format!("{e:?}"))?;
            self.truth.settled();
        }
        self.die();
        Ok(())
    }
    pub(super) fn found(&self) -> Vec<Option<Superblock>> {
        let mut found = find(&self.disks, self.mutant);
        if self.gone {
            found[0] = None;
        }
        found
    }
    /// Tries to open the volume. If `fuse` is set, the power fails after this number of changes.
    pub(super) fn try_open(
        &mut self,
        mode: impl FnOnce(u64) -> Mode,
        fuse: Option<u64>,
    ) -> Result<(), OpenError> {
        self.try_open_after(mode, fuse, None)
    }
    pub(super) fn try_open_after(
        &mut self,
        mode: impl FnOnce(u64) -> Mode,
        fuse: Option<u64>,
        exact: Option<&[LostPart]>,
    ) -> Result<(), OpenError> {
        self.epochs += 1;
        let (found, mutant) = (self.found(), self.mutant);
        let disks = &mut self.disks;
        let all = &mut Disks {
            disks,
            fuse,
            mutant,
        };
        if let Some(kept) = &self.kept {
            keep::restore(all, &found, kept)?;
        }
        let opened = open_after_loss(all, &found, mode(self.epochs), exact)?;
        self.kept = None;
        let start = opened.time_base;
        self.session = Some(opened.superblock.clone());
        let mut params = self.params.clone();
        params.read_only = opened.superblock.epoch != self.epochs;
        let policy = Box::new(self.policy.clone());
        self.engine = Some(Engine::new(opened, policy, params));
        let disks = std::mem::take(&mut self.disks);
        let faults = Faults::default();
        let mut world = Hostile::new(disks, Rng::new(1), faults, EXTENT as usize, start);
        world.script = Some(Box::new(|_| Fate::Go));
        self.world = Some(world);
        Ok(())
    }
    /// Opens the volume to continue the scene. This must succeed.
    pub(super) fn open(&mut self) -> Result<(), String> {
        self.try_open(|epoch| Mode::ReadWrite { epoch }, None)
            .map_err(|e| format!("recovery refused: {e}"))
    }
    /// Opens the volume, but the power fails after `fuse` changes; `keep` is as for [`Stage::lose_power`]. The volume is not served.
    pub(super) fn open_cut(&mut self, fuse: u64, keep: impl Fn(MemberId, u64) -> bool) {
        let _ = self.try_open(|epoch| Mode::ReadWrite { epoch }, Some(fuse));
        self.lose_power(keep);
    }
    /// The contents of all extents, in order.
    pub(super) fn contents(&mut self) -> Result<Vec<Result<Vec<u8>, IoError>>, String> {
        let volume = self.truth.cells() as u64 * CELL as u64;
        let (engine, world, _) = self.both().ok_or("the volume is not served")?;
        read_all(engine, world, volume)
    }
    /// Checks after a crash that every cell has one of its permitted values, which must stay from then on.
    pub(super) fn verify(&mut self) -> Result<(), String> {
        let volume = self.truth.cells() as u64 * CELL as u64;
        let mut truth = self.truth.clone();
        let (engine, world, _) = self.both().ok_or("the volume is not served")?;
        for_each_cell(engine, world, volume, |c, cell| match cell {
            Some(cell) => truth.check_crashed(c, cell),
            None => truth.check_unreadable(c),
        })?;
        self.truth = truth;
        Ok(())
    }
    /// Opens the volume without its first member, which takes data with it. That is listed, and lost. With `exact`, it is known which.
    pub(super) fn list(&mut self, exact: Option<&[LostPart]>) -> Result<(), String> {
        self.gone = true;
        let loss = Loss::Listed;
        self.try_open_after(|epoch| Mode::Degraded { epoch, loss }, None, exact)
            .map_err(|e| format!("lost data is listed, yet: {e}"))?;
        self.forfeit();
        Ok(())
    }
    /// Notes that what the volume says to have lost is lost.
    pub(super) fn forfeit(&mut self) {
        if let Some(engine) = &self.engine {
            forfeit(engine.space(), &mut self.truth);
        }
    }
    /// Checks that every extent shows only its own bytes.
    pub(super) fn check_contents(&mut self) -> Result<(), String> {
        for (e, data) in self.contents()?.into_iter().enumerate() {
            let Ok(data) = data else { continue };
            for (c, cell) in data.chunks_exact(CELL).enumerate() {
                self.truth.check_own(e * CELLS + c, cell)?;
            }
        }
        Ok(())
    }
    /// Repairs the metadata while the volume is not being served; returns the number of repairs.
    pub(super) fn mend(&mut self) -> Result<usize, String> {
        let (found, mutant) = (self.found(), self.mutant);
        let (disks, fuse) = (&mut self.disks, None);
        let all = &mut Disks {
            disks,
            fuse,
            mutant,
        };
        let mended = isotherm_core::store::mend(all, &found).map_err(|e| format!("mend: {e}"))?;
        Ok(mended.len())
    }
    /// A copy of the volume, which is not being served, for an experiment.
    pub(super) fn fork(&self) -> Stage {
        Stage {
            sb: self.sb.clone(),
            mutant: self.mutant,
            disks: self.disks.clone(),
            engine: None,
            world: None,
            session: None,
            run: Loop::new(),
            truth: self.truth.clone(),
            policy: self.policy.clone(),
            params: self.params.clone(),
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            tags: self.tags,
            epochs: self.epochs,
            gone: self.gone,
            kept: self.kept.clone(),
        }
    }
}
