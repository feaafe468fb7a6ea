//! The spool: an append-only log on local flash, which holds what was written and is not yet in the store.
//!
//! ```text
//! NUMBER.spool:  header (64 bytes) │ record │ record │ …
//! record:        head (64 bytes) │ CRC-32 of each block, padded to 64 bytes │ blocks
//! ```
//!
//! Each record has the sequence number after that of the one before, over all files. A file is durable before the next one is made, so only
//! the last file may end in the middle of a record. A record's head says up to which number everything was durable when it was written;
//! a torn record below that number, or a missing one, is damage and not the end of the log.
//!
//! Each start has a random number, its *life*, which is in the headers of its files before it is in a manifest. So only the one of several
//! copies of a spool that had the store last is taken: the others have the same numbers for other writes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FlockOperation, fadvise, flock};

use crate::layout::BLOCK;

use files::{numbers, path};
use record::{HEAD, Head, Record, durable_after, hex, place, record_at, sums_bytes};
pub use record::{Local, RECORD_BLOCKS, random, random_id, read};

mod files;
mod lineage;
mod record;

/// A file is ended when it is as long, so that its space can be given back.
const FILE_BYTES: u64 = 64 << 20;

/// Bytes of a file that the next start removes, so that there is room for its first file.
const RESERVE: usize = 64 << 10;

/// What a spool must fit to.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The store's id, 32 hexadecimal digits.
    pub store: &'a str,
    /// The last write that the store has.
    pub committed: u64,
    /// The number of its newest manifest.
    pub manifest: u64,
    /// The life of the spool that wrote it.
    pub spool: &'a str,
    /// Size of the disk in blocks.
    pub blocks: u64,
    /// Whether it may be another one that holds nothing.
    pub new: bool,
}

struct SpoolFile {
    file: Arc<File>,
    bytes: u64,
    last: u64,
}

/// What a replay has found so far.
#[derive(Default)]
struct Found {
    /// Writes that the store does not have.
    writes: Vec<Replayed>,
    /// The number of the last record.
    before: Option<u64>,
}

/// See the module. One process at a time has it.
pub struct Spool {
    dir: PathBuf,
    id: [u8; 16],
    life: [u8; 12],
    store: [u8; 16],
    files: BTreeMap<u32, SpoolFile>,
    next: u64,
    next_file: u32,
    durable: u64,
    manifest: u64,
    broken: Option<String>,
    lineage: String,
    _lock: File,
}

/// One replayed write: first block, blocks, and where its content lies.
pub type Replayed = (u64, u64, Local);

impl Spool {
    /// Opens the spool in `dir`, which is made if need be. Returns it with the writes that the store does not have, oldest first.
    ///
    /// # Errors
    /// Another process has it; it belongs to another store; it holds writes that the store must not take, because another writer has had it
    /// meanwhile; it is damaged; I/O. With `discard`, all that it holds is removed first.
    pub fn open(
        dir: &Path,
        wanted: &Wanted<'_>,
        discard: bool,
    ) -> Result<(Spool, Vec<Replayed>), String> {
        let failed = |e: io::Error| format!("spool {}: {e}", dir.display());
        std::fs::create_dir_all(dir).map_err(failed)?;
        let lock = files::lock(dir)?;
        if discard {
            for number in numbers(dir).map_err(failed)? {
                std::fs::remove_file(path(dir, number)).map_err(failed)?;
            }
        }
        let mut spool = Spool {
            dir: dir.to_owned(),
            id: random().map_err(failed)?,
            life: [0; 12],
            store: [0; 16],
            files: BTreeMap::new(),
            next: wanted.committed + 1,
            next_file: 1,
            durable: wanted.committed,
            manifest: wanted.manifest,
            broken: None,
            lineage: String::new(),
            _lock: lock,
        };
        for (i, byte) in spool.store.iter_mut().enumerate() {
            let digits = wanted.store.get(i * 2..i * 2 + 2).unwrap_or("");
            *byte = u8::from_str_radix(digits, 16)
                .map_err(|_| "the store's id is damaged".to_owned())?;
        }
        spool.life.copy_from_slice(&random().map_err(failed)?[..12]);
        let replayed = spool.replay(wanted)?;
        spool.lineage = lineage::of(dir, &spool.id);
        // A start needs a file, also when the file system is full of what only a start can upload.
        let reserve = dir.join("reserve");
        let _ = std::fs::remove_file(&reserve);
        spool.new_file(wanted.manifest).map_err(failed)?;
        let _ = std::fs::write(&reserve, vec![1; RESERVE]);
        Ok((spool, replayed))
    }

    /// Whether a process has the spool in `dir`.
    pub fn is_in_use(dir: &Path) -> bool {
        let lock = File::open(dir.join("lock"));
        lock.is_ok_and(|f| flock(&f, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    fn replay(&mut self, wanted: &Wanted<'_>) -> Result<Vec<Replayed>, String> {
        let here = self.dir.display().to_string();
        let failed = |e: io::Error| format!("spool {here}: {e}");
        let numbers = numbers(&self.dir).map_err(failed)?;
        let (mut files, mut used, mut known) = (Vec::new(), false, false);
        for (i, &number) in numbers.iter().enumerate() {
            let is_last = i + 1 == numbers.len();
            let path = path(&self.dir, number);
            let opened = OpenOptions::new().read(true).write(true).open(&path);
            let file = opened.map_err(failed)?;
            let bytes = file.metadata().map_err(failed)?.len();
            let mut head = [0; HEAD];
            let read = file.read_exact_at(&mut head, 0);
            match read.ok().and_then(|()| Head::decode(&head)) {
                Some(head) => {
                    self.check(number, &head, wanted, i == 0)?;
                    used |= bytes > HEAD as u64;
                    known |= hex(&head.life) == wanted.spool;
                }
                // A file is durable with its head before a record is written to it.
                None if is_last && bytes <= HEAD as u64 => {
                    std::fs::remove_file(path).map_err(failed)?;
                    continue;
                }
                None => return Err(self.damaged(number, 0, "no head")),
            }
            files.push((number, file));
        }
        if used && !known {
            return Err(format!(
                "spool {here}: it holds writes that the store may not have, and another writer, or another copy of this spool, has had the \
                 store since: if they may be lost, start again with --discard-spool"
            ));
        }
        if !known && !wanted.spool.is_empty() && !wanted.new {
            return Err(format!(
                "spool {here}: it is not the one that wrote to the store last, so acknowledged writes may be missing here: is its file system \
                 mounted? If that spool or its machine is gone, start with --new-spool"
            ));
        }
        let mut found = Found::default();
        for (number, file) in files {
            let is_last = Some(&number) == numbers.last();
            // What counts is on the device. The kernel keeps what it could not write, as if it were there, until the memory is needed.
            // The next start would not hear of what could not be written.
            let synced = file.sync_data().inspect_err(|_| lineage::end(&self.dir));
            synced.map_err(failed)?;
            fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| failed(e.into()))?;
            let bytes = self.records(number, &file, is_last, wanted, &mut found)?;
            let file = SpoolFile {
                file: Arc::new(file),
                bytes,
                last: found.before.unwrap_or(0),
            };
            self.files.insert(number, file);
        }
        self.next = self.next.max(found.before.map_or(0, |b| b + 1));
        Ok(found.writes)
    }

    fn damaged(&self, number: u32, at: u64, why: &str) -> String {
        format!(
            "spool {}: file {number} is damaged at byte {at} ({why}), so acknowledged writes are missing; the store has the state before \
             them: if they may be lost, start again with --discard-spool",
            self.dir.display()
        )
    }

    /// Whether a file with this head fits to the store; its id is the spool's.
    fn check(
        &mut self,
        number: u32,
        head: &Head,
        wanted: &Wanted<'_>,
        is_first: bool,
    ) -> Result<(), String> {
        let here = self.dir.display();
        if head.store != self.store {
            return Err(format!(
                "spool {here}: it belongs to another store, {}",
                hex(&head.store)
            ));
        }
        if head.manifest > wanted.manifest {
            return Err(format!(
                "spool {here}: the store has gone back: its newest manifest is {}, and it had {} when the spool was written: put the \
                 missing manifests back, or accept the old state with --discard-spool",
                wanted.manifest, head.manifest
            ));
        }
        if !is_first && head.spool != self.id {
            return Err(self.damaged(number, 0, "of another spool"));
        }
        self.id = head.spool;
        Ok(())
    }

    /// Reads the records of a file. Returns its bytes without a torn end, which is cut off.
    fn records(
        &self,
        number: u32,
        file: &File,
        is_last: bool,
        wanted: &Wanted<'_>,
        found: &mut Found,
    ) -> Result<u64, String> {
        let failed = |e: io::Error| format!("spool {}: {e}", self.dir.display());
        let bytes = file.metadata().map_err(failed)?.len();
        let mut at = HEAD as u64;
        while at < bytes {
            let Some(record) = record_at(file, at, &self.id).filter(|r| r.is_whole(file, at))
            else {
                let next = found.before.unwrap_or(0).max(wanted.committed) + 1;
                if !is_last || durable_after(file, at, bytes, &self.id) >= next {
                    return Err(self.damaged(number, at, "a record is torn"));
                }
                // The end of what was written when the power went.
                let cut = file.set_len(at).and_then(|()| file.sync_all());
                cut.map_err(failed)?;
                break;
            };
            let (sequence, committed) = (record.sequence, wanted.committed);
            // Numbers may be missing only up to what the store has.
            let follows = match found.before {
                Some(before) => {
                    sequence == before + 1 || sequence > before && sequence <= committed + 1
                }
                None => sequence <= committed + 1,
            };
            if !follows {
                return Err(self.damaged(number, at, "a record is missing"));
            }
            found.before = Some(sequence);
            if sequence > committed {
                let end = record.start.checked_add(record.blocks);
                if end.is_none_or(|end| end > wanted.blocks) {
                    return Err(self.damaged(number, at, "a write is outside of the disk"));
                }
                let place = place(number, at, &record);
                found.writes.push((record.start, record.blocks, place));
            }
            at += record.len();
        }
        Ok(at)
    }

    /// Nothing is written from now on. A failed `fdatasync` is final: the kernel may drop what it could not write, and says nothing of it the
    /// next time. Not even a new file is made: then a torn end would lie in the middle of the log.
    pub fn fail(&mut self, why: String) {
        lineage::end(&self.dir);
        self.broken.get_or_insert(why);
    }

    /// Stays the same over starts of which each has all that was ever answered.
    pub fn lineage(&self) -> &str {
        &self.lineage
    }

    /// Why nothing is written any more.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    fn new_file(&mut self, manifest: u64) -> io::Result<()> {
        let number = self
            .next_file
            .max(self.files.last_key_value().map_or(1, |(&n, _)| n + 1));
        if self.broken.is_none()
            && let Some((_, last)) = self.files.last_key_value()
            && let Err(error) = last.file.sync_data()
        {
            self.fail(format!("the spool cannot be flushed: {error}"));
        }
        if let Some(why) = &self.broken {
            return Err(io::Error::other(why.clone()));
        }
        let path = path(&self.dir, number);
        let made = (|| {
            let file = OpenOptions::new()
                .create_new(true)
                .mode(0o600)
                .read(true)
                .write(true)
                .open(&path)?;
            let head = Head {
                spool: self.id,
                store: self.store,
                manifest,
                life: self.life,
            };
            file.write_all_at(&head.encode(), 0)?;
            file.sync_all()?;
            File::open(&self.dir)?.sync_all()?;
            Ok(file)
        })();
        let file = match made {
            Ok(file) => file,
            Err(error) => {
                // An empty file of this name would be in the way of the next try.
                let _ = std::fs::remove_file(&path);
                return Err(error);
            }
        };
        self.durable = self.next - 1;
        self.manifest = manifest;
        let file = SpoolFile {
            file: Arc::new(file),
            bytes: HEAD as u64,
            last: self.next - 1,
        };
        self.files.insert(number, file);
        self.next_file = number + 1;
        Ok(())
    }

    /// Appends a write of whole blocks at block `start`; `data` is `None` for zeros. Not durable until [`Spool::synced`].
    ///
    /// # Errors
    /// I/O; then nothing of the write is in the log.
    pub fn append(&mut self, start: u64, blocks: u64, data: Option<&[u8]>) -> io::Result<Local> {
        let full = |f: &SpoolFile| f.bytes >= FILE_BYTES;
        if self.files.last_key_value().is_none_or(|(_, f)| full(f)) {
            self.new_file(self.manifest)?;
        }
        let mut sums = Vec::new();
        if let Some(data) = data {
            for block in data.chunks(BLOCK as usize) {
                sums.extend_from_slice(&crc32fast::hash(block).to_le_bytes());
            }
            sums.resize(sums_bytes(blocks) as usize, 0);
        }
        let record = Record {
            zero: data.is_none(),
            start,
            blocks,
            sequence: self.next,
            durable: self.durable,
            sums_crc: crc32fast::hash(&sums),
        };
        let Some(mut last) = self.files.last_entry() else {
            return Err(io::Error::other("no file"));
        };
        let (number, last) = (*last.key(), last.get_mut());
        let at = last.bytes;
        let mut front = record.encode(&self.id).to_vec();
        front.extend_from_slice(&sums);
        let data_at = at + front.len() as u64;
        let written = last
            .file
            .write_all_at(&front, at)
            .and_then(|()| last.file.write_all_at(data.unwrap_or(&[]), data_at));
        if let Err(error) = written {
            // What was written of it has a number that will be given again, and lies where the next record will.
            last.file.set_len(at)?;
            return Err(error);
        }
        last.bytes += record.len();
        last.last = self.next;
        self.next += 1;
        Ok(place(number, at, &record))
    }

    /// The file whose `fdatasync` makes all writes so far durable, and the last of them.
    pub fn to_sync(&self) -> (Option<Arc<File>>, u64) {
        let last = self.files.last_key_value();
        (last.map(|(_, f)| Arc::clone(&f.file)), self.next - 1)
    }

    /// All writes up to `sequence` are durable.
    pub fn synced(&mut self, sequence: u64) {
        self.durable = self.durable.max(sequence);
    }

    /// Whether all writes up to `sequence` are durable.
    pub fn is_durable(&self, sequence: u64) -> bool {
        sequence <= self.durable
    }

    /// Ends the present file, so that it can be removed when its writes are in the store. Returns the last write.
    ///
    /// # Errors
    /// I/O; writes go on in the old file, unless it is that one that cannot be flushed.
    pub fn cut(&mut self) -> io::Result<u64> {
        let empty = |f: &SpoolFile| f.bytes == HEAD as u64;
        if !self.files.last_key_value().is_some_and(|(_, f)| empty(f)) {
            self.new_file(self.manifest)?;
        }
        Ok(self.next - 1)
    }

    /// All writes up to `sequence` are in the store, whose newest manifest is `manifest`. Returns the numbers of the files that are gone.
    ///
    /// # Errors
    /// I/O; nothing is lost then.
    pub fn forget(&mut self, sequence: u64, manifest: u64) -> io::Result<()> {
        self.manifest = manifest;
        let newest = self.files.last_key_value().map(|(&n, _)| n);
        let old = |n: u32, f: &SpoolFile| Some(n) != newest && f.last <= sequence;
        let gone: Vec<u32> = self
            .files
            .iter()
            .filter(|(n, f)| old(**n, f))
            .map(|(&n, _)| n)
            .collect();
        for number in gone {
            std::fs::remove_file(path(&self.dir, number))?;
            self.files.remove(&number);
        }
        // When there was no room for a new file at the cut, the newest one holds what is in the store now. It is not written to again: a
        // reader may still have it.
        let used = |f: &SpoolFile| f.last <= sequence && f.bytes > HEAD as u64;
        if self.broken.is_none()
            && let Some(number) = newest.filter(|n| self.files.get(n).is_some_and(used))
        {
            std::fs::remove_file(path(&self.dir, number))?;
            self.files.remove(&number);
            self.new_file(manifest)?;
        }
        Ok(())
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|f| f.bytes).sum()
    }

    /// The number of this start of the spool, 24 hexadecimal digits.
    pub fn life(&self) -> String {
        hex(&self.life)
    }

    #[cfg(test)]
    pub(crate) fn swap_last(&mut self, file: Arc<File>) -> Arc<File> {
        let last = self.files.values_mut().next_back().unwrap();
        std::mem::replace(&mut last.file, file)
    }

    /// The file of this number.
    pub fn file(&self, number: u32) -> Option<Arc<File>> {
        self.files.get(&number).map(|f| Arc::clone(&f.file))
    }
}
