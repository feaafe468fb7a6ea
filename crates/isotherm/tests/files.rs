//! `mount` and `files`: two directories as one tree, with queries and commands.

mod common;

use common::Place;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Number of times that the threads of a process went to sleep.
fn sleeps(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    let status = tasks.filter_map(|t| fs::read_to_string(t.ok()?.path().join("status")).ok());
    let count = |s: String| {
        let line = s
            .lines()
            .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|n| n.trim().parse::<u64>().ok())
    };
    status.filter_map(count).sum()
}

/// Operations on files become a trace that the lab replays.
fn record(place: &Place) {
    let call = "files record mnt --out ops.parquet --json";
    let mut recorder = place.command(call);
    recorder.stdout(std::process::Stdio::piped());
    let recorder = recorder.stderr(std::process::Stdio::piped()).spawn();
    let mut recorder = recorder.expect("starts");
    let mut said = std::io::BufReader::new(recorder.stderr.take().expect("piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).expect("read");
    assert!(line.contains("recording"), "{line}");
    let refused = place.fails("files record mnt --out other.parquet --seconds 1");
    assert!(refused.contains("record"), "{refused}");
    for n in 0..20 {
        let path = place.path(&format!("mnt/recorded-{n}"));
        fs::write(&path, vec![n; 100_000]).expect("written");
        assert_eq!(fs::read(&path).expect("read").len(), 100_000);
    }
    fs::remove_file(place.path("mnt/recorded-0")).expect("removed");
    place.tool("kill", &["-TERM", &recorder.id().to_string()]);
    let out = recorder.wait_with_output().expect("ends");
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    common::fits(&said, "files-record");
    assert_eq!((&said["files"], &said["lost"]), (&20.into(), &0.into()));
    let info = place.json("trace info ops.parquet", "trace-info");
    assert_eq!(info["requests"], said["requests"], "{info}");
    let sim = "sim ops.parquet --policy lru --fast-size 512K --extent 64K";
    let sim = place.json(sim, "sim");
    let writes = sim["writes"].as_u64();
    assert!(writes.is_some_and(|n| n >= 20), "{sim}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn a_mounted_pair_of_directories_answers_and_obeys() {
    let place = Place::new();
    for dir in ["fast", "slow", "mnt"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    let said = place.fails("mount --fast fast --slow nowhere mnt");
    assert!(said.contains("nowhere: this tier is missing"), "{said}");
    let said = place.fails("files status mnt");
    assert!(said.contains("no tiering file system"), "{said}");
    if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs /dev/fuse and root");
        return;
    }
    let call =
        "mount --fast fast --slow slow --rule *.iso=slow --watermarks 100,100 --no-moves mnt";
    let mut server = place.command(call).spawn().expect("starts");
    let mounted = || {
        fs::read_to_string("/proc/self/mounts")
            .is_ok_and(|m| m.contains(&place.path("mnt").display().to_string()))
    };
    for _ in 0..600 {
        if mounted() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        fs::create_dir(place.path("mnt/d")).expect("made");
        fs::write(place.path("mnt/d/a"), "hello").expect("written");
        fs::write(place.path("mnt/x.iso"), "disc").expect("written");
        assert!(place.path("fast/d/a").exists());
        place.json("files status mnt", "files-status");
        place.ok("files pin mnt/d --to slow");
        let wanted = place.json("files migrate mnt --dry-run", "files-dry-run");
        assert_eq!(wanted["files"], 2, "{wanted}");
        let moved = place.json("files migrate mnt --now", "files-migrate");
        assert_eq!((&moved["done"], &moved["failed"]), (&2.into(), &0.into()));
        assert_eq!(
            fs::read_to_string(place.path("slow/d/a")).expect("moved"),
            "hello"
        );
        assert_eq!(
            fs::read_to_string(place.path("mnt/d/a")).expect("there"),
            "hello"
        );
        assert_eq!(place.json("files where mnt/d/a", "files-where")["tier"], 1);
        assert_eq!(
            place.json("files why mnt/d/a", "files-why")["decided_by"],
            "pin"
        );
        assert_eq!(
            place.json("files why mnt/x.iso", "files-why")["rule"],
            "*.iso=slow"
        );
        place.ok("files policy mnt/d hro --share 30");
        // Wrong usage must be found before the server is asked.
        let refused = place.run("files policy mnt/d hro --share 101");
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("101"));
        place.ok("files unpin mnt/d");
        assert_eq!(place.json("files check mnt", "files-check")["ok"], true);
        assert_eq!(
            place.json("files stats mnt", "files-stats")["moves"]["done"],
            2
        );
        record(&place);
        // While nothing happens, only the thread that moves files wakes up, once a second.
        let (before, since) = (sleeps(server.id()), std::time::Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        let (woke, idle) = (sleeps(server.id()) - before, since.elapsed().as_secs());
        assert!(woke <= 10 * idle, "{woke} wake-ups in {idle} idle seconds");
    }));
    let pid = server.id().to_string();
    place.tool("kill", &["-TERM", &pid]);
    let ended = server.wait().expect("ends");
    if mounted() {
        place.tool("umount", &["-l", &place.path("mnt").display().to_string()]);
    }
    if let Err(e) = work {
        std::panic::resume_unwind(e);
    }
    assert!(ended.success());
    assert_eq!(
        fs::read_to_string(place.path("slow/d/a")).expect("a plain file"),
        "hello"
    );
}

/// Unmounts our file system while another one is mounted below it at the same place: the program must end without touching the other one.
#[test]
fn what_is_mounted_below_stays_when_ours_is_unmounted() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs /dev/fuse and root");
        return;
    }
    let place = Place::new();
    for dir in ["fast", "slow", "mnt"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    let mnt = place.path("mnt").display().to_string();
    place.tool("mount", &["-t", "tmpfs", "below", &mnt]);
    let mounted = |kind: &str| {
        fs::read_to_string("/proc/self/mounts").is_ok_and(|m| m.contains(&format!("{mnt} {kind}")))
    };
    let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for round in 0..5 {
            let call = "mount --fast fast --slow slow --no-moves mnt";
            let mut server = place.command(call).spawn().expect("starts");
            for _ in 0..600 {
                if mounted("fuse") {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            assert!(mounted("fuse"));
            place.tool("umount", &[&mnt]);
            assert!(server.wait().expect("ends").success());
            assert!(mounted("tmpfs"), "round {round}: unmounted as well");
        }
    }));
    place.tool("umount", &["-l", &mnt]);
    if let Err(e) = work {
        std::panic::resume_unwind(e);
    }
}

/// The server is killed: its mount stays behind, dead, and the next one says how to be rid of it.
#[test]
fn a_mount_of_a_killed_server_is_named_with_the_way_out() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs /dev/fuse and root");
        return;
    }
    let place = Place::new();
    for dir in ["fast", "slow", "mnt"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    let call = "mount --fast fast --slow slow mnt";
    Place::wait_ready(place.command(call), call).kill();
    let mnt = place.path("mnt").display().to_string();
    let said = [place.fails(call), place.fails("files status mnt")];
    place.tool("umount", &["-l", &mnt]);
    for said in &said {
        assert!(said.contains("umount -l mnt"), "{said}");
    }
    let again = Place::wait_ready(place.command(call), call);
    assert!(place.ok("files status mnt").contains("Serving well"));
    assert_eq!(again.terminate(), Some(0));
}
