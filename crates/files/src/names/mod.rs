//! The names and attributes of all files: the catalogue, what changes of it use, and numbers.
//!
//! A change *claims* what it uses during its system calls (`claims.rs`), so that lookups and listings wait for no device, and a change waits
//! for another only if both use the same. The catalogue itself is locked for moments, never during a system call.

mod claims;
mod known;
mod numbers;
mod saved;

use crate::catalogue::{Catalogue, Kind, NodeId};
use crate::disk::Disk;
use crate::intent::{Op, Redo, dirs_of, encode};
use crate::lasting::Lasting;
use crate::sync::{ReadGuard, Shared};
use crate::tiers::Tiers;
use crate::tree::{At, Facts, INTENTS, Tier, Tree, join};
use claims::Claims;
pub(crate) use claims::{Claim, Key, Stage, Wanted};
use parking_lot::RwLockWriteGuard;
use rustix::io::Errno;
pub(crate) use saved::{are_saved, load};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Longest name.
pub(crate) const NAME_MAX: usize = 255;

/// The user who creates something.
#[derive(Clone, Copy, Debug)]
pub struct Creator {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Permissions to withhold, unless the directory has a default access list.
    pub umask: u32,
}

/// What a rename does with a file that already has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfPresent {
    /// It is replaced.
    Replace,
    /// The rename fails (`RENAME_NOREPLACE`).
    Refuse,
    /// It gets the old name; it must exist (`RENAME_EXCHANGE`).
    Exchange,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Names {
    claims: Claims,
    cat: Shared<Catalogue>,
    /// Gives out the inode numbers that users see.
    lasting: Arc<Lasting>,
    /// The number in the last hidden name. Each number is used once.
    hidden: AtomicU64,
    /// Whether a device failed such that names may not change any more.
    stuck: AtomicBool,
}

/// Where a node is and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// One of its paths.
    pub(crate) path: Vec<u8>,
    /// Its disk.
    pub(crate) tier: Tier,
    pub(crate) facts: Facts,
    pub(crate) kind: Kind,
    /// The disks that have it, one bit each.
    pub(crate) on: u16,
}

impl Names {
    /// The names that were read from the tiers.
    pub(crate) fn new(cat: Catalogue, lasting: Lasting) -> Names {
        Names {
            claims: Claims::default(),
            cat: Shared::new(cat),
            lasting: Arc::new(lasting),
            hidden: AtomicU64::new(0),
            stuck: AtomicBool::new(false),
        }
    }
    /// The catalogue, locked for reading.
    pub(crate) fn cat(&self) -> ReadGuard<'_, Catalogue> {
        self.cat.read()
    }
    /// The catalogue, locked for a change.
    pub(crate) fn cat_mut(&self) -> RwLockWriteGuard<'_, Catalogue> {
        self.cat.write()
    }
    /// One look at a node.
    ///
    /// # Errors
    /// `ENOENT`: there is no such node, or it has no name any more.
    pub(crate) fn known(&self, node: NodeId) -> Result<Known, Errno> {
        let cat = self.cat();
        let found = cat.get(node).zip(cat.path(node));
        let (n, path) = found.ok_or(Errno::NOENT)?;
        Ok(Known {
            path,
            tier: n.tier,
            facts: n.facts,
            kind: n.kind,
            on: n.on(),
        })
    }
    /// From now on no name may change until the next mount recovers.
    pub(crate) fn mark_stuck(&self, tiers: &Tiers, why: &str) {
        self.stuck.store(true, Ordering::SeqCst);
        tiers.say(&format!(
            "{why}: no name can be changed until this file system is mounted again"
        ));
    }
    /// Whether a device failed such that names may not change.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::SeqCst)
    }
    /// A number for a hidden name.
    pub(crate) fn number(&self) -> u64 {
        self.hidden.fetch_add(1, Ordering::Relaxed) + 1
    }
    /// All later numbers for hidden names are higher than this one.
    pub(crate) fn number_used(&self, number: u64) {
        self.hidden.fetch_max(number, Ordering::Relaxed);
    }
    /// As [`Tiers::device_error`], for a file in use.
    pub(crate) fn device_error_of(
        &self,
        tiers: &Tiers,
        tier: Tier,
        node: NodeId,
        e: Errno,
    ) -> Errno {
        let path = self.cat().path(node).unwrap_or_default();
        tiers.device_error(tier, &path, e)
    }
    /// Records that a process opened a file. This is done only for tiers whose disks may sleep, that is, all but the fastest.
    pub(crate) fn used_by(&self, tiers: &Tiers, node: NodeId, pid: u32) {
        if let Ok(known) = self.known(node)
            && known.tier > 0
        {
            tiers.used_by(known.tier, known.path, pid);
        }
    }
    /// Carries out several steps atomically, even across a crash: an intent first, then the steps, then all of it is made durable. The
    /// caller has claimed all names in them. So intents of several changes at the same time have nothing in common.
    pub(crate) fn together(&self, tiers: &Tiers, ops: &[Op]) -> Result<(), Errno> {
        let mut disk = Disk::new(tiers.roots.clone());
        let name = format!("n{}", self.number());
        let intent = At::new(0, join(INTENTS, name.as_bytes()));
        let dirs = At::new(0, INTENTS);
        // A slower tier whose device has failed must be found out before the first step: after a failure between two steps, no name could
        // change until the next mount.
        for dir in dirs_of(ops).iter().filter(|d| d.tier > 0) {
            disk.prove_writable(dir.tier)
                .and_then(|()| disk.sync_dir(dir))
                .map_err(|e| tiers.device_error(dir.tier, &dir.path, e))?;
        }
        // For the same reason, a name that cannot be removed or renamed must be found out now.
        for op in ops {
            if let Op::Exchange(_, at, _) = op
                && !tiers.root(at.tier).can_exchange()
            {
                return Err(Errno::INVAL);
            }
            let replaced = match op {
                Op::Rename(_, at, to) | Op::Exchange(_, at, to) => Some(At::new(at.tier, &to[..])),
                Op::Link(..) | Op::Unlink(..) => None,
            };
            for at in [op.at().clone()].into_iter().chain(replaced) {
                if !disk.may_remove(&at)? {
                    return Err(Errno::PERM);
                }
            }
        }
        let written = disk
            .write(&intent, &encode(ops))
            .and_then(|()| disk.sync_file(&intent))
            .and_then(|()| disk.sync_dir(&dirs));
        if let Err(e) = written {
            let gone = disk.unlink(&intent).and_then(|()| disk.sync_dir(&dirs));
            if gone.is_err_and(|e| e != Errno::NOENT) {
                self.mark_stuck(tiers, "an intent could not be taken back");
            }
            return Err(e);
        }
        let mut done = Ok(());
        for (i, op) in ops.iter().enumerate() {
            match op.redo(&mut disk) {
                Ok(Redo::Neither) if i == 0 => done = Err(Errno::STALE),
                Err(e) => {
                    if i > 0 {
                        self.mark_stuck(tiers, "a change over several disks is half done");
                        return Err(e);
                    }
                    done = Err(e);
                }
                Ok(_) => {}
            }
            if done.is_err() {
                break;
            }
        }
        if done.is_ok() {
            for dir in dirs_of(ops) {
                if let Err(e) = disk.sync_dir(&dir) {
                    self.mark_stuck(tiers, "a directory could not be synced");
                    return Err(e);
                }
            }
        }
        let gone = disk.unlink(&intent).and_then(|()| disk.sync_dir(&dirs));
        if let Err(e) = gone {
            self.mark_stuck(tiers, "an intent could not be taken away");
            return Err(e);
        }
        done
    }
}
