//! `isotherm doctor`: what it finds, and that what it says mends it.

mod common;

use common::Place;
use common::nbd::{MIB, copy_in, noise};
use rustix::fs::FlockOperation;
use serde_json::Value;
use std::fs;

/// The findings as `level: what`, and the exit code.
fn doctor(place: &Place) -> (String, Option<i32>) {
    let out = place.run("doctor v --json");
    let answer: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    common::fits(&answer, "doctor");
    let all = answer["findings"].as_array().expect("findings").iter();
    let words = all.map(|f| {
        format!(
            "{}: {} -> {}\n",
            text(f, "level"),
            text(f, "what"),
            text(f, "todo")
        )
    });
    (words.collect(), out.status.code())
}

fn text<'a>(f: &'a Value, key: &str) -> &'a str {
    f[key].as_str().expect("text")
}

fn finds(place: &Place, code: i32, wanted: &[&str]) {
    let (said, got) = doctor(place);
    for w in wanted {
        assert!(said.contains(w), "{w} in:\n{said}");
    }
    assert_eq!(got, Some(code), "{said}");
}

#[test]
fn each_finding_goes_away_by_what_it_says() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:64M --policy lru", "create");
    finds(&place, 0, &["note: is not served -> isotherm serve"]);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &noise(1, 8 * MIB));
    finds(
        &place,
        0,
        &[
            "bytes are dirty, on one flash device",
            "nobody has read all of its data",
        ],
    );
    place.ok("set v dirty_age_s=0");
    finds(
        &place,
        0,
        &["risk: dirty data may stay on flash for ever -> isotherm set v dirty_age_s=3600"],
    );
    place.ok("set v dirty_age_s=3600");
    place.ok("clean v");
    place.ok("check v --data");
    let (said, code) = doctor(&place);
    assert!(
        code == Some(0) && !said.contains("dirty") && !said.contains("nobody"),
        "{said}"
    );
    for (name, mib) in [("f", 48), ("s", 160)] {
        let file = fs::OpenOptions::new().write(true).open(place.path(name));
        file.and_then(|f| f.set_len(mib << 20)).expect("enlarged");
    }
    finds(
        &place,
        0,
        &["-> isotherm cache v resize", "-> isotherm grow v"],
    );
    place.ok("cache v resize");
    place.ok("grow v");
    let (said, _) = doctor(&place);
    assert!(!said.contains("not used"), "{said}");
    place.ok("cache v remove");
    finds(
        &place,
        0,
        &["note: has no flash: it is as fast as its disks -> isotherm cache v add"],
    );
    place.ok("cache v add f");
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    fs::rename(place.path("f"), place.away("f")).expect("renamed");
    let missing = "wrong: cannot be read: no such file or directory -> attach it, or give the volume another device: isotherm replace v NEW --member 0";
    finds(&place, 1, &[missing]);
    assert_eq!(doctor(&place).0.matches("wrong: ").count(), 1);
    fs::write(place.path("f"), noise(2, MIB)).expect("written");
    finds(&place, 1, &["wrong: is no member any more"]);
    let served = place.serve("v --nbd unix:n --without-flash");
    finds(&place, 1, &["wrong: 1 of its members missing"]);
    assert_eq!(served.terminate(), Some(0));
    let why = place.fails("doctor w");
    assert!(why.contains("no such volume"), "{why}");
    let words = String::from_utf8(place.run("doctor v").stdout).expect("text");
    assert!(words.ends_with("v: 1 wrong, 0 at risk\n"), "{words}");
}

/// A volume that somebody else has open at this moment is not wrong.
#[test]
fn a_member_in_use_is_not_known() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:64M", "create");
    let held = fs::File::open(place.path("s")).expect("opened");
    rustix::fs::flock(&held, FlockOperation::LockExclusive).expect("locked");
    let out = place.run("doctor v --json");
    assert_eq!(out.status.code(), Some(0));
    let answer: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let unknown = answer["not_known"].as_array().expect("a list").iter();
    let in_use = |u: &&Value| u.as_str().is_some_and(|u| u.contains("device in use"));
    assert_eq!(unknown.filter(in_use).count(), 1, "{answer}");
    drop(held);
    finds(&place, 0, &["note: is not served"]);
}

#[test]
fn a_server_that_does_not_answer_is_wrong() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:64M", "create");
    let served = place.serve("v --nbd unix:n");
    served.signal("STOP");
    let says = "wrong: the serving process does not answer -> see why (dmesg, journalctl); isotherm stop v";
    finds(&place, 1, &[says]);
    served.signal("CONT");
    assert_eq!(served.terminate(), Some(0));
}

/// What `serve` refuses is wrong, whatever the single devices say.
#[test]
fn a_volume_that_cannot_be_served_is_wrong() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:64M", "create");
    finds(&place, 0, &["note: is not served"]);
    let disk = fs::OpenOptions::new().write(true).open(place.path("s"));
    disk.and_then(|f| f.set_len(1 << 20)).expect("cut short");
    let refused = place.fails("serve v --nbd unix:n");
    let why = refused.trim_start_matches("isotherm: ").trim_end();
    finds(&place, 1, &[&format!("wrong: {why}")]);
}

/// A volume is served, whatever became of the socket of its server.
#[test]
fn a_served_volume_without_its_socket_is_not_called_stopped() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:64M --policy lru");
    let served = place.serve("v --nbd unix:n");
    fs::remove_file(place.path("v.sock")).expect("removed");
    let served_by = format!("served by process {}", served.child.id());
    finds(&place, 1, &[&format!("wrong: {served_by}")]);
    for call in ["stop v", "set v dirty_age_s=60"] {
        let why = place.fails(call);
        assert!(why.contains(&served_by), "{why}");
    }
    assert_eq!(served.terminate(), Some(0));
    assert!(place.fails("stop v").contains("not served: start it"));
    // Flash that was taken out may serve another volume.
    place.ok("cache v remove");
    place.ok("create w --fast f:16M --slow t:64M --policy lru");
    let other = place.serve("w --nbd unix:m");
    assert!(place.fails("stop v").contains("not served: start it"));
    assert_eq!(other.terminate(), Some(0));
}

/// What takes long says so: a disk that takes nothing, and a server that does not answer.
#[test]
fn commands_that_wait_say_what_for() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let place = Place::new();
    fs::create_dir(place.path("small")).expect("made");
    let at = place.path("small").display().to_string();
    let mount = ["-t", "tmpfs", "-o", "size=40M", "none", &at];
    let mounted = std::process::Command::new("mount").args(mount).status();
    assert!(mounted.expect("mount runs").success());
    place.ok("create v --fast f:32M --slow small/s:128M --policy lru");
    let served = place.serve("v --nbd unix:n");
    let _ = fs::write(place.path("small/fill"), vec![1; 64 * MIB]);
    copy_in(&place, &noise(1, 8 * MIB));
    let says = |call: &str, words: &str| {
        let mut command = std::process::Command::new("timeout");
        let plain = place.command(call);
        command.arg("20").arg(plain.get_program());
        command.args(plain.get_args()).current_dir(place.path("."));
        let out = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(124), "{said}");
        assert!(said.contains(words), "{call}: {said}");
    };
    says("clean v", "the slowest tier does not take");
    fs::remove_file(place.path("small/fill")).expect("removed");
    place.ok("clean v");
    served.signal("STOP");
    says("set v dirty_age_s=60", "waiting for the server");
    served.signal("CONT");
    assert_eq!(served.terminate(), Some(0));
    let gone = std::process::Command::new("umount").arg(&at).status();
    assert!(gone.expect("umount runs").success());
}
