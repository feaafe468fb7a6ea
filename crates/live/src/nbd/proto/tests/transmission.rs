//! The transmission phase, which begins when an export is chosen, and peers that violate the protocol.

use super::*;

#[test]
fn violations_end_the_connection() {
    let request = |bytes: Vec<u8>| [go(false), bytes].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("unknown client flags", flags(7)),
        ("wrong option magic", [flags(3), vec![0; 16]].concat()),
        (
            "unknown export name",
            [flags(3), opt(option::EXPORT_NAME, b"other")].concat(),
        ),
        (
            "export name too long",
            [flags(3), opt(option::EXPORT_NAME, &[b'x'; 4097])].concat(),
        ),
        (
            "option data too long",
            [flags(3), opt(option::INFO, &vec![0; (1 << 20) + 1])].concat(),
        ),
        (
            "an option other than EXPORT_NAME without the fixed handshake",
            [flags(0), opt(option::LIST, b"")].concat(),
        ),
        (
            "too many options",
            [flags(3), opt(option::LIST, b"").repeat(257)].concat(),
        ),
        ("wrong request magic", request(vec![1, 2, 3, 4])),
        (
            "a WRITE of more than twice the announced maximum",
            request(req(0, c::WRITE, 1, 0, (64 << 20) + 1)),
        ),
    ];
    for (what, bytes) in cases {
        let mut harness = Harness::new(volume(false));
        harness.feed(&bytes);
        assert_eq!(harness.closed, Some(Close::Violation(what)));
    }
    let mut harness = Harness::new(volume(false));
    harness.feed(&[flags(3), opt(option::ABORT, b"")].concat());
    assert_eq!(
        replies(&harness.sent),
        [(option::ABORT, reply::ACK, vec![])]
    );
    assert_eq!(harness.closed, Some(Close::Abort));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn wrong_requests_get_their_error_and_leave_the_stream_in_step() {
    use Errno::{Inval, NoSpc, NotSup, Overflow, Perm};
    let big = MAX_PAYLOAD + 1;
    // read-only, structured, request, error (None: accepted)
    let cases = [
        (false, true, (0, c::READ, 0, 512), None),
        (
            false,
            true,
            (c::FLAG_DF | c::FLAG_FUA, c::READ, 0, MAX_PAYLOAD),
            None,
        ),
        (false, true, (c::FLAG_DF, c::READ, 0, big), Some(Overflow)),
        (false, true, (0, c::READ, 0, big), Some(Inval)),
        (false, false, (c::FLAG_DF, c::READ, 0, 512), Some(Inval)),
        (false, true, (c::FLAG_NO_HOLE, c::READ, 0, 512), Some(Inval)),
        (false, true, (0, c::READ, BYTES, 0), None),
        (false, true, (0, c::READ, BYTES, 1), Some(Inval)),
        (false, true, (0, c::READ, u64::MAX, 512), Some(Inval)),
        (false, true, (0, c::WRITE, BYTES - 1, 2), Some(NoSpc)),
        (false, true, (0, c::WRITE, u64::MAX - 1, 2), Some(NoSpc)),
        (false, true, (0, c::WRITE, 0, big), Some(Inval)),
        (false, true, (c::FLAG_DF, c::WRITE, 0, 2), Some(Inval)),
        (false, true, (c::FLAG_FUA, c::WRITE, 0, 2), None),
        (false, true, (0, c::WRITE, 0, 0), None),
        (true, true, (0, c::WRITE, 0, 3), Some(Perm)),
        (true, true, (0, c::TRIM, 0, 3), Some(Perm)),
        (true, true, (0, c::WRITE_ZEROES, 0, 3), Some(Perm)),
        (true, true, (0, c::FLUSH, 0, 0), None),
        (false, true, (0, c::FLUSH, 0, 1), Some(Inval)),
        (false, true, (0, c::FLUSH, 1, 0), Some(Inval)),
        (false, true, (0, c::TRIM, 0, BYTES as u32), None),
        (false, true, (0, c::TRIM, 1, BYTES as u32), Some(Inval)),
        (false, true, (c::FLAG_NO_HOLE, c::TRIM, 0, 1), Some(Inval)),
        (
            false,
            true,
            (0, c::WRITE_ZEROES, 1, BYTES as u32),
            Some(NoSpc),
        ),
        (
            false,
            true,
            (c::FLAG_FAST_ZERO, c::WRITE_ZEROES, 0, 4096),
            None,
        ),
        (
            false,
            true,
            (
                c::FLAG_FAST_ZERO | c::FLAG_NO_HOLE,
                c::WRITE_ZEROES,
                0,
                4096,
            ),
            Some(NotSup),
        ),
        (false, true, (0, c::CACHE, 0, MAX_PAYLOAD), None),
        (false, true, (0, c::CACHE, 0, big), Some(Inval)),
        (false, true, (0, c::BLOCK_STATUS, 0, 0), Some(Inval)),
        (
            false,
            true,
            (c::FLAG_REQ_ONE, c::BLOCK_STATUS, 0, 512),
            None,
        ),
        (false, true, (0, c::BLOCK_STATUS, BYTES, 1), Some(Inval)),
        (false, false, (0, c::BLOCK_STATUS, 0, 512), Some(Inval)),
        (false, true, (1 << 15, c::FLUSH, 0, 0), Some(Inval)),
        (false, true, (0, 4711, 0, 0), Some(Inval)),
    ];
    for (read_only, structured, (bits, kind, offset, len), expected) in cases {
        let what = format!("kind {kind} flags {bits} offset {offset} len {len}");
        let mut harness = in_transmission(read_only, structured);
        harness.feed(&req(bits, kind, 7, offset, len));
        if kind == c::WRITE {
            for chunk in vec![0xaa; len as usize].chunks(1 << 20) {
                harness.feed(chunk);
            }
        }
        assert_eq!(
            harness.refused,
            expected.into_iter().collect::<Vec<_>>(),
            "{what}"
        );
        assert_eq!(
            harness.seen.len(),
            usize::from(expected.is_none()),
            "{what}"
        );
        harness.feed(&req(0, c::FLUSH, 8, 0, 0));
        assert_eq!(
            harness.seen.last(),
            Some(&(Command::Flush, 0, 0, false)),
            "{what}"
        );
        assert_eq!(harness.connection.open(), 0);
    }
}

#[test]
fn replies_have_the_layout_of_the_specification() {
    let mut harness = in_transmission(false, true);
    harness.feed(&req(0, c::READ, 0x0102_0304_0506_0708, 4096, 16));
    let mut reader = Reader(&harness.sent);
    assert_eq!(
        (reader.u32(), reader.u16(), reader.u16()),
        (Some(0x668e_33ef), Some(1), Some(1))
    );
    assert_eq!(
        (reader.u64(), reader.u32(), reader.u64()),
        (Some(0x0102_0304_0506_0708), Some(24), Some(4096))
    );
    assert_eq!(reader.0, [0xdd; 16]);

    harness.sent.clear();
    harness.feed(&req(0, c::READ, 5, BYTES, 1));
    let mut reader = Reader(&harness.sent);
    assert_eq!(
        (reader.u32(), reader.u16(), reader.u16()),
        (Some(0x668e_33ef), Some(1), Some(0x8001))
    );
    assert_eq!(
        (reader.u64(), reader.u32(), reader.u32(), reader.u16()),
        (Some(5), Some(6), Some(22), Some(0))
    );
    assert!(reader.0.is_empty());

    harness.sent.clear();
    harness.feed(&req(0, c::BLOCK_STATUS, 6, 0, 1001));
    let mut reader = Reader(&harness.sent);
    assert_eq!(
        (reader.u32(), reader.u16(), reader.u16()),
        (Some(0x668e_33ef), Some(1), Some(5))
    );
    assert_eq!(
        (reader.u64(), reader.u32(), reader.u32()),
        (Some(6), Some(20), Some(1))
    );
    let run = |r: &mut Reader<'_>| (r.u32().unwrap(), r.u32().unwrap());
    // The third run of the harness lies past the end of the request.
    assert_eq!([run(&mut reader), run(&mut reader)], [(500, 0), (501, 3)]);
    assert!(reader.0.is_empty());

    let mut harness = in_transmission(false, false);
    harness.feed(&req(0, c::READ, 9, 0, 4));
    let mut reader = Reader(&harness.sent);
    assert_eq!(
        (reader.u32(), reader.u32(), reader.u64()),
        (Some(0x6744_6698), Some(0), Some(9))
    );
    assert_eq!(reader.0, [0xdd; 4]);
}

#[test]
fn too_much_open_work_holds_the_peer() {
    let limits = Limits {
        requests: 3,
        bytes: 10_000,
    };
    for (len, expected) in [(512, 3), (4096, 3), (9_999, 2), (1 << 20, 1)] {
        let (mut connection, _) = Connection::new(volume(false), limits);
        let input = [go(false), req(0, c::READ, 1, 0, len).repeat(10)].concat();
        let (mut at, mut tickets) = (0, Vec::new());
        let mut answered = 0;
        while answered < 10 {
            let (used, event) = connection.receive(&input[at..]);
            at += used;
            match event {
                Some(Event::Request(r)) => tickets.push(r.ticket),
                Some(Event::Hold) => {
                    assert_eq!(tickets.len(), expected, "requests of {len}");
                    for ticket in tickets.drain(..) {
                        connection.release(1, u64::from(ticket.payload_bytes()));
                        answered += 1;
                    }
                }
                Some(Event::Send(_)) => {}
                None => {
                    if used == 0 {
                        answered += tickets.len();
                        assert_eq!(answered, 10);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_server_that_shuts_down_reports_it() {
    let mut harness = in_transmission(false, true);
    harness.connection.shut_down();
    harness.feed(&[write(1, 0, b"late"), req(0, c::READ, 2, 0, 1)].concat());
    assert_eq!(harness.refused, [Errno::Shutdown; 2]);
}

#[test]
fn a_session_means_the_same_however_it_is_cut() {
    let bytes = session();
    let mut whole = Harness::new(volume(false));
    whole.feed(&bytes);
    assert_eq!(whole.closed, Some(Close::Disconnect));
    assert_eq!(whole.seen.len(), 8);
    assert_eq!(whole.refused, [Errno::NoSpc, Errno::NotSup, Errno::Inval]);
    assert_eq!(whole.payloads, b"some payload");
    for size in 1..100 {
        let mut cut = Harness::new(volume(false));
        bytes.chunks(size).for_each(|piece| cut.feed(piece));
        assert_eq!(
            (&cut.sent, &cut.seen, &cut.payloads),
            (&whole.sent, &whole.seen, &whole.payloads),
            "cut at {size}"
        );
    }
    for end in 0..bytes.len() {
        let mut short = Harness::new(volume(false));
        short.feed(&bytes[..end]);
        assert!(whole.sent.starts_with(&short.sent), "truncated at {end}");
        assert!(whole.seen.starts_with(&short.seen));
    }
}
