//! The inode numbers that users see.

use super::{Catalogue, Kind, NodeId, ROOT, SlotId};
use crate::tree::{ROOT_NUMBER, TEMPORARY};

impl Catalogue {
    /// The inode number of a node that users see. It lasts, unless it is 2^63 or more.
    pub fn shown_number(&self, id: NodeId) -> u64 {
        match self.lasting(id) {
            0 if id == ROOT => ROOT_NUMBER,
            0 => TEMPORARY | id,
            number => number,
        }
    }
    /// The lasting number of a node; 0 if it has none (yet).
    pub fn lasting(&self, id: NodeId) -> u64 {
        self.slots
            .slot_of(id)
            .map_or(0, |slot| self.slots.lasting(slot))
    }
    /// All nodes with their lasting numbers; 0 for one that has none.
    pub(crate) fn all_lasting(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        let slots = 0..self.slots.numbers() as SlotId;
        let nodes = slots.filter(|s| self.slots.get(*s).is_some_and(|s| s.kind() != Kind::Alias));
        nodes.map(|slot| (self.slots.node(slot), self.slots.lasting(slot)))
    }
    /// Sets the lasting number of a node.
    pub(crate) fn set_lasting(&mut self, id: NodeId, number: u64) {
        if let Some(slot) = self.slots.slot_of(id) {
            self.slots.set_lasting(slot, number);
        }
    }
}
