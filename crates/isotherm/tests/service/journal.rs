//! What the journal gets from a serving process. There need be no journald: a socket of the test's own stands in its place, in a mount
//! namespace.

use std::collections::HashMap;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use crate::common::{Place, own_mounts};
use crate::machine::{LIMIT, Machine, has};

/// An entry as journald's native protocol has it: `KEY=value` and a line's end, or `KEY`, a line's end, the length as eight bytes, the
/// value and a line's end.
fn fields(mut entry: &[u8]) -> HashMap<String, String> {
    let mut all = HashMap::new();
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).expect("text");
    while !entry.is_empty() {
        let end = entry.iter().position(|b| *b == b'\n').expect("a line");
        let (line, rest) = (&entry[..end], &entry[end + 1..]);
        if let Some(at) = line.iter().position(|b| *b == b'=') {
            all.insert(text(&line[..at]), text(&line[at + 1..]));
            entry = rest;
        } else {
            let (len, rest) = rest.split_at(8);
            let len = u64::from_le_bytes(len.try_into().expect("eight bytes")) as usize;
            all.insert(text(line), text(&rest[..len]));
            entry = &rest[len + 1..];
        }
    }
    all
}

#[test]
fn messages_reach_the_journal_with_fields() {
    let namespaces = Command::new("unshare").args(["-m", "true"]).status();
    if !has("unshare") || !namespaces.is_ok_and(|s| s.success()) {
        eprintln!("skipped: needs root and mount namespaces");
        return;
    }
    let m = Machine::new();
    m.create("v");
    std::fs::create_dir(m.0.path("journal")).expect("made");
    let socket = UnixDatagram::bind(m.0.path("journal/socket")).expect("bound");
    socket.set_read_timeout(Some(LIMIT)).expect("set");
    let script = r#"set -e
mkdir -p /run/systemd/journal
mount --bind "$1/journal" /run/systemd/journal
exec 2>"$1/errors"
export JOURNAL_STREAM=$(stat -L -c %d:%i "$1/errors")
exec "$2" serve v --nbd unix:n --metrics "unix:$1/metrics"
"#;
    let mut command = own_mounts();
    m.set(&mut command);
    command
        .current_dir(m.0.path("away"))
        .args(["sh", "-c", script, "sh"])
        .arg(m.0.path(""))
        .arg(env!("CARGO_BIN_EXE_isotherm"));
    let served = Place::wait_ready(command, "v");
    let mut buffer = vec![0; 1 << 16];
    let entry = loop {
        let n = socket
            .recv(&mut buffer)
            .unwrap_or_else(|e| panic!("no message about metrics: {e}"));
        let entry = fields(&buffer[..n]);
        if entry
            .get("MESSAGE")
            .is_some_and(|m| m.contains("metrics at "))
        {
            break entry;
        }
    };
    let has = |key: &str, value: &str| {
        assert_eq!(entry.get(key).map(String::as_str), Some(value), "{entry:?}");
    };
    has("ISOTHERM_VOLUME", "v");
    has("PRIORITY", "5");
    has("SYSLOG_IDENTIFIER", "isotherm");
    assert!(entry["ISOTHERM_ADDRESS"].ends_with("metrics"), "{entry:?}");
    assert!(entry.contains_key("CODE_FILE") && entry.contains_key("CODE_LINE"));
    assert_eq!(served.terminate(), Some(0));
    let errors = std::fs::read_to_string(m.0.path("errors")).expect("a file");
    assert!(!errors.contains("metrics at"), "twice: {errors}");
}

/// What `systemd-analyze security` says of a unit of the package; 0 is closed, 10 is open.
fn exposure(unit: &str) -> Option<f64> {
    let dist = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/systemd");
    let file = format!("{dist}/{unit}.service");
    let out = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", &file])
        .output()
        .ok()?;
    // "→ Overall exposure level for NAME: 2.7 OK"; older versions do not look at files.
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let last = text.lines().rfind(|l| l.contains("exposure level"))?;
    last.rsplit(": ").next()?.split(' ').next()?.parse().ok()
}

#[test]
fn the_services_are_closed_against_each_other() {
    for (unit, limit) in [
        ("isotherm@", 3.0),
        ("isotherm-web", 2.0),
        ("isotherm-assemble@", 2.5),
        ("isotherm-check@", 1.5),
        // Others see its mount, so it has no name space of its own.
        ("isotherm-store@", 4.5),
    ] {
        match exposure(unit) {
            Some(level) => assert!(level <= limit, "{unit}: {level} of at most {limit}"),
            None => eprintln!("skipped: systemd-analyze cannot look at {unit}"),
        }
    }
}
