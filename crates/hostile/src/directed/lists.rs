//! Scenes about data that was lost with flash: it is listed on the disk, and cannot be read until it is written again.

use super::caches::cache_with;
use super::stage::{Asked, CELLS, Stage, everything, nothing};
use crate::disk::{Disk, Disks};
use crate::truth::{CELL, Change, content};
use crate::world::Fate;
use isotherm_core::engine::{Mutant, Params, WarmEnd};
use isotherm_core::store::open::{Loss, Mode};
use isotherm_core::store::{OpenError, open};
use isotherm_core::volume::lost::LostPart;
use isotherm_core::{
    Engine, ExtentId, IoError, MemberId, Nanos, OpKind, Request, RequestOp, World,
};

/// What [`dirty`] loses.
const LOST: [LostPart; 2] = [(ExtentId(1), 0, 8), (ExtentId(2), 2, 6)];

/// A cache volume whose flash has dirty data when the power fails. The disk has older data at the same places.
pub(super) fn dirty(
    mutant: Option<Mutant>,
    set: impl FnOnce(&mut Params),
) -> Result<Stage, String> {
    let mut s = cache_with(mutant, set)?;
    for e in 0..6 {
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    for (e, from, to) in LOST {
        s.allocate(e.0)?;
        s.write(e.0, (from, to))?;
    }
    s.flush()?;
    s.lose_power(nothing);
    Ok(s)
}

fn listed(epoch: u64) -> Mode {
    let loss = Loss::Listed;
    Mode::Degraded { epoch, loss }
}

fn refused(epoch: u64) -> Mode {
    let loss = Loss::Refused;
    Mode::Degraded { epoch, loss }
}

/// Opens the volume once more, as it is.
fn again(s: &mut Stage) -> Result<(), String> {
    s.try_open(refused, None)
        .map_err(|e| format!("what is lost was listed, yet: {e}"))?;
    s.verify()
}

fn lost(s: &Stage) -> u64 {
    let space = s.engine.as_ref().map(Engine::space);
    space.map_or(0, |space| space.lost.blocks())
}

/// Lost blocks are errors, and what is written there is not, as soon as it is answered; after a FLUSH it stays so.
pub(super) fn written_again(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = dirty(mutant, |_| {})?;
    s.list(Some(&LOST))?;
    if lost(&s) != 12 {
        return Err(format!("{} blocks are listed", lost(&s)));
    }
    s.verify()?;
    s.write(1, (0, 3))?;
    s.verify()?;
    s.flush()?;
    s.write(2, (2, 4))?;
    s.write_forced(2, (4, 5))?;
    s.write(1, (5, 6))?;
    s.lose_power(nothing);
    again(&mut s)?;
    // The whole extent, and the rest of the other one.
    s.write(1, (0, 8))?;
    s.change(RequestOp::WriteZeroes { keep: true }, 2, (0, 8))?;
    s.flush()?;
    s.lose_power(nothing);
    again(&mut s)?;
    if lost(&s) != 0 || s.session.as_ref().is_some_and(|sb| sb.lists) {
        return Err(format!("{} blocks are still listed", lost(&s)));
    }
    s.close(None)?;
    s.try_open(refused, None).map_err(|e| e.to_string())?;
    s.verify()
}

/// The data of a write and the page that names it: the page counts only with the data.
pub(super) fn page_before_data(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = dirty(mutant, |_| {})?;
    s.list(None)?;
    s.hold(|op| op.kind == OpKind::Flush);
    s.write(1, (0, 8))?;
    s.send_flush()?;
    let is_slot = s.is_slot();
    s.lose_power(move |m, at| !is_slot(m, at));
    again(&mut s)
}

/// A FUA write of a block that was written and not flushed: its page is not durable yet.
pub(super) fn forced(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = dirty(mutant, |_| {})?;
    s.list(None)?;
    s.write_forced(1, (0, 2))?;
    s.write(1, (3, 5))?;
    s.write_forced(1, (3, 5))?;
    s.lose_power(nothing);
    again(&mut s)
}

/// A round that began ahead has no pages, so a FLUSH waits for another one.
pub(super) fn ahead(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = dirty(mutant, |p| p.flush_ahead = 1)?;
    s.list(None)?;
    for _ in 0..3 {
        s.write(4, (0, 8))?;
        s.flush()?;
    }
    s.hold(|op| op.kind == OpKind::Flush);
    s.write(1, (0, 8))?;
    if !s.is_in_flight(|op| op.kind == OpKind::Flush) {
        return Err(String::from("the scene has no round that began ahead"));
    }
    s.send_flush()?;
    s.release()?;
    s.lose_power(nothing);
    again(&mut s)
}

/// A close makes the pages durable, too. A discarded block is not lost any more.
pub(super) fn closed(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = dirty(mutant, |p| p.pass_discards = true)?;
    s.list(None)?;
    s.write(1, (0, 4))?;
    s.discard(2, (0, 8))?;
    s.close(None)?;
    again(&mut s)?;
    let before = lost(&s);
    s.discard(1, (4, 8))?;
    s.flush()?;
    s.lose_power(nothing);
    again(&mut s)?;
    if before == 0 || lost(&s) + 4 != before {
        return Err(format!("{before} blocks were lost, and then {}", lost(&s)));
    }
    Ok(())
}

/// A write that is not whole blocks needs the rest of its block, which is lost.
pub(super) fn in_part(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = dirty(mutant, |_| {})?;
    s.list(Some(&LOST))?;
    let (tag, from) = (s.tag(), CELLS + 1);
    let version = s.truth.issue(from, from + 2, Change::Write);
    if let Some(w) = &mut s.world {
        let payload = (from..from + 2).flat_map(|c| content(c, version)).collect();
        w.give(tag, 512, CELL, Some(payload));
    }
    let req = Request {
        tag,
        op: RequestOp::Write,
        offset: (from * CELL) as u64,
        len: 2 * CELL as u32,
        fua: false,
        class: 0,
    };
    let to = from + 2;
    s.submit(req, Asked::Change { from, to, version })?;
    let answer = s.answer(tag);
    if answer != Some(Err(IoError::Io)) {
        return Err(format!("half of a lost block was written: {answer:?}"));
    }
    s.verify()
}

/// A write to a lost block fails on the device: it stays lost.
pub(super) fn failed_write(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = dirty(mutant, |_| {})?;
    s.list(None)?;
    s.script(|op| match op.kind {
        OpKind::Write => Fate::Fail,
        _ => Fate::Go,
    });
    s.send(1, (0, 8))?;
    s.release()?;
    s.verify()
}

/// The power fails at each step of the opening that lists what is lost. Afterwards flash may be there again, but only if the volume has not
/// begun without it.
pub(super) fn cut(mutant: Option<Mutant>) -> Result<(), String> {
    for fuse in 0..60 {
        for kept in [nothing, everything] {
            let mut s = dirty(mutant, |_| {})?;
            s.gone = true;
            let whole = s.try_open(listed, Some(fuse)).is_ok();
            s.lose_power(kept);
            let mut t = s.fork();
            t.gone = false;
            match t.try_open(|epoch| Mode::ReadWrite { epoch }, None) {
                Ok(()) if whole => return Err(String::from("flash that was left out is back")),
                Ok(()) => t.verify()?,
                Err(OpenError::Stale { .. }) => {}
                Err(e) => return Err(format!("cut at {fuse}: {e}")),
            }
            if whole {
                s.try_open(refused, None)
                    .map_err(|e| format!("it was listed, yet: {e}"))?;
                s.forfeit();
            } else {
                s.list(None)?;
            }
            s.verify()?;
            if whole {
                return Ok(());
            }
        }
    }
    Err(String::from("the opening does not end"))
}

/// Lost data is listed, a part of it is written, and more is lost with other flash: the power fails at each step of the opening that makes the
/// second list. What was written counts, with either list.
pub(super) fn twice(mutant: Option<Mutant>) -> Result<(), String> {
    for fuse in 0..80 {
        for kept in 0..3 {
            let mut s = dirty(mutant, |_| {})?;
            s.list(Some(&LOST))?;
            s.write(1, (0, 3))?;
            s.flush()?;
            s.lose_power(nothing);
            // The second loss, of which the caller knows what it is.
            let more: [LostPart; 1] = [(ExtentId(4), 0, 8)];
            let mut t = s.fork();
            t.gone = true;
            let whole = t.try_open_after(listed, Some(fuse), Some(&more)).is_ok();
            let list = s.sb.list_offset(MemberId(1), 0, 0);
            let mark = s.sb.mark_offset(MemberId(1), 0);
            match kept {
                0 => t.lose_power(nothing),
                1 => t.lose_power(everything),
                // Marks are written, and pages are not.
                _ => t.lose_power(move |m, at| m.0 != 1 || !(list..mark).contains(&at)),
            }
            // Without a whole opening, only what was lost before is.
            t.try_open(refused, None).map_err(|e| e.to_string())?;
            if whole || lost(&t) > 9 {
                (4 * CELLS..5 * CELLS).for_each(|c| t.truth.forfeit(c));
            }
            t.verify().map_err(|e| format!("cut at {fuse}: {e}"))?;
            if whole {
                if lost(&t) != 17 {
                    return Err(format!("{} blocks are listed", lost(&t)));
                }
                if kept == 2 {
                    return Ok(());
                }
            }
        }
    }
    Err(String::from("the opening does not end"))
}

/// Other flash takes the place of that which was lost: extents with lost blocks get no copies, and what was written again does.
pub(super) fn no_copies(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = dirty(mutant, |_| {})?;
    s.list(Some(&LOST))?;
    s.write(1, (0, 3))?;
    s.close(None)?;
    let bytes = s.sb.members[0].bytes as usize;
    s.succeed(Disk::new(bytes))?;
    s.open()?;
    s.verify()?;
    for e in [1, 2] {
        s.allocate(e)?;
    }
    s.write(2, (0, 3))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()?;
    // All of it is written, durably: now it may.
    s.write(2, (0, 8))?;
    s.flush()?;
    s.allocate(2)?;
    s.write(2, (4, 6))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// The user wants everything on new flash: what is lost does not get there, so a write of a part of it makes nothing else readable.
pub(super) fn not_warmed(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = dirty(mutant, |_| {})?;
    s.list(Some(&LOST))?;
    s.close(None)?;
    let bytes = s.sb.members[0].bytes as usize;
    s.succeed(Disk::new(bytes))?;
    s.open()?;
    let (engine, world, _) = s.both().ok_or("the volume is not served")?;
    let now = World::now(world);
    engine
        .warm(now, vec![0..4, 4..8])
        .map_err(|e| e.to_string())?;
    for _ in 0..20 {
        s.pass(Nanos::from_millis(50))?;
    }
    let (engine, ..) = s.both().ok_or("the volume is not served")?;
    let report = engine.warmed().ok_or("nothing was asked")?;
    if report.end != Some(WarmEnd::Complete) || report.copied == 0 {
        return Err(format!("the scene has no other copies: {report:?}"));
    }
    s.verify()?;
    s.write(2, (2, 3))?;
    s.flush()?;
    s.lose_power(nothing);
    s.open()?;
    s.verify()
}

/// What the disk holds is accepted, and the list is empty. Without a trustworthy mark, nothing else is possible.
pub(super) fn accepted(mutant: Option<Mutant>) -> Result<(), String> {
    let loss = Loss::Accepted;
    let accepted = |epoch| Mode::Degraded { epoch, loss };
    let mut s = dirty(mutant, |_| {})?;
    s.list(None)?;
    s.close(None)?;
    s.try_open(accepted, None).map_err(|e| e.to_string())?;
    s.check_contents()?;
    if lost(&s) != 0 || s.contents()?.iter().any(Result::is_err) {
        return Err(String::from("what was accepted is still lost"));
    }
    s.write(1, (0, 8))?;
    s.close(None)?;
    s.try_open(refused, None).map_err(|e| e.to_string())?;
    if s.contents()?.iter().any(Result::is_err) {
        return Err(String::from("what was accepted is lost again"));
    }

    let mut s = dirty(mutant, |_| {})?;
    let mark = s.sb.mark_offset(MemberId(1), 0);
    s.disks[1].corrupt(mark, 512);
    s.gone = true;
    for mode in [refused, listed] {
        if !matches!(s.try_open(mode, None), Err(OpenError::LostWrites { .. })) {
            return Err(String::from("a damaged mark is believed"));
        }
    }
    // An opening that accepts the loss is cut: the loss must be accepted again, or everything is lost.
    for fuse in 0..40 {
        let mut t = s.fork();
        let whole = t.try_open(accepted, Some(fuse)).is_ok();
        t.lose_power(everything);
        if whole {
            return Ok(());
        }
        // (If nothing is lost then, the acceptance was durable.)
        if t.try_open(listed, None).is_ok() && lost(&t) > 0 {
            t.forfeit();
            t.verify()?;
        }
    }
    Err(String::from("the opening does not end"))
}

/// The page of a list is damaged: all of the listed regions is lost. Both marks of a disk with a list are: nobody knows what is lost.
pub(super) fn list_is_damaged(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = dirty(mutant, |_| {})?;
    s.list(Some(&LOST))?;
    s.write(1, (0, 3))?;
    let page = page_at(&s, 0);
    s.close(None)?;
    s.disks[1].corrupt(page, 4096);
    let mut whole = false;
    for fuse in 0..60 {
        for kept in [nothing, everything] {
            let mut t = s.fork();
            whole = t.try_open(refused, Some(fuse)).is_ok();
            t.lose_power(kept);
            t.try_open(refused, None).map_err(|e| e.to_string())?;
            t.forfeit();
            t.verify().map_err(|e| format!("cut at {fuse}: {e}"))?;
            t.write(1, (2, 4))?;
            t.flush()?;
            t.lose_power(kept);
            again(&mut t)?;
        }
        if whole {
            break;
        }
    }
    if !whole {
        return Err(String::from("the opening does not end"));
    }
    let mark = s.sb.mark_offset(MemberId(1), 0);
    s.disks[1].corrupt(mark, 8192);
    let (found, mutant) = (s.found(), s.mutant);
    let all = &mut Disks {
        disks: &mut s.disks,
        fuse: None,
        mutant,
    };
    for mode in [listed(0x999), Mode::ReadOnly] {
        match open(all, &found, mode) {
            Err(OpenError::ListLost(MemberId(1)) | OpenError::LostWrites { .. }) => {}
            other => return Err(format!("{:?}", other.map(|o| o.report))),
        }
    }
    Ok(())
}

/// The byte offset of a page of the disk's list.
fn page_at(s: &Stage, page: u32) -> u64 {
    let space = s.engine.as_ref().map(Engine::space);
    let place = space.map_or(0, |space| space.lost.head(MemberId(1)).place);
    s.sb.list_offset(MemberId(1), place, page)
}
