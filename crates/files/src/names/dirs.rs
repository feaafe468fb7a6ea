//! Directories are made on a tier when the first file needs them there.

use crate::catalogue::NodeId;
use crate::disk::{DirAttributes, make_dir_like};
use crate::scan::{DIR, TYPE};
use crate::store::Store;
use crate::tree::{Tier, above};
use rustix::io::Errno;

impl Store {
    /// Makes sure that a directory and those above it exist on a tier. Their attributes come from the catalogue, because the other tiers
    /// may sleep or be absent.
    pub(crate) fn ensure_dir(&self, dir: NodeId, tier: Tier) -> Result<(), Errno> {
        let missing = {
            let cat = self.cat();
            let mut missing = Vec::new();
            let mut here = dir;
            loop {
                let node = cat.get(here).ok_or(Errno::NOENT)?;
                let on = node.dir().ok_or(Errno::NOTDIR)?.on;
                if on & (1 << tier) != 0 {
                    break;
                }
                let known = DirAttributes {
                    path: cat.path(here).ok_or(Errno::NOENT)?,
                    facts: node.facts,
                    xattrs: cat.xattrs(here).to_vec(),
                };
                missing.push((here, known));
                let Some(up) = cat.parent(here) else { break };
                here = up;
            }
            missing
        };
        let Some((_, first)) = missing.first() else {
            return Ok(());
        };
        self.require_present(tier, &first.path)?;
        let root = &self.roots[usize::from(tier)];
        for (node, known) in missing.iter().rev() {
            self.evicting(tier, || make_dir_like(root, known))?;
            // At once, and not after the last one: if that fails, this one exists all the same.
            self.cat_mut().now_on(*node, tier);
        }
        Ok(())
    }
    /// Called after the mover created the directories above a path on a tier, or failed to: records those that are there now. So they are
    /// removed and renamed with the others even if the move does not happen.
    pub(crate) fn dirs_made(&self, path: &[u8], tier: Tier) {
        for dir in above(path).filter(|d| *d != b".") {
            let node = {
                let cat = self.cat();
                cat.find(dir).filter(|n| {
                    let on = cat.get(*n).and_then(|n| n.dir()).map_or(0, |d| d.on);
                    on & (1 << tier) == 0
                })
            };
            let Some(node) = node else { continue };
            let there = self.roots[usize::from(tier)].stat(dir);
            if there.is_ok_and(|f| f.is_some_and(|f| f.mode & TYPE == DIR)) {
                self.cat_mut().now_on(node, tier);
            }
        }
    }
}
