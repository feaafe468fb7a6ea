//! Scenes about dirty data that the user wants at home.

use super::caches::{cache, cache_with};
use super::stage::{EXTENT, Stage, nothing};
use crate::world::Fate;
use isotherm_core::engine::{Drain, Mutant};
use isotherm_core::policy::WriteTo;
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::{BufRef, DeviceOp, MemberId, Nanos, OpKind};

/// All dirty data is asked home while the policy keeps it dirty, and a disk has work of its own. When the engine says that nothing is left, the
/// flash may be lost: the disk has the data, and its mark says so.
pub(super) fn may_be_lost_with_flash(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = asked_home(mutant)?;
    lose_when_home(&mut s)
}

/// The same, and another policy takes over before anything is at home. It keeps data dirty, too.
pub(super) fn survives_a_switch(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = asked_home(mutant)?;
    let next = Box::new(s.policy.clone());
    let (engine, world, _) = s.both().ok_or("the volume is not served")?;
    let now = isotherm_core::World::now(world);
    engine.set_policy(now, next).map_err(|e| e.to_string())?;
    lose_when_home(&mut s)
}

/// Eight extents are dirty, and the user has asked for them at home.
fn asked_home(mutant: Option<Mutant>) -> Result<Stage, String> {
    let mut s = cache(mutant)?;
    s.write_to(WriteTo::Copy);
    for e in 1..9 {
        s.allocate(e)?;
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    let (engine, ..) = s.both().ok_or("the volume is not served")?;
    engine.clean().map_err(|e| e.to_string())?;
    if engine.draining() != Drain::Dirty(8) {
        return Err(String::from("the scene has other dirty data"));
    }
    Ok(s)
}

/// Waits until the engine says that nothing is left, and loses the flash.
fn lose_when_home(s: &mut Stage) -> Result<(), String> {
    let mut steps = 0;
    loop {
        s.pass(Nanos::from_millis(5))?;
        let (engine, ..) = s.both().ok_or("the volume is not served")?;
        if engine.draining() == Drain::None {
            break;
        }
        steps += 1;
        if steps > 1000 {
            return Err(String::from("what was asked home never is there"));
        }
    }
    s.lose_power(nothing);
    s.gone = true;
    let without = |epoch| Mode::Degraded {
        epoch,
        loss: Loss::Refused,
    };
    s.try_open(without, None)
        .map_err(|e| format!("without flash, after all was at home: {e}"))?;
    s.verify()
}

/// The greatest age of dirty data, as the engine says.
fn known_age(s: &mut Stage) -> Result<Option<Nanos>, String> {
    let (engine, world, _) = s.both().ok_or("the volume is not served")?;
    Ok(engine.dirty_age(isotherm_core::World::now(world)))
}

/// Data that a policy keeps dirty is written home at a certain age, and not long before. What is written again does not become younger by that.
pub(super) fn has_an_age(mutant: Option<Mutant>) -> Result<(), String> {
    let age = Nanos::from_secs(10);
    let mut s = cache_with(mutant, |p| p.dirty_age = Some(age))?;
    s.write_to(WriteTo::Copy);
    let dirty = |s: &mut Stage| {
        let engine = s.both().map(|all| &*all.0);
        engine.map_or(0, |e| e.space().map.dirty())
    };
    s.pass(Nanos::from_secs(6))?;
    for e in 1..5 {
        s.allocate(e)?;
        s.write(e, (0, 8))?;
    }
    for second in 1..=11 {
        s.pass(Nanos::from_secs(1))?;
        s.write(1, (0, 2))?;
        let (left, known) = (dirty(&mut s), known_age(&mut s)?);
        // What was written first is that old while all is dirty, and nothing is older. (A write takes less than a millisecond.)
        let age = Nanos::from_secs(second)..Nanos::from_millis(second * 1000 + 10);
        if left == 4 && !known.is_some_and(|t| age.contains(&t)) {
            return Err(format!("{known:?} instead of {second} s is said"));
        }
        if second < 5 && left != 4 {
            return Err(format!("{left} of 4 extents are dirty after {second} s"));
        }
    }
    for _ in 0..20 {
        s.pass(Nanos::from_millis(20))?;
    }
    let left = dirty(&mut s);
    if left > 1 {
        return Err(format!(
            "{left} extents are dirty for longer than they may be"
        ));
    }
    // What is written again and again may be as old as the last look but one.
    let (left, known) = (dirty(&mut s), known_age(&mut s)?);
    if (left > 0) != known.is_some() || known.is_some_and(|t| t > Nanos::from_secs(12)) {
        return Err(format!("{left} extents are dirty, at most for {known:?}"));
    }
    let (engine, ..) = s.both().ok_or("the volume is not served")?;
    if engine.draining() != Drain::None {
        return Err(String::from("everyday work is said to be a removal"));
    }
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// More than a limit is never dirty, whatever the policy wants; what would be more goes through, and survives the loss of the flash without a
/// FLUSH of it. A disk that takes nothing fails such writes, and is not asked all the time. A lower limit holds at once.
pub(super) fn has_a_limit(mutant: Option<Mutant>) -> Result<(), String> {
    // Six of ten extents.
    let mut s = cache_with(mutant, |p| p.dirty_max = Some(600_000))?;
    s.write_to(WriteTo::Copy);
    // Nothing gets home by a clean.
    let fails = |op: &DeviceOp| match op.buf {
        BufRef::Move { .. } if op.kind != OpKind::Read && op.member.0 == 1 => Fate::Fail,
        _ => Fate::Go,
    };
    s.script(fails);
    for e in 1..9 {
        s.allocate(e)?;
    }
    // All at once: writes in progress count, too.
    for e in 1..9 {
        s.send(e, (0, 8))?;
    }
    s.pump()?;
    let dirty = |s: &mut Stage| {
        let engine = s.both().map(|all| &*all.0);
        engine.map_or(0, |e| e.copies().2)
    };
    if dirty(&mut s) != 6 * EXTENT {
        return Err(format!("{} bytes are dirty, of 24576", dirty(&mut s)));
    }
    let failed = |s: &mut Stage| {
        let engine = s.both().map(|all| &*all.0);
        engine.map_or(0, |e| e.counters().writebacks.failed)
    };
    let before = failed(&mut s);
    for _ in 0..200 {
        s.pass(Nanos::from_millis(100))?;
    }
    let (engine, ..) = s.both().ok_or("the volume is not served")?;
    if !engine.dirty_limit().1 {
        return Err(String::from("nobody says that nothing gets home"));
    }
    let tried = failed(&mut s) - before;
    if !(5..500).contains(&tried) {
        return Err(format!("{tried} attempts in 20 s"));
    }
    s.script(|_| Fate::Go);
    wait(&mut s, 48 * EXTENT / 10)?;
    // A lower limit, and then none.
    set_max(&mut s, 20.0)?;
    wait(&mut s, 16 * EXTENT / 10)?;
    set_max(&mut s, 0.0)?;
    for e in 1..9 {
        s.write(e, (0, 8))?;
    }
    if dirty(&mut s) != 8 * EXTENT {
        return Err(String::from("a limit that was lifted goes on"));
    }
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// The limit counts also while a disk sleeps, and another policy heeds it, too.
pub(super) fn wakes_at_the_limit(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache_with(mutant, |p| {
        p.dirty_max = Some(600_000);
        p.sleep_hold = Some(Nanos::from_secs(3600));
        p.standby_after = vec![None, Some(Nanos::from_secs(1))];
    })?;
    s.write_to(WriteTo::Copy);
    for e in 1..9 {
        s.allocate(e)?;
    }
    for round in 0..2 {
        for _ in 0..50 {
            s.pass(Nanos::from_millis(100))?;
        }
        let (engine, ..) = s.both().ok_or("the volume is not served")?;
        if !engine.is_asleep(MemberId(1)) || engine.copies().1 > 0 {
            return Err(String::from("the disk does not sleep"));
        }
        for e in 1..6 {
            s.write(e, (0, 8))?;
        }
        for _ in 0..50 {
            s.pass(Nanos::from_millis(100))?;
        }
        let (engine, ..) = s.both().ok_or("the volume is not served")?;
        if engine.copies().1 != 5 || !engine.is_asleep(MemberId(1)) {
            return Err(String::from("the disk is woken too early"));
        }
        s.write(6, (0, 8))?;
        if round == 1 {
            let next = Box::new(s.policy.clone());
            let (engine, world, _) = s.both().ok_or("the volume is not served")?;
            let now = isotherm_core::World::now(world);
            engine.set_policy(now, next).map_err(|e| e.to_string())?;
        }
        wait(&mut s, 48 * EXTENT / 10)?;
    }
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

fn set_max(s: &mut Stage, percent: f64) -> Result<(), String> {
    let (engine, ..) = s.both().ok_or("the volume is not served")?;
    engine
        .set("dirty_max_percent", percent)
        .map_err(|e| format!("{e:?}"))
}

/// Waits until at most this number of bytes is dirty.
fn wait(s: &mut Stage, most: u64) -> Result<(), String> {
    for _ in 0..1000 {
        s.pass(Nanos::from_millis(20))?;
        let (engine, ..) = s.both().ok_or("the volume is not served")?;
        if engine.copies().2 <= most {
            return Ok(());
        }
    }
    Err(format!("more than {most} bytes stay dirty"))
}
