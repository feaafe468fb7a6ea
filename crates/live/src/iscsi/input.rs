//! The bytes received from one initiator, with limits on the time that they may take.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::pdu::{HEADER, Header};

/// Number of bytes that are received at once.
const CHUNK: usize = 64 << 10;
/// The kernel takes a timeout of 0 for none.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
/// Data of at least this size is received directly into its buffer.
const IN_PLACE: usize = 16 << 10;

pub(super) struct Input {
    socket: TcpStream,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// All requested data must arrive by this time.
    pub until: Option<Instant>,
    /// How long the peer may send nothing within a PDU; before the login, there is only `until`.
    pause: Option<Duration>,
}

impl Input {
    /// The bytes of a peer that must have logged in by this time.
    pub(super) fn new(socket: TcpStream, until: Instant) -> Input {
        Input {
            socket,
            bytes: vec![0; CHUNK].into_boxed_slice(),
            start: 0,
            end: 0,
            until: Some(until),
            pause: None,
        }
    }

    /// The peer has logged in: from now on it may be idle between PDUs, and send nothing for `pause` within one.
    pub(super) fn log_in(&mut self, pause: Duration) -> io::Result<()> {
        (self.until, self.pause) = (None, Some(pause));
        self.socket
            .set_read_timeout(Some(pause.max(SHORTEST_TIMEOUT)))
    }

    fn receive(&self, until: Option<Instant>, to: &mut [u8]) -> io::Result<usize> {
        loop {
            if until.is_some_and(|u| Instant::now() >= u) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if let (None, Some(until)) = (self.pause, until) {
                let left = until.saturating_duration_since(Instant::now());
                self.socket
                    .set_read_timeout(Some(left.max(SHORTEST_TIMEOUT)))?;
            }
            match (&self.socket).read(to) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Receives more bytes behind those that are there.
    fn receive_more(&mut self, until: Option<Instant>) -> io::Result<usize> {
        let mut bytes = std::mem::take(&mut self.bytes);
        let received = self.receive(until, &mut bytes[self.end..]);
        self.bytes = bytes;
        received
    }

    /// The next header; `None` at the end of the stream. With `idle` there is no limit on the time until a header begins.
    pub(super) fn header(&mut self, idle: bool) -> io::Result<Option<Header>> {
        while self.end - self.start < HEADER {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let may_wait = idle && self.end == 0;
            let until = if may_wait { None } else { self.until };
            match self.receive_more(until) {
                Ok(0) if self.end == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    self.end += n;
                    if may_wait {
                        // The header has begun, and the rest must follow.
                        self.until = self.pause.map(|p| Instant::now() + p);
                    }
                }
                Err(e) if may_wait && e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(stalled(e)),
            }
        }
        let mut b = [0; HEADER];
        b.copy_from_slice(&self.bytes[self.start..self.start + HEADER]);
        self.start += HEADER;
        Ok(Some(b))
    }

    /// Fills `to` with received bytes.
    pub(super) fn fill(&mut self, to: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < to.len() {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
                let rest = &mut to[done..];
                if rest.len() >= IN_PLACE {
                    match self.receive(self.until, rest).map_err(stalled)? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        n => done += n,
                    }
                    continue;
                }
                match self.receive_more(self.until).map_err(stalled)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    n => self.end = n,
                }
            }
            let n = (to.len() - done).min(self.end - self.start);
            to[done..done + n].copy_from_slice(&self.bytes[self.start..self.start + n]);
            self.start += n;
            done += n;
        }
        Ok(())
    }

    /// Discards some bytes.
    pub(super) fn skip(&mut self, mut bytes: usize) -> io::Result<()> {
        let mut nothing = [0; 4096];
        while bytes > 0 {
            let n = bytes.min(nothing.len());
            self.fill(&mut nothing[..n])?;
            bytes -= n;
        }
        Ok(())
    }
}

fn stalled(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::WouldBlock {
        io::ErrorKind::TimedOut.into()
    } else {
        e
    }
}
