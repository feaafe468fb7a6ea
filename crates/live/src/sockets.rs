//! The common part of NBD and iSCSI as front ends: a server with clients on sockets.

use crate::front_end::{Capabilities, FrontEnd};

/// A server that has clients.
pub(crate) trait Clients: Send {
    /// The operations that clients can request.
    const CAPABILITIES: Capabilities;
    /// The words for one client and for several, as they follow their number in a sentence.
    const WORDS: (&'static str, &'static str);
    /// See [`FrontEnd::outlives`].
    const OUTLIVES: bool;
    /// Number of clients that use the volume now.
    fn clients(&self) -> usize;
    /// Numbers of connections that were accepted, refused, ended for a breach of the protocol, ended for stalling, and not authenticated.
    fn counts(&self) -> [u64; 5];
    /// The volume has grown. Returns the words about clients, as in `NBD clients see …`.
    fn resized(&self) -> &'static str;
    /// Stops listening.
    fn refuse_new(&mut self);
    /// Completes the work in progress and ends.
    fn stop(self);
}

/// Such a server as a front end.
pub(crate) struct Listening<S> {
    pub names: Vec<String>,
    pub server: S,
}

impl<S: Clients> FrontEnd for Listening<S> {
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn capabilities(&self) -> Capabilities {
        S::CAPABILITIES
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let names = ["accepted", "refused", "violations", "stalled", "unknown"];
        let clients = ("clients", self.server.clients() as u64);
        let counts = names.into_iter().zip(self.server.counts());
        std::iter::once(clients).chain(counts).collect()
    }

    fn outlives(&self) -> bool {
        S::OUTLIVES
    }

    fn refuse_new(&mut self) {
        self.server.refuse_new();
    }

    fn users(&mut self) -> Option<String> {
        match self.server.clients() {
            0 => None,
            1 => Some(format!("1 {}", S::WORDS.0)),
            n => Some(format!("{n} {}", S::WORDS.1)),
        }
    }

    fn resized(&mut self) -> String {
        format!("{}: {}", self.names.join(", "), self.server.resized())
    }

    fn stop(self: Box<Self>) {
        self.server.stop();
    }
}
