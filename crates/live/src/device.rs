//! Opens member devices, which are regular files or block devices: their properties (`device/kind.rs`), their locks (`device/lock.rs`), and
//! their standby state (`device/power.rs`).

mod busy;
mod clear;
mod joined;
mod kind;
mod lock;
mod noted;
mod past_cache;
mod power;
mod successor;

pub(crate) use joined::{Joined, Part, first_part};
pub use kind::{allow_inline, bytes_of, rotates};
pub use lock::serving;
pub(crate) use lock::{holds_any, is_ending, lock_bytes, wait_for_end};
pub(crate) use past_cache::{PastCache, reopen};

use crate::error::{Error, ErrorKind};
use crate::stack;
use kind::{direct_alignment, rotational};
use lock::{lock, unlock_bytes};
use noted::Noted;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How to open a member.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    /// Create the file with this size if it does not exist. An empty file gets the size.
    pub create: Option<u64>,
    /// The member will only be read: a shared lock is taken.
    pub read_only: bool,
    /// Use the page cache on purpose.
    pub buffered: bool,
    /// The contents will be overwritten: no other user may show them, as a loop device does with its file.
    pub fresh: bool,
}

/// An open, locked member device.
#[derive(Debug)]
pub struct Device {
    /// Its file.
    pub file: File,
    /// The path as it was given.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// Smallest aligned unit of I/O, 512 to 4096 bytes.
    pub align: u32,
    /// Whether I/O bypasses the page cache.
    pub direct: bool,
    /// Whether it is a block device (otherwise a regular file).
    pub is_block: bool,
    /// Whether it is a rotating disk, if the system knows.
    pub rotational: Option<bool>,
    /// Whether this opening created the file.
    pub created: bool,
    /// A remark for people about an unexpected property.
    pub note: Option<String>,
    /// For metadata, which passes the page cache even if the data does not.
    pub(crate) past_cache: PastCache,
    /// The device behind it, if the member consists of two.
    pub(crate) joined: Option<Box<Joined>>,
    /// Holds the lock on the file at the bottom of the stack: see `stack.rs`.
    bottom: Option<File>,
    noted: Noted,
    /// Whether its files, with their locks, are another device's now (`device/successor.rs`).
    moved: bool,
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.moved {
            return;
        }
        // Unlock now instead of at the last close: a ring that ends keeps its files open for a moment, and the next opening would find
        // them in use. If the unlock fails, the last close does it.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        if let Some(bottom) = &self.bottom {
            unlock_bytes(bottom);
        }
    }
}

/// Identifies a device: one device under two names has one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A regular file: file system and inode.
    File(u64, u64),
    /// A block device's number.
    Block(u64),
}

fn fail(path: &Path, kind: ErrorKind, what: impl std::fmt::Display) -> Error {
    Error::new(kind, format!("{}: {what}", path.display()))
}

/// The words about a path in `/dev` where nothing is.
pub const NO_SUCH_DEVICE: &str =
    "there is no such device: attach it, or correct its name (`lsblk` lists the devices)";

/// The words about a device or file that this user may not open.
#[must_use]
pub fn denied() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "permission denied, although this is root: see whether the file is immutable (`lsattr`), its server keeps root out (NFS: no_root_squash), or a policy does (systemd's DeviceAllow and ProtectHome, AppArmor, SELinux)"
    } else {
        "permission denied: run this as root, or as a user who may use this device"
    }
}

/// Whether `path` lies where device nodes are. A file that is created there is in memory, and gone after the next boot. (`/dev/shm` is meant
/// for files in memory.)
pub fn in_dev(path: &Path) -> bool {
    std::path::absolute(path).is_ok_and(|p| p.starts_with("/dev") && !p.starts_with("/dev/shm"))
}

/// The error of a device that cannot be opened.
fn unusable(path: &Path, e: &io::Error) -> Error {
    if e.kind() == io::ErrorKind::PermissionDenied {
        return fail(path, ErrorKind::Denied, denied());
    }
    fail(path, ErrorKind::Device, e)
}

impl Device {
    /// Opens and locks `path`.
    ///
    /// # Errors
    /// It is missing, in use, neither a regular file nor a block device, or has an unsupported sector size. Each message states the fix.
    pub fn open(path: &Path, how: OpenHow) -> Result<Device, Error> {
        crate::mounts::check(path).map_err(|e| fail(path, ErrorKind::Device, e))?;
        let meta = match fs::metadata(path) {
            Ok(meta) => Some(meta),
            Err(e) if e.kind() == io::ErrorKind::NotFound && how.create.is_some() => {
                if in_dev(path) {
                    return Err(fail(path, ErrorKind::Device, NO_SUCH_DEVICE));
                }
                None
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let what = if how.fresh {
                    "does not exist: attach the device, or give a size to create a file"
                } else {
                    "does not exist: attach the device, or correct its path in the description"
                };
                return Err(fail(path, ErrorKind::Device, what));
            }
            Err(e) => return Err(unusable(path, &e)),
        };
        let is_block = meta
            .as_ref()
            .is_some_and(|m| m.file_type().is_block_device());
        if meta.as_ref().is_some_and(|m| !is_block && !m.is_file()) {
            let what = "is neither a regular file nor a block device: give one of those";
            return Err(fail(path, ErrorKind::Device, what));
        }
        let created = meta.is_none();
        if !how.read_only {
            stack::refuse_used(path, how.fresh)?;
        }
        let (file, direct) = open_file(path, how, is_block, created)?;
        kind::refuse_read_only(&file, path, how)?;
        lock(&file, path, how.read_only)?;
        let device = stack::lock_bottom(&file, path, how.read_only).and_then(|bottom| {
            let mut device = Self::describe(file, path, how, is_block, created, direct)?;
            device.bottom = bottom;
            Ok(device)
        });
        if device.is_err() && created {
            // No half-created file is left; if it cannot be removed either, the caller can do nothing about it.
            let _ = fs::remove_file(path);
        }
        device
    }

    fn describe(
        file: File,
        path: &Path,
        how: OpenHow,
        is_block: bool,
        created: bool,
        direct: bool,
    ) -> Result<Device, Error> {
        let bad = |e: io::Error| fail(path, ErrorKind::Device, e);
        let is_empty = !is_block && file.metadata().is_ok_and(|m| m.len() == 0);
        if let (true, Some(bytes)) = (created || is_empty, how.create) {
            file.set_len(bytes).map_err(bad)?;
            file.sync_all().map_err(bad)?;
        }
        let bytes = bytes_of(&file).map_err(bad)?;
        if is_block && bytes == 0 {
            let what = "has no medium (its size is 0): insert or attach the device";
            return Err(fail(path, ErrorKind::Device, what));
        }
        let mut note = None;
        let (mut direct, mut align) = (direct, 512);
        if is_block {
            align = rustix::fs::ioctl_blksszget(&file).unwrap_or(align);
        } else if direct {
            match direct_alignment(&file) {
                Some(0) => direct = false,
                Some(a) => align = a,
                None => align = 4096,
            }
        }
        if !direct && !how.buffered {
            note = Some(format!(
                "{}: no O_DIRECT here, I/O goes through the page cache",
                path.display()
            ));
        }
        allow_inline(&file);
        let align = align.max(512);
        if !align.is_power_of_two() || align > 4096 {
            let what = format!(
                "wants I/O in units of {align} bytes: use a device with sectors of 512 to 4096 bytes"
            );
            return Err(fail(path, ErrorKind::Device, what));
        }
        let rotational = is_block.then(|| rotational(&file)).flatten();
        let past_cache = PastCache::of(&file, direct, !how.read_only).map_err(bad)?;
        if !direct {
            forget_all(&file);
        }
        Ok(Device {
            past_cache,
            file,
            path: path.to_owned(),
            bytes,
            align,
            direct,
            is_block,
            rotational,
            created,
            note,
            joined: None,
            bottom: None,
            noted: Noted::default(),
            moved: false,
        })
    }

    /// Reserves space for a range of a regular file on its file system, so that writes to it never fail for lack of space. Does
    /// nothing for a block device. `Ok(false)`: the file system cannot guarantee this.
    ///
    /// # Errors
    /// There is not enough space.
    pub fn allocate(&self, range: Range<u64>) -> io::Result<bool> {
        let mut all = true;
        for (device, part) in self.parts(range.start..range.end.min(self.bytes)) {
            if device.is_block {
                continue;
            }
            let (file, len) = (&device.file, part.end - part.start);
            // Without a flag the call keeps the contents and never shortens the file.
            let call = || rustix::fs::fallocate(file, FallocateFlags::empty(), part.start, len);
            match rustix::io::retry_on_intr(call) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => all = false,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(all)
    }

    /// From now on I/O of data uses the page cache, so that it may have any size and offset.
    ///
    /// # Errors
    /// The file cannot be opened a second time, for metadata.
    pub fn use_page_cache(&mut self) -> Result<(), Error> {
        let flags = rustix::fs::fcntl_getfl(&self.file);
        // Both calls succeed on every file that can be open here. The other open file keeps O_DIRECT.
        let flags = flags.map_err(|e| fail(&self.path, ErrorKind::Device, e))?;
        let writes = flags.contains(OFlags::RDWR);
        let _ = rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT);
        (self.direct, self.align) = (false, 512);
        forget_all(&self.file);
        if let Some(joined) = &mut self.joined {
            joined.tail.use_page_cache()?;
        }
        self.past_cache = PastCache::of(&self.file, false, writes)
            .map_err(|e| fail(&self.path, ErrorKind::Device, e))?;
        Ok(())
    }

    /// See [`Identity`].
    ///
    /// # Errors
    /// The file's attributes cannot be read.
    pub fn identity(path: &Path) -> io::Result<Identity> {
        crate::mounts::check(path)?;
        let m = fs::metadata(path)?;
        Ok(if m.file_type().is_block_device() {
            Identity::Block(m.rdev())
        } else {
            Identity::File(m.dev(), m.ino())
        })
    }
}

/// Drops what the page cache has of a file, which another machine, or another way to the same bytes, may have changed since. Pages in use stay,
/// and no file system with one cache for all ways has such pages.
pub(crate) fn forget_all(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

/// Longest wait for the end of another process's claim to a block device.
const CLAIM_ENDS: Duration = Duration::from_secs(3);

/// Repeats `call` while it fails with `EBUSY`, for at most `limit`.
pub(crate) fn while_busy<T>(
    limit: Duration,
    mut call: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        match call() {
            Err(e) if Errno::from_io_error(&e) == Some(Errno::BUSY) && begun.elapsed() < limit => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

fn open_file(
    path: &Path,
    how: OpenHow,
    is_block: bool,
    created: bool,
) -> Result<(File, bool), Error> {
    let open = |direct: bool| {
        // On a block device O_EXCL claims it: mounted or part of something else means EBUSY.
        let mut flags = OFlags::empty();
        flags.set(OFlags::EXCL, is_block && !how.read_only);
        flags.set(OFlags::DIRECT, direct);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(!how.read_only)
            .custom_flags(flags.bits() as i32);
        if created {
            options.create_new(true).mode(0o600);
        }
        // After a server was killed, the kernel takes some time to dismantle its ring, and releases its claim only then.
        while_busy(CLAIM_ENDS, || options.open(path))
    };
    let opened = match if how.buffered {
        open(false)
    } else {
        open(true)
    } {
        Err(e) if !how.buffered && Errno::from_io_error(&e) == Some(Errno::INVAL) => {
            // A refused O_DIRECT may have left the new file behind.
            if created {
                let _ = fs::remove_file(path);
            }
            open(false).map(|f| (f, false))
        }
        other => other.map(|f| (f, !how.buffered)),
    };
    opened.map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::BUSY) => fail(path, ErrorKind::InUse, busy::reason(path)),
        Some(Errno::EXIST) if path.is_symlink() => fail(
            path,
            ErrorKind::Device,
            "is a symbolic link to a file that is not there: make that file, or name it here",
        ),
        _ => unusable(path, &e),
    })
}

/// Refuses two names for one device, and devices that share bytes below. Files that do not exist yet differ if their paths do.
///
/// # Errors
/// Names both.
pub fn refuse_twins(paths: &[PathBuf]) -> Result<(), Error> {
    for (i, a) in paths.iter().enumerate() {
        for b in &paths[..i] {
            let meet = match (stack::layers(a), stack::layers(b)) {
                (Ok(x), Ok(y)) => stack::relation(&x, &y),
                _ => (a.as_os_str().as_bytes() == b.as_os_str().as_bytes())
                    .then_some(stack::Relation::Same),
            };
            if let Some(meet) = meet {
                let how = match meet {
                    stack::Relation::Same => "is the same device as",
                    stack::Relation::Above => "is part of",
                    stack::Relation::Below => "lies below",
                    stack::Relation::Share => "shares its data with",
                };
                let what = format!("{how} {}: give each device once", b.display());
                return Err(fail(a, ErrorKind::Config, what));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_created_sparse_and_only_with_a_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let e = Device::open(&path, OpenHow::default()).unwrap_err();
        assert!(e.to_string().contains("correct its path"), "{e}");
        let fresh = OpenHow {
            fresh: true,
            ..OpenHow::default()
        };
        let e = Device::open(&path, fresh).unwrap_err();
        assert!(e.to_string().contains("give a size"), "{e}");
        let d = Device::open(
            &path,
            OpenHow {
                create: Some(8 << 20),
                ..OpenHow::default()
            },
        )
        .unwrap();
        assert!(d.created && d.bytes == 8 << 20 && (512..=4096).contains(&d.align));
        assert_eq!(d.file.metadata().unwrap().blocks(), 0);
        drop(d);
        let again = Device::open(
            &path,
            OpenHow {
                create: Some(1 << 20),
                ..OpenHow::default()
            },
        )
        .unwrap();
        assert_eq!((again.created, again.bytes), (false, 8 << 20));
    }

    #[test]
    fn a_device_in_use_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let first = Device::open(
            &path,
            OpenHow {
                create: Some(1 << 20),
                ..OpenHow::default()
            },
        )
        .unwrap();
        let e = Device::open(&path, OpenHow::default()).unwrap_err();
        assert_eq!(e.kind, ErrorKind::InUse);
        assert!(
            e.to_string()
                .contains(&format!("process {}", std::process::id())),
            "{e}"
        );
        drop(first);
        let ro = OpenHow {
            read_only: true,
            ..OpenHow::default()
        };
        let _readers = [
            Device::open(&path, ro).unwrap(),
            Device::open(&path, ro).unwrap(),
        ];
        assert_eq!(
            Device::open(&path, OpenHow::default()).unwrap_err().kind,
            ErrorKind::InUse
        );
    }

    #[test]
    fn twins_and_strange_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&a, [0; 4096]).unwrap();
        std::os::unix::fs::symlink(&a, &b).unwrap();
        assert!(
            refuse_twins(&[a.clone(), b])
                .unwrap_err()
                .to_string()
                .contains("the same device as")
        );
        assert!(refuse_twins(&[a.clone(), dir.path().join("new")]).is_ok());
        assert!(refuse_twins(&[dir.path().join("new"), dir.path().join("new")]).is_err());
        let e = Device::open(dir.path(), OpenHow::default()).unwrap_err();
        assert!(e.to_string().contains("neither a regular file"), "{e}");
        assert!(!Device::standby(&File::open(&a).unwrap()).unwrap());
    }
}
