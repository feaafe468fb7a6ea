//! Names and attributes of everything, in memory, so that look-ups, `stat` and listings touch no device.
//!
//! A node is a file (or directory, link, …) with a number; its inode number for the kernel is the number + 1. Names are shared between
//! the directory that holds them and the node that has them.
//!
//! Memory: 208 bytes a node, and for each name 16 bytes and its length, and some 40 in its directory's tree.

use crate::tree::{Facts, Id, Tier, join};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Number of a node. 0 is the root.
pub type NodeId = u32;
/// The root directory.
pub const ROOT: NodeId = 0;
/// A name in a directory.
pub type Name = Arc<[u8]>;

const CHUNK: usize = 4096;

/// The names that a node has.
#[derive(Clone, Debug, Default)]
pub enum Names {
    /// Deleted, or the root.
    #[default]
    None,
    /// In a directory, called so.
    One(NodeId, Name),
    /// Hard links.
    Many(Box<Vec<(NodeId, Name)>>),
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Body {
    /// A regular file.
    File,
    /// A directory.
    Dir(Box<Dir>),
    /// A symbolic link and where it points.
    Link(Box<[u8]>),
    /// A pipe, a socket or a device.
    Special,
}

/// A directory.
#[derive(Clone, Debug, Default)]
pub struct Dir {
    /// What it holds.
    pub children: BTreeMap<Name, NodeId>,
    /// How many of them are directories.
    pub subdirs: u32,
    /// Bit *t*: it is there on tier *t*.
    pub on: u16,
}

/// One file.
#[derive(Clone, Debug)]
pub struct Node {
    /// How often this number was used before.
    pub generation: u32,
    /// Its tier; of a directory the fastest that has it.
    pub tier: Tier,
    /// Handles and others in need of it.
    pub held: u32,
    /// References that the kernel has.
    pub lookups: u64,
    /// Attributes as last seen. While the file is in use its descriptor knows better.
    pub facts: Facts,
    /// What it is called.
    pub names: Names,
    /// What it is.
    pub body: Body,
}

impl Node {
    /// A directory's contents.
    pub fn dir(&self) -> Option<&Dir> {
        match &self.body {
            Body::Dir(d) => Some(d),
            _ => None,
        }
    }
    /// How many names it has.
    pub fn links(&self) -> usize {
        match &self.names {
            Names::None => 0,
            Names::One(..) => 1,
            Names::Many(all) => all.len(),
        }
    }
    /// Is it a regular file?
    pub fn is_file(&self) -> bool {
        matches!(self.body, Body::File)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Catalogue {
    chunks: Vec<Vec<Option<Node>>>,
    next: usize,
    /// Numbers free to be used again, with the generation to come.
    free: Vec<(NodeId, u32)>,
    /// Extended attributes of those few that have some.
    xattrs: HashMap<NodeId, crate::disk::Xattrs>,
    files: u64,
}

impl Catalogue {
    /// With a root directory.
    pub fn new(root: Facts, on: u16) -> Catalogue {
        let mut all = Catalogue::default();
        let dir = Dir {
            on,
            ..Dir::default()
        };
        all.insert(0, root, Names::None, Body::Dir(Box::new(dir)));
        all
    }
    fn insert(&mut self, tier: Tier, facts: Facts, names: Names, body: Body) -> NodeId {
        let (id, generation) = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            ((self.next - 1) as NodeId, 0)
        });
        self.files += u64::from(matches!(body, Body::File));
        let node = Node {
            generation,
            tier,
            held: 0,
            lookups: 0,
            facts,
            names,
            body,
        };
        let (chunk, at) = (id as usize / CHUNK, id as usize % CHUNK);
        if chunk == self.chunks.len() {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if at == self.chunks[chunk].len() {
            self.chunks[chunk].push(Some(node));
        } else {
            self.chunks[chunk][at] = Some(node);
        }
        id
    }
    /// A node.
    pub fn get(&self, id: NodeId) -> Option<&Node> {
        let id = id as usize;
        self.chunks.get(id / CHUNK)?.get(id % CHUNK)?.as_ref()
    }
    /// A node, to change it.
    pub fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        let id = id as usize;
        self.chunks
            .get_mut(id / CHUNK)?
            .get_mut(id % CHUNK)?
            .as_mut()
    }
    fn dir_mut(&mut self, id: NodeId) -> Option<&mut Dir> {
        match &mut self.get_mut(id)?.body {
            Body::Dir(d) => Some(d),
            _ => None,
        }
    }
    /// Who is called so there.
    pub fn child(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.get(dir)?.dir()?.children.get(name).copied()
    }
    /// All nodes.
    pub fn all(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let nodes = self.chunks.iter().flatten().enumerate();
        nodes.filter_map(|(i, n)| n.as_ref().map(|n| (i as NodeId, n)))
    }
    /// Regular files.
    pub fn files(&self) -> u64 {
        self.files
    }
    /// Numbers given out so far, free ones too.
    pub fn numbers(&self) -> usize {
        self.next
    }
    /// Path of a name in a directory.
    pub fn path_in(&self, dir: NodeId, name: &[u8]) -> Option<Vec<u8>> {
        let mut words: Vec<&[u8]> = vec![name];
        let mut here = dir;
        while here != ROOT {
            let Names::One(up, name) = &self.get(here)?.names else {
                return None;
            };
            words.push(name);
            here = *up;
        }
        words.reverse();
        Some(words.join(&b'/'))
    }
    /// All paths of a node; none if it is deleted, `.` for the root.
    pub fn paths(&self, id: NodeId) -> Vec<Vec<u8>> {
        if id == ROOT {
            return vec![b".".to_vec()];
        }
        let Some(node) = self.get(id) else {
            return Vec::new();
        };
        match &node.names {
            Names::None => Vec::new(),
            Names::One(up, name) => self.path_in(*up, name).into_iter().collect(),
            Names::Many(all) => {
                let paths = all.iter().filter_map(|(up, name)| self.path_in(*up, name));
                paths.collect()
            }
        }
    }
    /// One path of a node.
    pub fn path(&self, id: NodeId) -> Option<Vec<u8>> {
        self.paths(id).into_iter().next()
    }
    /// A node by its path.
    pub fn find(&self, path: &[u8]) -> Option<NodeId> {
        let words = path.split(|b| *b == b'/');
        let mut words = words.filter(|w| !w.is_empty() && *w != b".");
        words.try_fold(ROOT, |at, word| self.child(at, word))
    }
    /// A new node, called so. `None` if there is no such directory.
    pub fn add(
        &mut self,
        dir: NodeId,
        name: &[u8],
        tier: Tier,
        facts: Facts,
        body: Body,
    ) -> Option<NodeId> {
        self.get(dir)?.dir()?;
        let name: Name = name.into();
        let is_dir = matches!(body, Body::Dir(_));
        let id = self.insert(tier, facts, Names::One(dir, Arc::clone(&name)), body);
        let d = self.dir_mut(dir)?;
        d.subdirs += u32::from(is_dir);
        d.children.insert(name, id);
        Some(id)
    }
    /// One more name.
    pub fn link(&mut self, id: NodeId, dir: NodeId, name: &[u8]) {
        let name: Name = name.into();
        let is_dir = self.get(id).is_some_and(|n| n.dir().is_some());
        let Some(node) = self.get_mut(id) else { return };
        node.names = match std::mem::take(&mut node.names) {
            Names::None => Names::One(dir, Arc::clone(&name)),
            Names::One(d, n) => Names::Many(Box::new(vec![(d, n), (dir, Arc::clone(&name))])),
            Names::Many(mut all) => {
                all.push((dir, Arc::clone(&name)));
                Names::Many(all)
            }
        };
        if let Some(d) = self.dir_mut(dir) {
            d.subdirs += u32::from(is_dir);
            d.children.insert(name, id);
        }
    }
    /// A name goes; who had it.
    pub fn unlink(&mut self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let id = self.dir_mut(dir)?.children.remove(name)?;
        let is_dir = self.get(id).is_some_and(|n| n.dir().is_some());
        if let Some(d) = self.dir_mut(dir) {
            d.subdirs -= u32::from(is_dir);
        }
        let node = self.get_mut(id)?;
        node.names = match std::mem::take(&mut node.names) {
            Names::Many(mut all) => {
                all.retain(|(d, n)| *d != dir || **n != *name);
                match &all[..] {
                    [(d, n)] => Names::One(*d, Arc::clone(n)),
                    _ => Names::Many(all),
                }
            }
            _ => Names::None,
        };
        node.facts.nlink = if is_dir { 0 } else { node.links() as u32 };
        Some(id)
    }
    /// A name goes to another place, over what is called so there, which has lost that name.
    pub fn rename(
        &mut self,
        dir: NodeId,
        name: &[u8],
        to: NodeId,
        called: &[u8],
    ) -> Option<NodeId> {
        let over = self.unlink(to, called);
        if let Some(id) = self.unlink(dir, name) {
            self.link(id, to, called);
            if let Some(n) = self.get_mut(id) {
                n.facts.nlink = n.links() as u32;
            }
        }
        over
    }
    /// Forget a node that has no name, no handle and no reference; true if it is gone.
    pub fn drop_unused(&mut self, id: NodeId) -> bool {
        let unused = |n: &Node| n.links() == 0 && n.held == 0 && n.lookups == 0;
        if id == ROOT || !self.get(id).is_some_and(unused) {
            return false;
        }
        let slot = &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK];
        if let Some(node) = slot.take() {
            self.files -= u64::from(node.is_file());
            self.free.push((id, node.generation + 1));
        }
        self.xattrs.remove(&id);
        true
    }
    /// Extended attributes of a node.
    pub fn xattrs(&self, id: NodeId) -> &[(Vec<u8>, Vec<u8>)] {
        self.xattrs.get(&id).map_or(&[], |x| &x[..])
    }
    /// These are its extended attributes.
    pub fn set_xattrs(&mut self, id: NodeId, all: crate::disk::Xattrs) {
        if all.is_empty() {
            self.xattrs.remove(&id);
        } else {
            self.xattrs.insert(id, all);
        }
    }
    /// Names in a directory, in order.
    pub fn list(&self, dir: NodeId) -> Vec<(Name, NodeId)> {
        let all = self.get(dir).and_then(Node::dir);
        all.map_or_else(Vec::new, |d| {
            let pairs = d.children.iter();
            pairs.map(|(n, id)| (Arc::clone(n), *id)).collect()
        })
    }
    /// Is `dir` the node or below it?
    pub fn is_below(&self, dir: NodeId, node: NodeId) -> bool {
        let mut here = dir;
        loop {
            if here == node {
                return true;
            }
            match self.get(here).map(|n| &n.names) {
                Some(Names::One(up, _)) => here = *up,
                _ => return false,
            }
        }
    }
    /// The directory is there on that tier from now on.
    pub fn now_on(&mut self, dir: NodeId, tier: Tier) {
        if let Some(d) = self.dir_mut(dir) {
            d.on |= 1 << tier;
        }
    }
    /// The file is another from now on: it was moved, or replaced underneath.
    pub fn replace(&mut self, id: NodeId, tier: Tier, file: Id) {
        if let Some(n) = self.get_mut(id) {
            n.tier = tier;
            n.facts.id = file;
        }
    }
    /// `dir/name`, for messages.
    pub fn shown(&self, dir: NodeId, name: &[u8]) -> String {
        let dir = self.path(dir).unwrap_or_default();
        String::from_utf8_lossy(&join(&dir, name)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_links_and_numbers() {
        let mut c = Catalogue::new(Facts::default(), 3);
        let dir = |c: &mut Catalogue, up, name: &[u8]| {
            c.add(up, name, 0, Facts::default(), Body::Dir(Box::default()))
        };
        let a = dir(&mut c, ROOT, b"a").unwrap();
        let b = dir(&mut c, a, b"b").unwrap();
        let f = c.add(b, b"f", 1, Facts::default(), Body::File).unwrap();
        assert_eq!(c.path(f), Some(b"a/b/f".to_vec()));
        assert_eq!(c.find(b"a/b/f"), Some(f));
        c.link(f, ROOT, b"g");
        assert_eq!(c.paths(f), [b"a/b/f".to_vec(), b"g".to_vec()]);
        assert_eq!(c.unlink(b, b"f"), Some(f));
        assert_eq!(c.paths(f), [b"g".to_vec()]);
        assert!(c.is_below(b, a) && !c.is_below(a, b));
        c.rename(a, b"b", ROOT, b"c");
        assert_eq!(c.path(b), Some(b"c".to_vec()));
        assert_eq!(c.get(ROOT).unwrap().dir().unwrap().subdirs, 2);
        let h = c.add(ROOT, b"h", 0, Facts::default(), Body::File).unwrap();
        assert_eq!(c.rename(ROOT, b"h", ROOT, b"g"), Some(f));
        assert_eq!((c.files(), c.child(ROOT, b"g")), (2, Some(h)));
        assert!(c.drop_unused(f) && !c.drop_unused(h));
        let again = c.add(ROOT, b"f", 0, Facts::default(), Body::File).unwrap();
        assert_eq!((again, c.get(again).unwrap().generation), (f, 1));
    }
}
