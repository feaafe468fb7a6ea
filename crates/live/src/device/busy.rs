//! Who uses a block device that cannot be claimed, in words for an administrator.

use super::lock::server_of;
use isotherm_paths::{device_words, unescaped};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The reason why `path` is in use, and the fix. What cannot be seen from here (another container) is left open.
pub(super) fn reason(path: &Path) -> String {
    let by = |who: String, fix: &str| format!("device in use {who}: {fix}");
    if let Some(server) = File::open(path).ok().and_then(|f| server_of(&f)) {
        return by(format!("by {server}"), "stop that first");
    }
    let Some(sys) = sys_dir(path) else {
        return unknown();
    };
    let parts = numbers(&sys);
    if let Some(point) = mount_of(&parts) {
        return by(
            format!("(mounted at {})", point.display()),
            "unmount it first",
        );
    }
    if let Some(area) = swap_on(&parts) {
        return by(
            format!("(swap area {})", area.display()),
            "`swapoff` it first",
        );
    }
    match holders(&sys).first() {
        Some(one) => by(
            format!("(part of /dev/{one})"),
            "remove it from that first (device mapper, LVM, md, bcache)",
        ),
        None => unknown(),
    }
}

fn unknown() -> String {
    "device in use (mounted, or part of another volume): unmount it first".to_owned()
}

/// The directory of a block device in sysfs.
fn sys_dir(path: &Path) -> Option<PathBuf> {
    let number = fs::metadata(path).ok()?.rdev();
    Some(PathBuf::from(format!(
        "/sys/dev/block/{}",
        device_words(number)
    )))
}

/// The numbers ("8:1") of the device and of its partitions: while a partition is in use, the disk cannot be claimed.
fn numbers(sys: &Path) -> BTreeSet<String> {
    let below = fs::read_dir(sys).into_iter().flatten().flatten();
    let dirs = below.map(|d| d.path()).chain([sys.to_owned()]);
    dirs.filter_map(|d| fs::read_to_string(d.join("dev")).ok())
        .map(|text| text.trim().to_owned())
        .collect()
}

/// Whether the device node `source` is one of those.
fn is_one(source: &Path, numbers: &BTreeSet<String>) -> bool {
    source.starts_with("/dev")
        && fs::metadata(source)
            .is_ok_and(|m| m.rdev() != 0 && numbers.contains(&device_words(m.rdev())))
}

/// A mount point of one of these devices.
fn mount_of(numbers: &BTreeSet<String>) -> Option<PathBuf> {
    let mounts = isotherm_paths::mounts().ok()?.into_iter();
    // Some file systems (btrfs) have a number of their own; their source names the device.
    let is = |m: &isotherm_paths::Mount| numbers.contains(&m.device) || is_one(&m.source, numbers);
    mounts.filter(is).map(|m| m.point).next()
}

/// A swap area on one of these devices.
fn swap_on(numbers: &BTreeSet<String>) -> Option<PathBuf> {
    let table = fs::read_to_string("/proc/swaps").ok()?;
    let areas = table
        .lines()
        .skip(1)
        .filter_map(|l| l.split_whitespace().next());
    areas
        .map(|a| unescaped(a.as_bytes()))
        .find(|a| is_one(a, numbers))
}

/// The devices that are made of this one or of its partitions.
fn holders(sys: &Path) -> BTreeSet<String> {
    let below = fs::read_dir(sys).into_iter().flatten().flatten();
    below
        .map(|d| d.path())
        .chain([sys.to_owned()])
        .flat_map(|d| {
            fs::read_dir(d.join("holders"))
                .into_iter()
                .flatten()
                .flatten()
        })
        .map(|d| String::from_utf8_lossy(d.file_name().as_bytes()).into_owned())
        .collect()
}
