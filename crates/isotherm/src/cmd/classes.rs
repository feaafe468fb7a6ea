//! `isotherm classes show|set|import`.

use std::fmt::Write;
use std::path::Path;

use isotherm_answers::{ClassRanges, Classes, FoundFileSystem, Promise, RegisteredClasses};
use isotherm_classify::{classes, opencas};
use isotherm_core::policy::PRESETS;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ask::lines;
use crate::Failure;
use crate::args::{
    ClassesCommand, ClassesExportArgs, ClassesImportArgs, ClassesSetArgs, ClassesWhat,
};
use crate::control::client::{Client, PATIENCE, needed, served};
use crate::control::{ClassesAsk, Request};
use crate::json::JsonArg;

/// Ranges per message, so that they fit into one line of the control socket.
pub const BATCH: usize = 8192;

/// Runs one of them.
///
/// # Errors
/// The volume is not served, or the request is invalid.
pub fn run(command: &ClassesCommand) -> Result<(), Failure> {
    match command {
        ClassesCommand::Show(args) => {
            show(&mut served(&args.volume)?.with_limit(PATIENCE), &args.json)
        }
        ClassesCommand::Set(args) => set(args),
        ClassesCommand::Import(args) => import(args),
        ClassesCommand::Export(args) => export(args),
    }
}

fn ask<T: DeserializeOwned>(client: &mut Client, what: ClassesAsk) -> Result<T, Failure> {
    client.ask_for(&Request::Classes { what })
}

/// Asks for something whose answer says no more than that it was done.
fn order(client: &mut Client, what: ClassesAsk) -> Result<(), Failure> {
    client.ask(&Request::Classes { what }).map(drop)
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
                order(&mut client, ClassesAsk::Switch { source, on })?;
            }
            ClassesWhat::Again => order(&mut client, ClassesAsk::Again)?,
        }
    }
    if !ranges.is_empty() {
        register(&mut client, "ranges", false, &ranges)?;
    }
    show(&mut client, &args.json)
}

/// Prints the figures. A server of another version may not have those that the table needs: then there is what it has.
fn show(client: &mut Client, json: &JsonArg) -> Result<(), Failure> {
    let what = ClassesAsk::Show;
    let answer = client.ask(&Request::Classes { what })?;
    json.print(&answer, || match isotherm_answers::read(&answer) {
        Ok(classes) => table(&classes),
        Err(_) => lines(&answer, ""),
    })
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
        order(client, ClassesAsk::Promise { rows, anew })?;
    }
    Ok(())
}

fn is_row(what: &ClassesWhat) -> bool {
    matches!(what, ClassesWhat::Row(_) | ClassesWhat::NoRows)
}

/// Rows are parameters of the policy, so the policy is described anew and takes over from itself.
fn set_rows(client: &mut Client, table: &[&ClassesWhat]) -> Result<(), Failure> {
    let policy = needed(client.brief()?.policy, "policy")?;
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
        order(client, what)?;
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

/// `classes import --json` of a class file of Open CAS.
#[derive(Serialize)]
struct Imported {
    #[serde(flatten)]
    ranges: RegisteredClasses,
    rows: Vec<String>,
    left_out: Vec<LeftOut>,
}

/// A line that cannot be used here.
#[derive(Serialize)]
struct LeftOut {
    line: usize,
    why: String,
}

fn registered(args: &ClassesImportArgs, ranges: &[(u64, u64, u8)]) -> RegisteredClasses {
    RegisteredClasses {
        source: args.source.clone(),
        ranges: ranges.len(),
    }
}

fn import_open_cas(args: &ClassesImportArgs) -> Result<(), Failure> {
    let import = open_cas(&args.file)?;
    let mut client = served(&args.volume)?;
    let ranges = import.ranges(needed(client.brief()?.volume_bytes, "volume_bytes")?);
    let rows: Vec<ClassesWhat> = import.rows().into_iter().map(ClassesWhat::Row).collect();
    // The imported table replaces the previous one.
    let table: Vec<&ClassesWhat> = [&ClassesWhat::NoRows].into_iter().chain(&rows).collect();
    set_rows(&mut client, &table)?;
    register(&mut client, &args.source, true, &ranges)?;
    let left_out = import.left_out.iter().map(|l| LeftOut {
        line: l.0,
        why: l.1.clone(),
    });
    let answer = Imported {
        ranges: registered(args, &ranges),
        rows: import.rows(),
        left_out: left_out.collect(),
    };
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
    let answer = registered(args, &ranges);
    args.json.print(&answer, || {
        format!("{} ranges from {}\n", ranges.len(), args.file.display())
    })
}

fn export(args: &ClassesExportArgs) -> Result<(), Failure> {
    let mut client = served(&args.volume)?;
    let mut all: Vec<ExportedRange> = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let answer: ClassRanges = ask(&mut client, ClassesAsk::Ranges { from: at })?;
        let some = answer.ranges.into_iter();
        all.extend(some.map(|(offset, bytes, class)| ExportedRange {
            offset,
            bytes,
            class: classes::name(class),
        }));
        from = answer.next;
    }
    let text = isotherm_answers::json(&Exported { ranges: all }).to_string();
    crate::json::to_file(&args.file, text + "\n")
}

/// The file that `classes export` writes, which `classes import` reads.
#[derive(Serialize)]
struct Exported {
    ranges: Vec<ExportedRange>,
}

#[derive(Serialize)]
struct ExportedRange {
    offset: u64,
    bytes: u64,
    class: String,
}

/// A promise, and how well it is kept, as text.
fn promised(row: &Promise) -> String {
    let kept = |held: Option<bool>, name: &str| match held {
        Some(true) => format!(", {name} kept"),
        Some(false) => format!(", {name} NOT KEPT"),
        None => String::new(),
    };
    format!(
        "qos {}: {:.2} MB/s, {} at work, {} held{}{}",
        row.row.as_deref().unwrap_or("rest"),
        row.bytes_per_s as f64 / 1e6,
        row.in_flight,
        row.held,
        kept(row.floor_held, "floor"),
        kept(row.latency_held, "latency"),
    )
}

/// A file system that the layout reader found.
fn file_system(f: &FoundFileSystem) -> String {
    format!(
        "{} at byte {}, {:.1} MiB, blocks of {}",
        isotherm_answers::word(f.kind),
        f.offset,
        f.bytes as f64 / f64::from(1 << 20),
        f.block_bytes
    )
}

/// The figures as text.
fn table(answer: &Classes) -> String {
    let mut text = String::new();
    let mut line = |s: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{s}");
    };
    line(format!(
        "{:>5} {:<18} {:>8} {:>12} {:>12} {:>10} {:>8} {:>10}",
        "class", "name", "priority", "volume MiB", "fast MiB", "requests", "hits", "latency ms"
    ));
    let mib = |n: u64| format!("{:.1}", n as f64 / f64::from(1 << 20));
    for (class, row) in &answer.by_class {
        let (held, row) = (row.volume_bytes, &row.figures);
        let (hits, latency) = (row.fast_hit_ratio, row.latency_mean_s);
        line(format!(
            "{class:>5} {:<18} {:>8} {:>12} {:>12} {:>10} {:>8} {:>10}",
            row.name,
            row.priority,
            // Nothing of the volume is known to be of the class.
            mib(held.unwrap_or(0)),
            row.fast_bytes.map_or("-".into(), mib),
            row.requests,
            hits.map_or("-".into(), |h| format!("{:.1}%", h * 100.0)),
            latency.map_or("-".into(), |l| format!("{:.3}", l * 1e3)),
        ));
    }
    answer
        .rows
        .iter()
        .for_each(|row| line(format!("row {row}")));
    answer.qos.iter().for_each(|row| line(promised(row)));
    for s in &answer.sources.sources {
        let on = if s.on { "on" } else { "off" };
        let name = isotherm_answers::word(s.source);
        line(format!("{name:<10} {on:<3} {:>12} requests", s.requests));
    }
    line(format!(
        "unclassified {}, of several classes {} requests; {} MiB of memory ({} MiB a GiB)",
        answer.sources.unclassified_requests,
        answer.sources.mixed_requests,
        mib(answer.memory_bytes as u64),
        mib(answer.memory_bytes_per_gib as u64),
    ));
    if let Some(share) = answer.mixed_fast_share {
        line(format!(
            "{} of {} extents on the fastest tier are of several classes ({:.1} %)",
            answer.mixed_fast_extents,
            answer.fast_extents,
            share * 100.0
        ));
    }
    let layout = &answer.layout;
    layout
        .file_systems
        .iter()
        .for_each(|f| line(file_system(f)));
    if layout.full_looks > 0 && layout.file_systems.is_empty() && layout.trouble.is_none() {
        line(
            "layout: no ext2, ext3, ext4 or XFS on the volume or in its MBR or GPT partitions (a physical volume of LVM is not read): `classify --fs` registers files of any other file system".to_owned(),
        );
    }
    if let Some(trouble) = &layout.trouble {
        line(format!("layout: {trouble}"));
    }
    text
}
