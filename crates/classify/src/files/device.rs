//! Finds the device of a mounted file system, and the offset of the file system on it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The location of a file system on its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The device: `/dev/loop0`, `/dev/nbd0`.
    pub disk: PathBuf,
    /// Offset of the file system, which is that of its partition.
    pub offset: u64,
    /// If the device is a loop device: the file that it shows. [`Place::offset`] then counts from the start of that file.
    pub backing: Option<PathBuf>,
}

/// The location of the file system to which `path` belongs.
///
/// # Errors
/// It has no block device of its own (network, memory, several devices), or its device is stacked on others (device mapper, md), so that
/// the location of its blocks below cannot be determined.
pub fn place_of(path: &Path) -> io::Result<Place> {
    let meta = fs::metadata(path)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    let device = meta.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let refused = |why: &str| io::Error::other(format!("{}: {why}", path.display()));
    let sys = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))
        .map_err(|_| refused("its file system is not mounted from one block device"))?;
    let number = |file: PathBuf| -> io::Result<u64> {
        let text = fs::read_to_string(&file)?;
        let n = text.trim().parse();
        n.map_err(|_| io::Error::other(format!("{}: no number", file.display())))
    };
    let (disk, mut offset) = if sys.join("partition").exists() {
        let parent = sys
            .parent()
            .ok_or_else(|| refused("a partition of nothing"))?;
        (parent.to_owned(), number(sys.join("start"))? * 512)
    } else {
        (sys, 0)
    };
    if disk.join("dm").exists() || disk.join("md").exists() {
        return Err(refused(
            "its device is stacked (device mapper, md): where its blocks are below cannot be told",
        ));
    }
    let mut backing = None;
    if disk.join("loop/backing_file").exists() {
        let file = fs::read_to_string(disk.join("loop/backing_file"))?;
        backing = Some(PathBuf::from(file.trim_end_matches('\n')));
        offset += number(disk.join("loop/offset"))?;
    }
    let name = disk.file_name().unwrap_or_default();
    Ok(Place {
        disk: Path::new("/dev").join(name),
        offset,
        backing,
    })
}
