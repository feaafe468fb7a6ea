//! What keeps the store small and its map short: segments written anew, and old objects removed.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Instant;

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::disk::{Disk, Inner};
use crate::head;
use crate::layout::{self, Manifest, Part};
use crate::remote::{Listed, RemoteError};
use crate::upload::{Failed, IN_FLIGHT, next};

/// New segments, on their way. Made once, and carried out until it is known that its manifest is there.
pub(crate) struct Folding {
    segments: Vec<Part>,
    texts: Vec<(Vec<u8>, Part)>,
    manifest: (Vec<u8>, Manifest),
}

impl Folding {
    fn make(inner: &Inner) -> Folding {
        let state = &inner.state;
        let mut manifest = next(&state.manifest);
        let folder = format!("map/{}/{:010}", manifest.token, manifest.epoch);
        let mut segments: Vec<Part> = state.segments.clone();
        segments.retain(|s| !state.changed.contains(&s.segment));
        let mut texts = Vec::new();
        for &segment in &state.changed {
            if let Some(text) = state.segment(segment) {
                let (bytes, part) = text.finish(format!("{folder}-segment-{segment:06}"), segment);
                segments.push(part.clone());
                texts.push((bytes, part));
            }
        }
        segments.sort_unstable_by_key(|s| s.segment);
        // A list of plain fields always has a text.
        let index = serde_json::to_vec(&segments).unwrap_or_default();
        let part = Part {
            name: format!("{folder}-index"),
            crc: crc32fast::hash(&index),
            lines: segments.len() as u64,
            segment: 0,
        };
        manifest.index = Some(part.clone());
        manifest.deltas.clear();
        texts.push((index, part));
        Folding {
            segments,
            texts,
            manifest: (head::encode(&manifest), manifest),
        }
    }
}

impl Disk {
    /// Writes the segments of the map anew that have changed, when there are many deltas. Returns whether it did.
    ///
    /// # Errors
    /// See [`Failed`]; the next call, or the next upload, goes on with it.
    pub fn fold(&self) -> Result<bool, Failed> {
        {
            let mut inner = self.lock();
            let state = &inner.state;
            let lines: u64 = state.manifest.deltas.iter().map(|d| d.lines).sum();
            let base: u64 = state.segments.iter().map(|s| s.lines).sum();
            let many =
                state.manifest.deltas.len() >= self.settings.deltas || lines > 65_536.max(base / 4);
            let planned = inner.frozen.as_ref().is_some_and(|e| e.plan.is_some());
            if !inner.fenced && !planned && many && inner.folding.is_none() {
                inner.folding = Some(Folding::make(&inner));
            }
        }
        self.finish_fold()
    }

    /// Carries out a fold that has begun. No other manifest may be tried before it is known what became of its own.
    pub(crate) fn finish_fold(&self) -> Result<bool, Failed> {
        let Some(folding) = self.lock().folding.take() else {
            return Ok(false);
        };
        let done = (|| {
            let puts =
                stream::iter(&folding.texts).map(|(bytes, part)| self.make(&part.name, bytes));
            let puts = puts.buffer_unordered(IN_FLIGHT).try_collect::<Vec<()>>();
            self.remote.wait(puts)?;
            head::commit(&self.remote, folding.manifest.1.number, &folding.manifest.0)?;
            Ok(())
        })();
        let mut inner = self.lock();
        if let Err(failed) = done {
            inner.folding = Some(folding);
            drop(inner);
            self.failed(&failed);
            return Err(failed);
        }
        inner.state.manifest = folding.manifest.1;
        inner.state.segments = folding.segments;
        inner.state.changed.clear();
        Ok(true)
    }

    /// Removes what no state of the last `grace` needs: objects of the map and of data that the newest manifest does not name, of this writer
    /// and of those before, and old manifests. Call it only while no epoch has a plan. Returns the number of objects.
    ///
    /// An object goes when this writer has seen for `grace` that it is not needed: a read that is on its way still finds it, and so does
    /// another's that began with the manifest before.
    ///
    /// Everything that a later writer makes is newer than its first manifest, and that is newer than ours: so even a writer that does not
    /// know yet that it has lost the store removes nothing of the winner's.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn collect(&self) -> Result<usize, Failed> {
        let number = {
            let inner = self.lock();
            let busy =
                inner.folding.is_some() || inner.frozen.as_ref().is_some_and(|e| e.plan.is_some());
            if inner.fenced || busy {
                return Ok(0);
            }
            inner.state.manifest.number
        };
        let head = |number| {
            self.remote
                .wait(self.remote.head(&layout::manifest_name(number)))
        };
        let modified = match (head(number), head(number + 1)) {
            (Ok((_, modified)), Err(RemoteError::Missing(_))) => modified,
            // Only a later writer removes the one, or makes the other.
            (Err(RemoteError::Missing(_)), _) | (_, Ok(_)) => {
                self.failed(&Failed::Fenced);
                return Err(Failed::Fenced);
            }
            (Err(error), _) | (_, Err(error)) => return Err(error.into()),
        };
        let grace = i64::try_from(self.settings.grace.as_millis()).unwrap_or(i64::MAX);
        let before = modified.saturating_sub(grace);
        Ok(self.remove_unneeded(before)? + self.remove_manifests(number, before)?)
    }

    /// Removes objects that are older than `before` and have not been needed for the grace time.
    fn remove_unneeded(&self, before: i64) -> Result<usize, Failed> {
        let (remote, now) = (&self.remote, Instant::now());
        let mut seen = self.unneeded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unneeded = HashMap::new();
        for folder in ["data", "map"] {
            // Only these are kept in memory: a large store has millions of others.
            let is_old = |l: &Listed| l.modified < before && !self.lock().state.needs(&l.name);
            for listed in remote.wait(remote.list(folder, usize::MAX, is_old))? {
                let since = seen.get(&listed.name).copied().unwrap_or(now);
                unneeded.insert(listed.name, since);
            }
        }
        *seen = unneeded;
        let gone: Vec<&String> = seen
            .iter()
            .filter(|(_, since)| now.duration_since(**since) >= self.settings.grace)
            .map(|(name, _)| name)
            .collect();
        let deletes = stream::iter(&gone).map(|name| remote.delete(name));
        remote.wait(deletes.buffer_unordered(IN_FLIGHT).try_collect::<Vec<()>>())?;
        Ok(gone.len())
    }

    /// Removes manifests that are older than `before`, lowest first, and never the one before the newest: see [`head::commit`].
    fn remove_manifests(&self, newest: u64, before: i64) -> Result<usize, Failed> {
        let keep = layout::manifest_name(newest.saturating_sub(8));
        let mut removed = 0;
        let all = self.remote.list("manifest", usize::MAX, |_| true);
        for listed in self.remote.wait(all)? {
            if listed.modified >= before || listed.name >= keep {
                break;
            }
            self.remote.wait(self.remote.delete(&listed.name))?;
            removed += 1;
        }
        Ok(removed)
    }
}
