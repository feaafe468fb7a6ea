//! Scenes about a flash device that joins a cache volume which has flash already, and about one of several that leaves.

use super::stage::{Shape, Stage, everything, nothing};
use crate::disk::{Disk, Disks};
use isotherm_core::engine::Mutant;
use isotherm_core::geometry::Kind;
use isotherm_core::policy::{Action, Uses};
use isotherm_core::store::open::Mode;
use isotherm_core::store::{self, FlashChange, NewFlash, OpenError, Superblock};
use isotherm_core::{ExtentId, MemberId, TierId};

/// Extents with a copy: dirty, clean, dirty in part.
const COPIED: [u32; 3] = [1, 2, 3];
/// Those that are dirty. What is clean may be forgotten in a crash.
const DIRTY: [u32; 2] = [1, 3];
/// The identity of the device that joins.
const JOINS: [u8; 16] = [9; 16];
/// Slots begin at a multiple of 1 MiB there.
const NEW_BYTES: u64 = (1 << 20) + 30 * 4096;

/// One more device, or one less: the place of the one that leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Join,
    Leave(u8),
}

impl Change {
    fn plan(self, sb: &Superblock) -> Result<FlashChange, &'static str> {
        match self {
            Change::Leave(place) => store::plan_leave(sb, MemberId(place)),
            Change::Join => {
                let new = NewFlash {
                    uuid: JOINS,
                    bytes: NEW_BYTES,
                    hint: String::from("new"),
                };
                store::plan_join(sb, &new)
            }
        }
    }
    fn is_made(self, before: usize, sb: &Superblock) -> bool {
        sb.members.len()
            == if self == Change::Join {
                before + 1
            } else {
                before - 1
            }
    }
}

impl Stage {
    /// Changes the flash of the volume, which is not served. The power fails after `fuse` changes. A new device is the last one of `disks`, and
    /// so is one that was taken out.
    fn change_flash(&mut self, change: Change, fuse: Option<u64>) -> Result<(), OpenError> {
        let mutant = self.mutant;
        self.epochs += 2;
        let (epoch, found) = (self.epochs, self.found());
        let mut all = Disks {
            disks: &mut self.disks,
            fuse: None,
            mutant,
        };
        let mut opened = store::open(&mut all, &found, Mode::ReadWrite { epoch })?;
        let planned = change
            .plan(&opened.superblock)
            .map_err(OpenError::BadTable)?;
        all.fuse = fuse;
        let mut piece = vec![0; 8192];
        let (settled, _) = planned.prepare(&mut all, &mut opened, &mut piece)?;
        let fuse = all.fuse;
        let place = usize::from(planned.place.0);
        if planned.joins {
            let new = self.disks.pop().unwrap_or(Disk::new(NEW_BYTES as usize));
            self.disks.insert(place, new);
        } else {
            let gone = self.disks.remove(place);
            self.disks.push(gone);
        }
        let mut all = Disks {
            disks: &mut self.disks,
            fuse,
            mutant,
        };
        planned.carry_out(&mut all, &opened, &settled, epoch + 1)?;
        Ok(())
    }

    /// Puts the devices into the places that the newest table states, and leaves out those that are no members.
    fn find_places(&mut self) -> Result<(), String> {
        let found = self.found();
        let places: Option<Vec<usize>> = store::in_places(&found).into_iter().collect();
        let places = places.ok_or("a member is not there")?;
        let newest = store::newest_superblock(found.iter().flatten());
        self.sb = newest.cloned().ok_or("no superblock is left")?;
        self.disks = places.into_iter().map(|i| self.disks[i].clone()).collect();
        Ok(())
    }
}

/// A closed cache volume with these slots on its flash devices, and its copies, which are on the first or the second one.
fn closed(mutant: Option<Mutant>, flash: &[u32], on: usize) -> Result<Stage, String> {
    let shape = Shape {
        kind: Kind::Cache,
        extents: 80,
        ring: 10,
        slots: flash.iter().copied().chain([80]).collect(),
        one_fast_tier: true,
        ..Shape::default()
    };
    let mut s = Stage::new(mutant, &shape)?;
    s.uses(Uses::Copies);
    let before: u32 = flash[..on].iter().sum();
    let fill = (80 - before..80)
        .map(ExtentId)
        .map(|extent| Action::Allocate {
            extent,
            to: TierId(0),
        });
    s.propose_all(fill.collect())?;
    for e in COPIED {
        s.allocate(e)?;
        s.write(e, if e == 3 { (2, 4) } else { (0, 8) })?;
    }
    let map = s.engine.as_ref().map(|e| &e.space().map);
    let copy = map.and_then(|m| m.copy(ExtentId(COPIED[0])));
    if copy.is_none_or(|s| s.0 < before || s.0 >= before + flash[on]) {
        return Err(format!("the copies are elsewhere: {copy:?}"));
    }
    s.flush()?;
    s.clean(2)?;
    s.close(None)?;
    Ok(s)
}

/// The power fails after each step of a change. Then the volume is as before or changed, the change can be made to its end, and no flushed data
/// is lost.
pub(super) fn cut(mutant: Option<Mutant>) -> Result<(), String> {
    use Change::{Join, Leave};
    // One device that has room for the records of all copies, and one that has not; two, which keep their metadata or not.
    let cases: [(&[u32], usize, Change); 9] = [
        (&[30], 0, Join),
        (&[120], 0, Join),
        (&[60, 60], 0, Join),
        (&[50, 20], 0, Leave(1)),
        (&[50, 20], 1, Leave(1)),
        (&[20, 50], 0, Leave(0)),
        (&[20, 50], 1, Leave(0)),
        (&[30, 20, 20], 1, Leave(2)),
        (&[30, 20, 20], 0, Leave(0)),
    ];
    for (flash, on, change) in cases {
        let what = |e: String| format!("{change:?} of {flash:?}: {e}");
        let mut s = closed(mutant, flash, on).map_err(what)?;
        if change == Join {
            // It may have been a member before: nothing that it holds counts.
            s.disks.push(Disk::new(NEW_BYTES as usize));
        }
        for keep in [everything, nothing] {
            for cut in 0.. {
                let what = |e: String| what(format!("cut at {cut}: {e}"));
                let mut t = s.fork();
                let ended = t.change_flash(change, Some(cut));
                if let Err(e) = &ended
                    && !matches!(e, OpenError::Media(_))
                {
                    return Err(what(e.to_string()));
                }
                t.lose_power(keep);
                let mut left = t.fork();
                left.find_places().map_err(what)?;
                shows(left, &kept(on, change)).map_err(what)?;
                complete(t, (flash, on), change).map_err(what)?;
                if ended.is_ok() {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// What a loss of power at some steps of changes leaves: the members, in their places.
///
/// # Errors
/// A fault was found.
pub fn cut_changes() -> Result<Vec<Vec<Disk>>, String> {
    let mut images = Vec::new();
    let cases: [(&[u32], usize, Change); 3] = [
        (&[120], 0, Change::Join),
        (&[50, 20], 1, Change::Leave(1)),
        (&[20, 50], 0, Change::Leave(0)),
    ];
    for (flash, on, change) in cases {
        let s = closed(None, flash, on)?;
        for cut in (0..).step_by(9) {
            let mut t = s.fork();
            if change == Change::Join {
                t.disks.push(Disk::new(NEW_BYTES as usize));
            }
            let ended = t.change_flash(change, Some(cut)).is_ok();
            t.lose_power(if cut % 2 == 0 { nothing } else { everything });
            t.find_places()?;
            images.push(t.disks);
            if ended {
                break;
            }
        }
    }
    Ok(images)
}

/// The dirty copies that stay where they are.
fn kept(on: usize, change: Change) -> Vec<u32> {
    if change == Change::Leave(on as u8) {
        return Vec::new();
    }
    DIRTY.to_vec()
}

/// Opens the volume, which has these copies.
fn shows(mut s: Stage, copies: &[u32]) -> Result<Stage, String> {
    s.open()?;
    let engine = s.engine.as_ref().ok_or("it is not open")?;
    let map = &engine.space().map;
    if let Some(e) = copies.iter().find(|e| map.copy(ExtentId(**e)).is_none()) {
        return Err(format!("the copy of extent {e} is gone"));
    }
    s.verify()?;
    Ok(s)
}

/// Makes the change if it was not made, uses the flash that is there then, and looks at the volume without its first member, too.
fn complete(mut s: Stage, (flash, on): (&[u32], usize), change: Change) -> Result<(), String> {
    let before = flash.len() + 1;
    let all = s.fork();
    s.find_places()?;
    if !change.is_made(before, &s.sb) {
        if change == Change::Join {
            // The device has become no member.
            let is_member = |d: &Disk| s.disks.iter().any(|o| o.read(0, 4096) == d.read(0, 4096));
            let new = all.disks.iter().find(|d| !is_member(d)).cloned();
            s.disks.push(new.unwrap_or(Disk::new(NEW_BYTES as usize)));
        }
        s.change_flash(change, None)
            .map_err(|e| format!("the change again: {e}"))?;
        s.find_places()?;
    }
    if !change.is_made(before, &s.sb) {
        return Err(String::from("the members are those of before"));
    }
    let mut s = shows(s, &kept(on, change))?;
    for e in 5..20 {
        let map = s.engine.as_ref().map(|e| &e.space().map);
        if map.is_some_and(|m| m.copy(ExtentId(e)).is_none()) {
            s.allocate(e)?;
        }
        s.write(e, (0, 8))?;
    }
    s.flush()?;
    s.lose_power(nothing);
    let mut s = shows(s, &kept(on, change))?;
    s.close(None)?;
    let flash = s.sb.members.len() - 1;
    if flash > 1 {
        // The other one knows everything.
        s.list(None)?;
        s.verify()?;
    }
    Ok(())
}

/// A device that was taken out comes back, and so does one that should have joined and did not. Neither is a member.
pub(super) fn comes_back(mutant: Option<Mutant>) -> Result<(), String> {
    let mut s = closed(mutant, &[50, 20], 0)?;
    s.change_flash(Change::Leave(1), None)
        .map_err(|e| format!("leaving: {e}"))?;
    let former = s.disks.last().cloned().ok_or("no device")?;
    s.find_places()?;
    s.open()?;
    s.write(7, (0, 8))?;
    s.flush()?;
    s.close(None)?;
    for at in 0..=s.disks.len() {
        let mut t = s.fork();
        t.disks.insert(at, former.clone());
        t.find_places()?;
        if t.disks.len() != s.disks.len() {
            return Err(String::from("the former device is a member"));
        }
        shows(t, &[1])?;
    }
    // In the place of another member it is refused.
    let mut t = s.fork();
    t.disks.insert(1, former);
    t.disks.truncate(2);
    match t.try_open(|epoch| Mode::ReadWrite { epoch }, None) {
        Err(OpenError::Replaced(_)) => Ok(()),
        other => Err(format!("the former device: {other:?}")),
    }
}
