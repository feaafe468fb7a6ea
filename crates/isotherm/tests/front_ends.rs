//! Several front ends of one volume at the same time, as the program serves them: iSCSI beside NBD, classes of requests, kill -9, vhost-user,
//! and ublk if the kernel has it.

mod common;
#[path = "../../live/tests/common/guest.rs"]
#[allow(dead_code)]
mod guest;
#[path = "front_ends/kills.rs"]
mod kills;
mod proof;
#[path = "front_ends/vhost.rs"]
mod vhost_user;
#[path = "front_ends/zeroing.rs"]
mod zeroing;

use common::peer::{Peer, wait_for};
use common::{Place, fits};
use isotherm_live::iscsi::pdu;
use isotherm_live::iscsi::testing::Initiator;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const WRITE: u8 = 0x8a;
const READ: u8 = 0x88;
const FLUSH: [u8; 16] = [0x91, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const TARGET: &str = "iqn.2026-01.local.isotherm:v";

fn volume() -> Place {
    let place = Place::new();
    place.ok("create v --fast fast.img:16M --slow slow.img:64M");
    place
}

/// An address at which no process listens at present.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound")
}

fn login(at: SocketAddr) -> Initiator {
    Initiator::login(at, "iqn.x:a", TARGET, None).expect("logged in")
}

fn write(i: &mut Initiator, lba: u64, class: u8, data: &[u8]) {
    let cdb = Initiator::blocks(WRITE, lba, (data.len() / 512) as u32, class, false);
    let done = i.command(&cdb, 0, data).expect("answered");
    assert_eq!((done.status, done.sense), (0, None));
}

fn read(i: &mut Initiator, lba: u64, class: u8, bytes: u32) -> Vec<u8> {
    let cdb = Initiator::blocks(READ, lba, bytes / 512, class, false);
    let done = i.command(&cdb, bytes, &[]).expect("answered");
    assert_eq!((done.status, done.sense), (0, None));
    done.data
}

#[test]
fn group_numbers_become_classes_beside_nbd() {
    let place = volume();
    let at = free();
    let served = place.serve(&format!("v --iscsi {at} --nbd unix:n"));
    let mut i = login(at);
    for class in [1u8, 7, 7, 25, 31] {
        write(&mut i, u64::from(class) * 256, class, &[class; 8192]);
        assert!(read(&mut i, u64::from(class) * 256, 0, 8192) == [class; 8192]);
    }
    let stats = place.json("stats v", "stats");
    let sources = stats["classes"]["sources"].as_array().expect("sources");
    assert_eq!(sources[0]["source"], "front-end");
    assert_eq!(sources[0]["requests"], 5, "the reads came without a class");
    for (class, writes) in [("1", 1), ("7", 2), ("25", 1), ("31", 1)] {
        let row = &stats["by_class"][class];
        assert_eq!(row["requests"].as_u64(), Some(writes), "{class}: {row}");
    }
    // An initiator logs in again after a crash and would not learn that data was lost.
    assert_eq!(
        place.json("status v", "status")["params"]["kept_writes"],
        1.0
    );
    let why = place.fails("set v kept_writes=0");
    assert!(why.contains("iscsi:") && why.contains("stays on"), "{why}");
    let fronts = stats["front_ends"].as_array().expect("front ends");
    assert_eq!(fronts.len(), 2);
    let can = |n: usize| fronts[n]["can"]["classes"].as_bool();
    assert_eq!((can(0), can(1)), (Some(false), Some(true)));
    assert_eq!(fronts[1]["counts"]["clients"], 1);
    let status = place.json("status v", "status");
    let names = status["front_ends"].to_string();
    assert!(
        names.contains("nbd:unix:n") && names.contains(&format!("iscsi:{at}/{TARGET}")),
        "{names}"
    );
    // Data that one client wrote must be read by the other.
    let out = place.tool("nbdcopy", &["nbd+unix:///?socket=n", "all"]);
    assert!(out.status.success());
    let all = std::fs::read(place.path("all")).expect("read");
    assert!(all[7 * 256 * 512..][..8192] == [7; 8192]);
    i.logout().expect("left");
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn what_was_flushed_survives_kill_9_for_a_client_that_comes_back() {
    let place = volume();
    let at = free();
    for round in 1..=3u8 {
        let served = place.serve(&format!("v --iscsi {at}"));
        let mut i = login(at);
        for n in 1..round {
            assert!(
                read(&mut i, u64::from(n) * 2048, 0, 1 << 20) == vec![n; 1 << 20],
                "{n}"
            );
        }
        if round > 1 {
            assert!(read(&mut i, 40_000, 0, 4096) == [round - 1; 4096]);
        }
        write(&mut i, u64::from(round) * 2048, 0, &vec![round; 1 << 20]);
        assert_eq!(i.command(&FLUSH, 0, &[]).expect("answered").status, 0);
        // The write is answered and not flushed: the initiator would not learn that it was lost.
        write(&mut i, 40_000, 0, &[round; 4096]);
        // Only half of this write is sent: it may be lost, and nothing else.
        i.immediate = 512;
        i.begin(
            &Initiator::blocks(WRITE, 50_000, 64, 0, false),
            0,
            &vec![round; 32 << 10],
        )
        .expect("sent");
        served.kill();
        assert!(i.is_closed());
    }
    place.ok("check v");
}

#[test]
fn secrets_are_asked_for_and_kept() {
    let place = volume();
    let file = place.path("secrets");
    std::fs::write(&file, "joe secret-of-joe\n").expect("written");
    let mode =
        |m| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(m)).expect("set");
    let at = free();
    let call = format!("v --iscsi {at} --iscsi-chap secrets");
    mode(0o644);
    assert!(place.fails(&format!("serve {call}")).contains("chmod 600"));
    mode(0o600);
    assert!(
        place
            .fails("serve v --iscsi 0.0.0.0:0")
            .contains("--iscsi-allow-remote")
    );
    let _served = place.serve(&call);
    assert!(Initiator::login(at, "iqn.x:a", TARGET, None).is_err());
    let mut joe =
        Initiator::login(at, "iqn.x:a", TARGET, Some(("joe", "secret-of-joe"))).expect("in");
    write(&mut joe, 0, 0, &[1; 512]);
    let out = place.tool(
        "iscsi-ls",
        &["-s", &format!("iscsi://joe%secret-of-joe@{at}")],
    );
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains(TARGET) && text.contains("Lun:0"), "{text}");
}

#[test]
fn ublk_works_or_is_said_to_be_missing() {
    let place = volume();
    // There is no driver, or it is one that crashes the machine.
    if let Some(reason) = isotherm_live::ublk::missing() {
        let why = place.fails("serve v --ublk");
        assert!(
            why.contains(&reason) && why.contains("--block-file"),
            "{why}"
        );
        println!("skipped: {reason}");
        return;
    }
    let served = place.serve("v --ublk");
    let status = place.json("status v", "status");
    let name = status["front_ends"][0]
        .as_str()
        .and_then(|n| n.strip_prefix("ublk:"))
        .expect("ublk");
    let dd = |args: &[&str]| {
        let out = Command::new("dd").args(args).output().expect("dd");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    };
    let data = place.path("data");
    std::fs::write(&data, vec![0xa5; 1 << 20]).expect("written");
    dd(&[
        &format!("if={}", data.display()),
        &format!("of={name}"),
        "bs=1M",
        "oflag=direct",
        "conv=fsync",
    ]);
    let back = place.path("back");
    dd(&[
        &format!("if={name}"),
        &format!("of={}", back.display()),
        "bs=1M",
        "count=1",
        "iflag=direct",
    ]);
    assert!(std::fs::read(back).expect("read") == vec![0xa5; 1 << 20]);
    place.ok("stop v");
    assert!(!std::path::Path::new(name).exists(), "the device is gone");
    drop(served);
    fits(&status, "status");
}

/// More initiators than there is room for vanish in the middle of a write; others, and clients of NBD, stay there. Neither delays an end,
/// by command or by a signal, and the volume is closed cleanly.
#[test]
fn peers_that_vanish_or_stall_delay_no_end() {
    let place = volume();
    let at = free();
    for signal in [false, true] {
        let served = place.serve(&format!("v --iscsi {at} --nbd unix:n --stop-timeout 0"));
        let in_the_middle = |n: usize| {
            let mut i = Initiator::login(at, &format!("iqn.x:{n}"), TARGET, None).expect("in");
            let mut b = pdu::header(0x01, 0xa0, 7);
            pdu::put(&mut b, 20, 4096);
            pdu::put(&mut b, 24, 1);
            b[32..48].copy_from_slice(&Initiator::blocks(WRITE, 0, 8, 0, false));
            pdu::put_data_len(&mut b, 4096);
            i.send_bytes(&[&b[..], &[1; 100]].concat()).expect("sent");
            i
        };
        (0..70).for_each(|n| drop(in_the_middle(n)));
        wait_for("the sessions to end", || {
            let stats = place.json("stats v", "stats");
            let counts = |n: usize| stats["front_ends"][n]["counts"]["clients"].as_u64();
            (counts(0)? + counts(1)? == 0).then_some(())
        });
        let initiators: Vec<Initiator> = (0..3).map(in_the_middle).collect();
        let mut client = Peer::connect(&place.path("n")).expect("connected");
        client.ask(1, 0, 1 << 20).expect("sent");
        if signal {
            served.signal("TERM");
        } else {
            place.ok("stop v");
        }
        let mut served = served;
        wait_for("the server to end", || served.has_ended().then_some(()));
        assert_eq!(served.end().0, Some(0));
        let told = place.ok("check v");
        assert!(told.contains("closed cleanly"), "{told}");
        drop((initiators, client));
    }
}

/// Where a killed server leaves the records of answered writes; `None`: this machine (or user) has no such place.
fn kept(place: &Place) -> Option<std::path::PathBuf> {
    let description = std::fs::read_to_string(place.path("v.toml")).expect("readable");
    let uuid = description
        .lines()
        .find_map(|l| l.strip_prefix("uuid = \""));
    let uuid = uuid.expect("an identity").trim_end_matches('"').to_owned();
    let files = std::fs::read_dir("/run/isotherm/kept").ok()?;
    let mut paths = files.filter_map(|f| Some(f.ok()?.path()));
    paths.find(|p| p.to_string_lossy().contains(&uuid))
}

/// Answered writes are found after a kill although nothing was flushed. If the memory in which their records were is gone, users of iSCSI,
/// who would not notice, may not go on.
#[test]
fn records_of_answered_writes_outlive_a_killed_server() {
    let place = volume();
    let at = free();
    let options = format!("v --iscsi {at}");
    let served = place.serve(&options);
    let Some(file) = kept(&place) else {
        eprintln!(
            "skipped: there is no place for records that outlive a server (root, and /run on a tmpfs)"
        );
        assert_eq!(served.terminate(), Some(0));
        return;
    };
    let mut i = login(at);
    for n in 0..20u8 {
        write(&mut i, u64::from(n) * 256, 0, &[n + 1; 8192]);
    }
    let commit = &place.json("stats v", "stats")["commit"];
    assert!(commit["kept"].as_u64() >= Some(20), "{commit}");
    served.kill();
    assert!(file.exists(), "it is there for the next server");
    let served = place.serve(&options);
    assert!(!file.exists(), "it is on the device now");
    let mut i = login(at);
    for n in 0..20u8 {
        assert!(
            read(&mut i, u64::from(n) * 256, 0, 8192) == [n + 1; 8192],
            "write {n}"
        );
    }
    write(&mut i, 100_000, 0, &[99; 8192]);
    let file = kept(&place).expect("a session has one");
    served.kill();
    std::fs::remove_file(file).expect("removed");
    let why = place.fails(&format!("serve {options}"));
    assert!(
        why.contains("--accept-loss") && why.contains("answered writes"),
        "{why}"
    );
    // Neither a second try nor a clean end in between makes it forget that.
    assert_eq!(place.serve("v --nbd unix:n").terminate(), Some(0));
    let why = place.fails(&format!("serve {options}"));
    assert!(why.contains("--accept-loss"), "{why}");
    // With consent the volume is served, and that holds from then on.
    let served = place.serve(&format!("{options} --accept-loss"));
    let mut i = login(at);
    assert!(read(&mut i, 0, 0, 8192) == [1; 8192]);
    assert_eq!(served.terminate(), Some(0));
    assert_eq!(place.serve(&options).terminate(), Some(0));
    let file = kept(&place).expect("the mark of a settled volume");
    assert!(file.to_string_lossy().ends_with("-settled"), "{file:?}");
}
