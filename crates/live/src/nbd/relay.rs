//! Relays between a TLS connection and the session that serves it, on one thread. Bytes are decrypted in one direction and encrypted in the
//! other.
//!
//! No data accumulates here: the peer is read only when the session has taken all earlier bytes, and the session only when the peer has. So
//! the session notices a peer that stalls as on any socket, and its time limits apply.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ServerConnection;

use super::proto::GREETING_BYTES;

/// Number of bytes in one read, in either direction.
const CHUNK: usize = 256 << 10;
/// Time limit for the last bytes after the session has ended.
const LAST: Duration = Duration::from_secs(3);

struct Relay<'a> {
    tls: ServerConnection,
    peer: &'a TcpStream,
    session: &'a UnixStream,
    /// Decrypted bytes that the session has not taken yet.
    up: Vec<u8>,
    taken: usize,
    /// Number of bytes of the session's greeting that are still to come; the peer has received the greeting before.
    skip: usize,
    /// Whether the peer sends no more.
    peer_ended: bool,
    /// The time since which the session sends no more.
    session_ended: Option<Instant>,
    chunk: Box<[u8]>,
}

/// Runs until both have ended or one has failed.
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
    // Both sides notice the end in any case, so no error needs to be reported.
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
        // The amount that is passed at once is limited by the chunk.
        self.tls.set_buffer_limit(None);
        // The first bytes may have arrived with the handshake.
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

    /// Waits for events. A closed side is not watched, because it would report its end repeatedly.
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

    /// Takes the bytes that TLS has decrypted so far.
    fn decrypted(&mut self) -> io::Result<()> {
        let state = match self.tls.process_new_packets() {
            Ok(state) => state,
            Err(e) => {
                // The alert tells the peer the reason, if it can still be sent.
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
                // The session accepts no more bytes; its last replies must still be sent.
                Err(_) => {
                    self.peer_ended = true;
                    self.taken = self.up.len();
                }
            }
        }
        self.up.clear();
        self.taken = 0;
        if self.peer_ended {
            // The session gets this once and may have ended before.
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
