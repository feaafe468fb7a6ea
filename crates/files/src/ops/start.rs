//! The beginning of a mount.

use crate::checks::Checks;
use crate::copies::{Copies, KeptCopy};
use crate::disk::{Disk, Root};
use crate::intent::{Recovered, recover_but};
use crate::lasting::Lasting;
use crate::live::OpenFiles;
use crate::names::Names;
use crate::placement::Placement;
use crate::recording::Recording;
use crate::settings::{Refused, Settings};
use crate::store::Store;
use crate::tiers::Tiers;
use crate::tree::Tier;
use rustix::io::Errno;
use std::sync::Arc;

/// Finishes what a crash left half done; the copies with these numbers stay.
fn recover(roots: &Arc<Vec<Root>>, copies: &[u64]) -> Result<Recovered, Refused> {
    let mut disk = Disk::new(Arc::clone(roots));
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

impl Store {
    /// Opens the tiers: locks them, finishes what a crash left, and reads all names.
    ///
    /// # Errors
    /// A message in words: a tier is absent, already served, or within another tier; names clash; a device fails.
    pub fn open(settings: &Settings) -> Result<Store, Refused> {
        let (roots, locks) = crate::tiers::open(settings)?;
        let arranged = crate::identity::arrange(roots, settings)?;
        let (roots, ids) = (Arc::new(arranged.roots), arranged.ids);
        let kept = crate::copies::take(&roots[0], settings);
        let numbers: Vec<u64> = kept.iter().map(KeptCopy::number).collect();
        let recovered = recover(&roots, &numbers)?;
        let (lasting, table) = Lasting::open(&roots[0], &ids);
        let (mut cat, further) = crate::scan::scan(&roots, &table)?;
        let absent = (1..roots.len()).filter(|t| roots[*t].absent);
        let missing: Vec<String> = absent
            .map(|t| crate::names::load(&roots, t as Tier, &mut cat))
            .collect();
        let numbered = lasting.settle(&roots, &table, &mut cat, &further);
        drop((table, further));
        let tiers = Tiers::new(settings, roots, locks, &cat);
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
        // Until they are saved, the names of a disk that goes missing are not known.
        if arranged.changed
            && let Err(e) = store.save_names()
        {
            Names::say_unsaved(&store.tiers, e);
        }
        for (node, facts, path) in store.copies.adopt(&store.names, &store.tiers, kept) {
            store.placement.report_tier(node, 0, &facts, &path, true);
        }
        Ok(store)
    }
}
