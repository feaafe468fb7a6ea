//! Closes the engine and opens it again from its own store, in place: for the begin of a recording, or for a change of the members that is
//! made while the store is closed.
//!
//! ```text
//! hold new requests ─► those in flight end ─► Engine::close ─► closed ─► the change, if there is one
//!    ─► store::open (for a recording, every block that it reads is kept) ─► a new engine ─► the held requests
//! ```
//! Clients stay connected and wait as long as recovery takes. State that the policy keeps outside the map (counters of a collector, queues)
//! starts empty, as after a restart, so this disturbs placement a little. The advantage for a recording: it begins with a few blocks of an
//! existing format instead of a copy of every data structure that a policy may have. The advantage for a change: it is made as in a volume
//! that is not served, and a crash is a crash of that.
//!
//! A change that is refused or fails does not end the service: the store is opened again as the change has left it.

mod growth;
mod purpose;
mod removal;
mod replacement;

use crate::cache_end::can_lose;
use crate::copying::Wait;
use crate::error::{Error, ErrorKind};
use crate::media::FileMedia;
use crate::members::{Found, find_superblocks};
use crate::mutants::{LiveMutant, broken};
use crate::random::random;
use crate::recorder::{Driver, Recorder, Recording};
use crate::server::{Session, start};
use crate::volume::sheets::{costs, pacers};
use crate::volume::{Grown, NotChanged, OpenMode};
use isotherm_core::geometry::Kind;
use isotherm_core::run::Host;
use isotherm_core::store::open::Loss;
use isotherm_core::store::superblock::MemberEntry;
use isotherm_core::store::{self, Media, MediaError, Opened};
use isotherm_core::volume::ExtentMap;
use isotherm_core::volume::lost::LostPart;
use isotherm_core::{Effect, Engine, ExtentId, IoError, MemberId, Nanos, Request, World};
use isotherm_events::{Image, Origin};
use purpose::refused;
pub(crate) use purpose::{BEING_CHANGED, NotReplaced, Planned, Purpose, Reason};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// A recording or change that waits until no request is in progress in the engine.
pub(crate) struct Reopening {
    pub purpose: Purpose,
    /// Requests that arrived in the meantime, in order.
    pub held: VecDeque<Request>,
    closing: bool,
}

/// A store that was opened again.
struct Reopened {
    opened: Opened,
    found: Found,
    /// The blocks that were read.
    image: Image,
    /// The new epoch, if the volume is written to.
    epoch: Option<u64>,
}

/// Passes reads to the medium, and keeps a copy of every block that was read.
struct CapturingMedia<'a> {
    media: FileMedia<'a>,
    image: Image,
}

impl Media for CapturingMedia<'_> {
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MediaError> {
        let result = self.media.read(member, offset, buf);
        match result {
            Ok(()) => self.image.saw(member, offset, buf),
            Err(_) => self.image.failed(member, offset, buf.len()),
        }
        result
    }
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MediaError> {
        self.media.write(member, offset, buf)
    }
    fn flush(&mut self, member: MemberId) -> Result<(), MediaError> {
        self.media.flush(member)
    }
    fn map_made(&mut self, map: &ExtentMap) {
        self.media.map_made(map);
    }
}

impl Session {
    /// Begins a requested recording or change, or continues to begin one. Call it after every step.
    pub(crate) fn reopen_if_due(&mut self) {
        if let Some(purpose) = self.engine.requested.take() {
            match (self.may_reopen(&purpose), purpose) {
                (Err(reason), purpose) => purpose.refuse(reason),
                (Ok(()), Purpose::Grow { what, file, tell })
                    if self.may_grow(what, &file).is_ok_and(|changes| !changes) =>
                {
                    // The receiver may have gone.
                    let _ = tell.send(Ok(Grown::unchanged(&self.superblock)));
                }
                (Ok(()), Purpose::Plan { replacement, tell }) => {
                    // If the receiver has gone, the new device is free again.
                    let _ = tell.send(self.plan_replacement(replacement));
                }
                (Ok(()), purpose) => {
                    self.reopening = Some(Reopening {
                        purpose,
                        held: VecDeque::new(),
                        closing: false,
                    });
                }
            }
        }
        let Some(r) = &mut self.reopening else { return };
        if !r.closing && self.world.in_flight() == r.held.len() {
            r.closing = true;
            let now = self.world.now();
            self.call(|engine, out| engine.close(now, out));
        }
        if self.engine.is_closed() {
            self.reopen();
        }
    }

    /// Checks a request while the volume is served, so that one that is refused delays no client.
    fn may_reopen(&self, purpose: &Purpose) -> Result<(), Reason> {
        let why = if self.reopening.is_some() {
            return Err(Reason(refused(BEING_CHANGED), Some(Wait::Change)));
        } else if self.engine.is_recorded() && purpose.is_change() {
            let why = refused("the volume is being recorded: stop the recording first");
            return Err(Reason(why, Some(Wait::Change)));
        } else if self.engine.is_recorded() {
            "the volume is being recorded already: stop the other recording first"
        } else if self.closing || self.engine.is_closed() {
            "the volume is closing"
        } else if self.is_broken() {
            "a flush or metadata write failed: stop the volume and check the devices"
        } else if self.mode == OpenMode::ReadOnly && purpose.is_change() {
            "the volume is served read-only: serve it without --read-only first"
        } else {
            return self.may_change(purpose);
        };
        Err(Reason(refused(why), None))
    }

    fn may_change(&self, purpose: &Purpose) -> Result<(), Reason> {
        if let Some(other) = self.handle.copying()
            && purpose.is_change()
            && !purpose.ends_copy()
        {
            return Err(refused(&other.busy()).into());
        }
        let may = match purpose {
            Purpose::Record(_) => Ok(()),
            Purpose::Grow { what, file, .. } => self.may_grow(*what, file).map(drop),
            Purpose::RemoveFlash { file, .. } => self.may_remove_flash(file),
            Purpose::ChangeFlash { ask, .. } => self.may_change_flash(ask),
            Purpose::Plan { replacement, .. } | Purpose::Replace { replacement, .. } => {
                if replacement.has_too_much_left() {
                    let why = "more was written to the member meanwhile than can be copied now";
                    return Err(Reason(refused(why), Some(Wait::Writes)));
                }
                self.plan_of(replacement).map(drop)
            }
        };
        Ok(may?)
    }

    /// Called when the engine is closed, so that all its state is on the members.
    fn reopen(&mut self) {
        let Some(Reopening { purpose, held, .. }) = self.reopening.take() else {
            return;
        };
        let closed = self.is_closed_whole();
        if closed.is_ok() {
            self.world.forget_kept();
        }
        match purpose {
            Purpose::Record(tell) => {
                let recording = closed.and_then(|()| self.begin_recorded());
                self.go_on(held, recording.as_ref().err());
                // The receiver may have gone; then the recording ends by itself.
                let _ = tell.send(recording);
            }
            Purpose::Grow { what, file, tell } => {
                let grown = closed.clone().and_then(|()| self.grow_closed(what, &file));
                let begun = closed.and_then(|()| self.begin_again());
                self.go_on(held, begun.as_ref().err());
                let grown = grown.map_err(|e| self.with_size(&e));
                // The receiver may have gone; the volume has grown all the same.
                let _ = tell.send(begun.and(grown));
            }
            Purpose::RemoveFlash { tell, .. } => {
                let (begun, former) = match closed {
                    Ok(()) => self.go_on_without_flash(),
                    Err(e) => (Err(e.clone()), Err(e)),
                };
                self.go_on(held, begun.as_ref().err());
                let _ = tell.send(begun.and(former));
            }
            Purpose::ChangeFlash { mut ask, tell } => {
                let changed = (closed.clone()).and_then(|()| self.change_flash_closed(&mut ask));
                let begun = closed.and_then(|()| self.begin_again());
                self.go_on(held, begun.as_ref().err());
                drop(ask);
                let made = changed.is_ok();
                let outcome = begun
                    .and(changed)
                    .map_err(|error| NotChanged { error, made });
                let _ = tell.send(outcome);
            }
            Purpose::Replace {
                mut replacement,
                tell,
            } => {
                let replaced =
                    (closed.clone()).and_then(|()| self.replace_closed(&mut replacement));
                let begun = closed.and_then(|()| self.begin_again());
                self.go_on(held, begun.as_ref().err());
                drop(replacement);
                let _ = tell.send(begun.and(replaced).map_err(NotReplaced::from));
            }
            // It was answered at once.
            Purpose::Plan { .. } => self.go_on(held, None),
        }
    }

    /// Refuses to go on if the state of the engine is not on the members: what was answered since the last good flush may be lost, and a new
    /// engine would not know that.
    fn is_closed_whole(&mut self) -> Result<(), Error> {
        let failed = self.is_broken();
        if failed && !broken(LiveMutant::ReopenAfterFailure) {
            let what = "a flush or metadata write failed while the volume was being closed to be opened again: check the devices";
            return Err(Error::new(ErrorKind::Device, what));
        }
        self.world.stamp_at_once()
    }

    /// Serves the held requests with the new engine. If there is none because of `error`, refuses them and all later ones.
    fn go_on(&mut self, held: VecDeque<Request>, error: Option<&Error>) {
        let Some(e) = error else {
            for request in held {
                self.submit_admitted(request);
            }
            return;
        };
        // As after any failed opening, nothing can be served. The members are in the state that a crash leaves, and whole.
        self.world.refuse_from_now_on();
        for request in held {
            let gone = Effect::Reply {
                tag: request.tag,
                result: Err(IoError::Gone),
            };
            self.world.carry_out(&gone, &[]);
        }
        self.lost = Some(e.clone());
    }

    /// Opens the store again, and begins with a new engine.
    fn begin_again(&mut self) -> Result<(), Error> {
        let now = self.world.now();
        let opened = self.open_store(now)?.opened;
        self.begin(now, opened, None)
    }

    /// As [`Session::begin_again`], with an engine that is recorded from its first call.
    fn begin_recorded(&mut self) -> Result<Recording, Error> {
        let now = self.world.now();
        let r = self.open_store(now)?;
        let mut image = r.image;
        image.tidy();
        let origin = Origin {
            program: format!("isotherm {}", env!("CARGO_PKG_VERSION")),
            volume: self.config.name.clone(),
            policy: self.config.policy.clone(),
            epoch: r.epoch,
            time_base: r.opened.time_base,
            params: self.params.clone(),
            superblocks: r
                .found
                .iter()
                .map(|sb| sb.as_ref().map(|sb| sb.encode().to_vec()))
                .collect(),
        };
        let (recorder, recording) = Recorder::new(now, origin, image, self.handle.clone());
        self.begin(now, r.opened, Some(recorder))?;
        Ok(recording)
    }

    /// As [`Session::begin_again`], without flash, with which these blocks were lost.
    pub(crate) fn begin_without_flash(&mut self, lost: &[LostPart]) -> Result<(), Error> {
        let now = self.world.now();
        let opened = self.open_store_with(now, Loss::Listed, Some(lost))?.opened;
        self.begin(now, opened, None)
    }

    fn open_store(&mut self, now: Nanos) -> Result<Reopened, Error> {
        // The losses were accepted when this session began, or are listed.
        let loss = match self.superblock.kind {
            Kind::Cache => Loss::Listed,
            Kind::Tiering => Loss::Accepted,
        };
        self.open_store_with(now, loss, None)
    }

    fn open_store_with(
        &mut self,
        now: Nanos,
        loss: Loss,
        lost: Option<&[LostPart]>,
    ) -> Result<Reopened, Error> {
        let devices = Arc::clone(self.world.devices());
        let paths: Vec<_> = self.config.members.iter().map(|m| m.path.clone()).collect();
        let read_only = self.mode == OpenMode::ReadOnly;
        let mut media = CapturingMedia {
            media: FileMedia::watched(&devices, &self.handle.vitals),
            image: Image::default(),
        };
        let degraded = devices.iter().any(Option::is_none);
        let tolerant = read_only || degraded;
        let (epoch, how) = opening(self.mode, degraded.then_some(loss))?;
        let stamping = self.world.stamp_meanwhile()?;
        let found = find_superblocks(&mut media.media, &paths, tolerant, &mut Vec::new());
        let opened = found.and_then(|found| {
            let opened = store::open_after_loss(&mut media, &found, how, lost)
                .map_err(|e| Error::new(ErrorKind::Volume, format!("opening again: {e}")))?;
            Ok((found, opened))
        });
        self.world.stamped_meanwhile(stamping)?;
        let (found, mut opened) = opened?;
        // Engine time continues, because the world's clock did not stop.
        opened.time_base = opened.time_base.max(now);
        // The present policy, which may differ from the one at the start.
        if let Some(text) = self.engine.policy() {
            text.clone_into(&mut self.config.policy);
        }
        self.world.forget_kept();
        let keeper = start::keeper(&opened.superblock, self.mode, &devices, &self.params);
        self.params.keeper = keeper.is_some();
        self.world.keep_with(keeper);
        Ok(Reopened {
            opened,
            found,
            image: media.image,
            epoch,
        })
    }

    /// Begins with a new engine. Everything that was set while the volume was served is set again.
    fn begin(
        &mut self,
        now: Nanos,
        opened: Opened,
        recorder: Option<Box<Recorder>>,
    ) -> Result<(), Error> {
        let wrong = |e| Error::new(ErrorKind::Config, e);
        let policy = self.config.build_policy().map_err(wrong)?;
        let knobs = self.engine.knobs();
        let promised = self.engine.promised().cloned();
        let asked_clean = self.engine.is_asked_clean();
        // The classes of extents are only in memory: they are set again before anything else happens.
        let classes: Vec<(ExtentId, u8)> = self.engine.space().classified().collect();
        self.members_may_have_changed(&opened)?;
        self.superblock = opened.superblock.clone();
        let can_lose = can_lose(&opened.superblock, self.mode);
        self.params.outlives_cache = can_lose != 0;
        self.world.can_lose(can_lose);
        let volume_bytes = opened.space.geo.volume_bytes();
        let engine = Engine::new(opened, policy, self.params.clone());
        self.engine = Driver::new(engine, recorder);
        self.handle.set_volume_bytes(volume_bytes);
        for (extent, class) in classes {
            self.call(|engine, out| engine.reclassify(now, extent, (class, Vec::new()), out));
        }
        if let Some(spec) = promised {
            self.engine.promise(now, spec);
        }
        self.set_again(now, &knobs);
        if asked_clean {
            // An engine that cannot clean moves nothing else either.
            let _ = self.engine.clean(now);
        }
        Ok(())
    }

    /// Tells the world and the engine's parameters about members that were replaced or have another size.
    fn members_may_have_changed(&mut self, opened: &Opened) -> Result<(), Error> {
        let (old, new) = (&self.superblock.members, &opened.superblock.members);
        let is_same = |b: &MemberEntry| old.iter().any(|a| (a.uuid, a.bytes) == (b.uuid, b.bytes));
        let has_changed: Vec<bool> = new.iter().map(|b| !is_same(b)).collect();
        // The world looks at every device again, so that nothing that it keeps of them can be older than the volume.
        let file = Path::new(&self.config.name);
        let pacers = pacers(&self.config, opened, file)?.into_iter();
        self.params.costs = costs(&self.config, opened, &mut Vec::new())
            .map_err(|e| Error::new(ErrorKind::Config, e))?;
        let changed = pacers.zip(has_changed);
        self.world
            .members_changed(changed.map(|(pacer, changed)| changed.then_some(pacer)))
    }

    /// Sets knobs that were changed since the start. One value may limit another, so several orders are tried.
    fn set_again(&mut self, now: Nanos, knobs: &[(&'static str, f64)]) {
        for _ in 0..knobs.len() {
            let fresh = self.engine.knobs();
            let different: Vec<_> = knobs
                .iter()
                .zip(&fresh)
                .filter(|(a, b)| a.1.to_bits() != b.1.to_bits())
                .collect();
            if different.is_empty() {
                break;
            }
            for (old, _) in different {
                // A refused value is tried again when the others are set.
                let _ = self.engine.set(now, old.0, old.1);
            }
        }
    }
}

/// The mode in which the store is opened again (`degraded`: without some members, and what is done about a loss), with the new epoch if there is one.
fn opening(
    mode: OpenMode,
    degraded: Option<Loss>,
) -> Result<(Option<u64>, store::open::Mode), Error> {
    if mode == OpenMode::ReadOnly {
        return Ok((None, store::open::Mode::ReadOnly));
    }
    let epoch = u64::from_le_bytes(random()?);
    let how = match degraded {
        Some(loss) => store::open::Mode::Degraded { epoch, loss },
        None => store::open::Mode::ReadWrite { epoch },
    };
    Ok((Some(epoch), how))
}
