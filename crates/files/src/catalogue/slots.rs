//! Nodes of 64 bytes each, and their names.
//!
//! Values that most files share (device, mode, owner) are stored once for all of them (a [`Class`]); inode number, size, blocks and times
//! are packed. Values that do not fit (an inode number of 2^48 or more, a time after the year 2242, …) are stored unpacked in a separate
//! table.

use super::NodeId;
use crate::tree::{Facts, Id, Tier, Time};
use std::collections::HashMap;

const CHUNK: usize = 4096;
/// Marks the absence of a node: the parent of the root, and of a node without a name.
pub(super) const NOBODY: u32 = u32::MAX;
const BLOCK: usize = 1 << 16;
/// Names begin at multiples of this number of bytes.
const STEP: usize = 4;
const LONGEST: usize = 255;

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
}

/// A node, or a further name of one (then `class` is the number of the node).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    born: u64,
    atime: u64,
    mtime: u64,
    ctime: u64,
    ino: u32,
    size: u32,
    ino_high: u16,
    size_high: u16,
    blocks: u32,
    pub(super) class: u32,
    pub(super) parent: u32,
    name: u32,
    pub(super) generation: u16,
    pub(super) tier: Tier,
    kind: u8,
}

const ODD: u8 = 0x80;

impl Slot {
    pub(super) fn kind(&self) -> Kind {
        match self.kind & !ODD {
            1 => Kind::File,
            2 => Kind::Dir,
            3 => Kind::Link,
            4 => Kind::Special,
            5 => Kind::Alias,
            _ => Kind::Free,
        }
    }
    pub(super) fn set_kind(&mut self, kind: Kind) {
        self.kind = kind as u8;
    }
}

fn pack(t: Time) -> Option<u64> {
    let sec = u64::try_from(t.sec.checked_add(1 << 33)?).ok()?;
    (sec < 1 << 34 && t.nsec < 1 << 30).then_some(sec << 30 | u64::from(t.nsec))
}

fn unpack(t: u64) -> Time {
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
    free: Vec<NodeId>,
    classes: Vec<Class>,
    known: HashMap<Class, u32>,
    /// The class of the previous file: the next one often has the same.
    last: Option<(Class, u32)>,
    odd: HashMap<NodeId, Facts>,
    names: Vec<Vec<u8>>,
    /// Places of removed names, by length in steps.
    holes: Vec<Vec<u32>>,
}

impl Slots {
    /// Numbers that were given out so far, including free ones.
    pub(super) fn numbers(&self) -> usize {
        self.next
    }
    pub(super) fn get(&self, id: NodeId) -> Option<&Slot> {
        let id = id as usize;
        let slot = self.chunks.get(id / CHUNK)?.get(id % CHUNK)?;
        (slot.kind & !ODD != 0).then_some(slot)
    }
    pub(super) fn get_mut(&mut self, id: NodeId) -> Option<&mut Slot> {
        let id = id as usize;
        let slot = self.chunks.get_mut(id / CHUNK)?.get_mut(id % CHUNK)?;
        (slot.kind & !ODD != 0).then_some(slot)
    }
    /// Takes a free slot for that kind, without a name.
    pub(super) fn take(&mut self, kind: Kind) -> NodeId {
        let id = self.free.pop().unwrap_or_else(|| {
            if self.next.is_multiple_of(CHUNK) {
                self.chunks.push(Vec::with_capacity(CHUNK));
            }
            self.next += 1;
            (self.next - 1) as NodeId
        });
        let (chunk, at) = (id as usize / CHUNK, id as usize % CHUNK);
        if at == self.chunks[chunk].len() {
            self.chunks[chunk].push(Slot::default());
        }
        let slot = &mut self.chunks[chunk][at];
        *slot = Slot {
            generation: slot.generation,
            parent: NOBODY,
            name: NOBODY,
            ..Slot::default()
        };
        slot.set_kind(kind);
        id
    }
    /// Frees a slot, which may then become another node.
    pub(super) fn give_back(&mut self, id: NodeId) {
        self.odd.remove(&id);
        if let Some(slot) = self.get_mut(id) {
            slot.set_kind(Kind::Free);
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(id);
        }
    }
    pub(super) fn facts(&self, id: NodeId) -> Facts {
        let Some(s) = self.get(id) else {
            return Facts::default();
        };
        if s.kind & ODD != 0
            && let Some(f) = self.odd.get(&id)
        {
            return *f;
        }
        let Some(c) = self.classes.get(s.class as usize) else {
            return Facts::default();
        };
        Facts {
            id: Id {
                ino: u64::from(s.ino_high) << 32 | u64::from(s.ino),
                born: s.born,
            },
            dev: c.dev,
            mode: c.mode,
            nlink: 0,
            uid: c.uid,
            gid: c.gid,
            rdev: c.rdev,
            size: u64::from(s.size_high) << 32 | u64::from(s.size),
            blocks: u64::from(s.blocks),
            atime: unpack(s.atime),
            mtime: unpack(s.mtime),
            ctime: unpack(s.ctime),
            ..Facts::default()
        }
    }
    /// Stores all attributes except for the number of names.
    pub(super) fn set_facts(&mut self, id: NodeId, f: &Facts) {
        let class = Class {
            dev: f.dev,
            rdev: f.rdev,
            mode: f.mode,
            uid: f.uid,
            gid: f.gid,
        };
        let class = match self.last {
            Some((last, number)) if last == class => number,
            _ => {
                let next = self.classes.len() as u32;
                let number = *self.known.entry(class).or_insert_with(|| {
                    self.classes.push(class);
                    next
                });
                self.last = Some((class, number));
                number
            }
        };
        let Some(s) = self.get_mut(id) else { return };
        s.class = class;
        let packed = (|| {
            let fits = f.id.ino >> 48 == 0 && f.size >> 48 == 0;
            let blocks = u32::try_from(f.blocks).ok().filter(|_| fits)?;
            Some((blocks, pack(f.atime)?, pack(f.mtime)?, pack(f.ctime)?))
        })();
        s.born = f.id.born;
        (s.ino, s.ino_high) = (f.id.ino as u32, (f.id.ino >> 32) as u16);
        (s.size, s.size_high) = (f.size as u32, (f.size >> 32) as u16);
        let was_odd = s.kind & ODD != 0;
        if let Some((blocks, atime, mtime, ctime)) = packed {
            (s.blocks, s.atime, s.mtime, s.ctime) = (blocks, atime, mtime, ctime);
            s.kind &= !ODD;
            if was_odd {
                self.odd.remove(&id);
            }
        } else {
            s.kind |= ODD;
            self.odd.insert(id, *f);
        }
    }
    /// The name in a slot; empty if it has none.
    pub(super) fn name(&self, id: NodeId) -> &[u8] {
        let Some(s) = self.get(id).filter(|s| s.name != NOBODY) else {
            return &[];
        };
        let (block, at) = (
            s.name as usize / (BLOCK / STEP),
            s.name as usize % (BLOCK / STEP) * STEP,
        );
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
    pub(super) fn set_name(&mut self, id: NodeId, parent: NodeId, name: &[u8]) {
        let name = &name[..name.len().min(LONGEST)];
        self.clear_name(id);
        let steps = Self::steps(name.len());
        if self.holes.len() <= steps {
            self.holes.resize(steps + 1, Vec::new());
        }
        let place = self.holes[steps].pop().unwrap_or_else(|| {
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
        let (block, at) = (
            place as usize / (BLOCK / STEP),
            place as usize % (BLOCK / STEP) * STEP,
        );
        self.names[block][at] = name.len() as u8;
        self.names[block][at + 1..=at + name.len()].copy_from_slice(name);
        if let Some(s) = self.get_mut(id) {
            (s.parent, s.name) = (parent, place);
        }
    }
    /// Removes the name of a slot.
    pub(super) fn clear_name(&mut self, id: NodeId) {
        let steps = Self::steps(self.name(id).len());
        let Some(s) = self.get_mut(id) else { return };
        let place = std::mem::replace(&mut s.name, NOBODY);
        s.parent = NOBODY;
        if place != NOBODY {
            self.holes[steps].push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        assert_eq!(size_of::<Slot>(), 64);
        let mut s = Slots::default();
        let id = s.take(Kind::File);
        let t = |sec, nsec| Time { sec, nsec };
        let plain = Facts {
            id: Id {
                ino: (1 << 48) - 1,
                born: u64::MAX,
            },
            dev: 7,
            mode: 0o100_644,
            size: (1 << 48) - 1,
            blocks: u64::from(u32::MAX),
            atime: t(-1, 999_999_999),
            mtime: t((1 << 33) - 1, 0),
            ctime: t(-(1 << 33), 5),
            ..Facts::default()
        };
        let odd = [
            Facts {
                size: 1 << 48,
                ..plain
            },
            Facts {
                blocks: 1 << 32,
                ..plain
            },
            Facts {
                mtime: t(1 << 33, 1),
                ..plain
            },
            Facts {
                id: Id {
                    ino: u64::MAX,
                    born: 0,
                },
                ..plain
            },
        ];
        for f in [plain].into_iter().chain(odd).chain([plain]) {
            s.set_facts(id, &f);
            assert_eq!(s.facts(id), f);
        }
        assert!(s.odd.is_empty());
        for name in [&b"a"[..], &[b'x'; 255], b"", b"four"] {
            s.set_name(id, 3, name);
            assert_eq!((s.name(id), s.get(id).unwrap().parent), (name, 3));
        }
        let bytes = s.names[0].len();
        for _ in 0..1000 {
            s.set_name(id, 3, b"five5");
            s.set_name(id, 3, &[b'y'; 200]);
        }
        assert!(
            s.names.len() == 1 && s.names[0].len() <= bytes + 300,
            "holes are used again"
        );
        s.give_back(id);
        assert!(s.get(id).is_none());
        assert_eq!(s.take(Kind::Dir), id);
        assert_eq!(s.get(id).unwrap().generation, 1);
    }
}
