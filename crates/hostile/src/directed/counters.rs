//! Scenes about members that are written to while nothing needs a round.

use super::stage::{Shape, Stage, everything};
use isotherm_core::engine::{Mutant, Params};
use isotherm_core::store::counter::{self, Counter};
use isotherm_core::store::open::Mode;
use isotherm_core::store::{BLOCK, OpenError};
use isotherm_core::{MemberId, Nanos};

/// A volume with extent 1 on its disk and extent 2 on flash, all of them recorded and flushed, at a time at which all counters are due. Flash, which
/// has the journal, sleeps after a second without requests.
fn due(mutant: Option<Mutant>) -> Result<Stage, String> {
    let mut s = Stage::with(mutant, &Shape::default(), |p: &mut Params| {
        p.counter_every = Some(Nanos::from_secs(30));
        p.standby_after = vec![Some(Nanos::from_secs(1)), None];
    })?;
    s.high([2]);
    for e in [1, 2] {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    s.pass(Nanos::from_secs(40))?;
    s.flush()?;
    s.pass(Nanos::from_secs(40))?;
    if is_asleep(&s) {
        Ok(s)
    } else {
        Err(String::from("the scene's flash does not sleep"))
    }
}

fn is_asleep(s: &Stage) -> bool {
    let engine = s.engine.as_ref();
    engine.is_some_and(|e| e.is_asleep(MemberId(0)))
}

/// The value of the disk's counter.
fn value(s: &Stage) -> u64 {
    let value = |v| {
        let disk = s.world.as_ref().map(|w| &w.disks[1]);
        let block = disk.and_then(|d| d.get(counter::offset(v), BLOCK));
        let counter = block.and_then(|b| Counter::decode(b, &s.sb.uuid));
        counter.map_or(0, |c| c.value)
    };
    value(0).max(value(1))
}

/// A disk is written to for a minute, and nobody asks for a FLUSH: its counter is raised all the same, and an older copy of it is refused.
/// Without writes it is not raised.
pub(super) fn raised_without_flush(mutant: Option<Mutant>) -> Result<(), String> {
    let mut raised = Vec::new();
    for writes in [0, 1, 4] {
        let mut s = due(mutant)?;
        let before = value(&s);
        let copy = s.world.as_ref().map(|w| w.disks[1].image());
        for _ in 0..writes {
            s.read(2)?;
            s.write(1, (0, 4))?;
            s.pass(Nanos::from_secs(14))?;
        }
        s.read(2)?;
        s.pass(Nanos::from_secs(100))?;
        raised.push(value(&s) - before);
        s.lose_power(everything);
        s.disks[1] = copy.ok_or("no copy")?;
        let opened = s.try_open(|epoch| Mode::ReadWrite { epoch }, None);
        let refused = matches!(opened, Err(OpenError::RolledBack { .. }));
        if refused != (writes > 0) {
            return Err(format!("an older copy after {writes} writes: {opened:?}"));
        }
    }
    // At once, and then every 30 s.
    if raised == [0, 1, 2] {
        Ok(())
    } else {
        Err(format!("after 0, 1 and 4 writes: {raised:?}"))
    }
}

/// A disk is written to while flash sleeps, where the journal would name the new value of its counter: flash is not woken. As soon as it is
/// awake, the counter is raised.
pub(super) fn raised_when_awake(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = due(mutant)?;
    let before = value(&s);
    s.write(1, (0, 4))?;
    s.pass(Nanos::from_secs(100))?;
    if !is_asleep(&s) || value(&s) != before {
        return Err(String::from("a counter has woken flash"));
    }
    s.read(2)?;
    s.pass(Nanos::from_millis(1))?;
    if value(&s) == before + 1 {
        Ok(())
    } else {
        Err(String::from("a counter waits although flash is awake"))
    }
}
