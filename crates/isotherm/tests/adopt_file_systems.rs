//! Real file systems that fill their devices are adopted with a tail device, used, and given back. It needs loop devices, and skips the file
//! systems whose tools are not installed.

mod common;

use common::loop_device::LoopDevice;
use common::{Place, Served};
use std::fs;
use std::path::Path;
use std::process::Command;

const DEVICE: u64 = (320 << 20) + (12 << 10);

/// A file system: its maker and checker, with the device at the end.
const KINDS: [(&str, &[&str], &[&str]); 3] = [
    ("ext4", &["mkfs.ext4", "-q"], &["e2fsck", "-fn"]),
    ("xfs", &["mkfs.xfs", "-q"], &["xfs_repair", "-n"]),
    ("btrfs", &["mkfs.btrfs", "-q"], &["btrfs", "check"]),
];

fn run(words: &[&str]) -> String {
    let out = Command::new(words[0]).args(&words[1..]).output();
    let out = out.unwrap_or_else(|e| panic!("{words:?}: {e}"));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{words:?}: {said}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn has(program: &str) -> bool {
    Command::new(program).arg("-V").output().is_ok()
}

/// A mount that ends with this value.
struct Mount<'a>(&'a str);

impl<'a> Mount<'a> {
    fn of(device: &str, at: &'a str) -> Mount<'a> {
        run(&["mount", "-o", "noatime", device, at]);
        Mount(at)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

fn serve(place: &Place) -> (Served, String) {
    let mut command = place.command("serve v --loop");
    command.env("ISOTHERM_DEVICE_DIR", place.path("dev"));
    let served = Place::wait_ready(command, "v --loop");
    (served, place.path("dev/v").display().to_string())
}

fn round((name, make, check): (&str, &[&str], &[&str]), sectors: &str) {
    let place = Place::new();
    for (file, bytes) in [("d", DEVICE), ("t", 8 << 20)] {
        let made = fs::File::create(place.path(file));
        made.and_then(|f| f.set_len(bytes)).expect("sized");
    }
    for dir in ["dev", "mnt"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    let sector = ["--sector-size", sectors];
    // The data has sectors of 512 bytes or more; the tail has others.
    let (Some(data), Some(tail)) = (
        LoopDevice::over(&place, &sector, "d"),
        LoopDevice::over(&place, &[], "t"),
    ) else {
        return;
    };
    let mount_point = place.path("mnt").display().to_string();
    let (data, tail) = (&data.0, &tail.0);
    run(&[make, &[data]].concat());
    let fill = |from: u8| {
        for i in from..from + 8 {
            let bytes = vec![i; 3 << 20];
            fs::write(Path::new(&mount_point).join(i.to_string()), bytes).expect("written");
        }
    };
    let holds = |to: u8| {
        for i in 0..to {
            let bytes = fs::read(Path::new(&mount_point).join(i.to_string())).expect("read");
            assert!(
                bytes.len() == 3 << 20 && bytes.iter().all(|&b| b == i),
                "{name}: {i}"
            );
        }
    };
    {
        let _mount = Mount::of(data, &mount_point);
        fill(0);
    }
    let before = fs::read(place.path("d")).expect("read");
    let adopt = format!("adopt v {data} --tail {tail} --fast f:32M --yes");
    place.ok(&adopt);
    place.ok("release v --yes");
    let differs = fs::read(place.path("d")).expect("read") != before;
    assert!(!differs, "{name}: an unused volume gives other bytes back");
    place.ok(&adopt);
    let (served, device) = serve(&place);
    {
        let _mount = Mount::of(&device, &mount_point);
        holds(8);
        fill(8);
        holds(16);
    }
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0), "{name}");
    let (served, device) = serve(&place);
    {
        let _mount = Mount::of(&device, &mount_point);
        holds(16);
    }
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0), "{name}");
    place.ok("release v --yes");
    run(&[check, &[data]].concat());
    {
        let _mount = Mount::of(data, &mount_point);
        holds(16);
    }
    run(&[check, &[data]].concat());
}

#[test]
fn file_systems_that_fill_their_devices_are_adopted() {
    for kind in KINDS {
        if !has(kind.1[0]) {
            println!("skipped: no {}", kind.1[0]);
            continue;
        }
        for sectors in ["512", "4096"] {
            round(kind, sectors);
        }
    }
}
