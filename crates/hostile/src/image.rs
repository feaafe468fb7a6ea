//! Images of used volumes, and attempts to open changed images, for the fuzzing of recovery.

use super::Rng;
use super::disk::{Disk, Disks};
use super::ends::read_all;
use super::run::{Run, Scenario, find};
use super::world::{Faults, Hostile};
use isotherm_core::engine::Params;
use isotherm_core::policy;
use isotherm_core::store::{Superblock, open, open::Mode};
use isotherm_core::{Engine, Nanos};

/// The disks of a volume that ran for `lives` lives and lost power at the end of each, and the superblock with which it was created.
///
/// # Errors
/// A fault was found while the volume ran.
pub fn used(seed: u64, lives: u32) -> Result<(Vec<Disk>, Superblock), String> {
    let (mut run, mut disks) = Run::begin(Scenario {
        lives: lives + 1,
        ..Scenario::new(seed)
    })?;
    for life in 0..lives {
        disks = run.live(disks, life)?;
    }
    Ok((disks, run.sb))
}

/// Opens the contents of `disks` as a volume, and reads it if that succeeds. Returns true if it opened.
///
/// # Errors
/// A read is never answered.
pub fn open_and_read(mut disks: Vec<Disk>, mode: Mode) -> Result<bool, String> {
    let found = find(&disks, None);
    let opened = match open(&mut Disks::of(&mut disks), &found, mode) {
        Ok(opened) => opened,
        // A refusal is correct. Its message must not panic.
        Err(e) => {
            let _ = e.to_string();
            return Ok(false);
        }
    };
    let volume = opened.space.geo.volume_bytes();
    let time_base = opened.time_base;
    let params = Params {
        read_only: mode == Mode::ReadOnly,
        stage_blocks: 8,
        commit_interval: Nanos::from_millis(50),
        ..Params::default()
    };
    let extent_bytes = opened.space.geo.extent_bytes() as usize;
    let linear = Box::new(policy::Linear::new("linear"));
    let mut engine = Engine::new(opened, linear, params);
    let mut world = Hostile::new(
        disks,
        Rng::new(1),
        Faults::default(),
        extent_bytes,
        time_base,
    );
    // A changed superblock may state a very large size. Only the first megabyte is read, which contains every kind of extent.
    read_all(&mut engine, &mut world, volume.min(1 << 20))?;
    Ok(true)
}
