//! Generations: what a file handle holds besides the inode number, so that it is not taken for one of another file.
//!
//! Numbers are never given out again as long as the fastest tier has its table. But the numbers of another set of tiers, mounted at the same
//! place, are the same small ones. And if the table is lost, numbers that were only there are given out again. So each set has a generation
//! of its own, and when a table is lost, the numbers from the next one on get another. All disks have the list, because the fastest tier
//! alone could lose it together with its table, and then the handles of all files that have their numbers in themselves would go stale.

use crate::disk::{NewFile, Root, Roots};
use crate::tree::{HIDDEN, ROOT_NUMBER, TEMPORARY, join};
use rustix::io::Errno;
use std::hash::{BuildHasher, Hasher, RandomState};

const NAME: &[u8] = b"generations.json";

/// The lowest number of each generation, and the generation; in the order of the numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Generations(Vec<(u64, u32)>);

/// A generation that no other set of tiers has, most likely.
fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

/// The list of one disk; empty if it has none that can be used.
fn read(root: &Root) -> Vec<(u64, u32)> {
    let bytes = root.read_whole(&join(HIDDEN, NAME)).ok().flatten();
    let list: Option<Vec<(u64, u32)>> = bytes.and_then(|b| serde_json::from_slice(&b).ok());
    list.unwrap_or_default()
}

impl Generations {
    /// Reads the list: that of the fastest tier, or of another disk that has the same one with more at its end (then an older copy of the
    /// fastest tier was put back).
    pub(super) fn read(roots: &Roots) -> Generations {
        let lists = roots.iter().filter(|r| !r.absent).map(read);
        Generations(lists.fold(Vec::new(), |best, other| {
            if other.starts_with(&best) {
                other
            } else {
                best
            }
        }))
    }
    /// Whether these disks never had one: then this is their first mount, or the first one by a program that knows of generations.
    pub(super) fn is_new(&self) -> bool {
        self.0.is_empty()
    }
    /// The numbers from this one on get a new generation. What handles had these numbers before, if any, finds nothing from now on.
    pub(super) fn begin(&mut self, first: u64) {
        self.0.retain(|g| g.0 < first);
        self.0.push((first, random()));
    }
    /// Those numbers that are shown until the unmount only get one that is not stored.
    pub(super) fn begin_temporary(&mut self) {
        self.begin(TEMPORARY);
    }
    /// The generation of a number. That of the root is 0, because the kernel knows the root without asking.
    pub(super) fn of(&self, number: u64) -> u32 {
        let lower = self.0.iter().rfind(|g| g.0 <= number);
        lower.map_or(0, |g| if number == ROOT_NUMBER { 0 } else { g.1 })
    }
    /// Stores the list on all disks that do not have it. The others keep it in case the fastest tier is lost; one that is full or read-only
    /// gets it at a later mount.
    ///
    /// # Errors
    /// A system error of the fastest tier: all handles are stale after the next mount.
    pub(super) fn store(&self, roots: &Roots) -> Result<(), Errno> {
        let text = serde_json::to_vec(&self.0).map_err(|_| Errno::INVAL)?;
        let mut done = Ok(());
        for (at, root) in roots.iter().enumerate().filter(|r| !r.1.absent) {
            if read(root) == self.0 {
                continue;
            }
            let write = || NewFile::write(root, NAME, &text);
            if at == 0 {
                done = root.with_spare(write);
            } else {
                let _ = write();
            }
        }
        done
    }
}
