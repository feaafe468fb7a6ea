//! Extended attributes, owners, modes and times of files on a tier.

use super::{Root, facts_of};
use crate::tree::{Facts, Time};
use rustix::fd::AsFd;
use rustix::fs::{Mode, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

/// Names and values of extended attributes.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Longest value, and longest list of names, in Linux.
const XATTR_MAX: usize = 65_536;

fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| *b == 0).filter(|n| !n.is_empty())
}

/// All extended attributes of a path below a root, without following a link.
///
/// # Errors
/// A device error. A file system without extended attributes has none.
pub fn xattrs(root: &Root, path: &[u8]) -> Result<Xattrs, Errno> {
    let path = &root.through(path)[..];
    // Most files have none, which needs no buffer.
    match rustix::fs::llistxattr_query(path) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Ok(_) => {}
        Err(e) => return Err(e),
    }
    let mut list = vec![0; XATTR_MAX];
    let n = rustix::fs::llistxattr(path, &mut list[..])?;
    let mut all = Vec::new();
    for name in names(&list[..n]) {
        let mut value = vec![0; XATTR_MAX];
        let n = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(n);
        all.push((name.to_vec(), value));
    }
    Ok(all)
}

fn xattrs_of(fd: impl AsFd) -> Result<Xattrs, Errno> {
    let mut list = vec![0; XATTR_MAX];
    let n = match rustix::fs::flistxattr(&fd, &mut list[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        n => n?,
    };
    let mut all = Vec::new();
    for name in names(&list[..n]) {
        let mut value = vec![0; XATTR_MAX];
        let n = rustix::fs::fgetxattr(&fd, name, &mut value[..])?;
        value.truncate(n);
        all.push((name.to_vec(), value));
    }
    Ok(all)
}

fn spec(t: Time) -> Timespec {
    Timespec {
        tv_sec: t.sec,
        tv_nsec: i64::from(t.nsec),
    }
}

/// Copies owner, mode, extended attributes and times from one open file to another.
///
/// # Errors
/// The file system of the target does not support one of them, or a device error.
pub fn same_attributes(from: impl AsFd, to: impl AsFd) -> Result<(), Errno> {
    set(to, &facts_of(&from)?, &xattrs_of(&from)?)
}

fn set(to: impl AsFd, f: &Facts, xattrs: &Xattrs) -> Result<(), Errno> {
    rustix::fs::fchown(
        &to,
        Some(rustix::fs::Uid::from_raw(f.uid)),
        Some(rustix::fs::Gid::from_raw(f.gid)),
    )?;
    rustix::fs::fchmod(&to, Mode::from_raw_mode(f.mode & 0o7777))?;
    for (name, value) in xattrs {
        match rustix::fs::fsetxattr(&to, &name[..], value, XattrFlags::empty()) {
            // The system sets these labels itself.
            Err(Errno::OPNOTSUPP | Errno::PERM) if name == b"security.selinux" => {}
            other => other?,
        }
    }
    rustix::fs::futimens(
        &to,
        &Timestamps {
            last_access: spec(f.atime),
            last_modification: spec(f.mtime),
        },
    )
}

/// A directory as it is on another tier.
pub(crate) struct DirAttributes {
    pub(crate) path: Vec<u8>,
    pub(crate) facts: Facts,
    pub(crate) xattrs: Xattrs,
}

impl DirAttributes {
    /// The attributes of an open directory.
    pub(crate) fn of(path: &[u8], like: impl AsFd) -> Result<DirAttributes, Errno> {
        Ok(DirAttributes {
            path: path.to_vec(),
            facts: facts_of(&like)?,
            xattrs: xattrs_of(like)?,
        })
    }
}

/// Creates a directory on a tier with its attributes from another tier. An existing directory is not changed.
///
/// # Errors
/// The name belongs to something else, or a device error.
pub(crate) fn make_dir_like(root: &Root, known: &DirAttributes) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(known.facts.mode & 0o1777);
    match rustix::fs::mkdirat(&root.fd, &known.path[..], mode) {
        Err(Errno::EXIST) => {
            let there = root.stat(&known.path)?;
            let is_dir = there.is_some_and(|f| f.mode & 0o170_000 == 0o040_000);
            return if is_dir { Ok(()) } else { Err(Errno::NOTDIR) };
        }
        other => other?,
    }
    let new = root.directory(&known.path)?;
    // Remove an access list that the new directory inherited from the directory above, and that the original does not have.
    for (name, _) in xattrs_of(&new)? {
        let own = known.xattrs.iter().any(|x| x.0 == name);
        if !own && name.starts_with(b"system.posix_acl") {
            rustix::fs::fremovexattr(&new, &name[..])?;
        }
    }
    set(new, &known.facts, &known.xattrs)
}
