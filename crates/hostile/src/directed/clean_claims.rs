//! Scenes about records that claim that copies are clean, so that these outlive a crash.

use super::caches::{cache, cache_with};
use super::stage::{Shape, Stage, everything, nothing};
use isotherm_core::engine::Mutant;
use isotherm_core::geometry::Kind;
use isotherm_core::policy::{Action, Uses, WriteTo};
use isotherm_core::store::checkpoint::Header;
use isotherm_core::store::{BLOCK, Superblock, journal};
use isotherm_core::{BufRef, DeviceOp, ExtentId, MemberId, Nanos, OpKind, TierId};

fn fetch(s: &mut Stage, e: u32) -> Result<(), String> {
    let (extent, to) = (ExtentId(e), TierId(0));
    s.propose(Action::Fetch { extent, to })
}

fn evict(s: &mut Stage, e: u32) -> Result<(), String> {
    s.propose(Action::Evict {
        extent: ExtentId(e),
    })
}

/// Whether extent `e` has a copy, and whether a record claims that it is clean.
fn copied(s: &Stage, e: u32) -> (bool, bool) {
    let map = s.engine.as_ref().map(|engine| &engine.space().map);
    let slot = map.and_then(|m| m.copy(ExtentId(e)));
    let claimed = slot.and_then(|s| map.map(|m| m.is_claimed_clean(s)));
    (slot.is_some(), claimed == Some(true))
}

/// Extents 1 and 2 have data on the disk; extent 1 has a copy of which a record claims that it is clean.
fn claim(s: &mut Stage) -> Result<(), String> {
    for e in [1, 2] {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    fetch(s, 1)?;
    for _ in 0..3 {
        for t in [61, 6] {
            s.pass(Nanos::from_secs(t))?;
        }
    }
    match copied(s, 1) {
        (true, true) => Ok(()),
        other => Err(format!("the scene has no claimed copy: {other:?}")),
    }
}

/// Loses power: of what is not flushed, only data reaches the devices.
fn lose_ring(s: &mut Stage) {
    let is_slot = s.is_slot();
    s.lose_power(is_slot);
}

/// Opens the volume after a crash, and checks its data.
fn stays(s: &mut Stage) -> Result<(), String> {
    s.open()?;
    same_without_copies(s)
}

/// What the volume shows must not change when all copies are gone.
fn same_without_copies(s: &mut Stage) -> Result<(), String> {
    s.verify()?;
    for e in [1, 2] {
        evict(s, e)?;
    }
    s.verify()
}

/// A copy that has rested is there after a loss of power; one that has not rested is not. After a clean end and a loss of power in the next
/// session, which changed nothing, both are there.
pub(super) fn outlives(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    fetch(&mut s, 2)?;
    s.pass(Nanos::from_secs(30))?;
    s.lose_power(nothing);
    s.open()?;
    if (copied(&s, 1), copied(&s, 2).0) != ((true, true), false) {
        return Err(format!("copies: {:?}, {:?}", copied(&s, 1), copied(&s, 2)));
    }
    s.verify()?;
    fetch(&mut s, 2)?;
    s.close(None)?;
    for life in 0..2 {
        s.open()?;
        if !copied(&s, 1).1 || !copied(&s, 2).1 {
            return Err(format!("in life {life} a copy is lost"));
        }
        s.lose_power(nothing);
    }
    s.open()?;
    s.verify()?;
    // What was evicted, and that is durable, does not come back.
    evict(&mut s, 1)?;
    s.write(1, (0, 8))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    if copied(&s, 1).0 || !copied(&s, 2).1 {
        return Err(String::from("an evicted copy is back"));
    }
    s.verify()
}

/// Makes checkpoints until the one that has the claim, and no block of the journal, counts.
pub(super) fn in_checkpoint(mutant: Option<Mutant>) -> Result<(), String> {
    let shape = Shape {
        kind: Kind::Cache,
        extents: 24,
        slots: vec![12, 24],
        ring: 4,
        ..Shape::default()
    };
    let mut s = Stage::new(mutant, &shape)?;
    s.uses(Uses::Copies);
    claim(&mut s)?;
    let done = |s: &Stage| s.engine.as_ref().map_or(0, |e| e.counters().checkpoints);
    let before = done(&s);
    for e in 3..11 {
        s.propose(Action::Allocate {
            extent: ExtentId(e),
            to: TierId(0),
        })?;
        s.write(e, (0, 1))?;
        s.flush()?;
    }
    if done(&s) < before + 2 {
        return Err(String::from("the scene has no checkpoints"));
    }
    s.lose_power(nothing);
    s.open()?;
    if !copied(&s, 1).1 {
        return Err(String::from("a checkpoint has lost the claim"));
    }
    same_without_copies(&mut s)
}

/// The volume was served by a program that knows no claims: it wrote zeros where they are stated, and wrote to homes without a withdrawal. The
/// newest checkpoint has claims, and begins at the end of the journal. They must not count in the session after the next one either.
pub(super) fn void_in_checkpoint(mutant: Option<Mutant>) -> Result<(), String> {
    for writes in 0..8 {
        if void_after(mutant, writes)? {
            return Ok(());
        }
    }
    Err(String::from(
        "no checkpoint begins at the end of the journal",
    ))
}

/// The same after some writes; false: the checkpoint does not begin there.
fn void_after(mutant: Option<Mutant>, writes: u32) -> Result<bool, String> {
    let shape = Shape {
        kind: Kind::Cache,
        extents: 24,
        slots: vec![12, 24],
        ring: 4,
        ..Shape::default()
    };
    let mut s = Stage::new(mutant, &shape)?;
    s.uses(Uses::Copies);
    claim(&mut s)?;
    for e in 3..3 + writes {
        s.allocate(e)?;
        s.write(e, (0, 1))?;
        s.flush()?;
    }
    s.lose_power(nothing);
    let (layout, uuid) = (s.sb.layout(), s.sb.uuid);
    let header = |r| {
        let at = layout.region_offset(layout.primary, r);
        Header::decode(s.disks[0].read(at, BLOCK), &uuid).map(|h| h.start.next_seq)
    };
    let starts = [0, 1].map(header);
    for m in 0..2 {
        let first = Superblock::decode(s.disks[m].read(0, BLOCK)).map_err(|e| format!("{e:?}"))?;
        let sb = Superblock {
            clean_epoch: 0,
            claims_from: 0,
            ..first
        };
        for at in [0, sb.copy_offset(MemberId(m as u8))] {
            s.disks[m].write_through(at, &sb.encode());
        }
    }
    s.open()?;
    let from = s.session.as_ref().map(|sb| sb.claims_from);
    if copied(&s, 1).0 {
        return Err(String::from("a void claim counts"));
    }
    if !starts.contains(&from) {
        return Ok(false);
    }
    s.write(1, (0, 8))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify().map(|()| true)
}

/// A copy has clean and dirty blocks at a clean end. A write in the next session waits for the withdrawal, but not for a time.
pub(super) fn partly_dirty(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    s.write_to(WriteTo::Copy);
    s.write(1, (0, 4))?;
    s.flush()?;
    s.close(None)?;
    s.open()?;
    if !copied(&s, 1).1 {
        return Err(String::from("the scene has no claim"));
    }
    // Another record is due later.
    s.allocate(2)?;
    s.write(2, (0, 1))?;
    let write = s.send(1, (4, 8))?;
    match s.answer(write) {
        Some(Ok(())) => {}
        other => return Err(format!("a write got {other:?}")),
    }
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// A write to a claimed copy, to its home or to both. The device takes it, and not the withdrawal, before the power fails.
pub(super) fn written(mutant: Option<Mutant>) -> Result<(), String> {
    for to in [WriteTo::Copy, WriteTo::Home, WriteTo::Both] {
        let mut s = cache(mutant)?;
        claim(&mut s)?;
        s.write_to(to);
        s.hold(s.is_ring());
        s.send(1, (0, 8))?;
        lose_ring(&mut s);
        stays(&mut s)?;
        // When the withdrawal is durable, the write goes on.
        claim(&mut s)?;
        s.hold(s.is_ring());
        let write = s.send(1, (0, 8))?;
        if s.answer(write).is_some() && mutant.is_none() {
            return Err(String::from("a write did not wait"));
        }
        s.release()?;
        if s.answer(write) != Some(Ok(())) {
            return Err(format!("a write got {:?}", s.answer(write)));
        }
        s.flush()?;
        s.lose_power(nothing);
        stays(&mut s)?;
    }
    Ok(())
}

/// The same for a discard.
pub(super) fn discarded(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache_with(mutant, |p| p.pass_discards = true)?;
    claim(&mut s)?;
    s.hold(s.is_ring());
    s.send_discard(1, (0, 8))?;
    lose_ring(&mut s);
    stays(&mut s)
}

/// A write that waits for a withdrawal when the journal fails gets an error, like every other write.
pub(super) fn fails(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    let ring = s.is_ring();
    s.script(move |op| {
        if ring(op) {
            crate::world::Fate::Fail
        } else {
            crate::world::Fate::Go
        }
    });
    let write = s.send(1, (0, 8))?;
    match s.answer(write) {
        Some(Err(_)) => Ok(()),
        other => Err(format!("a write without a withdrawal got {other:?}")),
    }
}

/// A claimed copy is evicted, and another extent is fetched into its slot. The power fails before the withdrawal is durable.
pub(super) fn slot_fetched(mutant: Option<Mutant>) -> Result<(), String> {
    slot_again(mutant, |s| fetch(s, 2))
}

/// The same with a write to a new copy in that slot.
pub(super) fn slot_written(mutant: Option<Mutant>) -> Result<(), String> {
    slot_again(mutant, |s| {
        s.allocate(2)?;
        s.send(2, (0, 8)).map(drop)
    })
}

fn slot_again(
    mutant: Option<Mutant>,
    uses: impl Fn(&mut Stage) -> Result<(), String>,
) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    s.hold(s.is_ring());
    evict(&mut s, 1)?;
    uses(&mut s)?;
    lose_ring(&mut s);
    stays(&mut s)?;
    // With the withdrawal, the slot is used.
    claim(&mut s)?;
    evict(&mut s, 1)?;
    uses(&mut s)?;
    s.pump()?;
    if !copied(&s, 2).0 {
        return Err(String::from("a slot is not used again"));
    }
    s.flush()?;
    s.lose_power(nothing);
    stays(&mut s)
}

/// The withdrawal is durable in the first place of the journal, and not in the second. Then its block is damaged in the first place. The slot
/// must not contain another extent's bytes.
pub(super) fn slot_before_mirror(mutant: Option<Mutant>) -> Result<(), String> {
    before_mirror(mutant, |s| evict(s, 1))
}

/// The same if a write past the copy has withdrawn the claim, and then evicts the copy.
pub(super) fn slot_passed_before_mirror(mutant: Option<Mutant>) -> Result<(), String> {
    before_mirror(mutant, |s| {
        s.write_to(WriteTo::Home);
        s.write(1, (0, 8))?;
        if copied(s, 1).0 {
            return Err(String::from("the scene's copy is not evicted"));
        }
        Ok(())
    })
}

fn before_mirror(
    mutant: Option<Mutant>,
    gives_up: impl Fn(&mut Stage) -> Result<(), String>,
) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    let layout = s.sb.layout();
    let mirror = layout.mirror.ok_or("the scene has no mirror")?;
    let ring = mirror.ring_at..mirror.ring_at + layout.area.ring_bytes();
    s.hold(move |op| op.member == mirror.member && ring.contains(&op.offset));
    gives_up(&mut s)?;
    fetch(&mut s, 2)?;
    let uuid = s.sb.uuid;
    s.lose_power(everything);
    let newest = (1..60)
        .map(|seq| layout.ring_offset(layout.primary, seq))
        .filter_map(|at| journal::decode(s.disks[0].read(at, BLOCK), &uuid).map(|h| (h.seq, at)))
        .max();
    let (_, at) = newest.ok_or("the scene has no journal")?;
    s.disks[0].corrupt(at, 512);
    match s.try_open(
        |epoch| isotherm_core::store::open::Mode::ReadWrite { epoch },
        None,
    ) {
        Ok(()) => s.check_contents(),
        // It may be certain that a block is missing.
        Err(_) => Ok(()),
    }
}

fn not_yet(s: &Stage) -> Result<(), String> {
    match copied(s, 2) {
        (true, false) => Ok(()),
        other => Err(format!("the scene's copy is in another state: {other:?}")),
    }
}

/// The home of a copy has data that was not flushed when a round begins that flushes nothing.
pub(super) fn unflushed(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    s.write(2, (0, 8))?;
    fetch(&mut s, 2)?;
    s.pass(Nanos::from_secs(61))?;
    not_yet(&s)?;
    // Its claim is due soon. A withdrawal comes before.
    s.write(1, (0, 8))?;
    s.lose_power(nothing);
    stays(&mut s)
}

/// A write to a copy is in progress when the round begins that could claim it.
pub(super) fn under_writer(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    claim(&mut s)?;
    fetch(&mut s, 2)?;
    s.pass(Nanos::from_secs(61))?;
    not_yet(&s)?;
    s.write_to(WriteTo::Copy);
    s.hold(|op: &DeviceOp| {
        op.kind == OpKind::Write && !matches!(op.buf, BufRef::Meta | BufRef::Move { .. })
    });
    s.send(2, (0, 8))?;
    s.flush()?;
    s.release()?;
    lose_ring(&mut s);
    stays(&mut s)
}
