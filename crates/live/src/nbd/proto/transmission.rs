//! The transmission phase: request headers, checked in the order in which clients expect the errors.

use super::reply::Kind;
use super::wire::{REQUEST_MAGIC, Reader, command as c, export};
use super::{
    Close, Command, Connection, Errno, Event, Export, MAX_PAYLOAD, MAX_SKIPPED_PAYLOAD, Request,
    State,
};
use crate::mutants::{LiveMutant, broken};

const REQUEST_BYTES: usize = 28;
/// Largest number of runs in one BLOCK_STATUS reply: 8 KiB of descriptors. A client asks again from their end.
const MAX_RUNS: usize = 1024;

struct Header {
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    len: u32,
}

impl Header {
    /// `None`: wrong magic (or too short, which the caller excludes).
    fn parse(bytes: &[u8]) -> Option<Header> {
        let mut r = Reader(bytes);
        if r.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Header {
            flags: r.u16()?,
            kind: r.u16()?,
            cookie: r.u64()?,
            offset: r.u64()?,
            len: r.u32()?,
        })
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Transmission flags of an export. `structured`: the client negotiated structured replies.
pub(super) fn export_flags(volume: &Export, structured: bool) -> u16 {
    let mut flags = export::HAS_FLAGS
        | export::SEND_FLUSH
        | export::SEND_FUA
        | export::CAN_MULTI_CONN
        | export::SEND_CACHE;
    flags |= if volume.read_only {
        export::READ_ONLY
    } else {
        export::SEND_TRIM | export::SEND_WRITE_ZEROES | export::SEND_FAST_ZERO
    };
    if structured {
        flags |= export::SEND_DF;
    }
    flags
}

impl Connection {
    pub(super) fn request(&mut self, input: &[u8]) -> (usize, Option<Event>) {
        if self.open >= self.limits.requests.max(1) || self.open_bytes >= self.limits.bytes.max(1) {
            return (0, Some(Event::Hold));
        }
        let Some(bytes) = input.get(..REQUEST_BYTES) else {
            // The magic number is checked as soon as it has arrived, so that a stream out of step ends without a wait.
            if input.len() >= 4 && input[..4] != REQUEST_MAGIC.to_be_bytes() {
                return (0, Some(self.violation("wrong request magic")));
            }
            return (0, None);
        };
        let Some(header) = Header::parse(bytes) else {
            return (0, Some(self.violation("wrong request magic")));
        };
        if header.kind == c::DISC {
            return (REQUEST_BYTES, Some(self.close(Close::Disconnect)));
        }
        (REQUEST_BYTES, self.dispatch(&header))
    }

    fn dispatch(&mut self, header: &Header) -> Option<Event> {
        let checked = self.check(header);
        let kind = match header.kind {
            c::READ if self.structured => Kind::StructuredRead,
            c::READ => Kind::SimpleRead,
            // If the context was not negotiated, the client may not know structured replies.
            c::BLOCK_STATUS if self.structured => Kind::BlockStatus,
            _ => Kind::Simple,
        };
        match checked {
            Ok(command) => {
                let counted = match command {
                    Command::Read | Command::Write | Command::Cache => header.len,
                    _ => 0,
                };
                let ticket = self.ticket(header.cookie, kind, header.offset, counted);
                if command == Command::Write && header.len != 0 {
                    self.state = State::Payload { left: header.len };
                }
                let fua = header.has(c::FLAG_FUA);
                Some(Event::Request(Request {
                    command,
                    offset: header.offset,
                    len: header.len,
                    fua,
                    ticket,
                }))
            }
            Err(error) => {
                if header.kind == c::WRITE && header.len > MAX_SKIPPED_PAYLOAD {
                    return Some(
                        self.violation("a WRITE of more than twice the announced maximum"),
                    );
                }
                let ticket = self.ticket(header.cookie, kind, header.offset, 0);
                if header.kind == c::WRITE && header.len != 0 && !broken(LiveMutant::ForgetSkip) {
                    self.state = State::SkipPayload {
                        left: header.len,
                        ticket,
                        error,
                    };
                    return None;
                }
                Some(Event::Refuse(ticket, error))
            }
        }
    }

    /// The meaning of a request, or the reason to refuse it. Malformed requests are found first, then forbidden ones, then ranges.
    fn check(&self, header: &Header) -> Result<Command, Errno> {
        if self.shutting_down {
            return Err(Errno::Shutdown);
        }
        let (allowed, command) = match header.kind {
            c::READ => (if self.structured { c::FLAG_DF } else { 0 }, Command::Read),
            c::WRITE => (0, Command::Write),
            c::FLUSH => (0, Command::Flush),
            c::TRIM => (0, Command::Trim),
            c::CACHE => (0, Command::Cache),
            c::WRITE_ZEROES => {
                let keep = header.has(c::FLAG_NO_HOLE);
                (
                    c::FLAG_NO_HOLE | c::FLAG_FAST_ZERO,
                    Command::WriteZeroes { keep },
                )
            }
            c::BLOCK_STATUS if self.allocation => {
                let max = if header.has(c::FLAG_REQ_ONE) {
                    1
                } else {
                    MAX_RUNS
                };
                (c::FLAG_REQ_ONE, Command::BlockStatus { max })
            }
            _ => return Err(Errno::Inval),
        };
        // FUA is always allowed: the specification requires servers to accept it where it has no effect.
        if header.flags & !(allowed | c::FLAG_FUA) != 0 {
            return Err(Errno::Inval);
        }
        let writes = matches!(
            command,
            Command::Write | Command::Trim | Command::WriteZeroes { .. }
        );
        if writes && self.export.read_only && !broken(LiveMutant::WriteReadOnlyNbd) {
            return Err(Errno::Perm);
        }
        match command {
            Command::Flush if header.offset != 0 || header.len != 0 => return Err(Errno::Inval),
            Command::BlockStatus { .. } if header.len == 0 => return Err(Errno::Inval),
            Command::Read if header.len > MAX_PAYLOAD && header.has(c::FLAG_DF) => {
                return Err(Errno::Overflow);
            }
            Command::Read | Command::Write | Command::Cache if header.len > MAX_PAYLOAD => {
                return Err(Errno::Inval);
            }
            _ => {}
        }
        let inside = header
            .offset
            .checked_add(u64::from(header.len))
            .is_some_and(|end| end <= self.export.bytes);
        if !inside {
            // A request that would need more space gets its own error; all others are invalid arguments.
            let grows = matches!(command, Command::Write | Command::WriteZeroes { .. });
            return Err(if grows { Errno::NoSpc } else { Errno::Inval });
        }
        // Freeing is fast; zeros that must occupy space are written like data.
        if command == (Command::WriteZeroes { keep: true }) && header.has(c::FLAG_FAST_ZERO) {
            return Err(Errno::NotSup);
        }
        Ok(command)
    }

    pub(super) fn skip_payload(&mut self, input: &[u8]) -> (usize, Option<Event>) {
        let State::SkipPayload { left, .. } = &mut self.state else {
            return (0, None);
        };
        let n = input.len().min(*left as usize);
        *left -= n as u32;
        if *left != 0 {
            return (n, None);
        }
        match std::mem::replace(&mut self.state, State::Requests) {
            State::SkipPayload { ticket, error, .. } => (n, Some(Event::Refuse(ticket, error))),
            _ => (n, None),
        }
    }
}
