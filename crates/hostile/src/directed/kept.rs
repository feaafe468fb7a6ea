//! Scenes about writes that the next server must find after this one was killed.

use super::stage::{Shape, Stage, everything, nothing};
use isotherm_core::engine::Mutant;
use isotherm_core::policy::{Action, Uses};
use isotherm_core::{ExtentId, MemberId, OpKind, TierId};

/// A volume whose records are kept, and in which the mirror may lag, so that no record for it is due.
fn stage(mutant: Option<Mutant>) -> Result<Stage, String> {
    let mut s = Stage::with(mutant, &Shape::default(), |p| {
        (p.kept_writes, p.keeper) = (true, true);
    })?;
    s.uses(Uses::Homes);
    s.write(4, (0, 8))?;
    s.flush()?;
    Ok(s)
}

fn rounds(s: &Stage) -> Option<u64> {
    s.engine.as_ref().map(|e| e.counters().rounds)
}

/// Writes are answered without a round, and the next server finds them. It may be killed as well.
pub(super) fn killed(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    let before = rounds(&s);
    for e in [3, 5, 6] {
        s.write(e, (0, 4))?;
        s.write(e, (2, 8))?;
    }
    if mutant.is_none() && rounds(&s) != before {
        return Err(String::from("a kept write began a round"));
    }
    s.die();
    let moment = s.truth.moment();
    s.open()?;
    s.truth.flushed(moment);
    s.verify()?;
    // What was restored is durable.
    s.lose_power(nothing);
    s.open()?;
    s.verify()?;
    s.write(7, (0, 8))?;
    s.die();
    let moment = s.truth.moment();
    s.open()?;
    s.truth.flushed(moment);
    s.verify()
}

/// A FUA write to blocks whose record is only kept must wait until the record is durable.
pub(super) fn forced(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    s.write(3, (0, 8))?;
    s.write_forced(3, (0, 8))?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// The power is lost at each step of restoring, after a kill. What is exposed must be durable, whatever else is.
pub(super) fn restoring_is_cut(mutant: Option<Mutant>) -> Result<(), String> {
    for fuse in 0..8 {
        let mut s = stage(mutant)?;
        s.write(3, (0, 8))?;
        s.die();
        s.open_cut(fuse, nothing);
        s.open()?;
        s.verify()?;
    }
    Ok(())
}

/// A session loses the first of the journal blocks that it was writing, and the others reach the medium. The next session numbers its blocks
/// from the lost one on, so a block of the lost session lies where each of its own will be. What it kept must be restored there.
pub(super) fn over_a_lost_session(mutant: Option<Mutant>) -> Result<(), String> {
    const MANY: u32 = 600;
    let shape = Shape {
        extents: MANY + 20,
        slots: vec![10, MANY + 40],
        ..Shape::default()
    };
    let mut s = Stage::with(mutant, &shape, |p| {
        (p.kept_writes, p.keeper) = (true, true);
    })?;
    s.uses(Uses::Homes);
    s.write(4, (0, 8))?;
    s.flush()?;
    keep(&mut s, 0.0)?;
    for e in 10..MANY {
        s.write(e, (0, 8))?;
    }
    let ring = s.is_ring();
    s.hold(ring.clone());
    s.send_flush()?;
    let world = s.world.as_ref().ok_or("the volume is not served")?;
    let writes: Vec<_> = world.in_progress().filter(ring).collect();
    let first = writes.iter().find(|op| op.member == MemberId(0));
    let at = first.filter(|op| op.len > 8192).map(|op| op.offset);
    let at = at.ok_or("the scene has no round of three blocks")?;
    let lost = at..at + 4096;
    s.lose_power(move |m, o| m != MemberId(0) || !lost.contains(&o));
    s.open()?;
    s.verify()?;
    for e in 10..MANY {
        s.write(e, (0, 4))?;
    }
    s.die();
    let moment = s.truth.moment();
    s.open()?;
    s.truth.flushed(moment);
    s.verify()
}

/// While the record of a move becomes durable, an older change of the same extent is pending, and a write to another one is to be kept. If
/// both were kept now, the journal would name the old home of the extent after the new one.
pub(super) fn beside_a_move(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    s.write(1, (0, 4))?;
    s.flush()?;
    keep(&mut s, 0.0)?;
    s.write(1, (4, 8))?;
    let ring = s.is_ring();
    s.hold(ring.clone());
    let (extent, to) = (ExtentId(1), TierId(0));
    s.propose(Action::Move { extent, to })?;
    if !s.is_in_flight(ring) {
        return Err(String::from("the scene has no round with a move"));
    }
    keep(&mut s, 1.0)?;
    let write = s.send(5, (0, 8))?;
    s.release()?;
    if s.answer(write) != Some(Ok(())) {
        return Err(String::from("a kept write is not answered"));
    }
    // The former home of the extent gets another owner.
    for e in [6, 7, 8] {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    s.lose_power(everything);
    s.open()?;
    s.verify()
}

/// A round for a move also writes the blocks that were kept before. So it must flush the data that these expose, on whatever member.
pub(super) fn before_a_move(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    s.write(1, (0, 8))?;
    s.flush()?;
    s.write(3, (0, 8))?;
    let before = rounds(&s);
    s.hold(|op| op.kind == OpKind::Flush && op.member == MemberId(1));
    let (extent, to) = (ExtentId(1), TierId(0));
    s.propose(Action::Move { extent, to })?;
    if rounds(&s) == before {
        return Err(String::from("the scene has no round for its move"));
    }
    // The metadata reaches the medium, and the data does not.
    let is_slot = s.is_slot();
    s.lose_power(move |m, at| !is_slot(m, at));
    s.open()?;
    s.verify()
}

fn keep(s: &mut Stage, on: f64) -> Result<(), String> {
    let engine = s.engine.as_mut().ok_or("the volume is not served")?;
    let set = engine.set("kept_writes", on);
    set.map_err(|e| format!("kept_writes: {e:?}"))
}
