//! What keeps a node in existence besides its names.

use super::{Catalogue, NodeId, ROOT};

/// The references to a node besides its names.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refs {
    held: u32,
    lookups: u64,
}

impl Catalogue {
    /// Adds a reference of the kernel. Returns false if there is no such node.
    pub fn refer(&mut self, id: NodeId) -> bool {
        self.add_ref(id, |r| r.lookups += 1)
    }
    /// Removes `n` references of the kernel.
    pub fn forget(&mut self, id: NodeId, n: u64) {
        self.refers(id, |r| r.lookups = r.lookups.saturating_sub(n));
    }
    /// Keeps a node in existence until [`Catalogue::let_go`], even without a name. Returns false if there is no such node.
    pub fn hold(&mut self, id: NodeId) -> bool {
        self.add_ref(id, |r| r.held += 1)
    }
    /// Ends [`Catalogue::hold`].
    pub fn let_go(&mut self, id: NodeId) {
        self.refers(id, |r| r.held = r.held.saturating_sub(1));
    }
    fn add_ref(&mut self, id: NodeId, change: impl FnOnce(&mut Refs)) -> bool {
        let slot = self.get(id).map(|n| n.slot);
        slot.map(|s| change(self.refs.entry(s).or_default()))
            .is_some()
    }
    fn refers(&mut self, id: NodeId, change: impl FnOnce(&mut Refs)) {
        let Some(slot) = self.slots.slot_of(id) else {
            return;
        };
        if let Some(r) = self.refs.get_mut(&slot) {
            change(r);
            if r.held == 0 && r.lookups == 0 {
                self.refs.remove(&slot);
            }
        }
        self.drop_unused(id);
    }
    /// Drops a node that has no name, no handle and no reference. Returns true if it was dropped.
    pub fn drop_unused(&mut self, id: NodeId) -> bool {
        let Some(node) = self.get(id).filter(|_| id != ROOT) else {
            return false;
        };
        let slot = node.slot;
        if node.links() > 0 || self.refs.contains_key(&slot) {
            return false;
        }
        self.files[usize::from(node.tier)] -= u64::from(node.is_file());
        self.dirs.remove(&slot);
        self.targets.remove(&slot);
        self.outside.remove(&slot);
        self.xattrs.remove(&slot);
        self.slots.give_back(slot);
        true
    }
}
