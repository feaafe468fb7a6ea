//! A store in memory and folders for spools.

use super::{World, runtime, scratch, way};
use isotherm_store::disk::{Disk, Settings};
use isotherm_store::head;
use isotherm_store::remote::Remote;
use object_store::path::Path as Name;
use object_store::{ObjectStoreExt, PutPayload};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const BLOCK: usize = 4096;
pub const BLOCKS: u64 = 4096;

pub fn settings() -> Settings {
    Settings {
        order: Duration::from_secs(3600),
        new_spool: true,
        remote_wait: Duration::ZERO,
        cache_bytes: 0,
        ..Settings::default()
    }
}

pub struct Place {
    pub world: Arc<World>,
    pub runtime: Arc<tokio::runtime::Runtime>,
    pub scratch: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        let place = Place {
            world: Arc::default(),
            runtime: runtime(),
            scratch: scratch(),
        };
        head::create(&place.remote(), BLOCKS * BLOCK as u64, 1 << 20).unwrap();
        place
    }

    pub fn remote(&self) -> Remote {
        way(&self.world, 1, &self.runtime).0
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn open(&self, name: &str) -> Result<Disk, String> {
        Disk::open(self.remote(), &self.dir(name), settings(), false)
    }

    /// Names of the objects that contain `part`, in order.
    pub fn names(&self, part: &str) -> Vec<String> {
        let listed = self
            .runtime
            .block_on(self.remote().list("", usize::MAX, |_| true))
            .unwrap();
        listed
            .into_iter()
            .map(|l| l.name)
            .filter(|n| n.contains(part))
            .collect()
    }

    pub fn get(&self, name: &str) -> Vec<u8> {
        self.runtime.block_on(self.remote().get(name)).unwrap()
    }

    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let path = Name::from(format!("some/prefix/{name}"));
        self.runtime
            .block_on(self.world.store.put(&path, PutPayload::from(bytes)))
            .unwrap();
    }

    pub fn delete(&self, name: &str) {
        self.runtime.block_on(self.remote().delete(name)).unwrap();
    }
}

pub fn filled(byte: u8, blocks: usize) -> Vec<u8> {
    vec![byte; blocks * BLOCK]
}

pub fn up(disk: &Disk) {
    assert!(disk.cut_now());
    assert!(disk.upload().unwrap());
}

pub fn reads(disk: &Disk, at: u64, byte: u8) -> bool {
    let mut block = filled(0, 1);
    disk.read(at, &mut block).unwrap();
    block == filled(byte, 1)
}

pub fn spool_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|f| f.unwrap().path())
        .collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "spool"));
    files.sort();
    files
}
