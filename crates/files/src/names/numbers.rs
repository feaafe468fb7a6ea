//! The inode numbers that users see of what is made, found and replaced.

use super::Names;
use crate::catalogue::NodeId;
use crate::lasting::Lasting;
use crate::tiers::Tiers;
use crate::tree::{DIR, Facts, Id, LNK, TYPE, Tier};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What others have made: its disk and identity there, its number, whether it is a directory.
pub(crate) type Found = (Tier, Id, u64, bool);

impl Names {
    /// A number that no file ever had; 0 if the fastest tier fails, so that files can be made on others. Such a file has another number after
    /// the next mount.
    ///
    /// # Errors
    /// The fastest tier is full.
    pub(crate) fn new_number(&self, tiers: &Tiers) -> Result<u64, Errno> {
        match self.lasting.take(tiers.root(0)) {
            Err(e) if e != Errno::NOSPC && e != Errno::DQUOT => {
                tiers.say(&format!(
                    "{}: no inode numbers can be reserved: {e}: new files have others after the next mount",
                    tiers.tier_name(0)
                ));
                Ok(0)
            }
            other => other,
        }
    }
    /// Lasting numbers of what was found on the tiers and was not known: tier, path, attributes. Each has the number that its inode has
    /// already, under another name or in its attribute, else a new one, which is durable when this returns; 0 if it cannot be.
    pub(crate) fn found(&self, tiers: &Tiers, found: &[(Tier, &[u8], Facts)]) -> Vec<u64> {
        let inodes: HashSet<(u64, Id)> = found.iter().map(|f| (f.2.dev, f.2.id)).collect();
        let mut known = HashMap::new();
        {
            let cat = self.cat();
            for (node, n) in cat.all() {
                let (inode, number) = ((n.facts.dev, n.facts.id), cat.lasting(node));
                if inodes.contains(&inode) && number > 0 {
                    known.insert(inode, number);
                }
            }
        }
        // A file from another mount can have a number in its attribute that was given out here, or will be.
        let below = self.lasting.next();
        let is_free = |number: &u64| *number < below && self.cat().node_of(*number).is_none();
        let mut give = || {
            let (mut numbers, mut records) = (Vec::new(), Vec::new());
            for (tier, path, f) in found {
                let inode = (f.dev, f.id);
                let own = || {
                    let root = tiers.root(*tier);
                    let own = root.number_at(path, f.id).ok().flatten();
                    own.filter(is_free)
                };
                let there = known.get(&inode).copied().or_else(own);
                let number = there.map_or_else(|| self.new_number(tiers), Ok)?;
                if there.is_none() {
                    records.push((*tier, f.id, number, f.mode & TYPE == DIR));
                }
                known.insert(inode, number);
                numbers.push(number);
            }
            if !records.is_empty() {
                self.lasting.record_found(tiers.root(0), &records)?;
            }
            Ok::<_, Errno>(numbers)
        };
        give().unwrap_or_else(|e| Names::say_unnumbered(tiers, found.len(), e))
    }
    /// All these files have no number.
    fn say_unnumbered(tiers: &Tiers, files: usize, e: Errno) -> Vec<u64> {
        tiers.say(&format!(
            "{}: the inode number of a file that others have made cannot be stored: {e}: it has another one after the next mount",
            tiers.tier_name(0)
        ));
        vec![0; files]
    }
    /// Lasting numbers of all files of a disk that joins: new ones, which are durable when this returns; 0 if they cannot be. (What such files
    /// have as an attribute is a number of another set of disks. Here a file that is gone may have had it, and a file handle may still name
    /// that one.) The numbers of `further` directories are stored as they are.
    pub(crate) fn number_new(
        &self,
        tiers: &Tiers,
        mut found: Vec<Found>,
        further: Vec<Found>,
        disk: Tier,
    ) -> Vec<u64> {
        let give = || {
            let mut records = further;
            for f in &mut found {
                f.2 = self.new_number(tiers)?;
                records.push(*f);
            }
            self.lasting.record_found(tiers.root(0), &records)
        };
        match give() {
            Ok(()) => {
                let id = tiers.id_of(disk).map(str::to_owned);
                crate::identity::numbered(tiers.root(0), id.as_slice());
                found.into_iter().map(|f| f.2).collect()
            }
            Err(e) => Names::say_unnumbered(tiers, found.len(), e),
        }
    }
    /// What the catalogue has as this node is another file now, with these attributes, which others have put there.
    pub(crate) fn now_another(
        &self,
        tiers: &Tiers,
        node: NodeId,
        tier: Tier,
        path: &[u8],
        facts: Facts,
    ) {
        let number = self.found(tiers, &[(tier, path, facts)])[0];
        let root = tiers.root(tier);
        // The access list of the file that was there says nothing about this one.
        let xattrs = crate::disk::xattrs(root, path);
        let target = (facts.mode & TYPE == LNK).then(|| root.target(path));
        let mut cat = self.cat_mut();
        cat.replace(node, tier, facts.id);
        cat.set_lasting(node, number);
        if let Ok(xattrs) = xattrs {
            cat.set_xattrs(node, xattrs);
        }
        if let Some(Ok(target)) = target {
            cat.set_target(node, target);
        }
        drop(cat);
        self.seen(tiers, node, facts);
    }
    /// Stores the numbers of all files for the next mount. If that fails, the next mount asks the files themselves.
    pub(crate) fn save_numbers(&self, tiers: &Tiers) -> Result<(), Errno> {
        self.lasting.save(&tiers.roots, &self.cat())
    }
    /// The number by which users and the kernel know a node now.
    pub(crate) fn shown_number(&self, node: NodeId) -> u64 {
        self.cat().shown_number(node)
    }
    /// Gives out the inode numbers that users see.
    pub(crate) fn lasting(&self) -> &Arc<Lasting> {
        &self.lasting
    }
}
