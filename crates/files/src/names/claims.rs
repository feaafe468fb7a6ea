//! What a change uses, so that changes with nothing in common do not wait for each other.
//!
//! A tier may not answer for a long time: its server is away, or its disk is dying. A system call on it then blocks its thread. So no lock
//! that all files share is held during a system call. Instead, each change of names or attributes first *claims* what it uses, all at once,
//! and waits only for changes that use the same:
//!
//! | change | alone | with others |
//! |---|---|---|
//! | a name is made | the name | the paths of its directory and those above; the times of its directory |
//! | a name is removed | the name; the file | the same |
//! | a name is changed | both names; both files; if it is a directory's, its path, and so everything below it | the same, for both names |
//! | attributes are changed | the file | the paths of the directories of its names |
//! | a move or copy, from its freeze to its end | the file and its names | the paths of the directories of its names |
//! | `check` | the path of the root, and so everything | |
//!
//! Some changes claim more while they hold this (the *second stage*): a directory that is made on a further tier is claimed alone, because
//! its attributes must not change meanwhile, and so are the times of a directory while a move restores them. No change waits for a claim
//! while it holds one of the second stage, and no holder of a directory at the first stage waits for one of the second stage in a
//! directory below it. So there is no cycle.

use super::Names;
use crate::catalogue::{Catalogue, NodeId, ROOT};
use crate::sync::lock;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A change that waits goes before later ones for the first second of each ten, so that many changes with others cannot keep out one that
/// must be alone; and so that one that waits for a tier which does not answer does not keep the others out.
const PRECEDENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// How often a waiting change looks whether others still have precedence.
const LOOK: Duration = Duration::from_millis(100);

/// A thing that can be claimed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// The path of a directory.
    Path(NodeId),
    /// A file or directory itself: its attributes, names and tier.
    Node(NodeId),
    /// A name in a directory, whether or not it exists.
    Name(NodeId, Vec<u8>),
    /// The times of a directory, which change with its entries.
    Times(NodeId),
}

/// What a change claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    keys: BTreeMap<Key, bool>,
    /// Whether the change may need another tier than the fastest.
    slow: bool,
}

impl Wanted {
    /// Claims a thing alone.
    pub(crate) fn alone(&mut self, key: Key) {
        self.keys.insert(key, true);
    }
    fn with_others(&mut self, key: Key) {
        self.keys.entry(key).or_insert(false);
    }
    /// The path of a directory stays.
    pub(crate) fn path(&mut self, cat: &Catalogue, dir: NodeId) {
        let mut here = Some(dir);
        while let Some(at) = here {
            self.with_others(Key::Path(at));
            here = cat.parent(at);
        }
    }
    fn only_name(&mut self, cat: &Catalogue, dir: NodeId, name: &[u8]) {
        self.path(cat, dir);
        self.alone(Key::Name(dir, name.to_vec()));
    }
    /// A name is made, removed or changed.
    pub(crate) fn name(&mut self, cat: &Catalogue, dir: NodeId, name: &[u8]) {
        self.only_name(cat, dir, name);
        self.with_others(Key::Times(dir));
    }
    /// A file or directory is changed, or loses or gets a name.
    pub(crate) fn node(&mut self, cat: &Catalogue, node: NodeId) {
        self.alone(Key::Node(node));
        self.slow |= cat.get(node).is_some_and(|n| n.on() & !1 != 0);
        // Also if it is the root or has no name any more: `check` claims everything.
        self.with_others(Key::Path(ROOT));
        for dir in cat.parents(node) {
            self.path(cat, dir);
        }
    }
    /// A name and its file, if it exists, and everything below that if it is a directory.
    pub(crate) fn name_and_node(&mut self, cat: &Catalogue, dir: NodeId, name: &[u8]) {
        self.name(cat, dir, name);
        if let Some(node) = cat.child(dir, name) {
            self.node(cat, node);
            if cat.get(node).is_some_and(|n| n.dir().is_some()) {
                self.alone(Key::Path(node));
            }
        }
    }
    /// A file and all of its names, for a move: it restores the times of their directories.
    pub(crate) fn all_names(&mut self, cat: &Catalogue, node: NodeId) {
        self.node(cat, node);
        self.slow = true;
        for (dir, name) in cat.names(node) {
            self.only_name(cat, dir, name);
        }
    }
}

/// How often a thing is claimed.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    with_others: u32,
    alone: bool,
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<Key, Held>,
    /// Changes that wait, in the order of their arrival.
    waiting: BTreeMap<u64, (Instant, Wanted)>,
    arrived: u64,
}

impl Table {
    /// Whether a change can begin. If it has a number, only changes that arrived before it go first; `None`: no waiting one does.
    fn is_free(&self, wanted: &Wanted, number: Option<u64>) -> bool {
        let held = |(key, alone): (&Key, &bool)| {
            let by = self.held.get(key).copied().unwrap_or_default();
            by.alone || (*alone && by.with_others > 0)
        };
        if wanted.keys.iter().any(held) {
            return false;
        }
        let Some(number) = number else { return true };
        !self.waiting.range(..number).any(|(_, (since, other))| {
            since.elapsed().as_nanos() % PRECEDENCE.1.as_nanos() < PRECEDENCE.0.as_nanos()
                && other.conflicts(wanted)
        })
    }
    fn hold(&mut self, wanted: &Wanted) {
        for (key, alone) in &wanted.keys {
            let held = self.held.entry(key.clone()).or_default();
            held.alone |= alone;
            held.with_others += u32::from(!alone);
        }
    }
    fn release(&mut self, wanted: &Wanted) {
        for (key, alone) in &wanted.keys {
            let Some(held) = self.held.get_mut(key) else {
                continue;
            };
            held.alone &= !alone;
            held.with_others -= u32::from(!alone);
            if !held.alone && held.with_others == 0 {
                self.held.remove(key);
            }
        }
    }
}

impl Wanted {
    fn conflicts(&self, other: &Wanted) -> bool {
        let theirs = |key: &Key| other.keys.get(key);
        let mut ours = self.keys.iter();
        ours.any(|(key, alone)| theirs(key).is_some_and(|other| *alone || *other))
    }
}

/// What all changes use now.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    table: Mutex<Table>,
    released: Condvar,
    /// Number of changes so far.
    changes: AtomicU64,
    /// Number of changes in progress that may need another tier than the fastest.
    slow: AtomicUsize,
}

/// What one change uses, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    wanted: Wanted,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut table = self.claims.table();
        table.release(&self.wanted);
        let slow = usize::from(self.wanted.slow);
        self.claims.slow.fetch_sub(slow, Ordering::SeqCst);
        let waits = !table.waiting.is_empty();
        drop(table);
        if waits {
            self.claims.released.notify_all();
        }
    }
}

/// The stage of a claim: see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    First,
    /// Changes that wait do not go first: they may wait for the holder.
    Second,
}

impl Claims {
    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
    /// Claims what `wanted` says, which is asked again whenever other changes have ended. `None` if that takes longer than `limit`.
    pub(crate) fn claim(
        &self,
        stage: Stage,
        limit: Duration,
        mut wanted: impl FnMut() -> Wanted,
    ) -> Option<Claim<'_>> {
        let begun = Instant::now();
        let mut table = self.table();
        let number = table.arrived;
        table.arrived += 1;
        loop {
            let now = wanted();
            let number_if_first = (stage == Stage::First).then_some(number);
            if table.is_free(&now, number_if_first) {
                table.waiting.remove(&number);
                table.hold(&now);
                self.slow.fetch_add(usize::from(now.slow), Ordering::SeqCst);
                return Some(Claim {
                    claims: self,
                    wanted: now,
                });
            }
            if begun.elapsed() >= limit {
                table.waiting.remove(&number);
                return None;
            }
            table.waiting.insert(number, (begun, now));
            let woken = self.released.wait_timeout(table, LOOK);
            table = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Names {
    /// Claims what a change of names or attributes uses, as long as it takes.
    ///
    /// # Errors
    /// Names must not change any more, because a device failed.
    pub(crate) fn claim(
        &self,
        wanted: impl Fn(&Catalogue, &mut Wanted),
    ) -> Result<Claim<'_>, Errno> {
        if self.is_stuck() {
            return Err(Errno::IO);
        }
        self.claims.changes.fetch_add(1, Ordering::Relaxed);
        Ok(self.claim_anyway(wanted))
    }
    /// As [`Names::claim`], also if names must not change any more.
    pub(crate) fn claim_anyway(&self, wanted: impl Fn(&Catalogue, &mut Wanted)) -> Claim<'_> {
        loop {
            let found = self.claim_within(Stage::First, Duration::MAX, &wanted);
            if let Some(claim) = found {
                return claim;
            }
        }
    }
    /// A claim of the second stage, for at most that time.
    pub(crate) fn claim_more(
        &self,
        limit: Duration,
        wanted: impl Fn(&Catalogue, &mut Wanted),
    ) -> Option<Claim<'_>> {
        self.claim_within(Stage::Second, limit, &wanted)
    }
    /// A claim, for at most that time.
    pub(crate) fn claim_within(
        &self,
        stage: Stage,
        limit: Duration,
        wanted: impl Fn(&Catalogue, &mut Wanted),
    ) -> Option<Claim<'_>> {
        self.claims.claim(stage, limit, || {
            let mut all = Wanted::default();
            wanted(&self.cat(), &mut all);
            all
        })
    }
    /// Number of changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.claims.changes.load(Ordering::Relaxed)
    }
    /// Whether a change may have to wait for one on a tier that does not answer.
    pub(crate) fn may_wait(&self) -> bool {
        self.claims.slow.load(Ordering::SeqCst) > 0
    }
}

#[cfg(test)]
mod tests;
