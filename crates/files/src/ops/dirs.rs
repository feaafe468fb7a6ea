//! Directories are made on a tier when the first file needs them there.

use crate::catalogue::NodeId;
use crate::disk::{DirAttributes, make_dir_like};
use crate::names::Names;
use crate::store::Store;
use crate::tree::Tier;
use rustix::io::Errno;

impl Store {
    /// Makes sure that a directory and those above it exist on a tier. Their attributes come from the catalogue, because the other tiers
    /// may sleep or be absent. Those that are made must not change meanwhile.
    pub(crate) fn ensure_dir(&self, dir: NodeId, tier: Tier) -> Result<(), Errno> {
        if Names::missing_on(&self.cat(), dir, tier)?.is_empty() {
            return Ok(());
        }
        let _claim = self.names.claim_missing(dir, tier);
        self.ensure_claimed(dir, tier)
    }
    /// As [`Store::ensure_dir`], for a caller that has claimed the directories that are missing.
    pub(crate) fn ensure_claimed(&self, dir: NodeId, tier: Tier) -> Result<(), Errno> {
        let missing = {
            let cat = self.cat();
            let known = |dir: NodeId| {
                Some(DirAttributes {
                    path: cat.path(dir)?,
                    facts: cat.get(dir)?.facts,
                    xattrs: cat.xattrs(dir).to_vec(),
                    number: cat.lasting(dir),
                })
            };
            let missing = Names::missing_on(&cat, dir, tier)?.into_iter();
            let missing = missing.map(|dir| Some((dir, known(dir)?)));
            missing.collect::<Option<Vec<_>>>().ok_or(Errno::NOENT)?
        };
        let Some((_, first)) = missing.first() else {
            return Ok(());
        };
        self.require_present(tier, &first.path)?;
        let root = self.root(tier);
        for (node, known) in missing.iter().rev() {
            match self
                .copies
                .evicting(&self.tiers, tier, || make_dir_like(root, known))
            {
                // A file there is renamed or linked into a directory that only other tiers have. The fastest tier keeps its space for moves.
                Err(Errno::NOSPC | Errno::DQUOT) if tier > 0 && root.release_spare() => {
                    let made = make_dir_like(root, known);
                    root.reserve_spare();
                    made?;
                }
                other => other?,
            }
            // At once, and not after the last one: if that fails, this one exists all the same.
            self.cat_mut().now_on(*node, tier);
        }
        Ok(())
    }
}
