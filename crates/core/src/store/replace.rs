//! Replacement of a member by another device, in a volume that is closed. The member table changes as `table.rs` describes.

use super::counter::{self, Counter, Known};
use super::error::OpenError;
use super::layout::STAMP_AT;
use super::lost;
use super::mutants::broken;
use super::open::{FIRST_COUNTER, Opened};
use super::recover::CHUNK;
use super::superblock::{MemberEntry, MemberState, ROWS_MAX, Room, State, Superblock};
use super::table::Settled;
use super::unfinished::Unfinished;
use super::{BLOCK, Carrier, Media, MetaArea};
use crate::mutants::Mutant;
use crate::units::{ExtentId, MemberId, Slot};
use crate::volume::Space;
use crate::volume::geometry::{Kind, MEMBER_IDS_MAX};
use crate::volume::regions::Regions;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The device that takes the place of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The place of the member in the member list.
    pub place: MemberId,
    /// The identity of the new device, which is random.
    pub uuid: [u8; 16],
    /// The places on it ([`Superblock::room`]).
    pub room: Room,
    /// Its path, as a hint.
    pub hint: String,
    /// Whether it already holds the bytes of all slots of the member that are in use, at the same indices. Otherwise the member must hold
    /// nothing that the volume needs.
    pub holds_data: bool,
    /// New sizes of the metadata areas. Only the first of a cache volume's flash, which has nothing but clean copies and no other flash
    /// beside it, may bring them: then no other member has such areas.
    pub area: Option<MetaArea>,
}

/// What the volume would lose if the member in this place were replaced by an empty device: the number of extents with their home there,
/// and of those with a dirty copy there.
pub fn held_by(space: &Space, place: MemberId) -> (u32, u32) {
    let (mut homes, mut writes) = (0, 0);
    let first = (space.geo.members.get(usize::from(place.0))).map_or(0, |m| m.first_slot);
    for (e, index) in slots_of(space, place, 0..space.geo.extents) {
        let is_copy = space.map.copy(e) == Some(Slot(first + index));
        homes += u32::from(!is_copy);
        writes += u32::from(is_copy && space.map.is_dirty(e));
    }
    (homes, writes)
}

/// The slots of this member that hold data of the volume, as indices from its first slot on, ascending.
pub fn slots_in_use(space: &Space, place: MemberId) -> Vec<u32> {
    let all = slots_of(space, place, 0..space.geo.extents);
    let mut used: Vec<u32> = all.map(|(_, index)| index).collect();
    used.sort_unstable();
    used
}

/// The slots of this member that hold data of these extents, each with its extent, as indices from the member's first slot on. In a cache volume
/// a disk is not searched, and of flash, if these are all extents, only its slots are.
pub fn slots_of(
    space: &Space,
    place: MemberId,
    extents: Range<u32>,
) -> impl Iterator<Item = (ExtentId, u32)> {
    let (geo, map) = (&space.geo, &space.map);
    let member = geo.members.get(usize::from(place.0));
    let (first, end) = member.map_or((0, 0), |m| (m.first_slot, m.first_slot + m.slots));
    // Homes of a disk, slots of flash, and extents that are asked one by one.
    let (mut homes, mut copies, mut each) = (0..0, 0..0, 0..0);
    let fast = geo.tier_slots(geo.slowest()).start;
    if geo.is_cache() && first >= fast {
        let (from, to) = (first - fast, end - fast);
        homes = extents.start.max(from)..extents.end.min(to);
    } else if geo.is_cache() && extents == (0..geo.extents) {
        copies = first..end;
    } else {
        each = extents;
    }
    let homes = homes.map(move |e| (ExtentId(e), fast + e - first));
    let copies = copies.filter_map(move |s| Some((map.owner(Slot(s))?, s - first)));
    let each = each.map(ExtentId).flat_map(move |e| {
        let both = map.home(e).into_iter().chain(map.copy(e));
        both.filter(move |s| (first..end).contains(&s.0))
            .map(move |s| (e, s.0 - first))
    });
    homes.chain(copies).chain(each)
}

/// Puts `successor` into the place of a member. `media` has the new device in that place. `epoch` is a new random number. Returns the
/// superblock of the volume, which is closed.
///
/// # Errors
/// The member holds data that the successor does not have, the new table is impossible, or a device fails. After a failure the volume can
/// be opened: as it was before, or, if superblocks were written already, with the successor.
pub fn replace<M: Media + ?Sized>(
    media: &mut M,
    opened: &mut Opened,
    settled: &Settled,
    successor: &Successor,
    epoch: u64,
) -> Result<Superblock, OpenError> {
    let place = successor.place;
    if !successor.holds_data {
        let (homes, writes) = held_by(&opened.space, place);
        if homes > 0 {
            return Err(OpenError::LostHomes {
                member: place,
                extents: homes,
            });
        }
        if writes > 0 {
            return Err(OpenError::LostWrites {
                member: place,
                extents: writes,
            });
        }
        drop_copies(&mut opened.space, place);
    }
    let mut sb = with_successor(&settled.superblock, successor)?;
    sb.absent &= !(1 << place.0);
    let mut sb = settled.next_session(sb, epoch)?;
    let mut counters = settled.counters.clone();
    counters.retain(|k| sb.members.iter().any(|m| m.id == k.0));
    counter::learn(
        &mut counters,
        sb.members[usize::from(place.0)].id,
        FIRST_COUNTER,
    );
    clear(media, &sb, place, &counters, &opened.space)?;
    // The slots keep their numbers in the map; only the identity by which records name the member changes.
    let named = if broken(media, Mutant::ReplaceOldIdentity) {
        &settled.superblock
    } else {
        &sb
    };
    let ids = named.members.iter().map(|m| m.id).collect();
    let geo = opened.space.geo.clone();
    let geo = geo.with_ids(ids).map_err(OpenError::BadSuccessor)?;
    let first = (!broken(media, Mutant::SuccessorLast)).then_some(place);
    settled.change(media, &sb, &opened.space.map, &geo, &counters, first)?;
    sb.state = State::Clean;
    Ok(sb)
}

/// The superblock with `successor` in the member table, and the former member among those that are gone.
fn with_successor(sb: &Superblock, successor: &Successor) -> Result<Superblock, OpenError> {
    let mut sb = sb.clone();
    let slowest = sb.members.iter().map(|m| m.tier).max();
    if sb.next_id >= MEMBER_IDS_MAX {
        return Err(OpenError::BadSuccessor(
            "all identities of members were given out",
        ));
    }
    let Some(row) = sb.members.get(usize::from(successor.place.0)) else {
        return Err(OpenError::BadSuccessor("the volume has no such member"));
    };
    let gone = MemberEntry {
        state: MemberState::Gone,
        ..row.clone()
    };
    let fixed = sb.kind == Kind::Cache && Some(gone.tier) == slowest;
    if fixed && successor.room.slots != gone.slots {
        return Err(OpenError::BadSuccessor(
            "the homes on the disks of a cache volume have fixed addresses, so a successor has as many extents as the disk before",
        ));
    }
    if successor.holds_data && successor.room.slots < gone.slots {
        return Err(OpenError::BadSuccessor(
            "it has fewer slots than the member whose data it holds",
        ));
    }
    let areas = match successor.area {
        Some(_) if successor.holds_data => Err("its metadata areas are those of the member before"),
        Some(_) if !sb.is_only_flash(successor.place) => {
            Err("other flash has metadata areas of the old size")
        }
        area => Ok(area),
    };
    let area = areas.map_err(OpenError::BadSuccessor)?;
    sb.area = area.unwrap_or(sb.area);
    let row = &mut sb.members[usize::from(successor.place.0)];
    *row = MemberEntry {
        uuid: successor.uuid,
        id: sb.next_id,
        tier: gone.tier,
        counter: FIRST_COUNTER,
        hint: successor.hint.clone(),
        ..MemberEntry::default()
    };
    successor.room.put(row);
    sb.others.push(gone);
    while sb.members.len() + sb.others.len() > ROWS_MAX {
        sb.others.remove(0);
    }
    sb.next_id += 1;
    Ok(sb)
}

/// Drops the copies on this member, none of which is dirty.
fn drop_copies(space: &mut Space, place: MemberId) {
    let fast = space.geo.tier_slots(space.geo.slowest()).start;
    for s in (0..fast).map(Slot) {
        if space.geo.locate(s).0 != place {
            continue;
        }
        if let Some(e) = space.map.owner(s).filter(|&e| space.map.copy(e) == Some(s)) {
            space.map.drop_copy(e);
        }
    }
}

/// Makes that nothing in the rings and regions on a member is taken for a block of this volume. It may have been one before, or hold data.
pub(super) fn clear_areas<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    place: MemberId,
) -> Result<(), OpenError> {
    let mut carriers = sb.layout().carriers().filter(|c| c.member == place);
    carriers.try_for_each(|c| clear_carrier(media, sb, c))
}

/// The same for one ring and its regions.
pub(super) fn clear_carrier<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    c: Carrier,
) -> Result<(), OpenError> {
    if broken(media, Mutant::KeepOldRing) {
        return Ok(());
    }
    let (layout, place, zeros) = (sb.layout(), c.member, vec![0; CHUNK * BLOCK]);
    let (mut at, end) = (c.ring_at, c.ring_at + layout.area.ring_bytes());
    while at < end {
        let n = (end - at).min(zeros.len() as u64);
        media.write(place, at, &zeros[..n as usize])?;
        at += n;
    }
    for region in 0..2 {
        media.write(place, layout.region_offset(c, region), &zeros[..BLOCK])?;
    }
    Ok(())
}

/// Makes the successor an empty member: no stamp, new counters, the list of what is lost, and no block of an earlier use of the device in ring and regions. (It may
/// have been a member of this volume before.)
pub(super) fn clear<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    place: MemberId,
    counters: &Known,
    space: &Space,
) -> Result<(), OpenError> {
    // While the successor is not complete, it must not look like a member.
    let mut head = [0; BLOCK];
    let kept = media.read(place, 0, &mut head).is_ok()
        && Unfinished::decode(&head).is_some_and(|u| u.volume == sb.uuid);
    for at in [0, sb.copy_offset(place), STAMP_AT] {
        // What says that it is an unfinished copy says so until it is a member.
        if at > 0 || !kept {
            media.write(place, at, &[0; BLOCK])?;
        }
    }
    clear_areas(media, sb, place)?;
    if sb.is_disk(place) {
        // Without flash, every region that is named would count as lost at the next opening.
        let dirty = if broken(media, Mutant::ReplaceNamesNothing) {
            Regions::default()
        } else {
            space.map.regions().dirty()
        };
        lost::renew(media, sb, place, &dirty, &space.lost)?;
    }
    for value in [FIRST_COUNTER - 1, FIRST_COUNTER] {
        let c = Counter::of(sb, place, value, 0, counters);
        media.write(place, counter::offset(value), &c.encode(&sb.uuid))?;
    }
    Ok(media.flush(place)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Geometry, Member, Stash};
    use crate::random::SplitMix64;
    use crate::units::TierId;

    /// What is found is what a look at every extent finds, for each member and for any extents.
    #[test]
    fn slots_are_found_without_a_look_at_every_extent() {
        let m = |tier, slots| Member {
            tier: TierId(tier),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: Stash::default(),
        };
        let members = vec![m(0, 7), m(0, 9), m(1, 30), m(1, 34)];
        let geo = Geometry::new(16, 12, 64, members).expect("possible");
        let geo = geo.of_kind(Kind::Cache).expect("possible");
        let mut random = SplitMix64::new(5);
        for _ in 0..50 {
            let mut space = Space::new(geo.clone());
            for s in (0..16).map(Slot) {
                let e = ExtentId(random.below(64) as u32);
                if random.below(3) > 0 && space.map.copy(e).is_none() {
                    space.map.add_empty_copy(e, s);
                    space.map.copy_dirty(e, 0, 1 + random.below(3) as u32);
                    if random.below(2) == 0 {
                        space.map.copy_cleaned(e, 0, 16);
                    }
                }
            }
            for (i, place) in (0..4).map(|i| (i, MemberId(i as u8))) {
                let m = &geo.members[i];
                let on = |s: &Slot| (m.first_slot..m.first_slot + m.slots).contains(&s.0);
                let a = random.below(64) as u32;
                for range in [0..64, a..a + random.below(u64::from(65 - a)) as u32] {
                    let mut naive = Vec::new();
                    for e in range.clone().map(ExtentId) {
                        let both = [space.map.home(e), space.map.copy(e)];
                        let here = both.into_iter().flatten().filter(on);
                        naive.extend(here.map(|s| (e, s.0 - m.first_slot)));
                    }
                    let mut found: Vec<_> = slots_of(&space, place, range).collect();
                    found.sort_unstable();
                    naive.sort_unstable();
                    assert_eq!(found, naive, "member {i}");
                }
                let dirty = |e: &ExtentId| {
                    space.map.is_dirty(*e) && space.map.copy(*e).is_some_and(|s| on(&s))
                };
                let writes = (0..64).map(ExtentId).filter(dirty).count() as u32;
                let homes = if i < 2 { 0 } else { m.slots };
                assert_eq!(held_by(&space, place), (homes, writes));
            }
        }
    }
}
