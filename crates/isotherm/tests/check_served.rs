//! `check --data` while the volume is served: it finds what the check of a stopped volume finds, and its worst days.

mod common;

use common::faulty::Faulty;
use common::nbd::{MIB, NBD, copy_in, holds, noise};
use common::{Place, Served};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// The place of a block on a member.
fn place_of(path: &Path, block: &[u8]) -> u64 {
    let all = fs::read(path).expect("read");
    let found = all.chunks(4096).position(|b| b == block);
    found.expect("the block is there") as u64 * 4096
}

/// Checks, and returns exit code and answer.
fn check(place: &Place, call: &str) -> (Option<i32>, Value) {
    let out = place.run(&format!("check v --data --json {call}"));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let answer = serde_json::from_slice(&out.stdout);
    let answer: Value = answer.unwrap_or_else(|e| panic!("{e}: {said}"));
    common::fits(&answer, "check");
    (out.status.code(), answer)
}

fn checks(place: &Place) -> Value {
    place.json("status v", "status")["data_check"].clone()
}

fn wait_for(what: &str, is: impl Fn() -> bool) {
    for _ in 0..1200 {
        if is() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}: not within a minute");
}

/// Starts a check that takes hours, and waits until it reads.
fn slow_check(place: &Place) -> Child {
    let mut command = place.command("check v --data --json --rate 4K");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program starts");
    wait_for("the check reads", || {
        checks(place)["running"]["read_bytes"].as_u64() > Some(0)
    });
    child
}

fn ended(place: &Place) {
    wait_for("the check ends", || checks(place)["running"].is_null());
}

fn served(place: &Place) -> Served {
    place.serve("v --nbd unix:n")
}

/// Writes the data and reads it, so that a cache copies it.
fn fill(place: &Place, data: &[u8]) {
    copy_in(place, data);
    for _ in 0..2 {
        holds(place, data);
    }
}

/// A volume whose slow member is a disk with faults.
fn on_faulty(place: &Place, policy: &str) -> Option<Faulty> {
    let away = place.away("sdb");
    fs::File::create(&away)
        .and_then(|f| f.set_len(64 * MIB as u64))
        .expect("made");
    let disk = Faulty::attach(&away, &place.path("bay"), "sdb")?;
    place.json(
        &format!("create v --fast f:16M --slow bay/sdb --policy {policy}"),
        "create",
    );
    Some(disk)
}

#[test]
fn data_that_changed_by_itself_is_found_while_it_is_served() {
    let place = Place::new();
    let made = place.json(
        "create v --fast f:40M --slow s:32M --policy lru,write-mode=write-through-all",
        "create",
    );
    let volume = made["volume_bytes"].as_u64().expect("a number");
    let data = noise(1, 8 * MIB);
    let server = place.serve("v --nbd unix:n --metrics unix:m");
    fill(&place, &data);
    assert_eq!(checks(&place), json!({"running": null, "last": null}));
    let (code, answer) = check(&place, "");
    assert_eq!((code, &answer["ok"]), (Some(0), &json!(true)), "{answer}");
    assert_eq!(answer["served"], json!(true));
    let copied = answer["copied_extents"].as_u64().expect("a number");
    assert!(copied > 50, "{answer}");
    assert_eq!(answer["data"]["read_bytes"], json!(volume + copied * 65536));
    let block = &data[3 * MIB..][..4096];
    let at = place_of(&place.path("s"), block);
    let disk = fs::OpenOptions::new().write(true).open(place.path("s"));
    let disk = disk.expect("opened");
    disk.write_all_at(&[!block[0]], at).expect("written");
    let (code, answer) = check(&place, "--rate 1G");
    assert_eq!((code, &answer["ok"]), (Some(1), &json!(false)), "{answer}");
    let differing = &answer["data"]["differing"][0];
    assert_eq!(differing["from"], json!(3 * MIB), "{answer}");
    assert_eq!(answer["data"]["not_compared"], json!([]));
    let out = place.run("check v --data");
    let said = String::from_utf8(out.stdout).expect("text");
    assert!(
        said.contains("differ between the copy") && said.contains("v: damaged; 2 members"),
        "{said}"
    );
    let last = checks(&place)["last"].clone();
    assert_eq!(last["ok"], json!(false), "{last}");
    assert!(last["differing_bytes"].as_u64() >= Some(512), "{last}");
    let stats = place.json("stats v", "stats");
    assert_eq!(stats["data_check"]["last"], last);
    // Only the data is checked while it is served, and nothing is repaired.
    assert!(place.fails("check v").contains("`isotherm check v --data`"));
    assert!(place.fails("check v --data --repair").contains("--repair"));
    // The outcome outlives the server; a check of the stopped volume finds the same.
    assert_eq!(server.terminate(), Some(0));
    let (code, stopped) = check(&place, "");
    assert_eq!((code, &stopped["served"]), (Some(1), &json!(false)));
    assert_eq!(stopped["data"]["differing"], answer["data"]["differing"]);
    let server = served(&place);
    assert_eq!(checks(&place)["last"], last);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn an_unreadable_place_is_found_while_it_is_served() {
    let place = Place::new();
    let Some(disk) = on_faulty(&place, "linear") else {
        return;
    };
    let server = served(&place);
    let data = noise(1, 30 * MIB);
    copy_in(&place, &data);
    let whole = check(&place, "");
    assert_eq!((whole.0, &whole.1["data"]["lost"]), (Some(0), &json!([])));
    let block = &data[20 * MIB + 5 * 4096..][..4096];
    let at = place_of(&place.away("sdb"), block);
    disk.spoil(at, at + 4096);
    let (code, answer) = check(&place, "");
    let from = 20 * MIB + 5 * 4096;
    assert_eq!(code, Some(1));
    assert_eq!(
        answer["data"]["lost"],
        json!([{"from": from, "to": from + 4096}]),
        "{answer}"
    );
    let findings = answer["findings"].to_string();
    assert!(
        findings.contains("bay/sdb: 1 places of 4096 bytes in extent")
            && findings.contains(&format!("the first at byte {at}")),
        "{findings}"
    );
    // The reads of the check are not the volume's: it has not failed, and counts no error.
    let stats = place.json("stats v", "stats");
    assert_eq!(stats["members"][1]["errors"], json!(0), "{stats}");
    assert_eq!(stats["failure"], Value::Null);
    disk.come_back("sdb");
    assert_eq!(check(&place, "").0, Some(0));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn one_check_at_a_time_and_it_ends_with_its_client() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:32M", "create");
    let server = served(&place);
    copy_in(&place, &noise(1, 8 * MIB));
    let mut client = slow_check(&place);
    let why = place.fails("check v --data");
    assert!(why.contains("being checked already"), "{why}");
    // The client is killed: it can tell nobody.
    client.kill().expect("killed");
    client.wait().expect("waited");
    ended(&place);
    // An interrupted check is no outcome.
    assert_eq!(checks(&place)["last"], Value::Null);
    assert_eq!(check(&place, "--wake").0, Some(0));
    assert_eq!(checks(&place)["last"]["ok"], json!(true));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn the_end_of_the_server_ends_a_check() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:32M", "create");
    let server = served(&place);
    copy_in(&place, &noise(1, 8 * MIB));
    let client = slow_check(&place);
    place.ok("stop v");
    assert_eq!(server.end().0, Some(0));
    let out = client.wait_with_output().expect("waited");
    assert_eq!(out.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    common::fits(&answer, "check");
    assert_eq!(answer["ended"], json!("the volume was stopped"), "{answer}");
    assert_eq!(answer["ok"], json!(false));
    let server = served(&place);
    let client = slow_check(&place);
    server.kill();
    let out = client.wait_with_output().expect("waited");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1));
    assert!(said.contains("the serving process went away"), "{said}");
    let server = served(&place);
    assert_eq!(check(&place, "").0, Some(0));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_device_that_does_not_answer_is_named_and_keeps_nobody() {
    let place = Place::new();
    let Some(disk) = on_faulty(&place, "lru") else {
        return;
    };
    let server = served(&place);
    copy_in(&place, &noise(1, 8 * MIB));
    let mut client = slow_check(&place);
    client.kill().expect("killed");
    client.wait().expect("waited");
    ended(&place);
    disk.hang();
    let mut command = place.command("check v --data --rate 1G");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut client = command.spawn().expect("the program starts");
    wait_for("the device is named", || {
        checks(&place)["running"]["stalled"]["member"] == json!(1)
    });
    // The client may leave at once, and the volume is asked as before. No second check begins until the read has returned.
    client.kill().expect("killed");
    client.wait().expect("waited");
    assert!(place.fails("check v --data").contains("already"));
    assert!(!checks(&place)["running"].is_null());
    disk.go_on();
    ended(&place);
    assert_eq!(check(&place, "").0, Some(0));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_volume_that_fails_meanwhile_is_not_judged() {
    let place = Place::new();
    let Some(disk) = on_faulty(&place, "lru,write-mode=write-through-all") else {
        return;
    };
    let server = served(&place);
    copy_in(&place, &noise(1, 8 * MIB));
    let client = slow_check(&place);
    disk.fail_flushes(5);
    fs::write(place.path("data"), noise(2, MIB)).expect("written");
    let out = place.tool("nbdcopy", &["--flush", "data", NBD]);
    assert!(!out.status.success());
    let out = client.wait_with_output().expect("waited");
    let answer: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!((out.status.code(), &answer["ok"]), (Some(1), &json!(false)));
    let why = answer["ended"].as_str().expect("a reason");
    assert!(
        why.contains("the volume failed: ") && why.contains("sdb"),
        "{why}"
    );
    assert_eq!(answer["findings"], json!([]));
    server.kill();
}

#[test]
fn a_degraded_and_a_read_only_volume_are_checked() {
    let place = Place::new();
    let made = place.json(
        "create v --fast f:16M --slow s:32M --policy lru,write-mode=write-through-all",
        "create",
    );
    let server = served(&place);
    let data = noise(1, 8 * MIB);
    fill(&place, &data);
    assert_eq!(server.terminate(), Some(0));
    let server = place.serve("v --nbd unix:n --read-only");
    let (code, answer) = check(&place, "");
    assert_eq!((code, &answer["members_found"]), (Some(0), &json!(2)));
    assert!(answer["copied_extents"].as_u64() > Some(50), "{answer}");
    assert_eq!(server.terminate(), Some(0));
    fs::rename(place.path("f"), place.away("f")).expect("moved");
    let server = place.serve("v --nbd unix:n --accept-loss");
    let (code, answer) = check(&place, "");
    assert_eq!((code, &answer["members_found"]), (Some(0), &json!(1)));
    assert_eq!(
        answer["data"]["read_bytes"], made["volume_bytes"],
        "{answer}"
    );
    assert_eq!(server.terminate(), Some(0));
}

/// The check waits for a sleeping disk, and does not wake it, unless it may.
#[test]
fn a_sleeping_disk_sleeps_on() {
    let place = Place::new();
    place.json(
        "create v --fast f:16M --slow s:64M --paced slow=wd5000aaks --sleep 1s --policy greendm",
        "create",
    );
    let server = served(&place);
    // The data sheet allows one start in most of an hour. It is used up if a second passes before the first write, or between two.
    place.ok("set v sleep_starts_per_day=1000000");
    copy_in(&place, &noise(1, 24 * MIB));
    let asleep = || {
        let status = place.json("status v", "status");
        status["members"][1]["asleep"] == json!(true)
    };
    let wake_ups = || place.json("status v", "status")["members"][1]["sleep"]["wake_ups"].clone();
    // What was written is recorded and moved first; there is no work left once nothing has woken the disk for a while.
    wait_for("the disk sleeps on", || {
        let before = wake_ups();
        std::thread::sleep(Duration::from_secs(2));
        asleep() && wake_ups() == before
    });
    let mut command = place.command("check v --data");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = command.spawn().expect("the program starts");
    wait_for("the check waits", || {
        checks(&place)["running"]["waits_for"] == json!("sleeping disk")
    });
    let read = checks(&place)["running"]["read_bytes"].clone();
    std::thread::sleep(Duration::from_secs(1));
    assert!(asleep());
    assert_eq!(checks(&place)["running"]["read_bytes"], read);
    client.kill().expect("killed");
    client.wait().expect("waited");
    ended(&place);
    let (code, answer) = check(&place, "--wake");
    assert_eq!(code, Some(0), "{answer}");
    assert_eq!(server.terminate(), Some(0));
}
