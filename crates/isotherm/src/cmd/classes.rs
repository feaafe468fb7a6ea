//! `isotherm classes show|set|import`.

use std::fmt::Write;
use std::path::Path;

use isotherm_classify::{classes, opencas};
use isotherm_core::policy::PRESETS;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Failure;
use crate::args::{
    ClassesCommand, ClassesExportArgs, ClassesImportArgs, ClassesSetArgs, ClassesWhat,
};
use crate::control::client::{Client, PATIENCE, served};
use crate::control::{ClassesAsk, Request};

/// Ranges per message, so that they fit into one line of the control socket.
pub const BATCH: usize = 8192;

/// Runs one of them.
///
/// # Errors
/// The volume is not served, or the request is invalid.
pub fn run(command: &ClassesCommand) -> Result<(), Failure> {
    match command {
        ClassesCommand::Show(args) => {
            let mut client = served(&args.volume)?.with_limit(PATIENCE);
            let answer = ask(&mut client, ClassesAsk::Show)?;
            args.json.print(&answer, || table(&answer))
        }
        ClassesCommand::Set(args) => set(args),
        ClassesCommand::Import(args) => import(args),
        ClassesCommand::Export(args) => export(args),
    }
}

fn ask(client: &mut Client, what: ClassesAsk) -> Result<Value, Failure> {
    client.ask(&Request::Classes { what })
}

fn set(args: &ClassesSetArgs) -> Result<(), Failure> {
    let mut client = served(&args.volume)?;
    let mut ranges = Vec::new();
    let rows: Vec<_> = args.what.iter().filter(|w| is_row(w)).collect();
    if !rows.is_empty() {
        set_rows(&mut client, &rows)?;
    }
    promise(&mut client, &args.what)?;
    for what in &args.what {
        match what {
            ClassesWhat::Row(_)
            | ClassesWhat::NoRows
            | ClassesWhat::Promise(_)
            | ClassesWhat::NoPromises => {}
            ClassesWhat::Range(from, bytes, class) => ranges.push((*from, *bytes, *class)),
            ClassesWhat::Switch(source, on) => {
                let (source, on) = (source.clone(), *on);
                ask(&mut client, ClassesAsk::Switch { source, on })?;
            }
            ClassesWhat::Again => drop(ask(&mut client, ClassesAsk::Again)?),
        }
    }
    if !ranges.is_empty() {
        register(&mut client, "ranges", false, &ranges)?;
    }
    let answer = ask(&mut client, ClassesAsk::Show)?;
    args.json.print(&answer, || table(&answer))
}

/// Promises are kept by the engine, whatever the policy is. A row is added to the existing ones.
fn promise(client: &mut Client, what: &[ClassesWhat]) -> Result<(), Failure> {
    let anew = what.contains(&ClassesWhat::NoPromises);
    let rows = what.iter().filter_map(|w| match w {
        ClassesWhat::Promise(row) => Some(row.clone()),
        _ => None,
    });
    let rows: Vec<String> = rows.collect();
    if anew || !rows.is_empty() {
        ask(client, ClassesAsk::Promise { rows, anew })?;
    }
    Ok(())
}

fn is_row(what: &ClassesWhat) -> bool {
    matches!(what, ClassesWhat::Row(_) | ClassesWhat::NoRows)
}

/// Rows are parameters of the policy, so the policy is described anew and takes over from itself.
fn set_rows(client: &mut Client, table: &[&ClassesWhat]) -> Result<(), Failure> {
    let status = client.ask(&Request::Status)?;
    let policy = status["policy"].as_str().unwrap_or_default();
    let name = policy.split(',').next().unwrap_or_default();
    let preset = PRESETS.iter().find(|p| p.name == name);
    if !preset.is_some_and(|p| p.params.iter().any(|q| q.name == "class")) {
        return Err(Failure::failed(format!(
            "policy `{name}` has no table of classes: first run `isotherm set VOLUME policy=benefit` or `policy=dss-lru-s` (the policy `type-aware` has rules in its place)"
        )));
    }
    let (mut rest, mut rows) = (Vec::new(), Vec::new());
    for part in policy.split(',') {
        match part.strip_prefix("class=") {
            Some(row) => rows.push(row.to_owned()),
            None => rest.push(part.to_owned()),
        }
    }
    for what in table {
        match what {
            ClassesWhat::Row(row) => {
                // If several rows name the same classes, the last one applies.
                let classes = |r: &str| r.split('+').next().unwrap_or_default().to_owned();
                rows.retain(|r| classes(r) != classes(row));
                rows.push(row.clone());
            }
            _ => rows.clear(),
        }
    }
    rest.extend(rows.into_iter().map(|r| format!("class={r}")));
    client.ask(&Request::Policy {
        policy: rest.join(","),
    })?;
    Ok(())
}

/// Registers the classes of ranges with a served volume, in as many messages as needed.
///
/// # Errors
/// The volume refuses a range. Ranges in earlier messages stay registered.
pub fn register(
    client: &mut Client,
    source: &str,
    anew: bool,
    ranges: &[(u64, u64, u8)],
) -> Result<(), Failure> {
    let none = [ranges];
    let batches: Vec<_> = if ranges.is_empty() {
        none.to_vec()
    } else {
        ranges.chunks(BATCH).collect()
    };
    for (i, some) in batches.into_iter().enumerate() {
        let what = ClassesAsk::Say {
            source: source.to_owned(),
            anew: anew && i == 0,
            ranges: some.to_vec(),
        };
        ask(client, what)?;
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    ranges: Vec<Range>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    offset: u64,
    bytes: u64,
    class: Class,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Class {
    Number(u8),
    Name(String),
}

/// Reads a class file of Open CAS, and reports the lines that cannot be used here.
///
/// # Errors
/// The message names the wrong line and field.
pub fn open_cas(file: &Path) -> Result<opencas::Import, Failure> {
    let text = std::fs::read_to_string(file).map_err(|e| Failure::file(file, "read", &e))?;
    let import =
        opencas::parse(&text).map_err(|e| Failure::failed(format!("{}: {e}", file.display())))?;
    for (line, why) in &import.left_out {
        crate::log::note(format_args!(
            "isotherm: {}: line {line}: left out: {why}",
            file.display()
        ));
    }
    Ok(import)
}

fn import_open_cas(args: &ClassesImportArgs) -> Result<(), Failure> {
    let import = open_cas(&args.file)?;
    let mut client = served(&args.volume)?;
    let status = client.ask(&Request::Status)?;
    let ranges = import.ranges(status["volume_bytes"].as_u64().unwrap_or(0));
    let rows: Vec<ClassesWhat> = import.rows().into_iter().map(ClassesWhat::Row).collect();
    // The imported table replaces the previous one.
    let table: Vec<&ClassesWhat> = [&ClassesWhat::NoRows].into_iter().chain(&rows).collect();
    set_rows(&mut client, &table)?;
    register(&mut client, &args.source, true, &ranges)?;
    let answer = json!({
        "source": args.source, "ranges": ranges.len(), "rows": import.rows(),
        "left_out": import.left_out.iter().map(|l| json!({"line": l.0, "why": l.1})).collect::<Vec<_>>(),
    });
    args.json.print(&answer, || {
        format!(
            "{} rows and {} ranges from {}; for its rules about files: isotherm classify --fs MOUNTPOINT --open-cas {} --volume {}\n",
            rows.len(), ranges.len(), args.file.display(), args.file.display(), args.volume.display()
        )
    })
}

fn import(args: &ClassesImportArgs) -> Result<(), Failure> {
    if args.file.extension().is_some_and(|e| e == "csv") {
        return import_open_cas(args);
    }
    let text =
        std::fs::read_to_string(&args.file).map_err(|e| Failure::file(&args.file, "read", &e))?;
    let bad = |e: String| Failure::failed(format!("{}: {e}", args.file.display()));
    let file: File = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    let ranges = file.ranges.into_iter().enumerate().map(|(i, r)| {
        let class = match r.class {
            Class::Number(n) => Some(n).filter(|n| *n <= classes::CLASS_MAX),
            Class::Name(name) => classes::parse(&name),
        };
        let class = class.ok_or_else(|| {
            bad(format!(
                "range {i}: class: give 0 to 63 or a name such as journal"
            ))
        })?;
        Ok((r.offset, r.bytes, class))
    });
    let ranges: Vec<_> = ranges.collect::<Result<_, Failure>>()?;
    let mut client = served(&args.volume)?;
    register(&mut client, &args.source, true, &ranges)?;
    let answer = json!({"source": args.source, "ranges": ranges.len()});
    args.json.print(&answer, || {
        format!("{} ranges from {}\n", ranges.len(), args.file.display())
    })
}

fn export(args: &ClassesExportArgs) -> Result<(), Failure> {
    let mut client = served(&args.volume)?;
    let mut all: Vec<Value> = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let answer = ask(&mut client, ClassesAsk::Ranges { from: at })?;
        let some = answer["ranges"].as_array().into_iter().flatten();
        all.extend(some.map(|r| {
            let class = classes::name(r[2].as_u64().unwrap_or(0) as u8);
            json!({"offset": r[0], "bytes": r[1], "class": class})
        }));
        from = answer["next"].as_u64();
    }
    let text = serde_json::to_string(&json!({"ranges": all}))
        .map_err(|e| Failure::failed(e.to_string()))?;
    crate::json::to_file(&args.file, text + "\n")
}

/// A promise, and how well it is kept, as text.
pub fn promised(row: &Value) -> String {
    let kept = |key: &str, name: &str| match row[key].as_bool() {
        Some(true) => format!(", {name} kept"),
        Some(false) => format!(", {name} NOT KEPT"),
        None => String::new(),
    };
    format!(
        "qos {}: {:.2} MB/s, {} at work, {} held{}{}",
        row["row"].as_str().unwrap_or("rest"),
        row["bytes_per_s"].as_f64().unwrap_or(0.0) / 1e6,
        row["in_flight"],
        row["held"],
        kept("floor_held", "floor"),
        kept("latency_held", "latency"),
    )
}

/// A file system that the layout reader found.
fn file_system(f: &Value) -> String {
    let n = |v: &Value| v.as_u64().unwrap_or(0);
    format!(
        "{} at byte {}, {:.1} MiB, blocks of {}",
        f["kind"].as_str().unwrap_or("ext"),
        n(&f["offset"]),
        n(&f["bytes"]) as f64 / f64::from(1 << 20),
        n(&f["block_bytes"])
    )
}

/// The figures as text.
fn table(answer: &Value) -> String {
    let mut text = String::new();
    let n = |v: &Value| v.as_u64().unwrap_or(0);
    let mut line = |s: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{s}");
    };
    line(format!(
        "{:>5} {:<18} {:>8} {:>12} {:>12} {:>10} {:>8} {:>10}",
        "class", "name", "priority", "volume MiB", "fast MiB", "requests", "hits", "latency ms"
    ));
    let mib = |v: &Value| format!("{:.1}", n(v) as f64 / f64::from(1 << 20));
    for (class, row) in answer["by_class"].as_object().into_iter().flatten() {
        let hits = row["fast_hit_ratio"].as_f64();
        let latency = row["latency_mean_s"].as_f64();
        line(format!(
            "{class:>5} {:<18} {:>8} {:>12} {:>12} {:>10} {:>8} {:>10}",
            row["name"].as_str().unwrap_or(""),
            n(&row["priority"]),
            mib(&row["volume_bytes"]),
            mib(&row["fast_bytes"]),
            n(&row["requests"]),
            hits.map_or("-".into(), |h| format!("{:.1}%", h * 100.0)),
            latency.map_or("-".into(), |l| format!("{:.3}", l * 1e3)),
        ));
    }
    for row in answer["rows"].as_array().into_iter().flatten() {
        line(format!("row {}", row.as_str().unwrap_or("")));
    }
    for row in answer["qos"].as_array().into_iter().flatten() {
        line(promised(row));
    }
    for s in answer["sources"].as_array().into_iter().flatten() {
        let on = if s["on"] == json!(true) { "on" } else { "off" };
        let name = s["source"].as_str().unwrap_or("");
        line(format!(
            "{name:<10} {on:<3} {:>12} requests",
            n(&s["requests"])
        ));
    }
    line(format!(
        "unclassified {}, of several classes {} requests; {} of memory ({} a GiB)",
        n(&answer["unclassified_requests"]),
        n(&answer["mixed_requests"]),
        mib(&answer["memory_bytes"]) + " MiB",
        mib(&json!(
            answer["memory_bytes_per_gib"].as_f64().unwrap_or(0.0) as u64
        )) + " MiB",
    ));
    if let Some(share) = answer["mixed_fast_share"].as_f64() {
        line(format!(
            "{} of {} extents on the fastest tier are of several classes ({:.1} %)",
            n(&answer["mixed_fast_extents"]),
            n(&answer["fast_extents"]),
            share * 100.0
        ));
    }
    let systems = answer["layout"]["file_systems"].as_array();
    for f in systems.into_iter().flatten() {
        line(file_system(f));
    }
    let looked = answer["layout"]["full_looks"].as_u64() > Some(0);
    if looked && systems.is_some_and(Vec::is_empty) && answer["layout"]["trouble"].is_null() {
        line(
            "layout: no ext2, ext3, ext4 or XFS on the volume or in its MBR or GPT partitions (a physical volume of LVM is not read): `classify --fs` registers files of any other file system".to_owned(),
        );
    }
    if let Some(trouble) = answer["layout"]["trouble"].as_str() {
        line(format!("layout: {trouble}"));
    }
    text
}
