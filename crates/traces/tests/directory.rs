//! Reads every trace of the directory in `$ISOTHERM_TRACES` (else `../shared/traces` beside the repository) and compares it with the table
//! of the README there. If the directory is missing, the test prints this and passes, because the traces cannot be distributed with the
//! program.

use std::path::PathBuf;

use isotherm_traces::{Info, Options, info};

/// One row of the README's table.
struct Row {
    file: String,
    format: String,
    requests: u64,
    reads_percent: Option<f64>,
    unique: u64,
    duration: String,
    sizes: String,
}

fn directory() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("ISOTHERM_TRACES") {
        return Some(PathBuf::from(dir));
    }
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    // A worktree is one level deeper than the main checkout.
    ["../shared/traces", "../../shared/traces"]
        .iter()
        .map(|p| root.join(p))
        .find(|p| p.is_dir())
}

fn rows(readme: &str) -> Vec<Row> {
    let number = |text: &str| {
        text.split(' ')
            .next()
            .unwrap_or("")
            .replace(',', "")
            .parse()
            .ok()
    };
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [
            file,
            format,
            _,
            _,
            _,
            requests,
            reads,
            unique,
            _,
            duration,
            sizes,
            _,
        ] = cells[..]
        else {
            return None;
        };
        Some(Row {
            file: file.to_owned(),
            format: format.to_owned(),
            requests: number(requests)?,
            reads_percent: reads.strip_suffix('%').and_then(|p| p.parse().ok()),
            unique: number(unique)?,
            duration: duration.to_owned(),
            sizes: sizes.to_owned(),
        })
    };
    readme
        .lines()
        .filter(|l| l.starts_with('|'))
        .filter_map(row)
        .collect()
}

/// Our name of a format for the name in the README.
fn our_name(format: &str) -> &str {
    match format {
        "ARC lis" => "arc",
        "vscsi v1" => "vscsi1",
        "ASCII, us" => "disksim",
        "SPC" => "spc",
        "FIU" => "fiu",
        "hplajw CSV" => "hplajw",
        "blkreplay" => "blkreplay",
        "blktrace" => "blktrace",
        "ref list" => "blocks",
        "MSR" => "msr",
        "Systor17" => "systor17",
        "Tencent CBS" => "tencent",
        other => other,
    }
}

/// "0.345 s", "60 min", "3.7 h", "6.7 d": the seconds, and the largest error of rounding.
fn seconds(text: &str) -> Option<(f64, f64)> {
    let (value, unit) = text.split_once(' ')?;
    let unit = match unit {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let decimals = value.split_once('.').map_or(0, |(_, d)| d.len());
    let slack = 0.51 * 10f64.powi(-(decimals as i32));
    Some((value.parse::<f64>().ok()? * unit, slack * unit))
}

/// The most common size, as the README prints it: "4K 63%".
fn commonest(i: &Info) -> String {
    let (size, count) = i
        .sizes
        .iter()
        .max_by_key(|&(_, n)| n)
        .expect("a trace with requests");
    let size = if size % 1024 == 0 {
        format!("{}K", size / 1024)
    } else {
        format!("{size}B")
    };
    format!(
        "{size} {:.0}%",
        *count as f64 / (i.reads + i.writes) as f64 * 100.0
    )
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn totals_equal_the_readme() {
    let Some(dir) = directory().filter(|d| d.join("README.md").is_file()) else {
        eprintln!("skipped: no directory of traces; name one in ISOTHERM_TRACES");
        return;
    };
    let rows = rows(&std::fs::read_to_string(dir.join("README.md")).expect("a readable README"));
    assert!(
        rows.len() >= 20,
        "only {} rows found in the README",
        rows.len()
    );
    let mut wrong = Vec::new();
    for row in rows {
        let i = match info(dir.join(&row.file), &Options::default()) {
            Ok(i) => i,
            Err(e) => {
                wrong.push(e.to_string());
                continue;
            }
        };
        let mut check = |what: &str, ok: bool, ours: String| {
            if !ok {
                wrong.push(format!("{}: {what}: {ours}", row.file));
            }
        };
        check(
            "format",
            i.format == our_name(&row.format),
            i.format.clone(),
        );
        check(
            "requests",
            i.requests == row.requests,
            format!("{} for {}", i.requests, row.requests),
        );
        check(
            "unique",
            i.unique_4k == row.unique,
            format!("{} for {}", i.unique_4k, row.unique),
        );
        if let Some(percent) = row.reads_percent {
            // The README counted only the plain R of blkreplay. Its RA (read-ahead) is a read as well: 344 of them in this trace.
            let ahead = if row.file == "linux-webserver-2.load.zst" {
                344
            } else {
                0
            };
            let ours = (i.reads - ahead) as f64 / i.requests as f64 * 100.0;
            check(
                "reads",
                (ours - percent).abs() <= 0.0501,
                format!("{ours} for {percent}"),
            );
        }
        match (seconds(&row.duration), i.duration_s) {
            (Some((want, slack)), Some(ours)) => {
                check(
                    "duration",
                    (ours - want).abs() <= slack,
                    format!("{ours} s for {}", row.duration),
                );
            }
            (None, ours) => check("duration", ours.is_none(), format!("{ours:?} for none")),
            (Some(_), None) => check("duration", false, "none".to_owned()),
        }
        if row.sizes != "-" {
            check(
                "sizes",
                row.sizes.starts_with(&commonest(&i)),
                format!("{} for {}", commonest(&i), row.sizes),
            );
        }
        check(
            "bad records",
            i.reader.bad_skipped == 0,
            i.reader.bad_skipped.to_string(),
        );
        // SYSTOR's records are in the order of completion, and Tencent's are not quite in order: both are sorted.
        let sorted = matches!(i.format.as_str(), "systor17" | "tencent");
        check(
            "order",
            i.reader.time_went_back == 0 && (i.reader.sorted > 0) == sorted,
            format!("{:?}", i.reader),
        );
        eprintln!("{}: {:?}", row.file, i.reader);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
