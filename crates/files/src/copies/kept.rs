//! Copies outlive the mount: at a clean unmount they are listed on the fastest tier, and the next mount takes over those that are still
//! equal to their files.
//!
//! ```text
//!  unmount: sync tiers ─► write the list, sync it, give it its name
//!  mount:   read the list, remove it, sync ─► remove every copy that is not in it ─► read names ─► compare ─► keep or remove
//! ```
//!
//! So the list exists only while nothing is mounted, and everything in it became durable before the list did. After a crash there is no
//! list, and no copy is kept. While nothing is mounted, only other programs can change the tiers. A copy is kept if the file at home still
//! has the same inode, birth time, size and modification time (the attributes that also reveal a change while it is mounted), and if the
//! copy itself has the same values of these and the same change time.

use super::{Copied, Copies};
use crate::catalogue::NodeId;
use crate::disk::{NewFile, Root};
use crate::mutants::{Mutant, broken};
use crate::names::Names;
use crate::settings::Settings;
use crate::sync::lock;
use crate::tiers::Tiers;
use crate::tree::{Facts, HIDDEN, Version, copy_at, disks_in};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const LIST: &[u8] = b".isotherm/copies.json";
/// The same in that directory.
const NAME: &[u8] = b"copies.json";
/// Maximum length of the list in bytes. No fast tier holds so many copies that the list is longer.
const LIST_MAX: u64 = 1 << 30;
/// Upper limit of the numbers of copies in the list: a mount continues to count from the highest of them.
const NUMBERS: u64 = 1 << 62;

/// A copy in the list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptCopy {
    number: u64,
    path: Vec<u8>,
    home: Version,
    copy: Version,
    /// Change time of the copy.
    changed: (i64, u32),
    /// How many bytes of the file it holds, if it is a head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<u64>,
}

impl KeptCopy {
    /// Its number, by which recovery spares it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// Reads the list and durably removes it. Returns those copies that these settings want; none if the list cannot be used.
pub(crate) fn take(root: &Root, settings: &Settings) -> Vec<KeptCopy> {
    let Ok(fd) = root.open_at(LIST, OFlags::RDONLY, 0) else {
        return Vec::new();
    };
    let mut text = Vec::new();
    let mut file = std::io::Read::take(std::fs::File::from(fd), LIST_MAX);
    let read = std::io::Read::read_to_end(&mut file, &mut text);
    let gone = rustix::fs::unlinkat(&root.fd, LIST, AtFlags::empty())
        .and_then(|()| root.directory(HIDDEN))
        .and_then(rustix::fs::fsync);
    if read.is_err() || gone.is_err() {
        return Vec::new();
    }
    let mut list: Vec<KeptCopy> = serde_json::from_slice(&text).unwrap_or_default();
    list.retain(|k| match k.head {
        _ if k.number >= NUMBERS => false,
        // Shorter ones are made anew when they are read.
        Some(held) => (1..=held).contains(&settings.heads.bytes),
        None => settings.copies,
    });
    list
}

impl Copies {
    /// Takes over the copies of the last mount that are still equal to their files; the others are removed. Returns the files that have a whole
    /// copy now, with their attributes and paths.
    pub(crate) fn adopt(
        &self,
        names: &Names,
        tiers: &Tiers,
        kept: Vec<KeptCopy>,
    ) -> Vec<(NodeId, Facts, Vec<u8>)> {
        names.number_used(kept.iter().map(|k| k.number).max().unwrap_or(0));
        let mut whole = Vec::new();
        for k in kept {
            let Some((node, facts, bytes)) = self.fits(names, tiers, &k) else {
                self.table().unused.push(k.number);
                continue;
            };
            self.keep(node, Copied::new(k.number, bytes, facts.version(), k.head));
            if k.head.is_none() {
                whole.push((node, facts, k.path));
            }
        }
        self.sweep(tiers);
        whole
    }
    fn fits(&self, names: &Names, tiers: &Tiers, k: &KeptCopy) -> Option<(NodeId, Facts, u64)> {
        let (node, tier, facts) = {
            let cat = names.cat();
            let node = cat.find(&k.path)?;
            let n = cat.get(node).filter(|n| n.is_file() && n.tier > 0)?;
            (node, n.tier, n.facts)
        };
        let same = facts.version() == k.home || broken(Mutant::TrustKeptHome);
        if !same || tiers.is_absent(tier) || self.held(node).is_some() {
            return None;
        }
        let copy = tiers.root(0).stat(&copy_at(k.number).path).ok()??;
        let now = (copy.version(), (copy.ctime.sec, copy.ctime.nsec));
        let same = now == (k.copy, k.changed) || broken(Mutant::TrustKeptCopy);
        (same && copy.size == facts.size).then_some((node, facts, copy.blocks * 512))
    }
    /// Lists the copies for the next mount. Nothing may be changed after this. A file that a program still had open when it was unmounted is
    /// `in_use`; its copy is not kept.
    ///
    /// # Errors
    /// A device error: then the next mount keeps no copy.
    pub(crate) fn keep_all(
        &self,
        names: &Names,
        tiers: &Tiers,
        in_use: impl Fn(NodeId) -> bool,
    ) -> Result<(), Errno> {
        let copied: Vec<(NodeId, Arc<Copied>)> = {
            let table = self.table();
            let nodes = table.order.values();
            let copied = nodes.filter_map(|n| Some((*n, Arc::clone(table.of.get(n)?))));
            copied.collect()
        };
        if copied.is_empty() {
            return Ok(());
        }
        // The files from which copies were made, or which were changed together with their copies, must become durable before the list. The
        // other tiers are not synced, so that their disks are not woken.
        let changed = self.sources.load(Ordering::SeqCst) | 1;
        for tier in disks_in(tiers.present(changed)) {
            rustix::fs::syncfs(&tiers.root(tier).fd)?;
        }
        let mut list = Vec::new();
        for (node, c) in copied {
            let home = *lock(&c.home);
            let path = {
                let cat = names.cat();
                let same = cat.get(node).is_some_and(|n| home.is_of(n.facts.id));
                cat.path(node).filter(|_| same)
            };
            let Some(path) = path.filter(|_| !in_use(node)) else {
                continue;
            };
            if let Some(f) = tiers.root(0).stat(&copy_at(c.number).path)? {
                list.push(KeptCopy {
                    number: c.number,
                    path,
                    home,
                    copy: f.version(),
                    changed: (f.ctime.sec, f.ctime.nsec),
                    head: c.head,
                });
            }
        }
        let text = serde_json::to_vec(&list).map_err(|_| Errno::INVAL)?;
        // Copies may be dropped to make room for the list. The next mount finds them in the list and not on the tier.
        self.write_whole(tiers, NAME, &text)
    }
    /// Writes a file in `.isotherm` of the fastest tier durably, or leaves what it was. If the tier is full, copies make room.
    pub(crate) fn write_whole(&self, tiers: &Tiers, name: &[u8], text: &[u8]) -> Result<(), Errno> {
        self.evicting(tiers, 0, || NewFile::write(tiers.root(0), name, text))
    }
}
