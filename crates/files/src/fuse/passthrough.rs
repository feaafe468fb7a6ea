//! Handles with which the kernel itself reads and writes a file on its tier.
//!
//! A file with such a handle cannot move, so its writer gets ENOSPC when the tier is full, from the kernel. Therefore handles for writing
//! are given only while the tier has a reserve for each of them, and space is kept for them as far as possible (`gate.rs`). If other handles of the file are of that kind already, the kernel wants a
//! new one to be of it, too; its reads and writes then go through this program all the same, which makes space by moving other files.

use super::questions::Inode;
use super::{Io, Served};
use crate::live::Live;
use crate::sync::lock;
use crate::tree::Tier;
use fuser::{BackingId, FopenFlags};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The kernel's access to the file of a handle.
#[derive(Clone)]
pub(super) struct Passes {
    pub(super) id: Arc<BackingId>,
    /// Reads and writes of this handle go through this program nevertheless; only mappings do not.
    pub(super) through_us: bool,
    /// The tier that has a reserve for the writes of this handle.
    reserve: Option<Tier>,
    /// The file, if space is kept for it.
    kept: Option<Inode>,
}

impl Passes {
    /// The flags with which the kernel opens the handle.
    pub(super) fn flags(&self) -> FopenFlags {
        if self.through_us {
            FopenFlags::FOPEN_DIRECT_IO
        } else {
            FopenFlags::empty()
        }
    }
}

impl Served {
    /// The kernel's direct access to the file on the tier, if it was requested and is possible.
    ///
    /// The kernel refuses handles of both kinds at the same time, so the first handle of a file decides for all until the last is closed.
    pub(super) fn passes(
        &self,
        live: &Live,
        writes: bool,
        open: impl FnOnce(&rustix::fd::OwnedFd) -> std::io::Result<BackingId>,
    ) -> Option<Passes> {
        if !self.io.passes() {
            return None;
        }
        let held = live.hold();
        let at = held.backing().ok()?;
        let mut there = lock(&live.passthrough);
        if there.is_none() && live.had_cached.load(Ordering::SeqCst) {
            return None;
        }
        let through_us = writes && self.must_go_through_us(at.tier);
        let id = match there.clone() {
            Some(id) => id,
            None => match (!through_us).then(|| open(&at.fd)) {
                Some(Ok(id)) => Arc::clone(there.insert(Arc::new(id))),
                withheld => {
                    live.had_cached.store(true, Ordering::SeqCst);
                    if let Some(Err(e)) = withheld {
                        self.refused(&e.to_string());
                    }
                    return None;
                }
            },
        };
        live.had_passthrough.store(true, Ordering::SeqCst);
        let reserve = (writes && !through_us).then_some(at.tier);
        if let Some(tier) = reserve {
            self.store.kernel_writes(tier).opened();
        }
        // From the only disk of the slowest tier nothing can move away, and the free space of a disk on a network cannot be asked often.
        let keep = self.store.layout().can_leave(at.tier) && self.store.root(at.tier).local;
        let gate = self.gate.as_ref().filter(|_| reserve.is_some() && keep);
        Some(Passes {
            id,
            through_us,
            reserve,
            kept: gate.and_then(|g| g.enter(&at.fd, at.tier)),
        })
    }
    /// Called when a handle is closed.
    pub(super) fn passed(&self, passes: &Passes) {
        if let Some(tier) = passes.reserve {
            self.store.kernel_writes(tier).closed();
        }
        if let Some((gate, file)) = self.gate.as_ref().zip(passes.kept) {
            gate.leave(file);
        }
    }
    /// Whether writes to a tier must go through this program, because the tier may become full before another one does.
    fn must_go_through_us(&self, tier: Tier) -> bool {
        if !self.store.layout().can_leave(tier) {
            return false;
        }
        if self.io == Io::PassthroughReads {
            return true;
        }
        if self.store.root(tier).local {
            // The kernel writes without notice, so what was known half a second ago may be long gone.
            self.store.room_changed(tier);
        }
        let writers = self.store.kernel_writes(tier).handles();
        let short = self.store.is_short_for(tier, writers);
        if short && !self.short.swap(true, Ordering::SeqCst) {
            let tier = self.store.tier_name(tier);
            self.store.say(&format!(
                "{tier} is nearly full: files there are opened for writing without passthrough, so that they can move (said once)"
            ));
        }
        short
    }
    /// Reports that the kernel refuses passthrough, once.
    fn refused(&self, why: &str) {
        let mut reason = lock(&self.reason);
        if reason.is_none() {
            self.store
                .say(&format!("no passthrough: the kernel says: {why}"));
            *reason = Some(why.to_owned());
        }
    }
}
