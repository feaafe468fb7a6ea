//! Scenes about a cache that ends while the volume is served, because its flash has failed.

use super::caches::cache_with;
use super::stage::{EXTENT, Stage, everything, nothing};
use crate::disk::Disks;
use crate::world::Fate;
use isotherm_core::Engine;
use isotherm_core::engine::Mutant;
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::store::salvage::{Salvaged, salvage as salvaged};
use isotherm_core::store::{BLOCK, MediaError};

/// A cache volume whose flash turns read-only, with flushed and newer dirty data in copies, and data that went past a copy to the disk. A FLUSH
/// is in progress.
fn read_only_flash(mutant: Option<Mutant>) -> Result<Stage, String> {
    let mut s = cache_with(mutant, |p| p.outlives_cache = true)?;
    for e in [1, 2] {
        s.allocate(e)?;
        s.write(e, (0, 8))?;
    }
    s.write(3, (0, 8))?;
    s.flush()?;
    s.write(2, (2, 4))?;
    let ring = s.is_ring();
    s.script(move |op| if ring(op) { Fate::Fail } else { Fate::Go });
    s.discard(2, (6, 7))?;
    let flush = s.send_flush()?;
    let is_lost = s.engine.as_ref().is_some_and(Engine::has_lost_cache);
    if !is_lost || s.answer(flush).is_some() {
        return Err(format!(
            "flash is lost: {is_lost}; a FLUSH got {:?}",
            s.answer(flush)
        ));
    }
    Ok(s)
}

/// Writes what only flash has to the disk; the power fails after `fuse` changes. The volume is not served then.
fn salvage(s: &mut Stage, fuse: Option<u64>) -> Result<Result<Salvaged, MediaError>, String> {
    let (engine, world) = (s.engine.as_ref(), s.world.as_mut());
    let (engine, world) = engine.zip(world).ok_or("the volume is not served")?;
    let (disks, mutant) = (&mut world.disks, s.mutant);
    let all = &mut Disks {
        disks,
        fuse,
        mutant,
    };
    let piece = &mut [0; EXTENT as usize];
    Ok(salvaged(all, &s.sb, engine.space(), true, piece))
}

/// Opens what is left without flash. A loss is not accepted; whether it was refused is returned.
fn open_without(s: &mut Stage) -> bool {
    s.gone = true;
    let loss = Loss::Refused;
    s.try_open(|epoch| Mode::Degraded { epoch, loss }, None)
        .is_err()
}

/// The power fails at each step of the change. With flash, and without it, the volume has all that was flushed, or says that it has not.
pub(super) fn cut(mutant: Option<Mutant>) -> Result<(), String> {
    for fuse in 0.. {
        let mut whole = false;
        for flash in [true, false] {
            for kept in 0..3 {
                let mut s = read_only_flash(mutant)?;
                whole = salvage(&mut s, Some(fuse))?.is_ok();
                let is_slot = s.is_slot();
                match kept {
                    0 => s.lose_power(nothing),
                    1 => s.lose_power(everything),
                    // Marks are written, and data is not.
                    _ => s.lose_power(move |m, at| !is_slot(m, at)),
                }
                let refused = !flash && open_without(&mut s);
                if whole && refused {
                    return Err(String::from("nothing is lost, and it is refused"));
                }
                if flash {
                    s.open()?;
                }
                if !refused {
                    s.verify()?;
                }
            }
        }
        if whole {
            return Ok(());
        }
    }
    Ok(())
}

/// The volume goes on with its disk. What was answered before is there, and flushes count again.
pub(super) fn goes_on(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = read_only_flash(mutant)?;
    salvage(&mut s, None)?.map_err(|e| format!("{e:?}"))?;
    s.die();
    if open_without(&mut s) {
        return Err(String::from("nothing is lost, and it is refused"));
    }
    for e in 1..4 {
        s.read(e)?;
    }
    s.flush()?;
    s.write(1, (0, 2))?;
    s.flush()?;
    s.lose_power(nothing);
    if open_without(&mut s) {
        return Err(String::from("the volume does not go on without flash"));
    }
    s.verify()
}

/// Flash that does not give back what it has: the marks name it, and the volume without it says that data is lost.
pub(super) fn unreadable(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = read_only_flash(mutant)?;
    let at = s.sb.members[0].data_offset;
    if let Some(w) = &mut s.world {
        w.disks[0].cut(at as usize / BLOCK * BLOCK);
    }
    let done = salvage(&mut s, None)?.map_err(|e| format!("{e:?}"))?;
    if done.lost.is_empty() {
        return Err(String::from("what cannot be read was salvaged"));
    }
    s.lose_power(everything);
    if !open_without(&mut s) {
        return Err(String::from("lost data is not noticed"));
    }
    s.list(None)?;
    s.verify()
}

/// The owner decides that the volume cannot go on: the FLUSH gets an error, and reads go on.
pub(super) fn given_up(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = read_only_flash(mutant)?;
    let flush = isotherm_core::Tag(s.tags);
    if let Some((engine, world, run)) = s.both() {
        let now = isotherm_core::World::now(world);
        run.call(engine, world, |e, out| e.go_on_without_guarantee(now, out));
    }
    s.pump()?;
    if !matches!(s.answer(flush), Some(Err(_))) {
        return Err(format!("the FLUSH got {:?}", s.answer(flush)));
    }
    s.read(3)
}
