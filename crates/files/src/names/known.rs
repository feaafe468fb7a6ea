//! What was read goes into the catalogue: attributes, such that those that were read earlier never replace newer ones; and which tiers have
//! which directories.

use super::{Claim, Key, Names};
use crate::catalogue::{Catalogue, NodeId};
use crate::tiers::Tiers;
use crate::tree::{DIR, Facts, TYPE, Tier, Time, above, wall};
use rustix::io::Errno;
use std::time::Duration;

/// Maximum number of attempts to read attributes that no other thread changes in the meantime.
const TRIES: usize = 16;

impl Names {
    /// Reads the attributes of a node and stores them. If another thread stored attributes in the meantime, those may be newer: they are
    /// not replaced, and the attributes are read again.
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
    /// Claims a directory and those above it that do not exist on a tier.
    pub(crate) fn claim_missing(&self, dir: NodeId, tier: Tier) -> Option<Claim<'_>> {
        self.claim_more(Duration::MAX, |cat, all| {
            for missing in Self::missing_on(cat, dir, tier).unwrap_or_default() {
                all.alone(Key::Node(missing));
            }
        })
    }
    /// The directory and those above it that do not exist on a tier, the lowest first.
    pub(crate) fn missing_on(
        cat: &Catalogue,
        dir: NodeId,
        tier: Tier,
    ) -> Result<Vec<NodeId>, Errno> {
        let mut missing = Vec::new();
        let mut here = Some(dir);
        while let Some(at) = here {
            let node = cat.get(at).ok_or(Errno::NOENT)?;
            if node.dir().ok_or(Errno::NOTDIR)?.on & (1 << tier) != 0 {
                break;
            }
            missing.push(at);
            here = cat.parent(at);
        }
        Ok(missing)
    }
    /// Called after the mover created the directories above a path on a tier, or failed to: records those that are there now. So they are
    /// removed and renamed with the others even if the move does not happen.
    pub(crate) fn dirs_made(&self, tiers: &Tiers, path: &[u8], tier: Tier) {
        for dir in above(path).filter(|d| *d != b".") {
            let node = {
                let cat = self.cat();
                cat.find(dir).filter(|n| {
                    let on = cat.get(*n).and_then(|n| n.dir()).map_or(0, |d| d.on);
                    on & (1 << tier) == 0
                })
            };
            let Some(node) = node else { continue };
            let there = tiers.root(tier).stat(dir);
            if there.is_ok_and(|f| f.is_some_and(|f| f.mode & TYPE == DIR)) {
                self.cat_mut().now_on(node, tier);
            }
        }
    }
    /// Reads the times of a directory again, because they have changed.
    pub(crate) fn dir_changed(&self, tiers: &Tiers, dir: NodeId, tier: Tier) {
        let path = self.cat().path(dir);
        if let Some(path) = path
            && let Ok(Some(f)) = tiers.root(tier).stat(&path)
        {
            // Another change may have been noted that came later, on another tier. But a time in the future is none of a change: a clock
            // or a user has set it, and programs that look for changes of the directory would see none until then.
            let later = |there: Time, known: Time| {
                let future = known.sec > wall();
                if future { there } else { there.max(known) }
            };
            self.cat_mut().update(dir, |d| {
                d.mtime = later(f.mtime, d.mtime);
                d.ctime = later(f.ctime, d.ctime);
            });
        }
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
        (store.names)
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
