//! A disk with faults on request: one file in a FUSE file system that shows a file elsewhere.

use super::Place;
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time to live of cached names: the name may change at any time.
const TTL: Duration = Duration::ZERO;

/// What the kernel does with the pages of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// Every request goes to the disk.
    #[default]
    None,
    /// They stay in its page cache, also when the file is opened again.
    Kept,
    /// As `Kept`, and the file cannot be opened with `O_DIRECT`.
    KeptAlways,
}

#[derive(Default)]
struct State {
    name: String,
    pages: Pages,
    /// Error of all operations, and of flushes alone.
    all: Option<i32>,
    flushes: Option<i32>,
    /// Error of the next flush.
    next_flush: Option<i32>,
    /// A range that cannot be read.
    unreadable: Option<(u64, u64)>,
    /// Writes that touch these bytes fail.
    unwritable: Option<(u64, u64)>,
    /// While set, no request is answered.
    hangs: bool,
    /// While set, writes are carried out and not answered.
    holds_writes: bool,
    /// While set, writes that touch these bytes are neither carried out nor answered.
    delays_writes: Option<(u64, u64)>,
    held: Vec<(ReplyWrite, u32)>,
    delayed: Vec<(ReplyWrite, u64, Vec<u8>)>,
}

/// The disk, attached. Dropping it unmounts it.
pub struct Faulty {
    state: Arc<Mutex<State>>,
    session: Option<BackgroundSession>,
    dir: PathBuf,
    backing: File,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Faulty {
    /// Attaches the disk: `dir/name` shows `backing`. Returns `None`, with a message, if FUSE is not available.
    pub fn attach(backing: &Path, dir: &Path, name: &str) -> Option<Faulty> {
        Faulty::attach_with(Pages::None, backing, dir, name)
    }

    /// As [`Faulty::attach`], with a page cache, as most network file systems have one.
    pub fn attach_with(pages: Pages, backing: &Path, dir: &Path, name: &str) -> Option<Faulty> {
        std::fs::create_dir_all(dir).expect("made");
        let open = || File::options().read(true).write(true).open(backing);
        let (file, backing) = (open().expect("opened"), open().expect("opened"));
        let state = Arc::new(Mutex::new(State {
            name: name.into(),
            pages,
            ..State::default()
        }));
        let drive = Drive {
            file,
            state: Arc::clone(&state),
        };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("isotherm-test-disk".into())];
        match fuser::spawn_mount(drive, dir, &config) {
            Ok(session) => Some(Faulty {
                state,
                session: Some(session),
                dir: dir.to_owned(),
                backing,
            }),
            Err(e) => {
                println!("skipped: no FUSE here: {e}");
                None
            }
        }
    }

    /// From now on every operation fails with `errno`.
    pub fn fail(&self, errno: i32) {
        locked(&self.state).all = Some(errno);
    }

    /// From now on bytes `from` to `to` cannot be read.
    pub fn spoil(&self, from: u64, to: u64) {
        locked(&self.state).unreadable = Some((from, to));
    }

    /// From now on no byte from `from` on can be written.
    pub fn spoil_writes(&self, from: u64) {
        self.spoil_writes_in(from, u64::MAX);
    }

    /// From now on bytes `from` to `to` cannot be written.
    pub fn spoil_writes_in(&self, from: u64, to: u64) {
        locked(&self.state).unwritable = Some((from, to));
    }

    /// From now on flushes fail with `errno`.
    pub fn fail_flushes(&self, errno: i32) {
        locked(&self.state).flushes = Some(errno);
    }

    /// The next flush fails with `errno`, and later ones do not tell of it.
    pub fn fail_next_flush(&self, errno: i32) {
        locked(&self.state).next_flush = Some(errno);
    }

    /// From now on no request is answered.
    pub fn hang(&self) {
        locked(&self.state).hangs = true;
    }

    /// From now on writes stay in progress, as on a disk with a long queue; all other requests are answered.
    pub fn hold_writes(&self) {
        locked(&self.state).holds_writes = true;
    }

    /// From now on writes that touch bytes `from` to `to` wait before they are carried out; all other requests are answered.
    pub fn delay_writes_in(&self, from: u64, to: u64) {
        locked(&self.state).delays_writes = Some((from, to));
    }

    /// Number of writes that wait for their answer.
    pub fn held(&self) -> usize {
        let state = locked(&self.state);
        state.held.len() + state.delayed.len()
    }

    /// Answers the waiting requests and all later ones.
    pub fn go_on(&self) {
        let mut state = locked(&self.state);
        (state.hangs, state.holds_writes) = (false, false);
        state.delays_writes = None;
        for (reply, at, data) in std::mem::take(&mut state.delayed) {
            match self.backing.write_all_at(&data, at) {
                Ok(()) => reply.written(data.len() as u32),
                Err(_) => reply.error(Errno::EIO),
            }
        }
        for (reply, bytes) in state.held.drain(..) {
            reply.written(bytes);
        }
    }

    /// The disk works again, under this name.
    pub fn come_back(&self, name: &str) {
        *locked(&self.state) = State {
            name: name.into(),
            ..State::default()
        };
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.go_on();
        // A closed ring closes its files a moment later, so an ordinary unmount may be refused.
        let done = Command::new("umount").arg("--lazy").arg(&self.dir).status();
        if done.is_ok_and(|s| s.success()) {
            let _ = session.join();
        }
    }
}

struct Drive {
    file: File,
    state: Arc<Mutex<State>>,
}

impl Drive {
    fn attr(&self, ino: INodeNo) -> FileAttr {
        let is_dir = ino.0 == 1;
        let size = self.file.metadata().map_or(0, |m| m.len());
        let t = UNIX_EPOCH;
        FileAttr {
            ino,
            size: if is_dir { 0 } else { size },
            blocks: size / 512,
            atime: t,
            mtime: t,
            ctime: t,
            crtime: t,
            kind: if is_dir {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: if is_dir { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn wait(&self) {
        while locked(&self.state).hangs {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn well(&self) -> Result<(), Errno> {
        self.wait();
        let fault = locked(&self.state).all;
        fault.map_or(Ok(()), |e| Err(Errno::from_i32(e)))
    }

    fn run<T>(&self, f: impl FnOnce(&File) -> std::io::Result<T>) -> Result<T, Errno> {
        self.well()?;
        f(&self.file).map_err(|e| e.raw_os_error().map_or(Errno::EIO, Errno::from_i32))
    }
}

impl Filesystem for Drive {
    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.wait();
        reply.statfs(0, 0, 0, 0, 0, 512, 255, 0);
    }
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.wait();
        let is = parent.0 == 1 && name.to_str() == Some(locked(&self.state).name.as_str());
        if is {
            reply.entry(&TTL, &self.attr(INodeNo(2)), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.wait();
        reply.attr(&TTL, &self.attr(ino));
    }
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Times are not used, and the size of a disk does not change.
        reply.attr(&TTL, &self.attr(ino));
    }
    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset == 0 {
            let name = locked(&self.state).name.clone();
            let _full = reply.add(INodeNo(2), 1, FileType::RegularFile, name);
        }
        reply.ok();
    }
    fn open(&self, _: &Request, _: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let direct = flags.0 & rustix::fs::OFlags::DIRECT.bits() as i32 != 0;
        match locked(&self.state).pages {
            Pages::None => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
            Pages::KeptAlways if direct => reply.error(Errno::EINVAL),
            _ => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
        }
    }
    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let spoilt = locked(&self.state).unreadable;
        if spoilt.is_some_and(|(from, to)| offset < to && offset + u64::from(size) > from) {
            return reply.error(Errno::EIO);
        }
        let mut data = vec![0; size as usize];
        match self.run(|f| f.read_at(&mut data, offset)) {
            Ok(n) => reply.data(&data[..n]),
            Err(e) => reply.error(e),
        }
    }
    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let bad = locked(&self.state).unwritable;
        if bad.is_some_and(|(from, to)| offset < to && offset + data.len() as u64 > from) {
            return reply.error(Errno::EIO);
        }
        let mut state = locked(&self.state);
        let delayed = state.delays_writes;
        if delayed.is_some_and(|(from, to)| offset < to && offset + data.len() as u64 > from) {
            return state.delayed.push((reply, offset, data.to_vec()));
        }
        drop(state);
        match self.run(|f| f.write_all_at(data, offset)) {
            Ok(()) => {
                let mut state = locked(&self.state);
                if state.holds_writes {
                    state.held.push((reply, data.len() as u32));
                } else {
                    reply.written(data.len() as u32);
                }
            }
            Err(e) => reply.error(e),
        }
    }
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // close() guarantees nothing.
        reply.ok();
    }
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let fault = {
            let mut state = locked(&self.state);
            state.next_flush.take().or(state.flushes)
        };
        match fault.map_or_else(|| self.well(), |e| Err(Errno::from_i32(e))) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }
}

/// A disk that answers again when this is dropped, so that a failed test does not wait for a server that waits for the disk.
pub struct Released<'a>(pub &'a Faulty);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.go_on();
    }
}

/// A volume whose flash is `bay/f` on a disk that can fail; none without FUSE.
pub fn on_faulty(place: &Place, policy: &str) -> Option<Faulty> {
    let chips = place.away("chips");
    let made = std::fs::File::create(&chips).and_then(|f| f.set_len(16 << 20));
    made.expect("made");
    let disk = Faulty::attach(&chips, &place.path("bay"), "f")?;
    place.ok(&format!(
        "create v --fast bay/f --slow s:64M --policy {policy}"
    ));
    Some(disk)
}
