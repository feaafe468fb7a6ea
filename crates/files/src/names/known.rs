//! Stores attributes of files in the catalogue, such that attributes that were read earlier never replace newer ones.

use super::Names;
use crate::catalogue::NodeId;
use crate::tiers::Tiers;
use crate::tree::Facts;
use rustix::io::Errno;

/// Maximum number of attempts to read attributes that no other thread changes in the meantime.
const TRIES: usize = 16;

impl Names {
    /// Reads the attributes of a node and stores them. If another thread stored attributes in the meantime, those may be newer: they are
    /// not replaced, and the attributes are read again.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn learn(
        &self,
        tiers: &Tiers,
        node: NodeId,
        mut read: impl FnMut() -> Result<Facts, Errno>,
    ) -> Result<Facts, Errno> {
        for _ in 1..TRIES {
            let known = self.cat().get(node).map(|n| n.facts);
            let facts = read()?;
            if self.store_facts(tiers, node, facts, |now| Some(*now) == known) {
                return Ok(facts);
            }
        }
        let facts = read()?;
        self.seen(tiers, node, facts);
        Ok(facts)
    }
    /// Stores attributes of a node that were just read.
    pub(crate) fn seen(&self, tiers: &Tiers, node: NodeId, facts: Facts) {
        self.store_facts(tiers, node, facts, |_| true);
    }
    /// Stores attributes if those that are known now are what the caller expects. Returns false if they are not.
    fn store_facts(
        &self,
        tiers: &Tiers,
        node: NodeId,
        facts: Facts,
        expected: impl FnOnce(&Facts) -> bool,
    ) -> bool {
        let mut cat = self.cat_mut();
        let Some(n) = cat.get(node).filter(|n| n.facts.id == facts.id) else {
            // The node is another file by now, or no longer exists.
            return true;
        };
        let (tier, before, is_file) = (n.tier, n.facts.blocks, n.is_file());
        if !expected(&n.facts) {
            return false;
        }
        cat.set_facts(node, &facts);
        if is_file {
            tiers.count_bytes(tier, before, facts.blocks);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::IfPresent;

    /// A close reads the attributes of the file. Before it stores them, another thread renames the file, which changes a time.
    #[test]
    fn what_was_stored_meanwhile_is_not_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let (store, node, live) = crate::store::with_a_file(dir.path());
        let mut turns = 0;
        let stored = store.names.learn(&store.tiers, node, || {
            let read = live.facts();
            turns += 1;
            if turns == 1 {
                std::thread::sleep(std::time::Duration::from_millis(12));
                store
                    .rename((0, b"f"), (0, b"g"), IfPresent::Refuse)
                    .unwrap();
            }
            read
        });
        assert_eq!(turns, 2);
        let there = store.root(0).stat(b"g").unwrap().unwrap();
        let known = store.cat().get(node).unwrap().facts;
        assert_eq!((stored, known), (Ok(there), there));
        // A file that is changed all the time does not block `learn` for ever.
        turns = 0;
        store
            .names
            .learn(&store.tiers, node, || {
                turns += 1;
                store.cat_mut().update(node, |f| f.size += 1);
                live.facts()
            })
            .unwrap();
        assert_eq!(turns, TRIES);
        store.release(&live);
        assert_eq!(store.cat().get(node).unwrap().facts.size, 0);
    }
}
