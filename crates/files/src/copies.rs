//! Copies of files of slower tiers on the fastest one: `--copies`, for policies that keep copies (caching architectures).
//!
//! A copy holds the bytes of a file and nothing else. Reads use it; every change goes to the file at its home first, and then to the copy
//! (write-through-update). If either of the two fails, or a change cannot be repeated on the copy, the copy is dropped. Names, attributes
//! and syncs are the home's alone, so a copy does not know that its file was renamed or has several names.
//!
//! A copy may be a *head*: it holds only the first bytes of the file (`heads.rs`). Reads of those use it; every change drops it.
//!
//! Copies outlive a clean unmount (`kept.rs`). A mount removes all others (`intent::recover`). So a copy that is wrong because of a crash,
//! or because somebody changed the tiers in the meantime, is never read.

use crate::catalogue::NodeId;
use crate::disk::{Disk, facts_of};
use crate::fetch::Fetch;
use crate::heads::Heads;
use crate::live::Live;
use crate::mover::{Answer, Call, Outcome, Step, Why, carry_out};
use crate::mutants::{Mutant, broken};
use crate::settings::Settings;
use crate::store::Store;
use crate::sync::{lock, write_lock};
use crate::tiers::Kind;
use crate::tree::{Facts, Id, Tier, Time, copy_at};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The open copy of a file in use.
#[derive(Debug)]
pub struct OpenCopy {
    pub(crate) fd: OwnedFd,
    invalid: AtomicBool,
    /// How many bytes of the file it holds, from the first on; `None`: all of them.
    head: Option<u64>,
    /// Size and modification time that the file at home has after our own changes.
    home: Mutex<(u64, Time)>,
}

impl OpenCopy {
    fn new(fd: OwnedFd, head: Option<u64>, home: (u64, Time)) -> OpenCopy {
        OpenCopy {
            fd,
            invalid: AtomicBool::new(false),
            head,
            home: Mutex::new(home),
        }
    }
    fn home(&self) -> MutexGuard<'_, (u64, Time)> {
        lock(&self.home)
    }
    /// Whether it holds all bytes of the file from `offset` on, at most `len`.
    pub(crate) fn covers(&self, offset: u64, len: u64) -> bool {
        let Some(head) = self.head else { return true };
        let inside = offset.saturating_add(len) <= head || broken(Mutant::ReadBeyondHead);
        inside || self.home().0 <= head
    }
    /// Whether it is equal to the file at home.
    pub(crate) fn is_valid(&self) -> bool {
        !self.invalid.load(Ordering::SeqCst)
    }
}

/// How a change of a file reaches its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// The same call gives the same bytes.
    Same,
    /// The same call might give other bytes: the copy is dropped.
    Drop,
}

/// The copy of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyRecord {
    pub(crate) number: u64,
    pub(crate) id: Id,
    bytes: u64,
    /// Size and modification time of the file at home when the copy was made or last changed. Only changes that this program makes to both
    /// update these values, so a change that somebody made directly on the tier is always noticed.
    pub(crate) home: (u64, Time),
    /// How many bytes of the file it holds, from the first on; `None`: all of them.
    pub(crate) head: Option<u64>,
}

impl CopyRecord {
    pub(crate) fn new(number: u64, id: Id, bytes: u64, home: (u64, Time)) -> CopyRecord {
        CopyRecord {
            number,
            id,
            bytes,
            home,
            head: None,
        }
    }
    /// The copy holds only that many bytes of the file, from the first on; `None`: all of them.
    pub(crate) fn of_head(self, head: Option<u64>) -> CopyRecord {
        CopyRecord { head, ..self }
    }
    /// The order in which copies are dropped for space: whole ones first, and of each kind the oldest first.
    fn order(&self) -> (bool, u64) {
        (self.head.is_some(), self.number)
    }
    /// Whether a file with these attributes at home is what was copied.
    fn matches(&self, home: &Facts) -> bool {
        let same = (self.id, self.home) == (home.id, (home.size, home.mtime));
        same || broken(Mutant::TrustChangedHome)
    }
}

#[derive(Debug, Default)]
struct Index {
    of: BTreeMap<NodeId, CopyRecord>,
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
    all: Mutex<Index>,
    /// Bytes of all copies; the size of each is its size when it was made.
    pub bytes: Arc<AtomicU64>,
    /// Number of copies that were made.
    pub made: AtomicU64,
    /// Number of copies that were dropped.
    pub dropped: AtomicU64,
    /// Number of reads from a copy.
    pub reads: AtomicU64,
    /// Bit *t* is set if this mount made a copy of a file on tier *t*, or changed a file there together with its copy.
    pub(crate) sources: AtomicU16,
}

impl Copies {
    /// No copies yet. `bytes` counts what they will take.
    pub(crate) fn new(settings: &Settings, bytes: Arc<AtomicU64>) -> Copies {
        Copies {
            on: settings.copies,
            heads: Heads::new(settings.heads),
            bytes,
            ..Copies::default()
        }
    }
    /// Whether there can be copies of any kind.
    pub(crate) fn any_on(&self) -> bool {
        self.on || self.heads.bytes > 0
    }
    fn all(&self) -> MutexGuard<'_, Index> {
        lock(&self.all)
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
        if !self.any_on() {
            return None;
        }
        let all = self.all();
        all.of.get(&node).map(|c| c.head.unwrap_or(u64::MAX))
    }
    /// The number of files that have a whole copy.
    pub fn count(&self) -> usize {
        self.all().of.len() - self.heads.files.load(Ordering::Relaxed)
    }
    /// Gives up the copy of a file: it is not used by any open from now on. The next [`Store::sweep`] removes it from the tier; this
    /// function makes no system call. Returns the size of the copy in bytes, if there was one.
    pub(crate) fn forget(&self, node: NodeId) -> Option<u64> {
        if !self.any_on() {
            return None;
        }
        let mut all = self.all();
        let gone = all.of.remove(&node)?;
        self.gone(&mut all, &gone);
        drop(all);
        Some(gone.bytes)
    }
    fn gone(&self, all: &mut Index, gone: &CopyRecord) {
        all.order.remove(&gone.order());
        all.unused.push(gone.number);
        self.bytes.fetch_sub(gone.bytes, Ordering::Relaxed);
        if gone.head.is_some() {
            self.heads.count(-1, gone.bytes);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
    /// All copies, in the order in which they are dropped for space.
    pub(crate) fn list(&self) -> Vec<(NodeId, CopyRecord)> {
        let all = self.all();
        let nodes = all.order.values();
        nodes.filter_map(|n| Some((*n, *all.of.get(n)?))).collect()
    }
    /// Gives up a copy that belongs to no file. The next [`Store::sweep`] removes it.
    pub(crate) fn mark_unused(&self, number: u64) {
        self.all().unused.push(number);
    }
    pub(crate) fn keep(&self, node: NodeId, copied: CopyRecord) {
        let mut all = self.all();
        // A whole copy replaces a head.
        if let Some(before) = all.of.insert(node, copied) {
            self.gone(&mut all, &before);
        }
        all.order.insert(copied.order(), node);
        self.bytes.fetch_add(copied.bytes, Ordering::Relaxed);
        if copied.head.is_some() {
            self.heads.count(1, copied.bytes);
        }
    }
    /// As [`Copies::keep`], for a copy that was made now of a file on that tier.
    fn made_of(&self, node: NodeId, copied: CopyRecord, from: Tier) {
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
        let all = self.all();
        let mut from = all.order.range((head, 0)..);
        from.next().map(|o| *o.1)
    }
}

impl Live {
    /// Called after a user set the times of an open file, which changed its attributes from `before` to `now`. The copy is still equal to
    /// the file.
    pub(crate) fn times_set(&self, before: Facts, now: Facts) {
        if let Some(copy) = self.hold().copy() {
            let mut home = copy.home();
            if *home == (before.size, before.mtime) {
                *home = (now.size, now.mtime);
            }
        }
    }
}

impl Store {
    /// Copies a file to the fastest tier. The outcome is `Done` also if it is there already.
    pub fn fetch(&self, node: NodeId) -> Outcome {
        self.exclusively(node, |live| self.drive_fetch(node, live, None))
    }
    /// The identity, tier, path and space of a file that can get a copy, or a head; else the outcome of the attempt.
    fn copyable(
        &self,
        node: NodeId,
        head: Option<u64>,
    ) -> Result<(Id, Tier, Vec<u8>, u64), Outcome> {
        let (id, from, path, needs) = {
            let cat = self.cat();
            let at = cat.get(node).zip(cat.path(node));
            let (n, path) = at.ok_or(Outcome::Refused(Why::Gone))?;
            (n.facts.id, n.tier, path, n.facts.needs())
        };
        let done = match head {
            None => !self.copies.on || self.copies.has(node),
            Some(_) => self.copies.held(node).is_some(),
        };
        let needs = needs.min(head.unwrap_or(u64::MAX));
        if from == 0 || done {
            Err(Outcome::Done)
        } else if self.is_absent(from) {
            Err(Outcome::Refused(Why::Missing))
        } else if self.room(0).0 < needs {
            Err(Outcome::Refused(Why::Full))
        } else {
            Ok((id, from, path, needs))
        }
    }
    /// Copies a file, or its first `head` bytes.
    pub(crate) fn drive_fetch(&self, node: NodeId, live: &Arc<Live>, head: Option<u64>) -> Outcome {
        let (id, from, path, needs) = match self.copyable(node, head) {
            Ok(found) => found,
            Err(outcome) => return outcome,
        };
        if head.is_none() {
            self.used_by(node, 0);
        }
        let number = self.number();
        let mut disk = Disk::new(Arc::clone(&self.roots));
        disk.copy_from(live.hold().fd().ok(), id);
        let mut fetch = Fetch::new(number, id, path, from).head(head.unwrap_or(u64::MAX));
        let (mut names, mut state, mut copy, mut changes) = (None, None, None, 0);
        let mut step = fetch.start();
        loop {
            let wait = self.waits_for(from, node, Kind::Move);
            let answer = match step {
                Step::Call(call) => {
                    if matches!(call, Call::Create(..)) {
                        changes = Store::changes(live);
                    }
                    if matches!(call, Call::Unlink(..)) {
                        (names, state, copy) = (None, None, None);
                    }
                    carry_out(&mut disk, &call)
                }
                Step::Freeze => match self.claim(|cat, all| all.all_names(cat, node)) {
                    Err(e) => Err(e),
                    Ok(guard) => {
                        names = Some(guard);
                        let s = write_lock(&live.state);
                        state = Some(s);
                        self.frozen_copy(node, live, changes, number, &mut copy)
                    }
                },
                Step::Swap(id) => {
                    if let (Some(state), Some(fd)) = (&mut state, copy.take())
                        && let Some(backing) = &state.home
                    {
                        let bytes = facts_of(&fd).map_or(needs, |f| f.blocks * 512);
                        let home = facts_of(&backing.fd).map(|f| (f.size, f.mtime));
                        // If they cannot be read, the default values will not match the file later, and the copy will be dropped.
                        let home = home.unwrap_or_default();
                        state.copy = Some(OpenCopy::new(fd, head, home));
                        let copied = CopyRecord::new(number, id, bytes, home).of_head(head);
                        self.copies.made_of(node, copied, from);
                    }
                    Ok(Answer::Done)
                }
                Step::Thaw => Ok(Answer::Done),
                Step::End(outcome) => {
                    drop((names, state));
                    // A head that a whole copy replaced.
                    self.sweep();
                    self.room_changed(0);
                    return outcome;
                }
            };
            drop(wait);
            step = fetch.next(answer);
        }
    }
    fn frozen_copy(
        &self,
        node: NodeId,
        live: &Live,
        changes: u64,
        number: u64,
        copy: &mut Option<OwnedFd>,
    ) -> Result<Answer, Errno> {
        if live.had_passthrough.load(Ordering::SeqCst) {
            return Ok(Answer::Forbidden(Why::Passthrough));
        }
        let paths = self.cat().paths(node);
        if paths.is_empty() {
            return Ok(Answer::Forbidden(Why::Gone));
        }
        *copy = Some(self.roots[0].open_at(&copy_at(number).path, OFlags::RDWR, 0)?);
        Ok(Answer::Frozen(paths, Store::changes(live) != changes))
    }
    /// The copy of a file that is being opened and has these attributes at home, if there is one and nobody changed the file at home since
    /// it was made. A copy that does not match is dropped.
    pub(crate) fn open_copy(&self, node: NodeId, now: &Facts) -> Option<OpenCopy> {
        if !self.copies.any_on() {
            return None;
        }
        let copied = self.copies.all().of.get(&node).copied()?;
        let open = copied.matches(now).then(|| self.open_copied(&copied, now));
        if open.as_ref().is_none_or(Option::is_none) {
            self.copies.forget(node);
            self.sweep();
        }
        open.flatten()
    }
    /// The copy of a file that has these attributes according to the catalogue, if there is one and it matches them. A copy that does not
    /// match is left alone.
    pub(crate) fn copy_as_known(&self, node: NodeId, known: &Facts) -> Option<OpenCopy> {
        let copied = self.copies.all().of.get(&node).copied()?;
        let fits = copied.matches(known) || broken(Mutant::TrustOldRecord);
        fits.then(|| self.open_copied(&copied, known)).flatten()
    }
    fn open_copied(&self, copied: &CopyRecord, home: &Facts) -> Option<OpenCopy> {
        let at = copy_at(copied.number);
        let fd = self.roots[0].open_at(&at.path, OFlags::RDWR, 0).ok()?;
        (facts_of(&fd).ok()?.size == home.size).then(|| OpenCopy::new(fd, copied.head, copied.home))
    }
    /// Called after a change at home, with its result: makes the same change on the copy, or drops the copy.
    pub(crate) fn update_copy<T>(
        &self,
        node: NodeId,
        copy: &OpenCopy,
        (home, done): (&OwnedFd, &Result<T, Errno>),
        update: Update,
        change: impl FnOnce(&OwnedFd) -> Result<T, Errno>,
    ) {
        if !copy.is_valid() || broken(Mutant::ForgetUpdate) {
            return;
        }
        if copy.head.is_some() && broken(Mutant::KeepHead) {
            let now = facts_of(home).map(|f| (f.size, f.mtime));
            *copy.home() = now.unwrap_or_default();
            return;
        }
        let tier = self.cat().get(node).map_or(0, |n| n.tier);
        self.copies.sources.fetch_or(1 << tier, Ordering::SeqCst);
        // A call that failed may have done a part of the change.
        let same = (done.is_ok() || broken(Mutant::TrustFailedHome))
            && update == Update::Same
            && copy.head.is_none();
        let good = same && (change(&copy.fd).is_ok() || broken(Mutant::TrustFailedUpdate));
        match facts_of(home) {
            Ok(now) if good => *copy.home() = (now.size, now.mtime),
            _ => self.invalidate(node, copy),
        }
    }
    /// Drops a copy that is no longer equal to the file, or cannot be read.
    pub(crate) fn invalidate(&self, node: NodeId, copy: &OpenCopy) {
        copy.invalid.store(true, Ordering::SeqCst);
        self.copies.forget(node);
        self.sweep();
    }
    /// Called when a file that has these attributes at home is closed. If somebody changed it there in the meantime, the copy is dropped.
    pub(crate) fn close_copy(&self, node: NodeId, copy: &OpenCopy, now: Option<Facts>) {
        if !copy.is_valid() {
            return;
        }
        let home = *copy.home();
        let same = now.is_some_and(|f| (f.size, f.mtime) == home);
        if !same && !broken(Mutant::TrustChangedHome) {
            self.invalidate(node, copy);
        } else if let Some(copied) = self.copies.all().of.get_mut(&node) {
            copied.home = home;
        }
    }
    /// Drops the copy of a file, if it has one. The file stays where it is.
    pub fn drop_copy(&self, node: NodeId) {
        if self.copies.forget(node).is_none() {
            return;
        }
        if let Some(live) = self.lives.get(node) {
            let mut state = write_lock(&live.state);
            state.copy = None;
        }
        self.sweep();
    }
    /// Removes copies that were given up from the tier.
    pub(crate) fn sweep(&self) {
        if !self.copies.any_on() {
            return;
        }
        let unused = std::mem::take(&mut self.copies.all().unused);
        for number in &unused {
            // A copy that cannot be removed now is removed by the next mount.
            let at = copy_at(*number);
            let _ = rustix::fs::unlinkat(&self.roots[0].fd, &at.path[..], AtFlags::empty());
        }
        if !unused.is_empty() {
            self.room_changed(0);
        }
    }
    /// Drops the oldest copies, and then the oldest heads, until about that many bytes are free. Returns false if there was none.
    pub(crate) fn evict_copies(&self, bytes: u64) -> bool {
        let mut freed = None;
        while freed.is_none_or(|f| f < bytes) {
            let Some(node) = self.copies.oldest(false) else {
                break;
            };
            let size = self.copies.all().of.get(&node).map_or(0, |c| c.bytes);
            self.drop_copy(node);
            freed = Some(freed.unwrap_or(0) + size);
        }
        freed.is_some()
    }
    /// The tier from which reads of a file are served: the fastest if it has a copy there.
    pub(crate) fn served_from(&self, node: NodeId, tier: Tier) -> Tier {
        if self.copies.has(node) { 0 } else { tier }
    }
}
