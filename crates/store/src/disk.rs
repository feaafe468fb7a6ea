//! The disk: the spool above the store.
//!
//! A block's newest content is in the live writes, else in the epoch that is being uploaded, else in the store, else it is zeros.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::ahead::Streams;
use crate::cache::Cache;
use crate::extent_map::ExtentMap;
use crate::head::{self, NoCommit};
use crate::layout::BLOCK;
use crate::reading::Where;
use crate::remote::{Remote, RemoteError};
use crate::spool::{Local, RECORD_BLOCKS, Spool, Wanted};
use crate::state::State;
use crate::upkeep::Folding;
use crate::upload::Plan;

/// Bounds and times.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The id that the store must have, if it is known.
    pub id: Option<String>,
    /// What is older is uploaded at the next FLUSH.
    pub order: Duration,
    /// An epoch with so many bytes is uploaded at the next FLUSH, whatever its age.
    pub epoch_bytes: u64,
    /// Largest size of the spool in bytes.
    pub spool_bytes: u64,
    /// Whether another spool than the one that wrote last may be used, if it is empty: what that one holds is given up.
    pub new_spool: bool,
    /// For how long a read waits for a store that is away.
    pub remote_wait: Duration,
    /// Objects stay for so long after they were needed last, and after they were made.
    pub grace: Duration,
    /// Memory for blocks of the store, bytes.
    pub cache_bytes: u64,
    /// Commits after which the map's segments are written anew.
    pub deltas: usize,
    /// Bytes in all objects below which sparse ones are left as they are.
    pub compact_bytes: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            id: None,
            order: Duration::from_secs(30),
            epoch_bytes: 256 << 20,
            spool_bytes: 4 << 30,
            new_spool: false,
            remote_wait: Duration::from_secs(60),
            grace: Duration::from_secs(3600),
            cache_bytes: 256 << 20,
            deltas: 64,
            compact_bytes: 64 << 20,
        }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// Another writer has the store.
    Fenced,
    /// The spool has failed or is full, or a block cannot be read.
    Io(String),
    /// The range is outside of the disk, or larger than 64 MiB.
    Range,
}

impl std::fmt::Display for DiskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DiskError::Fenced => f.write_str("another writer has taken the store"),
            DiskError::Io(why) => f.write_str(why),
            DiskError::Range => f.write_str("the range is outside of the disk, or too large"),
        }
    }
}

/// What is known of the store's health.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Since when the store is away, and what it said last.
    pub away: Option<(u64, String)>,
    /// Since when writers wait for room in the spool.
    pub stalled: Option<u64>,
    /// The last damage that was found.
    pub damage: Option<String>,
    /// When the last commit ended, seconds since 1970.
    pub committed: u64,
}

/// An epoch that is being uploaded.
pub(crate) struct Epoch {
    pub writes: ExtentMap<Local>,
    /// The last write that is in it.
    pub sequence: u64,
    pub plan: Option<Plan>,
}

pub(crate) struct Inner {
    pub spool: Spool,
    pub live: ExtentMap<Local>,
    pub frozen: Option<Epoch>,
    pub state: State,
    pub folding: Option<Folding>,
    /// Whether sparse objects are moved; not after one could not be read.
    pub moves: bool,
    /// Number of plans that were given up.
    pub plans: u32,
    /// When the oldest write of `live` came.
    pub since: Option<Instant>,
    /// Whether nothing was written since the last FLUSH.
    pub at_flush: bool,
    pub pressure: bool,
    pub fenced: bool,
    pub closing: bool,
    pub health: Health,
}

/// See the module.
pub struct Disk {
    pub(crate) inner: Mutex<Inner>,
    pub(crate) changed: Condvar,
    pub(crate) remote: Remote,
    pub(crate) settings: Settings,
    pub(crate) cache: Arc<Cache>,
    pub(crate) streams: Mutex<Streams>,
    /// Objects that are not needed, and when that was seen first.
    pub(crate) unneeded: Mutex<HashMap<String, Instant>>,
    /// Held for an `fdatasync`. The kernel says once that one has failed: of two at a time, the other would not hear of it.
    pub(crate) syncing: Mutex<()>,
    blocks: u64,
}

impl Inner {
    fn usable(&self) -> Result<(), DiskError> {
        if self.fenced {
            return Err(DiskError::Fenced);
        }
        let broken = self.spool.broken();
        broken.map_or(Ok(()), |why| Err(DiskError::Io(why.to_owned())))
    }
}

/// Whether there is no room now, which says nothing of what was written before.
fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

impl Disk {
    /// Takes the store, over the spool in `dir`: what the spool holds and the store does not is part of the disk again.
    ///
    /// # Errors
    /// The store or the spool cannot be used; the text says why and what to do.
    pub fn open(
        remote: Remote,
        dir: &Path,
        settings: Settings,
        discard: bool,
    ) -> Result<Disk, String> {
        let description = head::describe(&remote)?;
        if settings.id.as_ref().is_some_and(|id| *id != description.id) {
            return Err(format!(
                "another store is here ({}): correct the URL in the description, or its `id`",
                description.id
            ));
        }
        let mut tries = 0;
        let (mut spool, replayed, state) = loop {
            let before = head::newest(&remote, &description.id).map_err(|e| e.to_string())?;
            let wanted = Wanted {
                store: &description.id,
                committed: before.sequence,
                manifest: before.number,
                spool: &before.spool,
                blocks: description.bytes / BLOCK,
                new: settings.new_spool || discard,
            };
            let (spool, replayed) = Spool::open(dir, &wanted, discard && tries == 0)?;
            // A store that cannot be read is not taken from anybody.
            let mut state = State::load(&remote, description.clone(), before.clone())
                .map_err(|e| e.to_string())?;
            match head::take_fence(&remote, &before, &spool.life()) {
                Ok(manifest) => {
                    state.manifest = manifest;
                    break (spool, replayed, state);
                }
                // Another one took it, or the answer was lost: the newest manifest tells.
                Err(NoCommit::Fenced) if tries < 8 => tries += 1,
                Err(NoCommit::Fenced) => {
                    return Err("other writers take the store again and again".into());
                }
                Err(NoCommit::Not(error)) => return Err(error.to_string()),
            }
        };
        let mut live = ExtentMap::default();
        for (start, blocks, place) in replayed {
            live.insert(start, blocks, place, |_, _, _| {});
        }
        spool
            .forget(state.manifest.sequence, state.manifest.number)
            .map_err(|e| e.to_string())?;
        let health = Health {
            committed: head::now(),
            ..Health::default()
        };
        Ok(Disk {
            blocks: state.blocks(),
            inner: Mutex::new(Inner {
                spool,
                since: (!live.is_empty()).then(Instant::now),
                live,
                frozen: None,
                state,
                folding: None,
                moves: true,
                plans: 0,
                at_flush: true,
                pressure: false,
                fenced: false,
                closing: false,
                health,
            }),
            changed: Condvar::new(),
            syncing: Mutex::default(),
            unneeded: Mutex::default(),
            cache: Arc::new(Cache::new(settings.cache_bytes)),
            streams: Mutex::default(),
            remote,
            settings,
        })
    }

    /// Whether a process serves a disk over the spool in `dir`.
    pub fn is_served(dir: &Path) -> bool {
        Spool::is_in_use(dir)
    }

    /// Names the state that a successor of this process must go on from; see `spool/lineage.rs`.
    pub fn lineage(&self) -> String {
        let inner = self.lock();
        format!("{}-{}", inner.state.description.id, inner.spool.lineage())
    }

    /// Blocks of the disk.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each change is whole before something can panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn check(&self, start: u64, blocks: u64) -> Result<(), DiskError> {
        let inside = start
            .checked_add(blocks)
            .is_some_and(|end| end <= self.blocks);
        if inside {
            Ok(())
        } else {
            Err(DiskError::Range)
        }
    }

    /// Writes whole blocks at block `start`; not durable before a [`Disk::flush`]. Waits while the spool is full.
    ///
    /// # Errors
    /// See [`DiskError`].
    pub fn write(&self, start: u64, data: &[u8]) -> Result<(), DiskError> {
        self.put(start, data.len() as u64 / BLOCK, Some(data), None)
            .map(drop)
    }

    /// Makes blocks zeros, as [`Disk::write`].
    ///
    /// # Errors
    /// See [`DiskError`].
    pub fn zero(&self, start: u64, blocks: u64) -> Result<(), DiskError> {
        if self.is_zero(start, blocks)? {
            return Ok(());
        }
        self.put(start, blocks, None, None).map(drop)
    }

    /// Writes `data` at a byte that need not begin a block.
    ///
    /// # Errors
    /// See [`DiskError`].
    pub fn write_bytes(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        if offset.is_multiple_of(BLOCK) && (data.len() as u64).is_multiple_of(BLOCK) {
            return self.write(offset / BLOCK, data);
        }
        let (start, end) = (offset / BLOCK, (offset + data.len() as u64).div_ceil(BLOCK));
        self.check(start, end - start)?;
        loop {
            let mut whole = vec![0; ((end - start) * BLOCK) as usize];
            // Nothing may be written to these blocks between the read and the write.
            let places = self.read_places(start, &mut whole)?;
            let head = (offset - start * BLOCK) as usize;
            whole[head..head + data.len()].copy_from_slice(data);
            if self.put(start, end - start, Some(&whole), Some(&places))? {
                return Ok(());
            }
        }
    }

    /// Returns false, and writes nothing, if the blocks do not lie at `only_over` any more.
    fn put(
        &self,
        start: u64,
        blocks: u64,
        data: Option<&[u8]>,
        only_over: Option<&[(u64, Where)]>,
    ) -> Result<bool, DiskError> {
        self.check(start, blocks)?;
        if data.is_some() && blocks > RECORD_BLOCKS {
            return Err(DiskError::Range);
        }
        if blocks == 0 {
            return Ok(true);
        }
        let need = data.map_or(0, |d| d.len() as u64 + d.len() as u64 / 512) + 256;
        let mut inner = self.lock();
        loop {
            inner.usable()?;
            if only_over.is_some_and(|p| p != inner.places(start, blocks)) {
                return Ok(false);
            }
            let waiting = !inner.live.is_empty() || inner.frozen.is_some();
            let mut full = waiting && inner.spool.bytes() + need > self.settings.spool_bytes;
            if !full {
                match inner.spool.append(start, blocks, data) {
                    Ok(place) => {
                        inner.live.insert(start, blocks, place, |_, _, _| {});
                        inner.since.get_or_insert_with(Instant::now);
                        inner.at_flush = false;
                        inner.health.stalled = None;
                        return Ok(true);
                    }
                    Err(error) if is_full(&error) && waiting => {
                        full = true;
                    }
                    Err(error) if is_full(&error) => {
                        return Err(DiskError::Io(format!(
                            "the spool's file system is full: {error}"
                        )));
                    }
                    Err(error) => {
                        let why = format!("the spool cannot be written to: {error}");
                        inner.spool.fail(why);
                    }
                }
            }
            if full && inner.closing {
                return Err(DiskError::Io(
                    "the spool is full, and the service ends".into(),
                ));
            }
            if full {
                inner.pressure = true;
                if inner.health.stalled.is_none() {
                    inner.health.stalled = Some(head::now());
                    eprintln!(
                        "isotherm-store: the spool is full: writers wait until more of it is in the store"
                    );
                }
                self.changed.notify_all();
                inner = self
                    .changed
                    .wait_timeout(inner, Duration::from_millis(500))
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
    }

    /// Makes all writes durable that have ended before.
    ///
    /// # Errors
    /// See [`DiskError`]; after an error of the device nothing can be written any more, because what is durable is not known.
    pub fn flush(&self) -> Result<(), DiskError> {
        let (file, sequence) = {
            let mut inner = self.lock();
            inner.usable()?;
            let file = inner.spool.to_sync();
            // The file that is ended here is made durable by its successor.
            self.cut_if_due(&mut inner, true);
            file
        };
        let _one = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let durable = self.lock().spool.is_durable(sequence);
        let done = file.filter(|_| !durable).map(|f| f.sync_data());
        let mut inner = self.lock();
        if let Some(Err(error)) = done {
            let why = format!("the spool cannot be flushed: {error}");
            inner.spool.fail(why);
        }
        inner.usable()?;
        inner.spool.synced(sequence);
        inner.at_flush |= inner.spool.to_sync().1 == sequence;
        Ok(())
    }

    /// Ends the epoch if it is old or large enough. `flush`: the present state is one of a FLUSH. Any moment would be right, because writes
    /// are taken in their order; a state at a FLUSH is one that the user above has asked for.
    pub(crate) fn cut_if_due(&self, inner: &mut Inner, flush: bool) {
        let Some(since) = inner.since else { return };
        if inner.frozen.is_some() || inner.fenced {
            return;
        }
        let (age, bytes, set) = (since.elapsed(), inner.live.blocks() * BLOCK, &self.settings);
        let due = age >= set.order || bytes >= set.epoch_bytes;
        let late = age >= set.order.saturating_mul(2)
            || bytes >= set.epoch_bytes.saturating_mul(2)
            || inner.pressure
            || inner.closing;
        if late || due && (flush || inner.at_flush) {
            self.cut(inner);
        }
    }

    fn cut(&self, inner: &mut Inner) {
        // Without room for a new file the old one goes on; its space is given back one epoch later.
        let sequence = inner
            .spool
            .cut()
            .unwrap_or_else(|_| inner.spool.to_sync().1);
        inner.frozen = Some(Epoch {
            writes: std::mem::take(&mut inner.live),
            sequence,
            plan: None,
        });
        inner.since = None;
        self.changed.notify_all();
    }

    /// Ends the epoch now, unless one is being uploaded. Returns whether there is one to upload.
    pub fn cut_now(&self) -> bool {
        let mut inner = self.lock();
        if inner.frozen.is_none() && !inner.live.is_empty() {
            self.cut(&mut inner);
        }
        inner.frozen.is_some()
    }

    /// Takes the outcome of a request to the store down.
    pub(crate) fn note(&self, error: Option<&RemoteError>) {
        let mut inner = self.lock();
        match error {
            None => {
                if let Some((since, _)) = inner.health.away.take() {
                    let seconds = head::now().saturating_sub(since);
                    eprintln!("isotherm-store: the store is there again, after {seconds} s");
                }
            }
            Some(RemoteError::Away(why) | RemoteError::Refused(why)) => {
                if let Some((_, last)) = &mut inner.health.away {
                    last.clone_from(why);
                } else {
                    eprintln!("isotherm-store: the store is away: {why}");
                    inner.health.away = Some((head::now(), why.clone()));
                }
            }
            Some(damage) => {
                let damage = damage.to_string();
                if inner.health.damage.as_ref() != Some(&damage) {
                    eprintln!("isotherm-store: {damage}: reads of it answer EIO");
                    inner.health.damage = Some(damage);
                }
            }
        }
    }
}
