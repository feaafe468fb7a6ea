//! A mount: the four values that hold its state, in the order of their locks, and those that only count and decide.
//!
//! | value | has | its locks |
//! |---|---|---|
//! | `Names` | catalogue, claims, numbers | claims come first of all and are held during system calls; the catalogue is locked for moments, after the descriptor of a file |
//! | `OpenFiles` | files in use | the table of files; the descriptor of one file, which a call on its tier holds; the turn of changes of a file with a copy |
//! | [`Copies`] | the table of copies | the descriptor of a copy, held for calls on the fastest tier; the table |
//! | [`Tiers`] | disks, their space and health | one for each disk, for moments |
//!
//! A function of a value has the others that it needs as parameters, so its signature shows which locks it may take. What needs all of them is
//! a function of [`Store`], in `ops/`. Three locks stand outside of the table: that of the files in use and the queues of the policy and of
//! the recording are held for moments in which no other lock is taken; the policy is locked after the catalogue and before the table of copies;
//! claims look at the catalogue while their own table is locked.

use crate::catalogue::{Catalogue, NodeId};
use crate::check::Checks;
use crate::copies::{Copies, KeptCopy};
use crate::disk::{Disk, Root, Roots};
use crate::intent::{Recovered, recover_but};
use crate::lasting::Lasting;
use crate::live::{Below, Live, Need, OpenFiles};
use crate::names::Names;
use crate::placement::Placement;
use crate::recording::Recording;
use crate::scan::SHOWN;
pub use crate::settings::{Refused, Settings};
use crate::sync::ReadGuard;
use crate::tiers::Tiers;
use crate::tree::{Facts, Tier};
use parking_lot::RwLockWriteGuard;
use rustix::io::Errno;
use std::sync::Arc;

/// A store of files on several tiers.
pub struct Store {
    pub(crate) names: Names,
    pub(crate) open: OpenFiles,
    /// Copies of files of slower tiers on the fastest.
    pub copies: Copies,
    pub(crate) tiers: Tiers,
    /// Decides the tier of each file.
    pub placement: Placement,
    /// Records operations for the lab.
    pub recording: Recording,
    /// The last check.
    pub(crate) checks: Checks,
    /// The result of recovery.
    pub recovered: Recovered,
}

/// Finishes what a crash left half done; the copies with these numbers stay.
fn recover(roots: &Roots, copies: &[u64]) -> Result<Recovered, Refused> {
    let mut disk = Disk::new(roots.clone());
    recover_but(&mut disk, copies).map_err(|e| {
        let missing = "a disk that it needs is missing: mount with all disks";
        let why = if e == Errno::NODEV {
            missing.into()
        } else {
            e.to_string()
        };
        Refused(format!("cannot finish what a crash left half done: {why}"))
    })
}

/// The disks, their space, and messages about them.
impl std::ops::Deref for Store {
    type Target = Tiers;
    fn deref(&self) -> &Tiers {
        &self.tiers
    }
}

impl Store {
    /// Opens the tiers: locks them, finishes what a crash left, and reads all names.
    ///
    /// # Errors
    /// A message in words: a tier is absent, already served, or within another tier; names clash; a device fails.
    pub fn open(settings: &Settings) -> Result<Store, Refused> {
        let (roots, locks) = crate::tiers::open(settings)?;
        let arranged = crate::identity::arrange(roots, settings)?;
        let (roots, ids) = (Roots::from(arranged.roots), arranged.ids);
        roots.iter().for_each(Root::taken);
        let kept = crate::copies::take(&roots[0], settings);
        let numbers: Vec<u64> = kept.iter().map(KeptCopy::number).collect();
        let recovered = recover(&roots, &numbers)?;
        let (lasting, table) = Lasting::open(&roots[0], &ids, &arranged.unnumbered);
        let found = crate::scan::scan(&roots.all(), &table)?;
        let (mut cat, further, unlike) = (found.cat, found.further, found.unlike);
        let absent = (1..roots.len()).filter(|t| roots[*t].absent);
        let missing: Vec<String> = absent
            .map(|t| crate::names::load(&roots, t as Tier, &mut cat, settings.accept))
            .collect::<Result<_, _>>()?;
        let (numbered, durable) = lasting.settle(&roots, &table, &mut cat, &further);
        if durable {
            let here = ids.iter().zip(roots.iter()).filter(|d| !d.1.absent);
            let here: Vec<String> = here.filter_map(|d| d.0.clone()).collect();
            crate::identity::numbered(&roots[0], &here);
        }
        drop((table, further));
        let tiers = Tiers::new(settings, (roots, ids), locks, &cat);
        let store = Store {
            placement: Placement::new(settings, &tiers, &cat)?,
            names: Names::new(cat, lasting),
            open: OpenFiles::default(),
            copies: Copies::new(settings, tiers.copied()),
            tiers,
            recording: Recording::default(),
            checks: Checks::default(),
            recovered,
        };
        let no_room = arranged.no_room;
        for line in missing.into_iter().chain(no_room).chain(numbered) {
            store.say(&line);
        }
        store.go_on_emptying()?;
        store.make_all_alike(&unlike);
        // Until they are saved, the names of a disk that goes missing are not known.
        if (arranged.changed || !crate::names::are_saved(&store.roots))
            && let Err(e) = store.save_names()
        {
            Names::say_unsaved(&store.tiers, e);
        }
        for (node, facts, path) in store.copies.adopt(&store.names, &store.tiers, kept) {
            store.placement.report_tier(node, 0, &facts, &path, true);
        }
        Ok(store)
    }
    /// Directories that were not alike on all disks become so; says it of the first ones.
    pub(crate) fn make_all_alike(&self, unlike: &[NodeId]) {
        for (i, node) in unlike.iter().enumerate() {
            let line = self.make_alike(*node);
            if i < SHOWN {
                self.say(&line);
            }
        }
        if unlike.len() > SHOWN {
            let more = unlike.len() - SHOWN;
            self.say(&format!("the same holds for {more} more directories"));
        }
    }
    /// The catalogue, locked for reading.
    pub fn cat(&self) -> ReadGuard<'_, Catalogue> {
        self.names.cat()
    }
    pub(crate) fn cat_mut(&self) -> RwLockWriteGuard<'_, Catalogue> {
        self.names.cat_mut()
    }
    /// Whether a device failed such that names may not change.
    pub fn is_stuck(&self) -> bool {
        self.names.is_stuck()
    }
    /// The current attributes of a node.
    ///
    /// # Errors
    /// There is no such node, or a device error.
    pub fn facts(&self, node: NodeId) -> Result<Facts, Errno> {
        self.open.facts(&self.names, &self.tiers, node)
    }
    /// Begins to use a file and opens it unless it is open. Ends with [`Store::release`].
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn live(&self, node: NodeId) -> Result<Arc<Live>, Errno> {
        self.live_for(node, Need::Home).map(|l| l.0)
    }
    /// As [`Store::live`], for a use that only reads.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn live_to_read(&self, node: NodeId) -> Result<Arc<Live>, Errno> {
        self.live_for(node, Need::Data).map(|l| l.0)
    }
    /// The values that files in use need.
    pub(crate) fn below(&self) -> Below<'_> {
        Below {
            names: &self.names,
            copies: &self.copies,
            tiers: &self.tiers,
        }
    }
    /// As [`Store::live`], opened as needed, with the attributes if this call opened the file.
    pub(crate) fn live_for(
        &self,
        node: NodeId,
        need: Need,
    ) -> Result<(Arc<Live>, Option<Facts>), Errno> {
        self.open.live_for(self.below(), node, need)
    }
    /// Opens a file in use at its home if only its copy is open.
    pub(crate) fn open_home(&self, live: &Live) -> Result<(), Errno> {
        self.open.open_home(self.below(), live)
    }
    /// Ends a use of a file. After the last use its attributes go to the catalogue.
    pub fn release(&self, live: &Arc<Live>) {
        self.open.release(self.below(), live);
    }
    /// Drops the copy of a file, if it has one. The file stays where it is.
    pub fn drop_copy(&self, node: NodeId) {
        self.copies.drop_copy(&self.tiers, node);
    }
    /// Saves the names of the slower tiers on the fastest.
    ///
    /// # Errors
    /// An error of the fast tier.
    pub fn save_names(&self) -> Result<(), Errno> {
        self.names.save(&self.tiers)
    }
    /// Lists the copies for the next mount. Nothing may be changed after this.
    ///
    /// # Errors
    /// A device error: then the next mount keeps no copy.
    pub fn keep_copies(&self) -> Result<(), Errno> {
        let in_use = |node| self.open.get(node).is_some();
        self.copies.keep_all(&self.names, &self.tiers, in_use)
    }
}

/// The user who runs the tests.
#[cfg(test)]
pub(crate) fn me() -> crate::names::Creator {
    crate::names::Creator {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        umask: 0,
    }
}

/// A store over two empty tiers, and the one file `f` in it, which is in use, for tests of this crate.
#[cfg(test)]
pub(crate) fn with_a_file(dir: &std::path::Path) -> (Store, NodeId, Arc<crate::live::Live>) {
    let tiers: Vec<_> = ["fast", "slow"].map(|t| dir.join(t)).into();
    for t in &tiers {
        std::fs::create_dir(t).unwrap();
    }
    let store = Store::open(&Settings {
        tiers,
        // The result must not depend on how full the disk below is.
        marks: (100, 100),
        ..Settings::default()
    })
    .unwrap();
    let (node, live, _) = store.create(0, b"f", 0o600, me()).unwrap();
    (store, node, live)
}
