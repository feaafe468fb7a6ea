//! The figures of a mounted file system for Prometheus (OpenMetrics text): for each disk, and of the mount. They are those of `files disk list`
//! and `files stats`, so no counter is kept twice, and no disk is woken.

use std::fmt::Write;

use isotherm_answers::files::{DiskState, Disks, Drain, Stats};

/// A figure of each disk: its name, its help, its value if it has one.
type OfDisk = (&'static str, &'static str, fn(&DiskState) -> Option<u64>);

const OF_DISKS: [OfDisk; 11] = [
    ("files", "Files on the disk", |d| Some(d.figures.files)),
    ("used_bytes", "Bytes of these files", |d| {
        Some(d.figures.bytes)
    }),
    ("free_bytes", "Free bytes", |d| Some(d.figures.free_bytes)),
    ("size_bytes", "Size of the disk, or its quota", |d| {
        Some(d.figures.room_bytes)
    }),
    ("above_mark", "1: fuller than the upper mark", |d| {
        Some(d.figures.above_mark.into())
    }),
    ("missing", "1: absent", |d| {
        Some(d.figures.health.missing.into())
    }),
    (
        "failing",
        "1: the last call that went to its device failed",
        |d| Some(d.figures.health.failing.into()),
    ),
    ("read_only", "1: takes no writes", |d| {
        Some(d.figures.health.read_only.into())
    }),
    (
        "waiting_calls",
        "Calls that have lasted for more than a second",
        |d| Some(d.figures.health.waiting.as_ref().map_or(0, |w| w.calls) as u64),
    ),
    (
        "draining",
        "1: its files move to the other disks of its tier; 2: it is empty",
        |d| {
            Some(match d.drain {
                Drain::None => 0,
                Drain::Draining => 1,
                Drain::Empty => 2,
            })
        },
    ),
    (
        "left_files",
        "Files, links and pipes that a drain has still to move",
        |d| d.left.map(|left| left as u64),
    ),
];

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = write!(out, "# TYPE {name} {kind}\n# HELP {name} {help}.\n");
}

/// A value of a label, as OpenMetrics quotes it.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', r"\\").replace('"', "\\\"");
    text.replace('\n', r"\n")
}

/// The text of a scrape.
pub fn text(disks: &Disks, stats: &Stats) -> String {
    let mut out = String::new();
    let mut each =
        |(name, help): (&str, &str), kind: &str, value: &dyn Fn(&DiskState) -> Option<u64>| {
            let name = format!("isotherm_files_disk_{name}");
            head(&mut out, &name, kind, help);
            let end = if kind == "counter" { "_total" } else { "" };
            for d in &disks.disks {
                let path = quoted(&d.figures.path);
                if let Some(value) = value(d) {
                    let labels = format!("tier=\"{}\",disk=\"{}\",path=\"{path}\"", d.tier, d.disk);
                    let _ = writeln!(out, "{name}{end}{{{labels}}} {value}");
                }
            }
        };
    for (name, help, value) in OF_DISKS {
        each((name, help), "gauge", &value);
    }
    let errors = ("errors", "Calls that its device failed since the mount");
    each(errors, "counter", &|d| Some(d.figures.health.errors));
    head(
        &mut out,
        "isotherm_files_moves",
        "counter",
        "Moves of files since the mount",
    );
    let m = &stats.moves;
    for (outcome, n) in [
        ("done", m.done),
        ("refused", m.refused),
        ("failed", m.failed),
    ] {
        let _ = writeln!(
            out,
            "isotherm_files_moves_total{{outcome=\"{outcome}\"}} {n}"
        );
    }
    let help = "Reads and writes that the program served since the mount";
    head(&mut out, "isotherm_files_accesses", "counter", help);
    let _ = writeln!(out, "isotherm_files_accesses_total {}", stats.accesses);
    out.push_str("# EOF\n");
    out
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_path_can_have_any_characters() {
        assert_eq!(quoted("/a \"b\"\\c\nd"), "/a \\\"b\\\"\\\\c\\nd");
    }
}
