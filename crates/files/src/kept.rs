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

use crate::copies::CopyRecord;
use crate::disk::Root;
use crate::mutants::{Mutant, broken};
use crate::store::Store;
use crate::tree::{Facts, HIDDEN, Id, Time, copy_at};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;

const LIST: &[u8] = b".isotherm/copies.json";
/// The same in that directory.
const NAME: &[u8] = b"copies.json";
/// Maximum length of the list in bytes. No fast tier holds so many copies that the list is longer.
const LIST_MAX: u64 = 1 << 30;
/// Upper limit of the numbers of copies in the list: a mount continues to count from the highest of them.
const NUMBERS: u64 = 1 << 62;

/// Attributes that a file keeps as long as nobody changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Fingerprint {
    ino: u64,
    born: u64,
    size: u64,
    written: (i64, u32),
}

impl Fingerprint {
    fn new(id: Id, (size, mtime): (u64, Time)) -> Fingerprint {
        Fingerprint {
            ino: id.ino,
            born: id.born,
            size,
            written: (mtime.sec, mtime.nsec),
        }
    }
    fn of(f: &Facts) -> Fingerprint {
        Fingerprint::new(f.id, (f.size, f.mtime))
    }
}

/// A copy in the list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptCopy {
    pub(crate) number: u64,
    path: Vec<u8>,
    home: Fingerprint,
    copy: Fingerprint,
    /// Change time of the copy.
    changed: (i64, u32),
    /// How many bytes of the file it holds, if it is a head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) head: Option<u64>,
}

/// Reads the list and durably removes it. Returns an empty list if there is none or it cannot be used.
pub(crate) fn take(root: &Root) -> Vec<KeptCopy> {
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
    list.retain(|k| k.number < NUMBERS);
    list
}

impl Store {
    /// Takes over the copies of the last mount that are still equal to their files; the others are removed.
    pub(crate) fn adopt_copies(&self, kept: &[KeptCopy]) {
        let last = kept.iter().map(|k| k.number).max().unwrap_or(0);
        self.number_used(last);
        for k in kept {
            let Some((node, facts, bytes)) = self.fits(k) else {
                self.copies.mark_unused(k.number);
                continue;
            };
            let home = (facts.size, facts.mtime);
            self.copies.keep(
                node,
                CopyRecord::new(k.number, facts.id, bytes, home).of_head(k.head),
            );
            if k.head.is_none() {
                self.placement.report_tier(node, 0, &facts, &k.path, true);
            }
        }
        self.sweep();
    }
    fn fits(&self, k: &KeptCopy) -> Option<(crate::catalogue::NodeId, Facts, u64)> {
        let (node, tier, facts) = {
            let cat = self.cat();
            let node = cat.find(&k.path)?;
            let n = cat.get(node).filter(|n| n.is_file() && n.tier > 0)?;
            (node, n.tier, n.facts)
        };
        let same = Fingerprint::of(&facts) == k.home || broken(Mutant::TrustKeptHome);
        if !same || self.is_absent(tier) || self.copies.held(node).is_some() {
            return None;
        }
        let copy = self.roots[0].stat(&copy_at(k.number).path).ok()??;
        let now = (Fingerprint::of(&copy), (copy.ctime.sec, copy.ctime.nsec));
        let same = now == (k.copy, k.changed) || broken(Mutant::TrustKeptCopy);
        (same && copy.size == facts.size).then_some((node, facts, copy.blocks * 512))
    }
    /// Lists the copies for the next mount. Nothing may be changed after this.
    ///
    /// # Errors
    /// A device error: then the next mount keeps no copy.
    pub fn keep_copies(&self) -> Result<(), Errno> {
        let copied = self.copies.list();
        if copied.is_empty() {
            return Ok(());
        }
        // The files from which copies were made, or which were changed together with their copies, must become durable before the list. The
        // other tiers are not synced, so that their disks are not woken.
        let changed = self.copies.sources.load(Ordering::SeqCst) | 1;
        let tiers = self.roots.iter().enumerate();
        for (_, root) in tiers.filter(|(t, r)| changed & (1 << t) != 0 && !r.absent) {
            rustix::fs::syncfs(&root.fd)?;
        }
        let root = &self.roots[0];
        let mut list = Vec::new();
        for (node, c) in copied {
            let path = {
                let cat = self.cat();
                let same = cat.get(node).is_some_and(|n| n.facts.id == c.id);
                cat.path(node).filter(|_| same)
            };
            // A program still had the file open when it was unmounted, so its copy is not kept.
            let in_use = self.lives.get(node).is_some();
            let (Some(path), false) = (path, in_use) else {
                continue;
            };
            if let Some(f) = root.stat(&copy_at(c.number).path)? {
                list.push(KeptCopy {
                    number: c.number,
                    path,
                    home: Fingerprint::new(c.id, c.home),
                    copy: Fingerprint::of(&f),
                    changed: (f.ctime.sec, f.ctime.nsec),
                    head: c.head,
                });
            }
        }
        let text = serde_json::to_vec(&list).map_err(|_| Errno::INVAL)?;
        // `write_whole` may drop copies to make room for the list. The next mount finds them in the list and not on the tier.
        self.write_whole(NAME, &text)
    }
}
