//! The devices below and above a member: loop devices, partitions, device mapper. The same bytes must not be used twice under two names,
//! and a file that a loop device shows to others is in use although no process has the file itself open.
//!
//! ```text
//! /dev/loop0p1 ─► /dev/loop0 (bytes 1 MiB … 9 MiB) ─► disk.img (the loop's offset added)
//! /dev/dm-0    ─► /dev/sda, /dev/sdb (which bytes of them is not known here)
//! ```
//! The information comes from `/sys/dev/block`. If a part of it is missing, it is unknown, which is no reason to refuse the member.

pub mod own;
pub mod tree;

use crate::device::{Identity, lock_bytes};
use crate::error::{Error, ErrorKind};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Number of levels that are followed.
const DEPTH_MAX: usize = 16;
const SECTOR: u64 = 512;

/// One device or file below a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The identity of the device or file.
    pub id: Identity,
    /// Its name, for messages.
    pub path: PathBuf,
    /// The range of its bytes that is visible above, as start and end, if known.
    pub range: Option<(u64, u64)>,
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|s| s.trim().to_owned())
}

fn number(path: &Path) -> Option<u64> {
    read(path)?.parse().ok()
}

fn sys(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// `8:16` as a device number.
fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    Some(rustix::fs::makedev(major, minor))
}

fn name_of(device: u64) -> PathBuf {
    let name = sys(device).canonicalize().ok();
    let name = name.as_ref().and_then(|p| p.file_name());
    name.map_or_else(|| PathBuf::from("a device"), |n| Path::new("/dev").join(n))
}

fn identity(path: &Path) -> Option<Identity> {
    crate::device::Device::identity(path).ok()
}

/// Part `inner` of a range that begins at byte `start` of the layer below.
fn shifted(inner: Option<(u64, u64)>, start: u64) -> Option<(u64, u64)> {
    inner.map(|(a, z)| (a.saturating_add(start), z.saturating_add(start)))
}

fn descend(device: u64, range: Option<(u64, u64)>, depth: usize, out: &mut Vec<Layer>) {
    if depth == 0 {
        return;
    }
    let dir = sys(device);
    if let Some(file) = read(&dir.join("loop/backing_file")) {
        let start = number(&dir.join("loop/offset")).unwrap_or(0);
        let path = PathBuf::from(file);
        let Some(id) = identity(&path) else { return };
        let range = shifted(range, start);
        out.push(Layer { id, path, range });
        if let Identity::Block(below) = id {
            descend(below, range, depth - 1, out);
        }
        return;
    }
    if dir.join("partition").exists() {
        let parent = dir
            .canonicalize()
            .ok()
            .and_then(|p| p.parent().map(Path::to_owned));
        let below = parent.and_then(|p| device_number(&read(&p.join("dev"))?));
        let start = number(&dir.join("start")).unwrap_or(0) * SECTOR;
        if let Some(below) = below {
            let (id, path, range) = (
                Identity::Block(below),
                name_of(below),
                shifted(range, start),
            );
            out.push(Layer { id, path, range });
            descend(below, range, depth - 1, out);
        }
        return;
    }
    let slaves = fs::read_dir(dir.join("slaves"))
        .into_iter()
        .flatten()
        .flatten();
    for slave in slaves {
        if let Some(below) = read(&slave.path().join("dev"))
            .as_deref()
            .and_then(device_number)
        {
            let (id, path) = (Identity::Block(below), name_of(below));
            out.push(Layer {
                id,
                path,
                range: None,
            });
            descend(below, None, depth - 1, out);
        }
    }
}

/// The member at `path` itself, and everything below it.
///
/// # Errors
/// There is nothing at `path`.
pub fn layers(path: &Path) -> io::Result<Vec<Layer>> {
    let id = crate::device::Device::identity(path)?;
    let end = match id {
        Identity::File(..) => u64::MAX,
        Identity::Block(d) => number(&sys(d).join("size")).map_or(u64::MAX, |n| n * SECTOR),
    };
    let range = Some((0, end));
    let mut out = vec![Layer {
        id,
        path: path.to_owned(),
        range,
    }];
    if let Identity::Block(device) = id {
        descend(device, range, DEPTH_MAX, &mut out);
    }
    Ok(out)
}

/// Whether `path` can be read without waiting for a server that does not answer. This concerns the file system on which it lies and, for a
/// loop device, the file systems below it.
///
/// # Errors
/// Names the file system.
pub fn reachable(path: &Path) -> io::Result<()> {
    crate::mounts::check(path)?;
    let Ok(Identity::Block(mut device)) = crate::device::Device::identity(path) else {
        return Ok(());
    };
    for _ in 0..DEPTH_MAX {
        let mut dir = sys(device);
        if dir.join("partition").exists() {
            // A partition: its disk is the directory above.
            dir = dir.canonicalize()?;
            dir.pop();
        }
        let Some(file) = read(&dir.join("loop/backing_file")) else {
            break;
        };
        let file = PathBuf::from(file);
        crate::mounts::check(&file)?;
        match crate::device::Device::identity(&file) {
            Ok(Identity::Block(below)) => device = below,
            _ => break,
        }
    }
    Ok(())
}

/// The relation of two stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Both are the same device or file.
    Same,
    /// The first lies above the second and shows its bytes.
    Above,
    /// The second lies above the first.
    Below,
    /// Neither lies above the other, but they share bytes of a device below both.
    Share,
}

/// The relation of two stacks (from [`layers`]); `None` if they have no bytes in common.
pub fn relation(a: &[Layer], b: &[Layer]) -> Option<Relation> {
    let (first, second) = (a.first()?, b.first()?);
    if first.id == second.id {
        return Some(Relation::Same);
    }
    if a.iter().any(|l| l.id == second.id) {
        return Some(Relation::Above);
    }
    if b.iter().any(|l| l.id == first.id) {
        return Some(Relation::Below);
    }
    let shares = |x: &Layer, y: &Layer| match (x.range, y.range) {
        (Some(r), Some(s)) => x.id == y.id && r.0 < s.1 && s.0 < r.1,
        // Volumes of one volume group are on the same disks, but share no bytes.
        _ => false,
    };
    let any = a.iter().any(|x| b.iter().any(|y| shares(x, y)));
    any.then_some(Relation::Share)
}

/// Loop devices that show the file `id` or a part of it.
fn loops_over(id: Identity) -> Vec<PathBuf> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    all.filter(|d| d.file_name().as_encoded_bytes().starts_with(b"loop"))
        .filter(|d| {
            let file = read(&d.path().join("loop/backing_file"));
            file.is_some_and(|f| identity(Path::new(&f)) == Some(id))
        })
        .map(|d| Path::new("/dev").join(d.file_name()))
        .collect()
}

/// Whether this block device is claimed: it is mounted, or part of another device.
pub(crate) fn is_claimed(device: &Path) -> bool {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::EXCL.bits() as i32)
        .open(device);
    opened.is_err_and(|e| Errno::from_io_error(&e) == Some(Errno::BUSY))
}

/// Whether the device is used as swap. Spaces and backslashes are written as `\040` and `\134` in `/proc/swaps`.
fn is_swap(id: Identity) -> bool {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().skip(1).any(|line| {
        let name = line.split_whitespace().next().unwrap_or_default();
        let name = name.replace("\\040", " ").replace("\\134", "\\");
        identity(Path::new(&name)) == Some(id)
    })
}

/// Refuses a member that is used in another way: as swap, or through a loop device. With `fresh` (all its contents will be overwritten) it
/// is enough that a loop device exists; otherwise the loop device must be claimed.
///
/// # Errors
/// The message names the other user.
pub fn refuse_used(path: &Path, fresh: bool) -> Result<(), Error> {
    let in_use = |what: String| Error::new(ErrorKind::InUse, format!("{}: {what}", path.display()));
    let Ok(stack) = layers(path) else {
        return Ok(());
    };
    let Some(own) = stack.first() else {
        return Ok(());
    };
    if is_swap(own.id) {
        return Err(in_use("is in use as swap: `swapoff` it first".into()));
    }
    if let Identity::Block(d) = own.id {
        // O_EXCL refuses such devices as well; this message names the holders.
        let holders = fs::read_dir(sys(d).join("holders"))
            .into_iter()
            .flatten()
            .flatten();
        let names: Vec<_> = holders
            .map(|h| h.file_name().to_string_lossy().into_owned())
            .collect();
        if !names.is_empty() {
            return Err(in_use(format!(
                "is part of {}: take it out of that first",
                names.join(", ")
            )));
        }
    }
    for layer in stack.iter().filter(|l| matches!(l.id, Identity::File(..))) {
        for device in loops_over(layer.id) {
            let Ok(other) = layers(&device) else { continue };
            // A loop device that is part of the path to the member is not another user.
            let here = stack.iter().any(|l| identity(&device) == Some(l.id));
            if !here && relation(&stack, &other).is_some() && (fresh || is_claimed(&device)) {
                return Err(in_use(format!(
                    "is in use as {} (a loop device over the same file): detach that first (losetup -d {})",
                    device.display(),
                    device.display()
                )));
            }
        }
    }
    Ok(())
}

/// Locks the bytes of the file at the bottom of a stack as long as the result exists, so that a second server finds them locked under any
/// name. `own` is the member, open and locked. If it is that file itself, its open file gets both locks: where the file system turns both kinds
/// into one (9p, NFS), two open files of this process would exclude each other.
///
/// # Errors
/// Another process has locked them, or the file lies where a second server would not be noticed.
pub(crate) fn lock_bottom(own: &File, path: &Path, shared: bool) -> Result<Option<File>, Error> {
    let Ok(stack) = layers(path) else {
        return Ok(None);
    };
    let Some((bottom, file_system)) = stack.last().and_then(|l| match l.id {
        Identity::File(file_system, _) => Some((l, file_system)),
        Identity::Block(_) => None,
    }) else {
        return Ok(None);
    };
    if !shared {
        let unfit = |what| Error::new(ErrorKind::Device, format!("{}: {what}", path.display()));
        crate::mounts::refuse_whole_files(file_system).map_err(unfit)?;
    }
    let (start, end) = bottom.range.unwrap_or((0, u64::MAX));
    let is_bottom = |file: &File| {
        let meta = file.metadata().ok().filter(fs::Metadata::is_file);
        meta.is_some_and(|m| Identity::File(m.dev(), m.ino()) == bottom.id)
    };
    let opened = if is_bottom(own) {
        own.try_clone()
    } else if fs::metadata(&bottom.path).is_ok_and(|m| m.is_file()) {
        let mut how = OpenOptions::new();
        how.read(true).write(!shared).open(&bottom.path)
    } else {
        return Ok(None);
    };
    let Some(file) = opened.ok().filter(is_bottom) else {
        // This process may not open it, or it was renamed since. Then the lock cannot be taken.
        return Ok(None);
    };
    // 0 stands for the end of the file, however large it becomes.
    let bytes = if end >= i64::MAX as u64 {
        0
    } else {
        (end - start) as i64
    };
    let start = i64::try_from(start).unwrap_or(i64::MAX);
    match lock_bytes(&file, path, shared, (start, bytes)) {
        Ok(Ok(())) => Ok(Some(file)),
        Ok(Err(by)) => Err(Error::new(
            ErrorKind::InUse,
            format!(
                "{}: device in use under another name{by} (its data is in {}): stop that first",
                path.display(),
                bottom.path.display()
            ),
        )),
        // File systems without such locks are used without one.
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(id: u64, range: Option<(u64, u64)>) -> Layer {
        Layer {
            id: Identity::Block(id),
            path: PathBuf::new(),
            range,
        }
    }

    #[test]
    fn stacks_meet_where_they_have_bytes_in_common() {
        let disk = [layer(1, Some((0, 100)))];
        let part = |id, a, z| [layer(id, Some((0, z - a))), layer(1, Some((a, z)))];
        assert_eq!(relation(&disk, &disk), Some(Relation::Same));
        assert_eq!(relation(&part(2, 0, 50), &disk), Some(Relation::Above));
        assert_eq!(relation(&disk, &part(2, 0, 50)), Some(Relation::Below));
        assert_eq!(relation(&part(2, 0, 50), &part(3, 50, 100)), None);
        assert_eq!(
            relation(&part(2, 0, 51), &part(3, 50, 100)),
            Some(Relation::Share)
        );
        let volume = |id| [layer(id, Some((0, 10))), layer(1, None)];
        assert_eq!(relation(&volume(5), &volume(6)), None);
        assert_eq!(relation(&[], &disk), None);
    }

    #[test]
    fn one_file_is_locked_once_by_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, [0; 4096]).unwrap();
        let lock = |shared| {
            let file = File::options().read(true).write(true).open(&path).unwrap();
            lock_bottom(&file, &path, shared)
        };
        let first = lock(false).unwrap();
        assert!(first.is_some());
        let e = lock(false).unwrap_err();
        assert!(
            e.kind == ErrorKind::InUse && e.to_string().contains("another name"),
            "{e}"
        );
        assert!(lock(true).is_err());
        drop(first);
        let readers = [lock(true), lock(true)];
        assert!(readers.iter().all(|r| matches!(r, Ok(Some(_)))));
        assert!(
            refuse_used(&path, true).is_ok() && refuse_used(Path::new("/no/such"), true).is_ok()
        );
    }
}
