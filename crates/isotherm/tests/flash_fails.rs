//! Flash of a cache volume that fails while the volume is served: the cache ends, the volume goes on, and no request fails, unless data is lost.

mod common;

use common::Place;
use common::faulty::{Faulty, on_faulty};
use common::nbd::{MIB, begins, noise};
use common::peer::{FLUSH, Peer, wait_for};
use common::writer::{Held, Writer, checked};
use serde_json::{Value, json};
use std::os::unix::fs::FileExt;
use std::process::Stdio;

const EIO: i32 = 5;

fn peer(place: &Place) -> Peer {
    Peer::connect(&place.path("n")).expect("connected")
}

fn fill(peer: &mut Peer, from: usize, data: &[u8]) {
    for (at, part) in (from as u64..).step_by(MIB).zip(data.chunks(MIB)) {
        peer.write(at, part).expect("written");
    }
}

fn flush(peer: &mut Peer) -> u32 {
    peer.ask(FLUSH, 0, 0).expect("sent");
    peer.answer().expect("answered")
}

fn goes_on_without(place: &Place) {
    wait_for("the end of the cache", || {
        (place.status()["missing_members"] == json!([0])).then_some(())
    });
    let status = place.status();
    assert_eq!(
        (&status["failure"], &status["read_only"]),
        (&Value::Null, &json!(false))
    );
    assert_eq!(
        status["health"]["state"],
        json!("degraded"),
        "{}",
        status["health"]
    );
}

/// Flash that turns read-only with dirty data: that goes to the disk, and later sessions never use the flash again.
#[test]
fn flash_that_turns_read_only_gives_its_data_to_the_disk() {
    let place = Place::new();
    let Some(disk) = on_faulty(&place, "lru") else {
        return;
    };
    let served = place.serve("v --nbd unix:n");
    let mut peer = peer(&place);
    let mut data = noise(1, 12 * MIB);
    fill(&mut peer, 0, &data);
    assert_eq!(flush(&mut peer), 0);
    fill(&mut peer, 0, &noise(2, MIB));
    data[..MIB].copy_from_slice(&noise(2, MIB));
    assert!(place.status()["copies"]["dirty_bytes"].as_u64() > Some(0));
    disk.spoil_writes(0);
    fill(&mut peer, 2 * MIB, &noise(3, MIB));
    data[2 * MIB..3 * MIB].copy_from_slice(&noise(3, MIB));
    assert_eq!(flush(&mut peer), 0);
    goes_on_without(&place);
    let todo = place.status()["health"]["causes"][0]["todo"].clone();
    assert!(
        todo.to_string().contains("no part of the volume any more"),
        "{todo}"
    );
    begins(&place, &data);
    fill(&mut peer, 0, &noise(4, 20 * MIB));
    assert_eq!(flush(&mut peer), 0);
    let data = noise(4, 20 * MIB);
    begins(&place, &data);
    served.kill();
    // It works again, and holds what is long out of date.
    disk.come_back("f");
    let served = place.serve("v --nbd unix:n");
    goes_on_without(&place);
    begins(&place, &data);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
}

/// Flash that is gone, and had nothing of its own: nobody notices but the status. It is replaced while the volume is served.
#[test]
fn dead_flash_without_dirty_data_is_left_out() {
    for idle in [false, true] {
        let place = Place::new();
        let Some(disk) = on_faulty(&place, "lru,write-mode=write-through-all") else {
            return;
        };
        let served = place.serve("v --nbd unix:n");
        let mut peer = peer(&place);
        let data = noise(1, 12 * MIB);
        fill(&mut peer, 0, &data);
        assert_eq!(flush(&mut peer), 0);
        disk.fail(EIO);
        if !idle {
            fill(&mut peer, 0, &data[..MIB]);
            assert_eq!(flush(&mut peer), 0);
        }
        begins(&place, &data);
        goes_on_without(&place);
        begins(&place, &data);
        let out = place.ok("replace v g:16M --member 0 --empty");
        assert!(out.contains('g'), "{out}");
        assert_eq!(place.status()["missing_members"], json!([]));
        fill(&mut peer, 0, &data);
        begins(&place, &data);
        place.ok("stop v");
        assert_eq!(served.end().0, Some(0));
    }
}

/// Whether reading a block at each of these places is an error.
fn are_lost(peer: &mut Peer, at: &[usize]) -> Vec<bool> {
    let read = |&at: &usize| peer.read(at as u64, 4096).is_err();
    at.iter().map(read).collect()
}

/// Dirty data that cannot be read, or for which a flush failed, is lost. FLUSH fails once, and the volume goes on: reading what is lost is an
/// error until it is written again, also after a kill. Flash that returns is no part of the volume.
#[test]
fn flash_that_takes_data_with_it_leaves_a_list() {
    let ways: [fn(&Faulty); 3] = [
        |disk| disk.fail(EIO),
        |disk| disk.fail_flushes(EIO),
        |disk| disk.fail_next_flush(EIO),
    ];
    for fail in ways {
        let place = Place::new();
        let Some(disk) = on_faulty(&place, "lru") else {
            return;
        };
        let served = place.serve("v --nbd unix:n");
        let mut peer = peer(&place);
        fill(&mut peer, 0, &noise(1, 4 * MIB));
        assert_eq!(flush(&mut peer), 0);
        fail(&disk);
        fill(&mut peer, 4 * MIB, &noise(2, 1 << 16));
        assert_ne!(flush(&mut peer), 0);
        wait_for("the end of the cache", || {
            (place.status()["missing_members"] == json!([0])).then_some(())
        });
        let now = place.status();
        assert_eq!(
            (&now["failure"], &now["health"]["state"]),
            (&Value::Null, &json!("failing"))
        );
        let cause = &now["health"]["causes"][0];
        assert_eq!(
            (&cause["kind"], &cause["count"]),
            (&json!("lost"), &now["lost"]["bytes"])
        );
        assert!(
            cause["todo"].to_string().contains("--accept-loss"),
            "{cause}"
        );
        assert_eq!(flush(&mut peer), 0);
        // What was never on flash is not lost, in the same region either.
        assert_eq!(
            are_lost(&mut peer, &[0, 2 * MIB, 40 << 20]),
            [true, true, false]
        );
        fill(&mut peer, 0, &noise(3, MIB));
        begins(&place, &noise(3, MIB));
        assert_eq!(flush(&mut peer), 0);
        fill(&mut peer, 2 * MIB, &noise(4, 8192));
        served.kill();
        disk.come_back("f");
        std::fs::create_dir(place.path("mnt")).expect("made");
        let served = place.serve("v --nbd unix:n --block-file mnt");
        let mut peer = Peer::connect(&place.path("n")).expect("connected");
        assert_eq!(place.status()["missing_members"], json!([0]));
        begins(&place, &noise(3, MIB));
        let file = std::fs::File::open(place.path("mnt/v")).expect("opened");
        let read = file.read_at(&mut [0; 4096], MIB as u64);
        assert_eq!(read.expect_err("lost").raw_os_error(), Some(EIO));
        drop(file);
        assert_eq!(are_lost(&mut peer, &[MIB, 3 * MIB]), [true, true]);
        fill(&mut peer, MIB, &noise(5, 4 * MIB));
        assert_eq!(flush(&mut peer), 0);
        wait_for("an empty list", || {
            (place.status()["lost"]["bytes"] == json!(0)).then_some(())
        });
        place.ok("stop v");
        assert_eq!(served.end().0, Some(0));
        assert_eq!(place.status()["lost"]["bytes"], json!(0));
    }
}

/// Flash fails under writers. No request fails, and no answered write is lost, also after a kill.
#[test]
fn writers_notice_nothing() {
    for seed in 0..4 {
        let place = Place::new();
        let Some(disk) = on_faulty(&place, "lru") else {
            return;
        };
        let served = place.serve("v --nbd unix:n");
        let writer = Writer::start(&place, vec![Held::default(); 5000], seed);
        // A check uses the devices, too.
        let mut check = place.command("check v --data --rate 4M");
        check.stdout(Stdio::null()).stderr(Stdio::null());
        let mut check = check.spawn().expect("started");
        std::thread::sleep(std::time::Duration::from_millis(150 + 70 * seed));
        disk.spoil_writes(0);
        goes_on_without(&place);
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!writer.has_ended(), "a request failed");
        check.kill().expect("killed");
        check.wait().expect("waited");
        let (held, _) = writer.stop();
        let held = checked(&place, &held);
        served.kill();
        disk.come_back("f");
        let served = place.serve("v --nbd unix:n");
        checked(&place, &held);
        assert_eq!(served.terminate(), Some(0));
    }
}

/// The server is killed at some moment of the end. Flash works again then, and the volume goes on with it or without it.
#[test]
fn a_kill_while_the_cache_ends_loses_nothing() {
    let mut without = 0;
    for seed in 0..8 {
        let place = Place::new();
        let Some(disk) = on_faulty(&place, "lru") else {
            return;
        };
        let served = place.serve("v --nbd unix:n");
        let writer = Writer::start(&place, vec![Held::default(); 5000], seed);
        std::thread::sleep(std::time::Duration::from_millis(250));
        disk.spoil_writes(0);
        std::thread::sleep(std::time::Duration::from_millis(25 * seed));
        served.kill();
        let (held, _) = writer.stop();
        disk.come_back("f");
        let served = place.serve("v --nbd unix:n");
        without += u8::from(place.status()["missing_members"] == json!([0]));
        checked(&place, &held);
        assert_eq!(served.terminate(), Some(0));
    }
    println!("{without} of 8 had no cache any more");
}

/// The server is killed at some moment of the end of a cache that takes data with it, and flash works again then. What was flushed is there, or
/// reading it is an error; older data is never shown.
#[test]
fn a_kill_while_data_is_lost_shows_nothing_old() {
    let mut listed = 0;
    for seed in 0..8 {
        let place = Place::new();
        let Some(disk) = on_faulty(&place, "lru") else {
            return;
        };
        let served = place.serve("v --nbd unix:n");
        let mut peer = peer(&place);
        let data = noise(1, 4 * MIB);
        fill(&mut peer, 0, &data);
        assert_eq!(flush(&mut peer), 0);
        fill(&mut peer, 0, &noise(2, 1 << 16));
        disk.fail_flushes(EIO);
        peer.ask(FLUSH, 0, 0).expect("sent");
        std::thread::sleep(std::time::Duration::from_millis(4 * seed));
        served.kill();
        disk.come_back("f");
        let served = place.serve("v --nbd unix:n");
        let mut peer = Peer::connect(&place.path("n")).expect("connected");
        let is_without = place.status()["missing_members"] == json!([0]);
        listed += u8::from(is_without);
        for at in (1 << 16..4 * MIB).step_by(1 << 16) {
            match peer.read(at as u64, 1 << 16) {
                Ok(got) => assert!(got == data[at..at + (1 << 16)], "old data at {at}"),
                Err(e) => assert!(is_without, "{at}: {e}"),
            }
        }
        drop(peer);
        assert_eq!(served.terminate(), Some(0));
    }
    println!("{listed} of 8 went on without their cache");
}

/// Flash fails while the volume is being closed: all is on the disk afterwards.
#[test]
fn a_stop_with_failing_flash_ends_well() {
    let place = Place::new();
    let Some(disk) = on_faulty(&place, "lru") else {
        return;
    };
    let served = place.serve("v --nbd unix:n");
    let data = noise(1, 6 * MIB);
    fill(&mut peer(&place), 0, &data);
    disk.spoil_writes(0);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    let served = place.serve("v --nbd unix:n");
    goes_on_without(&place);
    begins(&place, &data);
    assert_eq!(served.terminate(), Some(0));
}
