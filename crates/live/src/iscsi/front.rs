//! iSCSI as a [`FrontEnd`].

use super::chap::Secrets;
use super::reservation_file::ReservationFile;
use super::server::{Config, Server};
use crate::front_end::{Capabilities, FrontEnd, FrontEndSettings, VolumeAccess};
use crate::sockets::{Clients, Listening};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A target on these addresses.
#[derive(Debug)]
pub struct Settings {
    /// The addresses `HOST:PORT` on which the target listens.
    pub addresses: Vec<String>,
    /// Name of the target; if it is absent, one is made from the volume's name.
    pub target: Option<String>,
    /// The initiators that may log in; without secrets, all initiators on this machine may.
    pub secrets: Option<Secrets>,
    /// Allows addresses that other machines can reach.
    pub allow_remote: bool,
    /// The file for reservations that survive a restart of the server.
    pub reservations: PathBuf,
}

impl FrontEndSettings for Settings {
    fn names(&self, _: &str) -> Vec<String> {
        self.addresses
            .iter()
            .map(|a| format!("iscsi:{a}"))
            .collect()
    }

    fn start(self: Box<Self>, volume: &VolumeAccess) -> io::Result<Box<dyn FrontEnd>> {
        let config = Config {
            target: self.target,
            secrets: self.secrets.map(Arc::new),
            allow_remote: self.allow_remote,
            preferred: volume.extent,
            reservation_file: Some(ReservationFile {
                file: self.reservations,
                volume: crate::config::format_uuid(&volume.uuid),
            }),
            ..Config::new(&volume.name, volume.uuid)
        };
        // After a restart initiators log in again, and continue without an error.
        volume.must_have_answers(
            "iscsi: stop the initiators' users, or serve once without --iscsi and stop",
        )?;
        volume.keep_writes()?;
        let server = Server::start(Arc::clone(&volume.port), &self.addresses, config)?;
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

impl Clients for Server {
    const CAPABILITIES: Capabilities = Capabilities {
        fua: true,
        discard: true,
        write_zeroes: true,
        classes: true,
        resize: true,
    };
    const WORDS: (&'static str, &'static str) = (
        "iSCSI initiator is logged in",
        "iSCSI initiators are logged in",
    );
    const OUTLIVES: bool = true;

    fn clients(&self) -> usize {
        Server::clients(self)
    }

    fn counts(&self) -> [u64; 5] {
        let c = Server::counts(self);
        [c.accepted, c.refused, c.violations, c.stalled, c.unknown]
    }

    fn resized(&self) -> &'static str {
        Server::resized(self);
        "initiators are told, and see the new size after a rescan (`iscsiadm -m session --rescan`)"
    }

    fn refuse_new(&mut self) {
        Server::refuse_new(self);
    }

    fn stop(self) {
        Server::stop(self);
    }
}
