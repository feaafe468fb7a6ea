//! What the fastest tier keeps about lasting numbers: a table, which a clean unmount writes whole, and a log of what was added since.
//!
//! An entry says which number belongs to a file: the id of its tier, inode and time of birth. The log is never shortened while it is
//! mounted, and its space is set aside once, so that a full tier can go on. Each of its records has a check sum of its own; what is torn or
//! damaged is left out.

use crate::catalogue::{pack, unpack};
use crate::disk::{NewFile, Root, write_all};
use crate::mutants::{Mutant, broken};
use crate::tree::{Id, TEMPORARY, Tier, Time};
use isotherm_core::crc32c::{crc32c, update};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;

const HEAD: &[u8] = b"isotherm numbers 1\n";
const NAME: &[u8] = b"numbers";
const FILE: &[u8] = b".isotherm/numbers";
const LOG: &[u8] = b".isotherm/numbers.log";
/// Bytes of the log whose space stays set aside.
const LOG_BYTES: u64 = 64 << 10;
/// Bytes of a record of the log: kind, check sum, five words.
const RECORD: usize = 48;
/// Bytes of an entry of the table: inode, birth, number.
const ENTRY: usize = 24;
/// Marks the number of a directory. It can be on several tiers, and the catalogue knows its inode on one of them.
pub(super) const IS_DIR: u64 = TEMPORARY;

/// The file that an entry is about: the id of its tier, inode, time of birth.
pub(super) type Key = (u64, u64, u64);

pub(super) fn key(tier: u64, id: Id) -> Key {
    (tier, id.ino, id.born)
}

/// A record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// Numbers below this one may have been given to files.
    Reserved(u64),
    /// A file has a number, with [`IS_DIR`].
    Number(Key, u64),
    /// A move changed the change time of a file to the first of these values, and the second one is shown.
    Moved(Key, u64, u64),
}

impl Record {
    pub(super) fn encode(self) -> [u8; RECORD] {
        let (kind, words): (u32, [u64; 5]) = match self {
            Record::Reserved(below) => (1, [below, 0, 0, 0, 0]),
            Record::Number((tier, ino, born), number) => (2, [tier, ino, born, number, 0]),
            Record::Moved((tier, ino, born), now, shown) => (3, [tier, ino, born, now, shown]),
        };
        let mut bytes = [0; RECORD];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        for (i, word) in words.into_iter().enumerate() {
            bytes[8 + i * 8..16 + i * 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = crc32c(&bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
    fn decode(bytes: &[u8]) -> Option<Record> {
        let mut plain: [u8; RECORD] = bytes.try_into().ok()?;
        plain[4..8].fill(0);
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if crc32c(&plain) != half(4)? {
            return None;
        }
        let w = |i: usize| word(&plain, 8 + i * 8).unwrap_or(0);
        let key = (w(0), w(1), w(2));
        match half(0)? {
            1 => Some(Record::Reserved(w(0))),
            2 => Some(Record::Number(key, w(3))),
            3 => Some(Record::Moved(key, w(3), w(4))),
            _ => None,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// What was kept, as it is at a mount.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The ids of the tiers, the fastest first; 0 for one without an id.
    tiers: Vec<u64>,
    bytes: Vec<u8>,
    /// The tier, the place of the first entry and the number of entries in `bytes`, sorted by inode and birth.
    sections: Vec<(u64, usize, usize)>,
    /// What the log adds or changes.
    added: HashMap<Key, u64>,
    /// Change times of files that were moved: the present one on the tier, and the one that is shown.
    pub(super) moved: HashMap<Key, (u64, u64)>,
    /// All numbers that were given to files are lower.
    pub(super) next: u64,
    /// Whether there is a table that cannot be used.
    pub(super) damaged: bool,
    /// Number of records in the log.
    pub(super) records: usize,
    /// By tier: whether its files have in themselves the numbers of another set.
    pub(super) foreign: Vec<bool>,
}

impl Table {
    /// Reads table and log from the fastest tier.
    pub(super) fn read(root: &Root, tiers: &[u64]) -> Table {
        let mut table = Table {
            tiers: tiers.to_vec(),
            ..Table::default()
        };
        match root.read_whole(FILE) {
            Ok(bytes) => {
                if bytes.is_some_and(|b| table.decode(b).is_none()) {
                    table = Table {
                        tiers: table.tiers,
                        damaged: true,
                        ..Table::default()
                    };
                }
            }
            Err(_) => table.damaged = true,
        }
        match root.read_whole(LOG) {
            Ok(log) => {
                for record in log.iter().flat_map(|l| l.chunks(RECORD)) {
                    let record = Record::decode(record);
                    table.records += usize::from(record.is_some());
                    match record {
                        Some(Record::Reserved(below)) => table.next = table.next.max(below),
                        Some(Record::Number(key, number)) => {
                            table.added.insert(key, number);
                        }
                        Some(Record::Moved(key, now, shown)) => {
                            table.moved.insert(key, (now, shown));
                        }
                        None => {}
                    }
                }
            }
            Err(_) => table.damaged = true,
        }
        table
    }
    fn decode(&mut self, bytes: Vec<u8>) -> Option<()> {
        let end = bytes.len().checked_sub(4)?;
        let sum = u32::from_le_bytes(bytes[end..].try_into().ok()?);
        if crc32c(&bytes[..end]) != sum && !broken(Mutant::TrustTornTable) {
            return None;
        }
        if !bytes.starts_with(HEAD) {
            return None;
        }
        let mut at = HEAD.len();
        self.next = word(&bytes, at)?;
        let moved = word(&bytes, at + 8)? as usize;
        at += 16;
        for _ in 0..moved {
            let w = |i: usize| word(&bytes, at + i * 8);
            let key = (w(0)?, w(1)?, w(2)?);
            self.moved.insert(key, (w(3)?, w(4)?));
            at += 40;
        }
        while at < end {
            let (tier, count) = (word(&bytes, at)?, word(&bytes, at + 8)? as usize);
            self.sections.push((tier, at + 16, count));
            at = count.checked_mul(ENTRY)?.checked_add(at + 16)?;
        }
        self.bytes = bytes;
        (at == end).then_some(())
    }
    /// The number of a file on a tier, if it is known. `next` is the place at which to look first, and then the one behind that: files of a
    /// directory are often asked for in the order of the table.
    pub(crate) fn find(&self, tier: Tier, id: Id, next: &mut usize) -> Option<u64> {
        let own = self.tiers.get(usize::from(tier)).copied().unwrap_or(0);
        // A tier that has an id now may have had none, because it was full.
        let found = self.find_key(key(own, id), next);
        let found = found.or_else(|| self.find_key(key(0, id), &mut 0));
        found.map(|number| number & !IS_DIR)
    }
    fn find_key(&self, key: Key, next: &mut usize) -> Option<u64> {
        if !self.added.is_empty()
            && let Some(number) = self.added.get(&key)
        {
            return Some(*number);
        }
        let (_, start, count) = *self.sections.iter().find(|s| s.0 == key.0)?;
        let (mut low, mut high) = (0, count);
        let mut middle = *next;
        while low < high {
            if !(low..high).contains(&middle) {
                middle = low.midpoint(high);
            }
            let at = start + middle * ENTRY;
            let there = (word(&self.bytes, at)?, word(&self.bytes, at + 8)?);
            match there.cmp(&(key.1, key.2)) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    *next = middle + 1;
                    return word(&self.bytes, at + 16);
                }
            }
            middle = usize::MAX;
        }
        None
    }
    /// Whether the numbers that files of a tier have in themselves are of this set.
    pub(crate) fn trusts_files(&self, tier: Tier) -> bool {
        let foreign = self.foreign.get(usize::from(tier)).copied();
        !foreign.unwrap_or(false)
    }
    /// The change time to show for a file, if a move was the last that changed it.
    pub(crate) fn shown_ctime(&self, tier: Tier, id: Id, now: Time) -> Option<Time> {
        let own = self.tiers.get(usize::from(tier)).copied().unwrap_or(0);
        let (moved, shown) = self.moved.get(&key(own, id))?;
        let same = pack(now) == Some(*moved) || broken(Mutant::TrustOldTime);
        same.then(|| unpack(*shown))
    }
    /// All entries; those of the log come last.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Key, u64)> + '_ {
        let whole = self.sections.iter().flat_map(move |&(tier, start, count)| {
            (0..count).filter_map(move |i| {
                let w = |n: usize| word(&self.bytes, start + i * ENTRY + n * 8);
                Some(((tier, w(0)?, w(1)?), w(2)?))
            })
        });
        whole.chain(self.added.iter().map(|(k, n)| (*k, *n)))
    }
}

/// Writes the table. The entries are sorted, each key once.
pub(super) fn write(
    root: &Root,
    next: u64,
    moved: &[(Key, (u64, u64))],
    entries: &[(Key, u64)],
) -> Result<(), Errno> {
    let new = NewFile::make(root, NAME)?;
    let (mut sum, mut done) = (0, 0);
    let mut put = |piece: &[u8]| {
        write_all(&new.fd, piece, done)?;
        (sum, done) = (update(sum, piece), done + piece.len() as u64);
        Ok::<(), Errno>(())
    };
    let mut piece = HEAD.to_vec();
    let add = |piece: &mut Vec<u8>, words: &[u64]| {
        piece.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    };
    add(&mut piece, &[next, moved.len() as u64]);
    for ((tier, ino, born), (now, shown)) in moved {
        add(&mut piece, &[*tier, *ino, *born, *now, *shown]);
    }
    for section in entries.chunk_by(|a, b| a.0.0 == b.0.0) {
        add(&mut piece, &[section[0].0.0, section.len() as u64]);
        for ((_, ino, born), number) in section {
            add(&mut piece, &[*ino, *born, *number]);
            if piece.len() > 1 << 20 {
                put(&piece)?;
                piece.clear();
            }
        }
    }
    put(&piece)?;
    write_all(&new.fd, &sum.to_le_bytes(), done)?;
    new.publish()
}

/// The log while it is mounted.
#[derive(Debug)]
pub(super) struct Log {
    fd: OwnedFd,
    /// Its length in bytes.
    end: u64,
}

impl Log {
    /// Opens the log behind its last record, or makes it.
    pub(super) fn open(root: &Root) -> Result<Log, Errno> {
        let old = root.read_whole(LOG)?;
        let good = |at: &usize| {
            let bytes = old.as_deref().unwrap_or_default();
            Record::decode(&bytes[at * RECORD..(at + 1) * RECORD]).is_some()
        };
        let records = old.as_ref().map_or(0, |o| o.len() / RECORD);
        let end = (0..records).rev().find(good).map_or(0, |at| at + 1);
        let fd = root.open_at(LOG, OFlags::CREATE | OFlags::RDWR, 0o600)?;
        // The space need not be free: then later records may find none.
        let _ = rustix::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, 0, LOG_BYTES);
        if old.is_none() {
            rustix::fs::fsync(root.directory(crate::tree::HIDDEN)?).or_else(|e| match e {
                Errno::INVAL | Errno::NOSYS => Ok(()),
                e => Err(e),
            })?;
        }
        let end = (end * RECORD) as u64;
        Ok(Log { fd, end })
    }
    /// Adds records. They are durable when this returns, if `durable`.
    pub(super) fn append(&mut self, records: &[Record], durable: bool) -> Result<(), Errno> {
        let bytes: Vec<u8> = records.iter().flat_map(|r| r.encode()).collect();
        write_all(&self.fd, &bytes, self.end)?;
        if durable {
            rustix::fs::fdatasync(&self.fd)?;
        }
        self.end += bytes.len() as u64;
        Ok(())
    }
    /// Empties the log, whose records are in the table, but for this one, which counts if the table is damaged later. Its space stays set
    /// aside.
    pub(super) fn clear(self, first: Record) -> Result<(), Errno> {
        if self.end > LOG_BYTES {
            rustix::fs::ftruncate(&self.fd, LOG_BYTES)?;
        }
        let mut bytes = vec![0; self.end.clamp(RECORD as u64, LOG_BYTES) as usize];
        bytes[..RECORD].copy_from_slice(&first.encode());
        write_all(&self.fd, &bytes, 0)?;
        rustix::fs::fdatasync(&self.fd)
    }
}
