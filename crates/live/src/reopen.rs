//! Begins a recording: the engine is closed and opened again from its own store, in place.
//!
//! ```text
//! hold new requests ─► those in flight end ─► Engine::close ─► closed ─► store::open, every block that it reads kept
//!                                                                        ─► a new engine, recorded from its first call
//! ```
//! Clients stay connected and wait as long as recovery takes. State that the policy keeps outside the map (counters of a collector, queues)
//! starts empty, as after a restart, so a recording disturbs placement a little. The advantage: the recording begins with a few blocks of
//! an existing format instead of a copy of every data structure that a policy may have.

use crate::error::{Error, ErrorKind};
use crate::media::FileMedia;
use crate::members::find_superblocks;
use crate::random::random;
use crate::recorder::{Driver, Recorder, Recording, RecordingRequest};
use crate::server::{Session, start};
use crate::volume::OpenMode;
use isotherm_core::run::Host;
use isotherm_core::store::{self, Media, MediaError};
use isotherm_core::volume::Space;
use isotherm_core::{Effect, Engine, ExtentId, IoError, MemberId, Nanos, Request, World};
use isotherm_traces::events::{Image, Origin};
use std::collections::VecDeque;
use std::sync::Arc;

/// A recording that waits until no request is in progress in the engine.
pub(crate) struct Reopening {
    requested: RecordingRequest,
    /// Requests that arrived in the meantime, in order.
    pub held: VecDeque<Request>,
    closing: bool,
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
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Volume, what)
}

impl Session {
    /// Begins a requested recording, or continues to begin one. Call it after every step.
    pub(crate) fn reopen_if_due(&mut self) {
        if let Some(requested) = self.engine.requested.take() {
            let why = if self.engine.is_recorded() || self.reopening.is_some() {
                Some("the volume is being recorded already: stop the other recording first")
            } else if self.closing || self.engine.is_closed() {
                Some("the volume is closing")
            } else if self.engine.has_failed() {
                Some("a flush or metadata write failed: stop the volume and check the devices")
            } else {
                None
            };
            match why {
                // The receiver may have gone.
                Some(why) => drop(requested.send(Err(refused(why)))),
                None => {
                    self.reopening = Some(Reopening {
                        requested,
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

    /// Called when the engine is closed, so that all its state is on the members.
    fn reopen(&mut self) {
        let Some(r) = self.reopening.take() else {
            return;
        };
        let now = self.world.now();
        match self.fresh(now) {
            Ok(recording) => {
                for request in r.held {
                    self.submit_admitted(request);
                }
                // The receiver may have gone; then the recording ends by itself.
                let _ = r.requested.send(Ok(recording));
            }
            Err(e) => {
                // As after any failed opening, nothing can be served. The members are in the state that a crash leaves, and whole.
                self.world.refuse_from_now_on();
                for request in r.held {
                    let gone = Effect::Reply {
                        tag: request.tag,
                        result: Err(IoError::Gone),
                    };
                    self.world.carry_out(&gone, &[]);
                }
                self.lost = Some(e.clone());
                let _ = r.requested.send(Err(e));
            }
        }
    }

    fn fresh(&mut self, now: Nanos) -> Result<Recording, Error> {
        let devices = Arc::clone(&self.devices);
        let paths: Vec<_> = self.config.members.iter().map(|m| m.path.clone()).collect();
        let read_only = self.mode == OpenMode::ReadOnly;
        let mut media = CapturingMedia {
            media: FileMedia::new(&devices),
            image: Image::default(),
        };
        let degraded = self.superblock.absent != 0;
        let tolerant = read_only || degraded;
        let found = find_superblocks(&mut media.media, &paths, tolerant, &mut Vec::new())?;
        let (epoch, how) = opening(self.mode, degraded)?;
        let mut opened = store::open(&mut media, &found, how)
            .map_err(|e| Error::new(ErrorKind::Volume, format!("opening again to record: {e}")))?;
        // Engine time continues, because the world's clock did not stop.
        opened.time_base = opened.time_base.max(now);
        // The present policy, which may differ from the one at the start.
        if let Some(text) = self.engine.policy() {
            text.clone_into(&mut self.config.policy);
        }
        let policy = self
            .config
            .build_policy()
            .map_err(|e| Error::new(ErrorKind::Config, e))?;
        self.world.forget_kept();
        let keeper = start::keeper(&opened.superblock, self.mode, &devices, &self.params);
        self.params.keeper = keeper.is_some();
        self.world.keep_with(keeper);
        let mut image = media.image;
        image.tidy();
        let origin = Origin {
            program: format!("isotherm {}", env!("CARGO_PKG_VERSION")),
            volume: self.config.name.clone(),
            policy: self.config.policy.clone(),
            epoch,
            time_base: opened.time_base,
            params: self.params.clone(),
            superblocks: found
                .iter()
                .map(|sb| sb.as_ref().map(|sb| sb.encode().to_vec()))
                .collect(),
        };
        let (recorder, recording) = Recorder::new(now, origin, image, self.handle.clone());
        let knobs = self.engine.knobs();
        let promised = self.engine.promised().cloned();
        // The classes of extents are only in memory: they are set again before anything else happens.
        let classes = classes(self.engine.space());
        self.superblock = opened.superblock.clone();
        let engine = Engine::new(opened, policy, self.params.clone());
        self.engine = Driver::new(engine, Some(recorder));
        for (extent, class) in classes {
            self.call(|engine, out| engine.reclassify(now, extent, (class, Vec::new()), out));
        }
        if let Some(spec) = promised {
            self.engine.promise(now, spec);
        }
        self.set_again(now, &knobs);
        Ok(recording)
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

/// The mode in which the store is opened again, with the new epoch if there is one.
fn opening(mode: OpenMode, degraded: bool) -> Result<(Option<u64>, store::open::Mode), Error> {
    if mode == OpenMode::ReadOnly {
        return Ok((None, store::open::Mode::ReadOnly));
    }
    let epoch = u64::from_le_bytes(random()?);
    let how = if degraded {
        // The losses were accepted when this session began.
        let accept_loss = true;
        store::open::Mode::Degraded { epoch, accept_loss }
    } else {
        store::open::Mode::ReadWrite { epoch }
    };
    Ok((Some(epoch), how))
}

/// The extents with a class.
fn classes(space: &Space) -> Vec<(ExtentId, u8)> {
    (0..space.geo.extents)
        .map(|e| (ExtentId(e), space.class(ExtentId(e))))
        .filter(|known| known.1 != 0)
        .collect()
}
