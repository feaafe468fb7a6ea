//! The page of `isotherm files status`.

use std::path::Path;

use serde_json::Value;

use super::line;
use super::{int, items};
use crate::human::{ago, bytes, percent, time};

/// The page of a mounted tree, from the answer of its server.
pub fn status(at: &Path, s: &Value) -> String {
    let mut out = vec![format!("{}: {}\n", at.display(), state(s))];
    out.extend(s["state"].as_str().map(|word| line("state", word)));
    let moves = if s["moves"].as_bool() == Some(false) {
        "; no file moves (--no-moves)"
    } else {
        ""
    };
    out.push(line(
        "policy",
        &format!("{}{moves}", s["policy"].as_str().unwrap_or("-")),
    ));
    for t in items(&s["tiers"]) {
        out.push(tier("tier", t));
        out.extend(items(&t["disks"]).map(|d| tier("disk", d)));
    }
    if let [Some(low), Some(high)] = [0, 1].map(|i| s["marks_percent"][i].as_u64()) {
        out.push(line(
            "marks",
            &format!("above {high} % the mover empties a tier down to {low} %"),
        ));
    }
    out.extend(copies(&s["copies"]));
    let moving = &s["moving"];
    if let Some(path) = moving["path"].as_str() {
        let (done, all) = (int(&moving["copied_bytes"]), int(&moving["bytes"]));
        let share = percent((all > 0).then(|| done as f64 / all as f64));
        out.push(line(
            "moving",
            &format!("{path}, {share} of {}", bytes(all)),
        ));
    }
    out.push(line("in use", &format!("{} files", int(&s["in_use"]))));
    out.push(line("data path", s["io"].as_str().unwrap_or("-")));
    out.extend(settings(s));
    let r = &s["recovered"];
    let [finished, dropped] = ["finished", "dropped"].map(|k| int(&r[k]));
    if finished + dropped > 0 {
        out.push(line(
            "start",
            &format!(
                "{finished} moves that a crash had interrupted were finished, {dropped} undone"
            ),
        ));
    }
    if let Some(counts) = s["counts"].as_object() {
        let counts = counts.iter().map(|(what, n)| format!("{n} {what}"));
        let counts = counts.collect::<Vec<_>>().join(", ");
        let who = "shown to root and the user who mounted";
        out.push(line("hidden", &format!("{counts}: {who}")));
    }
    out.extend(
        items(&s["said"])
            .filter_map(Value::as_str)
            .map(|said| line("said", said)),
    );
    out.concat()
}

fn state(s: &Value) -> &'static str {
    match (s["state"].as_str(), s["migrating"].as_bool()) {
        (Some("serving"), Some(true)) => "Serving well; files move because of `migrate`.",
        (Some("serving"), _) => "Serving well.",
        (Some("stuck"), _) => "STUCK: names cannot change until the next mount.",
        _ => "DEGRADED: a tier is missing, read-only or fails.",
    }
}

/// The line of a tier, or of one of its disks.
fn tier(what: &str, t: &Value) -> String {
    let disks = items(&t["disks"]).count();
    let path = t["path"].as_str().filter(|p| !p.is_empty()).unwrap_or("-");
    let place = if disks > 0 {
        format!("{disks} disks")
    } else {
        path.to_owned()
    };
    let mut parts = vec![
        format!("{place}, {} files", int(&t["files"])),
        bytes(int(&t["bytes"])),
        format!("{} free", bytes(int(&t["free_bytes"]))),
    ];
    let name = format!("{what} {}", int(&t[what]));
    if disks > 0 {
        // The lines of the disks say the rest.
        return line(&name, &parts.join(", "));
    }
    for (key, word) in [
        ("missing", "MISSING"),
        ("failing", "FAILING"),
        ("read_only", "READ-ONLY"),
        ("above_mark", "above its mark"),
    ] {
        if t[key].as_bool() == Some(true) {
            parts.push(word.to_owned());
        }
    }
    if int(&t["errors"]) > 0 {
        let last = &t["last_error"];
        parts.push(format!(
            "{} errors, the last {}: {}",
            int(&t["errors"]),
            ago(last["ago_s"].as_f64().unwrap_or(0.0)),
            last["error"].as_str().unwrap_or("-")
        ));
    }
    let waiting = &t["waiting"];
    if let Some(path) = waiting["path"].as_str() {
        parts.push(format!(
            "{} calls WAIT, the longest for {}: {} of {path}",
            int(&waiting["calls"]),
            time(waiting["longest_s"].as_f64().unwrap_or(0.0)),
            waiting["call"].as_str().unwrap_or("-")
        ));
    }
    let writes = int(&t["kernel_writes"]["waiting"]);
    if writes > 0 {
        let verb = if writes == 1 { " WAITS" } else { "s WAIT" };
        parts.push(format!("{writes} write{verb} for space"));
    }
    let opened = &t["last_opened"];
    if let Some(path) = opened["path"].as_str() {
        parts.push(format!(
            "last opened {}: {path} by {}",
            ago(opened["ago_s"].as_f64().unwrap_or(0.0)),
            opened["program"].as_str().unwrap_or("-")
        ));
    }
    line(&name, &parts.join(", "))
}

fn copies(c: &Value) -> Vec<String> {
    let of = |what: &Value| {
        format!(
            "of {} files, {}",
            int(&what["files"]),
            bytes(int(&what["bytes"]))
        )
    };
    let mut out = Vec::new();
    if c["on"].as_bool() == Some(true) {
        out.push(line("copies", &of(c)));
    }
    let heads = &c["heads"];
    if int(&heads["length_bytes"]) > 0 {
        out.push(line(
            "heads",
            &format!(
                "the first {} {}",
                bytes(int(&heads["length_bytes"])),
                of(heads)
            ),
        ));
    }
    out
}

/// What an administrator has said about single files and directories.
fn settings(s: &Value) -> Vec<String> {
    let pairs = |key: &str| -> Vec<String> {
        let of = s[key].as_object().into_iter().flatten();
        of.map(|(path, what)| line(key.trim_end_matches('s'), &format!("{path}: {what}")))
            .collect()
    };
    let mut out = pairs("pins");
    let policies = s["policies"].as_object().into_iter().flatten();
    out.extend(policies.map(|(path, p)| {
        let preset = p[0].as_str().unwrap_or("-");
        line(
            "directory",
            &format!("{path}: {preset}, {} % of the tier", int(&p[1])),
        )
    }));
    out.extend(
        items(&s["rules"])
            .filter_map(Value::as_str)
            .map(|r| line("rule", r)),
    );
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_is_a_page() {
        let mut s = json!({
            "state": "serving", "policy": "benefit", "moves": true, "migrating": false, "marks_percent": [80, 90],
            "tiers": [
                {"tier": 0, "path": "/fast", "files": 89, "bytes": 2048, "free_bytes": 1 << 20, "errors": 0, "above_mark": true,
                 "kernel_writes": {"handles": 2, "asks": true, "asking": true, "waiting": 1}},
                {"tier": 1, "path": "/slow", "files": 3, "bytes": 1 << 30, "free_bytes": 1u64 << 40, "errors": 2, "failing": true,
                 "waiting": {"calls": 3, "longest_s": 31.5, "call": "read", "path": "docs/c"},
                 "last_error": {"error": "a: EIO", "ago_s": 9}, "last_opened": {"path": "docs/a", "program": "cp", "ago_s": 5}},
                {"tier": 2, "path": "/a", "files": 4, "bytes": 2048, "free_bytes": 4096, "missing": true, "disks": [
                    {"disk": 2, "path": "/a", "files": 4, "bytes": 2048, "free_bytes": 4096},
                    {"disk": 3, "path": "/b", "files": 0, "bytes": 0, "free_bytes": 0, "missing": true},
                ]},
            ],
            "moving": {"path": "docs/b", "copied_bytes": 512, "bytes": 1024}, "io": "cached", "in_use": 4,
            "copies": {"on": true, "files": 5, "bytes": 4096, "heads": {"length_bytes": 16384, "files": 1, "bytes": 16384}},
            "pins": {"docs": 0}, "policies": {"music": ["hot", 20]}, "rules": ["*.iso:slow"],
            "recovered": {"finished": 1, "dropped": 0, "temps": 0}, "said": ["a tier fails"],
        });
        let text = status(Path::new("/mnt"), &s);
        for line in [
            "/mnt: Serving well.",
            "state      serving",
            "policy     benefit",
            "tier 0     /fast, 89 files, 2.00 KiB, 1.00 MiB free, above its mark, 1 write WAITS for space",
            "tier 1     /slow, 3 files, 1.00 GiB, 1.00 TiB free, FAILING, 2 errors, the last 9.0 s ago: a: EIO, \
             3 calls WAIT, the longest for 31.5 s: read of docs/c, \
             last opened 5.0 s ago: docs/a by cp",
            "tier 2     2 disks, 4 files, 2.00 KiB, 4.00 KiB free",
            "disk 2     /a, 4 files, 2.00 KiB, 4.00 KiB free",
            "disk 3     /b, 0 files, 0 B, 0 B free, MISSING",
            "marks      above 90 % the mover empties a tier down to 80 %",
            "copies     of 5 files, 4.00 KiB",
            "heads      the first 16.0 KiB of 1 files, 16.0 KiB",
            "moving     docs/b, 50.0 % of 1.00 KiB",
            "in use     4 files",
            "pin        docs: 0",
            "directory  music: hot, 20 % of the tier",
            "rule       *.iso:slow",
            "start      1 moves that a crash had interrupted were finished, 0 undone",
            "said       a tier fails",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        s["state"] = json!("degraded");
        assert!(status(Path::new("/mnt"), &s).starts_with("/mnt: DEGRADED"));
    }
}
