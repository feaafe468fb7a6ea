//! Ranges that were registered with a served volume, kept beside its description (`p/v.classes`) from one stop to the next start.
//!
//! Never false: nothing here can keep a volume from being served or stopped; what is lost or old costs placement, never data.

use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use isotherm_classify::{Source, classes};
use isotherm_live::{Handle, VolumeConfig};
use serde::{Deserialize, Serialize};

/// Ranges in a file at most: some 40 MB of text.
const RANGES_MAX: usize = 1 << 20;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Of the volume: a new one of the same name begins with nothing.
    uuid: Option<String>,
    /// Source, first byte, bytes, class.
    ranges: Vec<(String, u64, u64, u8)>,
}

/// Who registers ranges; the layout is read from the volume itself.
fn sources() -> impl Iterator<Item = Source> {
    Source::ALL.into_iter().filter(|s| *s != Source::Layout)
}

/// Where they are kept.
pub fn file(description: &Path) -> PathBuf {
    description.with_extension("classes")
}

/// Registers what was kept with a volume that has just been started. What is not understood is left out, and said.
pub fn load(handle: &Handle, config: &VolumeConfig, file: &Path) {
    let text = match std::fs::File::open(file) {
        Ok(f) => BufReader::new(f),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return,
        Err(e) => return eprintln!("isotherm: {}: {e}: no ranges of classes", file.display()),
    };
    let kept: Kept = match serde_json::from_reader(text) {
        Ok(kept) => kept,
        Err(e) => return eprintln!("isotherm: {}: {e}: no ranges of classes", file.display()),
    };
    if kept.uuid != config.uuid {
        return eprintln!(
            "isotherm: {}: ranges of classes of another volume: left out",
            file.display()
        );
    }
    let mut layers = handle.classes().layers();
    let bytes = layers.bytes();
    for (name, from, n, class) in kept.ranges {
        let end = from.checked_add(n).filter(|e| *e <= bytes);
        let source = sources().find(|s| s.name() == name);
        if let (Some(source), Some(end)) = (source, end)
            && class <= classes::CLASS_MAX
        {
            layers.say(source, from >> 12, end.div_ceil(4096), class);
        }
    }
    drop(layers);
    // A volume that closes already has no use for it.
    handle.classes().settle(handle);
}

/// Writes down what was registered, whole or not at all; says it if that fails.
pub fn save(handle: &Handle, config: &VolumeConfig, file: &Path) {
    let mut ranges = Vec::new();
    let layers = handle.classes().layers();
    let blocks = layers.bytes().div_ceil(4096);
    for source in sources() {
        let mut at = 0;
        while at < blocks {
            let (class, n) = layers.said_run(source, at, blocks - at);
            let (from, bytes) = (at << 12, (n << 12).min(layers.bytes() - (at << 12)));
            at += n.max(1);
            match ranges.last_mut() {
                _ if class == 0 => {}
                Some((name, first, len, c))
                    if name == source.name() && *c == class && *first + *len == from =>
                {
                    *len += bytes;
                }
                _ => ranges.push((source.name().to_owned(), from, bytes, class)),
            }
        }
    }
    drop(layers);
    if ranges.is_empty() {
        // None was there, mostly.
        let _ = std::fs::remove_file(file);
        return;
    }
    if ranges.len() > RANGES_MAX {
        return eprintln!(
            "isotherm: {} ranges of classes are more than are kept ({RANGES_MAX}): register them again after the next start",
            ranges.len()
        );
    }
    let kept = Kept {
        uuid: config.uuid.clone(),
        ranges,
    };
    if let Err(e) = write(file, &kept) {
        eprintln!(
            "isotherm: {}: {e}: ranges of classes are not kept, register them again after the next start",
            file.display()
        );
    }
}

fn write(file: &Path, kept: &Kept) -> std::io::Result<()> {
    let new = file.with_extension("classes.new");
    let mut out = BufWriter::new(std::fs::File::create(&new)?);
    serde_json::to_writer(&mut out, kept)?;
    out.flush()?;
    std::fs::rename(&new, file)
}
