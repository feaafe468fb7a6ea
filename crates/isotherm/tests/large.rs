//! Volumes of a hundred terabytes, on sparse files: metadata and memory stay within bounds, and what no memory holds is refused.

mod common;

use std::fs::{self, File};
use std::process::Command;

use common::Place;
use common::peer::{FLUSH, Peer};
use serde_json::json;

const TB: u64 = 1_000_000_000_000;

/// A loop device over a sparse file, detached at the end: of files `create` would set room aside for metadata.
struct Disk(String);

impl Disk {
    fn of(place: &Place, name: &str, bytes: u64) -> Option<Disk> {
        let made = File::create(place.path(name)).and_then(|f| f.set_len(bytes));
        if let Err(e) = made {
            println!("skipped: no sparse file of {bytes} bytes here: {e}");
            return None;
        }
        let out = place.tool("losetup", &["--find", "--show", name]);
        if out.status.success() {
            return Some(Disk(String::from_utf8_lossy(&out.stdout).trim().to_owned()));
        }
        println!("skipped: {}", String::from_utf8_lossy(&out.stderr));
        None
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Best effort: a test that failed has said why.
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

fn kib(file: &str, key: &str) -> u64 {
    let text = fs::read_to_string(file).expect("procfs");
    let line = text.lines().find_map(|l| l.strip_prefix(key));
    let value = line.and_then(|l| l.split_whitespace().next());
    value.expect("there").parse::<u64>().expect("a number") << 10
}

#[test]
fn a_hundred_terabytes_are_served_within_bounds() {
    let place = Place::in_memory();
    if kib("/proc/meminfo", "MemAvailable:") < 4_000_000_000 {
        println!("skipped: less than 4 GB of memory to be had");
        return;
    }
    let disks = (
        Disk::of(&place, "fast", 2 * TB),
        Disk::of(&place, "slow", 100 * TB),
    );
    let (Some(fast), Some(slow)) = disks else {
        return;
    };
    let call = format!("create v --fast {} --slow {} --extent 1M", fast.0, slow.0);
    let made = place.json(&call, "create");
    for member in 0..2 {
        let size = [2 * TB, 100 * TB][member];
        let bytes = made["members"][member]["bytes"].as_u64().expect("a number");
        println!("member {member}: {} bytes of metadata", size - bytes);
        assert!(size - bytes <= 10_000_000_000);
    }
    let volume = made["volume_bytes"].as_u64().expect("a number");
    let places: Vec<u64> = (0..1000).map(|i| volume / 1000 * i / 4096 * 4096).collect();
    for life in 0..2 {
        let served = place.serve("v --nbd unix:n --stop-timeout 0");
        let mut peer = Peer::connect(&place.path("n")).expect("connected");
        for &at in &places {
            let got = peer.read(at, 8192).expect("read");
            let old = if life == 0 { 0 } else { (at >> 30) as u8 };
            assert!(
                got[..4096] == [old; 4096] && got[4096..] == [0; 4096],
                "at {at}"
            );
            peer.write(at, &[(at >> 30) as u8; 4096]).expect("written");
        }
        peer.ask(FLUSH, 0, 0).expect("sent");
        assert_eq!(peer.answer().expect("answered"), 0);
        let peak = kib(&format!("/proc/{}/status", served.child.id()), "VmHWM:");
        println!("life {life}: {peak} bytes of memory at most");
        assert!(peak <= 2_500_000_000, "{peak} bytes");
        drop(peer);
        // As a crash: the journal is replayed into an empty map. (Closing in order looks at every extent: a minute where
        // nothing is optimised.)
        served.kill();
    }
    let check = place.json("check v", "check");
    assert_eq!(
        (&check["ok"], &check["mapped_extents"]),
        (&json!(true), &json!(places.len()))
    );
}

#[test]
fn what_no_memory_holds_is_refused_with_figures() {
    let place = Place::in_memory();
    let disks = (
        Disk::of(&place, "fast", 2 * TB),
        Disk::of(&place, "slow", 100 * TB),
    );
    let (Some(fast), Some(slow)) = disks else {
        return;
    };
    let call = format!("create v --fast {} --slow {} --extent 64K", fast.0, slow.0);
    if kib("/proc/meminfo", "MemTotal:") > 40_000_000_000 {
        println!("skipped: this machine has the memory");
        return;
    }
    let why = place.fails(&call);
    assert!(
        why.contains("GiB of memory") && why.contains("larger extents"),
        "{why}"
    );
    assert!(!place.path("v.toml").exists());
}
