//! Names that are added many at a time, and listed by their directories afterwards.

use super::slots::{Kind, SlotId};
use super::{Body, Catalogue, Node, NodeId};
use crate::tree::{Facts, Tier};

impl Node<'_> {
    /// What a node of that kind is made from; a directory is on those disks, one bit each.
    pub(crate) fn body(&self, on: u16) -> Body {
        match self.kind {
            Kind::Dir => Body::Dir(on),
            Kind::Link => Body::Link(self.target().unwrap_or_default().into()),
            Kind::File => Body::File,
            Kind::Special | Kind::Alias | Kind::Free => Body::Special,
        }
    }
}

impl Catalogue {
    /// As [`Catalogue::add`], but the directory does not list the name yet, so that many names can be listed at once with
    /// [`Catalogue::list_all`].
    pub(crate) fn add_unlisted(
        &mut self,
        dir: NodeId,
        name: &[u8],
        tier: Tier,
        facts: Facts,
        body: Body,
    ) -> Option<NodeId> {
        let is_dir = matches!(body, Body::Dir(_));
        self.dir_mut(dir)?.subdirs += u32::from(is_dir);
        let slot = self.insert(tier, &facts, body);
        self.slots.set_name(slot, dir as SlotId, name);
        // Its further names count as outside of the namespace until they are found.
        if !is_dir && facts.nlink > 1 {
            self.outside.insert(slot, facts.nlink - 1);
        }
        Some(self.slots.node(slot))
    }
    /// Adds names that were added unlisted to the listing of their directory.
    pub(crate) fn list_all(&mut self, dir: NodeId, names: Vec<SlotId>) {
        let Some(at) = self.slots.slot_of(dir) else {
            return;
        };
        let Some(d) = self.dirs.get_mut(&at) else {
            return;
        };
        // A name is found twice only if somebody changes the tier during the scan. The first one counts.
        for slot in d.children.extend(&self.slots, names) {
            let id = self.slot_of_name(slot);
            let is_dir = self.dirs.contains_key(&id);
            if let Some(d) = self.dirs.get_mut(&at) {
                d.subdirs -= u32::from(is_dir);
            }
            self.slots.clear_name(slot);
            if slot == id {
                self.drop_unused(self.slots.node(id));
            } else {
                if let Some(more) = self.aliases.get_mut(&id) {
                    more.retain(|a| *a != slot);
                }
                self.slots.give_back(slot);
            }
        }
    }
    /// As [`Catalogue::link`], but the directory does not list the name yet. Returns the slot for [`Catalogue::list_all`].
    pub(crate) fn link_unlisted(&mut self, id: NodeId, dir: NodeId, name: &[u8]) -> Option<SlotId> {
        let (node, is_dir) = self.get(id).map(|n| (n.slot, n.kind == Kind::Dir))?;
        self.dir_mut(dir)?.subdirs += u32::from(is_dir);
        let slot = if self.parent_of(node).is_none() {
            node
        } else {
            let alias = self.slots.take(Kind::Alias);
            if let Some(s) = self.slots.get_mut(alias) {
                s.set_target(node);
            }
            self.aliases.entry(node).or_default().push(alias);
            alias
        };
        self.slots.set_name(slot, dir as SlotId, name);
        Some(slot)
    }
}
