//! The growth of a served volume, while its store is closed.

use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::server::Session;
use crate::volume::Grown;
use crate::volume::begin::open_again;
use crate::volume::grow::{Growing, Grows};
use std::path::Path;
use std::sync::Arc;

impl Session {
    /// Whether the devices have become large enough; false: they are used in full, which is no error of flash.
    pub(super) fn may_grow(&self, what: Grows, file: &Path) -> Result<bool, Error> {
        let devices = self.world.devices();
        let size = |d: &Option<Device>| {
            let Some(d) = d else { return Ok(0) };
            d.present_bytes().map_err(|e| unknown_size(&d.path, &e))
        };
        let sizes: Result<Vec<u64>, Error> = devices.iter().map(size).collect();
        let growing = Growing {
            what,
            config: &self.config,
            devices,
            file,
            is_served: true,
        };
        let growth = growing.plan(&self.superblock, &sizes?)?;
        Ok(growth.changes(&self.superblock))
    }

    /// Lets the volume grow whose engine is closed.
    pub(super) fn grow_closed(&mut self, what: Grows, file: &Path) -> Result<Grown, Error> {
        for d in self.world.devices_mut()?.iter_mut().flatten() {
            d.bytes = (d.present_bytes()).map_err(|e| unknown_size(&d.path, &e))?;
        }
        let devices = Arc::clone(self.world.devices());
        let growing = Growing {
            what,
            config: &self.config,
            devices: &devices,
            file,
            is_served: true,
        };
        let stamping = self.world.stamp_meanwhile()?;
        let grown = open_again(&self.config, &devices).and_then(|opened| growing.grow(opened));
        self.world.stamped_meanwhile(stamping)?;
        grown
    }

    /// The error of a change after which the volume is served on, with the size that it has then.
    pub(super) fn with_size(&self, e: &Error) -> Error {
        let bytes = self.engine.space().geo.volume_bytes();
        Error::new(
            e.kind,
            format!("{e}; the volume is served on, with {bytes} bytes"),
        )
    }
}

fn unknown_size(path: &Path, e: &std::io::Error) -> Error {
    let what = format!("{}: its size is not known: {e}", path.display());
    Error::new(ErrorKind::Device, what)
}
