//! Growth of the volume between two lives, after its slow disks have become larger, or of a cache, after its flash has. The power fails at any
//! moment of it.

use super::disk::{Disk, Disks};
use super::run::{Run, find, open_after};
use isotherm_core::geometry::Kind;
use isotherm_core::store::open::Mode;
use isotherm_core::store::{self, Growth, Media, OpenError, Opened, Superblock};

/// Writes and flushes within which a growth ends; about this many are tried as the moment of a power failure.
const STEPS: u64 = 100;

impl Run {
    /// Lets the volume grow, sometimes.
    pub(super) fn grow_some(&mut self, disks: &mut [Disk]) -> Result<(), String> {
        if !self.s.grow || self.gone.is_some() || !self.rng.one_in(3) {
            return Ok(());
        }
        let flash = self.sb.kind == Kind::Cache && self.rng.one_in(2);
        self.enlarge(disks, flash);
        for attempt in 0..4 {
            let fuse = (attempt < 3 && self.rng.one_in(2)).then(|| self.rng.below(STEPS));
            match self.try_grow(disks, fuse, flash) {
                Ok(None) => return Ok(()),
                Ok(Some(sb)) => {
                    self.counts.grown += 1;
                    self.counts.moved +=
                        u64::from(sb.members[0].behind_at > self.sb.members[0].behind_at);
                    self.sb = sb;
                    let geo = self.sb.geometry().map_err(String::from)?;
                    self.truth.grow(geo.volume_bytes());
                    if std::mem::take(&mut self.found) {
                        // Only the process had died, and opening has flushed the members.
                        self.truth.flushed(self.truth.moment());
                    }
                    return Ok(());
                }
                Err(OpenError::Media(_)) => {}
                Err(e) => return Err(format!("growing: {e}")),
            }
            self.found = false;
            self.left = None;
            for d in disks.iter_mut() {
                d.crash(&mut self.rng, &[]);
            }
            // The next growth may be one to another size.
            if self.sb.kind == Kind::Cache && self.rng.one_in(2) {
                self.enlarge(disks, flash);
            }
        }
        Ok(())
    }

    /// Makes the disks of the slowest tier larger, or the flash.
    fn enlarge(&mut self, disks: &mut [Disk], flash: bool) {
        let slowest = self.sb.members[disks.len() - 1].tier;
        for (d, m) in disks.iter_mut().zip(&self.sb.members) {
            if (m.tier == slowest) != flash {
                // Sometimes by so little that it has no effect, or so much that the metadata needs more room.
                let more = [0, 4096, 7 * 4096, 60 * 4096, 200 * 4096];
                // What a cache volume shows of its new part is what the disk holds there.
                let with = if self.sb.kind == Kind::Cache { 0 } else { 0x5c };
                let more = more[self.rng.below(5) as usize] + self.rng.below(4096) as usize;
                d.grow(more, with);
            }
        }
    }

    /// Opens the volume and lets it grow. `None`: it does not grow. It may have grown in an earlier attempt.
    fn try_grow(
        &mut self,
        disks: &mut [Disk],
        fuse: Option<u64>,
        flash: bool,
    ) -> Result<Option<Superblock>, OpenError> {
        let mutant = self.s.mutant;
        let epoch = self.next_epoch();
        let found = find(disks, self.s.mutant);
        let sizes: Vec<u64> = disks.iter().map(|d| d.len() as u64).collect();
        let mut all = Disks {
            disks,
            fuse,
            mutant,
        };
        let mut opened = open_after(
            self.left.as_ref(),
            &mut all,
            &found,
            Mode::ReadWrite { epoch },
        )?;
        let slots = |sb: &Superblock| sb.members.iter().map(|m| m.slots).collect::<Vec<_>>();
        let more = flash && slots(&opened.superblock) != slots(&self.sb);
        if more || opened.superblock.extents > self.sb.extents {
            return Ok(Some(opened.superblock));
        }
        // An attempt before may have got as far as the first step.
        self.sb = opened.superblock.clone();
        let plan = if flash {
            store::plan_flash_growth
        } else {
            store::plan_growth
        };
        let Ok(growth) = plan(&opened.superblock, &sizes) else {
            return Ok(None);
        };
        if flash && !growth.changes(&opened.superblock) {
            return Ok(None);
        }
        let listed = !flash && !opened.space.lost.is_empty();
        if !listed && growth.needs_step(&opened.superblock, &opened.space) {
            let Some(step) = growth.first_step(&opened.superblock) else {
                return Ok(None);
            };
            if !step.transfers(&opened.space).is_empty() {
                return Err(OpenError::BadGrowth("the first step moves data"));
            }
            self.counts.steps_first += 1;
            self.sb = store::grow(&mut all, &mut opened, &step, self.next_epoch())?;
            return self.try_grow(disks, fuse, flash);
        }
        if listed {
            // Its list would have to move.
            return match store::grow(&mut all, &mut opened, &growth, self.next_epoch()) {
                Err(OpenError::BadGrowth(_)) => Ok(None),
                Err(e) => Err(e),
                Ok(_) => Err(OpenError::BadTable("a volume with lost data grew")),
            };
        }
        transfer(&mut all, &opened, &growth)?;
        store::grow(&mut all, &mut opened, &growth, self.next_epoch()).map(Some)
    }
}

/// Copies what must be copied, durably.
fn transfer(all: &mut Disks<'_>, opened: &Opened, growth: &Growth) -> Result<(), OpenError> {
    for t in growth.transfers(&opened.space) {
        let mut data = vec![0; t.bytes as usize];
        all.read(t.from.0, t.from.1, &mut data)?;
        all.write(t.to.0, t.to.1, &data)?;
        all.flush(t.to.0)?;
    }
    Ok(())
}
