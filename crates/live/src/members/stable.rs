//! Names of devices that do not depend on the other devices of the machine.

use std::fs;
use std::path::{Path, PathBuf};

/// The directory in which udev keeps them.
const BY_ID: &str = "/dev/disk/by-id";
/// Best first: the drive's own identification, then that of its bus, then the rest.
const KINDS: [&str; 9] = [
    "nvme-eui.",
    "nvme-uuid.",
    "wwn-",
    "ata-",
    "nvme-",
    "scsi-",
    "dm-uuid-",
    "md-uuid-",
    "usb-",
];

/// The stable name of a block device that was given by its kernel's name (`/dev/sdb`), if it has one.
pub fn stable_name(path: &Path) -> Option<PathBuf> {
    within(path, Path::new(BY_ID))
}

fn within(path: &Path, by_id: &Path) -> Option<PathBuf> {
    // A user who gave `/dev/vg/lv` or a link of their own meant that name.
    if path.parent() != Some(Path::new("/dev")) || fs::symlink_metadata(path).ok()?.is_symlink() {
        return None;
    }
    let names = fs::read_dir(by_id).ok()?.flatten();
    let same = names.filter(|n| n.path().canonicalize().is_ok_and(|p| p == path));
    let rank = |name: &str| {
        let kind = KINDS.iter().position(|k| name.starts_with(k));
        (kind.unwrap_or(KINDS.len()), name.to_owned())
    };
    same.map(|n| n.path())
        .min_by_key(|p| rank(&p.file_name().unwrap_or_default().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_drives_own_number_is_the_best_name() {
        let dir = tempfile::tempdir().unwrap();
        let (device, other) = (Path::new("/dev/null"), Path::new("/dev/zero"));
        assert_eq!(within(device, dir.path()), None);
        for name in ["usb-x", "ata-DISK_123", "wwn-0x5000", "strange"] {
            symlink(device, dir.path().join(name)).unwrap();
        }
        symlink(other, dir.path().join("nvme-eui.1")).unwrap();
        assert_eq!(
            within(device, dir.path()),
            Some(dir.path().join("wwn-0x5000"))
        );
        assert_eq!(within(&dir.path().join("ata-DISK_123"), dir.path()), None);
        assert_eq!(within(device, Path::new("/no/such")), None);
    }
}
