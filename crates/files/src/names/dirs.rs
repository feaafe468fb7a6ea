//! Directories are made on a tier when the first file needs them there.

use crate::catalogue::NodeId;
use crate::disk::{DirAttributes, make_dir_like};
use crate::store::Store;
use crate::tree::Tier;
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
                missing.push(DirAttributes {
                    path: cat.path(here).ok_or(Errno::NOENT)?,
                    facts: node.facts,
                    xattrs: cat.xattrs(here).to_vec(),
                });
                let Some(up) = cat.parent(here) else { break };
                here = up;
            }
            missing
        };
        let Some(first) = missing.first() else {
            return Ok(());
        };
        self.require_present(tier, &first.path)?;
        for known in missing.iter().rev() {
            make_dir_like(&self.roots[usize::from(tier)], known)?;
        }
        self.mark_dirs(dir, tier);
        Ok(())
    }
    /// The directory and those above are on that tier.
    pub(crate) fn mark_dirs(&self, dir: NodeId, tier: Tier) {
        let mut cat = self.cat_mut();
        let mut here = dir;
        loop {
            cat.now_on(here, tier);
            match cat.parent(here) {
                Some(up) => here = up,
                None => break,
            }
        }
    }
}
