//! iSCSI as a [`FrontEnd`].

use super::chap::Secrets;
use super::server::{Config, Server};
use crate::front_end::{Can, FrontEnd, Kind, Way};
use std::io;
use std::sync::Arc;

/// A target on these addresses.
#[derive(Debug)]
pub struct Wanted {
    /// `HOST:PORT`, where to listen.
    pub addresses: Vec<String>,
    /// Name of the target instead of the one made of the volume's name.
    pub target: Option<String>,
    /// Who may log in; everybody on this machine if there are none.
    pub secrets: Option<Secrets>,
    /// Addresses that other machines can reach are fine.
    pub allow_remote: bool,
}

impl Kind for Wanted {
    fn names(&self, _: &str) -> Vec<String> {
        self.addresses
            .iter()
            .map(|a| format!("iscsi:{a}"))
            .collect()
    }

    fn start(self: Box<Self>, way: &Way) -> io::Result<Box<dyn FrontEnd>> {
        let config = Config {
            target: self.target,
            secrets: self.secrets.map(Arc::new),
            allow_remote: self.allow_remote,
            preferred: way.extent,
            ..Config::new(&way.name, way.uuid)
        };
        let server = Server::start(Arc::clone(&way.port), &self.addresses, config)?;
        let names = server
            .addresses()
            .into_iter()
            .map(|a| format!("iscsi:{a}/{}", server.target()));
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
            classes: true,
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
            1 => Some("1 iSCSI initiator is logged in".into()),
            n => Some(format!("{n} iSCSI initiators are logged in")),
        }
    }

    fn stop(self: Box<Self>) {
        self.server.stop();
    }
}
