//! Directories are made on a tier when the first file needs them there.

use crate::catalogue::{Catalogue, NodeId};
use crate::claims::{Claim, Key};
use crate::disk::{DirAttributes, make_dir_like};
use crate::store::Store;
use crate::tree::{DIR, TYPE, Tier, above};
use rustix::io::Errno;
use std::time::Duration;

impl Store {
    /// Makes sure that a directory and those above it exist on a tier. Their attributes come from the catalogue, because the other tiers
    /// may sleep or be absent. Those that are made must not change meanwhile.
    pub(crate) fn ensure_dir(&self, dir: NodeId, tier: Tier) -> Result<(), Errno> {
        if Self::missing_on(&self.cat(), dir, tier)?.is_empty() {
            return Ok(());
        }
        let _claim = self.claim_missing(dir, tier);
        self.ensure_claimed(dir, tier)
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
    fn missing_on(cat: &Catalogue, dir: NodeId, tier: Tier) -> Result<Vec<NodeId>, Errno> {
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
            let missing = Self::missing_on(&cat, dir, tier)?.into_iter();
            let missing = missing.map(|dir| Some((dir, known(dir)?)));
            missing.collect::<Option<Vec<_>>>().ok_or(Errno::NOENT)?
        };
        let Some((_, first)) = missing.first() else {
            return Ok(());
        };
        self.require_present(tier, &first.path)?;
        let root = self.root(tier);
        for (node, known) in missing.iter().rev() {
            match self.evicting(tier, || make_dir_like(root, known)) {
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
            let there = self.root(tier).stat(dir);
            if there.is_ok_and(|f| f.is_some_and(|f| f.mode & TYPE == DIR)) {
                self.cat_mut().now_on(node, tier);
            }
        }
    }
}
