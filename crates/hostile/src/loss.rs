//! The loss of the cache between two lives of a volume.

use super::disk::{Disk, Disks};
use super::run::{Run, find, open_after};
use super::truth::{CELL, Truth};
use isotherm_core::geometry::Kind;
use isotherm_core::policy::Uses;
use isotherm_core::store::OpenError;
use isotherm_core::store::Opened;
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::volume::Space;

/// What the volume says to have lost is lost.
pub(super) fn forfeit(space: &Space, truth: &mut Truth) {
    for (from, to) in space.lost.ranges(space.geo.block_shift, usize::MAX) {
        (from as usize / CELL..to as usize / CELL).for_each(|c| truth.forfeit(c));
    }
}

impl Run {
    fn try_open(&mut self, disks: &mut [Disk], mode: Mode) -> Result<Opened, OpenError> {
        let found = find(disks, self.s.mutant);
        let mutant = self.s.mutant;
        let fuse = None;
        open_after(
            self.left.as_ref(),
            &mut Disks {
                disks,
                fuse,
                mutant,
            },
            &found,
            mode,
        )
    }

    /// Opens the volume a few times without a member; a power failure interrupts each of these openings.
    fn interrupted(&mut self, disks: &mut [Disk]) {
        for _ in 0..self.rng.below(3) {
            let fuse = Some(self.rng.below(14));
            let found = find(disks, self.s.mutant);
            let mode = Mode::Degraded {
                epoch: self.next_epoch(),
                loss: Loss::Refused,
            };
            // It does not matter whether an opening is refused or interrupted.
            let mutant = self.s.mutant;
            let _ = open_after(
                self.left.as_ref(),
                &mut Disks {
                    disks,
                    fuse,
                    mutant,
                },
                &found,
                mode,
            );
            for d in disks.iter_mut() {
                d.crash(&mut self.rng, &[]);
            }
            // The power has failed in addition to the process: data that was not flushed may be lost.
            self.found = false;
            self.left = None;
        }
    }

    /// Removes the first member. Either the volume continues without it, or it is refused with a reason, and the device is attached again.
    /// Whether it may be refused depends on the use of the volume. The data that it shows afterwards is checked by later reads.
    pub(super) fn lose(&mut self, disks: &mut [Disk], uses: Uses) -> Result<(), String> {
        // The disk in its place has no bytes, so an access to the missing device panics.
        let kept = std::mem::replace(&mut disks[0], Disk::new(0));
        // What a killed server has kept belongs to the journal of this member. Without it, as after a power loss, only what was flushed counts.
        let found = std::mem::take(&mut self.found);
        self.found = found && self.left.is_none();
        self.interrupted(disks);
        if self.rng.one_in(4) {
            // The member is attached again before anything was written without it, or afterwards, when it is too old.
            disks[0] = kept.clone();
            self.found |= found && self.left.is_some();
            let epoch = self.next_epoch();
            match self.try_open(disks, Mode::ReadWrite { epoch }) {
                Ok(_) => return Ok(()),
                Err(OpenError::Stale { .. }) => disks[0] = Disk::new(0),
                Err(e) => return Err(format!("with its cache back: {e}")),
            }
        }
        let (epoch, caching) = (self.next_epoch(), uses == Uses::Copies);
        // While a disk was to sleep, its mark named everything.
        let marked = self.sleepy;
        let mode = |epoch, loss| Mode::Degraded { epoch, loss };
        let unexpected = |e: &OpenError| Err(format!("a clean cache is gone: {e}"));
        match self.try_open(disks, mode(epoch, Loss::Refused)) {
            Ok(_) => {}
            Err(e @ OpenError::LostWrites { .. }) => {
                if self.s.cache == Some(true) && !marked {
                    return unexpected(&e);
                }
                self.counts.refused += 1;
                let epoch = self.next_epoch();
                if self.rng.one_in(3) {
                    disks[0] = kept;
                    self.found |= found && self.left.is_some();
                    return Ok(());
                }
                let lists = caching && self.sb.kind == Kind::Cache && self.rng.one_in(2);
                if !lists || !self.list(disks)? {
                    self.try_open(disks, mode(epoch, Loss::Accepted))
                        .map_err(|e| format!("loss accepted, yet: {e}"))?;
                    (self.accept, self.adopt) = (true, true);
                    self.counts.accepted += 1;
                }
            }
            Err(
                e @ (OpenError::LostHomes { .. } | OpenError::Missing(_) | OpenError::Unsure(_)),
            ) => {
                // Nothing but dirty copies may keep a cache volume from going on.
                if caching && self.sb.kind == Kind::Cache {
                    return unexpected(&e);
                }
                self.counts.refused += 1;
                disks[0] = kept;
                self.found |= found && self.left.is_some();
                return Ok(());
            }
            Err(e) => return unexpected(&e),
        }
        self.counts.losses += 1;
        self.gone = Some(kept);
        Ok(())
    }

    /// The volume continues, and what it has lost cannot be read. The power fails in the first openings. Returns false if that is refused,
    /// because a mark is damaged.
    fn list(&mut self, disks: &mut [Disk]) -> Result<bool, String> {
        for cut in (0..3).rev() {
            let mode = Mode::Degraded {
                epoch: self.next_epoch(),
                loss: Loss::Listed,
            };
            let fuse = (cut > 0).then(|| self.rng.below(20));
            let (found, mutant) = (find(disks, self.s.mutant), self.s.mutant);
            let all = &mut Disks {
                disks,
                fuse,
                mutant,
            };
            match open_after(self.left.as_ref(), all, &found, mode) {
                Ok(opened) if fuse.is_none() => forfeit(&opened.space, &mut self.truth),
                Err(OpenError::LostWrites { .. }) => return Ok(false),
                Err(e) if fuse.is_none() => return Err(format!("lost data is listed, yet: {e}")),
                _ => disks.iter_mut().for_each(|d| d.crash(&mut self.rng, &[])),
            }
        }
        self.counts.listed += 1;
        Ok(true)
    }

    /// Checks that a cache is not accepted again after the volume has continued without it.
    pub(super) fn old_cache_is_refused(&mut self, disks: &mut [Disk]) -> Result<(), String> {
        let Some(old) = self.gone.as_ref().filter(|_| self.rng.one_in(3)) else {
            return Ok(());
        };
        disks[0] = old.clone();
        let epoch = self.next_epoch();
        let whole = self.try_open(disks, Mode::ReadWrite { epoch });
        if !matches!(whole, Err(OpenError::Stale { .. })) {
            return Err(format!(
                "a cache that missed writes: {:?}",
                whole.map(|o| o.report)
            ));
        }
        let mode = Mode::Degraded {
            epoch: self.next_epoch(),
            loss: self.loss(),
        };
        let opened = self
            .try_open(disks, mode)
            .map_err(|e| format!("beside an old cache: {e}"))?;
        disks[0] = Disk::new(0);
        if opened.report.missing.is_empty() {
            return Err(String::from("an old cache is taken for part of the volume"));
        }
        Ok(())
    }
}
