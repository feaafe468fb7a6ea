//! What a serving process says of itself: a file in the spool's folder, replaced once a second.

use std::path::Path;
use std::sync::atomic::Ordering;

use serde::Serialize;

use crate::disk::Disk;
use crate::layout::BLOCK;

/// Name of the file.
pub const FILE: &str = "status.json";

/// The status, as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Process that serves.
    pub process: u32,
    /// When this was written, seconds since 1970.
    pub at: u64,
    /// Number of the newest manifest.
    pub manifest: u64,
    /// When the store had its last commit, seconds since 1970.
    pub committed: u64,
    /// Bytes that wait to be uploaded.
    pub waiting_bytes: u64,
    /// For how many seconds the oldest of them waits, without those that are being uploaded.
    pub waiting_s: u64,
    /// Bytes of the spool, and the most that it may have.
    pub spool_bytes: u64,
    /// See `spool_bytes`.
    pub spool_limit_bytes: u64,
    /// Bytes of the disk that hold data in the store, and bytes of the objects that hold them.
    pub data_bytes: u64,
    /// See `data_bytes`.
    pub stored_bytes: u64,
    /// Since when the store is away, seconds since 1970.
    pub away_since: Option<u64>,
    /// What it said last.
    pub away_why: Option<String>,
    /// Since when writers wait for room in the spool.
    pub stalled_since: Option<u64>,
    /// The last damage that was found.
    pub damage: Option<String>,
    /// Whether another writer has taken the store.
    pub fenced: bool,
    /// PUT requests since the start.
    pub puts: u64,
    /// GET and HEAD requests since the start.
    pub gets: u64,
    /// Lists since the start.
    pub lists: u64,
    /// DELETE requests since the start.
    pub deletes: u64,
    /// Bytes sent since the start.
    pub sent_bytes: u64,
    /// Bytes received since the start.
    pub received_bytes: u64,
}

impl Disk {
    /// The present status.
    pub fn report(&self) -> Status {
        let inner = self.lock();
        let uploading = inner.frozen.as_ref().map_or(0, |e| e.writes.blocks());
        let health = inner.health.clone();
        let counts = &self.remote.counts;
        Status {
            process: std::process::id(),
            at: crate::head::now(),
            manifest: inner.state.manifest.number,
            committed: health.committed,
            waiting_bytes: (inner.live.blocks() + uploading) * BLOCK,
            waiting_s: inner.since.map_or(0, |s| s.elapsed().as_secs()),
            spool_bytes: inner.spool.bytes(),
            spool_limit_bytes: self.settings.spool_bytes,
            data_bytes: inner.state.map.blocks() * BLOCK,
            stored_bytes: inner.state.stored * BLOCK,
            away_since: health.away.as_ref().map(|a| a.0),
            away_why: health.away.map(|a| a.1),
            stalled_since: health.stalled,
            damage: inner.spool.broken().map(str::to_owned).or(health.damage),
            fenced: inner.fenced,
            puts: counts.puts.load(Ordering::Relaxed),
            gets: counts.gets.load(Ordering::Relaxed),
            lists: counts.lists.load(Ordering::Relaxed),
            deletes: counts.deletes.load(Ordering::Relaxed),
            sent_bytes: counts.sent.load(Ordering::Relaxed),
            received_bytes: counts.received.load(Ordering::Relaxed),
        }
    }

    /// Replaces the status file in the spool's folder.
    ///
    /// # Errors
    /// I/O.
    pub fn write_report(&self, dir: &Path) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(&self.report())? + "\n";
        let new = dir.join("status.new");
        std::fs::write(&new, text)?;
        std::fs::rename(new, dir.join(FILE))
    }
}
