//! Files that are read from their copies while the files at home stay closed, so that a sleeping disk is not woken.
//!
//! A copy equals the file at home only as long as nobody changes that file directly on its tier. Opening the file at home reveals such a
//! change; but if the kernel has dropped the file from its caches, the open wakes the disk. So the kernel is asked first whether it has the
//! path of the file at home in memory (`RESOLVE_CACHED`, Linux 5.12), which is the case if the file was changed on this machine a short
//! time ago. If it has, the file at home is opened and compared, which needs no access to the disk. If it has not, the copy is read as long
//! as it matches the attributes that the catalogue has of the file. The first call that needs the file at home (every change, sync, move
//! and removal) opens and compares it.
//!
//! This is done only for file systems on local devices. On a network file system, another machine can change a file without this kernel
//! knowing, and the disk that could sleep belongs to the server.

use crate::catalogue::NodeId;
use crate::copies::OpenCopy;
use crate::disk::Root;
use crate::live::{Live, Need};
use crate::mutants::{Mutant, broken};
use crate::store::Store;
use crate::tree::Facts;
use rustix::io::Errno;
use std::sync::Arc;

impl Store {
    /// As [`Store::live`], for a use that only reads.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn live_to_read(&self, node: NodeId) -> Result<Arc<Live>, Errno> {
        self.live_for(node, Need::Data).map(|l| l.0)
    }
    /// Opens the copy of a file if it may be read without opening the file at home. Returns it with the attributes that the catalogue has
    /// of the file. `dead`: the device of the file at home does not answer, so the file cannot be compared.
    pub(crate) fn open_copy_only(&self, node: NodeId, dead: bool) -> Option<(OpenCopy, Facts)> {
        self.copies.held(node)?;
        let (path, tier, known) = {
            let cat = self.cat();
            let n = cat.get(node)?;
            (cat.path(node)?, n.tier, n.facts)
        };
        let root = self.root(tier);
        let look = !dead && !broken(Mutant::NeverLook);
        if !root.local || (look && in_memory(root, &path)) {
            return None;
        }
        Some((self.copy_as_known(node, &known)?, known))
    }
    /// Called when the file at home is opened after only its copy was open: if the file was changed directly on its tier, this is reported,
    /// and the new attributes are stored.
    pub(crate) fn compare_on_open(&self, node: NodeId, known: &Facts, now: Facts) {
        if known.version() == now.version() {
            return;
        }
        let path = self.cat().path(node).unwrap_or_default();
        self.say(&format!(
            "{}: changed underneath while its copy was read; what is there now is shown",
            String::from_utf8_lossy(&path)
        ));
        self.seen(node, now);
        self.tell_kernel_of_data(node);
    }
}

/// Whether the kernel can open that path without access to the device. Also true if the kernel cannot tell, which is so before Linux 5.12.
fn in_memory(root: &Root, path: &[u8]) -> bool {
    !matches!(root.open_cached(path), Err(Errno::AGAIN))
}
