//! Keeps the ranges that were registered with a served volume beside its description (`p/v.classes`) from one stop to the next start.
//!
//! Guarantee: no failure here prevents a volume from being served or stopped. Ranges that are lost or outdated affect placement and never
//! data.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use isotherm_classify::{Source, classes};
use isotherm_live::{Handle, VolumeConfig};
use serde::{Deserialize, Serialize};

/// Most ranges in a file: about 40 MB of text.
const RANGES_MAX: usize = 1 << 20;
/// Largest file that is read, in bytes: that many ranges.
const BYTES_MAX: u64 = 128 << 20;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// The UUID of the volume. A new volume with the same name starts without ranges.
    uuid: Option<String>,
    /// Source, first byte, bytes, class.
    ranges: Vec<(String, u64, u64, u8)>,
}

/// The sources that register ranges. The layout is not among them, because it is read from the volume itself.
fn sources() -> impl Iterator<Item = Source> {
    Source::ALL.into_iter().filter(|s| *s != Source::Layout)
}

/// The path of the file with the ranges.
pub fn file(description: &Path) -> PathBuf {
    description.with_extension("classes")
}

/// Registers the kept ranges with a volume that has just been started. Entries that cannot be parsed are skipped and reported.
pub fn load(handle: &Handle, config: &VolumeConfig, file: &Path) {
    let text = match isotherm_paths::read(file, BYTES_MAX) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return,
        Err(e) => return eprintln!("isotherm: {}: {e}: no ranges of classes", file.display()),
    };
    let kept: Kept = match serde_json::from_slice(&text) {
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
            layers.set(source, from >> 12, end.div_ceil(4096), class);
        }
    }
    drop(layers);
    // A volume that is closing does not need them.
    handle.classes().settle(handle);
}

/// Writes the registered ranges, completely or not at all, and reports a failure.
pub fn save(handle: &Handle, config: &VolumeConfig, file: &Path) {
    let mut ranges = Vec::new();
    let layers = handle.classes().layers();
    let blocks = layers.bytes().div_ceil(4096);
    for source in sources() {
        let mut at = 0;
        while at < blocks {
            let (class, n) = layers.class_run(source, at, blocks - at);
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
        // The file is usually absent.
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
    if let Err(e) = isotherm_paths::replace(file, 0o600, |f| {
        let mut out = BufWriter::new(f);
        serde_json::to_writer(&mut out, &kept)?;
        out.flush()
    }) {
        eprintln!(
            "isotherm: {}: {e}: ranges of classes are not kept, register them again after the next start",
            file.display()
        );
    }
}
