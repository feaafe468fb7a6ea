//! Growth of a volume that is closed, after devices of its slowest tier have become larger. For cache volumes: `grow_cache.rs`, and for their
//! flash `grow_flash.rs`.
//!
//! The metadata areas were made for the volume's size at creation. If the checkpoint regions have no room for the new number of extents,
//! larger ones are made behind the slots of primary and mirror. On a faster tier this takes the last slots of the member; dirty copies there
//! are written home, and homes move to the slowest tier. If that has no room yet, the volume first gets the new slots and keeps its size
//! ([`Growth::first_step`]). The old regions stay as they are until the new member table is durable (`table.rs`), so each table has its own regions.

use super::error::OpenError;
use super::grow_cache;
use super::grow_flash;
use super::mutants::broken;
use super::open::Opened;
use super::superblock::{State, Superblock};
use super::table::settle;
use super::{BLOCK, Media, MetaArea};
use crate::mutants::Mutant;
use crate::units::{ExtentId, MemberId, Slot, TierId};
use crate::volume::Space;
use crate::volume::geometry::{Kind, SLOTS_MAX};
use alloc::vec;
use alloc::vec::Vec;

/// The shape of a volume that has grown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Number of extents.
    pub extents: u32,
    /// Slots of each member. Those of primary and mirror may become fewer, if they are on a faster tier.
    pub slots: Vec<u32>,
    /// Bytes that the volume uses of each member.
    pub(super) bytes: Vec<u64>,
    /// New places of what lies behind the slots, by member; 0: unchanged.
    pub(super) behind_at: Vec<u64>,
    /// The sizes of the metadata areas.
    pub(super) area: MetaArea,
}

/// A range that must be copied, and flushed at its new place, before the volume can grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Member and byte where it is.
    pub from: (MemberId, u64),
    /// Member and byte where it must be.
    pub to: (MemberId, u64),
    /// Number of bytes.
    pub bytes: u32,
}

/// The data in slots that a growth takes away.
#[derive(Default)]
struct GivenUp {
    /// Extents with their home there, and the homes that they get.
    homes: Vec<(ExtentId, Slot)>,
    /// Extents whose copy is dropped, because its slot or that of the home is given up, and the homes that they have then.
    copies: Vec<(ExtentId, Slot)>,
    /// Number of homes for which there is no free slot.
    lacking: u32,
}

/// Number of slots for data: all slots minus a reserve, because full tiers could not exchange extents without free slow slots. With
/// `caching` only the slots of the slowest tier count, because copies add no capacity. `slots` are those of the slowest tier and of the
/// others. `None`: there is no room for the reserve.
pub fn extents_of((slow, fast): (u32, u32), caching: bool) -> Option<u32> {
    if caching {
        return Some(slow).filter(|&n| n > 0);
    }
    let reserve = if fast == 0 {
        0
    } else {
        (slow / 16).clamp(2, 64)
    };
    slow.checked_add(fast)?
        .checked_sub(reserve)
        .filter(|&n| n > 0 && reserve <= slow)
}

const SMALL: &str = "no device of the slowest tier has become large enough for another extent";

/// Whether a device of the slowest tier has room for one more extent than what the volume uses of it, metadata that has moved to its end included.
fn has_grown(sb: &Superblock, sizes: &[u64]) -> bool {
    let slowest = sb.members.iter().map(|m| m.tier).max();
    let mut slow = sb
        .members
        .iter()
        .zip(sizes)
        .filter(|(m, _)| Some(m.tier) == slowest);
    slow.any(|(m, &size)| size >= m.bytes + (1 << sb.extent_shift))
}

/// Plans the growth to devices of these sizes in bytes, one for each member.
///
/// # Errors
/// The volume would not become larger, or it is impossible; the text says why.
pub fn plan_growth(sb: &Superblock, sizes: &[u64]) -> Result<Growth, &'static str> {
    let slowest = sb.members.iter().map(|m| m.tier).max().unwrap_or(TierId(0));
    let is_slow = |i: usize| sb.members[i].tier == slowest;
    let sum = |slots: &[u32], slow: bool| -> u32 {
        let of = (0..slots.len()).filter(|&i| is_slow(i) == slow);
        of.map(|i| slots[i]).fold(0, u32::saturating_add)
    };
    let old: Vec<u32> = sb.members.iter().map(|m| m.slots).collect();
    if sb.kind == Kind::Cache {
        return grow_cache::plan(sb, sizes);
    }
    let total = |slots: &[u32]| extents_of((sum(slots, true), sum(slots, false)), false);
    let most: Vec<u32> = (0..sb.members.len())
        .map(|i| {
            if is_slow(i) {
                room(sb, i, sizes[i], 0)
            } else {
                old[i]
            }
        })
        .collect();
    let grown = total(&most).filter(|&n| n > sb.extents && has_grown(sb, sizes));
    let extents = grown.ok_or(SMALL)?;
    let blocks = 1 << (sb.extent_shift - sb.block_shift);
    let need = |extents: u32| {
        let copies = sum(&old, false);
        let least = MetaArea::for_volume(extents, blocks, 0).region_blocks;
        least.max(MetaArea::region_for(extents, copies, blocks))
    };
    let was_moved = (0..sb.members.len()).any(|i| is_slow(i) && sb.members[i].behind_at != 0);
    let region_blocks = need(extents).max(sb.area.region_blocks);
    let mut slots = most;
    let behind_at = if region_blocks > sb.area.region_blocks || was_moved {
        larger_regions(sb, sizes, region_blocks, &mut slots)?
    } else {
        vec![0; old.len()]
    };
    let extents = total(&slots).filter(|&n| n > sb.extents).ok_or(SMALL)?;
    if slots.iter().fold(0, |n: u32, s| n.saturating_add(*s)) > SLOTS_MAX {
        return Err(
            "the volume would have too many extents: it needs larger ones, which are chosen at creation",
        );
    }
    let past = |i: usize| match behind_at[i] {
        0 => sb.members[i].data_offset + (u64::from(slots[i]) << sb.extent_shift),
        at => at + 2 * u64::from(region_blocks) * BLOCK as u64,
    };
    let bytes = (0..slots.len()).map(|i| past(i).max(sb.members[i].bytes));
    Ok(Growth {
        extents,
        bytes: bytes.collect(),
        slots,
        behind_at,
        area: MetaArea {
            region_blocks,
            ..sb.area
        },
    })
}

/// The places of checkpoint regions of `region_blocks` blocks behind the slots, by member; 0: it has none. They take slots away from `slots`.
fn larger_regions(
    sb: &Superblock,
    sizes: &[u64],
    region_blocks: u32,
    slots: &mut [u32],
) -> Result<Vec<u64>, &'static str> {
    let slowest = sb.members.iter().map(|m| m.tier).max();
    let is_slow = |i: usize| Some(sb.members[i].tier) == slowest;
    let layout = sb.layout();
    let carries = |i: usize| layout.carries(MemberId(i as u8));
    let mut behind_at = vec![0; slots.len()];
    let space = 2 * u64::from(region_blocks) * BLOCK as u64;
    for i in (0..slots.len()).filter(|&i| carries(i)) {
        let (m, at) = (&sb.members[i], sb.members[i].behind_at);
        // The old regions are in use until the new table is. A device that has not grown has room only below them.
        let end = if at != 0 && !is_slow(i) { at } else { sizes[i] };
        slots[i] = room(sb, i, end, space).min(slots[i]);
        behind_at[i] = m.data_offset + (u64::from(slots[i]) << sb.extent_shift);
        if at != 0 && is_slow(i) && behind_at[i] < at + sb.area.regions_bytes() {
            return Err(
                "it has become only a little larger: the metadata of the larger volume has no room beside the present one",
            );
        }
        if slots[i] == 0 {
            return Err(
                "the fast tier is too small for the metadata of the larger volume: replace it by a larger device first (`isotherm replace`)",
            );
        }
    }
    Ok(behind_at)
}

/// Number of slots of member `i` that end `behind` bytes before byte `end`.
fn room(sb: &Superblock, i: usize, end: u64, behind: u64) -> u32 {
    let bytes = end.saturating_sub(sb.members[i].data_offset + behind);
    u32::try_from(bytes >> sb.extent_shift).unwrap_or(SLOTS_MAX)
}

impl Growth {
    /// Puts the new shape into the member table of the superblock for which it was planned.
    pub fn put(&self, sb: &mut Superblock) {
        (sb.extents, sb.area) = (self.extents, self.area);
        for (i, m) in sb.members.iter_mut().enumerate() {
            (m.slots, m.bytes) = (self.slots[i], self.bytes[i]);
            if self.behind_at[i] != 0 {
                m.behind_at = self.behind_at[i];
            }
        }
    }
    /// The growth in which members of the slowest tier only get their new slots: it makes room for homes that must move before this growth.
    /// `None`: it would change nothing, or the checkpoint regions are in the way. In a cache volume it is the growth after which the tail of
    /// the last disk is at its new end, so that nothing is left where slots come; `None`: it is there already.
    pub fn first_step(&self, sb: &Superblock) -> Option<Growth> {
        if sb.kind == Kind::Cache {
            return self.tail_first(sb);
        }
        let slowest = sb.members.iter().map(|m| m.tier).max()?;
        // Nothing is given up in this step.
        let slots = sb.members.iter().zip(&self.slots).map(|(m, &slots)| {
            if m.tier == slowest {
                slots.max(m.slots)
            } else {
                m.slots
            }
        });
        let slots: Vec<u32> = slots.collect();
        let end = |i: usize| sb.members[i].data_offset + (u64::from(slots[i]) << sb.extent_shift);
        let fits = |i: usize| sb.members[i].behind_at == 0 || end(i) <= sb.members[i].behind_at;
        let more = sb.members.iter().zip(&slots).any(|(m, &n)| n > m.slots);
        (more && (0..slots.len()).all(fits)).then(|| Growth {
            extents: sb.extents,
            bytes: (0..slots.len())
                .map(|i| end(i).max(sb.members[i].bytes))
                .collect(),
            behind_at: vec![0; slots.len()],
            area: sb.area,
            slots: slots.clone(),
        })
    }

    /// Whether the volume or its cache becomes larger.
    pub fn changes(&self, sb: &Superblock) -> bool {
        let slots = sb.members.iter().map(|m| m.slots);
        self.extents != sb.extents || !slots.eq(self.slots.iter().copied())
    }

    /// Whether flash of a cache volume gets more slots.
    fn slots_of_flash(&self, sb: &Superblock) -> bool {
        let all = (0..sb.members.len() as u8).map(MemberId);
        let mut flash = all.filter(|m| sb.is_flash(*m)).map(|m| usize::from(m.0));
        flash.any(|i| self.slots[i] != sb.members[i].slots)
    }

    fn keeps(&self, space: &Space, s: Slot) -> bool {
        let member = space.geo.locate(s).0;
        space.geo.member_slot(s).index < self.slots[usize::from(member.0)]
    }

    fn given_up(&self, space: &Space) -> GivenUp {
        let (geo, map) = (&space.geo, &space.map);
        if geo.is_cache() {
            return GivenUp::default();
        }
        let slow = geo.tier_slots(geo.slowest());
        let mut free = (slow.start..slow.end)
            .map(Slot)
            .filter(|&s| space.slots.is_free(s) && self.keeps(space, s));
        let mut out = GivenUp {
            homes: Vec::new(),
            copies: Vec::new(),
            lacking: 0,
        };
        for e in (0..geo.extents).map(ExtentId) {
            let Some(home) = map.home(e) else { continue };
            let mut next = home;
            if !self.keeps(space, home) {
                match free.next() {
                    Some(to) => {
                        out.homes.push((e, to));
                        next = to;
                    }
                    None => out.lacking += 1,
                }
            }
            let copy = map.copy(e);
            if copy.is_some_and(|c| next != home || !self.keeps(space, c)) {
                out.copies.push((e, next));
            }
        }
        out
    }

    /// Whether [`Growth::first_step`] must be done first, on a volume with this superblock and map.
    pub fn needs_step(&self, sb: &Superblock, space: &Space) -> bool {
        self.lacking(space) > 0 || (sb.kind == Kind::Cache && self.tail_first(sb).is_some())
    }

    /// Number of extents that must move to the slowest tier and for which it has no free slot.
    pub fn lacking(&self, space: &Space) -> u32 {
        self.given_up(space).lacking
    }

    /// The ranges that must be copied first, in this order, because their slots are given up: homes, and dirty blocks of copies.
    pub fn transfers(&self, space: &Space) -> Vec<Transfer> {
        let (map, geo) = (&space.map, &space.geo);
        let given = self.given_up(space);
        let mut all = Vec::new();
        for (e, to) in given.homes {
            let Some(from) = map.home(e) else { continue };
            all.push(Transfer {
                from: geo.locate(from),
                to: geo.locate(to),
                bytes: geo.extent_bytes(),
            });
        }
        // The dirty blocks follow, because they are newer than those of the home.
        for (e, home) in given.copies {
            if let Some(copy) = map.copy(e) {
                dirty_blocks(space, e, (copy, home), &mut all);
            }
        }
        all
    }

    /// Takes the slots that are given up out of use, after their data was copied.
    fn vacate(&self, space: &mut Space) {
        let given = self.given_up(space);
        for (e, _) in given.copies {
            forget_copy(space, e);
        }
        for (e, to) in given.homes {
            space.map.rehome(e, to);
            space.slots.take(to);
        }
    }
}

/// Drops the copy of `e`, whose dirty blocks were written home.
pub(super) fn forget_copy(space: &mut Space, e: ExtentId) {
    let blocks = space.geo.blocks_per_extent();
    let mut b = 0;
    while b < blocks {
        let (n, dirty) = space.map.dirty_run(e, b, blocks);
        if dirty {
            space.map.copy_cleaned(e, b, b + n);
        }
        b += n;
    }
    space.map.drop_copy(e);
}

/// Adds the ranges of the dirty blocks of `e`, from its copy to a place for its home, to `all`.
pub(super) fn dirty_blocks(
    space: &Space,
    e: ExtentId,
    (copy, home): (Slot, Slot),
    all: &mut Vec<Transfer>,
) {
    let (map, geo) = (&space.map, &space.geo);
    let (from, to) = (geo.locate(copy), geo.locate(home));
    let mut b = 0;
    while b < geo.blocks_per_extent() {
        let (n, dirty) = map.dirty_run(e, b, geo.blocks_per_extent());
        let at = u64::from(b) << geo.block_shift;
        if dirty {
            all.push(Transfer {
                from: (from.0, from.1 + at),
                to: (to.0, to.1 + at),
                bytes: n << geo.block_shift,
            });
        }
        b += n;
    }
}

/// Ends the session that has just begun with `opened`, before an engine used it, and lets the volume grow. The ranges of
/// [`Growth::transfers`] were copied and flushed at their new places. `epoch` is a new random number. Returns the superblock of the volume, which
/// is closed.
///
/// # Errors
/// A member is missing, the shape is impossible, or a device fails. After a failure the volume can be opened: with its old size, or, if
/// superblocks were written already, with the new one.
pub fn grow<M: Media + ?Sized>(
    media: &mut M,
    opened: &mut Opened,
    growth: &Growth,
    epoch: u64,
) -> Result<Superblock, OpenError> {
    let (sb, missing) = (&opened.superblock, &opened.report.missing);
    // The disks of a cache volume that goes on without any flash grow alone: nothing of that concerns flash.
    let all_flash = (0..sb.members.len() as u8).map(MemberId);
    let is_alone = sb.kind == Kind::Cache
        && !growth.slots_of_flash(sb)
        && (all_flash.filter(|m| sb.is_flash(*m))).eq(missing.iter().copied());
    if !missing.is_empty() && !is_alone {
        return Err(OpenError::BadGrowth(
            "a member is missing: replace it first",
        ));
    }
    if opened.superblock.kind == Kind::Cache {
        return if growth.slots_of_flash(&opened.superblock) {
            grow_flash::grow(media, opened, growth, epoch)
        } else {
            grow_cache::grow(media, opened, growth, epoch)
        };
    }
    if growth.lacking(&opened.space) > 0 {
        return Err(OpenError::BadGrowth(
            "the slowest tier has no room for data that must move there",
        ));
    }
    // Slots that become metadata must be in no checkpoint that the old table uses.
    let late = broken(media, Mutant::SettleBeforeVacate);
    if !late {
        growth.vacate(&mut opened.space);
    }
    let settled = settle(media, opened)?;
    if late {
        growth.vacate(&mut opened.space);
    }
    let rest = growth.given_up(&opened.space);
    if !rest.homes.is_empty() || !rest.copies.is_empty() {
        return Err(OpenError::BadGrowth("a slot that is given up is in use"));
    }
    let mut sb = settled.superblock.clone();
    growth.put(&mut sb);
    if broken(media, Mutant::GrowInPlace) {
        for (m, old) in sb.members.iter_mut().zip(&settled.superblock.members) {
            m.behind_at = old.behind_at;
        }
    }
    let mut sb = settled.next_session(sb, epoch)?;
    let layout = sb.layout();
    // Bytes of the volume's data at this place must not be taken for a header.
    for c in layout.carriers() {
        let m = c.member;
        for region in (0..2).filter(|_| growth.behind_at[usize::from(m.0)] != 0) {
            media.write(m, layout.region_offset(c, region), &[0; BLOCK])?;
        }
    }
    let geo = &opened.space.geo;
    settled.change(media, &sb, &opened.space.map, geo, &settled.counters, None)?;
    sb.state = State::Clean;
    Ok(sb)
}
