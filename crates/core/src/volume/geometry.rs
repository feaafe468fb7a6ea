//! The geometry of a volume: extents, blocks, tiers, members, slots.

use crate::units::{ExtentId, MemberId, Slot, TierId};
use alloc::vec::Vec;

/// Largest number of slots: slot numbers have 32 bits, and the highest one means "none". With extents of 64 KiB this is 256 TiB.
pub const SLOTS_MAX: u32 = u32::MAX - 1;
/// Identities of members are below this number. An identity is never given to a second device.
pub const MEMBER_IDS_MAX: u16 = (1 << 12) - 1;
/// Largest number of members: the superblock's member list is one block.
pub const MEMBERS_MAX: usize = 16;
/// Largest number of tiers.
pub const TIERS_MAX: usize = 8;

/// One member device as the engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its tier.
    pub tier: TierId,
    /// Its first slot in the volume-wide numbering.
    pub first_slot: u32,
    /// Number of extent-sized slots on it.
    pub slots: u32,
    /// Byte on the device at which slot `first_slot` starts.
    pub data_offset: u64,
    /// Slots that are in another place.
    pub stash: Stash,
}

/// The first slots of a disk of a cache volume are not at its head, where its own metadata is, but together behind all others. The other
/// slots are where their numbers say, so the disk holds its part of the volume in the order of addresses, from its first byte on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stash {
    /// Number of slots in it; 0: there is none.
    pub slots: u32,
    /// Byte on the device at which the first of them starts.
    pub at: u64,
}

/// A slot in the form that records use: a member, and the number of the slot on this member. It stays valid when other members are added or
/// removed; volume-wide slot numbers do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberSlot {
    /// The member's identity, less than [`MEMBER_IDS_MAX`].
    pub member: u16,
    /// Number of the slot, counted from the member's first slot.
    pub index: u32,
}

/// What the places of homes depend on. It is fixed when a volume is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A *tiering volume*: a policy chooses the home of each extent at its first write, and may move it. The map states it.
    #[default]
    Tiering,
    /// A *cache volume*: the home of extent *e* is slot *e* of the slowest tier, always. Only copies are placed, so neither memory nor
    /// metadata is needed for where homes are, and the slowest tier holds the volume in the order of addresses.
    Cache,
}

/// The fixed geometry of a volume. Slots are numbered consecutively through all members, fastest tier first, so the slots of a tier are a
/// range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    kind: Kind,
    /// log2 of the extent size, 12 (4 KiB) … 22 (4 MiB).
    pub extent_shift: u32,
    /// log2 of the logical block, 9 (512 B) … 12 (4 KiB).
    pub block_shift: u32,
    /// Number of extents of the volume (its size ÷ extent size).
    pub extents: u32,
    /// Member devices, in the order of tiers.
    pub members: Vec<Member>,
    /// Their identities, which equal their indexes until they are set.
    ids: Vec<u16>,
    tiers: Vec<(u32, u32)>,
}

impl Kind {
    /// Largest number of extents of which a checkpoint has a record, in a volume of this kind with `extents` extents and `copies` slots on the
    /// faster tiers: all extents, or those that can have a copy at the same time.
    pub fn recorded(self, extents: u32, copies: u32) -> u32 {
        match self {
            Kind::Tiering => extents,
            Kind::Cache => copies,
        }
    }
}

impl Geometry {
    /// Members must be in tier order, each tier must be present, and there may be at most [`SLOTS_MAX`] slots. `first_slot` is filled in
    /// here.
    pub fn new(
        extent_shift: u32,
        block_shift: u32,
        extents: u32,
        mut members: Vec<Member>,
    ) -> Result<Geometry, &'static str> {
        if !(12..=22).contains(&extent_shift) {
            return Err("extent size must be a power of two from 4 KiB to 4 MiB");
        }
        if !(9..=12).contains(&block_shift) || block_shift > extent_shift {
            return Err("logical block must be a power of two from 512 B to 4 KiB");
        }
        if members.is_empty() || members.len() > MEMBERS_MAX {
            return Err("a volume has 1 to 16 members");
        }
        let mut tiers: Vec<(u32, u32)> = Vec::new();
        let mut next = 0u64;
        for m in &mut members {
            m.first_slot = next as u32;
            next += u64::from(m.slots);
            if next > u64::from(SLOTS_MAX) {
                return Err("too many slots: choose a larger extent");
            }
            match usize::from(m.tier.0) {
                t if t + 1 == tiers.len() => tiers[t].1 = next as u32,
                t if t == tiers.len() && t < TIERS_MAX => tiers.push((m.first_slot, next as u32)),
                _ => {
                    return Err(
                        "members must be listed by tier, fastest first, with no tier left out (8 at most)",
                    );
                }
            }
        }
        if extents == 0 || u64::from(extents) > next {
            return Err(
                "the volume must have at least one extent and not more than there are slots",
            );
        }
        Ok(Geometry {
            kind: Kind::Tiering,
            ids: (0..members.len() as u16).collect(),
            extent_shift,
            block_shift,
            extents,
            members,
            tiers,
        })
    }
    /// The same geometry as that of a volume of this kind.
    ///
    /// # Errors
    /// A cache volume needs a faster tier, and a slot on the slowest tier for each extent.
    pub fn of_kind(self, kind: Kind) -> Result<Geometry, &'static str> {
        if kind == Kind::Cache && self.tiers() < 2 {
            return Err("a cache needs a faster and a slower tier");
        }
        if kind == Kind::Cache && self.tier_slots(self.slowest()).len() < self.extents as usize {
            return Err("the slowest tier of a cache volume must have a slot for each extent");
        }
        Ok(Geometry { kind, ..self })
    }
    /// What the places of homes depend on.
    pub fn kind(&self) -> Kind {
        self.kind
    }
    /// Whether homes are where the addresses of their extents say.
    #[inline]
    pub fn is_cache(&self) -> bool {
        self.kind == Kind::Cache
    }
    /// The home of an extent of a cache volume; `None` if a map states the homes.
    #[inline]
    pub fn home(&self, e: ExtentId) -> Option<Slot> {
        self.is_cache()
            .then(|| Slot(self.tier_slots(self.slowest()).start + e.0))
    }
    /// Sets the identities of the members, in their order.
    ///
    /// # Errors
    /// Two are equal, one is too high, or their number differs from the number of members.
    pub fn with_ids(self, ids: Vec<u16>) -> Result<Geometry, &'static str> {
        let twice = |i: usize| ids[..i].contains(&ids[i]);
        if ids.len() != self.members.len() || (0..ids.len()).any(twice) {
            return Err("two members of one identity");
        }
        if ids.iter().any(|&id| id >= MEMBER_IDS_MAX) {
            return Err("a member of an impossible identity");
        }
        Ok(Geometry { ids, ..self })
    }
    /// The form in which records name a slot.
    #[inline]
    pub fn member_slot(&self, s: Slot) -> MemberSlot {
        let i = self.place(s);
        MemberSlot {
            member: self.ids[i],
            index: s.0 - self.members[i].first_slot,
        }
    }
    /// The slot that a record names; `None` if there is no such member, or the member has no such slot.
    #[inline]
    pub fn slot(&self, at: MemberSlot) -> Option<Slot> {
        let i = self.ids.iter().position(|&id| id == at.member)?;
        let m = &self.members[i];
        (at.index < m.slots).then(|| Slot(m.first_slot + at.index))
    }
    /// Extent size in bytes.
    pub fn extent_bytes(&self) -> u32 {
        1 << self.extent_shift
    }
    /// Logical block in bytes.
    pub fn block_bytes(&self) -> u32 {
        1 << self.block_shift
    }
    /// Blocks in an extent.
    pub fn blocks_per_extent(&self) -> u32 {
        1 << (self.extent_shift - self.block_shift)
    }
    /// The volume's size in bytes.
    pub fn volume_bytes(&self) -> u64 {
        u64::from(self.extents) << self.extent_shift
    }
    /// Number of tiers.
    pub fn tiers(&self) -> u8 {
        self.tiers.len() as u8
    }
    /// Slots of a tier as a range of slot numbers.
    pub fn tier_slots(&self, t: TierId) -> core::ops::Range<u32> {
        let (a, b) = self.tiers[usize::from(t.0)];
        a..b
    }
    /// All slots.
    pub fn slots(&self) -> u32 {
        self.tiers[self.tiers.len() - 1].1
    }
    /// The slowest tier.
    pub fn slowest(&self) -> TierId {
        TierId(self.tiers.len() as u8 - 1)
    }
    /// The tier of a slot.
    #[inline]
    pub fn tier_of(&self, s: Slot) -> TierId {
        // With two or three tiers, a linear scan is faster than a binary search.
        let t = self
            .tiers
            .iter()
            .position(|r| s.0 < r.1)
            .unwrap_or(self.tiers.len() - 1);
        TierId(t as u8)
    }
    /// Index, in the list of members, of the member of a slot.
    #[inline]
    fn place(&self, s: Slot) -> usize {
        self.members
            .iter()
            .position(|m| s.0 < m.first_slot + m.slots)
            .unwrap_or(self.members.len() - 1)
    }
    /// The member of a slot, and the byte offset of the slot on it.
    #[inline]
    pub fn locate(&self, s: Slot) -> (MemberId, u64) {
        let i = self.place(s);
        let m = &self.members[i];
        let index = s.0 - m.first_slot;
        let start = if index < m.stash.slots {
            m.stash.at
        } else {
            m.data_offset
        };
        let at = start + (u64::from(index) << self.extent_shift);
        (MemberId(i as u8), at)
    }
    /// The extent that holds byte `offset` of the volume.
    #[inline]
    pub fn extent_at(&self, offset: u64) -> ExtentId {
        ExtentId((offset >> self.extent_shift) as u32)
    }
    /// Extends a range to whole logical blocks: rounds its start down and its end up.
    pub fn align(&self, offset: u64, len: u64) -> (u64, u64) {
        let b = u64::from(self.block_bytes());
        (offset & !(b - 1), (offset + len + b - 1) & !(b - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn m(tier: u8, slots: u32) -> Member {
        Member {
            tier: TierId(tier),
            first_slot: 0,
            slots,
            data_offset: 1 << 20,
            stash: Stash::default(),
        }
    }

    #[test]
    fn the_first_slots_of_a_disk_lie_behind_the_others() {
        let disk = Member {
            data_offset: 0,
            stash: Stash {
                slots: 3,
                at: 100 << 16,
            },
            ..m(1, 20)
        };
        let g = Geometry::new(16, 12, 20, vec![m(0, 10), disk]).unwrap();
        let at = |s| g.locate(Slot(s)).1 >> 16;
        assert_eq!([10, 12, 13, 29].map(at), [100, 102, 3, 19]);
    }

    #[test]
    fn slots_are_numbered_consecutively() {
        let g = Geometry::new(16, 9, 90, vec![m(0, 10), m(1, 20), m(1, 70)]).unwrap();
        assert_eq!(g.tier_slots(TierId(1)), 10..100);
        assert_eq!(g.tier_of(Slot(9)), TierId(0));
        assert_eq!(g.tier_of(Slot(10)), TierId(1));
        assert_eq!(g.locate(Slot(30)), (MemberId(2), 1 << 20));
        assert_eq!(g.locate(Slot(11)), (MemberId(1), (1 << 20) + 65536));
    }

    #[test]
    fn records_name_slots_by_member() {
        let shape = |first: u32| vec![m(0, first), m(1, 20), m(1, 70)];
        let g = Geometry::new(16, 9, 90, shape(10)).unwrap();
        assert_eq!(
            g.member_slot(Slot(31)),
            MemberSlot {
                member: 2,
                index: 1
            }
        );
        // With another first member, of another size, records of the other members stay valid.
        let ids = |ids: Vec<u16>| Geometry::new(16, 9, 90, shape(25)).unwrap().with_ids(ids);
        let h = ids(vec![7, 1, 2]).unwrap();
        let at = g.member_slot(Slot(31));
        assert_eq!(
            h.slot(at).map(|s| (h.locate(s), h.member_slot(s))),
            Some((g.locate(Slot(31)), at))
        );
        for index in [0, 24, 25] {
            let at = MemberSlot { member: 7, index };
            assert_eq!(h.slot(at).is_some(), index < 25);
        }
        assert_eq!(
            h.slot(MemberSlot {
                member: 0,
                index: 0
            }),
            None
        );
        assert!(ids(vec![7, 1, 7]).is_err() && ids(vec![7, 1]).is_err());
        assert!(ids(vec![7, 1, MEMBER_IDS_MAX]).is_err());
    }

    #[test]
    fn a_hundred_terabytes_in_small_extents_have_slots() {
        let slots = |bytes: u64| (bytes / 65_536) as u32;
        let (fast, slow) = (slots(2_000_000_000_000), slots(100_000_000_000_000));
        let g = Geometry::new(16, 12, slow, vec![m(0, fast), m(1, slow)]).unwrap();
        let last = Slot(g.slots() - 1);
        assert!(g.slots() > 1 << 30 && g.slot(g.member_slot(last)) == Some(last));
        assert_eq!(g.locate(last).1, (1 << 20) + (u64::from(slow - 1) << 16));
        assert!(Geometry::new(16, 12, 5, vec![m(0, 1 << 31), m(1, (1 << 31) - 2)]).is_ok());
        assert!(Geometry::new(16, 12, 5, vec![m(0, 1 << 31), m(1, (1 << 31) - 1)]).is_err());
    }

    #[test]
    fn bad_shapes_are_refused() {
        assert!(Geometry::new(16, 9, 90, vec![m(1, 100)]).is_err());
        assert!(Geometry::new(16, 9, 90, vec![m(0, 10), m(2, 100)]).is_err());
        assert!(Geometry::new(16, 9, 200, vec![m(0, 10), m(1, 100)]).is_err());
        assert!(Geometry::new(11, 9, 10, vec![m(0, 10)]).is_err());
        assert!(Geometry::new(12, 13, 10, vec![m(0, 10)]).is_err());
    }
}
