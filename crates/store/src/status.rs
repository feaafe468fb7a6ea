//! What a serving process says of itself: a file in the spool's folder, replaced once a second.

use std::path::Path;
use std::sync::atomic::Ordering;

use isotherm_answers::Store;

use crate::disk::Disk;
use crate::layout::BLOCK;

/// Name of the file.
pub const FILE: &str = "status.json";

impl Disk {
    /// The present status.
    pub fn report(&self) -> Store {
        let inner = self.lock();
        let uploading = inner.frozen.as_ref().map_or(0, |e| e.writes.blocks());
        let health = inner.health.clone();
        let counts = &self.remote.counts;
        Store {
            // The reader has these from the description, and from the lock.
            url: String::new(),
            serving: true,
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
