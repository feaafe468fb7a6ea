//! The places of data and metadata on each member.
//!
//! A disk of a cache volume:
//!
//! ```text
//! byte 0        4096    8192      16384   head_blocks × 4096       behind_at                                              bytes
//! ┌────────────┬───────┬─────────┬───────┬──────────┬─ ─ ─┬─ ─ ─ ─ ─ ─┬───────┬─ ─ ─┬──────────────┬──────┬────────────┐
//! │ superblock │ stamp │ counter │ zeros │ slot h   │ …   │ (unused)  │ slot 0│ h−1 │ two lists    │ mark │ superblock │
//! │ 1 block    │ 1     │ 2       │       │          │     │           │  the stash  │ 2 × `pages`  │ 2    │ 1          │
//! └────────────┴───────┴─────────┴───────┴──────────┴─ ─ ─┴─ ─ ─ ─ ─ ─┴───────┴─ ─ ─┴──────────────┴──────┴────────────┘
//! ```
//! Flash that has grown has its rings and regions behind its slots, from `behind_at` on ([`crate::store::plan_flash_growth`]).
//!
//! The first of the zeros is the place of the note of a growth. The lists: [`crate::store::lost`]. Every slot but those of the stash is where
//! its number says. Other members: [`crate::store::layout`].

use super::{HEAD_BLOCKS, MemberEntry, Superblock};
use crate::geometry::{Kind, SLOTS_MAX, Stash};
use crate::store::layout::{Carrier, Layout};
use crate::store::{BLOCK, MetaArea};
use crate::units::{MemberId, TierId};
use crate::volume::lost::{pages_for, unit_shift};

/// The least number of bytes of a disk that are covered: beyond the second header of LUKS2, which lies at 4 MiB at most.
const HEAD_LEAST: u64 = (4 << 20) + (64 << 10);
/// Largest number of pages of a list in a new volume: 4 MiB, twice on each disk, which lists 130 GB by single blocks.
pub(super) const LIST_PAGES: u16 = 1024;
/// Blocks behind the lists: two of the mark, one of the second superblock.
const LAST_BLOCKS: u64 = 3;

/// The size of the head of disks in a volume with extents of 2^`extent_shift` bytes, in blocks.
pub(super) fn head_blocks(extent_shift: u32) -> u16 {
    let extent = 1u64 << extent_shift;
    (HEAD_LEAST.div_ceil(extent) * extent / BLOCK as u64) as u16
}

/// The places on a device of a certain size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Number of slots.
    pub slots: u32,
    /// See [`MemberEntry::data_offset`].
    pub data_offset: u64,
    /// See [`MemberEntry::behind_at`].
    pub behind_at: u64,
    /// Number of bytes that the volume uses.
    pub bytes: u64,
}

impl Room {
    /// Puts the places into a row of the member table.
    pub fn put(self, m: &mut MemberEntry) {
        (m.slots, m.data_offset) = (self.slots, self.data_offset);
        (m.behind_at, m.bytes) = (self.behind_at, self.bytes);
    }
}

impl Superblock {
    fn slowest(&self) -> TierId {
        let tiers = self.members.iter().map(|m| m.tier);
        tiers.max().unwrap_or(TierId(0))
    }
    /// The place that the device of this superblock has in the table of `newest`, if it is a member there.
    pub fn place_in(&self, newest: &Superblock) -> Option<usize> {
        let own = self.members.get(usize::from(self.index))?.uuid;
        newest.members.iter().position(|m| m.uuid == own)
    }
    /// Whether the device of this superblock is no part of the volume according to `newest`, whose table of members does not have it: it was
    /// replaced or taken out, or it should have become a member and the volume went on without it.
    pub fn is_replaced(&self, newest: &Superblock) -> bool {
        self.table_version != newest.table_version && self.place_in(newest).is_none()
    }
    /// Whether member `i` is a disk of a cache volume: it has no metadata of its own but head and tail, and slots where their numbers say.
    pub fn is_disk(&self, i: MemberId) -> bool {
        let m = self.members.get(usize::from(i.0));
        self.kind == Kind::Cache && m.is_some_and(|m| m.tier == self.slowest())
    }
    /// Whether member `i` is flash of a cache volume.
    pub fn is_flash(&self, i: MemberId) -> bool {
        self.kind == Kind::Cache && !self.is_disk(i)
    }
    /// Whether member `i` is all the flash of a cache volume.
    pub fn is_only_flash(&self, i: MemberId) -> bool {
        let members = (0..self.members.len() as u8).map(MemberId);
        members.filter(|m| self.is_flash(*m)).eq([i])
    }
    /// Bytes at the start of a disk of a cache volume that hold its own metadata.
    pub fn head_bytes(&self) -> u64 {
        u64::from(self.head_blocks) * BLOCK as u64
    }
    /// The slots of member `i` that are in its stash.
    pub fn stash(&self, i: MemberId) -> Stash {
        if !self.is_disk(i) {
            return Stash::default();
        }
        let m = &self.members[usize::from(i.0)];
        Stash {
            slots: m.slots.min(self.head_slots()),
            at: m.behind_at,
        }
    }
    fn head_slots(&self) -> u32 {
        (self.head_bytes() >> self.extent_shift) as u32
    }
    /// Byte offset of the second superblock on member `i`.
    pub fn copy_offset(&self, i: MemberId) -> u64 {
        let m = &self.members[usize::from(i.0)];
        let end = if self.is_disk(i) {
            m.bytes
        } else {
            m.data_offset
        };
        end - BLOCK as u64
    }
    /// Bytes from the stash to the end of a disk of a cache volume that has `slots` slots.
    pub fn tail(&self, slots: u32) -> u64 {
        self.head_bytes() + (LAST_BLOCKS + 2 * u64::from(self.pages(slots))) * BLOCK as u64
    }
    /// Largest number of pages of a list on a disk that has `slots` slots.
    fn pages(&self, slots: u32) -> u32 {
        let unit = unit_shift(self.extent_shift, self.block_shift) - self.block_shift;
        let blocks = u64::from(slots) << (self.extent_shift - self.block_shift);
        pages_for(blocks, unit).min(self.list_pages.into()) as u32
    }
    /// Largest number of pages of a list on member `i`, a disk of a cache volume.
    pub fn list_pages_of(&self, i: MemberId) -> u32 {
        self.pages(self.members[usize::from(i.0)].slots)
    }
    /// Byte offset of page `page` of list `which` (0 or 1) on member `i`, a disk of a cache volume.
    pub fn list_offset(&self, i: MemberId, which: u8, page: u32) -> u64 {
        let pages = u64::from(self.list_pages_of(i));
        let from_end = (2 - u64::from(which & 1)) * pages - u64::from(page);
        self.mark_offset(i, 0) - from_end * BLOCK as u64
    }
    /// Byte offset of the block for mark number `n` on member `i`, a disk of a cache volume.
    pub fn mark_offset(&self, i: MemberId, n: u64) -> u64 {
        self.copy_offset(i) - (2 - n % 2) * BLOCK as u64
    }
    /// The places on member `i` if its device has `bytes` bytes, with as many slots as possible, or at most `most`. There may be no room for
    /// any slot.
    pub fn room(&self, i: MemberId, bytes: u64, most: u32) -> Room {
        let extent = 1u64 << self.extent_shift;
        let slots_in = |room: u64| u32::try_from(room / extent).unwrap_or(SLOTS_MAX).min(most);
        if !self.is_disk(i) {
            let data_offset = self.layout().data_offset(i, extent);
            let slots = slots_in(bytes.saturating_sub(data_offset));
            return Room {
                slots,
                data_offset,
                behind_at: 0,
                bytes: data_offset + u64::from(slots) * extent,
            };
        }
        // Usually the second superblock is in the last block of the device, where it can be found without a table.
        let end = bytes / BLOCK as u64 * BLOCK as u64;
        let before = |slots: u32| end.saturating_sub(self.tail(slots));
        // The more slots, the longer the tail.
        let mut slots = slots_in(before(0));
        slots = slots_in(before(slots_in(before(slots))));
        while slots > 0 && u64::from(slots) * extent > before(slots) {
            slots -= 1;
        }
        let mut last = before(slots);
        if last < self.head_bytes() {
            (slots, last) = (0, before(0));
        }
        // Otherwise it follows the slots: growth relies on this.
        let limited = slots == most && u64::from(slots) < last / extent;
        let behind_at = if limited {
            (u64::from(slots) * extent).max(self.head_bytes())
        } else {
            last
        };
        Room {
            slots,
            data_offset: 0,
            behind_at,
            bytes: behind_at + self.tail(slots),
        }
    }
    /// The least size of a device in place `i` that has room for `slots` slots.
    pub fn least_bytes(&self, i: MemberId, slots: u32) -> u64 {
        let extent = 1u64 << self.extent_shift;
        let all = u64::from(slots) * extent;
        if self.is_disk(i) {
            all.max(self.head_bytes()) + self.tail(slots)
        } else {
            self.layout().data_offset(i, extent) + all
        }
    }
    /// The same superblock with places for the slots that the rows of its members state, on devices that are no larger than needed. Slots of
    /// members that are no disks begin at multiples of `align` bytes.
    #[must_use]
    pub fn placed(mut self, align: u64) -> Superblock {
        let layout = self.layout();
        for i in 0..self.members.len() {
            let (m, slots) = (MemberId(i as u8), self.members[i].slots);
            let room = if self.is_disk(m) {
                self.room(m, self.least_bytes(m, slots), slots)
            } else {
                let head = self.area.ring_at(layout.copies_on(m)) + BLOCK as u64;
                let data_offset = head.next_multiple_of(align);
                Room {
                    slots,
                    data_offset,
                    behind_at: 0,
                    bytes: data_offset + (u64::from(slots) << self.extent_shift),
                }
            };
            room.put(&mut self.members[i]);
        }
        self
    }
    /// The places of journal and checkpoints if no member is absent.
    pub fn layout(&self) -> Layout {
        let slowest = self.slowest();
        let of = |is: &dyn Fn(&MemberEntry) -> bool| {
            let place = self.members.iter().skip(1).position(is)?;
            Some(MemberId(place as u8 + 1))
        };
        let mirror = match self.kind {
            Kind::Tiering => of(&|m| m.tier == slowest).map(|m| self.carrier(m, 0)),
            Kind::Cache => Some(match of(&|m| m.tier != slowest) {
                Some(m) => self.carrier(m, 0),
                None => self.carrier(MemberId(0), 1),
            }),
        };
        Layout {
            primary: self.carrier(MemberId(0), 0),
            mirror,
            area: self.area,
            has_journal: true,
        }
    }
    /// The layout while the members `missing` are absent. `None`: neither journal nor, in a cache volume, any disk is there.
    pub(in crate::store) fn layout_without(&self, missing: &[MemberId]) -> Option<Layout> {
        let all = self.layout();
        all.without(missing).or_else(|| {
            let member = self.disks().find(|m| !missing.contains(m))?;
            Some(Layout {
                primary: Carrier {
                    member,
                    ..all.primary
                },
                mirror: None,
                has_journal: false,
                ..all
            })
        })
    }
    /// The member that is the primary while the members `missing` are absent: it has the stamp.
    pub fn primary_without(&self, missing: &[MemberId]) -> Option<MemberId> {
        Some(self.layout_without(missing)?.primary.member)
    }
    /// The `n`-th carrier on a member.
    fn carrier(&self, member: MemberId, n: u64) -> Carrier {
        let moved = self.members.get(usize::from(member.0));
        let moved = moved.map_or(0, |m| m.behind_at);
        let ring_at = match self.kind {
            Kind::Cache if moved != 0 => moved + n * self.area.bytes(),
            _ => self.area.ring_at(n),
        };
        Carrier {
            member,
            ring_at,
            regions_at: match (self.kind, moved) {
                (Kind::Tiering, at) if at != 0 => at,
                _ => ring_at + self.area.ring_bytes(),
            },
        }
    }
    /// Checks the places on member `i`: no two things overlap, and all are on the device.
    pub(in crate::store) fn plausible_places(&self, i: usize) -> Result<(), &'static str> {
        let (m, block, place) = (&self.members[i], BLOCK as u64, MemberId(i as u8));
        let slots = u64::from(m.slots) << self.extent_shift;
        let end = slots.checked_add(m.data_offset);
        if self.is_disk(place) {
            let past = m.behind_at.checked_add(self.tail(m.slots));
            let aligned = m.behind_at % block == 0 && m.bytes % block == 0;
            let fits = m.behind_at >= self.head_bytes() && past.is_some_and(|p| p <= m.bytes);
            if m.data_offset != 0 || !aligned || !fits || slots > m.behind_at {
                return Err("head, slots and tail of a disk overlap");
            }
            return Ok(());
        }
        let area: &MetaArea = &self.area;
        let copies = self.layout().copies_on(place);
        let (in_head, behind) = match (m.behind_at, self.kind) {
            (0, _) => (copies * area.bytes(), 0),
            (_, Kind::Tiering) => (copies * area.ring_bytes(), area.regions_bytes()),
            (_, Kind::Cache) => (0, copies * area.bytes()),
        };
        let metadata = HEAD_BLOCKS * block + in_head;
        if m.data_offset % block != 0 || m.data_offset < metadata + block {
            return Err("slots overlap the metadata");
        }
        if end.is_none_or(|end| end > m.bytes) {
            return Err("slots beyond the end of a member");
        }
        if m.behind_at != 0 {
            let past = m.behind_at.checked_add(behind);
            if behind == 0
                || m.behind_at % block != 0
                || end.is_none_or(|end| end > m.behind_at)
                || past.is_none_or(|past| past > m.bytes)
            {
                return Err("checkpoint regions in an impossible place");
            }
        }
        Ok(())
    }
}
