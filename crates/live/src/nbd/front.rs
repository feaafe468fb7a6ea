//! NBD as a [`FrontEnd`].

use super::server::{Address, Config, Server};
use crate::front_end::{Can, FrontEnd, Kind, Way};
use std::io;
use std::sync::Arc;

/// NBD on these addresses.
#[derive(Debug)]
pub struct Wanted {
    /// Where to listen.
    pub addresses: Vec<Address>,
    /// See there.
    pub config: Config,
}

impl Kind for Wanted {
    fn names(&self, _: &str) -> Vec<String> {
        self.addresses.iter().map(|a| format!("nbd:{a}")).collect()
    }

    fn start(self: Box<Self>, way: &Way) -> io::Result<Box<dyn FrontEnd>> {
        let port = Arc::clone(&way.port);
        let server =
            Server::start_on_engine(way.engine.clone(), port, &self.addresses, self.config)?;
        let names = server.addresses().into_iter().map(|a| format!("nbd:{a}"));
        Ok(Box::new(Listening {
            names: names.collect(),
            server,
        }))
    }
}

struct Listening {
    names: Vec<String>,
    server: Server,
}

impl FrontEnd for Listening {
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn can(&self) -> Can {
        Can {
            fua: true,
            discard: true,
            write_zeroes: true,
            classes: false,
            resize: false,
        }
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let c = self.server.counts();
        vec![
            ("clients", self.server.clients() as u64),
            ("accepted", c.accepted),
            ("refused", c.refused),
            ("violations", c.violations),
            ("stalled", c.stalled),
            ("unknown", c.unknown),
        ]
    }

    fn refuse_new(&mut self) {
        self.server.refuse_new();
    }

    fn users(&mut self) -> Option<String> {
        match self.server.clients() {
            0 => None,
            1 => Some("1 NBD client is connected".into()),
            n => Some(format!("{n} NBD clients are connected")),
        }
    }

    fn stop(self: Box<Self>) {
        self.server.stop();
    }
}
