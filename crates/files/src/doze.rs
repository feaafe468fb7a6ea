//! Files that are read from their copies while nothing is opened at their homes, so that a disk there sleeps on.
//!
//! A copy is as good as the file at home only as long as nobody changes that directly on its tier. An open at home notices such a change,
//! but an open of a file that the kernel has forgotten wakes the disk. So the kernel is asked first whether it has the file at home in
//! memory (`RESOLVE_CACHED`, Linux 5.12): a file that was changed on this machine a short time ago is. If it is there, it is opened and
//! compared, which costs no access. If not, the copy is read as long as it fits what is known of the file, and the home is opened and
//! compared by the first call that needs it: every change, sync, move, and removal.
//!
//! This is done on file systems of local devices only. Somebody else may change a file of a network without this kernel knowing, and a
//! server has no disk of ours that sleeps.

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
    /// The copy of a file, and what is known of the file, if the copy may be read without a look at the file at home. `dead`: its device
    /// does not answer, so there is nothing to look at.
    pub(crate) fn doze(&self, node: NodeId, dead: bool) -> Option<(OpenCopy, Facts)> {
        if !self.copies.on || !self.copies.has(node) {
            return None;
        }
        let (path, tier, known) = {
            let cat = self.cat();
            let n = cat.get(node)?;
            (cat.path(node)?, n.tier, n.facts)
        };
        let root = &self.roots[usize::from(tier)];
        let look = !dead && !broken(Mutant::NeverLook);
        if !root.local || (look && in_memory(root, &path)) {
            return None;
        }
        Some((self.copy_as_known(node, &known)?, known))
    }
    /// A file of which only the copy was open is opened at home. It may have been changed directly on its tier.
    pub(crate) fn woke(&self, node: NodeId, known: &Facts, now: Facts) {
        if (known.id, known.size, known.mtime) == (now.id, now.size, now.mtime) {
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

/// Whether an open of that path needs no access to the device, as far as the kernel says. Also true if it does not say.
fn in_memory(root: &Root, path: &[u8]) -> bool {
    !matches!(root.look_in_memory(path), Err(Errno::AGAIN))
}
