//! Nodes of 60 bytes each, and their names.
//!
//! Values that most files share (device, mode, owner, the upper bits of the inode number) are stored once for all of them (a [`Class`]);
//! inode number, size, blocks and times are packed. Values that do not fit (an inode number of 2^56 or more, a size of 2^40 bytes or more,
//! space that differs from the size by 16 MiB or more, a time after the year 2242, …) are stored unpacked in a separate table. So are lasting
//! numbers of 2^32 or more.

use super::NodeId;
use crate::mutants::{Mutant, broken};
use crate::tree::{Facts, Id, Tier, Time};
use hashbrown::HashTable;
use isotherm_core::random::mix;
use std::collections::HashMap;

/// Number of a slot. A slot that became free is used again, so a number alone names no node for long: see [`NodeId`].
pub(crate) type SlotId = u32;

const CHUNK: usize = 4096;
/// Marks the absence of a node: the parent of the root, and of a node without a name.
pub(super) const NO_NODE: u32 = u32::MAX;
const BLOCK: usize = 1 << 16;
/// Names begin at multiples of this number of bytes.
const STEP: usize = 4;
const LONGEST: usize = 255;
/// Bits of an inode number that are in the slot; further ones are in the class.
const INO_BITS: u32 = 40;
/// Bits of an inode number that can be packed. If there were more, a file system whose inode numbers are hashes would need a class for
/// every file.
const INO_MOST: u32 = 56;
/// Maximum number of classes: a slot has three bytes for the number.
const CLASSES: usize = 1 << 24;

/// The kind of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A free slot.
    #[default]
    Free,
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Special,
    /// A further name of a node that is in another slot.
    Alias,
}

/// Values that many files share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Class {
    dev: u64,
    rdev: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    ino_high: u32,
}

/// A node, or a further name of one (then `born` is the number of the node).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed(4))]
pub(super) struct Slot {
    born: u64,
    atime: u64,
    mtime: u64,
    ctime: u64,
    pub(super) parent: u32,
    name: u32,
    /// The lasting number of the node; 0 if it has none, [`LARGE`] if it is in the separate table.
    lasting: u32,
    ino: [u8; 5],
    size: [u8; 5],
    /// Allocated blocks, minus those that a file of that size without holes usually has.
    blocks: i16,
    class: [u8; 3],
    /// Kind (bits 0 to 2), tier (3 to 6), whether its values are in the separate table (7).
    flags: u8,
}

/// Marks a lasting number that does not fit into a slot.
const LARGE: u32 = u32::MAX;
const KIND: u8 = 0x07;
const TIER: u8 = 0x78;
const TIER_AT: u32 = 3;
const UNPACKED: u8 = 0x80;

impl Slot {
    pub(super) fn kind(&self) -> Kind {
        match self.flags & KIND {
            1 => Kind::File,
            2 => Kind::Dir,
            3 => Kind::Link,
            4 => Kind::Special,
            5 => Kind::Alias,
            _ => Kind::Free,
        }
    }
    pub(super) fn set_kind(&mut self, kind: Kind) {
        self.flags = self.flags & !KIND | kind as u8;
    }
    pub(super) fn tier(&self) -> Tier {
        (self.flags & TIER) >> TIER_AT
    }
    pub(super) fn set_tier(&mut self, tier: Tier) {
        self.flags = self.flags & !TIER | tier << TIER_AT & TIER;
    }
    /// The slot of the node of which this is a further name.
    pub(super) fn target(&self) -> SlotId {
        self.born as SlotId
    }
    pub(super) fn set_target(&mut self, node: SlotId) {
        self.born = u64::from(node);
    }
}

/// The lowest five bytes of a number; `None` if it has more.
fn five(n: u64) -> Option<[u8; 5]> {
    let b = n.to_le_bytes();
    (n >> 40 == 0).then_some([b[0], b[1], b[2], b[3], b[4]])
}

fn number(b: [u8; 5]) -> u64 {
    u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], 0, 0, 0])
}

/// The block of a name and its first byte there.
fn place_of(name: u32) -> (usize, usize) {
    let at = name as usize * STEP;
    (at / BLOCK, at % BLOCK)
}

/// The space that a file of that size takes on most file systems, in units of 512 bytes.
fn usual(size: u64) -> i64 {
    (size.div_ceil(4096) * 8) as i64
}

/// A time in 64 bits; `None` if it does not fit.
pub(crate) fn pack(t: Time) -> Option<u64> {
    let sec = u64::try_from(t.sec.checked_add(1 << 33)?).ok()?;
    (sec < 1 << 34 && t.nsec < 1 << 30).then_some(sec << 30 | u64::from(t.nsec))
}

/// The time that [`pack`] has packed.
pub(crate) fn unpack(t: u64) -> Time {
    Time {
        sec: (t >> 30) as i64 - (1 << 33),
        nsec: (t & ((1 << 30) - 1)) as u32,
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Slots {
    chunks: Vec<Vec<Slot>>,
    next: usize,
    free: Vec<SlotId>,
    /// How often a number was used before, as far as numbers were used again.
    generations: Vec<u16>,
    classes: Vec<Class>,
    class_numbers: HashMap<Class, u32>,
    /// The class of the previous file: the next one often has the same.
    last_class: Option<(Class, u32)>,
    unpacked: HashMap<SlotId, Facts>,
    /// Lasting numbers that do not fit into slots.
    large: HashMap<SlotId, u64>,
    /// The slots that have a lasting number, by that number, which the table reads from the slot: 5.7 to 11.4 bytes each.
    by_number: HashTable<SlotId>,
    names: Vec<Vec<u8>>,
    /// Places of removed names, by length in steps.
    free_names: Vec<Vec<u32>>,
}

impl Slots {
    /// Numbers that were given out so far, including free ones.
    pub(super) fn numbers(&self) -> usize {
        self.next
    }
    pub(super) fn get(&self, id: SlotId) -> Option<&Slot> {
        let id = id as usize;
        let slot = self.chunks.get(id / CHUNK)?.get(id % CHUNK)?;
        (slot.flags & KIND != 0).then_some(slot)
    }
    pub(super) fn get_mut(&mut self, id: SlotId) -> Option<&mut Slot> {
        let id = id as usize;
        let slot = self.chunks.get_mut(id / CHUNK)?.get_mut(id % CHUNK)?;
        (slot.flags & KIND != 0).then_some(slot)
    }
    /// Takes a free slot for that kind, without a name.
    pub(super) fn take(&mut self, kind: Kind) -> SlotId {
        let id = self.free.pop().unwrap_or_else(|| {
            if self.next.is_multiple_of(CHUNK) {
                self.chunks.push(Vec::with_capacity(CHUNK));
            }
            self.next += 1;
            (self.next - 1) as SlotId
        });
        let (chunk, at) = (id as usize / CHUNK, id as usize % CHUNK);
        if at == self.chunks[chunk].len() {
            self.chunks[chunk].push(Slot::default());
        }
        let slot = &mut self.chunks[chunk][at];
        *slot = Slot {
            parent: NO_NODE,
            name: NO_NODE,
            ..Slot::default()
        };
        slot.set_kind(kind);
        id
    }
    /// Frees a slot, which may then become another node. A slot that was used 65535 times stays free for ever, because the number of its
    /// next node would be that of an earlier one. So 60 bytes are lost for each 65535 files that are made and deleted.
    pub(super) fn give_back(&mut self, id: SlotId) {
        self.unpacked.remove(&id);
        self.set_lasting(id, 0);
        if let Some(slot) = self.get_mut(id) {
            slot.set_kind(Kind::Free);
            let at = id as usize;
            if self.generations.len() <= at {
                self.generations.resize(at + 1, 0);
            }
            self.generations[at] = self.generations[at].saturating_add(1);
            if self.generations[at] < u16::MAX {
                self.free.push(id);
            }
        }
    }
    /// How often this slot was used before.
    fn generation(&self, id: SlotId) -> u16 {
        self.generations.get(id as usize).copied().unwrap_or(0)
    }
    /// The number of the node that has this slot now.
    pub(super) fn node(&self, id: SlotId) -> NodeId {
        u64::from(self.generation(id)) << 32 | u64::from(id)
    }
    /// The slot of a node; `None` if it is gone, and the slot is free or has another node.
    pub(super) fn slot_of(&self, node: NodeId) -> Option<SlotId> {
        let id = node as SlotId;
        let same = self.node(id) == node || broken(Mutant::TrustNumber);
        (same && self.get(id).is_some()).then_some(id)
    }
    pub(super) fn facts(&self, id: SlotId) -> Facts {
        let Some(s) = self.get(id) else {
            return Facts::default();
        };
        if s.flags & UNPACKED != 0
            && let Some(f) = self.unpacked.get(&id)
        {
            return *f;
        }
        let class = u32::from_le_bytes([s.class[0], s.class[1], s.class[2], 0]);
        let Some(c) = self.classes.get(class as usize) else {
            return Facts::default();
        };
        let size = number(s.size);
        Facts {
            id: Id {
                ino: u64::from(c.ino_high) << INO_BITS | number(s.ino),
                born: s.born,
            },
            dev: c.dev,
            mode: c.mode,
            nlink: 0,
            uid: c.uid,
            gid: c.gid,
            rdev: c.rdev,
            size,
            blocks: (usual(size) + i64::from(s.blocks)) as u64,
            atime: unpack(s.atime),
            mtime: unpack(s.mtime),
            ctime: unpack(s.ctime),
            ..Facts::default()
        }
    }
    /// Stores all attributes except for the number of names.
    pub(super) fn set_facts(&mut self, id: SlotId, f: &Facts) {
        let packed = self.pack(f);
        let Some(s) = self.get_mut(id) else { return };
        let was_unpacked = s.flags & UNPACKED != 0;
        if let Some(packed) = packed {
            *s = Slot {
                parent: s.parent,
                name: s.name,
                lasting: s.lasting,
                flags: s.flags & !UNPACKED,
                ..packed
            };
            if was_unpacked {
                self.unpacked.remove(&id);
            }
        } else {
            s.flags |= UNPACKED;
            self.unpacked.insert(id, *f);
        }
    }
    /// The lasting number of a node; 0 if it has none.
    pub(super) fn lasting(&self, id: SlotId) -> u64 {
        match self.get(id).map(|s| s.lasting) {
            Some(LARGE) => self.large.get(&id).copied().unwrap_or(0),
            small => u64::from(small.unwrap_or(0)),
        }
    }
    /// Sets the lasting number of a node; 0 takes it.
    pub(super) fn set_lasting(&mut self, id: SlotId, number: u64) {
        let before = self.lasting(id);
        if before != 0
            && let Ok(there) = self.by_number.find_entry(mix(before), |s| *s == id)
        {
            there.remove();
        }
        let Some(s) = self.get_mut(id) else { return };
        s.lasting = u32::try_from(number).unwrap_or(LARGE);
        if s.lasting == LARGE {
            self.large.insert(id, number);
        } else {
            self.large.remove(&id);
        }
        if number != 0 {
            let mut all = std::mem::take(&mut self.by_number);
            all.insert_unique(mix(number), id, |s| mix(self.lasting(*s)));
            self.by_number = all;
        }
    }
    /// The slot of the node with that lasting number.
    pub(super) fn with_lasting(&self, number: u64) -> Option<SlotId> {
        let same = |s: &SlotId| self.lasting(*s) == number;
        self.by_number.find(mix(number), same).copied()
    }
    /// The attributes as a slot has them; `None` if they do not fit.
    fn pack(&mut self, f: &Facts) -> Option<Slot> {
        if f.id.ino >> INO_MOST != 0 {
            return None;
        }
        let size = five(f.size)?;
        let blocks = i64::try_from(f.blocks).ok()?.checked_sub(usual(f.size))?;
        let slot = Slot {
            born: f.id.born,
            atime: pack(f.atime)?,
            mtime: pack(f.mtime)?,
            ctime: pack(f.ctime)?,
            ino: five(f.id.ino & ((1 << INO_BITS) - 1))?,
            size,
            blocks: i16::try_from(blocks).ok()?,
            ..Slot::default()
        };
        let class = self.class(&Class {
            dev: f.dev,
            rdev: f.rdev,
            mode: f.mode,
            uid: f.uid,
            gid: f.gid,
            ino_high: (f.id.ino >> INO_BITS) as u32,
        })?;
        let class = class.to_le_bytes();
        Some(Slot {
            class: [class[0], class[1], class[2]],
            ..slot
        })
    }
    /// The number of a class; `None` if it is new and there are too many.
    fn class(&mut self, class: &Class) -> Option<u32> {
        if let Some((last, number)) = self.last_class
            && last == *class
        {
            return Some(number);
        }
        let number = if let Some(known) = self.class_numbers.get(class) {
            *known
        } else if self.classes.len() < CLASSES {
            self.classes.push(*class);
            let number = self.classes.len() as u32 - 1;
            self.class_numbers.insert(*class, number);
            number
        } else {
            return None;
        };
        self.last_class = Some((*class, number));
        Some(number)
    }
    /// The name in a slot; empty if it has none.
    pub(super) fn name(&self, id: SlotId) -> &[u8] {
        let Some(s) = self.get(id).filter(|s| s.name != NO_NODE) else {
            return &[];
        };
        let (block, at) = place_of(s.name);
        let Some(bytes) = self.names.get(block) else {
            return &[];
        };
        let len = usize::from(bytes[at]);
        &bytes[at + 1..=at + len]
    }
    fn steps(len: usize) -> usize {
        (1 + len).div_ceil(STEP)
    }
    /// Gives a slot a name in a directory, in place of its previous name.
    pub(super) fn set_name(&mut self, id: SlotId, parent: SlotId, name: &[u8]) {
        let name = &name[..name.len().min(LONGEST)];
        self.clear_name(id);
        let steps = Self::steps(name.len());
        if self.free_names.len() <= steps {
            self.free_names.resize(steps + 1, Vec::new());
        }
        let place = self.free_names[steps].pop().unwrap_or_else(|| {
            let room = |b: &Vec<u8>| b.len() + steps * STEP <= BLOCK;
            if !self.names.last().is_some_and(room) {
                self.names.push(Vec::with_capacity(BLOCK));
            }
            let block = self.names.len() - 1;
            let bytes = &mut self.names[block];
            let at = bytes.len();
            bytes.resize(at + steps * STEP, 0);
            (block * (BLOCK / STEP) + at / STEP) as u32
        });
        let (block, at) = place_of(place);
        self.names[block][at] = name.len() as u8;
        self.names[block][at + 1..=at + name.len()].copy_from_slice(name);
        if let Some(s) = self.get_mut(id) {
            (s.parent, s.name) = (parent, place);
        }
    }
    /// Removes the name of a slot.
    pub(super) fn clear_name(&mut self, id: SlotId) {
        let steps = Self::steps(self.name(id).len());
        let Some(s) = self.get_mut(id) else { return };
        let place = std::mem::replace(&mut s.name, NO_NODE);
        s.parent = NO_NODE;
        if place != NO_NODE {
            self.free_names[steps].push(place);
        }
    }
}

#[cfg(test)]
mod tests;
