//! Mechanisms that can be left out, one or several at a time, to measure what each is good for (`bench/benefit/ablation.py`).
//!
//! Nobody needs this to serve a volume: with a mechanism left out `benefit` is slower, wears flash sooner, or both.

use crate::policy::{ParamError, nearest};
use alloc::string::String;

/// A mechanism: its name, and what is done without it.
const NAMES: [(&str, &str); 12] = [
    ("none", "everything is at work"),
    ("account", "what is not used again is copied as well"),
    (
        "sooner",
        "no write passes flash by for the slow device's cache",
    ),
    ("late", "nor if flash has a queue"),
    (
        "gaps",
        "cleaning looks at the time that was quiet, not at how long such gaps last",
    ),
    (
        "harm",
        "what cleaning costs those who come meanwhile does not count",
    ),
    (
        "emptying",
        "a slow device that empties its cache counts as quiet",
    ),
    (
        "lacks",
        "a read that its copy lacks is served and not fetched",
    ),
    (
        "worth",
        "a random clean copy goes for every newcomer, whatever they are worth",
    ),
    ("riding", "16 copies under way at once in place of 128"),
    (
        "value",
        "cleaning waits for the slow device to be quiet, whatever a clean copy is worth",
    ),
    (
        "alone",
        "flash takes writes, however late it is beside the slow device alone",
    ),
];
/// What may be left out, for messages.
const RANGE: &str = "none, or names of mechanisms joined by +: account, sooner, late, gaps, harm, emptying, lacks, worth, riding, value, alone";

/// A mechanism, as an index of [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Account = 1,
    Sooner,
    Late,
    Gaps,
    Harm,
    Emptying,
    Lacks,
    Worth,
    Riding,
    Value,
    Alone,
}

/// The mechanisms that are left out.
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
        // The first name is that of nothing.
        Ok(Without(all & !1))
    }
    /// Is this mechanism at work?
    pub fn has(self, part: Part) -> bool {
        self.0 >> (part as u16) & 1 == 0
    }
    /// As [`Without::named`] takes it; `None`: everything is at work.
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
        let two = Without::named("harm+account").unwrap_or_default();
        assert!(!two.has(Part::Account) && !two.has(Part::Harm) && two.has(Part::Value));
        assert_eq!(two.text().as_deref(), Some("account+harm"));
        assert_eq!(Without::named("none"), Ok(all));
        assert!(matches!(Without::named("gap"), Err(ParamError::Value(_, n)) if n == "gaps"));
        for (i, name) in NAMES.iter().enumerate().skip(1) {
            assert_eq!(Without::named(name.0), Ok(Without(1 << i)));
            assert!(RANGE.contains(name.0) && !name.1.is_empty());
        }
    }
}
