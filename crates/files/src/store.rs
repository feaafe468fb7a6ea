//! The tiers as one namespace: mounting, and the state that all operations share.
//!
//! The locks, in the order in which they are taken: claims (`claims.rs`: what a change of names and attributes uses, held during its system
//! calls), files in use, the descriptor of one file, the catalogue (never held during a system call). So lookups and listings wait for no
//! device, and a change waits for another only if both use the same file or name.

use crate::catalogue::{Catalogue, NodeId};
use crate::claims::Claims;
use crate::copies::Copies;
use crate::disk::{Disk, Root};
use crate::intent::{Op, Recovered, Redo, dirs_of, encode, recover_but};
use crate::lasting::Lasting;
use crate::live::{Backing, Live, Lives, Look};
use crate::placement::Placement;
use crate::recording::Recording;
pub use crate::settings::{Refused, Settings};
use crate::sync::{read_lock, write_lock};
use crate::tiers::{Kind, Tiers};
use crate::tree::{At, Facts, INTENTS, Tier, Tree, join};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A store of files on several tiers.
pub struct Store {
    cat: RwLock<Catalogue>,
    /// What changes of names and attributes use now.
    pub(crate) claims: Claims,
    /// The number in the last hidden name. Each number is used once.
    numbers: AtomicU64,
    pub(crate) lives: Lives,
    /// Gives out the inode numbers that users see.
    pub(crate) lasting: Arc<Lasting>,
    /// Decides the tier of each file.
    pub placement: Placement,
    /// Held while pins or policies change.
    pub(crate) changing_settings: Mutex<()>,
    /// Whether a device failed such that names may not change any more.
    stuck: AtomicBool,
    /// The result of recovery.
    pub recovered: Recovered,
    /// The path of reads and writes, once mounted.
    pub io: std::sync::OnceLock<crate::settings::Io>,
    /// Access to the kernel's caches, once mounted.
    pub notifier: std::sync::OnceLock<fuser::Notifier>,
    /// Copies of files of slower tiers on the fastest.
    pub copies: Copies,
    /// Records operations for the lab.
    pub recording: Recording,
    /// The last check.
    pub(crate) checks: crate::check::Checks,
    pub(crate) tiers: Tiers,
}

impl std::ops::Deref for Store {
    type Target = Tiers;
    fn deref(&self) -> &Tiers {
        &self.tiers
    }
}

/// Finishes what a crash left half done; the copies with these numbers stay.
fn recover(roots: &Arc<Vec<Root>>, copies: &[u64]) -> Result<Recovered, Refused> {
    let mut disk = Disk::new(Arc::clone(roots));
    recover_but(&mut disk, copies).map_err(|e| {
        let missing = "a disk that it needs is missing: mount with all disks";
        let why = if e == Errno::NODEV {
            missing.into()
        } else {
            e.to_string()
        };
        Refused(format!("cannot finish what a crash left half done: {why}"))
    })
}

impl Store {
    /// Opens the tiers: locks them, finishes what a crash left, and reads all names.
    ///
    /// # Errors
    /// A message in words: a tier is absent, already served, or within another tier; names clash; a device fails.
    pub fn open(settings: &Settings) -> Result<Store, Refused> {
        let (roots, locks) = crate::tiers::open(settings)?;
        let arranged = crate::identity::arrange(roots, settings)?;
        let (roots, ids) = (Arc::new(arranged.roots), arranged.ids);
        let mut kept = crate::kept::take(&roots[0]);
        kept.retain(|k| match k.head {
            // Shorter ones are made anew when they are read.
            Some(held) => (1..=held).contains(&settings.heads.bytes),
            None => settings.copies,
        });
        let numbers: Vec<u64> = kept.iter().map(|k| k.number).collect();
        let recovered = recover(&roots, &numbers)?;
        let (lasting, table) = Lasting::open(&roots[0], &ids);
        let (mut cat, further) = crate::scan::scan(&roots, &table)?;
        let absent = (1..roots.len()).filter(|t| roots[*t].absent);
        let missing: Vec<String> = absent
            .map(|t| crate::saved::load(&roots, t as Tier, &mut cat))
            .collect();
        let numbered = lasting.settle(&roots, &table, &mut cat, &further);
        drop((table, further));
        let tiers = Tiers::new(settings, roots, locks, &cat);
        let store = Store {
            placement: Placement::new(settings, &tiers, &cat)?,
            cat: RwLock::new(cat),
            claims: Claims::default(),
            numbers: AtomicU64::new(0),
            lives: Lives::default(),
            lasting: Arc::new(lasting),
            changing_settings: Mutex::default(),
            stuck: AtomicBool::new(false),
            recovered,
            io: std::sync::OnceLock::new(),
            notifier: std::sync::OnceLock::new(),
            recording: Recording::default(),
            copies: Copies::new(settings, tiers.copied()),
            checks: crate::check::Checks::default(),
            tiers,
        };
        let no_room = arranged.no_room;
        for line in missing.into_iter().chain(no_room).chain(numbered) {
            store.say(&line);
        }
        // Until they are saved, the names of a disk that goes missing are not known.
        if arranged.changed
            && let Err(e) = store.save_names()
        {
            store.say_unsaved(e);
        }
        store.adopt_copies(&kept);
        Ok(store)
    }
    /// The catalogue, locked for reading.
    pub fn cat(&self) -> RwLockReadGuard<'_, Catalogue> {
        read_lock(&self.cat)
    }
    pub(crate) fn cat_mut(&self) -> RwLockWriteGuard<'_, Catalogue> {
        write_lock(&self.cat)
    }
    /// From now on no name may change until the next mount recovers.
    pub(crate) fn mark_stuck(&self, why: &str) {
        self.stuck.store(true, Ordering::SeqCst);
        self.say(&format!(
            "{why}: no name can be changed until this file system is mounted again"
        ));
    }
    /// Whether a device failed such that names may not change.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::SeqCst)
    }
    /// The current attributes of a node.
    ///
    /// # Errors
    /// There is no such node, or a device error.
    pub fn facts(&self, node: NodeId) -> Result<Facts, Errno> {
        let (known, is_file) = {
            let cat = self.cat();
            let n = cat.get(node).ok_or(Errno::NOENT)?;
            (n.facts, n.is_file())
        };
        if is_file && let Some(live) = self.lives.get(node) {
            let now = match live.look() {
                Look::Held(held) => match held.backing() {
                    Ok(backing) => self.facts_at(&live, backing)?,
                    Err(_) => known,
                },
                Look::Frozen(facts) => facts,
                // The known attributes are right.
                Look::Opening => known,
            };
            return Ok(Facts {
                nlink: known.nlink,
                ..now
            });
        }
        Ok(known)
    }
    /// The attributes of a file in use. If the server of its tier does not answer, they are those that the kernel knows.
    fn facts_at(&self, live: &Live, backing: &Backing) -> Result<Facts, Errno> {
        if self.would_wait(backing.tier) {
            // Times can be older than the last write, so the kernel must not keep what it gets now.
            self.tell_kernel(live.node);
            return live.cached_facts_of(backing);
        }
        let local = self.root(backing.tier).local;
        let _wait = (!local).then(|| self.waits_for(backing.tier, live.node, Kind::Attributes));
        live.facts_of(backing)
    }
    /// Carries out several steps atomically, even across a crash: an intent first, then the steps, then all of it is made durable. The
    /// caller has claimed all names in them. So intents of several changes at the same time have nothing in common.
    pub(crate) fn together(&self, ops: &[Op]) -> Result<(), Errno> {
        let mut disk = Disk::new(Arc::clone(&self.roots));
        let name = format!("n{}", self.number());
        let intent = At::new(0, join(INTENTS, name.as_bytes()));
        let dirs = At::new(0, INTENTS);
        // A slower tier whose device has failed must be found out before the first step: after a failure between two steps, no name could
        // change until the next mount.
        for dir in dirs_of(ops).iter().filter(|d| d.tier > 0) {
            disk.prove_writable(dir.tier)
                .and_then(|()| disk.sync_dir(dir))
                .map_err(|e| self.device_error(dir.tier, &dir.path, e))?;
        }
        // For the same reason, a name that cannot be removed or renamed must be found out now.
        for op in ops {
            if let Op::Exchange(_, at, _) = op
                && !self.root(at.tier).can_exchange()
            {
                return Err(Errno::INVAL);
            }
            let replaced = match op {
                Op::Rename(_, at, to) | Op::Exchange(_, at, to) => Some(At::new(at.tier, &to[..])),
                Op::Link(..) | Op::Unlink(..) => None,
            };
            for at in [op.at().clone()].into_iter().chain(replaced) {
                if !disk.may_remove(&at)? {
                    return Err(Errno::PERM);
                }
            }
        }
        let written = disk
            .write(&intent, &encode(ops))
            .and_then(|()| disk.sync_file(&intent))
            .and_then(|()| disk.sync_dir(&dirs));
        if let Err(e) = written {
            let gone = disk.unlink(&intent).and_then(|()| disk.sync_dir(&dirs));
            if gone.is_err_and(|e| e != Errno::NOENT) {
                self.mark_stuck("an intent could not be taken back");
            }
            return Err(e);
        }
        let mut done = Ok(());
        for (i, op) in ops.iter().enumerate() {
            match op.redo(&mut disk) {
                Ok(Redo::Neither) if i == 0 => done = Err(Errno::STALE),
                Err(e) => {
                    if i > 0 {
                        self.mark_stuck("a change over several disks is half done");
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
                    self.mark_stuck("a directory could not be synced");
                    return Err(e);
                }
            }
        }
        let gone = disk.unlink(&intent).and_then(|()| disk.sync_dir(&dirs));
        if let Err(e) = gone {
            self.mark_stuck("an intent could not be taken away");
            return Err(e);
        }
        done
    }
    /// Tells the kernel to read a node's attributes again.
    pub(crate) fn tell_kernel(&self, node: NodeId) {
        if let Some(n) = self.notifier.get() {
            // If the kernel does not know the node, nothing is to be done.
            let _ = n.inval_inode(fuser::INodeNo(node + 1), -1, 0);
        }
    }
    /// Tells the kernel to drop the cached contents of a file. This call waits for reads and writes of the file that the kernel has begun,
    /// and they may be waiting for an answer of this thread. So another thread makes the call.
    pub(crate) fn tell_kernel_of_data(&self, node: NodeId) {
        if let Some(n) = self.notifier.get().cloned() {
            let tell = move || {
                let _ = n.inval_inode(fuser::INodeNo(node + 1), 0, 0);
            };
            // If no thread can be started, the kernel drops them at the next open.
            let _ = std::thread::Builder::new().spawn(tell);
        }
    }
    /// Tells the kernel about a new name that it may have cached as absent. The kernel locks the directory while it waits for an answer of
    /// this thread, so another thread makes the call.
    pub(crate) fn tell_kernel_of_name(&self, dir: NodeId, name: &[u8]) {
        use std::os::unix::ffi::OsStringExt;
        if let Some(n) = self.notifier.get().cloned() {
            let name = std::ffi::OsString::from_vec(name.to_vec());
            let tell = move || {
                let _ = n.inval_entry(fuser::INodeNo(dir + 1), &name);
            };
            // If no thread can be started, the kernel notices when its cache expires after an hour.
            let _ = std::thread::Builder::new().spawn(tell);
        }
    }
    /// As [`Tiers::device_error`], for a file in use.
    pub(crate) fn device_error_of(&self, tier: Tier, node: NodeId, e: Errno) -> Errno {
        if !Tiers::is_reported(e) {
            return e;
        }
        let path = self.cat().path(node).unwrap_or_default();
        self.device_error(tier, &path, e)
    }
    /// Records that a process opened a file. This is done only for tiers whose disks may sleep, that is, all but the fastest.
    pub(crate) fn used_by(&self, node: NodeId, pid: u32) {
        let at = {
            let cat = self.cat();
            let n = cat.get(node).filter(|n| n.tier > 0);
            n.and_then(|n| Some((n.tier, cat.path(node)?)))
        };
        let Some((tier, path)) = at else { return };
        self.tiers.used_by(tier, path, pid);
    }
    /// A number for a hidden name.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }
    /// All later numbers for hidden names are higher than this one.
    pub(crate) fn number_used(&self, number: u64) {
        self.numbers.fetch_max(number, Ordering::Relaxed);
    }
}

/// A store over two empty tiers, and the one file `f` in it, which is in use, for tests of this crate.
#[cfg(test)]
pub(crate) fn with_a_file(dir: &std::path::Path) -> (Store, NodeId, Arc<crate::live::Live>) {
    let tiers: Vec<_> = ["fast", "slow"].map(|t| dir.join(t)).into();
    for t in &tiers {
        std::fs::create_dir(t).unwrap();
    }
    let store = Store::open(&Settings {
        tiers,
        // The result must not depend on how full the disk below is.
        marks: (100, 100),
        ..Settings::default()
    })
    .unwrap();
    let creator = crate::names::Creator {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        umask: 0,
    };
    let (node, live, _) = store.create(0, b"f", 0o600, creator).unwrap();
    (store, node, live)
}
