//! Questions of the kernel before it reads or writes a file by itself: fanotify's event `FAN_PRE_ACCESS` (Linux 6.14; ext4, XFS, Btrfs).
//!
//! A file is watched by a mark on its inode. The kernel asks only for descriptors that were opened after that. As long as the mark is
//! muted, the kernel does not ask, and an access costs hardly more than without the mark.

#![expect(unsafe_code, reason = "rustix has no fanotify")]

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;

/// Before data is read or written (`FAN_PRE_ACCESS` in `linux/fanotify.h`; libc does not have it yet).
const PRE_ACCESS: u64 = 0x0010_0000;
/// Length of the fixed part of an event (`struct fanotify_event_metadata`).
const EVENT: usize = 24;
/// The kind of the record that says which bytes are accessed (`FAN_EVENT_INFO_TYPE_RANGE`), and its length.
const RANGE: u8 = 6;
const RANGE_LENGTH: usize = 24;

/// The connection through which the kernel asks. Once it is closed, the kernel does not wait for answers any more.
pub(super) struct Questions(OwnedFd);

/// One question. Its end is no answer.
pub(super) struct Question {
    fd: OwnedFd,
    /// Thread that accesses the file.
    pub(super) thread: i32,
    /// The first byte that is accessed; rounded down to a page.
    pub(super) offset: u64,
    /// Number of bytes; rounded up to pages. 0 if the kernel does not say.
    pub(super) bytes: u64,
}

/// What an event of the kernel's says.
#[derive(Debug, PartialEq, Eq)]
struct Event {
    fd: RawFd,
    thread: i32,
    offset: u64,
    bytes: u64,
}

/// Device and number of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Inode(u64, u64);

impl Inode {
    /// That of an open file.
    pub(super) fn of(file: impl AsFd) -> Result<Inode, Errno> {
        rustix::fs::fstat(file).map(|s| Inode(s.st_dev, s.st_ino))
    }
}

impl Question {
    /// The file that is accessed.
    pub(super) fn file(&self) -> Result<Inode, Errno> {
        Inode::of(&self.fd)
    }
}

/// The result of a call of the C library.
fn result(returned: i32) -> Result<i32, Errno> {
    if returned >= 0 {
        return Ok(returned);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

impl Questions {
    /// Connects.
    ///
    /// # Errors
    /// The user is not root, or the kernel has no such questions.
    pub(super) fn open() -> Result<Questions, Errno> {
        let group = libc::FAN_CLASS_PRE_CONTENT
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_TID
            | libc::FAN_UNLIMITED_QUEUE
            | libc::FAN_UNLIMITED_MARKS;
        let files = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC;
        // SAFETY: no pointers.
        let fd = result(unsafe { libc::fanotify_init(group, files as u32) })?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Questions(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
    fn mark(&self, flags: u32, file: impl AsFd) -> Result<(), Errno> {
        let (group, file) = (self.0.as_raw_fd(), file.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open during the call. Without a path, the call is about the open file itself.
        let done = unsafe { libc::fanotify_mark(group, flags, PRE_ACCESS, file, std::ptr::null()) };
        result(done).map(|_| ())
    }
    /// From now on the kernel asks before each access through a descriptor that is opened from now on.
    ///
    /// # Errors
    /// The kernel does not ask for files of that file system.
    pub(super) fn watch(&self, file: impl AsFd) -> Result<(), Errno> {
        self.mark(libc::FAN_MARK_ADD, file)
    }
    /// The end of [`Questions::watch`]. The mark must not be muted.
    pub(super) fn unwatch(&self, file: impl AsFd) -> Result<(), Errno> {
        self.mark(libc::FAN_MARK_REMOVE, file)
    }
    /// Makes the kernel ask, or not, about a watched file.
    ///
    /// # Errors
    /// The file is not watched, or was not muted.
    pub(super) fn mute(&self, file: impl AsFd, mute: bool) -> Result<(), Errno> {
        let change = if mute {
            libc::FAN_MARK_ADD
        } else {
            libc::FAN_MARK_REMOVE
        };
        self.mark(change | libc::FAN_MARK_IGNORE_SURV, file)
    }
    /// The questions that were asked since the last call; none if there are none.
    ///
    /// # Errors
    /// A system error: the kernel could not open a file for its question, and refused that access.
    pub(super) fn read(&self) -> Result<Vec<Question>, Errno> {
        let mut buffer = [0; 4096];
        match rustix::io::read(&self.0, &mut buffer) {
            Ok(n) => Ok(parse(&buffer[..n]).iter().map(own).collect()),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }
    /// Lets the access go on.
    pub(super) fn allow(&self, question: &Question) {
        // `struct fanotify_response`.
        let mut answer = [0; 8];
        answer[..4].copy_from_slice(&question.fd.as_raw_fd().to_ne_bytes());
        answer[4..].copy_from_slice(&libc::FAN_ALLOW.to_ne_bytes());
        // If this fails, the process that asked was killed.
        let _ = rustix::io::write(&self.0, &answer);
    }
}

impl AsFd for Questions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A question of its own, with the descriptor that the kernel opened for it.
fn own(event: &Event) -> Question {
    Question {
        // SAFETY: the kernel opened this descriptor for this event, which is read once, so it has no other owner.
        fd: unsafe { OwnedFd::from_raw_fd(event.fd) },
        thread: event.thread,
        offset: event.offset,
        bytes: event.bytes,
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let field = bytes.get(at..at + N).and_then(|f| f.try_into().ok());
    field.unwrap_or([0; N])
}

/// The events in a buffer of the kernel's.
fn parse(mut bytes: &[u8]) -> Vec<Event> {
    let mut all = Vec::new();
    while bytes.len() >= EVENT {
        let length = u32::from_ne_bytes(field(bytes, 0)) as usize;
        let Some(event) = bytes.get(..length).filter(|e| e.len() >= EVENT) else {
            break;
        };
        bytes = &bytes[length..];
        let fd = i32::from_ne_bytes(field(event, 16));
        if fd < 0 {
            continue;
        }
        let (mut offset, mut count) = (0, 0);
        let mut records = &event[usize::from(u16::from_ne_bytes(field(event, 6))).min(length)..];
        while records.len() >= 4 {
            let length = usize::from(u16::from_ne_bytes(field(records, 2)));
            if records[0] == RANGE && length >= RANGE_LENGTH {
                offset = u64::from_ne_bytes(field(records, 8));
                count = u64::from_ne_bytes(field(records, 16));
            }
            match records.get(length.max(4)..) {
                Some(rest) => records = rest,
                None => break,
            }
        }
        all.push(Event {
            fd,
            thread: i32::from_ne_bytes(field(event, 20)),
            offset,
            bytes: count,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event as Linux 6.18 sent it, before one that is cut off.
    #[test]
    fn events_are_parsed_and_torn_ones_are_not() {
        let fd: RawFd = 17;
        let mut event = Vec::new();
        event.extend(48u32.to_ne_bytes());
        event.extend([3, 0]);
        event.extend(24u16.to_ne_bytes());
        event.extend(PRE_ACCESS.to_ne_bytes());
        event.extend(fd.to_ne_bytes());
        event.extend(4711i32.to_ne_bytes());
        event.extend([RANGE, 0, 24, 0, 0, 0, 0, 0]);
        event.extend(8192u64.to_ne_bytes());
        event.extend((3u64 << 30).to_ne_bytes());
        let all = parse(&[&event[..], &event[..47]].concat());
        assert_eq!(all.len(), 1);
        let q = &all[0];
        let read = (q.fd, q.thread, q.offset, q.bytes);
        assert_eq!(read, (fd, 4711, 8192, 3 << 30));
        // Records whose length is nonsense end the event, not the program.
        for nonsense in [0u8, 1, 3, 255] {
            event[26] = nonsense;
            assert_eq!(parse(&event).len(), 1);
        }
        event[0] = 8;
        assert!(parse(&event).is_empty());
    }
}
