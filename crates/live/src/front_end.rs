//! Front ends, which give users access to a volume: common traits to start, query and stop each of them.
//!
//! ```text
//!  serve ─► FrontEndSettings::start(volume) ─► FrontEnd: names, capabilities, users, refuse_new, leave, stop
//!           block file · NBD · ublk · iSCSI · vhost-user
//! ```
//!
//! A new front end implements these two traits and is added to the list that `serve` makes of its options; nothing else
//! depends on it. All requests go to [`VolumeAccess::port`].

use crate::port::Port;
use crate::server::Handle;
use std::io;
use std::sync::Arc;

/// Access to the volume for a front end.
#[derive(Clone)]
pub struct VolumeAccess {
    /// Its engine, for front ends that work on the engine's own thread.
    pub engine: Handle,
    /// The port for requests, possibly through a recorder.
    pub port: Arc<dyn Port>,
    /// Name of the volume.
    pub name: String,
    /// Identity of the volume; it never changes.
    pub uuid: [u8; 16],
    /// Bytes of an extent.
    pub extent: u32,
    /// Users of an earlier server must not go on without noticing, because writes that it answered may be missing: see
    /// [`crate::Volume::answers_lost`].
    pub answers_lost: bool,
}

impl VolumeAccess {
    /// Checks that users who do not notice that a server was killed may go on. `instead` says who asks, and how the users are made to notice.
    ///
    /// # Errors
    /// Writes that the killed server answered may be missing ([`crate::Volume::answers_lost`]).
    pub fn must_have_answers(&self, instead: &str) -> io::Result<()> {
        if !self.answers_lost {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{instead}, or let them go on with --accept-loss: the last server was killed, and the records of its last answered writes, which it \
             kept below /run/isotherm/kept, are gone, or a member was attached again since: what was not flushed may be missing"
        )))
    }

    /// From now on, a write is answered only if the next server would find it after this server is killed. For front ends
    /// whose users do not notice a new server ([`FrontEnd::outlives`]).
    ///
    /// # Errors
    /// The volume has ended.
    pub fn keep_writes(&self) -> io::Result<()> {
        let set = self.engine.call(|engine, world| {
            let now = isotherm_core::World::now(world);
            engine.set(now, "kept_writes", 1.0)
        });
        match set {
            Some(Ok(())) => Ok(()),
            _ => Err(io::Error::other("the volume has ended")),
        }
    }
}

/// Operations that a front end offers besides reading, writing and flushing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Writes that are durable before they are answered.
    pub fua: bool,
    /// Discards ranges.
    pub discard: bool,
    /// Writes zeros without transferring them.
    pub write_zeroes: bool,
    /// Requests carry a class of data.
    pub classes: bool,
    /// Users see the volume grow while it is in use.
    pub resize: bool,
}

/// The settings of a front end that has not started.
pub trait FrontEndSettings: Send {
    /// Its name in `status` before it has started: `nbd:ADDRESS`, `block-file:PATH` …
    fn names(&self, name: &str) -> Vec<String>;
    /// Starts the front end. I/O works when this returns.
    ///
    /// # Errors
    /// A text that names the front end. Nothing stays mounted, listening or in `/dev` then.
    fn start(self: Box<Self>, volume: &VolumeAccess) -> io::Result<Box<dyn FrontEnd>>;
}

/// A running front end. Dropping it stops it, even if it is in use.
pub trait FrontEnd: Send {
    /// Its name in `status`.
    fn names(&self) -> Vec<String>;
    /// See [`Capabilities`].
    fn capabilities(&self) -> Capabilities;
    /// Whether its payloads reach the devices without a copy; `None` if it has no such mode.
    fn zero_copy(&self) -> Option<bool> {
        None
    }
    /// Counts since the start, by name.
    fn figures(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// Whether its users continue with the next server after this one was killed, without noticing. Then the knob `kept_writes` stays on.
    fn outlives(&self) -> bool {
        false
    }
    /// Refuses new users from now on; present users continue.
    fn refuse_new(&mut self);
    /// Describes its present users. If users can only be found by trying to stop the front end (the block file), this tries to.
    fn users(&mut self) -> Option<String>;
    /// Stops it, unless it is in use.
    ///
    /// # Errors
    /// Describes its present users.
    fn leave(&mut self) -> Result<(), String> {
        Ok(())
    }
    /// The volume has grown: shows its present size to users, if the protocol can. Returns a sentence for people that names the front end
    /// and says whether its users see the new size, and what they must do otherwise.
    fn resized(&mut self) -> String;
    /// Stops it. No request comes after this; remaining users get errors.
    fn stop(self: Box<Self>);
}
