//! On which served volumes a file or device lies. As a member of the volume on which it lies it would be written by a request that waits for
//! that write, and nothing could end this, not even SIGKILL.

use super::{DEPTH_MAX, device_number, read, sys};
use crate::block_file::{FS_TYPE, SOURCE};
use crate::loop_device;
use isotherm_paths::{Mount, mounts};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The marks of the volumes on which `path`, or the place where it would be made, lies: `isotherm:NAME` ([`crate::block_file::source`]) where
/// a block file is found in this mount namespace, `isotherm UUID` where a loop device of a server is, and `/dev/ublkbN`. Followed are file
/// systems, partitions, loop devices and device mapper. A network device over a server of this machine is not seen.
pub fn volumes_below(path: &Path) -> BTreeSet<String> {
    let mounts = mounts().unwrap_or_default();
    let mut found = BTreeSet::new();
    for device in devices_of(path, &mounts) {
        search(device, &mounts, DEPTH_MAX, &mut found);
    }
    found
}

fn block_number(path: &Path) -> Option<u64> {
    let meta = fs::metadata(path).ok()?;
    meta.file_type().is_block_device().then(|| meta.rdev())
}

/// What a file lies on: the number of its file system, and the device that is mounted there (a btrfs has numbers of its own).
fn devices_of(path: &Path, mounts: &[Mount]) -> Vec<u64> {
    let Some(there) = path.ancestors().find_map(|p| p.canonicalize().ok()) else {
        return Vec::new();
    };
    if let Some(device) = block_number(&there) {
        return vec![device];
    }
    let number = fs::metadata(&there).ok().map(|m| m.dev());
    let at = |point: &Path| mounts.iter().rev().find(|m| m.point == point);
    let mount = there.ancestors().find_map(at);
    let mounted = mount.into_iter().flat_map(numbers_of);
    number.into_iter().chain(mounted).collect()
}

/// The numbers of a mount: its own, and that of the device which it names.
fn numbers_of(mount: &Mount) -> impl Iterator<Item = u64> {
    let source = Some(&mount.source).filter(|s| s.is_absolute());
    device_number(&mount.device)
        .into_iter()
        .chain(source.and_then(|s| block_number(s)))
}

fn search(device: u64, mounts: &[Mount], depth: usize, found: &mut BTreeSet<String>) {
    if depth == 0 {
        return;
    }
    let dir = sys(device);
    let at = dir.canonicalize().ok();
    let name = at.as_deref().and_then(Path::file_name).unwrap_or_default();
    let mut below: Vec<u64> = Vec::new();
    if dir.join("partition").exists() {
        let parent = at.as_deref().and_then(Path::parent);
        below.extend(parent.and_then(|p| device_number(&read(&p.join("dev"))?)));
    } else if dir.join("loop").exists() {
        let device = Path::new("/dev").join(name);
        found.extend(loop_device::mark_of(&device).filter(|m| m.starts_with("isotherm ")));
        below.extend(loop_device::below(&device).into_iter().flatten());
    } else if dir.exists() {
        if name.as_encoded_bytes().starts_with(b"ublkb") {
            found.insert(Path::new("/dev").join(name).display().to_string());
        }
        let slaves = fs::read_dir(dir.join("slaves"))
            .into_iter()
            .flatten()
            .flatten();
        below.extend(slaves.filter_map(|s| device_number(&read(&s.path().join("dev"))?)));
    } else {
        let here = isotherm_paths::device_words(device);
        for mount in mounts.iter().filter(|m| m.device == here) {
            let source = mount.source.to_string_lossy();
            if mount.kind == FS_TYPE && source.starts_with(SOURCE) {
                found.insert(source.into_owned());
            }
            below.extend(numbers_of(mount).filter(|d| *d != device));
        }
    }
    for device in below {
        search(device, mounts, depth - 1, found);
    }
}
