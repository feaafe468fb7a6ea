//! A member is copied to its successor while the volume is served.
//!
//! ```text
//! plan (engine's thread): all slots are stale ─► space and mark on the new device ─► passes: what is due is copied ─┐
//!                                                                            ▲ not yet ─── little is left? ◄────────┘
//!        served on ◄─ the new member ◄─ table and metadata ◄─ what is stale is copied ◄─ engine closed ◄─ yes
//! ```
//! Nothing that a request does depends on the new device: a write to the member only notes its slots (`stale.rs`). The passes read beside the
//! engine, as a check of all data does (`scrub/`), and give way to requests in the same way. While the engine is closed (`reopen.rs`) the
//! member is replaced as in a volume that is not served; all that differs is that most of the data is there already.
//!
//! The copy is not continued by another process: until the new device is a member, its first block says that it is an unfinished copy
//! ([`isotherm_core::store::Unfinished`]), and the next attempt begins anew.

mod elsewhere;
mod passes;
pub(crate) mod stale;
pub(crate) mod transfer;

pub(crate) use elsewhere::Unreadable;

use crate::config::VolumeConfig;
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::reopen::{NotReplaced, Planned, Purpose};
use crate::server::Handle;
use crate::volume::replace::Replacement;
use crate::volume::{ReplaceHow, Replaced};
use isotherm_core::store::{Successor, Superblock};
use passes::Passes;
use rustix::fs::OFlags;
use stale::Stale;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use transfer::{AS_BEFORE, Places, Source};

/// Interval at which it is looked whether the last step is possible by now.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The reason why a copy does not go on at full speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// There is none.
    #[default]
    None,
    /// Requests to the member, or the rate.
    Turn,
    /// As much is written to the member as is copied.
    Writes,
    /// A recording, without the end of which the member cannot be replaced; or another change of the volume.
    Change,
}

/// How far a copy is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Place of the member in the list of members.
    pub member: usize,
    /// Its path.
    pub old: PathBuf,
    /// The path of the new device.
    pub new: PathBuf,
    /// Bytes of the slots that were in use at the begin.
    pub total_bytes: u64,
    /// Bytes that were copied so far, those that were copied again included.
    pub copied_bytes: u64,
    /// Bytes that are to be copied, as of now.
    pub left_bytes: u64,
    /// Number of the pass, from 1 on: the first one copies everything, each other one what was written meanwhile.
    pub pass: u32,
    /// Time until all of that is copied, at the present speed; `None`: it is not known yet.
    pub left: Option<Duration>,
    /// Why it is slow.
    pub wait: Wait,
}

/// What the threads of a copy share.
#[derive(Debug)]
pub(crate) struct State {
    stop: AtomicBool,
    /// Whether the member was replaced.
    done: AtomicBool,
    progress: Mutex<Progress>,
}

impl State {
    pub fn new(progress: Progress) -> Arc<State> {
        Arc::new(State {
            stop: AtomicBool::new(false),
            done: AtomicBool::new(false),
            progress: Mutex::new(progress),
        })
    }

    pub fn locked(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// The words about a second change.
    pub fn busy(&self) -> String {
        let p = self.locked();
        format!(
            "member {} ({}) is being copied to {}: wait for the end of this (`isotherm status`), or give it up (`isotherm replace VOLUME --cancel`)",
            p.member,
            p.old.display(),
            p.new.display()
        )
    }

    /// Sleeps unless the copy was given up.
    fn nap(&self, time: Duration) -> Result<(), Error> {
        const STEP: Duration = Duration::from_millis(50);
        let end = Instant::now() + time;
        loop {
            if self.stop.load(Ordering::Acquire) {
                let what = format!("the copy was given up (--cancel); {AS_BEFORE}");
                return Err(Error::new(ErrorKind::Volume, what));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(STEP));
        }
    }
}

/// A new device that gets, or has, the data of the member before it takes its place.
pub(crate) struct Copied {
    pub successor: Successor,
    pub places: Arc<Places>,
    pub source: Source,
    pub stale: Arc<Stale>,
    pub unreadable: Unreadable,
    /// Bytes that were copied.
    pub bytes: u64,
    /// The largest number of slots that may be left for the time in which requests wait.
    pub limit: u64,
    /// The volume as of the begin.
    pub superblock: Superblock,
    /// Messages about the new device.
    pub notes: Vec<String>,
}

impl Copied {
    /// Whether too much is left for the time in which requests wait.
    pub fn has_too_much_left(&self) -> bool {
        self.stale.left() > 2 * self.limit + 8
    }

    /// Whether the new device lacks bytes of a slot.
    pub fn lacks(&self, index: u32) -> bool {
        self.stale.is_stale(index) || self.stale.is_due(index)
    }
}

impl Source {
    /// For a member that is present. The file is opened once more, so that neither its lock nor its claim depend on the copy.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn of(device: &Device) -> Result<Source, Error> {
        let mut flags = OFlags::empty();
        flags.set(OFlags::DIRECT, device.direct);
        let file = crate::device::reopen(&device.file, false, flags).map_err(|e| {
            let what = format!(
                "{}: cannot be opened for the copy: {e}; {AS_BEFORE}",
                device.path.display()
            );
            Error::new(ErrorKind::Device, what)
        })?;
        Ok(Source {
            file,
            path: device.path.clone(),
            cached: !device.direct,
        })
    }
}

/// A replacement in a served volume that has begun. Dropping it gives it up.
pub struct Begun {
    handle: Handle,
    replacement: Option<Box<Replacement>>,
    /// The members, until the new device is ready for the copy.
    devices: Option<Arc<Vec<Option<Device>>>>,
    state: Option<Arc<State>>,
    passes: Passes,
}

/// The outcome of [`Begun::switch`].
pub enum Step {
    /// The member was replaced.
    Done(Box<Replaced>),
    /// It is too early: [`Begun::copy`] goes on.
    Later(Box<Begun>),
}

impl Handle {
    /// Begins to replace a member of the volume by `new`: a member that is missing, or with [`ReplaceHow::empty`] a cache that holds nothing of
    /// its own, at once; another one after a copy. `config` and `file` are the description, which the caller must change
    /// ([`Replaced::describe`]). `rate` limits the copy, in bytes per second; `None`: as fast as the devices allow while they have no other
    /// work, and 4 MiB per second while they have.
    ///
    /// # Errors
    /// As for [`crate::Volume::replace`] and [`Handle::grow`]; or another member is being copied.
    pub fn begin_replace(
        &self,
        (config, file): (&VolumeConfig, &Path),
        new: &Path,
        how: &ReplaceHow,
        rate: Option<u64>,
    ) -> Result<Begun, Error> {
        if let Some(other) = self.copying() {
            return Err(Error::new(ErrorKind::Volume, other.busy()));
        }
        let replacement = Box::new(Replacement::prepared(config, file, new, how)?);
        let planned: Planned = self.reopen(|tell| Purpose::Plan { replacement, tell })?;
        Ok(Begun {
            handle: self.clone(),
            replacement: Some(planned.replacement),
            devices: Some(planned.devices).filter(|_| planned.state.is_some()),
            state: planned.state,
            passes: Passes::new(rate),
        })
    }

    /// How far the copy of a member is that is being replaced, if there is one. Does not ask the engine's thread.
    pub fn replacing(&self) -> Option<Progress> {
        self.copying().map(|s| s.locked().clone())
    }

    /// The words about a second change while a member is being copied. `VOLUME` stands for the volume.
    pub fn busy_replacing(&self) -> Option<String> {
        self.copying().map(|s| s.busy())
    }

    /// Gives up the copy of a member that is being replaced, and waits until it has ended, at most for `limit`. `None`: there was no copy;
    /// otherwise how far it was, and whether it was given up (it may have been too late, or a device does not answer).
    pub fn cancel_replace(&self, limit: Duration) -> Option<(Progress, bool)> {
        let state = self.copying()?;
        state.stop();
        let begun = Instant::now();
        let is_going_on = || self.copying().is_some_and(|s| Arc::ptr_eq(&s, &state));
        while is_going_on() && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(20));
        }
        let progress = state.locked().clone();
        Some((progress, !state.is_done() && !is_going_on()))
    }
}

impl Begun {
    /// Copies the member until so little is left that [`Begun::switch`] may be called. Returns at once if nothing must be copied.
    ///
    /// # Errors
    /// The new device fails, the member cannot be read and no other member has the data, the volume is closing or has failed, or the copy was
    /// given up. The volume is as it was before.
    pub fn copy(&mut self) -> Result<(), Error> {
        if let (Some(devices), Some(replacement)) = (self.devices.take(), &mut self.replacement) {
            replacement.begin_copy(&devices)?;
        }
        let parts = self.replacement.as_mut().and_then(|r| r.copying());
        match (parts, &self.state) {
            (Some(copy), Some(state)) => self.passes.run(&self.handle, copy, state),
            _ => Ok(()),
        }
    }

    /// Replaces the member: requests wait meanwhile.
    ///
    /// # Errors
    /// As for [`Begun::copy`]; a change that failed after it had begun names the state of the volume.
    pub fn switch(mut self) -> Result<Step, Error> {
        if let Some(state) = &self.state {
            state.nap(Duration::ZERO)?;
            if !self.passes.have_ended() {
                return Ok(Step::Later(Box::new(self)));
            }
        }
        let Some(replacement) = self.replacement.take() else {
            let what = "the replacement was given up";
            return Err(Error::new(ErrorKind::Volume, what));
        };
        let outcome = (self.handle).reopen(|tell| Purpose::Replace { replacement, tell });
        match outcome {
            Ok(made) => {
                if let Some(state) = &self.state {
                    state.done.store(true, Ordering::Release);
                }
                Ok(Step::Done(Box::new(made)))
            }
            Err(NotReplaced {
                again: Some((wait, replacement)),
                ..
            }) => {
                self.replacement = Some(replacement);
                if let Some(state) = &self.state {
                    state.locked().wait = wait;
                    state.nap(LOOK_AGAIN)?;
                }
                Ok(Step::Later(Box::new(self)))
            }
            Err(NotReplaced { error, .. }) => Err(error),
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let Some(state) = &self.state else { return };
        let member = state.locked().member;
        // If the volume is closed, nothing is written any more.
        let _ = self
            .handle
            .call(move |_, world| world.watch_writes(member, None));
        self.handle.forget_copying(state);
    }
}
