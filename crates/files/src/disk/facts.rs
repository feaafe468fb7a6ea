//! The attributes of files, as the kernel has them.

use crate::tree::{Facts, Id, Time};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;

fn time(t: rustix::fs::StatxTimestamp) -> Time {
    Time {
        sec: t.tv_sec,
        nsec: t.tv_nsec,
    }
}

pub(super) fn facts(s: &Statx) -> Facts {
    let known = StatxFlags::from_bits_retain(s.stx_mask);
    let born = if known.contains(StatxFlags::BTIME) {
        (s.stx_btime.tv_sec as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(u64::from(s.stx_btime.tv_nsec))
    } else {
        0
    };
    Facts {
        id: Id {
            ino: s.stx_ino,
            born,
        },
        dev: rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor),
        mode: u32::from(s.stx_mode),
        nlink: s.stx_nlink,
        uid: s.stx_uid,
        gid: s.stx_gid,
        rdev: rustix::fs::makedev(s.stx_rdev_major, s.stx_rdev_minor),
        size: s.stx_size,
        blocks: s.stx_blocks,
        atime: time(s.stx_atime),
        mtime: time(s.stx_mtime),
        ctime: time(s.stx_ctime),
        immutable: s
            .stx_attributes
            .intersects(UNREMOVABLE | StatxAttributes::VERITY),
        encrypted: s.stx_attributes.contains(StatxAttributes::ENCRYPTED),
    }
}

/// A file with one of these attributes cannot be removed or renamed, and neither can any name in a directory with one of them.
pub(super) const UNREMOVABLE: StatxAttributes =
    StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND);

pub(super) fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME
}

/// The attributes of an open file.
///
/// # Errors
/// A device error.
pub fn facts_of(fd: impl AsFd) -> Result<Facts, Errno> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted()).map(|s| facts(&s))
}

/// As [`facts_of`], as far as the kernel knows them: a network file system does not ask its server. They include what was written through
/// this kernel, except that the times may be from before the last writes.
///
/// # Errors
/// A device error.
pub(crate) fn cached_facts_of(fd: impl AsFd) -> Result<Facts, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(fd, c"", flags, wanted()).map(|s| facts(&s))
}
