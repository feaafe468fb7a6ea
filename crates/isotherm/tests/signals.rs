//! Signals: the server waits for the users of a volume, no written data is lost, and the volume is clean on disk.

mod common;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::faulty::{Faulty, Released};
use common::peer::{FLUSH, PATIENCE, Peer, wait_for};
use common::{Place, Served};
use serde_json::json;

fn volume() -> Place {
    let place = Place::in_memory();
    place.ok("create v --fast f:16M --slow s:64M --policy greendm");
    std::fs::create_dir(place.path("mnt")).expect("made");
    place
}

fn has_fuse() -> bool {
    let there = std::path::Path::new("/dev/fuse").exists();
    if !there {
        eprintln!("skipped: no /dev/fuse here");
    }
    there
}

fn opened(place: &Place) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(place.path("mnt/v"))
}

/// The process must have ended by itself with exit code 0; returns its output.
fn ended_well(mut served: Served, place: &Place) -> String {
    wait_for("the server to end", || served.has_ended().then_some(()));
    let (code, stderr) = served.end();
    assert_eq!(code, Some(0), "{stderr}");
    let check = place.json("check v", "check");
    assert_eq!(
        (&check["ok"], &check["was_clean"]),
        (&json!(true), &json!(true)),
        "{stderr}"
    );
    stderr
}

/// The contents of byte 8192 when the volume is served again.
fn found(place: &Place) -> Vec<u8> {
    let served = place.serve("v --nbd unix:n");
    let data = Peer::connect(&place.path("n")).and_then(|mut p| p.read(8192, 4096));
    assert_eq!(served.terminate(), Some(0));
    data.expect("read")
}

#[test]
fn each_signal_waits_for_whoever_has_the_file_open() {
    if !has_fuse() {
        return;
    }
    for signal in ["TERM", "INT", "HUP"] {
        let place = volume();
        let mut served = place.serve_with_hup("default", "v --block-file mnt --stop-timeout 40");
        let file = opened(&place).expect("opened");
        file.write_all_at(&[1; 4096], 0).expect("written");
        served.signal(signal);
        wait_for("new users to be refused", || {
            matches!(opened(&place), Err(e) if e.raw_os_error() == Some(108)).then_some(())
        });
        // The user continues to work.
        file.write_all_at(&[7; 4096], 8192)
            .expect("written after the signal");
        file.sync_all().expect("flushed after the signal");
        assert!(
            !served.has_ended(),
            "{signal}: its users were not waited for"
        );
        drop(file);
        ended_well(served, &place);
        assert_eq!(found(&place), [7; 4096]);
    }
}

#[test]
fn of_several_stops_at_once_all_succeed() {
    let place = volume();
    let served = place.serve("v --nbd unix:n");
    std::thread::scope(|s| {
        let asked: Vec<_> = (0..6).map(|_| s.spawn(|| place.run("stop v"))).collect();
        for stop in asked {
            let out = stop.join().expect("it runs");
            let said = String::from_utf8_lossy(&out.stderr);
            // One that comes when all is over finds a volume that is not served.
            assert!(
                out.status.success() || said.contains("not served"),
                "{said}"
            );
        }
    });
    assert_eq!(served.end().0, Some(0));
}

#[test]
fn an_ignored_hangup_stays_ignored() {
    let place = volume();
    let mut served = place.serve_with_hup("ignore", "v --nbd unix:n");
    served.signal("HUP");
    std::thread::sleep(Duration::from_millis(300));
    assert!(!served.has_ended());
    Peer::connect(&place.path("n")).expect("served as before");
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_second_signal_and_the_time_limit_end_it_with_users_and_lose_nothing() {
    if !has_fuse() {
        return;
    }
    for (limit, signals) in [(600, 2), (1, 1)] {
        let place = volume();
        let served = place.serve(&format!(
            "v --block-file mnt --nbd unix:n --stop-timeout {limit}"
        ));
        let mut client = Peer::connect(&place.path("n")).expect("connected");
        // The server counts a client whose request it has answered.
        client.read(0, 4096).expect("answered");
        let file = opened(&place).expect("opened");
        // The writer did not flush this.
        file.write_all_at(&[9; 4096], 8192).expect("written");
        let begun = Instant::now();
        served.signal("TERM");
        wait_for("new users to be refused", || {
            opened(&place).is_err().then_some(())
        });
        if signals == 2 {
            served.signal("TERM");
        }
        let stderr = ended_well(served, &place);
        assert!(
            begun.elapsed() < PATIENCE && stderr.contains("errors from now on"),
            "{stderr}"
        );
        assert!(
            stderr.contains("SIGTERM: no new clients")
                && stderr.contains("mnt/v is open, 1 NBD client is connected"),
            "{stderr}"
        );
        assert!(
            file.write_all_at(&[1; 4096], 0).is_err(),
            "its user was cut off"
        );
        drop(file);
        assert_eq!(found(&place), [9; 4096]);
    }
}

#[test]
fn nbd_clients_go_on_until_they_leave_and_no_others_come() {
    let place = volume();
    let mut served = place.serve("v --nbd unix:n --stop-timeout 40");
    let socket = place.path("n");
    let mut client = Peer::connect(&socket).expect("connected");
    let undecided = Peer::silent(&socket).expect("connected");
    client.write(8192, &[5; 4096]).expect("written");
    served.signal("TERM");
    wait_for("the socket to go", || {
        Peer::silent(&socket).is_err().then_some(())
    });
    client
        .write(8192, &[6; 4096])
        .expect("written after the signal");
    assert_eq!(
        client.read(8192, 4096).expect("read after the signal"),
        [6; 4096]
    );
    assert!(!served.has_ended(), "its client was not waited for");
    drop(client);
    ended_well(served, &place);
    drop(undecided);
    assert_eq!(found(&place), [6; 4096]);
}

#[test]
fn an_address_for_everybody_is_refused_and_the_way_to_allow_it_named() {
    let place = Place::new();
    place.ok("create v --slow s:16M --policy linear");
    let why = place.fails("serve v --nbd 0.0.0.0:0");
    assert!(why.contains("--nbd-allow-remote"), "{why}");
}

/// A server that hangs (here: is stopped) keeps no question waiting for ever.
#[test]
fn a_server_that_hangs_is_reported() {
    let place = volume();
    let served = place.serve("v --nbd unix:n");
    served.signal("STOP");
    let asked: Vec<_> = ["status v", "stats v", "why v 0", "classes show v"]
        .map(|call| {
            (
                call,
                place
                    .command(call)
                    .stderr(std::process::Stdio::piped())
                    .spawn(),
            )
        })
        .into_iter()
        .collect();
    let said: Vec<(&str, String)> = asked
        .into_iter()
        .map(|(call, child)| {
            let out = child.expect("starts").wait_with_output().expect("ends");
            (call, String::from_utf8_lossy(&out.stderr).into_owned())
        })
        .collect();
    served.signal("CONT");
    for (call, said) in said {
        assert!(
            said.contains("the serving process does not answer"),
            "{call}: {said}"
        );
    }
    assert_eq!(served.terminate(), Some(0));
}

/// A disk of 64 MiB that can hang, as `bay/sdb`.
fn in_a_bay(place: &Place) -> Option<Faulty> {
    let platter = place.away("platter");
    let made = File::create(&platter).and_then(|f| f.set_len(64 << 20));
    made.expect("made");
    Faulty::attach(&platter, &place.path("bay"), "sdb")
}

type Said = Arc<Mutex<String>>;

/// What a process says from now on, as far as it has come.
fn said(mut pipe: impl io::Read + Send + 'static) -> Said {
    let said = Said::default();
    let to = Arc::clone(&said);
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = pipe.read(&mut piece) {
            let text = String::from_utf8_lossy(&piece[..n]);
            to.lock().expect("no panic").push_str(&text);
        }
    });
    said
}

/// A member that hangs makes the end last as long as it hangs. Whoever waits is told so: the command, a signal's sender through the log, and
/// whoever asks.
#[test]
fn an_end_that_waits_for_a_member_says_so() {
    let place = Place::in_memory();
    let Some(disk) = in_a_bay(&place) else {
        return;
    };
    place.ok("create v --fast f:16M --slow bay/sdb --policy lru");
    let words = format!(
        "waits for {} (member 1), which has not answered since",
        place.path("bay/sdb").display()
    );
    // The first end waits for a write of the engine's, the second one for the superblocks that follow all of these.
    for by_signal in [false, true] {
        let mut served = place.serve("v --nbd unix:n --stop-timeout 0");
        let mut peer = Peer::connect(&place.path("n")).expect("connected");
        peer.write(0, &vec![1; 65536]).expect("written");
        drop(peer);
        let log = said(served.child.stderr.take().expect("piped"));
        disk.hang();
        let _released = Released(&disk);
        let stop = (!by_signal).then(|| {
            let mut stop = place.command("stop v");
            stop.stderr(std::process::Stdio::piped());
            stop.spawn().expect("the program starts")
        });
        if by_signal {
            served.signal("TERM");
        }
        wait_for("status to say what the end waits for", || {
            let out = place.run("status v");
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            (!out.status.success() && said.contains(&words)).then_some(())
        });
        // The log and the command say it after ten seconds.
        let has_words = |said: &Said| said.lock().expect("no panic").contains(&words);
        wait_for("the log to say it", || has_words(&log).then_some(()));
        let stop = stop.map(|mut stop| {
            let answer = said(stop.stderr.take().expect("piped"));
            wait_for("the command to say it", || has_words(&answer).then_some(()));
            (stop, answer)
        });
        disk.go_on();
        if let Some((mut stop, answer)) = stop {
            assert!(stop.wait().expect("waited").success());
            let answer = answer.lock().expect("no panic");
            assert_eq!(answer.lines().count(), 1, "it repeats itself: {answer}");
        }
        ended_well(served, &place);
    }
}

/// Nobody waits for ever: the command gives up, and the volume ends when the member answers. It may be asked any number of times.
#[test]
fn whoever_waits_for_an_end_gets_an_answer_in_time() {
    let place = Place::in_memory();
    let Some(disk) = in_a_bay(&place) else {
        return;
    };
    place.ok("create v --slow bay/sdb --policy linear");
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    peer.write(8192, &[1; 4096]).expect("written");
    drop(peer);
    disk.hang();
    let _released = Released(&disk);
    for _ in 0..2 {
        let why = place.fails("stop v --wait 2");
        assert!(
            why.contains("v: did not end within") && why.contains("it goes on ending"),
            "{why}"
        );
    }
    disk.go_on();
    ended_well(served, &place);
    assert_eq!(found(&place), [1; 4096]);
    // Without the option there is a limit as well.
    let help = place.ok("stop --help");
    assert!(help.contains("[default: 180]"), "{help}");
}

/// With a limit, the server of a member that hangs is killed: what was flushed is there afterwards.
#[test]
fn an_end_that_takes_too_long_is_cut_short_on_request() {
    let place = Place::in_memory();
    let Some(disk) = in_a_bay(&place) else {
        return;
    };
    place.ok("create v --slow bay/sdb --policy linear");
    let mut served = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    peer.write(8192, &[1; 4096]).expect("written");
    peer.ask(FLUSH, 0, 0).expect("sent");
    assert_eq!(peer.answer().expect("answered"), 0);
    drop(peer);
    disk.hang();
    let _released = Released(&disk);
    let why = place.fails("stop v --within 2");
    assert!(
        why.contains("v: did not end within")
            && why.contains("was killed: what was flushed is safe"),
        "{why}"
    );
    disk.go_on();
    wait_for("the killed server to be gone", || {
        served.has_ended().then_some(())
    });
    let (code, _) = served.end();
    assert_eq!(code, None, "by a signal");
    assert_eq!(found(&place), [1; 4096]);
    // A volume that ends in time ends as ever.
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    place.ok("stop v --within 600");
    ended_well(served, &place);
}
