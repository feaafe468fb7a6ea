//! Between a TLS connection and the session that serves it: bytes decrypted one way, encrypted the other, on one thread.
//!
//! Nothing gathers here: the peer is read only when the session has taken all that came before, the session only when the peer
//! has. So whoever stalls is stalled for the session as on any socket, and its time-outs count.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ServerConnection;

use super::proto::GREETING_BYTES;

/// Bytes read at once, either way.
const CHUNK: usize = 256 << 10;
/// How long the last bytes may take once the session has ended.
const LAST: Duration = Duration::from_secs(3);

struct Relay<'a> {
    tls: ServerConnection,
    peer: &'a TcpStream,
    session: &'a UnixStream,
    /// Decrypted, not taken by the session yet.
    up: Vec<u8>,
    taken: usize,
    /// Bytes of the session's greeting, which the peer has heard before, that are still to come.
    skip: usize,
    /// No more comes from the peer.
    peer_ended: bool,
    /// No more comes from the session, since then.
    session_ended: Option<Instant>,
    chunk: Box<[u8]>,
}

/// Until both have ended or one has failed.
pub(super) fn run(tls: ServerConnection, peer: &TcpStream, session: &UnixStream) {
    let mut relay = Relay {
        tls,
        peer,
        session,
        up: Vec::new(),
        taken: 0,
        skip: GREETING_BYTES,
        peer_ended: false,
        session_ended: None,
        chunk: vec![0; CHUNK].into_boxed_slice(),
    };
    let prepared = peer
        .set_nonblocking(true)
        .and_then(|()| session.set_nonblocking(true));
    // However it ends, both ends see it; there is nobody to tell more.
    let _ = prepared.and_then(|()| relay.carry());
    let _ = session.shutdown(Shutdown::Both);
}

fn now_or_later(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

impl Relay<'_> {
    fn carry(&mut self) -> io::Result<()> {
        // What is handed over at once is bounded by the chunk.
        self.tls.set_buffer_limit(None);
        // The handshake may have brought the first bytes along.
        self.decrypted()?;
        loop {
            self.give_session();
            self.give_peer()?;
            if let Some(ended) = self.session_ended
                && (!self.tls.wants_write() || ended.elapsed() > LAST)
            {
                return Ok(());
            }
            let (mut from_peer, mut from_session) = (PollFlags::empty(), PollFlags::empty());
            let up = self.taken < self.up.len();
            from_peer.set(PollFlags::IN, !up && !self.peer_ended);
            from_peer.set(PollFlags::OUT, self.tls.wants_write());
            let hungry = !self.tls.wants_write() && self.session_ended.is_none();
            from_session.set(PollFlags::IN, hungry);
            from_session.set(PollFlags::OUT, up);
            self.wait(from_peer, from_session)?;
            if from_peer.contains(PollFlags::IN) {
                self.take_from_peer()?;
            }
            if hungry {
                self.take_from_session()?;
            }
        }
    }

    /// An end of which nothing is wanted is not watched: it would report its own end over and over.
    fn wait(&self, peer: PollFlags, session: PollFlags) -> io::Result<()> {
        let mut fds = Vec::with_capacity(2);
        if !peer.is_empty() {
            fds.push(PollFd::new(self.peer, peer));
        }
        if !session.is_empty() {
            fds.push(PollFd::new(self.session, session));
        }
        let limit = self.session_ended.map(|_| Timespec {
            tv_sec: LAST.as_secs() as i64,
            tv_nsec: 0,
        });
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn take_from_peer(&mut self) -> io::Result<()> {
        let mut peer = self.peer;
        let Some(n) = now_or_later(peer.read(&mut self.chunk))? else {
            return Ok(());
        };
        if n == 0 {
            self.peer_ended = true;
        }
        let chunk = std::mem::take(&mut self.chunk);
        let mut received = &chunk[..n];
        let mut result = Ok(());
        while !received.is_empty() && result.is_ok() {
            result = self
                .tls
                .read_tls(&mut received)
                .and_then(|_| self.decrypted());
        }
        self.chunk = chunk;
        result
    }

    /// What TLS has understood by now.
    fn decrypted(&mut self) -> io::Result<()> {
        let state = match self.tls.process_new_packets() {
            Ok(state) => state,
            Err(e) => {
                // Why, in an alert: as far as it goes.
                let _ = self.give_peer();
                return Err(io::Error::new(ErrorKind::InvalidData, e));
            }
        };
        self.peer_ended |= state.peer_has_closed();
        let n = state.plaintext_bytes_to_read();
        let before = self.up.len();
        self.up.resize(before + n, 0);
        if n > 0 {
            self.tls.reader().read_exact(&mut self.up[before..])?;
        }
        Ok(())
    }

    fn give_session(&mut self) {
        let mut session = self.session;
        while self.taken < self.up.len() {
            match now_or_later(session.write(&self.up[self.taken..])) {
                Ok(Some(n)) => self.taken += n,
                Ok(None) => return,
                // It takes no more; its last replies are still to be delivered.
                Err(_) => {
                    self.peer_ended = true;
                    self.taken = self.up.len();
                }
            }
        }
        self.up.clear();
        self.taken = 0;
        if self.peer_ended {
            // The session hears it once and may have ended before.
            let _ = session.shutdown(Shutdown::Write);
        }
    }

    fn take_from_session(&mut self) -> io::Result<()> {
        let mut session = self.session;
        let Some(n) = now_or_later(session.read(&mut self.chunk))? else {
            return Ok(());
        };
        if n == 0 {
            self.session_ended = Some(Instant::now());
            self.tls.send_close_notify();
            return Ok(());
        }
        let skipped = n.min(self.skip);
        self.skip -= skipped;
        self.tls.writer().write_all(&self.chunk[skipped..n])
    }

    fn give_peer(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            let mut peer = self.peer;
            if now_or_later(self.tls.write_tls(&mut peer))?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }
}
