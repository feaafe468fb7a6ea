//! Scenes about flash that has become larger.

use super::growths::Plan;
use super::stage::{EXTENT, Shape, Stage, everything, nothing};
use isotherm_core::engine::Mutant;
use isotherm_core::geometry::Kind;
use isotherm_core::policy::Uses;
use isotherm_core::store::{BLOCK, plan_flash_growth};
use isotherm_core::{ExtentId, MemberId};

const PLAN: Plan = plan_flash_growth;
/// Each flash device becomes larger by so many blocks. The metadata of one device take less than 300.
const MORE: usize = 320;
/// Extents with a copy: dirty, clean, dirty in part.
const COPIED: [u32; 3] = [1, 2, 3];
/// Those that are dirty. What is clean may be forgotten in a crash.
const DIRTY: [u32; 2] = [1, 3];

/// A closed cache volume with these slots on its flash devices and so many blocks in its journal, and its copies.
fn closed(mutant: Option<Mutant>, flash: &[u32], ring: u32) -> Result<Stage, String> {
    let shape = Shape {
        kind: Kind::Cache,
        ring,
        slots: flash.iter().copied().chain([24]).collect(),
        ..Shape::default()
    };
    let mut s = Stage::new(mutant, &shape)?;
    s.uses(Uses::Copies);
    for e in COPIED {
        s.allocate(e)?;
        s.write(e, if e == 3 { (2, 4) } else { (0, 8) })?;
    }
    s.flush()?;
    s.clean(2)?;
    s.close(None)?;
    Ok(s)
}

fn enlarge(s: &mut Stage) {
    let flash = s.disks.len() - 1;
    for d in &mut s.disks[..flash] {
        d.grow(MORE * BLOCK, 0x5c);
    }
}

/// The power fails after each step of a growth. The next one comes to its end, no copy is gone, and the new slots are used.
pub(super) fn cut(mutant: Option<Mutant>) -> Result<(), String> {
    for flash in [&[10][..], &[6, 6]] {
        // With more flash the ring is larger, too.
        let s = closed(mutant, flash, 40)?;
        let mut whole = s.fork();
        enlarge(&mut whole);
        larger(whole, &COPIED)?;
        for keep in [everything, nothing] {
            for cut in 0.. {
                let mut t = s.fork();
                enlarge(&mut t);
                let ended = t.grow(PLAN, Some(cut)).is_ok();
                t.lose_power(keep);
                // Also as it is, on the larger devices.
                shows(&mut t.fork(), &DIRTY).map_err(|e| format!("cut at {cut}, opened: {e}"))?;
                larger(t, &DIRTY).map_err(|e| format!("cut at {cut}: {e}"))?;
                if ended {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Opens the volume, which has these copies.
fn shows(s: &mut Stage, copies: &[u32]) -> Result<(), String> {
    s.open()?;
    let engine = s.engine.as_ref().ok_or("it is not open")?;
    let map = &engine.space().map;
    if let Some(e) = copies.iter().find(|e| map.copy(ExtentId(**e)).is_none()) {
        return Err(format!("the copy of extent {e} is gone"));
    }
    s.verify()
}

/// Lets the flash grow if it has not grown yet, and writes to more extents than it had slots.
fn larger(mut s: Stage, copies: &[u32]) -> Result<(), String> {
    let slots = |s: &Stage| -> u32 {
        let found = s.found()[0].clone();
        let flash = found.map(|sb| {
            sb.members
                .split_last()
                .map_or(0, |(_, f)| f.iter().map(|m| m.slots).sum())
        });
        flash.unwrap_or(0)
    };
    let few: u32 = s.sb.members[..s.disks.len() - 1]
        .iter()
        .map(|m| m.slots)
        .sum();
    s.grow(PLAN, None).map_err(|e| format!("growing: {e}"))?;
    if slots(&s) <= few {
        return Err(format!("{} slots, and there were {few}", slots(&s)));
    }
    shows(&mut s, copies)?;
    for e in 0..few + 4 {
        let map = s.engine.as_ref().map(|e| &e.space().map);
        if map.is_some_and(|m| m.copy(ExtentId(e)).is_none()) {
            s.allocate(e)?;
        }
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    let copied = s.engine.as_ref().map_or(0, |e| e.space().map.copied());
    if copied < few + 4 {
        return Err(format!("{copied} copies in more than {few} slots"));
    }
    s.lose_power(nothing);
    shows(&mut s, copies)
}

/// What a flash device gets at its end may have been flash of this volume before: blocks of its journal are there, of a later time. Nothing of
/// this is read.
pub(super) fn over_old_blocks(mutant: Option<Mutant>) -> Result<(), String> {
    let s = closed(mutant, &[10], 64)?;
    let mut later = s.fork();
    later.open()?;
    for round in 0..6 {
        later.allocate(5 + round)?;
        later.write(5 + round, (0, 8))?;
        later.flush()?;
    }
    later.close(None)?;
    let ring = {
        let (layout, d) = (s.sb.layout(), &later.disks[0]);
        let at = layout.primary.ring_at;
        d.read(at, layout.area.ring_bytes() as usize).to_vec()
    };
    let mut t = s.fork();
    enlarge(&mut t);
    let sizes: Vec<u64> = t.disks.iter().map(|d| d.len() as u64).collect();
    let growth = PLAN(&t.sb, &sizes).map_err(String::from)?;
    let slots = u64::from(growth.slots[0]) * EXTENT;
    t.disks[0].write_through(t.sb.members[0].data_offset + slots, &ring);
    let m = MemberId(0);
    if t.sb.layout().primary.member != m {
        return Err(String::from("the journal is elsewhere"));
    }
    larger(t, &COPIED)
}

/// After a growth the journal is in a new place, where no block is yet. Power fails in the middle of the first round there, and only one of
/// the two journals has its block.
pub(super) fn first_round(mutant: Option<Mutant>) -> Result<(), String> {
    for mirror in [true, false] {
        let mut s = closed(mutant, &[6, 6], 40)?;
        enlarge(&mut s);
        s.grow(PLAN, None).map_err(|e| format!("growing: {e}"))?;
        s.sb = s.found()[0].clone().ok_or("the flash is no member")?;
        s.open()?;
        s.allocate(5)?;
        s.write(5, (0, 8))?;
        s.hold(s.is_ring());
        s.send_flush()?;
        if !s.is_in_flight(s.is_ring()) {
            return Err(String::from("the scene has no block to lose"));
        }
        s.lose_power(move |m, _| (m.0 == 1) == mirror);
        shows(&mut s, &DIRTY).map_err(|e| format!("on the mirror alone: {mirror}: {e}"))?;
    }
    Ok(())
}
