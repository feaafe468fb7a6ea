//! The configuration of a target, and the settings that are refused.

use super::chap::Secrets;
use super::reservation_file::ReservationFile;
pub use crate::nbd::server::TimeLimits;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// The configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the volume, for display.
    pub name: String,
    /// Name of the target, `iqn.…`; if it is absent, one is made from the volume's name.
    pub target: Option<String>,
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// Preferred size of a transfer in bytes: an extent.
    pub preferred: u32,
    /// The initiators that may log in; without secrets, all may.
    pub secrets: Option<Arc<Secrets>>,
    /// Allows listening on addresses that other machines can reach; this needs `secrets`.
    pub allow_remote: bool,
    /// Maximum number of sessions; further logins are refused.
    pub max_sessions: usize,
    /// How long the server waits for peers that stall.
    pub time_limits: TimeLimits,
    /// How long a session that is taken over may need to finish its commands.
    pub take_over: Duration,
    /// The file for reservations that survive a restart of the server; without it none do.
    pub reservation_file: Option<ReservationFile>,
}

impl Config {
    /// A configuration for local initiators only, with 64 sessions and no secrets.
    pub fn new(name: &str, uuid: [u8; 16]) -> Config {
        Config {
            name: name.to_owned(),
            target: None,
            uuid,
            preferred: 64 << 10,
            secrets: None,
            allow_remote: false,
            max_sessions: 64,
            time_limits: TimeLimits::default(),
            take_over: Duration::from_secs(30),
            reservation_file: None,
        }
    }

    /// The target's name.
    pub fn target(&self) -> String {
        self.target.clone().unwrap_or_else(|| {
            let plain = |c: char| match c.to_ascii_lowercase() {
                c if c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-') => c,
                _ => '-',
            };
            let name: String = self.name.chars().map(plain).take(128).collect();
            format!("iqn.2026-01.local.isotherm:{name}")
        })
    }

    pub(super) fn check(&self) -> io::Result<()> {
        let target = self.target();
        let starts = ["iqn.", "eui.", "naa."]
            .iter()
            .any(|p| target.starts_with(p));
        let fine =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b':' | b'-');
        if !starts || target.len() > 223 || !target.bytes().all(fine) {
            return Err(invalid(&format!(
                "iSCSI target name {target}: write iqn.YYYY-MM.DOMAIN:NAME, at most 223 of a-z, 0-9, '.', ':' and '-'"
            )));
        }
        if self.allow_remote && self.secrets.is_none() {
            return Err(invalid(
                "iSCSI for other machines without secrets: whoever can reach the address could read and write the volume",
            ));
        }
        Ok(())
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Listens on an address. An address that other machines can reach is refused unless the configuration allows it.
pub(super) fn bind(
    address: &str,
    allow_remote: bool,
    bound: &mut Vec<TcpListener>,
) -> io::Result<()> {
    let at = |e: io::Error| io::Error::new(e.kind(), format!("iSCSI address {address}: {e}"));
    let resolved: Vec<SocketAddr> = (address.to_socket_addrs())
        .map_err(|e| {
            let why =
                format!("iSCSI address {address}: write HOST:PORT, such as 127.0.0.1:3260 ({e})");
            io::Error::new(e.kind(), why)
        })?
        .collect();
    if let Some(remote) = resolved.iter().find(|a| !a.ip().is_loopback())
        && !allow_remote
    {
        return Err(invalid(&format!(
            "iSCSI address {address} ({remote}) is reachable from other machines, which could then read and write the \
             volume: use 127.0.0.1, or give --iscsi-allow-remote with --iscsi-chap FILE"
        )));
    }
    if resolved.is_empty() {
        return Err(invalid(&format!(
            "iSCSI address {address} names no network address"
        )));
    }
    for a in resolved {
        bound.push(TcpListener::bind(a).map_err(at)?);
    }
    Ok(())
}
