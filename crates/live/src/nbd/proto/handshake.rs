//! The handshake: options are answered until one starts the transmission.

use super::reply::ALLOCATION_ID;
use super::transmission::export_flags;
use super::wire::{
    FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, IHAVEOPT, NBDMAGIC, OPTION_REPLY_MAGIC, Reader, info,
    option, reply,
};
use super::{
    Close, Connection, Event, GREETING_BYTES, MAX_OPTION, MAX_OPTIONS, MAX_PAYLOAD,
    MAX_SKIPPED_OPTION, MAX_STRING, State,
};

/// Unaligned requests are served (read-modify-write under the engine), so that no client needs to round.
const MIN_BLOCK: u32 = 1;
/// Smaller requests cost as much as those of this size.
const PREFERRED_BLOCK: u32 = 4096;
const ALLOCATION: &[u8] = b"base:allocation";

pub(in crate::nbd) fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..8].copy_from_slice(&NBDMAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&IHAVEOPT.to_be_bytes());
    bytes[16..].copy_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

/// Replies to one option.
struct Answer {
    option: u32,
    bytes: Vec<u8>,
}

impl Answer {
    fn new(option: u32) -> Answer {
        Answer {
            option,
            bytes: Vec::with_capacity(64),
        }
    }

    fn add(&mut self, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        self.bytes
            .extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        self.bytes.extend_from_slice(&self.option.to_be_bytes());
        self.bytes.extend_from_slice(&kind.to_be_bytes());
        self.bytes.extend_from_slice(&(len as u32).to_be_bytes());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
    }

    fn done(mut self) -> Event {
        self.add(reply::ACK, &[]);
        Event::Send(self.bytes)
    }

    fn error(mut self, kind: u32, message: &str) -> Event {
        self.add(kind, &[message.as_bytes()]);
        Event::Send(self.bytes)
    }
}

/// Strings are UTF-8 without NUL, and short.
fn valid(string: &[u8]) -> bool {
    string.len() <= MAX_STRING && !string.contains(&0) && std::str::from_utf8(string).is_ok()
}

impl Connection {
    pub(super) fn client_flags(&mut self, input: &[u8]) -> (usize, Option<Event>) {
        let Some(flags) = Reader(input).u32() else {
            return (0, None);
        };
        if flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
            return (4, Some(self.violation("unknown client flags")));
        }
        self.fixed = flags & u32::from(FLAG_FIXED_NEWSTYLE) != 0;
        self.no_zeroes = flags & u32::from(FLAG_NO_ZEROES) != 0;
        self.state = State::Options;
        (4, None)
    }

    pub(super) fn option(&mut self, input: &[u8]) -> (usize, Option<Event>) {
        let mut reader = Reader(input);
        let Some(magic) = reader.u64() else {
            return (0, None);
        };
        if magic != IHAVEOPT {
            return (0, Some(self.violation("wrong option magic")));
        }
        let (Some(option), Some(len)) = (reader.u32(), reader.u32()) else {
            return (0, None);
        };
        if option == option::EXPORT_NAME && len as usize > MAX_STRING {
            // This option has no error reply.
            return (0, Some(self.violation("export name too long")));
        }
        if len > MAX_SKIPPED_OPTION {
            return (0, Some(self.violation("option data too long")));
        }
        if len > MAX_OPTION {
            self.state = State::SkipOption { option, left: len };
            return (16, None);
        }
        let Some(data) = reader.take(len as usize) else {
            return (0, None);
        };
        self.options_seen += 1;
        let event = if self.options_seen > MAX_OPTIONS {
            self.violation("too many options")
        } else if !self.fixed && option != option::EXPORT_NAME {
            self.violation("an option other than EXPORT_NAME without the fixed handshake")
        } else {
            self.answer(option, data)
        };
        (16 + data.len(), Some(event))
    }

    pub(super) fn skip_option(
        &mut self,
        option: u32,
        left: u32,
        input: &[u8],
    ) -> (usize, Option<Event>) {
        let n = input.len().min(left as usize);
        let left = left - n as u32;
        if left != 0 {
            self.state = State::SkipOption { option, left };
            return (n, None);
        }
        self.state = State::Options;
        self.options_seen += 1;
        if self.options_seen > MAX_OPTIONS {
            return (n, Some(self.violation("too many options")));
        }
        (
            n,
            Some(Answer::new(option).error(reply::ERR_TOO_BIG, "option data too long")),
        )
    }

    fn answer(&mut self, option: u32, data: &[u8]) -> Event {
        match option {
            option::EXPORT_NAME => self.export_name(data),
            option::ABORT => {
                self.state = State::Closed(Close::Abort);
                Answer::new(option).done()
            }
            option::LIST => self.list(data),
            option::INFO | option::GO => self.info(option, data),
            option::STRUCTURED_REPLY => {
                if !data.is_empty() {
                    return Answer::new(option)
                        .error(reply::ERR_INVALID, "this option takes no data");
                }
                self.structured = true;
                Answer::new(option).done()
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(option, data),
            option::STARTTLS => {
                Answer::new(option).error(reply::ERR_UNSUP, "TLS is not configured")
            }
            _ => Answer::new(option).error(reply::ERR_UNSUP, "unknown option"),
        }
    }

    fn knows(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.name.as_bytes()
    }

    fn export_name(&mut self, name: &[u8]) -> Event {
        if !self.knows(name) {
            // This old option has no other way to refuse.
            return self.violation("unknown export name");
        }
        let mut bytes = self.export.bytes.to_be_bytes().to_vec();
        bytes.extend_from_slice(&export_flags(&self.export, self.structured).to_be_bytes());
        if !self.no_zeroes {
            bytes.extend_from_slice(&[0; 124]);
        }
        self.state = State::Requests;
        Event::Send(bytes)
    }

    fn list(&mut self, data: &[u8]) -> Event {
        let mut answer = Answer::new(option::LIST);
        if !data.is_empty() {
            return answer.error(reply::ERR_INVALID, "this option takes no data");
        }
        let name = self.export.name.as_bytes();
        let length = (name.len() as u32).to_be_bytes();
        answer.add(
            reply::SERVER,
            &[&length, name, self.export.description.as_bytes()],
        );
        answer.done()
    }

    fn info(&mut self, option: u32, data: &[u8]) -> Event {
        let mut answer = Answer::new(option);
        let Some((name, wanted)) = parse_info(data) else {
            return answer.error(reply::ERR_INVALID, "malformed option data");
        };
        if !self.knows(name) {
            return answer.error(
                reply::ERR_UNKNOWN,
                "no such export; the volume's name or the empty name is served",
            );
        }
        let flags = export_flags(&self.export, self.structured);
        answer.add(
            reply::INFO,
            &[
                &info::EXPORT.to_be_bytes(),
                &self.export.bytes.to_be_bytes(),
                &flags.to_be_bytes(),
            ],
        );
        let wants = |what: u16| wanted.chunks_exact(2).any(|w| w == what.to_be_bytes());
        if wants(info::NAME) {
            answer.add(
                reply::INFO,
                &[&info::NAME.to_be_bytes(), self.export.name.as_bytes()],
            );
        }
        if wants(info::DESCRIPTION) && !self.export.description.is_empty() {
            answer.add(
                reply::INFO,
                &[
                    &info::DESCRIPTION.to_be_bytes(),
                    self.export.description.as_bytes(),
                ],
            );
        }
        // It is sent with or without a request: it costs a few bytes and lets every client choose well.
        answer.add(
            reply::INFO,
            &[
                &info::BLOCK_SIZE.to_be_bytes(),
                &MIN_BLOCK.to_be_bytes(),
                &PREFERRED_BLOCK.to_be_bytes(),
                &MAX_PAYLOAD.to_be_bytes(),
            ],
        );
        if option == option::GO {
            self.state = State::Requests;
        }
        answer.done()
    }

    fn meta_context(&mut self, option: u32, data: &[u8]) -> Event {
        let mut answer = Answer::new(option);
        let set = option == option::SET_META_CONTEXT;
        if set {
            // An earlier choice is void, whatever the result is.
            self.allocation = false;
        }
        if !self.structured {
            return answer.error(reply::ERR_INVALID, "negotiate structured replies first");
        }
        let Some((name, queries)) = parse_queries(data) else {
            return answer.error(reply::ERR_INVALID, "malformed option data");
        };
        if !self.knows(name) {
            return answer.error(reply::ERR_UNKNOWN, "no such export");
        }
        let matches = |query: &[u8]| query == ALLOCATION || (!set && query == b"base:");
        if queries.iter().any(|q| matches(q)) || (!set && queries.is_empty()) {
            let id = if set { ALLOCATION_ID } else { 0 };
            answer.add(reply::META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION]);
            self.allocation |= set;
        }
        answer.done()
    }
}

/// Name and requested information types (2 bytes each).
fn parse_info(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = Reader(data);
    let name = reader.string()?;
    let count = reader.u16()?;
    let wanted = reader.take(2 * usize::from(count))?;
    (reader.0.is_empty() && valid(name)).then_some((name, wanted))
}

/// Name and queries.
fn parse_queries(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut reader = Reader(data);
    let name = reader.string()?;
    let count = reader.u32()?;
    // Each query has at least its length field, so a false count exceeds the data before it costs memory.
    let mut queries = Vec::new();
    for _ in 0..count {
        let query = reader.string()?;
        if !valid(query) {
            return None;
        }
        queries.push(query);
    }
    (reader.0.is_empty() && valid(name)).then_some((name, queries))
}
