//! Two servers, or a server and a command, that reach the same bytes in ways that no lock covers.

use super::{MIB, behind, flush, second};
use crate::common::Place;
use crate::common::faulty::{Faulty, Pages};
use crate::common::peer::{self, FLUSH, Peer, wait_for};
use serde_json::json;
use std::fs;

/// The error of a command of another machine; `None` if there can be none here.
fn refused_elsewhere(place: &Place, call: &str) -> Option<String> {
    let out = place.elsewhere(call)?.output().expect("it starts");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "`{call}` succeeded: {said}");
    Some(said)
}

/// On this machine it is known that the server lives, however long it does not answer, and whatever way another process takes to the bytes.
#[test]
fn a_server_of_this_machine_that_does_not_answer_is_not_taken_over() {
    let place = Place::in_memory();
    place.ok("create v --slow s:64M --policy linear");
    let Some(_san) = behind(&place, "s") else {
        return;
    };
    second(&place);
    let mut served = place.serve("v --nbd unix:n --stop-timeout 0");
    served.signal("STOP");
    let member = place.path("san/lun");
    let member = member.to_str().expect("text");
    let calls = [
        "serve other/v --nbd unix:m".to_owned(),
        "serve other/v --read-only --nbd unix:m".to_owned(),
        "check other/v".to_owned(),
        "check other/v --repair".to_owned(),
        "status other/v".to_owned(),
        "grow other/v".to_owned(),
        "replace other/v away/new:64M --member 0".to_owned(),
        format!("create other/w --slow {member} --policy linear --force"),
    ];
    place.away("new");
    for call in calls {
        let why = place.fails(&call);
        assert!(why.contains("is served by process"), "`{call}`: {why}");
    }
    served.signal("CONT");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    peer.write(0, &[1; 4096]).expect("written");
    assert_eq!(flush(&mut peer), 0);
    drop(peer);
    assert!(!served.has_ended());
    // Once it was killed, nothing is waited for.
    served.kill();
    let served = place.serve("other/v --nbd unix:m --stop-timeout 0");
    served.signal("TERM");
    let (code, said) = served.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("taken over"), "{said}");
}

/// The way to the bytes has a page cache, which shows whoever reads there what he wrote himself.
#[test]
fn a_page_cache_hides_no_server_and_no_data() {
    for pages in [Pages::Kept, Pages::KeptAlways] {
        let place = Place::in_memory();
        place.ok("create v --slow s:64M --policy linear");
        let lun = place.path("san");
        let Some(_san) = Faulty::attach_with(pages, &place.path("s"), &lun, "lun") else {
            return;
        };
        second(&place);
        // Now its pages are in the cache.
        fs::read(place.path("san/lun")).expect("read");
        let served = place.serve("v --nbd unix:n --stop-timeout 0");
        let mut peer = Peer::connect(&place.path("n")).expect("connected");
        peer.write(0, &[1; 4096]).expect("written");
        let why = place.fails("serve other/v --nbd unix:m");
        assert!(why.contains("is served by process"), "{pages:?}: {why}");
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    peer.write(MIB, &[2; 4096]).expect("written");
                    assert_eq!(flush(&mut peer), 0);
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
            });
            let why = refused_elsewhere(&place, "serve other/v --nbd unix:m");
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            let served = |w: &String| w.contains("is served by process");
            assert!(why.as_ref().is_none_or(served), "{pages:?}: {why:?}");
        });
        drop(peer);
        assert_eq!(served.terminate(), Some(0));
        let served = place.serve("other/v --nbd unix:m --stop-timeout 0");
        let mut peer = Peer::connect(&place.path("m")).expect("connected");
        assert_eq!(peer.read(MIB, 4096).expect("read"), [2; 4096], "{pages:?}");
        drop(peer);
        assert_eq!(served.terminate(), Some(0));
    }
}

#[test]
fn a_server_that_writes_is_not_taken_over_by_another_way() {
    let place = Place::in_memory();
    place.ok("create v --slow s:64M --policy linear");
    let Some(_san) = behind(&place, "s") else {
        return;
    };
    second(&place);
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    peer.write(0, &[1; 4096]).expect("written");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                peer.write(MIB, &[2; 4096]).expect("written");
                assert_eq!(flush(&mut peer), 0);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let why = refused_elsewhere(&place, "serve other/v --nbd unix:m");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(why.is_none_or(|w| w.contains("is served by process")));
    });
    assert_eq!(place.json("status v", "status")["state"], json!("serving"));
    assert_eq!(served.terminate(), Some(0));
    // After an ordinary close, any process may open the volume, in any way.
    let served = place.serve("other/v --nbd unix:m --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("m")).expect("connected");
    assert_eq!(peer.read(MIB, 4096).expect("read"), [2; 4096]);
    drop(peer);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_server_that_was_stopped_and_taken_over_writes_nothing_and_ends() {
    taken_over(true);
}

/// No requests arrive, so no stamp is written, and the first request after that must not damage the volume of another server.
#[test]
fn a_server_that_was_idle_and_taken_over_writes_nothing_and_ends() {
    taken_over(false);
}

fn taken_over(suspended: bool) {
    let place = Place::in_memory();
    place.ok("create v --slow s:64M --policy linear");
    let Some(_san) = behind(&place, "s") else {
        return;
    };
    second(&place);
    let mut old = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    for mib in 0..40 {
        peer.write(mib * MIB, &[1; 4096]).expect("written");
    }
    assert_eq!(flush(&mut peer), 0);
    if suspended {
        // The server stops, as a machine in the middle of its work may.
        old.signal("STOP");
    } else {
        // Longer than the interval after which it reads the stamp again.
        std::thread::sleep(std::time::Duration::from_secs(6));
    }
    let call = "other/v --nbd unix:m --stop-timeout 0";
    let Some(elsewhere) = place.elsewhere(&format!("serve {call}")) else {
        return old.signal("KILL");
    };
    let new = Place::wait_ready(elsewhere, call);
    let mut other = Peer::connect(&place.path("m")).expect("connected");
    for mib in 0..40 {
        assert_eq!(other.read(mib * MIB, 4096).expect("read"), [1; 4096]);
        other.write(mib * MIB, &[2; 4096]).expect("written");
    }
    assert_eq!(flush(&mut other), 0);
    // A request that waits for the server until it continues.
    peer.ask(peer::WRITE, 0, 4096).expect("sent");
    std::io::Write::write_all(&mut peer.0, &[3; 4096]).expect("sent");
    if suspended {
        old.signal("CONT");
    }
    let _ = peer.answer();
    let _ = peer.ask(FLUSH, 0, 0);
    wait_for("the old server to end", || old.has_ended().then_some(()));
    let (code, said) = old.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("taken over by process"), "{said}");
    for mib in 0..40 {
        assert_eq!(
            other.read(mib * MIB, 4096).expect("read"),
            [2; 4096],
            "{mib} MiB"
        );
    }
    drop(other);
    assert_eq!(new.terminate(), Some(0));
    assert_eq!(place.json("check other/v", "check")["ok"], json!(true));
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    for mib in 0..40 {
        assert_eq!(
            peer.read(mib * MIB, 4096).expect("read"),
            [2; 4096],
            "{mib} MiB"
        );
    }
    drop(peer);
    assert_eq!(served.terminate(), Some(0));
}
