//! Faults below a volume: a truncated member, a full host file system.

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

use common::Place;
use common::peer::{FLUSH, Peer, wait_for};
use serde_json::json;

const MIB: u64 = 1 << 20;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn resize(place: &Place, name: &str, bytes: u64) {
    let file = OpenOptions::new()
        .write(true)
        .open(place.path(name))
        .expect("opened");
    file.set_len(bytes).expect("resized");
}

#[test]
fn a_member_cut_while_serving_is_named_and_never_reads_as_zeros() {
    cut_while_serving("s:64M", |_| ());
}

/// The same after the member became longer while it was served: it must keep its new size.
#[test]
fn a_member_cut_after_a_growth_is_named_and_never_reads_as_zeros() {
    cut_while_serving("s:40M", |place| {
        resize(place, "s", 64 * MIB);
        place.ok("grow v");
    });
}

/// `change` may change the members of the volume, so that it has 64 MiB afterwards.
fn cut_while_serving(member: &str, change: impl Fn(&Place)) {
    let place = Place::in_memory();
    place.ok(&format!("create v --slow {member} --policy linear"));
    let mut served = place.serve("v --nbd unix:n --stop-timeout 0");
    change(&place);
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    for mib in 0..48 {
        peer.write(mib * MIB, &vec![7; MIB as usize])
            .expect("written");
    }
    assert_eq!(place.json("status v", "status")["failure"], json!(null));
    resize(&place, "s", 32 * MIB);
    wait_for("the failure to be seen", || {
        // Every answer must be an error or the written data, never zeros from a hole.
        for mib in [1, 30, 45] {
            match peer.read(mib * MIB, 4096) {
                Ok(data) => assert_eq!(data, [7; 4096], "at {mib} MiB"),
                Err(e) => assert_eq!(e.raw_os_error(), Some(EIO)),
            }
        }
        (place.json("status v", "status")["state"] == json!("failed")).then_some(())
    });
    // A write beyond the cut would extend the file again, with a hole before it.
    assert!(peer.write(47 * MIB, &[8; 4096]).is_err());
    assert!(peer.read(45 * MIB, 4096).is_err());
    peer.ask(FLUSH, 0, 0).expect("sent");
    assert_eq!(peer.answer().expect("answered"), EIO as u32);
    for command in ["status", "stats"] {
        let failure = place.json(&format!("{command} v"), command)["failure"].clone();
        let (reason, path) = (failure["reason"].as_str(), failure["path"].as_str());
        assert!(
            reason.is_some_and(|r| r.contains("cut short to 33554432 bytes"))
                && path.is_some_and(|p| p.ends_with("/s")),
            "{failure}"
        );
    }
    assert_eq!(place.path("s").metadata().expect("there").len(), 32 * MIB);
    served.signal("TERM");
    wait_for("the server to end", || served.has_ended().then_some(()));
    let (code, stderr) = served.end();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("volume failed: ") && stderr.contains("/s (member 0)"),
        "{stderr}"
    );
    // `serve` reports it before it serves anything, and so does `check`.
    assert!(place.fails("serve v --nbd unix:n").contains("cut short"));
    let check = place.run("check v --json");
    assert_eq!(check.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&check.stdout).contains("it was cut short"));
}

/// A small file system, which is unmounted at the end of the test in any case.
struct Small(std::path::PathBuf);

impl Small {
    fn mounted(place: &Place, size: &str) -> Option<Small> {
        let dir = place.path("small");
        std::fs::create_dir(&dir).expect("made");
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&dir)
            .output()
            .expect("util-linux");
        if done.status.success() {
            return Some(Small(dir));
        }
        println!(
            "skipped: cannot mount: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        None
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // With a lazy unmount, a server that a failed test left behind ends after this.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_host_file_system_fails_the_write_that_needed_room_and_nothing_else() {
    let place = Place::new();
    let Some(small) = Small::mounted(&place, "24m") else {
        return;
    };
    place.ok("create v --slow small/s:64M --policy linear");
    let allocated = small.0.join("s").metadata().expect("there").blocks() * 512;
    assert!(
        (MIB..8 * MIB).contains(&allocated),
        "metadata has its room: {allocated} bytes"
    );
    std::fs::write(small.0.join("filler"), vec![1; 8 << 20]).expect("written");
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    let block = vec![5; MIB as usize];
    let full = (0..48).find(|mib| match peer.write(mib * MIB, &block) {
        Ok(()) => false,
        Err(e) => {
            assert_eq!(e.raw_os_error(), Some(ENOSPC), "at {mib} MiB");
            true
        }
    });
    let full = full.expect("24 MiB do not hold 48");
    let good = |peer: &mut Peer| {
        peer.ask(FLUSH, 0, 0).expect("sent");
        assert_eq!(peer.answer().expect("answered"), 0, "flushes go on");
        assert_eq!(peer.read(0, 4096).expect("reads go on"), [5; 4096]);
    };
    good(&mut peer);
    peer.write(0, &[5; 4096])
        .expect("what has its room is written");
    let status = place.json("status v", "status");
    assert_eq!(
        (&status["state"], &status["failure"]),
        (&json!("serving"), &json!(null))
    );
    // When there is room again, the volume continues without a restart.
    std::fs::remove_file(small.0.join("filler")).expect("removed");
    peer.write(full * MIB, &block).expect("written");
    good(&mut peer);
    assert_eq!(peer.read(full * MIB, 4096).expect("read"), [5; 4096]);
    drop(peer);
    assert_eq!(served.terminate(), Some(0));
    assert_eq!(place.json("check v", "check")["ok"], json!(true));
    // With --preallocate the lack of room is reported at once, and no file stays.
    let why = place.fails("create w --slow small/t:64M --policy linear --preallocate");
    assert!(why.contains("no room for the member"), "{why}");
    assert!(!small.0.join("t").exists() && !place.path("w.toml").exists());
    std::fs::remove_file(small.0.join("s")).expect("removed");
    place.ok("create w --slow small/t:16M --policy linear --preallocate");
    let file = OpenOptions::new()
        .read(true)
        .open(small.0.join("t"))
        .expect("opened");
    assert!(file.metadata().expect("there").blocks() * 512 >= 15 * MIB);
    file.read_exact_at(&mut [0; 8], 0).expect("read");
}
