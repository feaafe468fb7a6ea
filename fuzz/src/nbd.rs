//! A peer that sends anything: the NBD handshake and requests, in pieces of any size.

use isotherm_live::nbd::proto::{
    Command, Connection, Event, Export, Limits, MAX_PAYLOAD, MAX_UNIT, Ticket,
};
use std::sync::Arc;

const BYTES: u64 = 64 << 20;

/// What a valid peer sends: client flags, GO for the default export, then one request of every command and a goodbye.
pub fn valid_session() -> Vec<u8> {
    let mut b = 3u32.to_be_bytes().to_vec();
    let mut option = |number: u32, data: &[u8]| {
        b.extend_from_slice(b"IHAVEOPT");
        b.extend_from_slice(&number.to_be_bytes());
        b.extend_from_slice(&(data.len() as u32).to_be_bytes());
        b.extend_from_slice(data);
    };
    option(3, b"");
    option(8, b"");
    let mut context = vec![0; 4];
    context.extend_from_slice(&1u32.to_be_bytes());
    context.extend_from_slice(&15u32.to_be_bytes());
    context.extend_from_slice(b"base:allocation");
    option(10, &context);
    option(7, &[0; 6]);
    for command in [0u16, 1, 3, 4, 5, 6, 7, 2] {
        let len = if command == 3 { 0u32 } else { 64 };
        b.extend_from_slice(&0x2560_9513u32.to_be_bytes());
        b.extend_from_slice(&0u16.to_be_bytes());
        b.extend_from_slice(&command.to_be_bytes());
        b.extend_from_slice(&7u64.to_be_bytes());
        let offset = if command == 3 { 0u64 } else { 4096 };
        b.extend_from_slice(&offset.to_be_bytes());
        b.extend_from_slice(&len.to_be_bytes());
        if command == 1 {
            b.extend_from_slice(&[9; 64]);
        }
    }
    b
}

fn answer(connection: &mut Connection, ticket: &Ticket, command: Command, len: u32) {
    if let Command::BlockStatus { max } = command {
        let runs = [(len / 2, true), (len - len / 2, false)];
        let _ = ticket.block_status(len, &runs[..max.min(2)]);
    } else {
        let _ = ticket.success();
    }
    connection.release(1, u64::from(ticket.payload_bytes()));
}

/// Play the server to `data`: the first byte says how large the pieces are and whether the volume is read-only. How many
/// requests were understood.
pub fn session(data: &[u8]) -> usize {
    let [how, stream @ ..] = data else {
        return 0;
    };
    let export = Export {
        name: "vol".into(),
        description: "a volume".into(),
        bytes: BYTES,
        read_only: how & 0x80 != 0,
    };
    let limits = Limits {
        requests: 4,
        bytes: 1 << 20,
    };
    let (mut connection, _greeting) = Connection::new(Arc::new(export), limits);
    let (mut pending, mut writing, mut requests) = (Vec::new(), None::<Ticket>, 0);
    for piece in stream.chunks(usize::from(how & 0x7f) + 1) {
        pending.extend_from_slice(piece);
        loop {
            let (used, event) = connection.receive(&pending);
            pending.drain(..used);
            assert!(connection.open() <= limits.requests);
            match event {
                None if used == 0 => {
                    assert!(
                        pending.len() < MAX_UNIT,
                        "does not understand {} bytes",
                        pending.len()
                    );
                    break;
                }
                None | Some(Event::Send(_)) => {}
                Some(Event::Request(r)) => {
                    requests += 1;
                    assert!(r.offset + u64::from(r.len) <= BYTES, "{r:?}");
                    let bulky = matches!(r.command, Command::Read | Command::Write);
                    assert!(!bulky || r.len <= MAX_PAYLOAD, "{r:?}");
                    if r.command == Command::Write && r.len != 0 {
                        assert!(writing.replace(r.ticket).is_none());
                    } else {
                        answer(&mut connection, &r.ticket, r.command, r.len);
                    }
                }
                Some(Event::Payload { left }) => {
                    let n = pending.len().min(left as usize);
                    if n == 0 {
                        break;
                    }
                    pending.drain(..n);
                    if connection.payload_received(n as u32) {
                        let ticket = writing.take().expect("a WRITE was announced");
                        answer(&mut connection, &ticket, Command::Write, 0);
                    }
                }
                Some(Event::Refuse(ticket, error)) => {
                    let _ = ticket.failure(error);
                    connection.release(1, u64::from(ticket.payload_bytes()));
                }
                Some(Event::Hold) => panic!("nothing is open, and yet it holds"),
                Some(Event::Close(_)) => return requests,
            }
        }
    }
    requests
}
