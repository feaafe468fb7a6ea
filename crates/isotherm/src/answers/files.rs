//! The page of `isotherm files status`.

use std::path::Path;

use isotherm_answers::files::{Copies, Disks, Drain, Figures, State, Status, Tier};

use super::line;
use crate::human::{ago, bytes, percent, time};

/// The page of a mounted tree, from the answer of its server.
pub fn status(at: &Path, s: &Status) -> String {
    let mut out = vec![format!("{}: {}\n", at.display(), state(s))];
    out.push(line("state", &isotherm_answers::word(s.state)));
    let moves = if s.moves {
        ""
    } else {
        "; no file moves (--no-moves)"
    };
    out.push(line("policy", &format!("{}{moves}", s.policy)));
    out.extend(s.tiers.iter().flat_map(tier));
    let [low, high] = s.marks_percent;
    out.push(line(
        "marks",
        &format!("above {high} % the mover empties a tier down to {low} %"),
    ));
    out.extend(copies(&s.copies));
    if let Some(m) = &s.moving {
        let share = percent((m.bytes > 0).then(|| m.copied_bytes as f64 / m.bytes as f64));
        let what = format!("{}, {share} of {}", or_none(&m.path), bytes(m.bytes));
        out.push(line("moving", &what));
    }
    out.push(line("in use", &format!("{} files", s.in_use)));
    out.push(line("data path", &isotherm_answers::word(s.io)));
    out.extend(settings(s));
    let (finished, dropped) = (s.recovered.finished, s.recovered.dropped);
    if finished + dropped > 0 {
        out.push(line(
            "start",
            &format!(
                "{finished} moves that a crash had interrupted were finished, {dropped} undone"
            ),
        ));
    }
    if let Some(counts) = &s.cut.counts {
        let counts = counts.iter().map(|(what, n)| format!("{n} {what}"));
        let counts = counts.collect::<Vec<_>>().join(", ");
        let who = "shown to root and the user who mounted";
        out.push(line("hidden", &format!("{counts}: {who}")));
    }
    out.extend(s.said.iter().map(|said| line("said", said)));
    out.concat()
}

/// A path, which users who may not give commands do not get.
fn or_none(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn state(s: &Status) -> &'static str {
    match (s.state, s.migrating) {
        (State::Serving, true) => "Serving well; files move because of `migrate`.",
        (State::Serving, false) => "Serving well.",
        (State::Stuck, _) => "STUCK: names cannot change until the next mount.",
        (State::Degraded, _) => "DEGRADED: a tier is missing, read-only or fails.",
    }
}

/// The lines of a tier and of its disks.
fn tier(t: &Tier) -> Vec<String> {
    let name = format!("tier {}", t.tier);
    if t.disks.is_empty() {
        let place = or_none(&t.figures.path);
        let mut parts = held(place, &t.figures);
        parts.extend(health(&t.figures));
        return vec![line(&name, &parts.join(", "))];
    }
    let place = format!("{} disks", t.disks.len());
    let mut out = vec![line(&name, &held(&place, &t.figures).join(", "))];
    // The lines of the disks say the rest.
    out.extend(t.disks.iter().map(|d| {
        let mut parts = held(or_none(&d.figures.path), &d.figures);
        parts.extend(health(&d.figures));
        line(&format!("disk {}", d.disk), &parts.join(", "))
    }));
    out
}

/// The disks of a mounted tree, from the answer of its server.
pub fn disks(all: &Disks) -> String {
    let mut out: Vec<String> = Vec::new();
    for d in &all.disks {
        let f = &d.figures;
        let mut parts = vec![format!("tier {}", d.tier)];
        parts.extend(held(or_none(&f.path), f));
        if f.room_bytes > 0 {
            let used = f.room_bytes.saturating_sub(f.free_bytes);
            let share = percent(Some(used as f64 / f.room_bytes as f64));
            parts.push(format!("{share} of {} used", bytes(f.room_bytes)));
        }
        parts.extend(health(f));
        parts.extend(match d.drain {
            Drain::None => None,
            Drain::Draining => Some(format!("DRAINING, {} left", d.left.unwrap_or(0))),
            Drain::Empty => Some("EMPTY: the next mount may leave it out".into()),
        });
        if let Some(stay @ 1..) = d.cannot_move {
            parts.push(format!("{stay} CANNOT MOVE (see `files status`)"));
        }
        out.push(line(&format!("disk {}", d.disk), &parts.join(", ")));
    }
    if let Some(joining) = &all.joining {
        let refused = joining.refused.as_ref();
        let how = refused.map_or_else(|| format!("{}: is read", joining.path), String::clone);
        out.push(line("joining", &how));
    }
    if let Some(aim) = all.balance_percent {
        out.push(line(
            "balance",
            &format!("files move until no disk is above {aim} %"),
        ));
    }
    out.concat()
}

/// What a tier or disk holds.
fn held(place: &str, f: &Figures) -> Vec<String> {
    vec![
        format!("{place}, {} files", f.files),
        bytes(f.bytes),
        format!("{} free", bytes(f.free_bytes)),
    ]
}

/// How a tier or disk is.
fn health(f: &Figures) -> Vec<String> {
    let (h, mut parts) = (&f.health, Vec::new());
    for (is_so, word) in [
        (h.missing, "MISSING"),
        (h.failing, "FAILING"),
        (h.read_only, "READ-ONLY"),
        (f.above_mark, "above its mark"),
    ] {
        if is_so {
            parts.push(word.to_owned());
        }
    }
    if h.errors > 0 {
        let last = h.last_error.as_ref();
        let last = last.map(|e| format!(", the last {}: {}", ago(e.ago_s as f64), e.error));
        parts.push(format!("{} errors{}", h.errors, last.unwrap_or_default()));
    }
    if let Some(w) = &h.waiting {
        parts.push(format!(
            "{} calls WAIT, the longest for {}: {} of {}",
            w.calls,
            time(w.longest_s),
            isotherm_answers::word(w.call),
            or_none(&w.path)
        ));
    }
    let writes = f.kernel_writes.as_ref().map_or(0, |w| w.waiting);
    if writes > 0 {
        let verb = if writes == 1 { " WAITS" } else { "s WAIT" };
        parts.push(format!("{writes} write{verb} for space"));
    }
    if let Some(opened) = &h.last_opened {
        parts.push(format!(
            "last opened {}: {} by {}",
            ago(opened.ago_s as f64),
            opened.path,
            opened.program
        ));
    }
    parts
}

fn copies(c: &Copies) -> Vec<String> {
    let of = |files: usize, n: u64| format!("of {files} files, {}", bytes(n));
    let mut out = Vec::new();
    if c.on {
        out.push(line("copies", &of(c.files, c.bytes)));
    }
    let heads = &c.heads;
    if heads.length_bytes > 0 {
        let held = of(heads.files, heads.bytes);
        let what = format!("the first {} {held}", bytes(heads.length_bytes));
        out.push(line("heads", &what));
    }
    if let Some(r) = &c.ranges {
        let all = (r.hits + r.misses).max(1) as f64;
        let served = 100.0 * r.hits as f64 / all;
        let held = of(r.files, r.bytes);
        let what = format!("{held}; {served:.0} % of the reads of such files");
        out.push(line("ranges", &what));
    }
    out
}

/// What an administrator has said about single files and directories.
fn settings(s: &Status) -> Vec<String> {
    let pins = s.pins.iter();
    let mut out: Vec<String> = pins
        .map(|(path, tier)| line("pin", &format!("{path}: {tier}")))
        .collect();
    out.extend(s.policies.iter().map(|(path, (preset, share))| {
        line(
            "directory",
            &format!("{path}: {preset}, {share} % of the tier"),
        )
    }));
    out.extend(s.rules.iter().map(|rule| line("rule", rule)));
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ranges_have_a_line() {
        let c: Copies = isotherm_answers::read(&json!({
            "on": false, "files": 0, "bytes": 0, "made": 0, "dropped": 0, "reads": 0,
            "heads": {"length_bytes": 0, "files": 0, "bytes": 0, "made": 0},
            "ranges": {"length_bytes": 65536, "files": 1, "ranges": 2, "bytes": 131_072, "bytes_max": 262_144, "made": 2, "hits": 3,
                "hit_bytes": 12288, "misses": 1},
        }))
        .expect("copies");
        assert_eq!(
            copies(&c),
            ["ranges     of 1 files, 128 KiB; 75 % of the reads of such files\n"]
        );
    }

    #[test]
    fn status_is_a_page() {
        let well = json!({
            "missing": false, "failing": false, "read_only": false, "errors": 0, "last_error": null, "last_opened": null, "waiting": null,
            "room_bytes": 0, "above_mark": false,
        });
        let disk = |with: serde_json::Value| {
            let mut all = well.clone();
            for (key, value) in with.as_object().expect("keys") {
                all[key.as_str()] = value.clone();
            }
            all
        };
        let s = json!({
            "state": "serving", "policy": "benefit", "moves": true, "migrating": false, "marks_percent": [80, 90],
            "tiers": [
                disk(json!({"tier": 0, "path": "/fast", "files": 89, "bytes": 2048, "free_bytes": 1 << 20, "above_mark": true,
                 "kernel_writes": {"handles": 2, "asks": true, "asking": true, "waiting": 1}})),
                disk(json!({"tier": 1, "path": "/slow", "files": 3, "bytes": 1 << 30, "free_bytes": 1u64 << 40, "errors": 2, "failing": true,
                 "waiting": {"calls": 3, "longest_s": 31.5, "call": "read", "path": "docs/c"},
                 "last_error": {"error": "a: EIO", "ago_s": 9}, "last_opened": {"path": "docs/a", "program": "cp", "pid": 7, "ago_s": 5}})),
                disk(json!({"tier": 2, "path": "/a", "files": 4, "bytes": 2048, "free_bytes": 4096, "missing": true, "disks": [
                    disk(json!({"disk": 2, "path": "/a", "files": 4, "bytes": 2048, "free_bytes": 4096})),
                    disk(json!({"disk": 3, "path": "/b", "files": 0, "bytes": 0, "free_bytes": 0, "missing": true})),
                ]})),
            ],
            "moving": {"path": "docs/b", "copied_bytes": 512, "bytes": 1024}, "io": "cached", "in_use": 4,
            "copies": {"on": true, "files": 5, "bytes": 4096, "made": 6, "dropped": 1, "reads": 9,
                "heads": {"length_bytes": 16384, "files": 1, "bytes": 16384, "made": 1}},
            "pins": {"docs": 0}, "policies": {"music": ["hot", 20]}, "rules": ["*.iso:slow"],
            "recovered": {"finished": 1, "dropped": 0, "temps": 0}, "said": ["a tier fails"],
        });
        let mut s: Status = isotherm_answers::read(&s).expect("a status");
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
        // For users who may not give commands.
        s.moving.as_mut().expect("a move").path.clear();
        let waits = s.tiers[1].figures.health.waiting.as_mut();
        waits.expect("calls").path.clear();
        let text = status(Path::new("/mnt"), &s);
        assert!(
            text.contains("3 calls WAIT, the longest for 31.5 s: read of -, "),
            "{text}"
        );
        assert!(
            text.contains("moving     -, 50.0 % of 1.00 KiB\n"),
            "{text}"
        );
        s.state = State::Degraded;
        assert!(status(Path::new("/mnt"), &s).starts_with("/mnt: DEGRADED"));
    }
}
