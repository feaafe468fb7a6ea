//! NBD as a [`FrontEnd`].

use super::server::{Address, Config, Server};
use crate::front_end::{Capabilities, FrontEnd, FrontEndSettings, VolumeAccess};
use crate::sockets::{Clients, Listening};
use std::io;
use std::sync::Arc;

/// NBD on these addresses.
#[derive(Debug)]
pub struct Settings {
    /// Where to listen.
    pub addresses: Vec<Address>,
    /// See [`Config`].
    pub config: Config,
}

impl FrontEndSettings for Settings {
    fn names(&self, _: &str) -> Vec<String> {
        self.addresses.iter().map(|a| format!("nbd:{a}")).collect()
    }

    fn start(self: Box<Self>, volume: &VolumeAccess) -> io::Result<Box<dyn FrontEnd>> {
        let port = Arc::clone(&volume.port);
        let server =
            Server::start_on_engine(volume.engine.clone(), port, &self.addresses, self.config)?;
        let names = server.addresses().into_iter().map(|a| format!("nbd:{a}"));
        Ok(Box::new(Listening {
            names: names.collect(),
            server,
        }))
    }
}

impl Clients for Server {
    const CAPABILITIES: Capabilities = Capabilities {
        fua: true,
        discard: true,
        write_zeroes: true,
        classes: false,
        resize: false,
    };
    const WORDS: (&'static str, &'static str) =
        ("NBD client is connected", "NBD clients are connected");
    const OUTLIVES: bool = false;

    fn clients(&self) -> usize {
        Server::clients(self)
    }

    fn counts(&self) -> [u64; 5] {
        let c = Server::counts(self);
        [c.accepted, c.refused, c.violations, c.stalled, c.unknown]
    }

    fn resized(&self) -> &'static str {
        "clients see the new size when they connect again"
    }

    fn refuse_new(&mut self) {
        Server::refuse_new(self);
    }

    fn stop(self) {
        Server::stop(self);
    }
}
