//! Scenes without memory for bitmaps: slots are filled with zeros before any of their contents are exposed.

use super::stage::{Shape, Stage, nothing};
use crate::world::Fate;
use isotherm_core::engine::Mutant;
use isotherm_core::policy::WriteTo;
use isotherm_core::{DeviceOp, OpKind};

/// A volume without memory for bitmaps.
fn without_bitmaps(mutant: Option<Mutant>) -> Result<Stage, String> {
    Stage::with(mutant, &Shape::default(), |p| p.partial_max = Some(0))
}

fn is_fill(op: &DeviceOp) -> bool {
    op.kind == OpKind::WriteZeroes
}

/// A round ends while the zeros of an extent are being written; then power is lost: the old contents of the slot must not be shown.
pub(super) fn round_during_fill(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = without_bitmaps(mutant)?;
    s.hold(is_fill);
    let tag = s.send(1, (0, 1))?;
    if !s.is_in_flight(is_fill) || (mutant.is_none() && s.answer(tag).is_some()) {
        return Err(String::from("the scene has no writer that waits for zeros"));
    }
    s.write(2, (0, 8))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// The zeros are in the device's cache, and the write that follows them has not ended. A FLUSH is answered, and the power fails.
pub(super) fn flush_behind_fill(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = without_bitmaps(mutant)?;
    // The mirror has a record that it may lag. From here on, a round writes only to the primary, and flushes only the primary.
    for e in [2, 3] {
        s.write(e, (0, 8))?;
        s.flush()?;
    }
    let data = s.is_data();
    s.hold(move |op| data(op) && op.kind == OpKind::Write);
    s.send(1, (3, 4))?;
    if s.is_in_flight(is_fill) {
        return Err(String::from("the zeros of the scene do not land"));
    }
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// A write, an unaligned write of other blocks and a discard arrive while the zeros are being written. The zeros must not undo any of them.
pub(super) fn change_during_fill(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = without_bitmaps(mutant)?;
    s.hold(is_fill);
    s.send(1, (0, 2))?;
    s.send(1, (5, 6))?;
    s.read(1)?;
    s.send_discard(1, (1, 2))?;
    s.release()?;
    s.read(1)?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// A part of a fully valid extent is discarded, with a dirty copy and without a copy. It must read as zeros from then on.
pub(super) fn discard_writes_zeros(mutant: Option<Mutant>) -> Result<(), String> {
    for copied in [false, true] {
        let mut s = without_bitmaps(mutant)?;
        s.write(1, (0, 8))?;
        s.flush()?;
        if copied {
            s.write_to(WriteTo::Copy);
            s.allocate(1)?;
            s.write(1, (1, 4))?;
        }
        s.discard(1, (2, 6))?;
        s.read(1)?;
        s.flush()?;
        s.lose_power(nothing);
        s.open()?;
        s.verify()?;
    }
    Ok(())
}

/// The write of zeros fails and the other write succeeds. The extent must then behave like one with a bitmap.
pub(super) fn fill_fails(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = without_bitmaps(mutant)?;
    s.script(|op| if is_fill(op) { Fate::Fail } else { Fate::Go });
    s.write(1, (2, 4))?;
    s.read(1)?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}
