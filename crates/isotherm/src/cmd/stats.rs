//! `isotherm stats` and `isotherm why`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use isotherm_answers::{Why, WhyFile, WhyPart};
use isotherm_classify::files::extents;

use super::ask::lines;
use super::top::sample;
use crate::Failure;
use crate::answers;
use crate::args::{StatsArgs, WhyArgs};
use crate::control::Request;
use crate::control::client::{Client, PATIENCE, needed, served};
use crate::human::bytes;
use crate::overview::Overview;
use crate::table::table;

/// Most extents of a file that are asked for one by one. In a larger file this many evenly spaced ones are asked for.
const ASKED_MAX: usize = 4096;
/// Most lines that are printed.
const SHOWN_MAX: usize = 20;

/// What is said above the figures, of a server of any version.
#[derive(serde::Deserialize)]
struct Label {
    paced: bool,
}

/// `isotherm stats`.
///
/// # Errors
/// The volume is not served.
pub fn stats(args: &StatsArgs) -> Result<(), Failure> {
    let volume = &args.of.volume;
    if args.of.json.json.is_some() || args.all {
        let answer = served(volume)?.with_limit(PATIENCE).ask(&Request::Stats)?;
        return args.of.json.print(&answer, || {
            let label = match isotherm_answers::read(&answer) {
                Ok(Label { paced: true }) => "paced: times are those of device models\n",
                _ => "",
            };
            format!("{label}{}", lines(&answer, ""))
        });
    }
    // This error has the same text in all commands.
    served(volume)?;
    let mut last = None;
    loop {
        let now = match sample(volume)? {
            Ok(now) => now,
            Err(said) => return crate::json::to_stdout(&said),
        };
        let text = Overview::new(&now, last.as_ref()).lines();
        crate::json::to_stdout(&text)?;
        let Some(seconds) = args.watch else {
            return Ok(());
        };
        last = Some(now);
        std::thread::sleep(Duration::from_secs_f64(seconds));
        if !crate::json::is_read("\n")? {
            return Ok(());
        }
    }
}

/// `isotherm why`.
///
/// # Errors
/// The volume is not served, the offset is beyond its end, or the file is not on it.
pub fn why(args: &WhyArgs) -> Result<(), Failure> {
    let mut client = served(&args.volume)?.with_limit(PATIENCE);
    match (&args.file, args.offset) {
        (Some(file), _) => {
            let answer = of_file(&mut client, &args.volume, file)?;
            args.json.print(&answer, || file_text(&answer))
        }
        (None, offset) => {
            let offset = offset.unwrap_or_default();
            let answer = client.ask(&Request::Why { offset })?;
            args.json
                .print(&answer, || match isotherm_answers::read(&answer) {
                    Ok(why) if !args.all => answers::why(&why),
                    _ => lines(&answer, ""),
                })
        }
    }
}

/// The places of the parts of a file on the mounted file system.
fn of_file(client: &mut Client, volume: &Path, path: &Path) -> Result<WhyFile, Failure> {
    let file = File::open(path).map_err(|e| Failure::file(path, "open it", &e))?;
    let meta = file
        .metadata()
        .map_err(|e| Failure::file(path, "look at it", &e))?;
    if !meta.is_file() {
        return Err(Failure::failed(format!("{}: is no file", path.display())));
    }
    // Data that was written a moment ago has no place on the device until it is written back.
    file.sync_data()
        .map_err(|e| Failure::file(path, "write it out", &e))?;
    let place = super::classify::placed(client, path, volume, None)?;
    let pieces = extents(&file)
        .map_err(|e| Failure::file(path, "ask its file system where it is (FIEMAP)", &e))?;
    let size = needed(client.brief()?.extent_bytes, "extent_bytes")?.max(1);
    // Extent of the volume → bytes of the file in it.
    let mut parts: BTreeMap<u64, u64> = BTreeMap::new();
    for (at, len) in pieces {
        let (mut from, end) = (at + place.offset, at + place.offset + len);
        while from < end {
            let to = end.min((from / size + 1) * size);
            *parts.entry(from / size).or_default() += to - from;
            from = to;
        }
    }
    let step = parts.len().div_ceil(ASKED_MAX).max(1);
    let mut by_tier: BTreeMap<String, u64> = BTreeMap::new();
    let mut list = Vec::new();
    for (extent, n) in parts.iter().step_by(step) {
        let why: Why = client.ask_for(&Request::Why {
            offset: extent * size,
        })?;
        let tier = why.copy.as_ref().map(|c| c.tier).or(why.tier);
        let tier = tier.map_or_else(|| "none".to_owned(), |t| t.to_string());
        *by_tier.entry(tier).or_default() += n;
        list.push(WhyPart {
            why,
            bytes_of_file: *n,
        });
    }
    Ok(WhyFile {
        file: path.to_string_lossy().into_owned(),
        file_bytes: meta.len(),
        mapped_bytes: parts.values().sum(),
        extents: parts.len(),
        asked: list.len(),
        bytes_by_tier: by_tier,
        parts: list,
    })
}

fn file_text(answer: &WhyFile) -> String {
    let mut out = vec![format!(
        "{}: {}, {} of it in {} extents of the volume\n",
        answer.file,
        bytes(answer.file_bytes),
        bytes(answer.mapped_bytes),
        answer.extents,
    )];
    if answer.asked < answer.extents {
        out.push(format!(
            "a large file: {} of its extents were asked for\n",
            answer.asked
        ));
    }
    for (tier, b) in &answer.bytes_by_tier {
        out.push(format!("read from tier {tier}: {}\n", bytes(*b)));
    }
    let tier = |t: Option<u8>| t.map_or_else(|| "-".to_owned(), |t| t.to_string());
    let row = |part: &WhyPart| {
        let why = &part.why;
        vec![
            why.extent.to_string(),
            bytes(part.bytes_of_file),
            tier(why.tier),
            tier(why.copy.as_ref().map(|c| c.tier)),
            why.why.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = answer.parts.iter().take(SHOWN_MAX).map(row).collect();
    out.push(table(&["extent", "bytes", "tier", "copy on", "why"], &rows));
    if answer.parts.len() > SHOWN_MAX {
        out.push(format!(
            "and {} more: --json has them\n",
            answer.parts.len() - SHOWN_MAX
        ));
    }
    out.concat()
}
