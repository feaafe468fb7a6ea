//! Opening without some members: what is lost with them, and whether the volume may go on.
//!
//! The survivors' metadata decides. It knows every home if the primary survives, if the volume was closed, or if the mirror
//! was told in time of everything that was acknowledged ([`Follow`]). Of dirty copies a mirror that follows knows at least
//! one whenever there is any: so it can tell "none" from "some", though not which.

use super::error::OpenError;
use super::open::Report;
use super::recover::{Loaded, Session};
use super::superblock::{Follow, Superblock};
use crate::units::{ExtentId, MemberId, Slot};
use crate::volume::Space;
use alloc::vec::Vec;

/// What is lost, and how sure that is. `exact`: the metadata at hand lacks nothing that was acknowledged.
pub(super) fn judge(
    sb: &Superblock,
    loaded: &Loaded,
    session: Session,
    exact: bool,
    report: &mut Report,
) {
    let map = &loaded.space.map;
    report.knows_homes = exact || (session.follow == Follow::Mirror && !loaded.lazy);
    report.unsure = !exact && (!report.knows_homes || map.dirty() > 0);
    // What a dirty copy nobody knows of holds would read as zeros.
    report.incomplete = report.unsure;
    if report.missing.is_empty() {
        return;
    }
    let geo = &loaded.space.geo;
    let lost = |s: Option<Slot>| s.is_some_and(|s| report.missing.contains(&geo.locate(s).0));
    let (mut homes, mut writes) = (0, 0);
    for e in (0..sb.extents).map(ExtentId) {
        homes += u32::from(lost(map.home(e)));
        writes += u32::from(map.is_dirty(e) && lost(map.copy(e)));
    }
    (report.lost_homes, report.lost_writes) = (homes, writes);
}

/// May a session that writes begin?
pub(super) fn allow(
    sb: &Superblock,
    accept_loss: bool,
    report: &mut Report,
) -> Result<(), OpenError> {
    let Some(&member) = report.missing.first() else {
        return Ok(());
    };
    let there = |m: &usize| !report.missing.contains(&MemberId(*m as u8));
    let slots = (0..sb.members.len()).filter(there);
    let slots: u64 = slots.map(|m| u64::from(sb.members[m].slots)).sum();
    // Every extent must find a home among the survivors, or writes would fail one day.
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
    if (report.lost_writes > 0 || report.unsure) && !accept_loss {
        let extents = report.lost_writes;
        return Err(OpenError::LostWrites { member, extents });
    }
    // Whoever accepts the loss wants what the homes hold, and zeros where they hold nothing.
    report.incomplete = false;
    Ok(())
}

/// Extents with a copy on a missing member.
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

/// The copies on missing members count no more; extents that lost writes with them need a record that says so.
pub(super) fn drop_lost(space: &mut Space, report: &mut Report) {
    for e in copies_on(space, &report.missing) {
        if space.map.is_dirty(e) {
            report.dropped.push(e);
        }
        if let Some((slot, _)) = space.map.drop_copy(e) {
            space.slots.put_back(slot);
        }
    }
}

/// What a missing member held clean is read at its home. Dirty blocks stay where they are: reading them is an error.
pub(super) fn forget_clean(space: &mut Space, missing: &[MemberId]) {
    let blocks = space.geo.blocks_per_extent();
    for e in copies_on(space, missing) {
        space.map.copy_doubt(e, 0, blocks);
        if space.map.copy_is_empty(e) {
            space.map.drop_copy(e);
        }
    }
}
