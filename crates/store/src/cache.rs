//! Groups of objects in memory, with requests for them that are joined, and fetched ahead of sequential reads (ahead.rs).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::layout::{self, BLOCK, GROUP, GROUP_BYTES};
use crate::remote::{Remote, RemoteError, patiently};
use crate::state::Object;

type Key = (Arc<str>, u64);

#[derive(Default)]
struct Kept {
    groups: HashMap<Key, (Arc<Vec<u8>>, u64)>,
    /// By the time of the last use.
    order: BTreeMap<u64, Key>,
    clock: u64,
    bytes: u64,
    fetching: HashSet<Key>,
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

    /// Marks the groups from `first` on that are neither here nor fetched, up to `upto`, as fetched now. Returns the one after them.
    fn claim(&mut self, name: &Arc<str>, first: u64, upto: u64) -> u64 {
        let mut at = first;
        while at < upto {
            let next = (Arc::clone(name), at);
            if self.groups.contains_key(&next) || !self.fetching.insert(next) {
                break;
            }
            at += 1;
        }
        at
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
        let last = end.div_ceil(GROUP);
        let mut at = block;
        let mut rest = to;
        while at < end {
            let key = (Arc::clone(name), at / GROUP);
            let group = self.group(remote, wait, object, &key, last)?;
            let from = at % GROUP;
            let many = (group.len() as u64 / BLOCK - from).min(end - at);
            let (part, after) = rest.split_at_mut((many * BLOCK) as usize);
            part.copy_from_slice(&group[(from * BLOCK) as usize..][..part.len()]);
            rest = after;
            at += many;
        }
        Ok(())
    }

    /// One group, and with it those up to `last` that follow and are not here.
    fn group(
        &self,
        remote: &Remote,
        wait: Duration,
        object: &Object,
        key: &Key,
        last: u64,
    ) -> Result<Arc<Vec<u8>>, RemoteError> {
        let (first, mut kept) = (key.1, self.lock());
        let upto;
        loop {
            if let Some(group) = kept.get(key) {
                return Ok(group);
            }
            if !kept.fetching.contains(key) {
                upto = kept.claim(&key.0, first, last);
                break;
            }
            kept = self
                .ended
                .wait(kept)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(kept);
        let fetched = patiently(wait, || fetch(remote, object, first, upto));
        let wanted = self.keep(&key.0, first..upto, fetched)?;
        wanted.ok_or_else(|| RemoteError::Damaged(object.name.to_string()))
    }

    /// Takes what was fetched of these groups, which were claimed. Returns the first of them.
    fn keep(
        &self,
        name: &Arc<str>,
        groups: Range<u64>,
        fetched: Result<Vec<Vec<u8>>, RemoteError>,
    ) -> Result<Option<Arc<Vec<u8>>>, RemoteError> {
        let mut kept = self.lock();
        for group in groups.clone() {
            kept.fetching.remove(&(Arc::clone(name), group));
        }
        self.ended.notify_all();
        let mut first = None;
        for (number, group) in groups.zip(fetched?) {
            let group = Arc::new(group);
            first.get_or_insert_with(|| Arc::clone(&group));
            kept.put((Arc::clone(name), number), group, self.most);
        }
        Ok(first)
    }

    /// Begins to fetch groups of an object that are not here.
    pub fn fetch_ahead(
        self: &Arc<Self>,
        remote: &Remote,
        object: &Arc<Object>,
        first: u64,
        upto: u64,
    ) {
        let mut at = first;
        while at < upto {
            let end = self.lock().claim(&object.name, at, upto);
            if end > at {
                let (cache, remote, object, groups) = (
                    Arc::clone(self),
                    remote.clone(),
                    Arc::clone(object),
                    at..end,
                );
                remote.clone().begin(async move {
                    let fetched = fetching(&remote, &object, groups.start, groups.end).await;
                    // Whoever needs them asks again, and hears of the error.
                    let _ = cache.keep(&object.name, groups, fetched);
                });
            }
            at = end.max(at + 1);
        }
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
    remote.wait(fetching(remote, object, first, upto))
}

async fn fetching(
    remote: &Remote,
    object: &Object,
    first: u64,
    upto: u64,
) -> Result<Vec<Vec<u8>>, RemoteError> {
    let offset = first * GROUP_BYTES;
    let end = (upto * GROUP_BYTES).min(layout::object_len(object.blocks));
    let bytes = remote
        .get_range(&object.name, offset, end.saturating_sub(offset))
        .await?;
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
