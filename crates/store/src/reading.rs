//! Where the newest content of each block is, and reads of it.

use std::fs::File;
use std::sync::{Arc, PoisonError};

use crate::ahead::WINDOW;
use crate::disk::{Disk, DiskError, Inner};
use crate::extent_map::ExtentMap;
use crate::layout::BLOCK;
use crate::spool::{self, Local};
use crate::state::{InObject, Object};

/// Where a run of blocks lies. A place of data is used once, so the same place is the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    Zero,
    Local(Local),
    Remote(InObject),
}

enum Source {
    Zero,
    Local(Arc<File>, Local),
    Remote(Arc<Object>, u64),
}

impl From<Local> for Where {
    fn from(place: Local) -> Where {
        match place {
            Local::Zero => Where::Zero,
            Local::Data { .. } => Where::Local(place),
        }
    }
}

impl Inner {
    /// Calls `each` for the runs of `blocks` blocks at `start`, in order: blocks, and where they lie.
    fn over(&self, start: u64, blocks: u64, mut each: impl FnMut(u64, Where)) {
        let none = ExtentMap::default();
        let frozen = self.frozen.as_ref().map_or(&none, |e| &e.writes);
        self.live.over(start, blocks, |at, n, place| match place {
            Some(place) => each(n, place.into()),
            None => frozen.over(at, n, |at, n, place| match place {
                Some(place) => each(n, place.into()),
                None => self.state.map.over(at, n, |_, n, place| {
                    each(n, place.map_or(Where::Zero, Where::Remote));
                }),
            }),
        });
    }

    /// The runs of `blocks` blocks at `start`.
    pub(crate) fn places(&self, start: u64, blocks: u64) -> Vec<(u64, Where)> {
        let mut places = Vec::new();
        self.over(start, blocks, |n, place| places.push((n, place)));
        places
    }

    fn source(&self, place: Where) -> Option<Source> {
        Some(match place {
            Where::Zero | Where::Local(Local::Zero) => Source::Zero,
            Where::Local(place @ Local::Data { file, .. }) => {
                Source::Local(self.spool.file(file)?, place)
            }
            Where::Remote(place) => Source::Remote(self.state.get(place.object)?, place.block),
        })
    }
}

impl Disk {
    pub(crate) fn is_zero(&self, start: u64, blocks: u64) -> Result<bool, DiskError> {
        self.check(start, blocks)?;
        let mut zero = true;
        self.lock()
            .over(start, blocks, |_, place| zero &= place == Where::Zero);
        Ok(zero)
    }

    /// Whether a read of these blocks needs no request to the store.
    pub fn is_near(&self, start: u64, blocks: u64) -> bool {
        let (inner, mut near) = (self.lock(), true);
        inner.over(start, blocks, |n, place| {
            if let Where::Remote(place) = place {
                let object = inner.state.get(place.object);
                near &= object.is_some_and(|o| self.cache.has(&o, place.block, n));
            }
        });
        near
    }

    /// The runs of `blocks` blocks at `start`: blocks, and whether they hold data.
    pub fn status(&self, start: u64, blocks: u64) -> Vec<(u64, bool)> {
        let mut runs: Vec<(u64, bool)> = Vec::new();
        if self.check(start, blocks).is_err() {
            return runs;
        }
        self.lock().over(start, blocks, |n, place| {
            let data = place != Where::Zero;
            match runs.last_mut() {
                Some(last) if last.1 == data => last.0 += n,
                _ => runs.push((n, data)),
            }
        });
        runs
    }

    /// Reads whole blocks at block `start`.
    ///
    /// # Errors
    /// See [`DiskError`]; a block that is in no object of the store any more is an error, and never zeros.
    pub fn read(&self, start: u64, to: &mut [u8]) -> Result<(), DiskError> {
        let end = start + to.len() as u64 / BLOCK;
        let window = WINDOW.min(self.settings.cache_bytes / BLOCK / 4);
        let streams = self.streams.lock();
        let mut streams = streams.unwrap_or_else(PoisonError::into_inner);
        let ahead = streams.note(start, end, window);
        drop(streams);
        if let Some(ahead) = ahead {
            self.fetch_ahead(ahead);
        }
        self.read_places(start, to).map(drop)
    }

    /// As [`Disk::read`]; returns where the content lay.
    pub(crate) fn read_places(
        &self,
        start: u64,
        to: &mut [u8],
    ) -> Result<Vec<(u64, Where)>, DiskError> {
        let blocks = to.len() as u64 / BLOCK;
        self.check(start, blocks)?;
        let (places, sources) = {
            let inner = self.lock();
            let places = inner.places(start, blocks);
            let sources: Option<Vec<Source>> = places
                .iter()
                .map(|(_, place)| inner.source(*place))
                .collect();
            (places, sources)
        };
        let sources = sources.ok_or_else(|| DiskError::Io("a block's place is unknown".into()))?;
        let mut rest = to;
        for ((n, _), source) in places.iter().zip(sources) {
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
        Ok(places)
    }
}
