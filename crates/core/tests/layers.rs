//! The layers of the core: which modules may use which words. A source file that breaks a rule is reported with its line.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(under: &str) -> Vec<PathBuf> {
    let mut todo = vec![
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src")
            .join(under),
    ];
    let mut found = Vec::new();
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() && path.ends_with("tests") {
                // Tests may build a volume.
            } else if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|x| x == "rs") {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 3, "{under}: hardly a file found");
    found
}

/// Whether `line` has `word` as a whole word.
fn has(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(i, _)| {
        let before = line[..i].chars().next_back();
        let after = line[i + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

fn none_of(under: &str, words: &[&str], but: &[&str]) {
    let mut broken = Vec::new();
    for path in sources(under) {
        if but.iter().any(|b| path.ends_with(b)) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a readable source");
        for (n, line) in text.lines().enumerate() {
            // Comments may use the word; code may not. Tests at the end of a file may build a volume.
            if line.trim_start().starts_with("#[cfg(test)]") {
                break;
            }
            let code = line.split("//").next().unwrap_or_default();
            let bad = words.iter().filter(|w| has(code, w));
            broken.extend(bad.map(|w| format!("{}:{}: {w}", path.display(), n + 1)));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Slots are known only to the volume and the engine. A view is the interface to policies.
const PLACES: [&str; 6] = [
    "Slot",
    "Geometry",
    "Space",
    "locate",
    "tier_slots",
    "Position::at",
];

#[test]
fn policies_know_no_slots() {
    none_of("policy", &PLACES, &["view.rs"]);
    none_of("collector", &PLACES, &[]);
    none_of("policy", &["slot()"], &["view.rs"]);
}

#[test]
fn the_volume_knows_no_policy() {
    for under in ["volume", "store"] {
        none_of(under, &["crate::policy", "Policy", "View"], &[]);
    }
}

#[test]
fn words_are_found_whole() {
    assert!(has("a: Slot,", "Slot") && has("Slot", "Slot") && has("x.slot()", "slot()"));
    assert!(!has("Slots", "Slot") && !has("take_slot()", "slot()"));
}
