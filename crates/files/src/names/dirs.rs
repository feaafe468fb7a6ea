//! Directories, which are made on a tier when the first file needs them there: which tiers have which, and their times.

use super::{Claim, Key, Names};
use crate::catalogue::{Catalogue, NodeId};
use crate::tiers::Tiers;
use crate::tree::{DIR, TYPE, Tier, above};
use rustix::io::Errno;
use std::time::Duration;

impl Names {
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
        let path = {
            let cat = self.cat();
            cat.path(dir)
        };
        let Some(path) = path else { return };
        if let Ok(Some(f)) = tiers.root(tier).stat(&path) {
            self.cat_mut().update(dir, |d| {
                d.mtime = f.mtime.max(d.mtime);
                d.ctime = f.ctime.max(d.ctime);
            });
        }
    }
}
