//! A file system below a tier becomes read-only after an error while it is mounted.

use crate::trouble::{Unmount, slow_disk};
use crate::world::{World, run};
use isotherm_files::mover::{Outcome, Why};
use rustix::io::Errno;
use std::fs::{self, OpenOptions};
use std::io::Write;

/// Reports an error to the ext4 of the slow tier. Returns false if this kernel cannot.
fn break_slow_disk(w: &World) -> bool {
    use std::os::unix::fs::MetadataExt;
    let dev = fs::metadata(w.root.join("slow")).unwrap().dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let name = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap();
    let name = name.file_name().unwrap().to_str().unwrap().to_owned();
    fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1").is_ok()
}

/// Its files stay, can be read and are refused to whoever changes them; every other file and name works on, and `status` says why.
#[test]
fn a_tier_that_becomes_read_only_takes_only_changes_of_its_files_along() {
    let Some((mut w, disk)) = slow_disk(|_| {}) else {
        return;
    };
    run("mount -o remount,errors=remount-ro slow", &w.root);
    w.mount();
    fs::create_dir(w.at("both")).unwrap();
    for f in ["both/s", "both/t", "both/open"] {
        fs::write(w.at(f), vec![7u8; 8192]).unwrap();
        assert_eq!(w.send(f, 1), Outcome::Done);
    }
    fs::write(w.at("both/f"), "f").unwrap();
    let mut open = OpenOptions::new()
        .append(true)
        .open(w.at("both/open"))
        .unwrap();
    rustix::fs::sync();
    if !break_slow_disk(&w) {
        println!("SKIPPED: this kernel cannot report an error to ext4");
        return;
    }
    // Nobody has tried to change anything since: the first one to find out is the mover, which has read the file from memory.
    assert_eq!(w.send("both/s", 0), Outcome::Failed(Errno::ROFS));
    assert_eq!(w.send("both/t", 0), Outcome::Refused(Why::ReadOnly));
    assert_eq!(w.send("both/f", 1), Outcome::Refused(Why::ReadOnly));
    let status = w.ask("", "status");
    assert_eq!(status["state"], "degraded", "{status}");
    assert_eq!(status["tiers"][1]["read_only"], true, "{status}");
    assert_eq!(status["tiers"][0]["read_only"], false, "{status}");
    let said: Vec<_> = status["said"].as_array().unwrap().iter().collect();
    assert_eq!(said.len(), 1, "once for all files: {status}");
    assert!(said[0].to_string().contains("read-only"), "{status}");
    // Changes on that tier are refused, and none of them stops the others.
    let refused = [
        open.write_all(b"x"),
        fs::remove_file(w.at("both/s")),
        fs::rename(w.at("both/s"), w.at("x")),
        fs::rename(w.at("both/f"), w.at("both/s")),
        fs::rename(w.at("both"), w.at("x")),
        fs::remove_dir_all(w.at("both")),
    ];
    for (i, e) in refused.into_iter().enumerate() {
        let e = e.unwrap_err();
        assert_eq!(Errno::from_io_error(&e), Some(Errno::ROFS), "{i}: {e}");
    }
    drop(open);
    assert_eq!(fs::read(w.at("both/s")).unwrap(), vec![7u8; 8192]);
    fs::write(w.at("both/new"), "new").unwrap();
    fs::rename(w.at("both/new"), w.at("newer")).unwrap();
    fs::remove_file(w.at("newer")).unwrap();
    assert_eq!(w.ask("", "status")["state"], "degraded");
    assert_eq!(w.ask("", "check")["ok"], true, "{}", w.ask("", "check"));
    w.unmount();
    // Repaired and mounted again, it has all of its files.
    drop(disk);
    run(
        "e2fsck -fy disk || test $? -le 2; mount -o loop disk slow",
        &w.root,
    );
    let disk = Unmount(w.root.join("slow"));
    w.settings.accept = false;
    w.mount();
    assert_eq!(w.ask("", "status")["state"], "serving");
    assert_eq!(w.send("both/s", 0), Outcome::Done);
    assert_eq!(fs::read(w.at("both/s")).unwrap(), vec![7u8; 8192]);
    w.unmount();
    drop(disk);
}
