//! Removes names.

use super::create::parent_of;
use crate::catalogue::{Catalogue, NodeId};
use crate::disk::cached_facts_of;
use crate::live::Live;
use crate::store::Store;
use crate::tree::{DIR, Id, TYPE, Tier, disks_in};
use rustix::fs::AtFlags;
use rustix::io::Errno;

impl Store {
    /// Checks that the path still holds the node's file. If another file was put there directly on the tier, it is shown from now on, and
    /// the operation fails.
    pub(super) fn check_unreplaced(
        &self,
        node: NodeId,
        tier: Tier,
        path: &[u8],
        id: Id,
    ) -> Result<(), Errno> {
        let there = self.root(tier).stat(path);
        match there.map_err(|e| self.device_error(tier, path, e))? {
            Some(f) if f.id == id => Ok(()),
            None => Ok(()),
            Some(f) => {
                self.say(&format!(
                    "{}: replaced underneath on {}; nothing was done to it",
                    String::from_utf8_lossy(path),
                    self.tier_name(tier)
                ));
                // If it is something else than a file, or another kind, `check --repair` shows it.
                let known = self.cat().get(node).map(|n| n.facts.mode & TYPE);
                if known == Some(f.mode & TYPE) && f.mode & TYPE != DIR {
                    let at = (node, tier, path);
                    self.open.now_another(&self.names, &self.tiers, at, f);
                }
                Err(Errno::STALE)
            }
        }
    }
    /// Whether others have taken the last name of a file in use, or given it to another file. Who opened it now, to write, would have what he
    /// writes until all its users have closed it, and no longer.
    pub(crate) fn lost_its_name(&self, live: &Live) -> bool {
        let at_home = |live: &Live| {
            let held = live.hold();
            held.backing().and_then(|b| cached_facts_of(&b.fd)).ok()
        };
        if at_home(live).is_none_or(|f| f.nlink > 0) {
            return false;
        }
        // No name changes while this is compared.
        let _claim = self.names.claim_anyway(|cat, all| all.node(cat, live.node));
        let Some((known, now)) = self.names.known(live.node).ok().zip(at_home(live)) else {
            return false;
        };
        let there = self.root(known.tier).stat(&known.path);
        let lost = there.is_ok_and(|f| f.is_none_or(|f| f.id != now.id));
        if lost {
            self.say(&format!(
                "{}: replaced or taken away underneath on {} while it is in use: it is not opened to write until it is closed",
                String::from_utf8_lossy(&known.path),
                self.tier_name(known.tier)
            ));
        }
        lost
    }
    /// Removes a name that is not a directory's. Returns the node if the kernel may still refer to it.
    ///
    /// # Errors
    /// There is none, it is a directory, or a device error.
    pub fn unlink(&self, dir: NodeId, name: &[u8]) -> Result<NodeId, Errno> {
        let _claim = (self.names).claim(|cat, all| all.name_and_node(cat, dir, name))?;
        let (path, node, tier, id) = {
            let cat = self.cat();
            let place = parent_of(&cat, dir, name)?;
            let node = cat.child(dir, name).ok_or(Errno::NOENT)?;
            let n = cat.get(node).ok_or(Errno::NOENT)?;
            if n.dir().is_some() {
                return Err(Errno::ISDIR);
            }
            (place.path, node, n.tier, n.facts.id)
        };
        self.require_present(tier, &path)?;
        self.check_unreplaced(node, tier, &path, id)?;
        self.open.open_home_before_removal(self.below(), node);
        let root = self.root(tier);
        let removed = if root.local || self.open.get(node).is_none() {
            root.unlink_if(&path, id)
        } else {
            root.unlink_in_use(&path, self.names.number())
                .map(|()| true)
        };
        match removed {
            Ok(true) | Err(Errno::NOENT) => {}
            // It was replaced since the comparison above.
            Ok(false) => return Err(Errno::STALE),
            Err(e) => return Err(self.device_error(tier, &path, e)),
        }
        self.remove_name(dir, name);
        self.refresh(node);
        self.names.dir_changed(&self.tiers, dir, tier);
        Ok(node)
    }
    /// Removes a name from the catalogue, and the node if that was its last name.
    fn remove_name(&self, dir: NodeId, name: &[u8]) {
        let mut cat = self.cat_mut();
        if let Some(node) = cat.unlink(dir, name) {
            self.deleted(&mut cat, node);
        }
    }
    pub(crate) fn deleted(&self, cat: &mut Catalogue, node: NodeId) {
        let Some(n) = cat.get(node) else { return };
        if n.links() > 0 {
            return;
        }
        if n.is_file() {
            self.placement.forget(node);
            self.copies.forget(node);
            self.copies.ranges.forget(node);
            self.recording.deleted(node, &n);
            self.count_bytes(n.tier, n.facts.blocks, 0);
        }
        cat.drop_unused(node);
    }
    /// Removes an empty directory, from every tier that has it.
    ///
    /// # Errors
    /// There is none, it is not empty, or a device error.
    pub fn rmdir(&self, dir: NodeId, name: &[u8]) -> Result<(), Errno> {
        let _claim = (self.names).claim(|cat, all| all.name_and_node(cat, dir, name))?;
        let (path, node, on) = {
            let cat = self.cat();
            let place = parent_of(&cat, dir, name)?;
            let node = cat.child(dir, name).ok_or(Errno::NOENT)?;
            let d = cat.get(node).and_then(|n| n.dir()).ok_or(Errno::NOTDIR)?;
            if !d.is_empty() {
                return Err(Errno::NOTEMPTY);
            }
            (place.path, node, d.on)
        };
        for tier in disks_in(on) {
            self.require_present(tier, &path)?;
        }
        self.rmdir_below(node, &path, on)?;
        self.remove_name(dir, name);
        (self.names).dir_changed(&self.tiers, dir, on.trailing_zeros() as Tier);
        Ok(())
    }
    pub(super) fn rmdir_below(&self, node: NodeId, path: &[u8], on: u16) -> Result<(), Errno> {
        // Slow tiers go first: if one holds a file that was created directly on it, the directory stays.
        let mut removed = 0;
        for tier in disks_in(on).rev() {
            match self.root(tier).unlink(path, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => removed |= 1 << tier,
                Err(e) => {
                    self.dir_stays(node, removed);
                    return Err(self.device_error(tier, path, e));
                }
            }
        }
        Ok(())
    }
    /// Called when a directory stays although it was removed from some tiers (one bit each): those tiers get it again.
    pub(super) fn dir_stays(&self, node: NodeId, removed: u16) {
        for tier in disks_in(removed) {
            self.cat_mut().gone_from(node, tier);
            if let Err(e) = self.ensure_claimed(node, tier) {
                self.say(&format!(
                    "a directory could not be created again on {}: {e}",
                    self.tier_name(tier)
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::IfPresent;
    use crate::store::Settings;

    /// On a file system that is not local, a name of an open file goes to the hidden directory first; if that cannot be, it is removed where
    /// it is.
    #[test]
    fn a_removed_file_that_is_open_goes_to_the_hidden_directory_first() {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, node, live) = crate::store::with_a_file(dir.path());
        store.tiers.roots.first_mut()[0].local = false;
        store.write(&live, 0, b"bytes", false).unwrap();
        store.link(node, 0, b"g").unwrap();
        let hidden = dir.path().join("fast/.isotherm/tmp");
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        std::fs::File::open(&hidden)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        store.unlink(0, b"f").unwrap();
        assert!(!dir.path().join("fast/f").exists());
        let changed = std::fs::metadata(&hidden).unwrap().modified().unwrap();
        assert!(changed > long_ago, "it was removed in its own directory");
        assert_eq!(std::fs::read_dir(&hidden).unwrap().count(), 0);
        std::fs::rename(&hidden, dir.path().join("away")).unwrap();
        store.unlink(0, b"g").unwrap();
        assert!(!dir.path().join("fast/g").exists());
        assert_eq!(live.facts().unwrap().size, 5);
        store.release(&live);
    }

    /// Where a tier cannot exchange two names, an exchange of directories that are on two tiers is refused before its first step.
    #[test]
    fn an_exchange_that_a_tier_cannot_do_is_refused_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _, live) = crate::store::with_a_file(dir.path());
        store.release(&live);
        drop(store);
        for d in ["fast/a", "fast/b", "slow/a", "slow/b"] {
            std::fs::create_dir(dir.path().join(d)).unwrap();
        }
        for f in ["fast/a/1", "slow/a/2", "fast/b/3", "slow/b/4"] {
            std::fs::write(dir.path().join(f), f).unwrap();
        }
        let store = Store::open(&Settings {
            tiers: ["fast", "slow"].map(|t| dir.path().join(t)).into(),
            ..Settings::default()
        })
        .unwrap();
        store.roots[1].forbid_exchange();
        let exchange = || store.rename((0, b"a"), (0, b"b"), IfPresent::Exchange);
        assert_eq!(exchange(), Err(Errno::INVAL));
        assert!(!store.is_stuck());
        let there = |f: &str| dir.path().join(f).exists();
        assert!(there("fast/a/1") && there("slow/a/2") && there("fast/b/3") && there("slow/b/4"));
        let found = crate::check::check(&store, false);
        assert_eq!(found["ok"], true, "{found}");
    }
}
