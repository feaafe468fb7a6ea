//! The link with the name of a volume, which leads to its device whatever the number of that is.
//!
//! A loop device can have the same link, so neither kind of front end takes it from the other while that one is in service.

use super::abi;
use super::control::Control;
use std::io;
use std::path::{Path, PathBuf};

/// The usual directory of links.
pub(super) const DIRECTORY: &str = "/dev/isotherm";

/// A description of what a link leads to, if that is a loop device whose file can be read or a disk of ublk; `sys` is `/sys/block`.
pub fn occupied(link: &Path, sys: &Path) -> Option<String> {
    let to = std::fs::read_link(link).ok()?;
    let name = to.file_name()?.to_str()?;
    if name.starts_with("ublkb") {
        return sys.join(name).exists().then(|| format!("/dev/{name}"));
    }
    // The file of a server that was killed cannot be read.
    let backing = std::fs::read_to_string(sys.join(name).join("loop/backing_file")).ok()?;
    let backing = backing.trim_end();
    std::fs::metadata(backing).ok()?;
    Some(format!("/dev/{name}, which shows {backing}"))
}

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
    let id: Option<u32> = to
        .to_str()
        .and_then(|t| t.rsplit_once("ublkb")?.1.parse().ok());
    let foreign = id
        .and_then(|id| control.info(id).ok())
        .filter(|i| i.owner != owner);
    if let (None, Some(other)) = (id, occupied(link, Path::new("/sys/block"))) {
        return Err(io::Error::other(format!(
            "ublk: {} leads to {other}: stop that one, or rename this one",
            link.display()
        )));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_in_service_is_occupied_and_one_left_behind_is_not() {
        let place = tempfile::tempdir().unwrap();
        let (sys, link) = (place.path().join("sys"), place.path().join("v"));
        let shown = place.path().join("shown");
        let lead = |name: &str| {
            let _ = fs::remove_file(&link);
            symlink(format!("../{name}"), &link).unwrap();
            occupied(&link, &sys)
        };
        assert_eq!(occupied(&link, &sys), None);
        assert_eq!(lead("ublkb3"), None);
        fs::create_dir_all(sys.join("ublkb3")).unwrap();
        assert_eq!(lead("ublkb3").as_deref(), Some("/dev/ublkb3"));
        fs::create_dir_all(sys.join("loop5/loop")).unwrap();
        assert_eq!(lead("loop5"), None, "a loop device without a file");
        let file = sys.join("loop5/loop/backing_file");
        fs::write(&file, format!("{}\n", shown.display())).unwrap();
        assert_eq!(lead("loop5"), None, "its server was killed");
        fs::write(&shown, "").unwrap();
        let words = lead("loop5").expect("in service");
        assert!(words.ends_with(&shown.display().to_string()), "{words}");
    }
}
