//! The block file as a [`FrontEnd`].

use super::{Mount, Options, mount_on_engine};
use crate::front_end::{Capabilities, FrontEnd, FrontEndSettings, VolumeAccess};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The operations that users of a block file can request. FUSE transfers neither FUA nor classes.
pub const CAPABILITIES: Capabilities = Capabilities {
    fua: false,
    discard: true,
    write_zeroes: true,
    classes: false,
    resize: true,
};

/// A block file in `dir`.
#[derive(Debug)]
pub struct Settings {
    /// An empty directory.
    pub dir: PathBuf,
    /// See [`Options`].
    pub options: Options,
}

impl FrontEndSettings for Settings {
    fn names(&self, name: &str) -> Vec<String> {
        vec![format!("block-file:{}", self.dir.join(name).display())]
    }

    fn start(self: Box<Self>, volume: &VolumeAccess) -> io::Result<Box<dyn FrontEnd>> {
        let name = self.names(&volume.name);
        let mount = mount_on_engine(
            &volume.engine,
            Arc::clone(&volume.port),
            &self.dir,
            &volume.name,
            &self.options,
        );
        let mount = mount.map_err(|e| io::Error::other(e.to_string()))?;
        Ok(Box::new(MountedFile { name, mount }))
    }
}

struct MountedFile {
    name: Vec<String>,
    mount: Mount,
}

impl FrontEnd for MountedFile {
    fn names(&self) -> Vec<String> {
        self.name.clone()
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn refuse_new(&mut self) {
        self.mount.refuse_new();
    }

    fn users(&mut self) -> Option<String> {
        let file = self.mount.file().display().to_string();
        self.leave().err().map(|_| format!("{file} is open"))
    }

    fn leave(&mut self) -> Result<(), String> {
        self.mount.unmount().map_err(|e| e.to_string())
    }

    fn resized(&mut self) -> String {
        let file = self.mount.file().display();
        match self.mount.resized() {
            Ok(()) => format!("{file} has the new size (a loop device over it: `losetup -c`)"),
            Err(e) => format!("{file} may keep its size until the next start: {e}"),
        }
    }

    fn stop(self: Box<Self>) {}
}
