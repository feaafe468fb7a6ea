//! Scenes about copies: dirty blocks, cleans, discards.

use super::caches::cache;
use super::stage::{Shape, Stage, nothing, stage};
use crate::world::Fate;
use isotherm_core::engine::{Mutant, Params};
use isotherm_core::geometry::Kind;
use isotherm_core::policy::{Action, WriteTo};
use isotherm_core::{BufRef, DeviceOp, ExtentId, Nanos, OpKind, TierId};

/// A copy was recorded as dirty only by a checkpoint, because the journal had no room. The copy is dropped. Its slot must not be used again
/// before a record that does not name it is durable.
pub(super) fn named_by_checkpoint(mutant: Option<Mutant>) -> Result<(), String> {
    let shape = Shape {
        kind: Kind::Tiering,
        extents: 120,
        slots: vec![110, 130],
        ring: 4,
        ..Shape::default()
    };
    let pieces = |p: &mut Params| p.piece_blocks = 4;
    let mut s = Stage::with(mutant, &shape, pieces)?;
    for e in 0..110 {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    for e in 0..110 {
        s.allocate(e)?;
    }
    s.write(115, (0, 8))?;
    s.flush()?;
    s.write(116, (0, 8))?;
    s.hold(s.is_ring());
    s.send_flush()?;
    for e in 0..110 {
        s.write(e, (0, 1))?;
    }
    // The round ends. The next round writes a piece of a checkpoint and as many records as fit; the one after it writes the checkpoint's
    // header.
    let header = s.is_region(0);
    s.hold(header.clone());
    s.pump()?;
    if !s.is_in_flight(&header) {
        return Err(String::from("the scene has no checkpoint"));
    }
    s.discard(100, (0, 8))?;
    s.high([117]);
    s.write(117, (0, 8))?;
    s.hold(s.is_ring());
    s.pump()?;
    let slot = s.is_slot();
    s.lose_power(slot);
    s.open()?;
    s.verify()
}

/// An extent with a copy whose first block is recorded as dirty, and a clean of it whose write has not ended.
fn cleaning(mutant: Option<Mutant>) -> Result<Stage, String> {
    let mut s = stage(mutant)?;
    s.write(1, (0, 8))?;
    s.flush()?;
    s.allocate(1)?;
    s.write(1, (0, 1))?;
    s.flush()?;
    let data = s.is_data();
    s.hold(move |op| data(op) && op.member.0 == 1);
    s.clean(1)?;
    if !s.is_in_flight(s.is_data()) {
        return Err(String::from("the scene has no clean"));
    }
    Ok(s)
}

/// Blocks of an extent with a copy are discarded: they must read as zeros, also from the copy.
pub(super) fn discarded_in_part(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    s.write(1, (0, 8))?;
    s.flush()?;
    s.allocate(1)?;
    s.write(1, (0, 6))?;
    s.discard(1, (2, 4))?;
    s.read(1)?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()?;
    s.read(1)
}

/// An extent is discarded while a clean writes to its home: that write must not change the data of the extent that gets the slot next.
pub(super) fn discarded_under_clean(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cleaning(mutant)?;
    s.hold(|op| op.kind == OpKind::Write && matches!(op.buf, BufRef::Move { .. }));
    let discard = s.send_discard(1, (0, 8))?;
    s.send_flush()?;
    for _ in 0..3 {
        s.pass(Nanos::from_secs(10))?;
    }
    for e in 2..6 {
        s.write(e, (0, 8))?;
    }
    s.release()?;
    if s.answer(discard) != Some(Ok(())) {
        return Err(String::from("a discard is not answered"));
    }
    for e in 1..6 {
        s.read(e)?;
    }
    Ok(())
}

/// Blocks of an extent are read while other blocks of it are fetched into its copy. The blocks that are read are not in the buffer of the
/// fetch.
pub(super) fn read_beside_fill(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    s.write(1, (0, 8))?;
    s.flush()?;
    s.allocate(1)?;
    s.write(1, (0, 1))?;
    let fills = |op: &DeviceOp| op.kind == OpKind::Write && matches!(op.buf, BufRef::Move { .. });
    s.hold(fills);
    s.propose(Action::FetchPart {
        extent: ExtentId(1),
        to: TierId(0),
        // Two of the extent's eight logical blocks.
        from: 2 * 512,
        bytes: 2 * 512,
    })?;
    if !s.is_in_flight(fills) {
        return Err(String::from("the scene has no fill"));
    }
    s.read(1)?;
    s.release()?;
    s.read(1)
}

/// The flash of a cache volume fails operations on data from now on.
fn fail_flash(s: &mut Stage) {
    let data = s.is_slot();
    s.script(move |op| {
        if op.member.0 == 0 && data(op.member, op.offset) {
            Fate::Fail
        } else {
            Fate::Go
        }
    });
}

/// Flash cannot read a copy. Clean blocks are read from the disk; dirty ones are nowhere else, and not replaced by older ones.
pub(super) fn unreadable(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    for e in [1, 2] {
        s.write(e, (0, 8))?;
        s.allocate(e)?;
    }
    s.write(1, (0, 8))?;
    s.clean(1)?;
    s.pass(Nanos::from_secs(1))?;
    s.write(2, (0, 8))?;
    fail_flash(&mut s);
    s.read(1)
        .map_err(|e| format!("a clean block cannot be read: {e}"))?;
    // (A wrong answer is found by `read` itself.)
    match s.read(2) {
        Ok(()) => return Err(String::from("dirty blocks were read from the disk")),
        Err(e) if e.contains("ended with Some(Err") => {}
        Err(e) => return Err(e),
    }
    s.release()?;
    s.read(2)
}

/// Flash fails writes to a dirty copy: the disk takes them, and the record of the copy must not hide them.
pub(super) fn unwritable(mutant: Option<Mutant>) -> Result<(), String> {
    for to in [WriteTo::Copy, WriteTo::Both] {
        let mut s = cache(mutant)?;
        s.allocate(1)?;
        s.write(1, (0, 8))?;
        s.flush()?;
        s.write_to(to);
        fail_flash(&mut s);
        s.write(1, (0, 4))
            .map_err(|e| format!("the disk does not take a write to {to:?}: {e}"))?;
        s.flush()?;
        s.lose_power(nothing);
        s.open()?;
        s.verify()?;
        s.read(1)?;
    }
    Ok(())
}

/// The same while a clean of these blocks is under way: its older bytes must not be written over the newer ones.
pub(super) fn unwritable_under_clean(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    s.allocate(1)?;
    s.write(1, (0, 8))?;
    s.flush()?;
    let cleans = |op: &DeviceOp| op.kind == OpKind::Write && matches!(op.buf, BufRef::Move { .. });
    s.hold(cleans);
    s.clean(1)?;
    if !s.is_in_flight(cleans) {
        return Err(String::from("the scene has no clean"));
    }
    let data = s.is_slot();
    s.script(move |op| {
        if cleans(op) {
            Fate::Hold
        } else if op.member.0 == 0 && data(op.member, op.offset) {
            Fate::Fail
        } else {
            Fate::Go
        }
    });
    let write = s.send(1, (0, 4))?;
    s.release()?;
    if s.answer(write) != Some(Ok(())) {
        return Err(String::from("the write is not answered"));
    }
    s.read(1)?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}
