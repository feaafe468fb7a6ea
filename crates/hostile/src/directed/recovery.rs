//! Scenes about opening: the effects of a power loss during recovery, or of a damaged block.

use super::caches::cache;
use super::stage::{Shape, Stage, everything, nothing, stage};
use isotherm_core::MemberId;
use isotherm_core::engine::Mutant;
use isotherm_core::geometry::Kind;
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::store::{BLOCK, OpenError, checkpoint, journal};

fn small() -> Shape {
    Shape {
        ring: 8,
        ..Shape::default()
    }
}

/// The process dies in the last step of a clean close: the raised value of a counter is only in the cache of its device. Recovery reads it
/// and writes it in another place; then the power fails. Everything that recovery has read must still be there.
pub(super) fn dies_while_closing(mutant: Option<Mutant>) -> Result<(), String> {
    for died in 1..8 {
        let mut s = Stage::new(mutant, &small())?;
        s.write(1, (0, 8))?;
        s.flush()?;
        s.close(Some(died))?;
        for cut in 0..12 {
            let mut t = s.fork();
            t.open_cut(cut, nothing);
            t.open()
                .map_err(|e| format!("died at {died}, power lost at {cut}: {e}"))?;
            t.verify()?;
        }
    }
    Ok(())
}

/// A journal block of a session is torn: all of its sectors were written except the last. The next session writes another block to the same
/// place, and only the last sector of that write reaches the medium. This sector has the same bytes in both blocks, so the lost block is
/// complete again. It must not be used.
pub(super) fn lost_session(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    let first = s.sb.layout().primary;
    let ring = move |at: u64| (first.ring_at..first.regions_at).contains(&at);
    let is_last = |at: u64| at % BLOCK as u64 == 7 * 512;
    for (extent, last) in [(1, false), (2, true)] {
        s.write(extent, (0, 8))?;
        s.hold(s.is_ring());
        s.send_flush()?;
        if !s.is_in_flight(s.is_ring()) {
            return Err(String::from("the scene has no block to tear"));
        }
        s.lose_power(move |m, at| m.0 == 0 && ring(at) && is_last(at) == last);
        s.open()?;
        s.verify()?;
    }
    Ok(())
}

/// The mirror's checkpoint is damaged. Opening writes it again, and the power fails in the meantime: of the unflushed writes only the
/// header has reached the medium. The next opening must not take that header for a complete checkpoint.
pub(super) fn mending_is_cut(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = Stage::new(mutant, &small())?;
    for e in 0..6 {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    s.close(None)?;
    let layout = s.sb.layout();
    let mirror = layout.mirror.ok_or("the scene has no mirror")?;
    for region in [0, 1] {
        let at = layout.region_offset(mirror, region);
        s.disks[1].corrupt(at, BLOCK);
        s.disks[1].corrupt(at + BLOCK as u64, BLOCK);
    }
    let header = move |at: u64| {
        let block = at / BLOCK as u64 * BLOCK as u64;
        [0, 1]
            .iter()
            .any(|&r| layout.region_offset(mirror, r) == block)
    };
    for cut in 0..14 {
        let mut t = s.fork();
        t.open_cut(cut, move |m, at| m.0 == 1 && header(at));
        t.open()?;
        t.verify()?;
        t.die();
        let left = t.mend()?;
        if left > 0 {
            return Err(format!(
                "power lost at {cut}: opened, and {left} parts are still damaged"
            ));
        }
    }
    Ok(())
}

/// The first data block of the newest checkpoint is damaged on primary and mirror, and the previous checkpoint can be used. The next
/// checkpoint is written to the place of the damaged one, with other extents in each block. The power fails when half of it is written.
/// Blocks that are left from the damaged checkpoint must not be taken for the other half.
pub(super) fn damaged_checkpoint(mutant: Option<Mutant>) -> Result<(), String> {
    let shape = Shape {
        kind: Kind::Tiering,
        extents: 300,
        slots: vec![10, 310],
        ring: 64,
        ..Shape::default()
    };
    let mut s = Stage::new(mutant, &shape)?;
    for e in 0..300 {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    s.close(None)?;
    // Checkpoint 2 is in the first region.
    let layout = s.sb.layout();
    for c in layout.carriers() {
        let block = layout.region_offset(c, 0) + BLOCK as u64;
        s.disks[usize::from(c.member.0)].corrupt(block, 64);
    }
    s.open()?;
    s.verify()?;
    for e in 0..126 {
        s.discard(e, (0, 1))?;
    }
    s.flush()?;
    let second = s.is_region(2);
    s.hold(second.clone());
    s.begin_close()?;
    if !s.is_in_flight(second) {
        return Err(String::from(
            "the scene has no second block of a checkpoint",
        ));
    }
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// The newest checkpoint is damaged on primary and mirror. The journal since the one before it is a block longer than the ring: the primary
/// has its newest block where the mirror, which lags, still has the oldest. That checkpoint must not be used without the newest block.
pub(super) fn longer_than_the_ring(mutant: Option<Mutant>) -> Result<(), String> {
    let mut met = 0;
    for rounds in 56..72 {
        let mut s = stage(mutant)?;
        for e in 0..rounds {
            s.write(e % 20, (0, 8))?;
            s.discard(e % 20, (0, 1))?;
            s.flush()?;
        }
        let ring = s.is_ring();
        s.hold(move |op| op.member == MemberId(1) && ring(op));
        s.discard(20, (0, 8))?;
        s.write(21, (0, 8))?;
        s.flush()?;
        s.lose_power(nothing);
        let layout = s.sb.layout();
        let carriers: Vec<_> = layout.carriers().collect();
        let header = |region| {
            let at = layout.region_offset(layout.primary, region);
            checkpoint::Header::decode(s.disks[0].read(at, BLOCK), &s.sb.uuid)
        };
        let mut headers: Vec<_> = [0, 1].into_iter().filter_map(header).collect();
        headers.sort_by_key(|h| h.number);
        let [old, new] = headers[..] else {
            continue;
        };
        let seqs: Vec<_> = (carriers.iter())
            .map(|c| {
                let at = layout.ring_offset(*c, old.start.next_seq);
                let block = s.disks[usize::from(c.member.0)].read(at, BLOCK);
                journal::decode(block, &s.sb.uuid).map_or(0, |h| h.seq)
            })
            .collect();
        if seqs != [old.start.next_seq + 64, old.start.next_seq] {
            continue;
        }
        met += 1;
        for c in carriers {
            let block =
                layout.region_offset(c, checkpoint::Header::region(new.number)) + BLOCK as u64;
            s.disks[usize::from(c.member.0)].corrupt(block, 64);
        }
        match s.try_open(|epoch| Mode::ReadWrite { epoch }, None) {
            Err(OpenError::CheckpointLost { .. }) => {}
            Err(e) => return Err(format!("a damaged checkpoint, and: {e}")),
            Ok(()) => s.verify()?,
        }
    }
    if met == 0 {
        return Err(String::from("the scene has no ring that was filled"));
    }
    Ok(())
}

/// The write of a member's first superblock was lost, so that the second superblock belongs to a newer session.
pub(super) fn older_first_superblock(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    s.write(1, (0, 8))?;
    s.close(None)?;
    let old = s.disks[1].read(0, BLOCK).to_vec();
    s.open()?;
    s.write(2, (0, 8))?;
    s.flush()?;
    s.lose_power(nothing);
    s.disks[1].write_through(0, &old);
    s.open()?;
    s.verify()
}

/// A repair that was made without a session must still be there after a power loss.
pub(super) fn mended_is_durable(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = stage(mutant)?;
    for e in 0..4 {
        s.write(e, (0, 8))?;
        s.flush()?;
    }
    s.lose_power(everything);
    if s.mend()? == 0 {
        return Err(String::from("the scene has nothing to mend"));
    }
    s.lose_power(nothing);
    match s.mend()? {
        0 => Ok(()),
        n => Err(format!("mended, and {n} parts are damaged again")),
    }
}

/// The power fails after each step of an opening, and again during the next opening. The volume must open after that.
pub(super) fn opening_is_cut(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = Stage::new(mutant, &small())?;
    s.write(1, (0, 8))?;
    s.flush()?;
    s.write(2, (0, 8))?;
    s.flush()?;
    s.lose_power(nothing);
    for cut in 0..14 {
        let mut t = s.fork();
        t.open_cut(cut, if cut % 2 == 0 { nothing } else { everything });
        t.open_cut(cut / 2, nothing);
        t.open().map_err(|e| format!("power lost at {cut}: {e}"))?;
        t.verify()?;
    }
    Ok(())
}

/// Of each member only one superblock is whole, and the power fails while an opening writes superblocks: half of a block reaches the medium.
pub(super) fn last_superblock_is_torn(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = Stage::new(mutant, &small())?;
    s.write(1, (0, 8))?;
    s.flush()?;
    s.close(None)?;
    let half = |_: MemberId, at: u64| at % (BLOCK as u64) < BLOCK as u64 / 2;
    for first_is_damaged in [false, true] {
        for cut in 0..20 {
            let mut t = s.fork();
            for m in (0u8..).map(MemberId).take(s.sb.members.len()) {
                let second = s.sb.copy_offset(m);
                let damaged = if first_is_damaged { 0 } else { second };
                t.disks[usize::from(m.0)].corrupt(damaged, BLOCK);
            }
            t.open_cut(cut, half);
            t.open().map_err(|e| format!("power lost at {cut}: {e}"))?;
            t.verify()?;
        }
    }
    Ok(())
}

/// The process dies in the last steps of a clean close, and what it wrote last is only in the caches of the devices. The power fails while the
/// next session begins: its superblocks, which state what it has read, reach the medium. The volume must open after that.
pub(super) fn closed_only_in_caches(mutant: Option<Mutant>) -> Result<(), String> {
    for died in 1..12 {
        let mut s = Stage::new(mutant, &small())?;
        s.write(1, (0, 8))?;
        s.flush()?;
        s.close(Some(died))?;
        let sb = s.sb.clone();
        let superblocks = move |m: MemberId, at: u64| {
            [0, sb.copy_offset(m)].contains(&(at / BLOCK as u64 * BLOCK as u64))
        };
        for cut in 0..20 {
            let mut t = s.fork();
            // Nothing else outlives the process.
            t.kept = None;
            t.open_cut(cut, &superblocks);
            t.open()
                .map_err(|e| format!("died at {died}, power lost at {cut}: {e}"))?;
            t.verify()?;
        }
    }
    Ok(())
}

/// A volume continues without its cache, and then the cache is attached again. It must not be used, and an opening that requires all
/// members must be refused.
pub(super) fn left_behind(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    s.write(1, (0, 8))?;
    s.close(None)?;
    let without = |epoch| Mode::Degraded {
        epoch,
        loss: Loss::Refused,
    };
    s.gone = true;
    s.try_open(without, None)
        .map_err(|e| format!("without its cache: {e}"))?;
    s.write(2, (0, 8))?;
    s.flush()?;
    s.lose_power(nothing);
    s.gone = false;
    match s.try_open(|epoch| Mode::ReadWrite { epoch }, None) {
        Err(OpenError::Stale { .. }) => {}
        Err(e) => return Err(format!("with the cache back: {e}")),
        Ok(()) => return Err(String::from("a member that missed writes is taken back")),
    }
    s.try_open(without, None)
        .map_err(|e| format!("with the cache back, and without it: {e}"))?;
    s.verify()
}
