//! What shows a volume to its users: one way to start, ask and end each kind.
//!
//! ```text
//!  serve ─► Kind::start(way) ─► FrontEnd: names, can, users, refuse_new, leave, stop
//!           block file · NBD · ublk · iSCSI
//! ```
//!
//! A new kind implements these two traits and is added to the list that `serve` makes of its options; nothing else has to know
//! of it. Requests go to [`Way::port`], wherever they come from.

use crate::port::Port;
use crate::server::Handle;
use std::io;
use std::sync::Arc;

/// The way to the volume.
#[derive(Clone)]
pub struct Way {
    /// Its engine, for front ends that work on the engine's own thread.
    pub engine: Handle,
    /// Where requests go, possibly by way of somebody who listens.
    pub port: Arc<dyn Port>,
    /// Name of the volume.
    pub name: String,
    /// Identity of the volume; the same wherever and whenever it is served.
    pub uuid: [u8; 16],
    /// Bytes of an extent.
    pub extent: u32,
}

impl Way {
    /// From here on nothing is answered as written that the next server would not find after this one was killed: for front ends
    /// whose users hear nothing of that ([`FrontEnd::outlives`]).
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

/// What users can ask of a front end beside reading, writing and flushing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Can {
    /// Writes that are durable before they are answered.
    pub fua: bool,
    /// Give ranges up.
    pub discard: bool,
    /// Have ranges zeroed without sending zeros.
    pub write_zeroes: bool,
    /// Say what kind of data a request carries.
    pub classes: bool,
    /// See the volume grow while it is in use.
    pub resize: bool,
}

/// A wish for a front end.
pub trait Kind: Send {
    /// What `status` calls it before it has started: `nbd:ADDRESS`, `block-file:PATH` …
    fn names(&self, name: &str) -> Vec<String>;
    /// Shows the volume. I/O works when this returns.
    ///
    /// # Errors
    /// In words that name what was asked for; nothing stays mounted, listening or in `/dev` then.
    fn start(self: Box<Self>, way: &Way) -> io::Result<Box<dyn FrontEnd>>;
}

/// A front end at work. Dropping it ends it, whoever uses it.
pub trait FrontEnd: Send {
    /// What `status` calls it.
    fn names(&self) -> Vec<String>;
    /// See [`Can`].
    fn can(&self) -> Can;
    /// Counts since the start, by name.
    fn figures(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// Do its users go on with the next server after this one was killed, without hearing of it? Then the knob `kept_writes` stays on.
    fn outlives(&self) -> bool {
        false
    }
    /// Nobody can begin to use it from now on; users go on.
    fn refuse_new(&mut self);
    /// Who still uses it, in words. Whoever could only be known by taking the front end away (the block file) is asked that way.
    fn users(&mut self) -> Option<String>;
    /// Takes it away, unless that would take it from somebody who has it open.
    ///
    /// # Errors
    /// Who has it open, in words.
    fn leave(&mut self) -> Result<(), String> {
        Ok(())
    }
    /// No request comes after this. Who is still there gets errors.
    fn stop(self: Box<Self>);
}
