//! The inode numbers that users see. The kernel names nodes by the same numbers, so that file handles last as long as these.

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
    /// The node that has that number now.
    pub fn node_of(&self, shown: u64) -> Option<NodeId> {
        let slot = match shown {
            0 => None,
            ROOT_NUMBER => Some(0),
            TEMPORARY.. => {
                let slot = self.slots.slot_of(shown & !TEMPORARY);
                slot.filter(|s| self.slots.lasting(*s) == 0)
            }
            number => self.slots.with_lasting(number),
        };
        self.at(slot?).map(|n| self.slots.node(n.slot))
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
    /// Sets the lasting number of a node. If it had another one, the references of the kernel are to a file that is gone, and end.
    pub(crate) fn set_lasting(&mut self, id: NodeId, number: u64) {
        if let Some(slot) = self.slots.slot_of(id)
            && self.slots.lasting(slot) != number
        {
            self.slots.set_lasting(slot, number);
            if self.refs.contains_key(&slot) {
                self.forget(id, u64::MAX);
            }
        }
    }
}
