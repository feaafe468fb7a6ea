//! What the kernel says of a member's own device.

use isotherm_live::stack::tree::{Kind, Node, Tree};

use super::{Finding, Level};

/// What is wrong with the device or at risk.
pub(super) fn findings(tree: &Tree, name: &str, is_flash: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some(own) = tree.nodes.first() else {
        return found;
    };
    let mut say =
        |level, what: String, todo: &str| found.push(Finding::new(level, name, what, todo));
    let drives = tree.drives(0);
    let mut drives = drives.values();
    if drives.clone().any(|d| d.zoned == "host-managed") {
        let todo = "use another disk: it takes only writes in order";
        say(Level::Wrong, "is a host-managed SMR disk".into(), todo);
    }
    let is_partition = matches!(own.kind, Kind::Partition);
    if is_partition && own.physical > 0 && !own.start.is_multiple_of(own.physical) {
        let what = format!(
            "its partition begins at byte {}, in the middle of a block of {} bytes: each write is read, changed and written",
            own.start, own.physical
        );
        say(
            Level::Risk,
            what,
            "make the partition anew, at a multiple of 1 MiB, and `isotherm replace` it",
        );
    }
    if is_flash && own.rotates {
        say(
            Level::Risk,
            "is a disk, and the tier is for flash".into(),
            "give the volume an SSD (`isotherm replace`)",
        );
    }
    let hides = |d: &Node| d.write_cache == "write through" && d.bus.contains("/usb");
    if drives.clone().any(|d| hides(d)) {
        let todo = "if its adapter has no battery, switch the drive's cache off (`hdparm -W 0`), or use SATA or NVMe";
        say(
            Level::Risk,
            "is behind USB and says that it has no write cache: a flush may not reach the drive"
                .into(),
            todo,
        );
    }
    if is_flash && drives.any(|d| d.write_cache == "write back") {
        let todo = "nothing is lost; a drive with power-loss protection answers a FLUSH at once";
        say(
            Level::Note,
            "has a volatile write cache: each FLUSH waits until it is empty".into(),
            todo,
        );
    }
    found
}
