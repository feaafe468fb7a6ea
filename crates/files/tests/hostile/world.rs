//! Trees of directories that lose power: changes that no sync covered are kept, lost or torn.

use isotherm_core::random::SplitMix64;
use isotherm_files::tree::{At, Facts, Id, Tier, Time, Tree, above, parent};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const POWER: Errno = Errno::from_raw_os_error(121);

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bytes {
    pub(crate) data: Vec<u8>,
    pub(crate) attributes: u8,
    /// The inode number that users see, and the inode that has it: a copy with all attributes does not have it.
    pub(crate) number: (u64, u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Inode {
    pub(crate) now: Bytes,
    pub(crate) synced: Option<Bytes>,
    pub(crate) ctime: i64,
    /// Time of birth; 0 on a file system that has none.
    pub(crate) born: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Entry {
    Dir,
    File(u64),
}

/// A change of entries that is not durable yet. It is kept or lost as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Change(pub(crate) Vec<(Vec<u8>, Option<Entry>)>);

#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) inodes: BTreeMap<u64, Inode>,
    pub(crate) now: BTreeMap<Vec<u8>, Entry>,
    pub(crate) durable: BTreeMap<Vec<u8>, Entry>,
    pub(crate) pending: Vec<Change>,
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) disks: Vec<Disk>,
    pub(crate) clock: i64,
    /// Number of calls until power is lost, or, if `error` is set, until one call fails.
    pub(crate) left: Option<u32>,
    pub(crate) error: bool,
    pub(crate) dead: bool,
    /// A directory whose names cannot be removed, on any tier.
    pub(crate) locked: Option<&'static [u8]>,
    /// A tier whose file system has become read-only. Syncs succeed there, because there is nothing to write.
    pub(crate) read_only: Option<Tier>,
    /// Whether the file systems have times of birth.
    pub(crate) births: bool,
    /// Tiers that are absent, one bit each.
    pub(crate) absent: u8,
    pub(crate) random: SplitMix64,
}

pub(crate) fn shares(a: &Change, b: &Change) -> bool {
    a.0.iter().any(|x| b.0.iter().any(|y| x.0 == y.0))
}

impl Disk {
    pub(crate) fn apply(durable: &mut BTreeMap<Vec<u8>, Entry>, change: &Change) {
        for (path, entry) in &change.0 {
            match entry {
                Some(e) => durable.insert(path.clone(), *e),
                None => durable.remove(path),
            };
        }
    }
    pub(crate) fn change(&mut self, change: Change) {
        Disk::apply(&mut self.now, &change);
        self.pending.push(change);
    }
    /// Makes the changes durable for which `wanted` is true, and earlier changes of the same names.
    pub(crate) fn commit(&mut self, mut wanted: Vec<bool>) {
        for i in (0..wanted.len()).rev() {
            for j in 0..i {
                wanted[j] |= wanted[i] && shares(&self.pending[i], &self.pending[j]);
            }
        }
        let pending = std::mem::take(&mut self.pending);
        for (change, yes) in pending.into_iter().zip(wanted) {
            if yes {
                Disk::apply(&mut self.durable, &change);
            } else {
                self.pending.push(change);
            }
        }
    }
    pub(crate) fn lose_power(&mut self, mode: u64, mut draw: impl FnMut() -> u64) {
        let keep = self
            .pending
            .iter()
            .map(|_| mode == 1 || (mode > 1 && draw().is_multiple_of(2)));
        let keep = keep.collect();
        self.commit(keep);
        self.pending.clear();
        // The contents of a lost directory are lost with it.
        let all = self.durable.clone();
        let there = |p: &[u8]| above(p).all(|d| d == b"." || all.get(d) == Some(&Entry::Dir));
        self.durable.retain(|p, _| there(p));
        self.now = self.durable.clone();
        for inode in self.inodes.values_mut() {
            if inode.synced.as_ref() == Some(&inode.now) {
                continue;
            }
            let torn = Bytes {
                data: inode.now.data[..inode.now.data.len() / 2].to_vec(),
                ..Bytes::default()
            };
            inode.now = match (mode, &inode.synced) {
                (1, _) => inode.now.clone(),
                (0, Some(s)) => s.clone(),
                (0, None) => Bytes::default(),
                (_, s) => match (draw() % 3, s) {
                    (0, _) => inode.now.clone(),
                    (1, Some(s)) => s.clone(),
                    (_, Some(s)) if draw().is_multiple_of(2) => s.clone(),
                    _ => torn,
                },
            };
            inode.synced = Some(inode.now.clone());
        }
    }
    pub(crate) fn file(&self, path: &[u8]) -> Option<u64> {
        match self.now.get(path) {
            Some(Entry::File(n)) => Some(*n),
            _ => None,
        }
    }
    /// The lowest inode number that no name uses, durable or not: numbers are reused at once.
    pub(crate) fn number(&self) -> u64 {
        let used: BTreeSet<u64> = self
            .now
            .values()
            .chain(self.durable.values())
            .chain(
                self.pending
                    .iter()
                    .flat_map(|c| c.0.iter().filter_map(|x| x.1.as_ref())),
            )
            .filter_map(|e| match e {
                Entry::File(n) => Some(*n),
                Entry::Dir => None,
            })
            .collect();
        (1..10_000).find(|n| !used.contains(n)).unwrap_or(0)
    }
}

impl World {
    pub(crate) fn new() -> World {
        World::of(2)
    }
    /// With that many tiers.
    pub(crate) fn of(tiers: usize) -> World {
        let mut w = World {
            disks: vec![Disk::default(); tiers],
            absent: 0,
            births: false,
            clock: 0,
            left: None,
            error: false,
            dead: false,
            locked: None,
            read_only: None,
            random: SplitMix64::new(1),
        };
        for d in &mut w.disks {
            for dir in [
                ".isotherm",
                ".isotherm/tmp",
                ".isotherm/intents",
                ".isotherm/copies",
            ] {
                d.durable.insert(dir.into(), Entry::Dir);
            }
            d.now = d.durable.clone();
        }
        w
    }
    pub(crate) fn draw(&mut self) -> u64 {
        self.random.draw()
    }
    pub(crate) fn power_comes_back(&mut self, mode: u64) {
        for t in 0..self.disks.len() {
            let mut random = SplitMix64::new(self.draw());
            self.disks[t].lose_power(mode, || random.draw());
        }
        (self.dead, self.left, self.error) = (false, None, false);
    }
    pub(crate) fn call(&mut self) -> Result<(), Errno> {
        self.clock += 1;
        if self.dead {
            return Err(POWER);
        }
        if let Some(left) = &mut self.left {
            if *left == 0 {
                self.left = None;
                self.dead = !self.error;
                return Err(if self.error { Errno::IO } else { POWER });
            }
            *left -= 1;
        }
        Ok(())
    }
    /// A call that changes something on a tier.
    fn changes(&mut self, t: Tier) -> Result<(), Errno> {
        self.call()?;
        if self.read_only == Some(t) {
            return Err(Errno::ROFS);
        }
        Ok(())
    }
    pub(crate) fn disk(&mut self, t: Tier) -> &mut Disk {
        &mut self.disks[usize::from(t)]
    }
    pub(crate) fn make_dirs(&mut self, t: Tier, path: &[u8]) {
        let mut dirs: Vec<Vec<u8>> = above(path)
            .filter(|d| *d != b".")
            .map(<[u8]>::to_vec)
            .collect();
        dirs.reverse();
        for d in dirs {
            if !self.disk(t).now.contains_key(&d) {
                self.disk(t).change(Change(vec![(d, Some(Entry::Dir))]));
            }
        }
    }
    fn birth(&mut self) -> u64 {
        self.clock += 1;
        if self.births { self.clock as u64 } else { 0 }
    }
    /// A user's file, durable. Returns its number.
    pub(crate) fn user_file(&mut self, t: Tier, path: &[u8], data: &[u8]) -> u64 {
        self.make_dirs(t, path);
        self.clock += 1;
        let born = self.birth();
        let n = self.disk(t).number();
        let bytes = Bytes {
            data: data.to_vec(),
            attributes: 7,
            number: (100 + self.clock as u64, n),
        };
        let (ctime, number) = (self.clock, bytes.number.0);
        let inode = Inode {
            now: bytes.clone(),
            synced: Some(bytes),
            ctime,
            born,
        };
        self.disk(t).inodes.insert(n, inode);
        self.disk(t)
            .change(Change(vec![(path.to_vec(), Some(Entry::File(n)))]));
        self.user_syncs_dirs(t, path);
        number
    }
    pub(crate) fn user_syncs_dirs(&mut self, t: Tier, path: &[u8]) {
        let dirs: Vec<Vec<u8>> = above(path).map(<[u8]>::to_vec).collect();
        for d in dirs {
            self.sync_entries(t, &d);
        }
    }
    pub(crate) fn user_writes(&mut self, t: Tier, path: &[u8], data: &[u8]) {
        let clock = self.clock;
        let d = self.disk(t);
        if let Some(n) = d.file(path)
            && let Some(i) = d.inodes.get_mut(&n)
        {
            i.now.data = data.to_vec();
            i.synced = Some(i.now.clone());
            // Within one tick of the clock, so the change time does not reveal the change.
            let _ = clock;
        }
    }
    pub(crate) fn sync_entries(&mut self, t: Tier, dir: &[u8]) {
        let d = self.disk(t);
        let wanted = d
            .pending
            .iter()
            .map(|c| c.0.iter().any(|x| parent(&x.0) == dir));
        let wanted = wanted.collect();
        d.commit(wanted);
    }
}

impl Tree for World {
    fn tiers(&self) -> Tier {
        self.disks.len() as Tier
    }
    fn is_there(&self, tier: Tier) -> bool {
        tier < self.tiers() && self.absent & (1 << tier) == 0
    }
    fn stat(&mut self, at: &At) -> Result<Option<Facts>, Errno> {
        self.call()?;
        let d = self.disk(at.tier);
        Ok(match d.now.get(&at.path) {
            None if at.path == b"." => Some(Facts {
                mode: 0o040_755,
                ..Facts::default()
            }),
            None => None,
            Some(Entry::Dir) => Some(Facts {
                mode: 0o040_755,
                ..Facts::default()
            }),
            Some(Entry::File(n)) => {
                let i = &d.inodes[n];
                let names = d.now.values().filter(|e| **e == Entry::File(*n)).count();
                Some(Facts {
                    id: Id {
                        ino: *n,
                        born: i.born,
                    },
                    mode: 0o100_644,
                    size: i.now.data.len() as u64,
                    nlink: names as u32,
                    ctime: Time {
                        sec: i.ctime,
                        nsec: 0,
                    },
                    ..Facts::default()
                })
            }
        })
    }
    fn prove_writable(&mut self, tier: Tier) -> Result<(), Errno> {
        self.changes(tier)
    }
    fn may_remove(&mut self, at: &At) -> Result<bool, Errno> {
        self.call()?;
        Ok(self.locked != Some(parent(&at.path)))
    }
    fn create(&mut self, at: &At, _bytes: u64) -> Result<(), Errno> {
        self.changes(at.tier)?;
        let born = self.birth();
        let ctime = self.clock;
        let d = self.disk(at.tier);
        if d.now.contains_key(&at.path) {
            return Err(Errno::EXIST);
        }
        let n = d.number();
        d.inodes.insert(
            n,
            Inode {
                ctime,
                born,
                ..Inode::default()
            },
        );
        d.change(Change(vec![(at.path.clone(), Some(Entry::File(n)))]));
        Ok(())
    }
    fn copy(&mut self, from: &At, to: &At, offset: u64, len: u64) -> Result<Option<u64>, Errno> {
        self.changes(to.tier)?;
        let d = self.disk(from.tier);
        let n = d.file(&from.path).ok_or(Errno::NOENT)?;
        let data = d.inodes[&n].now.data.clone();
        let d = self.disk(to.tier);
        let m = d.file(&to.path).ok_or(Errno::NOENT)?;
        let copy = d.inodes.get_mut(&m).ok_or(Errno::IO)?;
        // Two pieces, so that writes can happen in between.
        let (start, half) = (offset as usize, data.len() / 2);
        let end = if start == 0 { half } else { data.len() };
        let end = end.min(start + len as usize);
        copy.now.data.resize(data.len(), 0);
        copy.now.data[start..end].copy_from_slice(&data[start..end]);
        Ok((end < data.len()).then_some(end as u64))
    }
    fn copy_attributes(&mut self, from: &At, to: &At) -> Result<(), Errno> {
        self.changes(to.tier)?;
        let d = self.disk(from.tier);
        let n = d.file(&from.path).ok_or(Errno::NOENT)?;
        let attributes = d.inodes[&n].now.attributes;
        let d = self.disk(to.tier);
        let m = d.file(&to.path).ok_or(Errno::NOENT)?;
        d.inodes.get_mut(&m).ok_or(Errno::IO)?.now.attributes = attributes;
        Ok(())
    }
    fn set_number(&mut self, at: &At, number: u64) -> Result<(), Errno> {
        self.changes(at.tier)?;
        let d = self.disk(at.tier);
        let n = d.file(&at.path).ok_or(Errno::NOENT)?;
        d.inodes.get_mut(&n).ok_or(Errno::IO)?.now.number = (number, n);
        Ok(())
    }
    fn write(&mut self, at: &At, bytes: &[u8]) -> Result<(), Errno> {
        self.create(at, 0)?;
        let d = self.disk(at.tier);
        let n = d.file(&at.path).ok_or(Errno::IO)?;
        d.inodes.get_mut(&n).ok_or(Errno::IO)?.now.data = bytes.to_vec();
        Ok(())
    }
    fn read(&mut self, at: &At) -> Result<Vec<u8>, Errno> {
        self.call()?;
        let d = self.disk(at.tier);
        let n = d.file(&at.path).ok_or(Errno::NOENT)?;
        Ok(d.inodes[&n].now.data.clone())
    }
    fn list(&mut self, at: &At) -> Result<Vec<Vec<u8>>, Errno> {
        self.call()?;
        if !self.is_there(at.tier) {
            return Ok(Vec::new());
        }
        let d = self.disk(at.tier);
        let all = d.now.keys().filter(|p| parent(p) == at.path);
        Ok(all.map(|p| p[at.path.len() + 1..].to_vec()).collect())
    }
    fn sync_file(&mut self, at: &At) -> Result<(), Errno> {
        self.call()?;
        let d = self.disk(at.tier);
        let n = d.file(&at.path).ok_or(Errno::NOENT)?;
        let i = d.inodes.get_mut(&n).ok_or(Errno::IO)?;
        i.synced = Some(i.now.clone());
        Ok(())
    }
    fn sync_dir(&mut self, at: &At) -> Result<(), Errno> {
        self.call()?;
        if at.path != b"." && self.disk(at.tier).now.get(&at.path) != Some(&Entry::Dir) {
            return Err(Errno::NOENT);
        }
        self.sync_entries(at.tier, &at.path);
        Ok(())
    }
    fn make_parents(&mut self, at: &At) -> Result<(), Errno> {
        self.changes(at.tier)?;
        self.make_dirs(at.tier, &at.path);
        Ok(())
    }
    fn rename(&mut self, from: &At, to: &[u8]) -> Result<(), Errno> {
        self.changes(from.tier)?;
        let d = self.disk(from.tier);
        let e = *d.now.get(&from.path).ok_or(Errno::NOENT)?;
        d.change(Change(vec![
            (from.path.clone(), None),
            (to.to_vec(), Some(e)),
        ]));
        Ok(())
    }
    fn exchange(&mut self, _a: &At, _b: &[u8]) -> Result<(), Errno> {
        Err(Errno::INVAL)
    }
    fn link(&mut self, from: &At, to: &[u8]) -> Result<(), Errno> {
        self.changes(from.tier)?;
        let d = self.disk(from.tier);
        let e = *d.now.get(&from.path).ok_or(Errno::NOENT)?;
        if d.now.contains_key(to) {
            return Err(Errno::EXIST);
        }
        d.change(Change(vec![(to.to_vec(), Some(e))]));
        Ok(())
    }
    fn unlink(&mut self, at: &At) -> Result<(), Errno> {
        self.changes(at.tier)?;
        if self.locked == Some(parent(&at.path)) {
            return Err(Errno::PERM);
        }
        let d = self.disk(at.tier);
        if d.file(&at.path).is_none() {
            return Err(Errno::NOENT);
        }
        d.change(Change(vec![(at.path.clone(), None)]));
        Ok(())
    }
}
