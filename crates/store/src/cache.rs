//! Groups of objects in memory, with requests for them that are joined, and read ahead when reads are sequential.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::layout::{self, BLOCK, GROUP, GROUP_BYTES};
use crate::remote::{Remote, RemoteError, patiently};
use crate::state::Object;

/// Streams of reads that are remembered.
const STREAMS: usize = 32;

type Key = (Arc<str>, u64);

#[derive(Default)]
struct Kept {
    groups: HashMap<Key, (Arc<Vec<u8>>, u64)>,
    /// By the time of the last use.
    order: BTreeMap<u64, Key>,
    clock: u64,
    bytes: u64,
    fetching: HashSet<Key>,
    /// Ends of the last reads: name of the object, block.
    streams: Vec<(Arc<str>, u64)>,
}

/// See the module.
pub struct Cache {
    kept: Mutex<Kept>,
    ended: Condvar,
    most: u64,
}

impl Kept {
    fn get(&mut self, key: &Key) -> Option<Arc<Vec<u8>>> {
        self.clock += 1;
        let (group, used) = self.groups.get_mut(key)?;
        self.order.remove(used);
        *used = self.clock;
        self.order.insert(self.clock, key.clone());
        Some(Arc::clone(group))
    }

    fn put(&mut self, key: Key, group: Arc<Vec<u8>>, most: u64) {
        if most < group.len() as u64 || self.groups.contains_key(&key) {
            return;
        }
        self.bytes += group.len() as u64;
        while self.bytes > most {
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            if let Some((gone, _)) = self.groups.remove(&oldest) {
                self.bytes -= gone.len() as u64;
            }
        }
        self.clock += 1;
        self.order.insert(self.clock, key.clone());
        self.groups.insert(key, (group, self.clock));
    }

    /// Whether a read goes on where an earlier one ended; the stream is where this one ends.
    fn is_sequential(&mut self, name: &Arc<str>, block: u64, end: u64) -> bool {
        let at = self
            .streams
            .iter()
            .position(|(n, b)| n == name && *b == block);
        let sequential = at.is_some() || block == 0;
        if let Some(at) = at {
            self.streams.remove(at);
        } else if self.streams.len() >= STREAMS {
            self.streams.remove(0);
        }
        self.streams.push((Arc::clone(name), end));
        sequential
    }
}

impl Cache {
    /// A cache of at most `most` bytes.
    pub fn new(most: u64) -> Cache {
        Cache {
            kept: Mutex::default(),
            ended: Condvar::new(),
            most,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // What is kept was checked before it was put here.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all of these blocks are here.
    pub fn has(&self, object: &Object, block: u64, blocks: u64) -> bool {
        let kept = self.lock();
        let name = &object.name;
        (block / GROUP..=(block + blocks.max(1) - 1) / GROUP)
            .all(|g| kept.groups.contains_key(&(Arc::clone(name), g)))
    }

    /// Reads blocks of an object, from `block` on; waits at most `wait` for a store that is away.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub fn read(
        &self,
        remote: &Remote,
        wait: Duration,
        object: &Object,
        block: u64,
        to: &mut [u8],
    ) -> Result<(), RemoteError> {
        let name = &object.name;
        let end = block + to.len() as u64 / BLOCK;
        let sequential = self.lock().is_sequential(name, block, end);
        let last = end.div_ceil(GROUP);
        let ahead = if sequential {
            object.blocks.div_ceil(GROUP)
        } else {
            last
        };
        let mut at = block;
        let mut rest = to;
        while at < end {
            let key = (Arc::clone(name), at / GROUP);
            let group = self.group(remote, wait, object, &key, last, ahead)?;
            let from = at % GROUP;
            let many = (group.len() as u64 / BLOCK - from).min(end - at);
            let (part, after) = rest.split_at_mut((many * BLOCK) as usize);
            part.copy_from_slice(&group[(from * BLOCK) as usize..][..part.len()]);
            rest = after;
            at += many;
        }
        Ok(())
    }

    /// One group, and with it those up to `last` and, if none of them is here, up to `ahead`.
    fn group(
        &self,
        remote: &Remote,
        wait: Duration,
        object: &Object,
        key: &Key,
        last: u64,
        ahead: u64,
    ) -> Result<Arc<Vec<u8>>, RemoteError> {
        let (first, mut kept) = (key.1, self.lock());
        let mut upto = first;
        loop {
            if let Some(group) = kept.get(key) {
                return Ok(group);
            }
            if !kept.fetching.contains(key) {
                while upto < last.max(ahead) {
                    let next = (Arc::clone(&key.0), upto);
                    if kept.groups.contains_key(&next) || kept.fetching.contains(&next) {
                        break;
                    }
                    kept.fetching.insert(next);
                    upto += 1;
                }
                break;
            }
            kept = self
                .ended
                .wait(kept)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(kept);
        let fetched = patiently(wait, || fetch(remote, object, first, upto));
        let mut kept = self.lock();
        for group in first..upto {
            kept.fetching.remove(&(Arc::clone(&key.0), group));
        }
        self.ended.notify_all();
        let groups = fetched?;
        let mut wanted = None;
        for (number, group) in (first..).zip(groups) {
            let group = Arc::new(group);
            wanted.get_or_insert_with(|| Arc::clone(&group));
            kept.put((Arc::clone(&key.0), number), group, self.most);
        }
        wanted.ok_or_else(|| RemoteError::Damaged(object.name.to_string()))
    }
}

/// The payload of the groups from `first` to before `upto`, checked.
///
/// # Errors
/// See [`RemoteError`].
pub fn fetch(
    remote: &Remote,
    object: &Object,
    first: u64,
    upto: u64,
) -> Result<Vec<Vec<u8>>, RemoteError> {
    let offset = first * GROUP_BYTES;
    let end = (upto * GROUP_BYTES).min(layout::object_len(object.blocks));
    let bytes = remote.wait(remote.get_range(&object.name, offset, end.saturating_sub(offset)))?;
    let mut groups: Vec<Vec<u8>> = bytes
        .chunks(GROUP_BYTES as usize)
        .map(<[u8]>::to_vec)
        .collect();
    for (number, group) in (first..).zip(&mut groups) {
        if !layout::open_group(&object.name, group) {
            return Err(RemoteError::Damaged(format!(
                "{} (group {number})",
                object.name
            )));
        }
    }
    Ok(groups)
}
