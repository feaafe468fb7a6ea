//! `classify` that runs for long: the file system is unmounted meanwhile, and the server of the volume is restarted.

mod common;
mod proof;

use proof::{Loop, Mounted, PATIENCE, Place, Shape, able, output, run};
use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Ends the program at the end of the test in any case.
struct Classifier(Child);

impl Drop for Classifier {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a file has this text at least `n` times.
fn says(place: &Place, file: &str, text: &str, n: usize) {
    let until = Instant::now() + PATIENCE;
    loop {
        let all = fs::read_to_string(place.path(file)).expect("read");
        if all.matches(text).count() >= n {
            return;
        }
        assert!(Instant::now() < until, "{file} has not `{text}`: {all}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn goes_on(option: &str) {
    let mut place = Place::new(&Shape {
        policy: "dss-lru-s",
        ..Shape::default()
    });
    let disk = Loop::over(&place.serve_file());
    // Once it was examined, an empty volume is said to have no file system.
    let until = Instant::now() + PATIENCE;
    loop {
        let shown = output(&mut place.isotherm("classes show v")).stdout;
        let shown = String::from_utf8(shown).expect("text");
        if shown.contains("layout: no ext2, ext3, ext4 or XFS on the volume") {
            break;
        }
        assert!(Instant::now() < until, "{shown}");
        std::thread::sleep(Duration::from_millis(100));
    }
    run("mkfs.ext4", &["-q", "-F", &disk.0]);
    let mounted = Mounted::new(&disk.0, place.path("fs"));
    fs::write(mounted.0.join("one"), vec![7; 100_000]).expect("written");
    run("sync", &["-f", &mounted.0.display().to_string()]);
    let mut classify = place.isotherm(&format!("classify --fs fs --volume v {option} --json"));
    let file = |name: &str| File::create(place.path(name)).expect("made");
    classify.stdout(file("out")).stderr(file("err"));
    let classify = classify.stdin(Stdio::null()).spawn().expect("starts");
    let mut classify = Classifier(classify);
    says(&place, "out", "\"files\"", 1);
    mounted.unmount();
    says(&place, "err", "tried again every 1 s", 1);
    drop(disk);
    place.stop();
    says(&place, "err", "tried again every 1 s", 2);
    assert!(classify.0.try_wait().expect("asked").is_none(), "it ended");
    let disk = Loop::over(&place.serve_file());
    let mounted = Mounted::new(&disk.0, place.path("fs"));
    fs::write(mounted.0.join("two"), vec![7; 100_000]).expect("written");
    run("sync", &["-f", &mounted.0.display().to_string()]);
    let before = fs::read_to_string(place.path("out")).expect("read");
    says(
        &place,
        "out",
        "\"files\"",
        before.matches("\"files\"").count() + 1,
    );
    // A round in which nothing failed in between: the same failure is said once, and not in each round.
    let err = fs::read_to_string(place.path("err")).expect("read");
    assert!(err.lines().count() <= 6, "{err}");
    drop(classify);
    mounted.unmount();
    drop(disk);
    place.stop();
}

#[test]
fn classify_goes_on_when_its_file_system_and_its_server_return() {
    if able(&["mkfs.ext4", "losetup", "fusermount3", "sync"], true) {
        goes_on("--every 1");
    }
}

#[test]
fn the_watch_of_changes_goes_on_when_the_file_system_returns() {
    if able(&["mkfs.ext4", "losetup", "fusermount3", "sync"], true) {
        goes_on("--every 1 --watch");
    }
}
