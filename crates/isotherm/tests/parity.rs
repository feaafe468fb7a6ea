//! What a live engine decided, the lab decides again: the same, bit for bit.

use std::fs::File;
use std::io::Cursor;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use isotherm_core::{BufRef, Effect, IoError, Nanos, Request, RequestOp};
use isotherm_hostile::Rng;
use isotherm_lab::parity::{Parity, ParityError, replay};
use isotherm_live::config::{IoConfig, Size};
use isotherm_live::port::{Buffer, Completion, IoRequest, Port};
use isotherm_live::recorder::{Recorded, Recording};
use isotherm_live::{MemberConfig, OpenMode, Server, Volume, VolumeConfig};
use isotherm_traces::events::{
    Call, Encoder, End, Ending, Event, EventsError, Reader, Writer, summary,
};

const THREADS: u64 = 4;
const BLOCK: u64 = 4096;
/// Small marks, so that a fast tier of a few hundred slots is filled and emptied all the time.
const POLICY: &str = "greendm,PT=1,TW=30,LT=8,HT=24,MCML=6";

struct Rig(tempfile::TempDir);

impl Rig {
    fn new(policy: &str, paced: bool) -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let member = |name: &str, tier, size: u64| MemberConfig {
            path: dir.path().join(name),
            tier,
            size: Some(Size(size)),
            paced: (paced && tier == 1).then(|| "wd5000aaks".into()),
            ..MemberConfig::default()
        };
        let config = VolumeConfig {
            name: "v".into(),
            uuid: None,
            extent: Size(65536),
            policy: policy.into(),
            qos: vec!["0+ceiling=100M+latency=50ms".into()],
            io: IoConfig {
                buffers: Size(8 << 20),
                commit_interval_s: 0.2,
                ..IoConfig::default()
            },
            members: vec![member("fast", 0, 8 << 20), member("slow", 1, 64 << 20)],
        };
        Volume::create(&dir.path().join("v"), config, false).expect("created");
        Rig(dir)
    }

    fn serve(&self, mode: OpenMode) -> Server {
        let volume = Volume::open(&self.0.path().join("v"), mode).expect("opens");
        volume.serve().expect("serves")
    }

    fn write(&self, recording: Recording) -> JoinHandle<Recorded> {
        let path = self.events();
        std::thread::spawn(move || {
            let file = File::create(path).expect("created");
            recording.write_to(file, u64::MAX).expect("written")
        })
    }

    fn events(&self) -> std::path::PathBuf {
        self.0.path().join("events")
    }
}

fn ask(
    port: &Arc<dyn Port>,
    op: RequestOp,
    offset: u64,
    len: u32,
    fua: bool,
    fill: u8,
) -> (Result<(), IoError>, Option<Buffer>) {
    let buf = matches!(op, RequestOp::Read | RequestOp::Write).then(|| {
        let mut b = port.buffer(offset, len);
        b.fill(fill);
        b
    });
    let (send, receive) = mpsc::channel();
    let done = Completion::new(move |r, b| send.send((r, b)).expect("the asker waits"));
    let request = IoRequest::new(op, offset, len)
        .with_buffer(buf)
        .with_fua(fua);
    port.submit(request.in_class((offset >> 20) as u8 & 63), done);
    receive.recv().expect("an answer")
}

/// One client with a part of the volume to itself; it knows what every byte must be.
struct Client {
    port: Arc<dyn Port>,
    rng: Rng,
    base: u64,
    bytes: Vec<u8>,
}

impl Client {
    fn start(port: &Arc<dyn Port>, seed: u64, n: u64, requests: u64) -> JoinHandle<Client> {
        let part = port.volume_bytes() / THREADS / 65536 * 65536;
        let mut client = Client {
            port: Arc::clone(port),
            rng: Rng::new(seed * THREADS + n),
            base: n * part,
            bytes: vec![0; part as usize],
        };
        std::thread::spawn(move || {
            let all = RequestOp::WriteZeroes { keep: false };
            let cleared = ask(&client.port, all, client.base, part as u32, false, 0);
            assert_eq!(cleared.0, Ok(()), "what an earlier life left");
            for i in 0..requests {
                client.step(i);
            }
            client
        })
    }

    fn step(&mut self, i: u64) {
        let part = self.bytes.len() as u64;
        // Some places are hot for a while, so that moves pay.
        let hot = (i / 300 * 17) % 8 * (part / 8);
        let near = self.rng.below(4) > 0;
        let at = if near {
            hot + self.rng.below(part / 8)
        } else {
            self.rng.below(part)
        };
        let odd = self.rng.below(10) == 0;
        let align = |n: u64| if odd { n } else { n / BLOCK * BLOCK };
        let at = align(at);
        let len = align(1 + self.rng.below(100_000)).max(BLOCK).min(part - at);
        if len == 0 {
            return;
        }
        let range = at as usize..(at + len) as usize;
        let (place, fua) = (self.base + at, self.rng.below(20) == 0);
        let ask = |op, fill| ask(&self.port, op, place, len as u32, fua, fill);
        match self.rng.below(100) {
            0..50 => {
                let (result, buf) = ask(RequestOp::Read, 0xee);
                assert_eq!(result, Ok(()));
                assert!(
                    buf.expect("comes back")[..] == self.bytes[range],
                    "at {place}"
                );
            }
            50..90 => {
                let fill = self.rng.draw() as u8;
                assert_eq!(ask(RequestOp::Write, fill).0, Ok(()));
                self.bytes[range].fill(fill);
            }
            90..94 => {
                // Advice: the whole blocks inside.
                let block = u64::from(self.port.block_bytes());
                let (first, end) = (at.next_multiple_of(block), (at + len) / block * block);
                assert_eq!(ask(RequestOp::Discard, 0).0, Ok(()));
                if first < end {
                    self.bytes[first as usize..end as usize].fill(0);
                }
            }
            94..96 => {
                let keep = self.rng.below(2) == 0;
                assert_eq!(ask(RequestOp::WriteZeroes { keep }, 0).0, Ok(()));
                self.bytes[range].fill(0);
            }
            _ => assert_eq!(flush(&self.port), Ok(()),),
        }
    }

    fn verify(self, port: &Arc<dyn Port>) {
        for (i, want) in self.bytes.chunks(1 << 20).enumerate() {
            let at = self.base + ((i as u64) << 20);
            let (result, buf) = ask(port, RequestOp::Read, at, want.len() as u32, false, 0xee);
            assert_eq!(result, Ok(()));
            assert!(buf.expect("comes back")[..] == *want, "at {at}");
        }
    }
}

fn flush(port: &Arc<dyn Port>) -> Result<(), IoError> {
    ask(port, RequestOp::Flush, 0, 0, false, 0).0
}

fn clients(server: &Server, seed: u64, requests: u64) -> Vec<JoinHandle<Client>> {
    println!("seed {seed}");
    let port = server.port();
    (0..THREADS)
        .map(|n| Client::start(&port, seed, n, requests))
        .collect()
}

fn set(server: &Server, values: &[(&'static str, f64)]) {
    for (key, value) in values.iter().copied() {
        let done = server.handle().call(move |driver, world| {
            use isotherm_core::World;
            driver.set(world.now(), key, value)
        });
        done.expect("served").expect("in range");
    }
}

fn equal(path: &Path) -> Parity {
    let parity = replay(Reader::open(path).expect("opens")).expect("is whole");
    assert_eq!(parity.difference, None);
    let end = parity.end.clone().expect("was read");
    assert_eq!(summary(path).expect("is whole").end, end);
    assert_eq!((parity.events, parity.requests), (end.events, end.requests));
    assert!(end.standing.is_some());
    parity
}

/// Recorded from the start of serving to its end, with knobs turned on the way.
fn whole_life(rig: &Rig, seed: u64, requests: u64) -> Parity {
    let server = rig.serve(OpenMode::ReadWrite);
    let writing = rig.write(server.handle().record_events().expect("records"));
    let work = clients(&server, seed, requests);
    set(&server, &[("PT", 2.0), ("move_bytes_per_s", 2e6)]);
    std::thread::sleep(std::time::Duration::from_millis(200));
    set(&server, &[("move_bytes_per_s", 0.0), ("p99_limit_s", 0.05)]);
    set(
        &server,
        &[
            ("PT", 1.0),
            ("p99_limit_s", 0.0),
            ("commit_interval_s", 0.1),
        ],
    );
    let done: Vec<Client> = work
        .into_iter()
        .map(|w| w.join().expect("no panic"))
        .collect();
    let port = server.port();
    for client in done {
        client.verify(&port);
    }
    let counters = server.handle().call(|driver, _| driver.counters().clone());
    let counters = counters.expect("served");
    assert!(
        counters.promotions.done > 0 && counters.demotions.done > 0,
        "{counters:?}"
    );
    server.stop().expect("closes");
    let recorded = writing.join().expect("no panic");
    assert_eq!(recorded.end.expect("whole").ending, Ending::Closed);
    equal(&rig.events())
}

#[test]
fn a_run_from_start_to_end_is_decided_again() {
    let rig = Rig::new(POLICY, false);
    let parity = whole_life(&rig, 1, 2500);
    assert!(parity.requests > THREADS * 2000 && parity.decisions > parity.requests);
    // The same volume, with what it holds by now.
    whole_life(&rig, 2, 800);
    assert!(
        Volume::open(&rig.0.path().join("v"), OpenMode::ReadWrite)
            .expect("opens")
            .report()
            .was_clean
    );
}

#[test]
fn a_paced_run_is_decided_again() {
    let rig = Rig::new(POLICY, true);
    whole_life(&rig, 3, 150);
}

#[test]
fn other_policies_are_decided_again() {
    for policy in [
        "hot-dst-recency",
        "hot-dst-frequency",
        "hot-dst-wsclock",
        "mylinear",
    ] {
        let rig = Rig::new(policy, false);
        let server = rig.serve(OpenMode::ReadWrite);
        let writing = rig.write(server.handle().record_events().expect("records"));
        for work in clients(&server, 9, 500) {
            work.join().expect("no panic");
        }
        server.stop().expect("closes");
        writing.join().expect("no panic");
        equal(&rig.events());
    }
}

#[test]
fn recordings_begin_and_end_while_the_volume_works() {
    let rig = Rig::new(POLICY, false);
    let server = rig.serve(OpenMode::ReadWrite);
    set(&server, &[("HT", 40.0), ("LT", 20.0), ("PT", 2.0)]);
    let knobs = |server: &Server| server.handle().call(|d, _| d.knobs()).expect("served");
    let before = knobs(&server);
    let work = clients(&server, 4, 4000);
    let mut events = 0;
    for round in 0..4 {
        std::thread::sleep(std::time::Duration::from_millis(150));
        let handle = server.handle();
        let writing = rig.write(handle.record_events().expect("records"));
        let second = handle.record_events().err().expect("one at a time");
        assert!(second.to_string().contains("recorded already"), "{second}");
        assert_eq!(knobs(&server), before, "what was set holds");
        std::thread::sleep(std::time::Duration::from_millis(150));
        handle.end_events();
        let recorded = writing.join().expect("no panic");
        assert_eq!(
            recorded.end.expect("whole").ending,
            Ending::Asked,
            "{round}"
        );
        events += equal(&rig.events()).events;
    }
    assert!(events > 100, "{events}");
    let done: Vec<Client> = work
        .into_iter()
        .map(|w| w.join().expect("no panic"))
        .collect();
    let port = server.port();
    for client in done {
        client.verify(&port);
    }
    server.stop().expect("closes");
}

#[test]
fn a_read_only_volume_is_recorded_too() {
    let rig = Rig::new(POLICY, false);
    let server = rig.serve(OpenMode::ReadWrite);
    assert_eq!(
        ask(&server.port(), RequestOp::Write, 0, 70_000, false, 7).0,
        Ok(())
    );
    server.stop().expect("closes");
    let server = rig.serve(OpenMode::ReadOnly);
    let writing = rig.write(server.handle().record_events().expect("records"));
    let (result, buf) = ask(&server.port(), RequestOp::Read, 0, 70_000, false, 0);
    assert_eq!(result, Ok(()));
    assert!(buf.expect("comes back").iter().all(|b| *b == 7));
    let refused = ask(&server.port(), RequestOp::Write, 0, 4096, false, 7).0;
    assert_eq!(refused, Err(IoError::ReadOnly));
    server.stop().expect("closes");
    writing.join().expect("no panic");
    assert_eq!(equal(&rig.events()).requests, 2);
}

#[test]
fn a_writer_that_stands_still_ends_the_recording_and_nothing_else() {
    let rig = Rig::new(POLICY, false);
    let server = rig.serve(OpenMode::ReadWrite);
    let recording = server.handle().record_events().expect("records");
    let recorded = || {
        server
            .handle()
            .call(|d, _| d.is_recorded())
            .expect("served")
    };
    let port = server.port();
    let mut n = 0;
    while recorded() {
        // Reads of what was never written need no device: the queue is full soon.
        let (send, receive) = mpsc::channel();
        for i in 0..1000 {
            let send = send.clone();
            let done = Completion::new(move |r, _| send.send(r).expect("the asker waits"));
            let buf = port.buffer(i << 12, 4096);
            port.submit(IoRequest::read(i << 12, 4096, buf), done);
        }
        drop(send);
        assert!(receive.iter().all(|r| r == Ok(())));
        n += 1000;
        assert!(n < 10_000_000, "the queue has no end");
    }
    // Nobody wrote anything down so far; what was queued is written now.
    let done = rig.write(recording).join().expect("no panic");
    let end = done.end.expect("whole");
    assert_eq!((end.ending, &end.standing), (Ending::FellBehind, &None));
    let parity = replay(Reader::open(&rig.events()).expect("opens")).expect("whole");
    assert_eq!((parity.difference, parity.events), (None, end.events));
    assert!(end.requests > 0 && end.requests < n);
    assert_eq!(flush(&port), Ok(()));
    server.stop().expect("closes");
}

/// A short recording, in pieces.
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

/// The recording with other events, sound in itself.
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
        // Late, so that much must be equal before.
        let n = events.len() / 2
            + events[events.len() / 2..]
                .iter()
                .position(what)
                .expect("one");
        (n, Some(n as u64))
    };
    // One that is started at once: a read that waits while something else begins shows later what it asked for.
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
    assert_eq!(alter(n, &id), here, "an operation that nobody started");
    let failed = |e: &mut Event| {
        if let Call::Complete { result, .. } = &mut e.call {
            *result = Err(IoError::Io);
        }
    };
    assert!(
        alter(n, &failed).is_some_and(|d| d >= n as u64),
        "a completion's result"
    );
    // Something that no effect shows at once: the counters at the end do.
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
