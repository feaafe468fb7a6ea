//! A real file system on the block file: ext4 through a loop device, postmark, a kill -9 during the work, fsck.

mod proof;

use proof::{Loop, Mounted, Place, Shape, able, output, run, seed};
use std::process::{Command, Stdio};
use std::time::Duration;

fn small() -> Shape {
    Shape {
        fast: "32M",
        slow: "256M",
        ..Shape::default()
    }
}

/// `fsck` must find nothing to repair in a forced check.
fn clean(device: &str) {
    let out = output(Command::new("fsck.ext4").args(["-f", "-n", device]));
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "fsck: {}\n{text}", out.status);
}

fn postmark(place: &Place, dir: &str, transactions: u32, seed: u64) -> std::process::Child {
    let script = format!(
        "set location {dir}\nset size 500 40000\nset number 1500\nset transactions {transactions}\nset seed {}\nrun\nquit\n",
        seed % 1_000_000
    );
    let file = place.path("postmark.txt");
    std::fs::write(&file, script).expect("written");
    Command::new("postmark")
        .arg(file)
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("postmark starts")
}

#[test]
fn ext4_and_postmark_leave_a_clean_file_system() {
    if !able(&["postmark", "mkfs.ext4", "fsck.ext4", "losetup"], true) {
        return;
    }
    let seed = seed();
    let mut place = Place::new(&small());
    let disk = Loop::over(&place.serve_file());
    run("mkfs.ext4", &["-q", "-F", &disk.0]);
    let mounted = Mounted::new(&disk.0, place.path("fs"));
    let dir = mounted.0.display().to_string();
    let mut work = postmark(&place, &dir, 3000, seed);
    assert!(proof::wait(&mut work, "postmark").success());
    // Files that stay during the whole life of the volume, for comparison.
    std::fs::create_dir(mounted.0.join("kept")).expect("made");
    let kept = mounted.0.join("kept/data");
    let data: Vec<u8> = (0u64..1 << 20)
        .flat_map(|i| (i ^ seed).to_le_bytes())
        .collect();
    std::fs::write(&kept, &data).expect("written");
    run("sync", &["-f", &dir]);
    // The server dies during the work of a file system.
    let mut work = postmark(&place, &dir, 1_000_000, seed + 1);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(place.is_serving());
    place.kill();
    let _ = work.kill();
    proof::wait(&mut work, "postmark");
    drop(mounted);
    drop(disk);

    let disk = Loop::over(&place.serve_file());
    // Mounting replays ext4's own journal: all data that ext4 had flushed must be there, in order.
    let mounted = Mounted::new(&disk.0, place.path("fs"));
    assert!(
        std::fs::read(mounted.0.join("kept/data")).expect("the synced file") == data,
        "a synced file changed"
    );
    mounted.unmount();
    clean(&disk.0);
    let mounted = Mounted::new(&disk.0, place.path("fs"));
    let mut work = postmark(&place, &mounted.0.display().to_string(), 1000, seed + 2);
    assert!(proof::wait(&mut work, "postmark").success());
    mounted.unmount();
    clean(&disk.0);
    drop(disk);
    place.stop();
    place.check();
    let disk = Loop::over(&place.serve_file());
    clean(&disk.0);
    drop(disk);
    place.stop();
}

/// The README's demo on a small scale, only its trace: at full size postmark would sometimes be killed because memory is short.
#[test]
fn the_demo_replays_its_trace() {
    let dir = tempfile::tempdir().expect("a directory");
    let figures = dir.path().join("demo.json");
    let small = "demo --quiet --skip-postmark --limit 200 --json";
    let mut demo = Command::new(env!("CARGO_BIN_EXE_isotherm"));
    demo.args(small.split(' ')).arg(&figures);
    let out = output(demo.current_dir(dir.path()));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    let text = std::fs::read_to_string(&figures).expect("figures");
    let figures: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let runs = figures["rows"].as_array().map_or(0, Vec::len);
    assert_eq!(runs, 3, "{text}");
}
