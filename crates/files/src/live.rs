//! Files in use: each has one descriptor on its present tier, which all handles share and which is swapped under a lock when the file
//! moves.
//!
//! Readers and writers hold the lock shared during the system call, so no call ever uses a closed descriptor. The mover holds it
//! exclusively from the last comparison until the swap.

mod frozen;

use crate::catalogue::NodeId;
use crate::copies::OpenCopy;
use crate::disk::{Root, cached_facts_of, facts_of};
use crate::mutants::{Mutant, broken};
use crate::store::Store;
use crate::sync::{lock, read_lock, write_lock};
use crate::tiers::Kind;
use crate::tree::{Facts, Tier, Time};
pub(crate) use frozen::{Freeze, Look};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};

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
    /// The file at its home. A file that is only read from its copy has none: see `copy_only.rs`.
    pub home: Option<Backing>,
    /// Its copy on the fastest tier.
    pub copy: Option<OpenCopy>,
}

impl State {
    fn is_open(&self, need: Need) -> bool {
        self.home.is_some() || (need == Need::Data && self.copy.is_some())
    }
}

/// The result of an attempt to open a file in use.
enum Opened {
    /// It was open.
    Before,
    /// It is open now, with these attributes.
    Now(Facts),
    /// It is not at its path: it may be renamed at this moment.
    Again,
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
#[derive(Debug)]
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
}

/// All files in use.
#[derive(Debug, Default)]
pub struct Lives(Mutex<HashMap<NodeId, Arc<Live>>>);

impl Lives {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Arc<Live>>> {
        lock(&self.0)
    }
    /// The file, if it is in use.
    pub fn get(&self, node: NodeId) -> Option<Arc<Live>> {
        self.lock().get(&node).cloned()
    }
    /// The number of files in use.
    pub fn count(&self) -> usize {
        self.lock().len()
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
        self.0.copy.as_ref().filter(|c| c.is_valid())
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
            state: RwLock::default(),
            opened: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            users: AtomicU32::new(0),
            used: AtomicBool::new(false),
            passthrough: Mutex::new(None),
            shown_ctime: Mutex::new(None),
            had_passthrough: AtomicBool::new(false),
            had_cached: AtomicBool::new(false),
            update: Mutex::new(()),
            frozen: Mutex::new(None),
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

impl Store {
    /// Begins to use a file and opens it unless it is open. Ends with [`Store::release`].
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn live(&self, node: NodeId) -> Result<Arc<Live>, Errno> {
        self.live_for(node, Need::Home).map(|l| l.0)
    }
    /// As [`Store::live`], with the attributes if this call opened the file.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn live_for(
        &self,
        node: NodeId,
        need: Need,
    ) -> Result<(Arc<Live>, Option<Facts>), Errno> {
        let live = self.begin_use(node).ok_or(Errno::NOENT)?;
        match self.open_for(&live, need) {
            Ok(now) => Ok((live, now)),
            Err(e) => {
                self.release(&live);
                Err(e)
            }
        }
    }
    /// The file in use, with one more user; `None` if there is no such node.
    fn begin_use(&self, node: NodeId) -> Option<Arc<Live>> {
        if let Some(live) = self.lives.lock().get(&node) {
            live.users.fetch_add(1, Ordering::SeqCst);
            return Some(Arc::clone(live));
        }
        // The node must exist as long as it is in the table. The catalogue may be locked by a thread that waits for the table, so the table
        // is not locked here.
        if !self.cat_mut().hold(node) {
            return None;
        }
        let mut all = self.lives.lock();
        let (live, held) = match all.entry(node) {
            Entry::Occupied(there) => (Arc::clone(there.get()), true),
            Entry::Vacant(free) => (Arc::clone(free.insert(Arc::new(Live::new(node)))), false),
        };
        live.users.fetch_add(1, Ordering::SeqCst);
        drop(all);
        if held {
            self.cat_mut().let_go(node);
        }
        Some(live)
    }
    /// Opens a file in use, unless it is already open as needed. Returns the attributes if this call opened it.
    fn open_for(&self, live: &Live, need: Need) -> Result<Option<Facts>, Errno> {
        for last in [false, false, true] {
            if live.hold().0.is_open(need) {
                return Ok(None);
            }
            // A rename may happen while the file is opened. In the last attempt, the file is claimed to prevent that. This comes before the
            // lock of the descriptor.
            let claim = || self.claim_anyway(|cat, all| all.node(cat, live.node));
            let _claim = last.then(claim);
            match self.open_once(live, need, last)? {
                Opened::Before => return Ok(None),
                Opened::Now(facts) => return Ok(Some(facts)),
                Opened::Again => {}
            }
        }
        Err(Errno::STALE)
    }
    /// Opens a file in use at its home if only its copy is open.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open_home(&self, live: &Live) -> Result<(), Errno> {
        self.open_for(live, Need::Home).map(|_| ())
    }
    /// As [`Store::open_home`], for a file in use whose name is about to be removed by the caller, who has claimed the file.
    pub(crate) fn open_home_before_removal(&self, node: NodeId) {
        if let Some(live) = self.lives.get(node)
            && live.hold().backing().is_err()
            && !broken(Mutant::ForgetSleeper)
        {
            // If it cannot be opened, its users can still read the copy.
            let _ = self.open_once(&live, Need::Home, true);
        }
    }
    /// One attempt to open a file in use; with `last`, the file is claimed.
    fn open_once(&self, live: &Live, need: Need, last: bool) -> Result<Opened, Errno> {
        let mut state = write_lock(&live.state);
        if state.is_open(need) {
            return Ok(Opened::Before);
        }
        if need == Need::Data
            && let Some((copy, known)) = self.open_copy_only(live.node, false)
        {
            state.copy = Some(copy);
            return Ok(Opened::Now(known));
        }
        let asleep = state.copy.is_some();
        let known = asleep.then(|| self.cat().get(live.node).map(|n| n.facts));
        let (home, copy, facts) = match self.open_backing(live.node, last) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(Opened::Again),
            // Its disk does not answer: read the copy.
            Err(Errno::IO) if need == Need::Data => {
                let (copy, known) = self.open_copy_only(live.node, true).ok_or(Errno::IO)?;
                state.copy = Some(copy);
                return Ok(Opened::Now(known));
            }
            Err(e) => return Err(e),
        };
        self.keep_shown_ctime(live, &facts);
        if let Some(Some(known)) = known {
            self.compare_on_open(live.node, &known, facts);
        }
        // Before anybody can change the file.
        live.opened.store(true, Ordering::SeqCst);
        *state = State {
            home: Some(home),
            copy,
        };
        Ok(Opened::Now(live.with_shown_ctime(facts)))
    }
    /// Begins to use a file that was just created and is already open. Another thread that saw its name (the mover, another user) may have
    /// opened it first. Then all share that descriptor, because only that one follows the file when it moves.
    pub(crate) fn live_new(&self, node: NodeId, backing: Backing) -> Arc<Live> {
        let live = self.begin_use(node).unwrap_or_else(|| {
            // It was removed already.
            let live = Live::new(node);
            live.users.store(1, Ordering::SeqCst);
            Arc::new(live)
        });
        let mut state = write_lock(&live.state);
        if state.home.is_none() {
            live.opened.store(true, Ordering::SeqCst);
            state.home = Some(backing);
        }
        drop(state);
        live
    }
    /// Ends a use of a file. After the last use its attributes go to the catalogue.
    ///
    /// They are read while the file is still in use and the table is not locked: a tier that does not answer stops only the threads that
    /// use its own files.
    pub fn release(&self, live: &Arc<Live>) {
        while !self.end_use(live) {
            self.tell_catalogue(live);
        }
    }
    /// Ends a use of a file, unless it is the last one and the catalogue does not have its attributes yet. Returns whether it ended.
    fn end_use(&self, live: &Arc<Live>) -> bool {
        let mut all = self.lives.lock();
        let last = live.users.load(Ordering::SeqCst) == 1;
        // What was changed before this line is among the attributes that are read next.
        if last && live.used.swap(false, Ordering::SeqCst) {
            return false;
        }
        live.users.fetch_sub(1, Ordering::SeqCst);
        if last && all.get(&live.node).is_some_and(|l| Arc::ptr_eq(l, live)) {
            all.remove(&live.node);
            drop(all);
            self.cat_mut().let_go(live.node);
        }
        true
    }
    /// Reads the attributes of a file that was used and stores them, and drops its copy if somebody changed the file at home directly.
    fn tell_catalogue(&self, live: &Live) {
        let held = live.hold();
        // If only the copy was open, the file at home was not accessed, and there is nothing to compare.
        let Ok(home) = held.backing() else { return };
        let copy = held.copy();
        // The attributes are compared with those at the last change of the copy, so there must be no change in between.
        let _turn = copy.map(|_| lock(&live.update));
        let facts = self.learn(live.node, || live.facts_of(home)).ok();
        if let Some(copy) = copy {
            self.close_copy(live.node, copy, facts);
        }
    }
    /// If only the change time is newer than in the catalogue, a move changed it: the change time from before the move is shown again.
    fn keep_shown_ctime(&self, live: &Live, now: &Facts) {
        let known = self.cat().get(live.node).map(|n| n.facts);
        if let Some(known) = known
            && known.version() == now.version()
            && known.ctime < now.ctime
        {
            live.show_ctime(now.ctime, known.ctime);
        }
    }
    /// Opens a file at its home. `None` if it is not there under its name: it may be renamed at this moment. With `last`, it is claimed.
    fn open_backing(
        &self,
        node: NodeId,
        last: bool,
    ) -> Result<Option<(Backing, Option<OpenCopy>, Facts)>, Errno> {
        let known = || {
            let cat = self.cat();
            let n = cat.get(node).ok_or(Errno::NOENT)?;
            let path = cat.path(node).ok_or(Errno::NOENT)?;
            Ok((path, n.tier, n.facts.id))
        };
        let (path, tier, id) = known()?;
        self.require_present(tier, &path)?;
        let root: &Root = self.root(tier);
        let wait = self.waits_for(tier, node, Kind::Open);
        let opened = root.open_data(&path);
        drop(wait);
        // If the file lost this name meanwhile, another file may have got it, and even the same inode.
        if !last {
            let now = known()?;
            if (&now.0, now.1, now.2) != (&path, tier, id) {
                return Ok(None);
            }
        }
        match opened {
            Ok((fd, writable, f)) if f.id == id => {
                // The client of NFS 3 opens files without its server.
                if root.local {
                    self.device_answered(tier);
                }
                let copy = self.open_copy(node, &f);
                let backing = Backing { tier, fd, writable };
                return Ok(Some((backing, copy, f)));
            }
            Ok((fd, writable, f)) if last => {
                self.say(&format!(
                    "{}: replaced underneath on {}; what is there now is shown",
                    String::from_utf8_lossy(&path),
                    self.tier_name(tier)
                ));
                self.now_another(node, tier, &path, f);
                self.copies.forget(node);
                let backing = Backing { tier, fd, writable };
                return Ok(Some((backing, None, f)));
            }
            Err(e) if last => {
                // This is no error of the tier.
                if let Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE = e {
                    self.say(&format!(
                        "{}: taken away underneath on {}, or something else is there",
                        String::from_utf8_lossy(&path),
                        self.tier_name(tier)
                    ));
                    return Err(Errno::STALE);
                }
                return Err(self.device_error(tier, &path, e));
            }
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
