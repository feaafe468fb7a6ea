//! Errors around a mount, and their remedies.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The reason why a block file could not be mounted or unmounted.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// `/dev/fuse` cannot be opened.
    NoDevice {
        /// The kernel's error.
        source: io::Error,
    },
    /// This process has no permission to mount, and the helper is not installed.
    NoPermission {
        /// The mount point.
        dir: PathBuf,
    },
    /// The directory is missing or cannot be read.
    Directory {
        /// The mount point as given.
        dir: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The directory has entries, which a mount would hide.
    NotEmpty {
        /// The mount point.
        dir: PathBuf,
    },
    /// Another file system is mounted there.
    OtherMount {
        /// The mount point.
        dir: PathBuf,
        /// Its file system type.
        kind: String,
    },
    /// A block file that is being served is mounted there.
    Served {
        /// The mount point.
        dir: PathBuf,
    },
    /// The name is not a valid file name.
    Name {
        /// The name as given.
        name: String,
    },
    /// The kernel or the helper refused to mount.
    Mount {
        /// The mount point.
        dir: PathBuf,
        /// Its message.
        reason: String,
    },
    /// The file is still open.
    Busy {
        /// The file.
        file: PathBuf,
    },
    /// The kernel or the helper refused to unmount.
    Unmount {
        /// The mount point.
        dir: PathBuf,
        /// Its error.
        source: io::Error,
    },
    /// The session could not start, or ended with an error.
    Session {
        /// The cause.
        source: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoDevice { source } => write!(
                f,
                "/dev/fuse cannot be used ({source}): load the module with `modprobe fuse`, or give the container the device"
            ),
            Error::NoPermission { dir } => write!(
                f,
                "no permission to mount on {}: {} CAP_SYS_ADMIN, or install fusermount3 (package fuse3)",
                dir.display(),
                crate::server::start::needs(rustix::process::geteuid().is_root())
            ),
            Error::Directory { dir, source } => {
                let dir = dir.display();
                match source.kind() {
                    io::ErrorKind::NotFound => {
                        write!(f, "mount point {dir} is missing: `mkdir {dir}` first")
                    }
                    io::ErrorKind::NotADirectory => {
                        write!(f, "mount point {dir} is no directory: name one")
                    }
                    _ => write!(f, "mount point {dir} cannot be read: {source}"),
                }
            }
            Error::NotEmpty { dir } => {
                write!(
                    f,
                    "mount point {} is not empty: name an empty directory",
                    dir.display()
                )
            }
            Error::OtherMount { dir, kind } => write!(
                f,
                "on {} a {kind} file system is mounted already: name another directory, or unmount it",
                dir.display()
            ),
            Error::Served { dir } => {
                write!(
                    f,
                    "on {} a volume is served already: stop it, or name another directory",
                    dir.display()
                )
            }
            Error::Name { name } => {
                write!(
                    f,
                    "{name:?} cannot be a file name: use 1 to 255 bytes without `/`, not `.` or `..`"
                )
            }
            Error::Mount { dir, reason } => {
                write!(f, "mounting on {} failed: {reason}", dir.display())
            }
            Error::Busy { file } => write!(
                f,
                "{0} is still open: unmount what lies on it and detach loop devices (`losetup -j {0}`)",
                file.display()
            ),
            Error::Unmount { dir, source } => {
                write!(f, "unmounting {} failed: {source}", dir.display())
            }
            Error::Session { source } => write!(f, "the FUSE session failed: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::NoDevice { source }
            | Error::Directory { source, .. }
            | Error::Unmount { source, .. }
            | Error::Session { source } => Some(source),
            _ => None,
        }
    }
}
