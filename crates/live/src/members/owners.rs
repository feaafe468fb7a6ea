//! Whose a place is. The number of a volume is known to every user, so a place that only a search has found counts as a member only if no
//! stranger controls its bytes: not another user's file, nor a loop device over one (some systems let every user attach those). Otherwise a
//! forged member could block the start of a volume. A place that the description names counts, whoever owns it.

use super::Candidate;
use crate::device::Identity;
use crate::loop_device;
use crate::stack::Layer;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The users who decide about the volume: root, the one who runs this, and the owner of the description's directory.
pub(super) fn of_volume(dir: &Path) -> BTreeSet<u32> {
    let own = rustix::process::geteuid().as_raw();
    let owner = fs::metadata(dir).map(|m| m.uid()).ok();
    [0, own].into_iter().chain(owner).collect()
}

/// Whether all that is below a name belongs to these users, as far as files are concerned. A disk belongs to whoever has the machine.
pub(super) fn belongs_to(users: &BTreeSet<u32>, path: &Path, stack: &[Layer]) -> bool {
    // A link, or the node of a device, that belongs to another user leads where that user wants.
    let named = fs::symlink_metadata(path).is_ok_and(|m| users.contains(&m.uid()));
    named
        && !stack.is_empty()
        && (0..stack.len()).all(|i| {
            let layer = &stack[i];
            match layer.id {
                Identity::File(device, inode) => fs::metadata(&layer.path).is_ok_and(|m| {
                    (m.dev(), m.ino()) == (device, inode) && users.contains(&m.uid())
                }),
                // The path of a loop device's file may lead to another file by now.
                Identity::Block(_) if loop_device::is_attached(&layer.path) => {
                    match stack.get(i + 1).map(|l| l.id) {
                        Some(Identity::File(device, inode)) => {
                            loop_device::backing(&layer.path) == Some((device, inode))
                        }
                        // Over a device, whose node is no user's.
                        Some(Identity::Block(_)) => true,
                        None => false,
                    }
                }
                Identity::Block(_) => true,
            }
        })
}

/// Removes places that were found by a search and that strangers control.
pub(super) fn leave_out_strangers(
    places: &mut Vec<Candidate>,
    users: &BTreeSet<u32>,
    notes: &mut Vec<String>,
) {
    places.retain(|c| {
        let counts = c.hinted || belongs_to(users, &c.path, &c.stack);
        if !counts {
            notes.push(format!(
                "{}: states to be member {} of this volume, but another user controls it: not used (if it is the member, name it in the description)",
                c.path.display(),
                c.sb.index
            ));
        }
        counts
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::layers;

    #[test]
    fn only_what_no_stranger_controls_belongs_to_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        let users = of_volume(dir.path());
        let path = dir.path().join("member");
        fs::write(&path, [0; 4096]).unwrap();
        let stack = layers(&path).unwrap();
        assert!(belongs_to(&users, &path, &stack));
        assert!(!belongs_to(&BTreeSet::from([u32::MAX - 1]), &path, &stack));
        assert!(!belongs_to(&users, &path, &[]), "nothing is known of it");
        // Another file has its name now.
        let other = dir.path().join("other");
        fs::write(&other, "").unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!belongs_to(&users, &path, &stack));
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(!belongs_to(&users, &path, &stack));
    }
}
