//! The contents of the papers: titles, claims and printed values, in one TOML file per paper.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// The source of a printed value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// The text states it.
    #[default]
    Text,
    /// A table states it.
    Table,
    /// It was read off a plot.
    ReadOff,
    /// It follows from the paper's own formulas.
    Formula,
}

/// A value or a range that a paper prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// The value, or the low end of the range.
    pub low: f64,
    /// The value, or the high end of the range.
    pub high: f64,
    /// The source.
    #[serde(default)]
    pub how: How,
    /// Section, table or figure.
    pub at: String,
}

/// A claim, before any verdict.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stated {
    /// Name within the experiment.
    pub key: String,
    /// What is claimed.
    pub text: String,
    /// Section.
    pub at: String,
    /// Whether it is arithmetic.
    #[serde(default)]
    pub exact: bool,
    /// If it holds because something was fitted or calibrated to it: what that was.
    #[serde(default)]
    pub fitted: Option<String>,
    /// If it holds for every possible measurement: the reason.
    #[serde(default)]
    pub vacuous: Option<String>,
}

/// One experiment, as the paper describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name.
    pub id: String,
    /// Other ids: the figures of a group.
    #[serde(default)]
    pub also: Vec<String>,
    /// The title.
    pub title: String,
    /// Section or figure.
    pub section: String,
    /// The claims.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Stated>,
    /// The printed values.
    #[serde(default)]
    pub figures: BTreeMap<String, Printed>,
}

/// A paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Short name.
    pub name: String,
    /// Authors and title.
    pub about: String,
    /// Its experiments.
    #[serde(rename = "experiment")]
    pub experiments: Vec<Entry>,
}

const FILES: &[(&str, &str)] = &[
    ("greendm.toml", include_str!("data/greendm.toml")),
    ("oodt.toml", include_str!("data/oodt.toml")),
    ("loris.toml", include_str!("data/loris.toml")),
    ("hro.toml", include_str!("data/hro.toml")),
    ("dss.toml", include_str!("data/dss.toml")),
];

/// The papers. Their files are part of the program, so an invalid one is a bug; a test reads them all.
pub static PAPERS: LazyLock<Vec<Paper>> = LazyLock::new(|| {
    FILES
        .iter()
        .map(|(file, text)| {
            toml::from_str(text).unwrap_or_else(|e| panic!("data/{file} of this build: {e}"))
        })
        .collect()
});

/// The experiment called `id`. The letters of a figure are ignored.
pub fn find(id: &str) -> Option<&'static Entry> {
    let id = id.trim().to_lowercase().replace('–', "-");
    let mut all = PAPERS.iter().flat_map(|p| &p.experiments);
    let is = |e: &&Entry, id: &str| e.id == id || e.also.iter().any(|a| a == id);
    let exact = all.clone().find(|e| is(e, &id));
    exact.or_else(|| {
        // 6.5a, 6.5a-f: the figure without its parts.
        let letters = |s: &str| {
            s.strip_suffix(|c: char| c.is_ascii_lowercase())
                .filter(|s| s.ends_with(|c: char| c.is_ascii_digit()))
                .map(str::to_owned)
        };
        let whole = match id.rsplit_once('-') {
            Some((head, tail)) if tail.len() == 1 => letters(head),
            _ => letters(&id),
        }?;
        all.find(|e| is(e, &whole))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_sound() {
        let mut ids: Vec<&str> = Vec::new();
        for e in PAPERS.iter().flat_map(|p| &p.experiments) {
            assert!(!ids.contains(&e.id.as_str()), "{} twice", e.id);
            ids.push(&e.id);
            let mut keys: Vec<&str> = e.claims.iter().map(|c| c.key.as_str()).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), e.claims.len(), "{}: a key twice", e.id);
            for (k, f) in &e.figures {
                assert!(f.low <= f.high && !f.at.is_empty(), "{}: {k}", e.id);
            }
        }
    }
}
