//! Epochs go to the store, one after the other: objects of blocks, then what has changed in the map, then the manifest that names both.
//!
//! A step that has no answer is repeated with the same names and the same bytes, so it does not matter whether it was carried out before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::cache;
use crate::disk::{Disk, Inner};
use crate::head::{self, NoCommit};
use crate::layout::{self, BLOCK, GROUP, Line, Manifest, MapText, Part};
use crate::remote::RemoteError;
use crate::spool::{self, Local};
use crate::state::InObject;

/// Objects in flight.
pub(crate) const IN_FLIGHT: usize = 4;
/// Sparse objects whose blocks go up with one epoch.
const COMPACTED: usize = 16;

#[derive(Clone, Copy, Debug)]
enum From {
    Spool(Local),
    Store(InObject),
}

struct Planned {
    name: String,
    blocks: u64,
    /// First block of the disk, blocks, source.
    runs: Vec<(u64, u64, From)>,
    done: AtomicBool,
}

/// What one epoch becomes. It is made once for each epoch, and every attempt carries it out.
pub(crate) struct Plan {
    objects: Vec<Planned>,
    delta: (Vec<u8>, Part),
    lines: Vec<Line>,
    manifest: (Vec<u8>, Manifest),
}

/// The outcome of a step.
#[derive(Debug)]
pub enum Failed {
    /// Another writer has the store: this one must end.
    Fenced,
    /// Try again later.
    Later(RemoteError),
    /// The spool cannot be read.
    Spool(String),
    /// A sparse object cannot be read: it stays as it is.
    Moved(RemoteError),
}

impl std::convert::From<RemoteError> for Failed {
    fn from(error: RemoteError) -> Failed {
        Failed::Later(error)
    }
}

impl std::convert::From<NoCommit> for Failed {
    fn from(error: NoCommit) -> Failed {
        match error {
            NoCommit::Fenced => Failed::Fenced,
            NoCommit::Not(error) => Failed::Later(error),
        }
    }
}

pub(crate) fn next(manifest: &Manifest) -> Manifest {
    Manifest {
        number: manifest.number + 1,
        epoch: manifest.epoch + 1,
        written: head::now(),
        ..manifest.clone()
    }
}

impl Plan {
    fn make(inner: &Inner, compact_bytes: u64) -> Option<Plan> {
        let (epoch, state) = (inner.frozen.as_ref()?, &inner.state);
        let mut manifest = next(&state.manifest);
        manifest.sequence = epoch.sequence;
        let mut runs: Vec<(u64, u64, From)> = Vec::new();
        let mut lines = Vec::new();
        for (start, blocks, place) in epoch.writes.iter() {
            match place {
                Local::Zero => lines.push(Line::Hole(start, blocks)),
                data @ Local::Data { .. } => runs.push((start, blocks, From::Spool(data))),
            }
        }
        moved(inner, compact_bytes, &mut runs);
        runs.sort_unstable_by_key(|r| r.0);
        let objects = pack(&runs, state.description.object_bytes / BLOCK, |n| {
            format!(
                "data/{}/{:010}-{:03}-{n:06}",
                manifest.token, manifest.epoch, inner.plans
            )
        });
        for (number, object) in objects.iter().enumerate() {
            lines.push(Line::Object(object.name.clone(), object.blocks));
            let mut at = 0;
            for (start, blocks, _) in &object.runs {
                lines.push(Line::Extent(*start, *blocks, number, at));
                at += blocks;
            }
        }
        let mut text = MapText::default();
        for line in &lines {
            text.push(line);
        }
        let delta = text.finish(
            format!("map/{}/{:010}-delta", manifest.token, manifest.epoch),
            0,
        );
        manifest.deltas.push(delta.1.clone());
        Some(Plan {
            objects,
            delta,
            lines,
            manifest: (head::encode(&manifest), manifest),
        })
    }
}

/// Adds what is still in use of sparse objects, when the objects hold twice what is in use.
fn moved(inner: &Inner, compact_bytes: u64, runs: &mut Vec<(u64, u64, From)>) {
    let (state, Some(epoch)) = (&inner.state, &inner.frozen) else {
        return;
    };
    if !inner.moves || state.stored < (compact_bytes / BLOCK).max(state.map.blocks() * 2) {
        return;
    }
    let sparse: std::collections::HashSet<u32> = state.sparse(COMPACTED).into_iter().collect();
    for (start, blocks, place) in state
        .map
        .iter()
        .filter(|(_, _, p)| sparse.contains(&p.object))
    {
        epoch.writes.over(start, blocks, |at, blocks, written| {
            if written.is_none() {
                let place = crate::extent_map::Place::advance(place, at - start);
                runs.push((at, blocks, From::Store(place)));
            }
        });
    }
}

/// Divides runs into objects of at most `most` blocks.
fn pack(runs: &[(u64, u64, From)], most: u64, name: impl Fn(usize) -> String) -> Vec<Planned> {
    use crate::extent_map::Place;
    let mut objects: Vec<Planned> = Vec::new();
    for &(mut start, mut left, mut from) in runs {
        while left > 0 {
            if objects.last().is_none_or(|o| o.blocks == most) {
                objects.push(Planned {
                    name: name(objects.len()),
                    blocks: 0,
                    runs: Vec::new(),
                    done: AtomicBool::new(false),
                });
            }
            let Some(object) = objects.last_mut() else {
                return objects;
            };
            let part = left.min(most - object.blocks);
            object.runs.push((start, part, from));
            object.blocks += part;
            (start, left) = (start + part, left - part);
            from = match from {
                From::Spool(place) => From::Spool(place.advance(part)),
                From::Store(place) => From::Store(place.advance(part)),
            };
        }
    }
    objects
}

impl Disk {
    /// Uploads the epoch that was cut, if there is one. Only one thread may do so.
    ///
    /// # Errors
    /// See [`Failed`]; the epoch stays, and the next call goes on with it.
    pub fn upload(&self) -> Result<bool, Failed> {
        self.finish_fold()?;
        let plan = {
            let mut inner = self.lock();
            if inner.fenced {
                return Err(Failed::Fenced);
            }
            let Some(plan) = inner
                .frozen
                .as_mut()
                .and_then(|e| e.plan.take())
                .or_else(|| Plan::make(&inner, self.settings.compact_bytes))
            else {
                return Ok(false);
            };
            plan
        };
        let done = self.carry_out(&plan);
        let mut inner = self.lock();
        match done {
            Ok(()) => {
                let (sequence, number) = (plan.manifest.1.sequence, plan.manifest.1.number);
                inner.state.manifest = plan.manifest.1;
                inner.state.apply(plan.lines);
                inner.frozen = None;
                inner.pressure = false;
                inner.health.committed = head::now();
                let forgotten = inner.spool.forget(sequence, number);
                drop(inner);
                self.changed.notify_all();
                self.note(None);
                forgotten.map_err(|e| Failed::Spool(e.to_string()))?;
                Ok(true)
            }
            Err(failed) => {
                if matches!(failed, Failed::Moved(_)) {
                    // The plan had nothing but objects so far; the next one has other names.
                    inner.moves = false;
                    inner.plans += 1;
                } else if let Some(epoch) = &mut inner.frozen {
                    epoch.plan = Some(plan);
                }
                drop(inner);
                self.failed(&failed);
                Err(failed)
            }
        }
    }

    pub(crate) fn failed(&self, failed: &Failed) {
        match failed {
            Failed::Fenced => {
                self.lock().fenced = true;
                self.changed.notify_all();
            }
            Failed::Later(error) | Failed::Moved(error) => self.note(Some(error)),
            Failed::Spool(_) => {}
        }
    }

    fn carry_out(&self, plan: &Plan) -> Result<(), Failed> {
        let todo: Vec<&Planned> = plan
            .objects
            .iter()
            .filter(|o| !o.done.load(Ordering::Relaxed))
            .collect();
        for some in todo.chunks(IN_FLIGHT) {
            let mut bodies = Vec::new();
            for object in some {
                bodies.push((
                    *object,
                    layout::data_object(&object.name, &self.payload(object)?),
                ));
            }
            let puts = stream::iter(bodies).map(|(object, bytes)| async move {
                self.make(&object.name, &bytes).await?;
                object.done.store(true, Ordering::Relaxed);
                Ok::<(), RemoteError>(())
            });
            self.remote
                .wait(puts.buffer_unordered(IN_FLIGHT).try_collect::<Vec<()>>())?;
        }
        self.remote
            .wait(self.make(&plan.delta.1.name, &plan.delta.0))?;
        head::commit(&self.remote, plan.manifest.1.number, &plan.manifest.0)?;
        Ok(())
    }

    /// Makes an object whose name nobody else gives.
    pub(crate) async fn make(&self, name: &str, bytes: &[u8]) -> Result<(), RemoteError> {
        if self.remote.create(name, bytes).await? {
            Ok(())
        } else {
            Err(RemoteError::Damaged(format!("{name} (another's bytes)")))
        }
    }

    fn payload(&self, object: &Planned) -> Result<Vec<u8>, Failed> {
        let mut payload = vec![0; (object.blocks * BLOCK) as usize];
        let mut rest = payload.as_mut_slice();
        for &(_, blocks, from) in &object.runs {
            let (part, after) = rest.split_at_mut((blocks * BLOCK) as usize);
            rest = after;
            match from {
                From::Spool(place) => {
                    let Local::Data { file: number, .. } = place else {
                        continue;
                    };
                    let file = self.lock().spool.file(number);
                    let file =
                        file.ok_or_else(|| Failed::Spool(format!("file {number} is gone")))?;
                    spool::read(&file, place, part).map_err(|e| Failed::Spool(e.to_string()))?;
                }
                From::Store(place) => self.fetch(place, part).map_err(|e| match e {
                    RemoteError::Missing(_) | RemoteError::Damaged(_) => Failed::Moved(e),
                    other => Failed::Later(other),
                })?,
            }
        }
        Ok(payload)
    }

    /// Reads blocks of an object past the cache.
    fn fetch(&self, place: InObject, to: &mut [u8]) -> Result<(), RemoteError> {
        let object = self.lock().state.get(place.object);
        let object =
            object.ok_or_else(|| RemoteError::Missing(format!("object {}", place.object)))?;
        let end = place.block + to.len() as u64 / BLOCK;
        let first = place.block / GROUP;
        let groups = cache::fetch(&self.remote, &object, first, end.div_ceil(GROUP))?.concat();
        let from = ((place.block - first * GROUP) * BLOCK) as usize;
        to.copy_from_slice(&groups[from..from + to.len()]);
        Ok(())
    }

    /// Uploads until `closing` and all is up, or the store is lost. The one thread that calls [`Disk::upload`].
    ///
    /// # Errors
    /// The store is lost to another writer.
    pub fn run(&self) -> Result<(), String> {
        let mut pause = Duration::from_millis(100);
        let (mut collected, mut failing) = (Instant::now(), None);
        loop {
            let (has, closing) = {
                let mut inner = self.lock();
                self.cut_if_due(&mut inner, false);
                if inner.frozen.is_none() && !(inner.closing && inner.live.is_empty()) {
                    inner = self
                        .changed
                        .wait_timeout(inner, Duration::from_millis(200))
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .0;
                }
                (
                    inner.frozen.is_some(),
                    inner.closing && inner.live.is_empty(),
                )
            };
            if !has && closing {
                return Ok(());
            }
            let step = if has {
                self.upload().and_then(|_| self.fold())
            } else {
                Ok(true)
            };
            // Also when there is always an epoch to upload.
            let step = step.and_then(|_| {
                if collected.elapsed() < self.settings.grace {
                    return Ok(0);
                }
                collected = Instant::now();
                self.collect()
            });
            match step {
                Ok(_) => (pause, failing) = (Duration::from_millis(100), None),
                Err(Failed::Fenced) => return Err("another writer has taken the store".into()),
                Err(failed) => {
                    let since = failing.get_or_insert_with(Instant::now);
                    if let Failed::Spool(why) = &failed {
                        eprintln!("isotherm-store: spool: {why}");
                        self.lock().health.damage = Some(why.clone());
                    }
                    if self.lock().closing
                        && let Some(why) = self.stops(&failed, *since)
                    {
                        return Err(format!(
                            "{why}; what is not in the store stays in the spool"
                        ));
                    }
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_secs(10));
                }
            }
        }
    }

    /// Why no further attempt is made before the end: the store is away for too long, or the next one would fail, too.
    fn stops(&self, failed: &Failed, since: Instant) -> Option<String> {
        match failed {
            Failed::Later(error @ (RemoteError::Away(_) | RemoteError::Refused(_))) => {
                (since.elapsed() >= self.settings.remote_wait).then(|| error.to_string())
            }
            Failed::Later(error) => Some(error.to_string()),
            Failed::Spool(why) => Some(format!("spool: {why}")),
            Failed::Moved(_) | Failed::Fenced => None,
        }
    }

    /// Everything is uploaded, then [`Disk::run`] ends.
    pub fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_all();
    }
}
