//! Reads class files of Open CAS (`ioclass-config.csv`), as far as a block server can know the properties that they use.
//!
//! ```text
//! IO class id,IO class name,Eviction priority,Allocation
//! 0,unclassified,22,0.00
//! 1,metadata&done,0,1.00
//! 11,file_size:le:4096&done,9,0.50
//! ```
//! A rule consists of conditions joined by `&` and `|`, evaluated from left to right, with an optional final `done`. As in Open CAS, the
//! last rule that matches applies, unless an earlier rule that matches has `done`.
//!
//! | condition | meaning here |
//! |---|---|
//! | `unclassified` | class 0 |
//! | `metadata` | classes 1 to 7, by the layout |
//! | `file_size:OP:N`, `extension:X`, `directory:PATH`, `file_name_prefix:X` | files of a mounted file system |
//! | `lba:OP:N` | ranges of the volume, in sectors of 512 bytes |
//! | `request_size`, `file_offset`, `direct`, `pid`, `process_name`, `io_direction`, `io_class`, `wlth`, `run_id`, `core_id` … | unknown to
//! a block server: the rule is omitted, and reported |
//!
//! Class N of Open CAS is class 30 + N (31 to 63) here, so that the numbers of DSS stay free.

use crate::files::{Facts, Ranges};
use std::path::PathBuf;

/// The offset that is added to a class number of Open CAS.
pub const OFFSET: u8 = 30;
const IDS_MAX: u8 = 33;
const LINES_MAX: usize = 4096;
const CONDITIONS_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Metadata,
    Size(Compare, u64),
    Lba(Compare, u64),
    Extension(String),
    Directory(PathBuf),
    Prefix(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    Eq,
    Ne,
    Lt,
    Gt,
    Le,
    Ge,
}

impl Compare {
    fn of(text: &str) -> Option<Compare> {
        Some(match text {
            "eq" => Compare::Eq,
            "ne" => Compare::Ne,
            "lt" => Compare::Lt,
            "gt" => Compare::Gt,
            "le" => Compare::Le,
            "ge" => Compare::Ge,
            _ => return None,
        })
    }
    fn holds(self, a: u64, b: u64) -> bool {
        match self {
            Compare::Eq => a == b,
            Compare::Ne => a != b,
            Compare::Lt => a < b,
            Compare::Gt => a > b,
            Compare::Le => a <= b,
            Compare::Ge => a >= b,
        }
    }
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The class number here.
    pub class: u8,
    /// The priority in Open CAS: class 0 is evicted last.
    pub priority: u8,
    /// Share of the cache that the class may use, 0 to 1.
    pub allocation: f64,
    /// The conditions. The flag of each condition is true if `&` precedes it, and false if `|` does.
    conditions: Vec<(bool, Condition)>,
    done: bool,
}

/// The content of a file, and the lines that cannot be used here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Import {
    /// The lines in the order of the file.
    pub lines: Vec<Line>,
    /// The line of `unclassified`, which is class 0.
    pub unclassified: Option<(u8, f64)>,
    /// Omitted lines: number and reason.
    pub left_out: Vec<(usize, String)>,
}

/// Parses a class file.
///
/// # Errors
/// The message names the wrong line and field. A condition that Open CAS knows and that is unknown here is not an error: see
/// [`Import::left_out`].
pub fn parse(text: &str) -> Result<Import, String> {
    let mut import = Import::default();
    let mut seen = [false; IDS_MAX as usize + 1];
    // Spreadsheets put a byte order mark first.
    let text = text.trim_start_matches('\u{feff}');
    for (i, line) in text.lines().enumerate() {
        let number = i + 1;
        let line = line.trim();
        if line.is_empty() || number == 1 && line.to_ascii_lowercase().starts_with("io class id") {
            continue;
        }
        if number > LINES_MAX {
            return Err(format!("line {number}: more than {LINES_MAX} lines"));
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [id, rule, priority, allocation] = fields[..] else {
            return Err(format!(
                "line {number}: four fields are expected: IO class id, IO class name, Eviction priority, Allocation"
            ));
        };
        let bad = |field: &str, form: &str| format!("line {number}: {field}: give {form}");
        let id: u8 = id
            .parse()
            .ok()
            .filter(|n| *n <= IDS_MAX)
            .ok_or_else(|| bad("IO class id", "0 to 33"))?;
        if std::mem::replace(&mut seen[usize::from(id)], true) {
            return Err(format!("line {number}: IO class id {id} is there twice"));
        }
        let priority = priority
            .parse()
            .map_err(|_| bad("Eviction priority", "0 to 255"))?;
        let allocation: f64 = allocation
            .parse()
            .ok()
            .filter(|a| (0.0..=1.0).contains(a))
            .ok_or_else(|| bad("Allocation", "0.00 to 1.00"))?;
        if rule == "unclassified" {
            import.unclassified = Some((priority, allocation));
            continue;
        }
        match conditions(rule).map_err(|e| format!("line {number}: {e}"))? {
            Ok((conditions, done)) if id > 0 => import.lines.push(Line {
                class: OFFSET + id,
                priority,
                allocation,
                conditions,
                done,
            }),
            Ok(_) => return Err(bad("IO class id", "1 to 33; 0 is for unclassified")),
            Err(why) => import.left_out.push((number, why)),
        }
    }
    // An import replaces the whole table, so an empty file would silently remove it.
    if !seen.contains(&true) {
        return Err(
            "there is no class: each line has IO class id, IO class name, Eviction priority, Allocation"
                .to_owned(),
        );
    }
    Ok(import)
}

type Conditions = (Vec<(bool, Condition)>, bool);

/// The outer error is for invalid syntax, the inner one for conditions that are unknown here.
fn conditions(rule: &str) -> Result<Result<Conditions, String>, String> {
    let mut all = Vec::new();
    let mut done = false;
    let mut rest = rule;
    let mut and = false;
    loop {
        let end = rest.find(['&', '|']).unwrap_or(rest.len());
        let (part, tail) = rest.split_at(end);
        if done {
            return Err("`done` comes last".to_owned());
        }
        if part.trim() == "done" {
            done = true;
        } else {
            match condition(part.trim())? {
                Ok(c) => all.push((and, c)),
                Err(why) => return Ok(Err(why)),
            }
        }
        if all.len() > CONDITIONS_MAX {
            return Err(format!("more than {CONDITIONS_MAX} conditions"));
        }
        match tail.chars().next() {
            None => break,
            Some(c) => and = c == '&',
        }
        rest = &tail[1..];
    }
    if all.is_empty() {
        return Err(format!("`{rule}`: no condition"));
    }
    Ok(Ok((all, done)))
}

fn condition(text: &str) -> Result<Result<Condition, String>, String> {
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    let number = || {
        let (op, n) = value.split_once(':').unwrap_or(("eq", value));
        let op = Compare::of(op).ok_or_else(|| format!("`{text}`: eq, ne, lt, gt, le or ge"))?;
        let n = n
            .parse::<u64>()
            .map_err(|_| format!("`{text}`: a number"))?;
        Ok::<_, String>((op, n))
    };
    let word = || {
        if value.is_empty() {
            return Err(format!("`{text}`: what is missing behind the colon"));
        }
        Ok(value.to_owned())
    };
    Ok(Ok(match name {
        "metadata" => Condition::Metadata,
        "file_size" => number().map(|(o, n)| Condition::Size(o, n))?,
        "lba" => number().map(|(o, n)| Condition::Lba(o, n))?,
        "extension" => Condition::Extension(word()?),
        "directory" => Condition::Directory(PathBuf::from(word()?)),
        "file_name_prefix" => Condition::Prefix(word()?),
        "request_size" | "file_offset" | "direct" | "pid" | "process_name" | "io_direction"
        | "io_class" | "wlth" | "run_id" | "core_id" => {
            return Ok(Err(format!("`{name}` cannot be known by a block server")));
        }
        _ => return Err(format!("`{text}`: no condition of Open CAS")),
    }))
}

impl Line {
    /// Whether the line is about metadata only.
    pub fn is_metadata(&self) -> bool {
        self.conditions.iter().all(|c| c.1 == Condition::Metadata)
    }

    fn fits(&self, holds: impl Fn(&Condition) -> bool) -> bool {
        self.conditions.iter().fold(false, |so_far, (and, c)| {
            if *and {
                so_far && holds(c)
            } else {
                so_far || holds(c)
            }
        })
    }
}

impl Import {
    /// The class of a file below the mount point. `root` is prepended to its path if rules name directories.
    pub fn of_file(&self, f: Facts<'_>, root: &std::path::Path) -> Option<u8> {
        let name = f.path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        let extension = f.path.extension().and_then(|e| e.to_str()).unwrap_or("");
        let holds = |c: &Condition| match c {
            Condition::Metadata | Condition::Lba(..) => false,
            Condition::Size(op, n) => op.holds(f.size, *n),
            Condition::Extension(e) => e == extension,
            Condition::Directory(d) => root.join(f.path).starts_with(d),
            Condition::Prefix(p) => name.starts_with(p.as_str()),
        };
        self.last(|l| l.fits(holds)).map(|l| l.class)
    }

    /// Ranges of a volume of `bytes` to which rules refer by sectors alone.
    pub fn ranges(&self, bytes: u64) -> Ranges {
        let sectors = bytes / 512;
        // Classes change only at numbers that occur in a rule.
        let mut edges = vec![0, sectors];
        for (_, c) in self.lines.iter().flat_map(|l| &l.conditions) {
            if let Condition::Lba(_, n) = c {
                edges.extend(
                    [*n, n.saturating_add(1)]
                        .into_iter()
                        .filter(|e| *e < sectors),
                );
            }
        }
        edges.sort_unstable();
        edges.dedup();
        let mut all = Ranges::new();
        for pair in edges.windows(2) {
            let holds = |c: &Condition| matches!(c, Condition::Lba(op, n) if op.holds(pair[0], *n));
            let (from, bytes) = (pair[0] * 512, (pair[1] - pair[0]) * 512);
            match (self.last(|l| l.fits(holds)), all.last_mut()) {
                (None, _) => {}
                (Some(line), Some(last)) if last.0 + last.1 == from && last.2 == line.class => {
                    last.1 += bytes;
                }
                (Some(line), _) => all.push((from, bytes, line.class)),
            }
        }
        all
    }

    /// The last line that matches, or the first one with `done`.
    fn last(&self, fits: impl Fn(&Line) -> bool) -> Option<&Line> {
        let mut found = None;
        for line in self.lines.iter().filter(|l| fits(l)) {
            found = Some(line);
            if line.done {
                break;
            }
        }
        found
    }

    /// The rows for `dss-lru-s`: priorities in the order of rank, allocations as shares.
    pub fn rows(&self) -> Vec<String> {
        let mut ranks: Vec<u8> = self.lines.iter().map(|l| l.priority).collect();
        ranks.extend(self.unclassified.map(|u| u.0));
        ranks.sort_unstable();
        ranks.dedup();
        let row = |classes: &str, priority: u8, allocation: f64| {
            let rank = ranks.partition_point(|r| *r < priority).min(12);
            let share = match (allocation * 100.0) as u32 {
                0 => "+admit=never".to_owned(),
                100 => "+admit=always".to_owned(),
                n => format!("+admit=always+max={n}"),
            };
            format!("{classes}+priority={rank}{share}")
        };
        let mut rows: Vec<String> = (self.lines.iter())
            .map(|l| row(&l.class.to_string(), l.priority, l.allocation))
            .collect();
        if let Some(l) = self.lines.iter().find(|l| l.is_metadata()) {
            rows.push(row("1-7", l.priority, l.allocation));
        }
        rows.extend(self.unclassified.map(|(p, a)| row("0", p, a)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const FILE: &str = "IO class id,IO class name,Eviction priority,Allocation\n0,unclassified,22,0.00\n\
        1,metadata&done,0,1.00\n11,file_size:le:4096&done,9,0.50\n12,file_size:gt:4096&file_size:le:16384&done,10,1.00\n\
        20,extension:mkv|directory:/srv/media,200,0.00\n21,request_size:gt:65536,5,1.00\n22,lba:ge:2048&lba:lt:4096,1,1\n";

    #[test]
    fn their_example_is_understood() {
        let import = parse(FILE).unwrap();
        assert_eq!(import.lines.len(), 5);
        // As a spreadsheet saves it.
        let saved = format!("\u{feff}{}", FILE.replace('\n', "\r\n"));
        assert_eq!(parse(&saved).as_ref(), Ok(&import));
        assert_eq!(
            import.left_out,
            [(
                7,
                "`request_size` cannot be known by a block server".to_owned()
            )]
        );
        let class = |path: &str, size| {
            let facts = Facts {
                path: Path::new(path),
                size,
                owner: 0,
                age_s: 0,
            };
            import.of_file(facts, Path::new("/srv"))
        };
        assert_eq!(
            [class("a", 10), class("a", 5000), class("a", 1 << 20)],
            [Some(41), Some(42), None]
        );
        assert_eq!(
            [class("a.mkv", 1 << 20), class("media/x", 1 << 20)],
            [Some(50), Some(50)]
        );
        assert_eq!(import.ranges(1 << 30), [(1 << 20, 1 << 20, 52)]);
        assert_eq!(
            import.rows(),
            [
                "31+priority=0+admit=always",
                "41+priority=2+admit=always+max=50",
                "42+priority=3+admit=always",
                "50+priority=5+admit=never",
                "52+priority=1+admit=always",
                "1-7+priority=0+admit=always",
                "0+priority=4+admit=never"
            ]
        );
    }

    #[test]
    fn errors_name_line_and_field() {
        for (text, what) in [
            ("1,metadata,0", "line 1: four fields"),
            ("99,metadata,0,1", "line 1: IO class id"),
            ("\n1,metadata,x,1", "line 2: Eviction priority"),
            ("1,metadata,1,2", "line 1: Allocation"),
            ("1,file_size:about:5,1,1", "eq, ne"),
            ("1,moon,1,1", "no condition of Open CAS"),
            ("1,done&metadata,1,1", "`done` comes last"),
            ("1,metadata,1,1\n1,metadata,1,1", "there twice"),
            ("1,done,1,1", "no condition"),
            ("", "there is no class"),
            (
                "IO class id,IO class name,Eviction priority,Allocation\n",
                "there is no class",
            ),
        ] {
            let e = parse(text).unwrap_err();
            assert!(e.contains(what), "{text}: {e}");
        }
    }
}
