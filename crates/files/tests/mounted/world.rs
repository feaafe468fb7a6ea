//! A mount of two or more directories as tiers.

use isotherm_files::fuse::Io;
use isotherm_files::mount::{Mounted, Options, mount};
use isotherm_files::mover::Outcome;
use isotherm_files::store::Settings;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub(crate) struct World {
    // It is unmounted before the directories are removed.
    pub(crate) mounted: Option<Mounted>,
    pub(crate) root: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) io: Io,
    pub(crate) _dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new(change: impl FnOnce(&mut Settings), io: Io) -> Option<World> {
        World::with_tiers(2, change, io)
    }
    /// Two tiers, `fast` and one with the disks `slow`, `slow2` and `slow3`.
    pub(crate) fn with_disks(change: impl FnOnce(&mut Settings), io: Io) -> Option<World> {
        World::with(&["fast", "slow"], &["slow2", "slow3"], change, io)
    }
    /// Two tiers are `fast` and `slow`, a third is `middle`.
    pub(crate) fn with_tiers(
        tiers: usize,
        change: impl FnOnce(&mut Settings),
        io: Io,
    ) -> Option<World> {
        let names = if tiers == 2 {
            &["fast", "slow"][..]
        } else {
            &["fast", "middle", "slow"]
        };
        World::with(names, &[], change, io)
    }
    fn with(
        names: &[&str],
        more_slow: &[&str],
        change: impl FnOnce(&mut Settings),
        io: Io,
    ) -> Option<World> {
        if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
            println!("SKIPPED: needs /dev/fuse and root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for d in names.iter().chain(more_slow).chain(&["mnt"]) {
            fs::create_dir(root.join(d)).unwrap();
        }
        let mut settings = Settings {
            tiers: names.iter().map(|n| root.join(n)).collect(),
            more_slow: more_slow.iter().map(|n| root.join(n)).collect(),
            moves: false,
            // The result must not depend on how full the disk below is.
            marks: (100, 100),
            ..Settings::default()
        };
        change(&mut settings);
        let mut world = World {
            mounted: None,
            root,
            settings,
            io,
            _dir: dir,
        };
        world.mount();
        Some(world)
    }
    pub(crate) fn mount(&mut self) {
        let options = Options {
            io: self.io,
            threads: 4,
            allow_other: true,
            read_only: false,
        };
        self.mounted = Some(mount(&self.settings, &self.root.join("mnt"), &options).unwrap());
    }
    pub(crate) fn unmount(&mut self) {
        let mounted = self.mounted.take().unwrap();
        mounted.unmount(Duration::from_secs(60)).unwrap();
    }
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.join("mnt").join(path)
    }
    pub(crate) fn on(&self, tier: &str, path: &str) -> PathBuf {
        self.root.join(tier).join(path)
    }
    pub(crate) fn send(&self, path: &str, to: u8) -> Outcome {
        let store = &self.mounted.as_ref().unwrap().store;
        let node = store.cat().find(path.as_bytes()).unwrap();
        store.move_file(node, to)
    }
    /// Number of moves that were done.
    pub(crate) fn moves(&self) -> u64 {
        let store = &self.mounted.as_ref().unwrap().store;
        store.placement.done[0].load(Ordering::Relaxed)
    }
    pub(crate) fn ask(&self, path: &str, what: &str) -> serde_json::Value {
        let store = &self.mounted.as_ref().unwrap().store;
        let node = store.cat().find(path.as_bytes()).unwrap();
        serde_json::from_slice(&isotherm_files::control::answer(store, node, what).unwrap())
            .unwrap()
    }
}

/// Waits for something that happens by itself, however busy the machine is.
pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}: never");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn run(script: &str, dir: &Path) {
    let out = Command::new("sh")
        .arg("-ec")
        .arg(script)
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{script}: {}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
}
