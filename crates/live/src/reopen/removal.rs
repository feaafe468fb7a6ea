//! The flash of a served cache volume is taken out while its engine is closed.

use super::refused;
use crate::error::Error;
use crate::server::Session;
use crate::volume::FormerFlash;
use crate::volume::flash::{all_home, flash, may_leave};
use isotherm_core::MemberId;
use std::path::Path;

impl Session {
    /// Checks whether the flash can be taken out now.
    pub(super) fn may_remove_flash(&self, file: &Path) -> Result<(), Error> {
        may_leave(&self.config, self.world.devices(), &self.superblock, file)?;
        match self.engine.space().map.dirty() {
            0 => Ok(()),
            n => Err(refused(&format!(
                "{n} extents are dirty: they must be written home first (`isotherm clean`)"
            ))),
        }
    }

    /// Takes the flash out of the volume, whose engine is closed, and begins with a new one. Returns how that began, and the flash that was
    /// taken out; if it was not, the volume has it as before.
    pub(super) fn go_on_without_flash(
        &mut self,
    ) -> (Result<(), Error>, Result<FormerFlash, Error>) {
        match self.take_flash() {
            Ok(former) => (self.begin_without_flash(&[]), Ok(former)),
            Err(e) => (
                self.stamp_as_before().and_then(|()| self.begin_again()),
                Err(e),
            ),
        }
    }

    fn take_flash(&mut self) -> Result<FormerFlash, Error> {
        let flash: Vec<MemberId> = flash(&self.superblock);
        let written_home = all_home(&self.salvage(&flash)?)?;
        self.world.forget_kept();
        let devices = self.world.devices_mut()?;
        let places: Vec<usize> = flash.iter().map(|m| usize::from(m.0)).collect();
        let taken = places.iter().filter_map(|&i| devices[i].take()).collect();
        self.handle.leave_out(&flash);
        Ok(FormerFlash {
            devices: taken,
            places,
            written_home,
        })
    }

    /// Other servers look for the stamp on the first member again.
    fn stamp_as_before(&mut self) -> Result<(), Error> {
        let devices = self.world.devices().iter();
        let missing: Vec<MemberId> = (0..)
            .zip(devices)
            .filter_map(|(i, d)| d.is_none().then_some(MemberId(i)))
            .collect();
        match self.superblock.primary_without(&missing) {
            Some(m) => self.world.stamp_on(usize::from(m.0)),
            None => Ok(()),
        }
    }
}
