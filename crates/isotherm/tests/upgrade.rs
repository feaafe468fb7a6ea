//! Programs and formats of other versions: members are refused with a remedy, and servers of other versions still answer queries.

mod common;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use common::Place;
use isotherm_answers::ListedState;
use serde_json::{Value, json};

/// Changes both superblocks of `name` so that they claim this version of the format.
fn set_version(place: &Place, name: &str, version: u32) {
    let bytes = fs::read(place.path(name)).expect("read");
    let file = OpenOptions::new()
        .write(true)
        .open(place.path(name))
        .expect("opened");
    let blocks = (0..bytes.len() / 4096).map(|b| b * 4096);
    let ours: Vec<usize> = blocks
        .filter(|&at| bytes[at..].starts_with(b"ISOTHERM"))
        .collect();
    assert_eq!(ours.len(), 2);
    for at in ours {
        file.write_all_at(&version.to_le_bytes(), at as u64 + 8)
            .expect("written");
    }
}

#[test]
fn members_of_another_format_are_refused_and_left_alone() {
    let place = Place::in_memory();
    place.ok("create v --fast f:16M --slow s:64M --policy greendm");
    for (version, want) in [(1, "version 1"), (99, "use a newer isotherm")] {
        for name in ["f", "s"] {
            set_version(&place, name, version);
        }
        let before = (fs::read(place.path("f")), fs::read(place.path("s")));
        for command in ["serve v --nbd unix:n", "status v", "find f s"] {
            let why = place.fails(command);
            assert!(why.contains(want), "{command}: {why}");
        }
        let check = place.run("check v --json");
        let said = String::from_utf8_lossy(&check.stdout).into_owned();
        let version = format!("format version {version}");
        assert!(!check.status.success() && said.contains(&version), "{said}");
        let after = (fs::read(place.path("f")), fs::read(place.path("s")));
        assert!(before.0.expect("read") == after.0.expect("read"));
        assert!(before.1.expect("read") == after.1.expect("read"));
    }
    // `create` must not overwrite it without `--force` either.
    let why = place.fails("create w --fast f:16M --slow s:64M --policy greendm");
    assert!(
        why.contains("isotherm") || why.contains("Isotherm"),
        "{why}"
    );
}

/// A server of another version: it has one answer for each request that comes, over however many connections.
fn server(place: &Place, answers: Vec<Value>) -> JoinHandle<()> {
    let listener = UnixListener::bind(place.path("v.sock")).expect("bound");
    std::thread::spawn(move || {
        let mut answers = answers.into_iter();
        while answers.len() > 0 {
            let (stream, _) = listener.accept().expect("asked");
            let lines = BufReader::new(&stream).lines();
            for (_, answer) in lines.map_while(Result::ok).zip(&mut answers) {
                (&stream)
                    .write_all(format!("{answer}\n").as_bytes())
                    .expect("answered");
            }
        }
    })
}

/// Commands take what they need of an answer, and do not miss the rest.
#[test]
fn a_server_that_says_less_is_of_use() {
    let place = Place::in_memory();
    place.ok("create v --fast f:16M --slow s:16M");
    let status = json!({"ok": {"state": "serving", "volume_bytes": 1 << 30, "pid": 7, "policy": "lru", "params": {"a": 1}}});
    let far = |draining| json!({"ok": {"copies": {"dirty_bytes": 9, "draining": draining}}});
    let warm = json!({
        "asked_ns": 5, "wanted_bytes": 9, "copied_bytes": 9, "there_bytes": 0, "unreadable_bytes": 0, "did_not_fit_bytes": 0,
        "in_use_bytes": 0, "end": "complete",
    });
    let stats = json!({"ok": {"paced": true, "reads": 77}});
    let classes = json!({"ok": {"rows": ["a row"]}});
    for (call, answers, says) in [
        ("status v", vec![status.clone()], "volume_bytes  1073741824"),
        (
            "set v a=2",
            vec![status.clone(), json!({"ok": {"params": {"a": 2}}})],
            "a  2.0 (was 1.0)",
        ),
        (
            "set v policy=arc",
            vec![
                status.clone(),
                json!({"ok": {"policy": "arc", "params": {}}}),
            ],
            "policy  arc (was lru)",
        ),
        ("stats v", vec![stats.clone(), status.clone()], "reads  77"),
        (
            "top v --plain --count 1",
            vec![stats.clone(), status.clone()],
            "reads  77",
        ),
        ("stats v --all", vec![stats], "paced: times"),
        ("classes show v", vec![classes.clone()], "rows  [\"a row\"]"),
        (
            "classes set v layout=again",
            vec![json!({"ok": null}), classes],
            "rows",
        ),
        (
            "clean v",
            vec![json!({"ok": {"dirty_extents": 3}}), far(Value::Null)],
            "3 extents were dirty",
        ),
        (
            "warm v",
            vec![
                json!({"ok": warm}),
                json!({"ok": {"copies": {"draining": null, "warm": warm}}}),
            ],
            "9 B copied to flash",
        ),
        (
            "doctor v",
            vec![status.clone()],
            "not known: v: what its server says",
        ),
    ] {
        let old = server(&place, answers);
        let said = place.ok(call);
        assert!(said.contains(says), "{call}: {said}");
        old.join().expect("asked");
        fs::remove_file(place.path("v.sock")).expect("removed");
    }
    let old = server(&place, vec![status]);
    let listed = isotherm_cli::cmd::list::describe(&place.path("v"));
    old.join().expect("asked");
    assert_eq!((listed.state, listed.pid), (ListedState::Serving, Some(7)));
    assert_eq!(listed.volume_bytes, Some(1 << 30));
}

#[test]
fn a_server_of_another_version_is_asked_and_named() {
    let place = Place::in_memory();
    place.ok("create v --slow s:16M --policy linear");
    // An older server answers the requests that it knows, and refuses others.
    let old = server(
        &place,
        vec![
            json!({"ok": {"volume": "v", "state": "serving", "volume_bytes": 1}}),
            json!({"error": "unknown variant `policy`"}),
        ],
    );
    let out = place.run("status v");
    let (said, noted) = (
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    );
    assert!(out.status.success() && said.contains("serving"), "{said}");
    assert!(noted.contains("another version"), "{noted}");
    let why = place.fails("set v policy=greendm");
    assert!(why.contains("unknown variant"), "{why}");
    old.join().expect("both asked");
    fs::remove_file(place.path("v.sock")).expect("removed");
    // For a server of the same version there is no remark.
    let served = place.serve("v --nbd unix:n");
    let out = place.run("status v --json");
    assert!(out.stderr.is_empty());
    let status: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let version = concat!("isotherm ", env!("CARGO_PKG_VERSION"));
    assert_eq!(status["program"], json!(version));
    assert_eq!(served.terminate(), Some(0));
}
