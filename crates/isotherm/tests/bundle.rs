//! `isotherm doctor --bundle`: what a report of damage needs, and neither data nor secrets, wherever those are.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use common::Place;
use common::nbd::{MIB, copy_in};

/// Begins each secret that is planted, so that one search finds all. It has no digit: a word like this is removed only where it is known.
const PLANTED: &str = "plantxed";

/// A file that only its owner may read.
fn private(place: &Place, name: &str, text: &str) {
    let file = place.path(name);
    fs::write(&file, text).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
}

/// Writes the bundle `name`, and returns what it holds: it was shown before.
fn bundle(place: &Place, name: &str) -> String {
    let shown = place.ok(&format!("doctor v --bundle {name} --log log --yes"));
    let file = place.path(name);
    let mode = fs::metadata(&file).expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(file).expect("text");
    let (whole, list) = shown.split_at(text.len());
    assert_eq!(whole, text);
    for part in [
        "system",
        "description",
        "superblocks",
        "status",
        "stats",
        "doctor",
        "log",
    ] {
        assert!(
            text.contains(&format!("\n===== {part}: ")),
            "{part} in {text}"
        );
        assert!(list.contains(&format!("\n  {part}: ")), "{part} in {list}");
    }
    text
}

/// The log of a server to which everything happened.
fn log(secrets: &[String]) -> String {
    let mut lines = vec![
        "2026-11-30T12:00:00+0000 isotherm[7]: /srv/disk: answers errors".to_owned(),
        format!(
            "web view at http://joe:{PLANTED}@127.0.0.1:1/, changes with the token in {PLANTED}.tok"
        ),
        format!("Authorization: Basic {PLANTED}"),
        format!("password={PLANTED}"),
        format!("--on-event /etc/{PLANTED}/hook: failed: exit status: 1"),
        format!("PATH={PLANTED}0000000000"),
        format!("{PLANTED}MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKc="),
    ];
    lines.extend(
        secrets
            .iter()
            .map(|s| format!("something odd: `{s}` there")),
    );
    lines.join("\n") + "\n"
}

#[test]
fn no_secret_and_no_data_is_in_a_bundle() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:64M");
    // What its owner wrote for himself.
    let description = place.path("v.toml");
    let own = fs::read_to_string(&description).expect("text");
    fs::write(
        &description,
        format!("# chap: joe {PLANTED}-in-a-comment\n{own}"),
    )
    .expect("written");
    // No word announces these in the log, and they look like plain words.
    let token = format!("{PLANTED}aaaabbbbccccddddeeee");
    let chap = format!("{PLANTED}-correct-horse");
    private(&place, &format!("{PLANTED}.tok"), &token);
    private(&place, &format!("{PLANTED}.chap"), &format!("joe {chap}\n"));
    let full = place.path(&format!("{PLANTED}.chap"));
    let secrets = [
        token,
        chap,
        format!("{PLANTED}.chap"),
        full.display().to_string(),
    ];
    fs::write(place.path("log"), log(&secrets)).expect("written");

    let call = format!(
        "serve v --nbd unix:n --web unix:w --web-control --web-token {PLANTED}.tok --iscsi 127.0.0.1:0 --iscsi-chap {PLANTED}.chap"
    );
    let mut command = place.command(&call);
    command.env("SOME_PASSWORD", PLANTED);
    let served = Place::wait_ready(command, &call);
    let line = format!("{PLANTED} in the data\n");
    copy_in(&place, &line.repeat(MIB / line.len() + 1).as_bytes()[..MIB]);
    let text = bundle(&place, "served");
    assert!(!text.contains(PLANTED), "{text}");
    // What explains is there: figures, findings, superblocks, the log.
    for wanted in [
        "bytes_written",
        "\"findings\"",
        "first: volume ",
        "second: volume ",
        "answers errors",
        "something odd: `[removed]` there",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    place.end(served);

    // Without a server nobody knows the secrets: what could be one is removed.
    let unknown = [
        format!("{PLANTED}aaaabbbbccccddddeeee"),
        format!("/etc/{PLANTED}"),
    ];
    fs::write(place.path("log"), log(&unknown)).expect("written");
    let text = bundle(&place, "stopped");
    assert!(!text.contains(PLANTED), "{text}");
    assert!(
        text.contains("is not served") && text.contains("answers errors"),
        "{text}"
    );

    // A description that cannot be read is what such a report is about.
    let broken =
        format!("nonsense # {PLANTED}\npassword = \"{PLANTED}\" # {PLANTED}\n# {PLANTED}\n{own}");
    fs::write(&description, broken).expect("written");
    let text = bundle(&place, "broken");
    assert!(!text.contains(PLANTED), "{text}");
    assert!(text.contains("nonsense"), "{text}");
}

#[test]
fn a_bundle_is_written_once_and_after_a_question() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:64M");
    fs::write(place.path("log"), "a line\n").expect("written");
    // There is no terminal to ask at: it is shown, and not written.
    let out = place.run("doctor v --bundle b --log log");
    let (said, why) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert_eq!(out.status.code(), Some(2), "{why}");
    assert!(
        said.contains("a line") && why.contains("--yes"),
        "{said}{why}"
    );
    assert!(!place.path("b").exists());
    bundle(&place, "b");
    let first = fs::read(place.path("b")).expect("read");
    let why = place.fails("doctor v --bundle b --yes");
    assert!(why.contains("exists already"), "{why}");
    assert_eq!(fs::read(place.path("b")).expect("read"), first);
    symlink(place.path("elsewhere"), place.path("link")).expect("linked");
    let why = place.fails("doctor v --bundle link --yes");
    assert!(why.contains("exists already"), "{why}");
    assert!(!place.path("elsewhere").exists());
    // A log without an end.
    let pipe = std::process::Command::new("mkfifo")
        .arg(place.path("pipe"))
        .status();
    assert!(pipe.expect("mkfifo").success());
    let shown = place.ok("doctor v --bundle piped --log pipe --yes");
    assert!(shown.contains("is no regular file"), "{shown}");
    let why = place.fails("doctor none --bundle c --yes");
    assert!(why.contains("no such volume"), "{why}");
}
