//! Rules that assign classes to files.
//!
//! ```toml
//! [[rule]]
//! class = "class-40"
//! glob = "home/*/Videos/**"      # the path below the mount point
//! extension = ["mkv", "mp4"]
//! directory = "srv/media"        # this directory and everything below it
//! owner = 1000                   # a numeric user id
//! older_than_days = 30           # since it was last written
//! newer_than_days = 1
//! size_min = 1048576             # bytes
//! size_max = 1073741824
//! ```
//! A rule matches if all of its conditions do; the first rule that matches applies. If a file has the attribute `user.isotherm.class`, the
//! attribute's class applies. A file that no rule matches has the class of its size (DSS, Table 3).

use crate::classes;
use serde::Deserialize;
use std::path::{Path, PathBuf};

const DAY: u64 = 86_400;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Raw>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    class: Class,
    glob: Option<String>,
    #[serde(default)]
    extension: Vec<String>,
    directory: Option<PathBuf>,
    owner: Option<u32>,
    older_than_days: Option<u64>,
    newer_than_days: Option<u64>,
    size_min: Option<u64>,
    size_max: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Class {
    Number(u8),
    Name(String),
}

/// The properties of a file that rules examine.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Path below the mount point.
    pub path: &'a Path,
    /// Size in bytes.
    pub size: u64,
    /// Numeric user id of the owner.
    pub owner: u32,
    /// Seconds since the last write.
    pub age_s: u64,
}

/// One rule, made with [`Rules::parse`] or by hand.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// The class, 0…63.
    pub class: u8,
    /// Pattern of the path below the mount point.
    pub glob: Option<glob::Pattern>,
    /// The file has one of these extensions; written without a dot, in lower or upper case.
    pub extension: Vec<String>,
    /// The file is this or anything below it.
    pub directory: Option<PathBuf>,
    /// Numeric user id of the owner.
    pub owner: Option<u32>,
    /// Fewest seconds since the last write.
    pub older_s: Option<u64>,
    /// Upper bound for the seconds since the last write, exclusive.
    pub newer_s: Option<u64>,
    /// Smallest size in bytes.
    pub size_min: Option<u64>,
    /// Largest size in bytes.
    pub size_max: Option<u64>,
}

impl Rule {
    /// Whether all of its conditions match.
    pub fn fits(&self, f: Facts<'_>) -> bool {
        let separate = glob::MatchOptions {
            require_literal_separator: true,
            ..glob::MatchOptions::default()
        };
        let extension = f.path.extension().and_then(|e| e.to_str()).unwrap_or("");
        let is = |e: &String| e.eq_ignore_ascii_case(extension);
        self.glob
            .as_ref()
            .is_none_or(|g| g.matches_path_with(f.path, separate))
            && (self.extension.is_empty() || self.extension.iter().any(is))
            && self
                .directory
                .as_ref()
                .is_none_or(|d| f.path.starts_with(d))
            && self.owner.is_none_or(|o| o == f.owner)
            && self.older_s.is_none_or(|s| f.age_s >= s)
            && self.newer_s.is_none_or(|s| f.age_s < s)
            && self.size_min.is_none_or(|s| f.size >= s)
            && self.size_max.is_none_or(|s| f.size <= s)
    }
}

/// Rules in order.
#[derive(Clone, Debug, Default)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// Parses TOML in the form that the module describes.
    ///
    /// # Errors
    /// The message names the wrong rule and field.
    pub fn parse(text: &str) -> Result<Rules, String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
        let rules = file.rule.into_iter().enumerate().map(|(i, r)| {
            let bad = |what: String| format!("rule {i}: {what}");
            let class = match &r.class {
                Class::Number(n) => Some(*n).filter(|n| *n <= classes::CLASS_MAX),
                Class::Name(name) => classes::parse(name),
            };
            let glob = r.glob.as_deref().map(glob::Pattern::new).transpose();
            let strip = |d: PathBuf| d.strip_prefix("/").map(Path::to_owned).unwrap_or(d);
            let seconds = |days: u64| days.saturating_mul(DAY);
            Ok(Rule {
                class: class.ok_or_else(|| {
                    bad("class: give 0 to 63 or a name such as journal".to_owned())
                })?,
                glob: glob.map_err(|e| bad(format!("glob: {e}")))?,
                extension: r.extension,
                directory: r.directory.map(strip),
                owner: r.owner,
                older_s: r.older_than_days.map(seconds),
                newer_s: r.newer_than_days.map(seconds),
                size_min: r.size_min,
                size_max: r.size_max,
            })
        });
        rules.collect::<Result<_, String>>().map(Rules)
    }

    /// The class of the first rule that matches.
    pub fn class(&self, f: Facts<'_>) -> Option<u8> {
        self.0.iter().find(|r| r.fits(f)).map(|r| r.class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_fits_counts() {
        let rules = Rules::parse(
            "[[rule]]\nclass = 40\nglob = \"home/*/Videos/**\"\n[[rule]]\nclass = \"journal\"\nextension = [\"wal\"]\nsize_min = 10\n\
             [[rule]]\nclass = 41\ndirectory = \"/srv/media\"\nolder_than_days = 2\n[[rule]]\nclass = 42\nowner = 7\nsize_max = 5\n",
        )
        .unwrap();
        let class = |path: &str, size, owner, age_s| {
            rules.class(Facts {
                path: Path::new(path),
                size,
                owner,
                age_s,
            })
        };
        assert_eq!(class("home/a/Videos/x/y.mkv", 1, 0, 0), Some(40));
        assert_eq!(class("home/a/b/Videos/x", 1, 0, 0), None);
        assert_eq!(class("a/b.WAL", 10, 0, 0), Some(7));
        assert_eq!(class("a/b.wal", 9, 0, 0), None);
        assert_eq!(class("srv/media/x", 9, 0, 2 * DAY), Some(41));
        assert_eq!(class("srv/mediax", 9, 0, 2 * DAY), None);
        assert_eq!(class("srv/media/x", 5, 7, 2 * DAY - 1), Some(42));
    }

    #[test]
    fn errors_name_rule_and_field() {
        for (text, what) in [
            ("[[rule]]\nclass = 64\n", "rule 0: class"),
            ("[[rule]]\nclass = 1\nglob = \"a[\"\n", "rule 0: glob"),
            ("[[rule]]\nclass = 1\nsuffix = \"a\"\n", "suffix"),
            ("[[rule]]\nglob = \"a\"\n", "class"),
        ] {
            let e = Rules::parse(text).unwrap_err();
            assert!(e.contains(what), "{e}");
        }
    }
}
