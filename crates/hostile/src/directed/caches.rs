//! Scenes about cache volumes, whose homes have fixed places.

use super::stage::{CELLS, Shape, Stage, everything, nothing};
use crate::disk::Disks;
use crate::truth::CELL;
use isotherm_core::engine::{Mutant, Params};
use isotherm_core::geometry::Kind;
use isotherm_core::policy::{Action, Uses, WriteTo};
use isotherm_core::store::mark;
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::store::superblock::State;
use isotherm_core::store::{BLOCK, Media, OpenError, Superblock, release};
use isotherm_core::{BufRef, DeviceOp, MemberId, Nanos, OpKind, TierId};

/// A cache volume with one fast member and one disk.
pub(super) fn cache(mutant: Option<Mutant>) -> Result<Stage, String> {
    cache_with(mutant, |_| {})
}

/// The same with other parameters.
pub(super) fn cache_with(
    mutant: Option<Mutant>,
    set: impl FnOnce(&mut Params),
) -> Result<Stage, String> {
    let shape = Shape {
        kind: Kind::Cache,
        slots: vec![10, 24],
        ..Shape::default()
    };
    let s = Stage::with(mutant, &shape, set)?;
    s.uses(Uses::Copies);
    Ok(s)
}

/// Some dirty blocks of a copy are discarded, and then written to the home alone. After a power failure the record must not say that the copy
/// has newer data.
pub(super) fn written_past_discarded(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    s.allocate(1)?;
    s.write(1, (0, 8))?;
    s.flush()?;
    s.discard(1, (0, 2))?;
    s.write_to(WriteTo::Home);
    s.hold(|op| matches!(op.buf, BufRef::Move { .. }));
    s.write(1, (0, 2))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// The policy wants to move a home to flash: that is refused, and the home stays where its address says.
pub(super) fn a_home_stays(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    s.write(1, (0, 8))?;
    let (extent, to) = (isotherm_core::ExtentId(1), TierId(0));
    s.propose(Action::Move { extent, to })?;
    s.flush()?;
    s.lose_power(everything);
    s.open()?;
    s.verify()
}

/// Opens the volume without its first member, and checks that nothing is lost silently: all flushed data is there, or it is refused and, opened
/// to read only, fails where data is lost.
pub(super) fn without_flash(s: &mut Stage) -> Result<(), String> {
    s.gone = true;
    let without = |epoch| Mode::Degraded {
        epoch,
        loss: Loss::Refused,
    };
    match s.try_open(without, None) {
        // What is not named as lost must be there.
        Err(OpenError::LostWrites { .. }) => {
            s.try_open(|_| Mode::ReadOnly, None)
                .map_err(|e| format!("to read only: {e}"))?;
            for (e, data) in s.contents()?.into_iter().enumerate() {
                let cells = data.iter().flat_map(|d| d.chunks_exact(CELL)).enumerate();
                for (c, cell) in cells {
                    s.truth.check_crashed(e * CELLS + c, cell)?;
                }
            }
            Ok(())
        }
        Err(e) => Err(format!("without its cache: {e}")),
        Ok(()) => s.verify(),
    }
}

/// The cache is missing, and it had dirty data. The disk's mark says so, and the volume must not continue as if nothing were lost.
pub(super) fn dirty_cache_gone(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    s.write(1, (0, 8))?;
    s.close(None)?;
    s.open()?;
    s.allocate(1)?;
    s.write(1, (0, 1))?;
    s.flush()?;
    s.lose_power(nothing);
    without_flash(&mut s)
}

/// A dirty copy is written home, so that its mark is not needed any more. When it is removed, the home must be durable.
pub(super) fn mark_outlives_clean(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    s.allocate(1)?;
    s.write(1, (0, 8))?;
    s.flush()?;
    // Later marks may be removed.
    s.pass(Nanos::from_secs(100))?;
    // The clean belongs to a round that also answers a FLUSH.
    s.allocate(2)?;
    s.write(2, (0, 8))?;
    s.hold(s.is_ring());
    s.send_flush()?;
    s.clean(1)?;
    s.send_flush()?;
    s.hold(|op| op.kind == OpKind::Flush && op.member.0 == 1);
    s.pass(Nanos::from_secs(100))?;
    // Of what is not flushed on the disk, only its tail is kept.
    let tail = s.sb.mark_offset(MemberId(1), 0);
    s.lose_power(move |m, at| m.0 == 1 && at >= tail);
    without_flash(&mut s)
}

/// Two fast members hold the journal, and the first one is lost. The other one must have every record.
pub(super) fn first_flash_gone(mutant: Option<Mutant>) -> Result<(), String> {
    let shape = Shape {
        kind: Kind::Cache,
        slots: vec![4, 10, 24],
        ..Shape::default()
    };
    let mut s = Stage::new(mutant, &shape)?;
    s.uses(Uses::Copies);
    let extent = isotherm_core::ExtentId(1);
    s.propose(Action::Allocate {
        extent,
        to: TierId(1),
    })?;
    s.write(1, (0, 8))?;
    s.flush()?;
    s.write(1, (2, 3))?;
    s.flush()?;
    s.discard(1, (4, 8))?;
    s.flush()?;
    s.lose_power(nothing);
    without_flash(&mut s)
}

/// A disk sleeps, so the round that records the first dirty copy of a region does not mark it. A FLUSH that is answered with a round that began
/// ahead must wait until the mark is there.
pub(super) fn ahead_without_mark(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache_with(mutant, |p| {
        p.flush_ahead = 1;
        p.standby_after = vec![None, Some(Nanos::from_secs(1))];
    })?;
    s.allocate(1)?;
    for _ in 0..3 {
        s.write(1, (0, 8))?;
        s.flush()?;
    }
    s.allocate(3)?;
    s.pass(Nanos::from_secs(3))?;
    s.write(3, (0, 8))?;
    s.pass(Nanos::from_secs(10))?;
    let asleep = s.engine.as_ref().is_some_and(|e| e.is_asleep(MemberId(1)));
    if !asleep {
        return Err(String::from("the scene's disk does not sleep"));
    }
    let flush_of_flash = |op: &DeviceOp| op.kind == OpKind::Flush && op.member.0 == 0;
    s.hold(flush_of_flash);
    s.write(1, (0, 8))?;
    if !s.is_in_flight(flush_of_flash) {
        return Err(String::from("the scene has no round that began ahead"));
    }
    s.send_flush()?;
    s.release()?;
    s.lose_power(nothing);
    without_flash(&mut s)
}

/// Releases a volume that is not served, on members whose power fails after some changes. Then only the disk counts: its second superblock
/// and its mark say how far it has come.
fn released(s: &mut Stage, fuse: Option<u64>) -> Result<(), OpenError> {
    let disk = MemberId(1);
    let last = (s.disks[1].len() / BLOCK - 1) as u64 * BLOCK as u64;
    let tail = Superblock::decode(s.disks[1].get(last, BLOCK).unwrap_or(&[]));
    let (found, mutant) = (s.found(), s.mutant);
    s.epochs += 1;
    let mut all = Disks {
        disks: &mut s.disks,
        fuse,
        mutant,
    };
    if let Ok(sb) = &tail {
        let stated = mark::read(&mut all, sb, disk).newest;
        if stated.is_some_and(|k| k.cover.is_releasing()) {
            return release::uncover(&mut all, sb, disk);
        }
    }
    if found[1].is_none() {
        // It has ended before.
        return Ok(());
    }
    let mode = Mode::Degraded {
        epoch: s.epochs,
        loss: Loss::Refused,
    };
    let opened = isotherm_core::store::open(&mut all, &found, mode)?;
    for t in release::dirty_home(&opened.space) {
        let mut data = vec![0; t.bytes as usize];
        all.read(t.from.0, t.from.1, &mut data)?;
        all.write(t.to.0, t.to.1, &data)?;
    }
    all.flush(disk)?;
    release::leave_flash(&mut all, &opened)?;
    release::uncover(&mut all, &opened.superblock, disk)
}

/// A volume with clean and dirty copies is released, and the power fails at each step. Afterwards it can be opened and shows everything, or
/// the release goes on; then the disk shows the volume from its first byte on, and nothing takes it for a member.
pub(super) fn release_is_cut(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    for e in 0..24 {
        s.write(e, (0, 8))?;
    }
    for e in [1, 3, 7, 20] {
        s.allocate(e)?;
        s.write(e, (0, 5))?;
    }
    s.flush()?;
    s.clean(3)?;
    s.close(None)?;
    // Once the device is larger than the volume needs, so that the tail is not at its end.
    let larger = s.fork();
    released_at_each_cut(&s)?;
    let mut s = larger;
    s.disks[1].grow(50 * BLOCK + 512, 0);
    released_at_each_cut(&s)
}

/// The power fails at each step of a release, and then a byte of the stash changes: the release does not go on, and writes nothing. When that
/// byte is as before, it goes on.
pub(super) fn damaged_stash(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    for e in 0..24 {
        s.write(e, (0, 8))?;
    }
    s.close(None)?;
    let mut refused = 0;
    for cut in 0..200 {
        let mut t = s.fork();
        let whole = released(&mut t, Some(cut)).is_ok();
        t.lose_power(nothing);
        let begun = matches!(
            t.fork().try_open(|_| Mode::ReadOnly, None),
            Err(OpenError::Releasing(_))
        );
        if begun {
            refused += 1;
            let at = s.sb.stash(MemberId(1)).at + cut * 97 % (5 * BLOCK as u64);
            t.disks[1].corrupt(at, 1);
            let (before, bytes) = (t.disks[1].image(), t.disks[1].len());
            let end = released(&mut t, None);
            if !matches!(end, Err(OpenError::DamagedStash { .. })) {
                return Err(format!("cut at {cut}: a damaged stash: {end:?}"));
            }
            if t.disks[1].read(0, bytes) != before.read(0, bytes) {
                return Err(format!("cut at {cut}: written although refused"));
            }
            t.disks[1].corrupt(at, 1);
        }
        released(&mut t, None).map_err(|e| format!("cut at {cut}, again: {e}"))?;
        if whole {
            break;
        }
    }
    if refused < 5 {
        return Err(format!("{refused} steps of a release are its own"));
    }
    Ok(())
}

fn released_at_each_cut(s: &Stage) -> Result<(), String> {
    for cut in 0..200 {
        let mut t = s.fork();
        let whole = released(&mut t, Some(cut)).is_ok();
        t.lose_power(nothing);
        let open = t
            .found()
            .iter()
            .flatten()
            .any(|sb| sb.state != State::Clean);
        if open && cut % 3 == 0 {
            // Until the disk says otherwise, the volume goes on, at last without its flash.
            let without = |epoch| Mode::Degraded {
                epoch,
                loss: Loss::Refused,
            };
            match t.try_open(without, None) {
                Ok(()) => {
                    t.verify().map_err(|e| format!("cut at {cut}: {e}"))?;
                    t.lose_power(nothing);
                }
                Err(OpenError::Releasing(_)) => {}
                Err(e) => return Err(format!("cut at {cut}: {e}")),
            }
        }
        released(&mut t, None).map_err(|e| format!("cut at {cut}, again: {e}"))?;
        t.lose_power(nothing);
        for c in 0..t.truth.cells() {
            let cell = t.disks[1]
                .get((c * CELL) as u64, CELL)
                .unwrap_or(&[])
                .to_vec();
            let checked = t.truth.check_crashed(c, &cell);
            checked.map_err(|e| format!("released after a cut at {cut}: {e}"))?;
        }
        // (Bytes of the stash may be left behind the volume.)
        let all = t.disks[1].len();
        let blocks = t.disks[1].get(0, all).unwrap_or(&[]).chunks_exact(BLOCK);
        if t.found()[1].is_some() || blocks.map(Superblock::decode).any(|sb| sb.is_ok()) {
            return Err(format!("cut at {cut}: a superblock is left on the disk"));
        }
        if whole {
            return Ok(());
        }
    }
    Err(String::from("the release does not end"))
}

/// Somebody made a file system on a disk of the volume: opening refuses it by name and writes nothing there. A first block that is only damaged
/// is written anew.
pub(super) fn taken_for_another(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    s.write(1, (0, 8))?;
    s.close(None)?;
    let mut signs: Vec<(usize, &[u8])> = vec![(1080, b"\x53\xef"), (0, b"XFSB")];
    signs.extend([(0, &b"LUKS\xba\xbe"[..]), (512, b"LABELONE")]);
    signs.extend([(512, &b"EFI PART"[..]), (510, b"\x55\xaa")]);
    signs.extend([(4086, &b"SWAPSPACE2"[..]), (3, b"NTFS    ")]);
    for (at, sign) in signs {
        let mut t = s.fork();
        let mut block = vec![0; BLOCK];
        block[at..at + sign.len()].copy_from_slice(sign);
        t.disks[1].write_through(0, &block);
        match t.try_open(|epoch| Mode::ReadWrite { epoch }, None) {
            Err(OpenError::Overwritten(MemberId(1))) => {}
            Err(e) => return Err(format!("{sign:?}: {e}")),
            Ok(()) => return Err(format!("{sign:?}: opened")),
        }
        if t.disks[1].read(0, BLOCK) != block {
            return Err(format!("{sign:?}: written over"));
        }
    }
    s.disks[1].corrupt(0, 512);
    s.open()?;
    s.verify()
}

/// A disk hangs. Marks that are not needed any more are not removed meanwhile, so that a FLUSH of marked regions is answered.
pub(super) fn hung_disk(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = cache(mutant)?;
    // The second mark names neighbours, too.
    for e in [1, 2] {
        s.allocate(e)?;
        s.write(e, (0, 8))?;
        s.flush()?;
    }
    s.hold(|op| op.member.0 == 1);
    s.send(9, (0, 8))?;
    s.pass(Nanos::from_secs(100))?;
    s.write(1, (0, 4))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}
