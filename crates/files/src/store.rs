//! The tiers as one namespace: mounting, and what all operations share.
//!
//! Locks, in the order in which they are taken: names (held over every change of names and attributes, system calls included), files in
//! use, one file's descriptor, the catalogue (never held over a system call). So look-ups and listings wait for no device.

use crate::catalogue::{Catalogue, NodeId};
use crate::disk::{Disk, Root};
use crate::health::Health;
use crate::intent::{Op, Recovered, Redo, dirs_of, encode, recover};
use crate::live::Lives;
use crate::placement::Placement;
use crate::tree::{At, Facts, INTENTS, Tier, Tree, join};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Free space is looked at anew after so long.
const ROOM_AGE: Duration = Duration::from_millis(500);

/// Holds names and attributes still.
#[derive(Debug, Default)]
pub struct NamesState {
    /// For hidden names that are used once.
    pub number: u64,
}

/// What is served.
pub struct Store {
    /// The tiers' directories, fastest first.
    pub roots: Arc<Vec<Root>>,
    cat: RwLock<Catalogue>,
    names: Mutex<NamesState>,
    pub(crate) lives: Lives,
    /// Who decides what lies where.
    pub placement: Placement,
    rooms: Mutex<Vec<(u64, u64, Option<Instant>)>>,
    /// A device failed so that names may not change any more.
    stuck: AtomicBool,
    /// Lines for whoever runs this, the newest last.
    pub said: Mutex<Vec<String>>,
    /// Quotas, bytes of files a tier may hold.
    pub quotas: Vec<Option<u64>>,
    /// Per cent of a tier that is full when it spills, and to which it is emptied.
    pub marks: (u8, u8),
    /// What recovery found.
    pub recovered: Recovered,
    /// The way to the kernel's caches, once mounted.
    pub notifier: std::sync::OnceLock<fuser::Notifier>,
    /// Bytes of files on each tier.
    pub bytes_on: Vec<AtomicU64>,
    /// Times that names were held to change them.
    pub(crate) names_changed: AtomicU64,
    /// How each tier answers.
    pub(crate) health: Vec<Health>,
    _locks: Vec<rustix::fd::OwnedFd>,
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directories, fastest first.
    pub tiers: Vec<PathBuf>,
    /// A preset of the core and its parameters.
    pub policy: String,
    /// Per cent: above the second a tier spills, down to the first.
    pub marks: (u8, u8),
    /// Bytes of files on a tier at most.
    pub quotas: Vec<Option<u64>>,
    /// Files that belong on a tier whatever the policy thinks.
    pub rules: Vec<crate::rules::Rule>,
    /// Let files move by themselves.
    pub moves: bool,
    /// Serve also where a tier but the fastest is missing.
    pub degraded: bool,
    /// Take the directories for the tiers from now on, also if they are others than the last time.
    pub accept: bool,
    /// For tests: move every file to another tier at random, without end, by this seed.
    pub chaos: Option<u64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            tiers: Vec::new(),
            policy: crate::placement::DEFAULT.into(),
            marks: (80, 90),
            quotas: Vec::new(),
            rules: Vec::new(),
            moves: true,
            degraded: false,
            accept: false,
            chaos: None,
        }
    }
}

/// Why tiers cannot be served, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// A refusal in words.
pub(crate) fn refuse<T>(text: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(text.into()))
}

impl Store {
    /// Open the tiers: lock them, finish what a crash left, read all names.
    ///
    /// # Errors
    /// In words: a tier is missing, served already, in another; names clash; a device fails.
    pub fn open(settings: &Settings) -> Result<Store, Refused> {
        let (roots, locks) = crate::tiers::open(settings)?;
        let roots = Arc::new(roots);
        crate::identity::agree(&roots, settings.accept)?;
        let recovered = recover(&mut Disk::new(Arc::clone(&roots))).map_err(|e| {
            let missing = "a tier that it needs is missing: mount with all tiers";
            let why = if e == Errno::NODEV {
                missing.into()
            } else {
                e.to_string()
            };
            Refused(format!("cannot finish what a crash left half done: {why}"))
        })?;
        let mut cat = crate::scan::scan(&roots)?;
        let absent = (1..roots.len()).filter(|t| roots[*t].absent);
        let missing: Vec<String> = absent
            .map(|t| crate::saved::load(&roots, t as Tier, &mut cat))
            .collect();
        let bytes_on: Vec<AtomicU64> = roots.iter().map(|_| AtomicU64::new(0)).collect();
        for (_, n) in cat.all().filter(|n| n.1.is_file()) {
            bytes_on[usize::from(n.tier)].fetch_add(n.facts.blocks * 512, Ordering::Relaxed);
        }
        let mut quotas = settings.quotas.clone();
        quotas.resize(roots.len(), None);
        let rooms = Mutex::new(vec![(0, 0, None); roots.len()]);
        let store = Store {
            placement: Placement::new(settings, &roots, &cat, &quotas)?,
            cat: RwLock::new(cat),
            names: Mutex::default(),
            lives: Lives::default(),
            rooms,
            stuck: AtomicBool::new(false),
            said: Mutex::default(),
            quotas,
            marks: settings.marks,
            recovered,
            notifier: std::sync::OnceLock::new(),
            bytes_on,
            names_changed: AtomicU64::new(0),
            health: roots.iter().map(|_| Health::default()).collect(),
            roots,
            _locks: locks,
        };
        for line in missing {
            store.say(&line);
        }
        Ok(store)
    }
    /// The catalogue, to look at.
    pub fn cat(&self) -> RwLockReadGuard<'_, Catalogue> {
        self.cat.read().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn cat_mut(&self) -> RwLockWriteGuard<'_, Catalogue> {
        self.cat.write().unwrap_or_else(PoisonError::into_inner)
    }
    /// Hold all names still.
    ///
    /// # Errors
    /// They must not change any more, since a device failed.
    pub fn names(&self) -> Result<MutexGuard<'_, NamesState>, Errno> {
        if self.stuck.load(Ordering::SeqCst) {
            return Err(Errno::IO);
        }
        self.names_changed.fetch_add(1, Ordering::Relaxed);
        Ok(self.names_or_wait())
    }
    pub(crate) fn names_or_wait(&self) -> MutexGuard<'_, NamesState> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// No name may change until the next mount recovers.
    pub(crate) fn stick(&self, why: &str) {
        self.stuck.store(true, Ordering::SeqCst);
        self.say(&format!(
            "{why}: no name can be changed until this file system is mounted again"
        ));
    }
    /// Did a device fail so that names may not change?
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::SeqCst)
    }
    /// A line for whoever runs this; the last hundred are in `status`.
    pub fn say(&self, line: &str) {
        tracing::warn!("{line}");
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= 100 {
            said.remove(0);
        }
        said.push(line.to_owned());
    }
    /// A tier in words.
    pub fn tier_name(&self, tier: Tier) -> String {
        self.roots
            .get(usize::from(tier))
            .map_or_else(String::new, |r| r.path.display().to_string())
    }
    /// Bytes free and in all on a tier; at most half a second old.
    pub fn room(&self, tier: Tier) -> (u64, u64) {
        let at = usize::from(tier);
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut free, mut all, when) = rooms[at];
        if when.is_none_or(|w| w.elapsed() >= ROOM_AGE) {
            (free, all) = self.roots[at].room().unwrap_or((0, 0));
            rooms[at] = (free, all, Some(Instant::now()));
        }
        if let Some(quota) = self.quotas[at] {
            all = all.min(quota);
            free = free.min(quota.saturating_sub(self.bytes_on[at].load(Ordering::Relaxed)));
        }
        (free, all)
    }
    /// Look at the room anew.
    pub(crate) fn room_changed(&self, tier: Tier) {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms[usize::from(tier)].2 = None;
    }
    /// Is a tier above its upper mark?
    pub fn is_full(&self, tier: Tier) -> bool {
        let (free, all) = self.room(tier);
        u128::from(free) * 100 < u128::from(all) * u128::from(100 - self.marks.1.min(100))
    }
    /// Where a new file begins: on the fastest tier that is not above its mark, from `first` on; the slowest if all are.
    pub(crate) fn tier_for_new(&self, first: Tier) -> Tier {
        let last = self.roots.len() as Tier - 1;
        let last = (0..=last).rfind(|t| self.is_well(*t)).unwrap_or(0);
        (first..last)
            .find(|&t| self.is_well(t) && !self.is_full(t))
            .unwrap_or(last)
    }
    /// The file system's attributes of a node as they are now.
    ///
    /// # Errors
    /// There is no such node, or the device's.
    pub fn facts(&self, node: NodeId) -> Result<Facts, Errno> {
        let (known, is_file) = {
            let cat = self.cat();
            let n = cat.get(node).ok_or(Errno::NOENT)?;
            (n.facts, n.is_file())
        };
        if is_file && let Some(live) = self.lives.get(node) {
            // While another thread is still opening it, what is known is right.
            if let Ok(backing) = live.hold().backing() {
                return Ok(Facts {
                    nlink: known.nlink,
                    ..live.facts_of(backing)?
                });
            }
        }
        Ok(known)
    }
    /// Several steps as one, whatever happens meanwhile: an intent first, then the steps, then all of it durable. Names are held still by
    /// the caller.
    pub(crate) fn together(&self, names: &mut NamesState, ops: &[Op]) -> Result<(), Errno> {
        let mut disk = Disk::new(Arc::clone(&self.roots));
        names.number += 1;
        let intent = At::new(0, join(INTENTS, format!("n{}", names.number).as_bytes()));
        let dirs = At::new(0, INTENTS);
        // A slower tier that has died is found out before anything is half done: names could not change any more until the next mount.
        for dir in dirs_of(ops).iter().filter(|d| d.tier > 0) {
            disk.sync_dir(dir)
                .map_err(|e| self.noticed(dir.tier, &dir.path, e))?;
        }
        let written = disk
            .write(&intent, &encode(ops))
            .and_then(|()| disk.sync_file(&intent))
            .and_then(|()| disk.sync_dir(&dirs));
        if let Err(e) = written {
            let gone = disk.unlink(&intent).and_then(|()| disk.sync_dir(&dirs));
            if gone.is_err_and(|e| e != Errno::NOENT) {
                self.stick("an intent could not be taken back");
            }
            return Err(e);
        }
        let mut done = Ok(());
        for (i, op) in ops.iter().enumerate() {
            match op.redo(&mut disk) {
                Ok(Redo::Neither) if i == 0 => done = Err(Errno::STALE),
                Err(e) => {
                    if i > 0 {
                        self.stick("a change over several tiers is half done");
                        return Err(e);
                    }
                    done = Err(e);
                }
                Ok(_) => {}
            }
            if done.is_err() {
                break;
            }
        }
        if done.is_ok() {
            for dir in dirs_of(ops) {
                if let Err(e) = disk.sync_dir(&dir) {
                    self.stick("a directory could not be synced");
                    return Err(e);
                }
            }
        }
        let gone = disk.unlink(&intent).and_then(|()| disk.sync_dir(&dirs));
        if let Err(e) = gone {
            self.stick("an intent could not be taken away");
            return Err(e);
        }
        done
    }
    /// The kernel asks anew for a node's attributes.
    pub(crate) fn tell_kernel(&self, node: NodeId) {
        if let Some(n) = self.notifier.get() {
            // Not known to the kernel is as good.
            let _ = n.inval_inode(fuser::INodeNo(u64::from(node) + 1), -1, 0);
        }
    }
    /// A name came up that the kernel may remember as absent. It holds the directory while it waits for us, so another thread says it.
    pub(crate) fn tell_kernel_of_name(&self, dir: NodeId, name: &[u8]) {
        use std::os::unix::ffi::OsStringExt;
        if let Some(n) = self.notifier.get().cloned() {
            let name = std::ffi::OsString::from_vec(name.to_vec());
            let tell = move || {
                let _ = n.inval_entry(fuser::INodeNo(u64::from(dir) + 1), &name);
            };
            // Without a thread the kernel finds out when its hour is over.
            let _ = std::thread::Builder::new().spawn(tell);
        }
    }
    /// A number for a hidden name.
    pub(crate) fn number(&self) -> u64 {
        let mut names = self.names_or_wait();
        names.number += 1;
        names.number
    }
    /// Is the path inside of a tier?
    pub fn is_inside(&self, path: &Path) -> bool {
        let mut roots = self.roots.iter();
        roots.any(|r| path.starts_with(&r.path) || r.path.starts_with(path))
    }
}
