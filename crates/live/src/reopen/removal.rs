//! The flash of a served cache volume is taken out while its engine is closed, or one device joins it or leaves.

use super::refused;
use crate::error::Error;
use crate::server::Session;
use crate::volume::flash::{all_home, flash, may_leave};
use crate::volume::{FlashAsk, FlashChanged, FormerFlash};
use isotherm_core::{MemberId, World};
use std::path::Path;

impl Session {
    /// Checks whether the flash can be taken out now.
    pub(super) fn may_remove_flash(&self, file: &Path) -> Result<(), Error> {
        may_leave(&self.config, self.world.devices(), &self.superblock, file)?;
        self.is_clean()
    }

    fn is_clean(&self) -> Result<(), Error> {
        match self.engine.space().map.dirty() {
            0 => Ok(()),
            n => Err(refused(&format!(
                "{n} extents are dirty: they must be written home first (`isotherm clean`)"
            ))),
        }
    }

    /// Checks whether a flash device can join or leave now.
    pub(super) fn may_change_flash(&self, ask: &FlashAsk) -> Result<(), Error> {
        ask.plan(&self.config, self.world.devices(), &self.superblock)?;
        match ask {
            FlashAsk::Join(_) => Ok(()),
            FlashAsk::Leave(_) => self.is_clean(),
        }
    }

    /// Lets a flash device join the volume or leave it, whose engine is closed.
    pub(super) fn change_flash_closed(
        &mut self,
        ask: &mut FlashAsk,
    ) -> Result<FlashChanged, Error> {
        self.mark_clean()?;
        let opened = self.open_store(self.world.now())?.opened;
        // The sessions of the change keep nothing, and a kill during them loses no answer.
        self.world.forget_kept();
        let devices = self.world.devices_mut()?;
        let mut changed = ask.carry_out(&mut self.config, devices, opened)?;
        // All members are there now, and the first one may be another. (If it takes no stamp, the volume is not opened again.)
        self.handle.all_are_there();
        let stamped = self.world.stamp_on(0);
        changed.notes.extend(stamped.err().map(|e| e.to_string()));
        Ok(changed)
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
