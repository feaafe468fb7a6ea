//! Scenes about openings that are cut off one after another, with and without a member.

use super::caches::cache;
use super::stage::{Stage, everything, nothing};
use crate::disk::Disk;
use isotherm_core::engine::Mutant;
use isotherm_core::store::OpenError;
use isotherm_core::store::open::{Loss, Mode};

fn without(epoch: u64) -> Mode {
    Mode::Degraded {
        epoch,
        loss: Loss::Refused,
    }
}

/// A cache volume with clean copies only, after a loss of power.
fn clean(mutant: Option<Mutant>) -> Result<Stage, String> {
    let mut s = cache(mutant)?;
    s.write(1, (0, 8))?;
    s.flush()?;
    s.lose_power(everything);
    Ok(s)
}

/// Opens without the flash, and loses power after this number of changes.
fn cut_without(s: &mut Stage, fuse: u64) {
    s.gone = true;
    let _ = s.try_open(without, Some(fuse));
    s.lose_power(nothing);
    s.gone = false;
}

/// Power fails in an opening with all members, and then in one without the flash. Neither has begun, so all members are as they were.
pub(super) fn cut_with_and_without(mutant: Option<Mutant>) -> Result<(), String> {
    let s = clean(mutant)?;
    for with in 0..20 {
        for then in 0..20 {
            let mut t = s.fork();
            t.open_cut(with, nothing);
            cut_without(&mut t, then);
            t.try_open(without, None).map_err(|e| {
                format!("power lost at {with} with the flash, then at {then} without it: {e}")
            })?;
            t.verify()?;
        }
    }
    Ok(())
}

/// Power fails in two openings with all members, after so many changes each. Then the volume is served without the flash, which comes back.
fn back_after(s: &Stage, cuts: [u64; 2]) -> Result<Stage, String> {
    let mut t = s.fork();
    for fuse in cuts {
        t.open_cut(fuse, nothing);
    }
    t.gone = true;
    let served = t.try_open(without, None);
    served.map_err(|e| format!("{cuts:?}: without the flash: {e}"))?;
    t.write(2, (0, 8))?;
    t.flush()?;
    t.lose_power(nothing);
    t.gone = false;
    Ok(t)
}

/// Power fails in two openings with all members, at any moment. Then the volume is served without the flash, which comes back.
pub(super) fn served_without(mutant: Option<Mutant>) -> Result<(), String> {
    let s = clean(mutant)?;
    for first in 0..20 {
        for second in 0..20 {
            let mut t = back_after(&s, [first, second])?;
            t.try_open(without, None).map_err(|e| {
                format!("power lost at {first} and {second}, then served without the flash: {e}")
            })?;
            t.verify()?;
        }
    }
    Ok(())
}

/// The volume is served without its flash, and on copies of its members with it, so both are written in sessions of the same generation. Then
/// the flash of the one is put to the disk of the other.
pub(super) fn served_apart(mutant: Option<Mutant>) -> Result<(), String> {
    let s = clean(mutant)?;
    let mut with = s.fork();
    with.epochs += 0x10;
    with.open()?;
    with.write(2, (0, 8))?;
    with.flush()?;
    with.lose_power(nothing);
    let mut t = s.fork();
    t.gone = true;
    let served = t.try_open(without, None);
    served.map_err(|e| format!("without the flash: {e}"))?;
    t.write(3, (0, 8))?;
    t.flush()?;
    t.lose_power(nothing);
    t.gone = false;
    t.disks[0] = with.disks[0].clone();
    match t.try_open(without, None) {
        Err(OpenError::Diverged(_)) => Ok(()),
        Err(e) => Err(format!("refused for another reason: {e}")),
        Ok(()) => Err(String::from(
            "flash of another history was left out without a word",
        )),
    }
}

/// Members after openings that were cut: one with the flash and one without it, and two with it before the volume was served without it. What
/// they hold can be had of each.
///
/// # Errors
/// A device of the scene fails.
pub fn cut_openings() -> Result<Vec<Vec<Disk>>, String> {
    let s = clean(None)?;
    let mut images = Vec::new();
    for first in (0..20).step_by(3) {
        for second in (0..20).step_by(3) {
            let mut t = s.fork();
            t.open_cut(first, nothing);
            cut_without(&mut t, second);
            images.push(t.disks);
            images.push(back_after(&s, [first, second])?.disks);
        }
    }
    Ok(images)
}
