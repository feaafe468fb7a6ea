//! Faults below a volume: a truncated member, a full host file system.

mod common;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;

use common::faulty::{Faulty, Released};
use common::nbd::noise;
use common::peer::{FLUSH, Peer, READ, wait_for};
use common::{Place, Served};
use serde_json::{Value, json};

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
    fn mounted(place: &Place, options: &str) -> Option<Small> {
        let dir = place.path("small");
        std::fs::create_dir(&dir).expect("made");
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
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
    let Some(small) = Small::mounted(&place, "size=24m") else {
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
    let cause = &status["health"]["causes"][0];
    assert_eq!(
        (&status["health"]["state"], &cause["kind"], &cause["errno"]),
        (&json!("failing"), &json!("no-space"), &json!(ENOSPC)),
        "{cause}"
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

/// A description on a file system that takes no more files: the control socket is found elsewhere, by all commands.
#[test]
fn a_volume_whose_directory_takes_no_file_is_served_all_the_same() {
    let place = Place::new();
    let Some(small) = Small::mounted(&place, "size=64m,nr_inodes=5") else {
        return;
    };
    place.ok("create small/v --fast small/f:16M --slow small/s:32M");
    while std::fs::File::create(small.0.join("last")).is_ok_and(|_| {
        let n = std::fs::read_dir(&small.0).expect("listed").count();
        std::fs::rename(small.0.join("last"), small.0.join(format!("f{n}"))).is_ok()
    }) {}
    assert!(std::fs::File::create(small.0.join("x")).is_err());
    let run = place.path("run");
    let there = |call: &str| {
        let mut command = place.command(call);
        command.env("ISOTHERM_RUNTIME_DIR", &run);
        command
    };
    let served = Place::wait_ready(there("serve small/v --nbd unix:n"), "small/v");
    assert!(!small.0.join("v.sock").exists());
    for (call, want) in [
        ("status small/v", "Serving well"),
        ("list", "serving"),
        ("check small/v", "is being served"),
    ] {
        let out = there(call).output().expect("the program starts");
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert!(said.contains(want), "{call}: {said}");
    }
    let stopped = there("stop small/v").output().expect("the program starts");
    assert!(stopped.status.success(), "{stopped:?}");
    assert_eq!(served.end().0, Some(0));
    assert!(std::fs::read_dir(run.join("sockets")).is_ok_and(|mut d| d.next().is_none()));
}

/// A volume whose slow member is a disk with faults, with `mib` MiB of data, all of it flushed.
fn on_faulty(place: &Place, policy: &str) -> Option<(Faulty, Vec<u8>)> {
    let platter = place.away("platter");
    std::fs::File::create(&platter)
        .and_then(|f| f.set_len(64 * MIB))
        .expect("made");
    let disk = Faulty::attach(&platter, &place.path("bay"), "sdb")?;
    place.ok(&format!(
        "create v --fast f:16M --slow bay/sdb --policy {policy}"
    ));
    Some((disk, noise(1, 32 << 20)))
}

fn fill(peer: &mut Peer, data: &[u8]) {
    for (i, part) in (0..).zip(data.chunks(MIB as usize)) {
        peer.write(i * MIB, part).expect("written");
    }
    assert_eq!(flush(peer), 0);
}

fn flush(peer: &mut Peer) -> u32 {
    peer.ask(FLUSH, 0, 0).expect("sent");
    peer.answer().expect("answered")
}

/// Waits until the volume's health is `state` because of something of this kind, and returns that cause.
fn becomes(place: &Place, state: &str, kind: &str) -> Value {
    wait_for(&format!("{state}, {kind}"), || {
        let health = place.json("status v", "status")["health"].clone();
        let causes = health["causes"].as_array().expect("a list").clone();
        let cause = causes.into_iter().find(|c| c["kind"] == json!(kind));
        cause.filter(|_| health["state"] == json!(state))
    })
}

/// What the service manager was told last that begins with this.
fn told(manager: &UnixDatagram, start: &str) -> String {
    let mut buffer = [0; 4096];
    loop {
        let n = manager.recv(&mut buffer).expect("a status line");
        let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
        if text.starts_with(start) {
            return text;
        }
    }
}

/// The metrics at the socket `m`.
fn scrape(place: &Place) -> String {
    let mut metrics = UnixStream::connect(place.path("m")).expect("connected");
    metrics
        .write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .expect("asked");
    let mut text = String::new();
    metrics.read_to_string(&mut text).expect("answered");
    text
}

/// One answer everywhere: `status`, `list`, `top`, the metrics, the log and the service's status line.
#[test]
fn a_member_that_answers_errors_is_told_everywhere_until_it_is_over() {
    let place = Place::in_memory();
    let Some((disk, data)) = on_faulty(&place, "lru,write-mode=write-around") else {
        return;
    };
    let manager = UnixDatagram::bind(place.path("notify")).expect("bound");
    manager
        .set_read_timeout(Some(common::peer::PATIENCE))
        .expect("set");
    let mut command = place.command("serve v --nbd unix:n --metrics unix:m --stop-timeout 0");
    command.env("NOTIFY_SOCKET", place.path("notify"));
    let served = Place::wait_ready(command, "v");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    fill(&mut peer, &data);
    assert_eq!(
        place.json("status v", "status")["health"]["state"],
        json!("well")
    );
    disk.spoil(0, 64 * MIB);
    let error = peer.read(20 * MIB, 4096).expect_err("it cannot be read");
    assert_eq!(error.raw_os_error(), Some(EIO));
    let cause = becomes(&place, "failing", "errors");
    assert_eq!(
        (&cause["member"], &cause["errno"]),
        (&json!(1), &json!(EIO))
    );
    assert!(cause["count"].as_u64() > Some(0) && cause["last_unix_s"].is_f64());
    let what = cause["what"].as_str().expect("a sentence").to_owned();
    assert!(what.contains("bay/sdb answers errors since "), "{what}");
    for call in ["status v", "stats v", "top v --plain --count 1"] {
        let text = place.ok(call);
        assert!(
            text.starts_with(&format!("v: FAILING: {what}.\n")),
            "{text}"
        );
        assert!(
            text.contains("input/output error\nto do      look at `dmesg`"),
            "{text}"
        );
    }
    assert!(told(&manager, "STATUS=FAILING").contains(&what));
    let text = scrape(&place);
    assert!(
        text.contains("isotherm_health{state=\"failing\"} 1"),
        "{text}"
    );
    // A check finds the same places, and what it found stays until a check finds nothing.
    assert_eq!(place.run("check v --data").status.code(), Some(1));
    let damage = becomes(&place, "failing", "damage");
    assert!(
        damage["detail"]
            .as_str()
            .is_some_and(|d| !d.starts_with("0 bytes"))
    );
    disk.come_back("sdb");
    drop(peer);
    let (code, said) = ended(served);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(&format!("{what}: ")) && said.contains("found damage: "),
        "{said}"
    );
    let stopped = place.ok("status v");
    assert!(stopped.contains("DAMAGED"), "{stopped}");
    let served = place.serve("v --nbd unix:n");
    becomes(&place, "degraded", "damage");
    assert_eq!(place.run("check v --data").status.code(), Some(0));
    assert_eq!(
        place.json("status v", "status")["health"]["state"],
        json!("well")
    );
    assert_eq!(served.terminate(), Some(0));
}

fn ended(served: Served) -> (Option<i32>, String) {
    served.signal("TERM");
    served.end()
}

/// More than the kernel has workers.
const MISSES: usize = 40;

/// A disk that answers nothing, as one behind a network that is gone: what needs it waits, everything else goes on, and so does the volume
/// when the disk answers again.
#[test]
fn a_member_that_hangs_stops_nothing_that_does_not_need_it() {
    let place = Place::in_memory();
    let Some((disk, data)) = on_faulty(&place, "lru") else {
        return;
    };
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    // The mirror on the slow member follows later, and not in the middle of this test.
    place.ok("set v commit_interval_s=3600");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    fill(&mut peer, &data);
    // Mebibytes that lie on flash, and others of which nothing does.
    let is_copied = |at: u64| !place.json(&format!("why v {at}"), "why")["copy"].is_null();
    let (mut hot, mut cold) = (None, Vec::new());
    for at in (0..32).map(|mib| mib * MIB) {
        match (is_copied(at), is_copied(at + MIB - 65536)) {
            (true, true) => hot = Some(at),
            (false, false) => cold.push(at),
            _ => {}
        }
    }
    let hot = hot.expect("a cached mebibyte");
    assert!(cold.len() >= 3, "{cold:?}");
    let misses_at = cold
        .iter()
        .flat_map(|at| (0..16).map(move |i| at + i * 65536));
    let misses_at: Vec<u64> = misses_at.take(MISSES).collect();
    let of = |at: u64| &data[at as usize..][..4096];
    wait_for("the cache to be quiet", || {
        let stats = place.json("stats v", "stats");
        (stats["moves"]["active"] == json!(0)).then_some(())
    });
    // The disk knows that flash has data of this region: the first such data is noted there.
    peer.write(hot + 65536, &[9; 4096]).expect("a hit");
    assert_eq!(flush(&mut peer), 0);
    disk.hang();
    let _released = Released(&disk);
    // On a connection of their own.
    let mut misses = Peer::connect(&place.path("n")).expect("connected");
    for at in &misses_at {
        misses.ask(READ, *at, 4096).expect("sent");
    }
    for round in 0..5u8 {
        assert_eq!(peer.read(hot, 4096).expect("a hit"), of(hot));
        peer.write(hot + 65536, &[round; 4096]).expect("a hit");
        assert_eq!(flush(&mut peer), 0, "nothing of it needs the disk");
        assert_eq!(peer.read(hot + 65536, 4096).expect("a hit"), [round; 4096]);
    }
    let cause = becomes(&place, "failing", "silent");
    assert_eq!(cause["member"], json!(1));
    assert!(
        cause["since_unix_s"].is_f64() && cause["count"].as_u64() >= Some(1),
        "{cause}"
    );
    let list = place.json("list", "list");
    let mut of_list = list.as_array().expect("a list").iter();
    let own = of_list.find(|v| v["pid"] == json!(served.child.id()));
    assert_eq!(own.expect("listed")["health"], json!("failing"));
    assert_eq!(flush(&mut peer), 0, "after all that time, too");
    disk.go_on();
    for _ in 0..MISSES {
        let (mut reply, mut block) = ([0; 16], [0; 4096]);
        misses.0.read_exact(&mut reply).expect("an answer");
        misses.0.read_exact(&mut block).expect("the data");
        // No error; the cookie is the offset.
        assert_eq!(reply[4..8], [0; 4]);
        let at = u64::from_be_bytes(reply[8..].try_into().expect("eight bytes"));
        assert_eq!(block, of(at), "byte {at}");
    }
    wait_for("well", || {
        let status = place.json("status v", "status");
        (status["health"]["state"] == json!("well")).then_some(())
    });
    drop((peer, misses));
    assert_eq!(ended(served).0, Some(0));
}

/// On an idle volume, only the activity stamp is written. A member that hangs is noticed by that, too.
#[test]
fn a_member_that_hangs_is_noticed_by_an_idle_volume() {
    let place = Place::in_memory();
    let platter = place.away("platter");
    let made = std::fs::File::create(&platter).and_then(|f| f.set_len(16 * MIB));
    made.expect("made");
    let Some(disk) = Faulty::attach(&platter, &place.path("bay"), "sdb") else {
        return;
    };
    place.ok("create v --fast bay/sdb --slow s:64M --policy lru");
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    place.ok("set v commit_interval_s=3600");
    disk.hang();
    let _released = Released(&disk);
    let cause = becomes(&place, "failing", "silent");
    assert_eq!(cause["member"], json!(0), "{cause}");
    disk.go_on();
    wait_for("well", || {
        let status = place.json("status v", "status");
        (status["health"]["state"] == json!("well")).then_some(())
    });
    assert_eq!(ended(served).0, Some(0));
}
