//! Faults of members, recorded for reports: the first fault after which a volume cannot continue, and members that were truncated.

use super::heartbeat::Heartbeat;
use super::returning::Away;
use super::{MemberState, UringWorld};
use crate::device::Device;
use crate::mutants::{LiveMutant, broken};
use isotherm_core::{BufRef, DeviceOp, Nanos, OpKind};
use rustix::fs::{AtFlags, FsWord, StatxFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::SystemTime;

/// Interval at which the sizes of members are checked while there are events.
const CHECK_INTERVAL: Nanos = Nanos(100_000_000);
/// File systems on which even a query of the size may wait for a server: FUSE, NFS, SMB, CIFS, 9P, Ceph.
const REMOTE: [FsWord; 6] = [
    0x6573_5546,
    0x6969,
    0xfe53_4d42,
    0xff53_4d42,
    0x0102_1997,
    0x00c3_6400,
];

/// A failure of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The member.
    pub member: usize,
    /// What failed, as in `a flush failed`.
    pub what: String,
    /// The `errno`, if there is one.
    pub errno: Option<i32>,
    /// Time of the failure.
    pub at: SystemTime,
}

/// Whether `device` is a file of a file system with a server.
fn has_server(device: &Device) -> bool {
    let about = rustix::fs::fstatfs(&device.file);
    !device.is_block && about.is_ok_and(|a| REMOTE.contains(&a.f_type))
        || device.tail().is_some_and(has_server)
}

/// An error number of a completion. `None`: it is no error.
pub(super) fn errno(raw: i32) -> Option<Errno> {
    (1..4096)
        .contains(&raw)
        .then(|| Errno::from_raw_os_error(raw))
}

/// Queries only the size. A query of the time stamps would make the kernel mark them as seen (multigrain timestamps); the next
/// write would then change the inode, for which the following fdatasync would have to wait.
pub(super) fn bytes_of(file: &File) -> Option<u64> {
    rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::SIZE)
        .ok()
        .map(|s| s.stx_size)
}

impl MemberState {
    /// Takes note of the member's present device.
    pub(super) fn look_at(&mut self, device: Option<&Device>) {
        self.fd = device.map(|d| d.file.as_raw_fd());
        self.is_block = device.is_some_and(|d| d.is_block);
        self.has_server = device.is_some_and(has_server);
        self.unsynced = false;
        self.away = Away::of(device.filter(|_| self.has_server));
        let local_file = device.filter(|d| !d.is_block && !self.has_server);
        self.keep = local_file.map(Device::own_bytes);
        self.boundary = device.and_then(Device::boundary);
    }

    /// Whether the file was truncated since it was opened. Does not wait, because only files of local file systems are looked at.
    fn is_shorter(&self, device: Option<&Device>) -> Option<(u64, u64)> {
        let (keep, file) = (self.keep?, &device?.file);
        let now = bytes_of(file)?;
        (now < keep || self.has_short_tail(device?)).then_some((now, keep))
    }
}

impl UringWorld {
    /// The first fault after which the volume cannot continue, if there was one.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// The member that failed is no part of the volume any more.
    pub(crate) fn forget_fault(&mut self) {
        self.fault = None;
    }

    /// Whether a member was truncated, so that it answers only errors.
    pub fn is_cut(&self) -> bool {
        self.members.iter().any(|m| m.cut)
    }

    /// `op` failed. After a failed flush or metadata write the volume cannot continue.
    pub(super) fn note_fault(&mut self, op: &DeviceOp, errno: i32, on_tail: bool) {
        let what = match (op.kind, op.buf) {
            (OpKind::Flush, _) => "a flush failed",
            (_, BufRef::Meta) => "a metadata write failed",
            _ => return,
        };
        let why = match self::errno(errno) {
            Some(Errno::NOSPC | Errno::DQUOT) => {
                " (its file system has no room for what was written since the last good flush)"
            }
            Some(Errno::NODEV | Errno::NXIO) => " (the device is gone)",
            _ => "",
        };
        let device = self.devices.get(usize::from(op.member.0));
        let tail = device.and_then(|d| d.as_ref()?.tail()).filter(|_| on_tail);
        let place = tail.map_or_else(String::new, |t| {
            format!(" on its tail {}", t.path.display())
        });
        self.fault.get_or_insert_with(|| Fault {
            member: usize::from(op.member.0),
            what: format!("{what}{place}{why}"),
            errno: Some(errno).filter(|&e| e > 0),
            at: SystemTime::now(),
        });
    }

    /// A forced write failed. In the page cache it also writes out what was written before, and the kernel tells one error once for each open
    /// file: that may have been the loss of earlier data, of which no flush will know. So no flush of this member is believed any more. A lack
    /// of space is an answer to the write itself.
    pub(super) fn note_unsynced(&mut self, op: &DeviceOp, errno: i32) {
        let member = usize::from(op.member.0);
        let device = self.devices.get(member).and_then(Option::as_ref);
        let buffered = device.is_some_and(|d| !d.direct || d.tail().is_some_and(|t| !t.direct));
        let no_space = matches!(self::errno(errno), Some(Errno::NOSPC | Errno::DQUOT));
        self.members[member].unsynced |= op.fua && buffered && !no_space;
    }

    /// A flush of `member` has succeeded: whether it counts.
    pub(super) fn is_believed(&mut self, op: &DeviceOp) -> bool {
        let unsynced = self.members[usize::from(op.member.0)].unsynced;
        if unsynced {
            self.note_fault(op, 0, false);
        }
        !unsynced
    }

    /// A record that must outlive this process could not be kept.
    pub(super) fn note_unkept(&mut self, e: &std::io::Error) {
        let primary = self.heartbeat.as_ref().map_or(0, Heartbeat::member);
        self.fault.get_or_insert_with(|| Fault {
            member: primary,
            what: format!("no memory for a record that must outlive this server ({e})"),
            errno: e.raw_os_error(),
            at: SystemTime::now(),
        });
    }

    /// Checks whether `member` still has its full size. A truncated member answers only errors from then on, because a
    /// write beyond its end would leave a hole that reads as zeros.
    pub(super) fn check_size(&mut self, member: usize) -> bool {
        let device = self.devices.get(member).and_then(Option::as_ref);
        let shorter = self.members[member].is_shorter(device);
        if let Some((now, was)) = shorter.filter(|_| !broken(LiveMutant::ServeCut)) {
            self.members[member].cut = true;
            self.fault.get_or_insert_with(|| Fault {
                member,
                what: format!("it was cut short to {now} bytes; it had {was}"),
                errno: None,
                at: SystemTime::now(),
            });
        }
        self.members[member].cut
    }

    /// As [`UringWorld::check_size`] for all members, at intervals.
    pub(super) fn check_sizes(&mut self) {
        if self.seen.since(self.sizes_checked) < CHECK_INTERVAL {
            return;
        }
        self.sizes_checked = self.seen;
        for member in 0..self.members.len() {
            self.check_size(member);
        }
    }
}
