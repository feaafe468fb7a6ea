//! Scenes about FLUSHes that wait for writes in progress, so that one flush of the devices serves several writers.

use super::stage::{Shape, Stage, nothing};
use isotherm_core::engine::Mutant;
use isotherm_core::policy::Uses;
use isotherm_core::{DeviceOp, Nanos, OpKind};

/// Duration of the rounds of the scene.
const ROUND: Nanos = Nanos::from_millis(4);

fn is_flush(op: &DeviceOp) -> bool {
    op.kind == OpKind::Flush
}

fn is_write(op: &DeviceOp) -> bool {
    op.kind == OpKind::Write
}

/// The time of the scene, advanced by `by`.
fn pass(s: &mut Stage, by: Nanos) -> Result<(), String> {
    let now = s.world.as_ref().map_or(Nanos(0), isotherm_core::World::now);
    s.pass(now + by)
}

/// A volume on which waiting has paid: a write to extent 1 has ended, a write to extent 2 is in progress, and a FLUSH waits for it. Returns
/// the FLUSH's tag.
fn waiting(mutant: Option<Mutant>) -> Result<(Stage, isotherm_core::Tag), String> {
    let shape = Shape {
        slots: vec![10, 30],
        ..Shape::default()
    };
    let mut s = Stage::with(mutant, &shape, |p| {
        (p.flush_ahead, p.flush_gather) = (0, 1);
    })?;
    s.uses(Uses::Copies);
    for e in [1, 2] {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    s.close(None)?;
    s.open()?;
    // A FLUSH whose round begins while another write is in progress, and a FLUSH for this write directly after it.
    for _ in 0..2 {
        s.write(1, (0, 8))?;
        s.hold(|op| is_write(op) || is_flush(op));
        s.send(2, (0, 8))?;
        s.send_flush()?;
        pass(&mut s, ROUND)?;
        s.release()?;
        s.flush()?;
    }
    s.write(1, (0, 8))?;
    s.hold(is_write);
    pass(&mut s, ROUND)?;
    s.send(2, (0, 8))?;
    let flush = s.send_flush()?;
    if s.answer(flush).is_some() || s.is_in_flight(is_flush) {
        return Err(String::from("the scene has no FLUSH that waits"));
    }
    Ok((s, flush))
}

/// The write ends: the FLUSH must flush both writes before it is answered.
pub(super) fn is_flushed(mutant: Option<Mutant>) -> Result<(), String> {
    let (mut s, flush) = waiting(mutant)?;
    s.release()?;
    if s.answer(flush) != Some(Ok(())) {
        return Err(String::from("a FLUSH that waited is not answered"));
    }
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// The write does not end: the FLUSH must not wait for it any longer than for a part of a round.
pub(super) fn ends(mutant: Option<Mutant>) -> Result<(), String> {
    let (mut s, flush) = waiting(mutant)?;
    pass(&mut s, ROUND)?;
    if s.answer(flush) != Some(Ok(())) {
        return Err(String::from("a FLUSH waits for a write without limit"));
    }
    s.release()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}
