//! Records the operations on files, for the lab: which file, where, how many bytes, how large the file is, and how long it took.
//!
//! The client that records fetches the entries in batches (`control.rs`, `record`). If it has fetched none for a minute, the recording
//! ends. Without a recording, an operation costs one atomic load.
//!
//! ```text
//! 0 time ns │ 8 latency ns │ 16 offset │ 24 size of the file │ 32 length │ 40 node 6 │ 46 op │ 47 class     little endian
//! ```

use crate::catalogue::{Node, NodeId};
use crate::policy_state::class_of_size;
use crate::sync::lock;
use crate::wire::Bytes;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum length of an answer in bytes: the limit of Linux for the value of an attribute.
pub const ANSWER_MAX: usize = 65_536;
/// Length of an entry in bytes.
pub const ENTRY_BYTES: usize = 48;
/// Length of the head of a batch in bytes. The head has the number of entries that were lost so far.
pub const HEAD_BYTES: usize = 8;
/// Maximum number of entries that wait for the client, about 3 MB; further ones are lost and counted.
const QUEUE_MAX: usize = 1 << 16;
/// If the client fetches nothing for this time, the recording ends.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Bytes were read.
    Read,
    /// Bytes were written.
    Write,
    /// The file was made durable.
    Sync,
    /// Bytes were given up: by a truncation, a hole or zeroed range (fallocate), or because the file was deleted (then all of it).
    Drop,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Begin, in nanoseconds since the recording began.
    pub time_ns: u64,
    /// Nanoseconds from begin to end.
    pub latency_ns: u64,
    /// First byte in the file.
    pub offset: u64,
    /// Size of the file in bytes, after the operation.
    pub size: u64,
    /// Number of bytes.
    pub len: u64,
    /// Number of the file, which no other file of the mount ever has.
    pub node: NodeId,
    /// The kind.
    pub op: Op,
    /// Kind of data by size (DSS, Table 3), 0 for a sync.
    pub class: u8,
}

impl Entry {
    /// The bytes of the entry.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let times = [self.time_ns, self.latency_ns];
        let range = [self.offset, self.size, self.len, self.node];
        for (to, word) in bytes
            .chunks_exact_mut(8)
            .zip(times.into_iter().chain(range))
        {
            to.copy_from_slice(&word.to_le_bytes());
        }
        (bytes[46], bytes[47]) = (self.op as u8, self.class);
        bytes
    }
    /// The entry of these bytes; `None` if there is no such operation.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Entry> {
        let mut words = Bytes(bytes);
        let mut word = || words.word();
        Some(Entry {
            time_ns: word()?,
            latency_ns: word()?,
            offset: word()?,
            size: word()?,
            len: word()?,
            node: word()? & ((1 << 48) - 1),
            op: *[Op::Read, Op::Write, Op::Sync, Op::Drop].get(usize::from(bytes[46]))?,
            class: bytes[47],
        })
    }
}

#[derive(Debug)]
struct Session {
    begun: Instant,
    fetched: Instant,
    entries: VecDeque<Entry>,
    lost: u64,
}

/// The recording, if there is one.
#[derive(Debug, Default)]
pub struct Recording {
    on: AtomicBool,
    session: Mutex<Option<Session>>,
}

impl Recording {
    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        lock(&self.session)
    }
    /// Begins a recording.
    ///
    /// # Errors
    /// A recording is already in progress.
    pub fn begin(&self) -> Result<(), Errno> {
        let mut session = self.session();
        if let Some(s) = session.as_ref()
            && s.fetched.elapsed() < CLIENT_TIMEOUT
        {
            return Err(Errno::BUSY);
        }
        let now = Instant::now();
        *session = Some(Session {
            begun: now,
            fetched: now,
            entries: VecDeque::new(),
            lost: 0,
        });
        self.on.store(true, Ordering::Relaxed);
        Ok(())
    }
    /// Ends the recording.
    pub fn end(&self) {
        self.on.store(false, Ordering::Relaxed);
        *self.session() = None;
    }
    /// The next batch: the number of lost entries, then as many entries as fit into an answer.
    ///
    /// # Errors
    /// There is no recording.
    pub fn take(&self) -> Result<Vec<u8>, Errno> {
        let mut session = self.session();
        let s = session.as_mut().ok_or(Errno::NODATA)?;
        s.fetched = Instant::now();
        let many = s.entries.len().min((ANSWER_MAX - HEAD_BYTES) / ENTRY_BYTES);
        let mut bytes = s.lost.to_le_bytes().to_vec();
        for entry in s.entries.drain(..many) {
            bytes.extend_from_slice(&entry.encode());
        }
        Ok(bytes)
    }
    /// The time at which an operation begins, if it is recorded.
    pub(crate) fn start(&self) -> Option<Instant> {
        self.on.load(Ordering::Relaxed).then(Instant::now)
    }
    /// Records an operation that began at `start` and ends now. `size` is the size of the file.
    pub(crate) fn note(
        &self,
        start: Instant,
        op: Op,
        (node, size): (NodeId, u64),
        (offset, len): (u64, u64),
    ) {
        let latency_ns = start.elapsed().as_nanos() as u64;
        let mut session = self.session();
        let Some(s) = session.as_mut() else { return };
        if s.fetched.elapsed() >= CLIENT_TIMEOUT {
            self.on.store(false, Ordering::Relaxed);
            *session = None;
            return;
        }
        if s.entries.len() >= QUEUE_MAX {
            s.lost += 1;
            return;
        }
        s.entries.push_back(Entry {
            time_ns: start.saturating_duration_since(s.begun).as_nanos() as u64,
            latency_ns,
            offset,
            size,
            len,
            node,
            op,
            class: if op == Op::Sync {
                0
            } else {
                class_of_size(size)
            },
        });
    }
    /// Records that a file is deleted.
    pub(crate) fn deleted(&self, id: NodeId, node: &Node<'_>) {
        if let Some(now) = self.start() {
            let size = node.facts.size;
            self.note(now, Op::Drop, (id, size), (0, u64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_decoded_and_a_full_queue_counts_losses() {
        let r = Recording::default();
        assert_eq!((r.take(), r.start()), (Err(Errno::NODATA), None));
        r.begin().unwrap();
        assert_eq!(r.begin(), Err(Errno::BUSY));
        let start = r.start().unwrap();
        for i in 0..QUEUE_MAX as u64 + 5 {
            let op = [Op::Read, Op::Write, Op::Sync, Op::Drop][i as usize % 4];
            r.note(start, op, (i | 9 << 32, 1 << 40), (i, 4096));
        }
        let mut seen = 0;
        loop {
            let batch = r.take().unwrap();
            assert_eq!(batch[..HEAD_BYTES], 5u64.to_le_bytes());
            if batch.len() == HEAD_BYTES {
                break;
            }
            for bytes in batch[HEAD_BYTES..].chunks(ENTRY_BYTES) {
                let bytes = bytes.try_into().unwrap();
                let e = Entry::decode(&bytes).unwrap();
                assert_eq!((e.node, e.size), (seen | 9 << 32, 1 << 40));
                assert_eq!(e.encode(), bytes);
                assert_eq!(e.class == 0, e.op == Op::Sync);
                seen += 1;
            }
        }
        assert_eq!(seen, QUEUE_MAX as u64);
        assert_eq!(Entry::decode(&[9; ENTRY_BYTES]), None);
        r.end();
        assert_eq!(r.take(), Err(Errno::NODATA));
    }

    /// A copy within the kernel (copy_file_range, as `cp` uses it) reads one file and writes another. The recording and the policy must
    /// learn of both.
    #[test]
    fn a_copy_of_a_range_is_a_read_and_a_write() {
        let dir = tempfile::tempdir().unwrap();
        let (store, node, live) = crate::store::with_a_file(dir.path());
        store.write(&live, 0, &[7; 10_000], false).unwrap();
        let (other, to, _) = store.create(0, b"g", 0o600, crate::store::me()).unwrap();
        store.recording.begin().unwrap();
        let before = store.placement.accesses.load(Ordering::Relaxed);
        assert_eq!(store.copy(&live, 4096, &to, 4096, 1 << 20), Ok(5904));
        let batch = store.recording.take().unwrap();
        let entries = batch[HEAD_BYTES..].chunks(ENTRY_BYTES);
        let seen: Vec<_> = entries
            .map(|b| Entry::decode(b.try_into().unwrap()).unwrap())
            .map(|e| (e.op, e.node, e.offset, e.len))
            .collect();
        let expected = [(Op::Read, node, 4096, 5904), (Op::Write, other, 4096, 5904)];
        assert_eq!(seen, expected);
        let accesses = store.placement.accesses.load(Ordering::Relaxed) - before;
        assert_eq!(accesses, 2);
        store.release(&live);
        store.release(&to);
    }

    /// Holes give up bytes, as truncations do, but the file keeps its size.
    #[test]
    fn a_hole_is_a_discard() {
        let dir = tempfile::tempdir().unwrap();
        let (store, node, live) = crate::store::with_a_file(dir.path());
        store.write(&live, 0, &vec![7; 40_000], false).unwrap();
        store.release(&live);
        let live = store.live(node).unwrap();
        store.recording.begin().unwrap();
        // FALLOC_FL_KEEP_SIZE with FALLOC_FL_PUNCH_HOLE; then KEEP_SIZE alone, which gives up nothing.
        store.fallocate(&live, 4096, 8192, 3).unwrap();
        store.fallocate(&live, 0, 80_000, 1).unwrap();
        let batch = store.recording.take().unwrap();
        let entries = batch[HEAD_BYTES..].chunks(ENTRY_BYTES);
        let seen: Vec<_> = entries
            .map(|b| Entry::decode(b.try_into().unwrap()).unwrap())
            .map(|e| (e.op, e.offset, e.len, e.size))
            .collect();
        assert_eq!(seen, [(Op::Drop, 4096, 8192, 40_000)]);
        store.release(&live);
    }
}
