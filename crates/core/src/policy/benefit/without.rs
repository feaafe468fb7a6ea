//! Mechanisms that can be switched off, one or several at a time, to measure the effect of each (`bench/benefit/ablation.py`).
//!
//! This is not meant for volumes in use: without one of the mechanisms `benefit` is slower, wears flash sooner, or both.

use crate::policy::{ParamError, nearest};
use alloc::string::String;

/// The name of each mechanism, and what happens without it.
const NAMES: [(&str, &str); 11] = [
    ("none", "all mechanisms are on"),
    (
        "account",
        "data that is not used again is copied, even if copies cost more than they save",
    ),
    (
        "lacks",
        "blocks that are missing in a copy are read from the slow device and not fetched",
    ),
    (
        "worth",
        "every new copy replaces a random clean copy, and worth does not matter",
    ),
    (
        "riding",
        "at most 16 copies are made at the same time, instead of 128",
    ),
    (
        "value",
        "cleaning always waits until the slow device is idle, even if flash has no clean copies",
    ),
    (
        "alone",
        "flash gets writes even if the slow device alone would answer sooner",
    ),
    (
        "classes",
        "the measured worth of the classes of data does not count (rows of classes apply)",
    ),
    (
        "yielding",
        "a round of cleans begins at once if any request waits, and as soon as a slot waits for it",
    ),
    (
        "duel",
        "the newest extent always replaces copies, even while a set larger than flash is read again and again",
    ),
    (
        "sooner",
        "a clean copy is read even while flash is so far behind that the slow device would answer sooner",
    ),
];
/// The names, for error messages.
const RANGE: &str = "none, or names of mechanisms joined by +: account, lacks, worth, riding, value, alone, classes, yielding, duel, sooner";

/// A mechanism, as an index of [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Account = 1,
    Lacks,
    Worth,
    Riding,
    Value,
    Alone,
    Classes,
    Yielding,
    Duel,
    Sooner,
}

/// The mechanisms that are switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without(u16);

impl Without {
    /// From names that are joined by `+`.
    pub fn named(text: &str) -> Result<Without, ParamError> {
        let mut all = 0;
        for name in text.split('+') {
            let found = NAMES.iter().position(|n| n.0 == name);
            let Some(i) = found else {
                let near = nearest(name, NAMES.iter().map(|n| n.0));
                return Err(ParamError::Value(RANGE, near));
            };
            all |= 1 << i;
        }
        // The first name, `none`, stands for no mechanism.
        Ok(Without(all & !1))
    }
    /// Whether this mechanism is on.
    pub fn has(self, part: Part) -> bool {
        self.0 >> (part as u16) & 1 == 0
    }
    /// In the form that [`Without::named`] accepts; `None`: all mechanisms are on.
    pub fn text(self) -> Option<String> {
        let mut text = String::new();
        let out = (1..NAMES.len()).filter(|i| self.0 >> i & 1 == 1);
        for i in out {
            if !text.is_empty() {
                text.push('+');
            }
            text.push_str(NAMES[i].0);
        }
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept() {
        let all = Without::default();
        assert!(all.has(Part::Account) && all.text().is_none());
        let two = Without::named("lacks+account").unwrap_or_default();
        assert!(!two.has(Part::Account) && !two.has(Part::Lacks) && two.has(Part::Value));
        assert_eq!(two.text().as_deref(), Some("account+lacks"));
        assert_eq!(Without::named("none"), Ok(all));
        assert!(matches!(Without::named("lack"), Err(ParamError::Value(_, n)) if n == "lacks"));
        for (i, name) in NAMES.iter().enumerate().skip(1) {
            assert_eq!(Without::named(name.0), Ok(Without(1 << i)));
            assert!(RANGE.contains(name.0) && !name.1.is_empty());
        }
    }
}
