//! Scenes in which flash has so much in progress that the disk answers sooner.

use super::caches::cache;
use super::stage::Stage;
use crate::world::Fate;
use isotherm_core::engine::Mutant;
use isotherm_core::{DeviceOp, Nanos, OpKind};
use std::cell::RefCell;
use std::collections::BTreeSet;

fn reads_disk(op: &DeviceOp) -> bool {
    op.kind == OpKind::Read && op.member.0 == 1
}

fn reads_flash(op: &DeviceOp) -> bool {
    op.kind == OpKind::Read && op.member.0 == 0
}

/// A volume with copies of extents 1 to 3, of which that of 3 is dirty. Flash has been slow: it needs seconds for an operation.
fn slow_flash(mutant: Option<Mutant>) -> Result<Stage, String> {
    let mut s = cache(mutant)?;
    for e in 1..4 {
        s.write(e, (0, 8))?;
        s.flush()?;
        s.allocate(e)?;
        s.write(e, (0, 8))?;
        if e < 3 {
            s.clean(e)?;
        }
    }
    s.pass(Nanos::from_secs(1))?;
    s.read_sooner();
    s.hold(|op| op.member.0 == 0);
    let slow = s.send_read(1)?;
    s.pass(Nanos::from_secs(60))?;
    s.release()?;
    match s.answer(slow) {
        Some(Ok(())) => Ok(s),
        other => Err(format!("a read from slow flash ended with {other:?}")),
    }
}

/// Reads with which flash is behind.
const MANY: usize = 64;

/// From now on flash does not end the first reads that it gets, which this sends, and reads of the disk end like this.
fn keep_flash_busy(s: &mut Stage, disk: Fate) -> Result<(), String> {
    let held = RefCell::new(BTreeSet::new());
    s.script(move |op| {
        let mut held = held.borrow_mut();
        if reads_flash(op) && held.len() < MANY {
            held.insert(op.id.0);
        }
        match op.kind {
            _ if held.contains(&op.id.0) => Fate::Hold,
            _ if reads_disk(op) => disk,
            _ => Fate::Go,
        }
    });
    for _ in 0..MANY {
        s.send_read(2)?;
    }
    if s.is_in_flight(reads_flash) {
        Ok(())
    } else {
        Err(String::from("flash has nothing in progress"))
    }
}

/// Clean blocks are read from the disk, dirty ones from flash. What the disk cannot read is read from flash.
pub(super) fn reads(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = slow_flash(mutant)?;
    keep_flash_busy(&mut s, Fate::Go)?;
    s.read(3)?;
    s.release()?;
    keep_flash_busy(&mut s, Fate::Hold)?;
    s.send_read(1)?;
    if !s.is_in_flight(reads_disk) {
        return Err(String::from("flash is behind, and the disk is not read"));
    }
    s.release()?;
    keep_flash_busy(&mut s, Fate::Fail)?;
    s.read(1)
        .map_err(|e| format!("the disk cannot read it, and flash has it: {e}"))
}

/// While a write to a copy is in progress, its blocks are read from flash alone: a read from the disk could return the old bytes after
/// another one has returned the new ones.
pub(super) fn under_a_write(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = slow_flash(mutant)?;
    s.hold(|op| op.member.0 == 0 || reads_disk(op));
    for _ in 0..MANY {
        s.send_read(2)?;
    }
    s.send(1, (0, 4))?;
    s.send_read(1)?;
    if s.is_in_flight(reads_disk) {
        let what = "blocks are read from the disk while a write to their copy is in progress";
        return Err(String::from(what));
    }
    s.release()?;
    s.read(1)
}
