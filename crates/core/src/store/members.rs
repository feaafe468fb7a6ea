//! One more flash device for a cache volume that is closed, or one less. The member table changes as `table.rs` describes. Nothing is
//! renumbered: records name a copy by the identity of its member and the place there, so the other copies stay.
//!
//! ```text
//! plan ─► prepare: dirty data of slots that go ─► home ─► flush ─► the map without them, as a checkpoint ─► *clean*
//!    ─► (the caller adds the device to the members, or takes it away) ─► carry out: its counter, new rings and regions ─► the new table
//! ```
//! The first two flash devices have ring and regions, which must have room for the records of all copies. So they often need larger or other
//! ones. These may not lie where the old ones are, which the old table uses until the new one is durable: they are made in the head of their
//! device if that is free, else in the place of its last slots, as in a tiering volume that grows. Copies in these slots are given up.

use super::counter;
use super::error::OpenError;
use super::grow::{dirty_blocks, forget_copy};
use super::layout::{RING_MAX, RING_MIN};
use super::mutants::broken;
use super::open::{FIRST_COUNTER, Opened};
use super::release::carry;
use super::replace::{clear, clear_carrier};
use super::superblock::{MemberEntry, MemberState, ROWS_MAX, State, Superblock};
use super::table::{Settled, settle};
use super::{BLOCK, Carrier, Media, MetaArea};
use crate::geometry::{Kind, MEMBER_IDS_MAX, MEMBERS_MAX, SLOTS_MAX};
use crate::mutants::Mutant;
use crate::units::{ExtentId, MemberId, Slot};
use crate::volume::Space;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

const TIERING: &str = "it is a tiering volume, whose data lies on all its devices: `isotherm replace` puts another device into the place of one";
const NO_FLASH: &str = "it has no flash";
const LAST: &str = "it is the only flash device: the whole cache must be taken out";
const ALONE: &str = "it is the only device of its tier, and there is other flash: `isotherm replace` puts another device into its place";
const DISK: &str = "it is a disk of the volume, whose homes are there: `isotherm replace` copies it to another one";
const MANY: &str = "the volume has as many members as are possible (16)";
const NO_IDS: &str = "all identities of members were given out";
const TOO_MANY_SLOTS: &str =
    "the volume would have too many extents: it needs larger ones, which are chosen at creation";
const SMALL: &str =
    "it is too small: it needs room for one extent beside the metadata of all flash";
const NO_ROOM: &str = "the present flash is too small for the metadata of all flash together";
const LISTED: &str = "data that was lost earlier is listed, and copies of it may have to be given up: write or discard it first, or accept the loss (`isotherm serve --accept-loss`)";
const MISSING: &str = "a member is missing: attach it, or replace it first";

/// A device that becomes flash of a cache volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFlash {
    /// Its identity, which is random.
    pub uuid: [u8; 16],
    /// Its size in bytes, as far as it is to be used.
    pub bytes: u64,
    /// Its path, as a hint.
    pub hint: String,
}

/// The change of the members, as it was planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashChange {
    /// The place of the new device in the new list of members, or of the one that goes in the old list.
    pub place: MemberId,
    /// Whether a device joins.
    pub joins: bool,
    /// The superblock with the new table, in the session before.
    table: Superblock,
}

/// Plans that a device becomes flash of a cache volume that has flash already.
///
/// # Errors
/// It is impossible; the text says why.
pub fn plan_join(sb: &Superblock, new: &NewFlash) -> Result<FlashChange, &'static str> {
    if sb.kind != Kind::Cache {
        return Err(TIERING);
    }
    if sb.members.len() >= MEMBERS_MAX {
        return Err(MANY);
    }
    if sb.next_id >= MEMBER_IDS_MAX {
        return Err(NO_IDS);
    }
    let first = sb.members.first().filter(|_| sb.is_flash(MemberId(0)));
    let tier = first.ok_or(NO_FLASH)?.tier;
    // Behind the others of its tier, so that the first one stays the primary.
    let place = sb.members.iter().filter(|m| m.tier == tier).count();
    let mut table = sb.clone();
    let row = MemberEntry {
        uuid: new.uuid,
        id: sb.next_id,
        tier,
        counter: FIRST_COUNTER,
        hint: new.hint.clone(),
        ..MemberEntry::default()
    };
    table.members.insert(place, row);
    table.next_id += 1;
    let all = sb
        .members
        .iter()
        .fold(0u32, |n, m| n.saturating_add(m.slots));
    // More copies than extents there cannot be.
    let most = SLOTS_MAX.saturating_sub(all).min(sb.extents);
    if most == 0 {
        return Err(TOO_MANY_SLOTS);
    }
    // This is without its metadata, so it is an upper bound.
    let copies = u32::try_from(new.bytes >> sb.extent_shift).map_or(most, |n| n.min(most));
    let area = area_for(sb, flash(sb).0 + copies, flash(sb).1 + new.bytes);
    if area.region_blocks > sb.area.region_blocks {
        table.area = area;
    }
    let room = table.room(MemberId(place as u8), new.bytes, most);
    if room.slots == 0 {
        return Err(SMALL);
    }
    room.put(&mut table.members[place]);
    arrange(sb, &mut table)?;
    Ok(FlashChange {
        place: MemberId(place as u8),
        joins: true,
        table,
    })
}

/// Plans that one of several flash devices leaves a cache volume.
///
/// # Errors
/// It is impossible; the text says why.
pub fn plan_leave(sb: &Superblock, place: MemberId) -> Result<FlashChange, &'static str> {
    if sb.kind != Kind::Cache {
        return Err(TIERING);
    }
    if sb.is_disk(place) {
        return Err(DISK);
    }
    if sb.is_only_flash(place) {
        return Err(LAST);
    }
    let tier = sb.members.get(usize::from(place.0)).map(|m| m.tier);
    if sb.members.iter().filter(|m| Some(m.tier) == tier).count() < 2 {
        return Err(ALONE);
    }
    let mut table = sb.clone();
    let gone = MemberEntry {
        state: MemberState::Gone,
        ..table.members.remove(usize::from(place.0))
    };
    table.others.push(gone);
    while table.members.len() + table.others.len() > ROWS_MAX {
        table.others.remove(0);
    }
    // The areas have room for more copies than there will be. They stay as they are if they can stay where they are.
    let mut same = table.clone();
    if arrange(sb, &mut same).is_ok() && !moves(sb, &same) {
        table = same;
    } else {
        table.area = area_for(sb, flash(&table).0, flash(&table).1);
        arrange(sb, &mut table)?;
    }
    Ok(FlashChange {
        place,
        joins: false,
        table,
    })
}

/// Slots and bytes of the flash of a cache volume.
fn flash(sb: &Superblock) -> (u32, u64) {
    let all = (0u8..).zip(&sb.members);
    let flash = all.filter(|(i, _)| sb.is_flash(MemberId(*i)));
    flash.fold((0, 0), |(slots, bytes), (_, m)| {
        (slots.saturating_add(m.slots), bytes + m.bytes)
    })
}

/// Metadata areas for so many copies if the flash of `sb` gets so many bytes. The ring keeps its share of the flash, within the limits of a new
/// volume; but a new one takes no more than 1/32 of any device that had the old one.
fn area_for(sb: &Superblock, copies: u32, bytes: u64) -> MetaArea {
    let blocks = 1 << (sb.extent_shift - sb.block_shift);
    let ring = sb.area.ring_blocks;
    let share = u128::from(ring) * u128::from(bytes) / u128::from(flash(sb).1.max(1));
    let carriers = sb.layout().carriers();
    let least = carriers
        .map(|c| sb.members[usize::from(c.member.0)].bytes)
        .min();
    let most = least.map_or(0, |bytes| bytes / 32 / BLOCK as u64);
    let ring_blocks = share.min(most.into()).min(ring.max(RING_MAX).into()) as u32;
    MetaArea {
        ring_blocks: ring_blocks.max(ring.min(RING_MIN)),
        region_blocks: MetaArea::region_of(sb.kind, sb.recorded(copies), copies, blocks),
    }
}

/// The row of a member in another table, by its identity.
fn row_of(sb: &Superblock, id: u16) -> Option<(MemberId, &MemberEntry)> {
    let i = sb.members.iter().position(|m| m.id == id)?;
    Some((MemberId(i as u8), &sb.members[i]))
}

/// The bytes of rings and regions on a member.
fn areas_on(sb: &Superblock, m: MemberId) -> Vec<Range<u64>> {
    let on = sb.layout().carriers().filter(|c| c.member == m);
    on.map(|c| c.ring_at..c.ring_at + sb.area.bytes()).collect()
}

/// Whether rings and regions of a member that stays are in another place.
fn moves(old: &Superblock, table: &Superblock) -> bool {
    let behind = |m: &MemberEntry| row_of(old, m.id).map(|(_, o)| o.behind_at);
    (table.members.iter()).any(|m| m.behind_at != 0 && behind(m) != Some(m.behind_at))
}

/// Finds places for the rings and regions of `table` on the flash that was there before, beside those of `old`.
fn arrange(old: &Superblock, table: &mut Superblock) -> Result<(), &'static str> {
    for i in (0..table.members.len() as u8).map(MemberId) {
        let Some((o, was)) = row_of(old, table.members[usize::from(i.0)].id) else {
            continue;
        };
        if table.is_disk(i) {
            continue;
        }
        let used = areas_on(old, o);
        let need = table.layout().copies_on(i) * table.area.bytes();
        let slots_end = |slots: u32| was.data_offset + (u64::from(slots) << old.extent_shift);
        let in_head = (0, was.slots, slots_end(was.slots));
        let as_before = (was.behind_at, was.slots, was.bytes);
        let at_end = |end: u64| {
            let at = end.saturating_sub(need) / BLOCK as u64 * BLOCK as u64;
            let slots = at.saturating_sub(was.data_offset) >> old.extent_shift;
            (at, was.slots.min(slots as u32), was.bytes)
        };
        let below = if was.behind_at == 0 {
            was.bytes
        } else {
            was.behind_at
        };
        let places = [as_before, in_head, at_end(was.bytes), at_end(below)];
        let fits = places.into_iter().find(|&(behind_at, slots, bytes)| {
            let m = &mut table.members[usize::from(i.0)];
            (m.behind_at, m.slots, m.bytes) = (behind_at, slots, bytes);
            let is_free = |new: &Range<u64>| {
                let apart = |u: &Range<u64>| u.end <= new.start || new.end <= u.start;
                used.iter()
                    .all(|u| u == new && table.area == old.area || apart(u))
            };
            // (A device without such areas has none behind its slots either.)
            let is_possible = slots > 0 && (need > 0 || behind_at == 0);
            is_possible
                && table.plausible_places(usize::from(i.0)).is_ok()
                && areas_on(table, i).iter().all(is_free)
        });
        fits.ok_or(NO_ROOM)?;
    }
    Ok(())
}

impl FlashChange {
    /// The slots of each member afterwards.
    pub fn slots(&self) -> Vec<u32> {
        self.table.members.iter().map(|m| m.slots).collect()
    }

    /// The superblock with the new table, in the session before.
    pub fn table(&self) -> &Superblock {
        &self.table
    }

    /// The slots of the volume before that are given up.
    fn given_up<'a>(
        &'a self,
        space: &'a Space,
        old: &'a Superblock,
    ) -> impl Iterator<Item = Slot> + 'a {
        let members = space.geo.members.iter().zip(&old.members);
        members.flat_map(|(m, row)| {
            let left = row_of(&self.table, row.id).map_or(0, |(_, now)| now.slots);
            (m.first_slot + left.min(m.slots)..m.first_slot + m.slots).map(Slot)
        })
    }

    /// The copies in slots that are given up.
    fn copies(&self, space: &Space, old: &Superblock) -> Vec<(ExtentId, Slot)> {
        let copied = |s: Slot| Some((space.map.copied_in(s)?.0, s));
        self.given_up(space, old).filter_map(copied).collect()
    }

    /// Ends the session that has just begun with `opened`, before an engine used it: takes the slots that are given up out of use, writes their
    /// dirty data home, through `piece`, and closes the volume. Returns the number of bytes that went home, too.
    ///
    /// # Errors
    /// A member is missing, other than one that leaves; data is listed as lost; or a device fails. The volume is as it was before.
    pub fn prepare<M: Media + ?Sized>(
        &self,
        media: &mut M,
        opened: &mut Opened,
        piece: &mut [u8],
    ) -> Result<(Settled, u64), OpenError> {
        let leaves = |m: &MemberId| !self.joins && *m == self.place;
        if !opened.report.missing.iter().all(leaves) {
            return Err(OpenError::BadTable(MISSING));
        }
        if !opened.space.lost.is_empty() {
            return Err(OpenError::BadTable(LISTED));
        }
        let copies = self.copies(&opened.space, &opened.superblock);
        let (space, mut dirty) = (&opened.space, Vec::new());
        for &(e, copy) in &copies {
            if let Some(home) = space.map.home(e) {
                dirty_blocks(space, e, (copy, home), &mut dirty);
            }
        }
        let home = if broken(media, Mutant::LeaveForgetsDirty) {
            0
        } else {
            carry(media, &dirty, piece)?
        };
        let late = broken(media, Mutant::SettleBeforeVacate);
        let vacate = |space: &mut Space| copies.iter().for_each(|c| forget_copy(space, c.0));
        if late {
            let settled = settle(media, opened)?;
            vacate(&mut opened.space);
            return Ok((settled, home));
        }
        vacate(&mut opened.space);
        Ok((settle(media, opened)?, home))
    }

    /// Changes the table of the volume that [`FlashChange::prepare`] has closed. `media` has the members as they are afterwards. `epoch` is a
    /// new random number. Returns the superblock of the volume, which is closed.
    ///
    /// # Errors
    /// A device fails. The volume can be opened: as it was before, or, if superblocks were written already, with the new table.
    pub fn carry_out<M: Media + ?Sized>(
        &self,
        media: &mut M,
        opened: &Opened,
        settled: &Settled,
        epoch: u64,
    ) -> Result<Superblock, OpenError> {
        let old = &settled.superblock;
        let sb = Superblock {
            members: self.table.members.clone(),
            others: self.table.others.clone(),
            next_id: self.table.next_id,
            area: self.table.area,
            absent: 0,
            ..old.clone()
        };
        let mut sb = settled.next_session(sb, epoch)?;
        let mut counters = settled.counters.clone();
        counters.retain(|k| sb.members.iter().any(|m| m.id == k.0));
        if self.joins {
            let id = sb.members[usize::from(self.place.0)].id;
            counter::learn(&mut counters, id, FIRST_COUNTER);
            clear(media, &sb, self.place, &counters, &opened.space)?;
        }
        for c in sb.layout().carriers().filter(|c| is_new(old, &sb, c)) {
            clear_carrier(media, &sb, c)?;
        }
        // Records name the slots as before: the identities of the members that stay, and the places there, are the same.
        let first = self.joins && !broken(media, Mutant::SuccessorLast);
        let (map, geo) = (&opened.space.map, &opened.space.geo);
        settled.change(media, &sb, map, geo, &counters, first.then_some(self.place))?;
        sb.state = State::Clean;
        Ok(sb)
    }
}

/// Whether nothing of the volume was in this place before.
fn is_new(old: &Superblock, sb: &Superblock, c: &Carrier) -> bool {
    let was = row_of(old, sb.members[usize::from(c.member.0)].id);
    let here = c.ring_at..c.ring_at + sb.area.bytes();
    was.is_none_or(|(o, _)| !areas_on(old, o).contains(&here))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use crate::store::superblock::Shape;
    use crate::units::TierId;

    /// A cache volume of 64 KiB extents with flash of so many slots, placed as `create` does.
    fn volume(flash: &[u32]) -> Superblock {
        let entry = |tier: u8, slots: u32| MemberEntry {
            uuid: [slots as u8 ^ tier; 16],
            tier: TierId(tier),
            slots,
            ..MemberEntry::default()
        };
        let mut members: Vec<MemberEntry> = flash.iter().map(|&n| entry(0, n)).collect();
        members.push(entry(1, 200_000));
        let copies = flash.iter().sum();
        let shape = Shape {
            kind: Kind::Cache,
            extent_shift: 16,
            block_shift: 12,
            extents: 200_000,
            area: MetaArea::of(Kind::Cache, copies, copies, 16, u64::from(copies) << 16),
        };
        Superblock::new([7; 16], 1, shape, members).placed(1 << 20)
    }

    /// Devices join and leave at random: each table is possible, has room for the records of all copies, keeps what stays in its place, and
    /// areas never overlap those of before, but for those that are the same.
    #[test]
    fn areas_never_overlap_those_of_before() {
        let mut random = SplitMix64::new(3);
        let (mut moved, mut gave_up, mut refused) = (0, 0, 0);
        for _ in 0..200 {
            let first = 5000 + random.below(40_000) as u32;
            let all = [first, 5000 + random.below(20_000) as u32];
            let mut sb = volume(&all[..=random.below(2) as usize]);
            for step in 0..8u8 {
                let flash = sb.members.len() - 1;
                let planned = if flash > 1 && random.below(2) == 0 {
                    plan_leave(&sb, MemberId(random.below(flash as u64) as u8))
                } else {
                    let new = NewFlash {
                        uuid: [100 + step; 16],
                        bytes: (300 << 20) + random.below(3 << 30),
                        hint: String::new(),
                    };
                    plan_join(&sb, &new)
                };
                let Ok(planned) = planned else {
                    refused += 1;
                    continue;
                };
                let now = planned.table();
                assert_eq!(Superblock::decode(&now.encode()).as_ref(), Ok(now));
                assert!(now.has_room_for_copies());
                for (i, m) in (0u8..).zip(&now.members) {
                    let Some((o, was)) = row_of(&sb, m.id) else {
                        continue;
                    };
                    assert_eq!((m.data_offset, m.tier), (was.data_offset, was.tier));
                    assert!(
                        m.slots <= was.slots && m.slots * 10 >= was.slots * 8,
                        "{was:?}"
                    );
                    gave_up += u32::from(m.slots < was.slots);
                    moved += u32::from(m.behind_at != was.behind_at);
                    for new in areas_on(now, MemberId(i)) {
                        let same = |old: &Range<u64>| *old == new && now.area == sb.area;
                        let apart = |old: &Range<u64>| old.end <= new.start || new.end <= old.start;
                        let old = areas_on(&sb, o);
                        assert!(
                            old.iter().all(|old| same(old) || apart(old)),
                            "{old:?} {new:?}"
                        );
                    }
                }
                sb = now.clone();
            }
        }
        assert!(
            moved > 100 && gave_up > 100 && refused < 200,
            "{moved} {gave_up} {refused}"
        );
    }

    #[test]
    fn what_is_impossible_is_said() {
        let mut sb = volume(&[1000, 500]);
        assert_eq!(plan_leave(&sb, MemberId(2)), Err(DISK));
        let new = |bytes| NewFlash {
            uuid: [9; 16],
            bytes,
            hint: String::new(),
        };
        assert_eq!(plan_join(&sb, &new(1 << 20)), Err(SMALL));
        assert_eq!(plan_leave(&volume(&[1000]), MemberId(0)), Err(LAST));
        sb.next_id = MEMBER_IDS_MAX;
        assert_eq!(plan_join(&sb, &new(1 << 30)), Err(NO_IDS));
        sb.members[1].tier = TierId(1);
        sb.members[2].tier = TierId(2);
        assert_eq!(plan_leave(&sb, MemberId(1)), Err(ALONE));
        let full = volume(&[500; MEMBERS_MAX - 1]);
        assert_eq!(plan_join(&full, &new(1 << 30)), Err(MANY));
        sb.kind = Kind::Tiering;
        assert_eq!(plan_leave(&sb, MemberId(0)), Err(TIERING));
    }
}
