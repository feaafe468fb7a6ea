//! Scenes about rounds, checkpoints, the mirror, and slots that are used again.

use super::stage::{Shape, Stage, everything, nothing, stage};
use crate::world::Fate;
use isotherm_core::engine::Mutant;
use isotherm_core::geometry::Kind;
use isotherm_core::policy::Action;
use isotherm_core::store::BLOCK;
use isotherm_core::store::journal;
use isotherm_core::store::open::Mode;
use isotherm_core::{BufRef, DeviceOp, Engine, ExtentId, IoError, MemberId, Nanos, OpKind, TierId};

fn is_flush(member: u8) -> impl Fn(&DeviceOp) -> bool + Clone {
    move |op| op.kind == OpKind::Flush && op.member == MemberId(member)
}

fn up(e: u32) -> Action {
    let (extent, to) = (ExtentId(e), TierId(0));
    Action::Move { extent, to }
}

/// The write of a move's record to the mirror fails while a request waits for a slot. The record is durable on the primary, so the slot that
/// it names must not be given to another extent.
pub(super) fn fails_with_waiting_write(mutant: Option<Mutant>) -> Result<(), String> {
    let shape = Shape {
        extents: 8,
        slots: vec![2, 6],
        ..Shape::default()
    };
    let mut s = Stage::new(mutant, &shape)?;
    s.high([0]);
    for e in 0..7 {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    let data = s.is_data();
    s.hold(move |op| data(op) && op.member.0 == 0);
    s.propose(up(1))?;
    let waits = s.send(7, (0, 8))?;
    s.hold(s.is_ring());
    s.pump()?;
    if !s.is_in_flight(s.is_ring()) || s.answer(waits).is_some() {
        return Err(String::from(
            "the scene has no move and no writer that waits",
        ));
    }
    let ring = s.is_ring();
    s.script(move |op| {
        if ring(op) && op.member.0 == 1 {
            Fate::Fail
        } else {
            Fate::Go
        }
    });
    s.pump()?;
    if !s.engine.as_ref().is_some_and(Engine::has_failed) {
        return Err(String::from("a failed write of a record is not noticed"));
    }
    if s.answer(waits).is_none() {
        return Err(String::from(
            "a write that waits for a slot is not answered",
        ));
    }
    s.lose_power(everything);
    s.open()?;
    s.verify()
}

fn has(s: &Stage, member: usize, seq: u64) -> bool {
    let layout = s.sb.layout();
    let own = layout
        .carriers()
        .find(|c| usize::from(c.member.0) == member);
    let Some(own) = own else { return false };
    let block = s.disks[member].read(layout.ring_offset(own, seq), BLOCK);
    journal::decode(block, &s.sb.uuid).is_some_and(|h| h.seq == seq)
}

/// A slot of the primary is freed, and only the primary has the record. Then the primary's newest journal blocks are damaged. The slot must
/// not contain another extent's bytes.
pub(super) fn primary_slot_again(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    s.high([1, 2]);
    for e in [1, 3] {
        s.write(e, (0, 8))?;
        s.flush()?;
    }
    // The mirror has these two.
    s.pass(Nanos::from_secs(6))?;
    s.discard(1, (0, 8))?;
    s.flush()?;
    s.write(2, (0, 8))?;
    s.flush()?;
    damage_what_mirror_lacks(&mut s)?;
    s.open()?;
    s.check_contents()
}

/// A copy is cleaned, and when it has rested, only the primary has the record that does not name it any more. The mirror names the copy's slot
/// as dirty. The copy is dropped, and then the primary's newest journal blocks are damaged. The slot must not contain another extent's bytes.
pub(super) fn cleaned_slot_again(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    s.write(1, (0, 8))?;
    s.flush()?;
    s.allocate(1)?;
    s.write(1, (0, 8))?;
    s.flush()?;
    // The mirror has this.
    s.pass(Nanos::from_secs(6))?;
    s.clean(1)?;
    s.pass(Nanos::from_secs(1))?;
    s.pass(Nanos::from_secs(60))?;
    s.propose(Action::Evict {
        extent: ExtentId(1),
    })?;
    s.high([2]);
    s.write(2, (0, 8))?;
    s.flush()?;
    damage_what_mirror_lacks(&mut s)?;
    s.open()?;
    s.check_contents()
}

/// Loses power when all writes have ended, and damages the journal blocks of the primary that the mirror lacks.
fn damage_what_mirror_lacks(s: &mut Stage) -> Result<(), String> {
    s.lose_power(everything);
    let lacked: Vec<u64> = (1..60).filter(|&q| has(s, 0, q) && !has(s, 1, q)).collect();
    if lacked.len() < 2 {
        return Err(format!("the scene's mirror lacks {lacked:?} only"));
    }
    for seq in lacked {
        let layout = s.sb.layout();
        let at = layout.ring_offset(layout.primary, seq);
        s.disks[0].corrupt(at, 512);
    }
    Ok(())
}

/// A FLUSH arrives during a round, after writes that this round does not include: the round must not answer it.
pub(super) fn late_flush(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    for e in [1, 2] {
        s.write(e, (0, 8))?;
        s.flush()?;
    }
    s.write(3, (0, 8))?;
    s.hold(s.is_ring());
    s.send_flush()?;
    s.write(4, (0, 8))?;
    s.send_flush()?;
    s.hold(is_flush(1));
    s.pump()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// A write ends after the flush of its device was issued, and before that flush ends: the next FLUSH must issue another one.
pub(super) fn late_write(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    for e in [1, 2] {
        s.write(e, (0, 8))?;
        s.flush()?;
    }
    s.write(3, (0, 8))?;
    s.hold(is_flush(1));
    s.send_flush()?;
    s.write(1, (0, 8))?;
    s.release()?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// The mirror lags and receives the record of a move; then the primary is lost. It must not seem as if the mirror had the earlier records
/// that it lacks.
pub(super) fn mirror_gap(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    for e in [1, 3, 4] {
        s.write(e, (0, 8))?;
        s.flush()?;
    }
    s.discard(1, (0, 8))?;
    s.flush()?;
    s.propose(up(3))?;
    // The lower one of two free slots is taken.
    s.write(2, (0, 8))?;
    s.write(5, (0, 8))?;
    s.lose_power(everything);
    s.gone = true;
    s.try_open(|_| Mode::ReadOnly, None)
        .map_err(|e| format!("without the primary: {e}"))?;
    s.check_contents()
}

/// An extent that is already in a checkpoint changes before the checkpoint is complete. A replay that starts at this checkpoint must find
/// the change in the journal.
pub(super) fn change_meanwhile(mutant: Option<Mutant>) -> Result<(), String> {
    let shape = Shape {
        kind: Kind::Tiering,
        extents: 300,
        slots: vec![10, 310],
        ring: 8,
        ..Shape::default()
    };
    let mut s = Stage::new(mutant, &shape)?;
    for e in 0..300 {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    let first = s.is_region(1);
    s.hold(first.clone());
    for e in 100..108 {
        if !s.is_in_flight(&first) {
            s.discard(e, (7, 8))?;
            s.flush()?;
        }
    }
    if !s.is_in_flight(&first) {
        return Err(String::from("the scene has no checkpoint"));
    }
    s.discard(0, (0, 8))?;
    let last = s.send_flush()?;
    s.release()?;
    if s.answer(last) != Some(Ok(())) {
        return Err(String::from("a FLUSH is not answered"));
    }
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// A checkpoint whose blocks are completely full must contain every extent.
pub(super) fn full_blocks(mutant: Option<Mutant>) -> Result<(), String> {
    let shape = Shape {
        extents: 600,
        slots: vec![10, 610],
        ..Shape::default()
    };
    let mut s = Stage::new(mutant, &shape)?;
    for e in 0..600 {
        s.write(e, (0, if e > 400 { 7 } else { 8 }))?;
    }
    s.close(None)?;
    s.open()?;
    s.verify()
}

/// The first write of an extent fails. The old contents of its slot must not be shown.
pub(super) fn failed_write(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    let data = s.is_data();
    s.script(move |op| if data(op) { Fate::Fail } else { Fate::Go });
    let tag = s.send(1, (0, 8))?;
    if s.answer(tag) != Some(Err(IoError::Io)) {
        return Err(String::from(
            "a write that failed is answered as if it had not",
        ));
    }
    s.release()?;
    s.read(1)?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// A slot of the slow tier is freed, and only the primary has the record. Without the primary, the mirror must not show another extent's
/// bytes there.
pub(super) fn slow_slot_again(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    for e in [1, 3] {
        s.write(e, (0, 8))?;
        s.flush()?;
    }
    s.discard(1, (0, 8))?;
    s.flush()?;
    s.write(2, (0, 8))?;
    s.flush()?;
    s.lose_power(everything);
    s.gone = true;
    s.try_open(|_| Mode::ReadOnly, None)
        .map_err(|e| format!("without the primary: {e}"))?;
    s.check_contents()
}

/// Adjacent extents that will be moved.
fn neighbours(mutant: Option<Mutant>) -> Result<Stage, String> {
    let mut s = stage(mutant)?;
    for e in 1..5 {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    Ok(s)
}

/// The power fails when the records of moves whose writes were joined are durable, and all unflushed writes are lost.
pub(super) fn joined_moves(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = neighbours(mutant)?;
    s.hold(s.is_ring());
    s.propose_all((1..5).map(up).collect())?;
    if !s.is_in_flight(s.is_ring()) {
        return Err(String::from("the scene has no round"));
    }
    let slot = s.is_slot();
    s.lose_power(move |m, at| !slot(m, at));
    s.open()?;
    s.verify()
}

/// A joined operation fails, or ends after half of its bytes. Each part must be repeated separately.
pub(super) fn joined_failure(mutant: Option<Mutant>) -> Result<(), String> {
    for (kind, fate) in [
        (OpKind::Read, Fate::Fail),
        (OpKind::Read, Fate::Half),
        (OpKind::Write, Fate::Fail),
        (OpKind::Write, Fate::Half),
    ] {
        let mut s = neighbours(mutant)?;
        let joined = move |op: &DeviceOp| {
            op.kind == kind && op.len > 4096 && matches!(op.buf, BufRef::Move { .. })
        };
        s.hold(joined);
        s.propose_all((1..5).map(up).collect())?;
        if !s.is_in_flight(joined) {
            return Err(format!("the scene has no joined {kind:?}"));
        }
        s.script(move |op| if joined(op) { fate } else { Fate::Go });
        s.pump()?;
        for e in 1..5 {
            s.read(e)?;
        }
        s.flush()?;
        s.lose_power(nothing);
        s.open()?;
        s.verify()?;
    }
    Ok(())
}
