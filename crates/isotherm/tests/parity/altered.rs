//! Altered and truncated recordings: a replay must find the altered event, and a truncated file is an error.

use super::{POLICY, Rig, clients};
use isotherm_core::{BufRef, Effect, IoError, Nanos, Request, RequestOp};
use isotherm_lab::parity::{ParityError, replay};
use isotherm_live::OpenMode;
use isotherm_traces::events::{Call, Encoder, End, Event, EventsError, Reader, Writer};
use std::io::Cursor;

/// A short recording: its bytes, its events and its end.
fn short() -> (Vec<u8>, Vec<Event>, End) {
    let rig = Rig::new(POLICY, false);
    let server = rig.serve(OpenMode::ReadWrite);
    let writing = rig.write(server.handle().record_events().expect("records"));
    for work in clients(&server, 6, 400) {
        work.join().expect("no panic");
    }
    server.stop().expect("closes");
    writing.join().expect("no panic");
    let bytes = std::fs::read(rig.events()).expect("read");
    let mut reader = Reader::new(Cursor::new(&bytes)).expect("opens");
    let mut events = Vec::new();
    while let Some(e) = reader.next().expect("whole") {
        events.push(e);
    }
    let end = reader.end().expect("there").clone();
    (bytes, events, end)
}

/// The recording with other events, in a valid file.
fn with(bytes: &[u8], events: &[Event], end: &End) -> Vec<u8> {
    let reader = Reader::new(Cursor::new(bytes)).expect("opens");
    let mut w = Writer::create(Vec::new(), reader.origin(), reader.image()).expect("in memory");
    let mut encoder = Encoder::new(Vec::new());
    for e in events {
        let effects: Vec<Effect> = e.decisions.iter().map(|d| d.effect).collect();
        encoder.event(e.now, &e.call, &effects, |op| {
            let of = |d: &&isotherm_traces::events::Decision| d.effect == Effect::Start(*op);
            e.decisions.iter().find(of).map_or(0, |d| d.meta)
        });
        if encoder.len() > 10_000 {
            w.events(&encoder.take(Vec::new())).expect("in memory");
        }
    }
    w.events(&encoder.take(Vec::new())).expect("in memory");
    w.finish(end).expect("in memory")
}

fn first_difference(bytes: &[u8]) -> Option<u64> {
    let parity = replay(Reader::new(Cursor::new(bytes)).expect("opens")).expect("whole");
    parity.difference.map(|d| d.event)
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn one_altered_event_is_found_where_it_is() {
    let (bytes, events, end) = short();
    assert_eq!(
        first_difference(&with(&bytes, &events, &end)),
        None,
        "unaltered"
    );
    let alter = |n: usize, f: &dyn Fn(&mut Event)| {
        let mut other = events.clone();
        f(&mut other[n]);
        assert_ne!(other[n], events[n]);
        first_difference(&with(&bytes, &other, &end))
    };
    let find = |what: &dyn Fn(&Event) -> bool| {
        // In the second half, so that many events before it must be equal.
        let n = events.len() / 2
            + events[events.len() / 2..]
                .iter()
                .position(what)
                .expect("one");
        (n, Some(n as u64))
    };
    // A request that starts an operation at once: the offset of a read that waits would show in a later event.
    let starts = |e: &Event, r: &Request| {
        e.decisions.iter().any(|d| {
            matches!(d.effect, Effect::Start(op)
                if matches!(op.buf, BufRef::Request { tag, .. } if tag == r.tag))
        })
    };
    let (n, here) =
        find(&|e| matches!(&e.call, Call::Submit(r) if r.op == RequestOp::Read && starts(e, r)));
    let offset = |e: &mut Event| {
        if let Call::Submit(r) = &mut e.call {
            r.offset ^= 4096;
        }
    };
    assert_eq!(alter(n, &offset), here, "a request's offset");
    let decision = |e: &mut Event| {
        for d in &mut e.decisions {
            if let Effect::Start(op) = &mut d.effect {
                op.offset += 4096;
            }
        }
    };
    assert_eq!(alter(n, &decision), here, "a decision");
    let (n, here) = find(&|e| e.decisions.iter().any(|d| d.meta != 0));
    let meta = |e: &mut Event| {
        for d in &mut e.decisions {
            d.meta ^= u64::from(d.meta != 0);
        }
    };
    assert_eq!(alter(n, &meta), here, "metadata written");
    let (n, here) = find(&|e| matches!(&e.call, Call::Complete { result: Ok(n), .. } if *n > 0));
    let id = |e: &mut Event| {
        if let Call::Complete { id, .. } = &mut e.call {
            id.0 += 10_000;
        }
    };
    assert_eq!(alter(n, &id), here, "an operation that was never started");
    let failed = |e: &mut Event| {
        if let Call::Complete { result, .. } = &mut e.call {
            *result = Err(IoError::Io);
        }
    };
    assert!(
        alter(n, &failed).is_some_and(|d| d >= n as u64),
        "a completion's result"
    );
    // A change that no effect shows at once, but the counters at the end do.
    let later = |e: &mut Event| e.now = e.now + Nanos(1);
    let last = events.len() - 1;
    assert!(alter(last, &later).is_none_or(|d| d >= last as u64));
    let mut missing = events.clone();
    missing.remove(n);
    let fewer = End {
        events: end.events - 1,
        ..end.clone()
    };
    assert!(first_difference(&with(&bytes, &missing, &fewer)).is_some_and(|d| d >= n as u64));
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let (bytes, ..) = short();
    let mut cut = 0;
    for len in (0..bytes.len())
        .step_by(997)
        .chain([8, 15, 16, 17, bytes.len() - 1])
    {
        match Reader::new(Cursor::new(&bytes[..len])) {
            Err(EventsError::NotEvents) => assert!(len < 8, "{len}"),
            Err(EventsError::Cut { .. }) => {}
            Err(e) => panic!("{len}: {e}"),
            Ok(reader) => match replay(reader) {
                Err(ParityError::File(EventsError::Cut { .. }, _)) => cut += 1,
                other => panic!("{len}: {other:?}"),
            },
        }
    }
    assert!(cut > 3, "{cut}");
}
