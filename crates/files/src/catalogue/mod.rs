//! Names and attributes of everything, in memory, so that lookups, `stat` and listings access no device.
//!
//! A node is a file (or directory, link, …) with a number; its inode number for the kernel is that number + 1. The first name of a node is
//! in the node's own slot; each further name (hard link) has a slot of its own.
//!
//! Memory of a file that is not in use: 56 bytes, its name (plus one byte, rounded up to 4), and 4 to 8 bytes in its directory.

mod bulk;
mod children;
mod node_map;
mod slots;
#[cfg(test)]
mod tests;

use crate::tree::{Facts, Id, Tier, join};
use children::Children;
use node_map::NodeMap;
pub use slots::Kind;
use slots::{NO_NODE, Slots};

/// Number of a node. 0 is the root.
pub type NodeId = u32;
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
    /// Bit *t* is set if it exists on tier *t*.
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
    id: NodeId,
    /// How often this number was used before.
    pub generation: u16,
    /// Its tier; for a directory, the fastest tier that has it.
    pub tier: Tier,
    /// Attributes, as they were when last read. While the file is in use, its descriptor has the current ones.
    pub facts: Facts,
    /// Its kind.
    pub kind: Kind,
}

impl<'a> Node<'a> {
    /// The contents, if it is a directory.
    pub fn dir(&self) -> Option<&'a Dir> {
        self.cat.dirs.get(&self.id)
    }
    /// The target, if it is a symbolic link.
    pub fn target(&self) -> Option<&'a [u8]> {
        self.cat.targets.get(&self.id).map(|t| &t[..])
    }
    /// The number of its names.
    pub fn links(&self) -> usize {
        self.cat.links(self.id)
    }
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }
    /// The tiers on which it exists, as bits.
    pub fn on(&self) -> u16 {
        self.dir().map_or(1 << self.tier, |d| d.on)
    }
}

/// The references to a node besides its names.
#[derive(Clone, Copy, Debug, Default)]
struct Refs {
    held: u32,
    lookups: u64,
}

/// The names of a directory at one moment, in order.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    bytes: Vec<u8>,
    entries: Vec<(usize, NodeId)>,
}

impl Listing {
    /// The entry at that index.
    pub fn get(&self, at: usize) -> Option<(&[u8], NodeId)> {
        let &(end, id) = self.entries.get(at)?;
        let start = at.checked_sub(1).map_or(0, |a| self.entries[a].0);
        Some((&self.bytes[start..end], id))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Catalogue {
    slots: Slots,
    dirs: NodeMap<Dir>,
    targets: NodeMap<Box<[u8]>>,
    /// Slots of the further names, for nodes that have several.
    aliases: NodeMap<Vec<NodeId>>,
    /// Number of a file's names that are outside of this namespace.
    outside: NodeMap<u32>,
    refs: NodeMap<Refs>,
    /// Extended attributes of the few nodes that have any.
    xattrs: NodeMap<crate::disk::Xattrs>,
    files: u64,
}

impl Catalogue {
    /// A catalogue with a root directory.
    pub fn new(root: Facts, on: u16) -> Catalogue {
        let mut all = Catalogue::default();
        all.insert(0, &root, Body::Dir(on));
        all
    }
    fn insert(&mut self, tier: Tier, facts: &Facts, body: Body) -> NodeId {
        let id = self.slots.take(body.kind());
        if let Some(s) = self.slots.get_mut(id) {
            s.set_tier(tier);
        }
        self.slots.set_facts(id, facts);
        match body {
            Body::File => self.files += 1,
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
        let s = self.slots.get(id)?;
        let kind = s.kind();
        if kind == Kind::Alias {
            return None;
        }
        let mut facts = self.slots.facts(id);
        facts.nlink = match kind {
            Kind::Dir if id != ROOT && s.parent == NO_NODE => 0,
            Kind::Dir => 2 + self.dirs.get(&id).map_or(0, |d| d.subdirs),
            _ => self.links(id) as u32 + self.outside.get(&id).copied().unwrap_or(0),
        };
        Some(Node {
            cat: self,
            id,
            generation: self.slots.generation(id),
            tier: s.tier(),
            facts,
            kind,
        })
    }
    fn links(&self, id: NodeId) -> usize {
        let named = self.slots.get(id).is_some_and(|s| s.parent != NO_NODE);
        usize::from(named) + self.aliases.get(&id).map_or(0, Vec::len)
    }
    /// Changes the attributes of a node. If `nlink` exceeds the number of known names, the other names are outside of this namespace.
    pub fn update(&mut self, id: NodeId, change: impl FnOnce(&mut Facts)) {
        let Some(mut facts) = self.get(id).map(|n| n.facts) else {
            return;
        };
        change(&mut facts);
        self.slots.set_facts(id, &facts);
        if !self.dirs.contains_key(&id) {
            let outside = facts.nlink.saturating_sub(self.links(id) as u32);
            if outside == 0 {
                self.outside.remove(&id);
            } else {
                self.outside.insert(id, outside);
            }
        }
    }
    /// Sets the attributes of a node, except for the number of its names.
    pub fn set_facts(&mut self, id: NodeId, facts: &Facts) {
        self.slots.set_facts(id, facts);
    }
    /// The slot of a name.
    fn slot(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.dirs.get(&dir)?.children.find(&self.slots, name)
    }
    fn node_of(&self, slot: NodeId) -> NodeId {
        match self.slots.get(slot) {
            Some(s) if s.kind() == Kind::Alias => s.target(),
            _ => slot,
        }
    }
    /// The node with that name in a directory.
    pub fn child(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.slot(dir, name).map(|s| self.node_of(s))
    }
    /// All nodes.
    pub fn all(&self) -> impl Iterator<Item = (NodeId, Node<'_>)> {
        let ids = 0..self.slots.numbers() as NodeId;
        ids.filter_map(|id| self.get(id).map(|n| (id, n)))
    }
    /// Number of regular files.
    pub fn files(&self) -> u64 {
        self.files
    }
    /// Numbers that were given out so far, including free ones.
    pub fn numbers(&self) -> usize {
        self.slots.numbers()
    }
    /// The directory of a node's first name; `None` for the root and for a node without a name.
    pub fn parent(&self, id: NodeId) -> Option<NodeId> {
        let s = self.slots.get(id)?;
        (s.parent != NO_NODE).then_some(s.parent)
    }
    fn name_slots(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let more = self.aliases.get(&id).into_iter().flatten().copied();
        let all = std::iter::once(id).chain(more);
        all.filter(|s| self.parent(*s).is_some())
    }
    /// The names of a node, each with its directory.
    pub fn names(&self, id: NodeId) -> impl Iterator<Item = (NodeId, &[u8])> {
        let slots = self.name_slots(id);
        slots.filter_map(|s| Some((self.parent(s)?, self.slots.name(s))))
    }
    /// The directories in which a node has names.
    pub fn parents(&self, id: NodeId) -> Vec<NodeId> {
        self.names(id).map(|n| n.0).collect()
    }
    /// The path of a name in a directory.
    pub fn path_in(&self, dir: NodeId, name: &[u8]) -> Option<Vec<u8>> {
        let mut words: Vec<&[u8]> = vec![name];
        let mut here = dir;
        while here != ROOT {
            words.push(self.slots.name(here));
            here = self.parent(here)?;
        }
        words.reverse();
        Some(words.join(&b'/'))
    }
    /// All paths of a node; none if it is deleted, `.` for the root.
    pub fn paths(&self, id: NodeId) -> Vec<Vec<u8>> {
        if id == ROOT {
            return vec![b".".to_vec()];
        }
        let path = |s| self.path_in(self.parent(s)?, self.slots.name(s));
        self.name_slots(id).filter_map(path).collect()
    }
    /// One of the paths of a node.
    pub fn path(&self, id: NodeId) -> Option<Vec<u8>> {
        if id == ROOT {
            return Some(b".".to_vec());
        }
        self.path_in(self.parent(id)?, self.slots.name(id))
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
        if let Some(d) = self.dirs.get_mut(&dir) {
            d.children.insert(&self.slots, name, id);
        }
        Some(id)
    }
    /// Adds a name to a node.
    pub fn link(&mut self, id: NodeId, dir: NodeId, name: &[u8]) {
        if let Some(slot) = self.link_unlisted(id, dir, name)
            && let Some(d) = self.dirs.get_mut(&dir)
        {
            d.children.insert(&self.slots, name, slot);
        }
    }
    /// Records that a name was found which counted as outside of the namespace before.
    pub fn name_found(&mut self, id: NodeId) {
        if let Some(n) = self.outside.get_mut(&id) {
            *n -= 1;
            if *n == 0 {
                self.outside.remove(&id);
            }
        }
    }
    /// Removes a name. Returns the node that had it.
    pub fn unlink(&mut self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let slot = self
            .dirs
            .get_mut(&dir)?
            .children
            .remove(&self.slots, name)?;
        let id = self.node_of(slot);
        let is_dir = self.dirs.contains_key(&id);
        if let Some(d) = self.dirs.get_mut(&dir) {
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
            && let Some(up) = self.parent(alias)
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
        Some(id)
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
    /// Adds a reference of the kernel. Returns the generation; `None` if there is no such node.
    pub fn refer(&mut self, id: NodeId) -> Option<u16> {
        let generation = self.get(id)?.generation;
        self.refs.entry(id).or_default().lookups += 1;
        Some(generation)
    }
    /// Removes `n` references of the kernel.
    pub fn forget(&mut self, id: NodeId, n: u64) {
        if let Some(r) = self.refs.get_mut(&id) {
            r.lookups = r.lookups.saturating_sub(n);
        }
        self.unused(id);
    }
    /// Reserves the node's number until [`Catalogue::let_go`], so that no other node gets it. Returns false if there is no such node.
    pub fn hold(&mut self, id: NodeId) -> bool {
        if self.get(id).is_none() {
            return false;
        }
        self.refs.entry(id).or_default().held += 1;
        true
    }
    /// Ends [`Catalogue::hold`].
    pub fn let_go(&mut self, id: NodeId) {
        if let Some(r) = self.refs.get_mut(&id) {
            r.held = r.held.saturating_sub(1);
        }
        self.unused(id);
    }
    fn unused(&mut self, id: NodeId) {
        if self
            .refs
            .get(&id)
            .is_some_and(|r| r.held == 0 && r.lookups == 0)
        {
            self.refs.remove(&id);
        }
        self.drop_unused(id);
    }
    /// Drops a node that has no name, no handle and no reference. Returns true if it was dropped.
    pub fn drop_unused(&mut self, id: NodeId) -> bool {
        let unused = self.links(id) == 0 && !self.refs.contains_key(&id);
        let Some(node) = self.get(id).filter(|_| unused && id != ROOT) else {
            return false;
        };
        self.files -= u64::from(node.is_file());
        self.dirs.remove(&id);
        self.targets.remove(&id);
        self.outside.remove(&id);
        self.xattrs.remove(&id);
        self.slots.give_back(id);
        true
    }
    /// Extended attributes of a node.
    pub fn xattrs(&self, id: NodeId) -> &[(Vec<u8>, Vec<u8>)] {
        self.xattrs.get(&id).map_or(&[], |x| &x[..])
    }
    /// Sets the extended attributes of a node.
    pub fn set_xattrs(&mut self, id: NodeId, all: crate::disk::Xattrs) {
        if all.is_empty() {
            self.xattrs.remove(&id);
        } else {
            self.xattrs.insert(id, all);
        }
    }
    /// Names in a directory, in order.
    pub fn list(&self, dir: NodeId) -> Listing {
        let mut list = Listing::default();
        for slot in self.dirs.get(&dir).iter().flat_map(|d| d.children.iter()) {
            list.bytes.extend_from_slice(self.slots.name(slot));
            list.entries.push((list.bytes.len(), self.node_of(slot)));
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
    /// Records that the directory now exists on that tier.
    pub fn now_on(&mut self, dir: NodeId, tier: Tier) {
        if let Some(d) = self.dirs.get_mut(&dir) {
            d.on |= 1 << tier;
        }
    }
    /// Records that the directory does not exist on that tier any more. The others stay.
    pub fn gone_from(&mut self, dir: NodeId, tier: Tier) {
        if let Some(d) = self.dirs.get_mut(&dir) {
            d.on &= !(1 << tier);
        }
    }
    /// Records that the node is another file now: it was moved, or replaced on its tier.
    pub fn replace(&mut self, id: NodeId, tier: Tier, file: Id) {
        self.update(id, |f| f.id = file);
        if let Some(s) = self.slots.get_mut(id) {
            s.set_tier(tier);
        }
    }
    /// `dir/name`, for messages.
    pub fn shown(&self, dir: NodeId, name: &[u8]) -> String {
        let dir = self.path(dir).unwrap_or_default();
        String::from_utf8_lossy(&join(&dir, name)).into_owned()
    }
}
