//! The superblock: the members of the volume, and the session that last wrote to it.

mod places;
mod row;
mod version;

use super::BLOCK;
use super::codec::{id_at, put, seal, sealed, u16_at, u32_at, u64_at};
use super::layout::{HEAD_BLOCKS, MetaArea};
use crate::geometry::{Geometry, Kind, MEMBER_IDS_MAX, MEMBERS_MAX, Member};
use crate::units::{MemberId, Nanos};
use alloc::string::String;
use alloc::vec::Vec;
pub use places::Room;
use places::{LIST_PAGES, head_blocks};
pub use row::{MemberEntry, MemberState};
use row::{decode_row, encode_row, put_text, text};
pub use version::{SuperblockError, VERSION, VERSION_CACHE};
use version::{kind_of, version_of};

/// The first bytes of every member.
pub const MAGIC: [u8; 8] = *b"ISOTHERM";
/// Incompatible feature: journal and checkpoints may contain records of copies. Every session that writes sets it, if the checkpoint
/// regions are large enough for such records, because the policy may be changed while the volume is served.
pub const FEATURE_COPIES: u64 = 1;
/// Incompatible feature: regions of some member (in a cache volume rings, too) are where its row states ([`MemberEntry::behind_at`]).
pub const FEATURE_REGIONS: u64 = 2;
/// Incompatible feature: the marks of the disks of a cache volume list data that was lost with flash ([`crate::store::lost`]).
pub const FEATURE_LISTS: u64 = 4;
/// Incompatible feature, of every cache volume: its records are [`super::record::CACHED`] and [`super::record::HOME`]. One without it has the
/// records of a tiering volume, which no program after the first ones of version 3 reads.
pub const FEATURE_CACHED: u64 = 8;
/// Incompatible features that this program knows. A volume with others is refused.
pub const INCOMPAT_KNOWN: u64 = FEATURE_COPIES | FEATURE_REGIONS | FEATURE_LISTS | FEATURE_CACHED;
/// Read-only compatible features that this program knows. A volume with others is opened to read only. Bit 0 is reserved for checksums of
/// the members' blocks: a program that does not update them must not write.
pub const RO_COMPAT_KNOWN: u64 = 0;
/// Compatible features that this program knows. Volumes with others are accepted, and their bits are left unchanged.
pub const COMPAT_KNOWN: u64 = 0;
/// Largest length of the policy's description, in bytes.
pub const POLICY_BYTES: usize = 240;
/// Largest length of a member's path that is stored as a hint, in bytes.
pub const HINT_BYTES: usize = 88;
/// Number of rows of the member table: for the members in use, and some for members that are gone or joining.
pub const ROWS_MAX: usize = 20;

/// The limit of counters that only grow. At a million per second they would reach it after 146 000 years.
pub(super) const COUNT_MAX: u64 = 1 << 62;
/// The smallest ring that is accepted, in blocks. A ring must have space for records while a checkpoint is written that makes older ones
/// unnecessary.
const RING_LEAST: u32 = 4;

const CRC_AT: usize = 12;
const MEMBERS_AT: usize = 512;
const ROW_BYTES: usize = 160;
const CLOSED_AT: usize = MEMBERS_AT + ROWS_MAX * ROW_BYTES;

/// The state of the last session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The epoch of a new session is being written to all members. Nothing else was written in this session yet.
    Preparing,
    /// The session is in progress, or was in progress before a crash.
    Active,
    /// The session ended cleanly: all state is durable, and the mirror is complete.
    Clean,
}

/// The guarantee about the metadata on one member if other members are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// No guarantee: the mirror may lack changes that were acknowledged.
    #[default]
    Lags,
    /// Every member that carries metadata has everything.
    Exact,
}

impl Follow {
    fn code(self) -> u8 {
        match self {
            Follow::Lags => 0,
            Follow::Exact => 2,
        }
    }
    fn from_bits(b: u8) -> Follow {
        match b & 15 {
            2 => Follow::Exact,
            _ => Follow::Lags,
        }
    }
}

/// The properties of a volume, in addition to its members, that are fixed when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What the places of homes depend on.
    pub kind: Kind,
    /// log2 of the extent size.
    pub extent_shift: u32,
    /// See [`Superblock::block_shift`]. It is also the logical block, unless [`Superblock::logical_shift`] is set to a smaller one.
    pub block_shift: u32,
    /// Number of extents of the volume.
    pub extents: u32,
    /// Metadata areas on primary and mirror.
    pub area: MetaArea,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// What the places of homes depend on. The version of the format says it.
    pub kind: Kind,
    /// Whether records of copies may occur: see [`FEATURE_COPIES`].
    pub copies: bool,
    /// Whether the disks have lists of lost data: see [`FEATURE_LISTS`].
    pub lists: bool,
    /// Compatible features, as read from the device.
    pub compat: u64,
    /// Read-only compatible features, as read from the device.
    pub ro_compat: u64,
    /// A number that grows with every session that writes.
    pub generation: u64,
    /// A random number that every session that writes chooses anew.
    pub epoch: u64,
    /// Generation of the previous session.
    pub prev_generation: u64,
    /// Epoch of the previous session.
    pub prev_epoch: u64,
    /// First journal sequence number of this session. From this number on, only blocks of its epoch count.
    pub first_seq: u64,
    /// The same for the session before.
    pub prev_first_seq: u64,
    /// The guarantee about this session's metadata.
    pub follow: Follow,
    /// The same for the session before.
    pub prev_follow: Follow,
    /// Members that are absent in this session, one bit each. They miss its writes.
    pub absent: u16,
    /// See [`State`].
    pub state: State,
    /// log2 of the extent size.
    pub extent_shift: u32,
    /// log2 of the block: what is valid, and what is dirty, is known for each block.
    pub block_shift: u32,
    /// log2 of the logical block that users see. In a cache volume it is that of its disks, for ever, and may be smaller than a block.
    pub logical_shift: u32,
    /// Number of extents of the volume.
    pub extents: u32,
    /// Metadata areas on primary and mirror.
    pub area: MetaArea,
    /// Number of 4 KiB blocks at the start of each disk of a cache volume that hold its own metadata; what belongs there is in the disk's stash.
    /// 0 in a tiering volume.
    pub head_blocks: u16,
    /// Largest number of pages of a list of lost data ([`super::lost`]) on each disk of a cache volume. 0 in a tiering volume.
    pub list_pages: u16,
    /// The index of this device in the member list.
    pub index: u8,
    /// All members in use, in the order of tiers. [`MemberId`] is the index in this list.
    pub members: Vec<MemberEntry>,
    /// Members that are gone or joining.
    pub others: Vec<MemberEntry>,
    /// A number that grows with every change of the member table.
    pub table_version: u32,
    /// The identity of the next member that joins.
    pub next_id: u16,
    /// Offset and size of the key slots of an encrypted volume on every member; 0: there are none.
    pub keys: (u64, u32),
    /// After a clean close: the sequence number of the next journal block. Every block before it was durable. 0: not known.
    pub closed_seq: u64,
    /// If the session found no complete block in the primary's ring: the sequence number of the next block at that time. Otherwise 0.
    pub void_at: u64,
    /// The session whose clean copies are claimed to be equal to their homes until a later record withdraws that; 0: none.
    pub clean_epoch: u64,
    /// Such claims by [`super::record::CLAIMED`] count in blocks of the journal from this number on, and in checkpoints that begin later;
    /// 0: nowhere.
    pub claims_from: u64,
    /// Engine time at the last clean close.
    pub time_base: Nanos,
    /// The policy as on the command line (`greendm,PT=2`), so that the volume's description file can be restored if it is lost.
    pub policy: String,
    /// The name of the volume, for the same purpose.
    pub name: String,
}

impl Superblock {
    /// The superblock of a new, empty volume with these members, which get their identities here. It has generation 1, the state *clean*,
    /// and neither name nor policy.
    pub fn new(uuid: [u8; 16], epoch: u64, shape: Shape, members: Vec<MemberEntry>) -> Superblock {
        let members: Vec<MemberEntry> = (0u16..)
            .zip(members)
            .map(|(id, m)| MemberEntry { id, ..m })
            .collect();
        Superblock {
            uuid,
            kind: shape.kind,
            copies: false,
            lists: false,
            compat: 0,
            ro_compat: 0,
            generation: 1,
            epoch,
            prev_generation: 0,
            prev_epoch: 0,
            first_seq: 1,
            prev_first_seq: 1,
            follow: Follow::Lags,
            prev_follow: Follow::Lags,
            absent: 0,
            state: State::Clean,
            extent_shift: shape.extent_shift,
            block_shift: shape.block_shift,
            logical_shift: shape.block_shift,
            extents: shape.extents,
            area: shape.area,
            head_blocks: if shape.kind == Kind::Cache {
                head_blocks(shape.extent_shift)
            } else {
                0
            },
            list_pages: if shape.kind == Kind::Cache {
                LIST_PAGES
            } else {
                0
            },
            index: 0,
            next_id: members.len() as u16,
            members,
            others: Vec::new(),
            table_version: 1,
            keys: (0, 0),
            closed_seq: 1,
            void_at: 0,
            clean_epoch: 0,
            claims_from: 0,
            time_base: Nanos(0),
            policy: String::new(),
            name: String::new(),
        }
    }
    /// Encodes the superblock as a block.
    pub fn encode(&self) -> [u8; BLOCK] {
        let mut b = [0; BLOCK];
        put(&mut b, 0, &MAGIC);
        put(&mut b, 8, &version_of(self.kind).to_le_bytes());
        // 12: checksum. 16: incompatible features.
        let copies = if self.copies { FEATURE_COPIES } else { 0 };
        let mut all = (0u8..).zip(&self.members);
        let moved = all.any(|(i, m)| m.behind_at != 0 && !self.is_disk(MemberId(i)));
        let lists = if self.lists { FEATURE_LISTS } else { 0 };
        let cached = match self.kind {
            Kind::Tiering => 0,
            Kind::Cache => FEATURE_CACHED,
        };
        let features = copies | lists | cached | if moved { FEATURE_REGIONS } else { 0 };
        put(&mut b, 16, &features.to_le_bytes());
        put(&mut b, 24, &self.uuid);
        put(&mut b, 40, &self.generation.to_le_bytes());
        put(&mut b, 48, &self.epoch.to_le_bytes());
        put(&mut b, 56, &self.prev_generation.to_le_bytes());
        put(&mut b, 64, &self.prev_epoch.to_le_bytes());
        b[72] = match self.state {
            State::Preparing => 0,
            State::Active => 1,
            State::Clean => 2,
        };
        b[73] = self.index;
        b[74] = self.members.len() as u8;
        b[75] = self.extent_shift as u8;
        b[76] = self.block_shift as u8;
        b[77] = self.follow.code() | self.prev_follow.code() << 4;
        put(&mut b, 78, &self.head_blocks.to_le_bytes());
        put(&mut b, 80, &self.extents.to_le_bytes());
        put(&mut b, 84, &self.area.ring_blocks.to_le_bytes());
        put(&mut b, 88, &self.area.region_blocks.to_le_bytes());
        put(&mut b, 92, &self.absent.to_le_bytes());
        put(&mut b, 96, &self.time_base.0.to_le_bytes());
        put_text(&mut b, 104, 120, &self.name);
        put_text(&mut b, 224, POLICY_BYTES, &self.policy);
        put(&mut b, 464, &self.first_seq.to_le_bytes());
        put(&mut b, 472, &self.prev_first_seq.to_le_bytes());
        put(&mut b, 94, &self.next_id.to_le_bytes());
        put(&mut b, 480, &self.compat.to_le_bytes());
        put(&mut b, 488, &self.ro_compat.to_le_bytes());
        put(&mut b, 496, &self.keys.0.to_le_bytes());
        put(&mut b, 504, &self.keys.1.to_le_bytes());
        put(&mut b, 508, &self.table_version.to_le_bytes());
        let rows = self.members.iter().chain(&self.others).take(ROWS_MAX);
        for (i, m) in rows.enumerate() {
            encode_row(m, &mut b[MEMBERS_AT + i * ROW_BYTES..][..ROW_BYTES]);
        }
        put(&mut b, CLOSED_AT, &self.closed_seq.to_le_bytes());
        put(&mut b, CLOSED_AT + 8, &self.void_at.to_le_bytes());
        put(&mut b, CLOSED_AT + 16, &self.clean_epoch.to_le_bytes());
        put(&mut b, CLOSED_AT + 24, &self.claims_from.to_le_bytes());
        put(&mut b, CLOSED_AT + 32, &self.list_pages.to_le_bytes());
        b[CLOSED_AT + 34] = self.logical_shift as u8;
        seal(&mut b, CRC_AT);
        b
    }
    /// Decodes a block.
    #[expect(clippy::too_many_lines, reason = "fields in their order")]
    pub fn decode(b: &[u8]) -> Result<Superblock, SuperblockError> {
        if b.len() < BLOCK || b[..8] != MAGIC {
            return Err(SuperblockError::Foreign);
        }
        // The version is checked before the checksum, because a later format may compute the checksum differently.
        let version = u32_at(b, 8);
        let kind = kind_of(version)?;
        if sealed(&b[..BLOCK], CRC_AT).is_none() {
            return Err(SuperblockError::Damaged);
        }
        if u64_at(b, 16) & !INCOMPAT_KNOWN != 0 {
            return Err(SuperblockError::Newer(version));
        }
        match (kind, u64_at(b, 16) & FEATURE_CACHED != 0) {
            (Kind::Cache, false) => return Err(SuperblockError::Older(version)),
            (Kind::Tiering, true) => return Err(SuperblockError::Impossible("records of a cache")),
            _ => {}
        }
        let state = match b[72] {
            0 => State::Preparing,
            1 => State::Active,
            2 => State::Clean,
            _ => return Err(SuperblockError::Impossible("unknown state")),
        };
        let count = usize::from(b[74]);
        if count == 0 || count > MEMBERS_MAX || usize::from(b[73]) >= count {
            return Err(SuperblockError::Impossible("member count or index"));
        }
        let (mut members, mut others) = (Vec::new(), Vec::new());
        for row in b[MEMBERS_AT..CLOSED_AT].chunks_exact(ROW_BYTES) {
            let Some(m) = decode_row(row)? else { continue };
            if m.state == MemberState::InUse {
                members.push(m);
            } else {
                others.push(m);
            }
        }
        if members.len() != count {
            return Err(SuperblockError::Impossible("member count and member table"));
        }
        let sb = Superblock {
            uuid: id_at(b, 24),
            kind,
            copies: u64_at(b, 16) & FEATURE_COPIES != 0,
            lists: u64_at(b, 16) & FEATURE_LISTS != 0,
            generation: u64_at(b, 40),
            epoch: u64_at(b, 48),
            prev_generation: u64_at(b, 56),
            prev_epoch: u64_at(b, 64),
            follow: Follow::from_bits(b[77]),
            prev_follow: Follow::from_bits(b[77] >> 4),
            absent: u16_at(b, 92),
            first_seq: u64_at(b, 464),
            prev_first_seq: u64_at(b, 472),
            state,
            extent_shift: u32::from(b[75]),
            block_shift: u32::from(b[76]),
            // Volumes that earlier programs made have 0 here.
            logical_shift: match b[CLOSED_AT + 34] {
                0 => u32::from(b[76]),
                shift => u32::from(shift),
            },
            extents: u32_at(b, 80),
            area: MetaArea {
                ring_blocks: u32_at(b, 84),
                region_blocks: u32_at(b, 88),
            },
            head_blocks: u16_at(b, 78),
            index: b[73],
            members,
            others,
            compat: u64_at(b, 480),
            ro_compat: u64_at(b, 488),
            table_version: u32_at(b, 508),
            next_id: u16_at(b, 94),
            keys: (u64_at(b, 496), u32_at(b, 504)),
            closed_seq: u64_at(b, CLOSED_AT),
            void_at: u64_at(b, CLOSED_AT + 8),
            clean_epoch: u64_at(b, CLOSED_AT + 16),
            claims_from: u64_at(b, CLOSED_AT + 24),
            list_pages: u16_at(b, CLOSED_AT + 32),
            time_base: Nanos(u64_at(b, 96)),
            name: text(&b[104..224]),
            policy: text(&b[224..224 + POLICY_BYTES]),
        };
        sb.plausible().map_err(SuperblockError::Impossible)?;
        Ok(sb)
    }
    /// Checks the values. A correct checksum proves only that a program wrote the block, but not that its values are possible. Every value
    /// from which offsets, sizes of memory or loops are computed is checked here once, so that no later sum can overflow.
    fn plausible(&self) -> Result<(), &'static str> {
        let geo = self.geometry()?;
        let counts = [
            self.generation,
            self.prev_generation,
            self.time_base.0,
            self.closed_seq,
            self.claims_from,
        ];
        let counters = self.members.iter().map(|m| m.counter);
        if counts.into_iter().chain(counters).any(|n| n > COUNT_MAX) {
            return Err("generation, counter or time beyond all reason");
        }
        let rows = || self.members.iter().chain(&self.others);
        if rows().any(|m| m.id >= self.next_id) || self.next_id > MEMBER_IDS_MAX {
            return Err("a member's identity was never given out");
        }
        if self
            .others
            .iter()
            .any(|m| rows().filter(|o| o.id == m.id).count() > 1)
        {
            return Err("two members of one identity");
        }
        let fast = geo.tier_slots(geo.slowest()).start;
        let blocks = geo.blocks_per_extent();
        let least = match self.kind {
            Kind::Tiering => MetaArea::for_volume(self.extents, blocks, 0).region_blocks,
            Kind::Cache => MetaArea::region_of(self.kind, fast, fast, blocks),
        };
        if self.area.ring_blocks < RING_LEAST || self.area.region_blocks < least {
            return Err("metadata areas too small for the volume");
        }
        let most = (1u64 << self.extent_shift).max(1 << 24) / BLOCK as u64;
        let aligned = self.head_bytes().is_multiple_of(1 << self.extent_shift);
        let head = u64::from(self.head_blocks);
        if (self.kind == Kind::Cache) != (head > HEAD_BLOCKS) || head > most || !aligned {
            return Err("a head of an impossible size");
        }
        let alike = self.logical_shift == self.block_shift;
        if !(9..=self.block_shift).contains(&self.logical_shift)
            || (self.kind == Kind::Tiering && !alike)
        {
            return Err("a logical block of an impossible size");
        }
        if (self.kind == Kind::Cache) != (self.list_pages > 0) {
            return Err("no room for lists of lost data, or room without a use");
        }
        (0..self.members.len()).try_for_each(|i| self.plausible_places(i))
    }
    /// Whether the last session withdrew each claim that a copy is clean before this could change.
    pub(super) fn has_claims(&self) -> bool {
        self.kind == Kind::Cache && self.claims_from != 0
    }
    /// Whether member `i` was absent in the session that wrote this superblock.
    pub fn is_absent(&self, i: MemberId) -> bool {
        self.absent >> i.0 & 1 == 1
    }
    /// The geometry for the engine.
    pub fn geometry(&self) -> Result<Geometry, &'static str> {
        let members = (0u8..).zip(&self.members).map(|(i, m)| Member {
            tier: m.tier,
            first_slot: 0,
            slots: m.slots,
            data_offset: m.data_offset,
            stash: self.stash(MemberId(i)),
        });
        Geometry::new(
            self.extent_shift,
            self.block_shift,
            self.extents,
            members.collect(),
        )?
        .of_kind(self.kind)?
        .with_ids(self.members.iter().map(|m| m.id).collect())
    }
    /// Whether it has features because of which this program may only read the volume.
    pub fn is_read_only(&self) -> bool {
        self.ro_compat & !RO_COMPAT_KNOWN != 0
    }
    /// Largest number of extents of which a checkpoint has a record if the faster tiers have `copies` slots.
    pub fn recorded(&self, copies: u32) -> u32 {
        self.kind.recorded(self.extents, copies)
    }
    /// Whether a checkpoint has space for the records of copies in all slots of the faster tiers. Volumes that were created by older
    /// versions of this program may lack this space.
    pub fn has_room_for_copies(&self) -> bool {
        let Ok(geo) = self.geometry() else {
            return false;
        };
        let fast = geo.tier_slots(geo.slowest()).start;
        let blocks = geo.blocks_per_extent();
        let need = MetaArea::region_of(self.kind, self.recorded(fast), fast, blocks);
        fast > 0 && self.area.region_blocks >= need
    }
}

#[cfg(test)]
pub(crate) mod tests;
