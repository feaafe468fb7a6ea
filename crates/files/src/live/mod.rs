//! Files in use: each has one descriptor on its present tier, which all handles share and which is swapped under a lock when the file
//! moves.
//!
//! Readers and writers hold the lock shared during the system call, so no call ever uses a closed descriptor. The mover holds it
//! exclusively from the last comparison until the swap.

mod frozen;
mod open;
mod syncs;

use crate::catalogue::NodeId;
#[cfg(doc)]
use crate::copies::Copies;
use crate::copies::OpenCopy;
use crate::disk::{cached_facts_of, facts_of};
use crate::settings::Io;
use crate::sync::{lock, read_lock};
use crate::tree::{Facts, Tier, Time};
pub(crate) use frozen::{Freeze, Look};
pub(crate) use open::Below;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard};
use syncs::Syncs;
pub(crate) use syncs::Told;

/// The present location of a file's data.
#[derive(Debug)]
pub struct Backing {
    /// Its disk.
    pub tier: Tier,
    /// The file there.
    pub fd: OwnedFd,
    /// Whether it can be written.
    pub writable: bool,
}

/// The open descriptors of a file in use.
#[derive(Debug, Default)]
pub struct State {
    /// The file at its home. A file that is only read from its copy has none: see `Copies::open_alone`.
    pub home: Option<Backing>,
    /// Its copy on the fastest tier.
    pub copy: Option<Arc<OpenCopy>>,
    /// Whether it is large and at home on a slower tier, so that it can have ranges on the fastest.
    pub ranged: bool,
}

impl State {
    fn is_open(&self, need: Need) -> bool {
        self.home.is_some() || (need == Need::Data && self.copy.is_some())
    }
}

/// What a use of a file needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The file at its home.
    Home,
    /// Its bytes: a copy is enough.
    Data,
}

/// A file in use.
#[derive(Debug, Default)]
pub struct Live {
    /// Its node.
    pub node: NodeId,
    /// Its open descriptors; none until it is opened.
    pub state: RwLock<State>,
    /// Whether the file itself, not only its copy, has been opened.
    opened: AtomicBool,
    /// Number of changes so far. A change counts when it is done.
    pub changes: AtomicU64,
    users: AtomicU32,
    /// Whether it was read or changed since its attributes were stored, so that they may differ.
    used: AtomicBool,
    /// Number of handles through which programs may write it in mappings that the kernel keeps for them.
    pub(crate) mappers: AtomicU32,
    /// The kernel's handle, if it reads and writes the file itself.
    pub passthrough: Mutex<Option<Arc<fuser::BackingId>>>,
    /// After a move: the change time on the tier, and the one before the move. The latter is shown until the file is changed.
    shown_ctime: Mutex<Option<(Time, Time)>>,
    /// Whether there was a passthrough handle. Then all later handles must be of the same kind until the last one is closed.
    pub had_passthrough: AtomicBool,
    /// Whether passthrough was withheld from a handle or refused. Then no later handle gets it until the last one is closed.
    pub had_cached: AtomicBool,
    /// Held while a file with a copy is changed, so that two changes of the same bytes reach home and copy in the same order.
    pub(crate) update: Mutex<()>,
    /// The attributes, while a move keeps the descriptor locked.
    frozen: Mutex<Option<Facts>>,
    /// The errors of its syncs.
    pub(crate) syncs: Syncs,
}

/// All files in use, and what the kernel knows of them.
#[derive(Default)]
pub(crate) struct OpenFiles {
    all: Mutex<HashMap<NodeId, Arc<Live>>>,
    /// The path of reads and writes, once mounted.
    pub(crate) io: OnceLock<Io>,
    /// Access to the kernel's caches, once mounted.
    pub(crate) notifier: OnceLock<fuser::Notifier>,
}

impl OpenFiles {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Arc<Live>>> {
        lock(&self.all)
    }
    /// The file, if it is in use.
    pub(crate) fn get(&self, node: NodeId) -> Option<Arc<Live>> {
        self.lock().get(&node).cloned()
    }
    /// The number of files in use.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }
    /// Tells the kernel to read the attributes of the node with that number again.
    pub(crate) fn tell_kernel(&self, shown: u64) {
        if let Some(n) = self.notifier.get() {
            // If the kernel does not know the node, nothing is to be done.
            let _ = n.inval_inode(fuser::INodeNo(shown), -1, 0);
        }
    }
    /// Tells the kernel to drop the cached contents of a file. This call waits for reads and writes of the file that the kernel has begun,
    /// and they may be waiting for an answer of this thread. So another thread makes the call.
    pub(crate) fn tell_kernel_of_data(&self, shown: u64) {
        // If no thread can be started, the kernel drops them at the next open.
        self.tell(move |n| n.inval_inode(fuser::INodeNo(shown), 0, 0));
    }
    /// Has the kernel write what it has of a file, from an offset on, and no tier has yet: what programs wrote in mappings. It waits for that,
    /// so another thread must be free to take what the kernel writes, and this one must hold no lock of the file.
    pub(crate) fn write_back(&self, shown: u64, from: u64) {
        if let Some(n) = self.notifier.get() {
            // If the kernel does not know the node, nothing is to be done.
            let _ = n.inval_inode(fuser::INodeNo(shown), from as i64, 0);
        }
    }
    /// Tells the kernel about a new name that it may have cached as absent. The kernel locks the directory while it waits for an answer of
    /// this thread, so another thread makes the call.
    pub(crate) fn tell_kernel_of_name(&self, dir: u64, name: &[u8]) {
        self.tell_kernel_of_names(vec![(dir, name.to_vec())]);
    }
    /// As [`OpenFiles::tell_kernel_of_name`], for several, each in its directory.
    pub(crate) fn tell_kernel_of_names(&self, names: Vec<(u64, Vec<u8>)>) {
        // If no thread can be started, the kernel notices when its cache expires after an hour.
        self.tell(move |n| {
            for (dir, name) in names {
                let _ = n.inval_entry(fuser::INodeNo(dir), &OsString::from_vec(name));
            }
            Ok(())
        });
    }
    fn tell(&self, what: impl FnOnce(&fuser::Notifier) -> std::io::Result<()> + Send + 'static) {
        if let Some(n) = self.notifier.get().cloned() {
            // If the kernel does not know the node or the name, nothing is to be done.
            let _ = std::thread::Builder::new().spawn(move || what(&n));
        }
    }
}

/// A read lock on the descriptor of a file in use.
pub struct Held<'a>(RwLockReadGuard<'a, State>);

impl Held<'_> {
    /// Its location.
    ///
    /// # Errors
    /// It could not be opened, or only its copy is open.
    pub fn backing(&self) -> Result<&Backing, Errno> {
        self.0.home.as_ref().ok_or(Errno::IO)
    }
    /// Its copy, if it is equal to the file.
    pub(crate) fn copy(&self) -> Option<&OpenCopy> {
        self.0.copy.as_deref().filter(|c| c.is_valid())
    }
    /// Whether it can have ranges.
    pub(crate) fn is_ranged(&self) -> bool {
        self.0.ranged
    }
    /// Its descriptor.
    ///
    /// # Errors
    /// As [`Held::backing`].
    pub fn fd(&self) -> Result<&OwnedFd, Errno> {
        self.backing().map(|b| &b.fd)
    }
}

impl Live {
    fn new(node: NodeId) -> Live {
        Live {
            node,
            ..Live::default()
        }
    }
    /// Whether a read or write may wait for a tier other than the fastest.
    pub(crate) fn may_wait(&self) -> bool {
        let state = self.state.try_read();
        let home = state.as_ref().ok().and_then(|s| s.home.as_ref());
        home.is_none_or(|home| home.tier > 0)
    }
    /// Locks the descriptor for one system call.
    pub fn hold(&self) -> Held<'_> {
        Held(read_lock(&self.state))
    }
    /// Records a change; to be called while [`Held`] is held.
    pub fn mark_changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        // The end of a move could take the change time of this change for one of its own.
        let mut shown = lock(&self.shown_ctime);
        *shown = None;
        drop(shown);
        self.mark_used();
    }
    /// Records a read or change: the attributes are read again at the last close.
    pub(crate) fn mark_used(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::SeqCst);
        }
    }
    /// The current attributes.
    ///
    /// # Errors
    /// A device error.
    pub fn facts(&self) -> Result<Facts, Errno> {
        self.facts_of(self.hold().backing()?)
    }
    /// Number of changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }
    /// The attributes at a location, as they are shown.
    pub(crate) fn facts_of(&self, backing: &Backing) -> Result<Facts, Errno> {
        Ok(self.with_shown_ctime(facts_of(&backing.fd)?))
    }
    /// As [`Live::facts_of`], as far as the kernel knows them, without a question to the server of a network file system.
    pub(crate) fn cached_facts_of(&self, backing: &Backing) -> Result<Facts, Errno> {
        Ok(self.with_shown_ctime(cached_facts_of(&backing.fd)?))
    }
    fn with_shown_ctime(&self, mut facts: Facts) -> Facts {
        let shown = lock(&self.shown_ctime);
        if let Some((_, before)) = shown.filter(|s| s.0 == facts.ctime) {
            facts.ctime = before;
        }
        facts
    }
    /// Called after the move changed the change time on the tier once more, by removing a name: the change time from before the move is
    /// still shown. Returns both.
    pub(crate) fn update_shown_ctime(&self) -> Option<(Time, Time)> {
        let now = self.hold().fd().and_then(facts_of);
        let mut shown = lock(&self.shown_ctime);
        if let (Some(shown), Ok(now)) = (&mut *shown, now) {
            shown.0 = now.ctime;
        }
        *shown
    }
    /// Shows the change time `before` as long as the change time on the tier is `now`.
    pub(crate) fn show_ctime(&self, now: Time, before: Time) {
        let mut shown = lock(&self.shown_ctime);
        *shown = Some((now, before));
    }
}

#[cfg(test)]
mod tests;
