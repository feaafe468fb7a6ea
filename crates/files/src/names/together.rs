//! Changes of names in several steps.

use super::Names;
use crate::disk::Disk;
use crate::intent::{Op, Redo, dirs_of, encode};
use crate::tiers::Tiers;
use crate::tree::{At, INTENTS, Tree, join};
use rustix::io::Errno;
use std::sync::Arc;

impl Names {
    /// Carries out several steps atomically, even across a crash: an intent first, then the steps, then all of it is made durable. The
    /// caller has claimed all names in them. So intents of several changes at the same time have nothing in common.
    pub(crate) fn together(&self, tiers: &Tiers, ops: &[Op]) -> Result<(), Errno> {
        let mut disk = Disk::new(Arc::clone(&tiers.roots));
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
