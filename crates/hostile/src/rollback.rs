//! A member is copied while the volume is being served, and the copy is restored when it is not.

use super::Rng;
use super::disk::{Disk, Disks};
use super::ends::read_all;
use super::run::{Run, find};
use super::truth::{CELL, Truth};
use super::world::{Faults, Hostile};
use isotherm_core::engine::Params;
use isotherm_core::store::open::Mode;
use isotherm_core::store::{OpenError, open};
use isotherm_core::{Engine, policy};

/// A copy that is planned or made.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// The member, and the number of device changes after which it is copied.
    pub(super) member: usize,
    pub(super) at: u64,
    pub(super) image: Option<Disk>,
}

impl Run {
    /// Plans a copy in this life.
    pub(super) fn plan_copy(&mut self) {
        self.kept = self.s.rollback.then(|| Kept {
            member: self.rng.below(self.sb.members.len() as u64) as usize,
            at: self.rng.below(self.s.requests * 2),
            image: None,
        });
    }

    /// Makes the copy if its time has come.
    pub(super) fn copy_if_due(&mut self, world: &Hostile) {
        if let Some(k) = &mut self.kept
            && k.image.is_none()
            && world.steps >= k.at
        {
            k.image = Some(world.disks[k.member].image());
        }
    }

    /// Replaces the member by its copy. Either the volume is refused, or no flushed data is missing. (In these scenarios every round raises
    /// the counters of the members to which it writes. Changes that only the primary had are lost with it. So for the primary this is
    /// checked only after a clean close, which writes the counters to all other members.)
    pub(super) fn put_back(&mut self, disks: &[Disk], clean: bool) -> Result<(), String> {
        let Some(Kept {
            member,
            image: Some(old),
            ..
        }) = self.kept.take()
        else {
            return Ok(());
        };
        let mut with = disks.to_vec();
        with[member] = old;
        let found = find(&with, self.s.mutant);
        let mode = Mode::ReadWrite { epoch: 0x01d };
        let mutant = self.s.mutant;
        let fuse = None;
        let disks = &mut with;
        let opened = match open(
            &mut Disks {
                disks,
                fuse,
                mutant,
            },
            &found,
            mode,
        ) {
            Ok(o) => o,
            Err(OpenError::RolledBack { member: m, .. }) if usize::from(m.0) == member => {
                self.counts.rolled_back += 1;
                return Ok(());
            }
            Err(OpenError::RolledBack { member: m, .. }) => {
                return Err(format!("member {member} was put back, {} is blamed", m.0));
            }
            // A journal that ends earlier may contradict the other members, so the volume may be refused for another reason.
            Err(_) => return Ok(()),
        };
        if clean {
            return Err(format!(
                "after a clean close an older copy of member {member} is accepted"
            ));
        }
        self.counts.old_accepted += 1;
        if member == 0 {
            return Ok(());
        }
        let start = opened.time_base;
        let volume = opened.space.geo.volume_bytes();
        let linear = Box::new(policy::Linear::new("linear"));
        let mut engine = Engine::new(opened, linear, Params::default());
        let mut world = Hostile::new(with, Rng::new(3), Faults::default(), 4096, start);
        let mut truth = self.truth.clone();
        for (i, block) in read_all(&mut engine, &mut world, volume)?
            .into_iter()
            .enumerate()
        {
            let data = block.map_err(|e| format!("read beside an older copy: {e:?}"))?;
            check(&mut truth, i, &data)
                .map_err(|e| format!("an older copy of member {member} is accepted: {e}"))?;
        }
        Ok(())
    }
}

/// Compares the bytes of one extent with the expected contents.
pub(super) fn check(truth: &mut Truth, extent: usize, data: &[u8]) -> Result<(), String> {
    for (c, cell) in data.chunks_exact(CELL).enumerate() {
        truth.check_crashed(extent * 64 + c, cell)?;
    }
    Ok(())
}

/// Checks that the bytes are the extent's own.
pub(super) fn check_bytes(truth: &Truth, extent: usize, data: &[u8]) -> Result<(), String> {
    for (c, cell) in data.chunks_exact(CELL).enumerate() {
        truth.version(extent * 64 + c, cell)?;
    }
    Ok(())
}
