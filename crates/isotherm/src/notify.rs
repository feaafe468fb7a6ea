//! Notifications to the service manager (sd_notify(3)): a datagram of `KEY=VALUE` lines to the socket that the manager names.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isotherm_live::Handle;

/// Sends a notification; does nothing without a service manager.
pub fn tell(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(e) = send(socket.as_bytes(), state) {
        tracing::warn!("the service manager cannot be told `{state}`: {e}");
    }
}

fn send(socket: &[u8], state: &str) -> io::Result<()> {
    let address = match socket.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(socket))?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(state.as_bytes(), &address)
        .map(drop)
}

/// The interval at which the manager expects to hear from this process, if it does.
fn watchdog() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let us = number("WATCHDOG_USEC").filter(|us| *us > 0 && ours)?;
    Some(Duration::from_micros(us))
}

/// Notifies the manager that all is well, as long as the engine answers. Dropping the value ends it.
pub struct Watch(Arc<AtomicBool>);

impl Watch {
    /// Starts a thread that asks the engine, unless no watchdog is set.
    pub fn start(handle: Handle) -> Watch {
        let over = Arc::new(AtomicBool::new(false));
        if let Some(limit) = watchdog() {
            let is_over = Arc::clone(&over);
            let asking = move || {
                while !is_over.load(Ordering::Relaxed) {
                    // An engine that hangs does not answer, so no notification is sent, and the manager acts. An engine that has ended is
                    // no reason to act, because the remaining work has a time limit of its own.
                    let _ = handle.call(|_, _| ());
                    tell("WATCHDOG=1");
                    std::thread::sleep(limit / 4);
                }
            };
            if let Err(e) = std::thread::Builder::new()
                .name("watchdog".into())
                .spawn(asking)
            {
                tracing::warn!("no thread for the watchdog: {e}");
            }
        }
        Watch(over)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_reach_both_kinds_of_socket() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let by_path = UnixDatagram::bind(&path).expect("binds");
        let name = format!("isotherm-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let by_name = UnixDatagram::bind_addr(&address).expect("binds");
        send(path.as_os_str().as_bytes(), "READY=1").expect("sent");
        send(format!("@{name}").as_bytes(), "STOPPING=1").expect("sent");
        let mut text = [0; 64];
        let n = by_path.recv(&mut text).expect("received");
        assert_eq!(&text[..n], b"READY=1");
        let n = by_name.recv(&mut text).expect("received");
        assert_eq!(&text[..n], b"STOPPING=1");
        assert!(send(b"/no/such/socket", "READY=1").is_err());
    }
}
