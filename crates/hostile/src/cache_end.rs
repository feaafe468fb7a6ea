//! The end of a cache while clients make requests: flash turns read-only, what only it has goes to the disk, and another engine goes on there.
//! No request may fail. The power may fail at each step.

use super::clients::Pending;
use super::disk::{Disk, Disks};
use super::loss::forfeit;
use super::run::{Run, find};
use super::world::Hostile;
use isotherm_core::engine::Params;
use isotherm_core::run::Loop;
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::store::salvage::{Salvaged, salvage};
use isotherm_core::store::{Superblock, open_after_loss};
use isotherm_core::{Engine, Event, MemberId, Tag, World};
use std::collections::BTreeMap;

/// When and how the cache of a life ends. Flash is the first member.
pub(super) struct CacheEnd {
    life: u32,
    /// The number of device changes after which flash can only be read.
    at: u64,
    /// The number of changes after which the power fails in the middle.
    fuse: Option<u64>,
    params: Params,
    sb: Superblock,
    is_over: bool,
}

impl CacheEnd {
    pub(super) fn plan(run: &mut Run, life: u32, params: Params, sb: Superblock) -> CacheEnd {
        CacheEnd {
            life,
            at: run.rng.below(run.s.requests),
            fuse: run.rng.one_in(2).then(|| run.rng.below(24)),
            params,
            sb,
            is_over: false,
        }
    }

    /// Looks after each turn whether something is to be done. Returns false if the power has failed.
    pub(super) fn step(
        &mut self,
        run: &mut Run,
        turns: &mut Loop,
        (engine, world): (&mut Engine, &mut Hostile),
        flying: &mut BTreeMap<Tag, Pending>,
    ) -> Result<bool, String> {
        if world.steps >= self.at && !self.is_over {
            world.read_only = Some(MemberId(0));
        }
        if !engine.has_lost_cache() {
            return Ok(true);
        }
        // The ends of operations in progress are not passed on.
        while world.in_flight() > 0 {
            world.wait(None, &mut Vec::new());
        }
        self.is_over = true;
        let mutant = run.s.mutant;
        let piece = &mut [0; 4096];
        let (disks, fuse) = (&mut world.disks, self.fuse);
        let mut all = Disks {
            disks,
            fuse,
            mutant,
        };
        let trusted = !run.s.lose_dirty || run.rng.one_in(2);
        let Ok(Salvaged { lost, .. }) = salvage(&mut all, &self.sb, engine.space(), trusted, piece)
        else {
            return self.was_cut();
        };
        if trusted && !lost.is_empty() {
            return Err(format!("flash that can be read has lost {lost:?}"));
        }
        // Otherwise the regions of the marks are lost.
        let exact = run.rng.one_in(2).then_some(&lost[..]);
        run.gone = Some(std::mem::replace(&mut world.disks[0], Disk::new(0)));
        run.counts.losses += 1;
        let found = find(&world.disks, mutant);
        let (epoch, loss) = (run.next_epoch(), Loss::Listed);
        // (That power fails in an opening without flash is in the scenarios of lost caches.)
        let (disks, fuse) = (&mut world.disks, None);
        let all = &mut Disks {
            disks,
            fuse,
            mutant,
        };
        let opened = open_after_loss(all, &found, Mode::Degraded { epoch, loss }, exact)
            .map_err(|e| format!("what is lost is known, yet: {e}"))?;
        run.counts.listed += u64::from(!opened.space.lost.is_empty());
        if opened.space.lost.is_empty() != lost.is_empty() {
            return Err(format!("what is listed differs from {lost:?}"));
        }
        forfeit(&opened.space, &mut run.truth);
        for p in flying.values_mut() {
            if let Pending::Read { from, expect, .. } = p {
                run.truth.lost_meanwhile(*from, expect);
            }
        }
        self.sb = opened.superblock.clone();
        world.read_only = None;
        world.kept.clear();
        let params = Params {
            outlives_cache: false,
            ..self.params.clone()
        };
        *engine = Engine::new(opened, run.policy(self.life)?, params);
        for request in world.unanswered() {
            turns.tell(engine, world, Event::Arrived(request));
        }
        Ok(true)
    }

    /// The superblock of the session that came last.
    pub(super) fn session(self) -> Superblock {
        self.sb
    }

    /// The power has failed, if it was to.
    fn was_cut(&self) -> Result<bool, String> {
        match self.fuse {
            Some(_) => Ok(false),
            None => Err(String::from("flash that can be read was not salvaged")),
        }
    }
}
