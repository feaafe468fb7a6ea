//! Images of used volumes, and attempts to open changed images, for the fuzzing of recovery.

use super::Rng;
use super::disk::{Disk, Disks};
use super::ends::for_each_cell;
use super::run::{Run, Scenario, find};
use super::world::{Faults, Hostile};
use isotherm_core::engine::Params;
use isotherm_core::policy;
use isotherm_core::store::{Superblock, open, open::Loss, open::Mode};
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

/// Runs a scenario, and calls `each` with the members as each life leaves them: after a crash, after the death of the process, or when the
/// volume goes on without its cache (that disk is empty then).
///
/// # Errors
/// A fault was found while the volume ran, or `each` found one.
pub fn each_crash(
    s: Scenario,
    mut each: impl FnMut(&[Disk]) -> Result<(), String>,
) -> Result<(), String> {
    let (mut run, mut disks) = Run::begin(s)?;
    for life in 0..s.lives {
        disks = run.live(disks, life)?;
        if disks.is_empty() {
            break;
        }
        each(&disks)?;
    }
    Ok(())
}

/// What is left if the power fails while these members are opened, which may be before anything was written or after everything was.
pub fn interrupted(disks: &[Disk], seed: u64) -> Vec<Disk> {
    let mut rng = Rng::new(seed);
    let mut disks: Vec<Disk> = disks.iter().map(Disk::image).collect();
    let (found, epoch) = (find(&disks, None), rng.draw());
    let mode = if disks.iter().all(|d| !d.is_empty()) {
        Mode::ReadWrite { epoch }
    } else {
        let loss = Loss::Listed;
        Mode::Degraded { epoch, loss }
    };
    let mut all = Disks::of(&mut disks);
    all.fuse = Some(rng.below(20));
    // It does not matter whether it is refused or interrupted.
    let _ = open(&mut all, &found, mode);
    for d in &mut disks {
        d.crash(&mut rng, &[]);
    }
    disks
}

/// Opens the contents of `disks` as a volume, and reads it if that succeeds. Returns true if it opened.
///
/// # Errors
/// A read is never answered.
pub fn open_and_read(disks: Vec<Disk>, mode: Mode) -> Result<bool, String> {
    // A changed superblock may state a very large size. Only the first megabyte is read, which contains every kind of extent.
    Ok(contents(disks, mode, 1 << 20)?.is_ok())
}

/// Cells of [`CELL`](super::truth::CELL) bytes, in the order of the volume; `None` where a read is an error.
pub type Cells = Vec<Option<Vec<u8>>>;

/// What the volume serves of its first `most` bytes after it was opened, or the words with which it is refused.
///
/// # Errors
/// A read is never answered.
pub fn contents(
    mut disks: Vec<Disk>,
    mode: Mode,
    most: u64,
) -> Result<Result<Cells, String>, String> {
    let found = find(&disks, None);
    let opened = match open(&mut Disks::of(&mut disks), &found, mode) {
        Ok(opened) => opened,
        Err(e) => return Ok(Err(e.to_string())),
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
    let mut cells = Vec::new();
    for_each_cell(&mut engine, &mut world, volume.min(most), |_, cell| {
        cells.push(cell.map(<[u8]>::to_vec));
        Ok(())
    })?;
    Ok(Ok(cells))
}
