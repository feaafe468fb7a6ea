//! The lab must repeat the decisions of a recorded live engine, bit for bit.
//!
//! `client.rs` makes requests and checks the answers; `altered.rs` alters and cuts recordings.

mod altered;
mod client;

use client::{Client, ask, flush};
use std::fs::File;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

use isotherm_core::{IoError, RequestOp};
use isotherm_lab::parity::{Parity, replay};
use isotherm_live::config::{IoConfig, Size};
use isotherm_live::port::{Completion, IoRequest};
use isotherm_live::recorder::{Recorded, Recording};
use isotherm_live::{MemberConfig, OpenMode, Server, Volume, VolumeConfig};
use isotherm_traces::events::{Ending, Reader, summary};

const THREADS: u64 = 4;
/// The policy has small watermarks, so that a fast tier of a few hundred slots is filled and emptied all the time.
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

/// A recording from the start of serving to its end, during which knobs are changed.
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
    // The same volume, with its present contents.
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
    let (mut events, mut round) = (0, 0);
    // On a busy machine, little happens in a round.
    while round < 4 || (events <= 100 && round < 200) {
        round += 1;
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
fn what_a_user_wants_on_flash_is_decided_again() {
    let rig = Rig::new("benefit", false);
    let server = rig.serve(OpenMode::ReadWrite);
    let writing = rig.write(server.handle().record_events().expect("records"));
    let work = clients(&server, 5, 200);
    // So many ranges that they are in several calls.
    let ranges = (0..300).map(|i| i * 2..i * 2 + 1).collect();
    let asked = server.handle().call(|driver, world| {
        use isotherm_core::World;
        driver.warm(world.now(), ranges)
    });
    asked.expect("served").expect("begins");
    for client in work {
        client.join().expect("no panic");
    }
    let is_over = |server: &Server| {
        let report = server.handle().call(|driver, _| driver.warmed());
        report.expect("served").is_some_and(|r| r.end.is_some())
    };
    for _ in 0..6000 {
        if is_over(&server) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(is_over(&server));
    server.stop().expect("closes");
    writing.join().expect("no panic");
    equal(&rig.events());
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
        // Reads of unwritten blocks need no device, so the queue is soon full.
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
    // Nothing was written so far; the queued events are written now.
    let done = rig.write(recording).join().expect("no panic");
    let end = done.end.expect("whole");
    assert_eq!((end.ending, &end.standing), (Ending::FellBehind, &None));
    let parity = replay(Reader::open(&rig.events()).expect("opens")).expect("whole");
    assert_eq!((parity.difference, parity.events), (None, end.events));
    assert!(end.requests > 0 && end.requests < n);
    assert_eq!(flush(&port), Ok(()));
    server.stop().expect("closes");
}
