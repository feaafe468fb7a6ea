//! Disks that vanish, fill up at the worst moment, or have another sector size than the disk that they replace.

mod common;
#[path = "worst_days/two_servers.rs"]
mod two_servers;
#[path = "worst_days/two_ways.rs"]
mod two_ways;

use std::fs;

use common::Place;
use common::faulty::Faulty;
use common::loop_device::LoopDevice;
use common::peer::{FLUSH, Peer, wait_for};
use rustix::io::Errno;
use serde_json::{Value, json};

const ENODEV: i32 = Errno::NODEV.raw_os_error();
const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
const MIB: u64 = 1 << 20;

/// A disk of 64 MiB as `bay/NAME`.
fn disk(place: &Place, name: &str) -> Option<Faulty> {
    let backing = place.away("platter");
    let file = fs::File::create(&backing).expect("created");
    file.set_len(64 * MIB).expect("sized");
    Faulty::attach(&backing, &place.path("bay"), name)
}

/// The error number of the answer to a flush.
fn flush(peer: &mut Peer) -> u32 {
    peer.ask(FLUSH, 0, 0).expect("sent");
    peer.answer().expect("answered")
}

fn failure(place: &Place) -> Value {
    wait_for("the failure to be seen", || {
        let status = place.json("status v", "status");
        (status["state"] == json!("failed")).then(|| status["failure"].clone())
    })
}

#[test]
fn a_disk_that_vanishes_fails_the_volume_and_is_found_under_its_new_name() {
    let place = Place::in_memory();
    let Some(disk) = disk(&place, "sdb") else {
        return;
    };
    place.ok("create v --slow bay/sdb --policy linear");
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    for mib in 0..40 {
        peer.write(mib * MIB, &[7; 4096]).expect("written");
    }
    assert_eq!(flush(&mut peer), 0);
    disk.fail(ENODEV);
    // Requests that need the disk fail, and a flush of data that it may have lost fails the volume.
    assert!(peer.read(39 * MIB, 4096).is_err());
    let _ = peer.write(39 * MIB, &[8; 4096]);
    assert_ne!(flush(&mut peer), 0);
    let failure = failure(&place);
    let path = failure["path"].as_str().unwrap_or_default();
    assert!(path.ends_with("bay/sdb"), "{failure}");
    assert_eq!(
        (&failure["errno"], &failure["member"]),
        (&json!(ENODEV), &json!(0))
    );
    drop(peer);
    served.signal("TERM");
    let (code, said) = served.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("volume failed: ") && said.contains("bay/sdb (member 0)"),
        "{said}"
    );
    // If the disk is detached, it is reported as missing; under another name, it is found.
    let why = place.fails("serve v --nbd unix:n");
    assert!(why.contains("sdb"), "{why}");
    disk.come_back("sdc");
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    for mib in 0..40 {
        let got = peer.read(mib * MIB, 4096).expect("read");
        let new = mib == 39 && got == [8; 4096];
        assert!(
            new || got == [7; 4096],
            "{mib} MiB: what was flushed is there"
        );
    }
    drop(peer);
    served.signal("TERM");
    let (code, said) = served.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("bay/sdc now"), "{said}");
}

#[test]
fn room_that_runs_out_at_a_flush_is_final_and_said() {
    let place = Place::in_memory();
    let Some(disk) = disk(&place, "sda") else {
        return;
    };
    place.ok("create v --slow bay/sda --policy linear");
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    peer.write(0, &[1; 4096]).expect("written");
    assert_eq!(flush(&mut peer), 0);
    // As on btrfs or ZFS: every write is accepted, and the lack of space appears at the flush.
    disk.fail_flushes(ENOSPC);
    peer.write(MIB, &[2; 4096]).expect("written");
    assert_ne!(flush(&mut peer), 0);
    let failure = failure(&place);
    assert_eq!(failure["errno"], json!(ENOSPC), "{failure}");
    let reason = failure["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("flush failed"), "{failure}");
    // There is space again. Data that one flush has lost cannot be guaranteed by the next.
    disk.come_back("sda");
    assert_ne!(flush(&mut peer), 0);
    assert!(peer.write(2 * MIB, &[3; 4096]).is_err());
    assert_eq!(peer.read(0, 4096).expect("reads go on"), [1; 4096]);
    drop(peer);
    served.signal("TERM");
    let (code, said) = served.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("no room") && said.contains("bay/sda"),
        "{said}"
    );
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    assert_eq!(peer.read(0, 4096).expect("read"), [1; 4096]);
    let second = peer.read(MIB, 4096).expect("read");
    assert!(
        second == [2; 4096] || second == [0; 4096],
        "its own bytes, or never written"
    );
    drop(peer);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_mount_whose_server_hangs_delays_no_command() {
    let place = Place::in_memory();
    let Some(disk) = disk(&place, "sdb") else {
        return;
    };
    place.ok("create hung --slow bay/sdb --policy linear");
    place.ok("create w --slow other:64M --policy linear");
    disk.hang();
    let (tell, told) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|s| {
        // It is dropped in any failure below, so that no thread waits for it.
        let tell = tell;
        // If the commands hang nevertheless, the test fails and does not hang with them.
        let disk = &disk;
        let watch = s.spawn(move || {
            let in_time = told.recv_timeout(std::time::Duration::from_secs(120));
            disk.go_on();
            in_time.is_ok()
        });
        let run = |call: &'static str| {
            let place = &place;
            s.spawn(move || place.run(call))
        };
        let calls = [
            ("serve hung --nbd unix:n", "does not answer"),
            ("find bay/sdb", "does not answer"),
            ("check hung", "does not answer"),
            ("status hung", "bay/sdb"),
        ];
        let ended = calls.map(|(call, why)| (call, why, run(call)));
        let found = run("find");
        for (call, why, ended) in ended {
            let out = ended.join().expect("it runs");
            let both = [out.stdout, out.stderr].concat();
            let said = String::from_utf8_lossy(&both).into_owned();
            assert!(
                !out.status.success() && said.contains(why),
                "{call}: {said}"
            );
        }
        // A volume elsewhere is found and served, although the dead mount is beside it.
        let out = found.join().expect("it runs");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            text.contains("name = \"w\"") && !text.contains("name = \"hung\""),
            "{text}"
        );
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            said.contains("bay: not looked at") && said.contains("does not answer"),
            "{said}"
        );
        let served = place.serve("w --nbd unix:m --stop-timeout 0");
        assert_eq!(served.terminate(), Some(0));
        tell.send(()).expect("somebody waits");
        assert!(watch.join().expect("it waits"), "a command hung");
    });
}

/// Serves the volume, checks its contents, writes unaligned blocks. Returns standard error.
fn write_blocks(place: &Place, old: u8, new: u8) -> String {
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    for at in [512, 5 * 512, 20 * MIB + 512] {
        assert_eq!(peer.read(at, 512).expect("read"), [old; 512]);
        peer.write(at, &[new; 512]).expect("written");
    }
    assert_eq!(flush(&mut peer), 0);
    drop(peer);
    served.signal("TERM");
    let (code, said) = served.end();
    assert_eq!(code, Some(0), "{said}");
    said
}

#[test]
fn a_member_copied_to_a_disk_with_larger_sectors_is_served_all_the_same() {
    let place = Place::in_memory();
    let file = fs::File::create(place.path("s")).expect("created");
    file.set_len(64 * MIB).expect("sized");
    let Some(small) = LoopDevice::over(&place, &["--sector-size", "512"], "s") else {
        return;
    };
    let made = place.json(
        &format!("create v --slow {} --policy linear", small.0),
        "create",
    );
    assert_eq!(made["block_bytes"], json!(512));
    let said = write_blocks(&place, 0, 1);
    assert!(!said.contains("page cache"), "{said}");
    drop(small);
    fs::copy(place.path("s"), place.path("t")).expect("copied");
    fs::create_dir(place.path("away")).expect("made");
    fs::rename(place.path("s"), place.path("away/s")).expect("renamed");
    let Some(large) = LoopDevice::over(&place, &["--sector-size", "4096"], "t") else {
        return;
    };
    let text = fs::read_to_string(place.path("v.toml")).expect("read");
    let was = made["members"][0]["path"].as_str().expect("a path");
    fs::write(place.path("v.toml"), text.replace(was, &large.0)).expect("written");
    for (old, new) in [(1, 2), (2, 3)] {
        let said = write_blocks(&place, old, new);
        assert!(said.contains("sectors of 4096 bytes"), "{said}");
    }
    assert_eq!(place.json("check v", "check")["ok"], json!(true));
}

/// The same bytes through another way, which no lock covers, as another machine would have them.
fn behind(place: &Place, name: &str) -> Option<Faulty> {
    Faulty::attach(&place.path(name), &place.path("san"), "lun")
}

/// A second description whose only member is reached that way.
fn second(place: &Place) {
    let text = fs::read_to_string(place.path("v.toml")).expect("read");
    let was = place.path("s");
    let lun = place.path("san/lun");
    let text = text.replace(was.to_str().expect("text"), lun.to_str().expect("text"));
    fs::create_dir(place.path("other")).expect("made");
    fs::write(place.path("other/v.toml"), text).expect("written");
}

/// A server is killed while its disk is busy: its requests are still in progress when an administrator starts it again.
#[test]
fn a_restart_after_a_kill_waits_for_what_is_under_way_and_says_so() {
    let place = Place::in_memory();
    place.ok("create v --slow s:64M --policy linear");
    let Some(disk) = behind(&place, "s") else {
        return;
    };
    second(&place);
    let served = place.serve("other/v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    peer.write(0, &[1; 4096]).expect("written");
    assert_eq!(flush(&mut peer), 0);
    disk.hold_writes();
    for mib in 1..9 {
        peer.ask(common::peer::WRITE, mib * MIB, 4096)
            .expect("sent");
        std::io::Write::write_all(&mut peer.0, &[2; 4096]).expect("sent");
    }
    wait_for("writes to be under way", || (disk.held() > 0).then_some(()));
    let old = served.child.id();
    served.signal("KILL");
    let mut again = place.command("serve other/v --nbd unix:m --stop-timeout 0");
    again
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut again = again.spawn().expect("the program starts");
    // A wait that is longer than an administrator in a hurry would wait.
    std::thread::sleep(std::time::Duration::from_secs(11));
    let (ended, held) = (again.try_wait().expect("waited"), disk.held());
    // This comes before any assertion that can fail: the killed server must be able to end.
    disk.go_on();
    assert!(
        ended.is_none(),
        "it did not wait: {:?}",
        again.wait_with_output()
    );
    assert!(held > 0);
    let mut out = std::io::BufReader::new(again.stdout.take().expect("piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).expect("read");
    assert_eq!(line, "ready\n");
    served.kill();
    let again = common::Served { child: again };
    let mut peer = Peer::connect(&place.path("m")).expect("connected");
    assert_eq!(peer.read(0, 4096).expect("read"), [1; 4096]);
    drop(peer);
    again.signal("TERM");
    let (code, said) = again.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(&format!("is held by process {old}, which was ended")),
        "{said}"
    );
}
