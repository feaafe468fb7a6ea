//! A volume grows while it is served.

mod common;

use common::Place;
use common::faulty::Faulty;
use common::nbd::{MIB, NBD, back, copy_in, holds, noise};
use common::peer::{Peer, wait_for};
use common::writer::{BLOCK, Held, Writer, checked};
use isotherm_live::iscsi::testing::Initiator;
use serde_json::{Value, json};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;

const EINVAL: i32 = 22;

fn sound(place: &Place) {
    let check = place.json("check v", "check");
    assert_eq!(
        (&check["ok"], &check["was_clean"]),
        (&json!(true), &json!(true)),
        "{check}"
    );
}

fn bytes(v: &Value) -> u64 {
    v.as_u64().expect("a number")
}

fn small(place: &Place, policy: &str) -> u64 {
    let made = place.json(
        &format!("create v --fast f:16M --slow s:32M --extent 4K --policy {policy}"),
        "create",
    );
    bytes(&made["volume_bytes"])
}

/// Clients write all the time, and the volume grows again and again.
#[test]
fn writers_do_not_notice_more_than_a_pause() {
    let place = Place::new();
    let mut size = small(&place, "lru");
    let mut held = vec![Held::default(); size as usize / BLOCK];
    let served = place.serve("v --nbd unix:n");
    place.ok("set v policy=arc");
    place.ok("set v move_bytes_per_s=30000000");
    place.ok("classes set v 5+floor=1M");
    let before = place.json("status v", "status");
    let mut writes = 0;
    for (round, mib) in [(1, 64), (2, 200), (3, 500)] {
        let writer = Writer::start(&place, held, round);
        // The writer has begun.
        wait_for("writes", || {
            let stats = place.json("stats v", "stats");
            (bytes(&stats["writes"]) > 20).then_some(())
        });
        place.enlarge("s", mib);
        let grown = place.json("grow v", "grow");
        assert_eq!(grown["served"], json!(true), "{grown}");
        assert_eq!(bytes(&grown["volume_bytes_before"]), size, "{grown}");
        assert!(bytes(&grown["volume_bytes"]) > size, "{grown}");
        size = bytes(&grown["volume_bytes"]);
        wait_for("writes after it", || {
            let stats = place.json("stats v", "stats");
            (bytes(&stats["writes"]) > 20).then_some(())
        });
        let (after, n) = writer.stop();
        writes += n;
        held = checked(&place, &after);
        let status = place.json("status v", "status");
        assert_eq!(status["volume_bytes"], json!(size));
        let promised = |status: &Value| status["qos"][0]["floor_bytes_per_s"].clone();
        assert_eq!(promised(&status), json!(1 << 20));
        for key in ["policy", "params", "state", "degraded"] {
            assert_eq!(status[key], before[key], "{key} survives");
        }
        // The writer of the next round uses all of it.
        held.resize(size as usize / BLOCK, Held::default());
    }
    assert!(writes > 100, "{writes}");
    place.end(served);
    sound(&place);
    let served = place.serve("v --nbd unix:n");
    checked(&place, &held);
    place.end(served);
    let description = fs::read_to_string(place.path("v.toml")).expect("read");
    assert!(!description.contains("size = \"32"), "{description}");
}

/// The size of the disk in bytes, by READ CAPACITY (16).
fn capacity(i: &mut Initiator) -> u64 {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
    let done = i.command(&cdb, 32, &[]).expect("answered");
    assert_eq!((done.status, done.sense), (0, None));
    let number = |from: usize, to: usize| {
        let all = done.data[from..to].iter();
        all.fold(0u64, |n, b| n << 8 | u64::from(*b))
    };
    (number(0, 8) + 1) * number(8, 12)
}

/// What front ends say, and what their users see.
#[test]
fn every_front_end_shows_the_new_size() {
    let place = Place::new();
    let old = small(&place, "lru");
    let at: SocketAddr = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("bound")
    };
    fs::create_dir(place.path("m")).expect("made");
    let served = place.serve(&format!("v --nbd unix:n --iscsi {at} --block-file m"));
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(place.path("m/v"))
        .expect("the block file");
    assert_eq!(file.metadata().expect("there").len(), old);
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    let target = "iqn.2026-01.local.isotherm:v";
    let login = || Initiator::login(at, "iqn.x:a", target, None).expect("logged in");
    let mut initiator = login();
    let ready = [0; 16];
    assert_eq!(capacity(&mut initiator), old);
    place.enlarge("s", 64);
    // iSCSI has turned this on, and it must stay so.
    let kept = |place: &Place| place.json("status v", "status")["params"]["kept_writes"].clone();
    assert_eq!(kept(&place), json!(1.0));
    let grown = place.json("grow v", "grow");
    assert_eq!(kept(&place), json!(1.0));
    let new = bytes(&grown["volume_bytes"]);
    let sentences = grown["front_ends"].as_array().expect("a list");
    assert_eq!(sentences.len(), 3, "{grown}");
    // The block file: also for one who has it open.
    assert_eq!(file.metadata().expect("there").len(), new);
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 8192], new - 8192)
        .expect("written at the new end");
    // NBD: the connection keeps its size, a new one has the other.
    let beyond = peer.write(old, &[9; 4096]).expect_err("beyond its end");
    assert!(
        [EINVAL, 28].contains(&beyond.raw_os_error().expect("a number")),
        "{beyond}"
    );
    peer.write(old - 4096, &[9; 4096])
        .expect("the connection goes on");
    let mut next = Peer::connect(&place.path("n")).expect("connected");
    assert_eq!(next.read(new - 4096, 4096).expect("read"), vec![7; 4096]);
    // iSCSI: one unit attention, then the new size.
    let told = initiator.command(&ready, 0, &[]).expect("answered");
    assert_eq!(told.sense, Some((6, 0x2a, 9)), "capacity data has changed");
    let told = initiator.command(&ready, 0, &[]).expect("answered");
    assert_eq!((told.status, told.sense), (0, None), "told once");
    assert_eq!(capacity(&mut initiator), new);
    let mut another = login();
    let told = another.command(&ready, 0, &[]).expect("answered");
    assert_eq!(told.sense, None, "a new session is told nothing");
    let size = place.tool("nbdinfo", &["--size", NBD]);
    assert_eq!(
        String::from_utf8_lossy(&size.stdout).trim(),
        new.to_string()
    );
    let stats = place.json("stats v", "stats");
    let can = |name: &str| {
        let all = stats["front_ends"].as_array().expect("a list").iter();
        let mut of = all.filter(|f| f["names"][0].as_str().expect("a name").starts_with(name));
        of.next().expect("there")["can"]["resize"] == json!(true)
    };
    assert!(can("block-file") && can("iscsi") && !can("nbd"));
    drop((file, peer, next, initiator, another));
    place.end(served);
    sound(&place);
}

/// What cannot be: the answer says why, and nobody waits or notices.
#[test]
fn a_growth_that_cannot_be_is_refused_and_the_volume_is_served_on() {
    let place = Place::new();
    let size = small(&place, "lru");
    let data = noise(1, 20 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    let why = place.fails("grow v");
    assert!(why.contains("large enough for another extent"), "{why}");
    // A recording of events: it could not hold the change.
    place.enlarge("s", 64);
    let mut recording = place
        .command("record v --events --out ev")
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    wait_for("the recording", || {
        let names = place.names();
        names.iter().any(|n| n.starts_with("ev")).then_some(())
    });
    let why = place.fails("grow v");
    assert!(
        why.contains("recorded") || why.contains("about to begin"),
        "{why}"
    );
    let _ = recording.kill();
    let _ = recording.wait();
    holds(&place, &data);
    place.end(served);
    let served = place.serve("v --nbd unix:n --read-only");
    place.enlarge("s", 128);
    let why = place.fails("grow v");
    assert!(why.contains("read-only"), "{why}");
    assert!(back(&place)[..data.len()] == data);
    place.end(served);
    assert!(size > 0);
    sound(&place);
}

/// The disk takes nothing beyond its old end: the growth fails after the engine was closed, and the volume goes on as before.
#[test]
fn a_growth_that_fails_half_way_is_survived() {
    let place = Place::new();
    // The metadata of a tiering volume grows with it, and gets a place behind the old end.
    let size = small(&place, "greendm");
    fs::rename(place.path("s"), place.away("s")).expect("renamed");
    let Some(disk) = Faulty::attach(&place.away("s"), &place.path("d"), "s") else {
        return;
    };
    let description = fs::read_to_string(place.path("v.toml")).expect("read");
    let moved = place.path("d/s").display().to_string();
    let described: Vec<String> = (description.lines())
        .map(|l| {
            if l.contains("path") && l.contains("/s\"") || l.trim() == "path = \"s\"" {
                format!("path = \"{moved}\"")
            } else {
                l.to_owned()
            }
        })
        .collect();
    fs::write(place.path("v.toml"), described.join("\n")).expect("written");
    let mut held = vec![Held::default(); size as usize / BLOCK];
    let served = place.serve("v --nbd unix:n");
    let writer = Writer::start(&place, held, 1);
    let larger = place.away("s");
    let grow = |mib: u64| {
        let file = fs::OpenOptions::new().write(true).open(&larger);
        file.and_then(|f| f.set_len(mib << 20)).expect("resized");
    };
    disk.spoil_writes(32 << 20);
    grow(200);
    let why = place.fails("grow v");
    assert!(
        why.contains("served on") && why.contains(&size.to_string()),
        "{why}"
    );
    let status = place.json("status v", "status");
    assert_eq!(
        (&status["volume_bytes"], &status["state"]),
        (&json!(size), &json!("serving"))
    );
    held = checked(&place, &writer.stop().0);
    // The disk is well again.
    disk.come_back("s");
    let writer = Writer::start(&place, held, 2);
    let grown = place.json("grow v", "grow");
    assert!(
        bytes(&grown["volume_bytes"]) > size + 100 * MIB as u64,
        "{grown}"
    );
    held = checked(&place, &writer.stop().0);
    place.end(served);
    sound(&place);
    // A flush that fails while the engine is being closed: nothing may be answered from then on.
    let served = place.serve("v --nbd unix:n");
    let writer = Writer::start(&place, held, 3);
    grow(400);
    disk.fail_flushes(5);
    let why = place.fails("grow v");
    assert!(why.contains("flush"), "{why}");
    let (held, _) = writer.stop();
    assert_eq!(served.end().0, Some(1));
    disk.come_back("s");
    let served = place.serve("v --nbd unix:n");
    checked(&place, &held);
    place.end(served);
    sound(&place);
}

/// What was asked home goes there, although another policy takes over and the engine is opened anew for a recording and for a growth.
#[test]
fn changes_of_the_volume_do_not_end_a_clean() {
    let place = Place::new();
    let platter = place.away("platter");
    let made = fs::File::create(&platter).and_then(|f| f.set_len(64 << 20));
    made.expect("made");
    let Some(disk) = Faulty::attach(&platter, &place.path("d"), "s") else {
        return;
    };
    place.ok("create v --fast f:16M --slow d/s --policy lru");
    let served = place.serve("v --nbd unix:n");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    let data = noise(1, 8 * MIB);
    for (at, part) in (16 << 20..).step_by(MIB).zip(data.chunks(MIB)) {
        peer.write(at, part).expect("written");
    }
    let copies = || place.json("status v", "status")["copies"].clone();
    assert_eq!(bytes(&copies()["dirty_bytes"]), data.len() as u64);
    // Nothing can be written home for now.
    disk.spoil_writes_in(8 << 20, 40 << 20);
    let mut cleans = place.command("clean v --json");
    let cleans = cleans.stdout(Stdio::piped()).spawn().expect("begun");
    let goes_on = || copies()["draining"] == json!("dirty");
    wait_for("the clean", || goes_on().then_some(()));
    place.ok("set v policy=fifo");
    assert!(goes_on(), "another policy goes on with it");
    place.ok("record v --events --out run.events --seconds 1");
    assert!(goes_on(), "an engine that is recorded goes on with it");
    let larger = fs::OpenOptions::new().write(true).open(&platter);
    larger.and_then(|f| f.set_len(96 << 20)).expect("enlarged");
    place.ok("grow v");
    assert!(goes_on(), "the engine of a larger volume goes on with it");
    assert!(bytes(&copies()["dirty_bytes"]) > 0);
    disk.come_back("s");
    let out = cleans.wait_with_output().expect("ended");
    let cleaned: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(cleaned["dirty_bytes"], json!(0), "{cleaned}");
    place.end(served);
    sound(&place);
}

/// kill -9 at several moments: the next server finds the old size or the new one, and everything that was flushed.
#[test]
fn kill_9_during_a_growth_loses_nothing() {
    let place = Place::new();
    let made = place.json(
        "create v --fast f:64M --slow s:32M --extent 4K --policy lru",
        "create",
    );
    let mut size = bytes(&made["volume_bytes"]);
    let mut held = vec![Held::default(); size as usize / BLOCK];
    let (mut mib, mut grew) = (32, 0);
    for (round, ms) in [0, 3, 8, 15, 25, 40, 60, 100].into_iter().enumerate() {
        let served = place.serve("v --nbd unix:n");
        let writer = Writer::start(&place, held, round as u64 + 1);
        std::thread::sleep(std::time::Duration::from_millis(50));
        mib += 40;
        place.enlarge("s", mib);
        let mut grow = place.command("grow v").spawn().expect("started");
        std::thread::sleep(std::time::Duration::from_millis(ms));
        served.kill();
        let _ = grow.wait();
        let (after, _) = writer.stop();
        let served = place.serve("v --nbd unix:n");
        held = checked(&place, &after);
        let now = bytes(&place.json("status v", "status")["volume_bytes"]);
        assert!(now >= size);
        grew += u32::from(now > size);
        size = now;
        held.resize(size as usize / BLOCK, Held::default());
        place.end(served);
        sound(&place);
    }
    println!("grew in {grew} of 8 rounds");
}

/// A stop, and a signal, while the growth is under way: both end in good order.
#[test]
fn a_stop_during_a_growth_waits_for_it() {
    let place = Place::new();
    let mut size = small(&place, "lru");
    for (round, how) in ["stop", "signal", "stop", "signal"].into_iter().enumerate() {
        let served = place.serve("v --nbd unix:n");
        let held = vec![Held::default(); 64];
        let writer = Writer::start(&place, held, round as u64 + 1);
        place.enlarge("s", 64 << round);
        let mut grow = place.command("grow v").spawn().expect("started");
        std::thread::sleep(std::time::Duration::from_millis(5 * round as u64));
        if how == "stop" {
            // The writer is a client, so the volume is stopped only after it has left.
            writer.stop();
            place.ok("stop v");
        } else {
            served.signal("TERM");
            writer.stop();
        }
        let _ = grow.wait();
        let (code, why) = served.end();
        assert_eq!(code, Some(0), "{why}");
        sound(&place);
        let served = place.serve("v --nbd unix:n");
        let now = bytes(&place.json("status v", "status")["volume_bytes"]);
        assert!(now >= size);
        size = now;
        // The other half of the loop: nothing but zeros where the writer did not write.
        place.end(served);
        place.run("grow v");
        let served = place.serve("v --nbd unix:n");
        assert!(back(&place)[64 * BLOCK..].iter().all(|b| *b == 0));
        size = size.max(bytes(&place.json("status v", "status")["volume_bytes"]));
        place.end(served);
    }
}

/// A tiering volume whose slow tier is full grows in two steps, with one pause.
#[test]
fn a_full_tiering_volume_grows_while_it_is_served() {
    let place = Place::new();
    let made = place.json(
        "create v --fast f:16M --slow s:32M --policy greendm",
        "create",
    );
    let mut size = bytes(&made["volume_bytes"]);
    let data = noise(1, usize::try_from(size).expect("small") / MIB * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    for mib in [128, 400] {
        place.enlarge("s", mib);
        let grown = place.json("grow v", "grow");
        assert!(
            bytes(&grown["volume_bytes"]) > size + 70 * MIB as u64,
            "{grown}"
        );
        size = bytes(&grown["volume_bytes"]);
        holds(&place, &data);
    }
    place.end(served);
    sound(&place);
}
