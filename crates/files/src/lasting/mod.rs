//! Inode numbers that last: what users see of a file is the same number after a remount, a crash, a move, a rename.
//!
//! Numbers are given out one after the other and never again. A number is durable before anybody sees it:
//!
//! - The fastest tier says below which number all are that may have been given out. It says so in advance, for [`BATCH`] numbers at a time,
//!   so a crash loses numbers and never repeats one.
//! - A new file gets its number as an extended attribute (`disk/number.rs`) before its name; a directory, link or pipe, which cannot be made
//!   without a name, right after it and before it is shown.
//! - What others have made, and what cannot have the attribute, is in a table on the fastest tier ([`table`]). After a clean unmount the
//!   table has all files, so that a mount need not ask each file for its attribute.
//!
//! If the table is lost, damaged or older than the files, the attributes still say the numbers of most files, and no new number is lower
//! than any of them. Of two files that have the same number all the same, the second one gets a new one.

mod generations;
mod table;
#[cfg(test)]
mod tests;

use crate::catalogue::{Catalogue, Kind, Node, NodeId, ROOT, pack};
use crate::disk::{Root, Roots};
use crate::layout::DISKS_MAX;
use crate::mutants::{Mutant, broken};
use crate::sync::lock;
use crate::tree::{Id, ROOT_NUMBER, Tier, Time, disks_in};
use generations::Generations;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
pub(crate) use table::Table;
use table::{IS_DIR, Key, Log, Record, key};

/// How many numbers are reserved at a time. A crash loses at most so many of the 2^32 numbers that 32-bit programs can use.
const BATCH: u64 = 1 << 16;
/// How many numbers are left out if the table is damaged or older than the files: it is not known which ones removed files had.
const MARGIN: u64 = 1 << 20;
/// No number this far above those that were given out is believed: somebody else has written it, and all numbers after it would be wasted.
const BEYOND: u64 = 1 << 40;
/// If more files than this are new to the table at a mount, or the log is longer, the table is written anew.
const MANY: usize = 4096;

/// A directory on a further tier, which the table does not have yet.
pub(crate) type Further = (Tier, Id, NodeId);

/// Gives out the numbers: see the module.
#[derive(Debug)]
pub(crate) struct Lasting {
    /// The ids of the disks that there can be, by number; 0 for one without an id.
    tiers: [AtomicU64; DISKS_MAX],
    state: Mutex<State>,
    /// Set before anybody asks, and not behind the lock, which is held during syncs.
    generations: OnceLock<Generations>,
    /// Number of files that got another number at this mount, because another file had theirs.
    pub(crate) renumbered: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// The next number.
    next: u64,
    /// Numbers below this one may be given out.
    reserved: u64,
    log: Option<Log>,
}

impl State {
    /// Adds records to the log. If the tier is full, the space that was set aside for that is used.
    fn append(&mut self, root: &Root, records: &[Record], durable: bool) -> Result<(), Errno> {
        let mut attempt = || {
            if self.log.is_none() {
                self.log = Some(Log::open(root)?);
            }
            let log = self.log.as_mut().ok_or(Errno::IO)?;
            log.append(records, durable)
        };
        if durable {
            root.with_spare(attempt)
        } else {
            attempt()
        }
    }
    /// Makes sure that `count` numbers can be given out.
    fn reserve(&mut self, root: &Root, count: u64) -> Result<(), Errno> {
        if self.next + count <= self.reserved {
            return Ok(());
        }
        let below = self.next + count + BATCH;
        if !broken(Mutant::SkipReserve) {
            self.append(root, &[Record::Reserved(below)], true)?;
        }
        self.reserved = below;
        Ok(())
    }
}

/// The tiers whose inode of a node the catalogue knows: for a directory, those of the file system on which its attributes were read.
fn tiers_of<'a>(roots: &'a Roots, n: &Node<'_>) -> impl Iterator<Item = Tier> + 'a {
    let (tier, on, dev) = (n.tier, n.on(), n.facts.dev);
    let is_dir = n.kind == Kind::Dir;
    disks_in(on)
        .filter(move |t| !roots[usize::from(*t)].absent)
        .filter(move |t| {
            if is_dir {
                roots[usize::from(*t)].dev == dev
            } else {
                *t == tier
            }
        })
}

/// A number as table and log have it.
fn stored(number: u64, is_dir: bool) -> u64 {
    if is_dir { number | IS_DIR } else { number }
}

impl Lasting {
    /// Reads what the fastest tier has. `tiers` are the ids of the tiers, if they have some. Files of those that are `unnumbered` have in
    /// themselves the numbers of another set.
    pub(crate) fn open(
        fast: &Root,
        tiers: &[Option<String>],
        unnumbered: &[String],
    ) -> (Lasting, Table) {
        let lasting = Lasting {
            tiers: Default::default(),
            state: Mutex::default(),
            generations: OnceLock::new(),
            renumbered: AtomicU64::new(0),
        };
        for (disk, id) in (0..).zip(tiers) {
            lasting.knows(disk, id.as_deref().unwrap_or_default());
        }
        let mut table = Table::read(fast, &lasting.ids());
        let trusts = broken(Mutant::TrustForeignNumber);
        let foreign = |id: &Option<String>| {
            let foreign = id.as_ref().is_some_and(|id| unnumbered.contains(id));
            foreign && !trusts
        };
        table.foreign = tiers.iter().map(foreign).collect();
        (lasting, table)
    }
    /// The disk of that number has this id.
    pub(crate) fn knows(&self, disk: Tier, id: &str) {
        let id = u64::from_str_radix(id, 16).unwrap_or(0);
        self.tiers[usize::from(disk)].store(id, Ordering::Relaxed);
    }
    fn ids(&self) -> [u64; DISKS_MAX] {
        std::array::from_fn(|disk| self.tiers[disk].load(Ordering::Relaxed))
    }
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
    fn key(&self, tier: Tier, id: Id) -> Key {
        let known = self.tiers.get(usize::from(tier));
        key(known.map_or(0, |t| t.load(Ordering::Relaxed)), id)
    }
    /// After the names were read: gives numbers to all that have none, durably, and other ones to those that have the number of another.
    /// Returns messages for the administrator, and whether all is durable.
    pub(crate) fn settle(
        &self,
        roots: &Roots,
        table: &Table,
        cat: &mut Catalogue,
        further: &[Further],
    ) -> (Vec<String>, bool) {
        let mut said = Vec::new();
        if table.damaged {
            said.push("the table of inode numbers on the fast tier is damaged: files that others have made there have new numbers".into());
        }
        let highest = self.part(roots, cat, table.next + BEYOND, &mut said);
        let mut state = self.lock();
        state.next = table.next.max(highest + 1).max(ROOT_NUMBER + 1);
        let old = table.damaged || highest >= table.next.max(ROOT_NUMBER + 1);
        if old {
            state.next += MARGIN;
        }
        state.reserved = state.next;
        said.extend(self.settle_generations(roots, state.next, old || table.next == 0));
        let here = |n: Node<'_>| tiers_of(roots, &n).next().is_some();
        let new: Vec<NodeId> = cat
            .all_lasting()
            .filter(|(id, number)| *number == 0 && *id != ROOT && cat.get(*id).is_some_and(here))
            .map(|(id, _)| id)
            .collect();
        let many = new.len().max(table.records) > MANY || table.damaged;
        if new.is_empty() && further.is_empty() && !many {
            return (said, true);
        }
        let done = state.reserve(&roots[0], new.len() as u64);
        if done.is_ok() {
            for id in &new {
                cat.set_lasting(*id, state.next);
                state.next += 1;
            }
        }
        let done = done.and_then(|()| {
            if many {
                return self.save_locked(roots, &mut state, cat, further);
            }
            let records = self.records(roots, cat, &new, further);
            if broken(Mutant::ForgetFound) {
                return Ok(());
            }
            state.append(&roots[0], &records, true)
        });
        if let Err(e) = &done {
            for id in &new {
                cat.set_lasting(*id, 0);
            }
            said.push(format!(
                "{}: the inode numbers of {} files that others have made cannot be stored: {e}: they have others after the next mount",
                roots[0].path.display(),
                new.len()
            ));
        }
        (said, done.is_ok())
    }
    /// Reads the generations of the numbers. If it is not known which numbers were given out (`lost`), those from `next` on get another.
    /// Returns a message for the administrator.
    fn settle_generations(&self, roots: &Roots, next: u64, lost: bool) -> Option<String> {
        let mut all = Generations::read(roots);
        if all.is_new() {
            all.begin(0);
        } else if lost && !broken(Mutant::KeepGeneration) {
            all.begin(next);
        }
        let stored = all.store(roots);
        all.begin_temporary();
        let _ = self.generations.set(all);
        let e = stored.err()?;
        Some(format!(
            "{}: the generation of inode numbers cannot be stored: {e}: file handles (NFS) go stale at the unmount",
            roots[0].path.display()
        ))
    }
    fn records(
        &self,
        roots: &Roots,
        cat: &Catalogue,
        new: &[NodeId],
        further: &[Further],
    ) -> Vec<Record> {
        let mut records = Vec::new();
        for id in new {
            let Some(n) = cat.get(*id) else { continue };
            let number = stored(cat.lasting(*id), n.kind == Kind::Dir);
            for tier in tiers_of(roots, &n) {
                records.push(Record::Number(self.key(tier, n.facts.id), number));
            }
        }
        for (tier, id, node) in further {
            let number = stored(cat.lasting(*node), true);
            records.push(Record::Number(self.key(*tier, *id), number));
        }
        records
    }
    /// Takes the number from all files but the first that have it. Returns the highest number. The names of a tier that is absent come last:
    /// they can be old, and the file can be elsewhere by now. A number of `limit` or more was not given out here, and is taken as well.
    fn part(&self, roots: &Roots, cat: &mut Catalogue, limit: u64, said: &mut Vec<String>) -> u64 {
        let mut all: Vec<(u64, NodeId)> = cat.all_lasting().map(|(id, n)| (n, id)).collect();
        all.retain(|n| n.0 > 0);
        all.sort_unstable();
        let foreign = all.split_off(all.partition_point(|n| n.0 < limit));
        let mut twice: Vec<NodeId> = foreign.into_iter().map(|n| n.1).collect();
        for same in all
            .chunk_by(|a, b| a.0 == b.0)
            .filter(|same| same.len() > 1)
        {
            let mut same: Vec<_> = same
                .iter()
                .filter_map(|n| Some((n.1, cat.get(n.1)?.tier)))
                .collect();
            same.sort_by_key(|n| (roots[usize::from(n.1)].absent, n.1));
            if !broken(Mutant::KeepDuplicate) {
                twice.extend(same[1..].iter().map(|n| n.0));
            }
        }
        for id in &twice {
            cat.set_lasting(*id, 0);
        }
        if let Some(first) = twice.first().and_then(|id| cat.path(*id)) {
            self.renumbered.store(twice.len() as u64, Ordering::Relaxed);
            said.push(format!(
                "{} files had the inode number of another file, or one that was not given out here, and have a new one (was an older copy of a tier put back?), such as {}",
                twice.len(),
                String::from_utf8_lossy(&first)
            ));
        }
        all.last().map_or(0, |n| n.0)
    }
    /// A number that no file ever had.
    pub(crate) fn take(&self, fast: &Root) -> Result<u64, Errno> {
        let mut state = self.lock();
        state.reserve(fast, 1)?;
        state.next += 1;
        Ok(state.next - 1)
    }
    /// Stores the number of an open file `id` that nobody has seen yet: in the file, or else in the table.
    pub(crate) fn give(
        &self,
        fast: &Root,
        tier: Tier,
        fd: impl AsFd,
        id: Id,
        number: u64,
    ) -> Result<(), Errno> {
        if number == 0 || broken(Mutant::ForgetNew) || crate::disk::set_number(fd, id, number)? {
            return Ok(());
        }
        self.record(fast, &[Record::Number(self.key(tier, id), number)])
    }
    /// The generation of a number: together they name one file for ever.
    pub(crate) fn generation(&self, number: u64) -> u32 {
        self.generations.get().map_or(0, |g| g.of(number))
    }
    /// The number that is given out next.
    pub(crate) fn next(&self) -> u64 {
        self.lock().next
    }
    /// Stores the numbers of what others have made: tier, identity, number, whether it is a directory.
    pub(crate) fn record_found(
        &self,
        fast: &Root,
        found: &[(Tier, Id, u64, bool)],
    ) -> Result<(), Errno> {
        let one = |(tier, id, number, is_dir): &(Tier, Id, u64, bool)| {
            Record::Number(self.key(*tier, *id), stored(*number, *is_dir))
        };
        let records: Vec<Record> = found.iter().map(one).collect();
        self.record(fast, &records)
    }
    fn record(&self, fast: &Root, records: &[Record]) -> Result<(), Errno> {
        self.lock().append(fast, records, true)
    }
    /// A move has changed the change time of a file to `now`, and the one from before the move is shown. If this is lost, the new one is.
    pub(crate) fn moved(&self, fast: &Root, tier: Tier, id: Id, now: Time, shown: Time) {
        if let (Some(now), Some(shown)) = (pack(now), pack(shown)) {
            let record = Record::Moved(self.key(tier, id), now, shown);
            let _ = self.lock().append(fast, &[record], false);
        }
    }
    /// Writes the table: all files of the catalogue, and what is known of tiers that are not here. Then the log is empty.
    ///
    /// # Errors
    /// An error of the fastest tier: then table and log are as before.
    pub(crate) fn save(&self, roots: &Roots, cat: &Catalogue) -> Result<(), Errno> {
        self.save_locked(roots, &mut self.lock(), cat, &[])
    }
    fn save_locked(
        &self,
        roots: &Roots,
        state: &mut State,
        cat: &Catalogue,
        further: &[Further],
    ) -> Result<(), Errno> {
        let old = Table::read(&roots[0], &self.ids());
        let (mut all, mut dirs, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        for (id, n) in cat.all() {
            let number = cat.lasting(id);
            if number == 0 {
                continue;
            }
            let is_dir = n.kind == Kind::Dir;
            if is_dir {
                dirs.push(number);
            }
            for tier in tiers_of(roots, &n) {
                let key = self.key(tier, n.facts.id);
                all.push((key, stored(number, is_dir)));
                let times = old.moved.get(&key);
                moved.extend(
                    times
                        .filter(|t| pack(n.facts.ctime) == Some(t.1))
                        .map(|t| (key, *t)),
                );
            }
        }
        for (tier, id, node) in further {
            all.push((self.key(*tier, *id), stored(cat.lasting(*node), true)));
        }
        all.sort_unstable();
        dirs.sort_unstable();
        let ids = self.ids();
        let here = |tier: u64| {
            let mut tiers = ids.iter().zip(roots.iter());
            tier == 0 || tiers.any(|(t, r)| *t == tier && !r.absent)
        };
        // Of tiers that are here, only directories that the catalogue knows by their inode on another tier.
        let stays = |(key, number): &(Key, u64)| {
            let number = *number;
            let dir = number & IS_DIR != 0 && dirs.binary_search(&(number & !IS_DIR)).is_ok();
            (!here(key.0) || dir) && all.binary_search_by_key(key, |a| a.0).is_err()
        };
        // What the log says comes last, and counts.
        let kept: HashMap<Key, u64> = old.entries().filter(|e| stays(e)).collect();
        moved.extend(
            old.moved
                .iter()
                .filter(|m| !here(m.0.0))
                .map(|m| (*m.0, *m.1)),
        );
        all.extend(kept);
        all.sort_unstable();
        all.dedup_by_key(|a| a.0);
        table::write(&roots[0], state.next, &moved, &all)?;
        state.reserved = state.next;
        let log = state.log.take().map_or_else(|| Log::open(&roots[0]), Ok);
        log.and_then(|log| log.clear(Record::Reserved(state.next)))
    }
}
