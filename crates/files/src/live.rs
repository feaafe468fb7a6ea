//! Files in use: each has one descriptor on its present tier, which all handles share and which is swapped under a lock when the file
//! moves.
//!
//! Readers and writers hold the lock shared during the system call, so no call ever uses a closed descriptor. The mover holds it
//! exclusively from the last comparison until the swap.

use crate::catalogue::NodeId;
use crate::copies::OpenCopy;
use crate::disk::{Root, facts_of};
use crate::store::Store;
use crate::tree::{Facts, Tier, Time};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

/// The present location of a file's data.
#[derive(Debug)]
pub struct Backing {
    /// Its tier.
    pub tier: Tier,
    /// The file there.
    pub fd: OwnedFd,
    /// Whether it can be written.
    pub writable: bool,
    /// Its copy on the fastest tier.
    pub copy: Option<OpenCopy>,
}

/// A file in use.
#[derive(Debug)]
pub struct Live {
    /// Its node.
    pub node: NodeId,
    /// Its location; `None` until it is opened.
    pub state: RwLock<Option<Backing>>,
    /// Number of changes so far. A change counts when it is done.
    pub changes: AtomicU64,
    users: AtomicU32,
    /// Whether it was read or changed, so that its attributes differ from those at open.
    used: AtomicBool,
    /// The kernel's handle, if it reads and writes the file itself.
    pub passthrough: Mutex<Option<Arc<fuser::BackingId>>>,
    /// After a move: the change time on the tier, and the one before the move. The latter is shown until the file is changed.
    shown: Mutex<Option<(Time, Time)>>,
    /// Whether there was such a handle: then all later handles must be of the same kind until the last one is closed.
    pub passed: AtomicBool,
    /// Held while a file with a copy is changed: two changes of the same bytes reach home and copy in the same order.
    pub(crate) update: Mutex<()>,
}

/// All files in use.
#[derive(Debug, Default)]
pub struct Lives(Mutex<HashMap<NodeId, Arc<Live>>>);

impl Lives {
    /// The file, if it is in use.
    pub fn get(&self, node: NodeId) -> Option<Arc<Live>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&node).cloned()
    }
    /// The number of files in use.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A read lock on the descriptor of a file in use.
pub struct Held<'a>(RwLockReadGuard<'a, Option<Backing>>);

impl Held<'_> {
    /// Its location.
    ///
    /// # Errors
    /// It could not be opened.
    pub fn backing(&self) -> Result<&Backing, Errno> {
        self.0.as_ref().ok_or(Errno::IO)
    }
    /// Its descriptor.
    ///
    /// # Errors
    /// It could not be opened.
    pub fn fd(&self) -> Result<&OwnedFd, Errno> {
        self.backing().map(|b| &b.fd)
    }
}

impl Live {
    fn new(node: NodeId) -> Live {
        Live {
            node,
            state: RwLock::new(None),
            changes: AtomicU64::new(0),
            users: AtomicU32::new(0),
            used: AtomicBool::new(false),
            passthrough: Mutex::new(None),
            shown: Mutex::new(None),
            passed: AtomicBool::new(false),
            update: Mutex::new(()),
        }
    }
    /// Locks the descriptor for one system call.
    pub fn hold(&self) -> Held<'_> {
        Held(self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
    /// Records a change; to be called while [`Held`] is held.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.touched();
    }
    /// Records a read or change: the attributes are read again at the last close.
    pub(crate) fn touched(&self) {
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
        Ok(self.as_shown(facts_of(&backing.fd)?))
    }
    fn as_shown(&self, mut facts: Facts) -> Facts {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, before)) = shown.filter(|s| s.0 == facts.ctime) {
            facts.ctime = before;
        }
        facts
    }
    /// The last names of the copy were corrected, which is not shown as a change.
    pub(crate) fn still_shown(&self) {
        let now = self.hold().fd().and_then(facts_of);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(shown), Ok(now)) = (&mut *shown, now) {
            shown.0 = now.ctime;
        }
    }
    /// As long as the change time is `now`, `before` is shown.
    pub(crate) fn show(&self, now: Time, before: Time) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = Some((now, before));
    }
}

impl Store {
    /// Begins to use a file and opens it unless it is open. Ends with [`Store::release`].
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn live(&self, node: NodeId) -> Result<Arc<Live>, Errno> {
        self.live_as_opened(node).map(|l| l.0)
    }
    /// As [`Store::live`], with the attributes if this call opened the file.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn live_as_opened(&self, node: NodeId) -> Result<(Arc<Live>, Option<Facts>), Errno> {
        let mut now = None;
        let live = {
            let mut all = self.lives.0.lock().unwrap_or_else(PoisonError::into_inner);
            let live = all.entry(node).or_insert_with(|| Arc::new(Live::new(node)));
            live.users.fetch_add(1, Ordering::SeqCst);
            Arc::clone(live)
        };
        for last in [false, false, true] {
            if live.hold().0.is_some() {
                return Ok((live, now));
            }
            // A rename may happen while the file is opened, unless names are locked, which comes before the descriptor.
            let names = last.then(|| self.names_or_wait());
            let mut state = live.state.write().unwrap_or_else(PoisonError::into_inner);
            if state.is_some() {
                break;
            }
            match self.open_backing(node, last) {
                Ok(None) => {}
                Ok(Some((b, facts))) => {
                    self.show_as_known(&live, &facts);
                    now = Some(live.as_shown(facts));
                    *state = Some(b);
                    break;
                }
                Err(e) => {
                    drop((state, names));
                    self.release(&live);
                    return Err(e);
                }
            }
        }
        if live.hold().0.is_some() {
            return Ok((live, now));
        }
        self.release(&live);
        Err(Errno::STALE)
    }
    /// Begins to use a file that was just created and is already open. Another thread that saw its name (the mover, another user) may have
    /// opened it first. Then all share that descriptor, because only that one follows the file when it moves.
    pub(crate) fn live_new(&self, node: NodeId, backing: Backing) -> Arc<Live> {
        let live = {
            let mut all = self.lives.0.lock().unwrap_or_else(PoisonError::into_inner);
            let live = all.entry(node).or_insert_with(|| Arc::new(Live::new(node)));
            live.users.fetch_add(1, Ordering::SeqCst);
            Arc::clone(live)
        };
        let mut state = live.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.is_none() {
            *state = Some(backing);
        }
        drop(state);
        live
    }
    /// Ends a use of a file. After the last use its attributes go to the catalogue.
    pub fn release(&self, live: &Arc<Live>) {
        let mut all = self.lives.0.lock().unwrap_or_else(PoisonError::into_inner);
        if live.users.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        // The number may belong to another file by now.
        if !all.get(&live.node).is_some_and(|l| Arc::ptr_eq(l, live)) {
            return;
        }
        all.remove(&live.node);
        let used = live.used.load(Ordering::SeqCst) || live.passed.load(Ordering::SeqCst);
        let facts = used.then(|| live.facts().ok()).flatten();
        if used && let Some(copy) = live.hold().0.as_ref().and_then(|b| b.copy.as_ref()) {
            self.close_copy(live.node, copy, facts);
        }
        if let Some(facts) = facts {
            self.seen(live.node, facts);
        }
    }
    /// If only the change time differs, the file was moved: the change time from before is shown again.
    fn show_as_known(&self, live: &Live, now: &Facts) {
        let known = self.cat().get(live.node).map(|n| n.facts);
        if let Some(known) = known
            && (known.id, known.size, known.mtime) == (now.id, now.size, now.mtime)
            && known.ctime < now.ctime
        {
            live.show(now.ctime, known.ctime);
        }
    }
    /// Stores the current attributes of a node.
    pub(crate) fn seen(&self, node: NodeId, facts: Facts) {
        let mut cat = self.cat_mut();
        let known = cat.get(node).filter(|n| n.facts.id == facts.id);
        let Some((tier, before, is_file)) = known.map(|n| (n.tier, n.facts.blocks, n.is_file()))
        else {
            return;
        };
        cat.set_facts(node, &facts);
        if is_file {
            let on = &self.bytes_on[usize::from(tier)];
            let _ = on.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |b| {
                Some((b + facts.blocks * 512).saturating_sub(before * 512))
            });
        }
    }
    /// Opens a file at its home. `None` if it is not there under its name: it may be renamed at this moment. With `last`, names are locked.
    fn open_backing(&self, node: NodeId, last: bool) -> Result<Option<(Backing, Facts)>, Errno> {
        let (path, tier, id) = {
            let cat = self.cat();
            let n = cat.get(node).ok_or(Errno::NOENT)?;
            (cat.path(node), n.tier, n.facts.id)
        };
        let Some(path) = path else {
            return Err(Errno::NOENT);
        };
        self.here(tier, &path)?;
        let root: &Root = &self.roots[usize::from(tier)];
        let opened = root.open_data(&path);
        let facts = opened.as_ref().ok().map(|o| facts_of(&o.0));
        match (opened, facts) {
            (Ok((fd, writable)), Some(Ok(f))) if f.id == id => {
                self.answers(tier);
                let backing = Backing {
                    copy: self.open_copy(node, &f),
                    tier,
                    fd,
                    writable,
                };
                return Ok(Some((backing, f)));
            }
            (Ok((fd, writable)), Some(Ok(f))) if last && f.mode & 0o170_000 == 0o100_000 => {
                self.say(&format!(
                    "{}: replaced underneath on {}; what is there now is shown",
                    String::from_utf8_lossy(&path),
                    self.tier_name(tier)
                ));
                self.cat_mut().replace(node, tier, f.id);
                self.seen(node, f);
                self.copies.forget(node);
                let backing = Backing {
                    tier,
                    fd,
                    writable,
                    copy: None,
                };
                return Ok(Some((backing, f)));
            }
            (Err(e), _) | (_, Some(Err(e))) if last => {
                if e == Errno::NOENT {
                    self.say(&format!(
                        "{}: taken away underneath on {}",
                        String::from_utf8_lossy(&path),
                        self.tier_name(tier)
                    ));
                    return Err(Errno::STALE);
                }
                let shown = self.noticed(tier, &path, e);
                if shown == e && e != Errno::IO {
                    self.does_not_answer(tier, &path, &e.to_string());
                }
                return Err(shown);
            }
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Maker;
    use crate::store::Settings;

    /// Names are locked before a descriptor, everywhere: who opens a file that is not where it should be waits for names, and holds nothing.
    #[test]
    fn an_open_that_waits_for_names_holds_no_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let tiers: Vec<_> = ["fast", "slow"].map(|t| dir.path().join(t)).into();
        for t in &tiers {
            std::fs::create_dir(t).unwrap();
        }
        let store = Store::open(&Settings {
            tiers,
            // The disk below may be as full as it likes.
            marks: (100, 100),
            ..Settings::default()
        })
        .unwrap();
        let (uid, gid) = (
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        );
        let maker = Maker { uid, gid, umask: 0 };
        let (node, live, _) = store.create(0, b"f", 0o600, maker).unwrap();
        store.release(&live);
        std::fs::remove_file(dir.path().join("fast/f")).unwrap();
        std::thread::scope(|scope| {
            let names = store.names().unwrap();
            let open = scope.spawn(|| store.live(node).map(|_| ()));
            let pause = || std::thread::sleep(std::time::Duration::from_millis(300));
            while store.lives.count() == 0 && !open.is_finished() {
                pause();
            }
            pause();
            let live = store.lives.get(node).unwrap();
            let free = live.state.try_read().is_ok();
            drop(names);
            assert_eq!(open.join().unwrap(), Err(Errno::STALE));
            assert!(free, "the descriptor is locked");
        });
        assert_eq!(store.lives.count(), 0);
    }

    /// The mover begins to use a file while another thread asks for its attributes: there is no descriptor yet.
    #[test]
    fn a_file_that_is_being_opened_has_attributes() {
        let dir = tempfile::tempdir().unwrap();
        let tiers: Vec<_> = ["fast", "slow"].map(|t| dir.path().join(t)).into();
        for t in &tiers {
            std::fs::create_dir(t).unwrap();
        }
        let store = Store::open(&Settings {
            tiers,
            ..Settings::default()
        })
        .unwrap();
        let (uid, gid) = (
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        );
        let maker = Maker { uid, gid, umask: 0 };
        let (node, live, _) = store.create(0, b"f", 0o600, maker).unwrap();
        store.release(&live);
        let half = Arc::new(Live::new(node));
        store.lives.0.lock().unwrap().insert(node, half);
        assert_eq!(store.facts(node).map(|f| f.mode & 0o7777), Ok(0o600));
    }
}
