//! Priority and limits of each class of data: the tables of DSS, and the changes that an administrator makes to them. `dss-lru-s` and
//! `benefit` take such rows.
//!
//! A row is `CLASSES+KEY=VALUE+…`, where CLASSES is a number or a range N-M: `1-7+pin`, `13-18+admit=never`, `8+priority=0+min=5+max=30`.
//!
//! | key | values | default | meaning |
//! |---|---|---|---|
//! | priority | 0…12 | DSS Table 3 and 5.7 | entries of priority 0 are evicted last |
//! | admit | always, calm, never | `dss-lru-s`: calm for 0 and 13…18, else always; `benefit`: by worth | whether a miss is copied; calm: only while the syncer sleeps (`benefit`: by worth, and not while most of flash is dirty) |
//! | pin | | no | entries are never evicted to make room |
//! | min | per cent of the entries | 0 | entries are not evicted to make room while the class has at most this share |
//! | max | per cent of the entries | 100 | if the class has this share, a miss replaces an entry of the same class, or bypasses |

use super::ParamError;
use super::classes::{LOWEST, priority};
use super::hold::is_large;
use alloc::string::String;
use alloc::vec::Vec;

const CLASSES: usize = crate::stats::CLASSES;
const ROWS_MAX: usize = 64;
/// Ranges that errors name. Each continues "parameter `class` must be".
pub(super) const FORM: &str = "CLASSES+KEY=VALUE, as 1-7+pin or 13-18+priority=6+max=20+admit=never, up to 64 times; keys priority (0 to 12), admit (always, calm, never), pin, min, max (per cent)";
const FEWER: &str = "one of at most 64 rows: `isotherm classes set VOLUME rows=none` removes all";
const ORDERED: &str = "a row after which no class has a min above its max";
const TOGETHER: &str = "a row with which the min of all classes together is at most 100 per cent (a min is that of each class of its row: 1-7+min=5 is 35 per cent)";

/// Whether a miss is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admit {
    /// If the copy is worth it. Only `benefit` can tell, and this is its default.
    ByWorth,
    Always,
    Calm,
    Never,
}

/// Priority, admission and limits of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub priority: u8,
    pub admit: Admit,
    pub pin: bool,
    /// Per cent of the entries.
    pub min: u8,
    pub max: u8,
}

/// All rows, and the text with which they were given.
#[derive(Clone, Debug)]
pub(super) struct ClassTable {
    rows: [Row; CLASSES],
    texts: Vec<String>,
}

impl Default for ClassTable {
    fn default() -> ClassTable {
        let row = |class: u8| Row {
            priority: priority(class),
            admit: if class == 0 || is_large(class) {
                Admit::Calm
            } else {
                Admit::Always
            },
            pin: false,
            min: 0,
            max: 100,
        };
        ClassTable {
            rows: core::array::from_fn(|c| row(c as u8)),
            texts: Vec::new(),
        }
    }
}

impl ClassTable {
    /// The priorities of DSS. Whether a miss is copied depends on its worth.
    pub fn by_worth() -> ClassTable {
        let mut table = ClassTable::default();
        table.rows.iter_mut().for_each(|r| r.admit = Admit::ByWorth);
        table
    }
    pub fn row(&self, class: u8) -> &Row {
        &self.rows[usize::from(class) % CLASSES]
    }
    /// Whether any row pins its class or limits its share.
    pub fn counts(&self) -> bool {
        self.rows.iter().any(|r| r.pin || r.min > 0 || r.max < 100)
    }
    pub fn texts(&self) -> &[String] {
        &self.texts
    }
    /// Adds a row.
    ///
    /// # Errors
    /// The row is invalid, alone or with the previous ones. Then nothing changes.
    pub fn set(&mut self, text: &str) -> Result<(), ParamError> {
        if self.texts.len() >= ROWS_MAX {
            return Err(ParamError::Range(FEWER));
        }
        let rows = self.with(text).ok_or(ParamError::Range(FORM))?;
        if rows.iter().any(|r| r.min > r.max) {
            return Err(ParamError::Range(ORDERED));
        }
        if rows.iter().map(|r| u32::from(r.min)).sum::<u32>() > 100 {
            return Err(ParamError::Range(TOGETHER));
        }
        self.rows = rows;
        self.texts.push(String::from(text));
        Ok(())
    }
    /// The rows with one more; `None` if its form is wrong.
    fn with(&self, text: &str) -> Option<[Row; CLASSES]> {
        let mut parts = text.split('+');
        let (a, b) = {
            let classes = parts.next()?;
            let (a, b) = classes.split_once('-').unwrap_or((classes, classes));
            (a.parse::<usize>().ok()?, b.parse::<usize>().ok()?)
        };
        if a > b || b >= CLASSES {
            return None;
        }
        let mut rows = self.rows;
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let number = |most: u8| value.parse::<u8>().ok().filter(|n| *n <= most);
            for row in &mut rows[a..=b] {
                match key {
                    "priority" => row.priority = number(LOWEST)?,
                    "min" => row.min = number(100)?,
                    "max" => row.max = number(100)?,
                    "pin" if value.is_empty() => row.pin = true,
                    "admit" => {
                        row.admit = match value {
                            "always" => Admit::Always,
                            "calm" => Admit::Calm,
                            "never" => Admit::Never,
                            _ => return None,
                        }
                    }
                    _ => return None,
                }
            }
        }
        Some(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_in_or_refused_whole() {
        let mut t = ClassTable::default();
        assert!(!t.counts());
        assert_eq!(
            (t.row(0).admit, t.row(13).admit),
            (Admit::Calm, Admit::Calm)
        );
        assert_eq!((t.row(7).admit, t.row(7).priority), (Admit::Always, 0));
        t.set("13-18+admit=never+priority=12").unwrap();
        t.set("8+priority=0+min=5+max=30").unwrap();
        assert_eq!((t.row(15).admit, t.row(15).priority), (Admit::Never, 12));
        assert_eq!((t.row(8).min, t.row(8).max, t.row(9).max), (5, 30, 100));
        assert!(t.counts());
        for (bad, why) in [
            ("64+pin", FORM),
            ("9-8+pin", FORM),
            ("8+priority=13", FORM),
            ("8+min=40", ORDERED),
            ("8+pin=1", FORM),
            ("8+admit=maybe", FORM),
            ("8+x", FORM),
            ("", FORM),
            ("+pin", FORM),
            ("20-30+min=10", TOGETHER),
        ] {
            let before = t.clone();
            assert_eq!(t.set(bad), Err(ParamError::Range(why)), "{bad}");
            assert_eq!(t.rows, before.rows);
        }
        assert_eq!(t.texts().len(), 2);
        for n in 2..ROWS_MAX {
            t.set(&alloc::format!("{}+pin", n % CLASSES)).unwrap();
        }
        assert_eq!(t.set("9+pin"), Err(ParamError::Range(FEWER)));
    }
}
