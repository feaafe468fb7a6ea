//! Opening while some members are absent: which data is lost with them, and whether the volume may be opened.
//!
//! The decision is based on the metadata of the remaining members. This contains everything if the primary remains, if the volume was
//! closed, or if the mirror received every change before it was acknowledged ([`super::superblock::Follow`]). In a cache volume all homes
//! are known in any case. If none of its flash remains, the marks of its disks ([`super::mark`]) tell which parts of it may have lost data.
//! What a cache volume has lost becomes a list ([`super::lost`]), unless the user accepts what the disks hold.

use super::error::OpenError;
use super::found::Loss;
use super::mark::Suspects;
use super::recover::Loaded;
use super::report::Report;
use super::superblock::Superblock;
use super::{Layout, Media, mark};
use crate::geometry::Kind;
use crate::units::{ExtentId, MemberId, Slot};
use crate::volume::Space;
use crate::volume::lost::LostPart;
use alloc::vec::Vec;

/// Determines the lost data, and how certain this is; returns what the marks name. `exact`: the available metadata includes everything that was acknowledged.
pub(super) fn judge<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    loaded: &Loaded,
    layout: Layout,
    exact: bool,
    report: &mut Report,
) -> Vec<Suspects> {
    let map = &loaded.space.map;
    let mut marked = Vec::new();
    if !layout.has_journal {
        let mut missing = report.missing.iter();
        let was_alone = missing.all(|m| sb.is_absent(*m));
        let suspects = mark::suspects(media, sb, was_alone);
        report.unsure = suspects.is_none();
        // A damaged mark may have named any region.
        let all = |m: MemberId| (m, alloc::vec![0..sb.extents]);
        marked = suspects.unwrap_or_else(|| sb.disks().map(all).collect());
        report.suspects = mark::joined(&marked);
    }
    report.knows_homes = exact || !layout.has_journal;
    report.unsure |= !report.knows_homes;
    // An extent whose dirty copy is in no remaining record would read as zeros.
    report.incomplete = report.unsure;
    if report.missing.is_empty() {
        return marked;
    }
    let geo = &loaded.space.geo;
    let lost = |s: Option<Slot>| s.is_some_and(|s| report.missing.contains(&geo.locate(s).0));
    let (mut homes, mut writes) = (0, 0);
    for e in (0..sb.extents).map(ExtentId) {
        homes += u32::from(lost(map.home(e)));
        writes += u32::from(map.is_dirty(e) && lost(map.copy(e)));
    }
    writes += report.suspects.iter().map(|r| r.end - r.start).sum::<u32>();
    (report.lost_homes, report.lost_writes) = (homes, writes);
    marked
}

/// Checks whether a session that writes may begin.
pub(super) fn allow(sb: &Superblock, loss: Loss, report: &mut Report) -> Result<(), OpenError> {
    let Some(&member) = report.missing.first() else {
        return Ok(());
    };
    let there = |m: &usize| !report.missing.contains(&MemberId(*m as u8));
    let slots = (0..sb.members.len()).filter(there);
    let slots: u64 = slots.map(|m| u64::from(sb.members[m].slots)).sum();
    // The remaining members must have a slot for every extent; otherwise writes would fail later.
    if slots < u64::from(sb.extents) {
        return Err(OpenError::Missing(member));
    }
    if report.lost_homes > 0 {
        let extents = report.lost_homes;
        return Err(OpenError::LostHomes { member, extents });
    }
    if !report.knows_homes {
        return Err(OpenError::Unsure(member));
    }
    // The last session had no such members either, and began with a list of what is lost with them.
    let is_listed = sb.lists && report.missing.iter().all(|m| sb.is_absent(*m));
    let loss = match loss {
        Loss::Refused if is_listed => Loss::Listed,
        other => other,
    };
    let may_go_on = match loss {
        Loss::Listed if sb.kind == Kind::Cache => !report.unsure,
        Loss::Refused | Loss::Listed => report.lost_writes == 0 && !report.unsure,
        Loss::Accepted => true,
    };
    if !may_go_on {
        let extents = report.lost_writes;
        return Err(OpenError::LostWrites { member, extents });
    }
    // If the loss is accepted, reads return the contents of the homes, and zeros where there is no home.
    report.incomplete = false;
    report.suspects.clear();
    Ok(())
}

/// The extents that have a copy on a missing member.
fn copies_on(space: &Space, missing: &[MemberId]) -> Vec<ExtentId> {
    if missing.is_empty() || space.map.copied() == 0 {
        return Vec::new();
    }
    (0..space.geo.tier_slots(space.geo.slowest()).start)
        .map(Slot)
        .filter(|&s| missing.contains(&space.geo.locate(s).0))
        .filter_map(|s| space.map.owner(s).filter(|&e| space.map.copy(e) == Some(s)))
        .collect()
}

/// Drops the copies on absent members. If a copy was dirty, its extent is added to `report.dropped`, because the loss must be recorded.
/// Returns the blocks that are lost with them.
pub(super) fn drop_lost(space: &mut Space, report: &mut Report) -> Vec<LostPart> {
    let mut lost = Vec::new();
    for e in copies_on(space, &report.missing) {
        if space.map.is_dirty(e) {
            report.dropped.push(e);
        }
        lost.extend(dirty_parts(space, e));
        if let Some((slot, _)) = space.map.drop_copy(e) {
            space.slots.put_back(slot);
        }
    }
    lost
}

/// The dirty blocks of an extent's copy.
pub(super) fn dirty_parts(space: &Space, e: ExtentId) -> Vec<LostPart> {
    let (mut b, blocks, mut parts) = (0, space.geo.blocks_per_extent(), Vec::new());
    while b < blocks {
        let (n, dirty) = space.map.dirty_run(e, b, blocks);
        if dirty {
            parts.push((e, b, b + n));
        }
        b += n;
    }
    parts
}

/// For copies on absent members: clean blocks are read from the home from now on. Dirty blocks stay in the copy, so reading them is an
/// error.
pub(super) fn forget_clean(space: &mut Space, missing: &[MemberId]) {
    let blocks = space.geo.blocks_per_extent();
    for e in copies_on(space, missing) {
        // (No record is due: such a session writes none of these.)
        let _ = space.map.copy_invalidate_clean(e, 0, blocks);
        if space.map.copy_is_empty(e) {
            space.map.drop_copy(e);
        }
    }
}
