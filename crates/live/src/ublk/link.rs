//! The link with the name of a volume, which leads to its device whatever the number of that is.

use super::abi;
use super::control::Control;
use std::io;
use std::path::{Path, PathBuf};

/// The usual directory of links.
pub(super) const DIRECTORY: &str = "/dev/isotherm";

/// Checks that the link does not lead to the device of another volume.
pub(super) fn check(control: &Control, link: &Path, owner: u64) -> io::Result<()> {
    let Ok(to) = std::fs::read_link(link) else {
        return match link.symlink_metadata() {
            Err(_) => Ok(()),
            Ok(_) => Err(io::Error::other(format!(
                "ublk: {} is there and is no link: remove it",
                link.display()
            ))),
        };
    };
    let id = to
        .to_str()
        .and_then(|t| t.rsplit_once("ublkb")?.1.parse().ok());
    let foreign = id
        .and_then(|id| control.info(id).ok())
        .filter(|i| i.owner != owner);
    match foreign {
        Some(i) if i.state != abi::DEAD => Err(io::Error::other(format!(
            "ublk: {} leads to /dev/ublkb{}, which shows another volume of that name: stop that one, or rename this one",
            link.display(),
            i.id
        ))),
        _ => Ok(()),
    }
}

/// Changes the link atomically so that it leads to the device. In /dev it has the form that udev gives it.
pub(super) fn point(link: &Path, id: u32) -> io::Result<()> {
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("ublk: {}: {e}", link.display()));
    let dir = link.parent().unwrap_or(Path::new(DIRECTORY));
    std::fs::create_dir_all(dir).map_err(failed)?;
    let to = match dir.parent() {
        Some(dev) if dev == Path::new("/dev") => format!("../ublkb{id}"),
        _ => format!("/dev/ublkb{id}"),
    };
    let new = link.with_extension(format!("new{id}"));
    let made = std::os::unix::fs::symlink(to, &new).and_then(|()| std::fs::rename(&new, link));
    if made.is_err() {
        // This may be the link that could not be renamed.
        let _ = std::fs::remove_file(&new);
    }
    made.map_err(failed)
}

/// Removes the link if it still leads to `disk`.
pub(super) fn remove(link: &Path, disk: &Path) {
    let leads_here = |to: PathBuf| to.file_name() == disk.file_name();
    if std::fs::read_link(link).is_ok_and(leads_here) {
        // Another process may have removed it.
        let _ = std::fs::remove_file(link);
    }
}
