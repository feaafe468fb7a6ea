//! A file system on the volume's device grows while it is mounted.

use super::machine::{Machine, has_loops, wait_for};
use crate::common::{self, is_unclaimed};
use serde_json::json;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a tool that must succeed; returns standard output.
fn tool(m: &Machine, program: &str, args: &[&str]) -> String {
    let out = m.0.tool(program, args);
    let why = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program}: {why}");
    String::from_utf8(out.stdout).expect("text")
}

/// Unmounts at the end of a test that failed, before the server is killed.
struct Mounted(String);

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        // After a test that passed, nothing is mounted there.
        let _ = umount.args(["-l", &self.0]).stderr(Stdio::null()).status();
    }
}

/// Unmounts, and waits until the device is free.
fn unmount(at: &str, device: &str) {
    common::unmount(at.as_ref());
    wait_for("the device to be free", || is_unclaimed(device.as_ref()));
}

fn noise(seed: u64, mib: usize) -> Vec<u8> {
    let mut bytes = vec![0; mib << 20];
    isotherm_core::random::SplitMix64::new(seed).fill(&mut bytes);
    bytes
}

/// Writes a file again and again, durably, until `over` is set; returns the last content.
fn rewrite(file: &Path, over: &AtomicBool) -> u8 {
    let mut content = 0u8;
    while !over.load(Ordering::Relaxed) {
        content = content.wrapping_add(1);
        let mut f = File::create(file).expect("made");
        f.write_all(&vec![content; 1 << 20]).expect("written");
        f.sync_all().expect("durable");
    }
    content
}

/// The file system is XFS, because the growth of ext4 takes one more privilege (`CAP_SYS_RESOURCE`), which root in a container may lack.
#[test]
fn a_mounted_file_system_grows_with_its_volume() {
    let there = |t: &&str| Command::new(t).arg("-V").output().is_ok();
    if !has_loops() || !["mkfs.xfs", "xfs_growfs", "xfs_repair"].iter().all(there) {
        println!("skipped: no loop devices or no tools of XFS");
        return;
    }
    let m = Machine::new();
    let dir = m.0.path("etc").display().to_string();
    m.ok(&format!(
        "create {dir}/v --fast {dir}/v.fast:16M --slow {dir}/v.slow:400M"
    ));
    let served = m.serve("v --loop");
    let link = m.0.path("dev/v").display().to_string();
    let at = m.0.path("at").display().to_string();
    fs::create_dir(&at).expect("made");
    tool(&m, "mkfs.xfs", &["-q", &link]);
    let _mounted = Mounted(at.clone());
    tool(&m, "mount", &[&link, &at]);
    let size = || {
        let out = tool(&m, "df", &["-B1", "--output=size", &at]);
        let last = out.lines().last().expect("a size").trim().to_owned();
        last.parse::<u64>().expect("a number")
    };
    let file = |name: &str| m.0.path("at").join(name);
    fs::write(file("a"), noise(1, 100)).expect("written");
    let over = Arc::new(AtomicBool::new(false));
    let (stop, other) = (Arc::clone(&over), file("b"));
    let writer = std::thread::spawn(move || rewrite(&other, &stop));
    let before = size();
    for mib in [600, 1000] {
        let slow = OpenOptions::new().write(true).open(m.0.path("etc/v.slow"));
        (slow.and_then(|f| f.set_len(mib << 20))).expect("resized");
        let grown = m.json("grow v", "grow");
        let device = fs::canonicalize(&link).expect("a device");
        let name = device.file_name().expect("a name").to_string_lossy();
        let sectors = fs::read_to_string(format!("/sys/block/{name}/size")).expect("read");
        let sectors: u64 = sectors.trim().parse().expect("a number");
        assert_eq!(json!(sectors << 9), grown["volume_bytes"], "{grown}");
        tool(&m, "xfs_growfs", &[&at]);
    }
    assert!(size() > before + (500 << 20), "{before} and {}", size());
    // More than the old volume could hold.
    fs::write(file("c"), noise(2, 500)).expect("written");
    over.store(true, Ordering::Relaxed);
    let last = writer.join().expect("no panic");
    unmount(&at, &link);
    m.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    let served = m.serve("v --loop");
    tool(&m, "mount", &["-o", "ro", &link, &at]);
    assert!(fs::read(file("a")).expect("read") == noise(1, 100));
    assert!(fs::read(file("c")).expect("read") == noise(2, 500));
    assert!(fs::read(file("b")).expect("read") == vec![last; 1 << 20]);
    unmount(&at, &link);
    tool(&m, "xfs_repair", &["-n", &link]);
    m.ok("stop v");
    assert_eq!(served.end().0, Some(0));
}
