//! vhost-user as a [`FrontEnd`]: a socket, and the thread of its only connection.

use super::device::{Device, Kicks};
use super::session::{Channel, Session};
use super::wire;
use crate::front_end::{Capabilities, FrontEnd, FrontEndSettings, VolumeAccess};
use crate::sockets::{Clients, Listening, UnixSocket};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a monitor may stop in the middle of a message, or not read an answer.
const STALLED: Duration = Duration::from_secs(10);

/// A virtio block device for one virtual machine.
#[derive(Debug)]
pub struct Settings {
    /// The unix socket. Only the user of this process may connect to it.
    pub path: PathBuf,
}

impl FrontEndSettings for Settings {
    fn names(&self, _: &str) -> Vec<String> {
        vec![format!("vhost-user:{}", self.path.display())]
    }

    fn start(self: Box<Self>, volume: &VolumeAccess) -> io::Result<Box<dyn FrontEnd>> {
        // A monitor connects again after a kill, and its guest does not notice.
        volume.must_have_answers(
            "vhost-user: end the virtual machine, or serve once without --vhost-user and stop",
        )?;
        volume.keep_writes()?;
        Ok(Box::new(Listening {
            names: self.names(&volume.name),
            server: Server::start(&self.path, volume)?,
        }))
    }
}

#[derive(Default)]
struct Counts {
    accepted: AtomicU64,
    refused: AtomicU64,
    violations: Arc<AtomicU64>,
    stalled: AtomicU64,
}

fn count(which: &AtomicU64) {
    which.fetch_add(1, Ordering::Relaxed);
}

struct Shared {
    socket: UnixSocket,
    volume: VolumeAccess,
    /// Whether new connections are refused.
    full: AtomicBool,
    stopping: AtomicBool,
    /// The present connection.
    present: Mutex<Option<UnixStream>>,
    channel: Channel,
    counts: Counts,
}

/// A running server; dropping it stops it.
struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(path: &std::path::Path, volume: &VolumeAccess) -> io::Result<Server> {
        let shared = Arc::new(Shared {
            socket: UnixSocket::bind("vhost-user", path, true)?,
            volume: volume.clone(),
            full: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            present: Mutex::default(),
            channel: Channel::default(),
            counts: Counts::default(),
        });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("vhost-user".into())
            .spawn(move || for_thread.run())?;
        Ok(Server {
            shared,
            thread: Some(thread),
        })
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        Clients::refuse_new(self);
        if let Some(present) = &*self.shared.present() {
            // The session sees the end of the stream after the messages that it has received. The monitor sees it when all its requests
            // are answered.
            let _ = shutdown(present, Shutdown::Read);
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl Clients for Server {
    const CAPABILITIES: Capabilities = Capabilities {
        fua: false,
        discard: true,
        write_zeroes: true,
        classes: false,
        resize: true,
    };
    const WORDS: (&'static str, &'static str) = (
        "virtual machine is connected",
        "virtual machines are connected",
    );
    const OUTLIVES: bool = true;

    fn clients(&self) -> usize {
        usize::from(self.shared.present().is_some())
    }

    fn counts(&self) -> [u64; 5] {
        let c = &self.shared.counts;
        let all = [&c.accepted, &c.refused, &c.violations, &c.stalled];
        let [accepted, refused, violations, stalled] = all.map(|n| n.load(Ordering::Relaxed));
        [accepted, refused, violations, stalled, 0]
    }

    fn resized(&self) -> &'static str {
        let channel = self.shared.channel.lock();
        let told = match &*channel.unwrap_or_else(PoisonError::into_inner) {
            Some(channel) => wire::tell_change(channel).is_ok(),
            None => false,
        };
        if told {
            "the virtual machine is told, and sees the new size at once"
        } else {
            "a virtual machine sees the new size when it starts"
        }
    }

    fn refuse_new(&mut self) {
        self.shared.full.store(true, Ordering::SeqCst);
        // This wakes the thread. It fails only for a socket that is already shut down.
        let _ = shutdown(&self.shared.socket.listener, Shutdown::Both);
    }

    fn stop(mut self) {
        self.end();
    }
}

impl Shared {
    fn present(&self) -> MutexGuard<'_, Option<UnixStream>> {
        // A single value is always consistent.
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut session: Option<Session> = None;
        loop {
            let is_full = self.full.load(Ordering::SeqCst);
            if is_full && session.is_none() {
                return;
            }
            let mut fds = Vec::with_capacity(2);
            if !is_full {
                fds.push(PollFd::new(&self.socket.listener, PollFlags::IN));
            }
            if let Some(session) = &session {
                fds.push(PollFd::new(session.socket(), PollFlags::IN));
            }
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let is_ready = |fd: Option<&PollFd<'_>>| fd.is_some_and(|f| !f.revents().is_empty());
            let message = session.is_some() && is_ready(fds.last());
            let newcomer = !is_full && is_ready(fds.first());
            // A monitor that was started anew finds the connection of its predecessor ended.
            if let Some(present) = session.as_mut().filter(|_| message)
                && !self.step(present)
            {
                session = None;
                *self.present() = None;
            }
            if newcomer {
                self.accept(&mut session);
            }
        }
    }

    /// Handles a message; returns false at the end of the connection.
    fn step(&self, session: &mut Session) -> bool {
        match session.step() {
            Ok(goes_on) => goes_on,
            Err(e) => {
                match e.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        count(&self.counts.stalled);
                    }
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => return false,
                    _ => count(&self.counts.violations),
                }
                tracing::warn!("vhost-user: the connection is closed: {e}");
                false
            }
        }
    }

    fn accept(&self, session: &mut Option<Session>) {
        let Ok((socket, _)) = self.socket.listener.accept() else {
            // There are no descriptors, or the peer left before it was accepted. The pause avoids a busy loop in the first case.
            return thread::sleep(Duration::from_millis(10));
        };
        count(&self.counts.accepted);
        if session.is_some() {
            // Two guests would destroy each other's file systems.
            return count(&self.counts.refused);
        }
        match self.session(socket) {
            Ok(new) => *session = Some(new),
            Err(e) => {
                count(&self.counts.refused);
                tracing::warn!("vhost-user: a connection is refused: {e}");
            }
        }
    }

    fn session(&self, socket: UnixStream) -> io::Result<Session> {
        socket.set_read_timeout(Some(STALLED))?;
        socket.set_write_timeout(Some(STALLED))?;
        let VolumeAccess {
            engine,
            port,
            uuid,
            extent,
            ..
        } = &self.volume;
        let device = Device::new(Arc::clone(port), *uuid, Arc::clone(&self.counts.violations))?;
        let kicks = Box::new(Kicks(Arc::clone(&device)));
        let added = engine.call(move |_, world| world.add_source(kicks));
        added.ok_or_else(|| io::Error::other("the volume has ended"))?;
        let channel = Arc::clone(&self.channel);
        let session = Session::new(
            socket.try_clone()?,
            Arc::clone(port),
            *extent,
            device,
            channel,
        );
        *self.present() = Some(socket);
        if self.stopping.load(Ordering::SeqCst) {
            return Err(io::Error::other("the server stops"));
        }
        Ok(session)
    }
}
