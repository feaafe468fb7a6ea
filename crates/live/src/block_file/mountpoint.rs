//! Mount points: their present state, mounting, unmounting.
//!
//! This program mounts itself and passes the descriptor to fuser, for three reasons: the kernel's errno reaches the user (fuser turns it
//! into text); an unmount that fails can be repeated; and this program never unmounts a mount that it did not make, even if another one was
//! mounted over the same directory meanwhile.

use std::ffi::CString;
use std::fs;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use isotherm_paths::Mount;
use rustix::io::{Errno, retry_on_intr};
use rustix::mount::{MountFlags, UnmountFlags, unmount as umount};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::Error;

/// The file system type that marks a mount as ours in `/proc/self/mountinfo`.
pub(crate) const FS_TYPE: &str = "fuse.isotherm";
/// What the mount table calls the source of a block file begins so, before the name of the volume.
pub(crate) const SOURCE: &str = "isotherm:";
const DEVICE: &str = "/dev/fuse";
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];
/// Dead mounts may be stacked after repeated crashes; more than this has another cause.
const MAX_DEAD: usize = 16;

/// The topmost mount on exactly `dir`, if it is a mount point.
pub(super) fn mounted_at(dir: &Path) -> io::Result<Option<Mount>> {
    Ok(isotherm_paths::mounts()?
        .into_iter()
        .rfind(|m| m.point == dir))
}

/// An absolute path without symlinks, also when `dir` itself is a dead mount (which cannot be resolved any more).
pub(super) fn resolve(dir: &Path) -> Result<PathBuf, Error> {
    let failed = |source: io::Error| Error::Directory {
        dir: dir.to_owned(),
        source,
    };
    match dir.canonicalize() {
        Err(error) if is_cut(&error) => {
            let absolute = std::path::absolute(dir).map_err(failed)?;
            let (Some(parent), Some(last)) = (absolute.parent(), absolute.file_name()) else {
                return Err(failed(error));
            };
            Ok(parent.canonicalize().map_err(failed)?.join(last))
        }
        other => other.map_err(failed),
    }
}

/// The error of a FUSE mount whose server has ended.
fn is_cut(error: &io::Error) -> bool {
    let cut = [Errno::NOTCONN, Errno::CONNABORTED];
    Errno::from_io_error(error).is_some_and(|e| cut.contains(&e))
}

/// Removes mounts of block files on `dir` whose servers have ended. Only this program makes mounts of that type. Returns whether there was one.
///
/// # Errors
/// The mount cannot be removed, or the directory cannot be found.
pub fn clear_dead(dir: &Path) -> Result<bool, Error> {
    let dir = resolve(dir)?;
    let mut any = false;
    for _ in 0..MAX_DEAD {
        let here = mounted_at(&dir).map_err(|source| Error::Directory {
            dir: dir.clone(),
            source,
        })?;
        let ours = here.is_some_and(|m| m.kind == FS_TYPE);
        // Reading the directory always asks the server; `stat` could be answered from the kernel's cached attributes.
        if !ours || !fs::read_dir(&dir).is_err_and(|e| is_cut(&e)) {
            break;
        }
        any = true;
        detach(&dir).map_err(|source| Error::Unmount {
            dir: dir.clone(),
            source,
        })?;
    }
    Ok(any)
}

/// What the mount table calls the source of the block file of a volume with this name.
pub fn source(name: &str) -> String {
    one_word(&format!("{SOURCE}{name}"))
}

/// A text without what mount(8) and fusermount take for the end of an option.
pub(super) fn one_word(text: &str) -> String {
    let awkward = |c: char| c == ',' || c == '\\' || c.is_control();
    text.replace(awkward, "_")
}

/// Makes sure that `dir` (resolved) is an empty directory without a mount. A dead mount of ours is removed.
pub(super) fn prepare(dir: &Path) -> Result<(), Error> {
    let failed = |source: io::Error| Error::Directory {
        dir: dir.to_owned(),
        source,
    };
    clear_dead(dir)?;
    match mounted_at(dir).map_err(failed)? {
        None => {}
        Some(mount) if mount.kind == FS_TYPE => {
            return Err(Error::Served {
                dir: dir.to_owned(),
            });
        }
        Some(mount) => {
            return Err(Error::OtherMount {
                dir: dir.to_owned(),
                kind: mount.kind,
            });
        }
    }
    match fs::read_dir(dir).map_err(failed)?.next() {
        None => Ok(()),
        Some(_) => Err(Error::NotEmpty {
            dir: dir.to_owned(),
        }),
    }
}

/// The parameters of a mount.
pub(super) struct MountParams<'a> {
    /// Resolved directory.
    pub dir: &'a Path,
    /// Shown as the source in the mount table.
    pub source: &'a str,
    pub read_only: bool,
    pub allow_other: bool,
}

/// Mounts, by the system call if permitted, otherwise through the set-uid helper. Returns the session's descriptor.
pub(super) fn mount(wanted: &MountParams<'_>) -> Result<OwnedFd, Error> {
    let device = match fs::OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(device) => device,
        // Only the helper may open it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return mount_by_helper(wanted);
        }
        Err(source) => return Err(Error::NoDevice { source }),
    };
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    if wanted.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).map_err(|source| Error::NoDevice {
        source: source.into(),
    })?;
    let mut flags =
        MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NOATIME;
    flags.set(MountFlags::RDONLY, wanted.read_only);
    match rustix::mount::mount(wanted.source, wanted.dir, FS_TYPE, flags, &*data) {
        Ok(()) => Ok(device.into()),
        Err(Errno::PERM) => mount_by_helper(wanted),
        Err(Errno::NODEV) => Err(Error::NoDevice {
            source: Errno::NODEV.into(),
        }),
        Err(errno) => Err(Error::Mount {
            dir: wanted.dir.to_owned(),
            reason: errno.to_string(),
        }),
    }
}

/// `fusermount3` mounts and sends us the descriptor over the socket that it finds as its standard input.
fn mount_by_helper(wanted: &MountParams<'_>) -> Result<OwnedFd, Error> {
    let failed = |reason: String| Error::Mount {
        dir: wanted.dir.to_owned(),
        reason,
    };
    let mut options = format!(
        "fsname={},subtype=isotherm,default_permissions,nodev,nosuid,noexec,noatime",
        wanted.source
    );
    if wanted.read_only {
        options.push_str(",ro");
    }
    if wanted.allow_other {
        options.push_str(",allow_other");
    }
    for helper in HELPERS {
        let (ours, theirs) = UnixStream::pair().map_err(|e| failed(e.to_string()))?;
        let child = Command::new(helper)
            .arg("-o")
            .arg(&options)
            .arg("--")
            .arg(wanted.dir)
            .env("_FUSE_COMMFD", "0")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(format!("{helper}: {error}"))),
        };
        let received = receive_descriptor(&ours);
        let mut said = Vec::new();
        if let Some(mut stderr) = child.stderr.take() {
            // If this fails, the exit status is reported instead.
            let _ = stderr.read_to_end(&mut said);
        }
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        let status = child.wait().map_err(|e| failed(format!("{helper}: {e}")))?;
        return match received {
            Ok(Some(descriptor)) if status.success() => Ok(descriptor),
            Ok(_) => Err(failed(if said.is_empty() {
                format!("{helper} ended with {status}")
            } else {
                said
            })),
            Err(error) => Err(failed(format!("{helper}: {error}"))),
        };
    }
    Err(Error::NoPermission {
        dir: wanted.dir.to_owned(),
    })
}

fn receive_descriptor(socket: &UnixStream) -> rustix::io::Result<Option<OwnedFd>> {
    let mut byte = [0u8];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptor)
}

/// Unmounts; fails with `EBUSY` while a file is open (a loop device counts).
pub(super) fn unmount(dir: &Path) -> io::Result<()> {
    match umount(dir, UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => unmount_by_helper(dir, false),
        other => other.map_err(Into::into),
    }
}

/// Removes the mount from the tree at once and cuts its connection: open requests and later ones fail.
pub(super) fn detach(dir: &Path) -> io::Result<()> {
    let flags = UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH;
    match umount(dir, flags) {
        Err(Errno::PERM) => unmount_by_helper(dir, true),
        other => other.map_err(Into::into),
    }
}

fn unmount_by_helper(dir: &Path, lazy: bool) -> io::Result<()> {
    for helper in HELPERS {
        let output = Command::new(helper)
            .arg(if lazy { "-uz" } else { "-u" })
            .arg("--")
            .arg(dir)
            .output();
        match output {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                // The helper reports this only in its text.
                let busy = said.contains("busy");
                return Err(if busy {
                    Errno::BUSY.into()
                } else {
                    io::Error::other(said)
                });
            }
        }
    }
    Err(Errno::PERM.into())
}

/// Checks that the name is a valid name of a file in a directory.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let bytes = std::ffi::OsStr::new(name).as_bytes();
    let fine = !matches!(bytes, b"" | b"." | b"..")
        && bytes.len() <= 255
        && !bytes.iter().any(|b| matches!(b, b'/' | 0));
    if fine {
        Ok(())
    } else {
        Err(Error::Name {
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_slash_or_without_meaning_are_refused() {
        for bad in ["", ".", "..", "a/b", "a\0b"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_name(&"x".repeat(256)).is_err());
        assert!(check_name("volume.img").is_ok());
    }

    #[test]
    fn a_missing_directory_and_a_full_one_are_named() {
        let scratch = tempfile::tempdir().unwrap();
        let missing = scratch.path().join("nowhere");
        let said = resolve(&missing).unwrap_err().to_string();
        assert!(said.contains("nowhere") && said.contains("mkdir"), "{said}");
        fs::write(scratch.path().join("file"), "x").unwrap();
        let full = resolve(scratch.path()).unwrap();
        assert!(matches!(prepare(&full), Err(Error::NotEmpty { .. })));
        let file = full.join("file");
        assert!(matches!(prepare(&file), Err(Error::Directory { .. })));
    }

    #[test]
    fn a_mount_of_another_kind_is_left_alone() {
        let said = prepare(Path::new("/proc")).unwrap_err().to_string();
        assert!(
            said.contains("/proc") && said.contains("proc file system"),
            "{said}"
        );
    }
}
