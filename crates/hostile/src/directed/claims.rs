//! Scenes about records that claim more than is true: they go on naming the blocks of a copy after it was cleaned.

use super::caches::{cache, without_flash};
use super::stage::{Shape, Stage, everything, nothing, stage};
use isotherm_core::engine::Mutant;
use isotherm_core::geometry::Kind;
use isotherm_core::policy::{Action, Uses, WriteTo};
use isotherm_core::{BufRef, DeviceOp, ExtentId, Nanos, TierId};

/// Gives extent 1 of a cache volume a copy whose first four blocks the last record names, and which is clean.
fn claim(s: &mut Stage) -> Result<(), String> {
    s.allocate(1)?;
    s.write(1, (0, 4))?;
    s.flush()?;
    s.clean(1)?;
    s.pass(Nanos::from_secs(1))?;
    if is_dirty(s) {
        return Err(String::from("the scene has no clean copy"));
    }
    Ok(())
}

/// Whether the copy of extent 1 is dirty.
fn is_dirty(s: &Stage) -> bool {
    let engine = s.engine.as_ref();
    engine.is_some_and(|e| e.space().map.is_dirty(ExtentId(1)))
}

/// Fetches two more blocks into the copy of extent 1, which its record does not name.
fn fetch_two_more(s: &mut Stage) -> Result<(), String> {
    s.propose(Action::FetchPart {
        extent: ExtentId(1),
        to: TierId(0),
        from: 4 * 512,
        bytes: 2 * 512,
    })
}

fn is_move(op: &DeviceOp) -> bool {
    matches!(op.buf, BufRef::Move { .. })
}

/// A cleaned copy is written again: its record names these blocks, so the FLUSH needs no block of the journal, and the data is there.
pub(super) fn rewritten(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    s.hold(s.is_ring());
    s.write(1, (0, 4))?;
    s.flush()
        .map_err(|e| format!("a rewrite needs a record: {e}"))?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// When a cleaned copy has rested, no record names it, so it need not be cleaned again after a crash.
pub(super) fn rested(mutant: Option<Mutant>) -> Result<(), String> {
    for (wait, named) in [(58, true), (61, false)] {
        let mut s = cache(mutant)?;
        claim(&mut s)?;
        s.pass(Nanos::from_secs(wait))?;
        s.lose_power(nothing);
        s.open()?;
        if is_dirty(&s) != named {
            return Err(format!("after {wait} s a copy is dirty: {}", !named));
        }
        s.verify()?;
    }
    Ok(())
}

/// Blocks become valid in a copy after its record, and are written.
pub(super) fn grown(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    fetch_two_more(&mut s)?;
    s.write(1, (4, 6))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// A write goes to the home alone, past clean blocks that the record names: the record must not hide it.
pub(super) fn passed(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    s.write(1, (0, 1))?;
    s.write_to(WriteTo::Home);
    s.hold(is_move);
    s.write(1, (2, 3))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// The same with FUA, to home and copy.
pub(super) fn forced(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    s.write_to(WriteTo::Both);
    s.write_forced(1, (0, 2))?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// A cleaned copy that its record names, on a region whose mark was removed since, is written with FUA: it needs no record, but the mark.
pub(super) fn forced_unmarked(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    s.allocate(2)?;
    s.write(2, (0, 1))?;
    s.flush()?;
    claim(&mut s)?;
    // It is written again, so that its record goes on naming it when the mark may be removed.
    s.pass(Nanos::from_secs(40))?;
    s.write(1, (0, 4))?;
    s.flush()?;
    s.clean(1)?;
    s.pass(Nanos::from_secs(1))?;
    s.pass(Nanos::from_secs(25))?;
    // A full round that marks nothing new.
    s.write(2, (0, 1))?;
    s.flush()?;
    let is_covered = |s: &Stage| {
        let map = s.engine.as_ref().map(|e| &e.space().map);
        map.is_some_and(|m| m.regions().covered().has(1 >> m.regions().extents_shift()))
    };
    if is_dirty(&s) || is_covered(&s) {
        return Err(String::from("the scene has no clean copy without a mark"));
    }
    s.write_forced(1, (0, 2))?;
    s.lose_power(nothing);
    without_flash(&mut s)
}

/// While a cleaned copy that its record names is written with FUA, it has rested, and a round withdraws the record.
pub(super) fn forced_while_it_rests(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    s.pass(Nanos::from_secs(40))?;
    // A region is marked, so that no mark is removed soon.
    s.allocate(2)?;
    s.write(2, (0, 1))?;
    s.flush()?;
    let is_forced = |op: &DeviceOp| op.fua && matches!(op.buf, BufRef::Request { .. });
    s.hold(is_forced);
    let tag = s.send_forced(1, (0, 2))?;
    s.pass(Nanos::from_secs(25))?;
    s.pass(Nanos::from_secs(1))?;
    let is_named = |s: &Stage| {
        let map = s.engine.as_ref().map(|e| &e.space().map);
        map.is_some_and(|m| m.is_claimed(ExtentId(1), 0, 2))
    };
    if !s.is_in_flight(is_forced) || is_named(&s) {
        return Err(String::from("the scene has no record that was withdrawn"));
    }
    s.release()?;
    if s.answer(tag) != Some(Ok(())) {
        return Err(String::from("a write with FUA was not answered"));
    }
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// A cache volume with a short journal, so that a few rounds begin a checkpoint, and `slots` slots of flash.
fn short_journal(mutant: Option<Mutant>, slots: u32, ring: u32) -> Result<Stage, String> {
    let shape = Shape {
        kind: Kind::Cache,
        extents: 2 * slots,
        slots: vec![slots, 2 * slots],
        ring,
        ..Shape::default()
    };
    let s = Stage::new(mutant, &shape)?;
    s.uses(Uses::Copies);
    Ok(s)
}

/// A checkpoint takes the place of the record of a cleaned copy.
pub(super) fn checkpointed(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = short_journal(mutant, 12, 4)?;
    claim(&mut s)?;
    let done = |s: &Stage| s.engine.as_ref().map_or(0, |e| e.counters().checkpoints);
    let before = done(&s);
    for e in 2..10 {
        s.allocate(e)?;
        s.write(e, (0, 1))?;
        s.flush()?;
    }
    if done(&s) < before + 2 {
        return Err(String::from("the scene has no checkpoints"));
    }
    s.write(1, (0, 4))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// Blocks of a copy are named by a checkpoint of which only a part is written. Writes to them need a record all the same.
pub(super) fn in_pieces(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = short_journal(mutant, 180, 16)?;
    claim(&mut s)?;
    fetch_two_more(&mut s)?;
    for e in 2..150 {
        s.allocate(e)?;
        s.write(e, (0, 1))?;
    }
    let (first, header) = (s.is_region(1), s.is_region(0));
    let held = header.clone();
    s.hold(move |op| first(op) || held(op));
    let first = s.is_region(1);
    for e in 150..170 {
        s.allocate(e)?;
        s.write(e, (0, 1))?;
        s.send_flush()?;
        if s.is_in_flight(&first) {
            break;
        }
    }
    if !s.is_in_flight(&first) {
        return Err(String::from("the scene has no checkpoint"));
    }
    s.write(1, (4, 6))?;
    let flush = s.send_flush()?;
    s.hold(header.clone());
    s.pump()?;
    if s.answer(flush) != Some(Ok(())) || !s.is_in_flight(&header) {
        return Err(String::from("the scene has no incomplete checkpoint"));
    }
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// A session with a cleaned copy ends, and the next one writes past it. Then the checkpoint of that end is damaged, so that the one before it
/// and the journal count, which has the record of the copy. (In a cache volume, the next session withdraws a clean copy before it writes past it.)
pub(super) fn ended(mutant: Option<Mutant>) -> Result<(), String> {
    ended_with(mutant, false)
}

/// The same if the copy has dirty blocks, too. A crash comes before the write: while the clean blocks count, a write past them makes a record
/// due. The copy is not cleaned any more, which also makes one due.
pub(super) fn ended_in_part(mutant: Option<Mutant>) -> Result<(), String> {
    ended_with(mutant, true)
}

fn ended_with(mutant: Option<Mutant>, partly_dirty: bool) -> Result<(), String> {
    let mut s = stage(mutant)?;
    s.uses(Uses::Copies);
    s.write(1, (0, 8))?;
    claim(&mut s)?;
    if partly_dirty {
        s.write(1, (0, 1))?;
    }
    s.close(None)?;
    s.open()?;
    if partly_dirty {
        s.lose_power(nothing);
        s.open()?;
        s.hold(is_move);
    }
    s.write_to(WriteTo::Home);
    s.write(1, (1, 4))?;
    s.flush()?;
    s.lose_power(nothing);
    // Checkpoint 2 is in the first region.
    let layout = s.sb.layout();
    for c in layout.carriers() {
        let header = layout.region_offset(c, 0);
        s.disks[usize::from(c.member.0)].corrupt(header, 64);
    }
    s.open()?;
    s.verify()
}

/// A record withdraws a copy, and before the mirror has it, another one names the copy again. Its slot must not be used again at once.
pub(super) fn named_again(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    s.pass(Nanos::from_secs(60))?;
    s.write(1, (0, 4))?;
    s.flush()?;
    s.pass(Nanos::from_secs(10))?;
    s.clean(1)?;
    s.pass(Nanos::from_secs(1))?;
    let extent = ExtentId(1);
    s.hold(s.is_ring());
    s.propose(Action::Evict { extent })?;
    for e in 2..11 {
        s.allocate(e)?;
        s.write(e, (0, 8))?;
    }
    s.lose_power(everything);
    s.open()?;
    s.verify()
}
