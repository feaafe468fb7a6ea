//! Names and attributes of everything, in memory, so that lookups, `stat` and listings access no device.
//!
//! A node is a file (or directory, link, …) with a number that no other node of the same mount ever has. Users and the kernel know it by its
//! lasting number instead (`lasting/`), by which it is found, too. So whatever waits (moves, copies, accesses, statistics, handles) names a
//! node by its number, and finds nothing, rather than another file, when the node is gone. The first name of a node is in the node's own
//! slot; each further name (hard link) has a slot of its own. Slots are used again; the upper half of a node's number says how often its
//! slot was.
//!
//! Memory of a file that is not in use: 66 to 72 bytes, its name (plus one byte, rounded up to 4), and 4 to 8 bytes in its directory.

mod bulk;
mod children;
mod lasting;
mod node_map;
mod refs;
mod slots;
#[cfg(test)]
mod tests;

use crate::layout::DISKS_MAX;
use crate::tree::{Facts, Id, Tier, join};
use children::Children;
use node_map::NodeMap;
use refs::Refs;
pub use slots::Kind;
use slots::{NO_NODE, Slots};
pub(crate) use slots::{SlotId, pack, unpack};

/// Number of a node: never used again in this mount. 0 is the root.
pub type NodeId = u64;
/// The root directory.
pub const ROOT: NodeId = 0;

/// The kind of a node to create.
#[derive(Clone, Debug)]
pub enum Body {
    /// A regular file.
    File,
    /// A directory. Bit *t* is set if it exists on tier *t*.
    Dir(u16),
    /// A symbolic link, with its target.
    Link(Box<[u8]>),
    /// A pipe, a socket or a device.
    Special,
}

impl Body {
    fn kind(&self) -> Kind {
        match self {
            Body::File => Kind::File,
            Body::Dir(_) => Kind::Dir,
            Body::Link(_) => Kind::Link,
            Body::Special => Kind::Special,
        }
    }
}

/// A directory.
#[derive(Clone, Debug, Default)]
pub struct Dir {
    children: Children,
    /// How many of them are directories.
    pub subdirs: u32,
    /// Bit *d* is set if it exists on disk *d*.
    pub on: u16,
}

impl Dir {
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }
}

/// The present state of a node.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    cat: &'a Catalogue,
    slot: SlotId,
    /// Its disk; for a directory, the first disk that has it.
    pub tier: Tier,
    /// Attributes, as they were when last read. While the file is in use, its descriptor has the current ones.
    pub facts: Facts,
    /// Its kind.
    pub kind: Kind,
}

impl<'a> Node<'a> {
    /// The contents, if it is a directory.
    pub fn dir(&self) -> Option<&'a Dir> {
        self.cat.dirs.get(&self.slot)
    }
    /// The target, if it is a symbolic link.
    pub fn target(&self) -> Option<&'a [u8]> {
        self.cat.targets.get(&self.slot).map(|t| &t[..])
    }
    /// The number of its names.
    pub fn links(&self) -> usize {
        self.cat.links(self.slot)
    }
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }
    /// The disks on which it exists, as bits.
    pub fn on(&self) -> u16 {
        self.dir().map_or(1 << self.tier, |d| d.on)
    }
}

/// The names of a directory at one moment, in order.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Listing {
    /// The name at that index. What has it now must be looked up: it may be removed, or another file's.
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        let end = *self.ends.get(at)?;
        let start = at.checked_sub(1).map_or(0, |a| self.ends[a]);
        Some(&self.bytes[start..end])
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Catalogue {
    slots: Slots,
    dirs: NodeMap<Dir>,
    targets: NodeMap<Box<[u8]>>,
    /// Slots of the further names, for nodes that have several.
    aliases: NodeMap<Vec<SlotId>>,
    /// Number of a file's names that are outside of this namespace.
    outside: NodeMap<u32>,
    refs: NodeMap<Refs>,
    /// Extended attributes of the few nodes that have any.
    xattrs: NodeMap<crate::disk::Xattrs>,
    /// Number of regular files on each disk.
    files: [u64; DISKS_MAX],
}

impl Catalogue {
    /// A catalogue with a root directory.
    pub fn new(root: Facts, on: u16) -> Catalogue {
        let mut all = Catalogue::default();
        all.insert(0, &root, Body::Dir(on));
        all
    }
    fn insert(&mut self, tier: Tier, facts: &Facts, body: Body) -> SlotId {
        let id = self.slots.take(body.kind());
        if let Some(s) = self.slots.get_mut(id) {
            s.set_tier(tier);
        }
        self.slots.set_facts(id, facts);
        match body {
            Body::File => self.files[usize::from(tier)] += 1,
            Body::Dir(on) => {
                let dir = Dir {
                    on,
                    ..Dir::default()
                };
                self.dirs.insert(id, dir);
            }
            Body::Link(to) => {
                self.targets.insert(id, to);
            }
            Body::Special => {}
        }
        id
    }
    /// A node.
    pub fn get(&self, id: NodeId) -> Option<Node<'_>> {
        self.at(self.slots.slot_of(id)?)
    }
    /// The node that has that slot now.
    fn at(&self, slot: SlotId) -> Option<Node<'_>> {
        let s = self.slots.get(slot)?;
        let kind = s.kind();
        if kind == Kind::Alias {
            return None;
        }
        let mut facts = self.slots.facts(slot);
        facts.nlink = match kind {
            Kind::Dir if slot != 0 && s.parent == NO_NODE => 0,
            Kind::Dir => 2 + self.dirs.get(&slot).map_or(0, |d| d.subdirs),
            _ => self.links(slot) as u32 + self.outside.get(&slot).copied().unwrap_or(0),
        };
        Some(Node {
            cat: self,
            slot,
            tier: s.tier(),
            facts,
            kind,
        })
    }
    fn links(&self, slot: SlotId) -> usize {
        let named = self.slots.get(slot).is_some_and(|s| s.parent != NO_NODE);
        usize::from(named) + self.aliases.get(&slot).map_or(0, Vec::len)
    }
    /// Changes the attributes of a node. If `nlink` exceeds the number of known names, the other names are outside of this namespace.
    pub fn update(&mut self, id: NodeId, change: impl FnOnce(&mut Facts)) {
        let Some(n) = self.get(id) else { return };
        let (slot, mut facts) = (n.slot, n.facts);
        change(&mut facts);
        self.slots.set_facts(slot, &facts);
        if !self.dirs.contains_key(&slot) {
            let outside = facts.nlink.saturating_sub(self.links(slot) as u32);
            if outside == 0 {
                self.outside.remove(&slot);
            } else {
                self.outside.insert(slot, outside);
            }
        }
    }
    /// Sets the attributes of a node, except for the number of its names.
    pub fn set_facts(&mut self, id: NodeId, facts: &Facts) {
        if let Some(slot) = self.slots.slot_of(id) {
            self.slots.set_facts(slot, facts);
        }
    }
    fn dir(&self, id: NodeId) -> Option<&Dir> {
        self.dirs.get(&self.slots.slot_of(id)?)
    }
    fn dir_mut(&mut self, id: NodeId) -> Option<&mut Dir> {
        self.dirs.get_mut(&self.slots.slot_of(id)?)
    }
    /// The slot of a name.
    fn slot(&self, dir: NodeId, name: &[u8]) -> Option<SlotId> {
        self.dir(dir)?.children.find(&self.slots, name)
    }
    /// The slot of the node that has a name in that slot.
    fn slot_of_name(&self, slot: SlotId) -> SlotId {
        match self.slots.get(slot) {
            Some(s) if s.kind() == Kind::Alias => s.target(),
            _ => slot,
        }
    }
    /// The node with that name in a directory.
    pub fn child(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let slot = self.slot_of_name(self.slot(dir, name)?);
        Some(self.slots.node(slot))
    }
    /// All nodes.
    pub fn all(&self) -> impl Iterator<Item = (NodeId, Node<'_>)> {
        let slots = 0..self.slots.numbers() as SlotId;
        slots.filter_map(|slot| self.at(slot).map(|n| (self.slots.node(slot), n)))
    }
    /// Number of regular files.
    pub fn files(&self) -> u64 {
        self.files.iter().sum()
    }
    /// Number of regular files on a disk.
    pub fn files_on(&self, tier: Tier) -> u64 {
        self.files.get(usize::from(tier)).copied().unwrap_or(0)
    }
    /// A node chosen by a random number; `None` if that meets a free place.
    pub(crate) fn any(&self, random: u64) -> Option<NodeId> {
        let slot = (random % self.slots.numbers() as u64) as SlotId;
        self.at(slot).map(|_| self.slots.node(slot))
    }
    /// The directory of a node's first name; `None` for the root and for a node without a name.
    pub fn parent(&self, id: NodeId) -> Option<NodeId> {
        let up = self.parent_of(self.slots.slot_of(id)?)?;
        Some(self.slots.node(up))
    }
    fn parent_of(&self, slot: SlotId) -> Option<SlotId> {
        let s = self.slots.get(slot)?;
        (s.parent != NO_NODE).then_some(s.parent)
    }
    fn name_slots(&self, id: NodeId) -> impl Iterator<Item = SlotId> {
        let slot = self.slots.slot_of(id);
        let more = slot.and_then(|s| self.aliases.get(&s));
        let all = slot.into_iter().chain(more.into_iter().flatten().copied());
        all.filter(|s| self.parent_of(*s).is_some())
    }
    /// The names of a node, each with its directory.
    pub fn names(&self, id: NodeId) -> impl Iterator<Item = (NodeId, &[u8])> {
        let slots = self.name_slots(id);
        slots.filter_map(|s| Some((self.slots.node(self.parent_of(s)?), self.slots.name(s))))
    }
    /// The directories in which a node has names.
    pub fn parents(&self, id: NodeId) -> Vec<NodeId> {
        self.names(id).map(|n| n.0).collect()
    }
    /// The path of a name in a directory.
    pub fn path_in(&self, dir: NodeId, name: &[u8]) -> Option<Vec<u8>> {
        self.path_below(self.slots.slot_of(dir)?, name)
    }
    fn path_below(&self, dir: SlotId, name: &[u8]) -> Option<Vec<u8>> {
        let mut words: Vec<&[u8]> = vec![name];
        let mut here = dir;
        while here != 0 {
            words.push(self.slots.name(here));
            here = self.parent_of(here)?;
        }
        words.reverse();
        Some(words.join(&b'/'))
    }
    /// All paths of a node; none if it is deleted, `.` for the root.
    pub fn paths(&self, id: NodeId) -> Vec<Vec<u8>> {
        if id == ROOT {
            return vec![b".".to_vec()];
        }
        let path = |s| self.path_below(self.parent_of(s)?, self.slots.name(s));
        self.name_slots(id).filter_map(path).collect()
    }
    /// One of the paths of a node.
    pub fn path(&self, id: NodeId) -> Option<Vec<u8>> {
        if id == ROOT {
            return Some(b".".to_vec());
        }
        let slot = self.slots.slot_of(id)?;
        self.path_below(self.parent_of(slot)?, self.slots.name(slot))
    }
    /// The node at a path.
    pub fn find(&self, path: &[u8]) -> Option<NodeId> {
        let words = path.split(|b| *b == b'/');
        let mut words = words.filter(|w| !w.is_empty() && *w != b".");
        words.try_fold(ROOT, |at, word| self.child(at, word))
    }
    /// Adds a node with that name. `None` if the directory does not exist.
    pub fn add(
        &mut self,
        dir: NodeId,
        name: &[u8],
        tier: Tier,
        facts: Facts,
        body: Body,
    ) -> Option<NodeId> {
        let id = self.add_unlisted(dir, name, tier, facts, body)?;
        self.list_name(dir, name, id as SlotId);
        Some(id)
    }
    fn list_name(&mut self, dir: NodeId, name: &[u8], slot: SlotId) {
        if let Some(at) = self.slots.slot_of(dir)
            && let Some(d) = self.dirs.get_mut(&at)
        {
            d.children.insert(&self.slots, name, slot);
        }
    }
    /// Adds a name to a node.
    pub fn link(&mut self, id: NodeId, dir: NodeId, name: &[u8]) {
        if let Some(slot) = self.link_unlisted(id, dir, name) {
            self.list_name(dir, name, slot);
        }
    }
    /// Records that a name was found which counted as outside of the namespace before.
    pub fn name_found(&mut self, id: NodeId) {
        let Some(slot) = self.slots.slot_of(id) else {
            return;
        };
        if let Some(n) = self.outside.get_mut(&slot) {
            *n -= 1;
            if *n == 0 {
                self.outside.remove(&slot);
            }
        }
    }
    /// Removes a name. Returns the node that had it.
    pub fn unlink(&mut self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let at = self.slots.slot_of(dir)?;
        let slot = self.dirs.get_mut(&at)?.children.remove(&self.slots, name)?;
        let id = self.slot_of_name(slot);
        let is_dir = self.dirs.contains_key(&id);
        if let Some(d) = self.dirs.get_mut(&at) {
            d.subdirs -= u32::from(is_dir);
        }
        self.slots.clear_name(slot);
        let more = self.aliases.get_mut(&id);
        let emptied = if slot == id {
            more.and_then(Vec::pop)
        } else {
            if let Some(more) = more {
                more.retain(|a| *a != slot);
            }
            self.slots.give_back(slot);
            None
        };
        // A node's own slot has a name as long as the node has any.
        if let Some(alias) = emptied
            && let Some(up) = self.parent_of(alias)
        {
            let name = self.slots.name(alias).to_vec();
            self.slots.set_name(id, up, &name);
            if let Some(d) = self.dirs.get_mut(&up) {
                d.children.insert(&self.slots, &name, id);
            }
            self.slots.clear_name(alias);
            self.slots.give_back(alias);
        }
        if self.aliases.get(&id).is_some_and(Vec::is_empty) {
            self.aliases.remove(&id);
        }
        Some(self.slots.node(id))
    }
    /// Moves a name to another place. Returns the node that had the name there and has lost it.
    pub fn rename(
        &mut self,
        dir: NodeId,
        name: &[u8],
        to: NodeId,
        new_name: &[u8],
    ) -> Option<NodeId> {
        let over = self.unlink(to, new_name);
        if let Some(id) = self.unlink(dir, name) {
            self.link(id, to, new_name);
        }
        over
    }
    /// Extended attributes of a node.
    pub fn xattrs(&self, id: NodeId) -> &[(Vec<u8>, Vec<u8>)] {
        let slot = self.slots.slot_of(id);
        slot.and_then(|s| self.xattrs.get(&s))
            .map_or(&[], |x| &x[..])
    }
    /// Sets the extended attributes of a node.
    pub fn set_xattrs(&mut self, id: NodeId, all: crate::disk::Xattrs) {
        let Some(slot) = self.slots.slot_of(id) else {
            return;
        };
        if all.is_empty() {
            self.xattrs.remove(&slot);
        } else {
            self.xattrs.insert(slot, all);
        }
    }
    /// Sets the target of a symbolic link.
    pub(crate) fn set_target(&mut self, id: NodeId, target: Box<[u8]>) {
        if let Some(slot) = self.slots.slot_of(id) {
            self.targets.insert(slot, target);
        }
    }
    /// Names in a directory, in order.
    pub fn list(&self, dir: NodeId) -> Listing {
        let mut list = Listing::default();
        for slot in self.dir(dir).iter().flat_map(|d| d.children.iter()) {
            list.bytes.extend_from_slice(self.slots.name(slot));
            list.ends.push(list.bytes.len());
        }
        list
    }
    /// Whether `dir` is the node or below it.
    pub fn is_below(&self, dir: NodeId, node: NodeId) -> bool {
        let mut here = Some(dir);
        while let Some(at) = here {
            if at == node {
                return true;
            }
            here = self.parent(at);
        }
        false
    }
    /// The disks that have a directory, one bit each.
    pub fn dir_on(&self, dir: NodeId) -> u16 {
        self.dir(dir).map_or(0, |d| d.on)
    }
    /// Records that the directory now exists on that tier.
    pub fn now_on(&mut self, dir: NodeId, tier: Tier) {
        if let Some(d) = self.dir_mut(dir) {
            d.on |= 1 << tier;
        }
    }
    /// Records that the directory does not exist on that tier any more. The others stay.
    pub fn gone_from(&mut self, dir: NodeId, tier: Tier) {
        if let Some(d) = self.dir_mut(dir) {
            d.on &= !(1 << tier);
        }
    }
    /// Records that the node is another file now: it was moved, or replaced on its tier.
    pub fn replace(&mut self, id: NodeId, tier: Tier, file: Id) {
        self.update(id, |f| f.id = file);
        let Some(n) = self.get(id) else { return };
        let (slot, before, is_file) = (n.slot, n.tier, n.is_file());
        self.files[usize::from(before)] -= u64::from(is_file);
        self.files[usize::from(tier)] += u64::from(is_file);
        if let Some(s) = self.slots.get_mut(slot) {
            s.set_tier(tier);
        }
    }
    /// One of the paths of a node, for messages; empty if it has none.
    pub(crate) fn shown_path(&self, id: NodeId) -> String {
        String::from_utf8_lossy(&self.path(id).unwrap_or_default()).into_owned()
    }
    /// `dir/name`, for messages.
    pub fn shown(&self, dir: NodeId, name: &[u8]) -> String {
        let dir = self.path(dir).unwrap_or_default();
        String::from_utf8_lossy(&join(&dir, name)).into_owned()
    }
}
