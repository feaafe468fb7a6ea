//! The block file under a loop device and a file system, and the mount that a killed server leaves behind.

use super::{MIB, can_mount, errno, fill, open, run, seen, serve};
use isotherm_live::block_file::testing::MemPort;
use isotherm_live::block_file::{Options, mount};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A loop device, which is detached at the end of the test in any case.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg(&self.0)
            .stderr(Stdio::null())
            .status();
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_file_system_on_a_loop_device_survives() {
    if !can_mount() {
        return;
    }
    let have = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !Path::new("/dev/loop-control").exists()
        || !have("losetup")
        || !have("mkfs.ext4")
        || !have("fsck.ext4")
    {
        eprintln!("skipped: needs loop devices, losetup and e2fsprogs");
        return;
    }
    let served = serve(MemPort::new(128 * MIB, 4096));
    let file = served.mount.file().to_str().unwrap();
    let device = run("losetup", &["--direct-io=on", "--find", "--show", file]);
    let device = Loop(device.trim().to_owned());
    let direct = run("losetup", &["-n", "-O", "DIO", &device.0]);
    assert_eq!(direct.trim(), "1");
    run("mkfs.ext4", &["-q", &device.0]);
    assert!(
        seen(&served.memory.counts.discarded) >= 100 * MIB,
        "mkfs discards the device"
    );

    let scratch = tempfile::tempdir().unwrap();
    let top = scratch.path().to_str().unwrap();
    run("mount", &[&device.0, top]);
    let mut block = vec![0; 300_000];
    for n in 0..100 {
        fill(&mut block, n, 1);
        std::fs::write(scratch.path().join(format!("file{n}")), &block).unwrap();
    }
    for n in (0..100).step_by(3) {
        std::fs::remove_file(scratch.path().join(format!("file{n}"))).unwrap();
    }
    run("sync", &["-f", top]);
    assert!(seen(&served.memory.counts.flushes) > 0);
    run("fstrim", &[top]);
    run("umount", &[top]);
    run("fsck.ext4", &["-fn", &device.0]);
    run("mount", &["-o", "ro", &device.0, top]);
    for n in (0..100).filter(|n| n % 3 != 0) {
        fill(&mut block, n, 1);
        assert!(
            std::fs::read(scratch.path().join(format!("file{n}"))).unwrap() == block,
            "file{n}"
        );
    }
    run("umount", &[top]);
}

/// This is not a test: the process that the next test kills runs it.
#[test]
#[ignore = "a helper process"]
fn serve_until_killed() {
    let dir = std::env::var("BLOCK_FILE_DIR").unwrap();
    let _mount = mount(
        Arc::new(MemPort::new(MIB, 512)),
        Path::new(&dir),
        "volume",
        &Options::default(),
    )
    .unwrap();
    println!("\nready");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn a_dead_mount_is_cleared_away() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "programs::serve_until_killed",
                "--ignored",
                "--nocapture",
            ])
            .env("BLOCK_FILE_DIR", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = Vec::new();
        let mut output = child.stdout.take().unwrap();
        let mut byte = [0];
        while !said.ends_with(b"ready") && output.read(&mut byte).unwrap() == 1 {
            said.push(byte[0]);
        }
        assert!(
            said.ends_with(b"ready"),
            "{}",
            String::from_utf8_lossy(&said)
        );
        assert!(open(&dir.path().join("volume"), 0).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(errno(std::fs::read_dir(dir.path())), Some(Errno::NOTCONN));
        // The process of the second round finds the dead mount of the first.
    }
    let mut mount = mount(
        Arc::new(MemPort::new(MIB, 512)),
        dir.path(),
        "volume",
        &Options::default(),
    )
    .unwrap();
    assert!(open(mount.file(), 0).is_ok());
    mount.unmount().unwrap();
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "nothing is left below either"
    );
}
