//! Serves the requests of the kernel.
//!
//! The kernel checks permissions (`default_permissions`) and keeps locks. It may cache names and attributes for long, because every change
//! goes through this program. Changes that were made directly on a tier are reported to the kernel when they are noticed.

mod data;
pub(crate) mod gate;
pub(crate) mod helpers;
mod listing;
mod passthrough;
mod questions;
mod requests;

use crate::attributes::SetTime;
use crate::catalogue::{NodeId, ROOT};
use crate::live::{Live, Told};
use crate::names::{Creator, IfPresent};
pub use crate::settings::Io;
use crate::store::Store;
use crate::sync::{lock, read_lock, write_lock};
use crate::tree::{Facts, Time};
use fuser::{
    Errno as FuseErrno, FileAttr, FileHandle, FileType, Generation, INodeNo, InitFlags,
    KernelConfig, RenameFlags, ReplyEmpty, ReplyEntry, ReplyXattr, Request, TimeOrNow,
};
use gate::Gate;
use helpers::Helpers;
use passthrough::Passes;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the kernel may keep names and attributes.
const TTL: Duration = Duration::from_secs(3600);

/// Number of reads ahead that the kernel leaves here at a time; further ones of any file wait. Those of a tier that does not answer take
/// places for long.
const READS_AHEAD_MAX: u16 = 1024;

struct Handle {
    live: Arc<Live>,
    passes: Option<Passes>,
    wrote: bool,
    told: Told,
}

impl Handle {
    /// Whether a program may write in a mapping that the kernel keeps here, and not on the tier.
    fn maps(&self) -> bool {
        self.wrote && self.passes.is_none()
    }
}

/// The names at the time when reading of the directory began; `None` before that.
type Listing = Arc<Mutex<Option<listing::Listing>>>;

/// Reports that the kernel has unmounted a file system.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Set before the message is sent: this file system is no longer mounted.
    pub unmounted: Arc<AtomicBool>,
    /// The channel for the message.
    pub tell: Sender<()>,
}

impl Ended {
    fn say(&self) {
        self.unmounted.store(true, Ordering::SeqCst);
        // The receiver may no longer wait.
        let _ = self.tell.send(());
    }
}

/// The file system that the session threads call.
pub struct Front(pub(crate) Arc<Served>);

impl std::ops::Deref for Front {
    type Target = Served;
    fn deref(&self) -> &Served {
        &self.0
    }
}

impl Front {
    /// Carries out a call, on this thread unless all others of the session may be waiting for a tier.
    fn run(&self, may_wait: bool, call: impl FnOnce(&Served) + Send + 'static) {
        if let Some(_turn) = self.helpers.turn(may_wait) {
            return call(self);
        }
        let served = Arc::clone(&self.0);
        self.helpers.hand_over(move || call(&served));
    }
}

/// What the session threads share.
pub struct Served {
    store: Arc<Store>,
    io: Io,
    owner: u32,
    ended: Ended,
    next: AtomicU64,
    handles: RwLock<HashMap<u64, Arc<Handle>>>,
    /// Files that others have changed and of which the kernel must keep no data at the next open.
    forgotten: Mutex<HashSet<NodeId>>,
    lists: Mutex<HashMap<u64, Listing>>,
    /// The reason with which the kernel refused passthrough the first time.
    reason: Mutex<Option<String>>,
    /// Whether it was said that a tier has too little space for passthrough.
    short: AtomicBool,
    /// Keeps space for what the kernel itself writes.
    gate: Option<Arc<Gate>>,
    /// How many descriptors this process may have.
    descriptors: u64,
    helpers: Arc<Helpers>,
}

fn errno(e: Errno) -> FuseErrno {
    FuseErrno::from_i32(e.raw_os_error())
}

/// The answer to a call on names that failed with this error. After `ESTALE` the kernel makes the call a second time by itself, which would
/// do to a file that others have put there what the first one refused: by then that file is known.
fn once(e: Errno) -> Errno {
    if e == Errno::STALE { Errno::BUSY } else { e }
}

fn system(t: Time) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(t.nsec));
    if t.sec >= 0 {
        UNIX_EPOCH + Duration::from_secs(t.sec as u64) + nanos
    } else {
        UNIX_EPOCH - Duration::from_secs(t.sec.unsigned_abs()) + nanos
    }
}

/// A time that the kernel sent.
fn time(t: SystemTime) -> Time {
    match t.duration_since(UNIX_EPOCH) {
        Ok(d) => Time {
            sec: d.as_secs() as i64,
            nsec: d.subsec_nanos(),
        },
        Err(e) => {
            // The seconds are rounded down, so that the nanoseconds count forward from them. 2^63 seconds wrap to the least number, which is right.
            let (sec, nsec) = (e.duration().as_secs() as i64, e.duration().subsec_nanos());
            let down = i64::from(nsec > 0);
            Time {
                sec: sec.wrapping_neg().wrapping_sub(down),
                nsec: (1_000_000_000 - nsec) % 1_000_000_000,
            }
        }
    }
}

fn set_time(t: Option<TimeOrNow>) -> SetTime {
    match t {
        None => SetTime::Keep,
        Some(TimeOrNow::Now) => SetTime::Now,
        Some(TimeOrNow::SpecificTime(t)) => SetTime::At(time(t)),
    }
}

fn kind(mode: u32) -> FileType {
    match mode & 0o170_000 {
        0o040_000 => FileType::Directory,
        0o120_000 => FileType::Symlink,
        0o010_000 => FileType::NamedPipe,
        0o020_000 => FileType::CharDevice,
        0o060_000 => FileType::BlockDevice,
        0o140_000 => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

/// Attributes with the inode number by which users and the kernel know the node.
fn attr(shown: u64, f: &Facts) -> FileAttr {
    FileAttr {
        ino: INodeNo(shown),
        size: f.size,
        blocks: f.blocks,
        atime: system(f.atime),
        mtime: system(f.mtime),
        ctime: system(f.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(f.mode),
        perm: (f.mode & 0o7777) as u16,
        nlink: f.nlink,
        uid: f.uid,
        gid: f.gid,
        rdev: rustix::fs::major(f.rdev) << 8
            | (rustix::fs::minor(f.rdev) & 0xff)
            | (rustix::fs::minor(f.rdev) & !0xff) << 12,
        blksize: 4096,
        flags: 0,
    }
}

/// What a rename does if the new name is there.
fn if_present(flags: RenameFlags) -> IfPresent {
    if flags.contains(RenameFlags::RENAME_EXCHANGE) {
        IfPresent::Exchange
    } else if flags.contains(RenameFlags::RENAME_NOREPLACE) {
        IfPresent::Refuse
    } else {
        IfPresent::Replace
    }
}

/// The attributes that stand for a name that does not exist.
fn negative_entry() -> FileAttr {
    attr(0, &Facts::default())
}

/// Asks the kernel for what this file system can do.
fn request_capabilities(io: Io, config: &mut KernelConfig) {
    for flag in [
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_POSIX_ACL,
        InitFlags::FUSE_DONT_MASK,
        InitFlags::FUSE_CACHE_SYMLINKS,
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        // `.` and `..` of any number are looked up, also of one that the kernel has forgotten, or knows from an earlier mount.
        InitFlags::FUSE_EXPORT_SUPPORT,
    ] {
        // A kernel without this capability works without it.
        let _ = config.add_capabilities(flag);
    }
    // If the kernel itself writes, it must also remove rights itself.
    if !io.passes() {
        let _ = config.add_capabilities(InitFlags::FUSE_HANDLE_KILLPRIV_V2);
    }
    if io == Io::Writeback {
        let _ = config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE);
    }
    if io.passes() && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() {
        let _ = config.set_max_stack_depth(1);
    }
    let _ = config.set_max_write(1 << 20);
    let _ = config.set_max_background(READS_AHEAD_MAX);
}

impl Served {
    /// Serves a store on that many threads. Besides root, `owner` may give commands.
    pub fn new(store: Arc<Store>, io: Io, owner: u32, threads: usize, ended: Ended) -> Served {
        Served {
            gate: None,
            store,
            io,
            owner,
            ended,
            next: AtomicU64::new(1),
            handles: RwLock::default(),
            forgotten: Mutex::default(),
            lists: Mutex::default(),
            reason: Mutex::default(),
            short: AtomicBool::new(false),
            descriptors: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            helpers: Arc::new(Helpers::new(threads)),
        }
    }
    /// Lets `gate` keep space for what the kernel itself writes.
    pub(crate) fn with_gate(mut self, gate: Option<Arc<Gate>>) -> Served {
        self.gate = gate;
        self
    }
    /// The threads that carry out calls which may wait.
    pub(crate) fn helpers(&self) -> Arc<Helpers> {
        Arc::clone(&self.helpers)
    }
    /// Whether a change of names or attributes may wait for a tier other than the fastest, if it uses this node.
    fn change_waits(&self, node: NodeId) -> bool {
        self.store.names.may_wait() || self.is_slow(node)
    }
    /// As [`Served::change_waits`], for a name that is removed or replaced.
    fn name_waits(&self, dir: NodeId, name: &[u8]) -> bool {
        let node = self.store.cat().child(dir, name);
        node.map_or_else(|| self.store.names.may_wait(), |n| self.change_waits(n))
    }
    fn is_slow(&self, node: NodeId) -> bool {
        self.store.cat().get(node).is_some_and(|n| n.on() & !1 != 0)
    }
    /// As [`Served::change_waits`], for a new file.
    fn creation_waits(&self) -> bool {
        self.store.names.may_wait() || self.store.is_full(0)
    }
    /// Whether a read or write may wait for a tier other than the fastest: the file is there, is moved, or may have to move because its tier
    /// is full.
    fn use_waits(&self, fh: FileHandle, writes: bool) -> bool {
        let Ok(handle) = self.handle(fh) else {
            return false;
        };
        handle.live.may_wait() || (writes && self.store.is_short(0))
    }
    /// Whether the attributes of a file may have to be asked of a tier other than the fastest: they are while it is in use.
    fn facts_wait(&self, id: NodeId) -> bool {
        self.store.open.get(id).is_some_and(|l| l.may_wait())
    }
    /// Whether the server of a tier may be away.
    fn has_remote(&self) -> bool {
        self.store.roots.iter().any(|r| !r.local)
    }
    fn handle(&self, fh: FileHandle) -> Result<Arc<Handle>, Errno> {
        let all = read_lock(&self.handles);
        all.get(&fh.0).cloned().ok_or(Errno::BADF)
    }
    fn keep(&self, handle: Handle) -> FileHandle {
        let fh = self.next.fetch_add(1, Ordering::Relaxed);
        if handle.maps() {
            handle.live.mappers.fetch_add(1, Ordering::SeqCst);
        }
        let mut all = write_lock(&self.handles);
        all.insert(fh, Arc::new(handle));
        FileHandle(fh)
    }
    /// Adds a reference of the kernel.
    fn refer(&self, id: NodeId) -> Result<FileAttr, Errno> {
        let facts = self.store.facts(id)?;
        let mut cat = self.store.cat_mut();
        let there = cat.refer(id);
        there
            .then(|| attr(cat.shown_number(id), &facts))
            .ok_or(Errno::NOENT)
    }
    fn attr(&self, id: NodeId, facts: &Facts) -> FileAttr {
        attr(self.store.cat().shown_number(id), facts)
    }
    fn entry(&self, id: Result<NodeId, Errno>, reply: ReplyEntry) {
        match id.and_then(|id| self.refer(id)) {
            Ok(attr) => reply.entry(&TTL, &attr, self.generation(attr.ino)),
            Err(e) => reply.error(errno(once(e))),
        }
    }
    /// The node that the kernel knows by a number; `None` if it is gone.
    fn node(&self, ino: INodeNo) -> Option<NodeId> {
        self.store.cat().node_of(ino.0)
    }
    fn generation(&self, ino: INodeNo) -> Generation {
        Generation(self.store.names.lasting().generation(ino.0).into())
    }
    /// The node with that name for the kernel: that of a directory, or, for a file handle, a node itself (`.`) or the directory of one (`..`).
    ///
    /// # Errors
    /// The file of the handle is gone: it has no name any more, so nobody has it open whom the kernel does not know.
    fn named(&self, at: NodeId, name: &[u8]) -> Result<Option<NodeId>, Errno> {
        let cat = self.store.cat();
        match name {
            b"." => {
                let there = cat.get(at).filter(|n| at == ROOT || n.links() > 0);
                there.map(|_| Some(at)).ok_or(Errno::STALE)
            }
            b".." => cat.parent(at).map(Some).ok_or(Errno::STALE),
            _ => Ok(cat.child(at, name)),
        }
    }
    fn forget_one(&self, ino: INodeNo, n: u64) {
        let mut cat = self.store.cat_mut();
        if let Some(id) = cat.node_of(ino.0) {
            cat.forget(id, n);
        }
    }
    fn empty(done: Result<(), Errno>, reply: ReplyEmpty) {
        match done {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(once(e))),
        }
    }
    fn creator(req: &Request, umask: u32) -> Creator {
        Creator {
            uid: req.uid(),
            gid: req.gid(),
            umask,
        }
    }
    fn may_command(&self, req: &Request) -> Result<(), Errno> {
        if req.uid() == 0 || req.uid() == self.owner {
            Ok(())
        } else {
            Err(Errno::PERM)
        }
    }
    fn xattr_names(&self, id: NodeId) -> Vec<u8> {
        let mut list = Vec::new();
        for (name, _) in self.store.cat().xattrs(id) {
            list.extend_from_slice(name);
            list.push(0);
        }
        list
    }
    fn new_listing(&self) -> FileHandle {
        let fh = self.next.fetch_add(1, Ordering::Relaxed);
        let mut lists = lock(&self.lists);
        lists.insert(fh, Arc::default());
        FileHandle(fh)
    }
    fn listing(&self, fh: FileHandle) -> Option<Listing> {
        let lists = lock(&self.lists);
        lists.get(&fh.0).cloned()
    }
    /// The entries of a listing from an offset on, see [`listing::Listing`].
    fn listed(
        &self,
        dir: NodeId,
        fh: FileHandle,
        offset: u64,
        mut add: impl FnMut(NodeId, u64, &[u8]) -> bool,
    ) {
        let Some(list) = self.listing(fh) else { return };
        let mut list = lock(&list);
        // The beginning, also after rewinddir(3): names that were added since are shown.
        if offset == 0 {
            *list = None;
        }
        let list = list.get_or_insert_with(|| listing::Listing::new(self.store.cat().list(dir)));
        for (next, name) in list.from(offset) {
            // What has the name now: the kernel remembers it.
            let id = match name {
                b"." => Some(dir),
                b".." => Some(self.store.cat().parent(dir).unwrap_or(dir)),
                name => self.store.cat().child(dir, name),
            };
            if id.is_some_and(|id| add(id, next, name)) {
                return;
            }
        }
    }
}

impl Served {
    /// The answer to a query. Those who may not give commands learn counts only.
    fn answer(&self, may_command: bool, id: NodeId, what: &str) -> Result<Vec<u8>, Errno> {
        if may_command {
            crate::control::answer(&self.store, id, what)
        } else {
            crate::counts::answer(&self.store, id, what)
        }
    }
    /// Whether a user may open a file: a part of the descriptors is left to this program, root and the owner of the mount. Each file in use
    /// takes one, and one more if it may have a copy or the kernel may write it.
    fn may_open(&self, req: &Request) -> Result<(), Errno> {
        if self.may_command(req).is_ok() {
            return Ok(());
        }
        let two = self.io.passes() || self.store.copies.any_on();
        let used = self.store.open.count() as u64 * (1 + u64::from(two));
        // The user himself has not opened too many.
        (used < self.descriptors - reserve(self.descriptors))
            .then_some(())
            .ok_or(Errno::NFILE)
    }
    /// The offset of the next data or hole. With writeback caching, the kernel has written data that no tier has yet. ENOSYS then makes it
    /// treat the whole file as data.
    fn seek(&self, fh: FileHandle, at: u64, hole: bool) -> Result<u64, Errno> {
        if self.io == Io::Writeback {
            return Err(Errno::NOSYS);
        }
        let handle = self.handle(fh)?;
        if handle.live.mappers.load(Ordering::SeqCst) > 0 {
            // Else what was written there would be taken for a hole, and left out of a copy.
            let shown = self.store.names.shown_number(handle.live.node);
            self.store.open.write_back(shown, at);
        }
        self.store.seek(&handle.live, at, hole)
    }
    fn sized(value: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
        match value {
            Err(e) => reply.error(errno(e)),
            Ok(v) if size == 0 => reply.size(v.len() as u32),
            Ok(v) if v.len() > size as usize => reply.error(errno(Errno::RANGE)),
            Ok(v) => reply.data(&v),
        }
    }
}

/// Of that many descriptors, those that are kept for this program, root and the owner of the mount. The program itself uses about 20 besides
/// those of the files in use, and two for each call in progress.
fn reserve(descriptors: u64) -> u64 {
    (descriptors / 6).min(256)
}

fn libc_accmode() -> i32 {
    (rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::RDWR).bits() as i32
}
