//! Scenes about rounds that begin before a FLUSH asks for them, and about the FLUSHes that are answered with such a round.

use super::stage::{Shape, Stage, nothing};
use isotherm_core::engine::Mutant;
use isotherm_core::policy::Uses;
use isotherm_core::{DeviceOp, MemberId, OpKind};

fn is_flush(op: &DeviceOp) -> bool {
    op.kind == OpKind::Flush && op.member == MemberId(1)
}

/// A volume with the extents 1 and 2, in which `flushes` FLUSHes have come directly after a write, so that rounds begin ahead.
fn sure(mutant: Option<Mutant>, uses: Uses, after: u16, flushes: u32) -> Result<Stage, String> {
    let shape = Shape {
        slots: vec![10, 30],
        ..Shape::default()
    };
    let mut s = Stage::with(mutant, &shape, |p| p.flush_ahead = after)?;
    s.uses(uses);
    for e in [1, 2] {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    s.close(None)?;
    s.open()?;
    for _ in 0..flushes {
        s.write(1, (0, 8))?;
        s.flush()?;
    }
    Ok(s)
}

fn begins_ahead(s: &Stage) -> Result<(), String> {
    if s.is_in_flight(is_flush) {
        Ok(())
    } else {
        Err(String::from("the scene has no round that began ahead"))
    }
}

/// Rounds begin ahead again and again, as long as FLUSHes follow writes, and no more often than that.
pub(super) fn again_and_again(mutant: Option<Mutant>) -> Result<(), String> {
    let counts = |s: &Stage| {
        let c = s
            .engine
            .as_ref()
            .map(|e| (e.counters().ahead, e.counters().ahead_met));
        c.ok_or("the volume is not served")
    };
    let mut s = sure(mutant, Uses::Copies, 2, 4)?;
    let before = counts(&s)?;
    for _ in 0..8 {
        s.write(1, (0, 8))?;
        s.flush()?;
    }
    let after = counts(&s)?;
    if after.0 < before.0 + 8 || after.1 < before.1 + 8 {
        return Err(format!(
            "of 8 FLUSHes, {before:?} to {after:?} were predicted"
        ));
    }
    // Each write is followed by another one: a prediction that is not met is not counted as met by a later FLUSH.
    for _ in 0..8 {
        s.write(1, (0, 8))?;
        s.write(2, (0, 8))?;
    }
    s.flush()?;
    let end = counts(&s)?;
    if end.1 > after.1 + 1 || end.0 > after.0 + 4 {
        return Err(format!("wrong predictions count: {after:?} to {end:?}"));
    }
    s.engine
        .as_ref()
        .map_or(Ok(()), isotherm_core::Engine::contracts)
}

/// A write ends after the flush of a round that began ahead was issued: the next FLUSH must issue another flush.
pub(super) fn late_write(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = sure(mutant, Uses::Copies, 2, 2)?;
    s.hold(is_flush);
    s.write(1, (0, 8))?;
    begins_ahead(&s)?;
    s.write(2, (0, 8))?;
    let flush = s.send_flush()?;
    if s.answer(flush).is_some() {
        return Err(String::from("a FLUSH is answered before any flush ended"));
    }
    s.release()?;
    if s.answer(flush) != Some(Ok(())) {
        return Err(String::from("a FLUSH is not answered"));
    }
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// A round begins ahead although a record is due. A FLUSH that is answered with this round must wait until the record is durable, too.
pub(super) fn new_extent(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = sure(mutant, Uses::Homes, 1, 1)?;
    // From the first record of this session on, the mirror may lag, so no record for it is due.
    s.write(4, (0, 8))?;
    s.flush()?;
    s.hold(is_flush);
    s.write(3, (0, 8))?;
    begins_ahead(&s)?;
    s.send_flush()?;
    s.release()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}
