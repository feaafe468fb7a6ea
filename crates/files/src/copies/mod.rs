//! Which bytes are trustworthy where: the file at its home always, and its copy on the fastest tier as long as its entry in the table here
//! has the version ([`Version`]) that the home has.
//!
//! A copy holds bytes of a file and nothing else: all of them (`--copies`, for policies that keep copies), or the first ones (a *head*, see
//! `heads.rs`). Reads use it; every change goes to the file at its home first, and then to the copy (write-through-update). If either of the
//! two fails, or a change cannot be repeated on the copy, or the copy is a head, the copy is dropped. Names, attributes and syncs are the
//! home's alone, so a copy does not know that its file was renamed or has several names.
//!
//! | before this | the home's version comes from | if it differs from the entry's |
//! |---|---|---|
//! | the home was opened (`open`) | its descriptor | the copy is dropped |
//! | only the copy is opened (`open_alone`) | the catalogue, if the kernel has not the home in memory | the home is opened |
//! | the last user closes the file (`closed`) | the home's descriptor | the copy is dropped |
//! | the mount takes over the copies of the last one (`kept.rs`) | the names that were read from the tier | the copy is removed |
//!
//! Copies outlive a clean unmount (`kept.rs`). A mount removes all others (`intent::recover`). So a copy that is wrong because of a crash,
//! or because somebody changed the tiers in the meantime, is never read.
//!
//! An entry, the descriptor of an open copy and what both say of the file are shared, so that a copy is dropped without a lock on its file:
//! that may be held by a call on a tier that does not answer. The lock of the descriptor is held for calls on the fastest tier only.

pub mod heads;
mod kept;
pub mod ranges;

use crate::catalogue::NodeId;
use crate::disk::{Root, facts_of};
use crate::mutants::{Mutant, broken};
use crate::settings::Settings;
use crate::sync::{lock, read_lock, write_lock};
use crate::tiers::Tiers;
use crate::tree::{Facts, Tier, Version, copy_at};
use heads::Heads;
pub(crate) use kept::{KeptCopy, take};
use ranges::{Change, Ranges};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, Weak};

/// Bytes of copies to drop when the fastest tier is full while something is made or written there.
pub(crate) const EVICT_BYTES: u64 = 16 << 20;

/// The copy of a file: an entry of the table.
#[derive(Debug)]
pub(crate) struct Copied {
    number: u64,
    bytes: u64,
    /// How many bytes of the file it holds, from the first on; `None`: all of them.
    head: Option<u64>,
    /// The version of the file at home when the copy was made or last changed. Only changes that this program makes to both update it, so a
    /// change that somebody made directly on the tier is always noticed.
    home: Mutex<Version>,
    /// Whether it must not be read any more.
    dropped: AtomicBool,
    /// The descriptor, while the file is in use.
    open: Mutex<Weak<OpenCopy>>,
}

impl Copied {
    pub(crate) fn new(number: u64, bytes: u64, home: Version, head: Option<u64>) -> Arc<Copied> {
        Arc::new(Copied {
            number,
            bytes,
            head,
            home: Mutex::new(home),
            dropped: AtomicBool::new(false),
            open: Mutex::default(),
        })
    }
    /// The order in which copies are dropped for space: whole ones first, and of each kind the oldest first.
    fn order(&self) -> (bool, u64) {
        (self.head.is_some(), self.number)
    }
    /// How many bytes of the file it holds, from the first on: `u64::MAX` for all of them.
    fn held(&self) -> u64 {
        self.head.unwrap_or(u64::MAX)
    }
    /// Whether the file with these attributes at home is what was copied.
    fn matches(&self, home: &Facts) -> bool {
        *lock(&self.home) == home.version() || broken(Mutant::TrustChangedHome)
    }
    /// The copy is open with this descriptor.
    pub(crate) fn opened(self: &Arc<Self>, fd: OwnedFd) -> Arc<OpenCopy> {
        let open = Arc::new(OpenCopy {
            fd: RwLock::new(Some(fd)),
            of: Arc::clone(self),
        });
        *lock(&self.open) = Arc::downgrade(&open);
        open
    }
    /// From now on nobody reads it, and its descriptor is closed.
    fn drop_now(&self) {
        self.dropped.store(true, Ordering::SeqCst);
        let open = lock(&self.open).upgrade();
        if let Some(open) = open {
            *write_lock(&open.fd) = None;
        }
    }
}

/// The open copy of a file in use.
#[derive(Debug)]
pub struct OpenCopy {
    /// `None` once the copy is dropped.
    fd: RwLock<Option<OwnedFd>>,
    of: Arc<Copied>,
}

impl OpenCopy {
    /// Whether it holds all bytes of the file from `offset` on, at most `len`.
    pub(crate) fn covers(&self, offset: u64, len: u64) -> bool {
        let Some(head) = self.of.head else {
            return true;
        };
        let inside = offset.saturating_add(len) <= head || broken(Mutant::ReadBeyondHead);
        inside || lock(&self.of.home).size <= head
    }
    /// Whether it is equal to the file at home.
    pub(crate) fn is_valid(&self) -> bool {
        !self.of.dropped.load(Ordering::SeqCst)
    }
    /// Carries out a call on the copy.
    ///
    /// # Errors
    /// Those of the call; `ESTALE`: the copy was dropped.
    pub(crate) fn with<T>(
        &self,
        call: impl FnOnce(&OwnedFd) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        call(read_lock(&self.fd).as_ref().ok_or(Errno::STALE)?)
    }
    /// Called after a user set the times of the file, which changed its attributes at home from `before` to `now`. The copy is still equal to
    /// the file.
    pub(crate) fn times_set(&self, before: &Facts, now: &Facts) {
        let mut home = lock(&self.of.home);
        if *home == before.version() {
            *home = now.version();
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    of: BTreeMap<NodeId, Arc<Copied>>,
    /// The files in the order in which their copies are dropped for space.
    order: BTreeMap<(bool, u64), NodeId>,
    /// Numbers of copies that are no longer used but still have to be removed from the tier.
    unused: Vec<u64>,
}

/// All copies, and figures.
#[derive(Debug, Default)]
pub struct Copies {
    /// Whether whole copies are made, for policies that want them.
    pub on: bool,
    /// Heads of files.
    pub heads: Heads,
    /// Ranges of large files.
    pub ranges: Ranges,
    table: Mutex<Table>,
    /// Bytes of all copies; the size of each is its size when it was made.
    pub bytes: Arc<AtomicU64>,
    /// Number of copies that were made.
    pub made: AtomicU64,
    /// Number of copies that were dropped.
    pub dropped: AtomicU64,
    /// Number of reads from a copy.
    pub reads: AtomicU64,
    /// Bit *t* is set if this mount made a copy of a file on tier *t*, or changed a file there together with its copy.
    sources: AtomicU16,
}

impl Copies {
    /// No copies yet. `bytes` counts what they will take.
    pub(crate) fn new(settings: &Settings, bytes: Arc<AtomicU64>) -> Copies {
        Copies {
            on: settings.copies,
            heads: Heads::new(settings.heads),
            ranges: Ranges::new(settings, Arc::clone(&bytes)),
            bytes,
            ..Copies::default()
        }
    }
    /// Whether there can be copies of any kind.
    pub(crate) fn any_on(&self) -> bool {
        self.on || self.heads.bytes > 0
    }
    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
    fn entry(&self, node: NodeId) -> Option<Arc<Copied>> {
        self.any_on()
            .then(|| self.table().of.get(&node).cloned())
            .flatten()
    }
    /// Whether a file has a whole copy.
    pub fn has(&self, node: NodeId) -> bool {
        self.on && self.held(node) == Some(u64::MAX)
    }
    /// Whether a file has a head.
    pub fn has_head(&self, node: NodeId) -> bool {
        self.held(node).is_some_and(|bytes| bytes < u64::MAX)
    }
    /// How many bytes the copy of a file holds, from the first on: `u64::MAX` for a whole copy, `None` if there is no copy.
    pub(crate) fn held(&self, node: NodeId) -> Option<u64> {
        self.entry(node).map(|c| c.held())
    }
    /// The number of files that have a whole copy.
    pub fn count(&self) -> usize {
        self.table().of.len() - self.heads.files.load(Ordering::Relaxed)
    }
    /// The tier from which reads of a file are served: the fastest if it has a copy there.
    pub(crate) fn served_from(&self, node: NodeId, tier: Tier) -> Tier {
        if self.has(node) { 0 } else { tier }
    }
    /// The file gets no copy from the table any more; who has the copy open may go on reading it. The next [`Copies::sweep`] removes it from
    /// the tier; this function makes no system call.
    pub(crate) fn forget(&self, node: NodeId) -> Option<Arc<Copied>> {
        if !self.any_on() {
            return None;
        }
        let mut table = self.table();
        let gone = table.of.remove(&node)?;
        self.gone(&mut table, &gone);
        Some(gone)
    }
    fn gone(&self, table: &mut Table, gone: &Copied) {
        table.order.remove(&gone.order());
        table.unused.push(gone.number);
        self.bytes.fetch_sub(gone.bytes, Ordering::Relaxed);
        if gone.head.is_some() {
            self.heads.count(-1, gone.bytes);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn keep(&self, node: NodeId, copied: Arc<Copied>) {
        let mut table = self.table();
        table.order.insert(copied.order(), node);
        self.bytes.fetch_add(copied.bytes, Ordering::Relaxed);
        if copied.head.is_some() {
            self.heads.count(1, copied.bytes);
        }
        // A whole copy replaces a head.
        if let Some(before) = table.of.insert(node, copied) {
            self.gone(&mut table, &before);
        }
    }
    /// A copy was made now of a file on that tier.
    pub(crate) fn made(&self, node: NodeId, copied: Arc<Copied>, from: Tier) {
        let made = match copied.head {
            None => &self.made,
            Some(_) => &self.heads.made,
        };
        made.fetch_add(1, Ordering::Relaxed);
        self.keep(node, copied);
        self.sources.fetch_or(1 << from, Ordering::SeqCst);
    }
    /// The first file whose copy is dropped for space, or the first whose head is.
    pub(crate) fn oldest(&self, head: bool) -> Option<NodeId> {
        let table = self.table();
        let mut from = table.order.range((head, 0)..);
        from.next().map(|o| *o.1)
    }
    /// The copy of a file that is being opened and has these attributes at home, if there is one and nobody changed the file at home since
    /// it was made. A copy that does not match is dropped.
    pub(crate) fn open(&self, tiers: &Tiers, node: NodeId, now: &Facts) -> Option<Arc<OpenCopy>> {
        let copied = self.entry(node)?;
        let open = copied
            .matches(now)
            .then(|| open_copied(&copied, tiers.root(0), now))
            .flatten();
        if open.is_none() {
            self.forget(node);
            self.sweep(tiers);
        }
        open
    }
    /// The copy of a file with these attributes according to the catalogue, if it may be read while the file at home stays closed, so that a
    /// sleeping disk is not woken. A copy that does not match is left alone.
    ///
    /// A copy equals the file at home only as long as nobody changes that file directly on its tier. Opening the file at home reveals such a
    /// change; but if the kernel has dropped the file from its caches, the open wakes the disk. So the kernel is asked first whether it has
    /// the path of the file at home in memory (`RESOLVE_CACHED`, Linux 5.12), which is the case if the file was changed on this machine a
    /// short time ago. If it has, the file at home is to be opened and compared, which needs no access to the disk. The first call that needs
    /// the file at home (every change, sync, move and removal) opens and compares it. `dead`: the device of the file at home does not answer,
    /// so the file cannot be compared.
    ///
    /// This is done only for file systems on local devices. On a network file system, another machine can change a file without this kernel
    /// knowing, and the disk that could sleep belongs to the server.
    pub(crate) fn open_alone(
        &self,
        tiers: &Tiers,
        node: NodeId,
        (tier, path, known): (Tier, &[u8], &Facts),
        dead: bool,
    ) -> Option<Arc<OpenCopy>> {
        let copied = self.entry(node)?;
        let home = tiers.root(tier);
        let look = !dead && !broken(Mutant::NeverLook);
        // Before Linux 5.12 the kernel cannot tell.
        if !home.local || (look && !matches!(home.open_cached(path), Err(Errno::AGAIN))) {
            return None;
        }
        let fits = copied.matches(known) || broken(Mutant::TrustOldRecord);
        fits.then(|| open_copied(&copied, tiers.root(0), known))
            .flatten()
    }
    /// Called after a change of a file at home on that tier, with its result: makes the same change on the copy, or drops the copy.
    pub(crate) fn changed<T>(
        &self,
        tiers: &Tiers,
        (node, copy): (NodeId, &OpenCopy),
        (tier, home, done): (Tier, &OwnedFd, &Result<T, Errno>),
        how: &Change<'_>,
        change: impl FnOnce(&OwnedFd) -> Result<T, Errno>,
    ) {
        if !copy.is_valid() || broken(Mutant::ForgetUpdate) {
            return;
        }
        let now = || facts_of(home).map(|f| f.version());
        let of = &copy.of;
        if of.head.is_some() && broken(Mutant::KeepHead) {
            *lock(&of.home) = now().unwrap_or_default();
            return;
        }
        self.sources.fetch_or(1 << tier, Ordering::SeqCst);
        // A call that failed may have done a part of the change.
        let same = (done.is_ok() || broken(Mutant::TrustFailedHome))
            && !matches!(how, Change::Other(..))
            && of.head.is_none();
        let good = same && (copy.with(change).is_ok() || broken(Mutant::TrustFailedUpdate));
        match now() {
            Ok(now) if good => *lock(&of.home) = now,
            _ => self.invalidate(tiers, node, copy),
        }
    }
    /// Called when a file that has these attributes at home is closed. If somebody changed it there in the meantime, the copy is dropped.
    pub(crate) fn closed(&self, tiers: &Tiers, node: NodeId, copy: &OpenCopy, now: Option<&Facts>) {
        let same = now.is_some_and(|now| copy.of.matches(now));
        if copy.is_valid() && !same && !broken(Mutant::TrustChangedHome) {
            self.invalidate(tiers, node, copy);
        }
    }
    /// Drops an open copy that is no longer equal to the file, or cannot be read.
    pub(crate) fn invalidate(&self, tiers: &Tiers, node: NodeId, copy: &OpenCopy) {
        copy.of.drop_now();
        self.forget(node);
        self.sweep(tiers);
    }
    /// Drops the copy of a file, if it has one: nobody reads it after this. The file stays where it is. Returns the bytes of the copy.
    pub(crate) fn drop_copy(&self, tiers: &Tiers, node: NodeId) -> Option<u64> {
        let gone = self.forget(node)?;
        gone.drop_now();
        self.sweep(tiers);
        Some(gone.bytes)
    }
    /// Removes copies that were given up from the tier.
    pub(crate) fn sweep(&self, tiers: &Tiers) {
        if !self.any_on() {
            return;
        }
        let swept = self.ranges.sweep();
        let unused = std::mem::take(&mut self.table().unused);
        for number in &unused {
            // A copy that cannot be removed now is removed by the next mount.
            let at = copy_at(*number);
            let _ = rustix::fs::unlinkat(&tiers.root(0).fd, &at.path[..], AtFlags::empty());
        }
        if !unused.is_empty() || swept > 0 {
            tiers.room_changed(0);
        }
    }
    /// Drops ranges, then the oldest copies, and then the oldest heads, until about that many bytes are free. Returns false if there was none.
    pub(crate) fn evict(&self, tiers: &Tiers, bytes: u64) -> bool {
        let ranges = self.ranges.give_way(bytes);
        let mut freed = (ranges > 0).then_some(ranges);
        if freed.is_some() {
            tiers.room_changed(0);
        }
        while freed.is_none_or(|f| f < bytes) {
            let Some(node) = self.oldest(false) else {
                break;
            };
            let size = self.drop_copy(tiers, node).unwrap_or(0);
            freed = Some(freed.unwrap_or(0) + size);
        }
        freed.is_some()
    }
    /// Runs a change on a tier. If that is the fastest and it is full, copies are dropped and the change is tried again. ENOSPC can have other
    /// reasons than a full tier (a large extended attribute on ext4), for which no copy is dropped.
    pub(crate) fn evicting<T>(
        &self,
        tiers: &Tiers,
        tier: Tier,
        change: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut rounds = 0;
        loop {
            let done = change();
            let helps = tier == 0
                && match &done {
                    Err(Errno::NOSPC) => tiers.root(0).is_short(EVICT_BYTES),
                    // Copies are those of the user who mounted, the quota may be another user's.
                    Err(Errno::DQUOT) => rounds < 4,
                    _ => false,
                };
            if !helps || !self.evict(tiers, EVICT_BYTES) {
                return done;
            }
            rounds += 1;
        }
    }
}

fn open_copied(copied: &Arc<Copied>, fast: &Root, home: &Facts) -> Option<Arc<OpenCopy>> {
    let fd = fast.open_at(&copy_at(copied.number).path, OFlags::RDWR, 0);
    let fd = fd.ok()?;
    (facts_of(&fd).ok()?.size == home.size).then(|| copied.opened(fd))
}
