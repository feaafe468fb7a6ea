//! Extended attributes, owners, modes and times of files on a tier.

use super::names::path_of;
use super::number::{is_mark, set_number};
use super::root::{Root, facts_of};
use crate::tree::{DIR, Facts, TEMPS, TYPE, join};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Mode, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names and values of extended attributes.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Longest value, and longest list of names, in Linux.
const XATTR_MAX: usize = 65_536;

/// The access list of NFS 4, which its client shows as an extended attribute of every file.
const NFS4_ACL: &[u8] = b"system.nfs4_acl";

fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| *b == 0).filter(|n| !n.is_empty())
}

/// Whether an access list of NFS 4 (RFC 8881, section 6.2.1, as XDR) says no more than the mode of its file, because it names only the owner,
/// the group and everyone. The server makes such a list up for each file that has none. It is no attribute that a move has to keep.
fn is_mode_only(acl: &[u8]) -> bool {
    fn word(bytes: &mut &[u8]) -> Option<u32> {
        let (word, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(u32::from_be_bytes(*word))
    }
    let look = || {
        let mut rest = acl;
        for _ in 0..word(&mut rest)? {
            for _type_flags_mask in 0..3 {
                word(&mut rest)?;
            }
            let len = word(&mut rest)? as usize;
            let (name, after) = rest.split_at_checked(len.div_ceil(4).checked_mul(4)?)?;
            if !matches!(&name[..len], b"OWNER@" | b"GROUP@" | b"EVERYONE@") {
                return Some(false);
            }
            rest = after;
        }
        Some(true)
    };
    look().unwrap_or(false)
}

/// Whether an extended attribute belongs to the file, and neither to the way in which its file system shows the mode nor to this program.
fn is_own(name: &[u8], value: &[u8]) -> bool {
    (name != NFS4_ACL || !is_mode_only(value)) && !is_mark(name)
}

/// All extended attributes of a path below a root, without following a link.
///
/// # Errors
/// A device error. A file system without extended attributes has none.
pub fn xattrs(root: &Root, path: &[u8]) -> Result<Xattrs, Errno> {
    xattrs_of(root.entry(path)?)
}

/// As [`xattrs`], of an open file, which need not have a name.
pub(crate) fn xattrs_of(fd: impl AsFd) -> Result<Xattrs, Errno> {
    let path = &path_of(fd.as_fd())[..];
    // Most files have none, which needs no buffer.
    match rustix::fs::listxattr_query(path) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Ok(_) => {}
        Err(e) => return Err(e),
    }
    let mut list = vec![0; XATTR_MAX];
    let n = rustix::fs::listxattr(path, &mut list[..])?;
    let mut all = Vec::new();
    for name in names(&list[..n]) {
        let mut value = vec![0; XATTR_MAX];
        let n = match rustix::fs::getxattr(path, name, &mut value[..]) {
            // It was removed meanwhile.
            Err(Errno::NODATA) => continue,
            other => other?,
        };
        value.truncate(n);
        // The catalogue keeps it.
        value.shrink_to_fit();
        if is_own(name, &value) {
            all.push((name.to_vec(), value));
        }
    }
    Ok(all)
}

/// Copies owner, mode, extended attributes and times from one open file to another.
///
/// # Errors
/// The file system of the target does not support one of them, or a device error.
pub fn same_attributes(from: impl AsFd, to: impl AsFd) -> Result<(), Errno> {
    set_attributes(to, &facts_of(&from)?, &xattrs_of(&from)?)
}

/// Gives an open file owner, mode, extended attributes and times.
///
/// # Errors
/// Its file system does not support one of them.
pub(super) fn set_attributes(to: impl AsFd, f: &Facts, xattrs: &Xattrs) -> Result<(), Errno> {
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
            last_access: f.atime.into(),
            last_modification: f.mtime.into(),
        },
    )
}

/// A directory as it is on another tier.
pub(crate) struct DirAttributes {
    pub(crate) path: Vec<u8>,
    pub(crate) facts: Facts,
    pub(crate) xattrs: Xattrs,
    /// Its lasting number; 0 if that is not known here. Then the next mount takes it from the other tier.
    pub(crate) number: u64,
}

impl DirAttributes {
    /// The attributes of an open directory.
    pub(crate) fn of(path: &[u8], like: impl AsFd) -> Result<DirAttributes, Errno> {
        let facts = facts_of(&like)?;
        Ok(DirAttributes {
            path: path.to_vec(),
            facts,
            number: super::number::number_of(&like, facts.id).unwrap_or(0),
            xattrs: xattrs_of(like)?,
        })
    }
}

/// Number of the next hidden name of a directory that is not complete yet.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Creates a directory on a tier with its attributes from another tier. An existing directory is not changed. The directory gets its name
/// when it is complete, so a crash or an error leaves none with the wrong owner, mode or access list.
pub(crate) fn make_dir_like(root: &Root, known: &DirAttributes) -> Result<(), Errno> {
    if let Some(there) = root.stat(&known.path)? {
        return only_dir(&there);
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temp = join(TEMPS, format!("d{number}").as_bytes());
    let made = root
        .mkdir(&temp, 0o700)
        .and_then(|()| {
            let dir = root.directory(&temp)?;
            if known.number > 0 {
                set_number(&dir, facts_of(&dir)?.id, known.number)?;
            }
            set_attributes(dir, &known.facts, &known.xattrs)
        })
        .and_then(|()| root.rename_new(&temp, &known.path));
    if made.is_err() {
        // If this fails, the next mount removes it.
        let _ = root.unlink(&temp, AtFlags::REMOVEDIR);
    }
    match made {
        Err(Errno::EXIST) => only_dir(&root.stat(&known.path)?.ok_or(Errno::EXIST)?),
        other => other,
    }
}

fn only_dir(there: &Facts) -> Result<(), Errno> {
    if there.mode & TYPE == DIR {
        Ok(())
    } else {
        Err(Errno::NOTDIR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The catalogue keeps the values of all files.
    #[test]
    fn values_take_no_more_memory_than_they_need() {
        let file = tempfile::tempfile().unwrap();
        let set = rustix::fs::fsetxattr(&file, "user.a", b"value", XattrFlags::empty());
        if set.is_err() {
            println!("SKIPPED: needs extended attributes");
            return;
        }
        let all = xattrs_of(&file).unwrap();
        assert_eq!((&all[0].1[..], all[0].1.capacity()), (&b"value"[..], 5));
    }

    /// Entries of an access list with these names, as XDR.
    fn acl(names: &[&str]) -> Vec<u8> {
        let mut bytes = (names.len() as u32).to_be_bytes().to_vec();
        for name in names {
            for word in [0, 0, 0x0012_0081, name.len() as u32] {
                bytes.extend(word.to_be_bytes());
            }
            bytes.extend(name.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn an_access_list_that_only_shows_the_mode_is_no_attribute() {
        let own = |names: &[&str]| is_own(NFS4_ACL, &acl(names));
        let mode = ["OWNER@", "GROUP@", "EVERYONE@"];
        assert!(!own(&mode));
        assert!(own(&["OWNER@", "1000", "GROUP@", "EVERYONE@"]));
        assert!(own(&["OWNER@", "GROUP@", "EVERYONE@", "user@example.org"]));
        assert!(is_own(b"user.a", &acl(&mode)));
        // What cannot be understood is kept.
        let whole = acl(&mode);
        for cut in 0..whole.len() {
            assert!(is_own(NFS4_ACL, &whole[..cut]), "{cut}");
        }
    }
}
