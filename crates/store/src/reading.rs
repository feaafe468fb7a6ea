//! Where the newest content of each block is, and reads of it.

use std::fs::File;
use std::sync::Arc;

use crate::disk::{Disk, DiskError};
use crate::layout::BLOCK;
use crate::spool::{self, Local};
use crate::state::{InObject, Object};

enum Source {
    Zero,
    Local(Arc<File>, Local),
    Remote(Arc<Object>, u64),
}

impl Disk {
    fn sources(&self, start: u64, blocks: u64) -> Result<Vec<(u64, Source)>, DiskError> {
        let inner = self.lock();
        let mut found = Vec::new();
        let mut lost = false;
        let mut local = |place: Local, blocks, found: &mut Vec<(u64, Source)>| match place {
            Local::Zero => found.push((blocks, Source::Zero)),
            Local::Data { file, .. } => match inner.spool.file(file) {
                Some(file) => found.push((blocks, Source::Local(file, place))),
                None => lost = true,
            },
        };
        let mut missing = false;
        let mut below = |at, blocks, found: &mut Vec<(u64, Source)>| {
            inner
                .state
                .map
                .over(at, blocks, |_, blocks, place: Option<InObject>| {
                    let Some(place) = place else {
                        return found.push((blocks, Source::Zero));
                    };
                    match inner.state.get(place.object) {
                        Some(object) => found.push((blocks, Source::Remote(object, place.block))),
                        None => missing = true,
                    }
                });
        };
        inner.live.over(start, blocks, |at, blocks, place| {
            match (place, &inner.frozen) {
                (Some(place), _) => local(place, blocks, &mut found),
                (None, Some(epoch)) => {
                    epoch
                        .writes
                        .over(at, blocks, |at, blocks, place| match place {
                            Some(place) => local(place, blocks, &mut found),
                            None => below(at, blocks, &mut found),
                        });
                }
                (None, None) => below(at, blocks, &mut found),
            }
        });
        if lost || missing {
            return Err(DiskError::Io("a block's place is unknown".into()));
        }
        Ok(found)
    }

    pub(crate) fn is_zero(&self, start: u64, blocks: u64) -> Result<bool, DiskError> {
        self.check(start, blocks)?;
        Ok(self
            .sources(start, blocks)?
            .iter()
            .all(|(_, s)| matches!(s, Source::Zero)))
    }

    /// Whether a read of these blocks needs no request to the store.
    pub fn is_near(&self, start: u64, blocks: u64) -> bool {
        let sources = self.sources(start, blocks).unwrap_or_default();
        sources.iter().all(|(n, s)| match s {
            Source::Remote(object, block) => self.cache.has(object, *block, *n),
            _ => true,
        })
    }

    /// The runs of `blocks` blocks at `start`: blocks, and whether they hold data.
    pub fn status(&self, start: u64, blocks: u64) -> Vec<(u64, bool)> {
        let sources = self
            .check(start, blocks)
            .and_then(|()| self.sources(start, blocks));
        let mut runs: Vec<(u64, bool)> = Vec::new();
        for (n, source) in sources.unwrap_or_default() {
            let data = !matches!(source, Source::Zero);
            match runs.last_mut() {
                Some(last) if last.1 == data => last.0 += n,
                _ => runs.push((n, data)),
            }
        }
        runs
    }

    /// Reads whole blocks at block `start`.
    ///
    /// # Errors
    /// See [`DiskError`]; a block that is in no object of the store any more is an error, and never zeros.
    pub fn read(&self, start: u64, to: &mut [u8]) -> Result<(), DiskError> {
        let blocks = to.len() as u64 / BLOCK;
        self.check(start, blocks)?;
        let mut rest = to;
        for (n, source) in self.sources(start, blocks)? {
            let (part, after) = rest.split_at_mut((n * BLOCK) as usize);
            rest = after;
            match source {
                Source::Zero => part.fill(0),
                Source::Local(file, place) => {
                    spool::read(&file, place, part).map_err(|e| DiskError::Io(e.to_string()))?;
                }
                Source::Remote(object, block) => {
                    let read = self.cache.read(
                        &self.remote,
                        self.settings.remote_wait,
                        &object,
                        block,
                        part,
                    );
                    self.note(read.as_ref().err());
                    read.map_err(|e| DiskError::Io(e.to_string()))?;
                }
            }
        }
        Ok(())
    }
}
