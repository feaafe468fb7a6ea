//! The protocol with scripted and truncated peers; `fuzz.rs` has the others.

use std::sync::Arc;

use super::wire::{
    IHAVEOPT, OPTION_REPLY_MAGIC, REQUEST_MAGIC, Reader, command as c, export, info, option, reply,
};
use super::*;

pub(super) const BYTES: u64 = 64 << 20;

pub(super) fn volume(read_only: bool) -> Arc<Export> {
    Arc::new(Export {
        name: "vol".into(),
        description: "a volume".into(),
        bytes: BYTES,
        read_only,
    })
}

/// Simulates the server: executes nothing, answers success, and checks properties that hold for every peer.
pub(super) struct Harness {
    connection: Connection,
    limits: Limits,
    pending: Vec<u8>,
    sent: Vec<u8>,
    seen: Vec<(Command, u64, u32, bool)>,
    payloads: Vec<u8>,
    writing: Option<Ticket>,
    refused: Vec<Errno>,
    closed: Option<Close>,
}

impl Harness {
    pub(super) fn new(export: Arc<Export>) -> Harness {
        let limits = Limits {
            requests: 4,
            bytes: 1 << 20,
        };
        let (connection, _) = Connection::new(export, limits);
        Harness {
            connection,
            limits,
            pending: Vec::new(),
            sent: Vec::new(),
            seen: Vec::new(),
            payloads: Vec::new(),
            writing: None,
            refused: Vec::new(),
            closed: None,
        }
    }

    fn succeed(&mut self, ticket: &Ticket, command: Command, len: u32) {
        if let Command::BlockStatus { max } = command {
            let half = len / 2;
            let runs = [(half, true), (len - half, false), (9, true)];
            let bytes = ticket.block_status(len, &runs[..max.min(3)]);
            self.sent.extend_from_slice(&bytes);
        } else {
            self.sent.extend_from_slice(&ticket.success());
        }
        if command == Command::Read {
            // Enough to verify its place without the 32 MiB of a fuzzer in memory.
            self.sent
                .extend_from_slice(&vec![0xdd; len.min(16) as usize]);
        }
        self.connection
            .release(1, u64::from(ticket.payload_bytes()));
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while self.closed.is_none() {
            let (used, event) = self.connection.receive(&self.pending);
            assert!(used <= self.pending.len());
            self.pending.drain(..used);
            assert!(self.connection.open() <= self.limits.requests);
            match event {
                None if used == 0 => {
                    assert!(
                        self.pending.len() < MAX_UNIT,
                        "does not understand {} bytes",
                        self.pending.len()
                    );
                    return;
                }
                None => {}
                Some(Event::Send(bytes)) => self.sent.extend_from_slice(&bytes),
                Some(Event::Request(r)) => {
                    assert!(r.offset + u64::from(r.len) <= BYTES, "{r:?}");
                    assert!(
                        !matches!(r.command, Command::Read | Command::Write)
                            || r.len <= MAX_PAYLOAD,
                        "{r:?}"
                    );
                    self.seen.push((r.command, r.offset, r.len, r.fua));
                    if r.command == Command::Write && r.len != 0 {
                        assert!(self.writing.replace(r.ticket).is_none());
                    } else {
                        self.succeed(&r.ticket, r.command, r.len);
                    }
                }
                Some(Event::Payload { left }) => {
                    assert_ne!(left, 0);
                    let n = self.pending.len().min(left as usize);
                    if n == 0 {
                        return;
                    }
                    self.payloads.extend(self.pending.drain(..n));
                    if self.connection.payload_received(n as u32) {
                        let ticket = self.writing.take().expect("a WRITE was announced");
                        self.succeed(&ticket, Command::Write, 0);
                    }
                }
                Some(Event::Refuse(ticket, error)) => {
                    self.refused.push(error);
                    self.sent.extend_from_slice(&ticket.failure(error));
                    self.connection
                        .release(1, u64::from(ticket.payload_bytes()));
                }
                Some(Event::Hold) => panic!("nothing is open, and yet it holds"),
                Some(Event::Close(why)) => self.closed = Some(why),
            }
        }
    }
}

pub(super) fn flags(bits: u32) -> Vec<u8> {
    bits.to_be_bytes().to_vec()
}

pub(super) fn opt(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn string(text: &[u8]) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(text);
    bytes
}

fn info_data(name: &[u8], wanted: &[u16]) -> Vec<u8> {
    let mut bytes = string(name);
    bytes.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
    for w in wanted {
        bytes.extend_from_slice(&w.to_be_bytes());
    }
    bytes
}

fn queries(name: &[u8], list: &[&[u8]]) -> Vec<u8> {
    let mut bytes = string(name);
    bytes.extend_from_slice(&(list.len() as u32).to_be_bytes());
    for q in list {
        bytes.extend_from_slice(&string(q));
    }
    bytes
}

pub(super) fn req(flags: u16, kind: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes
}

fn write(cookie: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    [
        req(0, c::WRITE, cookie, offset, payload.len() as u32),
        payload.to_vec(),
    ]
    .concat()
}

/// Option replies: (option, kind, data).
fn replies(mut bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let mut reader = Reader(bytes);
        assert_eq!(reader.u64(), Some(OPTION_REPLY_MAGIC));
        let (option, kind) = (reader.u32().unwrap(), reader.u32().unwrap());
        all.push((option, kind, reader.string().unwrap().to_vec()));
        bytes = reader.0;
    }
    all
}

/// The bytes of a client that uses every option and every command, some of them wrong.
pub(super) fn session() -> Vec<u8> {
    [
        flags(3),
        opt(77, b"what"),
        opt(option::STARTTLS, b""),
        opt(option::STRUCTURED_REPLY, b""),
        opt(option::LIST, b""),
        opt(option::LIST_META_CONTEXT, &queries(b"vol", &[])),
        opt(
            option::SET_META_CONTEXT,
            &queries(b"", &[b"x:y", b"base:allocation"]),
        ),
        opt(option::INFO, &info_data(b"nope", &[])),
        opt(
            option::INFO,
            &info_data(b"vol", &[info::NAME, info::DESCRIPTION, info::BLOCK_SIZE]),
        ),
        opt(option::GO, &info_data(b"vol", &[])),
        req(c::FLAG_DF, c::READ, 1, 4096, 512),
        write(2, 1000, b"some payload"),
        req(0, c::WRITE, 3, BYTES - 4, 8),
        b"too far!".to_vec(),
        req(c::FLAG_FUA, c::FLUSH, 4, 0, 0),
        req(c::FLAG_FUA, c::TRIM, 5, 0, 65536),
        req(c::FLAG_NO_HOLE, c::WRITE_ZEROES, 6, 512, 1024),
        req(
            c::FLAG_NO_HOLE | c::FLAG_FAST_ZERO,
            c::WRITE_ZEROES,
            7,
            512,
            1024,
        ),
        req(0, c::BLOCK_STATUS, 8, 0, 1 << 20),
        req(c::FLAG_REQ_ONE, c::BLOCK_STATUS, 9, 0, 1 << 20),
        req(0, c::CACHE, 10, 0, 1 << 20),
        req(0, 99, 11, 0, 0),
        req(0, c::DISC, 12, 0, 0),
    ]
    .concat()
}

pub(super) fn go(structured: bool) -> Vec<u8> {
    let mut bytes = flags(3);
    if structured {
        bytes.extend(opt(option::STRUCTURED_REPLY, b""));
        bytes.extend(opt(
            option::SET_META_CONTEXT,
            &queries(b"", &[b"base:allocation"]),
        ));
    }
    bytes.extend(opt(option::GO, &info_data(b"", &[])));
    bytes
}

fn in_transmission(read_only: bool, structured: bool) -> Harness {
    let mut harness = Harness::new(volume(read_only));
    harness.feed(&go(structured));
    assert!(harness.connection.in_transmission());
    harness.sent.clear();
    harness
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn options_are_answered() {
    let long = vec![b'n'; 9000];
    let set = option::SET_META_CONTEXT;
    let list = option::LIST_META_CONTEXT;
    let meta = reply::META_CONTEXT;
    let cases: Vec<(u32, Vec<u8>, Vec<u32>)> = vec![
        (77, b"data".to_vec(), vec![reply::ERR_UNSUP]),
        (option::STARTTLS, vec![], vec![reply::ERR_UNSUP]),
        (option::LIST, vec![], vec![reply::SERVER, reply::ACK]),
        (option::LIST, b"x".to_vec(), vec![reply::ERR_INVALID]),
        (option::LIST, long.clone(), vec![reply::ERR_TOO_BIG]),
        (
            set,
            queries(b"", &[b"base:allocation"]),
            vec![reply::ERR_INVALID],
        ), // before structured replies
        (
            option::STRUCTURED_REPLY,
            b"x".to_vec(),
            vec![reply::ERR_INVALID],
        ),
        (option::STRUCTURED_REPLY, vec![], vec![reply::ACK]),
        (
            set,
            queries(b"", &[b"base:allocation"]),
            vec![meta, reply::ACK],
        ),
        (set, queries(b"", &[b"base:"]), vec![reply::ACK]),
        (set, queries(b"", &[]), vec![reply::ACK]),
        (
            set,
            queries(b"other", &[b"base:allocation"]),
            vec![reply::ERR_UNKNOWN],
        ),
        (
            set,
            queries(b"", &[b"base:allocation", b"\xff"]),
            vec![reply::ERR_INVALID],
        ),
        (list, queries(b"vol", &[]), vec![meta, reply::ACK]),
        (list, queries(b"vol", &[b"base:"]), vec![meta, reply::ACK]),
        (list, queries(b"vol", &[b"qemu:"]), vec![reply::ACK]),
        (
            list,
            [string(b"vol"), vec![0xff; 4]].concat(),
            vec![reply::ERR_INVALID],
        ),
        (
            option::INFO,
            info_data(b"other", &[]),
            vec![reply::ERR_UNKNOWN],
        ),
        (
            option::INFO,
            info_data(b"v\0l", &[]),
            vec![reply::ERR_INVALID],
        ),
        (
            option::INFO,
            info_data(&long[..5000], &[]),
            vec![reply::ERR_INVALID],
        ),
        (
            option::INFO,
            [info_data(b"", &[]), vec![0]].concat(),
            vec![reply::ERR_INVALID],
        ),
        (option::INFO, vec![0, 0], vec![reply::ERR_INVALID]),
        (
            option::INFO,
            info_data(b"", &[]),
            vec![reply::INFO, reply::INFO, reply::ACK],
        ),
        (
            option::GO,
            info_data(b"vol", &[1, 2, 3, 9]),
            vec![reply::INFO; 4]
                .into_iter()
                .chain([reply::ACK])
                .collect(),
        ),
    ];
    let mut harness = Harness::new(volume(false));
    harness.feed(&flags(3));
    for (option, data, expected) in cases {
        harness.sent.clear();
        harness.feed(&opt(option, &data));
        let got = replies(&harness.sent);
        assert_eq!(
            got.iter().map(|r| r.1).collect::<Vec<_>>(),
            expected,
            "option {option}, {} bytes",
            data.len()
        );
        assert!(got.iter().all(|r| r.0 == option));
    }
    assert!(harness.connection.in_transmission());
}

#[test]
fn go_tells_size_flags_and_block_sizes() {
    for read_only in [false, true] {
        let mut harness = Harness::new(volume(read_only));
        harness.feed(&go(false));
        let got = replies(&harness.sent);
        let mut reader = Reader(&got[0].2);
        assert_eq!(
            (reader.u16(), reader.u64()),
            (Some(info::EXPORT), Some(BYTES))
        );
        let bits = reader.u16().unwrap();
        let writing = export::SEND_TRIM | export::SEND_WRITE_ZEROES | export::SEND_FAST_ZERO;
        let always = export::HAS_FLAGS
            | export::SEND_FLUSH
            | export::SEND_FUA
            | export::CAN_MULTI_CONN
            | export::SEND_CACHE;
        assert_eq!(
            bits,
            always
                | if read_only {
                    export::READ_ONLY
                } else {
                    writing
                }
        );
        let mut reader = Reader(&got[1].2);
        assert_eq!(reader.u16(), Some(info::BLOCK_SIZE));
        assert_eq!(
            [reader.u32(), reader.u32(), reader.u32()],
            [Some(1), Some(4096), Some(32 << 20)]
        );
    }
}

#[test]
fn the_old_option_pads_unless_told_not_to() {
    for (client, len) in [(1, 134), (3, 10), (0, 134), (2, 10)] {
        let mut harness = Harness::new(volume(false));
        harness.feed(&[flags(client), opt(option::EXPORT_NAME, b"vol")].concat());
        assert_eq!(harness.sent.len(), len, "client flags {client}");
        assert!(harness.connection.in_transmission());
    }
}

#[path = "tests/transmission.rs"]
mod transmission;
